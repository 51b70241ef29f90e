(* Part 6. Adaptive composition: rounds that depend on what the rounds before have shown, each no easier to tell apart
   than two normal laws, are together no easier to tell apart than two normal laws whose squared distance is the sum.

   A round shows one of finitely many outcomes: a finite reading of noisy numbers, as fine as one likes. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From mathcomp.classical Require Import boolp classical_sets.
From mathcomp.analysis Require Import reals signed ereal measure lebesgue_measure lebesgue_integral topology normedtype.
From mathcomp.analysis Require Import sequences exp trigo.
From dpunion Require Import vectors coins gaussian.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Means.
Variable R : realType.
Implicit Types (f g : R -> \bar R) (mu a b : R).

Lemma density_ge0 (z : R) : 0 <= density z.
Proof. by rewrite divr_ge0 ?sqrtr_ge0 // ltW ?expR_gt0. Qed.

Lemma mean_le f g : (forall z, 0%:E <= f z)%E -> (forall z, f z <= g z)%E -> (normal_mean f <= normal_mean g)%E.
Proof.
move=> f0 fg.
have less z : (f z * (density z)%:E <= g z * (density z)%:E)%E by rewrite lee_wpmul2r // lee_fin density_ge0.
have pos z : (0%:E <= f z * (density z)%:E)%E by rewrite mule_ge0 // lee_fin density_ge0.
have pos' z : (0%:E <= g z * (density z)%:E)%E by apply: le_trans (less z); exact: pos.
rewrite /normal_mean !ge0_integralTE //; apply: le_ereal_sup => _ [h hf <-]; exists h => // z.
exact: le_trans (hf z) (less z).
Qed.

(* What the ratio, taken a times, has above b. *)
Definition above mu a b (z : R) : R := Num.max 0 (a * ratio mu z - b).

Lemma above_ge0 mu a b z : 0 <= above mu a b z.
Proof. by rewrite le_maxr lexx. Qed.

Lemma measurable_expR (f : R -> R) : measurable_fun setT f -> measurable_fun setT (fun z => expR (f z)).
Proof.
move=> mf; apply: (@measurable_fun_comp _ _ _ _ _ _ (@expR R) setT f) => //.
by apply: continuous_measurable_fun; exact: continuous_expR.
Qed.

Lemma measurable_density : measurable_fun setT (@density R).
Proof.
apply: measurable_funM; last exact: measurable_fun_cst.
apply: measurable_expR; apply: measurable_funN; apply: measurable_funM; last exact: measurable_fun_cst.
by apply: measurable_fun_exprn; exact: measurable_fun_id.
Qed.

Lemma measurable_ratio mu : measurable_fun setT (ratio mu).
Proof.
apply: measurable_expR; apply: measurable_funB; last exact: measurable_fun_cst.
by apply: measurable_funrM; exact: measurable_fun_id.
Qed.

Lemma measurable_above mu a b : measurable_fun setT (above mu a b).
Proof.
apply: measurable_fun_max; first exact: measurable_fun_cst.
by apply: measurable_funB; [apply: measurable_funrM; exact: measurable_ratio | exact: measurable_fun_cst].
Qed.

Lemma measurable_term (f : R -> R) : measurable_fun setT f ->
  measurable_fun setT (fun z => ((f z)%:E * (density z)%:E)%E).
Proof. by move=> mf; apply/EFin_measurable_fun; apply: measurable_funM => //; exact: measurable_density. Qed.

Lemma mean_scale mu a b c : 0 <= c ->
  (c%:E * normal_mean (fun z => (above mu a b z)%:E) = normal_mean (fun z => (c * above mu a b z)%:E))%E.
Proof.
move=> c0; rewrite /normal_mean -ge0_integralM_EFin //.
- by apply: eq_integral => z _; rewrite muleA EFinM.
- by move=> z _; rewrite mule_ge0 // lee_fin ?above_ge0 ?density_ge0.
- by apply: measurable_term; exact: measurable_above.
Qed.

Lemma mean_sum (T : finType) mu (a b : T -> R) :
  (\sum_t normal_mean (fun z => (above mu (a t) (b t) z)%:E)
   = normal_mean (fun z => (\sum_t above mu (a t) (b t) z)%:E))%E.
Proof.
rewrite /normal_mean -ge0_integral_sum //.
- apply: eq_integral => z _; rewrite -sumEFin ge0_sume_distrl // => t _.
  by rewrite lee_fin above_ge0.
- by move=> t; apply: measurable_term; exact: measurable_above.
- by move=> t z _; rewrite mule_ge0 // lee_fin ?above_ge0 ?density_ge0.
Qed.

End Means.

(* ------------------------------------------------------------------ pairs of finite laws *)

Section Pairs.
Variables (R : realType) (T : finType).
Implicit Types (p q : T -> R) (eps mu : R).

(* The hockey-stick divergence: the most by which p exceeds e^eps q on any event. *)
Definition hockey eps p q : R := \sum_t Num.max 0 (p t - expR eps * q t).

(* p and q are no easier to tell apart than two normal laws mu scales apart, whatever eps. *)
Definition gaussian_pair mu p q := forall eps, hockey eps p q <= delta_G eps mu.

Definition is_finite_law p := (forall t, 0 <= p t) /\ \sum_t p t = 1.

Lemma hockey_event eps p q (A : pred T) : \sum_(t | A t) p t <= expR eps * (\sum_(t | A t) q t) + hockey eps p q.
Proof.
rewrite -ler_subl_addl mulr_sumr -sumrB; apply: (@le_trans _ _ (\sum_(t | A t) Num.max 0 (p t - expR eps * q t))).
  by apply: ler_sum => t _; rewrite le_maxr lexx orbT.
by rewrite [X in _ <= X](bigID A) ler_addl; apply: sumr_ge0 => t _; rewrite le_maxr lexx.
Qed.

Variable mean_formula : delta_G_is_mean R.

Lemma scale_max (c x : R) : 0 <= c -> c * Num.max 0 x = Num.max 0 (c * x).
Proof. by move=> c0; rewrite maxr_pmulr // mulr0. Qed.

(* The same with any two factors in place of 1 and e^eps. *)
Lemma pair_above mu p q a b : 0 <= mu -> (forall t, 0 <= p t) -> (forall t, 0 <= q t) -> gaussian_pair mu p q ->
  0 <= a -> 0 <= b -> ((\sum_t Num.max 0 (a * p t - b * q t))%:E <= normal_mean (fun z => (above mu a b z)%:E))%E.
Proof.
move=> mu0 p0 q0 close a0 b0.
have mean0 c : (0%:E <= normal_mean (fun z => (above mu a c z)%:E))%E.
  by apply: integral_ge0 => z _; rewrite mule_ge0 // lee_fin ?above_ge0 ?density_ge0.
have [a_gt0|] := ltrP 0 a; last first.
  move=> a_le0; have -> : a = 0 by apply/eqP; rewrite eq_le a_le0.
  rewrite big1 => [|t _]; last by rewrite mul0r sub0r; apply/max_idPl; rewrite oppr_le0 mulr_ge0.
  by apply: integral_ge0 => z _; rewrite mule_ge0 // lee_fin ?above_ge0 ?density_ge0.
(* for positive factors it is the hypothesis at ln (b / a) *)
have positive c : 0 < c -> ((\sum_t Num.max 0 (a * p t - c * q t))%:E <= normal_mean (fun z => (above mu a c z)%:E))%E.
  move=> c0; have ca : c = a * expR (ln (c / a)) by rewrite lnK ?qualifE ?divr_gt0 // mulrCA divff ?mulr1 ?gt_eqF.
  set e := ln (c / a) in ca.
  have -> : \sum_t Num.max 0 (a * p t - c * q t) = a * hockey e p q.
    by rewrite mulr_sumr; apply: eq_bigr => t _; rewrite scale_max ?(ltW a_gt0) // mulrBr mulrA -ca.
  apply: (@le_trans _ _ (a%:E * (delta_G e mu)%:E)%E).
    by rewrite -EFinM lee_fin ler_wpmul2l // close.
  rewrite mean_formula // (_ : (fun z => _) = (fun z => (above mu 1 (expR e) z)%:E)); last first.
    by apply/funext => z; rewrite /above mul1r.
  rewrite mean_scale //; apply: mean_le => z; rewrite lee_fin ?mulr_ge0 ?above_ge0 //.
  by rewrite /above scale_max // mulrBr mul1r -ca.
have [b_gt0|b_le0] := ltrP 0 b; first exact: positive.
have -> : b = 0 by apply/eqP; rewrite eq_le b_le0.
apply: lee_adde => e; set s := \sum_t q t; have s0 : 0 <= s by apply: sumr_ge0.
have s1 : 0 < s + 1 by rewrite ltr_paddl.
pose c := e%:num / (s + 1); have c0 : 0 < c by rewrite divr_gt0.
apply: (@le_trans _ _ ((\sum_t Num.max 0 (a * p t - c * q t))%:E + (e%:num)%:E)%E).
  rewrite -EFinD lee_fin; apply: (@le_trans _ _ (\sum_t (Num.max 0 (a * p t - c * q t) + c * q t))).
    apply: ler_sum => t _; have less : 0 <= c * q t by rewrite mulr_ge0 // ltW.
    by rewrite mul0r subr0 addr_maxl add0r subrK le_maxl !le_maxr less lexx orbT.
  rewrite big_split /= ler_add2l -mulr_sumr -/s /c mulrAC ler_pdivr_mulr // ler_wpmul2l //.
  by rewrite ler_addl.
apply: lee_add2r; apply: le_trans (positive c c0) _.
apply: mean_le => z; rewrite lee_fin ?above_ge0 // /above le_maxl !le_maxr lexx /= subr0.
by apply/orP; right; rewrite ler_subl_addr ler_addl ltW.
Qed.

End Pairs.

(* ------------------------------------------------------------------ one round after another *)

Section Composition.
Variable R : realType.
Hypotheses (mean_formula : delta_G_is_mean R) (add_up : normals_add R).

Definition both_squares (mu nu : R) : R := Num.sqrt (mu ^+ 2 + nu ^+ 2).

(* Two rounds: the second may be any pair that the first one's outcome chooses. *)
Theorem composition_step (S T : finType) (mu nu : R) (p q : S -> R) (p' q' : S -> T -> R) :
  0 <= mu -> 0 <= nu -> (forall s, 0 <= p s) -> (forall s, 0 <= q s) ->
  (forall s t, 0 <= p' s t) -> (forall s t, 0 <= q' s t) ->
  gaussian_pair mu p q -> (forall s, gaussian_pair nu (p' s) (q' s)) ->
  gaussian_pair (both_squares mu nu) (fun st : S * T => p st.1 * p' st.1 st.2) (fun st => q st.1 * q' st.1 st.2).
Proof.
move=> mu0 nu0 p0 q0 p0' q0' close close' eps.
rewrite -lee_fin mean_formula ?sqrtr_ge0 // /hockey.
rewrite -(pair_bigA _ (fun s t => Num.max 0 (p s * p' s t - expR eps * (q s * q' s t)))) /=.
apply: (@le_trans _ _ (\sum_s normal_mean (fun z => (above nu (p s) (expR eps * q s) z)%:E))%E).
  rewrite -sumEFin; apply: lee_sum => s _; have e0 : 0 <= expR eps * q s by rewrite mulr_ge0 // ltW ?expR_gt0.
  under eq_bigr do rewrite mulrA.
  exact: pair_above (nu0) (p0' s) (q0' s) (close' s) (p0 s) e0.
rewrite mean_sum.
pose f x : R := Num.max 0 (expR (x - (mu ^+ 2 + nu ^+ 2) / 2%:R) - expR eps).
have f0 x : 0 <= f x by rewrite le_maxr lexx.
have mf : measurable_fun setT f.
  apply: measurable_fun_max; first exact: measurable_fun_cst.
  apply: measurable_funB; last exact: measurable_fun_cst.
  by apply: measurable_expR; apply: measurable_funB; [exact: measurable_fun_id | exact: measurable_fun_cst].
have -> : normal_mean (fun z => (Num.max 0 (ratio (both_squares mu nu) z - expR eps))%:E)
    = normal_mean (fun z => (f (Num.sqrt (mu ^+ 2 + nu ^+ 2) * z))%:E).
  congr normal_mean; apply/funext => z; rewrite /f /ratio /both_squares sqr_sqrtr //.
  by rewrite addr_ge0 // sqr_ge0.
rewrite -(add_up mu nu mf f0); apply: mean_le => z.
  by rewrite lee_fin; apply: sumr_ge0 => s _; exact: above_ge0.
have -> : \sum_s above nu (p s) (expR eps * q s) z
    = \sum_s Num.max 0 (ratio nu z * p s - expR eps * q s).
  by apply: eq_bigr => s _; rewrite /above mulrC.
apply: le_trans (pair_above mean_formula mu0 p0 q0 close (ltW (expR_gt0 _)) (ltW (expR_gt0 _))) _.
apply: mean_le => z'; first by rewrite lee_fin above_ge0.
rewrite lee_fin /above /f /ratio -expRD le_eqVlt; apply/orP; left; apply/eqP; congr (Num.max 0 (expR _ - _)).
by rewrite mulrDl; ring.
Qed.

(* A history of n rounds, each with an outcome in T. chances says how likely an outcome is, given those before it, the
   last one first. *)
Fixpoint history (T : finType) (chances : seq T -> T -> R) (past h : seq T) : R :=
  if h is t :: rest then chances past t * history chances (t :: past) rest else 1.

Lemma history_ge0 (T : finType) (chances : seq T -> T -> R) past h :
  (forall past t, 0 <= chances past t) -> 0 <= history chances past h.
Proof. by move=> all0; elim: h past => //= t h IH past; rewrite mulr_ge0. Qed.

(* The sum over all histories of n + 1 rounds: over the first outcome, then over the rest. *)
Lemma sum_histories (T : finType) n (F : seq T -> R) :
  \sum_(h : n.+1.-tuple T) F h = \sum_t \sum_(h : n.-tuple T) F (t :: h).
Proof.
rewrite pair_bigA /= (reindex (fun th : T * n.-tuple T => [tuple of th.1 :: th.2])) //=.
exists (fun h : n.+1.-tuple T => (thead h, [tuple of behead h])) => [[t h] _|h _] /=.
  by congr (_, _); apply: val_inj.
by rewrite -tuple_eta.
Qed.

Lemma history_total (T : finType) (chances : seq T -> T -> R) n past :
  (forall past, \sum_t chances past t = 1) -> \sum_(h : n.-tuple T) history chances past h = 1.
Proof.
move=> total; elim: n past => [|n IH] past.
  by rewrite (big_pred1 [tuple]) // => h; apply/esym/eqP; exact: tuple0.
rewrite sum_histories /= -[RHS](total past); apply: eq_bigr => t _.
by rewrite -mulr_sumr IH mulr1.
Qed.

(* The squared distances of the rounds add up. mu r is the distance of round r, whatever the outcomes before it. *)
Definition squares_of (mu : nat -> R) (first n : nat) : R := \sum_(first <= r < first + n) mu r ^+ 2.

Theorem adaptive_composition (T : finType) n (mu : nat -> R) (p q : seq T -> T -> R) :
  (forall r, 0 <= mu r) -> (forall past t, 0 <= p past t) -> (forall past t, 0 <= q past t) ->
  (forall past : seq T, (size past < n)%N -> gaussian_pair (mu (size past)) (p past) (q past)) ->
  gaussian_pair (Num.sqrt (squares_of mu 0 n)) (fun h : n.-tuple T => history p [::] h) (fun h => history q [::] h).
Proof.
move=> mu0 p0 q0 close.
suff general k (past : seq T) : (size past + k <= n)%N ->
    gaussian_pair (Num.sqrt (squares_of mu (size past) k))
      (fun h : k.-tuple T => history p past h) (fun h => history q past h).
  exact: (general n [::]).
elim: k past => [|k IH] past within eps.
  rewrite /squares_of addn0 big_geq // sqrtr0 /hockey (big_pred1 [tuple]) => [|h]; last first.
    by apply/esym/eqP; exact: tuple0.
  by rewrite /= mulr1 /delta_G eqxx.
have inside : (size past < n)%N by rewrite (leq_trans _ within) // addnS ltnS leq_addr.
have rest t : gaussian_pair (Num.sqrt (squares_of mu (size past).+1 k))
    (fun h : k.-tuple T => history p (t :: past) h) (fun h => history q (t :: past) h).
  by apply: IH; rewrite /= addSnnS.
have squares0 first m : 0 <= squares_of mu first m by apply: sumr_ge0 => r _; rewrite ?sqr_ge0.
have := composition_step (mu0 _) (sqrtr_ge0 _) (p0 past) (q0 past)
  (fun t (h : k.-tuple T) => history_ge0 (t :: past) h p0) (fun t (h : k.-tuple T) => history_ge0 (t :: past) h q0)
  (close past inside) rest eps.
rewrite /both_squares sqr_sqrtr //.
have -> : mu (size past) ^+ 2 + squares_of mu (size past).+1 k = squares_of mu (size past) k.+1.
  by rewrite /squares_of -addSnnS [in RHS]big_ltn // addSn ltnS leq_addr.
apply: le_trans; rewrite /hockey.
rewrite (sum_histories _ (fun h => Num.max 0 (history p past h - expR eps * history q past h))) /=.
by rewrite -(pair_bigA _ (fun t (h : k.-tuple T) => Num.max 0 (p past t * history p (t :: past) h
  - expR eps * (q past t * history q (t :: past) h)))).
Qed.

End Composition.

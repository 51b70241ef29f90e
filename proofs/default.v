(* Part 10. End to end: the default release (a look, a plan chosen by it, the rounds of Funnel with or without a list,
   the steps of counting) is (eps, delta)-private if the plan's certificate holds. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From mathcomp.classical Require Import boolp classical_sets.
From mathcomp.analysis Require Import reals ereal measure lebesgue_measure lebesgue_integral sequences exp.
From dpunion Require Import vectors contraction sensitivity novelty coins gaussian composition events rounds.
From dpunion Require Import novel_walk look.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

(* ------------------------------------------------------------------ Theorem B for all novel items of Funnel *)

Section TheoremB.
Variables (R : realType) (S M Z K I : finType) (N : {set I}).
Variables (shows : seq (S * M) -> S -> R) (noise : M -> R) (own : I -> M -> Z) (others : I -> M -> K).
Variables (lam : Z -> R) (kap : I -> K -> R) (zeta : Z -> R).
Hypotheses (law_shows : forall past, is_finite_law (shows past)) (law_noise : is_finite_law noise).
Hypotheses (law_lam : is_finite_law lam) (law_kap : forall i, is_finite_law (kap i)).
(* Every novel item's noise is independent of its companions'. *)
Hypothesis independent : forall i (F : Z -> K -> R),
  \sum_m noise m * F (own i m) (others i m) = \sum_z \sum_k lam z * kap i k * F z k.
Variables (c line aim cutoff : nat -> R) (rho sigma y : R) (crowd_need : I -> nat -> seq K -> R).
Hypotheses (c_ge0 : forall r, 0 <= c r) (aim_ge0 : forall r, 0 <= aim r) (aims : forall r, c r * aim r <= 1).
Hypotheses (need_ge0 : forall i r before, 0 <= crowd_need i r before) (rho_ge0 : 0 <= rho).

(* The most a novel item can get: y in round 1; later what (2) says, beside the needs of the crowd that counts. *)
Definition funnel_most i r (before : seq K) (s : R) : R :=
  if r == 0%N then y else walk_gift (c r) (aim r) (cutoff r) (crowd_need i r before) s.

Variable given : I -> seq (S * M) -> R.
Let score_of i := score (own i) c sigma zeta (given i) 0.
Hypothesis given_most : forall i past, i \in N -> score_of i past <= rho ->
  given i past <= funnel_most i (size past) (crowd_noise (others i) past) (score_of i past).

(* The chance of one walk, averaged over the noise of its crowd. *)
Definition walk_chance i (n : nat) : R := \sum_(crowd : n.-tuple K)
  crowd_chance (kap i) crowd * walk lam c line rho sigma zeta (funnel_most i) 0 [::] crowd 0.

Definition some_passes (h : seq (S * M)) : bool :=
  [exists i in N, passes (own i) c line rho sigma zeta (given i) 0 [::] h].

Theorem theorem_B n each : (forall i, i \in N -> walk_chance i n <= each) ->
  \sum_(h : n.-tuple (S * M) | some_passes h) history (chances shows noise) [::] h <= #|N|%:R * each.
Proof.
move=> bounded; have noise0 m : 0 <= noise m by case: law_noise.
apply: some_novel_passes => [h|i iN].
  by apply: history_ge0 => past o; rewrite mulr_ge0 //; case: (law_shows past).
apply: le_trans (bounded i iN).
apply: (@follow_one _ _ _ _ _ shows noise (own i) (others i) lam (kap i) law_shows law_lam (law_kap i) noise0
  (independent i) c line rho sigma zeta c_ge0 (given i) (funnel_most i) 0 _ _ n [::]) => //= [past|r before s s' ss _].
  exact: given_most.
rewrite /funnel_most; case: eqP => _; first by rewrite ler_add2r.
exact: higher_stays_higher.
Qed.

End TheoremB.

(* ------------------------------------------------------------------ one plan *)

(* What plan computes. At most plan_most items count for one person; round 1 has the budget plan_c1, and gives no novel
   item more than plan_top; plan_sigma is the noise of the list; plan_counting is what further steps add to the squared
   distance; plan_bad t y bounds the chance that one of t novel items comes out, when round 1 gives each of them y. *)
Record plan_numbers (R : Type) := PlanNumbers {
  plan_most : nat; plan_c1 : R; plan_top : R; plan_sigma : R; plan_counting : R; plan_bad : nat -> R -> R }.

(* What t novel items can get in round 1. *)
Definition round1_region (R : realType) (plan : plan_numbers R) (t : nat) (y : R) : bool :=
  [&& (t <= plan_most plan)%N, 0 <= y, y <= plan_top plan & t%:R * y ^+ 2 <= plan_c1 plan ^+ 2].

(* The squared distance of all rounds when round 1 gives each of t novel items y: the list's, and what counting adds. *)
Definition all_squares (R : realType) (plan : plan_numbers R) t y : R :=
  (1 - plan_c1 plan ^+ 2 + first_spare (plan_most plan) (plan_c1 plan) t y) / plan_sigma plan ^+ 2 + plan_counting plan.

(* What plan evaluates. mu0 bounds the distance without novel items. *)
Record plan_certified (R : realType) (eps delta mu0 : R) (plan : plan_numbers R) : Prop := PlanCertified {
  distance_within : forall t y, round1_region plan t y -> Num.sqrt (all_squares plan t y) <= mu0;
  bad_ge0 : forall t y, 0 <= plan_bad plan t y;
  keeps_delta : forall t y, round1_region plan t y ->
    delta_G eps (Num.sqrt (all_squares plan t y)) + plan_bad plan t y <= delta }.

Section OnePlan.
Variables (R : realType) (C I M : finType) (Y : Type).
Local Notation S := {ffun I -> C}.

(* What is read of a noisy number is one of finitely many things, each on a set of numbers that has a measure. *)
Definition can_be_read (f : I -> R -> C) : Prop := forall i c, measurable [set z | f i z = c]%classic.

(* Rounds on one database, with v and without v. Round r adds noise of the scale spread r to the sums of its places, and
   what is read of them may depend on all that was read before. The noise of novel items is in M. *)
Record process := Process {
  rounds_of : nat;
  spread : nat -> R;
  read : seq S -> I -> R -> C;
  sums_with : seq (S * M) -> {ffun I -> R};
  sums_without : seq S -> {ffun I -> R};
  novel_noise : M -> R;
  betrays : pred (seq (S * M));
  shown : seq (S * M) -> Y;
  view : seq S -> Y }.

Variable A : process.
Definition law_with (past : seq (S * M)) : S -> R :=
  readings (spread A (size past)) (read A (shared past)) (sums_with A past).
Definition law_without (past : seq S) : S -> R := readings (spread A (size past)) (read A past) (sums_without A past).
Definition output_with (O : pred Y) : R := released_with law_with (novel_noise A) (rounds_of A) (shown A) O.
Definition output_without (O : pred Y) : R := released_without law_without (rounds_of A) (view A) O.

(* The process runs by the plan: v has t novel items, which get y each in round 1, and moves round r by dist r. *)
Record runs_by (plan : plan_numbers R) (dist : nat -> R) (t : nat) (y : R) : Prop := RunsBy {
  noisy : forall r, 0 < spread A r;
  distances : forall r, 0 <= dist r;
  noise_law : is_finite_law (novel_noise A);
  reads : forall past, can_be_read (read A past);
  stays_betrayed : forall h o, betrays A h -> betrays A (rcons h o);
  (* As long as no novel item has come out. *)
  moves : forall past : seq (S * M), (size past < rounds_of A)%N -> ~~ betrays A (rev past) ->
    norm2 (sums_with A past - sums_without A (shared past)) <= dist (size past);
  region : round1_region plan t y;
  budgets : squares_of (fun r => dist r / spread A r) 0 (rounds_of A) <= all_squares plan t y;
  (* Theorem B, in both laws. *)
  rare_with : chance_with law_with (novel_noise A) (rounds_of A) (betrays A) <= plan_bad plan t y;
  rare_ghost : chance_ghost law_without (novel_noise A) (rounds_of A) (betrays A) <= plan_bad plan t y;
  quiet : forall h, ~~ betrays A h -> shown A h = view A (shared h) }.

Hypotheses (readings_fact : gaussian_readings R) (grows : delta_G_grows R).
Hypotheses (mean_formula : delta_G_is_mean R) (add_up : normals_add R).

Lemma round_is_law past : (forall r, 0 < spread A r) ->
  (forall past, can_be_read (read A past)) -> is_finite_law (law_with past).
Proof.
move=> pos mes; have [] := readings_fact (sums_with A past) (sums_with A past) (pos (size past)) (mes (shared past)).
by move=> ? ? _; split.
Qed.

Lemma round_is_law_without past : (forall r, 0 < spread A r) ->
  (forall past, can_be_read (read A past)) -> is_finite_law (law_without past).
Proof.
move=> pos mes; have [] := readings_fact (sums_without A past) (sums_without A past) (pos (size past)) (mes past).
by move=> ? ? _; split.
Qed.

Lemma rounds_are_close plan dist t y : runs_by plan dist t y ->
  rounds_close law_with law_without (betrays A) (rounds_of A) (fun r => dist r / spread A r).
Proof.
case=> pos dist0 _ mes _ moved _ _ _ _ _ past within quiet_past.
have near := moved past within quiet_past; set r := size past in near *.
have same : size (shared past) = r by rewrite size_map.
have wider e : 0 <= e -> e <= dist r -> forall a, delta_G a (e / spread A r) <= delta_G a (dist r / spread A r).
  by move=> e0 ee a; apply: grows; rewrite ?divr_ge0 ?(ltW (pos r)) // ler_wpmul2r // invr_ge0 ltW.
split=> a; apply: le_trans (wider _ (norm2_ge0 _) near a).
  have [_ _ close] := readings_fact (sums_with A past) (sums_without A (shared past)) (pos r) (mes (shared past)).
  by rewrite /hockey /law_with /law_without same; exact: close.
have [_ _ close] := readings_fact (sums_without A (shared past)) (sums_with A past) (pos r) (mes (shared past)).
rewrite /hockey /law_with /law_without same; apply: le_trans (close a) _.
by rewrite -norm2N opprB.
Qed.

(* Theorem A for a process that runs by a plan: at every eps, with one distance and one chance. *)
Theorem plan_private plan dist t y : runs_by plan dist t y -> forall e O,
  output_with O <= expR e * output_without O + (delta_G e (Num.sqrt (all_squares plan t y)) + plan_bad plan t y) /\
  output_without O <= expR e * output_with O + (delta_G e (Num.sqrt (all_squares plan t y)) + plan_bad plan t y).
Proof.
move=> running e O; have close := rounds_are_close running.
case: running => pos dist0 lawN mes lasting _ _ within rare rareG still.
have laws past : is_finite_law (law_with past) by apply: round_is_law.
have laws' past : is_finite_law (law_without past) by apply: round_is_law_without.
have mus r : 0 <= dist r / spread A r by rewrite divr_ge0 // ltW.
have [one two] := rounds_private laws laws' lawN lasting still mean_formula add_up grows mus close rare rareG O e.
have wider : delta_G e (Num.sqrt (squares_of (fun r => dist r / spread A r) 0 (rounds_of A)))
    <= delta_G e (Num.sqrt (all_squares plan t y)) by apply: grows; rewrite ?sqrtr_ge0 // ler_wsqrtr.
by split; [apply: le_trans one _ | apply: le_trans two _]; rewrite ler_add2l ler_add2r.
Qed.

Lemma output_with_ge0 plan dist t y O : runs_by plan dist t y -> 0 <= output_with O.
Proof.
case=> pos _ [noise0 _] mes _ _ _ _ _ _ _; apply: sumr_ge0 => h _; apply: history_ge0 => past u.
by rewrite mulr_ge0 //; have [] := round_is_law past pos mes => low _; exact: low.
Qed.

Lemma output_without_ge0 plan dist t y O : runs_by plan dist t y -> 0 <= output_without O.
Proof.
case=> pos _ _ mes _ _ _ _ _ _ _; apply: sumr_ge0 => h _; apply: history_ge0 => past u.
by have [] := round_is_law_without past pos mes => low _; exact: low.
Qed.

End OnePlan.

(* ------------------------------------------------------------------ the look and the whole *)

(* The look has the law P with v and Q without v. X, how much likelier an outcome is with v, is the ratio of two normal
   laws nu scales apart: one person is in one class. *)
Record is_look (R : realType) (d : measure_display) (T : measurableType d) (nu : R) (Q P : {measure set T -> \bar R})
    (X : T -> R) : Prop := IsLook {
  ratio_ge0 : forall o, 0 <= X o;
  ratio_measurable : measurable_fun setT X;
  ratio_normal : forall f : R -> R, measurable_fun setT f -> (forall x, 0 <= x -> 0 <= f x) ->
    (\int[Q]_o (f (X o))%:E = normal_mean (fun z => (f (ratio nu z))%:E))%E;
  ratio_of_laws : forall f : T -> R, measurable_fun setT f -> (forall o, 0 <= f o) ->
    (\int[P]_o (f o)%:E = \int[Q]_o (X o * f o)%:E)%E }.

(* Without a look (a given number of items for each person), and for a person in no class, nothing is shown and nothing
   is paid. *)
Section NoLook.
Variables (R : realType) (d : measure_display) (T : measurableType d) (Q : {measure set T -> \bar R}).
Hypotheses (mean_formula : delta_G_is_mean R) (law_Q : Q setT = 1%E).

Lemma mean_of_constant (a : R) : 0 <= a -> (normal_mean (fun=> a%:E) = a%:E)%E.
Proof.
move=> a0; have half : expR (ln (2%:R^-1)) = 2%:R^-1 :> R by rewrite lnK // qualifE invr_gt0 ltr0n.
have rest : Num.max 0 (1 - 2%:R^-1) = 2%:R^-1 :> R.
  have -> : 1 - 2%:R^-1 = 2%:R^-1 :> R by field.
  by apply/max_idPr; rewrite invr_ge0 ler0n.
have ratioE z : ratio 0 z = 1 :> R by rewrite /ratio !mul0r expr0n /= mul0r subrr expR0.
have aboveE (z : R) : above 0 1 2%:R^-1 z = 2%:R^-1 by rewrite /above ratioE mul1r.
have mean_half : (normal_mean (fun z : R => (above 0 1 2%:R^-1 z)%:E) = (2%:R^-1)%:E)%E.
  have := @mean_formula (ln 2%:R^-1) 0 (lexx _); rewrite /delta_G eqxx half rest => ->.
  by congr normal_mean; apply/funext => z; rewrite aboveE ratioE rest.
have a2 : 0 <= a * 2%:R by rewrite mulr_ge0 ?ler0n.
have := @mean_scale R 0 1 2%:R^-1 (a * 2%:R) a2; rewrite mean_half -EFinM mulfK ?pnatr_eq0 // => mean.
by rewrite [RHS]mean; congr normal_mean; apply/funext => z; rewrite aboveE mulfK ?pnatr_eq0.
Qed.

Theorem no_look : is_look 0 Q Q (fun=> 1).
Proof.
split.
- by move=> o; exact: ler01.
- exact: measurable_fun_cst.
- move=> f mf f0; rewrite integral_cst // law_Q mule1 -(mean_of_constant (f0 _ ler01)).
  by congr normal_mean; apply/funext => z; rewrite /ratio mul0r expr0n /= mul0r subrr expR0.
- by move=> f _ _; apply: eq_integral => o _; rewrite mul1r.
Qed.

Theorem no_look_is_free (eps mu0 delta' x1 : R) : 0 <= delta' -> 1 <= x1 ->
  (normal_mean (fun z => (look_bound eps mu0 delta' x1 (ratio 0 z))%:E) = delta'%:E)%E.
Proof.
move=> delta0 far; rewrite -(mean_of_constant delta0); congr normal_mean; apply/funext => z; congr EFin.
have -> : ratio 0 z = 1 :> R by rewrite /ratio mul0r expr0n /= mul0r subrr expR0.
by rewrite /look_bound !subrr maxxx !addr0 mulr1 ltNge far addr0.
Qed.

End NoLook.

Section Default.
Variables (R : realType) (eps mu0 delta' x1 nu delta : R).
Hypotheses (mean_formula : delta_G_is_mean R) (add_up : normals_add R) (readings_fact : gaussian_readings R).
Hypotheses (grows : delta_G_grows R) (Phi_chance : Phi_is_chance R) (slopes : delta_G_slopes R).
Hypotheses (delta'_between : 0 <= delta' <= 1) (x1_between : 0 <= x1 <= expR eps) (mu0_ge0 : 0 <= mu0).
(* The look is paid for. *)
Hypothesis paid : (normal_mean (fun z => (look_bound eps mu0 delta' x1 (ratio nu z))%:E) <= delta%:E)%E.

(* The look: its outcomes, and their laws without v and with v. *)
Variables (d : measure_display) (T : measurableType d) (Q P : {measure set T -> \bar R}) (X X' : T -> R).
Hypotheses (look_with : is_look nu Q P X) (look_without : is_look nu P Q X').

(* What each outcome chooses: a plan with a certificate, and a process that runs by it. *)
Variables (C I M : finType) (Y : Type) (plan : T -> plan_numbers R) (A : T -> process R C I M Y).
Hypothesis certified : forall o, plan_certified eps delta' mu0 (plan o).
Hypothesis running : forall o, exists dist t y, runs_by (A o) (plan o) dist t y.

(* Outputs together with what the look has shown. *)
Variable O : T -> pred Y.
Let PO o := output_with (A o) (O o).
Let QO o := output_without (A o) (O o).
Hypotheses (m_PO : measurable_fun setT PO) (m_QO : measurable_fun setT QO).

Theorem default_release_private :
  (\int[P]_o (PO o)%:E <= (expR eps)%:E * \int[Q]_o (QO o)%:E + delta%:E)%E /\
  (\int[Q]_o (QO o)%:E <= (expR eps)%:E * \int[P]_o (PO o)%:E + delta%:E)%E.
Proof.
have /andP [delta'_ge0 delta'_le1] := delta'_between; have /andP [x1_ge0 x1_le] := x1_between.
have m_bound : measurable_fun setT (look_bound eps mu0 delta' x1) by apply: look_bound_measurable.
have [u follows] : exists u : T -> (nat -> R) * (nat * R), forall o, runs_by (A o) (plan o) (u o).1 (u o).2.1 (u o).2.2.
  have each o : exists w : (nat -> R) * (nat * R), runs_by (A o) (plan o) w.1 w.2.1 w.2.2.
    by have [dist [t [y run]]] := running o; exists (dist, (t, y)).
  by have [u us] := choice each; exists u.
pose t o := (u o).2.1; pose y o := (u o).2.2.
pose mu o := Num.sqrt (all_squares (plan o) (t o) (y o)); pose p o := plan_bad (plan o) (t o) (y o).
have both o e : PO o <= expR e * QO o + (delta_G e (mu o) + p o) /\ QO o <= expR e * PO o + (delta_G e (mu o) + p o).
  exact: plan_private (follows o) e (O o).
have PO0 o : 0 <= PO o by exact: output_with_ge0 (follows o).
have QO0 o : 0 <= QO o by exact: output_without_ge0 (follows o).
have mus o : 0 <= mu o by exact: sqrtr_ge0.
have small o : mu o <= mu0.
  by have [_ _ _ _ _ _ inside _ _ _ _] := follows o; have [within _ _] := certified o; exact: within.
have p0 o : 0 <= p o by have [_ low _] := certified o; exact: low.
have keeps o : delta_G eps (mu o) + p o <= delta'.
  by have [_ _ _ _ _ _ inside _ _ _ _] := follows o; have [_ _ keep] := certified o; exact: keep.
have [X0 mX X_normal X_ratio] := look_with; have [X0' mX' X_normal' X_ratio'] := look_without.
split.
  rewrite X_ratio //.
  exact: (look_private delta'_ge0 delta'_le1 x1_le mean_formula Phi_chance slopes X0 PO0 QO0 m_QO
    mX m_bound mus small p0 keeps (fun o e => (both o e).1) X_normal paid).
rewrite X_ratio' //.
exact: (look_private delta'_ge0 delta'_le1 x1_le mean_formula Phi_chance slopes X0' QO0 PO0 m_PO
  mX' m_bound mus small p0 keeps (fun o e => (both o e).2) X_normal' paid).
Qed.

End Default.

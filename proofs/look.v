(* Part 10. Lemma F6: a release that is chosen by a noisy look. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ssrint interval ring.
From mathcomp.classical Require Import boolp classical_sets.
From mathcomp.analysis Require Import reals ereal measure lebesgue_measure lebesgue_integral sequences exp.
From dpunion Require Import vectors coins gaussian composition.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Look.
Variables (R : realType) (eps mu0 delta x1 : R).
(* eps: of the whole; mu0 bounds the distance of every release that may follow; delta is what each of them keeps. *)
Hypotheses (delta_ge0 : 0 <= delta) (delta_le1 : delta <= 1) (x1_le : x1 <= expR eps).
Hypotheses (mean_formula : delta_G_is_mean R) (Phi_chance : Phi_is_chance R) (slopes : delta_G_slopes R).

(* What a release at distance mu adds when the look's outcome is x times as likely with v as without. *)
Definition after_look mu x : R := x * delta_G (eps - ln x) mu.

(* What the look and any choice by it cost, at an outcome x times as likely. *)
Definition look_bound x : R :=
  delta * (1 + Num.max 0 (x - 1)) + Num.max 0 (after_look mu0 x - after_look mu0 1) + (if x1 < x then 2%:R * x else 0).

Lemma after_is_mean mu x : 0 <= mu -> 0 < x ->
  (after_look mu x)%:E = normal_mean (fun z => (above mu x (expR eps) z)%:E).
Proof.
move=> m0 x0; rewrite /after_look EFinM mean_formula //.
have -> : (fun z => (Num.max 0 (ratio mu z - expR (eps - ln x)))%:E) = (fun z => (above mu 1 (expR (eps - ln x)) z)%:E).
  by apply/funext => z; rewrite /above mul1r.
rewrite mean_scale ?ltW //; congr normal_mean; apply/funext => z; congr EFin.
rewrite /above scale_max ?ltW // mulrBr mul1r expRB lnK ?qualifE //; congr (Num.max 0 (_ - _)).
by rewrite mulrCA divff ?mulr1 ?gt_eqF.
Qed.

Lemma after_grows mu x x' : 0 <= mu -> 0 < x -> x <= x' -> after_look mu x <= after_look mu x'.
Proof.
move=> m0 x0 xx; have x0' := lt_le_trans x0 xx; rewrite -lee_fin !after_is_mean //.
apply: mean_le => z; rewrite lee_fin ?above_ge0 // /above le_maxl !le_maxr lexx /=.
by apply/orP; right; rewrite ler_add2r ler_wpmul2r // ltW ?expR_gt0.
Qed.

Lemma delta_G_ge0 (e mu : R) : 0 <= mu -> 0 <= delta_G e mu.
Proof.
move=> m0; rewrite -lee_fin mean_formula //; apply: integral_ge0 => z _.
by rewrite mule_ge0 // lee_fin ?le_maxr ?lexx ?density_ge0.
Qed.

Lemma delta_G_le1 (e mu : R) : delta_G e mu <= 1.
Proof.
rewrite /delta_G; case: ifP => _.
  by rewrite le_maxl ler01 /= ler_subl_addr ler_addl ltW ?expR_gt0.
have /andP [_ big] := Phi_chance (mu / 2%:R - e / mu); have /andP [pos _] := Phi_chance (- (mu / 2%:R) - e / mu).
by rewrite ler_subl_addr (le_trans big) // ler_addl mulr_ge0 ?ltW ?expR_gt0.
Qed.

Lemma monotone_measurable (f : R -> R) : (forall x y, x <= y -> f x <= f y) -> measurable_fun setT f.
Proof.
move=> mono mT; apply: (measurability (RGenOInfty.measurableE R)) => // _ [_ [a ->] <-]; rewrite setTI.
apply: is_interval_measurable => x y; rewrite /preimage /= !in_itv /= !andbT => fx _ z /andP [xz _].
by rewrite in_itv /= andbT (lt_le_trans fx) // mono.
Qed.

(* The bound grows with x, so that it has a mean. *)
Lemma look_bound_measurable : 0 <= mu0 -> 0 <= x1 -> measurable_fun setT look_bound.
Proof.
move=> m0 x1_ge0; apply: monotone_measurable => x y xy.
have grows u w : u <= w -> Num.max 0 u <= Num.max 0 w :> R by move=> uw; rewrite le_maxl !le_maxr lexx uw orbT.
rewrite /look_bound; apply: ler_add; first apply: ler_add.
- by rewrite ler_wpmul2l // ler_add2l grows // ler_add2r.
- have [x0|x0] := ltrP 0 x; first by apply: grows; rewrite ler_add2r after_grows.
  have -> : Num.max 0 (after_look mu0 x - after_look mu0 1) = 0.
    apply/max_idPl; rewrite subr_le0; apply: (@le_trans _ _ 0); last by rewrite /after_look mul1r delta_G_ge0.
    by rewrite mulr_le0_ge0 // delta_G_ge0.
  by rewrite le_maxr lexx.
- case: ifP => [x1x|_]; last by case: ifP => // x1y; rewrite mulr_ge0 // (le_trans x1_ge0) // ltW.
  by rewrite (lt_le_trans x1x xy) ler_wpmul2l.
Qed.

(* One outcome: the release that follows it has distance mu and p, and keeps delta. *)
Lemma one_outcome x mu p PO QO : 0 <= mu -> mu <= mu0 -> 0 <= p -> 0 <= x -> 0 <= QO ->
  delta_G eps mu + p <= delta -> (forall e, PO <= expR e * QO + (delta_G e mu + p)) ->
  x * PO <= expR eps * QO + look_bound x.
Proof.
move=> m0 mm p0; rewrite le_eqVlt => /predU1P [<- Q0 _ _|x0 Q0 keeps follows].
  rewrite mul0r addr_ge0 ?mulr_ge0 // ?(ltW (expR_gt0 _)) // /look_bound !addr_ge0 ?le_maxr ?lexx //.
    by rewrite mulr_ge0 // addr_ge0 // le_maxr lexx.
  by case: ifP; rewrite ?mulr0.
have small : p <= delta by apply: le_trans keeps; rewrite ler_addr delta_G_ge0.
apply: le_trans (ler_wpmul2l (ltW x0) (follows (eps - ln x))) _.
have -> : x * (expR (eps - ln x) * QO + (delta_G (eps - ln x) mu + p)) = expR eps * QO + (after_look mu x + x * p).
  by rewrite /after_look expRB lnK ?qualifE //; field; rewrite gt_eqF.
rewrite ler_add2l /look_bound.
have one : after_look mu 1 + p <= delta by rewrite /after_look mul1r ln1 subr0.
set far := if _ then _ else _; have far0 : 0 <= far by rewrite /far; case: ifP => _ //; rewrite mulr_ge0 ?ler0n // ltW.
set more := Num.max 0 (after_look mu0 x - _); have more0 : 0 <= more by rewrite le_maxr lexx.
have [x_le1|x_gt1] := lerP x 1.
  apply: (@le_trans _ _ delta).
    apply: le_trans one; apply: ler_add; first exact: after_grows.
    by rewrite ler_pimull.
  have base : delta <= delta * (1 + Num.max 0 (x - 1)) by rewrite mulrDr mulr1 ler_addl mulr_ge0 // le_maxr lexx.
  by apply: le_trans base _; rewrite -addrA ler_addl addr_ge0.
have [x_le|x_gt] := lerP x x1; last first.
  rewrite /far x_gt; apply: (@le_trans _ _ (2%:R * x)); last first.
    by rewrite ler_addr addr_ge0 // mulr_ge0 // addr_ge0 // le_maxr lexx.
  rewrite mulrDl mul1r ler_add //; first by rewrite /after_look ler_pimulr ?delta_G_le1 // ltW.
  by rewrite ler_pimulr ?(ltW x0) // (le_trans small).
rewrite /far ltNge x_le /= addr0.
have slope : after_look mu x - after_look mu 1 <= more.
  by rewrite le_maxr (slopes m0 mm (ltW x_gt1) (le_trans x_le x1_le)) orbT.
have -> : after_look mu x + x * p = (after_look mu 1 + p) + (x - 1) * p + (after_look mu x - after_look mu 1) by ring.
have gain : 0 <= x - 1 by rewrite subr_ge0 ltW.
rewrite ler_add // mulrDr mulr1 ler_add // (max_idPr gain) mulrC.
exact: ler_wpmul2r.
Qed.

Section Outcomes.
(* The outcomes of the look with their law Q without v; X is how much likelier each is with v. *)
Variables (d : measure_display) (T : measurableType d) (Q : {measure set T -> \bar R}) (X mu p PO QO : T -> R).
Hypotheses (X_ge0 : forall o, 0 <= X o) (PO_ge0 : forall o, 0 <= PO o) (QO_ge0 : forall o, 0 <= QO o).
Hypotheses (m_QO : measurable_fun setT QO) (m_X : measurable_fun setT X) (m_bound : measurable_fun setT look_bound).
Hypotheses (mu_ge0 : forall o, 0 <= mu o) (mu_le : forall o, mu o <= mu0) (p_ge0 : forall o, 0 <= p o).
(* Whatever is chosen by the outcome keeps delta, and has its distance and its p at every eps: Theorem A. *)
Hypothesis keeps : forall o, delta_G eps (mu o) + p o <= delta.
Hypothesis follows : forall o e, PO o <= expR e * QO o + (delta_G e (mu o) + p o).
(* The look is a Gaussian release of ratio nu, and it is paid for. *)
Variables (nu total : R).
Hypothesis gaussian_look : forall f : R -> R, measurable_fun setT f -> (forall x, 0 <= x -> 0 <= f x) ->
  (\int[Q]_o (f (X o))%:E = normal_mean (fun z => (f (ratio nu z))%:E))%E.
Hypothesis paid : (normal_mean (fun z => (look_bound (ratio nu z))%:E) <= total%:E)%E.

Lemma look_bound_ge0 x : 0 <= x -> 0 <= look_bound x.
Proof.
move=> x0; rewrite /look_bound !addr_ge0 ?le_maxr ?lexx //; first by rewrite mulr_ge0 // addr_ge0 // le_maxr lexx.
by case: ifP => _ //; rewrite mulr_ge0.
Qed.

Theorem look_private :
  (\int[Q]_o (X o * PO o)%:E <= (expR eps)%:E * \int[Q]_o (QO o)%:E + total%:E)%E.
Proof.
apply: (@le_trans _ _ (\int[Q]_o ((expR eps)%:E * (QO o)%:E + (look_bound (X o))%:E))%E).
  have low o : (0%:E <= (X o * PO o)%:E)%E by rewrite lee_fin mulr_ge0.
  have less o : ((X o * PO o)%:E <= (expR eps)%:E * (QO o)%:E + (look_bound (X o))%:E)%E.
    rewrite -EFinM -EFinD lee_fin.
    exact: one_outcome (mu_ge0 o) (mu_le o) (p_ge0 o) (X_ge0 o) (QO_ge0 o) (keeps o) (follows o).
  rewrite !ge0_integralTE //; last by move=> o; exact: le_trans (low o) (less o).
  by apply: le_ereal_sup => _ [h hf <-]; exists h => // o; exact: le_trans (hf o) (less o).
rewrite ge0_integralD //.
- rewrite ge0_integralM_EFin // ?(ltW (expR_gt0 _)) //.
  + by apply: lee_add2l; rewrite gaussian_look //; exact: look_bound_ge0.
  + by move=> o _; rewrite lee_fin.
  + exact/EFin_measurable_fun.
- by move=> o _; rewrite mule_ge0 // lee_fin ?(ltW (expR_gt0 _)).
- by apply/EFin_measurable_fun; exact: measurable_funrM.
- by move=> o _; rewrite lee_fin look_bound_ge0.
- by apply/EFin_measurable_fun; exact: (@measurable_fun_comp _ _ _ _ _ _ look_bound).
Qed.

End Outcomes.
End Look.

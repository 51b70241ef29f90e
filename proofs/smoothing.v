(* Part 8. Lemma F4: between two points a function that is smoothed by normal noise lies below a known curve. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ssrint interval ring.
From mathcomp.classical Require Import boolp classical_sets.
From mathcomp.analysis Require Import reals ereal measure lebesgue_measure lebesgue_integral topology normedtype.
From mathcomp.analysis Require Import derive realfun sequences exp trigo.
From dpunion Require Import vectors coins gaussian composition.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory numFieldNormedType.Exports.
Local Open Scope ring_scope.

Section Convex.
Variable R : realType.
Implicit Types (a b p x : R).

Lemma exp_above_tangent x : 1 + x <= expR x.
Proof.
have [x0|x0] := lerP 0 x; first exact: expR_ge1Dx.
have smooth : {within `[x, 0], continuous (@expR R)}%classic by apply/continuous_subspaceT => ?; exact: continuous_expR.
have [z z_in rise] := MVT x0 (fun y _ => is_derive_expR y) smooth.
move: z_in; rewrite in_itv /= => /andP [_ z0].
rewrite expR0 sub0r in rise.
have z1 : expR z <= 1 by rewrite -expR0 ler_expR ltW.
rewrite -ler_subr_addl -opprB ler_oppr rise ler_pimull // oppr_ge0 ltW //.
Qed.

Lemma exp_convex p a b : 0 <= p <= 1 -> expR ((1 - p) * a + p * b) <= (1 - p) * expR a + p * expR b.
Proof.
case/andP => p0 p1; set m := (1 - p) * a + p * b.
have tangent x : expR m * (1 + (x - m)) <= expR x.
  have -> : expR x = expR m * expR (x - m) by rewrite -expRD addrC subrK.
  by rewrite ler_wpmul2l ?exp_above_tangent // ltW ?expR_gt0.
have -> : expR m = (1 - p) * (expR m * (1 + (a - m))) + p * (expR m * (1 + (b - m))) by rewrite /m; ring.
by rewrite ler_add // ler_wpmul2l ?tangent ?subr_ge0.
Qed.

End Convex.

Section Smoothing.
Variables (R : realType) (f : R -> R) (tau : R).
Hypotheses (f_ge0 : forall u, 0 <= f u) (m_f : measurable_fun setT f) (tau_gt0 : 0 < tau).

(* f * N(0, tau^2). *)
Definition smoothed (x : R) : \bar R := (\int[@lebesgue_measure R]_u (f u * (density ((u - x) / tau) / tau))%:E)%E.

Let term x u : R := f u * (density ((u - x) / tau) / tau).

Lemma term_ge0 x u : 0 <= term x u.
Proof. by rewrite mulr_ge0 // divr_ge0 ?density_ge0 // ltW. Qed.

Lemma measurable_term_of x : measurable_fun setT (term x).
Proof.
apply: measurable_funM => //; apply: measurable_funM; last exact: measurable_fun_cst.
have moved : measurable_fun setT (fun u : R => (u - x) / tau).
  apply: measurable_funM; last exact: measurable_fun_cst.
  by apply: measurable_funB; [exact: measurable_fun_id | exact: measurable_fun_cst].
exact: (measurable_fun_comp (@measurable_density R) moved).
Qed.

(* ln M lies below its chord, bent by p (1 - p) h^2 / 2 tau^2. *)
Theorem between_points (left right p M_left M_right : R) : 0 <= p <= 1 ->
  0 < M_left -> 0 < M_right -> smoothed left = M_left%:E -> smoothed right = M_right%:E ->
  (smoothed ((1 - p) * left + p * right)
   <= (expR ((1 - p) * ln M_left + p * ln M_right + p * (1 - p) * (right - left) ^+ 2 / (2%:R * tau ^+ 2)))%:E)%E.
Proof.
move=> between A0 B0 at_left at_right; set x := (1 - p) * left + p * right; set E := expR _.
have /andP [p0 p1] := between.
have tau0 : tau != 0 by rewrite gt_eqF.
have E0 : 0 < E := expR_gt0 _.
pose a := E * (1 - p) / M_left; pose b := E * p / M_right.
have a0 : 0 <= a by rewrite divr_ge0 ?(ltW A0) // mulr_ge0 ?(ltW E0) // subr_ge0.
have b0 : 0 <= b by rewrite divr_ge0 ?(ltW B0) // mulr_ge0 ?(ltW E0).
pose power y u : R := - (((u - y) / tau) ^+ 2 / 2%:R).
have pointwise u : term x u <= a * term left u + b * term right u.
  have densityE y : term y u = f u * (expR (power y u) / (Num.sqrt (2%:R * pi) * tau)).
    by rewrite /term /density -/(power y u) invfM !mulrA.
  have two : 0 <= (Num.sqrt (2%:R * pi) * tau)^-1 :> R by rewrite invr_ge0 mulr_ge0 ?sqrtr_ge0 // ltW.
  rewrite !densityE.
  have -> : a * (f u * (expR (power left u) / (Num.sqrt (2%:R * pi) * tau)))
      + b * (f u * (expR (power right u) / (Num.sqrt (2%:R * pi) * tau)))
      = f u * ((a * expR (power left u) + b * expR (power right u)) / (Num.sqrt (2%:R * pi) * tau)) by ring.
  rewrite ler_wpmul2l // ler_wpmul2r //.
  have -> : power x u = (1 - p) * (power left u - ln M_left) + p * (power right u - ln M_right)
      + ((1 - p) * ln M_left + p * ln M_right + p * (1 - p) * (right - left) ^+ 2 / (2%:R * tau ^+ 2)).
    by rewrite /power /x; field.
  rewrite expRD -/E mulrC; apply: le_trans (ler_wpmul2l (ltW E0) (exp_convex _ _ between)) _.
  rewrite !expRB !lnK ?qualifE // /a /b le_eqVlt; apply/orP; left; apply/eqP; ring.
rewrite /smoothed -/(term x).
apply: (@le_trans _ _ (\int[@lebesgue_measure R]_u (a%:E * (term left u)%:E + b%:E * (term right u)%:E))%E).
  apply: ge0_le_integral => //.
  - by move=> u _; rewrite lee_fin term_ge0.
  - by apply/EFin_measurable_fun; exact: measurable_term_of.
  - by move=> u _; rewrite adde_ge0 // mule_ge0 // lee_fin // term_ge0.
  - apply: emeasurable_funD; apply: measurable_funeM; apply/EFin_measurable_fun; exact: measurable_term_of.
  - by move=> u _; rewrite -!EFinM -EFinD lee_fin pointwise.
have measured y : measurable_fun setT (fun u => (term y u)%:E) by apply/EFin_measurable_fun; exact: measurable_term_of.
have low y e u : 0 <= e -> (0%:E <= e%:E * (term y u)%:E)%E by move=> e0; rewrite mule_ge0 // lee_fin // term_ge0.
have scaled y e : measurable_fun setT (fun u => (e%:E * (term y u)%:E)%E) by exact: measurable_funeM.
have term0 y u : (0%:E <= (term y u)%:E)%E by rewrite lee_fin term_ge0.
rewrite ge0_integralD //; try by move=> u _; exact: low.
rewrite !ge0_integralM_EFin //.
- move: at_left at_right; rewrite /smoothed -/(term left) -/(term right) => -> ->.
  rewrite -!EFinM -EFinD lee_fin /a /b !divfK ?gt_eqF // le_eqVlt; apply/orP; left; apply/eqP; ring.
- exact: measured.
- exact: measured.
- exact: scaled.
- exact: scaled.
Qed.

End Smoothing.

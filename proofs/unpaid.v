(* Part 12. One more error, refuted: a look that nobody pays for. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ssrint interval ring.
From mathcomp.classical Require Import boolp classical_sets.
From mathcomp.analysis Require Import reals ereal measure lebesgue_measure lebesgue_integral sequences exp.
From dpunion Require Import vectors coins gaussian composition look.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Unpaid.
Variable R : realType.
(* A look of some ratio above 0. *)
Variables (dT : measure_display) (O : measurableType dT) (law : {measure set O -> \bar R}) (likelier : O -> R) (nu : R).
Hypotheses (likelier_ge0 : forall o, 0 <= likelier o) (m_likelier : measurable_fun setT likelier) (nu_gt0 : 0 < nu).
Hypothesis gaussian_look : forall f : R -> R, measurable_fun setT f -> (forall x, 0 <= x -> 0 <= f x) ->
  (\int[law]_o (f (likelier o))%:E = normal_mean (fun z => (f (ratio nu z))%:E))%E.

(* Lemma F6 (look.v, look_private) with "delta <= total" in place of the premise that the look is paid for. *)
Theorem unpaid_look_fails : delta_G_is_mean R -> Phi_is_chance R -> delta_G_slopes R ->
  (forall x y : R, x < y -> Phi x < Phi y) ->
  ~ (forall (eps mu0 delta x1 : R), 0 <= delta -> delta <= 1 -> x1 <= expR eps ->
    delta_G_is_mean R -> Phi_is_chance R -> delta_G_slopes R ->
    forall (d : measure_display) (T : measurableType d) (Q : {measure set T -> \bar R}) (X mu p PO QO : T -> R),
    (forall o, 0 <= X o) -> (forall o, 0 <= PO o) -> (forall o, 0 <= QO o) ->
    measurable_fun setT QO -> measurable_fun setT X -> measurable_fun setT (look_bound eps mu0 delta x1) ->
    (forall o, 0 <= mu o) -> (forall o, mu o <= mu0) -> (forall o, 0 <= p o) ->
    (forall o, delta_G eps (mu o) + p o <= delta) ->
    (forall o e, PO o <= expR e * QO o + (delta_G e (mu o) + p o)) ->
    forall nu total : R,
    (forall f : R -> R, measurable_fun setT f -> (forall x, 0 <= x -> 0 <= f x) ->
      (\int[Q]_o (f (X o))%:E = normal_mean (fun z => (f (ratio nu z))%:E))%E) ->
    delta <= total ->
    (\int[Q]_o (X o * PO o)%:E <= (expR eps)%:E * \int[Q]_o (QO o)%:E + total%:E)%E).
Proof.
move=> mean_formula chance slopes strict; pose f (x : R) : R := if 1 < x then 1 else 0.
move=> claim.
have mf : measurable_fun setT f.
  apply: monotone_measurable => x y xy; rewrite /f; case: (ltrP 1 x) => x1; last first.
    by case: ifP => _; rewrite ?ler01 ?lexx.
  by rewrite (lt_le_trans x1 xy).
have f01 x : 0 <= f x <= 1 by rewrite /f; case: (1 < x); rewrite ?lexx ?ler01 //.
have f0 x : 0 <= f x by case/andP: (f01 x).
have m_fX : measurable_fun setT (f \o likelier) by apply: (@measurable_fun_comp _ _ _ _ _ _ f).
have m_bound : measurable_fun setT (look_bound 0 0 0 0 : R -> R).
  by apply: look_bound_measurable; rewrite ?lexx ?ler01.
have := claim 0 0 0 0 (lexx _) ler01 (ltW (expR_gt0 _)) mean_formula chance slopes _ _ law likelier (fun=> 0) (fun=> 0)
  (f \o likelier) (f \o likelier) likelier_ge0 (fun o => f0 _) (fun o => f0 _) m_fX m_likelier m_bound
  (fun=> lexx _) (fun=> lexx _) (fun=> lexx _).
rewrite /delta_G eqxx expR0 subrr maxxx addr0 => /(_ (fun=> lexx _)) H.
have {}H : (\int[law]_o (likelier o * f (likelier o))%:E <= \int[law]_o (f (likelier o))%:E)%E.
  have := H _ nu 0 gaussian_look (lexx _); rewrite mul1e adde0; apply=> o e; rewrite addr0 /= /f.
  case: (1 < likelier o); last by rewrite mulr0 add0r le_maxr lexx.
  by rewrite mulr1 -ler_subl_addl le_maxr lexx orbT.
pose g (x : R) : R := Num.max 0 (x - 1).
have mg : measurable_fun setT g.
  by apply: monotone_measurable => x y xy; rewrite /g le_maxl !le_maxr lexx /= ler_add2r xy orbT.
have g0 x : 0 <= g x by rewrite /g le_maxr lexx.
have split_ x : x * f x = g x + f x.
  rewrite /f /g; case: (ltrP 1 x) => x1; first by rewrite (max_idPr _) ?subr_ge0 ?ltW //; ring.
  by rewrite (max_idPl _) ?subr_le0 //; ring.
have apart : (\int[law]_o (likelier o * f (likelier o))%:E
    = \int[law]_o ((g (likelier o))%:E + (f (likelier o))%:E)%E)%E.
  by apply: eq_integral => o _; rewrite split_ -EFinD.
move: H; rewrite {}apart ge0_integralD //; first last.
- exact/EFin_measurable_fun.
- by move=> o _; rewrite lee_fin.
- by apply/EFin_measurable_fun; apply: (@measurable_fun_comp _ _ _ _ _ _ g).
- by move=> o _; rewrite lee_fin.
have -> : (\int[law]_o (g (likelier o))%:E = (delta_G 0 nu)%:E)%E.
  rewrite gaussian_look // mean_formula ?ltW //; congr normal_mean; apply/funext => z.
  by rewrite expR0.
have fin : (\int[law]_o (f (likelier o))%:E)%E \is a fin_num.
  rewrite ge0_fin_numE; last by apply: integral_ge0 => o _; rewrite lee_fin.
  have one : (\int[law]_o 1%:E = normal_mean (fun=> 1%:E : \bar R))%E.
    apply: (gaussian_look (f := fun=> 1)); [exact: measurable_fun_cst | by move=> *; exact: ler01].
  apply: (@le_lt_trans _ _ (\int[law]_o 1%:E)%E).
    apply: ge0_le_integral.
    + exact: measurableT.
    + by move=> o _; rewrite lee_fin f0.
    + exact/EFin_measurable_fun.
    + by move=> o _; rewrite lee_fin ler01.
    + exact: measurable_fun_cst.
    + by move=> o _; rewrite lee_fin; case/andP: (f01 (likelier o)).
  rewrite one.
  (* The mean of a constant is finite: by delta_G_is_mean at mu = 0. *)
  have := @mean_formula (ln 2%:R^-1) 0 (lexx _); rewrite /delta_G eqxx.
  have -> : expR (ln 2%:R^-1) = 2%:R^-1 :> R by rewrite lnK // qualifE invr_gt0 ltr0n.
  have -> : (fun z : R => (Num.max 0 (ratio 0 z - 2%:R^-1))%:E) = (fun z => (above 0 1 2%:R^-1 z)%:E).
    by apply/funext => z; rewrite /above mul1r.
  move=> E; have := @mean_scale R 0 1 2%:R^-1 2%:R (ler0n _ _); rewrite -E => S.
  have -> : normal_mean (fun=> 1%:E) = normal_mean (fun z : R => (2%:R * above 0 1 2%:R^-1 z)%:E).
    congr normal_mean; apply/funext => z; congr EFin; rewrite /above /ratio !mul0r expr0n /= mul0r subrr expR0.
    have -> : 1 * 1 - 2%:R^-1 = 2%:R^-1 :> R by field.
    by rewrite (max_idPr _) ?invr_ge0 ?ler0n // divff // pnatr_eq0.
  by rewrite -S -EFinM ltry.
case: (\int[law]_o (f (likelier o))%:E)%E fin => // s _.
rewrite -EFinD lee_fin -[X in _ <= X]add0r ler_add2r leNgt => /negP; apply.
rewrite /delta_G gt_eqF // expR0 mul1r mul0r !subr0 subr_gt0; apply: strict.
have half : 0 < nu / 2%:R by rewrite divr_gt0 ?ltr0n.
apply: lt_trans half; by rewrite oppr_lt0 divr_gt0 ?ltr0n.
Qed.

End Unpaid.

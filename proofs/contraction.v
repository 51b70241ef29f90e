(* Part 1. A move toward a target by a projection onto a convex set brings two histograms no further apart. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From dpunion Require Import vectors.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Projections.
Variables (R : rcfType) (I : finType).
Local Notation vector := {ffun I -> R}.
Implicit Types (K : vector -> Prop) (g h p q target : vector) (c : R).

Definition convex K := forall x y a, K x -> K y -> 0 <= a -> a <= 1 -> K (scale (1 - a) x + scale a y).
Definition inside_ball c K := forall x, K x -> norm2 x <= c.
(* p is the projection of g onto K: the point of K nearest to g. *)
Definition projects K g p := K p /\ forall z, K z -> norm2 (g - p) <= norm2 (g - z).
Definition obtuse K g p := K p /\ forall z, K z -> dot (g - p) (z - p) <= 0.

(* The only place where convexity is used; nonconvex_expands shows that it is needed. *)
Lemma projects_obtuse K g p : convex K -> projects K g p -> obtuse K g p.
Proof.
move=> Kconvex [Kp nearest]; split=> // z Kz; rewrite leNgt; apply/negP => acute.
set a := dot (g - p) (z - p) in acute; set b := dot (z - p) (z - p).
have b0 : 0 < b.
  rewrite lt_neqAle dot_ge0 andbT eq_sym; apply/eqP => /dot_eq0 same.
  by move: acute; rewrite /a same dot0r ltxx.
pose s := Num.min 1 (a / b).
have s0 : 0 < s by rewrite lt_minr ltr01 divr_gt0.
have s1 : s <= 1 by rewrite le_minl lexx.
have sb : s * b <= a by rewrite -ler_pdivl_mulr // le_minl lexx orbT.
have := nearest _ (Kconvex p z s Kp Kz (ltW s0) s1).
have -> : g - (scale (1 - s) p + scale s z) = (g - p) - scale s (z - p).
  by apply/ffunP => i; rewrite !ffunE /=; ring.
rewrite norm2_le; have -> : dot (g - p - scale s (z - p)) (g - p - scale s (z - p))
    = dot (g - p) (g - p) - s * (a *+ 2 - s * b).
  rewrite [LHS]dotDl [dot (g - p) (_ - _)]dotDr [dot (- _) (_ - _)]dotDr !(dotNl (scale s _)) !(dotNr (scale s _)).
  rewrite !(dotZl s) !(dotZr s) (dotC (z - p) (g - p)) -/a -/b; ring.
rewrite -subr_ge0 addrC addKr oppr_ge0 pmulr_rle0 // subr_le0 => two.
by move: (le_trans two sb); rewrite -subr_le0 mulr2n addrK leNgt acute.
Qed.

(* For the explicit formulas: an obtuse angle is enough, whatever K is. *)
Lemma obtuse_projects K g p : obtuse K g p -> projects K g p.
Proof.
move=> [Kp angle]; split=> // z Kz; rewrite norm2_le -subr_ge0.
have -> : dot (g - z) (g - z) - dot (g - p) (g - p) = dot (z - p) (z - p) - dot (g - p) (z - p) *+ 2.
  by rewrite !dotE (dotC z p) (dotC z g) (dotC p g); ring.
by rewrite subr_ge0 (le_trans _ (dot_ge0 _)) // mulrn_wle0 ?angle.
Qed.

(* What is left of a gap after its projection is taken off. *)
Theorem remainder_nonexpansive K g g' p p' :
  convex K -> projects K g p -> projects K g' p' -> norm2 ((g - p) - (g' - p')) <= norm2 (g - g').
Proof.
move=> Kconvex /(projects_obtuse Kconvex) [Kp angle] /(projects_obtuse Kconvex) [Kp' angle'].
rewrite norm2_le -subr_ge0.
have -> : dot (g - g') (g - g') - dot (g - p - (g' - p')) (g - p - (g' - p'))
    = dot (p - p') (p - p') - (dot (g - p) (p' - p) + dot (g' - p') (p - p')) *+ 2.
  by rewrite !dotE !(dotC _ g) !(dotC _ g') (dotC p' p); ring.
by rewrite subr_ge0 (le_trans _ (dot_ge0 _)) // mulrn_wle0 // -(addr0 0) ler_add ?angle ?angle'.
Qed.

(* Theorem 3: one user's update, as a map f that adds the projection of (target - h). *)
Definition moves_toward K target (f : vector -> vector) := forall h, projects K (target - h) (f h - h).

Theorem update_nonexpansive K target f h h' :
  convex K -> moves_toward K target f -> norm2 (f h - f h') <= norm2 (h - h').
Proof.
move=> Kconvex moves; have := remainder_nonexpansive Kconvex (moves h) (moves h').
have -> : target - h - (f h - h) - (target - h' - (f h' - h')) = - (f h - f h').
  by apply/ffunP => i; rewrite !ffunE /=; ring.
have -> : target - h - (target - h') = - (h - h') by apply/ffunP => i; rewrite !ffunE /=; ring.
by rewrite !norm2N.
Qed.

Theorem update_bounded K target f c h :
  inside_ball c K -> moves_toward K target f -> norm2 (f h - h) <= c.
Proof. by move=> inside moves; apply: inside; case: (moves h). Qed.

End Projections.

(* ------------------------------------------------------------------ the updates of kernels/descent.py, in R *)

Section Kernels.
Variables (R : rcfType) (I : finType).
Local Notation vector := {ffun I -> R}.
Implicit Types (W : {set I}) (c : R) (g h : vector).

(* The moves of a user with the items W and the budget c. *)
Definition ball W c : vector -> Prop := fun y => (forall i, i \notin W -> y i = 0) /\ norm2 y <= c.

Lemma ball_convex W c : convex (ball W c).
Proof.
move=> x y a [xW xc] [yW yc] a0 a1; split=> [i iW|]; first by rewrite !ffunE /= xW ?yW // !mulr0 addr0.
have c0 : 0 <= c := le_trans (norm2_ge0 x) xc.
have scaled b z : 0 <= b -> norm2 z <= c -> norm2 (scale b z) <= b * c.
  move=> b0 zc; rewrite norm2_le_sqr ?mulr_ge0 // !dotE exprMn mulrA -expr2.
  by rewrite ler_wpmul2l ?sqr_ge0 // -norm2_le_sqr.
apply: le_trans (norm2_triangle _ _) _; rewrite -[X in _ <= X]mul1r -[X in X * c](subrK a).
by rewrite mulrDl ler_add ?scaled ?subr_ge0.
Qed.

Lemma ball_inside W c : inside_ball c (ball W c).
Proof. by move=> x []. Qed.

Definition squares W g : R := \sum_(i in W) g i ^+ 2.

(* The factor by which both l2 kernels scale the gaps. *)
Definition step_of W c g : R := if squares W g <= c ^+ 2 then 1 else c / Num.sqrt (squares W g).

Definition scaled_on W c g : vector := [ffun i => if i \in W then step_of W c g * g i else 0].

Lemma ball_projection W c g : 0 <= c -> projects (ball W c) g (scaled_on W c g).
Proof.
move=> c0; apply: obtuse_projects; set p := scaled_on W c g; set s := step_of W c g.
pose gW : vector := [ffun i => if i \in W then g i else 0].
have pE : p = scale s gW by apply/ffunP => i; rewrite !ffunE /=; case: ifP; rewrite ?mulr0.
have gWW : dot gW gW = squares W g.
  rewrite (@dot_on _ _ W) => [|i /negbTE out]; last by rewrite !ffunE out.
  by apply: eq_bigr => i inW; rewrite !ffunE inW expr2.
have off (z : vector) : (forall i, i \notin W -> z i = 0) -> dot g z = dot gW z.
  by move=> zW; rewrite !(@dot_on _ _ W _ z zW); apply: eq_bigr => i inW; rewrite !ffunE inW.
have pW i : i \notin W -> p i = 0 by rewrite ffunE => /negbTE ->.
have angle z : ball W c z -> dot (g - p) (z - p) = (1 - s) * (dot gW z - s * squares W g).
  move=> [zW _]; rewrite dotDl dotNl (off (z - p)); last by move=> i iW; rewrite 2!ffunE zW // pW // subrr.
  by rewrite pE !dotE gWW; ring.
have normW : norm2 gW = Num.sqrt (squares W g) by rewrite /norm2 gWW.
rewrite /s /step_of in angle pE *; case: ifP angle pE => small angle pE.
  split=> [|z Kz]; last by rewrite angle // subrr mul0r.
  by split=> //; rewrite pE norm2_le_sqr // !dotE gWW !mul1r.
set root := Num.sqrt (squares W g) in angle pE normW *.
have large : c ^+ 2 < squares W g by rewrite ltNge small.
have root0 : 0 < root by rewrite sqrtr_gt0 (le_lt_trans _ large) ?sqr_ge0.
have root2 : squares W g = root ^+ 2 by rewrite sqr_sqrtr // (le_trans _ (ltW large)) ?sqr_ge0.
have c_root : c <= root by rewrite -ler_sqr ?nnegrE ?(ltW root0) // -root2 ltW.
split=> [|z Kz].
  split=> //; rewrite pE norm2_le_sqr // !dotE gWW root2.
  suff -> : c / root * (c / root * root ^+ 2) = c ^+ 2 by [].
  by field; rewrite gt_eqF.
rewrite angle // mulr_ge0_le0 ?subr_ge0 ?ler_pdivr_mulr ?mul1r //.
rewrite root2; have -> : c / root * root ^+ 2 = root * c by field; rewrite gt_eqF.
rewrite subr_le0 (le_trans (dot_le_norms _ _)) // normW ler_wpmul2l ?(ltW root0) //.
by case: Kz.
Qed.

(* descend_l2: weights h, one cutoff for all items. *)
Definition descend_l2 W cutoff c h : vector :=
  [ffun i => if i \in W
             then if \sum_(j in W) (cutoff - h j) ^+ 2 <= c ^+ 2 then cutoff
                  else h i + (cutoff - h i) * (c / Num.sqrt (\sum_(j in W) (cutoff - h j) ^+ 2))
             else h i].

(* descend_ball: gaps g between each item's own target and its weight. *)
Definition descend_ball W c g : vector := [ffun i => if i \in W then g i - step_of W c g * g i else g i].

Lemma squares_gaps W cutoff h : squares W ([ffun=> cutoff] - h) = \sum_(j in W) (cutoff - h j) ^+ 2.
Proof. by apply: eq_bigr => j _; rewrite !ffunE. Qed.

Theorem descend_l2_projects W cutoff c :
  0 <= c -> moves_toward (ball W c) [ffun=> cutoff] (descend_l2 W cutoff c).
Proof.
move=> c0 h; suff -> : descend_l2 W cutoff c h - h = scaled_on W c ([ffun=> cutoff] - h) by exact: ball_projection.
apply/ffunP => i; rewrite !ffunE /= /step_of squares_gaps; case: ifP => _; last by rewrite subrr.
by case: ifP => _; [|move: (c / _) => s]; ring.
Qed.

(* On gaps: the weights are target - gaps, for any target of each item. *)
Theorem descend_ball_projects W c target :
  0 <= c -> moves_toward (ball W c) target (fun h => target - descend_ball W c (target - h)).
Proof.
move=> c0 h; suff -> : target - descend_ball W c (target - h) - h = scaled_on W c (target - h).
  exact: ball_projection.
by apply/ffunP => i; rewrite !ffunE /=; case: ifP => _; ring.
Qed.

Theorem descend_l2_nonexpansive W cutoff c h h' :
  0 <= c -> norm2 (descend_l2 W cutoff c h - descend_l2 W cutoff c h') <= norm2 (h - h').
Proof. by move=> c0; apply: update_nonexpansive (@ball_convex W c) (@descend_l2_projects W cutoff c c0). Qed.

Theorem descend_l2_bounded W cutoff c h : 0 <= c -> norm2 (descend_l2 W cutoff c h - h) <= c.
Proof. by move=> c0; apply: update_bounded (@ball_inside W c) (@descend_l2_projects W cutoff c c0). Qed.

Theorem descend_ball_nonexpansive W c g g' :
  0 <= c -> norm2 (descend_ball W c g - descend_ball W c g') <= norm2 (g - g').
Proof.
move=> c0; have := update_nonexpansive (- g) (- g') (@ball_convex W c) (@descend_ball_projects W c 0 c0).
have flip (x y : vector) : norm2 (- x - - y) = norm2 (x - y) by rewrite -opprD norm2N.
by rewrite !sub0r !flip !opprK.
Qed.

Theorem descend_ball_bounded W c g : 0 <= c -> norm2 (descend_ball W c g - g) <= c.
Proof.
move=> c0; have := update_bounded (- g) (@ball_inside W c) (@descend_ball_projects W c 0 c0).
by rewrite !sub0r !opprK addrC -norm2N opprB.
Qed.

End Kernels.

(* ------------------------------------------------------------------ without convexity it fails *)

Section Nonconvex.
Variable R : rcfType.

Let at_ (a : R) : {ffun unit -> R} := [ffun=> a].
Let two_points : {ffun unit -> R} -> Prop := fun x => x = at_ 1 \/ x = at_ (-1).

(* Two points, nothing between: two gaps that are 2/3 apart leave remainders that are 4/3 apart. *)
Theorem nonconvex_expands :
  exists (K : {ffun unit -> R} -> Prop) g g' p p',
    [/\ inside_ball 1 K, projects K g p, projects K g' p' & norm2 (g - g') < norm2 ((g - p) - (g' - p'))].
Proof.
have norm_at a : norm2 (at_ a) = `|a|.
  by rewrite /norm2 /dot (big_pred1 tt) => [|[]]; rewrite ?ffunE // -expr2 sqrtr_sqr.
have sub_at a b : at_ a - at_ b = at_ (a - b) by apply/ffunP => i; rewrite !ffunE.
have third : 0 < (3%:R : R)^-1 by rewrite invr_gt0 ltr0n.
have near : `|3%:R^-1 - 1| <= `|3%:R^-1 + 1| :> R.
  have below : 0 <= 1 - 3%:R^-1 :> R by rewrite subr_ge0 invf_le1 ?ler1n ?ltr0n.
  rewrite distrC (ger0_norm below) ger0_norm ?addr_ge0 ?ler01 ?(ltW third) // addrC ler_add2r.
  by rewrite (le_trans _ (ltW third)) // oppr_le0 ltW.
exists two_points, (at_ 3%:R^-1), (at_ (- 3%:R^-1)), (at_ 1), (at_ (-1)); split.
- by move=> x [] ->; rewrite norm_at ?normrN normr1.
- by split; [left | move=> z [] ->; rewrite // !sub_at !norm_at opprK].
- split; [by right | move=> z [] ->; rewrite // !sub_at !norm_at opprK].
  by rewrite -opprD normrN addrC distrC.
rewrite !sub_at !norm_at !opprK.
have -> : 3%:R^-1 + 3%:R^-1 = 2%:R / 3%:R :> R by field.
have -> : 3%:R^-1 - 1 - (- 3%:R^-1 + 1) = - (4%:R / 3%:R) :> R by field.
by rewrite normrN !ger0_norm ?divr_ge0 ?ler0n // ltr_pmul2r // ltr_nat.
Qed.

End Nonconvex.

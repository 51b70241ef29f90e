(* Part 1, for any K. Every point has exactly one projection onto a nonempty closed convex set of vectors over the real
   numbers: "the projection" is well defined, and the theorems of contraction.v speak of it. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From mathcomp.classical Require Import boolp classical_sets.
From mathcomp.analysis Require Import reals.
From dpunion Require Import vectors contraction.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Existence.
Variables (R : realType) (I : finType).
Local Notation vector := {ffun I -> R}.
Implicit Types (K : vector -> Prop) (g p x y z : vector).

(* What can be approached from K is in K. *)
Definition closed_set K := forall x, (forall e : R, 0 < e -> exists2 y, K y & norm2 (x - y) <= e) -> K x.

Theorem projection_unique K g p p' : convex K -> projects K g p -> projects K g p' -> p = p'.
Proof.
move=> Kconvex proj proj'; have := remainder_nonexpansive Kconvex proj proj'.
have [[Kp angle] [Kp' angle']] := (projects_obtuse Kconvex proj, projects_obtuse Kconvex proj').
move=> _; apply/eqP; rewrite -subr_eq0; apply/eqP/dot_eq0/le_anti; rewrite dot_ge0 andbT.
have -> : dot (p - p') (p - p') = dot (g - p) (p' - p) + dot (g - p') (p - p').
  by rewrite !dotE (dotC p' p); ring.
by rewrite -(addr0 0) ler_add ?angle ?angle'.
Qed.

Variables (K : vector -> Prop) (g : vector).
Hypotheses (Kconvex : convex K) (Kclosed : closed_set K) (Ksome : exists x, K x).
Local Open Scope classical_set_scope.

Let far y : R := dot (g - y) (g - y).
Let least : R := inf [set far y | y in K].

Let has_least : has_inf [set far y | y in K].
Proof.
split; first by have [x Kx] := Ksome; exists (far x), x.
by exists 0 => _ [y _ <-]; exact: dot_ge0.
Qed.

Let least_le y : K y -> least <= far y.
Proof. by move=> Ky; apply: inf_lb; [case: has_least | exists y]. Qed.

Let near_least (e : R) : 0 < e -> exists2 y, K y & far y <= least + e.
Proof.
move=> e0; have [_ [y Ky <-] below] := inf_adherent e0 has_least.
by exists y => //; exact: ltW.
Qed.

(* Two points that are nearly nearest are near each other: the middle between them is in K. *)
Let close_together y z e : K y -> K z -> far y <= least + e -> far z <= least + e -> dot (y - z) (y - z) <= 4%:R * e.
Proof.
move=> Ky Kz near_y near_z.
have half : 0 <= (2%:R^-1 : R) <= 1 by rewrite invr_ge0 ler0n invf_le1 ?ltr0n ?ler1n.
have /andP [half0 half1] := half.
have middle := least_le (Kconvex Ky Kz half0 half1).
have law : dot (y - z) (y - z) = 2%:R * far y + 2%:R * far z - 4%:R * far (scale (1 - 2%:R^-1) y + scale 2%:R^-1 z).
  by rewrite /far !dotE !(dotC _ g) (dotC z y); field.
rewrite law; have -> : 4%:R * e = 2%:R * (least + e) + 2%:R * (least + e) - 4%:R * least by ring.
by rewrite ler_sub ?ler_add // ler_pmul2l ?ltr0n.
Qed.

(* A coordinate of the projection: the limit of that coordinate over the nearly nearest points. *)
Let lower i : set R := [set a | exists2 e, 0 < e & forall y, K y -> far y <= least + e -> a <= y i].
Let limit : vector := [ffun i => sup (lower i)].

Let coordinate y z e i : K y -> K z -> far y <= least + e ^+ 2 -> far z <= least + e ^+ 2 -> 0 <= e ->
  y i - 2%:R * e <= z i.
Proof.
move=> Ky Kz near_y near_z e0; rewrite ler_subl_addl -ler_subl_addr.
have := close_together Ky Kz near_y near_z; rewrite /dot (bigD1 i) //= => sum.
have : (y i - z i) ^+ 2 <= (2%:R * e) ^+ 2.
  have -> : (2%:R * e) ^+ 2 = 4%:R * e ^+ 2 by ring.
  apply: le_trans sum; rewrite subE -expr2 ler_addl sumr_ge0 // => j _; rewrite -expr2 sqr_ge0 //.
rewrite -[X in X <= _]real_normK ?num_real // ler_sqr ?nnegrE ?mulr_ge0 ?ler0n // => bound.
exact: le_trans (ler_norm _) bound.
Qed.

Let near_limit y e i : K y -> 0 < e -> far y <= least + e ^+ 2 -> `|limit i - y i| <= 2%:R * e.
Proof.
move=> Ky e0 near_y; have e2 : 0 < e ^+ 2 by rewrite exprn_gt0.
have member : lower i (y i - 2%:R * e).
  by exists (e ^+ 2) => // z Kz near_z; apply: coordinate; rewrite ?(ltW e0).
have upper : ubound (lower i) (y i + 2%:R * e).
  move=> a [f f0 below]; have smaller0 : 0 < Num.min f (e ^+ 2) by rewrite lt_minr f0.
  have [z Kz near_z] := near_least smaller0.
  have a_z : a <= z i.
    by apply: below => //; rewrite (le_trans near_z) // ler_add2l le_minl lexx.
  rewrite (le_trans a_z) // -ler_subl_addr; apply: coordinate => //; last exact: ltW.
  by rewrite (le_trans near_z) // ler_add2l le_minl lexx orbT.
rewrite ffunE ler_norml; apply/andP; split; rewrite ?ler_subr_addl ?ler_subl_addl.
  have bounded : has_ubound (lower i) by exists (y i + 2%:R * e).
  by rewrite -ler_subl_addl; have /ubP := sup_ub bounded; apply.
by apply: sup_le_ub => //; exists (y i - 2%:R * e).
Qed.

Let far_limit y e : K y -> 0 < e -> far y <= least + e ^+ 2 -> norm2 (limit - y) <= Num.sqrt #|I|%:R * (2%:R * e).
Proof.
move=> Ky e0 near_y; have double0 : 0 <= 2%:R * e by rewrite mulr_ge0 ?ler0n // ltW.
rewrite norm2_le_sqr; last by rewrite mulr_ge0 // sqrtr_ge0.
have -> : (Num.sqrt #|I|%:R * (2%:R * e)) ^+ 2 = \sum_(i : I) (2%:R * e) ^+ 2.
  by rewrite exprMn sqr_sqrtr ?ler0n // sumr_const -[RHS]mulr_natl.
apply: ler_sum => i _; rewrite subE -expr2 -[X in X <= _]real_normK ?num_real // ler_sqr ?nnegrE //.
exact: near_limit.
Qed.

Theorem projection_exists : exists p, projects K g p.
Proof.
pose root : R := Num.sqrt #|I|%:R; have root0 : 0 <= root := sqrtr_ge0 _.
have Klimit : K limit.
  apply: Kclosed => e e0; pose f := e / (2%:R * root + 1).
  have scale0 : 0 < 2%:R * root + 1 by rewrite ltr_paddl ?ltr01 // mulr_ge0 ?ler0n.
  have f0 : 0 < f by rewrite divr_gt0.
  have [|y Ky near_y] := @near_least (f ^+ 2); first by rewrite exprn_gt0.
  exists y => //; apply: le_trans (far_limit Ky f0 near_y) _; rewrite -/root.
  have -> : e = root * (2%:R * f) + f by rewrite /f; field; rewrite gt_eqF.
  by rewrite ler_addl ltW.
have least0 : 0 <= least by apply: lb_le_inf => [|_ [y _ <-]]; [case: has_least | exact: dot_ge0].
have near : norm2 (g - limit) <= Num.sqrt least.
  apply/ler_addgt0Pr => e e0; pose f := e / (2%:R * root + 1).
  have scale0 : 0 < 2%:R * root + 1 by rewrite ltr_paddl ?ltr01 // mulr_ge0 ?ler0n.
  have f0 : 0 < f by rewrite divr_gt0.
  have [|y Ky near_y] := @near_least (f ^+ 2); first by rewrite exprn_gt0.
  have -> : g - limit = (g - y) + - (limit - y) by apply/ffunP => i; rewrite !subE !ffunE; ring.
  have -> : e = f + root * (2%:R * f) by rewrite /f; field; rewrite gt_eqF.
  rewrite addrA (le_trans (norm2_triangle _ _)) // norm2N ler_add ?far_limit //.
  rewrite norm2_le_sqr ?addr_ge0 ?sqrtr_ge0 ?(ltW f0) // (le_trans near_y) // sqrrD sqr_sqrtr //.
  by rewrite ler_add2r ler_addl mulrn_wge0 // mulr_ge0 ?sqrtr_ge0 // ltW.
exists limit; split=> // z Kz; rewrite norm2_le -/(far limit) -/(far z); apply: le_trans (least_le Kz).
by move: near; rewrite norm2_le_sqr ?sqrtr_ge0 // sqr_sqrtr.
Qed.

End Existence.

(* Theorem 3 as the text has it: K nonempty, closed, convex, inside the ball of radius c. *)
Theorem convex_update (R : realType) (I : finType) (K : {ffun I -> R} -> Prop) target c :
  convex K -> closed_set K -> (exists x, K x) -> inside_ball c K ->
  exists f, [/\ moves_toward K target f, forall h h', norm2 (f h - f h') <= norm2 (h - h')
              & forall h, norm2 (f h - h) <= c].
Proof.
move=> Kconvex Kclosed Ksome inside.
have [f moves] : exists f, moves_toward K target f.
  have [proj proj_of] := choice (fun g => @projection_exists R I K g Kconvex Kclosed Ksome).
  exists (fun h => h + proj (target - h)) => h.
  by rewrite [X in projects K _ X]addrC addKr; exact: proj_of.
exists f; split=> // [h h'|h]; first exact: update_nonexpansive Kconvex moves.
exact: update_bounded inside moves.
Qed.

(* Part 11. The steps of the kernels as programs over any numbers: with the operations of the reals they are the
   definitions that the theorems are about, and with those of float64 they are extracted and run against the kernels. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum.
From dpunion Require Import vectors contraction l1_descent counts.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Programs.
Variables (A : Type) (zero one : A) (add sub mul div : A -> A -> A) (root : A -> A) (leq : A -> A -> bool).
Implicit Types (xs : seq A) (c cutoff : A).

Fixpoint run_sum xs : A := if xs is x :: rest then add x (run_sum rest) else zero.
Definition run_size xs : A := run_sum (map (fun=> one) xs).
Definition run_squares xs : A := run_sum (map (fun x => mul x x) xs).
Definition run_min (x y : A) : A := if leq x y then x else y.

(* One user's gaps, with targets: descend_ball. *)
Definition run_ball c xs : seq A :=
  let squares := run_squares xs in
  let step := if leq squares (mul c c) then one else div c (root squares) in
  map (fun x => sub x (mul step x)) xs.

(* One user's weights in l2: descend_l2. *)
Definition run_l2 cutoff c xs : seq A :=
  let squares := run_squares (map (sub cutoff) xs) in
  map (fun x => if leq squares (mul c c) then cutoff else add x (mul (sub cutoff x) (div c (root squares)))) xs.

(* One user's weights in l1: descend_l1. *)
Fixpoint run_insert x xs : seq A :=
  if xs is y :: rest then if leq x y then x :: xs else y :: run_insert x rest else [:: x].
Fixpoint run_sort xs : seq A := if xs is x :: rest then run_insert x (run_sort rest) else [::].
Fixpoint run_raise (left : A) xs : A :=
  if xs is x :: rest
  then if leq (div left (run_size xs)) x then div left (run_size xs) else run_raise (sub left x) rest
  else zero.
Definition run_l1 cutoff c xs : seq A :=
  let gaps := map (sub cutoff) xs in
  let amount := run_raise c (run_sort gaps) in
  map (fun x => if leq (run_sum gaps) c then cutoff
                else if leq (sub cutoff x) amount then cutoff else add x amount) xs.

(* The steps of counting: shares that are even, 1 divided between two marks, and weights under a cap. *)
Definition run_rough xs : seq A := map (fun=> div one (root (run_size xs))) xs.
Definition run_marks (mark burden : A) : seq A := let p := div (sub burden mark) mark in [:: sub one p; p].
Definition run_cap (room : A) xs : A :=
  let squares := map (fun x => mul x x) xs in
  if leq (run_sum squares) room then run_sum xs else root (run_raise room (run_sort squares)).
Definition run_capped cap xs : seq A := map (fun x => run_min x cap) xs.
Definition run_fine room xs : seq A := run_capped (run_cap room xs) xs.

(* One decision: the new score, and whether it passes, stays or is dropped. *)
Definition run_decision (score c weight noise rho line : A) : A * (bool * bool) :=
  let s := add score (mul c (add weight noise)) in (s, (~~ leq s rho, ~~ leq s line)).

End Programs.

Section Same.
Variables (R : rcfType) (I : finType) (W : {set I}).
Implicit Types (g h : {ffun I -> R}) (c cutoff : R).
Local Notation add := (@GRing.add R).
Local Notation sub := (fun x y : R => x - y).
Local Notation mul := (@GRing.mul R).
Local Notation div := (fun x y : R => x / y).
Local Notation leq := (fun x y : R => x <= y).
Local Notation root := (@Num.sqrt R).

Lemma run_sumE (s : seq I) (F : I -> R) : run_sum 0 add (map F s) = \sum_(i <- s) F i.
Proof. by elim: s => [|i s IH]; rewrite ?big_nil ?big_cons //= IH. Qed.

Lemma run_sum_W (F : I -> R) : run_sum 0 add (map F (enum W)) = \sum_(i in W) F i.
Proof. by rewrite run_sumE big_enum. Qed.

Lemma run_squares_W (F : I -> R) : run_squares 0 add mul (map F (enum W)) = \sum_(i in W) F i ^+ 2.
Proof. by rewrite /run_squares -map_comp run_sum_W; apply: eq_bigr => i _; rewrite /= expr2. Qed.

Theorem run_ball_is_descend_ball c g :
  run_ball 0 1 add sub mul div root leq c [seq g i | i <- enum W] = [seq descend_ball W c g i | i <- enum W].
Proof.
rewrite /run_ball run_squares_W -map_comp; apply/eq_in_map => i; rewrite mem_enum => iW.
by rewrite /= ffunE iW /step_of /squares expr2.
Qed.

Theorem run_l2_is_descend_l2 cutoff c h :
  run_l2 0 add sub mul div root leq cutoff c [seq h i | i <- enum W] = [seq descend_l2 W cutoff c h i | i <- enum W].
Proof.
rewrite /run_l2 -!map_comp run_squares_W; apply/eq_in_map => i; rewrite mem_enum => iW.
by rewrite /= ffunE iW expr2.
Qed.

Lemma run_sizeE (s : seq R) : run_size 0 1 add s = (size s)%:R.
Proof. by elim: s => //= x s IH; rewrite /run_size /= -/(run_size 0 1 add s) IH -addn1 natrD addrC. Qed.

Lemma run_raiseE left (s : seq R) : run_raise 0 1 add sub div leq left s = raise_by left s.
Proof. by elim: s left => //= x s IH left; rewrite run_sizeE IH. Qed.

Lemma run_sortE (s : seq R) : run_sort leq s = sort <=%R s.
Proof.
have insert x (t : seq R) : perm_eq (run_insert leq x t) (x :: t).
  elim: t => //= y t IH; case: ifP => // _; rewrite (perm_trans (y := y :: x :: t)) ?perm_cons //.
  by apply/permP => P /=; rewrite addnCA.
have inserted x (t : seq R) : sorted <=%R t -> sorted <=%R (run_insert leq x t).
  elim: t => //= y t IH in_order; case: ifP => [xy|/negbT]; first by rewrite /= xy.
  rewrite -ltNge => /ltW yx; rewrite /= (path_min_sorted _) ?IH ?(path_sorted in_order) //.
  apply/allP => z; rewrite (perm_mem (insert x t)) inE => /orP [/eqP ->//|zt].
  by move: in_order; rewrite path_sortedE; [case/andP => /allP /(_ z zt) | exact: le_trans].
have all_in : perm_eq (run_sort leq s) s.
  by elim: s => //= x s IH; rewrite (perm_trans (insert x _)) // perm_cons.
apply: (sorted_eq le_trans le_anti).
- by elim: s {all_in} => //= x s IH; exact: inserted.
- exact: sort_sorted le_total _.
- by rewrite (perm_trans all_in) // perm_sym perm_sort.
Qed.

Theorem run_l1_is_descend_l1 cutoff c h :
  run_l1 0 1 add sub div leq cutoff c [seq h i | i <- enum W] = [seq descend_l1 W cutoff c h i | i <- enum W].
Proof.
rewrite /run_l1 run_raiseE run_sortE -!map_comp run_sum_W; apply/eq_in_map => i; rewrite mem_enum => iW.
by rewrite /= ffunE iW.
Qed.

Theorem run_rough_is_rough : run_rough 0 1 add div root [seq (0 : R) | i <- enum W] = [seq rough R W i | i <- enum W].
Proof.
rewrite /run_rough run_sizeE size_map -cardE -map_comp; apply/eq_in_map => i; rewrite mem_enum => iW.
by rewrite /= ffunE iW div1r.
Qed.

Theorem run_capped_is_fine (w : I -> R) cap totals :
  run_capped leq cap [seq w i | i <- enum W] = [seq fine w cap W totals (inl i) | i <- enum W].
Proof.
rewrite /run_capped -map_comp; apply/eq_in_map => i; rewrite mem_enum => iW.
by rewrite /= ffunE iW /run_min; case: leP.
Qed.

Theorem run_fine_is_fine (w : I -> R) totals :
  run_fine 0 1 add sub mul div root leq (cap_room R) [seq w i | i <- enum W]
  = [seq fine w (cap_of w W) W totals (inl i) | i <- enum W].
Proof.
rewrite /run_fine /run_cap -map_comp run_raiseE run_sortE !run_sum_W.
by under eq_bigr do rewrite /= -expr2; under eq_map do rewrite /= -expr2; exact: run_capped_is_fine.
Qed.

Theorem run_marks_is_two_marks (first second : I) (mark burden : R) : first != second ->
  let p := (burden - mark) / mark in
  run_marks 1 sub div mark burden = [:: two_marks first second p first; two_marks first second p second].
Proof.
move=> /negbTE apart p; rewrite /run_marks -/p !ffunE !eqxx apart eq_sym apart addr0 add0r.
by [].
Qed.

End Same.

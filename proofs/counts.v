(* Part 9. Lemma C1: one person moves each step of counting by at most 1, whatever the public weights are. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From dpunion Require Import vectors l1_descent.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Sums.
Variables (R : rcfType) (P : finType) (user : eqType).
(* What each person adds at each place: a function of the own set and of public numbers. *)
Variable adds : user -> {ffun P -> R}.

Definition sums (D : seq user) : {ffun P -> R} := \sum_(u <- D) adds u.

(* The sums with v and without v differ by what v adds. *)
Theorem sums_differ_by_one D v : v \in D -> sums D - sums (rem v D) = adds v.
Proof. by move=> present; rewrite /sums (big_rem v present) /= addrK. Qed.

Theorem sums_move_by_one D v : v \in D -> norm2 (adds v) <= 1 -> norm2 (sums D - sums (rem v D)) <= 1.
Proof. by move=> present; rewrite sums_differ_by_one. Qed.

End Sums.

(* What is added at some places only. *)
Section Put.
Variables (R : rcfType) (I J : finType) (place : J -> I).

Definition put (x : {ffun J -> R}) : {ffun I -> R} := [ffun i => \sum_(j | place j == i) x j].

Lemma norm2_put x : injective place -> norm2 (put x) = norm2 x.
Proof.
move=> apart; rewrite /norm2; congr Num.sqrt; rewrite /dot [RHS](partition_big place xpredT) //=.
apply: eq_bigr => i _; rewrite ffunE; case: (pickP (fun j => place j == i)) => [j /eqP <-|none].
  by rewrite !(big_pred1 j) // => j'; rewrite (inj_eq apart).
by rewrite !big_pred0 ?mul0r // => j; rewrite none.
Qed.

End Put.

Section Steps.
Variables (R : rcfType) (I : finType).
Implicit Types (L : {set I}) (w : I -> R).

(* Rough: 1 / sqrt k to each of the k listed items that somebody has. *)
Definition rough L : {ffun I -> R} := [ffun i => if i \in L then (Num.sqrt #|L|%:R)^-1 else 0].

Theorem rough_adds_one L : norm2 (rough L) <= 1.
Proof.
rewrite norm2_le_sqr ?ler01 // expr1n (@dot_on _ _ L) => [|i /negbTE out]; last by rewrite ffunE out.
rewrite (eq_bigr (fun=> #|L|%:R^-1)) => [|i iL]; last first.
  by rewrite !ffunE iL -invfM -expr2 sqr_sqrtr ?ler0n.
apply: (@le_trans _ _ (#|L|%:R / #|L|%:R)); first by rewrite sumr_const mulr_natl.
have [->|some] := posnP #|L|; first by rewrite mul0r ler01.
by rewrite divff // pnatr_eq0 -lt0n.
Qed.

(* Marks: numbers that are not negative and sum up to at most 1. *)
Theorem marks_add_one (J : finType) (x : {ffun J -> R}) : (forall j, 0 <= x j) -> \sum_j x j <= 1 -> norm2 x <= 1.
Proof.
move=> x0 total; apply: le_trans (norm2_le_norm1 x) _; apply: le_trans total.
by rewrite /norm1 le_eqVlt; apply/orP; left; apply/eqP; apply: eq_bigr => j _; rewrite ger0_norm.
Qed.

(* 1 in all, divided between two marks. *)
Definition two_marks (J : finType) (first second : J) (p : R) : {ffun J -> R} :=
  [ffun j => (if j == first then 1 - p else 0) + (if j == second then p else 0)].

Theorem two_marks_add_one (J : finType) (first second : J) p : 0 <= p <= 1 -> norm2 (two_marks first second p) <= 1.
Proof.
move=> /andP [p0 p1]; have rest : 0 <= 1 - p by rewrite subr_ge0.
apply: marks_add_one => [j|]; first by rewrite ffunE addr_ge0 //; case: ifP.
under eq_bigr do rewrite ffunE; rewrite big_split /= -!big_mkcond !big_pred1_eq.
by rewrite subrK.
Qed.

(* Fine: capped weights on the items, and a tenth on each of two totals, if they hold. *)
Definition cap_room : R := 98%:R / 100%:R.
Definition total_share : R := 10%:R^-1.
Definition fine w cap L (totals : bool -> bool) : {ffun I + bool -> R} :=
  [ffun place => match place with
                 | inl i => if i \in L then Num.min (w i) cap else 0
                 | inr b => if totals b then total_share else 0
                 end].

(* capped: the squares of the capped weights sum up to at most the room; any public weights w. *)
Definition capped w cap L := \sum_(i in L) Num.min (w i) cap ^+ 2 <= cap_room.

Theorem fine_adds_one w cap L totals : capped w cap L -> norm2 (fine w cap L totals) <= 1.
Proof.
move=> within; rewrite norm2_le_sqr ?ler01 // expr1n /dot big_sumType /=.
have -> : 1 = cap_room + 2%:R * total_share ^+ 2 by rewrite /cap_room /total_share; field.
apply: ler_add.
  apply: le_trans within; rewrite [X in _ <= X]big_mkcond /=; apply: ler_sum => i _.
  by rewrite !ffunE; case: ifP => _; rewrite ?mul0r // -expr2.
rewrite big_bool !ffunE mulr_natl mulr2n.
by apply: ler_add; case: ifP => _; rewrite ?mul0r ?sqr_ge0 // -expr2.
Qed.

(* The cap: none if the squares fit; otherwise the root of what they fit under, found like the amount of descend_l1. *)
Definition cap_of w L : R :=
  if \sum_(i in L) w i ^+ 2 <= cap_room then \sum_(i in L) w i
  else Num.sqrt (raise_by cap_room (sort <=%R [seq w i ^+ 2 | i <- enum L])).

Theorem cap_fits w L : (forall i, 0 <= w i) -> capped w (cap_of w L) L.
Proof.
move=> w0; rewrite /capped /cap_of; case: (leP (\sum_(i in L) w i ^+ 2)) => [fit|more].
  apply: le_trans fit; apply: ler_sum => i _; have sum0 : 0 <= \sum_(j in L) w j by apply: sumr_ge0.
  by rewrite ler_sqr ?nnegrE ?le_minr ?w0 // le_minl lexx.
have room0 : 0 <= cap_room by rewrite divr_ge0 ?ler0n.
have [level0 spent] := amount_exists room0 more; rewrite /= in level0 spent.
set level := raise_by _ _ in level0 spent *; rewrite -[X in _ <= X]spent; apply: ler_sum => i _.
have root0 := sqrtr_ge0 level; have capped0 : 0 <= Num.min (w i) (Num.sqrt level) by rewrite le_minr w0 root0.
rewrite le_minr; apply/andP; split; first by rewrite ler_sqr ?nnegrE ?w0 // le_minl lexx.
by rewrite -[X in _ <= X](sqr_sqrtr level0) ler_sqr ?nnegrE // le_minl lexx orbT.
Qed.

(* So whatever the weights are, somebody adds at most 1 to the fine step. *)
Theorem fine_capped_adds_one w L totals : (forall i, 0 <= w i) -> norm2 (fine w (cap_of w L) L totals) <= 1.
Proof. by move=> w0; apply: fine_adds_one; exact: cap_fits. Qed.

End Steps.

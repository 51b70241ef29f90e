(* Part 9. Lemma C1: one person moves each step of counting by at most 1, whatever the public weights are. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From dpunion Require Import vectors.

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

End Steps.

(* Vectors over the items, with their inner product and norms: histograms, gaps and moves are such vectors.

   R is any real closed field (the real numbers are one), I any finite set of items. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Vectors.
Variables (R : rcfType) (I : finType).
Implicit Types (x y z : {ffun I -> R}) (a : R) (W : {set I}).

Definition scale a x : {ffun I -> R} := [ffun i => a * x i].
Definition dot x y : R := \sum_i x i * y i.
Definition norm2 x : R := Num.sqrt (dot x x).
Definition norm1 x : R := \sum_i `|x i|.

Lemma subE x y i : (x - y) i = x i - y i.
Proof. by rewrite !ffunE. Qed.

Lemma dotC x y : dot x y = dot y x.
Proof. by apply: eq_bigr => i _; rewrite mulrC. Qed.

Lemma dotDl x y z : dot (x + y) z = dot x z + dot y z.
Proof. by rewrite /dot -big_split; apply: eq_bigr => i _; rewrite ffunE mulrDl. Qed.

Lemma dotNl x z : dot (- x) z = - dot x z.
Proof. by rewrite /dot -sumrN; apply: eq_bigr => i _; rewrite ffunE mulNr. Qed.

Lemma dotZl a x z : dot (scale a x) z = a * dot x z.
Proof. by rewrite /dot mulr_sumr; apply: eq_bigr => i _; rewrite ffunE -mulrA. Qed.

Lemma dotDr x y z : dot z (x + y) = dot z x + dot z y.
Proof. by rewrite dotC dotDl !(dotC z). Qed.

Lemma dotNr x z : dot z (- x) = - dot z x.
Proof. by rewrite dotC dotNl dotC. Qed.

Lemma dotZr a x z : dot z (scale a x) = a * dot z x.
Proof. by rewrite dotC dotZl dotC. Qed.

Lemma dot0r x : dot x 0 = 0.
Proof. by apply: big1 => i _; rewrite ffunE mulr0. Qed.

Definition dotE := (dotDl, dotDr, dotNl, dotNr, dotZl, dotZr).

Lemma dot_ge0 x : 0 <= dot x x.
Proof. by apply: sumr_ge0 => i _; rewrite -expr2 sqr_ge0. Qed.

Lemma dot_eq0 x : dot x x = 0 -> x = 0.
Proof.
move=> zero; apply/ffunP => i; rewrite [RHS]ffunE; apply/eqP.
have each j : true -> 0 <= x j * x j by rewrite -expr2 sqr_ge0.
have := psumr_eq0P each zero (erefl : true = true) => /(_ i) /eqP.
by rewrite mulf_eq0 orbb.
Qed.

Lemma norm2_ge0 x : 0 <= norm2 x.
Proof. exact: sqrtr_ge0. Qed.

Lemma sqr_norm2 x : norm2 x ^+ 2 = dot x x.
Proof. by rewrite sqr_sqrtr ?dot_ge0. Qed.

Lemma norm2N x : norm2 (- x) = norm2 x.
Proof. by rewrite /norm2 !dotE opprK. Qed.

Lemma norm2_le x y : (norm2 x <= norm2 y) = (dot x x <= dot y y).
Proof. by rewrite -!sqr_norm2 ler_sqr ?nnegrE ?norm2_ge0. Qed.

Lemma norm2_le_sqr x a : 0 <= a -> (norm2 x <= a) = (dot x x <= a ^+ 2).
Proof. by move=> a0; rewrite -sqr_norm2 ler_sqr ?nnegrE ?norm2_ge0. Qed.

(* Cauchy-Schwarz. *)
Lemma dot_le_norms x y : dot x y <= norm2 x * norm2 y.
Proof.
set a := norm2 x; set b := norm2 y.
have [ax by_] : dot x x = a ^+ 2 /\ dot y y = b ^+ 2 by rewrite !sqr_norm2.
have [b0|b0] := eqVneq b 0.
  have -> : y = 0 by apply: dot_eq0; rewrite by_ b0 expr0n.
  by rewrite dot0r mulr_ge0 ?norm2_ge0.
have [a0|a0] := eqVneq a 0.
  have -> : x = 0 by apply: dot_eq0; rewrite ax a0 expr0n.
  by rewrite dotC dot0r mulr_ge0 ?norm2_ge0.
have ab : 0 < a * b by rewrite mulr_gt0 // lt_neqAle eq_sym ?a0 ?b0 norm2_ge0.
have := dot_ge0 (scale b x - scale a y).
have -> : dot (scale b x - scale a y) (scale b x - scale a y) = 2%:R * (a * b) * (a * b - dot x y).
  by rewrite !dotE ax by_ (dotC y x); ring.
by rewrite pmulr_rge0 ?subr_ge0 // mulr_gt0 ?ltr0n.
Qed.

Lemma norm2_triangle x y : norm2 (x + y) <= norm2 x + norm2 y.
Proof.
rewrite norm2_le_sqr ?addr_ge0 ?norm2_ge0 // sqrrD !sqr_norm2 !dotE (dotC y x).
have -> : dot x x + dot x y + (dot x y + dot y y) = dot x x + dot x y *+ 2 + dot y y by ring.
by rewrite ler_add2r ler_add2l ler_muln2r dot_le_norms orbT.
Qed.

Lemma norm1_triangle x y : norm1 (x + y) <= norm1 x + norm1 y.
Proof. by rewrite /norm1 -big_split; apply: ler_sum => i _; rewrite ffunE ler_norm_add. Qed.

Lemma norm1_ge0 x : 0 <= norm1 x.
Proof. exact: sumr_ge0. Qed.

Lemma norm2_le_norm1 x : norm2 x <= norm1 x.
Proof.
rewrite norm2_le_sqr ?norm1_ge0 // /dot expr2 {1}/norm1 mulr_suml; apply: ler_sum => i _.
rewrite -expr2 -real_normK ?num_real // expr2 ler_wpmul2l //.
by rewrite /norm1 (bigD1 i) //= ler_addl sumr_ge0.
Qed.

(* What a sum of squares over some items says of a vector that is zero elsewhere. *)
Lemma dot_on W x y : (forall i, i \notin W -> y i = 0) -> dot x y = \sum_(i in W) x i * y i.
Proof.
move=> off; rewrite /dot (bigID (mem W)) /= [X in _ + X]big1 ?addr0 // => i /off ->.
by rewrite mulr0.
Qed.

End Vectors.

(* Part 13. Shards: a person is in one of them, so all together move by what that one moves. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From dpunion Require Import vectors.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Shards.
Variables (R : rcfType) (I shard : finType).
Local Notation vector := {ffun I -> R}.

(* Without v every shard but v's own computes the same. *)
Theorem one_shard_moves (H H' : shard -> vector) own c : (forall s, s != own -> H s = H' s) ->
  norm2 (H own - H' own) <= c -> norm2 (\sum_s H s - \sum_s H' s) <= c.
Proof.
move=> same; suff -> : \sum_s H s - \sum_s H' s = H own - H' own by [].
rewrite -sumrB (bigD1 own) //= big1 ?addr0 // => s other.
by rewrite same // subrr.
Qed.

(* No more of a sum counts than a public number. *)
Theorem minimum_moves_less (x y top : vector) :
  norm2 ([ffun i => Num.min (x i) (top i)] - [ffun i => Num.min (y i) (top i)]) <= norm2 (x - y).
Proof.
rewrite norm2_le; apply: ler_sum => i _; rewrite !ffunE -!expr2 -[X in X <= _]real_normK ?num_real //.
rewrite -[X in _ <= X]real_normK ?num_real // ler_sqr ?nnegrE ?normr_ge0 //.
have half (a b m : R) : a <= b -> `|Num.min a m - Num.min b m| <= `|a - b|.
  move=> ab; have mins : Num.min a m <= Num.min b m by rewrite le_minr !le_minl ab lexx orbT.
  rewrite distrC ger0_norm ?subr_ge0 // distrC ger0_norm ?subr_ge0 // ler_subl_addr le_minl.
  case: (leP a m) => am; first by rewrite subrK lexx.
  by rewrite [X in _ || X]ler_addr subr_ge0 ab orbT.
case/orP: (le_total (x i) (y i)) => less; first exact: half.
by rewrite distrC [X in _ <= X]distrC; exact: half.
Qed.

End Shards.

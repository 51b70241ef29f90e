(* Part 9. Shards: a person is in one of them, so all together move by what that one moves. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From dpunion Require Import vectors contraction l1_descent sensitivity novel_walk.

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

(* A round of Funnel on several machines: users are in shards, each shard closes gaps toward a part of the target, and
   no more of the sum counts than a public number. *)
Section Rounds.
Variables (R : rcfType) (I shard : finType) (key : Type) (user : eqType) (d : unit) (spot : orderType d).
Variables (keep : key -> user -> {set I}) (place : key -> user -> spot) (k : key) (shard_of : user -> shard).
Local Notation vector := {ffun I -> R}.

Definition sharded_weights (target top : vector) alive c (D : seq user) : vector :=
  let total : vector := \sum_s round_weights keep place k target alive c [seq u <- D | shard_of u == s] in
  [ffun i => Num.min (total i) (top i)].

Theorem sharded_round_moves target top alive c D v : 0 <= c -> uniq D -> v \in D ->
  norm2 (sharded_weights target top alive c D - sharded_weights target top alive c (rem v D)) <= c.
Proof.
move=> c0 distinct present; apply: le_trans (minimum_moves_less _ _ _) _.
have without s : [seq u <- rem v D | shard_of u == s] = rem v [seq u <- D | shard_of u == s].
  rewrite !rem_filter ?filter_uniq // -!filter_predI; apply: eq_filter => u /=; exact: andbC.
apply: (@one_shard_moves _ _ _ _ _ (shard_of v)) => [s other|]; rewrite without.
  by rewrite rem_id // mem_filter eq_sym (negbTE other).
by apply: sensitivity_round; rewrite ?filter_uniq // mem_filter eqxx.
Qed.

(* Toward a part of the target nobody gets more than toward all of it, whatever the others need. *)
Theorem smaller_target_smaller_gift (c b g part : R) : 0 <= c -> 0 <= b -> 0 <= g -> 0 <= part <= 1 ->
  gift c (part ^+ 2 * b) (part * g) <= gift c b g.
Proof.
move=> c0 b0 g0 /andP [p0 p1]; rewrite /gift exprMn -mulrDr; set s := g ^+ 2 + b.
have s0 : 0 <= s by rewrite addr_ge0 ?sqr_ge0.
have less : part ^+ 2 * s <= s by rewrite ler_pimull // expr_le1.
case: (leP s (c ^+ 2)) => [small|large]; first by rewrite (le_trans less small) ler_pimull.
have root0 : 0 < Num.sqrt s by rewrite sqrtr_gt0 (le_lt_trans (sqr_ge0 c)).
case: ifP => [small|/negbT].
  rewrite ler_wpmul2r // ler_pdivl_mulr // -ler_sqr ?nnegrE ?mulr_ge0 ?sqrtr_ge0 //.
  by rewrite exprMn sqr_sqrtr.
rewrite -ltNge => still; have part0 : part != 0.
  by apply: contraTneq still => ->; rewrite expr0n mul0r -leNgt sqr_ge0.
rewrite sqrtrM ?sqr_ge0 // sqrtr_sqr ger0_norm // le_eqVlt; apply/orP; left; apply/eqP.
by field; rewrite part0 gt_eqF.
Qed.

End Rounds.

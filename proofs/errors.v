(* Part 12. Three errors that are easily made, refuted: what they would say is false. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From dpunion Require Import vectors contraction l1_descent sensitivity novelty lists counts.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

(* Two items, one of them listed, and one user, who keeps both. In round 1 the listed item has twice the target. *)
Section LargerTarget.
Variables (R : rcfType) (d : unit) (spot : orderType d) (place : unit -> unit -> spot).
Let keep (_ _ : unit) : {set bool} := [set: bool].
Let target : {ffun bool -> R} := [ffun i => if i then 2%:R else 1].
Let N := plain_novel keep tt [set: bool] [set true] [:: tt] tt.
Let H := round_weights keep place tt target [set: bool] 3%:R [:: tt].
Let H' := round_weights keep place tt target [set: bool] 3%:R (rem tt [:: tt]).

Lemma novel_is_false : N = [set false].
Proof. by apply/setP => -[]; rewrite !inE. Qed.

Lemma first_gets i : H i = target i.
Proof.
rewrite /H /round_weights /round_gaps subE /queue /=.
suff -> : descend_ball ([set: bool] :&: [set: bool]) 3%:R target i = 0 by rewrite subr0.
rewrite ffunE !inE /= /step_of.
have -> : squares ([set: bool] :&: [set: bool]) target = 5%:R.
  rewrite /squares (eq_bigl xpredT) => [|j]; last by rewrite !inE.
  rewrite big_bool /target !ffunE /=; have -> : 5%:R = 2%:R ^+ 2 + 1 ^+ 2 :> R by ring.
  by [].
have -> : 5%:R <= 3%:R ^+ 2 :> R by rewrite -natrX ler_nat.
by rewrite mul1r subrr.
Qed.

Theorem larger_listed_target_fails y : (forall i, i \in N -> H i = y) ->
  ~~ (shared_squares N H H' <= (2%:R - #|N|%:R) * y ^+ 2).
Proof.
rewrite novel_is_false => same; have <- : H false = y by apply: same; rewrite inE.
rewrite cards1 !first_gets /shared_squares (big_pred1 true) => [|j]; last by rewrite !inE; case: j.
rewrite first_gets /H' /round_weights /round_gaps subE /queue /= subrr !ffunE subr0 expr1n mulr1.
by rewrite -ltNge -natrX -natrB // ltr_nat.
Qed.

End LargerTarget.

(* Two novel items, of which one comes out: each with the chance 1/2. *)
Theorem novelty_counted_once_fails (R : rcfType) :
  let weight (_ : bool) : R := 2%:R^-1 in let passed (i t : bool) := t == i in
  (forall i, \sum_(t | passed i t) weight t <= 2%:R^-1) /\
  ~~ (\sum_(t | [exists i in [set: bool], passed i t]) weight t <= 2%:R^-1).
Proof.
split=> [i|]; first by rewrite big_pred1_eq.
rewrite (eq_bigl xpredT) => [|t]; last by apply/existsP; exists t; rewrite inE eqxx.
by rewrite big_bool -ltNge ltr_addl invr_gt0 ltr0n.
Qed.

(* Twice the share that somebody may add to the rough step. *)
Theorem doubled_share_fails (R : rcfType) : ~~ (norm2 (scale 2%:R (rough R [set: unit])) <= 1).
Proof.
rewrite norm2_le_sqr ?ler01 // /dot (big_pred1 tt) => [|[]] //.
by rewrite !ffunE inE cardsT card_unit sqrtr1 invr1 mulr1 expr1n -natrM -ltNge ltr1n.
Qed.

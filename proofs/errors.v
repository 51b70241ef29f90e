(* Part 12. Errors that are easily made, refuted. Each theorem here is the negation of what another theorem would say if
   the error were made in it: a test makes it, takes the altered theorem for granted and derives a contradiction. *)
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

End LargerTarget.

(* Theorem L (lists.v, first_round_listed) with twice the target for listed items in round 1. *)
Theorem larger_listed_target_fails (R : rcfType) :
  ~ (forall (I : finType) (key : Type) (user : eqType) (d : unit) (spot : orderType d) (keep : key -> user -> {set I})
      (place : key -> user -> spot) (k : key) (alive listed : {set I}) (c : R), 0 <= c ->
    forall (target : {ffun I -> R}) (top : R) (D : seq user) (v : user) (most : nat),
    uniq D -> v \in D -> (#|keep k v| <= most)%N ->
    0 <= top -> (forall i, 0 <= target i <= 2%:R * top) -> (forall i, i \notin listed -> target i = top) ->
    let N := plain_novel keep k alive listed D v in let t := #|N|%:R in
    let H := round_weights keep place k target alive c D in
    let H' := round_weights keep place k target alive c (rem v D) in
    exists y, [/\ 0 <= y <= top, forall i, i \in N -> H i = y, forall i, i \in N -> H' i = 0,
      t * y ^+ 2 <= c ^+ 2 & shared_squares N H H' <= Num.min (c ^+ 2 - t * y ^+ 2) ((most%:R - t) * y ^+ 2)]).
Proof.
pose place (_ _ : unit) := 0%N; pose keep (_ _ : unit) : {set bool} := [set: bool].
pose target : {ffun bool -> R} := [ffun i => if i then 2%:R else 1].
move=> /(_ _ _ _ _ _ keep place tt [set: bool] [set true] 3%:R (ler0n _ _) target 1 [:: tt] tt 2%N).
rewrite mem_head cardsT card_bool ler01 => /(_ isT isT isT isT) [i|[]|y] /=; rewrite ?inE ?ffunE //.
  by case: i; rewrite ?ler0n ?ler01 ?mulr1 ?lexx ?ler1n.
rewrite (novel_is_false : plain_novel keep _ _ _ _ _ = _) cards1 => -[_ same _ _].
rewrite le_minr => /andP [_]; have <- := same false (set11 _).
rewrite !(first_gets R place) /shared_squares (big_pred1 true) => [|j]; last by rewrite !inE; case: j.
rewrite (first_gets R place) /round_weights /round_gaps subE /queue /= subrr !ffunE subr0 expr1n mulr1.
by apply/negP; rewrite -ltNge -natrX -natrB // ltr_nat.
Qed.

(* Theorem B's last part (novel_walk.v, some_novel_passes) with the chance of one novel item for all of them. *)
Theorem novelty_counted_once_fails (R : rcfType) :
  ~ (forall (T I : finType) (weight : T -> R) (N : {set I}) (passed : I -> pred T) (each : R),
    (forall t, 0 <= weight t) -> (forall i, i \in N -> \sum_(t | passed i t) weight t <= each) ->
    \sum_(t | [exists i in N, passed i t]) weight t <= each).
Proof.
pose half : R := 2%:R^-1; have half0 : 0 <= half by rewrite invr_ge0 ler0n.
move=> /(_ _ _ (fun _ : bool => half) [set: bool] (fun i t => t == i) half (fun=> half0)).
rewrite (eq_bigl xpredT) => [|t]; last by apply/existsP; exists t; rewrite inE eqxx.
rewrite big_bool => claim; have : half + half <= half by apply: claim => i _; rewrite big_pred1_eq.
by apply/negP; rewrite -ltNge ltr_addl invr_gt0 ltr0n.
Qed.

(* Lemma C1 (counts.v, rough_adds_one) with twice the share. *)
Theorem doubled_share_fails (R : rcfType) :
  ~ (forall (I : finType) (L : {set I}),
    norm2 ([ffun i => if i \in L then 2%:R * (Num.sqrt #|L|%:R)^-1 else 0] : {ffun I -> R}) <= 1).
Proof.
move=> /(_ _ [set: unit]); rewrite norm2_le_sqr ?ler01 // /dot (big_pred1 tt) => [|[]] //.
rewrite !ffunE inE cardsT card_unit sqrtr1 invr1 mulr1 expr1n -natrM.
by apply/negP; rewrite -ltNge ltr1n.
Qed.

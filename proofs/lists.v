(* Part 9. Theorem L: round 1 when listed items have targets of their own, none above that of the others. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From dpunion Require Import vectors contraction l1_descent sensitivity novelty.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Lists.
Variables (R : rcfType) (I : finType) (key : Type) (user : eqType) (d : unit) (spot : orderType d).
Variables (keep : key -> user -> {set I}) (place : key -> user -> spot) (k : key) (alive listed : {set I}) (c : R).
Hypothesis c0 : 0 <= c.
Local Notation vector := {ffun I -> R}.
Let own u := keep k u :&: alive.

(* Novel now means: kept by nobody else, and not listed. *)
Definition plain_novel D v : {set I} := novel own D v :\: listed.

(* Every gap stays between 0 and the target it began with. *)
Lemma step_between W (g : vector) : 0 <= step_of W c g <= 1.
Proof.
rewrite /step_of; case: ifP => [_|/negbT]; first by rewrite ler01 lexx.
rewrite -ltNge => large; have all0 : 0 <= squares W g := le_trans (sqr_ge0 c) (ltW large).
have root0 : 0 < Num.sqrt (squares W g) by rewrite sqrtr_gt0 (le_lt_trans _ large) ?sqr_ge0.
rewrite divr_ge0 ?(ltW root0) //= ler_pdivr_mulr // mul1r -ler_sqr ?nnegrE ?(ltW root0) //.
by rewrite sqr_sqrtr // ltW.
Qed.

Lemma gaps_between W (g target : vector) : (forall i, 0 <= g i <= target i) ->
  forall i, 0 <= descend_ball W c g i <= target i.
Proof.
move=> between i; rewrite ffunE; case: ifP => // _; have /andP [g0 g1] := between i.
have /andP [q0 q1] := step_between W g; have less : step_of W c g * g i <= g i by rewrite ler_pimull.
by rewrite subr_ge0 less /= (le_trans _ g1) // ler_subl_addr ler_addl mulr_ge0.
Qed.

Lemma all_gaps_between (users : seq user) (target : vector) : (forall i, 0 <= target i) ->
  forall i, 0 <= visits (fun u => descend_ball (own u) c) users target i <= target i.
Proof.
move=> target0; elim/last_ind: users => [|users u IH] i; first by rewrite /visits /= target0 lexx.
by rewrite -cats1 visits_cat /=; apply: gaps_between.
Qed.

(* Lemma F2 with lists. Condition (a): in round 1 no target exceeds top, the target of items that are not listed. *)
Theorem first_round_listed (target : vector) (top : R) D v most : uniq D -> v \in D -> (#|keep k v| <= most)%N ->
  0 <= top -> (forall i, 0 <= target i <= top) -> (forall i, i \notin listed -> target i = top) ->
  let N := plain_novel D v in let t := #|N|%:R in
  let H := round_weights keep place k target alive c D in
  let H' := round_weights keep place k target alive c (rem v D) in
  exists y, [/\ 0 <= y <= top, forall i, i \in N -> H i = y, forall i, i \in N -> H' i = 0,
    t * y ^+ 2 <= c ^+ 2 & shared_squares N H H' <= Num.min (c ^+ 2 - t * y ^+ 2) ((most%:R - t) * y ^+ 2)].
Proof.
move=> distinct present few top0 targets plain /=; set N := plain_novel D v.
have N_novel i : i \in N -> i \in novel own D v by rewrite inE => /andP [].
have N_plain i : i \in N -> i \notin listed by rewrite inE => /andP [].
have NW : N \subset own v by apply/subsetP => i /N_novel; apply/subsetP; exact: novel_own.
have [before [after [with_v without_v]]] := queue_inserts place k distinct present.
have apart u : u \in before ++ after -> forall i, i \in N -> i \notin own u.
  move=> uD i /N_novel; apply: novel_apart; first by move: uD; rewrite -without_v mem_sort => /mem_rem.
  by apply/eqP => uv; move: uD; rewrite uv -without_v mem_sort mem_rem_uniq // inE eqxx.
have untouched users (g : vector) i : {subset users <= before ++ after} -> i \in N ->
    visits (fun u => descend_ball (own u) c) users g i = g i.
  move=> inside iN; elim: users g inside => //= u users IH g inside.
  rewrite IH => [|w wu]; last by apply: inside; rewrite inE wu orbT.
  by rewrite ffunE; have /negbTE -> := apart u (inside u (mem_head _ _)) i iN.
have to_before : {subset before <= before ++ after} by move=> u ub; rewrite mem_cat ub.
have to_after : {subset after <= before ++ after} by move=> u ua; rewrite mem_cat ua orbT.
rewrite /round_weights /round_gaps with_v without_v !visits_cat /= -!/(own _).
set visit := fun u => descend_ball (own u) c; set g := visits visit before target.
set q := step_of (own v) c g; have /andP [q0 q1] : 0 <= q <= 1 := step_between _ _.
have target0 i : 0 <= target i by case/andP: (targets i).
have g_between i : 0 <= g i <= target i := all_gaps_between before target0 i.
have gN i : i \in N -> g i = top by move=> iN; rewrite /g untouched // plain // N_plain.
set y := q * top.
set x := descend_ball (own v) c g.
pose H : vector := target - visits visit after x; pose H' : vector := target - visits visit after g.
have HN i : i \in N -> H i = y.
  move=> iN; rewrite /H subE untouched // /x ffunE (subsetP NW) // -/q gN // plain ?N_plain // /y; ring.
have HN' i : i \in N -> H' i = 0 by move=> iN; rewrite /H' subE untouched // gN // plain ?N_plain // subrr.
have tE : #|N|%:R * y ^+ 2 = \sum_(i in N) H i ^+ 2.
  by rewrite mulr_natl -sumr_const; apply: eq_bigr => i iN; rewrite HN.
have moved : norm2 (H - H') <= c.
  have := sensitivity_round keep place k target alive c0 distinct present.
  by rewrite /round_weights /round_gaps with_v without_v !visits_cat.
have first : shared_squares N H H' <= c ^+ 2 - #|N|%:R * y ^+ 2 by rewrite tE; exact: spent_on_novel.
have opposite : H - H' = visits visit after g - visits visit after x.
  by apply/ffunP => i; rewrite !ffunE; ring.
have contracted : shared_squares N H H' <= \sum_(i | i \notin N) (g i - x i) ^+ 2.
  have close : norm2 (visits visit after g - visits visit after x) <= norm2 (g - x).
    apply: (@visits_nonexpansive _ _ _ (@norm2 R I) visit (fun=> True)) => // u z w _ _.
    exact: descend_ball_nonexpansive.
  move: close; rewrite norm2_le !(dot_split N).
  rewrite (eq_bigr (fun i => (g - x) i ^+ 2)) => [|i iN]; last by rewrite !subE !untouched.
  rewrite ler_add2l => close.
  have -> : shared_squares N H H' = \sum_(i | i \notin N) (visits visit after g - visits visit after x) i ^+ 2.
    by rewrite -opposite; apply: eq_bigr => i _; rewrite subE.
  by apply: le_trans close _; rewrite le_eqVlt; apply/orP; left; apply/eqP; apply: eq_bigr => i _; rewrite subE.
have second : shared_squares N H H' <= (most%:R - #|N|%:R) * y ^+ 2.
  apply: le_trans contracted _.
  apply: (@le_trans _ _ (\sum_(i in own v :\: N) y ^+ 2)); last first.
    rewrite sumr_const -mulr_natl ler_wpmul2r ?sqr_ge0 // cardsD (setIidPr NW) natrB ?subset_leq_card //.
    rewrite ler_sub // ler_nat; apply: leq_trans few.
    by rewrite subset_leq_card // subsetIl.
  rewrite (bigID (mem (own v))) /= [X in _ + X]big1 ?addr0 => [|i /andP [_ /negbTE iv]]; last first.
    by rewrite /x ffunE iv subrr expr0n.
  rewrite (eq_bigl (mem (own v :\: N))) => [|i]; last by rewrite /= in_setD.
  apply: ler_sum => i; have -> : mem (own v :\: N) i = (i \notin N) && (i \in own v) by rewrite /= in_setD.
  move=> /andP [_ iv]; have /andP [gi0 gi1] := g_between i.
  have -> : x i = g i - q * g i by rewrite /x ffunE iv.
  rewrite subKr.
  rewrite ler_sqr ?nnegrE ?mulr_ge0 // ler_wpmul2l // (le_trans gi1) //.
  by case/andP: (targets i).
exists y; split=> //.
- by rewrite mulr_ge0 //= /y ler_pimull.
- by rewrite -subr_ge0 (le_trans _ first) // sumr_ge0 // => i _; rewrite sqr_ge0.
- by rewrite le_minr first second.
Qed.

End Lists.

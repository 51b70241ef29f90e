(* Part 3. What the items that only v keeps can get, and how much is then left for v to move the others. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From dpunion Require Import vectors contraction l1_descent sensitivity.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Novelty.
Variables (R : rcfType) (I : finType) (user : eqType) (own : user -> {set I}).
Local Notation vector := {ffun I -> R}.
Implicit Types (D : seq user) (N : {set I}) (x y h : vector).

(* The items of v that no other user in D keeps. *)
Definition novel D v : {set I} := [set i in own v | all (fun u => (u == v) || (i \notin own u)) D].

(* The squared distance on all other items. *)
Definition shared_squares N x y : R := \sum_(i | i \notin N) (x i - y i) ^+ 2.

Definition off N x : vector := [ffun i => if i \in N then 0 else x i].

Lemma dot_split N x : dot x x = \sum_(i in N) x i ^+ 2 + \sum_(i | i \notin N) x i ^+ 2.
Proof. by rewrite /dot (bigID (mem N)); congr (_ + _); apply: eq_bigr. Qed.

Lemma off_squares N x y : dot (off N (x - y)) (off N (x - y)) = shared_squares N x y.
Proof.
rewrite (dot_split N) big1 ?add0r => [|i iN]; last by rewrite ffunE iN expr0n.
by apply: eq_bigr => i /negbTE iN; rewrite !ffunE iN.
Qed.

Lemma novel_own D v : novel D v \subset own v.
Proof. by apply/subsetP => i; rewrite inE => /andP []. Qed.

Lemma novel_apart D v u i : u \in D -> u != v -> i \in novel D v -> i \notin own u.
Proof. by move=> uD uv; rewrite inE => /andP [_ /allP /(_ u uD)]; rewrite (negbTE uv). Qed.

(* Lemma F1, second part, for any norm-2 budget: all that v spends on novel items is lost for the others. *)
Lemma spent_on_novel N x y c : 0 <= c -> (forall i, i \in N -> y i = 0) -> norm2 (x - y) <= c ->
  shared_squares N x y <= c ^+ 2 - \sum_(i in N) x i ^+ 2.
Proof.
move=> c0 none; rewrite norm2_le_sqr // (dot_split N) => within.
rewrite ler_subr_addl (le_trans _ within) // ler_add //.
  by apply: ler_sum => i iN; rewrite !ffunE none // subr0.
by apply: ler_sum => i iN; rewrite !ffunE.
Qed.

End Novelty.

(* ------------------------------------------------------------------ one cutoff for all items, any number of passes *)

Section Region.
Variables (R : rcfType) (I : finType) (user : eqType) (own : user -> {set I}) (cutoff c : R).
Hypotheses (cutoff0 : 0 <= cutoff) (c0 : 0 <= c).
Local Notation vector := {ffun I -> R}.
Local Notation visit := (fun u => descend_l2 (own u) cutoff c).
Implicit Types (x y h : vector).

Definition share W (h : vector) : R := step_of W c ([ffun=> cutoff] - h).

Lemma share_between W h : 0 <= share W h <= 1.
Proof.
rewrite /share /step_of; set g := _ - h; case: ifP => [_|/negbT]; first by rewrite ler01 lexx.
rewrite -ltNge => large.
have all0 : 0 <= squares W g := le_trans (sqr_ge0 c) (ltW large).
have root0 : 0 < Num.sqrt (squares W g) by rewrite sqrtr_gt0 (le_lt_trans _ large) ?sqr_ge0.
rewrite divr_ge0 ?(ltW root0) //= ler_pdivr_mulr // mul1r -ler_sqr ?nnegrE ?(ltW root0) //.
by rewrite sqr_sqrtr // ltW.
Qed.

Lemma descend_l2E W h i : descend_l2 W cutoff c h i = if i \in W then h i + share W h * (cutoff - h i) else h i.
Proof.
rewrite ffunE /share /step_of squares_gaps; case: ifP => // _; case: ifP => _; first by ring.
by move: (c / _) => s; ring.
Qed.

Lemma visit_below W h : below cutoff h -> below cutoff (descend_l2 W cutoff c h).
Proof.
move=> under i; rewrite descend_l2E; case: ifP => // _; have /andP [_ q1] := share_between W h.
by rewrite -ler_subr_addl ler_pimull // subr_ge0.
Qed.

Lemma visit_raises W h i : below cutoff h -> h i <= descend_l2 W cutoff c h i.
Proof.
move=> under; rewrite descend_l2E; case: ifP => // _; have /andP [q0 _] := share_between W h.
by rewrite ler_addl mulr_ge0 // subr_ge0.
Qed.

(* Both worlds, x with v and y without, while users are visited: v's novel items N stand at b, no other item of v stands
   lower, and the worlds differ elsewhere by at most sqrt(number of v's other items) * b. *)
Variables (W N : {set I}).
Hypothesis NW : N \subset W.
Let root : R := Num.sqrt #|W :\: N|%:R.
Definition in_region b x y :=
  [/\ forall i, i \in N -> x i = b, forall i, i \in N -> y i = 0, below cutoff x,
      forall i, i \in W -> b <= x i & 0 <= b <= cutoff /\ norm2 (off N (x - y)) <= root * b].

Lemma region_other b x y (U : {set I}) : (forall i, i \in N -> i \notin U) ->
  in_region b x y -> in_region b (descend_l2 U cutoff c x) (descend_l2 U cutoff c y).
Proof.
move=> apart [xN yN under least [b_between near]].
have still (h : vector) i : i \in N -> descend_l2 U cutoff c h i = h i.
  by move=> iN; rewrite ffunE (negbTE (apart i iN)).
split.
- by move=> i iN; rewrite still // xN.
- by move=> i iN; rewrite still // yN.
- exact: visit_below.
- by move=> i iW; rewrite (le_trans (least i iW)) // visit_raises.
split=> //; apply: le_trans near; have := @descend_l2_nonexpansive R I U cutoff c x y c0.
rewrite !norm2_le !off_squares !(dot_split N).
rewrite (eq_bigr (fun i => (x - y) i ^+ 2)) => [|i iN]; last by rewrite !subE !still.
rewrite ler_add2l /shared_squares (eq_bigr (fun i => (descend_l2 U cutoff c x i - descend_l2 U cutoff c y i) ^+ 2)).
  by rewrite [X in _ <= X -> _](eq_bigr (fun i => (x i - y i) ^+ 2)) // => i _; rewrite subE.
by move=> i _; rewrite subE.
Qed.

Lemma region_own b x y : in_region b x y -> exists b', in_region b' (descend_l2 W cutoff c x) y.
Proof.
move=> [xN yN under least [/andP [b0 b1] near]].
set q := share W x; have /andP [q0 q1] := share_between W x; rewrite -/q in q0 q1.
have gain0 : 0 <= q * (cutoff - b) by rewrite mulr_ge0 // subr_ge0.
exists (b + q * (cutoff - b)); split=> //.
- by move=> i iN; rewrite descend_l2E (subsetP NW) // xN.
- exact: visit_below.
- move=> i iW; rewrite descend_l2E iW -/q -subr_ge0.
  have -> : x i + q * (cutoff - x i) - (b + q * (cutoff - b)) = (1 - q) * (x i - b) by ring.
  by rewrite mulr_ge0 // subr_ge0 // least.
split; first by rewrite addr_ge0 //= -ler_subr_addl ler_pimull // subr_ge0.
set x' := descend_l2 W cutoff c x.
have -> : off N (x' - y) = off N (x' - x) + off N (x - y).
  by apply/ffunP => i; rewrite !ffunE; case: ifP => _; rewrite ?addr0 // addrA subrK.
rewrite mulrDr [X in _ <= X]addrC (le_trans (norm2_triangle _ _)) // ler_add //.
rewrite /root norm2_le_sqr ?mulr_ge0 ?sqrtr_ge0 ?subr_ge0 // off_squares exprMn sqr_sqrtr ?ler0n //.
have -> : shared_squares N x' x = \sum_(i in W :\: N) (q * (cutoff - x i)) ^+ 2.
  rewrite /shared_squares (bigID (mem W)) /= [X in _ + X]big1 ?addr0 => [|i /andP [_ /negbTE iW]]; last first.
    by rewrite descend_l2E iW subrr expr0n.
  apply: eq_big => [i|i /andP [_ iW]]; first by rewrite inE.
  by rewrite descend_l2E iW addrC addKr.
rewrite mulr_natl -sumr_const; apply: ler_sum => i; rewrite inE => /andP [_ iW].
rewrite ler_sqr ?nnegrE //; last by rewrite mulr_ge0 // subr_ge0 under.
by apply: ler_wpmul2l => //; apply: ler_sub => //; exact: least.
Qed.

End Region.

Section Novel.
Variables (R : rcfType) (I : finType) (user : eqType) (d : unit) (spot : orderType d).
Variables (own : user -> {set I}) (place : user -> spot) (cutoff c : R).
Hypotheses (cutoff0 : 0 <= cutoff) (c0 : 0 <= c).
Local Notation vector := {ffun I -> R}.

(* l2-descent of all users with budget c, p passes: Policy Gaussian, and the first round of Funnel. *)
Definition descended p (D : seq user) : vector :=
  passes (fun u => descend_l2 (own u) cutoff c) p (queue (fun=> place) tt D) 0.

(* Lemma 7 and Lemma F2: all novel items get the same b, and what is left for the others is bounded twice. *)
Theorem novel_region p D v most : uniq D -> v \in D -> (#|own v| <= most)%N ->
  let N := novel own D v in let H := descended p D in let H' := descended p (rem v D) in
  exists b, [/\ 0 <= b <= cutoff, forall i, i \in N -> H i = b, forall i, i \in N -> H' i = 0,
    shared_squares N H H' <= (p%:R * c) ^+ 2 - #|N|%:R * b ^+ 2 &
    shared_squares N H H' <= (most%:R - #|N|%:R) * b ^+ 2].
Proof.
move=> distinct present few /=; set N := novel own D v.
have [before [after [with_v without_v]]] := queue_inserts (fun=> place) tt distinct present.
have NW : N \subset own v := novel_own own D v.
have others u : u \in before ++ after -> forall i, i \in N -> i \notin own u.
  move=> uD i; apply: novel_apart.
    by move: uD; rewrite -without_v mem_sort => /mem_rem.
  apply/eqP => uv; move: uD; rewrite uv -without_v mem_sort.
  by rewrite mem_rem_uniq // inE eqxx.
rewrite /descended with_v without_v; set visit := fun u : user => descend_l2 (own u) cutoff c.
have far (users : seq user) b x y : {subset users <= before ++ after} -> in_region cutoff (own v) N b x y ->
    in_region cutoff (own v) N b (visits visit users x) (visits visit users y).
  elim: users x y => //= u users IH x y inside region; apply: IH.
    by move=> w wu; apply: inside; rewrite inE wu orbT.
  by apply: region_other => //; apply: others; apply: inside; rewrite mem_head.
have [b [HN HN' _ _ [/andP [b0 b1] near]]] : exists b, in_region cutoff (own v) N b
    (passes visit p (before ++ v :: after) 0) (passes visit p (before ++ after) 0).
  elim: p => [|p [b region]].
    exists 0; split=> [i _|i _|i|i _|]; rewrite ?ffunE //.
    split; rewrite ?lexx //= mulr0 /passes /= subrr norm2_le_sqr // expr0n /= /dot big1 // => i _.
    by rewrite !ffunE if_same mulr0.
  rewrite /passes !iterS -!/(passes _ p _ _) !visits_cat /=.
  have to_v : {subset before <= before ++ after} by move=> u uB; rewrite mem_cat uB.
  have [b' region'] := region_own c0 NW (far before b _ _ to_v region).
  exists b'; apply: far region'.
  by move=> u uA; rewrite mem_cat uA orbT.
exists b; split=> //; first by rewrite b0 b1.
  have -> : #|N|%:R * b ^+ 2 = \sum_(i in N) passes visit p (before ++ v :: after) 0 i ^+ 2.
    by rewrite mulr_natl -sumr_const; apply: eq_bigr => i iN; rewrite HN.
  apply: spent_on_novel => //; first by rewrite mulr_ge0 // ler0n.
  apply: (@passes_add_up _ _ _ (@norm2 R I) _ (fun=> True)) => // [|x y|u x y _ _|u h _].
  - exact: norm2_0.
  - exact: norm2_triangle.
  - exact: descend_l2_nonexpansive.
  - exact: descend_l2_bounded.
move: near; rewrite norm2_le_sqr ?mulr_ge0 ?sqrtr_ge0 // off_squares exprMn sqr_sqrtr ?ler0n // => near.
apply: le_trans near _; rewrite ler_wpmul2r ?sqr_ge0 // ler_subr_addr -natrD ler_nat.
by rewrite cardsD (setIidPr NW) subnK // subset_leq_card.
Qed.

(* The two bounds meet where every item of v gets the same: the weaker form, for all b at once. *)
Theorem novel_region_weaker (shared t most b total : R) : 0 < most -> 0 <= t <= most ->
  shared <= total - t * b ^+ 2 -> shared <= (most - t) * b ^+ 2 -> shared <= total * (1 - t / most).
Proof.
move=> most0 /andP [t0 t_most] first second; rewrite -(ler_pmul2l most0).
have -> : most * (total * (1 - t / most)) = (most - t) * (total - t * b ^+ 2) + t * ((most - t) * b ^+ 2).
  by field; rewrite gt_eqF.
have -> : most * shared = (most - t) * shared + t * shared by ring.
by rewrite ler_add // ler_wpmul2l // subr_ge0.
Qed.

End Novel.

(* ------------------------------------------------------------------ rounds of Funnel *)

Section Rounds.
Variables (R : rcfType) (I : finType) (key : Type) (user : eqType) (d : unit) (spot : orderType d).
Variables (keep : key -> user -> {set I}) (place : key -> user -> spot) (k : key) (alive : {set I}) (c : R).
Hypothesis c0 : 0 <= c.
Local Notation vector := {ffun I -> R}.
Let own u := keep k u :&: alive.

(* Lemma F1: any targets. Without v its novel items get nothing, and what v gives them is not spent on others. *)
Theorem novel_round (target : vector) D v : uniq D -> v \in D ->
  let N := novel own D v in
  let H := round_weights keep place k target alive c D in
  let H' := round_weights keep place k target alive c (rem v D) in
  (forall i, i \in N -> H' i = 0) /\ shared_squares N H H' <= c ^+ 2 - \sum_(i in N) H i ^+ 2.
Proof.
move=> distinct present /=; set N := novel own D v.
have none i : i \in N -> round_weights keep place k target alive c (rem v D) i = 0.
  move=> iN; rewrite /round_weights subE; apply/eqP; rewrite subr_eq0 eq_sym; apply/eqP.
  have : {in queue place k (rem v D), forall u, i \notin own u}.
    move=> u; rewrite mem_sort mem_rem_uniq // inE => /andP [uv uD].
    exact: novel_apart uD uv iN.
  rewrite /round_gaps; elim: (queue _ _ _) (target) => //= u users IH gaps apart.
  rewrite IH => [|w wu]; last by apply: apart; rewrite inE wu orbT.
  by rewrite ffunE; have /negbTE := apart u (mem_head _ _); rewrite /own => ->.
by split=> //; apply: spent_on_novel => //; apply: sensitivity_round.
Qed.

(* The first round: all targets are equal, so it is l2-descent toward that target, and novel_region holds. *)
Theorem first_round (target : R) D :
  round_weights keep place k [ffun=> target] alive c D = descended own (place k) target c 1 D.
Proof.
rewrite /round_weights /round_gaps /descended /passes /= /queue -/(queue place k D).
elim/last_ind: (queue place k D) => [|users u IH]; first by rewrite /visits /= subrr.
rewrite -cats1 !visits_cat /= -IH; set gaps := visits _ users _.
apply/ffunP => i; rewrite [RHS]descend_l2E /share [X in step_of _ _ X]subKr !subE !ffunE -/(own u).
by case: ifP => _; ring.
Qed.

(* Lemma F2. *)
Theorem first_round_novelty (target : R) D v most : 0 <= target -> uniq D -> v \in D -> (#|keep k v| <= most)%N ->
  let N := novel own D v in let t := #|N|%:R in
  let H := round_weights keep place k [ffun=> target] alive c D in
  let H' := round_weights keep place k [ffun=> target] alive c (rem v D) in
  exists y, [/\ 0 <= y <= target, forall i, i \in N -> H i = y, forall i, i \in N -> H' i = 0,
    t * y ^+ 2 <= c ^+ 2 & shared_squares N H H' <= Num.min (c ^+ 2 - t * y ^+ 2) ((most%:R - t) * y ^+ 2)].
Proof.
move=> target0 distinct present few /=; rewrite !first_round.
have fewer : (#|own v| <= most)%N by apply: leq_trans few; rewrite subset_leq_card // subsetIl.
have [y [between HN HN' first second]] := novel_region (place k) target0 c0 1 distinct present fewer.
rewrite mul1r in first; exists y; split=> //; last by rewrite le_minr first second.
by rewrite -subr_ge0 (le_trans _ first) // sumr_ge0 // => i _; rewrite sqr_ge0.
Qed.

End Rounds.

(* ------------------------------------------------------------------ l1 *)

Section NovelL1.
Variables (R : rcfType) (I : finType) (key : Type) (user : eqType) (d : unit) (spot : orderType d).
Variables (keep : key -> user -> {set I}) (place : key -> user -> spot) (k : key).

(* Under l1-descent t novel items get the same b, and t * b <= 1. *)
Theorem novel_l1 (cutoff : R) p D v : 0 <= cutoff -> (0 < p)%N -> uniq D -> v \in D ->
  let N := novel (keep k) D v in
  exists b, (forall i, i \in N -> histogram_l1 keep place k cutoff p D i = b) /\ #|N|%:R * b <= 1.
Proof.
move=> cutoff0 p0 distinct present /=; set N := novel (keep k) D v.
pose visit u := descend_l1 (keep k u) cutoff (p%:R^-1 : R).
have still u (h : {ffun I -> R}) i : u \in D -> u != v -> i \in N -> visit u h i = h i.
  by move=> uD uv iN; rewrite ffunE (negbTE (novel_apart uD uv iN)).
have alike (users : seq user) q : {subset users <= D} -> exists b, forall i, i \in N -> passes visit q users 0 i = b.
  move=> inside; elim: q => [|q [b IH]]; first by exists 0 => i _; rewrite ffunE.
  rewrite /passes iterS -/(passes _ q _ _); elim: users b (passes _ _ _ _) IH inside => [|u users IH] b h hb inside.
    by exists b.
  have uD : u \in D by apply: inside; rewrite mem_head.
  have users_D : {subset users <= D} by move=> w wu; apply: inside; rewrite inE wu orbT.
  rewrite /=; have [uv|uv] := eqVneq u v; last by apply: (IH b) => // i iN; rewrite still // hb.
  have [-> |[n nN]] := set_0Vmem N; first by exists 0 => i; rewrite inE.
  apply: (IH (visit u h n)) => // i iN; rewrite !ffunE uv.
  have ownN := subsetP (novel_own (keep k) D v).
  by rewrite (ownN i iN) (ownN n nN) (hb i iN) (hb n nN).
have none i : i \in N -> histogram_l1 keep place k cutoff p (rem v D) i = 0.
  move=> iN; rewrite /histogram_l1 -/visit; set users := queue _ _ _.
  have apart : {in users, forall u, u \in D /\ u != v}.
    by move=> u; rewrite mem_sort mem_rem_uniq // inE => /andP [uv uD].
  have same (h : {ffun I -> R}) : visits visit users h i = h i.
    elim: (users) apart h => //= u rest IH apart h; have [uD uv] := apart u (mem_head _ _).
    by rewrite IH ?still // => w wr; apply: apart; rewrite inE wr orbT.
  by elim: (p) => [|q IH]; rewrite /passes ?iterS ?same // ffunE.
have [|b HN] := alike (queue place k D) p; first by move=> u; rewrite mem_sort.
exists b; split=> //; apply: le_trans (sensitivity_l1 keep place k cutoff0 p0 distinct present).
rewrite (norm1_split N) mulr_natl -sumr_const -[X in X <= _]addr0 ler_add ?sumr_ge0 //.
by apply: ler_sum => i iN; rewrite subE none // HN // subr0 ler_norm.
Qed.

End NovelL1.

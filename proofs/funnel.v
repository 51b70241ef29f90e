(* Part 10. Funnel as one process, with a public list and with steps of counting after it: it runs by its plan, so that
   default_release_private is about what runs. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From mathcomp.analysis Require Import reals sequences exp.
From dpunion Require Import vectors contraction sensitivity novelty coins gaussian composition events rounds.
From dpunion Require Import novel_walk lists look default executable.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

(* ------------------------------------------------------------------ independent noise for every item *)

Section Noise.
Variables (R : realType) (I Z : finType) (lam : Z -> R) (nothing : Z).
Hypothesis law_lam : is_finite_law lam.
Local Notation M := {ffun I -> Z}.

Definition item_noise (m : M) : R := \prod_i lam (m i).
(* The noise of all items but one. *)
Definition others i (m : M) : M := [ffun j => if j == i then nothing else m j].
Definition others_law i (m : M) : R := \prod_j (if j == i then (m j == nothing)%:R else lam (m j)).

Lemma product_law (F : I -> Z -> R) : (forall i, is_finite_law (F i)) -> is_finite_law (fun m : M => \prod_i F i (m i)).
Proof.
move=> laws; split=> [m|]; first by apply: prodr_ge0 => i _; case: (laws i).
by rewrite -(bigA_distr_bigA F) big1 // => i _; case: (laws i).
Qed.

Lemma item_noise_law : is_finite_law item_noise.
Proof. exact: (product_law (fun=> law_lam)). Qed.

Lemma others_law_law i : is_finite_law (others_law i).
Proof.
apply: (product_law (F := fun j z => if j == i then (z == nothing)%:R else lam z)) => j.
case: (j == i) => //; split=> [z|]; first exact: ler0n.
by rewrite (bigD1 nothing) //= eqxx big1 ?addr0 // => z /negbTE ->.
Qed.

Lemma independent_noise i (F : Z -> M -> R) :
  \sum_m item_noise m * F (m i) (others i m) = \sum_z \sum_m lam z * others_law i m * F z m.
Proof.
pose put z (m : M) : M := [ffun j => if j == i then z else m j].
rewrite [RHS]pair_bigA /= [RHS](bigID (fun zm : Z * M => zm.2 i == nothing)) /= [X in _ = _ + X]big1 ?addr0; last first.
  by case=> z m /= /negbTE away; rewrite /others_law (bigD1 i) //= eqxx away mul0r mulr0 mul0r.
rewrite (reindex_onto (fun m : M => (m i, others i m)) (fun zm => put zm.1 zm.2)) /=; last first.
  case=> z m /= /eqP here; rewrite ffunE eqxx; congr (_, _); apply/ffunP => j; rewrite !ffunE.
  by case: eqP => // ->.
apply: eq_big => [m|m _].
  by rewrite ffunE eqxx eqxx /=; apply/esym/eqP/ffunP => j; rewrite !ffunE; case: eqP => // ->.
congr (_ * _); rewrite /item_noise /others_law (bigD1 i) //= [X in _ = _ * X](bigD1 i) //= eqxx ffunE eqxx eqxx mul1r.
by congr (_ * _); apply: eq_bigr => j /negbTE away; rewrite away ffunE away.
Qed.

End Noise.

(* ------------------------------------------------------------------ the process *)

Section Funnel.
Variables (R : realType) (I C Z : finType) (Y key : Type) (user : eqType) (d : unit) (spot : orderType d).
Variables (keep : key -> user -> {set I}) (place : key -> user -> spot) (k : key) (D : seq user) (v : user).
Variable listed : {set I}.
Hypotheses (distinct : uniq D) (present : v \in D).
Local Notation S := {ffun I -> C}.
Local Notation M := {ffun I -> Z}.
Local Notation vector := {ffun I -> R}.

(* Novel items: kept by nobody but v, and not listed. *)
Variable N : {set I}.
Hypothesis fresh : N = novel (keep k) D v :\: listed.

(* Public numbers: of items that are not listed, and of listed ones, which may have any; what is decided about a listed
   item may depend on the scores of all listed items. *)
Variables (rounds : nat) (c aim cutoff line : nat -> R) (rho sigma : R).
Variables (listed_target : nat -> I -> vector -> R) (listed_stays listed_comes : nat -> I -> vector -> bool).
(* A reading as a number; noise of novel items. *)
Variables (value : C -> R) (lam zeta : Z -> R) (nothing : Z).

Definition on_listed (s : vector) : vector := [ffun i => if i \in listed then s i else 0].
Definition target_of r i (s : vector) : R :=
  if i \in listed then listed_target r i (on_listed s) else aim r * positive (cutoff r - s i).
Definition stays r i (s : vector) : bool :=
  if i \in listed then listed_stays r i (on_listed s) else (line r < s i) && (s i <= rho).
Definition comes r i (s : vector) : bool := if i \in listed then listed_comes r i (on_listed s) else rho < s i.

Record state := State { scores : vector; alive : {set I}; out : {set I} }.

(* At the start every item is alive that somebody keeps, and every listed one. *)
Definition start (E : seq user) : state := State 0 (kept keep k E :|: listed) set0.
Definition next r (st : state) (x : vector) : state :=
  let s : vector := [ffun i => scores st i + c r * x i] in
  State s [set i in alive st | stays r i s] (out st :|: [set i in alive st | comes r i s]).

Definition targets r (st : state) : vector := [ffun i => target_of r i (scores st)].
Definition weights r (st : state) (E : seq user) : vector :=
  round_weights keep place k (targets r st) (alive st) (c r) E.

(* With v: novel items have noise of their own, the others are read. Without v there are no novel items. *)
Fixpoint state_with (past : seq (S * M)) : state :=
  if past is o :: before then
    let st := state_with before in
    next (size before) st [ffun i => if i \in N then weights (size before) st D i + sigma * zeta (o.2 i)
                                     else value (o.1 i)]
  else start D.
Fixpoint state_without (past : seq S) : state :=
  if past is o :: before then next (size before) (state_without before) [ffun i => value (o i)]
  else start (rem v D).

(* What v gives a novel item. *)
Definition given i (past : seq (S * M)) : R := weights (size past) (state_with past) D i.

(* After the rounds of the list: any steps whose sums are functions of the list, of what was read before and of the
   people: steps of counting, and the rounds of longer n-grams. *)
Variables (steps : nat) (step_spread step_moves : nat -> R) (step : {set I} -> seq S -> seq user -> vector).
Variables (reader : seq S -> I -> R -> C) (publish : {set I} -> seq S -> Y).

Definition funnel_betrays (h : seq (S * M)) : bool := out (state_with (rev h)) :&: N != set0.

Definition funnel_process : process R C I [finType of M] Y := {|
  rounds_of := rounds + steps;
  spread := fun r => if (r < rounds)%N then sigma else step_spread r;
  read := reader;
  sums_with := fun past => if (size past < rounds)%N then off N (weights (size past) (state_with past) D)
                           else step (out (state_with past)) (shared past) D;
  sums_without := fun past => if (size past < rounds)%N
                              then off N (weights (size past) (state_without past) (rem v D))
                              else step (out (state_without past)) past (rem v D);
  novel_noise := item_noise lam;
  betrays := funnel_betrays;
  shown := fun h => publish (out (state_with (rev h))) (shared h);
  view := fun h => publish (out (state_without (rev h))) h |}.

(* One decision about an item that is not listed, as it is extracted and run: the new score, whether it comes out, and
   whether it is above the line. *)
Theorem run_decision_is_next r st (x : vector) i weight noise : i \notin listed -> x i = weight + noise ->
  let s := scores (next r st x) in
  run_decision +%R *%R <=%R (scores st i) (c r) weight noise rho (line r) = (s i, (comes r i s, line r < s i)) /\
  stays r i s = ~~ comes r i s && (line r < s i).
Proof.
move=> /negbTE plain xE s; rewrite /run_decision /stays /comes plain.
have -> : scores st i + c r * (weight + noise) = s i by rewrite /s /= ffunE xE.
by rewrite -!ltNge -leNgt andbC.
Qed.

(* ------------------------------------------------------------------ what is asked *)

Hypotheses (c_ge0 : forall r, 0 <= c r) (aim_ge0 : forall r, 0 <= aim r) (aims : forall r, c r * aim r <= 1).
Hypotheses (rho_ge0 : 0 <= rho) (sigma_gt0 : 0 < sigma) (law_lam : is_finite_law lam).
Hypotheses (some_rounds : (0 < rounds)%N) (shares : \sum_(0 <= r < rounds) c r ^+ 2 <= 1).
(* Condition (a) of Theorem L. *)
Hypothesis listed_first : forall i, i \in listed -> 0 <= listed_target 0 i 0 <= aim 0%N * positive (cutoff 0).
Hypothesis readable : forall past, can_be_read (reader past).


Lemma fresh_kept i : i \in N -> i \in keep k v.
Proof. by rewrite fresh !inE => /andP [_ /andP []]. Qed.

Lemma fresh_plain i : i \in N -> (i \in listed) = false.
Proof. by rewrite fresh !inE => /andP [/negbTE]. Qed.

(* Of listed items both worlds have the scores: condition (c) of Theorem L. *)
Lemma same_listed (x x' : vector) : (forall i, i \notin N -> x i = x' i) -> on_listed x = on_listed x'.
Proof.
move=> same; apply/ffunP => i; rewrite !ffunE; case: ifP => // iL; apply: same.
by apply: contraTN isT => /fresh_plain; rewrite iL.
Qed.

Lemma same_decisions r i (x x' : vector) : (forall j, j \notin N -> x j = x' j) -> i \notin N ->
  [/\ target_of r i x = target_of r i x', stays r i x = stays r i x' & comes r i x = comes r i x'].
Proof. by move=> same iN; rewrite /target_of /stays /comes (same_listed same) (same i iN). Qed.

Lemma fresh_apart u i : u \in D -> u != v -> i \in N -> i \notin keep k u.
Proof. by move=> uD uv; rewrite fresh inE => /andP [_]; exact: novel_apart. Qed.

Lemma start_without : alive (start (rem v D)) = alive (start D) :\: N.
Proof.
rewrite /= (kept_with keep k distinct present) fresh; apply/setP => i; rewrite !inE.
have apart := kept_apart keep k distinct present.
case: (boolP (i \in listed)) => listed_i; rewrite ?orbT ?orbF //=.
case: (boolP (i \in kept keep k (rem v D))) => [kept_i|]; last first.
  by rewrite /kept inE => /negbTE ->; rewrite orFb andNb.
have := disjointFr apart kept_i; move: kept_i; rewrite /kept /novel !inE => -> ->.
by [].
Qed.

Lemma plain_novel_fresh : plain_novel keep k (alive (start D)) listed D v = N.
Proof.
have own_all u : u \in D -> keep k u :&: alive (start D) = keep k u.
  move=> uD; apply/setIidPl/subsetP => i iu; rewrite !inE; apply/orP; left.
  by apply/hasP; exists u.
rewrite /plain_novel fresh; congr (_ :\: _); apply/setP => i.
rewrite [in LHS]in_set [in RHS]in_set own_all //; congr (_ && _).
by apply: eq_in_all => u uD; rewrite own_all.
Qed.

(* Off the novel items both worlds are in the same state if they have read the same. *)
Lemma same_state (past : seq (S * M)) : let st := state_with past in let st' := state_without (shared past) in
  [/\ forall i, i \notin N -> scores st i = scores st' i, alive st' = alive st :\: N & out st' = out st :\: N].
Proof.
elim: past => [|o past [same_scores same_alive same_out]] /=.
  by split=> //; [exact: start_without | rewrite set0D].
have size_shared : size (shared past) = size past by rewrite size_map.
have now i : i \notin N -> scores (state_with (o :: past)) i = scores (state_without (shared (o :: past))) i.
  by move=> iN; rewrite /= !ffunE (negbTE iN) size_shared same_scores.
have decided i (iN : i \notin N) := same_decisions (size past) now iN.
rewrite /= in now decided; split=> //.
- apply/setP => i; move: (decided i); rewrite !inE size_shared same_alive !inE.
  by case: (boolP (i \in N)) => //= iN /(_ isT) [_ -> _].
- apply/setP => i; move: (decided i); rewrite !inE size_shared same_alive same_out !inE.
  by case: (boolP (i \in N)) => //= iN /(_ isT) [_ _ ->].
Qed.

(* Users without novel items look at the others only. *)
Lemma visits_local (users : seq user) (al al' : {set I}) (e : R) (g g' : vector) :
  {in users, forall u i, i \in N -> i \notin keep k u} ->
  (forall i, i \notin N -> (i \in al) = (i \in al')) -> (forall i, i \notin N -> g i = g' i) ->
  forall i, i \notin N -> visits (fun u => descend_ball (keep k u :&: al) e) users g i
                       = visits (fun u => descend_ball (keep k u :&: al') e) users g' i.
Proof.
move=> apart same_al; elim: users g g' apart => //= u users IH g g' apart same i iN.
apply: IH => // [w wu|j jN]; first by apply: apart; rewrite inE wu orbT.
have away j' : j' \in N -> j' \notin keep k u by apply: apart; rewrite mem_head.
have sameW : keep k u :&: al = keep k u :&: al'.
  apply/setP => j'; rewrite !inE; case: (boolP (j' \in N)) => j'N; last by rewrite same_al.
  by rewrite (negbTE (away _ j'N)).
have sq : squares (keep k u :&: al) g = squares (keep k u :&: al') g'.
  rewrite /squares sameW; apply: eq_bigr => j'; rewrite inE => /andP [kept_j _]; rewrite same //.
  by apply: contraL kept_j; exact: away.
by rewrite !ffunE /step_of sq sameW same.
Qed.

Lemma weights_local r (st st' : state) : (forall i, i \notin N -> scores st i = scores st' i) ->
  (forall i, i \notin N -> (i \in alive st) = (i \in alive st')) ->
  off N (weights r st (rem v D)) = off N (weights r st' (rem v D)).
Proof.
move=> same_scores same_alive; apply/ffunP => i; rewrite ffunE [in RHS]ffunE; case: (boolP (i \in N)) => // iN.
have same_targets j : j \notin N -> targets r st j = targets r st' j by move=> jN; rewrite !ffunE; case: (same_decisions r same_scores jN).
rewrite /weights /round_weights !subE same_targets //; congr (_ - _); apply: visits_local => // u.
rewrite mem_sort mem_rem_uniq // inE => /andP [uv uD] j; exact: fresh_apart.
Qed.

Lemma off_sub (x y : vector) : off N x - off N y = off N (x - y).
Proof. by apply/ffunP => i; rewrite !ffunE; case: ifP; rewrite ?subrr // !ffunE. Qed.

Lemma off_smaller (x : vector) : norm2 (off N x) <= norm2 x.
Proof.
rewrite norm2_le !(dot_split N) ler_add //; first by apply: ler_sum => i iN; rewrite ffunE iN expr0n /= sqr_ge0.
by apply: ler_sum => i iN; rewrite ffunE (negbTE iN).
Qed.

(* Lemma F1, in the process. *)
Lemma round_moves past : let r := size past in let st := state_with past in
  norm2 (off N (weights r st D) - off N (weights r (state_without (shared past)) (rem v D))) <= c r.
Proof.
rewrite /=; set r := size past; set st := state_with past; have [same_scores same_alive _] := same_state past.
rewrite -(@weights_local r st) // => [|i iN]; last by rewrite same_alive !inE iN.
rewrite off_sub; apply: le_trans (off_smaller _) _.
exact: sensitivity_round.
Qed.

(* Lemma F2 with lists, in the process. *)
Lemma first_moves most : (#|keep k v| <= most)%N -> exists y, [/\ 0 <= y <= aim 0%N * positive (cutoff 0),
  forall i, i \in N -> given i [::] = y, #|N|%:R * y ^+ 2 <= c 0%N ^+ 2 &
  norm2 (off N (weights 0 (start D) D) - off N (weights 0 (start (rem v D)) (rem v D)))
    <= Num.sqrt (first_spare most (c 0%N) #|N| y)].
Proof.
move=> few; pose al := alive (start D); set top := aim 0%N * _.
have top0 : 0 <= top by rewrite mulr_ge0 // le_maxr lexx.
have same := plain_novel_fresh.
have no_scores : on_listed 0 = 0 by apply/ffunP => i; rewrite !ffunE; case: ifP.
have [||y []] := @first_round_listed R I key user d spot keep place k al listed (c 0%N) (c_ge0 0)
  (targets 0 (start D)) top D v most distinct present few top0.
- move=> i; rewrite ffunE /target_of [scores _]/= no_scores; case: ifP => [iL|_]; first exact: listed_first.
  by rewrite ffunE subr0 lexx top0.
- by move=> i /negbTE iL; rewrite ffunE /target_of iL ffunE subr0.
rewrite same => between HN HN' spent near; exists y; split=> //.
have [same_scores same_alive _] := same_state [::].
rewrite -(@weights_local 0 (start D)) //; last by move=> i iN; rewrite start_without !inE iN.
rewrite off_sub /norm2 off_squares ler_wsqrtr //.
Qed.

(* As long as no novel item has come out, the lists are the same. *)
Lemma same_list past : ~~ funnel_betrays (rev past) -> out (state_with past) :\: N = out (state_with past).
Proof.
by rewrite /funnel_betrays revK negbK => /eqP none; rewrite -[RHS](setID _ N) none set0U.
Qed.

(* What v gives a novel item: its part of the budget, among the needs that v meets. *)
Lemma novel_gift past : exists g : vector, (forall j, j \in N -> g j = targets (size past) (state_with past) j) /\
  forall i, i \in N -> given i past
    = if i \in alive (state_with past)
      then step_of (keep k v :&: alive (state_with past)) (c (size past)) g * g i else 0.
Proof.
set st := state_with past; set r := size past; set al := alive st.
have [before [after [with_v without_v]]] := queue_inserts place k distinct present.
pose visit u := descend_ball (keep k u :&: al) (c r).
have apart u i : u \in before ++ after -> i \in N -> i \notin keep k u :&: al.
  rewrite -without_v mem_sort mem_rem_uniq // inE => /andP [uv uD] iN.
  by rewrite inE negb_and (fresh_apart uD uv iN).
have untouched users (g : vector) i : {subset users <= before ++ after} -> i \in N -> visits visit users g i = g i.
  move=> inside iN; elim: users g inside => //= u users IH g inside.
  rewrite IH => [|w wu]; last by apply: inside; rewrite inE wu orbT.
  by rewrite ffunE (negbTE (apart u i (inside u (mem_head _ _)) iN)).
have to_before : {subset before <= before ++ after} by move=> u ub; rewrite mem_cat ub.
have to_after : {subset after <= before ++ after} by move=> u ua; rewrite mem_cat ua orbT.
exists (visits visit before (targets r st)); split=> [j jN|i iN]; first exact: untouched.
rewrite /given /weights /round_weights /round_gaps -/st -/r -/al with_v visits_cat /= -/visit subE untouched //.
have -> (g : vector) : descend_ball (keep k v :&: al) (c r) g i
    = if i \in al then g i - step_of (keep k v :&: al) (c r) g * g i else g i.
  by rewrite ffunE inE (fresh_kept iN).
by case: ifP => _; rewrite untouched // ?subrr // opprB addrC subrK.
Qed.

Lemma targets_ge0 i past : i \in N -> 0 <= targets (size past) (state_with past) i.
Proof. by move=> iN; rewrite ffunE /target_of (fresh_plain iN) mulr_ge0 // le_maxr lexx. Qed.

(* Gifts lie between 0 and the budget. *)
Lemma given_between i past : i \in N -> 0 <= given i past <= c (size past).
Proof.
move=> iN; have [g [gN ->]] := novel_gift past => //; case: ifP => [al_i|_]; last by rewrite lexx c_ge0.
set W := keep k v :&: _; set e := c (size past).
have /andP [q0 _] := step_between (c_ge0 (size past)) W g.
have gi0 : 0 <= g i by rewrite gN // targets_ge0.
rewrite mulr_ge0 //= -(ler_sqr (x := _ * _)) ?nnegrE ?mulr_ge0 ?c_ge0 //.
have := descend_ball_bounded W g (c_ge0 (size past)); rewrite norm2_le_sqr ?c_ge0 //; apply: le_trans.
rewrite /dot (bigD1 i) //= !ffunE inE (fresh_kept iN) al_i /= addrAC subrr sub0r mulrNN -expr2 ler_addl.
by apply: sumr_ge0 => j _; rewrite -expr2 sqr_ge0.
Qed.

Lemma next_score i o past : i \in N -> scores (state_with (o :: past)) i
  = scores (state_with past) i + c (size past) * (given i past + sigma * zeta (o.2 i)).
Proof. by move=> iN; rewrite /= ffunE; congr (_ + c _ * _); rewrite ffunE iN. Qed.

(* The score of a novel item is that of novel_walk.v. *)
Lemma score_of_novel i past : i \in N ->
  score (fun m : M => m i) c sigma zeta (given i) 0 past = scores (state_with past) i.
Proof.
move=> iN; elim: past => [|o past IH]; first by rewrite /= ffunE.
by rewrite next_score // -IH.
Qed.

(* A novel item is out if and only if it passes. *)
Lemma out_passes i h past : i \in N -> (i \in out (state_with (catrev h past)))
  = (i \in out (state_with past)) || (i \in alive (state_with past)) &&
    novel_walk.passes (fun m : M => m i) c line rho sigma zeta (given i) 0 past h.
Proof.
move=> iN; elim: h past => [|o h IH] past; first by rewrite /= andbF orbF.
rewrite [catrev _ _]/= IH /= -/(state_with (o :: past)).
have sE : score (fun m : M => m i) c sigma zeta (given i) 0 past
    + c (size past) * (given i past + sigma * zeta (o.2 i)) = scores (state_with (o :: past)) i.
  by rewrite -score_of_novel.
rewrite sE; set s := scores (state_with (o :: past)) i.
have -> : (i \in out (state_with (o :: past)))
    = (i \in out (state_with past)) || (i \in alive (state_with past)) && (rho < s).
  by rewrite /= !inE /comes (fresh_plain iN).
have -> : (i \in alive (state_with (o :: past)))
    = (i \in alive (state_with past)) && ((line (size past) < s) && (s <= rho)).
  by rewrite /= !inE /stays (fresh_plain iN).
case: (i \in out _) => //=; case: (i \in alive _) => //=.
case: (ltP rho s) => //= below; rewrite ?orbT // andbT; case: (leP s (line _)) => //= above.
Qed.

(* ------------------------------------------------------------------ inequality (1) and the crowd *)

(* Windows, one for each round. *)
Variables (low high : nat -> R).
Definition spent r : R := \sum_(0 <= j < r) c j ^+ 2.
Hypotheses (low_line : forall r, line r <= low r) (high_rho : forall r, high r + spent r.+1 <= rho).

(* A walk of pure noise, and whether it has stayed in its windows. *)
Fixpoint pure_noise j (crowd : seq M) : R :=
  if crowd is m :: before then pure_noise j before + c (size before) * (sigma * zeta (m j)) else 0.
Fixpoint in_windows j (crowd : seq M) : bool :=
  if crowd is m :: before then in_windows j before && (low (size before) < pure_noise j crowd <= high (size before))
  else true.

(* The squared needs of the companions that count: each needs at least m_r. *)
Definition least_need r : R := aim r * positive (cutoff r - (high r.-1 + spent r)).
Definition crowd_need i r (crowd : seq M) : R :=
  #|[set j in N | (j != i) && in_windows j crowd]|%:R * least_need r ^+ 2.

Let crowd_of i (past : seq (S * M)) : seq M := crowd_noise (others nothing i) past.

(* Inequality (1). *)
Lemma near_pure_noise i j past : j \in N -> j != i ->
  pure_noise j (crowd_of i past) <= scores (state_with past) j <= pure_noise j (crowd_of i past) + spent (size past).
Proof.
move=> jN ji; elim: past => [|o past IH]; first by rewrite /= ffunE /spent big_nil addr0 lexx.
have size_crowd : size (crowd_of i past) = size past by rewrite size_map.
rewrite next_score // [crowd_of _ _]/= -/(crowd_of i past) [pure_noise _ _]/= size_crowd !ffunE (negbTE ji).
have /andP [g0 g1] := given_between past jN; case/andP: IH => lower upper.
rewrite mulrDr addrA; apply/andP; split.
  by rewrite ler_add2r -[X in X <= _]addr0 ler_add // mulr_ge0.
rewrite [X in _ <= X]addrAC ler_add2r /spent big_nat_recr //= addrA -/(spent _) ler_add //.
by rewrite expr2 ler_wpmul2l.
Qed.

(* A companion that counts is alive, and needs at least m_r. *)
Lemma companion_alive i j past : j \in N -> j != i -> in_windows j (crowd_of i past) ->
  j \in alive (state_with past) /\ ((0 < size past)%N -> scores (state_with past) j
    <= high (size past).-1 + spent (size past)).
Proof.
move=> jN ji; elim: past => [|o past IH].
  move=> _; split=> //=; rewrite !inE; apply/orP; left; apply/hasP; exists v => //; exact: fresh_kept.
have size_crowd : size (crowd_of i past) = size past by rewrite size_map.
move=> staying; have := near_pure_noise (o :: past) jN ji; move: staying.
rewrite [crowd_of i (o :: past)]/= -/(crowd_of i past) [in_windows _ _]/=.
rewrite -[pure_noise j _ + _ * _]/(pure_noise j (others nothing i o.2 :: crowd_of i past)) size_crowd.
set w := pure_noise j (_ :: _) => /andP [/IH [al _] /andP [w_low w_high]] /andP [lower upper].
have below : scores (state_with (o :: past)) j <= high (size past) + spent (size past).+1.
  by apply: le_trans upper _; rewrite ler_add2r.
split=> // {IH}; move: lower below; rewrite /= inE al /stays (fresh_plain jN) /= => lower below.
by rewrite (lt_le_trans (le_lt_trans (low_line _) w_low) lower) (le_trans below).
Qed.

Section Gifts.
Variable y : R.
Hypothesis first_gift : forall i, i \in N -> given i [::] = y.

Lemma given_at_most i past : i \in N -> score (fun m : M => m i) c sigma zeta (given i) 0 past <= rho ->
  given i past <= funnel_most c aim cutoff y crowd_need i (size past) (crowd_of i past)
    (score (fun m : M => m i) c sigma zeta (given i) 0 past).
Proof.
move=> iN _; rewrite score_of_novel // /funnel_most.
case: (boolP (size past == 0%N)) => [/nilP ->|some]; first by rewrite first_gift.
have need0 : 0 <= aim (size past) * positive (cutoff (size past) - scores (state_with past) i).
  by rewrite mulr_ge0 // le_maxr lexx.
have [g [gN gifts]] := novel_gift past; rewrite gifts //; case: ifP => [al_i|_]; last exact: gift_ge0.
have giE : g i = aim (size past) * positive (cutoff (size past) - scores (state_with past) i).
  by rewrite gN // ffunE /target_of (fresh_plain iN).
rewrite /walk_gift -giE; set W := keep k v :&: _.
have iW : i \in W by rewrite in_setI fresh_kept.
apply: gift_of_step => //; first by rewrite giE.
rewrite /crowd_need mulr_natl -sumr_const.
set B := finset _; rewrite [X in _ <= X](bigID (mem B)) /=.
apply: (@le_trans _ _ (\sum_(j in W | (j != i) && (j \in B)) g j ^+ 2)); last first.
  rewrite (eq_bigl (fun j => (j \in W) && (j != i) && (j \in B))) => [|j]; rewrite ?andbA // ler_addl.
  by apply: sumr_ge0 => j _; rewrite sqr_ge0.
rewrite (eq_bigl (fun j => (j \in W) && ((j != i) && (j \in B)))) => [|j]; last first.
  rewrite /B !inE; case: (boolP (j \in N)) => /= jN; last by rewrite !andbF.
  case: (boolP (j != i)) => //= ji; rewrite ?andbF //; case: (boolP (in_windows _ _)) => [staying|]; rewrite ?andbF //=.
  by have [-> _] := companion_alive jN ji staying; rewrite fresh_kept.
apply: ler_sum => j /andP [_ /andP [ji]]; rewrite inE => /andP [jN /andP [_ staying]].
have [_ below] := companion_alive jN ji staying; rewrite lt0n in below; have {}below := below some.
have least0 : 0 <= least_need (size past) by rewrite mulr_ge0 // le_maxr lexx.
have gj : least_need (size past) <= g j.
  rewrite gN // ffunE /target_of (fresh_plain jN) ler_wpmul2l // /positive le_maxl !le_maxr lexx /=.
  by apply/orP; right; rewrite ler_add2l ler_opp2.
by rewrite ler_sqr ?nnegrE // (le_trans least0).
Qed.

End Gifts.

(* ------------------------------------------------------------------ the process runs by its plan *)

Variable plan : plan_numbers R.
Hypotheses (same_c1 : plan_c1 plan = c 0%N) (same_top : plan_top plan = aim 0%N * positive (cutoff 0)).
Hypotheses (same_sigma : plan_sigma plan = sigma) (few : (#|keep k v| <= plan_most plan)%N).
(* Given the list and what was read before, one person moves a step by at most step_moves: Lemma C1, and for longer
   n-grams Lemma F1. The plan counts these steps. *)
Hypotheses (step_spread_gt0 : forall r, 0 < step_spread r) (step_moves_ge0 : forall r, 0 <= step_moves r).
Hypothesis steps_move : forall L past, (rounds <= size past < rounds + steps)%N ->
  norm2 (step L past D - step L past (rem v D)) <= step_moves (size past).
Hypothesis steps_counted :
  \sum_(rounds <= r < rounds + steps) (step_moves r / step_spread r) ^+ 2 <= plan_counting plan.
(* The plan's number bounds t times the chance of one walk. *)
Hypothesis bad_ge0 : forall t y, 0 <= plan_bad plan t y.
Hypothesis bad_bounds : forall y i, round1_region plan #|N| y -> i \in N ->
  #|N|%:R * walk_chance lam (others_law lam nothing) zeta c line aim cutoff rho sigma y crowd_need i (rounds + steps)
  <= plan_bad plan #|N| y.

Lemma rare_in (shows : seq (S * M) -> S -> R) y : (forall past, is_finite_law (shows past)) ->
  round1_region plan #|N| y -> (forall i, i \in N -> given i [::] = y) ->
  \sum_(h : (rounds + steps).-tuple (S * M) | funnel_betrays h) history (chances shows (item_noise lam)) [::] h
  <= plan_bad plan #|N| y.
Proof.
move=> laws inside first; set n := (rounds + steps)%N.
have [noise0 noise1] := item_noise_law I law_lam.
have history0 (h : seq (S * M)) : 0 <= history (chances shows (item_noise lam)) [::] h.
  by apply: history_ge0 => past o; rewrite mulr_ge0 //; case: (laws past).
have [none|some] := posnP #|N|.
  rewrite big1 // => h; rewrite /funnel_betrays; move/eqP: none; rewrite cards_eq0 => /eqP ->.
  by rewrite setI0 eqxx.
have t0 : 0 < #|N|%:R :> R by rewrite ltr0n.
pose passing (h : seq (S * M)) := some_passes N (fun i (m : M) => m i) zeta c line rho sigma given h.
apply: (@le_trans _ _ (\sum_(h : n.-tuple (S * M) | passing h) history (chances shows (item_noise lam)) [::] h)).
  rewrite [X in X <= _]big_mkcond [X in _ <= X]big_mkcond; apply: ler_sum => h _; case: ifP => [|_]; last by case: ifP.
  case/set0Pn => i; rewrite inE => /andP [out_i iN].
  suff -> : passing h by [].
  apply/existsP; exists i; rewrite iN /=; move: out_i; rewrite /rev out_passes //= inE /=.
  by case/andP.
have need0 i r before : 0 <= crowd_need i r before by rewrite /crowd_need mulr_ge0 ?ler0n ?sqr_ge0.
have each i : i \in N -> walk_chance lam (others_law lam nothing) zeta c line aim cutoff rho sigma y crowd_need i n
    <= plan_bad plan #|N| y / #|N|%:R.
  by move=> iN; rewrite ler_pdivl_mulr // mulrC bad_bounds.
have all_of_them := @theorem_B R _ _ Z _ I N shows (item_noise lam) (fun i m => m i) (others nothing) lam
  (others_law lam nothing) zeta laws (conj noise0 noise1) law_lam (others_law_law nothing law_lam)
  (independent_noise lam nothing) c line aim cutoff rho sigma y crowd_need c_ge0 aim_ge0 aims need0 rho_ge0 given
  (given_at_most first) n _ each.
apply: le_trans all_of_them _; by rewrite mulrCA divff ?mulr1 ?gt_eqF.
Qed.

Theorem funnel_runs : gaussian_readings R -> exists dist t y, runs_by funnel_process plan dist t y.
Proof.
move=> readings_fact; have [y [between first within near]] := first_moves few.
pose t := #|N|; pose spare := first_spare (plan_most plan) (c 0%N) t y.
pose dist r := if r == 0%N then Num.sqrt spare else if (r < rounds)%N then c r else step_moves r.
have noisy r : 0 < spread funnel_process r by rewrite /=; case: ifP.
have few_novel : (t <= plan_most plan)%N.
  by apply: leq_trans few; rewrite subset_leq_card //; apply/subsetP => i; exact: fresh_kept.
have inside : round1_region plan t y.
  by rewrite /round1_region few_novel same_top same_c1 within andbT; case/andP: between => -> ->.
have spare0 : 0 <= spare.
  by rewrite /spare /first_spare le_minr subr_ge0 within mulr_ge0 ?sqr_ge0 // subr_ge0 ler_nat.
exists dist, t, y; split=> //.
- by move=> r; rewrite /dist; case: ifP => _; rewrite ?sqrtr_ge0 //; case: ifP.
- exact: item_noise_law.
- move=> h o; rewrite /= /funnel_betrays rev_rcons => /set0Pn [i]; rewrite inE => /andP [out_i iN].
  by apply/set0Pn; exists i; rewrite inE iN andbT /= inE out_i.
- move=> past; rewrite [rounds_of _]/= => soon quiet_past; rewrite /sums_with /sums_without /= size_map.
  case: ifP => [early|/negbT]; last first.
    rewrite -leqNgt => late; have -> : dist (size past) = step_moves (size past).
      by rewrite /dist ltnNge late /= gtn_eqF // (leq_trans some_rounds).
    have [_ _ ->] := same_state past; rewrite -{1}(same_list quiet_past).
    by have := steps_move (out (state_with past) :\: N) (past := shared past); rewrite size_map late soon; apply.
  rewrite /dist early; case: past {soon quiet_past} early => [|o past] early //=.
  exact: (round_moves (o :: past)).
- rewrite /squares_of add0n [rounds_of _]/= (@big_cat_nat _ _ _ rounds) //= ?leq_addr // /all_squares.
  rewrite same_c1 same_sigma; apply: ler_add; last first.
    apply: le_trans steps_counted; rewrite big_nat_cond [X in _ <= X]big_nat_cond; apply: ler_sum => r.
    rewrite andbT => /andP [late _]; rewrite /dist ltnNge late /= gtn_eqF ?(leq_trans some_rounds) //.
  move: shares; rewrite !(big_ltn some_rounds) /dist /= some_rounds => total.
  rewrite expr_div_n sqr_sqrtr // -/spare.
  rewrite (eq_big_nat _ _ (F2 := fun r => c r ^+ 2 / sigma ^+ 2)) => [|r /andP [r0 early]]; last first.
    by rewrite early gtn_eqF // expr_div_n.
  rewrite -mulr_suml -mulrDl ler_wpmul2r ?invr_ge0 ?sqr_ge0 //.
  by rewrite [X in X <= _]addrC ler_add2r ler_subr_addl.
- apply: rare_in => // past; exact: round_is_law.
- apply: (@rare_in (fun past => law_without funnel_process (shared past))) => // past; exact: round_is_law_without.
- move=> h still; rewrite /= -(same_list (past := rev h)) ?revK //.
  by have [_ _] := same_state (rev h); rewrite /shared map_rev => ->.
Qed.

End Funnel.

(* Part 5. l1-descent with an l2 budget is not safe: a database and its neighbour whose histograms end further apart
   than the budget 1, and how far exactly. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From dpunion Require Import vectors contraction l1_descent sensitivity.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

(* The norm in which a user's budget is counted: 2 in the published algorithm, 1 in l1-descent. *)
Definition budget_norm : nat := 2.

Section Runs.
Variables (R : rcfType) (I : finType) (k : nat) (cutoff c : R).
Local Notation vector := {ffun I -> R}.
Implicit Types (h m : vector) (users : seq {set I}).

(* h' is what h becomes when users with these items are visited in turn. *)
Fixpoint runs users h h' : Prop :=
  if users is W :: rest then exists m, raises k W cutoff c h m /\ runs rest m h' else h' = h.

Lemma runs_cat users users' h m h' : runs users h m -> runs users' m h' -> runs (users ++ users') h h'.
Proof.
elim: users h => [|W users IH] h /=; first by move=> ->.
by move=> [n [raise rest]] last; exists n; split=> //; apply: IH rest last.
Qed.

(* The amount is unique, hence the histogram. *)
Lemma raises_unique W h h1 h2 : (0 < k)%N -> below cutoff h ->
  raises k W cutoff c h h1 -> raises k W cutoff c h h2 -> h1 = h2.
Proof.
move=> k0 under; rewrite /raises; case: leP => [_ -> -> //|far [a [a0 spent ->]] [b [b0 spent' ->]]].
suff no_less x y : 0 <= x -> x < y -> \sum_(i in W) Num.min (cutoff - h i) x ^+ k = c ^+ k ->
    \sum_(i in W) Num.min (cutoff - h i) y ^+ k = c ^+ k -> False.
  case: (ltgtP a b) => [less|more|-> //]; first by case: (no_less _ _ a0 less).
  by case: (no_less _ _ b0 more).
move=> x0 xy spent_x spent_y.
have gap0 i : 0 <= cutoff - h i by rewrite subr_ge0.
have part0 i z : 0 <= z -> Num.min (cutoff - h i) z \is Num.nneg by move=> z0; rewrite nnegrE le_minr gap0.
have y0 : 0 <= y := le_trans x0 (ltW xy).
have least i : Num.min (cutoff - h i) x <= Num.min (cutoff - h i) y.
  by rewrite le_minr le_minl lexx /= le_minl (ltW xy) orbT.
have equal : forall i, i \in W -> Num.min (cutoff - h i) y ^+ k - Num.min (cutoff - h i) x ^+ k = 0.
  apply: psumr_eq0P => [j _|]; last by rewrite sumrB spent_x spent_y subrr.
  by rewrite subr_ge0 ler_expn2r ?part0.
move: far; rewrite ltNge => /negP; apply; rewrite -[X in _ <= X]spent_x; apply: ler_sum => i iW.
have /eqP := equal i iW; rewrite subr_eq0 eqr_expn2 ?part0 // -?nnegrE ?part0 // => /eqP.
case: (leP (cutoff - h i) x) => // high.
by case: (leP (cutoff - h i) y) => _ same; move: high xy; rewrite same ltxx.
Qed.

Lemma runs_unique users h h1 h2 : (0 < k)%N -> below cutoff h -> runs users h h1 -> runs users h h2 -> h1 = h2.
Proof.
move=> k0; elim: users h => [|W users IH] h under /=; first by move=> -> ->.
move=> [m [raise rest]] [m' [raise' rest']]; rewrite (raises_unique k0 under raise' raise) in rest'.
exact: IH (raises_below under raise) rest rest'.
Qed.

End Runs.

Section Database.
Variable R : rcfType.
Local Notation item := ('I_10 * 'I_9)%type.
Local Notation vector := {ffun item -> R}.

(* Ten groups i of nine items (i, j): B_i is (i, 0), the other eight are A_i1 .. A_i8. *)
Definition is_B (x : item) := x.2 == ord0.
Definition group i : {set item} := [set x | x.1 == i].

(* Six users {A_ij} for each of the 80 A's; one user per group; and between them, or not, one user with all 90 items. *)
Definition first_users : seq {set item} :=
  [seq [set x] | x <- flatten [seq nseq 6 x | x <- enum [pred x : item | ~~ is_B x]]].
Definition extra_user : {set item} := [set: item].
Definition last_users : seq {set item} := [seq group i | i <- enum 'I_10].

Definition cutoff : R := 19%:R / 3%:R.
Definition ends_at users (h : vector) := runs budget_norm cutoff 1 users 0 h.

Definition level a b : vector := [ffun x => if is_B x then b else a].

Lemma gap_cutoff (a : R) : cutoff - a = 19%:R / 3%:R - a. Proof. by []. Qed.

Lemma first_users_run : ends_at first_users (level 6%:R 0).
Proof.
have go s (f : item -> nat) : (forall x, f x + count_mem x s <= 6)%N ->
    runs budget_norm cutoff 1 [seq [set x] | x <- s] [ffun x => (f x)%:R]
      [ffun x => (f x + count_mem x s)%:R].
  elim: s f => [|y s IH] f few; first by apply/ffunP => x; rewrite !ffunE /= addn0.
  exists [ffun x => (f x + (y == x))%:R]; split; last first.
    have -> : [ffun x => (f x + count_mem x (y :: s))%:R] = [ffun x => (f x + (y == x) + count_mem x s)%:R] :> vector.
      by apply/ffunP => x; rewrite !ffunE /= addnA.
    by apply: (IH (fun x => f x + (y == x))%N) => x; rewrite -addnA; apply: few.
  have few_y : (f y <= 5)%N by have := few y; rewrite /= eqxx add1n addnS ltnS; apply: leq_trans; exact: leq_addr.
  have gap : 1 < cutoff - (f y)%:R.
    apply: (@lt_le_trans _ _ (4%:R / 3%:R)); first by rewrite ltr_pdivl_mulr ?ltr0n // mul1r ltr_nat.
    rewrite -subr_ge0; have -> : cutoff - (f y)%:R - 4%:R / 3%:R = 5%:R - (f y)%:R by rewrite /cutoff; field.
    by rewrite subr_ge0 ler_nat.
  rewrite /raises big_set1 ffunE expr1n; case: leP => [low|_].
    by move: low; rewrite leNgt exprn_egt1.
  exists 1; rewrite big_set1 ffunE min_r ?(ltW gap) ?expr1n; split=> //.
  apply/ffunP => x; rewrite !ffunE inE eq_sym natrD; case: eqVneq => [->|_]; last by rewrite addr0.
  by rewrite min_r // ltW.
have counts (s : seq item) x : count_mem x (flatten [seq nseq 6 y | y <- s]) = (6 * count_mem x s)%N.
  by elim: s => //= y s ->; case: (y == x); rewrite /= mulnDr.
have := go (flatten [seq nseq 6 x | x <- enum [pred x : item | ~~ is_B x]]) (fun=> 0%N).
rewrite /ends_at /first_users; have -> : [ffun=> 0%:R] = 0 :> vector by apply/ffunP => x; rewrite !ffunE.
set end_ := [ffun x => _]; have -> : end_ = level 6%:R 0.
  apply/ffunP => x; rewrite !ffunE counts count_uniq_mem ?enum_uniq // mem_enum inE.
  by case: (is_B x).
apply=> x; rewrite counts count_uniq_mem ?enum_uniq //; by case: (_ \in _).
Qed.

(* A user who holds a whole group closes the eight small gaps and gives the rest of the budget to the ninth item. *)
Lemma sum_group (F : item -> R) i : \sum_(x in group i) F x = F (i, ord0) + \sum_(j < 8) F (i, lift ord0 j).
Proof.
transitivity (\sum_(x : item | (x.1 == i) && xpredT x.2) (fun i' j => F (i', j)) x.1 x.2).
  by apply: eq_big => [x|[]//]; rewrite inE andbT.
rewrite -(pair_big (fun i' => i' == i) xpredT (fun i' j => F (i', j))) /= big_pred1_eq.
by rewrite big_ord_recl.
Qed.

Lemma last_users_run a b amount : 0 <= amount -> 0 <= cutoff - a -> cutoff - a <= amount -> amount <= cutoff - b ->
  8%:R * (cutoff - a) ^+ 2 + amount ^+ 2 = 1 -> 1 < cutoff - b ->
  runs budget_norm cutoff 1 last_users (level a b) (level cutoff (b + amount)).
Proof.
move=> amount0 gap0 small large spent far.
pose done (s : seq 'I_10) : vector := [ffun x => if x.1 \in s then level cutoff (b + amount) x else level a b x].
have go s s' : uniq (s' ++ s) -> runs budget_norm cutoff 1 [seq group i | i <- s] (done s') (done (s' ++ s)).
  elim: s s' => [|i s IH] s' distinct; first by rewrite cats0.
  exists (done (rcons s' i)); split; last by rewrite -cat_rcons; apply: IH; rewrite cat_rcons.
  have new : i \notin s' by move: distinct; rewrite cat_uniq /= negb_or => /and3P [_ /andP []].
  have atB : done s' (i, ord0) = b by rewrite !ffunE (negbTE new).
  have atA j : done s' (i, lift ord0 j) = a by rewrite !ffunE (negbTE new).
  rewrite /raises !sum_group atB expr1n; case: leP => [|_].
    rewrite leNgt (lt_le_trans (_ : 1 < (cutoff - b) ^+ 2)) ?exprn_egt1 //.
    by rewrite ler_addl sumr_ge0 // => j _; rewrite atA exprn_ge0.
  exists amount; split=> //.
    rewrite sum_group atB min_r // (eq_bigr (fun=> (cutoff - a) ^+ 2)) => [|j _]; last by rewrite atA min_l.
    by rewrite sumr_const card_ord -mulr_natl addrC.
  apply/ffunP => x; rewrite !ffunE mem_rcons inE /group inE.
  case: eqVneq => [same|] //=; rewrite same (negbTE new).
  by case: (is_B x); [rewrite min_r | rewrite min_l // addrC subrK].
have := go (enum 'I_10) [::] (enum_uniq _).
have -> : done [::] = level a b by apply/ffunP => x; rewrite !ffunE.
suff -> : done ([::] ++ enum 'I_10) = level cutoff (b + amount) by [].
by apply/ffunP => x; rewrite !ffunE mem_enum.
Qed.

(* ------------------------------------------------------------------ the numbers: z is the square root of 10 *)

Let z : R := Num.sqrt 10%:R.

Lemma z_squared : z ^+ 2 = 10%:R.
Proof. by rewrite sqr_sqrtr ?ler0n. Qed.

Lemma z_ge0 : 0 <= z. Proof. exact: sqrtr_ge0. Qed.

Lemma z_above n m : (0 < m)%N -> (n * n < 10 * (m * m))%N -> n%:R / m%:R < z.
Proof.
move=> m0 less; rewrite -ltr_sqr ?nnegrE ?divr_ge0 ?ler0n ?z_ge0 // z_squared expr_div_n.
by rewrite ltr_pdivr_mulr ?exprn_gt0 ?ltr0n // -!natrX -natrM ltr_nat -!mulnn.
Qed.

Lemma z_below n m : (0 < m)%N -> (10 * (m * m) < n * n)%N -> z < n%:R / m%:R.
Proof.
move=> m0 more; rewrite -ltr_sqr ?nnegrE ?divr_ge0 ?ler0n ?z_ge0 // z_squared expr_div_n.
by rewrite ltr_pdivl_mulr ?exprn_gt0 ?ltr0n // -!natrX -natrM ltr_nat -!mulnn.
Qed.

Let given : R := z / 30%:R.

Lemma z_3_4 : 3%:R < z /\ z < 4%:R.
Proof. by have := z_above (n := 3) (m := 1) isT isT; have := z_below (n := 4) (m := 1) isT isT; rewrite !divr1. Qed.

Lemma card_items : #|[set: item]| = 90%N.
Proof. by rewrite cardsT card_prod !card_ord. Qed.

Lemma extra_user_run :
  runs budget_norm cutoff 1 [:: extra_user] (level 6%:R 0) (level (6%:R + given) given).
Proof.
have [z3 z4] := z_3_4; exists (level (6%:R + given) given); split=> //.
have third0 : 0 <= 3%:R^-1 :> R by rewrite invr_ge0 ler0n.
have gaps x : 3%:R^-1 <= cutoff - level 6%:R 0 x.
  rewrite ffunE; case: ifP => _; rewrite -subr_ge0.
    have -> : cutoff - 0 - 3%:R^-1 = 6%:R by rewrite /cutoff; field.
    exact: ler0n.
  have -> : cutoff - 6%:R - 3%:R^-1 = 0 by rewrite /cutoff; field.
  exact: lexx.
have given0 : 0 <= given by rewrite divr_ge0 ?ler0n ?z_ge0.
have given_third : given <= 3%:R^-1.
  rewrite -subr_ge0; have -> : 3%:R^-1 - given = (4%:R - z + 6%:R) / 30%:R by rewrite /given; field.
  by rewrite divr_ge0 ?ler0n // addr_ge0 ?ler0n // subr_ge0 ltW.
rewrite /raises expr1n; case: leP => [near|_].
  move: near; rewrite leNgt => /negP; case.
  apply: (@lt_le_trans _ _ (\sum_(x in [set: item]) 3%:R^-1 ^+ 2)); last first.
    by apply: ler_sum => x _; rewrite ler_expn2r ?nnegrE ?(le_trans third0).
  rewrite sumr_const card_items -mulr_natl.
  have -> : 90%:R * 3%:R^-1 ^+ 2 = 10%:R :> R by field.
  by rewrite ltr1n.
have low x : Num.min (cutoff - level 6%:R 0 x) given = given by rewrite min_r // (le_trans given_third).
exists given; split=> //; last first.
  by apply/ffunP => x; rewrite [RHS]ffunE low inE !ffunE; case: ifP; rewrite ?add0r.
rewrite (eq_bigr (fun=> given ^+ 2)) => [|x _]; last by rewrite low.
rewrite sumr_const card_items -mulr_natl /given expr_div_n z_squared.
by field.
Qed.

Let amount : R := Num.sqrt ((1 + 8%:R * z) / 45%:R).

Lemma amount_squared : amount ^+ 2 = (1 + 8%:R * z) / 45%:R.
Proof. by rewrite sqr_sqrtr // divr_ge0 ?ler0n // addr_ge0 ?ler01 // mulr_ge0 ?ler0n ?z_ge0. Qed.

Lemma amount_ge0 : 0 <= amount. Proof. exact: sqrtr_ge0. Qed.

Theorem with_extra_user : ends_at (first_users ++ extra_user :: last_users) (level cutoff (given + amount)).
Proof.
have [z3 z4] := z_3_4.
have gapA : cutoff - (6%:R + given) = (10%:R - z) / 30%:R by rewrite /cutoff /given; field.
have gapB : 1 < cutoff - given.
  rewrite -subr_gt0; have -> : cutoff - given - 1 = (4%:R - z + 156%:R) / 30%:R by rewrite /cutoff /given; field.
  by rewrite divr_gt0 ?ltr0n // addr_gt0 ?ltr0n // subr_gt0.
have ten_z : 0 <= 10%:R - z by rewrite subr_ge0 (le_trans (ltW z4)) // ler_nat.
apply: runs_cat first_users_run _; apply: (@runs_cat _ _ _ _ _ [:: extra_user]) extra_user_run _.
apply: last_users_run => //; rewrite ?gapA; first exact: amount_ge0.
- by rewrite divr_ge0 ?ler0n.
- rewrite -ler_sqr ?nnegrE ?amount_ge0 ?divr_ge0 ?ler0n // amount_squared -subr_ge0.
  have -> : (1 + 8%:R * z) / 45%:R - ((10%:R - z) / 30%:R) ^+ 2
          = (180%:R * (z - 3%:R) + 450%:R + (10%:R - z ^+ 2)) / 900%:R by field.
  by rewrite z_squared subrr addr0 divr_ge0 ?ler0n // addr_ge0 ?ler0n // mulr_ge0 ?ler0n // subr_ge0 ltW.
- apply: le_trans (ltW gapB); rewrite -ler_sqr ?nnegrE ?amount_ge0 ?ler01 // expr1n amount_squared -subr_ge0.
  have -> : 1 - (1 + 8%:R * z) / 45%:R = (8%:R * (4%:R - z) + 12%:R) / 45%:R by field.
  by rewrite divr_ge0 ?ler0n // addr_ge0 ?ler0n // mulr_ge0 ?ler0n // subr_ge0 ltW.
- rewrite amount_squared.
  have -> : 8%:R * ((10%:R - z) / 30%:R) ^+ 2 + (1 + 8%:R * z) / 45%:R = 1 + 8%:R * (z ^+ 2 - 10%:R) / 900%:R.
    by field.
  by rewrite z_squared subrr mulr0 mul0r addr0.
Qed.

Theorem without_extra_user : ends_at (first_users ++ last_users) (level cutoff 3%:R^-1).
Proof.
have third0 : 0 <= 3%:R^-1 :> R by rewrite invr_ge0 ler0n.
have gapA : cutoff - 6%:R = 3%:R^-1 by rewrite /cutoff; field.
have gapB : cutoff = 1 + 16%:R / 3%:R by rewrite /cutoff; field.
apply: runs_cat first_users_run _; have -> : level cutoff 3%:R^-1 = level cutoff (0 + 3%:R^-1) by rewrite add0r.
apply: last_users_run; rewrite ?gapA ?subr0 //; last by rewrite gapB ltr_addl divr_gt0 ?ltr0n.
- by rewrite /cutoff ler_pmull ?invr_gt0 ?ltr0n // ler1n.
- by field.
Qed.

(* How far apart they end: about 1.697. *)
Definition distance : R := (1 - Num.sqrt 10%:R + Num.sqrt (2%:R + 16%:R * Num.sqrt 10%:R)) / 3%:R.

Let w : R := Num.sqrt (2%:R + 16%:R * z).

Lemma w_squared : w ^+ 2 = 2%:R + 16%:R * z.
Proof. by rewrite sqr_sqrtr // addr_ge0 ?ler0n // mulr_ge0 ?ler0n ?z_ge0. Qed.

Lemma w_ge0 : 0 <= w. Proof. exact: sqrtr_ge0. Qed.

Lemma distance_between : 169%:R / 100%:R < distance /\ distance < 17%:R / 10%:R.
Proof.
rewrite /distance -/z -/w; have [z3 z4] := z_3_4.
have above := z_above (n := 63) (m := 20) isT isT; have under := z_below (n := 19) (m := 6) isT isT.
split; rewrite -subr_gt0.
  have -> : (1 - z + w) / 3%:R - 169%:R / 100%:R = (w - (407%:R / 100%:R + z)) / 3%:R by field.
  rewrite divr_gt0 ?ltr0n // subr_gt0 -ltr_sqr ?nnegrE ?w_ge0 ?addr_ge0 ?divr_ge0 ?ler0n ?z_ge0 //.
  rewrite w_squared -subr_gt0.
  have -> : 2%:R + 16%:R * z - (407%:R / 100%:R + z) ^+ 2
          = (10%:R - z ^+ 2) + (786%:R / 100%:R * (z - 63%:R / 20%:R) + 1941%:R / 100%:R / 100%:R) by field.
  by rewrite z_squared subrr add0r addr_gt0 ?divr_gt0 ?ltr0n // mulr_gt0 ?divr_gt0 ?ltr0n // subr_gt0.
have -> : 17%:R / 10%:R - (1 - z + w) / 3%:R = (41%:R / 10%:R + z - w) / 3%:R by field.
rewrite divr_gt0 ?ltr0n // subr_gt0 -ltr_sqr ?nnegrE ?w_ge0 ?addr_ge0 ?divr_ge0 ?ler0n ?z_ge0 //.
rewrite w_squared -subr_gt0.
have -> : (41%:R / 10%:R + z) ^+ 2 - (2%:R + 16%:R * z)
        = (z ^+ 2 - 10%:R) + (78%:R / 10%:R * (19%:R / 6%:R - z) + 11%:R / 100%:R) by field.
by rewrite z_squared subrr add0r addr_gt0 ?divr_gt0 ?ltr0n // mulr_gt0 ?divr_gt0 ?ltr0n // subr_gt0.
Qed.

Lemma distance_levels (b b' : R) : b' <= b -> norm2 (level cutoff b - level cutoff b') = z * (b - b').
Proof.
move=> less; rewrite /norm2; have -> : dot (level cutoff b - level cutoff b') (level cutoff b - level cutoff b')
    = (z * (b - b')) ^+ 2.
  rewrite exprMn z_squared /dot.
  transitivity (\sum_(p : item) (fun i j => (if j == ord0 then (b - b') ^+ 2 else 0)) p.1 p.2).
    apply: eq_bigr => x _; rewrite !subE !ffunE /is_B; case: ifP => _; first by rewrite expr2.
    by rewrite subrr mulr0.
  rewrite -(pair_bigA _ (fun i j => (if j == ord0 then (b - b') ^+ 2 else 0))) /=.
  rewrite (eq_bigr (fun=> (b - b') ^+ 2)) => [|i _]; first by rewrite sumr_const card_ord mulr_natl.
  by rewrite -big_mkcond big_pred1_eq.
by rewrite sqrtr_sqr ger0_norm // mulr_ge0 ?z_ge0 // subr_ge0.
Qed.

(* l1-descent with an l2 budget: whatever histograms the two databases end at, they are further apart than 1. *)
Theorem counterexample h h' :
  ends_at (first_users ++ extra_user :: last_users) h -> ends_at (first_users ++ last_users) h' ->
  norm2 (h - h') = distance /\ 169%:R / 100%:R < norm2 (h - h') < 17%:R / 10%:R.
Proof.
have start : below cutoff (0 : vector) by move=> x; rewrite ffunE divr_ge0 ?ler0n.
have norm0 : (0 < budget_norm)%N by [].
move=> /(runs_unique norm0 start with_extra_user) <- /(runs_unique norm0 start without_extra_user) <-.
have [z3 z4] := z_3_4.
have w_amount : 3%:R * z * amount = w.
  apply/eqP; rewrite -(eqr_expn2 (n := 2)) ?w_ge0 ?mulr_ge0 ?ler0n ?z_ge0 ?amount_ge0 //.
  rewrite w_squared !exprMn z_squared amount_squared; apply/eqP; by field.
suff -> : norm2 (level cutoff (given + amount) - level cutoff 3%:R^-1) = distance.
  by have [-> ->] := distance_between.
have value : z * (given + amount - 3%:R^-1) = distance.
  rewrite /distance -/z -/w -w_amount /given.
  have -> : z * (z / 30%:R + amount - 3%:R^-1) = (z ^+ 2 - 10%:R) / 30%:R + (1 - z + 3%:R * z * amount) / 3%:R by field.
  by rewrite z_squared subrr mul0r add0r.
rewrite distance_levels // -subr_ge0 -(pmulr_rge0 _ (lt_trans (ltr0Sn _ 2) z3)) value.
by have [/ltW /(le_trans _) + _] := distance_between; apply; rewrite divr_ge0 ?ler0n.
Qed.

Theorem counterexample_exists : exists h h',
  [/\ ends_at (first_users ++ extra_user :: last_users) h, ends_at (first_users ++ last_users) h' & 1 < norm2 (h - h')].
Proof.
exists (level cutoff (given + amount)), (level cutoff 3%:R^-1); split.
- exact: with_extra_user.
- exact: without_extra_user.
have [_ /andP [far _]] := counterexample with_extra_user without_extra_user.
by apply: lt_trans far; rewrite ltr_pdivl_mulr ?ltr0n // mul1r ltr_nat.
Qed.

(* The same database under l1-descent, whose budget is counted in l1: the histograms end at most 1 apart. *)
Theorem same_database_l1_budget (visit := fun W => descend_l1 W cutoff 1) :
  norm2 (visits visit (first_users ++ extra_user :: last_users) 0
         - visits visit (first_users ++ last_users) (0 : vector)) <= 1.
Proof.
apply: le_trans (norm2_le_norm1 _) _.
apply: (@insertion_moves_by_budget R _ _ (@norm1 R _) visit (below cutoff) 1) => // [u h under|u x y _ _|u h under|i].
- by apply: descend_l1_below => //; exact: ler01.
- by apply: descend_l1_nonexpansive; exact: ler01.
- by apply: descend_l1_bounded => //; exact: ler01.
- by rewrite ffunE divr_ge0 ?ler0n.
Qed.

End Database.

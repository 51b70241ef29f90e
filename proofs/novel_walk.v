(* Part 8. Theorem B: the chance that a novel item passes in some round. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From mathcomp.analysis Require Import reals sequences exp.
From dpunion Require Import vectors contraction sensitivity novelty coins gaussian composition.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

(* ------------------------------------------------------------------ what an item gets beside others *)

Section Projection.
Variables (R : rcfType) (I : finType).
Local Notation vector := {ffun I -> R}.
Implicit Type g : vector.

(* A projection, too, brings two gaps no further apart. *)
Theorem projection_nonexpansive (K : vector -> Prop) g g' p p' :
  convex K -> projects K g p -> projects K g' p' -> norm2 (p - p') <= norm2 (g - g').
Proof.
move=> Kconvex /(projects_obtuse Kconvex) [Kp angle] /(projects_obtuse Kconvex) [Kp' angle'].
rewrite norm2_le -subr_ge0.
have -> : dot (g - g') (g - g') - dot (p - p') (p - p')
    = dot (g - p - (g' - p')) (g - p - (g' - p')) - (dot (g - p) (p' - p) + dot (g' - p') (p - p')) *+ 2.
  by rewrite !dotE !(dotC _ g) !(dotC _ g') (dotC p' p); ring.
by rewrite subr_ge0 (le_trans _ (dot_ge0 _)) // mulrn_wle0 // -(addr0 0) ler_add ?angle ?angle'.
Qed.

End Projection.

Section Gift.
Variable R : rcfType.
Implicit Type c : R.

(* The gift of an item that needs g, when the squared needs of the others sum up to b. *)
Definition gift c b (g : R) : R := if g ^+ 2 + b <= c ^+ 2 then g else c / Num.sqrt (g ^+ 2 + b) * g.

Lemma gift_ge0 c b (g : R) : 0 <= c -> 0 <= g -> 0 <= gift c b g.
Proof. by move=> c0 g0; rewrite /gift; case: ifP => // _; rewrite mulr_ge0 // divr_ge0 // sqrtr_ge0. Qed.

(* Fact (i): the more the others need, the less it gets. *)
Theorem gift_falls c (b b' g : R) : 0 <= c -> 0 <= g -> b <= b' -> gift c b' g <= gift c b g.
Proof.
move=> c0 g0 bb; rewrite /gift; case: ifP => [in'|/negbT]; first by rewrite (le_trans _ in') ?ler_add2l.
rewrite -ltNge => out'; have s0' : 0 < g ^+ 2 + b' := le_lt_trans (sqr_ge0 c) out'.
have root0' : 0 < Num.sqrt (g ^+ 2 + b') by rewrite sqrtr_gt0.
case: ifP => [_|/negbT].
  rewrite ler_pimull // ler_pdivr_mulr // mul1r -ler_sqr ?nnegrE ?(ltW root0') //.
  by rewrite sqr_sqrtr ltW.
rewrite -ltNge => out; have s0 : 0 < g ^+ 2 + b := le_lt_trans (sqr_ge0 c) out.
rewrite ler_wpmul2r // ler_wpmul2l // lef_pinv ?posrE ?sqrtr_gt0 //.
by rewrite ler_wsqrtr // ler_add2l.
Qed.

(* What one round of Funnel gives to an item that only v keeps is such a gift. *)
Theorem gift_of_step (I : finType) (W : {set I}) c (g : {ffun I -> R}) i b :
  0 <= c -> i \in W -> 0 <= g i -> b <= \sum_(j in W | j != i) g j ^+ 2 ->
  step_of W c g * g i <= gift c b (g i).
Proof.
move=> c0 iW gi0 others; apply: le_trans (gift_falls c0 gi0 others).
rewrite /step_of /gift.
have -> : squares W g = g i ^+ 2 + \sum_(j in W | j != i) g j ^+ 2 by rewrite /squares (bigD1 i).
by case: ifP; rewrite ?mul1r.
Qed.

(* Fact (ii): it is 1-Lipschitz in the item's own need. *)
Theorem gift_lipschitz c (b g g' : R) : 0 <= c -> 0 <= b -> g <= g' -> gift c b g' - gift c b g <= g' - g.
Proof.
move=> c0 b0 gg; pose at_ (x : R) : {ffun bool -> R} := [ffun i => if i then x else Num.sqrt b].
have squaresE x : squares [set: bool] (at_ x) = x ^+ 2 + b.
  rewrite /squares (eq_bigl xpredT) => [|i]; last by rewrite inE.
  by rewrite big_bool /= !ffunE /= sqr_sqrtr.
have giftE x : scaled_on [set: bool] c (at_ x) true = gift c b x.
  by rewrite ffunE inE /step_of squaresE ffunE /gift; case: ifP; rewrite ?mul1r.
have close := projection_nonexpansive (@ball_convex _ _ [set: bool] c)
  (ball_projection [set: bool] (at_ g') c0) (ball_projection [set: bool] (at_ g) c0).
have near : norm2 (at_ g' - at_ g) <= g' - g.
  rewrite norm2_le_sqr ?subr_ge0 // /dot big_bool !ffunE /= subrr mulr0 addr0 -expr2 lexx //.
apply: le_trans near; apply: le_trans close.
rewrite -!giftE -subE; set y := _ - _; rewrite -[X in _ <= X]ger0_norm ?norm2_ge0 //.
apply: le_trans (ler_norm _) _; rewrite -sqrtr_sqr ger0_norm ?norm2_ge0 // /norm2 ler_wsqrtr //.
by rewrite /dot big_bool expr2 ler_addl -expr2 sqr_ge0.
Qed.

Definition positive (x : R) : R := Num.max 0 x.

(* What a walk at the score s gets in a round: its need is aim times what is missing to the cutoff. *)
Definition walk_gift c aim cutoff b (s : R) : R := gift c b (aim * positive (cutoff - s)).

(* Lemma F3: a higher score stays a higher score. *)
Theorem higher_stays_higher c aim cutoff b (s s' : R) : 0 <= c -> 0 <= b -> 0 <= aim -> c * aim <= 1 -> s <= s' ->
  s + c * walk_gift c aim cutoff b s <= s' + c * walk_gift c aim cutoff b s'.
Proof.
move=> c0 b0 a0 ca ss; set n := aim * positive (cutoff - s); set n' := aim * positive (cutoff - s').
have less : n' <= n.
  rewrite ler_wpmul2l // /positive le_maxl !le_maxr lexx /=; apply/orP; right.
  by rewrite ler_add2l ler_opp2.
have gap : n - n' <= aim * (s' - s).
  rewrite -mulrBr ler_wpmul2l // /positive ler_subl_addr le_maxl; apply/andP; split.
    by rewrite addr_ge0 ?subr_ge0 // le_maxr lexx.
  by rewrite -ler_subl_addl le_maxr; apply/orP; right; rewrite le_eqVlt; apply/orP; left; apply/eqP; ring.
have := gift_lipschitz c0 b0 less; rewrite -/(walk_gift c aim cutoff b s) -/(walk_gift c aim cutoff b s') => lip.
rewrite -subr_ge0.
have -> : s' + c * walk_gift c aim cutoff b s' - (s + c * walk_gift c aim cutoff b s)
    = (s' - s) - c * (walk_gift c aim cutoff b s - walk_gift c aim cutoff b s') by ring.
rewrite subr_ge0; apply: le_trans (ler_wpmul2l c0 (le_trans lip gap)) _.
by rewrite mulrA ler_pimull // subr_ge0.
Qed.

End Gift.

(* ------------------------------------------------------------------ one item and its crowd *)

Section Walk.
Variables (R : realType) (S M Z K : finType).
(* In a round somebody shows readings in S and draws noise in M; of the noise, one item has its own part in Z, and the
   companions have theirs in K, independently. *)
Variables (shows : seq (S * M) -> S -> R) (noise : M -> R) (own : M -> Z) (others : M -> K).
Variables (lam : Z -> R) (kap : K -> R).
Hypothesis law_shows : forall past, is_finite_law (shows past).
Hypotheses (law_lam : is_finite_law lam) (law_kap : is_finite_law kap).
Hypothesis noise_ge0 : forall m, 0 <= noise m.
Hypothesis independent : forall F : Z -> K -> R,
  \sum_m noise m * F (own m) (others m) = \sum_z \sum_k lam z * kap k * F z k.

Definition chances (past : seq (S * M)) (o : S * M) : R := shows past o.1 * noise o.2.
Definition crowd_noise (past : seq (S * M)) : seq K := [seq others o.2 | o <- past].

(* Round r counts c r; z is noise of the value sigma * zeta z. At or below its line an item is dropped, above rho it
   passes. *)
Variables (c line : nat -> R) (rho sigma : R) (zeta : Z -> R).
Hypothesis c_ge0 : forall r, 0 <= c r.
(* What v gives the item may depend on everything before; the most that it can be is a function of the score and of the
   crowd. *)
Variables (given : seq (S * M) -> R) (most_given : nat -> seq K -> R -> R) (start : R).

Fixpoint score (past : seq (S * M)) : R :=
  if past is o :: before then score before + c (size before) * (given before + sigma * zeta (own o.2)) else start.

Fixpoint passes (past h : seq (S * M)) : bool :=
  if h is o :: rest then
    let s := score (o :: past) in
    if rho < s then true else if s <= line (size past) then false else passes (o :: past) rest
  else false.

(* The chance to pass of the walk that always gets the most, when the crowd's noise is known. *)
Fixpoint walk (r : nat) (before crowd : seq K) (s : R) : R :=
  if crowd is k :: rest then
    \sum_z lam z * (let s' := s + c r * (most_given r before s + sigma * zeta z) in
                    if rho < s' then 1 else if s' <= line r then 0 else walk r.+1 (k :: before) rest s')
  else 0.

Definition crowd_chance (crowd : seq K) : R := \prod_(k <- crowd) kap k.

Hypothesis given_most : forall past, score past <= rho ->
  given past <= most_given (size past) (crowd_noise past) (score past).
Hypothesis stays_higher : forall r before s s', s <= s' -> s' <= rho ->
  s + c r * most_given r before s <= s' + c r * most_given r before s'.

Lemma walk_between r before crowd s : 0 <= walk r before crowd s <= 1.
Proof.
case: law_lam => lam0 total; elim: crowd r before s => [|k crowd IH] r before s /=; first by rewrite lexx ler01.
have each z : 0 <= (let s' := s + c r * (most_given r before s + sigma * zeta z) in
    if rho < s' then 1 else if s' <= line r then 0 else walk r.+1 (k :: before) crowd s') <= 1.
  by rewrite /=; case: ifP => _; [rewrite ler01 lexx | case: ifP => _; [rewrite ler01 lexx | exact: IH]].
apply/andP; split.
  by apply: sumr_ge0 => z _; have /andP [low _] := each z; exact: mulr_ge0.
rewrite -[X in _ <= X]total; apply: ler_sum => z _; have /andP [_ high] := each z.
exact: ler_pimulr.
Qed.

(* A round's value does not fall with the score it leads to. *)
Lemma value_grows r before crowd (s s' : R) : s <= s' ->
  (forall x x', x <= x' -> x' <= rho -> walk r before crowd x <= walk r before crowd x') ->
  forall low, (if rho < s then 1 else if s <= low then 0 else walk r before crowd s)
           <= (if rho < s' then 1 else if s' <= low then 0 else walk r before crowd s').
Proof.
move=> ss grows low; have between x := walk_between r before crowd x.
case: (ltP rho s') => [_|s'_rho].
  by case: ifP => // _; case: ifP => _; rewrite ?ler01 //; case/andP: (between s).
rewrite ltNge (le_trans ss s'_rho) /=; case: (leP s low) => [_|low_s].
  by case: ifP => // _; case/andP: (between s').
by rewrite (lt_geF (lt_le_trans low_s ss)) grows.
Qed.

Lemma walk_grows r before crowd s s' : s <= s' -> s' <= rho -> walk r before crowd s <= walk r before crowd s'.
Proof.
case: law_lam => lam0 _; elim: crowd r before s s' => //= k crowd IH r before s s' ss s'_rho.
apply: ler_sum => z _; apply: ler_wpmul2l => //; apply: value_grows; last by move=> x x'; exact: IH.
by rewrite !mulrDr !addrA ler_add2r stays_higher.
Qed.

(* Theorem B, first part: whatever depends on what, the item's chance is at most the walk's, averaged over the crowd. *)
Theorem follow_one n past : score past <= rho ->
  \sum_(h : n.-tuple (S * M) | passes past h) history chances past h
  <= \sum_(crowd : n.-tuple K) crowd_chance crowd * walk (size past) (crowd_noise past) crowd (score past).
Proof.
case: law_lam => lam0 lam1; case: law_kap => kap0 kap1.
elim: n past => [|n IH] past below.
  rewrite big1 ?sumr_ge0 // => [crowd _|h]; last by rewrite (tuple0 h).
  by rewrite (tuple0 crowd) /= mulr0.
have crowd0 (crowd : seq K) : 0 <= crowd_chance crowd by apply: prodr_ge0.
have crowd1 m : \sum_(crowd : m.-tuple K) crowd_chance crowd = 1.
  elim: m => [|m IHm]; last first.
    rewrite (sum_histories m crowd_chance) -kap1; apply: eq_bigr => k _.
    by under eq_bigr do rewrite /crowd_chance big_cons; rewrite -mulr_sumr IHm mulr1.
  rewrite (big_pred1 [tuple]) => [|h]; last by apply/esym/eqP; exact: tuple0.
  by rewrite /crowd_chance big_nil.
rewrite big_mkcond /=.
rewrite (sum_histories n (fun h => if passes past h then history chances past h else 0)).
rewrite (sum_histories n (fun crowd => crowd_chance crowd * walk (size past) (crowd_noise past) crowd (score past))).
set r := size past; set s := score past; set seen := crowd_noise past.
pose next z := s + c r * (most_given r seen s + sigma * zeta z).
(* the value of one round, with the crowd's later noise still to be drawn *)
pose later z k : R := \sum_(crowd : n.-tuple K) crowd_chance crowd
  * (if rho < next z then 1 else if next z <= line r then 0 else walk r.+1 (k :: seen) crowd (next z)).
have -> : \sum_k \sum_(crowd : n.-tuple K) crowd_chance (k :: crowd) * walk r seen (k :: crowd) s
    = \sum_s \sum_m shows past s * noise m * later (own m) (others m).
  have -> : \sum_s \sum_m shows past s * noise m * later (own m) (others m) = \sum_m noise m * later (own m) (others m).
    under eq_bigr do (under eq_bigr do rewrite -mulrA; rewrite -mulr_sumr).
    by rewrite -mulr_suml; case: (law_shows past) => _ ->; rewrite mul1r.
  rewrite independent [RHS]exchange_big /=; apply: eq_bigr => k _.
  transitivity (\sum_(crowd : n.-tuple K) \sum_z lam z * kap k * (crowd_chance crowd
      * (if rho < next z then 1 else if next z <= line r then 0 else walk r.+1 (k :: seen) crowd (next z)))).
    apply: eq_bigr => crowd _; rewrite /crowd_chance big_cons mulr_sumr; apply: eq_bigr => z _.
    by rewrite -/(next z); move: (if _ then _ else _) => x; ring.
  by rewrite exchange_big /=; apply: eq_bigr => z _; rewrite -mulr_sumr.
rewrite [X in _ <= X]pair_bigA /=; apply: ler_sum => -[shown m] _ /=.
have chance0 : 0 <= chances past (shown, m) by rewrite mulr_ge0 //; case: (law_shows past).
have here : score ((shown, m) :: past) <= next (own m).
  by rewrite /= -/s -/r /next ler_add2l ler_wpmul2l // ler_add2r given_most.
have rest0 past' (h : seq (S * M)) : 0 <= history chances past' h.
  by apply: history_ge0 => p o; rewrite mulr_ge0 //; case: (law_shows p).
have upper : \sum_(h : n.-tuple (S * M))
    (if passes past ((shown, m) :: h) then history chances ((shown, m) :: past) h else 0) <= later (own m) (others m).
  set s1 := score ((shown, m) :: past) in here *.
  pose value (x : R) crowd : R :=
    if rho < x then 1 else if x <= line r then 0 else walk r.+1 (others m :: seen) crowd x.
  apply: (@le_trans _ _ (\sum_(crowd : n.-tuple K) crowd_chance crowd * value s1 crowd)); last first.
    apply: ler_sum => crowd _; apply: ler_wpmul2l => //; apply: value_grows => // x x'; exact: walk_grows.
  rewrite /value /= -/s1 -/r; case: (ltP rho s1) => [passed|not_passed].
    under [X in _ <= X]eq_bigr do rewrite mulr1.
    rewrite crowd1 -[X in _ <= X](@history_total _ _ chances n ((shown, m) :: past)) // => past'.
    transitivity (\sum_s' \sum_m' shows past' s' * noise m'); first by rewrite pair_bigA.
    under eq_bigr do rewrite -mulr_sumr.
    rewrite -mulr_suml; case: (law_shows past') => _ ->; rewrite mul1r.
    have := independent (fun _ _ => 1); under eq_bigr do rewrite mulr1; move=> ->.
    transitivity (\sum_z lam z * \sum_k kap k); last by rewrite kap1; under eq_bigr do rewrite mulr1.
    by apply: eq_bigr => z _; rewrite mulr_sumr; apply: eq_bigr => k _; rewrite mulr1.
  case: (leP s1 (line r)) => [dropped|alive].
    by rewrite !big1 // => crowd _; rewrite mulr0.
  by have := IH ((shown, m) :: past) not_passed; rewrite big_mkcond.
apply: le_trans (ler_wpmul2l chance0 upper).
rewrite mulr_sumr; apply: ler_sum => h _; rewrite /=.
by case: ifP; case: ifP; rewrite ?mulr0.
Qed.

End Walk.

(* Theorem B, last part: the union bound over t novel items. *)
Section Union.
Variables (R : realType) (T I : finType) (weight : T -> R) (N : {set I}) (passed : I -> pred T) (each : R).
Hypotheses (weight_ge0 : forall t, 0 <= weight t) (one : forall i, i \in N -> \sum_(t | passed i t) weight t <= each).

Theorem some_novel_passes : \sum_(t | [exists i in N, passed i t]) weight t <= #|N|%:R * each.
Proof.
apply: (@le_trans _ _ (\sum_(i in N) \sum_(t | passed i t) weight t)); last first.
  by rewrite mulr_natl -sumr_const; apply: ler_sum => i; exact: one.
under [X in _ <= X]eq_bigr do rewrite big_mkcond.
rewrite exchange_big /= big_mkcond; apply: ler_sum => t _; case: ifP => [/existsP [i /andP [iN it]]|_].
  by rewrite (bigD1 i) //= it ler_addl; apply: sumr_ge0 => j _; case: ifP.
by apply: sumr_ge0 => i _; case: ifP.
Qed.

End Union.

(* Part 7. Theorem A on histories of rounds, with nothing assumed of composition: all rounds of a release, those of the
   list, of longer n-grams and of counts, with the ghost that drives the novel coordinates. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From mathcomp.analysis Require Import reals sequences exp.
From dpunion Require Import vectors coins gaussian composition.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Rounds.
(* A round shows readings of the shared coordinates (an outcome in S); the noise of the novel ones is in M. *)
Variables (R : realType) (S M : finType) (Y : Type).
(* Given the past: the law of the shared readings with v, which may depend on novel noise; without v, where there is
   none; and the law of the novel noise, which nothing changes. *)
Variables (with_v : seq (S * M) -> S -> R) (without_v : seq S -> S -> R) (noise : M -> R).

Definition shared (h : seq (S * M)) : seq S := map fst h.
Definition chances_with (past : seq (S * M)) (o : S * M) : R := with_v past o.1 * noise o.2.
(* The ghost of v draws the novel noise in the world without v; nobody reads it. *)
Definition chances_ghost (past : seq (S * M)) (o : S * M) : R := without_v (shared past) o.1 * noise o.2.

Hypothesis law_with : forall past, is_finite_law (with_v past).
Hypothesis law_without : forall past, is_finite_law (without_v past).
Hypothesis law_noise : is_finite_law noise.

Let with0 past o : 0 <= chances_with past o.
Proof. by rewrite mulr_ge0 //; [case: (law_with past) | case: law_noise]. Qed.
Let ghost0 past o : 0 <= chances_ghost past o.
Proof. by rewrite mulr_ge0 //; [case: (law_without (shared past)) | case: law_noise]. Qed.

(* Nobody reads the novel coordinates: what the ghost's histories show of the shared ones is the law without v. *)
Theorem nobody_reads_novel n past (F : seq S -> R) :
  \sum_(h : n.-tuple (S * M)) history chances_ghost past h * F (shared h)
  = \sum_(h : n.-tuple S) history without_v (shared past) h * F h.
Proof.
elim: n past F => [|n IH] past F.
  rewrite (big_pred1 [tuple]) => [|h]; last by apply/esym/eqP; exact: tuple0.
  by rewrite (big_pred1 [tuple]) => [|h]; last by apply/esym/eqP; exact: tuple0.
rewrite (sum_histories n (fun h => history chances_ghost past h * F (shared h))).
rewrite (sum_histories n (fun h => history without_v (shared past) h * F h)) /=.
transitivity (\sum_s \sum_m \sum_(h : n.-tuple (S * M)) chances_ghost past (s, m)
    * history chances_ghost ((s, m) :: past) h * F (s :: shared h)).
  by rewrite [RHS]pair_bigA; apply: eq_bigr => -[s m] _.
apply: eq_bigr => s _.
have -> : \sum_(h : n.-tuple S) without_v (shared past) s * history without_v (s :: shared past) h * F (s :: h)
    = without_v (shared past) s * \sum_(h : n.-tuple S) history without_v (s :: shared past) h * F (s :: h).
  by rewrite mulr_sumr; apply: eq_bigr => h _; rewrite mulrA.
rewrite -[X in _ = X]mul1r; case: law_noise => _ <-; rewrite mulr_suml; apply: eq_bigr => m _.
rewrite -(IH ((s, m) :: past) (fun h => F (s :: h))) mulr_sumr mulr_sumr.
by apply: eq_bigr => h _; rewrite /chances_ghost /=; ring.
Qed.

(* The bad event, of outcomes in the order of the rounds; once it has happened it stays. *)
Variable betrayed : pred (seq (S * M)).
Hypothesis lasting : forall h o, betrayed h -> betrayed (rcons h o).

(* Rounds r = 0, 1, ... at distances mu r on the shared coordinates, whatever the past. Of rounds after a bad event
   nothing is asked: steps that count people on a list with a novel item, say. *)
Variables (n : nat) (mu : nat -> R).
Definition rounds_close := forall past : seq (S * M), (size past < n)%N -> ~~ betrayed (rev past) ->
  gaussian_pair (mu (size past)) (with_v past) (without_v (shared past)) /\
  gaussian_pair (mu (size past)) (without_v (shared past)) (with_v past).

Lemma with_noise m (p q : S -> R) : gaussian_pair m p q ->
  gaussian_pair m (fun o : S * M => p o.1 * noise o.2) (fun o => q o.1 * noise o.2).
Proof.
move=> close eps; apply: le_trans (close eps); rewrite /hockey.
rewrite -(pair_bigA _ (fun s w => Num.max 0 (p s * noise w - expR eps * (q s * noise w)))) /=.
apply: ler_sum => s _; rewrite -[X in _ <= X]mul1r; case: law_noise => noise0 <-; rewrite mulr_suml.
by apply: ler_sum => w _; rewrite scale_max // mulrBr mulrA ![noise w * _]mulrC -mulrA.
Qed.

(* What leaves: with v a function of the whole history; off the bad event it is a function of the shared readings. *)
Variables (shown : seq (S * M) -> Y) (view : seq S -> Y).
Hypothesis quiet_view : forall h, ~~ betrayed h -> shown h = view (shared h).

Definition chance_with (A : pred (seq (S * M))) : R := \sum_(h : n.-tuple (S * M) | A h) history chances_with [::] h.
Definition chance_ghost (A : pred (seq (S * M))) : R := \sum_(h : n.-tuple (S * M) | A h) history chances_ghost [::] h.
Definition released_with (O : pred Y) : R := chance_with (fun h => O (shown h)).
Definition released_without (O : pred Y) : R := \sum_(h : n.-tuple S | O (view h)) history without_v [::] h.

Hypotheses (mean_formula : delta_G_is_mean R) (add_up : normals_add R) (grows : delta_G_grows R).
Hypothesis mu0 : forall r, 0 <= mu r.
Hypothesis close : rounds_close.
Variable p : R.
Hypotheses (rare : chance_with betrayed <= p) (rare_ghost : chance_ghost betrayed <= p).

(* Two equal laws. *)
Lemma same_pair (q : S -> R) m eps : is_finite_law q -> 0 <= m -> hockey eps q q <= delta_G eps m.
Proof.
case=> q0 total m0; apply: (@le_trans _ _ (delta_G eps 0)); last exact: grows.
rewrite /delta_G eqxx /hockey; under eq_bigr => s _.
  rewrite (_ : q s - expR eps * q s = q s * (1 - expR eps)); last by rewrite mulrBr mulr1 [q s * _]mulrC.
  rewrite -scale_max //; over.
by rewrite -mulr_suml total mul1r.
Qed.

Let distance := Num.sqrt (squares_of mu 0 n).

Lemma without_is_ghost O : released_without O = chance_ghost (fun h => O (view (shared h))).
Proof.
rewrite /released_without /chance_ghost [LHS]big_mkcond [RHS]big_mkcond /=.
transitivity (\sum_(h : n.-tuple S) history without_v (shared [::]) h * (O (view h))%:R).
  by apply: eq_bigr => h _; case: ifP => _; rewrite ?mulr1 ?mulr0.
rewrite -(nobody_reads_novel n [::] (fun h => (O (view h))%:R)).
by apply: eq_bigr => h _; case: ifP => _; rewrite ?mulr1 ?mulr0.
Qed.

Let history_with0 (h : seq (S * M)) : 0 <= history chances_with [::] h. Proof. exact: history_ge0. Qed.
Let history_ghost0 (h : seq (S * M)) : 0 <= history chances_ghost [::] h. Proof. exact: history_ge0. Qed.

(* For the proof: the law with v that goes on as without v after a bad event. Off the bad event it is the law with v. *)
Definition amended (past : seq (S * M)) : S -> R :=
  if betrayed (rev past) then without_v (shared past) else with_v past.
Definition chances_amended (past : seq (S * M)) (o : S * M) : R := amended past o.1 * noise o.2.

Let amended0 past o : 0 <= chances_amended past o.
Proof.
rewrite mulr_ge0 //; last by case: law_noise.
by rewrite /amended; case: ifP => _; [case: (law_without (shared past)) | case: (law_with past)].
Qed.

Lemma quiet_before (h rest : seq (S * M)) : ~~ betrayed (h ++ rest) -> ~~ betrayed h.
Proof.
elim/last_ind: rest => [|rest o IH]; first by rewrite cats0.
by rewrite -rcons_cat => quiet; apply: IH; apply: contra quiet; exact: lasting.
Qed.

Lemma amended_off past h : ~~ betrayed (rev past ++ h) -> history chances_amended past h = history chances_with past h.
Proof.
elim: h past => //= o h IH past quiet; rewrite IH ?rev_cons ?cat_rcons //.
by rewrite /chances_amended /amended (negbTE (quiet_before quiet)).
Qed.

Lemma compose_with : gaussian_pair distance (fun h : n.-tuple (S * M) => history chances_amended [::] h)
  (fun h => history chances_ghost [::] h).
Proof.
apply: adaptive_composition => // past within; apply: with_noise.
rewrite /amended; case: (boolP (betrayed (rev past))) => [_ eps|quiet]; last by case: (close within quiet).
exact: same_pair.
Qed.

Lemma compose_back : gaussian_pair distance (fun h : n.-tuple (S * M) => history chances_ghost [::] h)
  (fun h => history chances_amended [::] h).
Proof.
apply: adaptive_composition => // past within; apply: with_noise.
rewrite /amended; case: (boolP (betrayed (rev past))) => [_ eps|quiet]; last by case: (close within quiet).
exact: same_pair.
Qed.

Lemma sum_le (P : seq (S * M) -> R) (A B : pred (seq (S * M))) : (forall h, 0 <= P h) -> (forall h, A h -> B h) ->
  \sum_(h : n.-tuple (S * M) | A h) P h <= \sum_(h : n.-tuple (S * M) | B h) P h.
Proof.
move=> P0 AB; rewrite [X in X <= _]big_mkcond [X in _ <= X]big_mkcond; apply: ler_sum => h _.
by case: ifP => [/AB -> //|_]; case: ifP.
Qed.

Lemma sum_or (P : seq (S * M) -> R) (A B : pred (seq (S * M))) : (forall h, 0 <= P h) ->
  \sum_(h : n.-tuple (S * M) | A h || B h) P h
  <= \sum_(h : n.-tuple (S * M) | A h) P h + \sum_(h : n.-tuple (S * M) | B h) P h.
Proof.
move=> P0; rewrite big_mkcond [X in X + _]big_mkcond [X in _ + X]big_mkcond -big_split /=; apply: ler_sum => h _.
by case: (A h); case: (B h); rewrite /= ?addr0 ?add0r // ler_addl.
Qed.

(* Theorem A for one release: both directions, at every eps, with one distance and one p. *)
Theorem rounds_private O eps :
  released_with O <= expR eps * released_without O + (delta_G eps distance + p) /\
  released_without O <= expR eps * released_with O + (delta_G eps distance + p).
Proof.
have off (A : pred (seq (S * M))) : chance_with (fun h => A h && ~~ betrayed h)
    = \sum_(h : n.-tuple (S * M) | A h && ~~ betrayed h) history chances_amended [::] h.
  by apply: eq_bigr => h /andP [_ quiet]; rewrite amended_off.
rewrite without_is_ghost; split.
  apply: (@le_trans _ _ (chance_with betrayed + chance_with (fun h => O (view (shared h)) && ~~ betrayed h))).
    apply: le_trans (sum_or betrayed (fun h => O (view (shared h)) && ~~ betrayed h) history_with0).
    apply: (@sum_le _ (fun h => O (shown h)) (fun h => betrayed h || O (view (shared h)) && ~~ betrayed h)) => // h.
    by case: (boolP (betrayed h)) => //= quiet; rewrite andbT quiet_view.
  rewrite addrC addrA; apply: ler_add => //; rewrite off.
  apply: (@le_trans _ _ (\sum_(h : n.-tuple (S * M) | O (view (shared h))) history chances_amended [::] h)).
    apply: (@sum_le (history chances_amended [::]) (fun h => O (view (shared h)) && ~~ betrayed h)
      (fun h => O (view (shared h)))) => [h|h /andP [] //]; exact: history_ge0.
  apply: le_trans (hockey_event eps _ (fun h : n.-tuple _ => history chances_ghost [::] h) _) _.
  by rewrite ler_add2l; exact: compose_with.
have covered : chance_ghost (fun h => O (view (shared h)))
    <= chance_ghost (fun h => O (view (shared h)) && ~~ betrayed h) + chance_ghost betrayed.
  apply: le_trans (sum_or (fun h => O (view (shared h)) && ~~ betrayed h) betrayed history_ghost0).
  pose both h := O (view (shared h)) && ~~ betrayed h || betrayed h.
  apply: (@sum_le _ (fun h => O (view (shared h))) both) => // h; rewrite /both.
  by case: (betrayed h); rewrite /= ?orbT // => ->.
apply: le_trans covered _; rewrite addrA ler_add //.
apply: le_trans (hockey_event eps _ (fun h : n.-tuple _ => history chances_amended [::] h) _) _.
apply: ler_add; last exact: compose_back.
rewrite ler_wpmul2l ?(ltW (expR_gt0 _)) //; move: (off (fun h => O (view (shared h)))) => /= <-.
apply: (@sum_le _ (fun h => O (view (shared h)) && ~~ betrayed h) (fun h => O (shown h))) => // h /andP [Oh quiet].
by rewrite quiet_view.
Qed.

End Rounds.

(* Part 12. End to end: the default release (a look, a plan chosen by it, the rounds of Funnel with or without a list,
   the steps of counting) is (eps, delta)-private if the plan's certificate holds. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From mathcomp.classical Require Import boolp classical_sets.
From mathcomp.analysis Require Import reals ereal measure lebesgue_measure lebesgue_integral sequences exp.
From dpunion Require Import vectors contraction sensitivity novelty coins gaussian composition events rounds.
From dpunion Require Import novel_walk look.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

(* ------------------------------------------------------------------ Theorem B for all novel items of Funnel *)

Section TheoremB.
Variables (R : realType) (S M Z K I : finType) (N : {set I}).
Variables (shows : seq (S * M) -> S -> R) (noise : M -> R) (own : I -> M -> Z) (others : I -> M -> K).
Variables (lam : Z -> R) (kap : K -> R) (zeta : Z -> R).
Hypotheses (law_shows : forall past, is_finite_law (shows past)) (law_noise : is_finite_law noise).
Hypotheses (law_lam : is_finite_law lam) (law_kap : is_finite_law kap).
(* Every novel item's noise is independent of its companions'. *)
Hypothesis independent : forall i (F : Z -> K -> R),
  \sum_m noise m * F (own i m) (others i m) = \sum_z \sum_k lam z * kap k * F z k.
Variables (c line aim cutoff : nat -> R) (rho sigma y : R) (crowd_need : nat -> seq K -> R).
Hypotheses (c_ge0 : forall r, 0 <= c r) (aim_ge0 : forall r, 0 <= aim r) (aims : forall r, c r * aim r <= 1).
Hypotheses (need_ge0 : forall r before, 0 <= crowd_need r before) (rho_ge0 : 0 <= rho).

(* The most a novel item can get: y in round 1; later what (2) says, beside the needs of the crowd that counts. *)
Definition funnel_most r (before : seq K) (s : R) : R :=
  if r == 0%N then y else walk_gift (c r) (aim r) (cutoff r) (crowd_need r before) s.

Variable given : I -> seq (S * M) -> R.
Let score_of i := score (own i) c sigma zeta (given i) 0.
Hypothesis given_most : forall i past, i \in N -> score_of i past <= rho ->
  given i past <= funnel_most (size past) (crowd_noise (others i) past) (score_of i past).

(* t times the chance of one walk, averaged over the noise of its crowd. *)
Definition novel_chance (t n : nat) : R := t%:R * \sum_(crowd : n.-tuple K)
  crowd_chance kap crowd * walk lam c line rho sigma zeta funnel_most 0 [::] crowd 0.

Definition some_passes (h : seq (S * M)) : bool :=
  [exists i in N, passes (own i) c line rho sigma zeta (given i) 0 [::] h].

Theorem theorem_B n :
  \sum_(h : n.-tuple (S * M) | some_passes h) history (chances shows noise) [::] h <= novel_chance #|N| n.
Proof.
have noise0 m : 0 <= noise m by case: law_noise.
apply: some_novel_passes => [h|i iN].
  by apply: history_ge0 => past o; rewrite mulr_ge0 //; case: (law_shows past).
apply: (@follow_one _ _ _ _ _ shows noise (own i) (others i) lam kap law_shows law_lam law_kap noise0 (independent i)
  c line rho sigma zeta c_ge0 (given i) funnel_most 0 _ _ n [::]) => //= [past|r before s s' ss _].
  exact: given_most.
rewrite /funnel_most; case: eqP => _; first by rewrite ler_add2r.
exact: higher_stays_higher.
Qed.

End TheoremB.

(* ------------------------------------------------------------------ one plan *)

Section OnePlan.
Variables (R : realType) (C I M : finType) (Y : Type).
Local Notation S := {ffun I -> C}.
(* Round r reads the noisy sums of its places, which the shared readings so far fix; its noise has the scale s r. *)
Variables (n : nat) (s dist : nat -> R) (read : seq S -> I -> R -> C) (noise : M -> R).
Variables (sums_with : seq (S * M) -> {ffun I -> R}) (sums_without : seq S -> {ffun I -> R}).
Hypotheses (s_gt0 : forall r, 0 < s r) (dist_ge0 : forall r, 0 <= dist r) (law_noise : is_finite_law noise).
Hypothesis read_measurable : forall past i c, measurable [set z | read past i z = c]%classic.
(* One person moves the sums of round r by at most dist r: sensitivity_round, first_round_listed, sums_move_by_one. *)
Hypothesis moved : forall past : seq (S * M), (size past < n)%N ->
  norm2 (sums_with past - sums_without (shared past)) <= dist (size past).
Hypotheses (readings_fact : gaussian_readings R) (grows : delta_G_grows R).
Hypotheses (mean_formula : delta_G_is_mean R) (add_up : normals_add R).

Definition law_of_round_with (past : seq (S * M)) : S -> R :=
  readings (s (size past)) (read (shared past)) (sums_with past).
Definition law_of_round_without (past : seq S) : S -> R := readings (s (size past)) (read past) (sums_without past).

Lemma round_is_law past : is_finite_law (law_of_round_with past).
Proof.
have [] := readings_fact (sums_with past) (sums_with past) (s_gt0 (size past)) (read_measurable (shared past)).
by move=> pos total _; split.
Qed.

Lemma round_is_law_without past : is_finite_law (law_of_round_without past).
Proof.
have [] := readings_fact (sums_without past) (sums_without past) (s_gt0 (size past)) (read_measurable past).
by move=> pos total _; split.
Qed.

Lemma rounds_are_close : rounds_close law_of_round_with law_of_round_without n (fun r => dist r / s r).
Proof.
move=> past within; have near := moved within; set r := size past in near *.
have same : size (shared past) = r by rewrite size_map.
have wider d : 0 <= d -> d <= dist r -> forall a, delta_G a (d / s r) <= delta_G a (dist r / s r).
  by move=> d0 dd a; apply: grows; rewrite ?divr_ge0 ?(ltW (s_gt0 r)) // ler_wpmul2r // invr_ge0 ltW.
split=> a; apply: le_trans (wider _ (norm2_ge0 _) near a).
  have [_ _ close] :=
    readings_fact (sums_with past) (sums_without (shared past)) (s_gt0 r) (read_measurable (shared past)).
  by rewrite /hockey /law_of_round_with /law_of_round_without same; exact: close.
have [_ _ close] :=
  readings_fact (sums_without (shared past)) (sums_with past) (s_gt0 r) (read_measurable (shared past)).
rewrite /hockey /law_of_round_with /law_of_round_without same; apply: le_trans (close a) _.
by rewrite -norm2N opprB.
Qed.

End OnePlan.

(* ------------------------------------------------------------------ the certificate and the whole *)

Section Certificate.
Variables (R : realType) (eps delta' : R) (most : nat) (c1 top sigma counting : R) (bad : nat -> R -> R).

(* The squared distance of all rounds when round 1 gives each of t novel items y: the list's, and what counting adds. *)
Definition all_squares t y : R := (1 - c1 ^+ 2 + first_spare most c1 t y) / sigma ^+ 2 + counting.

(* What plan evaluates. mu0 bounds the distance without novel items. *)
Record plan_certified (mu0 : R) : Prop := PlanCertified {
  sigma_positive : 0 < sigma;
  counting_ge0 : 0 <= counting;
  first_within : 0 <= c1 /\ c1 ^+ 2 <= 1;
  distance_within : forall t y, (t <= most)%N -> 0 <= y <= top -> t%:R * y ^+ 2 <= c1 ^+ 2 ->
    Num.sqrt (all_squares t y) <= mu0;
  bad_ge0 : forall t y, 0 <= bad t y;
  keeps_delta : forall t y, (t <= most)%N -> 0 <= y <= top -> t%:R * y ^+ 2 <= c1 ^+ 2 ->
    delta_G eps (Num.sqrt (all_squares t y)) + bad t y <= delta' }.

End Certificate.

Section Default.
Variables (R : realType) (eps mu0 delta' x1 nu delta : R).
Hypotheses (mean_formula : delta_G_is_mean R) (add_up : normals_add R) (readings_fact : gaussian_readings R).
Hypotheses (grows : delta_G_grows R) (Phi_chance : Phi_is_chance R) (slopes : delta_G_slopes R).
Hypotheses (delta'_ge0 : 0 <= delta') (delta'_le1 : delta' <= 1) (x1_le : x1 <= expR eps).
(* The look is paid for. *)
Hypothesis paid : (normal_mean (fun z => (look_bound eps mu0 delta' x1 (ratio nu z))%:E) <= delta%:E)%E.

(* The look: its outcomes, their laws without v and with v, and how much likelier each outcome is in the other world. *)
Variables (d : measure_display) (T : measurableType d) (Q P : {measure set T -> \bar R}) (X X' : T -> R).
Hypotheses (X_ge0 : forall o, 0 <= X o) (X'_ge0 : forall o, 0 <= X' o).
Hypothesis look_without : forall f : R -> R, measurable_fun setT f -> (forall x, 0 <= x -> 0 <= f x) ->
  (\int[Q]_o (f (X o))%:E = normal_mean (fun z => (f (ratio nu z))%:E))%E.
Hypothesis look_with : forall f : R -> R, measurable_fun setT f -> (forall x, 0 <= x -> 0 <= f x) ->
  (\int[P]_o (f (X' o))%:E = normal_mean (fun z => (f (ratio nu z))%:E))%E.
Hypotheses (m_X : measurable_fun setT X) (m_X' : measurable_fun setT X').
Hypothesis m_bound : measurable_fun setT (look_bound eps mu0 delta' x1).

(* What each outcome chooses: a plan, with a certificate, and the rounds that it runs. *)
Variables (C I M : finType) (Y : Type).
Local Notation S := {ffun I -> C}.
Variables (most : T -> nat) (c1 top sigma counting : T -> R) (bad : T -> nat -> R -> R).
Variables (n : T -> nat) (s dist : T -> nat -> R) (read : T -> seq S -> I -> R -> C) (noise : T -> M -> R).
Variables (sums_with : T -> seq (S * M) -> {ffun I -> R}) (sums_without : T -> seq S -> {ffun I -> R}).
Variables (betrayed : T -> pred (seq (S * M))) (shown : T -> seq (S * M) -> Y) (view : T -> seq S -> Y).
Variables (t : T -> nat) (y : T -> R).

Let with_of o := law_of_round_with (s o) (read o) (sums_with o).
Let without_of o := law_of_round_without (s o) (read o) (sums_without o).

Hypothesis certified : forall o, plan_certified eps delta' (most o) (c1 o) (top o) (sigma o) (counting o) (bad o) mu0.

Record runs (o : T) : Prop := Runs {
  scales : forall r, 0 < s o r;
  distances : forall r, 0 <= dist o r;
  noise_law : is_finite_law (noise o);
  reads : forall past i c, measurable [set z | read o past i z = c]%classic;
  moves : forall past : seq (S * M), (size past < n o)%N ->
    norm2 (sums_with o past - sums_without o (shared past)) <= dist o (size past);
  (* round 1, by first_round_listed; the later rounds' budgets and the steps of counting *)
  few_novel_items : (t o <= most o)%N;
  region : 0 <= y o <= top o /\ (t o)%:R * y o ^+ 2 <= c1 o ^+ 2;
  budgets : squares_of (fun r => dist o r / s o r) 0 (n o)
    <= all_squares (most o) (c1 o) (sigma o) (counting o) (t o) (y o);
  (* Theorem B, in both laws *)
  rare_with : chance_with (with_of o) (noise o) (n o) (betrayed o) <= bad o (t o) (y o);
  rare_ghost_too : chance_ghost (without_of o) (noise o) (n o) (betrayed o) <= bad o (t o) (y o);
  quiet : forall h, ~~ betrayed o h -> shown o h = view o (shared h) }.

Hypothesis running : forall o, runs o.
Variable O : pred Y.
Let PO o := released_with (with_of o) (noise o) (n o) (shown o) O.
Let QO o := released_without (without_of o) (n o) (view o) O.
Hypotheses (m_PO : measurable_fun setT PO) (m_QO : measurable_fun setT QO).

Theorem default_release_private :
  (\int[Q]_o (X o * PO o)%:E <= (expR eps)%:E * \int[Q]_o (QO o)%:E + delta%:E)%E /\
  (\int[P]_o (X' o * QO o)%:E <= (expR eps)%:E * \int[P]_o (PO o)%:E + delta%:E)%E.
Proof.
pose mu o := Num.sqrt (all_squares (most o) (c1 o) (sigma o) (counting o) (t o) (y o)).
pose p o := bad o (t o) (y o).
have both o e : PO o <= expR e * QO o + (delta_G e (mu o) + p o) /\ QO o <= expR e * PO o + (delta_G e (mu o) + p o).
  have [scale0 dist0 lawN measurable_reads near few [in_top spent] within rare rareG still] := running o.
  have laws past : is_finite_law (with_of o past) by apply: round_is_law.
  have laws' past : is_finite_law (without_of o past) by apply: round_is_law_without.
  have close : rounds_close (with_of o) (without_of o) (n o) (fun r => dist o r / s o r) by apply: rounds_are_close.
  have mus r : 0 <= dist o r / s o r by rewrite divr_ge0 // ltW.
  have [one two] := rounds_private laws laws' lawN still mean_formula add_up mus close rare rareG O e.
  have wider : delta_G e (Num.sqrt (squares_of (fun r => dist o r / s o r) 0 (n o))) <= delta_G e (mu o).
    by apply: grows; rewrite ?sqrtr_ge0 // ler_wsqrtr.
  split; [apply: le_trans one _ | apply: le_trans two _]; rewrite ler_add2l ler_add2r //.
have PO0 o : 0 <= PO o.
  have [scale0 _ [noise0 _] measurable_reads _ _ _ _ _ _ _] := running o.
  apply: sumr_ge0 => h _; apply: history_ge0 => past u; rewrite mulr_ge0 //.
  have [] : is_finite_law (with_of o past) by apply: round_is_law.
  by move=> pos _; exact: pos.
have QO0 o : 0 <= QO o.
  have [scale0 _ _ measurable_reads _ _ _ _ _ _ _] := running o.
  apply: sumr_ge0 => h _; apply: history_ge0 => past u.
  have [] : is_finite_law (without_of o past) by apply: round_is_law_without.
  by move=> pos _; exact: pos.
have mus o : 0 <= mu o by exact: sqrtr_ge0.
have small o : mu o <= mu0.
  by have [_ _ _ _ _ few [in_top spent] _ _ _ _] := running o; have [_ _ _ within _ _] := certified o; exact: within.
have p0 o : 0 <= p o by have [_ _ _ _ low _] := certified o; exact: low.
have keeps o : delta_G eps (mu o) + p o <= delta'.
  by have [_ _ _ _ _ few [in_top spent] _ _ _ _] := running o; have [_ _ _ _ _ keep] := certified o; exact: keep.
split.
  exact: (look_private delta'_ge0 delta'_le1 x1_le mean_formula Phi_chance slopes X_ge0 PO0 QO0 m_QO
    m_X m_bound mus small p0 keeps (fun o e => (both o e).1) look_without paid).
exact: (look_private delta'_ge0 delta'_le1 x1_le mean_formula Phi_chance slopes X'_ge0 QO0 PO0 m_PO
  m_X' m_bound mus small p0 keeps (fun o e => (both o e).2) look_with paid).
Qed.

End Default.

(* Part 10. One theorem from what people keep to (eps, delta): a look, and Funnel by the plan that the look chooses. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From mathcomp.classical Require Import boolp classical_sets.
From mathcomp.analysis Require Import reals ereal measure lebesgue_measure lebesgue_integral sequences exp.
From dpunion Require Import vectors novelty coins gaussian composition novel_walk look default funnel.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Whole.
Variables (R : realType) (I C Z : finType) (Y key : Type) (user : eqType) (du : unit) (spot : orderType du).
Variables (k : key) (D : seq user) (v : user).
Local Notation S := {ffun I -> C}.

Definition fresh_items (keep : key -> user -> {set I}) (listed : {set I}) : {set I} := novel (keep k) D v :\: listed.

(* The process is Funnel on D, with v and without v, by the numbers of the plan: all that funnel_runs asks for. *)
Inductive is_funnel (plan : plan_numbers R) : process R C I [finType of {ffun I -> Z}] Y -> Prop :=
IsFunnel (keep : key -> user -> {set I}) (place : key -> user -> spot) (listed : {set I}) (rounds : nat)
    (c aim cutoff line : nat -> R) (rho sigma : R) (listed_target : nat -> I -> {ffun I -> R} -> R)
    (listed_stays listed_comes : nat -> I -> {ffun I -> R} -> bool) (value : C -> R) (lam zeta : Z -> R) (nothing : Z)
    (steps : nat) (step_spread step_moves : nat -> R) (step : {set I} -> seq S -> seq user -> {ffun I -> R})
    (reader : seq S -> I -> R -> C) (publish : {set I} -> seq S -> Y) (low high : nat -> R) of
    (forall r, 0 <= c r) & (forall r, 0 <= aim r) & (forall r, c r * aim r <= 1) & 0 <= rho & 0 < sigma &
    is_finite_law lam & (0 < rounds)%N & \sum_(0 <= r < rounds) c r ^+ 2 <= 1 &
    (forall i, i \in listed -> 0 <= listed_target 0%N i 0 <= aim 0%N * positive (cutoff 0%N)) &
    (forall past, can_be_read (reader past)) &
    (forall r, line r <= low r) & (forall r, high r + spent c r.+1 <= rho) &
    plan_c1 plan = c 0%N & plan_top plan = aim 0%N * positive (cutoff 0%N) & plan_sigma plan = sigma &
    (#|keep k v| <= plan_most plan)%N & (forall r, 0 < step_spread r) & (forall r, 0 <= step_moves r) &
    (forall L past, (rounds <= size past < rounds + steps)%N ->
      norm2 (step L past D - step L past (rem v D)) <= step_moves (size past)) &
    \sum_(rounds <= r < rounds + steps) (step_moves r / step_spread r) ^+ 2 <= plan_counting plan &
    (forall t y, 0 <= plan_bad plan t y) &
    (forall y i, round1_region plan #|fresh_items keep listed| y -> i \in fresh_items keep listed ->
      #|fresh_items keep listed|%:R * walk_chance lam (others_law lam nothing) zeta c line aim cutoff rho sigma y
        (crowd_need (fresh_items keep listed) c aim cutoff sigma zeta low high) i (rounds + steps)
      <= plan_bad plan #|fresh_items keep listed| y) :
  is_funnel plan (funnel_process keep place k D v listed (fresh_items keep listed) rounds c aim cutoff line rho sigma
    listed_target listed_stays listed_comes value lam zeta steps step_spread step reader publish).

Hypotheses (distinct : uniq D) (present : v \in D).
Hypotheses (mean_formula : delta_G_is_mean R) (add_up : normals_add R) (readings_fact : gaussian_readings R).
Hypotheses (grows : delta_G_grows R) (Phi_chance : Phi_is_chance R) (slopes : delta_G_slopes R).

Lemma is_funnel_runs plan A : is_funnel plan A -> exists dist t y, runs_by A plan dist t y.
Proof.
case=> keep place listed rounds c aim cutoff line rho sigma listed_target listed_stays listed_comes value lam zeta.
move=> nothing steps step_spread step_moves step reader publish low high *.
exact: (@funnel_runs _ _ _ _ _ _ _ _ _ keep place k D v listed distinct present (fresh_items keep listed) erefl
  rounds c aim cutoff line rho sigma listed_target listed_stays listed_comes value lam zeta nothing steps step_spread
  step_moves step reader publish _ _ _ _ _ _ _ _ _ _ low high).
Qed.

(* A look, and then Funnel by the plan that the look has chosen. *)
Variables (eps mu0 delta' x1 nu delta : R).
Hypotheses (delta'_between : 0 <= delta' <= 1) (x1_between : 0 <= x1 <= expR eps) (mu0_ge0 : 0 <= mu0).
Hypothesis paid : (normal_mean (fun z => (look_bound eps mu0 delta' x1 (ratio nu z))%:E) <= delta%:E)%E.
Variables (d : measure_display) (T : measurableType d) (Q P : {measure set T -> \bar R}) (X X' : T -> R).
Hypotheses (look_with : is_look nu Q P X) (look_without : is_look nu P Q X').
Variables (plan : T -> plan_numbers R) (A : T -> process R C I [finType of {ffun I -> Z}] Y).
Hypothesis certified : forall o, plan_certified eps delta' mu0 (plan o).
Hypothesis funnels : forall o, is_funnel (plan o) (A o).
Variable O : T -> pred Y.
Hypotheses (m_with : measurable_fun setT (fun o => output_with (A o) (O o))).
Hypotheses (m_without : measurable_fun setT (fun o => output_without (A o) (O o))).

Theorem default_funnel_private :
  (\int[P]_o (output_with (A o) (O o))%:E
    <= (expR eps)%:E * \int[Q]_o (output_without (A o) (O o))%:E + delta%:E)%E /\
  (\int[Q]_o (output_without (A o) (O o))%:E
    <= (expR eps)%:E * \int[P]_o (output_with (A o) (O o))%:E + delta%:E)%E.
Proof.
apply: (default_release_private mean_formula add_up readings_fact grows Phi_chance slopes delta'_between x1_between
  mu0_ge0 paid look_with look_without certified) => // o.
exact: is_funnel_runs (funnels o).
Qed.

End Whole.

(* One key fixes who keeps what, in which order, and so the laws of the look. Drawn from any law on finitely many keys,
   the release is as private as for each of them. *)
Section Average.
Variables (R : realType) (eps delta : R) (keys : finType) (odds : keys -> R) (with_v without_v : keys -> \bar R).
Hypotheses (law_odds : is_finite_law odds) (without_ge0 : forall k, (0 <= without_v k)%E) (delta_ge0 : 0 <= delta).

Theorem keys_average_measures : (forall k, with_v k <= (expR eps)%:E * without_v k + delta%:E)%E ->
  (\sum_k (odds k)%:E * with_v k <= (expR eps)%:E * (\sum_k (odds k)%:E * without_v k) + delta%:E)%E.
Proof.
case: law_odds => odds0 total each.
have e0 : (0 <= (expR eps)%:E :> \bar R)%E by rewrite lee_fin ltW ?expR_gt0.
have -> : delta%:E = (\sum_k (odds k)%:E * delta%:E)%E.
  by rewrite -ge0_sume_distrl ?sumEFin ?total ?mul1e // => k _; rewrite lee_fin.
rewrite ge0_sume_distrr => [|k _]; last by rewrite mule_ge0 ?lee_fin.
rewrite -big_split /=; apply: lee_sum => k _.
rewrite muleCA -ge0_muleDr ?mule_ge0 ?lee_fin //.
by apply: lee_wpmul2l; rewrite ?lee_fin.
Qed.

End Average.

Section Keys.
Variables (R : realType) (I C Z keys : finType) (Y : Type) (user : eqType) (du : unit) (spot : orderType du).
Variables (odds : keys -> R) (D : seq user) (v : user).
Hypotheses (law_odds : is_finite_law odds) (distinct : uniq D) (present : v \in D).
Hypotheses (mean_formula : delta_G_is_mean R) (add_up : normals_add R) (readings_fact : gaussian_readings R).
Hypotheses (grows : delta_G_grows R) (Phi_chance : Phi_is_chance R) (slopes : delta_G_slopes R).
Variables (eps mu0 delta' x1 nu delta : R).
Hypotheses (delta'_between : 0 <= delta' <= 1) (x1_between : 0 <= x1 <= expR eps) (mu0_ge0 : 0 <= mu0).
Hypothesis delta_ge0 : 0 <= delta.
Hypothesis paid : (normal_mean (fun z => (look_bound eps mu0 delta' x1 (ratio nu z))%:E) <= delta%:E)%E.
Variables (d : measure_display) (T : measurableType d) (Q P : keys -> {measure set T -> \bar R}).
Variables (X X' : keys -> T -> R).
Hypotheses (look_with : forall k, is_look nu (Q k) (P k) (X k)).
Hypotheses (look_without : forall k, is_look nu (P k) (Q k) (X' k)).
Variables (plan : keys -> T -> plan_numbers R) (A : keys -> T -> process R C I [finType of {ffun I -> Z}] Y).
Hypothesis certified : forall k o, plan_certified eps delta' mu0 (plan k o).
Hypothesis funnels : forall k o, is_funnel spot k D v (plan k o) (A k o).
Variable O : T -> pred Y.
Let with_v k o := output_with (A k o) (O o).
Let without_v k o := output_without (A k o) (O o).
Hypotheses (m_with : forall k, measurable_fun setT (with_v k)).
Hypotheses (m_without : forall k, measurable_fun setT (without_v k)).

Theorem default_funnel_private_keys :
  (\sum_k (odds k)%:E * \int[P k]_o (with_v k o)%:E
    <= (expR eps)%:E * (\sum_k (odds k)%:E * \int[Q k]_o (without_v k o)%:E) + delta%:E)%E /\
  (\sum_k (odds k)%:E * \int[Q k]_o (without_v k o)%:E
    <= (expR eps)%:E * (\sum_k (odds k)%:E * \int[P k]_o (with_v k o)%:E) + delta%:E)%E.
Proof.
have each k := default_funnel_private distinct present mean_formula add_up readings_fact grows Phi_chance slopes
  delta'_between x1_between mu0_ge0 paid (look_with k) (look_without k) (certified k) (funnels k) (m_with k)
  (m_without k).
have runs k o := is_funnel_runs distinct present readings_fact (funnels k o).
split; apply: keys_average_measures => // k; try by case: (each k).
  by apply: integral_ge0 => o _; have [? [? [? run]]] := runs k o; rewrite lee_fin (output_without_ge0 _ _ run).
by apply: integral_ge0 => o _; have [? [? [? run]]] := runs k o; rewrite lee_fin (output_with_ge0 _ _ run).
Qed.

End Keys.

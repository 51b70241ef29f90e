(* Part 10. Funnel and then the three steps of counting: what they add up of people moves by at most 1, so that the
   theorem of the whole is about a release with counts without a premise about its steps. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From mathcomp.analysis Require Import reals sequences exp.
From dpunion Require Import vectors novelty coins gaussian composition counts novel_walk look default funnel whole.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Counted.
(* Items, marks, and what is read of a noisy number. The places of the release are items, marks and two totals. *)
Variables (R : realType) (X J C : finType) (key : Type) (user : eqType).
Local Notation I := (X + (J + bool))%type.
Local Notation S := {ffun I -> C}.
Variables (has : key -> user -> {set X}) (k : key).

(* Public numbers: functions of the list and of what was read before. marks tells between which marks somebody is, and
   how far on the way, by the sum of the burdens. *)
Variables (burden weight : {set I} -> seq S -> X -> R) (marks : {set I} -> seq S -> R -> J * J * R).
Variable totals : {set I} -> {set X} -> bool -> bool.

Definition on_list (L : {set I}) (u : user) : {set X} := [set x in has k u | inl x \in L].

(* Where the fine step's sums are. *)
Definition fine_place (place : X + bool) : I := match place with inl x => inl x | inr b => inr (inr b) end.

(* What somebody adds: step 0 is rough, 1 marks, 2 fine. *)
Definition counted (number : nat) (L : {set I}) (past : seq S) (u : user) : {ffun I -> R} :=
  let W := on_list L u in
  match number with
  | 0 => put inl (rough R W)
  | 1 => if W == set0 then 0
         else let '(first, second, p) := marks L past (\sum_(x in W) burden L past x) in
              put (fun j => inr (inl j)) (two_marks first second p)
  | _ => put fine_place (fine (weight L past) (cap_of (weight L past) W) W (totals L (has k u)))
  end.

Definition counting_step (rounds : nat) (L : {set I}) (past : seq S) (people : seq user) : {ffun I -> R} :=
  sums (counted (size past - rounds) L past) people.

Hypotheses (weight_ge0 : forall L past x, 0 <= weight L past x).
Hypotheses (part : forall L past b, 0 <= (marks L past b).2 <= 1).

Theorem counted_adds_one number L past u : norm2 (counted number L past u) <= 1.
Proof.
case: number => [|[|number]] /=.
- by rewrite norm2_put ?rough_adds_one // => x y [].
- case: ifP => _; first by rewrite norm2_le_sqr ?ler01 // dot0r expr1n ler01.
  have := part L past (\sum_(x in on_list L u) burden L past x); case: (marks _ _ _) => -[first second] p /= between.
  by rewrite norm2_put ?two_marks_add_one // => x y [].
- by rewrite norm2_put ?fine_capped_adds_one // => -[x|b] [y|b'] // [->].
Qed.

Theorem counting_step_moves rounds L past D v : v \in D ->
  norm2 (counting_step rounds L past D - counting_step rounds L past (rem v D)) <= 1.
Proof. by move=> present; apply: sums_move_by_one => //; exact: counted_adds_one. Qed.

(* So the steps of counting need no premise: Funnel with counts is what default_funnel_private asks for. *)
Section Release.
Variables (Z : finType) (Y : Type) (du : unit) (spot : orderType du) (D : seq user) (v : user).
Variables (plan : plan_numbers R) (keep : key -> user -> {set I}) (place : key -> user -> spot) (listed : {set I}).
Variables (rounds : nat) (c aim cutoff line : nat -> R) (rho sigma : R).
Variables (listed_target : nat -> I -> {ffun I -> R} -> R).
Variables (listed_stays listed_comes : nat -> I -> {ffun I -> R} -> bool).
Variables (value : C -> R) (lam zeta : Z -> R) (nothing : Z) (step_spread : nat -> R) (reader : seq S -> I -> R -> C).
Variables (publish : {set I} -> seq S -> Y) (low high : nat -> R).
Local Notation fresh := (fresh_items k D v keep listed).

Theorem funnel_with_counts : v \in D ->
  (forall r, 0 <= c r) -> (forall r, 0 <= aim r) -> (forall r, c r * aim r <= 1) -> 0 <= rho -> 0 < sigma ->
  is_finite_law lam -> (0 < rounds)%N -> \sum_(0 <= r < rounds) c r ^+ 2 <= 1 ->
  (forall i, i \in listed -> 0 <= listed_target 0%N i 0 <= aim 0%N * positive (cutoff 0%N)) ->
  (forall past, can_be_read (reader past)) ->
  (forall r, line r <= low r) -> (forall r, high r + spent c r.+1 <= rho) ->
  plan_c1 plan = c 0%N -> plan_top plan = aim 0%N * positive (cutoff 0%N) -> plan_sigma plan = sigma ->
  (#|keep k v| <= plan_most plan)%N -> (forall r, 0 < step_spread r) ->
  \sum_(rounds <= r < rounds + 3) (1 / step_spread r) ^+ 2 <= plan_counting plan ->
  (forall t y, 0 <= plan_bad plan t y) ->
  (forall y i, round1_region plan #|fresh| y -> i \in fresh ->
    #|fresh|%:R * walk_chance lam (others_law lam nothing) zeta c line aim cutoff rho sigma y
      (crowd_need fresh c aim cutoff sigma zeta low high) i (rounds + 3) <= plan_bad plan #|fresh| y) ->
  is_funnel spot k D v plan (funnel_process keep place k D v listed fresh rounds c aim cutoff line rho sigma
    listed_target listed_stays listed_comes value lam zeta 3 step_spread (counting_step rounds) reader publish).
Proof.
move=> present *; apply: (@IsFunnel _ _ _ _ _ _ _ _ _ _ _ _ plan keep place listed rounds c aim cutoff line rho sigma
  listed_target listed_stays listed_comes value lam zeta nothing 3 step_spread (fun=> 1) (counting_step rounds) reader
  publish low high) => // [_|L past _]; first exact: ler01.
exact: counting_step_moves.
Qed.

End Release.

End Counted.

(* Part 2. One user more, anywhere in the order, moves the final histogram by at most the budget. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From dpunion Require Import vectors contraction l1_descent.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Visits.
Variables (R : rcfType) (V : zmodType) (user : eqType).
Variables (norm : V -> R) (visit : user -> V -> V) (fine : V -> Prop) (c : R).
Implicit Types (users before after : seq user) (x y h : V).

(* Users are visited in turn; the whole list is gone through once in every pass. *)
Definition visits users h := foldl (fun h u => visit u h) h users.
Definition passes p users h := iter p (visits users) h.

(* What is asked of an update: it keeps what must stay true of histograms, it brings two of them no further apart, and
   it moves one by at most the budget. *)
Hypothesis norm0 : norm 0 = 0.
Hypothesis triangle : forall x y, norm (x + y) <= norm x + norm y.
Hypothesis fine_visit : forall u h, fine h -> fine (visit u h).
Hypothesis nonexpansive : forall u x y, fine x -> fine y -> norm (visit u x - visit u y) <= norm (x - y).
Hypothesis bounded : forall u h, fine h -> norm (visit u h - h) <= c.

Lemma visits_cat before after h : visits (before ++ after) h = visits after (visits before h).
Proof. exact: foldl_cat. Qed.

Lemma fine_visits users h : fine h -> fine (visits users h).
Proof. by elim: users h => //= u users IH h /(fine_visit u) /IH. Qed.

Lemma visits_nonexpansive users x y : fine x -> fine y -> norm (visits users x - visits users y) <= norm (x - y).
Proof.
elim: users x y => //= u users IH x y fx fy.
by rewrite (le_trans (IH _ _ _ _)) ?nonexpansive //; apply: fine_visit.
Qed.

Theorem insertion_moves_by_budget before v after h :
  fine h -> norm (visits (before ++ v :: after) h - visits (before ++ after) h) <= c.
Proof.
move=> fh; rewrite !visits_cat /=; have fb := fine_visits before fh.
by rewrite (le_trans (visits_nonexpansive _ _ _)) ?bounded //; apply: fine_visit.
Qed.

Theorem passes_add_up p before v after h :
  fine h -> norm (passes p (before ++ v :: after) h - passes p (before ++ after) h) <= p%:R * c.
Proof.
move=> fh; have fine_passes q users : fine (passes q users h) by elim: q => //= q; exact: fine_visits.
elim: p => [|p IH]; first by rewrite subrr norm0 mul0r.
rewrite /passes !iterS -!/(passes p _ h).
set x := passes p _ h in IH *; set y := passes p (_ ++ _) h in IH *.
have -> : visits (before ++ v :: after) x - visits (before ++ after) y
        = visits (before ++ v :: after) x - visits (before ++ after) x
          + (visits (before ++ after) x - visits (before ++ after) y) by rewrite addrA subrK.
apply: le_trans (triangle _ _) _; rewrite -add1n natrD mulrDl mul1r ler_add //.
  by apply: insertion_moves_by_budget; apply: fine_passes.
by rewrite (le_trans (visits_nonexpansive _ _ _)) //; apply: fine_passes.
Qed.

End Visits.

(* ------------------------------------------------------------------ the order *)

Section Order.
Variables (key : Type) (user : eqType) (d : unit) (spot : orderType d).
(* A user's place in the queue is a function of the key and of that user's own data. *)
Variable place : key -> user -> spot.

Definition queue k (users : seq user) := sort (fun u v => place k u <= place k v)%O users.

(* Lemma 1: without v the others keep their order. *)
Theorem queue_inserts k users v : uniq users -> v \in users ->
  exists before after, queue k users = before ++ v :: after /\ queue k (rem v users) = before ++ after.
Proof.
move=> distinct present; have sorted_in : v \in queue k users by rewrite mem_sort.
have distinct' : uniq (queue k users) by rewrite sort_uniq.
have cut (s : seq user) : v \in s -> exists before after, s = before ++ v :: after.
  by case/splitPr => before after; exists before, after.
have [before [after sortedE]] := cut _ sorted_in; exists before, after; split=> //.
rewrite rem_filter // /queue -filter_sort; last 2 first.
- by move=> x y; exact: le_total.
- by move=> x y z; exact: le_trans.
rewrite -/(queue k users) sortedE.
move: distinct'; rewrite sortedE cat_uniq /= negb_or => /and3P [_ /andP [v_before _] /andP [v_after _]].
rewrite filter_cat /= eqxx /=; congr (_ ++ _); apply/all_filterP/allP => x /=.
  by apply: contraTneq => ->.
by apply: contraTneq => ->.
Qed.

End Order.

(* ------------------------------------------------------------------ whole histograms *)

Section Histograms.
Variables (R : rcfType) (I : finType) (key : Type) (user : eqType) (d : unit) (spot : orderType d).
(* What a user keeps, and the user's place, are functions of the key and of that user's own data. *)
Variables (keep : key -> user -> {set I}) (place : key -> user -> spot).
Local Notation vector := {ffun I -> R}.
Implicit Types (D : seq user) (p : nat).

Definition histogram_l2 k cutoff p D : vector :=
  passes (fun u => descend_l2 (keep k u) cutoff p%:R^-1) p (queue place k D) 0.

Definition histogram_l1 k cutoff p D : vector :=
  passes (fun u => descend_l1 (keep k u) cutoff p%:R^-1) p (queue place k D) 0.

(* A round of Funnel: the public scores give the targets and the alive items; gaps are closed from the targets down. *)
Definition round_gaps k (target : vector) (alive : {set I}) c D : vector :=
  visits (fun u => descend_ball (keep k u :&: alive) c) (queue place k D) target.

Definition round_weights k target alive c D : vector := target - round_gaps k target alive c D.

Lemma norm2_0 : norm2 (0 : vector) = 0.
Proof. by rewrite /norm2 dot0r sqrtr0. Qed.

Lemma norm1_0 : norm1 (0 : vector) = 0.
Proof. by apply: big1 => i _; rewrite ffunE normr0. Qed.

Theorem sensitivity_l2 k cutoff p D v : (0 < p)%N -> uniq D -> v \in D ->
  norm2 (histogram_l2 k cutoff p D - histogram_l2 k cutoff p (rem v D)) <= 1.
Proof.
move=> p0 distinct present; have [before [after [with_v without_v]]] := queue_inserts place k distinct present.
have budget0 : 0 <= p%:R^-1 :> R by rewrite invr_ge0 ler0n.
have one : p%:R * p%:R^-1 = 1 :> R by rewrite divff // pnatr_eq0 -lt0n.
rewrite /histogram_l2 with_v without_v -[X in _ <= X]one.
apply: (@passes_add_up _ _ _ (@norm2 R I) _ (fun=> True)) => // [|x y|u x y _ _|u h _].
- exact: norm2_0.
- exact: norm2_triangle.
- exact: descend_l2_nonexpansive.
- exact: descend_l2_bounded.
Qed.

Theorem sensitivity_l1 k cutoff p D v : 0 <= cutoff -> (0 < p)%N -> uniq D -> v \in D ->
  norm1 (histogram_l1 k cutoff p D - histogram_l1 k cutoff p (rem v D)) <= 1.
Proof.
move=> cutoff0 p0 distinct present.
have [before [after [with_v without_v]]] := queue_inserts place k distinct present.
have budget0 : 0 <= p%:R^-1 :> R by rewrite invr_ge0 ler0n.
have one : p%:R * p%:R^-1 = 1 :> R by rewrite divff // pnatr_eq0 -lt0n.
rewrite /histogram_l1 with_v without_v -[X in _ <= X]one.
apply: (@passes_add_up _ _ _ (@norm1 R I) _ (below cutoff)) => // [|x y|u h under|u x y _ _|u h under|i].
- exact: norm1_0.
- exact: norm1_triangle.
- exact: descend_l1_below.
- exact: descend_l1_nonexpansive.
- exact: descend_l1_bounded.
- by rewrite ffunE.
Qed.

Theorem sensitivity_round k target alive c D v : 0 <= c -> uniq D -> v \in D ->
  norm2 (round_weights k target alive c D - round_weights k target alive c (rem v D)) <= c.
Proof.
move=> c0 distinct present; have [before [after [with_v without_v]]] := queue_inserts place k distinct present.
rewrite /round_weights /round_gaps with_v without_v.
have -> (x y : vector) : target - x - (target - y) = - (x - y) by apply/ffunP => i; rewrite !ffunE; ring.
rewrite norm2N; apply: (@insertion_moves_by_budget _ _ _ (@norm2 R I) _ (fun=> True)) => // [u x y _ _|u h _].
- exact: descend_ball_nonexpansive.
- exact: descend_ball_bounded.
Qed.

End Histograms.

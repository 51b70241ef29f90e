(* Part 4, first half. Theorem A: from the chance of a bad event and the divergence of the rest to (eps, delta). *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From mathcomp.classical Require Import boolp classical_sets.
From mathcomp.analysis Require Import reals ereal measure sequences exp.
From dpunion Require Import vectors contraction l1_descent sensitivity novelty gaussian.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.
Local Open Scope classical_set_scope.

Section Chances.
Variables (R : realType) (d : measure_display) (T : measurableType d).
Implicit Types (P Q : {measure set T -> \bar R}) (A B : set T).

Definition is_law P := P setT = 1%E.
Definition chance P A : R := fine (P A).

Lemma law_fin P A : is_law P -> measurable A -> P A \is a fin_num.
Proof.
move=> law mA; rewrite ge0_fin_numE ?measure_ge0 //.
have : (P A <= P setT)%E by apply: le_measure; rewrite ?inE //; exact: measurableT.
by rewrite law => /le_lt_trans; apply; exact: ltry.
Qed.

Lemma chance_le P A B : is_law P -> measurable A -> measurable B -> A `<=` B -> chance P A <= chance P B.
Proof.
move=> law mA mB AB; rewrite fine_le ?law_fin //.
by apply: le_measure; rewrite ?inE.
Qed.

Lemma chance_or P A B : is_law P -> measurable A -> measurable B -> chance P (A `|` B) <= chance P A + chance P B.
Proof.
move=> law mA mB; have mAB : measurable (A `|` B) by exact: measurableU.
have mBA : measurable (B `\` A) by exact: measurableD.
have -> : A `|` B = A `|` (B `\` A).
  apply/seteqP; split=> x; last by case=> [|[]]; [left | right].
  by case: (pselect (A x)) => [Ax _|nA [//|Bx]]; [left | right].
rewrite /chance measureU //; last by apply/seteqP; split=> x // [Ax [_ /(_ Ax)]].
by rewrite fineD ?law_fin // ler_add2l; apply: chance_le.
Qed.

(* P is at most e^eps Q + delta on every event. *)
Definition within eps delta P Q := forall A, measurable A -> chance P A <= expR eps * chance Q A + delta.

End Chances.

Section Events.
Variables (R : realType) (d : measure_display) (T : measurableType d) (I : finType).
(* A point of T is a whole history, novel coordinates included; released is what it shows in the end. P is its law with
   v, ghost its law without v when v's ghost drives the novel coordinates. out is the law of the release without v. *)
Variables (P ghost : {measure set T -> \bar R}) (released : T -> {set I}) (novel_items : {set I}).
Variable out : set {set I} -> R.
Implicit Type O : set {set I}.

Definition shows O : set T := [set h | O (released h)].
(* B: a novel item is released. *)
Definition betrayed : set T := [set h | released h :&: novel_items != finset.set0].
Definition shows_shared O : set T := [set h | O (released h :\: novel_items)%SET].

Variables (eps delta_noise p : R).
Hypotheses (law_P : is_law P) (law_ghost : is_law ghost).
Hypothesis measurable_release : forall S, measurable [set h | S (released h)].
(* Nobody reads the novel coordinates: without v, the release is the shared part of the ghost's. *)
Hypothesis nobody_reads : forall O, out O = chance ghost (shows_shared O).
(* The shared coordinates: composed Gaussians at a distance that gives delta_noise, both ways. *)
Hypothesis close : within eps delta_noise P ghost.
Hypothesis close_back : within eps delta_noise ghost P.
(* The bound on the bad event, in both laws. *)
Hypothesis rare : chance P betrayed <= p.
Hypothesis rare_ghost : chance ghost betrayed <= p.

Let mshows O : measurable (shows O). Proof. exact: measurable_release. Qed.
Let mshared O : measurable (shows_shared O).
Proof. exact: (measurable_release (fun S => O (S :\: novel_items)%SET)). Qed.
Let mbetrayed : measurable betrayed.
Proof. exact: (measurable_release (fun S => S :&: novel_items != finset.set0)). Qed.

Lemma quiet_release h : ~ betrayed h -> (released h :\: novel_items)%SET = released h.
Proof.
move=> /negP; rewrite negbK => /eqP none; apply/finset.setP => i; rewrite finset.inE.
have : i \notin released h :&: novel_items by rewrite none finset.inE.
by rewrite finset.inE negb_and; case: (i \in novel_items); case: (i \in released h).
Qed.

Theorem with_v O : chance P (shows O) <= expR eps * out O + (delta_noise + p).
Proof.
have covered : shows O `<=` betrayed `|` shows_shared O.
  by move=> h Oh; case: (pselect (betrayed h)) => [|quiet]; [left | right; rewrite /shows_shared /= quiet_release].
apply: le_trans (chance_le law_P (mshows O) _ covered) _; first exact: measurableU.
apply: le_trans (chance_or law_P mbetrayed (mshared O)) _.
by rewrite nobody_reads addrC addrA ler_add // close.
Qed.

Theorem without_v O : out O <= expR eps * chance P (shows O) + (delta_noise + p).
Proof.
have mquiet : measurable (shows_shared O `\` betrayed) by exact: measurableD.
have covered : shows_shared O `<=` (shows_shared O `\` betrayed) `|` betrayed.
  by move=> h Oh; case: (pselect (betrayed h)) => [|quiet]; [right | left].
have quiet_shows : shows_shared O `\` betrayed `<=` shows O.
  by move=> h [Oh quiet]; rewrite /shows /= -(quiet_release quiet).
rewrite nobody_reads (le_trans (chance_le law_ghost (mshared O) _ covered)) //; first exact: measurableU.
apply: le_trans (chance_or law_ghost mquiet mbetrayed) _.
rewrite addrA ler_add // (le_trans (close_back mquiet)) // ler_add2r ler_wpmul2l ?(ltW (expR_gt0 _)) //.
exact: chance_le.
Qed.

End Events.

Section TheoremA.
Variables (R : realType) (I : finType) (key : Type) (user : eqType) (du : unit) (spot : orderType du).
Variables (keep : key -> user -> {set I}) (place : key -> user -> spot) (k : key) (D : seq user) (v : user).
(* most: the largest number of items a user keeps; c1: the budget of round 1; target: what all items need in it. *)
Variables (most : nat) (c1 target sigma eps delta : R).
Hypotheses (in_D : v \in D) (distinct : uniq D) (few : (#|keep k v| <= most)%N) (some : (0 < most)%N).
Hypotheses (c1_ge0 : 0 <= c1) (c1_le1 : c1 ^+ 2 <= 1) (target_ge0 : 0 <= target) (sigma_gt0 : 0 < sigma).

Let alive : {set I} := [set: I]%SET.
Let fresh := novel (fun u => keep k u :&: alive) D v.
Let first_with := round_weights keep place k [ffun=> target] alive c1 D.
Let first_without := round_weights keep place k [ffun=> target] alive c1 (rem v D).

(* The distance of all rounds: what round 1 moves on shared items, and the whole budget of the later ones. *)
Definition all_rounds : R := Num.sqrt (1 - c1 ^+ 2 + shared_squares fresh first_with first_without) / sigma.

(* s_1 squared, at most, when t novel items get y each in round 1. *)
Definition first_spare (t : nat) (y : R) : R := Num.min (c1 ^+ 2 - t%:R * y ^+ 2) ((most%:R - t%:R) * y ^+ 2).

(* bad t y bounds the chance that a novel item is released when round 1 gives each of t novel items y. *)
Variable bad : nat -> R -> R.
Definition certified := forall (t : nat) y, (t <= most)%N -> 0 <= y <= target -> t%:R * y ^+ 2 <= c1 ^+ 2 ->
  delta_G eps (Num.sqrt (1 - c1 ^+ 2 + first_spare t y) / sigma) + bad t y <= delta.

Variables (d : measure_display) (T : measurableType d) (P ghost : {measure set T -> \bar R}).
Variables (released : T -> {set I}) (out : set {set I} -> R).

(* What is assumed of the histories with v and with v's ghost: see Section Events. The composition of Gaussians is the
   premise composed. *)
Record histories : Prop := Histories {
  law_with : is_law P;
  law_with_ghost : is_law ghost;
  measurable_release : forall S, measurable [set h | S (released h)];
  nobody_reads : forall O, out O = chance ghost (shows_shared released fresh O);
  composed : within eps (delta_G eps all_rounds) P ghost /\ within eps (delta_G eps all_rounds) ghost P;
  bad_bounds : forall y, (forall i, i \in fresh -> first_with i = y) ->
    chance P (betrayed released fresh) <= bad #|fresh| y /\ chance ghost (betrayed released fresh) <= bad #|fresh| y }.

Theorem theorem_A O : delta_G_grows R -> histories -> certified ->
  chance P (shows released O) <= expR eps * out O + delta /\ out O <= expR eps * chance P (shows released O) + delta.
Proof.
move=> grows [lawP lawG mrel reads [close close_back] bounds] certificate.
have [y [between givenN noneN spent spare]] := first_round_novelty place alive c1_ge0 target_ge0 distinct in_D few.
have fewer : (#|fresh| <= most)%N.
  apply: leq_trans few; apply: leq_trans (subset_leq_card (novel_own _ D v)) _.
  by rewrite subset_leq_card // subsetIl.
have [rare rare_ghost] := bounds y givenN.
have enough : delta_G eps all_rounds + bad #|fresh| y <= delta.
  apply: le_trans (certificate #|fresh| y fewer between spent); rewrite ler_add2r; apply: grows.
    by rewrite divr_ge0 ?sqrtr_ge0 // ltW.
  by rewrite ler_wpmul2r ?invr_ge0 ?(ltW sigma_gt0) // ler_wsqrtr // ler_add2l.
by split; [apply: le_trans (with_v lawP mrel reads close rare O) _
          |apply: le_trans (without_v lawP lawG mrel reads close_back rare_ghost O) _]; rewrite ler_add2l.
Qed.

(* The weaker form, for all y at once. *)
Theorem certified_weaker (worst : nat -> R) : delta_G_grows R ->
  (forall t y, (t <= most)%N -> 0 <= y <= target -> t%:R * y ^+ 2 <= c1 ^+ 2 -> bad t y <= worst t) ->
  (forall t : nat, (t <= most)%N ->
     delta_G eps (Num.sqrt (1 - c1 ^+ 2 * (t%:R / most%:R)) / sigma) + worst t <= delta) ->
  certified.
Proof.
move=> grows bounds weaker t y t_most between spent; apply: le_trans (weaker t t_most).
apply: ler_add; last exact: bounds.
apply: grows; first by rewrite divr_ge0 ?sqrtr_ge0 // ltW.
rewrite ler_wpmul2r ?invr_ge0 ?(ltW sigma_gt0) // ler_wsqrtr //.
have -> : 1 - c1 ^+ 2 * (t%:R / most%:R) = 1 - c1 ^+ 2 + c1 ^+ 2 * (1 - t%:R / most%:R).
  by rewrite mulrBr mulr1 addrA subrK.
rewrite ler_add2l; apply: (@novel_region_weaker _ _ _ _ y).
- by rewrite ltr0n.
- by rewrite ler0n ler_nat.
- by rewrite /first_spare le_minl lexx.
- by rewrite /first_spare le_minl lexx orbT.
Qed.

End TheoremA.

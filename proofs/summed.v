(* Part 12. One more error, refuted: that distances add up under the root, in place of their squares. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ssrint interval ring.
From mathcomp.classical Require Import boolp classical_sets.
From mathcomp.analysis Require Import reals ereal measure lebesgue_measure lebesgue_integral sequences exp.
From dpunion Require Import vectors coins gaussian composition.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Summed.
Variable R : realType.

(* Whether a noisy number is at most 2. *)
Let low (_ : unit) (z : R) : bool := z <= 2%:R.
Let at_ (w : R) : {ffun unit -> R} := [ffun=> w].
Let chance (w : R) (s : {ffun unit -> bool}) : R := readings 1 low (at_ w) s.

Lemma readable_low i c : measurable [set z | low i z = c]%classic.
Proof.
case: c.
  rewrite (_ : mkset _ = `]-oo, 2%:R]%classic); first exact: measurable_itv.
  by apply/seteqP; split=> z; rewrite /= in_itv.
rewrite (_ : mkset _ = `]2%:R, +oo[%classic); first exact: measurable_itv.
apply/seteqP; split=> z; rewrite /= in_itv /= andbT /low.
  by move/negbT; rewrite -ltNge.
by rewrite ltNge => /negbTE.
Qed.

Lemma chance_low w : chance w [ffun=> true] = Phi (2%:R - w).
Proof.
rewrite /chance /readings (big_pred1 tt) => [|[]] //; rewrite /reading /Phi !ffunE.
congr (fine (integral _ _ _)); apply/seteqP; split=> z; rewrite /= in_itv /= mul1r /low ler_subr_addl //.
Qed.

(* With one round at the distance 4 it would claim the distance 2. Phi is strictly increasing. *)
Theorem summed_distances_fail : gaussian_readings R -> (forall x y : R, x < y -> Phi x < Phi y) ->
  ~ (forall (T : finType) n (mu : nat -> R) (p q : seq T -> T -> R),
      (forall r, 0 <= mu r) -> (forall past t, 0 <= p past t) -> (forall past t, 0 <= q past t) ->
      (forall past : seq T, (size past < n)%N -> gaussian_pair (mu (size past)) (p past) (q past)) ->
      gaussian_pair (Num.sqrt (\sum_(0 <= r < n) mu r))
        (fun h : n.-tuple T => history p [::] h) (fun h => history q [::] h)).
Proof.
move=> readings_fact strict claim.
have [p0 _ close] := @readings_fact _ _ 1 low (at_ 0) (at_ 4%:R) ltr01 readable_low.
have [q0 _ _] := @readings_fact _ _ 1 low (at_ 4%:R) (at_ 4%:R) ltr01 readable_low.
have four : norm2 (at_ 0 - at_ 4%:R) / 1 = 4%:R :> R.
  rewrite divr1 /norm2 /dot (big_pred1 tt) => [|[]] //; rewrite !ffunE sub0r mulrNN -expr2 sqrtr_sqr ger0_norm //.
  exact: ler0n.
have pair : gaussian_pair 4%:R (chance 0) (chance 4%:R) by move=> a; have := close a; rewrite four.
have := claim _ 1%N (fun=> 4%:R) (fun=> chance 0) (fun=> chance 4%:R) (fun=> ler0n _ _) (fun=> p0) (fun=> q0)
  (fun _ _ => pair) 0.
rewrite big_nat1; have -> : 4%:R = 2%:R ^+ 2 :> R by rewrite -natrX.
rewrite sqrtr_sqr ger0_norm ?ler0n // => small.
have := hockey_event 0 (fun h : 1.-tuple _ => history (fun=> chance 0) [::] h)
  (fun h => history (fun=> chance (2%:R ^+ 2)) [::] h) (fun h => h == [tuple [ffun=> true]]).
rewrite !big_pred1_eq /= !mulr1 expR0 mul1r !chance_low subr0 => event.
have := le_trans event (ler_add (lexx _) small); apply/negP; rewrite -ltNge /delta_G pnatr_eq0 /= expR0 mul1r.
have -> : 0 / 2%:R = 0 :> R by rewrite mul0r.
rewrite !subr0 divff ?pnatr_eq0 //.
have one : Phi 1 < Phi 2%:R :> R by apply: strict; rewrite ltr1n.
have two : Phi (2%:R - 2%:R ^+ 2) < Phi (- 1) :> R.
  by apply: strict; rewrite ltr_subl_addr -natrX addrC ltr_subr_addr -mulrSr ltr_nat.
by rewrite addrCA; apply: lt_trans one; rewrite gtr_addl subr_lt0.
Qed.

End Summed.

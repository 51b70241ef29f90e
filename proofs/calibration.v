(* Part 4, second half. Exact calibration of one round: novel items and shared ones take the same delta, not a part
   each, because nobody can spend everything on both. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From mathcomp.analysis Require Import reals sequences exp.
From dpunion Require Import vectors contraction l1_descent sensitivity novelty coins gaussian.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Mixed.
Variables (R : realType) (sigma rho : R) (I : finType).
Hypotheses (sigma_gt0 : 0 < sigma) (Phi_chance : Phi_is_chance R).
Implicit Types (x y : {ffun I -> R}) (O : {set {set I}}).
Local Notation silence := (gaussian_silence sigma rho).

Lemma gaussian_chance w : 0 < silence w <= 1.
Proof. exact: Phi_chance. Qed.

(* With v, the items N are kept too, all of weight b; the other coins are those of the shared items. *)
Variables (held N : {set I}) (x : {ffun I -> R}) (b : R).
Hypothesis (apart : [disjoint held & N]) (weights : forall i, i \in N -> x i = b).

(* Lemmas 8 and 9: q is at most the chance of silence, s at least the distance on shared items. *)
Variables (eps q s : R) (y : {ffun I -> R}).
Hypotheses (coins_fact : gaussian_coins R) (grows : delta_G_grows R).
Hypotheses (q_gt0 : 0 < q) (q_le : q <= quiet silence #|N| b) (near : distance_on held x y <= s).

Definition delta_with q s : R := (1 - q) + q * delta_G (eps - ln q) (s / sigma).
Definition delta_without q s : R := delta_G (eps + ln q) (s / sigma).

Lemma close_coins a x1 x2 O : distance_on held x1 x2 <= s ->
  coins silence held x1 O <= expR a * coins silence held x2 O + delta_G a (s / sigma).
Proof.
move=> near'; apply: le_trans (coins_fact rho held x1 x2 a O sigma_gt0) _; rewrite ler_add2l; apply: grows.
  by rewrite divr_ge0 ?norm2_ge0 // ltW.
by rewrite ler_wpmul2r // invr_ge0 ltW.
Qed.

Theorem mixed_with O : coins silence (held :|: N) x O <= expR eps * coins silence held y O + delta_with q s.
Proof.
apply: le_trans (coins_with gaussian_chance apart weights O) _.
apply: (@le_trans _ _ (1 - q * (1 - coins silence held x O))).
  by rewrite ler_sub // ler_wpmul2r // subr_ge0 coins_le1 //; exact: gaussian_chance.
have -> : 1 - q * (1 - coins silence held x O) = (1 - q) + q * coins silence held x O by ring.
rewrite /delta_with [X in _ <= X]addrCA ler_add2l.
apply: le_trans (ler_wpmul2l (ltW q_gt0) (close_coins (eps - ln q) O near)) _.
rewrite mulrDr ler_add2r mulrA expRB lnK ?qualifE // mulrCA divff ?gt_eqF // mulr1.
exact: lexx.
Qed.

Theorem mixed_without O : coins silence held y O <= expR eps * coins silence (held :|: N) x O + delta_without q s.
Proof.
have near' : distance_on held y x <= s.
  apply: le_trans near; rewrite /distance_on -norm2N le_eqVlt; apply/orP; left; apply/eqP; congr norm2.
  by apply/ffunP => i; rewrite !ffunE; case: ifP; rewrite ?oppr0 // opprB.
apply: le_trans (close_coins (eps + ln q) O near') _; rewrite ler_add2r expRD lnK ?qualifE // -mulrA.
rewrite ler_wpmul2l ?(ltW (expR_gt0 _)) // (le_trans _ (coins_back gaussian_chance apart weights O)) // ler_wpmul2r //.
exact: coins_ge0 gaussian_chance _ _ _.
Qed.

End Mixed.

(* ------------------------------------------------------------------ Theorem 10 *)

Section Exact.
Variables (R : realType) (sigma rho eps delta : R) (most : nat).
Hypotheses (sigma_gt0 : 0 < sigma) (some : (0 < most)%N).
Hypotheses (Phi_chance : Phi_is_chance R) (Phi_up : Phi_grows R).
Hypotheses (coins_fact : gaussian_coins R) (grows : delta_G_grows R).

Local Notation silence := (gaussian_silence sigma rho).

(* How far the shared items can move when t novel ones have b each. *)
Definition spare (t : nat) (b : R) : R := Num.sqrt (1 - t%:R * b ^+ 2).

(* The maximum over t and b is at most delta: every b lies in a cell [b0, b1] whose value, with silence at b1 and the
   distance at b0, is at most delta in both directions. beta leaves room for rounding; 1 is exact. *)
Definition certificate (beta : R) : Prop :=
  [/\ 0 <= beta <= 1, delta_G eps (1 / sigma) <= delta &
      forall (t : nat) b, (0 < t <= most)%N -> beta / Num.sqrt most%:R <= b -> t%:R * b ^+ 2 <= 1 ->
      exists b0 b1, [/\ 0 <= b0 <= b, b <= b1, delta_with sigma eps (quiet silence t b1) (spare t b0) <= delta
                      & delta_without sigma eps (quiet silence t b1) (spare t b0) <= delta]].

Section Pair.
Variables (I : finType) (held N : {set I}) (x y : {ffun I -> R}) (b beta : R).
Hypotheses (apart : [disjoint held & N]) (weights : forall i, i \in N -> x i = b) (few : (#|N| <= most)%N).
Hypotheses (b_ge0 : 0 <= b) (first : shared_squares N x y <= 1 - #|N|%:R * b ^+ 2).
Hypotheses (second : shared_squares N x y <= (most%:R - #|N|%:R) * b ^+ 2) (certified : certificate beta).

Lemma distance_shared s : 0 <= s -> shared_squares N x y <= s ^+ 2 -> distance_on held x y <= s.
Proof.
move=> s0 within; rewrite /distance_on norm2_le_sqr // (le_trans _ within) //.
rewrite (dot_split N) big1 ?add0r => [|i iN]; last by rewrite ffunE (disjointFl apart iN) expr0n.
by apply: ler_sum => i _; rewrite ffunE; case: ifP => _ //; rewrite expr0n sqr_ge0.
Qed.

Let chance : forall w, 0 < silence w <= 1. Proof. by move=> w; exact: gaussian_chance. Qed.

Lemma silence_falls w w' : w <= w' -> silence w' <= silence w.
Proof. by move=> less; apply: Phi_up; rewrite ler_wpmul2r ?invr_ge0 ?(ltW sigma_gt0) // ler_sub. Qed.

Lemma quiet_falls t w w' : w <= w' -> quiet silence t w' <= quiet silence t w.
Proof. by move=> less; rewrite ler_expn2r ?nnegrE ?silence_falls // ltW ?(silence_gt0 chance). Qed.

Theorem exact_calibration O :
  coins silence (held :|: N) x O <= expR eps * coins silence held y O + delta /\
  coins silence held y O <= expR eps * coins silence (held :|: N) x O + delta.
Proof.
have [/andP [beta0 beta1] alone cells] := certified.
move: few first second; set t := #|N| => fewer within_all within_equal.
have within q s : 0 < q -> q <= quiet silence t b -> 0 <= s -> shared_squares N x y <= s ^+ 2 ->
    delta_with sigma eps q s <= delta -> delta_without sigma eps q s <= delta ->
    coins silence (held :|: N) x O <= expR eps * coins silence held y O + delta /\
    coins silence held y O <= expR eps * coins silence (held :|: N) x O + delta.
  move=> q0 ql s0 near d1 d2; have close := distance_shared s0 near.
  split; [apply: le_trans (mixed_with sigma_gt0 Phi_chance apart weights eps coins_fact grows q0 ql close O) _
         |apply: le_trans (mixed_without sigma_gt0 Phi_chance apart weights eps coins_fact grows q0 ql close O) _];
  by rewrite ler_add2l.
have [none|t_gt0] := posnP t.
  apply: (within 1 1); rewrite ?ltr01 ?ler01 ?none ?expr0 ?lexx // ?expr1n.
  - by rewrite (le_trans within_all) // none mul0r subr0.
  - by rewrite /delta_with ln1 subr0 subrr add0r mul1r.
  - by rewrite /delta_without ln1 addr0.
have most_gt0 : 0 < most%:R :> R by rewrite ltr0n.
set low := beta / Num.sqrt most%:R; have low0 : 0 <= low by rewrite divr_ge0 ?sqrtr_ge0.
have low2 : low ^+ 2 = beta ^+ 2 / most%:R by rewrite expr_div_n sqr_sqrtr ?ler0n.
have beta2 : beta ^+ 2 <= 1 by rewrite expr_le1.
pose b' := Num.max b low; have b'0 : 0 <= b' by rewrite le_maxr b_ge0.
have spared : shared_squares N x y <= 1 - t%:R * b' ^+ 2.
  rewrite /b'; case: (leP low b) => [_ //|less].
  apply: le_trans within_equal _; apply: (@le_trans _ _ ((most%:R - t%:R) * low ^+ 2)).
    by rewrite ler_wpmul2l ?subr_ge0 ?ler_nat // ler_expn2r ?nnegrE // ltW.
  rewrite mulrBl ler_add2r low2 mulrCA divff ?gt_eqF // mulr1 //.
have room : t%:R * b' ^+ 2 <= 1.
  by rewrite -subr_ge0 (le_trans _ spared) // sumr_ge0 // => i _; rewrite sqr_ge0.
have [b0 [b1 [/andP [b00 b0b] bb1 d1 d2]]] : exists b0 b1, [/\ 0 <= b0 <= b', b' <= b1,
    delta_with sigma eps (quiet silence t b1) (spare t b0) <= delta
    & delta_without sigma eps (quiet silence t b1) (spare t b0) <= delta].
  by apply: cells; rewrite ?t_gt0 // le_maxr lexx orbT.
apply: within d1 d2; rewrite ?sqrtr_ge0 ?(quiet_gt0 chance) //.
  by rewrite quiet_falls // (le_trans _ bb1) // le_maxr lexx.
have more : 1 - t%:R * b' ^+ 2 <= 1 - t%:R * b0 ^+ 2 by rewrite ler_sub // ler_wpmul2l ?ler0n // ler_expn2r ?nnegrE.
rewrite sqr_sqrtr ?(le_trans spared) // (le_trans _ more) // subr_ge0 //.
Qed.

End Pair.

(* ------------------------------------------------------------------ whole algorithms of one round *)

Section Algorithms.
Variables (I : finType) (key : Type) (user : eqType) (du : unit) (spot : orderType du).
Variables (keep : key -> user -> {set I}) (place : key -> user -> spot) (k : key) (beta : R).
Hypotheses (limit : forall u, (#|keep k u| <= most)%N) (certified : certificate beta).
Implicit Types (D : seq user) (v : user) (O : {set {set I}}).

(* Policy Gaussian: l2-descent with any cutoff and any number of passes. *)
Theorem policy_gaussian_private cutoff p :
  0 <= cutoff -> (0 < p)%N -> private silence eps delta keep k (histogram_l2 keep place k cutoff p).
Proof.
move=> cutoff0 p0 D v O distinct in_D; rewrite /released (kept_with keep k distinct in_D).
have budget0 : 0 <= p%:R^-1 :> R by rewrite invr_ge0 ler0n.
have [b [/andP [b0 _] onN _ first second]] := novel_region (place k) cutoff0 budget0 p distinct in_D (limit v).
rewrite divff ?pnatr_eq0 -?lt0n // expr1n in first.
exact: exact_calibration (kept_apart keep k distinct in_D) onN (few_novel D v limit) b0 first second certified O.
Qed.

(* Weighted Gaussian: a user with n items adds at most 1 / sqrt n to each. *)
Theorem weighted_gaussian_private share :
  (forall n, 0 <= share n) -> (forall n, n%:R * share n ^+ 2 <= 1) ->
  private silence eps delta keep k (histogram_shares keep k share).
Proof.
move=> share0 share1 D v O distinct in_D; rewrite /released (kept_with keep k distinct in_D).
set N := novel (keep k) D v; set b := share #|keep k v|.
have onN i : i \in N -> histogram_shares keep k share D i = b by exact: shares_novel.
have squares : shared_squares N (histogram_shares keep k share D) (histogram_shares keep k share (rem v D))
    = (#|keep k v|%:R - #|N|%:R) * b ^+ 2.
  rewrite /shared_squares (eq_bigr (fun i => if i \in keep k v then b ^+ 2 else 0)) => [|i _]; last first.
    by rewrite shares_moved //; case: ifP; rewrite ?expr0n.
  rewrite -big_mkcondr (eq_bigl (mem (keep k v :\: N))) => [|i]; last by rewrite /= in_setD.
  by rewrite sumr_const -mulr_natl cardsD (setIidPr (novel_own _ D v)) natrB ?subset_leq_card ?novel_own.
apply: exact_calibration (kept_apart keep k distinct in_D) onN (few_novel D v limit) (share0 _) _ _ certified O.
  by rewrite squares mulrBl ler_add2r share1.
by rewrite squares ler_wpmul2r ?sqr_ge0 // ler_sub // ler_nat.
Qed.

End Algorithms.
End Exact.

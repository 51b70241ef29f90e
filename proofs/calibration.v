(* Part 4, second half. Exact calibration of one round: novel items and shared ones take the same delta, not a part
   each, because nobody can spend everything on both. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From mathcomp.analysis Require Import reals sequences exp.
From dpunion Require Import vectors contraction l1_descent sensitivity novelty gaussian.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Mixed.
Variables (R : realType) (sigma rho : R) (I : finType).
Hypothesis sigma_gt0 : 0 < sigma.
Hypothesis Phi_chance : Phi_is_chance R.
Implicit Types (held N S : {set I}) (x y : {ffun I -> R}) (O : {set {set I}}) (w q s : R).
Local Notation silence := (silence sigma rho).
Local Notation outcome := (outcome sigma rho).
Local Notation coins := (coins sigma rho).

Lemma silence_gt0 w : 0 < silence w.
Proof. by have /andP [] := Phi_chance ((rho - w) / sigma). Qed.

Lemma silence_le1 w : silence w <= 1.
Proof. by have /andP [] := Phi_chance ((rho - w) / sigma). Qed.

Lemma outcome_ge0 held x S : 0 <= outcome held x S.
Proof.
apply: prodr_ge0 => i _; case: ifP => _; last exact: ler0n.
by case: ifP => _; rewrite ?subr_ge0 ?silence_le1 // ltW ?silence_gt0.
Qed.

Lemma coins_ge0 held x O : 0 <= coins held x O.
Proof. by apply: sumr_ge0 => S _; exact: outcome_ge0. Qed.

Lemma coins_total held x : \sum_S outcome held x S = 1.
Proof.
pose F i (released : bool) : R :=
  if i \in held then if released then 1 - silence (x i) else silence (x i) else (~~ released)%:R.
transitivity (\prod_i \sum_(released : bool) F i released); last first.
  by apply: big1 => i _; rewrite big_bool /F; case: ifP => _ /=; rewrite ?subrK ?add0r.
rewrite bigA_distr_bigA (reindex (fun S : {set I} => [ffun i => i \in S])) /=; last first.
  exists (fun f : {ffun I -> bool} => [set i | f i]) => [S _|f _].
    by apply/setP => i; rewrite inE ffunE.
  by apply/ffunP => i; rewrite ffunE inE.
by apply: eq_bigr => S _; apply: eq_bigr => i _; rewrite /F ffunE.
Qed.

Lemma coins_le1 held x O : coins held x O <= 1.
Proof.
rewrite -(coins_total held x) [X in _ <= X](bigID (mem O)) ler_addl.
by apply: sumr_ge0 => S _; exact: outcome_ge0.
Qed.

(* With v, the items N are kept too, all of weight b; the other coins are those of the shared items. *)
Variables (held N : {set I}) (x : {ffun I -> R}) (b : R).
Hypothesis (apart : [disjoint held & N]) (weights : forall i, i \in N -> x i = b).

(* The chance that no novel item is released: e^L in the text. *)
Definition quiet (t : nat) w : R := silence w ^+ t.

Lemma quiet_gt0 t w : 0 < quiet t w.
Proof. by rewrite exprn_gt0 ?silence_gt0. Qed.

Lemma quiet_le1 t w : quiet t w <= 1.
Proof. by rewrite exprn_ile1 ?silence_le1 // ltW ?silence_gt0. Qed.

Lemma outcome_quiet S : [disjoint S & N] -> outcome (held :|: N) x S = quiet #|N| b * outcome held x S.
Proof.
move=> none; rewrite /outcome (bigID (mem N)) [in RHS](bigID (mem N)) /= mulrA; congr (_ * _); last first.
  by apply: eq_bigr => i /negbTE iN; rewrite inE iN orbF.
rewrite [X in _ * X]big1 ?mulr1 => [|i iN]; last first.
  by rewrite (disjointFl apart iN) (disjointFl none iN).
by rewrite /quiet -prodr_const; apply: eq_bigr => i iN; rewrite inE iN orbT (disjointFl none iN) weights.
Qed.

Lemma outcome_novel S : ~~ [disjoint S & N] -> outcome held x S = 0.
Proof.
move=> /pred0Pn [i /andP [/= iS iN]]; rewrite /outcome (bigD1 i) //= (disjointFl apart iN) iS.
by rewrite mul0r.
Qed.

Lemma coins_split O : coins (held :|: N) x O
  = quiet #|N| b * coins held x O + \sum_(S in O | ~~ [disjoint S & N]) outcome (held :|: N) x S.
Proof.
rewrite /coins (bigID (fun S => [disjoint S & N])) /=; congr (_ + _).
rewrite [in RHS](bigID (fun S => [disjoint S & N])) /= mulrDr [X in _ + X]mulr_sumr.
rewrite [X in _ + X]big1 ?addr0 => [|S /andP [_ /outcome_novel ->]]; last by rewrite mulr0.
by rewrite mulr_sumr; apply: eq_bigr => S /andP [_ /outcome_quiet].
Qed.

Lemma coins_with O : coins (held :|: N) x O <= 1 - quiet #|N| b * (1 - coins held x O).
Proof.
rewrite coins_split; set q := quiet _ _.
have all_sets : q + \sum_(S : {set I} | ~~ [disjoint S & N]) outcome (held :|: N) x S = 1.
  have everything (h : {set I}) : coins h x [set: {set I}] = 1.
    by rewrite -(coins_total h x); apply: eq_bigl => S; rewrite inE.
  have := coins_split [set: {set I}]; rewrite !everything mulr1 -/q => ->; congr (_ + _).
  by apply: eq_bigl => S; rewrite inE.
have some : \sum_(S in O | ~~ [disjoint S & N]) outcome (held :|: N) x S <= 1 - q.
  rewrite -all_sets [X in _ <= X]addrC addKr [X in _ <= X](bigID (mem O)) /=.
  rewrite (eq_bigl (fun S : {set I} => ~~ [disjoint S & N] && (S \in O))) => [|S]; last by rewrite andbC.
  by rewrite ler_addl sumr_ge0 // => S _; exact: outcome_ge0.
have -> : 1 - q * (1 - coins held x O) = q * coins held x O + (1 - q) by ring.
by rewrite ler_add2l.
Qed.

Lemma coins_back O : quiet #|N| b * coins held x O <= coins (held :|: N) x O.
Proof. by rewrite coins_split ler_addl sumr_ge0 // => S _; exact: outcome_ge0. Qed.

(* Lemmas 8 and 9: q is at most the chance of silence, s at least the distance on shared items. *)
Variables (eps q s : R) (y : {ffun I -> R}).
Hypotheses (coins_fact : gaussian_coins R) (grows : delta_G_grows R).
Hypotheses (q_gt0 : 0 < q) (q_le : q <= quiet #|N| b) (near : distance_on held x y <= s).

Definition delta_with q s : R := (1 - q) + q * delta_G (eps - ln q) (s / sigma).
Definition delta_without q s : R := delta_G (eps + ln q) (s / sigma).

Lemma close_coins a x1 x2 O : distance_on held x1 x2 <= s ->
  coins held x1 O <= expR a * coins held x2 O + delta_G a (s / sigma).
Proof.
move=> near'; apply: le_trans (coins_fact rho held x1 x2 a O sigma_gt0) _; rewrite ler_add2l; apply: grows.
  by rewrite divr_ge0 ?norm2_ge0 // ltW.
by rewrite ler_wpmul2r // invr_ge0 ltW.
Qed.

Theorem mixed_with O : coins (held :|: N) x O <= expR eps * coins held y O + delta_with q s.
Proof.
apply: le_trans (coins_with O) _.
apply: (@le_trans _ _ (1 - q * (1 - coins held x O))).
  by rewrite ler_sub // ler_wpmul2r // subr_ge0 coins_le1.
have -> : 1 - q * (1 - coins held x O) = (1 - q) + q * coins held x O by ring.
rewrite /delta_with [X in _ <= X]addrCA ler_add2l.
apply: le_trans (ler_wpmul2l (ltW q_gt0) (close_coins (eps - ln q) O near)) _.
rewrite mulrDr ler_add2r mulrA expRB lnK ?qualifE // mulrCA divff ?gt_eqF // mulr1.
exact: lexx.
Qed.

Theorem mixed_without O : coins held y O <= expR eps * coins (held :|: N) x O + delta_without q s.
Proof.
have near' : distance_on held y x <= s.
  apply: le_trans near; rewrite /distance_on -norm2N le_eqVlt; apply/orP; left; apply/eqP; congr norm2.
  by apply/ffunP => i; rewrite !ffunE; case: ifP; rewrite ?oppr0 // opprB.
apply: le_trans (close_coins (eps + ln q) O near') _; rewrite ler_add2r expRD lnK ?qualifE // -mulrA.
rewrite ler_wpmul2l ?(ltW (expR_gt0 _)) // (le_trans _ (coins_back O)) // ler_wpmul2r //.
exact: coins_ge0.
Qed.

End Mixed.

(* ------------------------------------------------------------------ Theorem 10 *)

Section Exact.
Variables (R : realType) (sigma rho eps delta : R) (most : nat).
Hypotheses (sigma_gt0 : 0 < sigma) (some : (0 < most)%N).
Hypotheses (Phi_chance : Phi_is_chance R) (Phi_up : Phi_grows R).
Hypotheses (coins_fact : gaussian_coins R) (grows : delta_G_grows R).

(* How far the shared items can move when t novel ones have b each. *)
Definition spare (t : nat) (b : R) : R := Num.sqrt (1 - t%:R * b ^+ 2).

(* The maximum over t and b is at most delta: every b lies in a cell [b0, b1] whose value, with silence at b1 and the
   distance at b0, is at most delta in both directions. beta leaves room for rounding; 1 is exact. *)
Definition certificate (beta : R) : Prop :=
  [/\ 0 <= beta <= 1, delta_G eps (1 / sigma) <= delta &
      forall (t : nat) b, (0 < t <= most)%N -> beta / Num.sqrt most%:R <= b -> t%:R * b ^+ 2 <= 1 ->
      exists b0 b1, [/\ 0 <= b0 <= b, b <= b1, delta_with sigma eps (quiet sigma rho t b1) (spare t b0) <= delta
                      & delta_without sigma eps (quiet sigma rho t b1) (spare t b0) <= delta]].

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

Lemma silence_falls w w' : w <= w' -> silence sigma rho w' <= silence sigma rho w.
Proof. by move=> less; apply: Phi_up; rewrite ler_wpmul2r ?invr_ge0 ?(ltW sigma_gt0) // ler_sub. Qed.

Lemma quiet_falls t w w' : w <= w' -> quiet sigma rho t w' <= quiet sigma rho t w.
Proof. by move=> less; rewrite ler_expn2r ?nnegrE ?silence_falls // ltW ?silence_gt0. Qed.

Theorem exact_calibration O :
  coins sigma rho (held :|: N) x O <= expR eps * coins sigma rho held y O + delta /\
  coins sigma rho held y O <= expR eps * coins sigma rho (held :|: N) x O + delta.
Proof.
have [/andP [beta0 beta1] alone cells] := certified.
move: few first second; set t := #|N| => fewer within_all within_equal.
have within q s : 0 < q -> q <= quiet sigma rho t b -> 0 <= s -> shared_squares N x y <= s ^+ 2 ->
    delta_with sigma eps q s <= delta -> delta_without sigma eps q s <= delta ->
    coins sigma rho (held :|: N) x O <= expR eps * coins sigma rho held y O + delta /\
    coins sigma rho held y O <= expR eps * coins sigma rho (held :|: N) x O + delta.
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
    delta_with sigma eps (quiet sigma rho t b1) (spare t b0) <= delta
    & delta_without sigma eps (quiet sigma rho t b1) (spare t b0) <= delta].
  by apply: cells; rewrite ?t_gt0 // le_maxr lexx orbT.
apply: within d1 d2; rewrite ?sqrtr_ge0 ?quiet_gt0 //.
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

Definition kept D : {set I} := [set i | has (fun u => i \in keep k u) D].

(* The chance that the release is in O, when D has these weights. *)
Definition released D (weights : seq user -> {ffun I -> R}) O : R := coins sigma rho (kept D) (weights D) O.

(* What is promised for one key of bounding and order: neighbours' releases are close, both ways. *)
Definition private (weights : seq user -> {ffun I -> R}) : Prop := forall D v O, uniq D -> v \in D ->
  released D weights O <= expR eps * released (rem v D) weights O + delta /\
  released (rem v D) weights O <= expR eps * released D weights O + delta.

Lemma kept_with D v : uniq D -> v \in D -> kept D = kept (rem v D) :|: novel (keep k) D v.
Proof.
move=> distinct in_D; apply/setP => i; rewrite !inE; apply/hasP/orP => [[u uD iu]|].
  have [others|] := boolP (has (fun w => i \in keep k w) (rem v D)); first by left.
  rewrite -all_predC => /allP none; right; have uv : u = v.
    apply/eqP; apply: contraTT iu => uv; apply: none.
    by rewrite mem_rem_uniq // inE uv.
  rewrite -uv iu /=; apply/allP => w wD; case: eqVneq => //= wu; apply: none.
  by rewrite mem_rem_uniq // inE -uv wu.
move=> [/hasP [u uD iu]|/andP [iv _]]; last by exists v.
by exists u => //; move: uD; rewrite mem_rem_uniq // inE => /andP [].
Qed.

Lemma kept_apart D v : uniq D -> v \in D -> [disjoint kept (rem v D) & novel (keep k) D v].
Proof.
move=> distinct in_D; apply/pred0P => i /=; apply/andP => -[kept_i iN].
move: kept_i; rewrite inE => /hasP [u uD iu].
move: uD; rewrite mem_rem_uniq // inE => /andP [uv uD].
by move: (novel_apart (own := keep k) uD uv iN); rewrite iu.
Qed.

Lemma few_novel D v : (#|novel (keep k) D v| <= most)%N.
Proof. exact: leq_trans (subset_leq_card (novel_own (keep k) D v)) (limit v). Qed.

(* Policy Gaussian: l2-descent with any cutoff and any number of passes. *)
Theorem policy_gaussian_private cutoff p :
  0 <= cutoff -> (0 < p)%N -> private (histogram_l2 keep place k cutoff p).
Proof.
move=> cutoff0 p0 D v O distinct in_D; rewrite /released (kept_with distinct in_D).
have budget0 : 0 <= p%:R^-1 :> R by rewrite invr_ge0 ler0n.
have [b [/andP [b0 _] onN _ first second]] := novel_region (place k) cutoff0 budget0 p distinct in_D (limit v).
rewrite divff ?pnatr_eq0 -?lt0n // expr1n in first.
exact: exact_calibration (kept_apart distinct in_D) onN (few_novel D v) b0 first second certified O.
Qed.

(* Weighted Gaussian: a user with n items adds the same share to each, at most 1 / sqrt n. *)
Definition histogram_shares (share : nat -> R) D : {ffun I -> R} :=
  [ffun i => \sum_(u <- D | i \in keep k u) share #|keep k u|].

Theorem weighted_gaussian_private share :
  (forall n, 0 <= share n) -> (forall n, n%:R * share n ^+ 2 <= 1) -> private (histogram_shares share).
Proof.
move=> share0 share1 D v O distinct in_D; rewrite /released (kept_with distinct in_D).
set N := novel (keep k) D v; set b := share #|keep k v|.
have moved i : histogram_shares share D i - histogram_shares share (rem v D) i = if i \in keep k v then b else 0.
  by rewrite !ffunE (big_rem v in_D) /=; case: ifP => _; rewrite ?addrK // subrr.
have onN i : i \in N -> histogram_shares share D i = b.
  move=> iN; have := moved i; rewrite (subsetP (novel_own _ D v)) // => <-.
  rewrite [X in _ = _ - X]ffunE big_seq_cond big1 ?subr0 // => u; rewrite mem_rem_uniq // inE => /andP [/andP [uv uD]].
  by rewrite (negbTE (novel_apart uD uv iN)).
have squares : shared_squares N (histogram_shares share D) (histogram_shares share (rem v D))
    = (#|keep k v|%:R - #|N|%:R) * b ^+ 2.
  rewrite /shared_squares (eq_bigr (fun i => if i \in keep k v then b ^+ 2 else 0)) => [|i _]; last first.
    by rewrite moved; case: ifP; rewrite ?expr0n.
  rewrite -big_mkcondr (eq_bigl (mem (keep k v :\: N))) => [|i]; last by rewrite /= in_setD.
  by rewrite sumr_const -mulr_natl cardsD (setIidPr (novel_own _ D v)) natrB ?subset_leq_card ?novel_own.
apply: exact_calibration (kept_apart distinct in_D) onN (few_novel D v) (share0 _) _ _ certified O.
  by rewrite squares mulrBl ler_add2r share1.
by rewrite squares ler_wpmul2r ?sqr_ge0 // ler_sub // ler_nat.
Qed.

End Algorithms.
End Exact.

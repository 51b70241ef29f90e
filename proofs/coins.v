(* One independent coin for each kept item: what the one-round algorithms release, given the weights, and what the coins
   of the items that only v keeps do to it. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From mathcomp.analysis Require Import reals sequences exp.
From dpunion Require Import vectors contraction l1_descent sensitivity novelty.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Coins.
(* silence w: the chance that an item of weight w is not released: that w plus noise is at most the threshold. *)
Variables (R : realType) (silence : R -> R) (I : finType).
Implicit Types (held N S : {set I}) (x y : {ffun I -> R}) (O : {set {set I}}) (w : R).

(* An item kept by nobody is never released. *)
Definition outcome held x S : R :=
  \prod_i (if i \in held then if i \in S then 1 - silence (x i) else silence (x i) else (i \notin S)%:R).

(* The chance that the released set is in O. *)
Definition coins held x O : R := \sum_(S in O) outcome held x S.

(* The chance that none of t novel items of weight w is released. *)
Definition quiet (t : nat) w : R := silence w ^+ t.

Hypothesis silence_chance : forall w, 0 < silence w <= 1.

Lemma silence_gt0 w : 0 < silence w.
Proof. by have /andP [] := silence_chance w. Qed.

Lemma silence_le1 w : silence w <= 1.
Proof. by have /andP [] := silence_chance w. Qed.

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

End Coins.

Section Releases.
Variables (R : realType) (silence : R -> R) (eps delta : R) (most : nat).
Variables (I : finType) (key : Type) (user : eqType) (keep : key -> user -> {set I}) (k : key).
Implicit Types (D : seq user) (v : user) (O : {set {set I}}).

Definition kept D : {set I} := [set i | has (fun u => i \in keep k u) D].

(* The chance that the release is in O, when D has these weights. *)
Definition released D (weights : seq user -> {ffun I -> R}) O : R := coins silence (kept D) (weights D) O.

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

Lemma few_novel D v : (forall u, (#|keep k u| <= most)%N) -> (#|novel (keep k) D v| <= most)%N.
Proof. by move=> limit; exact: leq_trans (subset_leq_card (novel_own (keep k) D v)) (limit v). Qed.

(* It is enough to look at each key alone: a promise that holds for all holds for their mixture. *)
Theorem keys_average (keys : finType) (odds P Q : keys -> R) :
  (forall one, 0 <= odds one) -> \sum_one odds one = 1 -> (forall one, P one <= expR eps * Q one + delta) ->
  \sum_one odds one * P one <= expR eps * (\sum_one odds one * Q one) + delta.
Proof.
move=> odds0 total each; rewrite -[delta]mul1r -total mulr_sumr mulr_suml -big_split.
by apply: ler_sum => one _; rewrite /= mulrCA -mulrDr ler_wpmul2l.
Qed.

(* A user with n items adds the same share to each. *)
Definition histogram_shares (share : nat -> R) D : {ffun I -> R} :=
  [ffun i => \sum_(u <- D | i \in keep k u) share #|keep k u|].

Lemma shares_moved share D v i : v \in D ->
  histogram_shares share D i - histogram_shares share (rem v D) i = if i \in keep k v then share #|keep k v| else 0.
Proof. by move=> in_D; rewrite !ffunE (big_rem v in_D) /=; case: ifP => _; rewrite ?addrK // subrr. Qed.

Lemma shares_novel share D v i : uniq D -> v \in D -> i \in novel (keep k) D v ->
  histogram_shares share D i = share #|keep k v|.
Proof.
move=> distinct in_D iN; have := shares_moved share i in_D; rewrite (subsetP (novel_own _ D v)) // => <-.
rewrite [X in _ = _ - X]ffunE big_seq_cond big1 ?subr0 // => u; rewrite mem_rem_uniq // inE => /andP [/andP [uv uD]].
by rewrite (negbTE (novel_apart uD uv iN)).
Qed.

End Releases.

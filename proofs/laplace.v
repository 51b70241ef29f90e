(* Theorem 5, whole: Laplace noise. Nothing is assumed of the noise: its distribution function is written down. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From mathcomp.analysis Require Import reals sequences exp.
From dpunion Require Import vectors contraction l1_descent sensitivity novelty coins.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Noise.
Variable R : realType.
Implicit Types (z : R).

(* The chance that a Laplace variable of scale 1 is at most z. *)
Definition laplace_below z : R := if 0 <= z then 1 - expR (- z) / 2%:R else expR z / 2%:R.

Let half : 0 < 2%:R^-1 :> R. Proof. by rewrite invr_gt0 ltr0n. Qed.
Let pos z : 0 < expR z. Proof. exact: expR_gt0. Qed.

Lemma exp_le1 z : z <= 0 -> expR z <= 1.
Proof. by rewrite -expR0 ler_expR. Qed.

Lemma laplace_opposite z : 1 - laplace_below z = laplace_below (- z).
Proof.
rewrite /laplace_below oppr_ge0 opprK; case: (ltgtP 0 z) => [up|down|<-].
- by rewrite opprB addrC subrK.
- by [].
- by rewrite oppr0 expR0; field.
Qed.

Lemma laplace_gt0 z : 0 < laplace_below z.
Proof.
rewrite /laplace_below; case: ifP => [up|_]; last by rewrite divr_gt0 ?ltr0n.
rewrite subr_gt0 (le_lt_trans (_ : _ <= 2%:R^-1)) ?invf_lt1 ?ltr0n ?ltr1n //.
by rewrite ler_pimull ?(ltW half) // exp_le1 // oppr_le0.
Qed.

Lemma laplace_lt1 z : laplace_below z < 1.
Proof. by rewrite -subr_gt0 laplace_opposite laplace_gt0. Qed.

(* Moving the point by d changes the chance by a factor of at most e^d. *)
Lemma laplace_moves z z' : z' <= z -> laplace_below z' <= laplace_below z <= expR (z - z') * laplace_below z'.
Proof.
move=> order; rewrite /laplace_below expRD; set a := expR z; set c := expR z'.
rewrite !expRN -/a -/c; have [a0 c0] : 0 < a /\ 0 < c by rewrite !pos.
have ca : c <= a by rewrite ler_expR.
have factor (t : R) : a / c * (c * t) = a * t by field; rewrite gt_eqF.
have [up|down] := leP 0 z; last first.
  have below : (0 <= z') = false by rewrite leNgt (le_lt_trans order down).
  by rewrite below ler_pmul2r // ca factor /=.
have a1 : 1 <= a by rewrite -(@expR0 R) ler_expR.
have [up'|down'] := leP 0 z'; last first.
  have c1 : c <= 1 by rewrite exp_le1 // ltW.
  apply/andP; split.
    have -> : 1 - a^-1 / 2%:R = 2%:R^-1 + (1 - a^-1) / 2%:R by field; rewrite gt_eqF.
    by rewrite (le_trans (_ : _ <= 2%:R^-1)) ?ler_pimull ?ler_addl ?mulr_ge0 ?subr_ge0 ?invf_le1 ?(ltW half).
  rewrite factor -subr_ge0.
  have -> : a / 2%:R - (1 - a^-1 / 2%:R) = (a - 1) ^+ 2 / a / 2%:R by field; rewrite gt_eqF.
  by rewrite !divr_ge0 ?sqr_ge0 ?ler0n ?(ltW a0).
have c1 : 1 <= c by rewrite -(@expR0 R) ler_expR.
apply/andP; split; first by rewrite ler_sub // ler_pmul2r // lef_pinv ?posrE.
rewrite -subr_ge0.
have -> : a / c * (1 - c^-1 / 2%:R) - (1 - a^-1 / 2%:R)
        = (a - c) * ((c - 1) * a + (a - 1) * c) / a / c ^+ 2 / 2%:R.
  by field; rewrite !gt_eqF.
have ac0 : 0 <= a - c by rewrite subr_ge0.
by rewrite !divr_ge0 ?exprn_ge0 ?ler0n ?(ltW a0) ?(ltW c0) // mulr_ge0 // addr_ge0 // mulr_ge0 ?subr_ge0 // ltW.
Qed.

Lemma laplace_ratio z z' : laplace_below z <= expR `|z - z'| * laplace_below z'.
Proof.
have [order|order] := leP z' z.
  by have /andP [_] := laplace_moves order; rewrite ger0_norm // subr_ge0.
have /andP [below _] := laplace_moves (ltW order); apply: le_trans below _.
by rewrite ler_pemull ?(ltW (laplace_gt0 _)) // -(@expR0 R) ler_expR.
Qed.

End Noise.

Section Coins.
Variables (R : realType) (lam rho : R) (I : finType).
Hypothesis lam_gt0 : 0 < lam.
Implicit Types (held : {set I}) (x y : {ffun I -> R}) (O : {set {set I}}).

(* The chance that an item of weight w is not released: w plus Laplace noise of scale lam is at most rho. *)
Definition laplace_silence (w : R) : R := laplace_below ((rho - w) / lam).

Lemma laplace_chance w : 0 < laplace_silence w <= 1.
Proof. by rewrite laplace_gt0 ltW ?laplace_lt1. Qed.

Lemma silence_ratio (w w' : R) : laplace_silence w <= expR (`|w - w'| / lam) * laplace_silence w' /\
  1 - laplace_silence w <= expR (`|w - w'| / lam) * (1 - laplace_silence w').
Proof.
have apart : `|(rho - w) / lam - (rho - w') / lam| = `|w - w'| / lam.
  rewrite -mulrBl normrM [X in _ * X]ger0_norm ?invr_ge0 ?(ltW lam_gt0) //.
  by congr (_ * _); rewrite distrC; congr `|_|; ring.
split; first by rewrite -apart laplace_ratio.
rewrite !laplace_opposite -apart; apply: le_trans (laplace_ratio _ (- ((rho - w') / lam))) _.
by rewrite -opprD normrN.
Qed.

(* Weights that are d apart in l1 have coins within a factor of e^(d / lam). *)
Lemma laplace_coins held x y O :
  coins laplace_silence held x O <= expR (norm1 (x - y) / lam) * coins laplace_silence held y O.
Proof.
rewrite /coins mulr_sumr; apply: ler_sum => S _; rewrite /outcome /norm1 mulr_suml.
rewrite (big_morph expR (@expRD R) (@expR0 R)) -big_split /=; apply: ler_prod => i _.
have [s s'] := silence_ratio (x i) (y i); have /andP [p0 p1] := laplace_chance (x i).
rewrite subE; case: ifP => _; last first.
  rewrite ler0n ler_pemull ?ler0n // -(@expR0 R) ler_expR divr_ge0 ?normr_ge0 //; exact: ltW.
by case: ifP => _; rewrite ?s ?s' ?subr_ge0 ?p1 ?(ltW p0).
Qed.

(* Theorem 5 for a pair of histograms: x with v and its novel items N, y without. *)
Variables (held N : {set I}) (x y : {ffun I -> R}) (b eps delta : R).
Hypotheses (apart : [disjoint held & N]) (weights : forall i, i \in N -> x i = b).
Hypotheses (near : norm1 (x - y) <= eps * lam) (rare : 1 - delta <= quiet laplace_silence #|N| b).

Lemma laplace_pair O :
  coins laplace_silence (held :|: N) x O <= expR eps * coins laplace_silence held y O + delta /\
  coins laplace_silence held y O <= expR eps * coins laplace_silence (held :|: N) x O + delta.
Proof.
have close x1 x2 : norm1 (x1 - x2) <= eps * lam ->
    coins laplace_silence held x1 O <= expR eps * coins laplace_silence held x2 O.
  move=> d; apply: le_trans (laplace_coins held x1 x2 O) _; rewrite ler_wpmul2r ?(coins_ge0 laplace_chance) //.
  by rewrite ler_expR ler_pdivr_mulr.
have chance x1 : 0 <= coins laplace_silence held x1 O <= 1.
  by rewrite (coins_ge0 laplace_chance) (coins_le1 laplace_chance).
move: rare; set q := quiet _ _ _ => silent; have q1 : q <= 1 := quiet_le1 laplace_chance _ _.
have q0 : 0 <= q := ltW (quiet_gt0 laplace_chance _ _).
have few : 1 - q <= delta by rewrite ler_subl_addl -ler_subl_addr.
split.
  apply: le_trans (coins_with laplace_chance apart weights O) _; rewrite -/q.
  have -> : 1 - q * (1 - coins laplace_silence held x O) = q * coins laplace_silence held x O + (1 - q) by ring.
  rewrite ler_add // (le_trans _ (close x y near)) // ler_pimull //; by have /andP [] := chance x.
have back : norm1 (y - x) <= eps * lam.
  by move: near; rewrite /norm1; under eq_bigr do rewrite subE distrC -subE.
have /andP [y0 y1] := chance y.
set other := coins _ _ y O in y0 y1 *; have -> : other = q * other + (1 - q) * other by ring.
apply: ler_add; last by rewrite (le_trans _ few) // ler_pimulr // subr_ge0.
apply: le_trans (ler_wpmul2l q0 (close y x back)) _; rewrite mulrCA ler_wpmul2l ?(ltW (expR_gt0 _)) //.
exact: (coins_back laplace_chance apart weights O).
Qed.

End Coins.

Section Algorithms.
Variables (R : realType) (lam rho eps delta : R) (most : nat).
Hypotheses (lam_gt0 : 0 < lam) (delta_ge0 : 0 <= delta).
Variables (I : finType) (key : Type) (user : eqType) (du : unit) (spot : orderType du).
Variables (keep : key -> user -> {set I}) (place : key -> user -> spot) (k : key).
Hypothesis limit : forall u, (#|keep k u| <= most)%N.
Local Notation silence := (laplace_silence lam rho).

(* The threshold: t novel items of weight w(t) stay silent with chance 1 - delta at least. *)
Definition threshold_covers (w : nat -> R) :=
  forall t : nat, (0 < t <= most)%N -> 1 - delta <= quiet silence t (w t).

Lemma silence_falls (w w' : R) : w <= w' -> silence w' <= silence w.
Proof.
move=> less; have order : (rho - w') / lam <= (rho - w) / lam by rewrite ler_pmul2r ?invr_gt0 // ler_sub.
by have /andP [] := laplace_moves order.
Qed.

Lemma novel_silent (N : {set I}) (b : R) : threshold_covers (fun t => t%:R^-1) -> (#|N| <= most)%N ->
  #|N|%:R * b <= 1 -> 1 - delta <= quiet silence #|N| b.
Proof.
move=> covers few small; have [none|some] := posnP #|N|; first by rewrite none /quiet expr0 ler_subl_addr ler_addl.
have covered : 1 - delta <= quiet silence #|N| #|N|%:R^-1 by apply: covers; rewrite some few.
apply: le_trans covered _.
have chance := laplace_chance lam rho.
rewrite ler_expn2r ?nnegrE ?(ltW (silence_gt0 chance _)) // silence_falls //.
by rewrite -[X in _ <= X]mul1r ler_pdivl_mulr ?ltr0n // mulrC.
Qed.

(* Policy Laplace: l1-descent with any cutoff and any number of passes. *)
Theorem policy_laplace_private cutoff p : eps * lam = 1 -> threshold_covers (fun t => t%:R^-1) ->
  0 <= cutoff -> (0 < p)%N -> private silence eps delta keep k (histogram_l1 keep place k cutoff p).
Proof.
move=> scale covers cutoff0 p0 D v O distinct in_D; rewrite /released (kept_with keep k distinct in_D).
have [b [onN small]] := novel_l1 keep place k cutoff0 p0 distinct in_D.
refine (laplace_pair lam_gt0 (kept_apart keep k distinct in_D) onN _ _ O); last first.
  exact: novel_silent covers (few_novel D v limit) small.
by rewrite scale; exact: sensitivity_l1.
Qed.

(* Shares that a user with n items gives each of them, together at most the sensitivity eps * lam. *)
Lemma shares_near share D v : (forall n, 0 <= share n) -> (forall n, (n <= most)%N -> n%:R * share n <= eps * lam) ->
  v \in D -> norm1 (histogram_shares keep k share D - histogram_shares keep k share (rem v D)) <= eps * lam.
Proof.
move=> share0 together in_D; apply: le_trans (together #|keep k v| (limit v)).
rewrite mulr_natl -sumr_const big_mkcond /=; apply: ler_sum => i _; rewrite subE shares_moved //.
by case: ifP; rewrite ?normr0 // => _; rewrite ger0_norm.
Qed.

(* Weighted Laplace: a user with n items adds at most 1 / n to each. *)
Theorem weighted_laplace_private share : eps * lam = 1 -> threshold_covers (fun t => t%:R^-1) ->
  (forall n, 0 <= share n) -> (forall n, n%:R * share n <= 1) ->
  private silence eps delta keep k (histogram_shares keep k share).
Proof.
move=> scale covers share0 share1 D v O distinct in_D; rewrite /released (kept_with keep k distinct in_D).
have onN i : i \in novel (keep k) D v -> histogram_shares keep k share D i = share #|keep k v| by exact: shares_novel.
refine (laplace_pair lam_gt0 (kept_apart keep k distinct in_D) onN _ _ O).
  by apply: shares_near => // n _; rewrite scale.
apply: novel_silent covers (few_novel D v limit) _; apply: le_trans (share1 #|keep k v|).
by rewrite ler_wpmul2r // ler_nat subset_leq_card ?novel_own.
Qed.

(* Count Laplace: a user adds 1 to each item, and the noise is scaled to the largest number of them. *)
Theorem count_laplace_private : eps * lam = most%:R -> threshold_covers (fun=> 1) ->
  private silence eps delta keep k (histogram_shares keep k (fun=> 1 : R)).
Proof.
move=> scale covers D v O distinct in_D; rewrite /released (kept_with keep k distinct in_D).
have onN i : i \in novel (keep k) D v -> histogram_shares keep k (fun=> 1 : R) D i = 1.
  by move=> iN; rewrite (shares_novel _ distinct in_D iN).
refine (laplace_pair lam_gt0 (kept_apart keep k distinct in_D) onN _ _ O).
  by apply: shares_near => // [n|n few]; rewrite ?ler01 // scale mulr1 ler_nat.
have [none|some] := posnP #|novel (keep k) D v|; first by rewrite none /quiet expr0 ler_subl_addr ler_addl.
by apply: (covers #|novel (keep k) D v|); rewrite some few_novel.
Qed.

End Algorithms.

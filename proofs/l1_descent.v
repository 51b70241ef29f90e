(* Part 1, in l1. Raising a user's items by a common amount, none above the cutoff, brings two histograms no further
   apart in l1; what kernels/descent.py computes is such a raise. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ring.
From dpunion Require Import vectors.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section RaiseBy.
Variable R : rcfType.
Implicit Types (gaps : seq R) (left : R).

(* The loop of descend_l1 over the sorted gaps. *)
Fixpoint raise_by left gaps : R :=
  if gaps is gap :: rest
  then if left / (size gaps)%:R <= gap then left / (size gaps)%:R else raise_by (left - gap) rest
  else 0.

Lemma raise_by_spends left gaps :
  sorted <=%R gaps -> 0 <= left -> left < \sum_(g <- gaps) g ->
  0 <= raise_by left gaps /\ \sum_(g <- gaps) Num.min g (raise_by left gaps) = left.
Proof.
elim: gaps left => [|gap rest IH] left; first by rewrite big_nil => _ l0 /(le_lt_trans l0); rewrite ltxx.
move=> in_order l0; rewrite !big_cons => more.
have least x : x \in rest -> gap <= x.
  by move: in_order; rewrite /= path_sortedE; [case/andP => /allP + _ => /(_ x) | apply: le_trans].
pose n : R := (size (gap :: rest))%:R; have n0 : 0 < n by rewrite ltr0n.
have nE : n = (size rest)%:R + 1 by rewrite /n /= -addn1 natrD.
have same r : r <= gap -> \sum_(g <- rest) Num.min g r = r * (size rest)%:R.
  move=> small; rewrite big_seq (eq_bigr (fun=> r)) => [|x /least above]; last by rewrite min_r // (le_trans small).
  by rewrite -big_seq big_const_seq count_predT iter_addr_0 mulr_natr.
rewrite /= -/n; case: ifP => stop.
  split; first by rewrite divr_ge0 // ltW.
  by rewrite same // min_r // -[X in X + _]mulr1 -mulrDr [1 + _]addrC -nE divfK ?gt_eqF.
have go : gap < left / n by rewrite ltNge stop.
have gap_left : 0 <= left - gap.
  by rewrite subr_ge0 (le_trans (ltW go)) // ler_pdivr_mulr // ler_pemulr // nE ler_addr ler0n.
have [|r0 rest_spent] := IH (left - gap) (path_sorted in_order) gap_left; first by rewrite ltr_subl_addl.
split=> //; set r := raise_by _ _ in r0 rest_spent *.
rewrite min_l ?rest_spent; first by rewrite addrC subrK.
rewrite leNgt; apply/negP => low.
move: go; rewrite ltr_pdivl_mulr // ltNge => /negP; apply.
have -> : left = gap + r * (size rest)%:R by rewrite -same ?(ltW low) // rest_spent addrC subrK.
by rewrite nE mulrDr mulr1 addrC ler_add2r ler_wpmul2r ?ler0n // ltW.
Qed.
End RaiseBy.

Section Raises.
Variables (R : rcfType) (I : finType).
Local Notation vector := {ffun I -> R}.
Implicit Types (W : {set I}) (c : R) (g h : vector).

(* Raise the items W by a common amount, none above the cutoff, spending the budget c in the norm l_k: to the cutoff
   when the budget suffices. l1-descent is k = 1; part 5 is about k = 2. *)
Definition raised W (h : vector) (cutoff amount : R) : vector :=
  [ffun i => if i \in W then h i + Num.min (cutoff - h i) amount else h i].

Definition filled W (h : vector) (cutoff : R) : vector := [ffun i => if i \in W then cutoff else h i].

Definition raises k W cutoff c h h' :=
  if \sum_(i in W) (cutoff - h i) ^+ k <= c ^+ k then h' = filled W h cutoff
  else exists amount, [/\ 0 <= amount, \sum_(i in W) Num.min (cutoff - h i) amount ^+ k = c ^+ k
                        & h' = raised W h cutoff amount].

(* descend_l1: sort the gaps, find the amount, raise. *)
Definition descend_l1 W cutoff c h : vector :=
  let amount := raise_by c (sort <=%R [seq cutoff - h i | i <- enum W]) in
  [ffun i => if i \in W
             then if \sum_(j in W) (cutoff - h j) <= c then cutoff
                  else if cutoff - h i <= amount then cutoff else h i + amount
             else h i].

Lemma amount_exists W c (g : I -> R) : 0 <= c -> c < \sum_(i in W) g i ->
  let amount := raise_by c (sort <=%R [seq g i | i <- enum W]) in
  0 <= amount /\ \sum_(i in W) Num.min (g i) amount = c.
Proof.
move=> c0 more; set gaps := sort _ _; set amount := raise_by _ _.
have same (f : R -> R) : \sum_(x <- gaps) f x = \sum_(i in W) f (g i).
  by rewrite (perm_big [seq g i | i <- enum W]) ?perm_sort // big_map big_enum.
have [||r0 spent] := @raise_by_spends R c gaps _ c0; rewrite ?sort_sorted ?same //; first exact: le_total.
by split=> //; rewrite -(same (fun x => Num.min x amount)).
Qed.

Theorem descend_l1_raises W cutoff c h : 0 <= c -> raises 1 W cutoff c h (descend_l1 W cutoff c h).
Proof.
move=> c0; rewrite /raises (eq_bigr (fun i => cutoff - h i)) => [|i _]; last by rewrite expr1.
rewrite expr1; case: leP => [near|far]; first by apply/ffunP => i; rewrite !ffunE near.
have [amount0 spent] := amount_exists c0 far.
eexists; split; [exact: amount0 | by under eq_bigr do rewrite expr1 | ].
apply/ffunP => i; rewrite !ffunE (leNgt _ c) far /=; case: ifP => // _.
by case: leP => _; rewrite // addrC subrK.
Qed.

(* Gaps G and what is left of them, L. *)
Definition leaves W c (G L : I -> R) :=
  (\sum_(i in W) G i <= c /\ (forall i, i \in W -> L i = 0)) \/
  (c < \sum_(i in W) G i /\ exists amount, [/\ 0 <= amount, \sum_(i in W) Num.min (G i) amount = c
                                             & forall i, i \in W -> L i = G i - Num.min (G i) amount]).

Lemma leaves_ge0 W c G L i : leaves W c G L -> i \in W -> 0 <= L i.
Proof.
move=> [[_ none]|[_ [amount [_ _ left]]]] iW; first by rewrite none.
by rewrite left // subr_ge0 le_minl lexx.
Qed.

Lemma leaves_exists W c G : 0 <= c -> exists L, leaves W c G L.
Proof.
move=> c0; case: (lerP (\sum_(i in W) G i) c) => [near|far]; first by exists (fun=> 0); left.
have [amount0 spent] := amount_exists c0 far; eexists; right; split=> //.
by eexists; split; [exact: amount0 | exact: spent | move=> i _].
Qed.

Lemma leaves_mass W c G L : leaves W c G L -> \sum_(i in W) L i = Num.max 0 (\sum_(i in W) G i - c).
Proof.
move=> [[near none]|[far [amount [_ spent left]]]]; first by rewrite big1 // max_l // subr_le0.
by rewrite (eq_bigr _ left) sumrB spent max_r // subr_ge0 ltW.
Qed.

Lemma leaves_monotone W c G G' L L' : leaves W c G L -> leaves W c G' L' ->
  (forall i, i \in W -> G i <= G' i) -> forall i, i \in W -> L i <= L' i.
Proof.
move=> leavesG leavesG' below i iW; case: (leavesG) => [[_ ->]|[far [amount [_ spent left]]]] //.
  exact: leaves_ge0 leavesG' iW.
have sums : \sum_(j in W) G j <= \sum_(j in W) G' j by apply: ler_sum.
case: leavesG' => [[near _]|[far' [amount' [_ spent' left']]]].
  by move: (lt_le_trans far (le_trans sums near)); rewrite ltxx.
rewrite left // left' //.
have amounts : amount' <= amount.
  rewrite leNgt; apply/negP => more.
  have least j : j \in W -> Num.min (G' j) amount <= Num.min (G' j) amount'.
    by move=> _; rewrite le_minr le_minl lexx /= le_minl (ltW more) orbT.
  have tight : \sum_(j in W) Num.min (G' j) amount = c.
    apply/le_anti/andP; split; first by rewrite -[X in _ <= X]spent' ler_sum.
    by rewrite -[X in X <= _]spent ler_sum // => j jW; rewrite le_minr !le_minl lexx below ?orbT.
  have equal : forall j, j \in W -> Num.min (G' j) amount' - Num.min (G' j) amount = 0.
    apply: psumr_eq0P => [j jW|]; first by rewrite subr_ge0 least.
    by rewrite sumrB spent' tight subrr.
  move: far'; rewrite -[X in X < _]tight ltNge => /negP; apply; apply: ler_sum => j jW.
  move: (equal j jW) => /eqP; rewrite subr_eq0 => /eqP; case: (leP (G' j) amount) => // high.
  by case: (leP (G' j) amount') => _ eq_amounts; move: more high; rewrite eq_amounts ltxx.
have rest (x a : R) : x - Num.min x a = Num.max 0 (x - a).
  by case: (leP x a) => xa; [rewrite subrr max_l ?subr_le0 | rewrite max_r ?subr_ge0 // ltW].
by rewrite !rest le_maxl !le_maxr lexx ler_sub ?below ?orbT.
Qed.

(* Theorem 4, on gaps; the argument of Crandall and Tartar. *)
Lemma leaves_nonexpansive W c G G' L L' : 0 <= c -> leaves W c G L -> leaves W c G' L' ->
  \sum_(i in W) `|L i - L' i| <= \sum_(i in W) `|G i - G' i|.
Proof.
move=> c0 leavesG leavesG'; pose M i := Num.max (G i) (G' i).
have [LM leavesM] := leaves_exists W M c0.
have up i : i \in W -> L i <= LM i by apply: leaves_monotone leavesG leavesM _ i => i _; rewrite le_maxr lexx.
have up' i : i \in W -> L' i <= LM i by apply: leaves_monotone leavesG' leavesM _ i => i _; rewrite le_maxr lexx orbT.
have slope (a b : R) : b <= a -> Num.max 0 (a - c) - Num.max 0 (b - c) <= a - b.
  move=> ba; rewrite ler_subl_addr le_maxl addr_ge0 ?subr_ge0 ?le_maxr ?lexx //=.
  have -> : a - c = (a - b) + (b - c) by ring.
  by rewrite ler_add2l le_maxr lexx orbT.
apply: (@le_trans _ _ (\sum_(i in W) ((LM i - L i) + (LM i - L' i)))).
  apply: ler_sum => i iW; have -> : L i - L' i = (LM i - L' i) - (LM i - L i) by ring.
  by rewrite (le_trans (ler_norm_sub _ _)) // addrC !ger0_norm ?subr_ge0 ?up ?up'.
rewrite big_split !sumrB /= !(leaves_mass leavesM, leaves_mass leavesG, leaves_mass leavesG').
apply: le_trans (ler_add (slope _ _ _) (slope _ _ _)) _.
- by apply: ler_sum => i _; rewrite le_maxr lexx.
- by apply: ler_sum => i _; rewrite le_maxr lexx orbT.
rewrite -!sumrB -big_split; apply: ler_sum => i _ /=; rewrite /M.
case: (leP (G i) (G' i)) => order; rewrite ?subrr ?addr0 ?add0r; [rewrite distrC|].
  by rewrite ger0_norm ?subr_ge0.
by rewrite ger0_norm ?subr_ge0 // ltW.
Qed.

Lemma raises_outside k W cutoff c h h' i : raises k W cutoff c h h' -> i \notin W -> h' i = h i.
Proof. by rewrite /raises => + /negbTE out; case: ifP => _ => [|[a [_ _]]] ->; rewrite ffunE out. Qed.

Lemma raises_leaves W cutoff c h h' :
  raises 1 W cutoff c h h' -> leaves W c (fun i => cutoff - h i) (fun i => cutoff - h' i).
Proof.
rewrite /raises (eq_bigr (fun i => cutoff - h i)) => [|i _]; last by rewrite expr1.
rewrite expr1; case: leP => [near ->|far [amount [amount0 spent ->]]].
  by left; split=> // i iW; rewrite ffunE iW subrr.
by right; split=> //; exists amount; split=> // i iW; rewrite ffunE iW opprD addrA.
Qed.

Lemma norm1_split W (x : vector) : norm1 x = \sum_(i in W) `|x i| + \sum_(i | i \notin W) `|x i|.
Proof. by rewrite /norm1 (bigID (mem W)). Qed.

Theorem raises_nonexpansive W cutoff c h1 h2 h1' h2' :
  0 <= c -> raises 1 W cutoff c h1 h1' -> raises 1 W cutoff c h2 h2' -> norm1 (h1' - h2') <= norm1 (h1 - h2).
Proof.
move=> c0 raises1 raises2; rewrite !(norm1_split W); apply: ler_add; last first.
  apply: ler_sum => i out; rewrite !ffunE /=.
  by rewrite (raises_outside raises1 out) (raises_outside raises2 out).
have := leaves_nonexpansive c0 (raises_leaves raises1) (raises_leaves raises2).
rewrite (eq_bigr (fun i => `|(h1' - h2') i|)) => [|i _]; last by rewrite !ffunE /= distrC; congr `|_|; ring.
rewrite [X in _ <= X -> _](eq_bigr (fun i => `|(h1 - h2) i|)) => [|i _] //.
by rewrite !ffunE /= distrC; congr `|_|; ring.
Qed.

Definition below cutoff h := forall i, h i <= cutoff.

Theorem raises_bounded W cutoff c h h' : below cutoff h -> raises 1 W cutoff c h h' -> norm1 (h' - h) <= c.
Proof.
move=> under raise; rewrite (norm1_split W) [X in _ + X]big1 ?addr0 => [|i out]; last first.
  by rewrite !ffunE /= (raises_outside raise out) subrr normr0.
move: raise; rewrite /raises (eq_bigr (fun i => cutoff - h i)) => [|i _]; last by rewrite expr1.
rewrite expr1; case: leP => [near ->|far [amount [amount0 spent ->]]].
  apply: le_trans near; apply: ler_sum => i iW.
  by rewrite !ffunE iW /= ger0_norm ?subr_ge0 ?under.
rewrite -[X in _ <= X]spent; apply: ler_sum => i iW.
by rewrite !ffunE iW /= addrC addKr expr1 ger0_norm // le_minr subr_ge0 under.
Qed.

Lemma raises_below k W cutoff c h h' : below cutoff h -> raises k W cutoff c h h' -> below cutoff h'.
Proof.
rewrite /raises => under; case: ifP => _ => [-> i|[amount [_ _ ->]] i]; rewrite ffunE; case: ifP => // _.
by rewrite -ler_subr_addl le_minl lexx.
Qed.

Theorem descend_l1_nonexpansive W cutoff c h h' :
  0 <= c -> norm1 (descend_l1 W cutoff c h - descend_l1 W cutoff c h') <= norm1 (h - h').
Proof. by move=> c0; apply: raises_nonexpansive (descend_l1_raises _ _ _ c0) (descend_l1_raises _ _ _ c0). Qed.

Theorem descend_l1_bounded W cutoff c h : 0 <= c -> below cutoff h -> norm1 (descend_l1 W cutoff c h - h) <= c.
Proof. by move=> c0 under; apply: raises_bounded under (descend_l1_raises _ _ _ c0). Qed.

Lemma descend_l1_below W cutoff c h : 0 <= c -> below cutoff h -> below cutoff (descend_l1 W cutoff c h).
Proof. by move=> c0 under; apply: raises_below under (descend_l1_raises _ _ _ c0). Qed.

End Raises.

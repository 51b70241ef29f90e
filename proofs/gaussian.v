(* The facts about normal laws that parts 4 to 10 rest on: stated here, not proved. They are propositions, and each
   theorem that uses one has it as a premise. *)
From mathcomp Require Import all_ssreflect ssralg ssrnum ssrint interval.
From mathcomp.classical Require Import boolp classical_sets.
From mathcomp.analysis Require Import reals ereal measure lebesgue_measure lebesgue_integral sequences exp trigo.
From dpunion Require Import vectors coins.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.POrderTheory Order.TotalTheory.
Local Open Scope ring_scope.

Section Gaussian.
Variable R : realType.

(* The density and the distribution function of a standard normal variable. *)
Definition density (x : R) : R := expR (- (x ^+ 2 / 2%:R)) / Num.sqrt (2%:R * pi).
Definition Phi (x : R) : R := fine (\int[@lebesgue_measure R]_(y in `]-oo, x]%classic) (density y)%:E).

(* The hockey-stick divergence of two normal laws of the same scale, mu scales apart. *)
Definition delta_G (eps mu : R) : R :=
  if mu == 0 then Num.max 0 (1 - expR eps)
  else Phi (mu / 2%:R - eps / mu) - expR eps * Phi (- (mu / 2%:R) - eps / mu).

Definition Phi_is_chance : Prop := forall x, 0 < Phi x <= 1.
Definition Phi_grows : Prop := forall x y, x <= y -> Phi x <= Phi y.
Definition delta_G_grows : Prop := forall eps mu mu', 0 <= mu -> mu <= mu' -> delta_G eps mu <= delta_G eps mu'.

(* The mean of f over a standard normal variable, for f that is not negative; infinity is allowed. *)
Definition normal_mean (f : R -> \bar R) : \bar R := (\int[@lebesgue_measure R]_z (f z * (density z)%:E))%E.

(* How much likelier a draw is under a normal law mu scales away, at the point z of the law that is not moved. *)
Definition ratio (mu z : R) : R := expR (mu * z - mu ^+ 2 / 2%:R).

(* The formula of delta_G (Balle and Wang, Theorem 8): the mean of what the ratio has above e^eps. *)
Definition delta_G_is_mean : Prop := forall eps mu, 0 <= mu ->
  (delta_G eps mu)%:E = normal_mean (fun z => (Num.max 0 (ratio mu z - expR eps))%:E).

(* The sum of two independent normal variables is normal, and their variances add up. *)
Definition normals_add : Prop := forall (mu nu : R) (f : R -> R), measurable_fun setT f -> (forall x, 0 <= f x) ->
  normal_mean (fun z => normal_mean (fun z' => (f (nu * z + mu * z'))%:E))
  = normal_mean (fun z => (f (Num.sqrt (mu ^+ 2 + nu ^+ 2) * z))%:E).

(* The further apart two normal laws are, the faster x delta_G(eps - ln x) grows in x, as long as x is at most e^eps. *)
Definition delta_G_slopes : Prop := forall eps mu mu' x, 0 <= mu -> mu <= mu' -> 1 <= x -> x <= expR eps ->
  x * delta_G (eps - ln x) mu - 1 * delta_G (eps - ln 1) mu
  <= x * delta_G (eps - ln x) mu' - 1 * delta_G (eps - ln 1) mu'.

End Gaussian.

(* The chance that an item of weight w is not released: w plus noise of scale sigma is at most the threshold rho. *)
Definition gaussian_silence (R : realType) (sigma rho w : R) : R := Phi ((rho - w) / sigma).

Definition distance_on (R : realType) (I : finType) (held : {set I}) (x y : {ffun I -> R}) : R :=
  norm2 ([ffun i => if i \in held then x i - y i else 0] : {ffun I -> R}).

(* The Gaussian mechanism (Balle and Wang, Theorem 8), for what is a function of noisy weights: these coins. *)
Definition gaussian_coins (R : realType) : Prop :=
  forall (sigma rho : R) (I : finType) (held : {set I}) (x y : {ffun I -> R}) (a : R) (O : {set {set I}}), 0 < sigma ->
  coins (gaussian_silence sigma rho) held x O
    <= expR a * coins (gaussian_silence sigma rho) held y O + delta_G a (distance_on held x y / sigma).

(* A finite reading of a noisy number: the chance that f (w + sigma * noise) is c. And of a vector of them. *)
Definition reading (R : realType) (C : finType) (sigma : R) (f : R -> C) (w : R) (c : C) : R :=
  fine (\int[@lebesgue_measure R]_(z in [set z | f (w + sigma * z) = c]%classic) (density z)%:E).
Definition readings (R : realType) (C I : finType) (sigma : R) (f : I -> R -> C) (x : {ffun I -> R})
    (s : {ffun I -> C}) : R := \prod_i reading sigma (f i) (x i) (s i).

(* The Gaussian mechanism (Balle and Wang, Theorem 8), for any finite reading of noisy numbers. *)
Definition gaussian_readings (R : realType) : Prop :=
  forall (C I : finType) (sigma : R) (f : I -> R -> C) (x y : {ffun I -> R}), 0 < sigma ->
  (forall i c, measurable [set z | f i z = c]%classic) ->
  [/\ forall s, 0 <= readings sigma f x s, \sum_s readings sigma f x s = 1
    & forall a, \sum_s Num.max 0 (readings sigma f x s - expR a * readings sigma f y s)
                <= delta_G a (norm2 (x - y) / sigma)].

(* The Gaussian facts that part 4 rests on: stated here, not proved. They are propositions, and each theorem that uses
   one has it as a premise. *)
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

"""The mechanisms: what a planned algorithm does in each round, weigh and decide. Read this module second.

    bound -> (weigh -> decide -> narrow)* -> publish

Engines pass everybody's bounded sets and carry arrays between rounds; a round does the same on every engine. A
mechanism has public numbers only. Rounds pass on `Weights` and `State`. `ShareRule` says what each user gives every
item, if all items get the same.

SharesMechanism   each user gives every item the same           Count*, Weighted*, OptimalSingleItem
DescentMechanism  users in turn raise items toward a cutoff      PolicyLaplace, PolicyGaussian
FunnelMechanism   the same in rounds, toward what items need     Funnel
SipsMechanism     shares in rounds, drawn afresh                 DpSips
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from dpunion import algorithms
from dpunion.algorithms import Algorithm, Bounding, Funnel, Norm, PolicyGaussian, Sensitivity
from dpunion.coins import Coins, GaussianCoins, coins_for
from dpunion.contributions import Bools, Float64s, Int64s, Uint64s
from dpunion.errors import InternalError, SensitivityMismatch
from dpunion.kernels.descent import add_shares, descend_ball, descend_l1, descend_l2
from dpunion.plans import Plan, Round, plan_rounds
from dpunion.plans.ngrams import LengthPlan
from dpunion.randomness import RunKey
from dpunion.sets.narrowing import Part, Sets, draw_items
from dpunion.threads import Task

# Shares are whole multiples of this, so their sums are exact and order-free.
SHARE_UNIT = 2.0**-32
# The draws of n-grams of length k start at 16 k: no length has more than 8 rounds, and length 1 uses 0 to 7.
DRAWS_APART = 16
# The draw that marks listed items; n-grams, which have no list, use their length: 2 and more.
MARKS_DRAW = 1


class ShareRule(enum.Enum):
    """What a user with k items gives each of them: 1, 1/k or 1/sqrt(k)."""

    COUNT = "count"
    L1 = "l1"
    L2 = "l2"

    def of_sizes(self, limit: int) -> Int64s:
        """Return the share for each set size 0..limit, in units of 2^-32, rounded down: int64[limit+1]."""
        if self is ShareRule.COUNT:
            return np.full(limit + 1, 2**32, np.int64)
        if self is ShareRule.L1:
            return np.array([0] + [2**32 // k for k in range(1, limit + 1)], np.int64)
        return np.array([0] + [math.isqrt(2**64 // k) for k in range(1, limit + 1)], np.int64)

    def sensitivity(self, norm: Norm, limit: int) -> Sensitivity:
        """Return how far a user with at most `limit` items moves the weights, in this norm."""
        root = math.sqrt(limit)
        more = {(self.COUNT, Norm.L1): float(limit), (self.COUNT, Norm.L2): root, (self.L2, Norm.L1): root}
        return Sensitivity(norm, more.get((self, norm), 1.0))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Weights:
    """A weighted histogram, and its sensitivity.

    units: int64[items] or float64[items], the weights as multiples of `unit`. held: bool[items], whether anybody gave
    weight to the item in this round. noise: the round's noise, if another thread has begun to draw it.

    Guarantees:
    - adding or removing one user changes the weights by at most `sensitivity`;
    - nothing about the values shows in the repr.
    """

    units: npt.NDArray[Any]
    unit: float
    held: Bools
    sensitivity: Sensitivity
    noise: Task[Float64s] | None = None

    def __repr__(self) -> str:
        return f"Weights(<sensitive>, {self.sensitivity})"

    @property
    def values(self) -> Float64s:
        """Return the weights: float64[items]; integers are exact below 2^53 units."""
        return self.units if self.unit == 1.0 else np.multiply(self.units, self.unit, dtype=np.float64)


@dataclass(slots=True, repr=False, eq=False)
class State:
    """The items between rounds. It is never published, but for `released` after the last round.

    released: the items that have passed so far; they take no part in later rounds. listed: the items that are on the
    public list of candidates; None without such a list.

    scores: float64[items]; alive, released, listed: bool[items].
    """

    scores: Float64s
    alive: Bools
    released: Bools
    listed: Bools | None = None

    @classmethod
    def start(cls, items: int, listed: Bools | None = None) -> State:
        """Return the state before the first round."""
        return cls(np.zeros(items), np.ones(items, np.bool_), np.zeros(items, np.bool_), listed)

    def __repr__(self) -> str:
        return "State(<sensitive>)"


class Mechanism(Protocol):
    """A planned algorithm: public numbers and two functions on arrays, one call of each in a round.

    rounds: their number. bounding: how sets are bounded first. cutoff: what items are filled up to; None if a user's
    weights depend on that user's set alone. tells_released: whether the next round needs the released items, rather
    than those alive. skips_gone: whether users give nothing to items that are no longer alive, even in their own sets.
    """

    tells_released: ClassVar[bool]
    skips_gone: ClassVar[bool]

    @property
    def rounds(self) -> int: ...

    @property
    def bounding(self) -> Bounding: ...

    @property
    def cutoff(self) -> float | None: ...

    def weigh(self, sets: Sets, state: State, number: int, key: RunKey, *, share: float = 1.0) -> Weights:
        """Build the histogram of a round; share: the part of each item's need that these users are to fill."""

    def decide(self, weights: Weights, state: State, number: int, digests: Uint64s, key: RunKey) -> State:
        """Decide about every item by its weight and its own draws; refuse weights of a wrong sensitivity."""

    def highest(self, number: int, share: float) -> float:
        """Return the largest weight that an item can have in a round, for a mechanism with a cutoff."""

    def mark(self, digests: Uint64s, key: RunKey) -> Bools:
        """Say which items of a public list come out if nobody keeps them: bool[items].

        Guarantees: each is marked with the chance that noise alone has to release it, whatever the data is.
        """


@dataclass(frozen=True, slots=True)
class SharesMechanism:
    """Each user gives all of their items the same weight, which depends on their number; one round.

    head_start: the weight that a listed item has before anybody gives, so that it passes a lower threshold.
    """

    tells_released: ClassVar[bool] = False
    skips_gone: ClassVar[bool] = False
    rounds: ClassVar[int] = 1
    cutoff: ClassVar[None] = None

    rule: ShareRule
    bounding: Bounding
    coins: Coins
    calibrated: Sensitivity
    draw: int = 0
    head_start: float = 0.0

    def weigh(self, sets: Sets, _state: State, _number: int, _key: RunKey, *, share: float = 1.0) -> Weights:  # noqa: ARG002
        """Add up the shares.

        Guarantees: a user adds to the user's own kept items only, by at most the sensitivity of the rule.
        """
        limit = self.bounding.limit
        units = add_up_shares(sets, self.rule.of_sizes(limit))
        return Weights(units, SHARE_UNIT, units > 0, self.rule.sensitivity(self.coins.norm, limit))

    def decide(self, weights: Weights, state: State, _number: int, digests: Uint64s, key: RunKey) -> State:
        """Toss one coin for each held item.

        Guarantees: refuses weights of another sensitivity than the coins are for.
        """
        check_sensitivity(weights, self.calibrated)
        check_norm(self.coins, self.calibrated)
        if state.listed is not None:
            # A head start of whole units, so that sums stay exact.
            lifted = weights.units + self._start_units * state.listed
            weights = dataclasses.replace(weights, units=lifted)
        return toss(self.coins, weights, state, self.draw, digests, key)

    @property
    def _start_units(self) -> int:
        return math.floor(self.head_start / SHARE_UNIT)

    def highest(self, _number: int, _share: float) -> float:
        """Shares are whole numbers of their own unit."""
        raise InternalError("shares have no cutoff")

    def mark(self, digests: Uint64s, key: RunKey) -> Bools:
        """Toss the same coins for items without weight."""
        return self.coins.toss(self.draw, digests, np.full(len(digests), self._start_units * SHARE_UNIT), key)


@dataclass(frozen=True, slots=True)
class DescentMechanism:
    """Users in turn raise their items toward a cutoff, by a distance of 1 in the norm; one round.

    visits: the cutoff and the part of the users' budget, for each pass over the users. head_start: the weight at which
    a listed item begins, so that it has a lower threshold and, by the same margins, lower cutoffs.
    """

    tells_released: ClassVar[bool] = False
    skips_gone: ClassVar[bool] = False
    rounds: ClassVar[int] = 1

    norm: Norm
    visits: tuple[tuple[float, float], ...]
    bounding: Bounding
    coins: Coins
    calibrated: Sensitivity
    draw: int = 0
    head_start: float = 0.0

    @property
    def cutoff(self) -> float:
        """Return the highest cutoff, that of the last pass."""
        return self.visits[-1][0]

    def weigh(self, sets: Sets, state: State, _number: int, _key: RunKey, *, share: float = 1.0) -> Weights:
        """Let every user raise that user's items toward the share of the cutoff, in each pass by its part of 1.

        Guarantees: one user moves the weights by at most 1 in the norm, plus rounding (docs/guarantees.md, Theorem 3).
        """
        weights = np.zeros(len(sets))
        if state.listed is not None:
            if share != 1.0:
                raise InternalError("shards cannot share out a head start")
            weights[state.listed] = self.head_start
        for cutoff, budget in self.visits:
            for part in sets.wanting(functools.partial(np.not_equal, weights, cutoff * share)):
                self.visit(part, weights, cutoff * share, budget)
        return Weights(weights, 1.0, sets.held, Sensitivity(self.norm, 1.0))

    def visit(self, part: Part, weights: Float64s, cutoff: float, budget: float) -> None:
        """Let some users in turn raise their items toward the cutoff; in place on weights, float64[items].

        Guarantees:
        - one user moves the weights by at most `budget` in the norm; two histograms never move apart;
        - an item at the cutoff changes nothing, to the last bit: sets may come with or without it.
        """
        if self.norm is Norm.L1:
            descend_l1(part.offsets, part.items, weights, cutoff, budget, np.empty(self.bounding.limit))
        else:
            descend_l2(part.offsets, part.items, weights, cutoff, budget)

    def decide(self, weights: Weights, state: State, _number: int, digests: Uint64s, key: RunKey) -> State:
        """Toss one coin for each held item.

        Guarantees: refuses weights of another sensitivity than the coins are for.
        """
        check_sensitivity(weights, self.calibrated)
        check_norm(self.coins, self.calibrated)
        return toss(self.coins, weights, state, self.draw, digests, key)

    def highest(self, _number: int, share: float) -> float:
        """Return the share of the cutoff."""
        return self.cutoff * share

    def mark(self, digests: Uint64s, key: RunKey) -> Bools:
        """Toss the same coins for items to which nobody gives."""
        return self.coins.toss(self.draw, digests, np.full(len(digests), self.head_start), key)


@dataclass(frozen=True, slots=True)
class ListedRounds:
    """Funnel's rounds, cutoffs and aims for items of a public list; chance: that noise alone releases such an item."""

    numbers: tuple[Round, ...]
    cutoffs: tuple[float, ...]
    aims: tuple[float, ...]
    chance: float


@dataclass(frozen=True, slots=True)
class FunnelMechanism:
    """Several noisy rounds toward what items need; each drops hopeless items (docs/guarantees-funnel.md).

    cutoffs: what an item needs in each round. aims: what each round aims to give an item for each unit that it still
    needs. draw: the number of the first round's noise. listed: the same numbers for the items of a public list.
    """

    tells_released: ClassVar[bool] = False
    skips_gone: ClassVar[bool] = True

    numbers: tuple[Round, ...]
    cutoffs: tuple[float, ...]
    aims: tuple[float, ...]
    bounding: Bounding
    calibrated: Sensitivity
    draw: int = 0
    listed: ListedRounds | None = None

    def __post_init__(self) -> None:
        spent = math.hypot(*(one.budget for one in self.numbers))
        if self.calibrated.norm is not Norm.L2 or abs(spent - self.calibrated.bound) > 1e-12:
            raise SensitivityMismatch("the rounds spend another budget than the noise was calibrated to")

    @property
    def rounds(self) -> int:
        return len(self.numbers)

    @property
    def cutoff(self) -> float:
        """Return the highest cutoff, that of the first round."""
        return self.cutoffs[0]

    def _each(self, listed: Bools | None, read: Callable[[Any], float]) -> float | Float64s:
        """Return a number of the rounds: the same for all items, or that of the list for the listed ones."""
        if self.listed is None or listed is None:
            return read(self)
        return np.where(listed, read(self.listed), read(self))

    def targets(self, scores: Float64s, number: int, listed: Bools | None = None) -> Float64s:
        """Return what each item should get in a round: its need times the round's aim; nothing once it has passed.

        Guarantees: in the first round no listed item's target exceeds that of the others (Theorem L, condition a).
        """
        needs: Float64s = np.maximum(0.0, self._each(listed, lambda one: one.cutoffs[number]) - scores)
        needs *= self._each(listed, lambda one: one.aims[number])
        if number == 0 and listed is not None:
            np.minimum(needs, self.cutoffs[0] * self.aims[0], out=needs)
        needs[self.passed(scores, listed)] = 0.0
        return needs

    def passed(self, scores: Float64s, listed: Bools | None = None) -> Bools:
        """Say which scores have exceeded the threshold: such items are released, whatever follows: bool[items]."""
        return scores > self._each(listed, lambda one: one.numbers[-1].threshold)

    def weigh(self, sets: Sets, state: State, number: int, key: RunKey, *, share: float = 1.0) -> Weights:
        """Let every user close the gaps of their alive items, along a straight line, by the round's budget.

        Guarantees: given the public scores, one user moves the weights by at most the budget in l2 norm (Lemma F1).
        """
        budget = self.numbers[number].budget
        noise = sets.start(self.draw_noise, state, number, sets.digests, key)
        targets = self.targets(state.scores, number, state.listed)
        targets[~state.alive] = 0.0
        if share != 1.0:
            targets *= share
        gaps = targets.copy()
        for part in sets.wanting(functools.partial(np.not_equal, gaps, 0.0)):
            self.visit(part, gaps, budget)
        targets -= gaps
        held = sets.held if number == 0 else state.alive
        return Weights(targets, 1.0, held, Sensitivity(Norm.L2, budget), noise)

    def visit(self, part: Part, gaps: Float64s, budget: float) -> None:
        """Let some users in turn close the gaps of their items, straight; in place on gaps, float64[items].

        Guarantees:
        - one user moves the gaps by at most `budget` in l2 norm; two histograms of gaps never move apart;
        - an item without a gap changes nothing, to the last bit: sets may come with or without it.
        """
        descend_ball(part.offsets, part.items, gaps, budget)

    def living(self, state: State) -> Int64s:
        """Return the items that take part in a round: those alive that have not passed: int64[n]."""
        return np.flatnonzero(state.alive & ~self.passed(state.scores, state.listed))

    def draw_noise(self, state: State, number: int, digests: Uint64s, key: RunKey) -> Float64s:
        """Draw the noise of those items for this round, in standard deviations: float64[n]."""
        return key.normals(self.draw + number, digests.take(self.living(state), axis=0))

    def decide(self, weights: Weights, state: State, number: int, digests: Uint64s, key: RunKey) -> State:
        """Add the round's noisy weights to the scores; above the line an item stays, above the threshold it passes.

        What has passed keeps its score, and is released after the last round with what passes then.

        Guarantees:
        - refuses weights of another sensitivity than the round's;
        - each item's noise of each round is a function of the run key, the round and the item's bytes;
        - an item kept by nobody is never released here; `mark` decides about those of a public list.
        """
        one = self.numbers[number]
        check_sensitivity(weights, Sensitivity(Norm.L2, one.budget))
        scores, alive = state.scores, state.alive & weights.held
        drawn = self.draw_noise(state, number, digests, key) if weights.noise is None else weights.noise.result()
        living = self.living(state)
        given = weights.held[living]
        living, noise = living[given], drawn[given]
        # Shards together may give too much: the part above what lifts the score to the cutoff does not count.
        listed = None if state.listed is None else state.listed[living]
        most = np.maximum(0.0, self._each(listed, lambda one: one.cutoffs[number]) - scores[living]) / one.budget
        scores[living] += one.budget * (np.minimum(weights.values[living], most) + one.stddev * noise)
        alive[living] = scores[living] > self._each(listed, lambda one: one.numbers[number].threshold)
        return State(scores, alive, alive & self.passed(scores, state.listed), state.listed)

    def highest(self, number: int, _share: float) -> float:
        """Return the need of the lowest score that can be alive, whatever the share."""

        def need(kind: FunnelMechanism | ListedRounds) -> float:
            lowest = min([0.0, *(earlier.threshold for earlier in kind.numbers[:number])])
            return (kind.cutoffs[number] - lowest) * kind.aims[number]

        return need(self) if self.listed is None else max(need(self), need(self.listed))

    def mark(self, digests: Uint64s, key: RunKey) -> Bools:
        """Toss one coin with the chance that a walk of pure noise is released."""
        if self.listed is None:
            raise InternalError("a funnel without a list was asked for marks")
        return key.marks(MARKS_DRAW, digests, self.listed.chance)


@dataclass(frozen=True, slots=True)
class SipsMechanism:
    """Shares of newly drawn items in every round; released items take no further part (Swanberg et al. 2023)."""

    tells_released: ClassVar[bool] = True
    skips_gone: ClassVar[bool] = False
    cutoff: ClassVar[None] = None

    numbers: tuple[Round, ...]
    limit: int
    bounding: Bounding
    calibrated: Sensitivity

    @property
    def rounds(self) -> int:
        return len(self.numbers)

    def weigh(self, sets: Sets, _state: State, number: int, key: RunKey, *, share: float = 1.0) -> Weights:  # noqa: ARG002
        """Draw at most `limit` of each user's remaining items and add up their shares.

        Guarantees: one user moves the weights by at most 1 in l2 norm, by a draw from the user's own items.
        """
        shares = ShareRule.L2.of_sizes(self.limit)
        units = np.zeros(len(sets), np.int64)
        for part in sets:
            drawn = draw_items(part, sets.digests, self.limit, number, key)
            add_shares(drawn.offsets, drawn.items, shares, units)
        return Weights(units, SHARE_UNIT, units > 0, ShareRule.L2.sensitivity(Norm.L2, self.limit))

    def decide(self, weights: Weights, state: State, number: int, digests: Uint64s, key: RunKey) -> State:
        """Toss one coin for each item that was drawn by somebody.

        Guarantees: refuses weights of another sensitivity than the round's.
        """
        one = self.numbers[number]
        check_sensitivity(weights, self.calibrated)
        passed = toss(GaussianCoins(one.threshold, one.stddev), weights, state, number, digests, key).released
        released = state.released | passed
        return State(state.scores, ~released, released)

    def highest(self, _number: int, _share: float) -> float:
        """Shares are whole numbers of their own unit."""
        raise InternalError("shares have no cutoff")

    def mark(self, _digests: Uint64s, _key: RunKey) -> Bools:
        """Fail: plans of DP-SIPS refuse candidates."""
        raise InternalError("DP-SIPS has no candidates")


def add_up_shares(sets: Sets, share_of_size: Int64s) -> Int64s:
    """Return the sum of everybody's shares, in whole units: int64[items].

    Guarantees: a user with k items adds share_of_size[k] to each of them and nothing elsewhere; sums are exact.
    """
    units = np.zeros(len(sets), np.int64)
    for part in sets:
        add_shares(part.offsets, part.items, share_of_size, units)
    return units


def check_sensitivity(weights: Weights, calibrated: Sensitivity) -> None:
    """Refuse weights whose sensitivity is not what the noise was calibrated to.

    Guarantees: no decision is made on weights that one user can move further than the noise hides.
    """
    if weights.sensitivity != calibrated:
        raise SensitivityMismatch("the weights and the noise assume different sensitivities")


def check_norm(coins: Coins, calibrated: Sensitivity) -> None:
    """Refuse noise that does not hide distances of the norm it was calibrated to."""
    if coins.norm is not calibrated.norm:
        raise SensitivityMismatch("the noise was calibrated to distances of another norm")


def toss(coins: Coins, weights: Weights, state: State, draw: int, digests: Uint64s, key: RunKey) -> State:
    """Toss one coin for each held item.

    Guarantees:
    - an item's coin is a function of the run key and the item's bytes, not of where it stands;
    - an item kept by nobody is never released here; `mark` decides about those of a public list.
    """
    passed = coins.toss(draw, digests, weights.values, key) & weights.held
    return State(state.scores, passed, passed)


# ------------------------------------------------------------------------------------------ from plans to mechanisms


def mechanism_for(plan: Plan) -> Mechanism:
    """Return the mechanism of a plan."""
    return MECHANISMS[type(plan.algorithm)](plan)


def _shares(rule: ShareRule) -> Callable[[Plan], Mechanism]:
    return lambda plan: SharesMechanism(
        rule, plan.algorithm.bounding, coins_for(plan), plan.sensitivity, head_start=head_start(plan)
    )


def head_start(plan: Plan) -> float:
    """Return the weight at which listed items begin: it lowers their threshold to the planned one."""
    return 0.0 if plan.candidates is None else plan.threshold - plan.candidates.threshold


def _descent(norm: Norm) -> Callable[[Plan], Mechanism]:
    def descent(plan: Plan) -> Mechanism:
        algorithm: Any = plan.algorithm
        visits = algorithm.visits(plan.scale, plan.threshold)
        start = head_start(plan)
        return DescentMechanism(norm, visits, algorithm.bounding, coins_for(plan), plan.sensitivity, head_start=start)

    return descent


def _funnel(plan: Plan) -> Mechanism:
    algorithm: Any = plan.algorithm
    cutoffs = algorithm.cutoffs(plan.scale, plan.threshold)
    listed = None
    if plan.candidates is not None:
        shape, threshold = algorithm.for_listed, plan.candidates.threshold
        rounds = plan_rounds(shape, plan.scale, threshold)
        listed = ListedRounds(rounds, shape.cutoffs(plan.scale, threshold), shape.aims, plan.candidates.chance)
    return FunnelMechanism(plan.rounds, cutoffs, algorithm.aims, algorithm.bounding, plan.sensitivity, listed=listed)


MECHANISMS: dict[type[Algorithm], Callable[[Plan], Mechanism]] = {
    algorithms.CountLaplace: _shares(ShareRule.COUNT),
    algorithms.CountGaussian: _shares(ShareRule.COUNT),
    algorithms.OptimalSingleItem: _shares(ShareRule.COUNT),
    algorithms.WeightedLaplace: _shares(ShareRule.L1),
    algorithms.WeightedGaussian: _shares(ShareRule.L2),
    algorithms.PolicyLaplace: _descent(Norm.L1),
    PolicyGaussian: _descent(Norm.L2),
    Funnel: _funnel,
    algorithms.DpSips: lambda plan: SipsMechanism(
        plan.rounds, plan.algorithm.max_items_per_user, plan.algorithm.bounding, plan.sensitivity
    ),
}


def mechanism_on_candidates(plan: LengthPlan, threshold: float) -> Mechanism:
    """Return the mechanism for public candidates of one length (2 and more), with the draws of that length."""
    algorithm, stddev, length = plan.algorithm, plan.stddev, plan.length
    bounding, coins, one = algorithm.bounding, GaussianCoins(threshold, stddev), Sensitivity(Norm.L2, 1.0)
    if isinstance(algorithm, Funnel):
        rounds = plan_rounds(algorithm, stddev, threshold)
        cutoffs = algorithm.cutoffs(stddev, threshold)
        return FunnelMechanism(rounds, cutoffs, algorithm.aims, bounding, one, DRAWS_APART * length)
    if isinstance(algorithm, PolicyGaussian):
        return DescentMechanism(Norm.L2, algorithm.visits(stddev, threshold), bounding, coins, one, length)
    return SharesMechanism(ShareRule.L2, bounding, coins, one, length)

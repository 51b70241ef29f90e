"""Exact audits of tiny databases: the whole distribution of the output in both worlds, and their divergence.

For a fixed order of the users, a release of one round tosses one independent coin per item, and DP-SIPS is a tree of
such coins. In a Funnel of two rounds, the scores after round 1 are independent normals; the second round is integrated
over them numerically. There is no bounding: no user of these databases has more items than the limit.

With a public list of candidates, `listed` says which items are on it, bool[items]. One that nobody has comes out with
the chance of its mark.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dpunion.algorithms import (
    ALGORITHMS,
    Algorithm,
    CountGaussian,
    DpSips,
    Funnel,
    OptimalSingleItem,
    PolicyGaussian,
    WeightedGaussian,
)
from dpunion.budget import Budget
from dpunion.calibration.bounds import laplace_chances
from dpunion.calibration.gaussian import gaussian_chances
from dpunion.contributions import Bools, Contributions, Float64s, ItemTable, Uint64s, offsets_of
from dpunion.errors import BadParameter
from dpunion.mechanisms import State, mechanism_for
from dpunion.plans import Plan, plan_release
from dpunion.plans.candidates import WITHOUT_LISTS, add_candidates, plan_for_listed
from dpunion.plans.counts import Counts
from dpunion.randomness import KEY_BYTES, RunKey
from dpunion.requests import Candidates
from dpunion.sets.narrowing import Sets
from dpunion_lab.audit.examples import table
from dpunion_lab.audit.runs import User

# The algorithms that toss coins and allow counts.
COUNTED = (WeightedGaussian, PolicyGaussian, CountGaussian, DpSips)
# Gauss-Legendre points in each piece, and pieces per standard deviation of a score.
POINTS = 6
PIECES_PER_STDDEV = 2.0
# No score is further from its mean than this many standard deviations (probability 1e-18).
REACH = 9.0
# The chance that a candidate comes out which nobody has: large, so that mistakes with it show.
LISTED_ERROR = 0.05


def hockey_stick(one: Float64s, other: Float64s, epsilon: float, mu: float = 0.0) -> float:
    """Return max over events of one(O) - e^epsilon other(O): the exact delta of telling `one` from `other`.

    mu: each outcome comes with a normal number, which in `one` is larger by this many standard deviations. The best
    event then has a threshold on the number for each outcome.
    """
    if mu == 0.0:
        return float(np.maximum(0.0, one - math.exp(epsilon) * other).sum())
    both = (one > 0.0) & (other > 0.0)
    p, q = one[both], other[both]
    lines = (epsilon - np.log(p) + np.log(q)) / mu
    hits, misses = (gaussian_chances(-lines, -shift, 1.0) for shift in (0.5 * mu, -0.5 * mu))
    beyond = float(one[other == 0.0].sum())
    return beyond + float(np.maximum(0.0, p * hits - math.exp(epsilon) * q * misses).sum())


def counts_mu(plan: Plan) -> float:
    """Return by how many standard deviations one person can move the noisy sums of counting; 0 without counts."""
    if plan.counts is None:
        return 0.0
    return math.hypot(*(1.0 / stddev for stddev in plan.counts.stddevs))


def gaussian_parts_delta(plan: Plan) -> float:
    """Return the exact delta of all noise of a plan, from selection and counting, if no item is novel."""
    mu = math.hypot(plan.sensitivity.bound / plan.scale, counts_mu(plan))
    return hockey_stick(np.ones(1), np.ones(1), plan.budget.epsilon, mu)


def database(users: tuple[User, ...], size: int, limit: int, copies: int = 1) -> Contributions:
    """Return the contributions of these users in this order, with only the parts that weighing uses.

    copies: of the database, one after the other; each has its own items.
    """
    if any(len(items) > limit or len(set(items)) < len(items) for items in users):
        raise BadParameter("A user of an exact audit has too many items, or one twice.", "Use smaller users.")
    offsets = offsets_of(np.tile(np.array([len(items) for items in users], np.int64), copies))
    items = np.array([item for items in users for item in sorted(items)], np.int32)
    items = (items + size * np.arange(copies, dtype=np.int32)[:, None]).ravel()
    total = size * copies
    nameless = ItemTable(np.zeros(total + 1, np.int64), np.empty(0, np.uint8), np.zeros((total, 2), np.uint64))
    return Contributions(offsets, items, nameless, np.zeros((len(users) * copies, 2), np.uint64), limit)


def coin_laws(chances: Float64s) -> Float64s:
    """Return the distribution of independent coins over subsets: chances float64[n, items] -> float64[n, 2^items].

    Bit i of a subset's number says whether item i is in it.
    """
    laws = np.ones((len(chances), 1))
    for item in range(chances.shape[1]):
        chance = chances[:, item : item + 1]
        laws = np.concatenate([laws * (1.0 - chance), laws * chance], axis=1)
    return laws


class NotingKey(RunKey):
    """A key that tosses no coins: it records the probability of each release, and lets every item pass."""

    __slots__ = ("chances",)

    chances: Float64s

    def decide_gaussian(
        self,
        round: int,  # noqa: A002, ARG002
        digests: Uint64s,  # noqa: ARG002
        weights: Float64s,
        *,
        threshold: float,
        stddev: float,
    ) -> Bools:
        """Record the probabilities of Gaussian decisions."""
        return self._record(gaussian_chances(weights, threshold, stddev))

    def decide_laplace(
        self,
        round: int,  # noqa: A002, ARG002
        digests: Uint64s,  # noqa: ARG002
        weights: Float64s,
        *,
        threshold: float,
        scale: float,
    ) -> Bools:
        """Record the probabilities of Laplace decisions."""
        return self._record(laplace_chances(weights, threshold, scale))

    def coins(
        self,
        round: int,  # noqa: A002, ARG002
        digests: Uint64s,  # noqa: ARG002
        prob_small: Float64s,
        release_when_hit: Bools,
    ) -> Bools:
        """Record the probabilities of plain coins."""
        return self._record(np.where(release_when_hit, prob_small, 1.0 - prob_small))

    def _record(self, chances: Float64s) -> Bools:
        self.chances = chances
        return np.ones(len(chances), np.bool_)


def release_chances(
    plan: Plan, users: tuple[User, ...], size: int, number: int = 0, listed: Bools | None = None
) -> Float64s:
    """Return the probability that a round releases each item, for algorithms that toss coins: float64[size].

    The mechanism itself weighs, decides and marks; only the key tosses no coins.
    """
    key, mechanism, state = NotingKey(bytes(KEY_BYTES), is_test=True), mechanism_for(plan), State.start(size, listed)
    sets = Sets(database(users, size, plan.algorithm.max_items_per_user))
    weights = mechanism.weigh(sets, state, number, key)
    passed = mechanism.decide(weights, state, number, sets.digests, key).released
    chances = np.where(passed, key.chances, 0.0)
    if listed is None:
        return chances
    mechanism.mark(sets.digests, key)
    return np.where(listed & ~weights.held, key.chances, chances)


def output_law(plan: Plan, users: tuple[User, ...], size: int, listed: Bools | None = None) -> Float64s:
    """Return the probability of every output, for users in this order: float64[2^size]."""
    match plan.algorithm:
        case Funnel():
            return funnel_law(plan, users, size, listed)
        case DpSips():
            law = np.zeros(2**size)
            _sips_branch(plan, users, size, 0, 0, 1.0, law)
            return law
        case _:
            laws: Float64s = coin_laws(release_chances(plan, users, size, 0, listed)[None, :])[0]
            return laws


def _sips_branch(
    plan: Plan, users: tuple[User, ...], size: int, number: int, released: int, chance: float, law: Float64s
) -> None:
    """Add all outputs that are possible after `released` to the law, from round `number` on, one branch for each."""
    if number == len(plan.rounds):
        law[released] += chance
        return
    left = tuple(tuple(item for item in items if not released >> item & 1) for items in users)
    chances = release_chances(plan, left, size, number)
    for subset, part in enumerate(coin_laws(chances[None, :])[0].tolist()):
        if part > 0.0:
            _sips_branch(plan, users, size, number + 1, released | subset, chance * part, law)


def funnel_law(plan: Plan, users: tuple[User, ...], size: int, listed: Bools | None = None) -> Float64s:
    """Return the law of the output of a Funnel of one or two rounds: float64[2^size]."""
    if len(plan.rounds) > 2 or size > 3:
        raise BadParameter("An exact law of Funnel needs at most 2 rounds and 3 items.", "Use a smaller Funnel.")
    mechanism, limit = mechanism_for(plan), plan.algorithm.max_items_per_user
    key = RunKey(bytes(KEY_BYTES), is_test=True)
    first, state = plan.rounds[0], State.start(size, listed)
    on_list = np.zeros(size, np.bool_) if listed is None else listed
    # What an item's score must exceed after each round.
    lines = [
        np.where(on_list, lower.threshold, one.threshold)
        for one, lower in zip(plan.rounds, plan_for_listed(plan).rounds, strict=True)
    ]
    weights = mechanism.weigh(Sets(database(users, size, limit)), state, 0, key)
    held, means, stddev = weights.held, first.budget * weights.values, first.budget * first.stddev
    unkept = 0.0 if plan.candidates is None else np.where(on_list & ~held, plan.candidates.chance, 0.0)
    if len(plan.rounds) == 1:
        chances = np.where(held, gaussian_chances(means - lines[0], 0.0, stddev), unkept)
        return np.asarray(coin_laws(chances[None, :])[0])
    scores, masses, alive = _score_grid(lines, means, stddev, held)
    second = plan.rounds[1]
    # Every point of the grid is a copy of the database with other items, so one call of the kernels does them all.
    points = len(scores)
    sets = Sets(database(users, size, limit, points))
    sets.narrow(alive.ravel())
    copied_list = None if listed is None else np.tile(listed, points)
    state = State(scores.ravel(), alive.ravel(), np.zeros(points * size, np.bool_), copied_list)
    more = mechanism.weigh(sets, state, 1, key).values
    totals = scores + second.budget * more.reshape(points, size)
    chances = np.where(alive, gaussian_chances(totals - lines[1], 0.0, second.budget * second.stddev), unkept)
    chances[alive & (scores > lines[1])] = 1.0  # passed in round 1
    return np.asarray(masses @ coin_laws(chances))


def _score_grid(
    lines: Sequence[Float64s], means: Float64s, stddev: float, held: Bools
) -> tuple[Float64s, Float64s, Bools]:
    """Return scores float64[points, items], their masses float64[points] and which are alive bool[points, items].

    Each item is below the keep line, which is one point with all of that mass, or at a Gauss-Legendre point above it.
    A piece ends at the threshold: the second round is not continuous there, as an item above it has passed.
    """
    nodes, widths = np.polynomial.legendre.leggauss(POINTS)
    each: list[tuple[Float64s, Float64s]] = []
    for line, threshold, mean, is_held in zip(*(row.tolist() for row in (*lines, means, held)), strict=True):
        # The first point of an item means "not alive".
        if not is_held:
            each.append((np.zeros(1), np.ones(1)))
            continue
        top = max(line, mean + REACH * stddev)
        edges = [line, threshold, top] if line < threshold < top else [line, top]
        places: list[float] = []
        lengths: list[float] = []
        for low, high in itertools.pairwise(edges):
            pieces = max(1, math.ceil(PIECES_PER_STDDEV * (high - low) / stddev))
            half = 0.5 * (high - low) / pieces
            for piece in range(pieces):
                places += (low + (2 * piece + 1 + nodes) * half).tolist()
                lengths += (widths * half).tolist()
        scaled = (np.array(places) - mean) / stddev
        below = gaussian_chances(np.array([-mean]), -line, stddev)
        density = np.exp(-0.5 * scaled**2) / (math.sqrt(2.0 * math.pi) * stddev) * np.array(lengths)
        each.append((np.r_[0.0, places], np.r_[below, density]))
    index = np.stack(np.meshgrid(*[np.arange(len(one[0])) for one in each], indexing="ij"), axis=-1)
    index = index.reshape(-1, len(each))
    scores = np.stack([one[0][index[:, i]] for i, one in enumerate(each)], axis=1)
    masses = np.prod(np.stack([one[1][index[:, i]] for i, one in enumerate(each)], axis=1), axis=1)
    return scores, masses, index > 0


def divergence(
    plan: Plan, rest: tuple[User, ...], extra: User, place: int, size: int, listed: Bools | None = None
) -> float:
    """Return the exact delta of the extra user at `place` among the others, at the plan's epsilon."""
    with_extra = output_law(plan, (*rest[:place], extra, *rest[place:]), size, listed)
    return _either_way(with_extra, output_law(plan, rest, size, listed), plan)


def _either_way(one: Float64s, other: Float64s, plan: Plan) -> float:
    """Return the delta of two laws in both directions; with counts, one person moves these as far as possible."""
    epsilon, mu = plan.budget.epsilon, counts_mu(plan)
    return max(hockey_stick(one, other, epsilon, mu), hockey_stick(other, one, epsilon, mu))


def supported_databases(plan: Plan, size: int) -> Iterator[tuple[User, ...]]:
    """Yield small databases with items of no, few and enough users.

    Each item has 0, 1 or about a threshold of users without any other item; up to two users have all items. With a list
    of candidates, an item may have a few users, and it matters which item has how many.
    """
    near = max(2, round(plan.threshold - plan.scale))
    levels = [0, 1, 4, near] if plan.candidates else sorted({0, 1, near, near + max(1, round(plan.scale))})
    everything = tuple(range(min(size, plan.algorithm.max_items_per_user)))
    pick = itertools.combinations_with_replacement(levels, size)
    for counts in itertools.product(levels, repeat=size) if plan.candidates else pick:
        alone = tuple((item,) for item, count in enumerate(counts) for _ in range(count))
        for wide in range(2 if plan.candidates else 3):
            yield alone + (everything,) * wide


def largest_divergence(plan: Plan, size: int) -> tuple[float, int]:
    """Return the largest exact delta over small databases and extra users, first or last, and the number of cases.

    With candidates, the first item or all items are listed.
    """
    worst, tried = 0.0, 0
    most = min(size, plan.algorithm.max_items_per_user)
    extras = [items for count in range(1, most + 1) for items in itertools.combinations(range(size), count)]
    lists = [None] if plan.candidates is None else [np.arange(size) < count for count in (1, size)]
    for rest, listed in itertools.product(supported_databases(plan, size), lists):
        without = output_law(plan, rest, size, listed)
        for extra in extras:
            for users in {(extra, *rest), (*rest, extra)}:
                worst = max(worst, _either_way(output_law(plan, users, size, listed), without, plan))
                tried += 1
    return worst, tried


def lone_user_delta(plan: Plan, novel: int) -> float:
    """Return the exact delta of a lone user with this many novel items, in a release of one round.

    Without counts, that is the probability that any of them is released.
    """
    quiet = float(np.log1p(-release_chances(plan, (tuple(range(novel)),), novel)).sum())
    return _either_way(np.array([math.exp(quiet), -math.expm1(quiet)]), np.array([1.0, 0.0]), plan)


def exact_algorithms(*, counts: bool = False) -> list[Algorithm]:
    """Return the algorithms that are small enough for an exact law. counts: only those that allow counts."""
    if counts:
        return [Funnel(max_items_per_user=2, rounds=2), *(kind(max_items_per_user=2) for kind in COUNTED)]
    small = [kind(max_items_per_user=2) for kind in ALGORITHMS.values() if kind not in (Funnel, OptimalSingleItem)]
    return [Funnel(max_items_per_user=2, rounds=2), *small, OptimalSingleItem()]


@dataclass(frozen=True, slots=True)
class ExactReport:
    """The largest exact delta over tiny databases, divided by the claim, for each algorithm and claimed delta."""

    epsilon: float
    deltas: tuple[float, ...]
    parts: dict[str, tuple[float, ...]]
    tried: int

    @property
    def violations(self) -> list[str]:
        """Return the algorithms whose exact delta exceeds the claim."""
        return [name for name, parts in self.parts.items() if max(parts) > 1.0]

    def text(self) -> str:
        """Return the table with an explanation."""
        rows = [
            [name, *[f"{part:.5f}" + (" VIOLATED" if part > 1.0 else "") for part in parts]]
            for name, parts in self.parts.items()
        ]
        return (
            table(["exact delta / claim", *[f"at {delta:g}" for delta in self.deltas]], rows)
            + f"\n\nThe whole law of the output in both worlds of {self.tried} tiny neighbouring databases, "
            f"at epsilon {self.epsilon:g}."
        )


def audit_exactly(
    epsilon: float = 1.0,
    deltas: Sequence[float] = (0.02, 1e-3, 1e-6, 1e-9),
    counts: Counts | None = None,
) -> ExactReport:
    """Compute the largest exact delta over the tiny databases, for each algorithm, with and without candidates.

    counts: audit releases with these counts.
    """
    found: dict[str, tuple[float, ...]] = {}
    tried = 0
    cases = itertools.product(exact_algorithms(counts=counts is not None), (False, True))
    for algorithm, has_list in cases:
        if has_list and algorithm.name in WITHOUT_LISTS:
            continue
        parts = []
        for delta in deltas:
            plan = plan_release(algorithm, Budget(epsilon, delta), counts)
            worst, count = largest_divergence(with_list(plan) if has_list else plan, 2)
            worst = worst if counts is None else max(worst, gaussian_parts_delta(plan))
            parts.append(worst / delta)
            tried += count
        name = algorithm.name + (" (2 rounds)" if isinstance(algorithm, Funnel) else "")
        found[name + (", candidates" if has_list else "")] = tuple(parts)
    return ExactReport(epsilon, tuple(deltas), found, tried)


def with_list(plan: Plan, error: float = LISTED_ERROR) -> Plan:
    """Return the plan with the numbers for a public list of a few candidates."""
    return add_candidates(plan, Candidates(["a", "b"]).read(), error)

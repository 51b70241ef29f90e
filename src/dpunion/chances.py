"""How likely an item is released, by the number of people who have it: computed from a plan, without any data.

The model: n people hold the item, and each of them holds `set_size` items in all. What their other items are matters
to algorithms that look at them, so there are three companies (see `Company`). For Count, Weighted, Policy and
OptimalSingleItem the chance is computed exactly in the model. For DP-SIPS it is exact where a person's items all
count. Funnel's is simulated, to about one percentage point. Where a person has more items
than count, each of them is taken to be kept independently.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import assert_never

import numpy as np

from dpunion.algorithms import (
    CountGaussian,
    CountLaplace,
    DpSips,
    Funnel,
    OptimalSingleItem,
    PolicyGaussian,
    PolicyLaplace,
    WeightedGaussian,
    WeightedLaplace,
)
from dpunion.calibration import bounds
from dpunion.calibration.bounds import laplace_chances
from dpunion.calibration.gaussian import gaussian_chances
from dpunion.checks import check_whole
from dpunion.contributions import Bools, Float64s, Int64s
from dpunion.errors import BadParameter
from dpunion.ngrams.plans import NgramPlan
from dpunion.plans import Noise, Plan, Round
from dpunion.plans.menus import MenuPlan

MOST_HOLDERS = 100_000
LARGEST_SET = 10_000
POINTS_PER_DECADE = 14
SEARCHED = 4
SETTLED = 5e-5
TRIALS = 20_000
CROWD, CROWD_ITEMS = 512, 40_000
MOST_STEPS = 64
SET_SIZES = (1, 10, 100)
EVEN, LIKELY = 0.5, 0.9
SELDOM = 0.025
HEAD = ("items each", f"chance {100 * EVEN:.0f} %", f"chance {100 * LIKELY:.0f} %")

Chances = Callable[[Float64s], Float64s]
"""The chance of release by the number of people who keep the item: float64[m] -> float64[m]."""


class Company(enum.Enum):
    """What else the holders of an item hold.

    RARE: items that nobody else holds. EQUAL: the same items as each other, all as popular as this one. POPULAR: items
    so popular that others have already seen to them.
    """

    RARE = "rare"
    EQUAL = "equal"
    POPULAR = "popular"


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The chance that an item is released. holders: int64[points], rising; chances: float64[points]."""

    plan: Plan
    set_size: int
    company: Company
    holders: Int64s
    chances: Float64s

    def holders_for(self, chance: float) -> int | None:
        """Return about how many people must hold an item for it to come out with this chance; None: no number does."""
        reached = np.flatnonzero(self.chances >= chance)
        if len(reached) == 0:
            return None
        at = int(reached[0])
        if at == 0:
            return int(self.holders[0])
        low, high = self.chances[at - 1 : at + 1].tolist()
        part = (chance - low) / (high - low)
        first, last = self.holders[at - 1 : at + 1].tolist()
        return math.ceil(float(first + part * (last - first)) - 1e-9)


def release_curve(plan: Plan, *, set_size: int, company: Company, holders: Int64s) -> Curve:
    """Return the chance that an item is released, for each number of holders (int64[points], at least 1)."""
    check_whole("a release curve", "set_size", set_size, 1, LARGEST_SET)
    if len(holders) == 0 or int(holders.min()) < 1 or int(holders.max()) > MOST_HOLDERS:
        raise BadParameter(
            f"A release curve needs numbers of people from 1 to {MOST_HOLDERS:,}.", "Leave out other numbers."
        )
    counts = holders.astype(np.float64)
    if isinstance(plan.algorithm, DpSips):
        chances = _sips_chances(plan, plan.algorithm, set_size, company, counts)
    else:
        limit = plan.algorithm.max_items_per_user
        size = min(set_size, limit)
        kept = size / set_size
        chances = _mixed(_chances(plan, size, company, float(counts.max())), counts, kept)
    return Curve(plan, set_size, company, holders.astype(np.int64), np.clip(chances, 0.0, 1.0))


def holders_between(least: int, most: int) -> Int64s:
    """Return the numbers from `least` to `most` of a fixed sequence that grows about evenly in ratio: int64[points].

    subtle: always the same sequence, so that what was simulated for one curve serves the next.
    """
    decades = math.log10(MOST_HOLDERS)
    steps = np.geomspace(1, MOST_HOLDERS, round(POINTS_PER_DECADE * decades) + 1)
    everything = np.unique(np.rint(steps).astype(np.int64))
    return everything[(everything >= least) & (everything <= max(most, least + 1))]


def saturation(plan: Plan, *, set_size: int, company: Company) -> int:
    """Return about how many holders bring the chance to 97 % of the most it can be, at most MOST_HOLDERS."""
    everything = holders_between(1, MOST_HOLDERS)
    most = release_curve(plan, set_size=set_size, company=Company.POPULAR, holders=everything[-1:]).chances[0]
    for first in range(0, len(everything), SEARCHED):
        part = everything[first : first + SEARCHED]
        chances = release_curve(plan, set_size=set_size, company=company, holders=part).chances
        if chances[-1] >= 0.97 * most:
            return int(part[np.flatnonzero(chances >= 0.97 * most)[0]])
    return MOST_HOLDERS


def _chances(plan: Plan, size: int, company: Company, most: float) -> Chances:
    """Return the chance by the number of people who keep the item; each keeps `size` items."""
    algorithm = plan.algorithm
    match algorithm:
        case CountLaplace() | CountGaussian():
            return lambda keepers: _passing(plan, keepers)
        case WeightedLaplace():
            return lambda keepers: _passing(plan, keepers / size)
        case WeightedGaussian():
            return lambda keepers: _passing(plan, keepers / math.sqrt(size))
        case PolicyLaplace():
            # l1-descent raises all of a user's open items alike, so only full ones make room.
            share = 1.0 if company is Company.POPULAR else 1.0 / size
            return lambda keepers: _passing(plan, np.minimum(_cutoff(plan), keepers * share))
        case PolicyGaussian():
            return _policy_gaussian(plan, size, company, most)
        case OptimalSingleItem():
            return _optimal(plan)
        case Funnel():
            return _funnel(plan, algorithm, size, company, most)
        case DpSips():
            raise AssertionError("DP-SIPS draws afresh in each round")
        case _:
            assert_never(algorithm)


def _cutoff(plan: Plan) -> float:
    if plan.cutoff is None:
        raise AssertionError("a policy without a cutoff")
    return plan.cutoff


def _passing(plan: Plan, weights: Float64s) -> Float64s:
    """Return the chance that weight and noise exceed the threshold; nothing without weight."""
    chances = gaussian_chances if plan.noise is Noise.GAUSSIAN else laplace_chances
    return np.where(weights > 0.0, chances(weights, plan.threshold, plan.scale), 0.0)


def _policy_gaussian(plan: Plan, size: int, company: Company, most: float) -> Chances:
    """l2-descent: a user's items get parts in proportion to their gaps (arXiv 2002.09745, Alg. 4).

    Several passes are taken for one: they spend the same budget.
    """
    cutoff = _cutoff(plan)
    match company:
        case Company.EQUAL:
            return lambda keepers: _passing(plan, np.minimum(cutoff, keepers / math.sqrt(size)))
        case Company.POPULAR:
            return lambda keepers: _passing(plan, np.minimum(cutoff, keepers))
        case Company.RARE:
            # The others of each user are touched by nobody else: their gaps are the whole cutoff.
            path = [0.0]
            others = (size - 1) * cutoff * cutoff
            while len(path) <= most and path[-1] < cutoff:
                gap = cutoff - path[-1]
                path.append(path[-1] + gap / max(1.0, math.sqrt(gap * gap + others)))
            weights = np.array(path)
            return lambda keepers: _passing(plan, weights[np.minimum(keepers, len(weights) - 1).astype(np.int64)])
        case _:
            assert_never(company)


def _optimal(plan: Plan) -> Chances:
    odds = bounds.released_with(bounds.release_odds_for(plan.budget))
    return lambda keepers: odds[np.minimum(keepers, len(odds) - 1).astype(np.int64)]


def _funnel(plan: Plan, algorithm: Funnel, size: int, company: Company, most: float) -> Chances:
    """Simulate a grid of numbers of keepers once, and read between them."""
    simulated: dict[float, float] = {}

    def chances(keepers: Float64s) -> Float64s:
        few = len(keepers) <= 5 * POINTS_PER_DECADE
        before = latest = 0.0
        for count in np.unique(keepers if few else holders_between(1, int(most))).tolist():
            settled = latest > 0.9 and latest - before < SETTLED  # subtle: from here on more holders change nothing
            if count > 0 and count not in simulated:
                simulated[count] = latest if settled else funnel_chances(plan, algorithm, size, company, count)
            before, latest = latest, simulated.get(count, 0.0)
        known = sorted(simulated)
        at = np.interp(keepers, known, [simulated[count] for count in known])
        return np.where(keepers > 0.0, at, 0.0)

    return chances


def _mixed(chances: Chances, holders: Float64s, kept: float) -> Float64s:
    """Return the mean chance when each holder keeps the item with probability `kept`."""
    if kept >= 1.0:
        return chances(holders)
    windows = [_binomial(int(count), kept) for count in holders]
    everyone = np.unique(np.concatenate([keepers for keepers, _ in windows]))
    values = chances(everyone)
    return np.array([odds @ np.interp(keepers, everyone, values) for keepers, odds in windows])


def _binomial(count: int, chance: float) -> tuple[Float64s, Float64s]:
    """Return the binomial distribution within nine standard deviations: values and probabilities, float64[m] each."""
    spread = 9.0 * math.sqrt(count * chance * (1.0 - chance)) + 2.0
    first, last = max(0, math.floor(count * chance - spread)), min(count, math.ceil(count * chance + spread))
    values = np.arange(first, last + 1)
    logs = [
        math.lgamma(count + 1.0) - math.lgamma(k + 1.0) - math.lgamma(count - k + 1.0) for k in range(first, last + 1)
    ]
    odds = np.exp(np.array(logs) + values * math.log(chance) + (count - values) * math.log1p(-chance))
    return values.astype(np.float64), odds / odds.sum()


def _sips_chances(plan: Plan, algorithm: DpSips, set_size: int, company: Company, holders: Float64s) -> Float64s:
    """DP-SIPS round by round (Swanberg et al. 2023): the state is how many of the other items are still there."""
    results = []
    for count in holders:
        state = np.zeros(set_size)  # state[r]: the item is still unreleased, and r others are
        state[-1] = 1.0
        for number, one in enumerate(plan.rounds):
            if company is Company.POPULAR and number == 1:
                state = np.eye(1, set_size)[0] * state.sum()
            following = np.zeros(set_size)
            for others in np.flatnonzero(state > 1e-15):
                passing = _sips_round(one.threshold, one.stddev, int(others) + 1, algorithm, count)
                left = state[others] * (1.0 - passing)
                if company is Company.EQUAL and 0.0 < passing < 1.0 and others > 0:
                    values, odds = _binomial(int(others), 1.0 - passing)
                    following[values.astype(np.int64)] += left * odds
                else:
                    following[others] += left
            state = following
        results.append(1.0 - state.sum())
    return np.array(results)


def _sips_round(threshold: float, stddev: float, size: int, algorithm: DpSips, count: float) -> float:
    """Return the chance to pass one round of DP-SIPS, for an item whose `count` holders have `size` items left."""
    drawn = min(size, algorithm.max_items_per_user)

    def chances(keepers: Float64s) -> Float64s:
        return np.where(keepers > 0.0, gaussian_chances(keepers / math.sqrt(drawn), threshold, stddev), 0.0)

    return float(_mixed(chances, np.array([count]), drawn / size)[0])


# --- Funnel: the item's own score is simulated through the rounds, many times at once; seeded and public ----------


@functools.lru_cache(maxsize=4096)
def funnel_chances(plan: Plan, algorithm: Funnel, size: int, company: Company, keepers: float) -> float:
    """Return the chance that an item is released which `keepers` people keep, each with size - 1 other items."""
    if size == 1 or company is Company.POPULAR:
        return _alone(plan, algorithm, keepers)
    match company:
        case Company.EQUAL:
            return _among_equals(plan, algorithm, size, keepers)
        case Company.RARE:
            return _among_rare(plan, algorithm, size, keepers)
        case _:
            assert_never(company)


@functools.lru_cache(maxsize=8)
def _spread_normals(rounds: int, trials: int) -> Float64s:
    """Return points spread evenly under a normal distribution of this many dimensions: float64[rounds, trials].

    An additive recurrence by powers of the generalised golden ratio, the root of x^(d+1) = x + 1 (Roberts 2018): far
    more even than random points, so that few of them are enough.
    """
    ratio = 1.5
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (rounds + 1))
    steps = np.arange(1, trials + 1)
    inverse = NormalDist().inv_cdf
    even = [(0.5 + steps * ratio ** -(at + 1)) % 1.0 for at in range(rounds)]
    return np.array([[inverse(float(min(max(u, 1e-9), 1.0 - 1e-9))) for u in row] for row in even])


@functools.lru_cache(maxsize=4)
def _normals(*shape: int) -> Float64s:
    """Return the same standard normals in every call, so that curves are smooth: float64[shape]."""
    generator = np.random.default_rng(20)  # noqa: TID251 - a public model, seeded, far from any release
    return generator.standard_normal(shape)


def _rounds(plan: Plan, algorithm: Funnel) -> list[tuple[Round, Callable[[Float64s], Float64s]]]:
    """Return each round with the targets that it has for scores."""
    cutoffs = algorithm.cutoffs(plan.scale, plan.threshold)

    def targets(cutoff: float, aim: float, scores: Float64s) -> Float64s:
        return np.where(scores > plan.threshold, 0.0, np.maximum(0.0, cutoff - scores) * aim)

    aimed = (functools.partial(targets, cutoff, aim) for cutoff, aim in zip(cutoffs, algorithm.aims, strict=True))
    return list(zip(plan.rounds, aimed, strict=True))


def _advance(plan: Plan, one: Round, scores: Float64s, alive: Bools, gains: Float64s) -> None:
    """Add what a round brings, noise included; drop what is not above the line. What has passed stays as it is."""
    scores += np.where(scores > plan.threshold, 0.0, gains)
    alive &= scores > one.threshold


def _alone(plan: Plan, algorithm: Funnel, keepers: float) -> float:
    """The item gets each holder's whole budget, up to its target."""
    noise = _spread_normals(len(plan.rounds), TRIALS)
    scores, alive = np.zeros(TRIALS), np.ones(TRIALS, np.bool_)
    for number, (one, targets_of) in enumerate(_rounds(plan, algorithm)):
        weights = np.minimum(targets_of(scores), keepers * one.budget)
        _advance(plan, one, scores, alive, one.budget * (weights + one.stddev * noise[number]))
    return float(alive.mean())


def _among_equals(plan: Plan, algorithm: Funnel, size: int, keepers: float) -> float:
    """All holders hold the same items: each step goes in the same direction, so n users take n steps at once."""
    trials = max(400, 2 * TRIALS // size)
    noise = _normals(len(plan.rounds), trials, size)
    scores, alive = np.zeros((trials, size)), np.ones((trials, size), np.bool_)
    for number, (one, targets_of) in enumerate(_rounds(plan, algorithm)):
        targets = np.where(alive, targets_of(scores), 0.0)
        length = np.sqrt((targets * targets).sum(axis=1, keepdims=True))
        weights = targets * np.minimum(1.0, keepers * one.budget / np.maximum(length, 1e-300))
        _advance(plan, one, scores, alive, one.budget * (weights + one.stddev * noise[number]))
    return float(alive.mean())


def _among_rare(plan: Plan, algorithm: Funnel, size: int, keepers: float) -> float:
    """Each holder's other items are touched by that holder only; a crowd of such holders is simulated along.

    What a rare item gets depends a little on the common item's gap: its mean over the trials and the round is used.
    """
    trials = TRIALS // 5
    steps = min(math.ceil(keepers), MOST_STEPS)
    users = keepers / steps  # subtle: more users than steps take them in groups, which act as one longer step
    crowd = min(16 * CROWD, max(CROWD, CROWD_ITEMS // (size - 1)))
    noise, rare_noise = _spread_normals(len(plan.rounds), trials), _normals(len(plan.rounds), crowd, size - 1)
    scores, alive = np.zeros(trials), np.ones(trials, np.bool_)
    rare, rare_alive = np.zeros((crowd, size - 1)), np.ones((crowd, size - 1), np.bool_)
    seats = np.arange(trials) * 37
    for number, (one, targets_of) in enumerate(_rounds(plan, algorithm)):
        targets = targets_of(scores)
        rare_targets = np.where(rare_alive, targets_of(rare), 0.0)
        rivals = (rare_targets * rare_targets).sum(axis=1)
        gaps = targets.copy()
        for step in range(steps):
            length = np.sqrt(gaps * gaps + rivals[(seats + step) % crowd])
            gaps -= gaps * np.minimum(1.0, users * one.budget / np.maximum(length, one.budget))
        typical = float((targets + gaps)[alive].mean()) / 2.0 if alive.any() else 0.0
        _advance(plan, one, scores, alive, one.budget * (targets - gaps + one.stddev * noise[number]))
        length = np.sqrt(typical * typical + rivals)[:, None]
        given = rare_targets * (one.budget / np.maximum(length, one.budget))
        _advance(plan, one, rare, rare_alive, one.budget * (given + one.stddev * rare_noise[number]))
    return float(alive.mean())


# --- how many people must have an item ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Needed:
    """About how many people must hold an item, each of whom holds `items_each` items, the others being rare.

    even, likely: for a chance of 50 % and 90 % that it comes out; None where no number of people is enough.
    """

    items_each: int
    even: int | None
    likely: int | None

    def to_dict(self) -> dict[str, int | None]:
        """Return the numbers as plain values, for JSON."""
        return {"items_each": self.items_each, "chance_50": self.even, "chance_90": self.likely}

    def texts(self) -> tuple[str, str, str]:
        """Return the numbers as texts, for a table under HEAD."""
        return (f"{self.items_each:,}", _people(self.even), _people(self.likely))


def find_needed(plan: Plan | MenuPlan | NgramPlan, set_sizes: Sequence[int] = SET_SIZES) -> tuple[Needed, ...]:
    """Return how many people must hold an item; of n-grams, a single token; of a menu, by its usual plan.

    Guarantees: it depends on the plan alone, and so on nobody's data.
    """
    opening = plan.first if isinstance(plan, NgramPlan) else plan.usual if isinstance(plan, MenuPlan) else plan
    found = []
    for size in set_sizes:
        most = saturation(opening, set_size=size, company=Company.RARE)
        grid = holders_between(1, max(10, most))
        curve = release_curve(opening, set_size=size, company=Company.RARE, holders=grid)
        found.append(Needed(size, curve.holders_for(EVEN), curve.holders_for(LIKELY)))
    return tuple(found)


def least_holders(plan: Plan | NgramPlan) -> int:
    """Return with how few people an item comes out with a chance of 2.5 %; of n-grams, a single token.

    They have no other item, so each gives all of their weight to this one: people with more items must be more. It is 1
    where no number of people is enough.

    Guarantees: it depends on the plan alone, and so on nobody's data.
    """
    opening = plan.first if isinstance(plan, NgramPlan) else plan

    def is_enough(people: int) -> bool:
        curve = release_curve(opening, set_size=1, company=Company.RARE, holders=np.array([people]))
        return float(curve.chances[0]) >= SELDOM

    low, high = 0, 1
    while not is_enough(high):
        low, high = high, 2 * high
        if high > MOST_HOLDERS:
            return 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def needed_sentence(plan: Plan | NgramPlan) -> str:
    """Say in one sentence what an item needs, where few came out."""
    alone, ten, hundred = (_people(one.even) for one in find_needed(plan))
    what = "a single word" if isinstance(plan, NgramPlan) else "an item"
    return (
        f"At this budget {what} has an even chance of being released if about {alone} people have it who have no "
        f"other item, or {ten} who have ten items each, or {hundred} who have a hundred. Items of fewer people "
        "are mostly left out, by design."
    )


def _people(count: int | None) -> str:
    return f"more than {MOST_HOLDERS:,}" if count is None else f"{count:,}"

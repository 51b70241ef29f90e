"""How likely an item is released, by the number of people who hold it: computed from a plan, without any data.

The model: n people hold the item, and each of them holds `set_size` items in all. What their other items are matters
to algorithms that look at them, so there are three companies (see `Company`). For Count, Weighted, Policy and
OptimalSingleItem the chance is computed exactly in the model. For DP-SIPS it is exact where a person's items all
count. Funnel's is simulated, to about one percentage point. Where a person has more items
than count, each of them is taken to be kept independently.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
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
    check_whole,
)
from dpunion.calibration import optimal
from dpunion.calibration.gaussian import gaussian_chances
from dpunion.calibration.laplace import laplace_chances
from dpunion.contributions import Float64s, Int64s
from dpunion.errors import BadParameter
from dpunion.plans import Noise, Plan
from dpunion.report.funnel_model import Company, funnel_chances

__all__ = ["Company", "Curve", "holders_between", "release_curve", "saturation"]

MOST_HOLDERS = 100_000
LARGEST_SET = 10_000
POINTS_PER_DECADE = 14
SEARCHED = 4
SETTLED = 5e-5

Chances = Callable[[Float64s], Float64s]
"""The chance of release by the number of people who keep the item: float64[m] -> float64[m]."""


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
            f"A release curve needs numbers of holders from 1 to {MOST_HOLDERS:,}.", "Leave out the others."
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
    odds = optimal.released_with(optimal.release_odds_for(plan.budget))
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

"""From noisy sums to weights, and to numbers of people with intervals. Only noisy sums and public numbers come in here.

Nothing in this module can harm privacy: it never sees a person's set. docs/counts.md says why it is done so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpunion.contributions import Bools, Float64s, Int32s, Int64s
from dpunion.counting.steps import (
    BURDEN,
    LEVELS,
    LOWEST_OCTAVE,
    MARKS,
    MARKS_PER_OCTAVE,
    ONE,
    FineStep,
    SpreadStep,
)
from dpunion.counts import TOTALS, CountsPlan, Estimate, Totals, Z
from dpunion.kernels.counting import lower_to_parts

# Rough sums below so many of their standard deviations are not told apart.
TOLD_APART = 1.4
# A mark is read when it, or one near it, has more people than so many standard deviations of its noise; more where
# there are more marks that people can be at.
VISIBLE, VISIBLE_MORE = 2.5, 0.5
NEAR = 2
# People who are not seen are noticed when this part of what people hold is missing, and so many standard deviations.
MISSED, MISSED_NOISE = 0.1, 2.0
# What a mark's people hold is taken to be what all hold, as far as so many standard deviations of noise may mislead.
PRIOR = 3.0
# The correction for people who were cut is taken to be wrong by this part of what it adds: in choosing the allowance,
# and in the intervals.
DOUBT = 0.4
DOUBT_SHOWN = 0.5
SAMPLED = 64
# People are said to be cut when they count for less than this for their rarest items.
IN_FULL = 0.95
# A level with less than this part of all that people hold is taken for empty.
EMPTY = 1e-3
# When counts of n-grams are made to fit those of their parts: at most so many sweeps, or until this close.
SWEEPS, CLOSE = 500, 1e-3
# Where nobody is visible, everybody is taken to hold so many listed items.
FEW = 30.0
# Weights by which nobody can be cut are taken where they make the expected error at most so many times as large: with
# them estimates are right on average and intervals exact, whatever people hold.
SURE = 2.0
ROOM = 1.0 - 2.0 * TOTALS


@dataclass(frozen=True, slots=True, eq=False)
class Popularity:
    """How popular items are, from the first step.

    sums: float64[items]. burdens: float64[items], their reciprocals, with which items weigh on the people who hold
    them. levels: int32[items], of popularity. heaviest: the largest burden there can be.
    """

    sums: Float64s
    burdens: Float64s
    levels: Int32s
    heaviest: float

    @classmethod
    def of(cls, noisy: Int64s, plan: CountsPlan) -> Popularity:
        """Read the noisy sums; what cannot be told apart gets the same burden."""
        sums = noisy / ONE
        lowest = max(1.0, TOLD_APART * plan.rough)
        told = np.maximum(sums, lowest)
        levels = np.minimum(LEVELS - 1, 0.5 * np.log2(told / lowest)).astype(np.int32)
        return cls(sums, 1.0 / told, levels, 1.0 / lowest)

    def step(self) -> SpreadStep:
        """Return the second step: the burdens in whole units."""
        return SpreadStep(np.maximum(1, np.rint(self.burdens * BURDEN)).astype(np.int64), self.levels)

    def level_burdens(self) -> Float64s:
        """Return the mean burden of what people hold of each level: float64[LEVELS]."""
        held = np.maximum(self.sums, 0.0)
        weighed = np.bincount(self.levels, held * self.burdens, minlength=LEVELS)
        whole = np.bincount(self.levels, held, minlength=LEVELS)
        middle = self.heaviest / 4.0 ** (np.arange(LEVELS) + 0.5)
        return np.where(whole > 0.0, weighed / np.maximum(whole, 1e-9), middle)

    def can_add_up_to(self, burdens: Float64s) -> Bools:
        """Say which of these burdens a person can have who holds anything listed, a half octave more or less."""
        if not len(self.burdens):
            return np.zeros(len(burdens), np.bool_)
        half = math.sqrt(2.0)
        lowest, highest = float(self.burdens.min()) / half, float(self.burdens.sum()) * half
        possible: Bools = (burdens >= lowest) & (burdens <= highest)
        return possible

    def is_listed(self) -> Bools:
        """Say of each level whether any item is of it: bool[LEVELS]."""
        return np.bincount(self.levels, minlength=LEVELS) > 0


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """How much people hold and of which levels, from the second step.

    people: float64[marks]; numbers: float64[marks], of items that each of a mark's people holds; mix: float64[marks,
    LEVELS], the part of each level in it.
    """

    people: Float64s
    numbers: Float64s
    mix: Float64s

    @classmethod
    def of(cls, noisy: Int64s, popularity: Popularity, plan: CountsPlan) -> Spread:
        """Read the noisy marks, where people can be made out."""
        table = noisy.reshape(MARKS, LEVELS) / ONE * popularity.is_listed()
        noise = plan.spread * math.sqrt(max(1, int(np.count_nonzero(popularity.is_listed()))))
        burdens = 2.0 ** (LOWEST_OCTAVE + np.arange(MARKS) / MARKS_PER_OCTAVE)
        possible = popularity.can_add_up_to(burdens)
        least = VISIBLE + VISIBLE_MORE * math.log10(max(1, int(np.count_nonzero(possible))))
        sums = table.sum(axis=1) * possible
        people = visible_people(sums, least * noise)
        everything = np.maximum(table[people > 0.0].sum(axis=0), 0.0)
        prior = everything / max(float(everything.sum()), 1e-9)
        # The fewer people a mark has, the more they are taken to hold what all hold.
        trust = (people**2 / (people**2 + (PRIOR * noise) ** 2))[:, None]
        mix = np.maximum(trust * table / np.maximum(people, 1e-9)[:, None] + (1.0 - trust) * prior, 0.0)
        mix /= np.maximum(mix.sum(axis=1, keepdims=True), 1e-9)
        numbers = burdens / np.maximum(mix @ popularity.level_burdens(), 1e-300)
        return cls(people + missed_people(people, sums, numbers, popularity, plan), numbers, mix)

    @property
    def pairs(self) -> Float64s:
        """Return how many items of each level the people of each mark hold together: float64[marks, LEVELS]."""
        return (self.people * self.numbers)[:, None] * self.mix


def missed_people(
    people: Float64s, sums: Float64s, numbers: Float64s, popularity: Popularity, plan: CountsPlan
) -> Float64s:
    """Return people who are there but at no mark that was read: float64[marks]; sums: float64[marks], noisy.

    Rough sums add up to the root of the number of listed items over all people. When much of that is missing, people
    are taken to be where the other marks' sums are above 0, in proportion: alone such a sum says little, but together
    they say where.
    """
    missed = np.zeros(len(people))
    if not people.any():
        return missed
    roots = np.sqrt(numbers)
    whole = float(popularity.sums.sum())
    missing = whole - float(people @ roots)
    unread = np.where(people > 0.0, 0.0, np.maximum(sums, 0.0))
    if unread.any() and missing > max(MISSED * whole, MISSED_NOISE * plan.rough * math.sqrt(len(popularity.sums))):
        missed = unread * (missing / float(unread @ roots))
    return missed


def visible_people(people: Float64s, least: float) -> Float64s:
    """Return the people of marks that have at least so many, and of marks near these; 0 elsewhere."""
    seen = np.flatnonzero(people >= least)
    near = (seen[:, None] + np.arange(-NEAR, NEAR + 1)[None, :]).ravel()
    within = np.zeros(len(people))
    near = near[(near >= 0) & (near < len(people))]
    within[near] = np.maximum(people[near], 0.0)
    return within


@dataclass(frozen=True, slots=True, eq=False)
class Allowance:
    """The weights of the third step, and what people who hold too much are expected to lose.

    weights: int64[items], units: an item of burden b has weight sqrt(min(1, allowance b)). factors: float64[items],
    what counts are multiplied by for people who were cut. cut: the part of them.
    """

    weights: Int64s
    factors: Float64s
    cut: float

    def step(self) -> FineStep:
        """Return the third step."""
        return FineStep(self.weights)


def choose_allowance(popularity: Popularity, spread: Spread, plan: CountsPlan) -> Allowance:
    """Choose how much weight items get: more makes counts more precise, but more people are cut.

    The allowance whose expected relative error, of the middle item, is the least: noise, and DOUBT of what is lost. Or
    the one that cuts nobody, if that errs little more (SURE), as it does for short lists.
    """
    count = len(popularity.sums)
    # With this one even somebody who holds the whole list is not cut.
    sure = ROOM / max(float(popularity.burdens.sum()), 1e-300)
    if not count or not spread.people.any():
        few = max(sure, ROOM / (FEW * popularity.heaviest))
        return Allowance(weights_at(few, popularity.burdens), np.ones(count), 0.0)
    some = np.argsort(popularity.burdens)[np.linspace(0, count - 1, min(SAMPLED, count)).astype(np.int64)]
    burdens = popularity.burdens[some]
    # Items are as popular as their burden says; all that people hold tells how many holders a rough sum of 1 means.
    whole = float(np.maximum(popularity.sums, 0.0).sum())
    holders = max(1.0, float(spread.pairs.sum()) / max(whole, 1e-9)) / burdens
    levels, visible = popularity.level_burdens(), spread.people > 0.0
    octaves = LOWEST_OCTAVE + np.flatnonzero(visible) / MARKS_PER_OCTAVE
    best, chosen = math.inf, 0.0
    for octave in np.arange(octaves.min() - 1.0, octaves.max() + 1.0, 0.25):
        allowance = ROOM / 2.0**octave
        weights = np.sqrt(np.minimum(1.0, allowance * burdens))
        factors = correct(burdens, spread, levels, allowance)
        errors = np.hypot(factors * plan.fine / (weights * holders), DOUBT * (factors - 1.0))
        error = float(np.median(errors))
        if error < best:
            best, chosen = error, allowance
    if np.median(plan.fine / (np.sqrt(np.minimum(1.0, sure * burdens)) * holders)) <= SURE * best:
        return Allowance(weights_at(sure, popularity.burdens), np.ones(count), 0.0)
    weights = weights_at(chosen, popularity.burdens)
    factors = correct(popularity.burdens, spread, levels, chosen)
    squares = np.minimum(1.0, chosen * levels)
    cut = caps_of(spread, squares) < IN_FULL * math.sqrt(squares[popularity.is_listed()].max())
    return Allowance(weights, factors, float(spread.people[cut].sum() / spread.people.sum()))


def weights_at(allowance: float, burdens: Float64s) -> Int64s:
    """Return the weights of items with these burdens, in whole units: int64[items]."""
    weights: Float64s = np.sqrt(np.minimum(1.0, allowance * burdens))
    units: Int64s = np.clip(np.floor(weights * ONE), 1, ONE).astype(np.int64)
    return units


def correct(burdens: Float64s, spread: Spread, levels: Float64s, allowance: float) -> Float64s:
    """Return what the counts of items with these burdens are to be multiplied by: float64[burdens], at least 1.

    levels: float64[LEVELS], the burdens of the levels. Of each level it is 1 / the mean of min(1, cap / weight) over
    all who hold such items; between the levels it is interpolated.
    """
    squares = np.minimum(1.0, allowance * levels)
    caps = caps_of(spread, squares)
    counted = np.minimum(1.0, caps[:, None] / np.sqrt(squares)[None, :])
    pairs = spread.pairs
    whole = pairs.sum(axis=0)
    held = np.flatnonzero(whole > EMPTY * max(float(whole.sum()), 1e-300))
    if not len(held):
        return np.ones(len(burdens))
    factors = np.maximum(whole[held] / np.maximum((pairs * counted).sum(axis=0)[held], 1e-300), 1.0)
    # More popular items never lose more than rarer ones; what nobody holds says nothing.
    factors = np.interp(np.arange(LEVELS), held, make_falling(factors, whole[held]))
    order = np.argsort(levels)
    return np.interp(np.log(burdens), np.log(levels[order]), factors[order])


def make_falling(values: Float64s, weights: Float64s) -> Float64s:
    """Return the falling numbers that are nearest to these, by weighted squares: where they rise, their mean."""
    runs: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        run = value, weight, 1
        while runs and runs[-1][0] < run[0]:
            before = runs.pop()
            whole = before[1] + run[1]
            run = (before[0] * before[1] + run[0] * run[1]) / whole, whole, before[2] + run[2]
        runs.append(run)
    return np.repeat([value for value, _, _ in runs], [length for _, _, length in runs])


def caps_of(spread: Spread, squares: Float64s) -> Float64s:
    """Return at which weight the people of each mark are cut, inf where they are not: float64[marks].

    squares: float64[LEVELS], of the levels' weights, falling. Somebody is cut at the cap for which the squares of all
    capped weights sum up to the room.
    """
    rising, mix = squares[::-1], spread.mix[:, ::-1]
    low = np.cumsum(mix * rising, axis=1)
    rest = 1.0 - np.cumsum(mix, axis=1)
    wanted = ROOM / np.maximum(spread.numbers, 1e-9)
    caps = np.full(len(wanted), np.inf)
    for place in range(LEVELS - 1, -1, -1):
        # With the cap within this level, the levels below count in full and the others as the cap.
        full = low[:, place - 1] if place else np.zeros(len(wanted))
        capped = rest[:, place - 1] if place else np.ones(len(wanted))
        over = full + capped * rising[place] > wanted
        caps = np.where(over, np.sqrt(np.maximum(wanted - full, 0.0) / np.maximum(capped, 1e-12)), caps)
    return caps


def estimate_people(
    noisy: Int64s, allowance: Allowance, plan: CountsPlan, sure: Bools, parts: Int32s | None = None
) -> tuple[Int64s, Int64s, Int64s, Totals]:
    """Return how many people hold each item, the two ends of the interval, and the totals: int64[items] three times.

    noisy: int64[items+2], the third step's; sure: bool[items], public: whether somebody is sure to hold the item;
    parts: int32[items, 2], which two of the list nobody lacks who holds the item, -1 where there are none.
    """
    step = allowance.step()
    factors, weights = allowance.factors, allowance.weights / ONE
    people = noisy[:-2] / ONE / weights * factors
    spread = np.hypot(plan.fine / weights * factors, DOUBT_SHOWN * (factors - 1.0) / factors * people)
    alone, rest = (int(total) / step.total_weight for total in noisy[-2:])
    wide = plan.fine * ONE / step.total_weight
    most = raise_to_parts(alone, wide, np.append(people, rest), np.append(spread, wide))
    people = np.minimum(people, most)
    everybody, others = as_total(most, wide), as_total(min(rest, most), wide)
    least = sure.astype(np.float64)
    highest = np.maximum(least, float(everybody.high))
    low, high = (np.clip(np.rint(people + side * spread), least, highest).astype(np.int64) for side in (-Z, Z))
    if parts is not None:
        lower_to_parts(people, spread**2, parts, SWEEPS, CLOSE)
    middle = np.clip(np.rint(people), least, highest).astype(np.int64)
    if parts is not None:
        at_most_parts(middle, parts)
    totals = Totals(everybody, others, allowance.cut, float(factors.max(initial=1.0)))
    return middle, np.minimum(low, middle), np.maximum(high, middle), totals


def at_most_parts(people: Int64s, parts: Int32s) -> None:
    """Lower what still exceeds one of its parts, by rounding; what was lowered lowers what it is part of. In-place."""
    whole = np.flatnonzero((parts >= 0).all(axis=1))
    while True:
        limits = people[parts[whole]].min(axis=1, initial=np.iinfo(np.int64).max)
        over = people[whole] > limits
        if not over.any():
            return
        people[whole[over]] = limits[over]


def raise_to_parts(whole: float, spread: float, parts: Float64s, spreads: Float64s) -> float:
    """Return how many people there are in all, given how many are in each part: no part can have more.

    whole, parts: float64[parts], estimates, with their standard deviations. Of all numbers that obey this the nearest
    ones are taken, in units of their standard deviations; every larger part is then lowered to the result.
    """
    larger = parts > whole
    precision, total = spread**-2.0, whole * spread**-2.0
    for part, precise in sorted(zip(parts[larger].tolist(), (spreads[larger] ** -2.0).tolist(), strict=True))[::-1]:
        if part * precision <= total:
            break
        precision, total = precision + precise, total + part * precise
    return float(total / precision)


def as_total(people: float, spread: float) -> Estimate:
    """Return a number of people with its interval, in whole people and not below 0."""
    middle, low, high = (max(0, round(people + side * spread)) for side in (0.0, -Z, Z))
    return Estimate(middle, low, high)

"""From noisy sums to weights, and to numbers of people with intervals. Only noisy sums and public numbers come in here.

Nothing in this module can harm privacy: it never sees a person's set. docs/guarantees-counts.md, section 5, says what
the numbers are worth, and docs/counts.md how to read them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpunion.contributions import Float64s, Int32s, Int64s
from dpunion.counting.steps import BURDEN, ONE, FineStep, MarksStep
from dpunion.kernels.counting import lower_to_parts
from dpunion.plans.counts import TOTALS, Counted, CountsPlan, Estimate, Totals, Z

ROOM = 1.0 - 2.0 * TOTALS
# `dpunion lab worlds` judges these constants on random data; docs/guarantees-counts.md, section 5, gives the reasons.
LEAST_SUM = 1.4  # rough sums below this many of their stddevs all get the same burden
SEEN = 4.5  # the number of people at a mark or above is read when it is this many of its stddevs
TAIL = 2.0  # above the last mark that is read, the number of people is assumed to fall by 2^TAIL with each octave
CAUTION = 1.5  # in choosing the allowance, a part that is lost weighs this many times as much as the same noise
SURE = 2.0  # weights that cut nobody are taken where the best allowance is at most this many times theirs
PUT_BACK = 0.6  # this part of the expected loss is put back ...
MOST_RAISED = 1.25  # ... by a factor of at most this
DOUBT = 2.5  # the upper end of an interval allows for this many times the expected loss ...
MOST_LOST = 0.7  # ... but for no more than this part of an item's people
MOVED = 0.67  # shrinking moves an estimate by at most this many of its stddevs
PRECISE = 6.0  # estimates of at least this many stddevs are left as they are
GROUP, ALIKE = 200, 1.2  # a group to shrink has at least this many items, and more while stddevs are within this factor
FEWEST = 40  # fewer items than this are not shrunk
SWEEPS, CLOSE = 500, 1e-3  # n-grams are fitted to their parts in at most this many sweeps, or until this close


@dataclass(frozen=True, slots=True, eq=False)
class Popularity:
    """How popular items are, from the first step.

    sums: float64[items]. units: int64[items], their reciprocals in units of 1/BURDEN: the burden of an item.
    """

    sums: Float64s
    units: Int64s

    @classmethod
    def of(cls, noisy: Int64s, plan: CountsPlan) -> Popularity:
        """Read the noisy sums; sums that noise alone can explain all get the same burden."""
        sums = noisy / ONE
        least = max(1.0, LEAST_SUM * plan.rough)
        return cls(sums, np.maximum(1, np.rint(BURDEN / np.maximum(sums, least))).astype(np.int64))

    @property
    def burdens(self) -> Float64s:
        return self.units / BURDEN


def people_at_marks(noisy: Int64s, plan: CountsPlan) -> Float64s:
    """Return about how many people are at each mark: float64[marks], all 0 where no number can be read.

    The number of people at a mark or above is read from the highest mark where it stands out from the noise; further
    down it never falls. Above that mark noise is never read: there the number falls as a public assumption says.
    """
    count = len(noisy)
    tails: Float64s = np.cumsum(noisy[::-1])[::-1] / ONE
    stddevs = plan.marks * np.sqrt(np.arange(count, 0, -1))
    read = np.flatnonzero(tails >= SEEN * stddevs)
    if not len(read):
        return np.zeros(count)
    top = int(read[-1])
    tails[: top + 1] = np.maximum.accumulate(tails[top::-1])[::-1]
    tails[top + 1 :] = tails[top] * 2.0 ** (-TAIL * np.arange(1, count - top))
    people: Float64s = tails - np.append(tails[1:], 0.0)
    return people


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """Items in half octaves of burden, the lightest first.

    of: int64[items], the level of each item. items: float64[levels], the part of the list in each level; held: that of
    all pairs of a person and a listed item. burdens: float64[levels], the mean burden of such a pair.
    """

    of: Int64s
    items: Float64s
    held: Float64s
    burdens: Float64s

    @classmethod
    def of_list(cls, popularity: Popularity) -> Levels:
        """Divide the list into levels; there is at least one item."""
        burdens = popularity.burdens
        octaves = np.floor(2.0 * np.log2(burdens / burdens.max()) - 1e-9)
        _, level = np.unique(octaves, return_inverse=True)
        pairs = np.maximum(popularity.sums, 0.5 / burdens.max())
        items, held = np.bincount(level), np.bincount(level, pairs)
        return cls(level, items / items.sum(), held / held.sum(), np.bincount(level, pairs * burdens) / held)

    @property
    def middle(self) -> float:
        """Return the burden of the level of the middle item."""
        return float(self.burdens[::-1][np.searchsorted(np.cumsum(self.items[::-1]), 0.5)])

    def expect_losses(self, allowances: Float64s, marks: Float64s, people: Float64s) -> Float64s:
        """Return the part of its people that an item of each level is expected to lose: float64[allowances, levels].

        Everybody is taken to have the same mix of levels, and as many items as the mark says. Somebody at a mark is
        cut at the cap t where the squares min(w, t)^2 of all weights add up to the room.
        """
        squares = np.minimum(1.0, np.outer(allowances, self.burdens))
        wanted = ROOM * float(self.held @ self.burdens) / marks
        caps = np.full((len(allowances), len(marks)), np.inf)
        below = np.zeros(len(allowances))
        above = 1.0
        for level in range(len(self.held)):
            # With the cap within this level, lower levels count in full and the others as the cap.
            within = np.isinf(caps) & (below[:, None] + above * squares[:, level, None] > wanted)
            caps = np.where(within, np.maximum(wanted - below[:, None], 0.0) / above, caps)
            below = below + self.held[level] * squares[:, level]
            above = max(above - float(self.held[level]), 1e-12)
        pairs = people * marks / float(people @ marks)
        roots = [np.sqrt(caps / squares[:, level, None]) for level in range(len(self.held))]
        return np.stack([np.maximum(0.0, 1.0 - root) @ pairs for root in roots], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Allowance:
    """The weights of the third step, and what people with many items are expected to lose.

    weights: int64[items], units: an item of burden b has weight sqrt(min(1, allowance b)). lost: float64[items], the
    part of its people that an item is expected to lose. cut: about how many people are cut.
    """

    weights: Int64s
    lost: Float64s
    cut: float


def choose_allowance(popularity: Popularity, step: MarksStep, people: Float64s, plan: CountsPlan) -> Allowance:
    """Choose how much weight items get: more weight makes counts more precise, but cuts more people.

    people: float64[marks], as people_at_marks returns them. The result is the allowance of the least expected relative
    error: noise of the middle item, and CAUTION times the part that items lose on average. Or it is the allowance that
    cuts nobody, if it is not much smaller (SURE), as for short lists, or if no people can be read.
    """
    burdens = popularity.burdens
    sure = ROOM / max(float(burdens.sum()), 1e-300)
    nobody_cut = Allowance(weights_at(sure, burdens), np.zeros(len(burdens)), 0.0)
    if not len(burdens) or not people.any():
        return nobody_cut
    levels, marks = Levels.of_list(popularity), step.marks / BURDEN
    octaves = np.arange(math.log2(burdens.min()), math.log2(burdens.sum()) + 0.25, 0.25)
    allowances = ROOM / 2.0**octaves
    lost = levels.expect_losses(allowances, marks, people)
    holders = max(1.0, float(people @ marks) / len(burdens)) / levels.middle
    noise = plan.fine / (np.sqrt(np.minimum(1.0, allowances * levels.middle)) * holders)
    best = int(np.argmin(np.hypot(noise, CAUTION * (lost @ levels.items))))
    chosen = float(allowances[best])
    if chosen <= SURE * sure:
        return nobody_cut
    return Allowance(weights_at(chosen, burdens), lost[best][levels.of], people_above(ROOM / chosen, marks, people))


def people_above(burden: float, marks: Float64s, people: Float64s) -> float:
    """Return about how many people have a larger burden than this; marks, people: float64[marks].

    Somebody half way between two marks is at both, so those at a mark or above begin half way below it.
    """
    above = np.append(np.cumsum(people[::-1])[::-1], 0.0)
    between = np.concatenate([marks[:1], 0.5 * (marks[:-1] + marks[1:]), marks[-1:]])
    return float(np.interp(burden, between, above))


def weights_at(allowance: float, burdens: Float64s) -> Int64s:
    """Return the weights of items with these burdens, in whole units: int64[items]."""
    weights: Float64s = np.sqrt(np.minimum(1.0, allowance * burdens))
    units: Int64s = np.clip(np.floor(weights * ONE), 1, ONE).astype(np.int64)
    return units


def shrink(people: Float64s, stddevs: Float64s) -> Float64s:
    """Move estimates toward the mean of items that are known as precisely, as far as their scatter says: float64[n].

    James-Stein, in groups of items with about the same stddev. Estimates that are precise by themselves stay.
    """
    moved = people.copy()
    imprecise = np.flatnonzero(people < PRECISE * stddevs)
    if len(imprecise) < FEWEST:
        return moved
    order = imprecise[np.argsort(stddevs[imprecise], kind="stable")]
    rising = stddevs[order]
    first = 0
    while first < len(order):
        last = max(first + GROUP, int(np.searchsorted(rising, ALIKE * rising[first], side="right")))
        last = len(order) if len(order) - last < GROUP else last
        group, variances = order[first:last], rising[first:last] ** 2
        around = people[group] - people[group].mean()
        between = max(0.0, float((around**2 - variances).mean()))
        moved[group] = people[group] - around * variances / (between + variances)
        first = last
    return np.clip(moved, people - MOVED * stddevs, people + MOVED * stddevs)


def estimate_people(
    noisy: Int64s, allowance: Allowance, plan: CountsPlan, least: Int64s, parts: Int32s | None = None
) -> Counted:
    """Return how many people have each item, the two ends of the interval, and the totals.

    noisy: int64[items+2], the third step's; least: int64[items], the least number to show for each item, from the plan
    alone; parts: int32[items, 2], the places of the two parts that everybody with this item also has, or -1.

    Guarantees: cutting people only lowers sums, and `low` is not corrected: no assumption can make it too high.
    """
    step, weights = FineStep(allowance.weights), allowance.weights / ONE
    raw, stddevs = noisy[:-2] / ONE / weights, plan.fine / weights
    low = raw - Z * stddevs
    high = np.maximum(raw + Z * stddevs, 0.0) / (1.0 - np.minimum(MOST_LOST, DOUBT * allowance.lost))
    factors = np.minimum(MOST_RAISED, 1.0 / (1.0 - PUT_BACK * allowance.lost))
    stddevs = stddevs * factors
    people = shrink(raw * factors, stddevs)
    alone, rest = (int(total) / step.total_weight for total in noisy[-2:])
    wide = plan.fine * ONE / step.total_weight
    most = raise_to_parts(alone, wide, np.append(people, rest), np.append(stddevs, wide))
    people = np.minimum(people, most)
    everybody, others = as_total(most, wide), as_total(min(rest, most), wide)
    if parts is not None:
        lower_to_parts(people, stddevs**2, parts, SWEEPS, CLOSE)
    highest = np.maximum(least, everybody.high)
    shown = np.clip(np.rint(people), least, highest).astype(np.int64)
    if parts is not None:
        at_most_parts(shown, parts)
    low = np.minimum(shown, np.clip(np.rint(low), np.minimum(least, 1), highest).astype(np.int64))
    high = np.maximum(shown, np.clip(np.rint(high), least, highest).astype(np.int64))
    cut = min(1.0, allowance.cut / max(most, 1.0))
    totals = Totals(everybody, others, cut, float(factors.max(initial=1.0)))
    return Counted(tuple(shown.tolist()), tuple(low.tolist()), tuple(high.tolist()), totals)


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

"""The chance that an item is released, by the number of people who have it: computed from a plan, without any data.

In the model, n people have the item, and each of them has `set_size` items in total. Some algorithms depend on what
the other items are, so there are three companies (see `Company`). The chance is exact in the model for Count, Weighted,
Policy and OptimalSingleItem, and for DP-SIPS if all items of a person count. For Funnel it is simulated, to about one
percentage point. If a person has more items than count, the model keeps each of them independently. CHANCES has one
entry for each algorithm.
"""

from __future__ import annotations

import bisect
import contextlib
import enum
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import assert_never

import numpy as np

from dpunion import algorithms
from dpunion.budget import guarantee
from dpunion.calibration import bounds
from dpunion.calibration.bounds import laplace_chances
from dpunion.calibration.gaussian import gaussian_chances
from dpunion.checks import check_whole
from dpunion.contributions import Bools, Float64s, Int64s
from dpunion.errors import BadParameter
from dpunion.plans import Noise, Plan, Planned, Round
from dpunion.plans.candidates import plan_for_listed
from dpunion.releases.about import draw_card

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
SELDOM, MOST_SELDOM = 0.025, 2**16
EPSILONS = [m / 10**k for k in (3, 2, 1) for m in range(10, 100)] + [10.0]  # of two digits, for find_epsilon
HEAD = ("items each", f"chance {100 * EVEN:.0f} %", f"chance {100 * LIKELY:.0f} %")

Chances = Callable[[Float64s], Float64s]
"""The chance of release by the number of people who keep the item: float64[m] -> float64[m]."""
ChanceModel = Callable[[Plan, int, "Company", Float64s], Float64s]
"""The chances by the plan, the items of each holder, the company, and the numbers of holders: float64[m] each."""


class Company(enum.Enum):
    """What other items the holders of an item have.

    RARE: items that nobody else has. EQUAL: the same items as each other, all as popular as this one. POPULAR: items so
    popular that they need nothing from these people.
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
        """Return about how many people must have an item for this chance to come out; None if no number is enough."""
        reached = np.flatnonzero(self.chances >= chance)
        if len(reached) == 0:
            return None
        at = int(reached[0])
        if at == 0:
            return int(self.holders[0])
        around = slice(at - 1, at + 1)
        return math.ceil(float(np.interp(chance, self.chances[around], self.holders[around])) - 1e-9)


def release_curve(plan: Plan, *, set_size: int, company: Company, holders: Int64s) -> Curve:
    """Return the chance that an item is released, for each number of holders (int64[points], at least 1)."""
    check_whole("a release curve", "set_size", set_size, 1, LARGEST_SET)
    if len(holders) == 0 or int(holders.min()) < 1 or int(holders.max()) > MOST_HOLDERS:
        raise BadParameter(
            f"A release curve needs numbers of people from 1 to {MOST_HOLDERS:,}.", "Leave out other numbers."
        )
    chances = CHANCES[type(plan.algorithm)](plan, set_size, company, holders.astype(np.float64))
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


def by_keepers(chances_of: Callable[[Plan, int, Company, float], Chances]) -> ChanceModel:
    """Return the model of an algorithm that draws items once, from its chances by the number of keepers of the item.

    chances_of: a function of the plan, how many items each keeper keeps, the company, and the largest number.
    """

    def model(plan: Plan, set_size: int, company: Company, holders: Float64s) -> Float64s:
        size = min(set_size, plan.algorithm.max_items_per_user)
        return _mixed(chances_of(plan, size, company, float(holders.max())), holders, size / set_size)

    return model


def passing(plan: Plan, weights: Float64s) -> Float64s:
    """Return the chance that weight and noise exceed the threshold; 0 for an item without weight."""
    chances = {Noise.GAUSSIAN: gaussian_chances, Noise.LAPLACE: laplace_chances}[plan.noise]
    return np.where(weights > 0.0, chances(weights, plan.threshold, plan.scale), 0.0)


def _cutoff(plan: Plan) -> float:
    if plan.cutoff is None:
        raise AssertionError("a policy without a cutoff")
    return plan.cutoff


def _policy_laplace(plan: Plan, size: int, company: Company, _most: float) -> Chances:
    # l1-descent raises all of a user's open items alike, so only full ones make room.
    share = 1.0 if company is Company.POPULAR else 1.0 / size
    return lambda keepers: passing(plan, np.minimum(_cutoff(plan), keepers * share))


def _policy_gaussian(plan: Plan, size: int, company: Company, most: float) -> Chances:
    """l2-descent: a user's items get parts in proportion to their gaps (arXiv 2002.09745, Alg. 4).

    Several passes are taken for one: they spend the same budget.
    """
    cutoff = _cutoff(plan)
    match company:
        case Company.EQUAL:
            return lambda keepers: passing(plan, np.minimum(cutoff, keepers / math.sqrt(size)))
        case Company.POPULAR:
            return lambda keepers: passing(plan, np.minimum(cutoff, keepers))
        case Company.RARE:
            # The others of each user are touched by nobody else: their gaps are the whole cutoff.
            path = [0.0]
            others = (size - 1) * cutoff * cutoff
            while len(path) <= most and path[-1] < cutoff:
                gap = cutoff - path[-1]
                path.append(path[-1] + gap / max(1.0, math.sqrt(gap * gap + others)))
            weights = np.array(path)
            return lambda keepers: passing(plan, weights[np.minimum(keepers, len(weights) - 1).astype(np.int64)])
        case _:
            assert_never(company)


def _optimal(plan: Plan, _size: int, _company: Company, _most: float) -> Chances:
    odds = bounds.released_with(bounds.release_odds_for(plan.budget))
    return lambda keepers: odds[np.minimum(keepers, len(odds) - 1).astype(np.int64)]


def _funnel(plan: Plan, size: int, company: Company, most: float) -> Chances:
    """Simulate a grid of numbers of keepers once, and interpolate between them."""
    simulated: dict[float, float] = {}

    def chances(keepers: Float64s) -> Float64s:
        few = len(keepers) <= 5 * POINTS_PER_DECADE
        before = latest = 0.0
        for count in np.unique(keepers if few else holders_between(1, int(most))).tolist():
            settled = latest > 0.9 and latest - before < SETTLED  # more holders change nothing from here on
            if count > 0 and count not in simulated:
                simulated[count] = latest if settled else funnel_chances(plan, size, company, count)
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


def _sips_chances(plan: Plan, set_size: int, company: Company, holders: Float64s) -> Float64s:
    """Return the chances of DP-SIPS, round by round; the state is how many of the other items are unreleased."""
    results = []
    for count in holders:
        state = np.zeros(set_size)  # state[r]: the item is still unreleased, and r others are
        state[-1] = 1.0
        for number, one in enumerate(plan.rounds):
            if company is Company.POPULAR and number == 1:
                state = np.eye(1, set_size)[0] * state.sum()
            following = np.zeros(set_size)
            for others in np.flatnonzero(state > 1e-15):
                chance = _sips_round(one, int(others) + 1, plan.algorithm.max_items_per_user, count)
                left = state[others] * (1.0 - chance)
                if company is Company.EQUAL and 0.0 < chance < 1.0 and others > 0:
                    values, odds = _binomial(int(others), 1.0 - chance)
                    following[values.astype(np.int64)] += left * odds
                else:
                    following[others] += left
            state = following
        results.append(1.0 - state.sum())
    return np.array(results)


def _sips_round(one: Round, size: int, limit: int, count: float) -> float:
    """Return the chance to pass one round of DP-SIPS, for an item whose `count` holders have `size` items left."""
    drawn = min(size, limit)

    def chances(keepers: Float64s) -> Float64s:
        return np.where(keepers > 0.0, gaussian_chances(keepers / math.sqrt(drawn), one.threshold, one.stddev), 0.0)

    return float(_mixed(chances, np.array([count]), drawn / size)[0])


# --- Funnel: the item's own score is simulated through the rounds, many times at once; seeded and public ----------


@functools.lru_cache(maxsize=4096)
def funnel_chances(plan: Plan, size: int, company: Company, keepers: float) -> float:
    """Return the chance of an item that `keepers` people keep, each with size - 1 other items."""
    if size == 1 or company is Company.POPULAR:
        return _alone(plan, keepers)
    among = _among_equals if company is Company.EQUAL else _among_rare
    return among(plan, size, keepers)


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


def _rounds(plan: Plan) -> list[tuple[Round, Callable[[Float64s], Float64s]]]:
    """Return each round with the targets that it has for scores."""
    stddev, threshold, algorithm = next(plan.funnels())
    cutoffs = algorithm.cutoffs(stddev, threshold)

    def targets(cutoff: float, aim: float, scores: Float64s) -> Float64s:
        return np.where(scores > plan.threshold, 0.0, np.maximum(0.0, cutoff - scores) * aim)

    aimed = (functools.partial(targets, cutoff, aim) for cutoff, aim in zip(cutoffs, algorithm.aims, strict=True))
    return list(zip(plan.rounds, aimed, strict=True))


def _advance(plan: Plan, one: Round, scores: Float64s, alive: Bools, gains: Float64s) -> None:
    """Add what a round gives, noise included, and drop items that are not above the line; items that passed stay."""
    scores += np.where(scores > plan.threshold, 0.0, gains)
    alive &= scores > one.threshold


def _alone(plan: Plan, keepers: float) -> float:
    """Simulate an item that gets each holder's whole budget, up to its target."""
    noise = _spread_normals(len(plan.rounds), TRIALS)
    scores, alive = np.zeros(TRIALS), np.ones(TRIALS, np.bool_)
    for number, (one, targets_of) in enumerate(_rounds(plan)):
        weights = np.minimum(targets_of(scores), keepers * one.budget)
        _advance(plan, one, scores, alive, one.budget * (weights + one.stddev * noise[number]))
    return float(alive.mean())


def _among_equals(plan: Plan, size: int, keepers: float) -> float:
    """Simulate holders who have the same items: all steps have the same direction, so n users take n steps at once."""
    trials = max(400, 2 * TRIALS // size)
    noise = _normals(len(plan.rounds), trials, size)
    scores, alive = np.zeros((trials, size)), np.ones((trials, size), np.bool_)
    for number, (one, targets_of) in enumerate(_rounds(plan)):
        targets = np.where(alive, targets_of(scores), 0.0)
        length = np.sqrt((targets * targets).sum(axis=1, keepdims=True))
        weights = targets * np.minimum(1.0, keepers * one.budget / np.maximum(length, 1e-300))
        _advance(plan, one, scores, alive, one.budget * (weights + one.stddev * noise[number]))
    return float(alive.mean())


def _among_rare(plan: Plan, size: int, keepers: float) -> float:
    """Simulate an item together with a crowd of holders, whose other items nobody else has.

    What a rare item gets depends a little on the gap of the common item: the simulation uses the mean gap over the
    trials and the round.
    """
    trials = TRIALS // 5
    steps = min(math.ceil(keepers), MOST_STEPS)
    users = keepers / steps  # with more users than steps, a group of users acts as one longer step
    crowd = min(16 * CROWD, max(CROWD, CROWD_ITEMS // (size - 1)))
    noise, rare_noise = _spread_normals(len(plan.rounds), trials), _normals(len(plan.rounds), crowd, size - 1)
    scores, alive = np.zeros(trials), np.ones(trials, np.bool_)
    rare, rare_alive = np.zeros((crowd, size - 1)), np.ones((crowd, size - 1), np.bool_)
    seats = np.arange(trials) * 37
    for number, (one, targets_of) in enumerate(_rounds(plan)):
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


CHANCES: dict[type[algorithms.Algorithm], ChanceModel] = {
    algorithms.CountLaplace: by_keepers(lambda plan, _size, _company, _most: lambda keepers: passing(plan, keepers)),
    algorithms.CountGaussian: by_keepers(lambda plan, _size, _company, _most: lambda keepers: passing(plan, keepers)),
    algorithms.WeightedLaplace: by_keepers(
        lambda plan, size, _company, _most: lambda keepers: passing(plan, keepers / size)
    ),
    algorithms.WeightedGaussian: by_keepers(
        lambda plan, size, _company, _most: lambda keepers: passing(plan, keepers / math.sqrt(size))
    ),
    algorithms.PolicyLaplace: by_keepers(_policy_laplace),
    algorithms.PolicyGaussian: by_keepers(_policy_gaussian),
    algorithms.OptimalSingleItem: by_keepers(_optimal),
    algorithms.Funnel: by_keepers(_funnel),
    algorithms.DpSips: _sips_chances,
}
"""The model of each algorithm. A new algorithm is one more entry."""


# --- how many people must have an item ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Needed:
    """About how many people must have an item, if each of them has `items_each` items and the others are rare.

    even, likely: for a chance of 50 % and 90 % that it comes out; None if no number of people is enough.
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


def find_needed(plan: Planned, set_sizes: Sequence[int] = SET_SIZES, *, listed: bool = False) -> tuple[Needed, ...]:
    """Return what `Plan.needed` returns; for n-grams, of a single token; with a look, by the usual limit.

    Guarantees: the result depends on the plan alone, and on nobody's data.
    """
    opening = plan_for_listed(plan.opening) if listed else plan.opening
    return tuple(Needed(size, *(find_people(opening, size, chance) for chance in (EVEN, LIKELY))) for size in set_sizes)


def find_people(plan: Plan, set_size: int, chance: float) -> int | None:
    """Return about how many people must have an item for this chance to come out; None if no number is enough."""
    everything = holders_between(1, MOST_HOLDERS)
    # Chances rise, so a search needs few of them; between two numbers they are interpolated.
    at = bisect.bisect_left(everything, chance, key=lambda people: _chance(plan, people, set_size))
    near = everything[max(0, at - 1) : at + 1]
    return release_curve(plan, set_size=set_size, company=Company.RARE, holders=near).holders_for(chance)


def find_epsilon(plan_at: Callable[[float], Planned], people: int, set_size: int, chance: float) -> float | None:
    """Return about the smallest epsilon at which an item or candidate of this many people has this chance, or None."""
    check_whole("", "people", people, 1, MOST_HOLDERS)

    def chance_at(epsilon: float) -> float:
        with contextlib.suppress(BadParameter):  # the smallest budgets have no plan
            plan = plan_at(epsilon).opening
            return _chance(plan if plan.candidates is None else plan_for_listed(plan), people, set_size)
        return 0.0

    at = bisect.bisect_left(EPSILONS, chance, key=chance_at)
    return EPSILONS[at] if at < len(EPSILONS) else None


def least_holders(plan: Planned) -> int:
    """Return the smallest number of people with which an item has a chance of 2.5 %; for n-grams, a single token.

    These people have no other item, so each gives all of their weight to this one: with more items each, more people
    are needed. Return 1 if no number of people is enough.

    Guarantees: the result depends on the plan alone, and on nobody's data.
    """
    at = bisect.bisect_left(range(1, MOST_SELDOM + 1), SELDOM, key=lambda people: _chance(plan.opening, people, 1))
    return 1 + at if at < MOST_SELDOM else 1


def _chance(plan: Plan, people: int, set_size: int) -> float:
    """Return the chance of an item that this many people have, among rare items."""
    curve = release_curve(plan, set_size=set_size, company=Company.RARE, holders=np.array([people]))
    return float(curve.chances[0])


def needed_sentence(plan: Planned) -> str:
    """Say how many people an item needs, for a release with few items."""
    alone, ten, hundred = (_people(find_people(plan.opening, size, EVEN)) for size in SET_SIZES)
    return (
        f"At this budget {plan.nouns.first} has an even chance of being released if about {alone} people have it who "
        f"have no other item, or {ten} who have ten items each, or {hundred} who have a hundred. Items of fewer people "
        "are mostly left out, by design."
    )


def _people(count: int | None) -> str:
    return f"more than {MOST_HOLDERS:,}" if count is None else f"{count:,}"


def describe_plan(plan: Planned) -> str:
    """Return the repr of a plan, two lines: what it is, and how many people an item needs."""
    limits = sorted({one.algorithm.max_items_per_user for one in plan.alternatives or (plan.opening,)})
    items = " to ".join(map(str, limits[:1] + limits[1:][-1:]))
    more = "".join(f", with {name}" for name in ("counts", "candidates") if getattr(plan, name) is not None)
    head = (
        f"{plan.name}, epsilon={plan.budget.epsilon:g}, delta={plan.budget.delta:g}, at most {items} items per person"
    )
    return f"{type(plan).__name__}({head}{more})\n{needed_sentence(plan).split('. ')[0]}."


def draw_plan(plan: Planned) -> str:
    """Return the card of a plan for notebooks: what it guarantees, and how many people an item needs."""
    formal, meaning, worst = guarantee(plan.budget, subject="A list made by this plan", covers=plan.nouns.covers)
    how = (
        f"About this many people must have {plan.nouns.first} for a chance of 50 % or 90 % that it is released, if "
        "each of them has this many items in total and the other items are rare. No data was read."
    )
    kinds = [find_needed(plan, listed=listed) for listed in (False, True)[: 1 if plan.candidates is None else 2]]
    numbers = [[each for one in row for each in (one.even, one.likely)] for row in zip(*kinds, strict=True)]
    rows = [[size, *(each or _people(each) for each in row)] for size, row in zip(SET_SIZES, numbers, strict=True)]
    header = (*HEAD, *(f"{name} for a candidate" for name in HEAD[1:] if len(kinds) > 1))
    return draw_card(describe_plan(plan).split("\n")[0], [formal, f"{meaning} {worst}", how], header, rows, 0)

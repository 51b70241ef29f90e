"""Random worlds: generated data with random parameters, so that nobody can tune an algorithm to it.

A seed and a number determine a world, and the world reports every parameter that was drawn.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpunion.algorithms import MAX_ITEMS
from dpunion.budget import Budget
from dpunion.contributions import Contributions, Float64s, Int64s, ItemTable, Uint64s, offsets_of
from dpunion_lab.data import LabData, wrap_sets
from dpunion_lab.generators import cumulate_odds, ranks_at

PEOPLE = (500, 500_000)
MEAN_SIZES = (1.5, 100.0)
LARGEST_SETS = (10_000, 100_000)
SPREADS = {"lognormal": (0.5, 2.2), "pareto": (0.8, 3.0), "geometric": (0.0, 0.0), "constant": (0.0, 0.0)}
"""The distributions of set sizes, each with the range of its parameter: log sd or exponent."""
KINDS, KIND_ODDS = tuple(SPREADS), (0.4, 0.35, 0.15, 0.1)
VOCABULARIES = (300, 1_000_000)
SHORT_VOCABULARIES = (6, 20)
SHORT_ODDS = 0.15
EXPONENTS = (0.8, 1.6)
KNEE_ODDS = 0.5
STEEPER = (0.2, 1.2)
"""By how much the exponent is larger beyond the knee."""
OTHER_ODDS = 0.6
"""The probability that the people with the largest sets have other items than the rest."""
HEAVY = (0.001, 0.1)
OTHER_PARTS = (0.3, 1.0)
EPSILONS = (0.5, 5.0)
DELTAS = (1e-8, 1e-4)
LISTED_PARTS = (0.05, 0.95)
"""The part of the items that people have which is on a random list of candidates."""
POPULARITY = (0.0, 1.0)
"""A list takes items in proportion to this power of how many people have them."""
MADE_UP = (0.1, 10.0)
"""How many other items are on the list, for each one that somebody has."""
MISTAKES = (0.001, 0.05)
"""How many candidates that nobody has may come out on average, for each item that comes out without a list."""
ERRORS = (1e-6, 1e-2)
MOST_DRAWS = 12_000_000
"""A world with more draws than this gets fewer people, so that it takes a few seconds only."""
MOST_DRAWS_PER_ITEM = 8.0


@dataclass(frozen=True, slots=True)
class World:
    """The parameters of one world.

    sizes: the distribution of set sizes, one of SPREADS, with its parameter `spread`, its mean before rounding and
    `largest`, the largest set. Items are ranks up to `vocabulary`, drawn in proportion to 1/rank^exponent, and to
    1/rank^(exponent + steeper) beyond the knee. The share `heavy` of people, those with the largest sets, draws the
    share `other` of its items from a random permutation of the ranks. key: the key of the releases.
    """

    seed: int
    number: int
    attempt: int
    people: int
    sizes: str
    spread: float
    mean: float
    largest: int
    vocabulary: int
    exponent: float
    knee: int
    steeper: float
    heavy: float
    other: float
    epsilon: float
    delta: float
    key: int

    @property
    def budget(self) -> Budget:
        """Return the budget of its releases."""
        return Budget(self.epsilon, self.delta)

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters as plain values."""
        return dataclasses.asdict(self)


def draw_world(seed: int, number: int, attempt: int = 0) -> World:
    """Draw the parameters of a world. attempt: how many earlier draws with this number were rejected."""
    generator = np.random.default_rng((seed, number, attempt))

    def log_uniform(limits: tuple[float, float]) -> float:
        low, high = map(math.log, limits)
        return min(limits[1], max(limits[0], math.exp(generator.uniform(low, high))))

    sizes = str(generator.choice(KINDS, p=KIND_ODDS))
    is_short = bool(generator.random() < SHORT_ODDS)
    vocabulary = round(log_uniform(SHORT_VOCABULARIES if is_short else VOCABULARIES))
    has_knee = bool(generator.random() < KNEE_ODDS)
    has_other = bool(generator.random() < OTHER_ODDS)
    is_partly = bool(generator.random() < 0.5)
    return World(
        seed=seed,
        number=number,
        attempt=attempt,
        people=round(log_uniform(PEOPLE)),
        sizes=sizes,
        spread=float(generator.uniform(*SPREADS[sizes])),
        mean=log_uniform(MEAN_SIZES),
        largest=round(log_uniform(LARGEST_SETS)),
        vocabulary=vocabulary,
        exponent=float(generator.uniform(*EXPONENTS)),
        knee=round(log_uniform((vocabulary**0.3, vocabulary))) if has_knee else vocabulary,
        steeper=float(generator.uniform(*STEEPER)) if has_knee else 0.0,
        heavy=log_uniform(HEAVY) if has_other else 0.0,
        other=(float(generator.uniform(*OTHER_PARTS)) if is_partly else 1.0) if has_other else 0.0,
        epsilon=log_uniform(EPSILONS),
        delta=log_uniform(DELTAS),
        key=int(generator.integers(2**31)),
    )


def generate_world(world: World) -> LabData:
    """Draw everybody's set."""
    generator = np.random.default_rng((world.seed, world.number, world.attempt, 1))
    odds = item_odds(world)
    sizes = draw_sizes(world, generator)
    draws = draws_needed(sizes, odds)
    fit = max(1, int(np.searchsorted(np.cumsum(draws), MOST_DRAWS, side="right")))
    sizes, draws = sizes[:fit], draws[:fit]
    owners = np.repeat(np.arange(fit), draws)
    ranks = ranks_at(cumulate_odds(odds), generator.random(len(owners))) - 1
    if world.heavy:
        is_heavy = np.zeros(fit, np.bool_)
        is_heavy[np.argsort(-sizes, kind="stable")[: math.ceil(world.heavy * fit)]] = True
        moved = np.flatnonzero(is_heavy[owners])
        moved = moved[generator.random(len(moved)) < world.other]
        ranks[moved] = generator.permutation(world.vocabulary)[ranks[moved]]
    # This takes a tenth of the time of np.unique.
    pairs = np.sort(owners * world.vocabulary + ranks)
    owners, ranks = np.divmod(pairs[np.append(True, pairs[1:] != pairs[:-1])], world.vocabulary)
    return wrap_sets(f"world {world.number} of seed {world.seed}", _contributions(owners, ranks, fit, generator))


def draw_candidates(world: World, data: LabData, released: int) -> tuple[Uint64s, float]:
    """Draw a list of candidates, uint64[n, 2], and its error; released: how many items come out without a list."""
    generator = np.random.default_rng((world.seed, world.number, world.attempt, 2))
    part, power = generator.uniform(*LISTED_PARTS), generator.uniform(*POPULARITY)
    others, mistakes = (math.exp(generator.uniform(math.log(low), math.log(high))) for low, high in (MADE_UP, MISTAKES))
    # The items with the shortest exponential waiting times are a weighted draw without replacement.
    waiting = generator.exponential(size=len(data.holders)) / data.holders**power
    there = np.argsort(waiting)[: max(1, round(part * len(waiting)))]
    made_up = generator.integers(2**64, size=(math.ceil(others * len(there)), 2), dtype=np.uint64)
    listed = np.concatenate([data.everything.table.digests[there], made_up])
    return listed, float(np.clip(mistakes * released / len(listed), *ERRORS))


def item_odds(world: World) -> Float64s:
    """Return the odds of each rank, up to a common factor: float64[vocabulary]."""
    ranks = np.arange(1.0, world.vocabulary + 1.0)
    return np.asarray(ranks**-world.exponent * np.maximum(1.0, ranks / world.knee) ** -world.steeper)


def draw_sizes(world: World, generator: np.random.Generator) -> Int64s:
    """Draw the size of each person's set: int64[people]."""
    match world.sizes:
        case "lognormal":
            sizes = np.exp(generator.normal(0.0, world.spread, world.people))
        case "pareto":
            sizes = 1.0 + generator.pareto(world.spread, world.people)
        case "geometric":
            sizes = generator.geometric(1.0 / world.mean, world.people).astype(np.float64)
        case _:
            sizes = np.ones(world.people)
    sizes *= world.mean / sizes.mean()
    return np.clip(np.rint(sizes), 1, world.largest).astype(np.int64)


def draws_needed(sizes: Int64s, odds: Float64s) -> Int64s:
    """Return how many draws give about `sizes` distinct items, within limits: int64[sizes]."""
    # Sum over groups of ranks with nearly equal odds instead of over a million ranks; the first ranks stay single.
    edges = np.unique(np.rint(np.geomspace(1, len(odds) + 1, 600)).astype(np.int64)) - 1
    count = np.diff(edges)
    chances = np.add.reduceat(odds, edges[:-1]) / count / odds.sum()
    draws = np.unique(np.rint(np.geomspace(1, MOST_DRAWS_PER_ITEM * sizes.max(), 200)))
    different = -np.expm1(draws[:, None] * np.log1p(-np.minimum(chances, 1.0 - 1e-12))[None, :]) @ count
    needed = np.interp(sizes, different, draws)
    return np.asarray(np.ceil(np.minimum(needed, MOST_DRAWS_PER_ITEM * sizes)), np.int64)


def _contributions(owners: Int64s, ranks: Int64s, people: int, generator: np.random.Generator) -> Contributions:
    """Return sorted, distinct pairs as contributions, without the ranks that nobody has."""
    held = np.bincount(ranks) > 0
    items = (np.cumsum(held) - 1).astype(np.int32)[ranks]
    count = int(held.sum())
    digests = generator.integers(2**64, size=(count, 2), dtype=np.uint64)
    digests = digests[np.argsort(digests[:, 0])]
    table = ItemTable(np.zeros(count + 1, np.int64), np.zeros(0, np.uint8), digests)
    users = generator.integers(2**64, size=(people, 2), dtype=np.uint64)
    return Contributions(offsets_of(np.bincount(owners, minlength=people)), items, table, users, MAX_ITEMS)

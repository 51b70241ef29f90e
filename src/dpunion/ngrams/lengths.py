"""One length of n-grams on its public candidates: bound, weigh, decide, and toss for what nobody keeps.

Given the shorter n-grams that were released, this is a plain Gaussian mechanism on the public set V_k: every candidate,
held or not, has its noise and its decision. Only what somebody keeps is computed one by one; the others are all alike,
so those that pass are drawn at random (docs/ngrams.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np
import numpy.typing as npt

from dpunion.algorithms import Funnel, PolicyGaussian, UserOrder, WeightedGaussian
from dpunion.calibration.composition import candidate_threshold, spurious_tail, walk_tail, walk_threshold
from dpunion.contributions import Contributions, Float64s, Int32s, Int64s, ItemTable, Uint64s
from dpunion.engines.shares import in_weight, l2_shares
from dpunion.kernels.bounding import narrow_users
from dpunion.kernels.descent import descend_ball, descend_l2
from dpunion.kernels.ngrams import compact, renumber
from dpunion.kernels.normal import upper_tail
from dpunion.kernels.shares import add_shares
from dpunion.ngrams.candidates import Candidates, Level, draw_unsupported, halves
from dpunion.ngrams.plans import LengthPlan, LengthResult
from dpunion.plans import funnel_shape
from dpunion.randomness import Purpose, RunKey
from dpunion.sources.token_streams import TokenStream, bounded, paired

Bools = npt.NDArray[np.bool_]

# Noise rounds of length k are 16 k, 16 k + 1, ...: no length has more than 8, and length 1 uses 0..7.
ROUNDS_APART = 16


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Positions:
    """Where the released n-grams of one length start (sensitive).

    offsets: int64[users+1]; codes: int32[n], numbers of the level, -1 elsewhere; user u wrote codes[offsets[u]:...].
    """

    offsets: Int64s
    codes: Int32s

    def __repr__(self) -> str:
        return "Positions(<sensitive>)"


def first_level(stream: TokenStream, chosen: Int64s) -> tuple[Level, Positions, tuple[str, ...]]:
    """Return the released tokens as a level, numbered in the order of their bytes, where they stand, and their texts.

    chosen: int64[n], numbers of the released tokens in the stream's table.

    Guarantees: the level holds the chosen tokens and nothing else of the stream.
    """
    table = stream.table
    starts, stops = table.offsets[chosen].tolist(), table.offsets[chosen + 1].tolist()
    names = [table.data[start:stop].tobytes() for start, stop in zip(starts, stops, strict=True)]
    order = sorted(range(len(names)), key=names.__getitem__)
    ranked = chosen[np.array(order, np.int64)]
    numbers = np.full(len(table), -1, np.int32)
    numbers[ranked] = np.arange(len(ranked), dtype=np.int32)
    codes = stream.tokens.copy()
    renumber(codes, numbers)
    nothing = np.zeros(len(ranked), np.int32)
    level = Level(1, nothing, nothing, np.arange(len(ranked), dtype=np.int32), table.digests[ranked])
    return level, Positions(stream.offsets, codes), tuple(names[i].decode() for i in order)


def next_level(
    plan: LengthPlan, rate: float, stream: TokenStream, tokens: Level, level: Level, positions: Positions, key: RunKey
) -> tuple[Level, Positions, LengthResult]:
    """Release the n-grams that are one longer than `level`.

    rate: how many spurious n-grams may be expected, as a part of the n-grams one shorter.

    Guarantees:
    - every n-gram that comes out has its prefix and its suffix in `level`;
    - given `level`, the result is that of a Gaussian mechanism on all its candidates, whose weights one user moves by
      at most 1 in l2 norm;
    - sizes and thresholds in the LengthResult follow from the released n-grams alone.
    """
    offsets, grams = _squeezed(positions)
    candidates = Candidates(level)
    if not candidates.count:
        return (
            Level.empty(plan.length),
            Positions(offsets, np.full(len(grams), -1, np.int32)),
            LengthResult.nothing(plan.length),
        )
    codes, pairs = paired(grams, key)
    contributions = bounded(
        stream,
        offsets,
        codes,
        _nameless(pair_digests(pairs, tokens, level, key)),
        key,
        bound_round=plan.length,
        max_items_per_user=plan.algorithm.max_items_per_user,
        user_order=getattr(plan.algorithm, "user_order", UserOrder.RANDOM),
    )
    tail = spurious_tail(rate, len(level), candidates.count)
    threshold, chance = threshold_for(plan, tail)
    kept = np.zeros(len(pairs), np.bool_)
    kept[contributions.items] = True
    passed = decide(plan, threshold, contributions, kept, key)
    spurious = draw_unsupported(candidates, pairs[kept], chance, key, plan.length)
    released = np.union1d(pairs[passed], spurious)
    # subtle: an n-gram that was held but kept by nobody can come out by chance too, and then its places count.
    renumber(codes, _numbers_in(released, pairs))
    result = LengthResult(plan.length, len(released), candidates.count, threshold, chance * candidates.count)
    return _level_of(released, tokens, level, key), Positions(offsets, codes), result


def _squeezed(positions: Positions) -> tuple[Int64s, Int32s]:
    codes, offsets = positions.codes, np.empty_like(positions.offsets)
    size = compact(positions.offsets, codes, offsets)
    return offsets, codes[:size].copy()


def _nameless(digests: Uint64s) -> ItemTable:
    """Return a table of n-grams whose texts nobody needs yet."""
    return ItemTable(np.zeros(len(digests) + 1, np.int64), np.zeros(0, np.uint8), digests)


def pair_digests(pairs: Uint64s, tokens: Level, level: Level, key: RunKey) -> Uint64s:
    """Return the 128-bit keyed digest of n-grams given as pairs: uint64[n, 2].

    D(prefix, last) = G(F(D(prefix)) xor D(last)) with two independent pseudo-random functions of this length: the
    CBC-MAC of two blocks. Two of n n-grams share a digest with probability at most n^2/2^128.

    Guarantees: a digest is a function of the run key and of the n-gram's tokens alone.
    """
    length = level.length + 1
    prefixes, suffixes = halves(pairs)
    inner = key.words(Purpose.ITEM, 2 * length, level.digests)
    return key.words(Purpose.ITEM, 2 * length + 1, inner[prefixes] ^ tokens.digests[level.last[suffixes]])


def _level_of(released: Uint64s, tokens: Level, level: Level, key: RunKey) -> Level:
    prefixes, suffixes = halves(released)
    digests = pair_digests(released, tokens, level, key)
    return Level(level.length + 1, prefixes.astype(np.int32), suffixes.astype(np.int32), level.last[suffixes], digests)


def _numbers_in(released: Uint64s, pairs: Uint64s) -> Int32s:
    """Return each pair's place in the rising `released`, -1 where it is not there: int32[pairs]."""
    if not len(released):
        return np.full(len(pairs), -1, np.int32)
    places = np.minimum(np.searchsorted(released, pairs), len(released) - 1)
    return np.where(released[places] == pairs, places, -1).astype(np.int32)


def threshold_for(plan: LengthPlan, tail: float) -> tuple[float, float]:
    """Return the threshold at which pure noise passes with at most `tail`, and the exact chance that it passes."""
    if isinstance(plan.algorithm, Funnel):
        shape = funnel_shape(plan.algorithm)
        threshold = walk_threshold(plan.stddev, tail, shape)
        return threshold, walk_tail(plan.stddev, threshold, shape)
    threshold = candidate_threshold(plan.stddev, tail)
    return threshold, upper_tail(threshold / plan.stddev)


def decide(plan: LengthPlan, threshold: float, contributions: Contributions, kept: Bools, key: RunKey) -> Bools:
    """Decide about every kept n-gram: bool[n-grams].

    Guarantees: an n-gram's decision depends on its weight and on draws of its own; what nobody kept is False.
    """
    digests = contributions.table.digests
    match plan.algorithm:
        case WeightedGaussian() | PolicyGaussian():
            weights = weigh(plan.algorithm, threshold, plan.stddev, contributions)
            passed = key.decide_gaussian(plan.length, digests, weights, threshold=threshold, stddev=plan.stddev)
            released: Bools = passed & kept
            return released
        case Funnel():
            return _funnelled(plan.algorithm, plan, threshold, contributions, kept, key)
        case _:
            assert_never(plan.algorithm)


def weigh(
    algorithm: WeightedGaussian | PolicyGaussian, threshold: float, stddev: float, contributions: Contributions
) -> Float64s:
    """Build the histogram of an algorithm of one round: float64[n-grams].

    Guarantees: adding or removing one user changes it by at most 1 in l2 norm, rounding apart.
    """
    if isinstance(algorithm, WeightedGaussian):
        units = np.zeros(len(contributions.table), np.int64)
        add_shares(contributions.offsets, contributions.items, l2_shares(algorithm.max_items_per_user), units)
        return in_weight(units)
    weights = np.zeros(len(contributions.table))
    cutoff = threshold + algorithm.cutoff_margin * stddev
    for _ in range(algorithm.passes):
        descend_l2(contributions.offsets, contributions.items, weights, cutoff, 1.0 / algorithm.passes)
    return weights


def _funnelled(
    algorithm: Funnel, plan: LengthPlan, threshold: float, contributions: Contributions, kept: Bools, key: RunKey
) -> Bools:
    """Run Funnel's rounds on the kept n-grams; candidates that nobody keeps walk by noise alone (`walk_tail`).

    Guarantees: given the public scores, one user moves the weights of a round by at most the round's budget.
    """
    shape = funnel_shape(algorithm)
    lines = (*shape.keep_lines(plan.stddev, threshold), threshold)
    alive, scores = kept.copy(), np.zeros(len(kept))
    offsets, items = contributions.offsets, contributions.items
    for number, (budget, left, line) in enumerate(zip(shape.shares, shape.remaining, lines, strict=True)):
        targets = np.maximum(0.0, shape.cutoff(plan.stddev, threshold) - scores) * (budget / left)
        given = funnel_weights(offsets, items, targets, budget, shape.item_cap * budget)
        living = np.flatnonzero(alive)
        noise = key.normals(ROUNDS_APART * plan.length + number, contributions.table.digests[living])
        scores[living] += budget * (given[living] + plan.stddev * noise)
        alive[living] = scores[living] > line
        if number + 1 < shape.rounds:
            offsets, items = _narrowed(offsets, items, alive)
    return alive


def funnel_weights(offsets: Int64s, items: Int32s, targets: Float64s, budget: float, cap: float) -> Float64s:
    """Build the histogram of one round of Funnel toward the public targets: float64[n-grams].

    Guarantees: one user moves it by at most `budget` in l2 norm, rounding apart.
    """
    gaps = targets.copy()
    descend_ball(offsets, items, gaps, budget, cap)
    weights: Float64s = targets - gaps
    return weights


def _narrowed(offsets: Int64s, items: Int32s, alive: Bools) -> tuple[Int64s, Int32s]:
    """Drop what is no longer alive from every set."""
    kept, sizes = np.empty(len(items), np.int32), np.empty(len(offsets) - 1, np.int64)
    total = narrow_users(offsets, items, alive, kept, sizes)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]), kept[:total]

"""The public candidates V_k: n-grams whose prefix and suffix of length k-1 are both released (Kim et al. 2021).

V_k is never written out. Released n-grams of length k-1 that end in y can precede all that begin with y: V_k is a
union of rectangles, one for each y of length k-2. Sums and divisions over these count it and name its i-th member.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpunion.contributions import Int32s, Int64s, Uint64s, offsets_of
from dpunion.errors import InternalError
from dpunion.randomness import Purpose, RunKey

FIXED_POINT = 320
UNIFORM_BITS = 128


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """The released n-grams of one length, public; number g is prefixes[g] and suffixes[g] of the length below.

    prefixes, suffixes: int32[n], rising as pairs (zeros at length 1, where all tokens share the empty part);
    last: int32[n], the number of the last token at length 1; digests: uint64[n, 2], a keyed function of the text.
    """

    length: int
    prefixes: Int32s
    suffixes: Int32s
    last: Int32s
    digests: Uint64s

    def __len__(self) -> int:
        return len(self.last)

    @property
    def pairs(self) -> Uint64s:
        """Return the n-grams as pairs prefix << 32 | suffix: uint64[n], rising (from length 2 on)."""
        return (self.prefixes.astype(np.uint64) << np.uint64(32)) | self.suffixes.astype(np.uint64)


class CandidateGrams:
    """V_k of a level of length k-1, as rectangles: all of it is public.

    Guarantees: `count` is exactly |V_k|, and `at` a one-to-one map from 0..count-1 onto V_k.
    """

    def __init__(self, level: Level) -> None:
        groups = 1 + int(max(level.prefixes.max(initial=0), level.suffixes.max(initial=0)))
        # A released n-gram is a prefix in the rectangle of its own suffix, and a suffix in that of its own prefix.
        self._rows, self._row_starts = _grouped(level.suffixes, groups)
        self._columns, self._column_starts = _grouped(level.prefixes, groups)
        self._widths = np.diff(self._column_starts)
        areas = np.diff(self._row_starts) * self._widths
        self._starts = offsets_of(areas)
        self.count = int(self._starts[-1])

    def at(self, indices: Int64s) -> Uint64s:
        """Return members by number, as pairs prefix << 32 | suffix: uint64[n]."""
        group = np.searchsorted(self._starts, indices, side="right") - 1
        row, column = np.divmod(indices - self._starts[group], self._widths[group])
        prefixes = self._rows[self._row_starts[group] + row]
        suffixes = self._columns[self._column_starts[group] + column]
        return (prefixes.astype(np.uint64) << np.uint64(32)) | suffixes.astype(np.uint64)


def halves(pairs: Uint64s) -> tuple[Int64s, Int64s]:
    """Return the prefix and the suffix of each pair: int64[n] each."""
    return (pairs >> np.uint64(32)).astype(np.int64), (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)


def places_in(rising: Uint64s, pairs: Uint64s) -> Int32s:
    """Return each pair's place in `rising`, uint64[m], or -1 if it is not there: int32[pairs]."""
    if not len(rising):
        return np.full(len(pairs), -1, np.int32)
    places = np.minimum(np.searchsorted(rising, pairs), len(rising) - 1)
    return np.where(rising[places] == pairs, places, -1).astype(np.int32)


def _grouped(groups: Int32s, count: int) -> tuple[Int64s, Int64s]:
    """Return the members sorted by group, and where each group starts."""
    order = np.argsort(groups, kind="stable")
    return order, offsets_of(np.bincount(groups, minlength=count))


def mark_candidates(candidates: CandidateGrams, chance: float, key: RunKey, draw_round: int) -> Uint64s:
    """Toss a coin of probability `chance` for every candidate; return those that come up, as rising pairs: uint64[n].

    A mark counts only for a candidate that nobody keeps (`unsupported`).

    Guarantees:
    - every candidate is marked with probability `chance`, independently, up to 2^-128 for each block of about 1/chance;
    - the marks depend on the released n-grams, the chance and the run key, and on no user.
    """
    return np.sort(candidates.at(bernoulli_positions(candidates.count, chance, key, draw_round)))


def unsupported(marks: Uint64s, kept: Uint64s) -> Uint64s:
    """Return the marks that nobody keeps: the spurious n-grams. Both are rising pairs.

    Guarantees:
    - given the kept n-grams, each other candidate comes out with the probability of a mark, independently; so their
      number is binomial and, given it, they are drawn without replacement;
    - no kept n-gram comes out.
    """
    return marks[places_in(kept, marks) < 0]


def bernoulli_positions(total: int, chance: float, key: RunKey, draw_round: int) -> Int64s:
    """Return which of 0..total-1 come up if each is drawn with probability `chance`: rising int64.

    The positions are cut into blocks of 2^b, about 1/chance. How many of a block come up is drawn from the binomial
    distribution, by inversion of 128 random bits against a cumulative table in exact integers; which ones, by drawing
    distinct b-bit numbers. The last block reaches beyond `total`; what falls there is ignored, which changes nothing
    for the others as all positions are independent.

    Guarantees: each position comes up with probability `chance` to 128 bits, independently of all others.
    """
    if not 0.0 <= chance < 1.0:
        raise InternalError("a probability is not within [0, 1)")
    if total <= 0 or chance == 0.0:
        return np.zeros(0, np.int64)
    bits = min(max(0, int(1.0 / chance).bit_length() - 1), total.bit_length())
    blocks = (total + (1 << bits) - 1) >> bits
    table = binomial_table(1 << bits, chance)
    counters = np.zeros((blocks, 2), np.uint64)
    counters[:, 0] = np.arange(blocks, dtype=np.uint64)
    words = key.words(Purpose.SPURIOUS, 2 * draw_round, counters)
    found: list[int] = []
    for block, (high, low) in enumerate(words.tolist()):
        uniform = high << 64 | low
        if uniform < table[0]:
            continue
        number = next(j for j, below in enumerate(table) if uniform < below)
        found.extend((block << bits) + place for place in _distinct(number, bits, block, key, 2 * draw_round + 1))
    inside = np.array(sorted(found), np.int64)
    return inside[inside < total]


def _distinct(number: int, bits: int, block: int, key: RunKey, draw_round: int) -> list[int]:
    """Return `number` distinct uniform numbers of `bits` bits, from the words of the counters (i, block)."""
    chosen: list[int] = []
    counter = 0
    while len(chosen) < number:
        words = key.words(Purpose.SPURIOUS, draw_round, np.array([[counter, block]], np.uint64))
        place = int(words[0, 0]) & ((1 << bits) - 1)
        if place not in chosen:
            chosen.append(place)
        counter += 1
    return chosen


def binomial_table(trials: int, chance: float) -> list[int]:
    """Return floor(2^128 Pr[Binomial(trials, chance) <= j]) for j = 0, 1, ..., the last being 2^128.

    In integers of 320 bits: `chance` is taken as the exact rational that the float is, and the error of each entry,
    from at most 400 truncated multiplications of relative size 2^-300, is far below the 2^-128 of the result.
    """
    one = 1 << FIXED_POINT
    probability = Fraction(chance)
    keep = one - one * probability.numerator // probability.denominator
    term, power = one, trials
    while power:  # keep ** trials, by squaring
        if power & 1:
            term = term * keep >> FIXED_POINT
        keep = keep * keep >> FIXED_POINT
        power >>= 1
    odds_top, odds_bottom = probability.numerator, probability.denominator - probability.numerator
    table, total = [], 0
    for j in range(trials + 1):
        total += term
        table.append(total >> (FIXED_POINT - UNIFORM_BITS))
        term = term * (trials - j) * odds_top // ((j + 1) * odds_bottom)
        if term >> (FIXED_POINT - UNIFORM_BITS - 32) == 0 and j > trials * chance:
            break
    table[-1] = 1 << UNIFORM_BITS
    return table

"""The texts on one machine: one stream of token numbers, and the positions of the released n-grams in it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from dpunion.contributions import Uint64s
from dpunion.counting.holdings import Holdings
from dpunion.engines.local import run_rounds
from dpunion.errors import InternalError
from dpunion.kernels.ngrams import renumber
from dpunion.mechanisms import mechanism_for, mechanism_on_candidates
from dpunion.ngrams.candidates import Level, places_in, unsupported
from dpunion.ngrams.lengths import Positions, first_level, kept_ngrams, kept_tokens, longer, ngram_holdings
from dpunion.plans import Plan
from dpunion.plans.ngrams import LengthPlan
from dpunion.randomness import RunKey
from dpunion.reading import Rows
from dpunion.requests import Request
from dpunion.sets.narrowing import count_keepers
from dpunion.sets.streams import TokenStream, read_tokens


def read_texts(
    request: Request, rows: Rows, key: RunKey, memory_limit: int | None, threads: int | None, *, counted: bool
) -> LocalTexts:
    """Read texts; counted: counts need them again after the last length. Guarantees: as for `read_tokens`."""
    spelling = request.splitting, request.normalization
    stream = read_tokens(rows, key, *spelling, memory_limit=memory_limit, threads=threads)
    return LocalTexts(stream, key, memory_limit=memory_limit, threads=threads, used_up=not counted)


@dataclass(slots=True, repr=False, eq=False)
class LocalTexts:
    """The texts on one machine; threads: by default one for each usable core.

    used_up: nobody needs the stream afterwards, neither counts nor the caller, so its memory may be overwritten.

    Guarantees: the repr shows nothing about them.
    """

    stream: TokenStream
    key: RunKey
    positions: Positions | None = None
    memory_limit: int | None = None
    threads: int | None = None
    used_up: bool = False

    def __repr__(self) -> str:
        return "LocalTexts(<sensitive>)"

    def holdings(self, levels: tuple[Level, ...]) -> Holdings:
        """Return who wrote which of the released n-grams."""
        if self.used_up:
            raise InternalError("counts were asked for of texts that are used up")
        return ngram_holdings(self.stream, levels, self.key, self.memory_limit)

    def first(self, plan: Plan) -> tuple[Level, tuple[str, ...]]:
        kept = kept_tokens(plan.algorithm.bounding, self.stream, self.key, self.threads)
        chosen = run_rounds(mechanism_for(plan), kept, self.key, self.threads)
        level, self.positions, words = first_level(self.stream, chosen, used_up=self.used_up)
        if self.used_up:
            self.stream = dataclasses.replace(self.stream, tokens=np.zeros(0, np.int32))
        return level, words

    def later(self, plan: LengthPlan, threshold: float, marks: Uint64s, levels: tuple[Level, ...]) -> Uint64s:
        if self.positions is None:
            raise InternalError("longer n-grams were asked for before single tokens")
        positions, pairs = longer(self.positions, self.key, self.threads)
        contributions = kept_ngrams(plan, self.stream, positions, pairs, levels, self.key, self.threads)
        chosen = run_rounds(mechanism_on_candidates(plan, threshold), contributions, self.key, self.threads)
        released = np.union1d(pairs[chosen], unsupported(marks, pairs[count_keepers(contributions) > 0]))
        # subtle: chance can also release an n-gram that users wrote but nobody kept, and then its places count.
        renumber(positions.codes, places_in(released, pairs))
        self.positions = positions
        return released

"""The numbers of passes and rounds, as functions of parameters: public, and fixed before any data is read."""

from __future__ import annotations

import math
from typing import ClassVar


class PolicyShape:
    """What a policy's parameters come to in each pass over the users; docs/guarantees.md, section 4."""

    __slots__ = ()

    safe_margin: ClassVar[float]
    cutoff_margin: float
    passes: int
    reserve: float

    def visits(self, scale: float, threshold: float) -> tuple[tuple[float, float], ...]:
        """(Γ, B) of each pass: what items are filled up to, and the part of everybody's budget; the parts sum to 1.

        The reserve is for a last pass, toward a cutoff which noise does not bring below the threshold again.
        """
        first = (threshold + self.cutoff_margin * scale, (1.0 - self.reserve) / self.passes)
        last = (threshold + max(self.cutoff_margin, self.safe_margin) * scale, self.reserve)
        return (first,) * self.passes + ((last,) if self.reserve else ())


class FunnelShape:
    """What Funnel's parameters come to in each round; docs/guarantees-funnel.md has the symbols."""

    __slots__ = ()

    rounds: int
    first_share: float
    keep_fraction: float
    keep_margin: float
    cutoff_margin: float
    haste: float

    @property
    def squared_shares(self) -> tuple[float, ...]:
        """c_r² for r = 1..rounds: each round's part of the budget; they sum to 1."""
        if self.rounds == 1:
            return (1.0,)
        return (self.first_share, *[(1.0 - self.first_share) / (self.rounds - 1)] * (self.rounds - 1))

    @property
    def shares(self) -> tuple[float, ...]:
        """c_r: the l2 budget of each round."""
        return tuple(math.sqrt(share) for share in self.squared_shares)

    @property
    def spent(self) -> tuple[float, ...]:
        """f_r = c_1² + … + c_r²; exactly 1 in the last round."""
        squares = self.squared_shares
        return (*[math.fsum(squares[: r + 1]) for r in range(self.rounds - 1)], 1.0)

    @property
    def remaining(self) -> tuple[float, ...]:
        """rem_r = c_r² + … + c_R²."""
        squares = self.squared_shares
        return tuple(math.fsum(squares[r:]) for r in range(self.rounds))

    @property
    def aims(self) -> tuple[float, ...]:
        """min(λ c_r/rem_r, 1/c_r): what each round is to give an item, for each unit that the item needs.

        No more than 1/c_r, with which the round alone would lift the score to the cutoff; so the last has always 1/c_r.
        """
        parts = zip(self.shares, self.remaining, strict=True)
        return tuple(min(self.haste * share / rest, 1.0 / share) for share, rest in parts)

    def keep_lines(self, stddev: float, threshold: float) -> tuple[float, ...]:
        """κ f_r ρ − z σ √f_r for r = 1..rounds-1: an item stays alive while its score is above them.

        At most ρ − 1.01 c_r σ, so that the round's noise tells staying from passing.
        """
        return tuple(
            min(
                self.keep_fraction * done * threshold - self.keep_margin * stddev * math.sqrt(done),
                threshold - 1.01 * share * stddev,
            )
            for share, done in zip(self.shares[:-1], self.spent[:-1], strict=True)
        )

    def cutoffs(self, stddev: float, threshold: float) -> tuple[float, ...]:
        """ρ + ασ√rem_r: the score that an item needs in each round, by the noise that is still to come."""
        return tuple(threshold + self.cutoff_margin * stddev * math.sqrt(rest) for rest in self.remaining)

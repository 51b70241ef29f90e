"""The public shape of Funnel: rounds, shares and margins, before any noise is chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpunion.errors import BadParameter

MOST_ROUNDS = 8
MOST_ITEMS = 10_000


@dataclass(frozen=True, slots=True)
class FunnelShape:
    """Everything that fixes Funnel besides its noise and threshold; docs/guarantees-funnel.md names the symbols.

    keep_fraction is κ, keep_margin z, cutoff_margin α, item_cap b, max_items_per_user Δ0. The squared share
    of round 1 is first_share; the other rounds split the rest evenly.
    """

    rounds: int = 4
    first_share: float = 0.2
    keep_fraction: float = 0.85
    keep_margin: float = 1.0
    cutoff_margin: float = 3.0
    item_cap: float = 1.0
    max_items_per_user: int = 300

    def __post_init__(self) -> None:
        _whole("rounds", self.rounds, 1, MOST_ROUNDS)
        _whole("max_items_per_user", self.max_items_per_user, 1, MOST_ITEMS)
        _inside("first_share", self.first_share, 0.0, 1.0, above=True)
        _inside("keep_fraction", self.keep_fraction, 0.0, 1.0)
        _inside("keep_margin", self.keep_margin, 0.0, 100.0)
        _inside("cutoff_margin", self.cutoff_margin, 0.0, 100.0)
        _inside("item_cap", self.item_cap, 0.0, 1.0, above=True)
        if (self.rounds == 1) != (self.first_share == 1.0):
            raise BadParameter(
                f"A first_share of {self.first_share} does not fit {self.rounds} rounds.",
                "A single round takes a first_share of 1; several rounds need one below 1.",
            )

    @property
    def squared_shares(self) -> tuple[float, ...]:
        """c_r² for r = 1..rounds; they sum to 1."""
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
    def caps_in_budget(self) -> tuple[int, float]:
        """(m, rest): how many full caps fit into a round's budget, m = floor(1/b²), and what is left, 1 − m b².

        A rest below 0.01 is given up: the budget is then taken as exactly m caps, and rest is 0.
        """
        caps = int(1.0 / self.item_cap**2 + 1e-9)
        rest = max(0.0, 1.0 - caps * self.item_cap**2)
        return (caps, 0.0) if rest < 0.01 else (caps, rest)

    def keep_lines(self, stddev: float, threshold: float) -> tuple[float, ...]:
        """κ f_r ρ − z σ √f_r for r = 1..rounds-1: an item stays alive while its score is above them."""
        return tuple(
            self.keep_fraction * done * threshold - self.keep_margin * stddev * math.sqrt(done)
            for done in self.spent[:-1]
        )

    def cutoff(self, stddev: float, threshold: float) -> float:
        """ρ + ασ: the score beyond which an item needs nothing more."""
        return threshold + self.cutoff_margin * stddev


def _whole(name: str, got: int, least: int, most: int) -> None:
    if isinstance(got, bool) or not isinstance(got, int) or not least <= got <= most:
        raise BadParameter(
            f"The {name!r} parameter must be a whole number from {least} to {most}. Got {got!r} instead.",
            f"Choose {name!r} in this range.",
        )


def _inside(name: str, got: float, low: float, high: float, *, above: bool = False) -> None:
    number = isinstance(got, (int, float)) and not isinstance(got, bool) and math.isfinite(got)
    if not number or not low <= got <= high or (above and got == low):
        raise BadParameter(
            f"The {name!r} parameter must be a number {'above' if above else 'from'} {low:g} "
            f"{'and at most' if above else 'to'} {high:g}. Got {got!r} instead.",
            f"Choose {name!r} in this range.",
        )

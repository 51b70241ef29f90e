"""How much of an item's need one shard fills, and the unit in which shards report it. All of it is public."""

from __future__ import annotations

import math

from dpunion.algorithms import MAX_ITEMS, Funnel
from dpunion.calibration.rounding import LARGEST_SCORE_SPREAD, MAX_USERS, score_spread
from dpunion.errors import BadParameter

# Half of the users whose rounding the noise pays for: the other half pays for flooring weights to whole units.
MAX_USERS_PER_SHARD = MAX_USERS // 2
MAX_ITEMS_PER_SHARD = 2**28
# How far a shard overshoots its plain part, by which an item's holders are spread unevenly; chosen on public data.
UNEVEN = 0.55


def shard_share(shards: int, cutoff: float | None) -> float:
    """Return the part of an item's need that one shard fills: (1/sqrt(shards) + 0.55/sqrt(cutoff))^2, at most 1.

    With the plain part, 1/shards, items whose few holders are spread unevenly are cut short in the shards that have
    many of them; filling more costs budget only on items that are held everywhere.

    It must be the same for all items: Theorem B of docs/guarantees-funnel.md compares a novel item's gift with those of
    its companions, and holds for every common factor up to 1, but not for a function of the need that bends. Without a
    cutoff there is no need to fill.
    """
    if shards == 1 or cutoff is None:
        return 1.0
    return min(1.0, (1.0 / math.sqrt(shards) + UNEVEN / math.sqrt(cutoff)) ** 2)


def unit_for(highest: float, shards: int) -> float:
    """Return the unit in which shards report, a power of two: the finest in which no item's sum reaches 2^62.

    highest: the largest need there can be, which no shard exceeds. The unit is at most 2^-61 of `shards` such needs, so
    that flooring costs far less than the half of the rounding slack that is left for it (docs/guarantees.md, "Shards").
    """
    return math.ldexp(1.0, math.frexp(highest * shards)[1] - 62)


def check_scores(stddev: float, threshold: float, shape: Funnel, shards: int) -> None:
    """Refuse so many shards that rounding in Funnel's scores is no longer negligible (docs/guarantees.md, "Shards").

    In the proof of Theorem F5 the weights are 2-Lipschitz in the targets; summed over shards, 2 k shards-Lipschitz, and
    what counts of the sum is a function of the scores.
    """
    overshoot = shards * shard_share(shards, shape.cutoffs(stddev, threshold)[0])
    counted = 5.0 if shards > 1 else 0.0
    steeper = (10.2 + counted + 12.0 * overshoot) / 22.2 * math.sqrt(MAX_ITEMS_PER_SHARD / MAX_ITEMS)
    if score_spread(stddev, threshold, shape) * steeper > LARGEST_SCORE_SPREAD:
        raise BadParameter(
            f"Rounding does not allow {shards} shards for this funnel.", "Use fewer 'shards' (--shards) or rounds."
        )

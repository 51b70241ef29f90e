"""The part of delta that a private look costs, when its result chooses the plan of the release after it.

docs/guarantees-funnel.md, section 10: let the look be a Gaussian release of ratio nu = sensitivity/stddev, with
likelihood ratio X, and let every release that may follow keep delta_G(epsilon; mu) + p <= room, with its own mu <= mu_0
and p. Then look and release together are (epsilon, delta)-private with

    delta = room (1 + E[(X - 1)+]) + E[(v(X) - v(1))+] + 2 E[X; X > x_1],    v(x) = x delta_G(epsilon - ln x; mu_0),

for any x_1 <= e^epsilon. Here x_1 = e^(12 nu).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpunion.calibration.gaussian import GUARD, gaussian_stddev
from dpunion.kernels.normal import gaussian_delta, upper_tail

CELLS = 400
HIGHEST = 12.0
"""The bound gives up beyond this many standard deviations, and the look uses less of epsilon than that reveals."""


@dataclass(frozen=True, slots=True)
class LookCost:
    """The cost of a look.

    room: the delta that releases after the look may use. ratio: the look's sensitivity over its stddev. growth:
    E[(X - 1)+]. excess: E[(v(X) - v(1))+] + 2 E[X; X > x_1].
    """

    ratio: float
    room: float
    growth: float
    excess: float

    def whole(self, delta_used: float) -> float:
        """Return the delta of look and release together, for a release whose certificate says delta_used."""
        return delta_used * (1.0 + self.growth) + self.excess


def cost_of_look(epsilon: float, delta: float, strength: float) -> LookCost:
    """Return the cost of a look; strength: its ratio, relative to one Gaussian release with the whole budget.

    A release within delta has delta_G(epsilon; mu) <= delta, so its mu is at most that of the whole budget: mu_0.
    """
    largest = (1.0 + GUARD) / gaussian_stddev(epsilon, delta, 1.0)
    ratio = min(strength * largest, epsilon / (HIGHEST + 1.0))
    # E[(X - 1)+] for X = e^(nu Z - nu^2/2) is delta_G(0; nu).
    growth, excess = gaussian_delta(0.0, ratio) * (1.0 + GUARD), _excess(epsilon, largest, ratio)
    return LookCost(ratio, (delta * (1.0 - GUARD) - excess) / (1.0 + growth), growth, excess)


def _excess(epsilon: float, mu: float, ratio: float) -> float:
    """Return an upper bound of E[(v(X) - v(1))+] + 2 E[X; X > x_1].

    v is convex, so its chords lie above it; the moments of X are exact. X > 1 where Z > nu/2. Pr[Z in a cell] and
    E[X; Z in a cell] are differences of normal tails, the second of Z - nu.
    """
    points = [ratio / 2.0 + HIGHEST * cell / CELLS for cell in range(CELLS + 1)]
    ratios = [math.exp(ratio * point - ratio * ratio / 2.0) for point in points]
    values = [x * gaussian_delta(epsilon - math.log(x), mu) for x in ratios]
    chances = [upper_tail(point) for point in points]
    moments = [upper_tail(point - ratio) for point in points]
    total = 0.0
    for cell in range(CELLS):
        chance = chances[cell] - chances[cell + 1]
        slope = (values[cell + 1] - values[cell]) / (ratios[cell + 1] - ratios[cell])
        above = moments[cell] - moments[cell + 1] - ratios[cell] * chance
        total += (values[cell] - values[0]) * chance + slope * max(0.0, above)
    # Above the last point the bound takes both terms as certain.
    return (total + 2.0 * moments[-1]) * (1.0 + 1e-4)

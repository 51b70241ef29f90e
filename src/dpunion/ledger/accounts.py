"""The caps of a dataset and the cost of a release: the composition rules, proved in docs/ledger.md.

Additive: the epsilons and deltas of all releases are summed (basic composition).
Tight: except for an event of probability `novelty`, every release is a Gaussian mechanism with ratio mu of sensitivity
to stddev, up to `rounding` of privacy loss. The numbers mu^2, novelty and rounding are summed, and the caps are fixed
when the account is opened, so that the total holds even if each budget is chosen after seeing earlier releases.
"""

from __future__ import annotations

import math

from dpunion.budget import SMALLEST_DELTA, SMALLEST_EPSILON, Budget
from dpunion.calibration.gaussian import GUARD, normal_quantile_above
from dpunion.calibration.rounding import ALL_FLOORS, COLLISION, EPSILON_SLACK, EXTREME_NORMALS
from dpunion.checks import check_real
from dpunion.errors import BadParameter
from dpunion.kernels.normal import gaussian_delta
from dpunion.ledger import amounts
from dpunion.ledger.amounts import DELTA_UNITS, EPSILON_UNITS, Amounts, Composition, units_of_computed, units_of_decimal
from dpunion.plans import Plan, Planned

# A tight account sets aside this part of delta for items that only one person has. The Gaussian part needs little: its
# delta falls so fast that ten times less of it costs a tenth of mu^2.
NOVELTY_SHARE = 0.9
# A tight account sets aside this part of epsilon for the rounding of decisions, and at most 1/64: 2048 releases.
ROUNDING_PART = 256
LARGEST_ROUNDING = EPSILON_UNITS // 64

LARGEST_TOTAL = {Composition.ADDITIVE: 1e6, Composition.TIGHT: 100.0}


def account_caps(
    epsilon: float, delta: float, composition: Composition, novelty_share: float = NOVELTY_SHARE
) -> Amounts:
    """Return the most that all releases of a dataset may add up to, rounded down."""
    for name, value, low, high in (
        ("epsilon", epsilon, SMALLEST_EPSILON, LARGEST_TOTAL[composition]),
        ("delta", delta, SMALLEST_DELTA, math.nextafter(1.0, 0.0)),
        ("novelty_share", novelty_share, 0.01, 0.99),
    ):
        remedy = f"Choose {name!r} in this range; it is the total for all releases."
        check_real("a dataset", name, value, low, high, remedy)
    whole = Amounts(
        epsilon=units_of_decimal("epsilon", epsilon, EPSILON_UNITS, up=False),
        delta=units_of_decimal("delta", delta, DELTA_UNITS, up=False),
    )
    if composition is Composition.ADDITIVE:
        return whole
    rounding = min(whole.epsilon // ROUNDING_PART, LARGEST_ROUNDING)
    if (rare := rare_events(epsilon, rounding)) > 0.5 * delta:
        raise BadParameter(
            "dpunion's random numbers are too coarse for such a small delta with such a large epsilon.",
            "Choose a larger delta, a smaller epsilon or additive composition.",
        )
    usable = whole.delta - math.ceil(rare * DELTA_UNITS)
    novelty = math.floor(usable * novelty_share)
    low, high = 0, amounts.MU_SQUARED_UNITS
    while _holds(Amounts(whole.epsilon, whole.delta, high, novelty, rounding), GUARD):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if _holds(Amounts(whole.epsilon, whole.delta, middle, novelty, rounding), GUARD):
            low = middle
        else:
            high = middle
    return Amounts(whole.epsilon, whole.delta, low, novelty, rounding)


def rare_events(epsilon: float, rounding: int) -> float:
    """Return the delta for extreme normals and floors of coins, of as many steps as the rounding allows."""
    steps = rounding / EPSILON_UNITS / EPSILON_SLACK
    return (1.0 + math.exp(min(epsilon, 200.0))) * (EXTREME_NORMALS + ALL_FLOORS) * steps  # more is forged


def caps_hold(caps: Amounts, composition: Composition) -> bool:
    """Say whether releases that add up to `caps` keep the promised epsilon and delta."""
    return composition is Composition.ADDITIVE or _holds(caps, 0.0)


def _holds(caps: Amounts, guard: float) -> bool:
    """Check e^(rounding/2) (delta_G(epsilon - rounding; mu) + novelty) + rare <= delta (docs/ledger.md, theorem 3)."""
    epsilon, rounding = caps.epsilon / EPSILON_UNITS, caps.rounding / EPSILON_UNITS
    mu = math.sqrt(caps.mu_squared / amounts.MU_SQUARED_UNITS)
    total = math.exp(rounding / 2.0) * (gaussian_delta(epsilon - rounding, mu) + caps.novelty / DELTA_UNITS)
    usable = caps.delta - math.ceil(rare_events(epsilon, caps.rounding) * DELTA_UNITS)
    return total * (1.0 + guard) <= usable / DELTA_UNITS


def charge_for(planned: Planned) -> Amounts:
    """Return what any release by this plan may cost, in either composition: of each number the largest."""
    if not planned.alternatives:
        return charge_for_budget(planned.budget)
    charges = [charge_for_plan(plan).values() for plan in planned.alternatives]
    return Amounts(*map(max, zip(*charges, strict=True)))


def charge_for_plan(plan: Plan) -> Amounts:
    """Return the cost of a release with this plan, in either composition, rounded up.

    Counts and the look each add their squared mu and their rounding.
    """
    if plan.novelty is None:
        return charge_for_budget(plan.budget)
    mu = math.sqrt(plan.selecting + math.fsum(stddev**-2.0 for stddev in plan.extra_stddevs))
    return charge_for_gaussian(plan.budget, mu, plan.novelty, EPSILON_SLACK * (1 + len(plan.extra_stddevs)))


def charge_for_gaussian(budget: Budget, mu: float, novelty: float, rounding: float = EPSILON_SLACK) -> Amounts:
    """Return the cost of a Gaussian release: sensitivity/stddev = mu, except for an event of probability `novelty`.

    rounding: the privacy loss that its float64 decisions may add, both worlds together (`calibration.rounding`); the
    floors of its coins and a collision of digests are further events.
    """
    rare = novelty * (1.0 + GUARD) + ALL_FLOORS + COLLISION
    return Amounts(
        epsilon=units_of_decimal("epsilon", budget.epsilon, EPSILON_UNITS, up=True),
        delta=units_of_decimal("delta", budget.delta, DELTA_UNITS, up=True),
        mu_squared=units_of_computed("mu", mu * mu, amounts.MU_SQUARED_UNITS),
        novelty=units_of_computed("novelty", rare, DELTA_UNITS),
        rounding=units_of_computed("rounding", rounding, EPSILON_UNITS),
    )


def charge_for_budget(budget: Budget) -> Amounts:
    """Return the cost of any (epsilon, delta)-private release.

    Except for an event of probability delta, such a release is no worse than randomised response with epsilon (Kairouz,
    Oh & Viswanath 2015), which is no worse than a Gaussian with Pr[Z > mu/2] = 1/(1 + e^epsilon)
    (docs/ledger.md, lemma 2). (epsilon, delta) already includes rounding.
    """
    tail = 1.0 / (1.0 + math.exp(budget.epsilon)) * (1.0 - 1e-12)
    mu = 2.0 * normal_quantile_above(tail)
    return Amounts(
        epsilon=units_of_decimal("epsilon", budget.epsilon, EPSILON_UNITS, up=True),
        delta=units_of_decimal("delta", budget.delta, DELTA_UNITS, up=True),
        mu_squared=units_of_computed("mu", mu * mu, amounts.MU_SQUARED_UNITS),
        novelty=units_of_decimal("delta", budget.delta, DELTA_UNITS, up=True),
    )

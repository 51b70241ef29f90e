"""The numbers of the default menu are what default_funnel_private (proofs/whole.v) asks for: by intervals.

Every number below is an enclosure: a comparison is true only if it is true of all numbers inside. The chances p_t are
the upper bounds that Theorem B's recursion returns (docs/proofs.md, "What is not covered").
"""

import dataclasses
import math

import numpy as np
import pytest
from flint import arb, ctx

from dpunion.budget import Budget
from dpunion.calibration.gaussian import GUARD, gaussian_stddev
from dpunion.calibration.look import HIGHEST
from dpunion.calibration.novelty import WalkNovelty, largest_gifts
from dpunion.calibration.rounding import calibration_target
from dpunion.plans import target_steps
from dpunion.plans.look import plan_look

BUDGETS = [(1.0, 1e-6), (0.1, 1e-9), (3.0, math.exp(-10)), (8.0, 1e-5)]
PIECES = 100
CELLS = 400


@pytest.fixture(autouse=True)
def _precision():
    before, ctx.prec = ctx.prec, 150
    yield
    ctx.prec = before


def tail(x):
    return (x / arb(2).sqrt()).erfc() / 2


def delta_g(epsilon, mu):
    """Enclose delta_G as proofs/gaussian.v defines it, for mu > 0."""
    return tail(epsilon / mu - mu / 2) - epsilon.exp() * tail(epsilon / mu + mu / 2)


def targets(epsilon, delta):
    """Return what the calibration must keep, after what float64 takes."""
    budget = Budget(epsilon, delta)
    return target_steps(budget, *calibration_target(epsilon, delta), 1)


def keeps_delta(plan, epsilon, room):
    """plan_certified.keeps_delta, for every number t of novel items and every gift y of round 1."""
    shape, sigma = plan.algorithm, arb(plan.scale)
    first, items = arb(shape.squared_shares[0]), shape.max_items_per_user
    novelty = WalkNovelty(plan.scale, plan.threshold, shape)
    novel = np.arange(1, items + 1)
    gifts = largest_gifts(plan.scale, plan.threshold, shape) * (1 + 2.0**-50)  # not below the real ones
    bad = novelty.at(novel, gifts)
    if not delta_g(epsilon, 1 / sigma) <= room:
        return False
    for t in range(1, items + 1):
        # The weaker form (certified_weaker): the largest move of round 1 and the largest gift.
        moved = 1 - first * t / items
        if delta_g(epsilon, moved.sqrt() / sigma) + arb(float(bad[t - 1])) <= room:
            continue
        # Pieces of the range of y, with the move at the lower and p_t at the upper end. Below the first end both grow.
        lowest = min(float(gifts[t - 1]), math.sqrt(shape.squared_shares[0] / items) * (1 - 1e-12))
        ends = np.linspace(lowest, float(gifts[t - 1]), PIECES + 1)
        passing = novelty.along(t, ends)
        for low, high in zip(ends[:-1], passing[1:], strict=True):
            squared = first - t * arb(float(low)) ** 2
            kept = 1 - first + (squared if squared > 0 else arb(0))
            if not delta_g(epsilon, kept.sqrt() / sigma) + arb(float(high)) <= room:
                return False
    return True


def cost_of_look(epsilon, mu, nu, room):
    """Enclose from above the mean of look_bound (proofs/look.v): v is convex, so it lies below its chords."""
    points = [nu / 2 + arb(HIGHEST) * cell / CELLS for cell in range(CELLS + 1)]
    ratios = [(nu * z - nu * nu / 2).exp() for z in points]
    values = [x * delta_g(epsilon - x.log(), mu) for x in ratios]
    # Beyond the last point v is at most x, and look_bound adds 2 x there.
    total = room * (1 + delta_g(arb(0), nu)) + 3 * tail(points[-1] - nu)
    for left, right in zip(range(CELLS), range(1, CELLS + 1), strict=True):
        chance = tail(points[left]) - tail(points[right])
        moment = tail(points[left] - nu) - tail(points[right] - nu)
        slope = (values[right] - values[left]) / (ratios[right] - ratios[left])
        total += (values[left] - values[0]) * chance + slope * (moment - ratios[left] * chance)
    return total


@pytest.fixture(scope="module", params=BUDGETS, ids=str)
def menu(request):
    """A budget's targets and its default menu."""
    epsilon, delta = request.param
    return *targets(epsilon, delta), plan_look(Budget(epsilon, delta), None, {})


def test_every_plan_of_the_default_menu_has_its_certificate(menu):
    epsilon, delta, planned = menu
    room, largest = arb(planned.look.delta), (1.0 + GUARD) / gaussian_stddev(epsilon, delta, 1.0)
    for plan in planned.alternatives:
        shares = plan.algorithm.squared_shares
        assert plan.scale > 0
        assert plan.threshold >= 0
        assert plan.counts is None  # plan_counting is 0
        assert 0 <= shares[0] <= 1
        assert abs(sum(shares) - 1) < 1e-12
        rounded = 1 + arb(2) ** -51  # an aim of 1/c is a float64
        assert all(
            arb(c) * arb(aim) <= rounded for c, aim in zip(plan.algorithm.shares, plan.algorithm.aims, strict=True)
        )
        assert 1 / arb(plan.scale) <= arb(largest)  # distance_within
        assert keeps_delta(plan, arb(epsilon), room)


def test_the_look_of_the_default_menu_is_paid_for(menu):
    epsilon, delta, planned = menu
    nu, largest = 1 / arb(planned.look.stddev), (1.0 + GUARD) / gaussian_stddev(epsilon, delta, 1.0)
    room = arb(planned.look.delta)
    assert 0 <= room <= 1
    assert arb(HIGHEST) * nu <= arb(epsilon)  # x1 <= e^eps
    assert cost_of_look(arb(epsilon), arb(largest), nu, room) <= arb(delta)
    assert not cost_of_look(arb(epsilon), arb(largest), nu, arb(delta)) <= arb(delta), "a look that is not paid for"


def test_a_plan_with_a_little_less_noise_or_threshold_has_none():
    epsilon, _ = targets(1.0, 1e-6)
    planned = plan_look(Budget(1.0, 1e-6), None, {})
    plan, room = planned.alternatives[0], arb(planned.look.delta)
    assert keeps_delta(plan, arb(epsilon), room)
    assert not keeps_delta(dataclasses.replace(plan, scale=plan.scale * 0.99), arb(epsilon), room)
    assert not keeps_delta(dataclasses.replace(plan, threshold=plan.threshold * 0.98), arb(epsilon), room)

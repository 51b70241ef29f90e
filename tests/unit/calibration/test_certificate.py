"""The numbers of the default menu are what default_funnel_private (proofs/whole.v) asks for: by intervals.

Every number below is an enclosure or a fraction: a comparison is true only if it is true of all numbers inside. The
chances p_t are the upper bounds that Theorem B's recursion returns in float64, rounded up by the factor of the prose:
no enclosure (docs/proofs.md, "What is not covered"). Noise and threshold are those before rounding's slack eta.
"""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx

from dpunion.budget import Budget
from dpunion.calibration import novelty
from dpunion.calibration.gaussian import GUARD, gaussian_stddev
from dpunion.calibration.look import HIGHEST
from dpunion.calibration.novelty import WalkNovelty, largest_gifts
from dpunion.calibration.rounding import UNIT_ROUNDOFF, calibration_target
from dpunion.mechanisms import mechanism_for
from dpunion.plans import STEPS, target_steps
from dpunion.plans.candidates import add_candidates
from dpunion.plans.counts import Counts
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


def targets(epsilon, delta, steps=1):
    """Return what the calibration must keep, after what float64 takes."""
    budget = Budget(epsilon, delta)
    return target_steps(budget, *calibration_target(epsilon, delta), steps)


def before_slack(plan):
    """Return the plan for exact arithmetic: without what rounding's slack eta has added."""
    base = 1.0 + plan.rounding_slack
    return dataclasses.replace(plan, scale=plan.scale / base, threshold=plan.threshold / base)


def counting_of(plan):
    """plan_counting: what the steps of counting add to the squared distance."""
    return arb(0) if plan.counts is None else sum((1 / arb(one) ** 2 for one in plan.counts.stddevs), arb(0))


def keeps_delta(plan, epsilon, room):
    """plan_certified.keeps_delta, for every number t of novel items and every gift y of round 1."""
    shape, sigma, counting = plan.algorithm, arb(plan.scale), counting_of(plan)
    first, items = arb(shape.squared_shares[0]), shape.max_items_per_user
    novelty = WalkNovelty(plan.scale, plan.threshold, shape)
    novel = np.arange(1, items + 1)
    gifts = largest_gifts(plan.scale, plan.threshold, shape) * (1 + 2.0**-50)  # not below the real ones
    bad = novelty.at(novel, gifts)
    if not delta_g(epsilon, (1 / sigma**2 + counting).sqrt()) <= room:  # t = 0, and p_0 = 0
        return False
    for t in range(1, items + 1):
        # The weaker form (certified_weaker): the largest move of round 1 and the largest gift.
        moved = 1 - first * t / items
        if delta_g(epsilon, (moved / sigma**2 + counting).sqrt()) + arb(float(bad[t - 1])) <= room:
            continue
        # Pieces of the range of y, with the move at the lower and p_t at the upper end. Below the first end both grow.
        lowest = min(float(gifts[t - 1]), math.sqrt(shape.squared_shares[0] / items) * (1 - 1e-12))
        ends = np.linspace(lowest, float(gifts[t - 1]), PIECES + 1)
        passing = novelty.along(t, ends)
        for low, high in zip(ends[:-1], passing[1:], strict=True):
            squared = first - t * arb(float(low)) ** 2
            kept = 1 - first + (squared if squared > 0 else arb(0))
            if not delta_g(epsilon, (kept / sigma**2 + counting).sqrt()) + arb(float(high)) <= room:
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


def check_certificate(plan, epsilon, delta, room):
    """plan_certified, for the shape, noise and threshold of a plan before rounding's slack."""
    exact, largest = before_slack(plan), (1.0 + GUARD) / gaussian_stddev(epsilon, delta, 1.0)
    assert exact.scale > 0
    assert exact.threshold >= 0
    assert 0 <= exact.algorithm.squared_shares[0] <= 1
    assert min(exact.algorithm.shares) >= 0
    assert min(exact.algorithm.aims) >= 0
    assert (1 / arb(exact.scale) ** 2 + counting_of(exact)).sqrt() <= arb(largest)  # distance_within
    assert keeps_delta(exact, arb(epsilon), room)


def test_every_plan_of_the_default_menu_has_its_certificate(menu):
    epsilon, delta, planned = menu
    for plan in planned.alternatives:
        assert plan.counts is None  # plan_counting is 0
        check_certificate(plan, epsilon, delta, arb(planned.look.delta))


def excesses(plan):
    """By how much the squared budgets of float64 add up to more than 1, and c_r times each aim is more than 1."""
    budgets, aims = (list(map(Fraction, numbers)) for numbers in (plan.algorithm.shares, plan.algorithm.aims))
    return sum(c * c for c in budgets) - 1, [c * aim - 1 for c, aim in zip(budgets, aims, strict=True)]


def rounding_of_a_round(plan):
    """Tau of Theorem F5: what float64 may add to a score in one round."""
    shape = plan.algorithm
    largest = shape.cutoffs(plan.scale, plan.threshold)[0] + (13.2 + shape.keep_margin) * plan.scale
    return 5 * Fraction(UNIT_ROUNDOFF) * Fraction(largest)


def test_the_last_bits_of_budgets_and_aims_are_paid_for(menu):
    """The theorem asks for sum c_r^2 <= 1 and c_r * aim_r <= 1; in float64 both can be exceeded in the last bits.

    eta pays for 2n visits, and two worlds make 2n - 1 (docs/guarantees-funnel.md, 7.2): budgets that are larger by
    less than what one visit may drift are within 1 + eta. A larger aim makes a target larger, by less than what is left
    of tau for a target's own rounding, of which two roundings of need and product take 2u.
    """
    *_, planned = menu
    for plan in planned.alternatives:
        shape, u = plan.algorithm, Fraction(UNIT_ROUNDOFF)
        of_budgets, of_aims = excesses(plan)
        assert of_budgets < Fraction(3, 10**16)
        assert max(of_aims) <= 2 * u
        one_visit = (Fraction(shape.max_items_per_user, 2) + 5) * u
        assert 1 + of_budgets <= (1 + one_visit) ** 2
        assert 2 * 2**30 * one_visit <= Fraction(plan.rounding_slack)
        lines = (0.0, *shape.keep_lines(plan.scale, plan.threshold))
        for excess, cutoff, line in zip(of_aims, shape.cutoffs(plan.scale, plan.threshold), lines, strict=True):
            most_needed = Fraction(cutoff) - Fraction(line)
            assert (max(excess, 0) + 2 * u) * most_needed <= rounding_of_a_round(plan)


def test_some_budgets_of_the_default_menu_do_exceed_1():
    """So that the test above is about something."""
    planned = plan_look(Budget(1.0, 1e-6), None, {})
    found = [excesses(plan) for plan in planned.alternatives]
    assert max(of_budgets for of_budgets, _ in found) > 0


def test_windows_lie_between_the_lines_and_the_threshold(menu):
    """low_r >= line_r, and high_r + f_r <= rho up to tau, for which p_t is rounded up (7.3 there).

    high_r is where a window ends, and what companions need at least is what they need there. A window in which nobody
    stays, or whose companions may need nothing, counts for nothing.
    """
    *_, planned = menu
    for plan in map(before_slack, planned.alternatives):
        shape, sigma, rho = plan.algorithm, plan.scale, plan.threshold
        grid = novelty.score_grid(sigma, rho, shape, novelty.FINE)
        crowd = novelty._Crowd.of(sigma, rho, shape, grid.starts, novelty.FINE)
        assert all(low >= line for low, line in zip(grid.starts, shape.keep_lines(sigma, rho), strict=True))
        spent, checked = Fraction(0), 0
        rounds = zip(shape.shares[:-1], crowd.needs, crowd.stay, shape.cutoffs(sigma, rho)[1:], strict=True)
        for c, need, stay, cutoff in rounds:
            spent += Fraction(c) ** 2
            if need > 0 and stay > 0:
                high = Fraction(cutoff) - spent - Fraction(need)
                assert high + spent <= Fraction(rho) + rounding_of_a_round(plan)
                checked += 1
        assert checked > 0


def test_a_plan_with_a_list_meets_condition_a_and_keeps_its_certificate(menu):
    """In round 1 no computed target of a listed item is larger; and the certificate is that without a list."""
    epsilon, delta, planned = menu
    with_list = add_candidates(planned, None, 1e-4)
    for plan, without in zip(with_list.alternatives, planned.alternatives, strict=True):
        assert plan.candidates.threshold < plan.threshold
        mechanism = mechanism_for(plan)
        listed, plain = mechanism.targets(np.zeros(2), 0, np.array([True, False]))
        assert 0 <= listed <= plain
        assert Fraction(plain) <= Fraction(mechanism.cutoffs[0]) * Fraction(mechanism.aims[0]) * (
            1 + Fraction(1, 2**53)
        )
        if (plan.scale, plan.threshold, plan.rounding_slack) != (
            without.scale,
            without.threshold,
            without.rounding_slack,
        ):
            check_certificate(plan, epsilon, delta, arb(planned.look.delta))


@pytest.mark.parametrize("given", BUDGETS, ids=str)
def test_plans_with_counts_have_their_certificate(given):
    epsilon, delta = targets(*given, 1 + STEPS)
    planned = plan_look(Budget(*given), Counts(), {})
    room, largest = arb(planned.look.delta), (1.0 + GUARD) / gaussian_stddev(epsilon, delta, 1.0)
    nu = 1 / arb(planned.look.stddev)
    assert cost_of_look(arb(epsilon), arb(largest), nu, room) <= arb(delta)
    for plan in planned.alternatives:
        assert counting_of(plan) > 0
        check_certificate(plan, epsilon, delta, room)
    assert not keeps_delta(
        dataclasses.replace(before_slack(plan), counts=dataclasses.replace(plan.counts, fine=plan.counts.fine / 2)),
        arb(epsilon),
        room,
    ), "counts that cost more"


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
    plan, room = before_slack(planned.alternatives[0]), arb(planned.look.delta)
    assert keeps_delta(plan, arb(epsilon), room)
    assert not keeps_delta(dataclasses.replace(plan, scale=plan.scale * 0.99), arb(epsilon), room)
    assert not keeps_delta(dataclasses.replace(plan, threshold=plan.threshold * 0.98), arb(epsilon), room)

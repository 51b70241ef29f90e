"""Noise and thresholds against the papers' numbers, exact arithmetic and an independent accountant."""

import math

import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from dpunion.calibration import bounds, gaussian
from dpunion.kernels import normal

E10 = math.exp(-10)
GRID = [(e, d) for e in (0.01, 0.1, 1.0, 3.0, 8.0, 20.0) for d in (1e-15, 1e-9, 1e-5, 1e-2)]


def arb_tail(x):
    return (x / arb(2).sqrt()).erfc() / 2


def arb_delta(epsilon, mu):
    e = arb(epsilon)
    return arb_tail(e / mu - mu / 2) - e.exp() * arb_tail(e / mu + mu / 2)


@pytest.fixture(autouse=True)
def _precision():
    before, ctx.prec = ctx.prec, 1000
    yield
    ctx.prec = before


@pytest.mark.parametrize("x", [-30.0, -6.5, -1.0, -0.3, 0.0, 0.7, 5.0, 20.0, 34.9, 35.1, 60.0, 1e3])
def test_tails_are_accurate_far_out(x):
    exact = arb_tail(arb(x))
    if x < 37:
        # Rounding the argument, and the constant it is multiplied by, are worth 2 x^2 roundings of the tail.
        assert abs(normal.upper_tail(x) / float(exact) - 1) < (8 + 2 * x * x) * 2**-53
    assert abs(normal.log_upper_tail(x) - float(exact.log())) <= 1e-13 * abs(float(exact.log())) + 1e-300


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_the_noise_ends_on_the_private_side(epsilon, delta):
    stddev = gaussian.gaussian_stddev(epsilon, delta, 1.0)
    used = arb_delta(epsilon, 1 / arb(stddev))
    assert used < arb(delta)
    assert arb_delta(epsilon, 1 / (arb(stddev) * arb("0.999999"))) > arb(delta), "far from tight"


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_gaussian_delta_has_the_relative_accuracy_the_guard_assumes(epsilon, delta):
    stddev = gaussian.gaussian_stddev(epsilon, delta, 1.0)
    computed = normal.gaussian_delta(epsilon, 1.0 / stddev)
    assert abs(computed / float(arb_delta(epsilon, arb(1.0 / stddev))) - 1) < 1e-10


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (1.0, 1e-5), (3.0, E10), (10.0, 1e-9)])
def test_the_noise_agrees_with_an_independent_accountant(epsilon, delta):
    import dp_accounting

    expected = dp_accounting.get_sigma_gaussian(epsilon, delta)
    assert gaussian.gaussian_stddev(epsilon, delta, 1.0) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "delta", "stddev", "threshold", "published_stddev", "published_threshold"),
    [(3.0, E10, 1.2824, 6.3974, 1.3328, 6.8237), (1.0, 1e-5, 3.7306, 19.497, 3.8841, 20.790)],
)
def test_golden_values(epsilon, delta, stddev, threshold, published_stddev, published_threshold):
    exact = gaussian.exact_unit_norm(epsilon, delta, 100)
    assert exact.scale == pytest.approx(stddev, rel=4e-5)
    assert exact.threshold == pytest.approx(threshold, rel=4e-5)
    published = gaussian.published_unit_norm(epsilon, delta, 100)
    assert published.scale == pytest.approx(published_stddev, rel=4e-5)
    assert published.threshold == pytest.approx(published_threshold, rel=4e-5)
    assert published.delta_used == pytest.approx(delta / 2, rel=1e-6), "the papers' constants waste half of delta"


@pytest.mark.parametrize("limit", [1, 2, 7, 100, 400])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-5), (3.0, E10), (8.0, 1e-3)])
def test_every_certificate_holds_and_is_used_up(epsilon, delta, limit):
    for calibrate in (gaussian.exact_unit_norm, gaussian.exact_count):
        found = calibrate(epsilon, delta, limit)
        assert 0.99 * delta <= found.delta_used < delta
    unit = gaussian.exact_unit_norm(epsilon, delta, limit)
    assert normal.unit_norm_delta(epsilon, unit.scale, 0.98 * unit.threshold, limit, 400, 0.0)[0] > delta
    assert normal.unit_norm_delta(epsilon, 0.98 * unit.scale, unit.threshold, limit, 400, 0.0)[0] > delta


@pytest.mark.parametrize("limit", [1, 10, 100])
@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_novel_items_pass_with_at_most_delta(epsilon, delta, limit):
    """1 - (1 - tail)^t <= delta for every t, in exact arithmetic."""
    spread = gaussian.exact_unit_norm(epsilon, delta, limit)
    count = gaussian.exact_count(epsilon, delta, limit)
    lap_spread = bounds.published_spread(epsilon, delta, limit)
    lap_count = bounds.published_count_laplace(epsilon, delta, limit)
    for t in range(1, limit + 1):
        root = arb(t).sqrt()
        tail = arb_tail((arb(spread.threshold) - 1 / root) / arb(spread.scale))
        assert 1 - (1 - tail) ** t < arb(delta)
        tail = arb_tail((arb(count.threshold) - 1) / arb(count.scale))
        assert 1 - (1 - tail) ** t < arb(delta)
        for found, weight in ((lap_spread, arb(1) / t), (lap_count, arb(1))):
            tail = (-(arb(found.threshold) - weight) / arb(found.scale)).exp() / 2
            assert 1 - (1 - tail) ** t < arb(delta)


def test_the_wrong_tail_formula_would_be_caught():
    """A Laplace threshold under Gaussian noise, as one library once shipped, is not certified."""
    stddev = gaussian.gaussian_stddev(1.0, 1e-6, 1.0)
    wrong = 1.0 + bounds.laplace_quantile_above(1e-6, 1.0)
    assert normal.unit_norm_delta(1.0, stddev, wrong, 1, 400, 0.0)[0] > 1e-6


def test_large_deltas_use_the_other_half_of_the_laplace_tail():
    assert bounds.laplace_quantile_above(0.75, 2.0) == pytest.approx(-2.0 * math.log(2.0))
    assert bounds.laplace_quantile_above(0.25, 2.0) == pytest.approx(2.0 * math.log(2.0))


def hockey_stick(p, q, epsilon):
    return sum(max(0.0, a - math.exp(epsilon) * b) for a, b in zip(p, q, strict=True))


@given(st.integers(0, 3), st.floats(0.0, 1.0), st.floats(0.3, 3.0), st.floats(0.1, 3.0), st.floats(0.5, 6.0))
def test_mixed_delta_bounds_the_true_divergence(t, part, stddev, epsilon, threshold):
    """One shared item of any base weight and t novel ones: the released set's exact distribution, both directions."""
    novel_weight = math.sqrt(part / t) if t else 0.0
    shared_shift = math.sqrt(max(0.0, 1.0 - t * novel_weight**2))
    log_quiet = t * normal.log_upper_tail((novel_weight - threshold) / stddev)
    bound = normal.mixed_delta(epsilon, log_quiet, shared_shift / stddev)
    quiet = math.exp(log_quiet)
    for base in (0.0, threshold - 1.0, threshold - 0.4, threshold, threshold + 1.0):
        without = normal.upper_tail((threshold - base) / stddev)
        with_user = normal.upper_tail((threshold - base - shared_shift) / stddev)
        p = [quiet * with_user, quiet * (1 - with_user), 1 - quiet]
        q = [without, 1 - without, 0.0]
        assert max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon)) <= bound * (1 + 1e-9) + 1e-15


def test_count_certificate_sees_the_mixed_cases():
    """With unit weights a user with some new and some shared items can be the worst one."""
    worst = [
        normal.unit_count_delta(e, gaussian.gaussian_stddev(e, d, math.sqrt(k)), th, k, 0.0)
        for e, d, k, th in [(1.0, 1e-5, 50, 134.7), (3.0, E10, 50, 44.0)]
    ]
    assert all(value > 0.0 for value, _ in worst)

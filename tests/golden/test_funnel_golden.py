"""Funnel's published constants: noise and thresholds that must not drift."""

from __future__ import annotations

import math

import pytest

from dpunion.algorithms import Funnel
from dpunion.calibration.funnel import calibrate_funnel, certificate
from dpunion.calibration.gaussian import exact_unit_norm
from weighing import novelty_bounds

# The shape whose constants were published first; the default has since been tuned.
FIRST = Funnel(rounds=4, first_share=0.2, keep_fraction=0.85, keep_margin=1.0, cutoff_margin=3.0, haste=1.0)
SETTINGS = {"three": (3.0, math.exp(-10.0)), "one": (1.0, 1e-5)}


@pytest.mark.parametrize(
    ("budget", "share", "stddev", "threshold"),
    [("three", 0.9205, (1.288, 1.291), (7.05, 7.11)), ("one", 0.9506, (3.741, 3.749), (20.7, 20.83))],
)
def test_theorem_b_with_a_given_share(budget, share, stddev, threshold):
    epsilon, delta = SETTINGS[budget]
    found = calibrate_funnel(epsilon, delta, FIRST, gaussian_share=share)
    assert stddev[0] <= found.stddev <= stddev[1]
    assert threshold[0] <= found.threshold <= threshold[1]
    assert found.worst_novel == 300
    assert 0.95 * delta <= found.delta_used <= delta * (1.0 - 1e-9)


@pytest.mark.parametrize(("budget", "stddev", "threshold"), [("three", 1.2854, 7.060), ("one", 3.7318, 20.662)])
def test_the_default_share_is_at_least_as_good(budget, stddev, threshold):
    epsilon, delta = SETTINGS[budget]
    found = calibrate_funnel(epsilon, delta, FIRST)
    assert found.stddev == pytest.approx(stddev, rel=2e-3)
    assert found.threshold == pytest.approx(threshold, rel=1e-3)
    assert certificate(epsilon, delta, found.stddev, found.threshold, FIRST) == (
        found.delta_used,
        found.worst_novel,
    )
    assert 0.95 * delta <= found.delta_used <= delta * (1.0 - 1e-9)


@pytest.mark.parametrize(("budget", "threshold"), [("three", 6.3974), ("one", 19.497)])
def test_a_single_round_is_the_exact_single_round_mechanism(budget, threshold):
    epsilon, delta = SETTINGS[budget]
    shape = Funnel(rounds=1, first_share=1.0, max_items_per_user=100)
    found = calibrate_funnel(epsilon, delta, shape)
    assert threshold * (1.0 - 1e-5) <= found.threshold <= 1.001 * threshold


def test_single_round_constants_are_not_enough_for_four_rounds():
    # A survivor gets more than an equal share of later rounds. The chance of a novel release is about 3.1 delta by
    # simulation (tests/unit/calibration/test_calibration_funnel.py); the bound says a little more.
    epsilon, delta = SETTINGS["three"]
    single = exact_unit_norm(epsilon, delta, 300)
    bounds = novelty_bounds(single.scale, single.threshold, FIRST)
    assert bounds[300] / delta == pytest.approx(3.94, rel=0.03)
    assert certificate(epsilon, delta, single.scale, single.threshold, FIRST)[0] > 3.0 * delta

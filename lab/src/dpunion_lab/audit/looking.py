"""The look that chooses the number of items per person: its noise, and whether choosing by it is paid for."""

from __future__ import annotations

import math

import numpy as np

from dpunion.algorithms import Algorithm
from dpunion.budget import Budget
from dpunion.calibration.funnel import certificate
from dpunion.calibration.gaussian import gaussian_stddev
from dpunion.contributions import Float64s
from dpunion.engines.local.engine import LocalEngine
from dpunion.plans import Plan
from dpunion.plans.look import CLASSES, LookPlan, plan_look
from dpunion.requests import Request, Run
from dpunion_lab.audit.noise import far_variance
from dpunion_lab.audit.runs import System

LOOKS = 60
# Everybody of the example holds so many items, and there are so many of them.
HELD, PEOPLE = 5, 200
# How far, in standard deviations, the integral over the look's outcome goes, and in how many points.
REACH, POINTS = 12.0, 2401


def draw_looks(system: System, plan: LookPlan) -> Float64s:
    """Look some times at people whose sets have one size; return the noise in planned standard deviations."""
    request = Request.of({f"u{user}": [f"i{item}" for item in range(HELD)] for user in range(PEOPLE)})
    machine = LocalEngine.for_run(Run(), None)
    truth = np.zeros(len(CLASSES))
    truth[np.searchsorted(CLASSES, HELD, side="right") - 1] = PEOPLE
    rows = []
    for key in (system.new_key() for _ in range(LOOKS)):
        with machine.read(request, plan, key, lambda: None) as held:
            rows.append((np.array(machine.look(held, plan.look, key)) - truth) / plan.look.stddev)
    return np.concatenate(rows)


def look_takes_noise(system: System, _algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """Everybody counts once, in one class, and the noise is as wide as planned."""
    return far_variance(draw_looks(system, plan_look(Budget(budget.epsilon, 1e-6), None, {})))


def noise_delta(epsilon: float, mu: float) -> float:
    """Return the delta of a Gaussian release of this ratio, by its formula (Balle & Wang 2018)."""
    below = math.erfc((epsilon / mu - mu / 2.0) / math.sqrt(2.0))
    return (below - math.exp(epsilon) * math.erfc((epsilon / mu + mu / 2.0) / math.sqrt(2.0))) / 2.0


def whole_delta(plan: Plan, stddev: float) -> float:
    """Return the delta of a look and a plan chosen by it, when the worst is chosen on either side of the look.

    Where the look speaks for the person, a release whose noise alone uses what the plan's certificate says; elsewhere
    one that uses as much on novel items. By Simpson's rule over the look's outcome: no bound, the pair's own delta.
    """
    epsilon, nu = plan.budget.epsilon, 1.0 / stddev
    used, _ = certificate(epsilon, plan.budget.delta, plan.scale, plan.threshold, plan.algorithm)  # type: ignore[arg-type]
    mu = 1.0 / gaussian_stddev(epsilon, used, 1.0)
    total, step = 0.0, 2.0 * REACH / (POINTS - 1)
    for place in range(POINTS):
        point = -REACH + step * place + nu / 2.0
        ratio = math.exp(nu * point - nu * nu / 2.0)
        value = ratio * (noise_delta(epsilon - math.log(ratio), mu) if point > nu / 2.0 else used)
        weight = 1.0 if place in (0, POINTS - 1) else 4.0 if place % 2 else 2.0
        total += weight * value * math.exp(-point * point / 2.0)
    return total * step / 3.0 / math.sqrt(2.0 * math.pi)


def look_is_paid_for(_system: System, _algorithm: Algorithm, budget: Budget, _trials: int) -> str | None:
    """Choosing by the look, as badly as it can be done, stays within delta for every plan to choose from."""
    asked = Budget(budget.epsilon, 1e-6)
    planned = plan_look(asked, None, {})
    some = (planned.alternatives[0], planned.opening)
    worst = max(whole_delta(plan, planned.look.stddev) for plan in some)
    return f"the delta of look and release is {worst:.3g}" if worst > asked.delta else None

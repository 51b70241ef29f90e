"""Judge what dpunion estimates, tunes or chooses by data: on random worlds, against the best choice in hindsight.

counts   the error of `people` against the weights that would have been best; intervals and sums
bound    the items per person that the private look chooses, against every limit that it can choose
funnel   Funnel with the look, against the other algorithms

NOT PRIVATE: the best choice in hindsight is computed from the data. All data here is generated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpunion import counting
from dpunion.algorithms import DpSips, Funnel, PolicyGaussian, WeightedGaussian
from dpunion.chances import least_holders
from dpunion.checks import check_whole
from dpunion.contributions import Float64s, Int64s
from dpunion.counting.estimates import ROOM, weights_at
from dpunion.counting.holdings import UNLISTED, Holdings, holdings_of
from dpunion.counting.steps import BURDEN, FineStep, MarksStep, Step, add_noise
from dpunion.errors import BadParameter, InternalError
from dpunion.plans import Plan, plan_release
from dpunion.plans.counts import Counted, Counts, CountsPlan
from dpunion.plans.look import LookPlan, plan_look
from dpunion.randomness import RunKey
from dpunion.requests import Progress
from dpunion.threads import work_in_order
from dpunion_lab.data import LabData
from dpunion_lab.figures import NOT_PRIVATE
from dpunion_lab.hindsight_tables import BANDS, summarize_worlds
from dpunion_lab.looking import Looked, run_fixed, run_look, select_fixed
from dpunion_lab.trials import trial_key
from dpunion_lab.worlds import World, draw_world, generate_world

JUDGED = ("counts", "bound", "funnel")
MOST_WORLDS = 100_000
MOST_THREADS = 64
FEWEST_LISTED = 5
MOST_ATTEMPTS = 1_000
ENOUGH_ITEMS, MOST_DRAWS = 200, 5
"""Counts of shorter lists than this are drawn several times, so that a ratio of medians is more than noise."""
POPULAR, FEWEST_POPULAR = 100, 5
"""Sums are judged over the items that this many people have, where there are this many such items."""
GIVEN_UP = 2.0
"""The search for the best allowance ends where the error is this many times the best one."""
OTHERS = (PolicyGaussian(), WeightedGaussian(), DpSips())


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A world with its data, and the list that Funnel with a fixed number of items per person releases of it."""

    world: World
    data: LabData
    plan: Plan
    listed: Int64s

    @classmethod
    def of(cls, world: World) -> Scene:
        """Generate the data, and select."""
        data = generate_world(world)
        plan = plan_release(Funnel(), world.budget, Counts())
        return cls(world, data, plan, select_fixed(data, plan, world.key))

    @classmethod
    def find(cls, seed: int, number: int) -> Scene:
        """Draw a world; again while its list has too few items to judge."""
        for attempt in range(MOST_ATTEMPTS):
            scene = cls.of(draw_world(seed, number, attempt))
            if len(scene.listed) >= FEWEST_LISTED:
                return scene
        raise InternalError("no world with a list was drawn")

    def to_dict(self) -> dict[str, Any]:
        """Return what was drawn and what came of it, as plain values."""
        sizes = np.diff(self.data.everything.offsets)
        drawn = {"mean_set": float(sizes.mean()), "largest_set": int(sizes.max()), "listed": len(self.listed)}
        return {"world": self.world.to_dict(), "data": self.data.facts | drawn}


# --- counts ---------------------------------------------------------------------------------------------------------


def judge_counts(scene: Scene) -> dict[str, Any]:
    """Count the list by the release's own steps, and by every allowance in turn."""
    if scene.plan.counts is None:
        raise InternalError("a plan of counts without counts")
    draws = min(MOST_DRAWS, math.ceil(ENOUGH_ITEMS / len(scene.listed)))
    keys = [trial_key(scene.world.key + draw) for draw in range(draws)]
    numbers = np.full(len(scene.data.holders), UNLISTED, np.int32)
    numbers[scene.listed] = np.arange(len(scene.listed))
    holdings = holdings_of(scene.data.everything, numbers, keys[0])
    least = np.full(len(scene.listed), least_holders(scene.plan))
    taken = [count_once(scene.plan.counts, least, holdings, key) for key in keys]
    true = scene.data.holders[scene.listed]
    best, allowance = find_best_error(true, holdings, taken[0][1], scene.plan.counts, keys)
    return score_counts(true, [counted for counted, _ in taken], best) | {"best_allowance": allowance}


def count_once(plan: CountsPlan, least: Int64s, holdings: Holdings, key: RunKey) -> tuple[Counted, Float64s]:
    """Return what a release counts, and the burdens by which it chose the weights: float64[items]."""
    burdens: list[Float64s] = []

    def measure(step: Step, stddev: float) -> Int64s:
        if isinstance(step, MarksStep):
            burdens.append(step.burdens / BURDEN)
        return add_noise(step.add_up(holdings), step.sensitivity, stddev, step.number, key)

    return counting.count_people(plan, least, measure), burdens[0]


def find_best_error(
    true: Int64s, holdings: Holdings, burdens: Float64s, plan: CountsPlan, keys: Sequence[RunKey]
) -> tuple[float, float]:
    """Return the least median relative error of plain estimates at any allowance, and that allowance.

    Plain estimates are noisy sums over weights, with the noise of each key: neither corrected nor shrunk. The room over
    the allowance lies on quarter octaves from the smallest burden to the sum of all burdens.
    """
    totals = np.exp(np.arange(math.log(burdens.min()), math.log(burdens.sum()) + 0.17, math.log(2.0) / 4.0))
    held = np.append(0.0, np.cumsum(burdens[holdings.items]))
    heaviest = float(np.diff(held[holdings.offsets]).max(initial=0.0))
    # From here on nobody is cut, and more room than that only makes the noise larger.
    first = min(len(totals) - 1, int(np.searchsorted(totals, heaviest)))
    best, chosen = math.inf, 0.0
    for total in totals[first::-1].tolist():
        step = FineStep(weights_at(ROOM / total, burdens))
        sums = step.add_up(holdings)
        noisy = [add_noise(sums, step.sensitivity, plan.fine, step.number, key)[:-2] / step.weights for key in keys]
        error = median_error(true, [np.maximum(np.rint(one), 1.0) for one in noisy])
        if error < best:
            best, chosen = error, ROOM / total
        if error > GIVEN_UP * best:
            break
    return best, chosen


def median_error(true: Int64s, estimates: Sequence[Float64s | Int64s]) -> float:
    """Return the median relative error of all estimates together; true: int64[items], estimates: [items] each."""
    return float(np.median(np.abs(np.stack(estimates) / true - 1.0)))


def score_counts(true: Int64s, counted: Sequence[Counted], best: float) -> dict[str, Any]:
    """Return how good several counts of a list are; best: the least median relative error in hindsight."""
    error = median_error(true, [np.array(one.people) for one in counted])
    bands = np.searchsorted(BANDS, true, side="right") - 1
    inside = sum((np.array(one.low) <= true) & (true <= np.array(one.high)) for one in counted)
    popular = true >= POPULAR
    is_judged = np.count_nonzero(popular) >= FEWEST_POPULAR
    return {
        "draws": len(counted),
        "median_error": error,
        "best_median_error": best,
        "ratio": error / max(best, 1e-9),
        "intervals": (len(counted) * np.bincount(bands, minlength=len(BANDS))).tolist(),
        "covered": np.bincount(bands, inside, len(BANDS)).astype(np.int64).tolist(),
        # Of the first draw alone: a world is one case, however short its list is.
        "sum_ratio": float(np.array(counted[0].people)[popular].sum() / true[popular].sum()) if is_judged else None,
    }


# --- the look and Funnel --------------------------------------------------------------------------------------------


def judge_bound(scene: Scene, plan: LookPlan, looked: Looked) -> dict[str, Any]:
    """Compare a release with a look to one with each limit that it can choose, at the whole budget."""
    fixed = {
        bound: run_fixed(
            scene.data, plan_release(Funnel(max_items_per_user=bound), scene.world.budget), scene.world.key
        )
        for bound in plan.look.limits
    }
    best = max(fixed, key=lambda bound: (fixed[bound], -bound))
    return {
        "chosen": looked.bound,
        "released": looked.size,
        "released_at_bounds": {str(bound): size for bound, size in fixed.items()},
        "best_bound": best,
        "best": fixed[best],
        "ratio": looked.size / max(1, fixed[best]),
    }


def judge_funnel(scene: Scene, looked: Looked) -> dict[str, Any]:
    """Compare Funnel with a look to the other algorithms at their usual numbers of items per person."""
    others = {one.name: run_fixed(scene.data, plan_release(one, scene.world.budget), scene.world.key) for one in OTHERS}
    best = max(others, key=lambda name: others[name])
    return {
        "released": looked.size,
        "released_by_others": others,
        "best_algorithm": best,
        "best": others[best],
        "ratio": looked.size / max(1, others[best]),
    }


# --- many worlds ----------------------------------------------------------------------------------------------------


def judge_world(seed: int, number: int, judged: Sequence[str] = JUDGED) -> dict[str, Any]:
    """Judge one world; return its parameters and every figure."""
    scene = Scene.find(seed, number)
    found = scene.to_dict()
    if "counts" in judged:
        found["counts"] = judge_counts(scene)
    if "bound" in judged or "funnel" in judged:
        planned = plan_look(scene.world.budget, None, {})
        looked = run_look(scene.data, planned, scene.world.key)
        if "bound" in judged:
            found["bound"] = judge_bound(scene, planned, looked)
        if "funnel" in judged:
            found["funnel"] = judge_funnel(scene, looked)
    return found


def judge_worlds(
    *,
    seed: int = 0,
    count: int = 100,
    only: int | None = None,
    judged: Sequence[str] = JUDGED,
    threads: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Draw worlds 0 to count - 1 of a seed, judge each, and sum up; only: the number of one world to judge again.

    Guarantees: the same seed and count give the same figures, with any number of threads.
    """
    check_whole("worlds", "seed", seed, 0, 2**63 - 1)
    check_whole("worlds", "count", count, 1, MOST_WORLDS)
    check_whole("worlds", "threads", threads, 1, MOST_THREADS)
    unknown = [name for name in judged if name not in JUDGED]
    if unknown or not judged:
        raise BadParameter(f"{', '.join(unknown) or 'Nothing'} cannot be judged.", f"Choose from {', '.join(JUDGED)}.")
    numbers: Sequence[int] = range(count)
    if only is not None:
        numbers = [check_whole("worlds", "only", only, 0, MOST_WORLDS)]
    worlds: list[dict[str, Any]] = []
    for found in work_in_order(lambda number: judge_world(seed, number, judged), numbers, threads):
        worlds.append(found)
        if progress is not None:
            progress(f"world {len(worlds)} of {len(numbers)}", len(worlds) / len(numbers))
    return {
        "format": "dpunion-lab-worlds/1",
        "warning": NOT_PRIVATE,
        "seed": seed,
        "judged": list(judged),
        "summary": summarize_worlds(worlds),
        "worlds": worlds,
    }

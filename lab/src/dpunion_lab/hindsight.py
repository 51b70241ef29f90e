"""Judge what dpunion estimates, tunes or chooses by data: on random worlds, against the best choice in hindsight.

counts   the error of `people`, compared with that of the best weights; intervals and sums
bound    the number of items per person that the private look chooses, compared with every limit that it can choose
funnel   Funnel with the look, compared with the other algorithms
candidates   Funnel with the look and a random list of candidates, compared with no list

NOT PRIVATE: the best choice in hindsight is computed from the data. All data here is generated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
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
from dpunion.report.tables import Cell, Table
from dpunion.requests import Progress
from dpunion.threads import work_in_order
from dpunion_lab.data import NOT_PRIVATE, LabData
from dpunion_lab.measuring import share
from dpunion_lab.trials import Looked, run_candidates, run_fixed, run_look, select_fixed, trial_key
from dpunion_lab.worlds import World, draw_candidates, draw_world, generate_world

BANDS = (1, 15, 50, 200, 1_000, 10_000)
"""Bands of the true number of people who have an item; each band has its own figures for intervals."""
BAD, VERY_BAD = 2.0, 3.0
"""The summary counts worlds with an error this many times the best one in hindsight."""
HOPELESS = 0.9
"""Counts with a larger median relative error than this are useless."""
GROSS = (0.8, 1.25)
"""A sum over the true sum outside this range is a gross error."""
COVERED, FEWEST_INTERVALS = 0.93, 30
"""At least this share of the intervals should be right, up to two standard errors, in bands with this many."""
SHORT = 20
"""Ratios of sizes leave out worlds with shorter lists than this, where they are mostly noise."""
TWENTIETH = 0.05

Judged = dict[str, Any]


def summarize_worlds(worlds: Sequence[Judged]) -> dict[str, Any]:
    """Return the figures of all worlds together."""
    found: dict[str, Any] = {"worlds": len(worlds), "redrawn": sum(one["world"]["attempt"] for one in worlds)}
    for name, summarize in SUMMARIES.items():
        judged = [one for one in worlds if name in one]
        if judged:
            found[name] = summarize(judged)
    return found


def spread_of(ratios: dict[int, float], *, high_is_bad: bool) -> dict[str, Any]:
    """Return the median, the value that nine of ten worlds reach, the mean of the worst twentieth, and the worst.

    ratios: by the number of the world.
    """
    if not ratios:
        return {"worlds": 0}
    side = 1.0 if high_is_bad else -1.0
    ranked = sorted(ratios, key=lambda number: (-side * ratios[number], number))
    worst = ranked[: math.ceil(TWENTIETH * len(ranked))]
    values = list(ratios.values())
    return {
        "worlds": len(ratios),
        "median": float(np.median(values)),
        "nine_of_ten": float(np.quantile(values, 0.9 if high_is_bad else 0.1)),
        "worst_twentieth": float(np.mean([ratios[number] for number in worst])),
        "worst": ratios[worst[0]],
        "worst_worlds": worst,
    }


def summarize_counts(worlds: Sequence[Judged]) -> dict[str, Any]:
    """Return the figures of counts."""
    counts = [one["counts"] for one in worlds]
    intervals = np.array([one["intervals"] for one in counts])
    covered = np.array([one["covered"] for one in counts])
    judged = intervals >= FEWEST_INTERVALS
    sums = [one["sum_ratio"] for one in counts if one["sum_ratio"] is not None]
    low, high = (sum(ratio < GROSS[0] for ratio in sums), sum(ratio > GROSS[1] for ratio in sums))
    below = judged & covers_too_few(covered, intervals)
    return {
        "ratio": spread_of(ratios_of(worlds, "counts"), high_is_bad=True),
        "worlds_above_2": sum(one["ratio"] > BAD for one in counts),
        "worlds_above_3": sum(one["ratio"] > VERY_BAD for one in counts),
        "worlds_without_meaning": sum(one["median_error"] > HOPELESS for one in counts),
        "bands": list(BANDS),
        "intervals": intervals.sum(axis=0).tolist(),
        "covered": [
            inside / count if count else None
            for inside, count in zip(covered.sum(axis=0).tolist(), intervals.sum(axis=0).tolist(), strict=True)
        ],
        "bands_judged": int(judged.sum()),
        "bands_below": int(below.sum()),
        "worlds_with_bands_below": [
            one["world"]["number"] for one, bad in zip(worlds, below.any(axis=1).tolist(), strict=True) if bad
        ],
        "sums_judged": len(sums),
        "sums_too_low": low,
        "sums_too_high": high,
        "gross": (low + high) / len(sums) if sums else None,
        "worlds_with_gross_sums": [
            one["world"]["number"]
            for one in worlds
            if one["counts"]["sum_ratio"] is not None and not GROSS[0] <= one["counts"]["sum_ratio"] <= GROSS[1]
        ],
    }


def covers_too_few(covered: Any, intervals: Any) -> Any:
    """Say which shares of right intervals are below COVERED by more than two standard errors: bool[...]."""
    count = np.maximum(intervals, 1)
    return covered / count < COVERED - 2.0 * np.sqrt(COVERED * (1.0 - COVERED) / count)


def summarize_bound(worlds: Sequence[Judged]) -> dict[str, Any]:
    """Return the figures of the bounds on items per person that the look chose."""
    long = [one for one in worlds if one["bound"]["best"] >= SHORT]
    return {
        "ratio": spread_of(ratios_of(long, "bound"), high_is_bad=False),
        "too_short": len(worlds) - len(long),
        "chosen": count_values(long, "bound", "chosen"),
        "best": count_values(long, "bound", "best_bound"),
    }


def summarize_funnel(worlds: Sequence[Judged]) -> dict[str, Any]:
    """Return the figures of Funnel compared with other algorithms."""
    long = [one for one in worlds if one["funnel"]["best"] >= SHORT]
    return {
        "ratio": spread_of(ratios_of(long, "funnel"), high_is_bad=False),
        "too_short": len(worlds) - len(long),
        "best_other": count_values(long, "funnel", "best_algorithm"),
    }


def summarize_candidates(worlds: Sequence[Judged]) -> dict[str, Any]:
    """Return the figures of lists of candidates compared with no list, of all items and of those not listed."""
    all_listed = [one["candidates"] for one in worlds]
    long = [one for one in worlds if one["candidates"]["today"] >= SHORT]
    outside = {
        one["world"]["number"]: one["candidates"]["unlisted_with_list"] / one["candidates"]["unlisted_today"]
        for one in worlds
        if one["candidates"]["unlisted_today"] >= SHORT
    }
    totals = {name: sum(one[name] for one in all_listed) for name in all_listed[0] if name not in ("error", "gain")}
    return {
        "ratio": spread_of({one["world"]["number"]: one["candidates"]["gain"] for one in long}, high_is_bad=False),
        "unlisted": spread_of(outside, high_is_bad=False),
        "too_short": len(worlds) - len(long),
        "totals": totals,
    }


SUMMARIES: dict[str, Callable[[Sequence[Judged]], dict[str, Any]]] = {
    "counts": summarize_counts,
    "bound": summarize_bound,
    "funnel": summarize_funnel,
    "candidates": summarize_candidates,
}


def ratios_of(worlds: Sequence[Judged], name: str) -> dict[int, float]:
    """Return the ratio to the best in hindsight, by the number of the world."""
    return {one["world"]["number"]: one[name]["ratio"] for one in worlds}


def count_values(worlds: Sequence[Judged], name: str, field: str) -> dict[str, int]:
    """Return how often each value of a field occurs, smallest value first."""
    times = Counter(one[name][field] for one in worlds)
    return {str(value): times[value] for value in sorted(times)}


# --- tables ---------------------------------------------------------------------------------------------------------

HEADINGS = {
    "counts": "counts: error / best error",
    "bound": "bound: items with the look / best bound",
    "funnel": "funnel: items / best other algorithm",
    "candidates": "candidates: items less mistakes / items without a list",
}


def tables_of(result: dict[str, Any]) -> list[Table]:
    """Return the summary of a result as tables."""
    summary = result["summary"]
    tables = [ratio_table(result)]
    if "counts" in summary:
        tables += [count_table(summary["counts"]), interval_table(summary["counts"])]
    if summary.get("bound", {}).get("ratio", {}).get("worlds"):
        tables.append(bound_table(summary["bound"]))
    if "candidates" in summary:
        tables.append(candidate_table(summary["candidates"]))
    return tables


def ratio_table(result: dict[str, Any]) -> Table:
    """Return how far counts, bounds and Funnel are from the best in hindsight."""
    summary = result["summary"]
    rows: list[tuple[Cell, ...]] = []
    for name, heading in HEADINGS.items():
        if name in summary:
            ratio = summary[name]["ratio"]
            figures = [ratio.get(field) for field in ("median", "nine_of_ten", "worst_twentieth", "worst")]
            worst = ", ".join(map(str, ratio.get("worst_worlds", [])[:3])) or None
            rows.append((heading, ratio["worlds"], *(None if one is None else f"{one:.2f}" for one in figures), worst))
    columns = ("judged", "worlds", "median", "9 of 10", "worst 20th", "worst", "worst worlds")
    note = (
        f"{summary['redrawn']} worlds with fewer than 5 released items were drawn again. Small ratios of errors are "
        "good, and large ratios of items. 9 of 10: nine of ten worlds are at least this good. Worst 20th: the mean of "
        f"the worst twentieth. Worlds where the best list has fewer than {SHORT} items are left out of the ratios of "
        "items. The best error is that of the best weights in hindsight, neither corrected nor shrunk, so a ratio "
        "below 1 is possible. Judge one world again with --only NUMBER."
    )
    return Table(f"Random worlds of seed {result['seed']}: ratio to the best in hindsight", columns, tuple(rows), note)


def count_table(counts: dict[str, Any]) -> Table:
    """Return how often counts were bad."""
    rows: list[tuple[Cell, ...]] = [
        (f"worlds with more than {BAD:g} times the best error", counts["worlds_above_2"], counts["ratio"]["worlds"]),
        (
            f"worlds with more than {VERY_BAD:g} times the best error",
            counts["worlds_above_3"],
            counts["ratio"]["worlds"],
        ),
        (f"worlds with a median error above {HOPELESS:g}", counts["worlds_without_meaning"], counts["ratio"]["worlds"]),
        (f"bands of intervals below {COVERED:.0%} by 2 s.e.", counts["bands_below"], counts["bands_judged"]),
        (f"sums below {GROSS[0]:g} of the true ones", counts["sums_too_low"], counts["sums_judged"]),
        (f"sums above {GROSS[1]:g} of the true ones", counts["sums_too_high"], counts["sums_judged"]),
    ]
    note = (
        "Sums: of the items that at least 100 people have, where there are 5 such items. A band: the intervals of one "
        f"world's items with about as many people, where there are {FEWEST_INTERVALS}."
    )
    return Table("Counts that went wrong", ("what", "how many", "of"), tuple(rows), note)


def interval_table(counts: dict[str, Any]) -> Table:
    """Return how many intervals contain the true number, by that number."""
    columns = ("people with the item", *(f"{least:,}+" for least in counts["bands"]))
    rows = (
        ("intervals", *counts["intervals"]),
        ("hold the true number", *map(share, counts["covered"])),
    )
    return Table("Intervals of counts", columns, rows)


def bound_table(bound: dict[str, Any]) -> Table:
    """Return how often the look chose each number of items per person, and how often it was the best."""
    bounds = sorted({*bound["chosen"], *bound["best"]}, key=int)
    rows = tuple(
        (name, *(times.get(one, 0) for one in bounds))
        for name, times in (("chosen by the look", bound["chosen"]), ("best in hindsight", bound["best"]))
    )
    return Table("Items per person", ("worlds", *bounds), rows)


def candidate_table(found: dict[str, Any]) -> Table:
    """Return how many items came out in all worlds together, without and with lists."""
    sums, outside = found["totals"], found["unlisted"]
    rows: tuple[tuple[Cell, ...], ...] = (
        ("items that somebody has", sums["today"], sums["with_list"]),
        ("of these, not listed", sums["unlisted_today"], sums["unlisted_with_list"]),
        ("candidates that nobody has", 0, sums["spurious"]),
    )
    note = f"On average at most {sums['expected']:,.0f} candidates come out that nobody has."
    if outside["worlds"]:
        note += (
            f" Items that are not listed, with over without a list, in the {outside['worlds']} worlds with {SHORT} of "
            f"them: median {outside['median']:.2f}, worst 20th {outside['worst_twentieth']:.2f}."
        )
    return Table("Candidates, all worlds together", ("items", "without a list", "with the list"), rows, note)


JUDGED = ("counts", "bound", "funnel", "candidates")
MOST_WORLDS = 100_000
MOST_THREADS = 64
FEWEST_LISTED = 5
MOST_ATTEMPTS = 1_000
ENOUGH_ITEMS, MOST_DRAWS = 200, 5
"""Lists with fewer items than this are counted several times, so that a ratio of medians is more than noise."""
POPULAR, FEWEST_POPULAR = 100, 5
"""Sums are over the items that at least 100 people have, in worlds with at least 5 such items."""
GIVEN_UP = 2.0
"""The search for the best allowance ends when the error is this many times the best one."""
OTHERS = (PolicyGaussian(), WeightedGaussian(), DpSips())


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A world with its data, and the items that Funnel releases with a fixed number of items per person."""

    world: World
    data: LabData
    plan: Plan
    listed: Int64s

    @classmethod
    def of(cls, world: World) -> Scene:
        """Generate the data and select."""
        data = generate_world(world)
        plan = plan_release(Funnel(), world.budget, Counts())
        return cls(world, data, plan, select_fixed(data, plan, world.key))

    @classmethod
    def find(cls, seed: int, number: int) -> Scene:
        """Draw a world, again and again until its list has enough items to judge."""
        for attempt in range(MOST_ATTEMPTS):
            scene = cls.of(draw_world(seed, number, attempt))
            if len(scene.listed) >= FEWEST_LISTED:
                return scene
        raise InternalError("no world with a list was drawn")

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters and sizes as plain values."""
        sizes = np.diff(self.data.everything.offsets)
        drawn = {"mean_set": float(sizes.mean()), "largest_set": int(sizes.max()), "listed": len(self.listed)}
        return {"world": self.world.to_dict(), "data": self.data.facts | drawn}


# --- counts ---------------------------------------------------------------------------------------------------------


def judge_counts(scene: Scene) -> dict[str, Any]:
    """Count the list as a release does, and with every allowance."""
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
    """Return the counts of a release, and the burdens by which it chose the weights: float64[items]."""
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

    Plain estimates are noisy sums divided by weights, with the noise of each key, neither corrected nor shrunk. The
    room divided by the allowance goes from the smallest burden to the sum of all burdens, in steps of a quarter octave.
    """
    totals = np.exp(np.arange(math.log(burdens.min()), math.log(burdens.sum()) + 0.17, math.log(2.0) / 4.0))
    held = np.append(0.0, np.cumsum(burdens[holdings.items]))
    heaviest = float(np.diff(held[holdings.offsets]).max(initial=0.0))
    # With this much room nobody's weights are cut; more room only makes the noise larger.
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
    """Score several counts of a list. best: the least median relative error in hindsight."""
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
        # Only from the first draw: a world counts as one case, however short its list is.
        "sum_ratio": float(np.array(counted[0].people)[popular].sum() / true[popular].sum()) if is_judged else None,
    }


# --- the look and Funnel --------------------------------------------------------------------------------------------


def judge_bound(scene: Scene, plan: LookPlan, looked: Looked) -> dict[str, Any]:
    """Compare a release with a look to releases with each limit that it can choose, at the whole budget."""
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
    """Judge one world; return its parameters and figures."""
    scene = Scene.find(seed, number)
    found = scene.to_dict()
    if "counts" in judged:
        found["counts"] = judge_counts(scene)
    if {"bound", "funnel", "candidates"}.intersection(judged):
        planned = plan_look(scene.world.budget, None, {})
        looked = run_look(scene.data, planned, scene.world.key)
        if "bound" in judged:
            found["bound"] = judge_bound(scene, planned, looked)
        if "funnel" in judged:
            found["funnel"] = judge_funnel(scene, looked)
        if "candidates" in judged:
            listed, error = draw_candidates(scene.world, scene.data, looked.size)
            found["candidates"] = run_candidates(scene.data, planned, listed, error, scene.world.key)
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
    """Draw worlds 0 to count - 1 of a seed, judge each and sum up. only: the number of one world to judge again.

    Guarantees: the same seed and count give the same figures with any number of threads.
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

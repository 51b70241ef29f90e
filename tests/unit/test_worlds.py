"""Random worlds: what is drawn, how it is judged, and that the verdict notices an estimator that is wrong."""

import dataclasses
import json
import math
import sys

import numpy as np
import pytest

import dpunion
from dpunion import counting
from dpunion.cli.commands import run
from dpunion.counting.estimates import ROOM, weights_at
from dpunion.counting.holdings import holdings_of
from dpunion.counting.steps import FineStep, add_noise
from dpunion.errors import BadParameter
from dpunion.plans.counts import Counted, Estimate, Totals
from dpunion_lab import hindsight, worlds
from dpunion_lab.trials import run_candidates, trial_key
from dpunion_lab.worlds import World, draw_sizes, draw_world, draws_needed, generate_world, item_odds

WORLD = World(
    seed=0, number=0, attempt=0, people=4_000, sizes="lognormal", spread=1.2, mean=12.0, largest=10_000,
    vocabulary=3_000, exponent=1.0, knee=3_000, steeper=0.0, heavy=0.0, other=0.0, epsilon=2.0, delta=1e-5, key=5,
)  # fmt: skip


@pytest.fixture
def small(monkeypatch):
    """Draw worlds that take a fraction of a second."""
    monkeypatch.setattr(worlds, "PEOPLE", (500, 3_000))
    monkeypatch.setattr(worlds, "MEAN_SIZES", (1.5, 20.0))
    monkeypatch.setattr(worlds, "VOCABULARIES", (300, 3_000))


def sets_of(data):
    everything = data.everything
    return np.split(everything.items, everything.offsets[1:-1])


# --- drawing --------------------------------------------------------------------------------------------------------
def test_drawn_worlds_are_within_their_ranges():
    drawn = [draw_world(3, number) for number in range(2_000)]
    ranges = {
        "people": worlds.PEOPLE, "mean": worlds.MEAN_SIZES, "largest": worlds.LARGEST_SETS,
        "exponent": worlds.EXPONENTS, "epsilon": worlds.EPSILONS, "delta": worlds.DELTAS,
    }  # fmt: skip
    for name, (low, high) in ranges.items():
        values = [getattr(one, name) for one in drawn]
        assert low <= min(values) < low * (high / low) ** 0.05
        assert low * (high / low) ** 0.95 < max(values) <= high
    for kind, (low, high) in worlds.SPREADS.items():
        assert all(low <= one.spread <= high for one in drawn if one.sizes == kind)
    assert all(one.epsilon == one.budget.epsilon and one.delta == one.budget.delta for one in drawn)
    assert all(one.vocabulary**0.3 - 1 <= one.knee <= one.vocabulary for one in drawn)
    short = [one for one in drawn if one.vocabulary <= worlds.SHORT_VOCABULARIES[1]]
    assert {one.vocabulary for one in short} == set(range(6, 21))
    assert 0.12 < len(short) / len(drawn) < 0.18
    other = [one for one in drawn if one.heavy]
    assert 0.55 < len(other) / len(drawn) < 0.65
    assert 0.4 < np.mean([one.other == 1.0 for one in other]) < 0.6
    assert all(0.001 <= one.heavy <= 0.1 and 0.3 <= one.other <= 1.0 for one in other)
    assert {one.sizes for one in drawn} == set(worlds.SPREADS)


def test_a_world_is_a_function_of_seed_number_and_attempt():
    assert draw_world(1, 2, 3) == draw_world(1, 2, 3)
    others = [draw_world(*place) for place in ((1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4))]
    assert len({one.key for one in others}) == 4
    assert generate_world(WORLD).fingerprint == generate_world(WORLD).fingerprint
    assert generate_world(WORLD).fingerprint != generate_world(dataclasses.replace(WORLD, seed=1)).fingerprint


@pytest.mark.parametrize("kind", list(worlds.SPREADS))
def test_people_hold_about_as_many_items_as_was_drawn(kind):
    world = dataclasses.replace(WORLD, sizes=kind, spread=1.8 if kind == "pareto" else 0.8)
    sizes = draw_sizes(world, np.random.default_rng((0, 0, 0, 1)))
    data = generate_world(world)
    sets = sets_of(data)
    assert len(sets) == world.people
    assert all((np.diff(one) > 0).all() for one in sets)
    assert min(map(len, sets)) >= 1
    assert np.mean([len(one) for one in sets]) == pytest.approx(sizes.mean(), rel=0.1)
    assert data.holders.min() >= 1
    assert data.holders.max() <= world.people


def test_as_many_different_items_are_drawn_as_wanted():
    odds = item_odds(dataclasses.replace(WORLD, exponent=1.3))
    sizes = np.array([1, 5, 30, 200])
    generator = np.random.default_rng(1)
    for size, draws in zip(sizes, draws_needed(sizes, odds), strict=True):
        found = [
            len(np.unique(generator.choice(len(odds), size=draws, p=odds / odds.sum())))
            for _ in range(max(50, 2_000 // size))
        ]
        assert np.mean(found) == pytest.approx(size, rel=0.15)
    # Of three items nobody can draw a hundred: the number of draws stays within its limit.
    assert draws_needed(np.array([100]), np.ones(3)) == [100 * worlds.MOST_DRAWS_PER_ITEM]


def test_a_world_with_too_many_draws_has_fewer_people(monkeypatch):
    monkeypatch.setattr(worlds, "MOST_DRAWS", 5_000)
    data = generate_world(WORLD)
    assert 0 < data.everything.users < WORLD.people
    assert len(data.everything.items) <= 5_000


def test_heavy_people_hold_other_items():
    """The most popular item of all people is hardly one of those with the largest sets."""
    alike, apart = (
        generate_world(dataclasses.replace(WORLD, heavy=heavy, other=heavy and 1.0)) for heavy in (0.0, 0.1)
    )
    shares = []
    for data in (alike, apart):
        sets = sorted(sets_of(data), key=len)
        top = int(data.holders.argmax())
        shares.append(np.mean([top in one for one in sets[-len(sets) // 10 :]]))
    assert shares[0] > 0.9
    assert shares[1] < 0.5


# --- judging --------------------------------------------------------------------------------------------------------
def counted(people, low, high):
    nothing = Estimate(0, 0, 0)
    return Counted(tuple(people), tuple(low), tuple(high), Totals(nothing, nothing, 0.0, 1.0))


def test_counts_are_scored_by_error_intervals_and_sums():
    true = np.array([2, 20, 100, 100, 200, 200, 400])
    two = [
        counted([2, 30, 100, 150, 200, 200, 400], [1, 21, 90, 90, 150, 150, 300], [3, 40, 110, 160, 250, 250, 500]),
        counted([3, 20, 100, 100, 100, 100, 200], [1, 10, 90, 90, 90, 90, 190], [4, 30, 110, 160, 250, 199, 399]),
    ]
    score = hindsight.score_counts(true, two, 0.05)
    assert score["draws"] == 2
    # Six of fourteen are wrong: the median lies between right ones.
    assert score["median_error"] == 0.0
    assert score["intervals"] == [2, 2, 4, 6, 0, 0]
    assert score["covered"] == [2, 1, 4, 4, 0, 0]
    assert score["sum_ratio"] == 1_050 / 1_000
    few = hindsight.score_counts(true[:4], [counted([4, 40, 200, 200], [0] * 4, [9] * 4)], 0.25)
    assert few["ratio"] == pytest.approx(4.0)
    assert few["sum_ratio"] is None


def test_the_spread_of_ratios_is_told_from_its_bad_end():
    ratios = {number: 1.0 + number / 100.0 for number in range(100)}
    high = hindsight.spread_of(ratios, high_is_bad=True)
    assert high["worlds"] == 100
    assert high["median"] == pytest.approx(1.495)
    assert high["nine_of_ten"] == pytest.approx(1.891)
    assert high["worst_twentieth"] == pytest.approx(1.97)
    assert high["worst"] == pytest.approx(1.99)
    assert high["worst_worlds"] == [99, 98, 97, 96, 95]
    low = hindsight.spread_of(ratios, high_is_bad=False)
    assert (low["worst"], low["worst_worlds"]) == (1.0, [0, 1, 2, 3, 4])
    assert low["nine_of_ten"] == pytest.approx(1.099)
    assert hindsight.spread_of({7: 2.5}, high_is_bad=True)["worst_twentieth"] == 2.5
    assert hindsight.spread_of({}, high_is_bad=True) == {"worlds": 0}


def test_coverage_is_below_by_two_standard_errors():
    # With 100 intervals two standard errors are 0.051.
    assert hindsight.covers_too_few(np.array([87, 88, 0]), np.array([100, 100, 0])).tolist()[:2] == [True, False]


def world_of(number, **judged):
    return {"world": {"number": number, "attempt": number % 2}} | judged


def test_worlds_are_summed_up():
    def counts(ratio, error, covered, total):
        intervals = [40, 10, 0, 0, 0, 0]
        return {"ratio": ratio, "median_error": error, "intervals": intervals, "covered": covered, "sum_ratio": total}

    def bound(chosen, best_bound, best, ratio):
        return {"chosen": chosen, "best_bound": best_bound, "best": best, "ratio": ratio}

    found = hindsight.summarize_worlds(
        [
            world_of(1, counts=counts(0.9, 0.2, [40, 0, 0, 0, 0, 0], 0.81), bound=bound(300, 300, 50, 0.95)),
            world_of(2, counts=counts(2.5, 0.95, [30, 10, 0, 0, 0, 0], 1.3), bound=bound(10, 25, 400, 0.8)),
            world_of(3, counts=counts(3.5, 0.4, [38, 9, 0, 0, 0, 0], None), bound=bound(10, 3, 19, 0.1)),
        ]
    )
    assert (found["worlds"], found["redrawn"]) == (3, 2)
    summary = found["counts"]
    assert (summary["worlds_above_2"], summary["worlds_above_3"], summary["worlds_without_meaning"]) == (2, 1, 1)
    assert summary["intervals"] == [120, 30, 0, 0, 0, 0]
    assert summary["covered"] == [108 / 120, 19 / 30, None, None, None, None]
    # Bands of 10 intervals are not judged; 30 of 40 is far below.
    assert (summary["bands_below"], summary["bands_judged"], summary["worlds_with_bands_below"]) == (1, 3, [2])
    assert (summary["sums_too_low"], summary["sums_too_high"], summary["sums_judged"]) == (0, 1, 2)
    assert summary["gross"] == 0.5
    assert summary["worlds_with_gross_sums"] == [2]
    # The list of the third world is too short for a ratio.
    assert found["bound"]["ratio"]["worlds"] == 2
    assert (found["bound"]["ratio"]["worst"], found["bound"]["too_short"]) == (0.8, 1)
    assert found["bound"]["chosen"] == {"10": 1, "300": 1}
    assert "funnel" not in found


def test_the_best_error_in_hindsight_is_the_least_of_all_allowances():
    scene = hindsight.Scene.of(WORLD)
    numbers = np.full(len(scene.data.holders), -1, np.int32)
    numbers[scene.listed] = np.arange(len(scene.listed))
    key = trial_key(WORLD.key)
    holdings = holdings_of(scene.data.everything, numbers, key)
    true = scene.data.holders[scene.listed]
    burdens = 1.0 / np.maximum(5.0, true / 3.0)
    errors = {}
    for total in np.exp(np.arange(math.log(burdens.min()), math.log(burdens.sum()) + 0.17, math.log(2.0) / 4.0)):
        allowance = ROOM / total
        step = FineStep(weights_at(allowance, burdens))
        noisy = add_noise(step.add_up(holdings), step.sensitivity, scene.plan.counts.fine, step.number, key)
        errors[allowance] = np.median(np.abs(np.maximum(np.rint(noisy[:-2] / step.weights), 1) / true - 1.0))
    best, at = hindsight.find_best_error(true, holdings, burdens, scene.plan.counts, [key])
    assert best == min(errors.values())
    assert best == errors[at]
    # It is a choice: the ends of the range are worse.
    assert best < 0.8 * min(errors[min(errors)], errors[max(errors)])


def test_an_estimator_that_doubles_is_noticed(monkeypatch):
    judged = [
        hindsight.judge_counts(hindsight.Scene.of(dataclasses.replace(WORLD, people=20_000, key=key))) for key in (1, 2)
    ]
    good = hindsight.summarize_worlds([world_of(number, counts=one) for number, one in enumerate(judged)])["counts"]
    real = counting.count_people

    def double(*given):
        found = real(*given)
        return dataclasses.replace(found, people=tuple(2 * one for one in found.people))

    monkeypatch.setattr(counting, "count_people", double)
    judged = [
        hindsight.judge_counts(hindsight.Scene.of(dataclasses.replace(WORLD, people=20_000, key=key))) for key in (1, 2)
    ]
    bad = hindsight.summarize_worlds([world_of(number, counts=one) for number, one in enumerate(judged)])["counts"]
    assert (good["gross"], good["sums_judged"]) == (0.0, 2)
    assert (bad["gross"], bad["sums_too_high"], bad["worlds_with_gross_sums"]) == (1.0, 2, [0, 1])
    assert bad["ratio"]["median"] > 2.0
    assert good["ratio"]["median"] < 1.5


def test_intervals_that_are_too_narrow_are_noticed(monkeypatch):
    real = counting.count_people

    def narrow(*given):
        found = real(*given)
        return dataclasses.replace(found, low=found.people, high=found.people)

    monkeypatch.setattr(counting, "count_people", narrow)
    bad = hindsight.summarize_worlds([world_of(0, counts=hindsight.judge_counts(hindsight.Scene.of(WORLD)))])["counts"]
    assert bad["bands_below"] == bad["bands_judged"] > 0


def test_short_lists_are_counted_several_times():
    scene = hindsight.Scene.of(dataclasses.replace(WORLD, vocabulary=8, knee=8, mean=3.0))
    assert 5 <= len(scene.listed) <= 8
    assert hindsight.judge_counts(scene)["draws"] == 5


# --- many worlds, and the command -----------------------------------------------------------------------------------
def test_the_same_seed_gives_the_same_figures(small):
    one, again, threads = (hindsight.judge_worlds(seed=4, count=3, threads=threads) for threads in (1, 1, 2))
    assert one == again == threads
    assert hindsight.judge_worlds(seed=4, count=3, only=1)["worlds"] == one["worlds"][1:2]
    assert hindsight.judge_worlds(seed=5, count=3)["worlds"] != one["worlds"]
    for found in one["worlds"]:
        fixed = found["bound"]["released_at_bounds"]
        assert found["bound"]["best"] == max(fixed.values()) == fixed[str(found["bound"]["best_bound"])]
        assert found["bound"]["chosen"] in map(int, fixed)
        assert found["funnel"]["best"] == max(found["funnel"]["released_by_others"].values())
        assert found["data"]["listed"] >= hindsight.FEWEST_LISTED
        assert World(**found["world"]) == draw_world(4, found["world"]["number"], found["world"]["attempt"])


def test_candidates_are_compared_with_no_list(small):
    found = hindsight.judge_worlds(seed=4, count=3, judged=("candidates",))
    for one in found["worlds"]:
        world, listed = World(**one["world"]), one["candidates"]
        data = generate_world(world)
        digests, error = worlds.draw_candidates(world, data, listed["today"])
        assert (len(digests), error) == (listed["listed"], listed["error"])
        assert 0 < listed["listed_that_somebody_has"] < listed["listed"]
        assert listed["expected"] == pytest.approx(error * len(digests))
        assert listed["expected"] <= worlds.MISTAKES[1] * listed["today"]
        assert listed["gain"] == pytest.approx((listed["with_list"] - listed["expected"]) / listed["today"])
        assert listed["unlisted_with_list"] <= listed["with_list"] <= len(data.holders)
    totals = found["summary"]["candidates"]["totals"]
    assert totals["with_list"] == sum(one["candidates"]["with_list"] for one in found["worlds"])
    text = hindsight.tables_of(found)[-1].text()
    assert f"{totals['today']:,}" in text
    assert f"{totals['with_list']:,}" in text


def test_a_list_of_what_nobody_has_adds_its_error_only():
    data = generate_world(WORLD)
    plan = dpunion.plan(dpunion.Funnel(), epsilon=2.0, delta=1e-5)
    nobody = np.random.default_rng(3).integers(2**64, size=(20_000, 2), dtype=np.uint64)
    found = run_candidates(data, plan, nobody, 0.01, 5)
    assert found["with_list"] == found["unlisted_with_list"] == found["today"] == found["unlisted_today"]
    assert abs(found["spurious"] - 200) < 5 * 200**0.5
    everything = run_candidates(data, plan, data.everything.table.digests, 0.01, 5)
    assert everything["unlisted_today"] == everything["unlisted_with_list"] == everything["spurious"] == 0
    assert everything["with_list"] > 1.1 * everything["today"] > 0


def test_worlds_without_a_list_are_drawn_again(monkeypatch, small):
    first = hindsight.judge_worlds(seed=4, count=4, judged=("counts",))
    limit = 1 + min(one["data"]["listed"] for one in first["worlds"])
    monkeypatch.setattr(hindsight, "FEWEST_LISTED", limit)
    again = hindsight.judge_worlds(seed=4, count=4, judged=("counts",))
    assert again["summary"]["redrawn"] > first["summary"]["redrawn"]
    assert all(one["data"]["listed"] >= limit for one in again["worlds"])
    kept = [one["world"]["number"] for one in first["worlds"] if one["data"]["listed"] >= limit]
    assert [again["worlds"][number] for number in kept] == [first["worlds"][number] for number in kept]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"judged": ("counts", "speed")}, "speed cannot be judged"),
        ({"judged": ()}, "Nothing cannot be judged"),
        ({"count": 0}, "'count'"),
        ({"only": -1}, "'only'"),
        ({"threads": 0}, "'threads'"),
    ],
)
def test_options_without_meaning_are_refused(asked, words):
    with pytest.raises(BadParameter, match=words):
        hindsight.judge_worlds(**{"count": 1} | asked)


def call(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["dpunion", "lab", "worlds", *map(str, arguments)])
    try:
        code = run()
    except SystemExit as end:
        code = end.code
    return code, capsys.readouterr()


def test_the_command_prints_tables_and_writes_everything(small, tmp_path, monkeypatch, capsys):
    out = tmp_path / "worlds.json"
    code, printed = call(monkeypatch, capsys, "--seed", 4, "--count", 3, "--out", out)
    assert not code
    for words in (
        "NOT PRIVATE",
        "counts: error / best error",
        "best bound",
        "best other algorithm",
        "chosen by the look",
    ):
        assert words in printed.out
    written = json.loads(out.read_text())
    assert "NOT PRIVATE" in written["warning"]
    assert written == hindsight.judge_worlds(seed=4, count=3)
    assert [table.title for table in hindsight.tables_of(written)][1:] == [
        "Counts that went wrong", "Intervals of counts", "Items per person", "Candidates, all worlds together",
    ]  # fmt: skip
    code, printed = call(monkeypatch, capsys, "--seed", 4, "--out", out)
    assert (code, printed.out) == (4, "")
    code, printed = call(monkeypatch, capsys, "--seed", 4, "--only", 1, "--of", "counts,bound", "--json")
    found = json.loads(printed.out)
    assert found["worlds"][0]["counts"] == written["worlds"][1]["counts"]
    assert "funnel" not in found["worlds"][0]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--of", "speed"], 2, "speed cannot be judged"),
        (["--ledger", "x"], 2, "keeps no ledger"),
        (["--out", "worlds.parquet"], 2, "suffix"),
    ],
)
def test_the_command_refuses_before_it_draws(arguments, code, words, monkeypatch, capsys):
    monkeypatch.setattr(hindsight, "draw_world", None)
    ended, printed = call(monkeypatch, capsys, *arguments)
    assert ended == code
    assert words in printed.err

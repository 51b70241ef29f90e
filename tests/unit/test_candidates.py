"""A public list of candidates: the same noise and charges, fewer people for listed items, and coins for unkept ones."""

import csv
import dataclasses
import functools
import json
import math
import threading
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather
from scipy import stats

import dpunion
from dpunion import requests
from dpunion.algorithms import ALGORITHMS, Funnel, Norm, PolicyGaussian, PolicyLaplace, WeightedGaussian
from dpunion.charging import release_facts
from dpunion.cli import app
from dpunion.cli.options import build_candidates
from dpunion.engines.local import run_rounds
from dpunion.engines.local.engine import LocalEngine
from dpunion.errors import BadParameter, DpunionError, SourceNotFound
from dpunion.ledger import Ledger, fingerprint
from dpunion.ledger.accounts import charge_for
from dpunion.mechanisms import mechanism_for
from dpunion.plans.candidates import WITHOUT_LISTS, add_candidates
from dpunion.plans.look import SizeLook
from dpunion.randomness import RunKey
from dpunion.reading.known import read_known
from dpunion.releases.release import Release
from dpunion.releases.statements import about, expected_mistakes
from dpunion.requests import Candidates, Charge, Known, Request, Run, Words
from dpunion.sets.encoding import digests_of, encode
from dpunion.sets.grouping import bound_further
from dpunion.sets.narrowing import Sets
from dpunion.text.words import Normalization
from dpunion_lab.audit import exact
from twins import kernels
from twins.funnel import run_funnel

KEY = RunKey.for_tests(5)
LISTED = read_known([f"listed{number}" for number in range(1000)])
BUDGETS = [(1.0, 1e-5), (3.0, math.exp(-10.0)), (0.3, 1e-8)]
WITH_LISTS = [kind for kind in ALGORITHMS.values() if kind.name not in WITHOUT_LISTS]


@functools.cache
def menu(epsilon, delta, counts=False):
    return dpunion.plan(epsilon=epsilon, delta=delta, counts=counts)


def plan_of(kind, epsilon=1.0, delta=1e-5, counts=False, **settings):
    return dpunion.plan(kind(**{"max_items_per_user": 3} | settings), epsilon=epsilon, delta=delta, counts=counts)


def with_list(planned, error=1e-3):
    return add_candidates(planned, LISTED, error)


def contributions(people, limit, order="random"):
    users = pa.array([user for user, items in people.items() for _ in items], pa.string())
    items = pa.array([item for held in people.values() for item in held], pa.string())
    options = {"user_order": order, "normalization": Normalization.NFC, "split_words": False}
    return encode([(users, items)], KEY, max_items_per_user=limit, **options)


def mark_all(monkeypatch):
    monkeypatch.setattr(RunKey, "marks", lambda _key, _draw, digests, _chance: np.ones(len(digests), np.bool_))


def release(people, candidates, **options):
    settings = {"algorithm": Funnel(max_items_per_user=3), "epsilon": 3.0, "delta": 1e-5, "unsafe_test_key": 4}
    return dpunion.release(people, candidates=candidates, **settings | options)


# --- numbers -------------------------------------------------------------------------------------------------


def same_numbers(planned):
    listed = with_list(planned)
    assert charge_for(listed) == charge_for(planned)
    assert len(listed.alternatives) == len(planned.alternatives)
    for one, other in zip(listed.alternatives, planned.alternatives, strict=True):
        assert dataclasses.replace(one, candidates=None) == other
        assert one.novelty == other.novelty
        assert 0.0 < one.candidates.threshold <= one.threshold
        assert one.candidates.chance <= 1e-3 * (1.0 + 1e-12)
        assert one.candidates.chance >= 0.999e-3 or one.candidates.threshold == one.threshold


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("budget", [pytest.param(one, marks=[] if one[0] == 1.0 else pytest.mark.full)
                                    for one in BUDGETS], ids=str)  # fmt: skip
def test_a_list_changes_no_number_and_no_charge_of_the_whole_menu(budget, counts):
    same_numbers(menu(*budget, counts))


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("kind", WITH_LISTS, ids=lambda kind: kind.name)
def test_nor_those_of_any_algorithm(kind, budget):
    same_numbers(plan_of(kind, *budget))
    if "gaussian" in kind.name or kind is Funnel:
        same_numbers(plan_of(kind, *budget, counts=True))


@pytest.mark.parametrize("kind", [kind for kind in WITH_LISTS if kind is not Funnel], ids=lambda kind: kind.name)
def test_an_unkept_candidate_has_exactly_the_allowed_chance(kind):
    """By the noise of the plan and the threshold for candidates, from scipy."""
    plan = with_list(plan_of(kind))
    law = stats.norm if plan.noise.value == "gaussian" else stats.laplace
    assert law.sf(plan.candidates.threshold, scale=plan.scale) == pytest.approx(1e-3, rel=1e-9)
    assert plan.candidates.chance == pytest.approx(1e-3, rel=1e-9)


def first_targets(plan):
    return mechanism_for(plan).targets(np.zeros(2), 0, np.array([True, False]))


def test_no_candidate_aims_higher_in_the_first_round():
    for plan in with_list(menu(1.0, 1e-5)).alternatives:
        listed, other = first_targets(plan)
        assert 0.0 < listed <= other


def test_the_minimum_is_needed():
    plan = with_list(plan_of(Funnel))
    mechanism = mechanism_for(plan)
    assert mechanism.listed.cutoffs[0] * mechanism.listed.aims[0] > mechanism.cutoffs[0] * mechanism.aims[0]
    listed, other = first_targets(plan)
    assert listed == other


def test_a_wide_spread_of_scores_is_refused_with_a_list_only():
    narrow = plan_of(Funnel, rounds=8, first_share=0.94)
    with pytest.raises(BadParameter, match="too small for float64 scores with a list"):
        with_list(narrow)


# --- which items come out ----------------------------------------------------------------------------------------

PEOPLE = {f"user{n}": [f"item{(n + 4 * i) % 15}" for i in range(1 + n % 6)] for n in range(90)}


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("kind", WITH_LISTS, ids=lambda kind: kind.name)
def test_an_empty_list_changes_no_item(kind, counts):
    if counts and not ("gaussian" in kind.name or kind is Funnel):
        return
    options = {"algorithm": kind(max_items_per_user=3), "counts": counts}
    plain, empty = release(PEOPLE, None, **options), release(PEOPLE, [], **options)
    assert plain.items == empty.items != ()
    assert plain.numbers == tuple(one for one in empty.numbers if one.name != "listed")
    listed = empty.plan.candidates
    assert (listed.listed, listed.expected, listed.seldom_more) == (0, 0, 0)


@pytest.mark.parametrize("kind", WITH_LISTS, ids=lambda kind: kind.name)
def test_a_candidate_needs_fewer_people(kind):
    """200 items between the two thresholds: fewer than half come out, and three quarters of them as candidates."""
    plan = with_list(plan_of(kind, 3.0, 1e-9, max_items_per_user=1), 0.1)
    few = math.ceil(plan.candidates.threshold + 0.5 * (plan.threshold - plan.candidates.threshold))
    people = {f"{item}-{n}": [f"item{item}"] for item in range(200) for n in range(few)}
    options = {"algorithm": kind(max_items_per_user=1), "delta": 1e-9}
    listed = Candidates([f"item{item}" for item in range(200)], error=0.1)
    without, made = release(people, None, **options), release(people, listed, **options)
    assert len(without.items) < 100
    assert len(made.items) > 150
    assert set(made.numbers[0].values) == {True}


def test_one_candidate_is_enough():
    made = release(PEOPLE, ["item3"])
    assert made.plan.candidates.listed == 1
    assert dict(zip(made.items, made.numbers[0].values, strict=True))["item3"]
    assert sum(made.numbers[0].values) == 1


def test_an_item_on_both_lists_is_known(monkeypatch):
    mark_all(monkeypatch)
    listed = ["item3", "nobody's", "item4"]
    made = release(PEOPLE, listed, known=["item3", "nobody's"])
    assert made.plan.candidates.listed == 1
    assert not {"item3", "nobody's"} & set(made.items)
    included = release(PEOPLE, listed, known=Known(["item3", "nobody's"], include=True))
    values = dict(zip(included.items, included.numbers[0].values, strict=True))
    assert values["item3"] is values["nobody's"] is False
    assert values["item4"] is True


def test_candidates_are_spelled_as_rows_are(monkeypatch):
    mark_all(monkeypatch)
    nfd = unicodedata.normalize("NFD", "café")
    rows = pa.table({"user": ["a"], "body": ["nothing"]})
    listed = ["CAFÉ", nfd, "Straße", "two words", "!", "café", "the", "x"]
    item = Words("body", stop_words=["the"], min_length=2)
    words = dpunion.release(rows, user="user", item=item, epsilon=3.0, delta=1e-5, unsafe_test_key=1,
                            algorithm=Funnel(max_items_per_user=3), candidates=listed)  # fmt: skip
    assert words.items == ("café", "straße")
    assert words.plan.candidates.listed == 2
    assert release({"a": ["b"]}, listed[:2]).items == ("CAFÉ", "café")
    assert release({"a": ["b"]}, listed[:2], normalize="nfc-lower").items == ("café",)
    assert release({"a": ["b"]}, listed[:2], normalize="exact").items == tuple(sorted(listed[:2]))


def test_repeats_count_once_and_lists_add_up(tmp_path, monkeypatch):
    mark_all(monkeypatch)
    (tmp_path / "list.txt").write_text("one\ntwo\none\n")
    made = release({"a": ["b"]}, Candidates(tmp_path / "list.txt", ["two", "three", "three"]))
    assert made.items == ("one", "three", "two")
    assert made.plan.candidates.listed == 3


def test_another_thread_reads_files_and_the_callers_reads_objects(tmp_path, monkeypatch):
    readers = []

    def read(*given, **named):
        readers.append(threading.current_thread() is threading.main_thread())
        return read_known(*given, **named)

    monkeypatch.setattr(requests, "read_known", read)
    (file := tmp_path / "list.txt").write_text("one\n")
    for threads, lists in ((2, [file]), (1, [file]), (2, [["one"]]), (2, [file, ["one"]])):
        release({"a": ["b"]}, Candidates(*lists), run=Run(threads=threads))
    assert readers == [False, True, True, True, True]


def test_the_callers_thread_reads_stop_words_in_memory(tmp_path):
    """An iterator may belong to the thread that made it, as a cursor of sqlite3 does."""
    (file := tmp_path / "list.txt").write_text("one\n")
    threads = []

    def stopped():
        threads.append(threading.current_thread())
        yield "the"

    options = {"item": Words(stop_words=stopped()), "candidates": Candidates(file), "run": Run(threads=2)}
    dpunion.release([("a", "the one")], epsilon=1.0, delta=1e-3, **options)
    assert threads == [threading.current_thread()]


def test_a_bad_budget_is_refused_before_a_bad_list(tmp_path):
    with pytest.raises(BadParameter, match="epsilon"):
        release({"a": ["b"]}, tmp_path / "nothing.txt", epsilon=-1.0, run=Run(threads=2))
    with pytest.raises(SourceNotFound):
        release({"a": ["b"]}, tmp_path / "nothing.txt", run=Run(threads=2))


def test_the_number_of_threads_changes_no_item(tmp_path):
    (file := tmp_path / "list.txt").write_text("\n".join(f"item{number}" for number in range(5000)))
    people = {f"user{one}": [f"item{one * n % 77}" for n in range(1, 4)] for one in range(600)}
    one, two = (release(people, Candidates(file, error=0.01), run=Run(threads=threads)) for threads in (1, 2))
    assert list(one.rows()) == list(two.rows())
    assert 30 < sum(int(item.removeprefix("item")) >= 77 for item in one.items) < 80


def test_keys_of_several_columns_can_be_candidates(monkeypatch):
    mark_all(monkeypatch)
    rows = pa.table({"user": ["a"], "country": ["x"], "device": ["y"]})
    made = dpunion.release(rows, user="user", item=["country", "device"], epsilon=3.0, delta=1e-5, unsafe_test_key=1,
                           algorithm=Funnel(max_items_per_user=3), candidates=[("de", "phone")])  # fmt: skip
    assert made.items == (("de", "phone"),)
    assert list(made.rows()) == [("de", "phone", True)]


# --- who is kept: by the plan that runs, before anything is dropped -------------------------------------------------


def test_what_is_read_and_not_kept_is_tossed(monkeypatch):
    """A look reads 600 items of each person and chooses 3: an item that somebody has and nobody keeps is unkept."""
    mark_all(monkeypatch)
    monkeypatch.setattr(SizeLook, "choose_limit", lambda _self, _people: 3)
    held = [f"held{number}" for number in range(40)]
    made = release({"somebody": held}, [*held, "free"], algorithm=None, epsilon=1.0)
    assert made.plan.algorithm.max_items_per_user == 3
    assert "free" in made.items
    assert len(set(held).difference(made.items)) in {1, 2, 3}  # of the three that are kept; noise rarely lifts one


def test_the_numbers_of_unkept_candidates_follow_the_table(monkeypatch):
    mark_all(monkeypatch)
    plan = with_list(plan_of(Funnel))
    whole = contributions({"somebody": [f"listed{n}" for n in range(40)], "else": ["other"]}, 600)
    bounded = bound_further(whole, plan.algorithm.bounding, KEY)
    listed = digests_of([*(f"listed{n}" for n in range(40)), "free"], KEY)
    for one, kept in ((bounded, 3), (dataclasses.replace(whole, max_items_per_user=3), 40)):
        chosen = run_rounds(mechanism_for(plan), one, KEY, 1, listed)
        assert len(one.table) == 41
        unkept = chosen[chosen >= 41] - 41
        assert len(unkept) == 41 - kept
        assert 40 in unkept
        keepers = {one.table.digests[item].tobytes() for item in np.flatnonzero(Sets(one).held)}
        assert not keepers & {listed[place].tobytes() for place in unkept}


def test_a_kept_candidate_that_was_dropped_is_not_tossed(monkeypatch):
    """200 lone people: nearly all of their candidates are dropped in some round, and none comes out by its mark."""
    mark_all(monkeypatch)
    people = {f"user{n}": [f"listed{n}"] for n in range(200)}
    made = release(people, [f"listed{n}" for n in range(300)], epsilon=1.0)
    lone = {f"listed{n}" for n in range(200)}
    assert len(lone & set(made.items)) < 20
    assert set(made.items) - lone == {f"listed{n}" for n in range(200, 300)}


ITEMS = [f"item{number}" for number in range(9)]
FUNNELS = {
    "default": plan_of(Funnel, 3.0, 1e-3),
    "even": plan_of(Funnel, 3.0, 1e-3, rounds=3, first_share=0.4),
    "one round": plan_of(Funnel, 3.0, 1e-3, rounds=1, first_share=1.0),
}


@given(
    st.sampled_from(sorted(FUNNELS)),
    st.sampled_from([1e-3, 0.02, 0.1]),
    st.sets(st.sampled_from(ITEMS), max_size=9),
    st.lists(st.tuples(st.sets(st.sampled_from(ITEMS[:8]), min_size=1, max_size=3), st.integers(1, 12)), max_size=6),
    st.integers(0, 2**32),
)
def test_the_rounds_do_what_their_twin_does(name, error, listed, groups, seed):
    plan, key = with_list(FUNNELS[name], error), RunKey.for_tests(seed)
    sets = [sorted(items) for items, count in groups for _ in range(count)]
    data = contributions({f"user{n}": items for n, items in enumerate(sets)}, 3)
    users = [data.items[low:high].tolist() for low, high in zip(data.offsets, data.offsets[1:], strict=False)]
    names = sorted(listed)
    digests = digests_of(names, KEY)
    places = {digest.tobytes(): place for place, digest in enumerate(data.table.digests)}
    numbers = {places[digest.tobytes()] for digest in digests if digest.tobytes() in places}
    noise = [dict(enumerate(key.normals(r, data.table.digests).tolist())) for r in range(len(plan.rounds))]
    passed = run_funnel(plan, users, numbers, noise)
    marked = np.flatnonzero(mechanism_for(plan).mark(digests, key))
    unkept = {len(data.table) + place for place in marked.tolist() if digests[place].tobytes() not in places}
    assert set(run_rounds(mechanism_for(plan), data, key, 1, digests).tolist()) == passed | unkept


@pytest.mark.parametrize("reserve", [0.0, 0.3])
@pytest.mark.parametrize("kind", [PolicyGaussian, PolicyLaplace])
def test_a_head_start_is_a_lower_threshold_and_a_lower_cutoff(kind, reserve):
    plan = with_list(plan_of(kind, 1.0, 1e-3, reserve=reserve, passes=2), 0.02)
    lower = plan.threshold - plan.candidates.threshold
    data = contributions(PEOPLE, 3)
    listed = np.arange(len(data.table)) % 2 == 0
    mechanism = mechanism_for(plan)
    state = dataclasses.replace(exact.State.start(len(data.table)), listed=listed)
    weights = mechanism.weigh(Sets(data), state, 0, KEY).values
    descend = kernels.descend_l2 if mechanism.norm is Norm.L2 else kernels.descend_l1
    users = [data.items[low:high].tolist() for low, high in zip(data.offsets, data.offsets[1:], strict=False)]
    twin = [0.0] * len(data.table)
    for cutoff, budget in mechanism.visits:
        for items in users:
            # One person with cutoffs of their own for each item: gaps to the cutoff less the head start.
            gaps = {item: cutoff - lower * listed[item] - twin[item] for item in items}
            given_to = [cutoff - gaps[item] if item in gaps else cutoff for item in range(len(twin))]
            descend([items], given_to, cutoff, budget)
            for item in items:
                twin[item] += given_to[item] - (cutoff - gaps[item])
    assert weights - lower * listed == pytest.approx(twin, abs=1e-9)
    assert lower > 1.0


# --- exact laws of tiny worlds ---------------------------------------------------------------------------------------


def kept_only(law, kept):
    """Return the law of an output without the items that nobody keeps: what must not be done to candidates."""
    filtered = np.zeros_like(law)
    for subset, chance in enumerate(law):
        filtered[subset & kept] += chance
    return filtered


@st.composite
def worlds(draw):
    kinds = draw(st.sampled_from(["ln", "ls", "lns", "lln", "ll"]))
    shared = [item for item, kind in enumerate(kinds) if kind == "s" or (kind == "l" and draw(st.booleans()))]
    rest = [(item,) for item in shared if kinds[item] == "s"]
    if shared:
        sets = st.sets(st.sampled_from(shared), min_size=1, max_size=2).map(lambda one: tuple(sorted(one)))
        rest += draw(st.lists(sets, max_size=12))
    extra = tuple(sorted(draw(st.sets(st.integers(0, len(kinds) - 1), min_size=1, max_size=2))))
    return np.array([kind == "l" for kind in kinds]), tuple(rest), extra, draw(st.integers(0, len(rest)))


TINY = [
    plan_of(Funnel, epsilon, delta, max_items_per_user=2, rounds=rounds, first_share=share)
    for epsilon, delta in ((1.0, 1e-3), (0.3, 1e-3), (3.0, 1e-4))
    for rounds, share in ((1, 1.0), (2, 0.2), (2, 0.8))
] + [plan_of(kind, 1.0, 1e-3, max_items_per_user=2) for kind in (PolicyGaussian, PolicyLaplace, WeightedGaussian)]


@given(worlds(), st.sampled_from(TINY), st.sampled_from([1e-6, 1e-3, 0.05, 0.1]))
def test_candidates_of_tiny_worlds_stay_within_delta(world, plan, error):
    listed, rest, extra, place = world
    planned = with_list(plan, error)
    coarse = len(listed) == 3 and len(plan.rounds) == 2
    with pytest.MonkeyPatch.context() as patched:
        if coarse:
            patched.setattr(exact, "PIECES_PER_STDDEV", 0.7)
        assert exact.divergence(planned, rest, extra, place, len(listed), listed) <= plan.budget.delta


@pytest.mark.parametrize("plan", TINY, ids=lambda plan: f"{plan.name}-{len(plan.rounds)}-{plan.budget.epsilon}")
def test_candidates_that_come_out_only_if_kept_betray_a_person(plan):
    planned, listed = with_list(plan), np.array([True])
    one, none = exact.output_law(planned, ((0,),), 1, listed), exact.output_law(planned, (), 1, listed)
    assert none[1] == pytest.approx(planned.candidates.chance, rel=1e-6)
    assert exact.hockey_stick(one, none, plan.budget.epsilon) <= plan.budget.delta
    assert exact.hockey_stick(kept_only(one, 1), kept_only(none, 0), plan.budget.epsilon) > plan.budget.delta


def test_a_person_cannot_be_seen_to_keep_fewer_than_were_read():
    """An item that counts as kept because it was read can never come out, and without its person it can."""
    planned, listed = with_list(TINY[0]), np.array([True])
    without = exact.output_law(planned, (), 1, listed)
    assert exact.hockey_stick(without, np.array([1.0, 0.0]), planned.budget.epsilon) >= 0.99 * planned.budget.delta
    strict = with_list(plan_of(Funnel, 1.0, 1e-5, max_items_per_user=2, rounds=2))
    without = exact.output_law(strict, (), 1, listed)
    assert exact.hockey_stick(without, np.array([1.0, 0.0]), 1.0) > 50 * 1e-5


# --- words and columns -----------------------------------------------------------------------------------------------


def test_the_sentences_have_the_mean_and_the_quantile_of_poisson():
    plan = dpunion.plan(Funnel(max_items_per_user=3), epsilon=1.0, delta=1e-5, candidates=map(str, range(50_000)))
    said = expected_mistakes(plan.candidates)
    assert "at most 50 of the 50,000 candidates" in said
    assert "more than 67." in said
    assert stats.poisson.sf(67, 50) <= 0.01 < stats.poisson.sf(66, 50)


@pytest.mark.parametrize("error", [1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("listed", [1, 10, 1000, 10**7])
def test_the_quantile_is_that_of_scipy(listed, error):
    plan = dataclasses.replace(with_list(plan_of(Funnel)).candidates, listed=listed, error=error, chance=error)
    assert plan.expected == pytest.approx(listed * error)
    assert plan.seldom_more == stats.poisson.ppf(0.99, listed * error)


@pytest.mark.parametrize("kind", [PolicyGaussian, PolicyLaplace, Funnel])
def test_mistakes_are_counted_by_the_exact_chance_where_that_is_larger(kind):
    """Where a list's threshold is that of other items, more candidates come out by mistake than the error says."""
    plan = with_list(plan_of(kind, 0.1, 1e-3, max_items_per_user=1), error=1e-4).candidates
    assert plan.chance > 3 * plan.error
    assert plan.expected == plan.listed * plan.chance
    assert "at most 1 " not in expected_mistakes(plan)


@pytest.mark.parametrize(("mean", "said"), [(2.04, "2.1"), (0.0123, "0.013"), (10.2, "11"), (2.0, "2"), (50.0, "50")])
def test_a_promised_bound_is_rounded_up(mean, said):
    assert about(mean) == said


@pytest.mark.parametrize("name", ["known", "candidates"])
@pytest.mark.parametrize("source", ["posts.csv", "folder", "folder/*.csv"])
def test_the_data_is_no_public_list(name, source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("posts.csv" if source == "posts.csv" else "folder/posts.csv")
    path.parent.mkdir(exist_ok=True)
    path.write_text("user,item\nann,tea\n")
    with pytest.raises(BadParameter, match="is a source of this release, so it is not public"):
        dpunion.release(source, user="user", item="item", epsilon=1.0, delta=1e-6, **{name: str(path)})


def test_a_list_by_name_is_not_looked_for_in_the_folder_of_the_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"user": ["ann"], "item": ["tea"]}), "posts.parquet")
    options = {"user": "user", "item": "item", "epsilon": 1.0, "delta": 1e-6, "algorithm": Funnel(max_items_per_user=3)}
    assert dpunion.release(".", candidates="countries", **options).plan.candidates.listed > 100


def test_the_statement_says_what_a_candidate_may_mean():
    said = release(PEOPLE, ["item3", "nobody's"], unsafe_test_key=None).statement
    assert read_known(["item3", "nobody's"]).sha256 in said
    for sentence in ("may also come out if nobody has it", "not a candidate practically never comes out",
                     "at most 0.002 of the 2 candidates"):  # fmt: skip
        assert sentence in said
    assert "candidate" not in release(PEOPLE, None, unsafe_test_key=None).statement


def read_column(path):
    """Return the items of a file with their `listed`, as another program would."""
    match path.suffix:
        case ".csv":
            rows = list(csv.DictReader(path.read_text().splitlines()))
            return {row["item"]: {"true": True, "false": False}[row["listed"]] for row in rows}
        case ".jsonl":
            return {row["item"]: row["listed"] for row in map(json.loads, path.read_text().splitlines())}
        case ".json":
            values = json.loads(path.read_text())
            return dict(zip(values["items"], values["numbers"]["listed"], strict=True))
    table = pq.read_table(path) if path.suffix == ".parquet" else feather.read_table(path)
    assert table.schema.field("listed").type == pa.bool_()
    return dict(zip(table["item"].to_pylist(), table["listed"].to_pylist(), strict=True))


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".arrow", ".json", ".txt"])
def test_every_format_has_the_column(tmp_path, suffix, counts):
    path = tmp_path / f"out{suffix}"
    made = release(PEOPLE, ["item3", "item4", "nobody's"], out=path, counts=counts)
    expected = {item: item in {"item3", "item4"} for item in made.items}
    assert len(set(expected.values())) == 2
    (column,) = (one for one in made.numbers if one.name == "listed")
    assert dict(zip(made.items, column.values, strict=True)) == expected
    if suffix == ".txt":  # has items alone, as with counts
        assert path.read_text().splitlines() == list(made.items)
    else:
        assert read_column(path) == expected
    assert set(read_known(path).items) == set(made.items)
    if suffix == ".json":
        assert Release.from_json(path.read_text()) == made


@pytest.mark.parametrize(
    "damage",
    [
        lambda values: values["numbers"]["listed"].pop(),
        lambda values: values["numbers"].update(listed=["yes"] * len(values["items"])),
        lambda values: values["plan"]["candidates"].update(chance=2.0),
        lambda values: values["plan"]["candidates"].update(listed=-1),
    ],
)
def test_a_damaged_column_is_not_read_back(damage):
    values = release(PEOPLE, ["item3"]).to_dict()
    damage(values)
    with pytest.raises(BadParameter):
        Release.from_json(json.dumps(values))


def test_doubtful_candidates_are_dropped_and_others_stay(monkeypatch):
    mark_all(monkeypatch)
    people = {f"user{n}": ["popular", f"pair{n % 50}"] for n in range(400)}
    listed = ["popular", *(f"nobody{n}" for n in range(300))]
    kept = release(people, Candidates(listed), counts=True)
    made = release(people, Candidates(listed, drop_doubtful=True), counts=True)
    columns = {one.name: one.values for one in kept.numbers}
    sound = [row for row in zip(kept.items, columns["listed"], columns["low"], strict=True) if row[2] > 0 or not row[1]]
    assert set(made.items) == {row[0] for row in sound} < set(kept.items)
    assert "popular" in made.items
    assert sum(name.startswith("nobody") for name in made.items) < 30
    for one in made.numbers:
        before = dict(zip(kept.items, columns[one.name], strict=True))
        assert [before[item] for item in made.items] == list(one.values)


def test_included_known_items_stay_whatever_their_counts_are():
    known = [f"known{n}" for n in range(50)]
    options = {"counts": True, "known": Known(known, include=True)}
    made = release(PEOPLE, Candidates(["item3"], drop_doubtful=True), **options)
    lows = dict(zip(made.items, next(one.values for one in made.numbers if one.name == "low"), strict=True))
    assert 0 in {lows[item] for item in known}


# --- which release it is ---------------------------------------------------------------------------------------------


def test_the_fingerprint_tells_lists_errors_and_dropping_apart():
    def which(asked):
        asked = Candidates.of(asked)
        request = Request.of({"a": ["b"]}, candidates=asked)
        plan = plan_of(Funnel, counts=True)
        plan = plan if asked is None else add_candidates(plan, request.candidates, asked.error)
        return fingerprint(**release_facts(plan, request, LocalEngine.for_run(Run(), None)))

    asked = [None, ["a"], ["b"], [], ["a", "b"], Candidates(["a"], error=0.01), Candidates(["a"], drop_doubtful=True),
             Candidates(["a"], ["b"])]  # fmt: skip
    assert len({which(one) for one in asked}) == len(asked)
    assert which(["a"]) == which(Candidates(["a", "a"])) == which(("a",))


# --- refusals, all of them before anything is charged -----------------------------------------------------------------

TEXTS = {"user": "user", "item": Words("body")}
REFUSED = {
    "dp-sips": ({"algorithm": "dp-sips"}, ["a"], "dp-sips draws items anew"),
    "optimal-single-item": ({"algorithm": "optimal-single-item"}, ["a"], "uses each person's only item"),
    "Ngrams": ({"user": "user", "text": "body", "algorithm": dpunion.Ngrams()}, ["a"], "Ngrams"),
    "lengths": (TEXTS | {"item": Words("body", lengths=(1, 2))}, ["a"], "N-grams or another tokenizer"),
    "tokenizer": (TEXTS | {"item": Words("body", tokenizer="whitespace")}, ["a"], "N-grams or another tokenizer"),
    "too small an error": ({}, lambda _: Candidates(["a"], error=1e-10), "error"),
    "too large an error": ({}, lambda _: Candidates(["a"], error=0.2), "error"),
    "no number": ({}, lambda _: Candidates(["a"], error=math.nan), "error"),
    "no list": ({}, lambda _: Candidates(), "missing"),
    "column": ({"user": "user", "item": ["listed", "body"]}, [("a", "b")], "listed"),
    "doubtful": ({}, Candidates(["a"], drop_doubtful=True), "counted"),
    "missing file": ({}, "nowhere.csv", "no file"),
    "damaged file": ({}, "damaged.parquet", "damaged"),
    "other columns": ({}, "other.csv", "columns"),
    "numbers": ({}, [1, 2], "must contain texts"),
    "a folder": ({}, ".", "list of candidates"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_before_it_is_charged(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and then nothing PAR1")
    (tmp_path / "other.csv").write_text("name,price\na,1\n")
    ledger = Ledger.open("budget.db", create=True)
    ledger.create_dataset("posts", 3.0, 1e-4)
    options, candidates, complaint = REFUSED[name]
    usual = {"user": "user", "item": "body", "epsilon": 1.0, "delta": 1e-5, "algorithm": Funnel(max_items_per_user=3)}
    options = usual | ({"item": None} if "text" in options else {}) | options
    rows = pa.table({"user": ["a"], "body": ["private"], "listed": ["x"]})
    with pytest.raises(DpunionError, match=complaint) as refused:
        asked = candidates(None) if callable(candidates) else candidates
        dpunion.release(rows, candidates=asked, charge=Charge("budget.db", "posts"), **options)
    assert "private" not in str(refused.value)
    assert not any(ledger.overview().accounts[0].spent.values())
    ledger.close()


def test_the_command_line_refuses_settings_without_a_list():
    given_ = type("Given", (), {"candidates": (), "candidates_error": 0.01})()
    with pytest.raises(BadParameter, match="without a list of candidates"):
        build_candidates(given_)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A catalogue of 50,000 items, and people who have some of them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text("".join(f"item{n}\n" for n in range(50_000)))
    pairs = [(user, item) for user, items in PEOPLE.items() for item in items]
    pq.write_table(pa.table({"user": [one for one, _ in pairs], "item": [one for _, one in pairs]}), "rows.parquet")


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_a_plan_says_who_is_needed_and_how_many_come_out_by_mistake(files):
    budget = ("-e", 1, "-d", 1e-5, "--max-items-per-user", 3, "--candidates", "list.txt")
    shown = run("plan", *budget)
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    assert "And this many must have a candidate" in words
    assert "at most 50 of the 50,000 candidates come out although nobody has them" in words
    assert "more than 67." in words
    values = json.loads(run("plan", *budget, "--json").output)
    assert values["candidates"]["sha256"] == read_known("list.txt").sha256
    assert values["candidates"]["listed"] == 50_000
    pairs = zip(values["holders_needed_by_candidates"], values["holders_needed"], strict=True)
    assert all(listed["chance_50"] < other["chance_50"] for listed, other in pairs)


def test_the_command_line_takes_lists_and_an_error(files):
    Path("more.txt").write_text("item3\nother\n")
    options = ("-u", "user", "-i", "item", "-e", 3, "-d", 1e-5, "--max-items-per-user", 3, "--unsafe-test-key", 4)
    lists = ("--candidates", "list.txt", "--candidates", "more.txt", "--candidates-error", 0.01)
    done = run("release", "rows.parquet", *options, *lists, "--json")
    assert done.exit_code == 0, done.output
    made = Release.from_json(done.stdout)
    assert (made.plan.candidates.listed, made.plan.candidates.error) == (50_001, 0.01)
    same = Candidates("list.txt", "more.txt", error=0.01)
    rows = dpunion.release("rows.parquet", user="user", item="item", epsilon=3.0, delta=1e-5, candidates=same,
                           algorithm="funnel", max_items_per_user=3, unsafe_test_key=4)  # fmt: skip
    assert made.items == rows.items
    assert made.numbers == rows.numbers
    refused = run("release", "rows.parquet", *options, *lists, "--drop-doubtful")
    assert refused.exit_code == 2
    assert "counted" in refused.output

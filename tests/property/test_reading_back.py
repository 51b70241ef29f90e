"""What was written is read back; anything else is refused as such, whatever is wrong with it."""

import copy
import functools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpunion
from dpunion.algorithms import ALGORITHMS, algorithm_named
from dpunion.errors import DpunionError
from dpunion.plans import Plan
from dpunion.releases.release import Release
from dpunion.report import release_page

HUGE = 10**400
ODD = [
    None, True, 0, -1, 1.5, 1e308, -1e308, 1e-320, float("nan"), float("inf"), HUGE, -HUGE, 2**63, 10**9, "", "x", "1",
]  # fmt: skip
ODD += ["\ud800", [], [1], [[]], [None], {}, {"a": 1}, "gaussian", "laplace", "l1", "x", "1"]


@functools.cache
def documents():
    """JSON of releases with every algorithm, of keys, of n-grams, and with counts."""
    plans = [dpunion.plan(algorithm_named(name), epsilon=1.0, delta=1e-6) for name in ALGORITHMS]
    made = [Release(("a", "b"), plan, guaranteed=True, notes=("A note.",)) for plan in plans]
    made.append(Release((("a", "b"),), plans[0], guaranteed=True, columns=("x", "y")))
    texts = [(f"user{i}", "the quick fox") for i in range(200)]
    made.append(dpunion.release_ngrams(texts, longest=2, epsilon=3.0, delta=1e-4, unsafe_test_key=1))
    people = [(f"user{i}", item) for i in range(300) for item in ("a", "b", "c")]
    made.append(dpunion.release(people, epsilon=3.0, delta=1e-4, counts=True, unsafe_test_key=1))
    made.append(dpunion.release_ngrams(texts, longest=2, epsilon=3.0, delta=1e-4, counts=True, unsafe_test_key=1))
    assert len(made[-2]) == 3
    return [release.to_json() for release in made]


def places(values, above=()):
    """Yield where something can be put, in nested lists and objects."""
    pairs = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in pairs:
        yield (*above, key)
        yield from places(value, (*above, key))


@st.composite
def spoiled(draw):
    """One or two places of a document hold something odd, or nothing."""
    values = json.loads(draw(st.sampled_from(documents())))
    for _ in range(draw(st.integers(1, 2))):
        *above, last = draw(st.sampled_from(list(places(values))))
        inside = functools.reduce(lambda outer, key: outer[key], above, values)
        if draw(st.booleans()) or not isinstance(inside, dict):
            inside[last] = copy.deepcopy(draw(st.sampled_from(ODD)))
        else:
            del inside[last]
    return values


@settings(max_examples=800, deadline=None)
@given(spoiled())
def test_spoiled_releases_are_read_or_refused(values):
    try:
        release = Release.from_json(json.dumps(values))
    except DpunionError:
        return
    assert Release.from_json(release.to_json()) == release


@settings(max_examples=25, deadline=None)
@given(spoiled())
def test_what_is_read_has_a_page(values):
    try:
        release = Release.from_json(json.dumps(values))
    except DpunionError:
        return
    assert release_page(release).rstrip().endswith("</html>")


@settings(max_examples=300, deadline=None)
@given(spoiled())
def test_spoiled_plans_are_read_or_refused(values):
    plan = values.get("plan", {})
    try:
        read = Plan.from_dict(plan)
    except DpunionError:
        return
    assert Plan.from_dict(json.loads(json.dumps(read.to_dict()))) == read


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": ' + "[" * 100_000, "", "\ud800", "9" * 10_000])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(DpunionError, match="not a release"):
        Release.from_json(text)


def test_whole_releases_are_read():
    for text in documents():
        assert Release.from_json(text).to_json() == text

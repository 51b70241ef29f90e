"""Which release is the same as an earlier one: every option counts, functions by their code, standard input never."""

import dataclasses
import functools
import io
import os
import re
import sys

import pytest

import dpunion
from dpunion.charging import release_facts
from dpunion.engines.local.engine import LocalEngine
from dpunion.errors import AlreadyReleased, BadParameter, InternalError
from dpunion.ledger import Ledger, fingerprint
from dpunion.ledger.fingerprints import json_value
from dpunion.reading import ValueKind
from dpunion.reading.known import read_known
from dpunion.reading.locate import source_states
from dpunion.reading.parts import NullUserPolicy
from dpunion.reading.spelling import Granularity
from dpunion.requests import Charge, Known, Request, Run, Stdin, Words
from dpunion.sets.encoding import Normalization
from dpunion.text.splitting import Splitting, Tokenizer
from opening import make_request
from running import run_python

READING = make_request("d.csv", "who", "what", kind=ValueKind.TEXT)
OTHERS = {
    "source": [["d.csv", "e.csv"], "e.csv", "-"],
    "user": ["whom"],
    "kind": [ValueKind.ITEM],
    "value": ["which", ("what", "which")],
    "query": ["select 1"],
    "input_format": ["csv", "tsv"],
    "null_users": [NullUserPolicy.DROP],
    "normalization": [Normalization.EXACT],
    "known": [read_known(["a"]), read_known(["b"])],
    "lengths": [(1, 2), (2, 2)],
    "splitting": [
        Splitting(Tokenizer.ICU), Splitting(Tokenizer.ICU, locale="th"), Splitting(drop_urls=True),
        Splitting(sentences=True), Splitting(str.split), Splitting(stop_words=("a",)), Splitting(stop_words=("a", "b")),
        Splitting(min_length=2),
    ],
    "include_known": [True],
    "candidates": [read_known(["a"]), read_known(["b"])],
    "drop_doubtful": [True],
    "granularity": [Granularity.DAY, Granularity.WEEK],
}  # fmt: skip


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Request)])
def test_every_option_of_a_reading_tells_it_apart(name):
    listed = dataclasses.replace(READING, candidates=read_known(["c"]))
    base = listed if name == "drop_doubtful" else READING
    readings = [base, *(dataclasses.replace(base, **{name: other}) for other in OTHERS[name])]
    plan = dpunion.plan(dpunion.Funnel(), epsilon=1.0, delta=1e-6)
    prints = {fingerprint(**release_facts(plan, reading, LocalEngine.for_run(Run(), None))) for reading in readings}
    assert len(prints) == len(readings)


def by_comma(text):
    return text.split(",")


def by_dot(text):
    return text.split(".")


def splitter(mark, most=-1, *, strip=False):
    def split(text):
        return [part.strip() if strip else part for part in text.split(mark, most)]

    return split


class Holder:
    """An object with a state of its own."""

    def __init__(self, mark):
        self.mark = mark

    def __call__(self, text):
        return text.split(self.mark)

    def split(self, text):
        return text.split(self.mark)


def test_functions_are_told_apart_by_their_code():
    functions = [
        by_comma, by_dot, str.split, str.splitlines, "a b".split, "a c".split, lambda text: text.split("a"),
        lambda text: text.split("b"), lambda text: [word for word in text.split() if word not in {"a", "an", "the"}],
        lambda text: [word for word in text.split() if word not in {"a", "an", "this"}], splitter("a"), splitter("b"),
        splitter("a", 3), splitter("a", strip=True), functools.partial(by_comma), functools.partial(re.split, "a"),
        functools.partial(re.split, "b"), re.compile("a").findall, re.compile("b").findall,
        re.compile("b", re.IGNORECASE).findall,
    ]  # fmt: skip
    assert len({json_value(function) for function in functions}) == len(functions)
    assert json_value(splitter("a")) == json_value(splitter("a"))


def test_a_function_is_the_same_in_another_process(tmp_path):
    """Sets have another order in each process, and addresses are others."""
    code = (
        "import sys; from dpunion.ledger.fingerprints import json_value\n"
        "def f(text, most=3):\n return [w for w in text.split() if w not in {'a', 'an', 'the', 'of'}]\n"
        "print(json_value(f))"
    )
    seeded = [os.environ | {"PYTHONHASHSEED": seed} for seed in "123"]
    assert len({run_python(code, check=True, env=environment).stdout for environment in seeded}) == 1


@pytest.fixture
def options(tmp_path):
    book = Ledger.open(tmp_path / "budget.db", create=True)
    book.create_dataset("posts", 100, 1e-2)
    (tmp_path / "d.csv").write_text("who,what\n" + "".join(f"u{i},ab.c\n" for i in range(30)))
    return {"user": "who", "epsilon": 1.0, "delta": 1e-4, "charge": Charge(tmp_path / "budget.db", "posts")}


def entries(options):
    return Ledger.open(options["charge"].ledger).overview().entries


def test_other_functions_and_options_make_other_releases(tmp_path, options):
    source = tmp_path / "d.csv"
    for more in (
        {"item": Words("what", by_comma)},
        {"item": Words("what", by_dot)},
        {"item": "what", "known": ["a"]},
        {"item": "what", "known": Known(["a"], include=True)},
    ):
        dpunion.release(source, **more, **options)
        with pytest.raises(AlreadyReleased):
            dpunion.release(source, **more, **options)
    assert len(entries(options)) == 4


@pytest.mark.parametrize("tokenizer", [Holder("."), Holder(".").split])
def test_a_function_with_a_state_is_refused_with_a_ledger_only(tmp_path, options, tokenizer):
    with pytest.raises(BadParameter, match="ledger cannot identify a tokenizer"):
        dpunion.release(tmp_path / "d.csv", item=Words("what", tokenizer=tokenizer), **options)
    assert entries(options) == ()
    alone = {name: value for name, value in options.items() if name != "charge"}
    assert len(dpunion.release(tmp_path / "d.csv", item=Words("what", tokenizer=tokenizer), **alone)) == 2


def test_an_unknown_kind_of_value_is_an_internal_error():
    with pytest.raises(InternalError):
        json_value(object())


def test_standard_input_never_equals_an_earlier_run(tmp_path, options, monkeypatch):
    for month in ("jan", "feb"):
        text = "who,what\n" + "".join(f"u{i},{month}\n" for i in range(200))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        released = dpunion.release(Stdin("csv"), item="what", out=tmp_path / f"{month}.txt", **options)
        assert released.items == (month,)
    assert len(entries(options)) == 2


def test_a_source_that_changed_since_is_reported(tmp_path, options):
    source = tmp_path / "d.csv"
    dpunion.release(source, item="what", **options)
    with pytest.raises(AlreadyReleased, match=r"Nothing was charged\. Use") as caught:
        dpunion.release(source, item="what", **options)
    assert caught.value.source_changed is False
    with source.open("a") as file:
        file.write("u99,z\n")
    with pytest.raises(AlreadyReleased, match="The source has changed since") as caught:
        dpunion.release(source, item="what", **options)
    assert caught.value.source_changed is True


def test_the_state_of_a_source_names_no_file_that_was_found(tmp_path):
    for user in ("alice", "bob"):
        (tmp_path / f"user={user}").mkdir()
        (tmp_path / f"user={user}" / "a.parquet").write_bytes(b"12345")
    for source in (tmp_path, str(tmp_path / "*" / "*.parquet")):
        (state,) = source_states(source)
        assert (state["files"], state["bytes"]) == (2, 10)
        assert "alice" not in str(state)
    for source in (tmp_path / "none", "-", "postgresql://h/db", {"u": ["a"]}, ["nothing*"]):
        assert source_states(source) is None

"""What is asked for, and what of it shows."""

import dataclasses
import inspect

import pytest

import dpunion
from dpunion.checks import Settings
from dpunion.engines import Chosen
from dpunion.engines.local.engine import LocalEngine
from dpunion.engines.publishing import Outputs, publish
from dpunion.errors import BadParameter, InternalError
from dpunion.releases.release import Release
from dpunion.requests import HOMES, Charge, Folder, Request, Run, SparkSource

SECRET = "canary-17"
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(
    "asked",
    [
        Request.of([(SECRET, SECRET)]),
        Request.of({SECRET: [SECRET]}),
        Charge(f"postgresql://me:{SECRET}@host/db", "posts"),
        SparkSource("posts.parquet", settings=(("spark.hadoop.fs.s3a.secret.key", SECRET),)),
        Request.of(SparkSource("p.parquet", settings=(("x.secret", SECRET),)), user="u", item="i"),
    ],
)
def test_rows_and_passwords_do_not_show(asked):
    assert SECRET not in repr(asked)


@pytest.mark.parametrize("bad", ["", "NFC", "lower", 7])
def test_a_normal_form_that_there_is_not_is_refused(bad):
    for algorithm in ("funnel", dpunion.Ngrams()):
        with pytest.raises(dpunion.BadParameter, match="normalize"):
            dpunion.release([("u", "a")], normalize=bad, algorithm=algorithm, **BUDGET)


def test_one_name_of_spark_is_one_name():
    assert SparkSource("posts.parquet").names == ("posts.parquet",)
    assert SparkSource(["a", "b"]).names == ("a", "b")


def test_a_folder_is_written_in_the_stage_of_writing():
    """An interrupt there must not claim that nothing was released."""
    steps = []

    class Engine:
        def store(self, chosen, made):
            steps.append("stored")
            return "folder"

    draft = Release((), dpunion.plan(dpunion.Funnel(), **BUDGET), guaranteed=True)
    run = Run(progress=lambda stage, _done: steps.append(stage))
    outputs = Outputs.of(Folder("folder"), overwrite=False, counts=False)
    made, files = publish(Chosen(is_remote=True), None, draft, Request.of([]), Engine(), outputs, run)
    assert steps == ["writing", "stored"]
    assert (made.stored, files) == ("folder", [])


def test_one_machine_stores_no_folder():
    with pytest.raises(dpunion.BadParameter, match="for Spark"):
        dpunion.release([("u", "a")], out=Folder("folder"), **BUDGET)
    with pytest.raises(InternalError):
        LocalEngine.for_run(Run(), None).store(Chosen(), None)


# --- keywords that belong to a class ------------------------------------------------------------------------
MISPLACED = {
    "stop_words": 'belongs to Words. Write item=Words("body", stop_words=...).',
    "tokenizer": 'belongs to Words. Write item=Words("body", tokenizer=...).',
    "ngrams": 'belongs to Words. Write item=Words("body", lengths=...).',
    "column": 'belongs to Words. Write item=Words("body").',
    "ledger": 'belongs to Charge. Write charge=Charge("budget.db", "posts").',
    "charge_again": 'belongs to Charge. Write charge=Charge("budget.db", "posts", again=...).',
    "progress": "belongs to Run. Write run=Run(progress=...).",
    "title": "belongs to About. Write run=Run(about=About(title=...)).",
    "master": 'belongs to SparkSource. Write release(SparkSource("logs/*.parquet", master=...), ...).',
    "longest": "belongs to Ngrams. Write algorithm=Ngrams(longest=...).",
    "quiet": "is an option of the command line, not of Python. Leave it out.",
}


@pytest.mark.parametrize("name", MISPLACED)
def test_a_keyword_that_a_class_takes_is_refused_with_its_place(name):
    expected = f"{name!r} {MISPLACED[name]}"
    with pytest.raises(BadParameter) as caught:
        dpunion.release([("u", "a")], epsilon=1.0, delta=1e-6, **{name: "x"})
    assert str(caught.value) == expected
    with pytest.raises(BadParameter) as caught:
        dpunion.plan("weighted-gaussian", epsilon=1.0, delta=1e-6, **{name: "x"})
    assert str(caught.value) == expected


@pytest.mark.parametrize("kind", [kind for kind, _, _ in HOMES], ids=lambda kind: kind.__name__)
def test_every_field_of_every_class_has_its_place(kind):
    """A new field is found without an entry anywhere."""
    release, plan = (inspect.signature(one).parameters for one in (dpunion.release, dpunion.plan))
    for field in dataclasses.fields(kind):
        homes = [one for one, _, _ in HOMES if field.name in {other.name for other in dataclasses.fields(one)}]
        assert kind in homes
        place = f"'{field.name}' belongs to {homes[0].__name__}\\. "
        if field.name not in plan:
            with pytest.raises(BadParameter, match=place):
                dpunion.plan(epsilon=1.0, delta=1e-6, **{field.name: "x"})
        if field.name not in release:
            with pytest.raises(BadParameter, match=place):
                dpunion.release([("u", "a")], epsilon=1.0, delta=1e-6, **{field.name: "x"})


def test_every_class_that_release_takes_has_its_fields_found():
    exported = {getattr(dpunion, name) for name in dpunion._HOMES if dpunion._HOMES[name] == "requests"}
    kinds = {kind for kind in exported if dataclasses.is_dataclass(kind)}
    assert {kind for kind, _, _ in HOMES} == {*kinds, dpunion.Counts, dpunion.Ngrams, dpunion.About}


def test_a_plan_says_which_parameters_only_a_release_takes():
    release, plan = (set(inspect.signature(one).parameters) for one in (dpunion.release, dpunion.plan))
    assert {"user", "item", "text", "query", "out", "charge", "run"} < release - plan
    for name in sorted(release - plan - {"source"}):
        with pytest.raises(BadParameter) as caught:
            dpunion.plan(epsilon=1.0, delta=1e-6, **{name: "x"})
        assert str(caught.value) == f"{name!r} belongs to release. Leave it out here: a plan reads no data."


def test_a_name_that_an_algorithm_and_a_class_have_is_the_algorithms():
    assert dpunion.plan("dp-sips", epsilon=1.0, delta=1e-6, share_ratio=0.5).algorithm.share_ratio == 0.5
    with pytest.raises(
        BadParameter, match=r"'share_ratio' belongs to Ngrams\. Write algorithm=Ngrams\(share_ratio=...\)"
    ):
        dpunion.plan(epsilon=1.0, delta=1e-6, share_ratio=2.0)


def test_every_option_of_the_command_line_has_a_place_in_python():
    from dpunion.cli.release import ngrams_command, release_command

    options = {one.name for command in (release_command, ngrams_command) for one in command.params}
    known = {*inspect.signature(dpunion.release).parameters, *Settings.__annotations__}
    for name in sorted(options - known):
        with pytest.raises(
            BadParameter, match=f"'{name}' (belongs to [A-Z]|is an option of the command line, not of Python)"
        ):
            dpunion.plan(epsilon=1.0, delta=1e-6, **{name: "x"})


def test_settings_of_algorithms_and_unknown_words_are_left_to_the_algorithm():
    with pytest.raises(BadParameter, match=r"funnel has no parameter 'passes'\. It has: max_items_per_user"):
        dpunion.plan(epsilon=1.0, delta=1e-6, passes=2)
    with pytest.raises(BadParameter, match="funnel has no parameter 'nonsense'"):
        dpunion.plan(epsilon=1.0, delta=1e-6, nonsense=2)
    with pytest.raises(BadParameter, match=r"'longest' cannot be given together with Ngrams\(...\)"):
        dpunion.plan(dpunion.Ngrams(), epsilon=1.0, delta=1e-6, longest=2)
    with pytest.raises(BadParameter, match="'stop_words' belongs to Words"):
        dpunion.release_ngrams([("u", "a")], epsilon=1.0, delta=1e-6, stop_words=["the"])

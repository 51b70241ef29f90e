"""What is asked for, and what of it shows."""

import inspect

import pytest

import dpunion
from dpunion.checks import Settings
from dpunion.engines import Chosen
from dpunion.engines.local.engine import LocalEngine
from dpunion.engines.publishing import Outputs, publish
from dpunion.errors import BadParameter, InternalError
from dpunion.releases.release import Release
from dpunion.requests import Charge, Folder, Request, Run, SparkSource

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
    """An interrupt there must not be told that nothing was released."""
    told = []

    class Engine:
        def store(self, chosen, made):
            told.append("stored")
            return "folder"

    draft = Release((), dpunion.plan(dpunion.Funnel(), **BUDGET), guaranteed=True)
    run = Run(progress=lambda stage, _done: told.append(stage))
    outputs = Outputs.of(Folder("folder"), overwrite=False, counts=False)
    made, files = publish(Chosen(is_remote=True), None, draft, Request.of([]), Engine(), outputs, run)
    assert told == ["writing", "stored"]
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

"""What is asked for, and what of it shows."""

import pytest

import dpunion
from dpunion.engines import Chosen
from dpunion.engines.local.engine import LocalEngine
from dpunion.errors import InternalError
from dpunion.publishing import Outputs, publish
from dpunion.releases import Release
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
    made, files = publish(Chosen(is_left=True), None, draft, Request.of([]), Engine(), outputs, run)
    assert told == ["writing", "stored"]
    assert (made.stored, files) == ("folder", [])


def test_one_machine_stores_no_folder():
    with pytest.raises(dpunion.BadParameter, match="for Spark"):
        dpunion.release([("u", "a")], out=Folder("folder"), **BUDGET)
    with pytest.raises(InternalError):
        LocalEngine.for_run(Run(), None).store(Chosen(), None)

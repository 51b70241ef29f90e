"""Every example in README.md, in docs/ and in the help of the command line runs, and prints what is shown."""

import shutil
from importlib.util import find_spec

import command_reference
import pytest
from doc_examples import ROOT, Player, blocks, difference, examples, name_of, stray_examples, wrong_words
from example_data import write_all

from dpunion.algorithms import ALGORITHMS
from dpunion.chances import CHANCES
from dpunion.mechanisms import MECHANISMS
from dpunion.plans import PLANNERS

PAGES = {
    "README.md": (ROOT / "README.md").read_text("utf-8"),
    **{f"docs/{path.name}": path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md"))},
    "the command line's help": command_reference.reference(),
}

# Examples that cannot run in a test, each with the reason.
NOT_RUN = {
    ("docs/platforms.md", "pip install ."): "installs; `make wheel` does it elsewhere",
    ("docs/tutorial.md", "python -m venv .venv"): "takes seconds; `make test` has done it",
    ("docs/tutorial.md", "pip install '.[report]'"): "installs; `make test` has done it",
    ("docs/operations.md", "from airflow.providers.standard.operators.bash import BashOperator"): "needs Airflow",
    ("README.md", "dpunion release hdfs://logs/queries --engine spark -u uid -i query ..."): "needs a cluster",
    (
        "docs/spark.md",
        "dpunion release hdfs://logs/posts --user author --item word --epsilon 1 --delta 1e-9 --engine spark "
        "--master yarn --shards 100 --out-folder hdfs://logs/vocabulary --conf "
        "spark.archives=dpunion-environment.tar.gz#environment --conf "
        "spark.pyspark.python=./environment/bin/python --conf spark.executor.instances=25 --conf "
        "spark.executor.cores=4 --conf spark.executor.memory=4g --conf spark.executor.memoryOverhead=12g "
        "--conf spark.io.encryption.enabled=true --conf spark.network.crypto.enabled=true",
    ): "needs a cluster",
    (
        "docs/sources.md",
        "dpunion release s3://logs/week=2026-W46 -u uid -i country -i query -e 1 -d 1e-7 --out keys.parquet",
    ): "needs a bucket",
    (
        "docs/sources.md",
        "dpunion release 's3://logs/*/part-*.parquet' -u uid -i query -e 1 -d 1e-7 --out queries.parquet",
    ): "needs a bucket",
    (
        "the command line's help",
        "dpunion warm-up",
    ): "takes longer than an example may; test_stages.py does it",
    (
        "the command line's help",
        "dpunion release hdfs:///logs --engine spark --master yarn -u uid -i query -e 1 -d 1e-9 --out-folder hdfs:///q",
    ): "needs a cluster",
    (
        "the command line's help",
        "dpunion ngrams hdfs://posts --engine spark --master yarn -u author -t body -e 1 -d 1e-9 -o grams.csv",
    ): "needs a cluster",
}
# Examples that need a library that dpunion does not: left out where it is not installed.
NEEDS = {
    ("docs/recipes.md", "import spacy"): "spacy",
    ("docs/recipes.md", '>>> dpunion.tokenize("What can\'t be said, was SAID", tokenizer=spacy_words)'): "spacy",
}
# The recipes with other libraries, which cannot share an environment: tests/journeys/test_peers.py runs them in theirs.
NEEDS |= {
    ("docs/comparison.md", "import opendp.prelude as dp"): "opendp",
    ("docs/comparison.md", "import csv"): "pipeline_dp",
    ("docs/comparison.md", "from pyspark.sql import SparkSession"): "tmlt",
}
NOT_RUN |= {key: f"{name} is not installed" for key, name in NEEDS.items() if find_spec(name) is None}
# Commands that take minutes run with these options behind, or instead of, their own.
SHORTER = {
    "dpunion audit policy": "--seconds 0.3 --seed 1",
    "dpunion audit release": "--trials 400 --no-exact --no-mutants -a weighted-gaussian",
    "dpunion lab compare --generate": "--generate 300 --trials 1 --jobs 1",
    "dpunion lab compare": "--trials 1 --jobs 1",
    "dpunion lab reproduce": "--users 300 --trials 1 --jobs 1",
    "dpunion lab generate": "--users 300",
    "dpunion lab worlds": "--count 2",
}
# Commands that end with another exit code than 0, and say so in the text around them.
EXIT_CODES = {"dpunion audit policy greedy": 5}
# What an example finds in its folder besides the data, because the text around it says so.
BEFORE = {
    "README.md": ["rm debian_depends.parquet"],
    "docs/tutorial.md": ["rm debian_depends.parquet"],
    "the command line's help": [
        "rm debian_depends.parquet",
        "dpunion ledger open budget.db --dataset posts -e 10 -d 1e-5",
        "dpunion ledger open budget.db --dataset logs -e 3 -d 1e-5 --schedule 12",
    ],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with the files that examples read."""
    folder = tmp_path_factory.mktemp("data")
    write_all(folder)
    return folder


@pytest.fixture(autouse=True)
def small_data_only(monkeypatch):
    """The larger data sets, where they are installed, would take minutes."""
    monkeypatch.delenv("DPUNION_DATA", raising=False)


@pytest.fixture(autouse=True)
def forget_added_policies():
    """A page shows how to add a policy; other tests must not see it."""
    registries = (ALGORITHMS, PLANNERS, MECHANISMS, CHANCES)
    before = [dict(one) for one in registries]
    yield
    for one, entries in zip(registries, before, strict=True):
        one.clear()
        one.update(entries)


@pytest.fixture(scope="module")
def player():
    """What runs the pages; it remembers what it need not run twice."""
    return Player(NOT_RUN, SHORTER, EXIT_CODES)


def prepared(page):
    """Return a page's text, with what its examples take for granted in front."""
    lines = "\n".join(f"$ {line}" for line in BEFORE.get(page, []))
    return (f"```console\n{lines}\n```\n" if lines else "") + PAGES[page]


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page, PAGES[page])])
def test_the_examples_of_a_page_run(page, player, data, tmp_path):
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    outcome = player.play(page, prepared(page), tmp_path)
    assert not outcome.problems, "\n\n".join(outcome.problems)
    assert len(outcome.ran) + len(outcome.skipped) == len(examples(page, prepared(page)))


@pytest.mark.parametrize("page", [page for page in PAGES if page.endswith(".md")])
def test_nothing_that_looks_like_an_example_escapes(page):
    assert stray_examples(page, PAGES[page]) == []


OPTIONS = {
    name: {"--help", "-h"}.union(*({*one.opts, *one.secondary_opts} for one in command.params))
    for name, command in command_reference.commands(command_reference.command_line)
}


@pytest.mark.parametrize("page", [page for page in PAGES if page.endswith(".md")])
def test_commands_and_options_named_in_the_text_exist(page, player):
    assert wrong_words(page, PAGES[page], OPTIONS, player.targets) == []


@pytest.mark.parametrize(("page", "command"), NOT_RUN)
def test_what_cannot_run_at_least_has_commands_and_options_that_exist(page, command, player):
    assert wrong_words(page, f"`{command}`", OPTIONS, player.targets) == []


def test_a_wrong_word_is_found(player):
    text = "`dpunion relaese`, `dpunion plan --hmtl x`, `make coffee`, `--delat`; not `dpunion plan -e 1`, `make test`"
    assert len(wrong_words("page.md", text, OPTIONS, player.targets)) == 4


def test_every_exception_is_still_there():
    there = [(page, name_of(one)) for page, text in PAGES.items() for one in examples(page, text)]
    assert [key for key in NOT_RUN if there.count(key) != 1] == [], "each exception is for one example"
    assert all(NOT_RUN.values()), "an exception needs a reason"
    names = [name for _, name in there]
    assert sorted(set(EXIT_CODES) - set(names)) == []
    assert [start for start in SHORTER if not any(name.startswith(start) for name in names)] == []


def test_the_first_screen_of_the_readme_has_two_commands():
    first = next(block for block in blocks("README.md", PAGES["README.md"]))
    assert [line.split("#")[0].strip() for line in first.text.splitlines()] == ["$ make demo", "$ make test"]
    assert first.line < 12


def test_there_are_examples():
    found = [one for page, text in PAGES.items() for one in examples(page, text)]
    assert len(found) > 50
    assert {"README.md", "docs/tutorial.md", "docs/ledger.md"} <= {one.page for one in found}


# --- the checks themselves ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "```console\n$ dpunion relaese\n```",
        "```console\n$ make coffee\n```",
        "```console\n$ dpunion plan -e 1 -d 1e-6\nthreshold 12\n```",
        "```console\n$ dpunion plan -e 1 -d 1e-6\nError: no.\n```",
        "```console\n$ false\n```",
        "```python\nimport dpunion\ndpunion.relaese()\n```",
        "```python\n>>> 1 + 1\n3\n```",
        "| `dpunion plan -e 1` | a required option is missing |",
    ],
)
def test_a_wrong_example_is_found(text, tmp_path):
    assert len(Player({}, {}, {}).play("page.md", text, tmp_path).problems) == 1


@pytest.mark.parametrize(
    "text",
    [
        "```bash\nls\n```",
        "```\ndpunion plan -e 1 -d 1e-6\n```",
        "```text\n$ ls\n```",
        "```text\n>>> 1\n```",
        "    $ ls",
    ],
)
def test_an_example_in_disguise_is_found(text):
    assert len(stray_examples("page.md", text)) == 1


def test_words_must_match_and_chance_may_differ():
    shown = "Released 848 items to a.txt.\nentry b#2:343d72aaab70faff\n...\nThe end."
    printed = "Released 861 items to  a.txt.\n\nentry b#2:0123456789abcdef\nmore\nThe end.\n"
    hashes = {}
    assert difference(shown, printed, hashes) is None
    assert hashes == {"343d72aaab70faff": "0123456789abcdef"}
    assert difference(shown, printed.replace("861", "86")) is not None
    assert difference(shown, printed.replace("Released", "Found")) is not None
    assert difference(shown, printed.replace("The end.", "")) is not None


def test_estimates_may_differ_by_chance_alone():
    shown = "About 58,110 (57,826 to 58,394) people\nitem,people,low,high\nlibc6,21831,21108,22554\n...\n"
    printed = "About 57,900 (57,616 to 58,184) people\nitem,people,low,high\nlibc6,21700,20987,22412\nperl,2,1,9\n"
    assert difference(shown, printed) is None
    assert difference(shown, printed.replace("58,184", "8,184")) is not None
    assert difference(shown, printed.replace("20987", "987")) is not None
    assert difference(shown, printed.replace("libc6", "libc5")) is not None
    assert difference("libc6\t21831\t21108\t22554", "libc6\t21700\t20987\t22412") is None
    assert difference("threshold 12", "threshold 13") is not None

"""The recipes of docs/operations.md are run as they stand there; the script in tests/journeys/test_job_for_years.py."""

import ast
import json
import os
import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from doc_examples import ROOT, blocks

from dpunion.ledger import Ledger
from running import run_program

PAGE = "docs/operations.md"
TEXT = (ROOT / PAGE).read_text("utf-8")
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def block(beginning):
    """Return the one block of the page that begins so."""
    (found,) = [one.text for one in blocks(PAGE, TEXT) if one.text.startswith(beginning)]
    return found + "\n"


@pytest.fixture
def folder(tmp_path):
    """A folder with two weeks of logs and a ledger."""
    dice = random.Random(4)
    for week in ("2026-W45", "2026-W46"):
        users = [f"u{at}" for at in range(2_000)]
        place = tmp_path / "logs" / f"week={week}"
        place.mkdir(parents=True)
        columns = {
            "uid": users,
            "country": [dice.choice(["Chile", "Ghana"]) for _ in users],
            "query": [dice.choice(["weather", "news"]) for _ in users],
        }
        pq.write_table(pa.table(columns), place / "part-0.parquet")
    ledger = Ledger.open(tmp_path / "budget.db", create=True)
    ledger.create_dataset("logs", 2.0, 1e-5)
    return tmp_path


def run(folder, *words, **options):
    done = run_program(*words, cwd=folder, env=os.environ | {"PATH": PATH}, **options)
    return done.returncode, done.stdout, done.stderr


def test_a_run_that_died_is_found_and_paid_for_again(folder):
    ledger = Ledger.open(folder / "budget.db")
    code, said, problem = run(folder, "bash", input=block("dead="))
    assert (code, said) == (0, "entries that have not settled: none\n"), problem
    killed = (
        "import os, signal, sys; from dpunion.engines.local.engine import LocalEngine as Engine\n"
        "Engine.select = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from dpunion.cli import main; main()"
    )
    asked = "release logs/week=2026-W45 --user uid --item country -e 1 -d 1e-7 --ledger budget.db --dataset logs"
    words = [*asked.split(), "--out", "keys.csv", "--json"]
    assert run(folder, sys.executable, "-c", killed, *words)[0] == -9
    (entry,) = ledger.overview().entries
    assert run(folder, "bash", input=block("dead="))[1] == f"entries that have not settled: {entry.number}\n"
    code, said, _ = run(folder, "dpunion", *words)
    assert (code, json.loads(said)["error"]) == (5, "UnfinishedRelease")
    code, said, problem = run(folder, "dpunion", *words, "--charge-again")
    assert code == 0, problem
    assert json.loads(said)["ledger"]["more"] == 0


def test_the_recipe_for_airflow_is_python_and_calls_the_script():
    parsed = ast.parse(block("from airflow"))
    (call,) = [node for node in ast.walk(parsed) if isinstance(node, ast.Call)]
    given = {one.arg: ast.literal_eval(one.value) for one in call.keywords}
    assert given["skip_on_exit_code"] == [6, 7]
    assert given["retries"] == 0
    assert "./weekly.sh" in given["bash_command"]


def test_the_exit_codes_are_those_of_the_errors():
    from dpunion import errors
    from dpunion.cli import INTERRUPTED
    from dpunion.cli.release import MADE_BEFORE

    kinds = [one for one in vars(errors).values() if isinstance(one, type) and hasattr(one, "exit_code")]
    codes = {0, MADE_BEFORE, INTERRUPTED} | {one.exit_code for one in kinds}
    table = TEXT[TEXT.index("## Exit codes") :].split("\n\n")[0]
    listed = {int(line.split("|")[1]) for line in table.splitlines()[3:]}
    assert listed == codes

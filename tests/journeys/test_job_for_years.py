"""A job for years: twelve simulated weeks of the script in docs/operations.md, with all that can happen to a job."""

import datetime as dt
import itertools
import sys
import types
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from doc_examples import ROOT, blocks
from transcripts import Shell

from dpunion.ledger import EntryState, Ledger

PAGE = "docs/operations.md"
USERS = 2_000
START = dt.date(2026, 1, 5)
# Dies as by `kill -9`, out of memory or a power cut, when the first rows have been asked for.
KILLED = """#!/usr/bin/env bash
exec python -c "
import os, signal
from dpunion.engines.local import engine
engine.encode = lambda *_arguments, **_options: os.kill(os.getpid(), signal.SIGKILL)
from dpunion.cli import main
main()
" "$@"
"""
# Says which day it is, for a script that asks.
CLOCK = """#!/usr/bin/env bash
echo "$TODAY"
"""
OPENED = """
$ dpunion ledger open budget.db --dataset logs -e 3 -d 1e-6 --schedule 12 --start 2026-01-05
Opened logs in budget.db: (3, 1e-06) in all, by tight composition.

week        from  part of the budget  people needed
   1  2026-01-05               7.6 %  ...
  12  2026-03-23              38.4 %  ...
If 12 weeks split the budget evenly, an item would need about ... people in each week: ...
"""
ENDED = """
$ dpunion ledger verify budget.db
All 10 rows are in order. Head: ...
$ dpunion ledger report budget.db --out ledger.html
Written to ledger.html.
$ dpunion ledger show budget.db --json > ledger.json
$ dpunion ledger show budget.db
dataset  composition  epsilon  delta  spent   left
logs     tight        3        1e-06  100.0%  nothing: it is complete
...
entry 4  logs  unsettled  ...
  week      2
...
"""


def day_of(week):
    return (START + dt.timedelta(weeks=week - 1)).isoformat()


def keys_of(week):
    """Return the keys that a week adds."""
    return set(itertools.product(("Chile", "Ghana"), (f"query {week}",)))


def block(start):
    """Return the example of the page that begins like this."""
    (text,) = [one.text for one in blocks(PAGE, (ROOT / PAGE).read_text("utf-8")) if one.text.startswith(start)]
    return text


class Job:
    """The folder of the job: rows come in, and the script is called."""

    def __init__(self, folder):
        self.folder, self.shell = folder, Shell(folder)
        scripts = {"weekly.sh": block("#!/usr/bin/env bash"), "killed/dpunion": KILLED, "clock/date": CLOCK}
        for name, content in scripts.items():
            place = folder / name
            place.parent.mkdir(exist_ok=True)
            place.write_text(f"{content.strip()}\n")
            place.chmod(0o755)
        self.ledger = Ledger.open(folder / "budget.db", create=True)

    def write_rows(self, week, part=0, keys=None):
        """Write the rows of a week: its own keys, each held by many, and one that is somebody's alone."""
        keys = sorted(keys or keys_of(week))
        rows = [(f"u{user}", *keys[user % len(keys)]) for user in range(USERS)]
        rows.append((f"u{week}", "Chile", f"private query {week}"))
        place = self.folder / "logs" / f"week={week:02}" / f"part-{part}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(dict(zip(("uid", "country", "query"), zip(*rows, strict=True), strict=True))), place)

    def run(self, day, before="", change="cat"):
        """Call the script, changed by a filter; return its exit code, its first line, and what it spent of mu^2."""
        spent = self.spent
        code, said = self.shell.run(f"{before} bash <({change} weekly.sh) {day}")
        lines = [line for line in said.splitlines() if line.startswith(("released", "nothing", "the ledger", "failed"))]
        return code, lines[0], self.spent - spent

    def run_cron(self, day):
        """Run the line of the crontab on a day; return its exit code and the last line of its log."""
        command = block("0 6 * * 1").split(maxsplit=5)[5].replace("/srv/keys", '"$PWD"')
        code, said = self.shell.run(f'export PATH="$PWD/clock:$PATH" TODAY={day}; {command}')
        assert said == ""
        return code, self.shell.text("weekly.log").splitlines()[-1]

    def run_airflow(self, day):
        """Run the task of the recipe for Airflow on a day, with what a BashOperator does; return its state."""
        tasks = []
        bash = types.ModuleType("airflow.providers.standard.operators.bash")
        bash.BashOperator = lambda **given: tasks.append(given)
        with mock.patch.dict(sys.modules, {bash.__name__: bash}):
            exec(block("from airflow"), {})
        (task,) = tasks
        command = task["bash_command"].replace("{{ ds }}", day).replace("/srv/keys", '"$PWD"')
        code, said = self.shell.run(command)
        state = "success" if code == 0 else "skipped" if code in task["skip_on_exit_code"] else "failed"
        return state, said.splitlines()[-1]

    @property
    def spent(self):
        return self.ledger.overview().accounts[0].spent.mu_squared

    def since(self, day):
        """Return the weeks of the keys in a day's list."""
        table = pq.read_table(self.folder / "out" / f"queries-{day}.parquet")
        assert table.column_names == ["country", "query", "since"]
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        return {(country, query): week for country, query, week in rows}


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


def test_a_job_of_twelve_weeks(job):
    job.shell.follow(OPENED)
    (account,) = job.ledger.overview().accounts

    job.write_rows(1)
    code, said, cost = job.run(day_of(1))
    assert (code, said) == (0, f"released: out/queries-{day_of(1)}.parquet")
    assert cost == account.schedule.shares(account.caps)[0].mu_squared
    assert job.since(day_of(1)) == dict.fromkeys(keys_of(1), 1)
    code, said, cost = job.run("2026-01-07")
    assert (code, said, cost) == (6, "released before, nothing was charged: out/queries-2026-01-07.parquet", 0)
    # The same day again: what the first run said stays.
    assert job.run(day_of(1))[0] == 6
    assert job.shell.json(f"out/run-{day_of(1)}.json")["released"] == len(keys_of(1))
    assert job.since("2026-01-07") == job.since(day_of(1))

    # Week 2: the run dies; nobody retries blindly, and a person pays once more.
    job.write_rows(2)
    code, said, cost = job.run(day_of(2), before='PATH="$PWD/killed:$PATH"')
    assert code == 137
    assert cost > 0
    code, said, cost = job.run(day_of(2))
    assert (code, said, cost) == (5, f"the ledger refused, for a person to decide: out/run-{day_of(2)}.json", 0)
    assert job.shell.json(f"out/run-{day_of(2)}.json")["error"] == "UnfinishedRelease"
    code, said, cost = job.run(day_of(2), change="sed 's/--scheduled/--scheduled --charge-again/'")
    assert (code, said) == (0, f"released: out/queries-{day_of(2)}.parquet")
    assert cost > 0

    # Week 3: nothing is due. Weeks 4 to 7: the machine is down, and nothing is charged.
    job.write_rows(3)
    assert job.run(day_of(3)) == (7, "nothing is due", 0)
    assert job.shell.json(f"out/new-{day_of(3)}.json")["next_day"] == day_of(4)
    for week in (4, 5, 6, 7, 8):
        job.write_rows(week)

    # Week 8: somebody changed the list of the previous release.
    lists = [job.folder / "out" / f"queries-{day_of(2)}.{suffix}" for suffix in ("parquet", "json")]
    contents = [one.read_bytes() for one in lists]
    for one in lists:
        one.write_bytes(one.read_bytes() + b" ")
    code, said, cost = job.run(day_of(8))
    assert (code, cost) == (5, 0)
    assert "has changed" in job.shell.json(f"out/run-{day_of(8)}.json")["message"]
    for one, content in zip(lists, contents, strict=True):
        one.write_bytes(content)
    assert job.run(day_of(8))[:2] == (0, f"released: out/queries-{day_of(8)}.parquet")
    found = job.since(day_of(8))
    assert found == {key: 1 if week == 1 else 2 if week == 2 else 8 for week in range(1, 9) for key in keys_of(week)}

    # A late file does not make another release: its rows are in the next one.
    job.write_rows(8, part=1, keys={("Chile", "late query")})
    code, said, cost = job.run(day_of(8))
    assert (code, cost) == (6, 0)
    assert said.startswith("released before")
    # Weeks 9 to 12: cron runs the job, then Airflow, which skips on 6 and 7.
    for week in (9, 10, 11, 12):
        job.write_rows(week)
    before = job.spent
    assert job.run_cron(day_of(9)) == (7, "nothing is due")
    assert job.run_airflow(day_of(10)) == ("skipped", "nothing is due")
    assert job.run_airflow(day_of(11)) == ("skipped", "nothing is due")
    assert job.spent == before
    assert job.run_airflow(day_of(12)) == ("success", f"released: out/queries-{day_of(12)}.parquet")
    assert job.run_airflow(day_of(12))[0] == "skipped"
    found = job.since(day_of(12))
    assert found[("Chile", "late query")] == 12
    assert {key for key, week in found.items() if week < 12} == set().union(*map(keys_of, range(1, 9)))
    assert not any("private" in query for _, query in found)

    # After twelve weeks all of the budget is spent, exactly, and the job goes on without harm.
    job.write_rows(13)
    assert job.run_cron(day_of(13)) == (7, "the schedule is complete: open a new dataset")
    assert job.shell.json(f"out/new-{day_of(13)}.json")["complete"] is True
    (account,) = job.ledger.overview().accounts
    assert (account.spent.mu_squared, account.spent.novelty) == (account.caps.mu_squared, account.caps.novelty)
    states = [(one.release, one.state) for one in job.ledger.overview().entries]
    settled, dead = EntryState.SETTLED, EntryState.UNSETTLED
    assert states == [(1, settled), (2, dead), (2, settled), (8, settled), (12, settled)]

    job.shell.follow(ENDED)
    (logs,) = job.shell.json("ledger.json")["datasets"]
    assert (logs["spent_share"], logs["weeks_to_come"]) == (1.0, [])
    assert "left out: nothing was charged" in job.shell.text("ledger.html")

"""A weekly job with a ledger, as a shell runs it: exit codes, JSON, and what became of each charge."""

import json
import os
import sys

import pytest

from dpunion.ledger import EntryState, Ledger
from running import CLI, run_program

pytestmark = pytest.mark.full
ENGINE = "dpunion.engines.local.engine"
# The process gets a real signal at the named moment.
INTERRUPTED = """
import importlib, os, signal, time
def strike(*_arguments, **_options):
    os.kill(os.getpid(), signal.{signal})
    time.sleep(30)
module, name = "{place}".rsplit(".", 1)
setattr(importlib.import_module(module), name, strike)
"""
SHELL = """
dpunion() {{ "{python}" -c "$CODE" "$@"; }}
release() {{ dpunion release "$@" --user user --item item --epsilon 1 --delta 1e-6 --ledger budget.db --dataset logs; }}
ngrams() {{ dpunion ngrams "$@" --user user --text item --longest 2 -e 1 -d 1e-6 --ledger budget.db --dataset logs; }}
{script}
"""


class Shell:
    """A folder in which a script is run with `dpunion`, and the same release as `release`."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, script, *, before=""):
        """Return (exit code, standard output, standard error) of a script."""
        env = os.environ | {"CODE": before + CLI, "COLUMNS": "200"}
        words = ("bash", "-c", SHELL.format(python=sys.executable, script=script))
        done = run_program(*words, cwd=self.folder, env=env)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    def json(self, script, *, before=""):
        """Return (exit code, the one JSON object on standard output)."""
        code, out, _ = self.run(script, before=before)
        return code, json.loads(out)

    def write(self, name, word):
        (self.folder / name).write_text("user,item\n" + "".join(f"u{i},{word}\n" for i in range(300)))

    def entries(self):
        return Ledger.open(self.folder / "budget.db").overview().entries


@pytest.fixture
def shell(tmp_path):
    found = Shell(tmp_path)
    found.write("current.csv", "first")
    code, _, _ = found.run("dpunion ledger open budget.db --dataset logs --epsilon 20 --delta 1e-4")
    assert code == 0
    return found


def interrupt(place, signal="SIGINT"):
    return INTERRUPTED.format(place=place, signal=signal)


def test_a_weekly_job(shell):
    # The first week.
    code, said = shell.json("release current.csv --out week1.txt --json")
    assert code == 0
    charged = {"entry": "budget.db#2", "dataset": "logs", "epsilon": 1.0, "delta": 1e-6, "composition": "additive"}
    charged |= {"total_epsilon": 20.0, "total_delta": 1e-4, "before": 0.0, "after": 0.05, "more": 19}
    assert {name: said["ledger"][name] for name in said["ledger"] if name not in ("receipt", "written")} == charged
    assert said["ledger"]["receipt"] in said["statement"]
    made = (shell.folder / "week1.txt").read_bytes()

    # Run once more: it is there, and costs nothing.
    code, said = shell.json("release current.csv --out week1.txt --json")
    assert code == 6
    assert said["already_released"] is True
    assert said["entry"] == "budget.db#2"
    assert [(each["path"], each["intact"]) for each in said["files"]] == [(str(shell.folder / "week1.txt"), True)]
    assert (said["source_changed"], said["copied"]) == (False, [])

    # Asked for elsewhere, it is copied there; once it is, it stays as it is.
    for copied in (["copy.txt"], []):
        code, said = shell.json("release current.csv --out copy.txt --json")
        assert (code, said["copied"]) == (6, copied)
        assert (shell.folder / "copy.txt").read_bytes() == made

    # New data under the old name: last week's release is not given out as this week's.
    shell.write("current.csv", "second")
    code, said = shell.json("release current.csv --out week2.txt --json")
    assert (code, said["code"], said["error"]) == (5, 5, "AlreadyReleased")
    assert (said["already_released"], said["source_changed"]) == (True, True)
    assert "The source has changed since" in said["message"]
    assert "--charge-again" in said["remedy"]
    assert not (shell.folder / "week2.txt").exists()
    code, said = shell.json("release current.csv --out week2.txt --charge-again --json")
    assert (code, said["ledger"]["entry"]) == (0, "budget.db#4")
    assert (shell.folder / "week2.txt").read_text() == "second\n"

    # With a name for each week nothing of that is needed.
    shell.write("week3.csv", "third")
    code, said = shell.json("release week3.csv --out week3.txt --json")
    assert (code, said["ledger"]["entry"]) == (0, "budget.db#6")

    # Interrupted while reading: the charge stays, and the retry says so until it is told to pay again.
    shell.write("week4.csv", "fourth")
    code, said = shell.json("release week4.csv --out week4.txt --json", before=interrupt(f"{ENGINE}.encode"))
    assert (code, said["code"], said["message"]) == (130, 130, "Interrupted.")
    assert said["charge"].startswith("The charge of (1, 1e-06) on 'logs' stays: entry budget.db#8.")
    assert "--charge-again" in said["charge"]
    assert (said["ledger"]["entry"], said["ledger"]["charged"]) == ("budget.db#8", True)
    code, said = shell.json("release week4.csv --out week4.txt --json")
    assert (code, said["error"]) == (5, "UnfinishedRelease")
    assert "budget.db#8" in said["message"]
    code, said = shell.json("release week4.csv --out week4.txt --charge-again --json")
    assert (code, said["ledger"]["entry"]) == (0, "budget.db#9")
    assert [entry.number for entry in shell.entries()] == [2, 4, 6, 8, 9]
    assert shell.run("dpunion ledger verify budget.db")[0] == 0


@pytest.mark.parametrize(
    ("place", "said", "state"),
    [
        ("dpunion.pipeline.plan", "Nothing was charged.", None),
        (f"{ENGINE}.open_source", "Nothing was charged: entry budget.db#2 is cancelled.", EntryState.CANCELLED),
        (f"{ENGINE}.encode", "(1, 1e-06) on 'logs' stays: entry budget.db#2.", EntryState.UNSETTLED),
        (f"{ENGINE}.run_rounds", "(1, 1e-06) on 'logs' stays: entry budget.db#2.", EntryState.UNSETTLED),
        (
            "dpunion.releases.release.Release.write",
            "(1, 1e-06) on 'logs' stays: entry budget.db#2.",
            EntryState.UNSETTLED,
        ),
        ("dpunion.cli.release.record_configuration", "stays: entry budget.db#2. The release is in", "settled"),
    ],
)
def test_an_interrupt_names_the_charge(shell, place, said, state):
    signal = "SIGTERM" if place.endswith("encode") else "SIGINT"
    strike = interrupt(place, signal)
    if "Release." in place:
        strike = strike.replace("importlib.import_module(module)", "importlib.import_module(module[:-8]).Release")
    code, out, err = shell.run("release current.csv --out a.txt", before=strike)
    assert (code, out) == (130, "")
    assert said in err
    states = [entry.state for entry in shell.entries()]
    assert states == ([] if state is None else [EntryState(state)])


def test_an_interrupt_of_ngrams_names_the_charge(shell):
    code, said = shell.json(
        "ngrams current.csv --out a.txt --json", before=interrupt("dpunion.engines.local.texts.read_tokens")
    )
    assert code == 130
    assert said["charge"].startswith("The charge of (1, 1e-06) on 'logs' stays: entry budget.db#2.")
    code, said = shell.json("ngrams current.csv --out a.txt --charge-again --json")
    assert (code, said["ledger"]["entry"]) == (0, "budget.db#3")
    code, said = shell.json("ngrams current.csv --out b.txt --json")
    assert (code, said["copied"]) == (6, ["b.txt"])


def test_a_failure_names_the_charge(shell):
    with (shell.folder / "current.csv").open("ab") as file:
        file.write(b"x,\xff\n")
    code, said = shell.json("release current.csv --out a.txt --json")
    assert (code, said["error"]) == (3, "DamagedSource")
    assert said["charge"].startswith("The charge of (1, 1e-06) on 'logs' stays: entry budget.db#2.")
    code, said = shell.json("release nothing.csv --out a.txt --json")
    assert (code, said["charge"]) == (3, "Nothing was charged: entry budget.db#3 is cancelled.")
    code, said = shell.json("cat current.csv | release - --input-format csv --out a.txt --json")
    assert said["charge"].endswith("stays: entry budget.db#5. The next run will be charged again.")


def test_a_release_made_before_is_given_only_as_it_was(shell):
    assert shell.run("release current.csv --out a.txt")[0] == 0
    code, said = shell.json("release current.csv --out a.csv --json")
    assert (code, said["already_released"]) == (5, True)
    assert "no file of this format" in said["message"]
    (shell.folder / "b.txt").write_text("something else")
    assert shell.run("release current.csv --out b.txt")[0] == 4
    assert shell.run("release current.csv --out b.txt --force")[0] == 6
    assert (shell.folder / "b.txt").read_text() == "first\n"
    (shell.folder / "a.txt").write_text("altered")
    code, said = shell.json("release current.csv --out c.txt --json")
    assert (code, said["files"][0]["intact"]) == (5, False)
    assert not (shell.folder / "c.txt").exists()


# --- streams that are closed or broken ------------------------------------------------------------------------
def test_items_that_nobody_reads_are_charged_and_reported_as_lost(shell):
    code, _, err = shell.run("release current.csv | false; exit ${PIPESTATUS[0]}")
    assert code == 4
    assert "stays: entry budget.db#2. The items are lost." in err
    assert [entry.state for entry in shell.entries()] == [EntryState.SETTLED]
    code, said = shell.json("release current.csv --json")
    assert (code, said["files"]) == (5, [])


def test_without_a_ledger_a_reader_may_leave(shell):
    script = "dpunion release current.csv -u user -i item -e 1 -d 1e-6 | false; exit ${PIPESTATUS[0]}"
    assert shell.run(script)[0] == 0


@pytest.mark.parametrize("more", ["", "--json", "--json --out a.txt"])
def test_without_standard_output_nothing_is_charged(shell, more):
    code, _, err = shell.run(f"release current.csv {more} >&-")
    assert code == 4
    assert "There is no standard output" in err
    assert "Nothing was charged." in err
    assert shell.entries() == ()


def test_without_standard_error_all_goes_well(shell):
    assert shell.run("release current.csv --out a.txt 2>&-")[0] == 0
    assert shell.run("release current.csv --out a.txt 2>&-")[0] == 6
    code, out, _ = shell.run("release current.csv --charge-again 2>&-")
    assert (code, out) == (0, "first\n")
    assert shell.run("release nothing.csv --out b.txt 2>&-")[0] == 3
    code, out, _ = shell.run("dpunion ledger verify budget.db 2>&- <&-")
    assert code == 0
    assert "in order" in out


# --- JSON -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("dpunion release current.csv -u user -i item -e 1 --json", 2),
        ("dpunion release current.csv -u user -i item -e one -d 1e-6 --json", 2),
        ("dpunion release current.csv -u user -i item -e 1 -d 2 --json", 2),
        ("dpunion release current.csv -u user -i itme -e 1 -d 1e-6 --json", 3),
        ("dpunion release current.csv -u user -i item -e 1 -d 1e-6 --json --out no/folder.txt", 4),
        ("dpunion release current.csv -u user -i item -e 1 -d 9e-4 --ledger budget.db --dataset logs --json", 5),
        ("dpunion ngrams current.csv -u user -t itme -e 1 -d 1e-6 --json", 3),
        ("dpunion plan -e 1 -d 2 --json", 2),
        ("dpunion ledger show nothing.db --json", 3),
        ("dpunion ledger show budget.db --jsn --json", 2),
        ("dpunion lab compare nothing.csv -u user -i item --json", 2),
    ],
)
def test_errors_are_json_where_json_was_asked_for(shell, script, code):
    found, said = shell.json(script)
    assert (found, said["code"]) == (code, code)
    assert {"version", "error", "message", "remedy"} <= set(said)
    assert said["message"]
    assert said["remedy"]


def test_show_names_ngrams_and_shows_paths_as_text(shell):
    (shell.folder / "a[").mkdir()
    assert shell.run("ngrams current.csv --out 'a[bold red].txt'")[0] == 0
    assert shell.run("release current.csv --out 'a[/b].txt' --out $'a\\x1b[2J.txt'")[0] == 0
    code, out, _ = shell.run("unset COLUMNS; dpunion ledger show budget.db")
    assert code == 0
    assert "ngrams (funnel, funnel)" in out
    assert f"{shell.folder}/a[bold red].txt" in out
    assert f"{shell.folder}/a[/b].txt" in out
    assert f"{shell.folder}/a\\x1b[2J.txt" in out
    assert "\x1b" not in out
    said = json.loads(shell.run("dpunion ledger show budget.db --json")[1])
    assert "version" in said

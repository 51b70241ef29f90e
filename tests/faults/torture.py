"""Thousands of interrupts, kills and damaged inputs, each in a run of the command line, at random.

    torture.py --interrupts 2000 --fresh 300 --kills 300 --aimed 300 --fuzz 10000 --spark 300 --seed 1

An interrupt (SIGINT, SIGTERM or two of them) and a kill come at a random moment of a release that charges a ledger:
from files of several formats, of items, words, n-grams and keys of several columns. Most run in forks of a warm
process; those counted by --fresh, and half of the kills, are processes of their own from the start of Python on: their
kernels are loaded, some are compiled, and some have a terminal with its progress bar.

Most kills at a random moment come before the charge. Those counted by --aimed come after it: the command tells when it
has charged and when it has settled, and is killed at a random moment after that. Half of them charge a SQLite ledger
and half PostgreSQL. Then the same command runs again, again with --charge-again, and once more than there is budget.

Whatever happens:

- nothing hangs and no traceback shows; the exit code is one of those documented, and never "a bug in dpunion";
- no user id, no item of one person and no password is printed or left;
- the output is absent, the old one, or whole; nothing else is left behind;
- the ledger verifies, holds exactly the charges of the runs that read data, and never more than its total;
- after a kill the same command makes the release if nothing was charged, names the output if the charge is settled, and
  otherwise refuses, charging nothing; --charge-again makes it while there is budget.

Each violation is printed, and its files are kept. At the end come the numbers of kills by phase and ledger. The last
line counts; the exit code is 1 if anything failed.
"""

import argparse
import collections
import contextlib
import dataclasses
import faulthandler
import hashlib
import itertools
import json
import os
import pty
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzzing import draw_case, draw_spark_case
from test_fault_suite import CANARY, OLD, PATIENCE, items_in, warm_up, wrap

import postgres_server
from dpunion import cli
from running import usual_signals

WORKERS = 2
KEPT_OF_A_KIND = 3
RUNS_BETWEEN_LINES = 500
CHARGE = 8 * 10**9
RUNS_PER_LEDGER, RELEASES_PER_LEDGER = 20, 16
RELEASES_PER_KILL = 2
KILLED = -signal.SIGKILL
POLITE = (signal.SIGINT, signal.SIGTERM)
BUDGET = ("-e", "8", "-d", "1e-12")
POPULAR = tuple(f"popular{number}" for number in range(8))
SECONDS_COMPILING = 15.0
FRESH_COMPILING, FRESH_TERMINAL, TWICE = 0.02, 0.15, 0.1
# After which word of a command it is killed, and at most how many seconds later; None: at any moment up to its end.
AIMS = (("reserving", 0.02), *[("reserved", None)] * 3, ("settling", 0.008), ("settled", 0.004))
BEFORE, BETWEEN, AFTER = "before the charge", "between charge and settling", "after settling"
SQLITE, POSTGRESQL = "SQLite", "PostgreSQL"
PASSWORD = postgres_server.PASSWORD.encode()


def documented_codes():
    """Return the exit codes that the command line promises, without that of its own bugs."""
    promised = re.search(r"Exit codes:(.*?)\n\n", cli.__doc__, re.DOTALL)[1]
    codes = {int(code) for code in re.findall(r"(?:^|[;\n])\s*(\d+) \w", promised)}
    assert {0, 1, 2, 3, 4, 5, 130} <= codes, codes
    return codes - {1}


# --- what is released ---------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Scenario:
    """A release: what it reads, how, and what can be in it."""

    name: str
    source: str
    options: tuple[str, ...]
    suffix: str = ".txt"
    command: str = "release"


ITEMS = ("--user", "who", "--item", "what")
TEXT = ("--user", "who", "--text", "body")
SCENARIOS = [
    Scenario("items of Parquet", "rows.parquet", (*ITEMS, "-a", "weighted-gaussian"), ".parquet"),
    Scenario("items of CSV, Funnel", "rows.csv", ITEMS, ".csv"),
    Scenario("items of JSONL, Policy", "rows.jsonl", (*ITEMS, "-a", "policy-gaussian"), ".json"),
    Scenario("items of .csv.gz, DP-SIPS", "rows.csv.gz", (*ITEMS, "-a", "dp-sips"), ".jsonl"),
    Scenario("words", "rows.parquet", TEXT, ".txt"),
    Scenario("tokens of whitespace", "rows.csv", (*TEXT, "--tokenizer", "whitespace"), ".arrow"),
    Scenario("n-grams as one set", "rows.parquet", (*TEXT, "--ngrams", "1-2"), ".csv"),
    Scenario("n-grams", "rows.jsonl", (*TEXT, "--longest", "2"), ".txt", "ngrams"),
    Scenario("keys of two columns", "rows.parquet", ("--user", "who", "--item", "what", "--item", "also"), ".csv"),
]


def write_sources(folder, people=2000):
    """Write the same rows in all formats: everybody has what is popular and something that nobody else has."""
    rows = [
        (f"CanaryUser{person}", item, "popular", f"popular text of canary{person} word")
        for person in range(people)
        for item in (*POPULAR, f"CanaryItem{person}")
    ]
    names = ("who", "what", "also", "body")
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})
    pq.write_table(table, folder / "rows.parquet")
    lines = "".join(",".join(row) + "\n" for row in [names, *rows]).encode()
    (folder / "rows.csv").write_bytes(lines)
    with pa.CompressedOutputStream(str(folder / "rows.csv.gz"), "gzip") as packed:
        packed.write(lines)
    (folder / "rows.jsonl").write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))


# --- runs ---------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Run:
    """What became of a command: its exit code (None: it hung), what it printed, whether a signal met it alive, when."""

    code: int | None
    said: bytes
    struck: bool
    at: float = 0.0


class Strike:
    """Signals at set moments after the start: [(seconds, number)]."""

    def __init__(self, *moments):
        self.moments, self.at = moments, 0.0

    def prepare_child(self):
        """Do in the process of the command what must be done before it begins."""

    def follow(self, pid):
        """Send the signals and wait for the end; return (status or None, whether the first met it alive)."""
        began, struck = time.monotonic(), False
        for after, number in self.moments:
            status = waited(pid, began + after)
            if status is not None:
                return status, struck
            self.at, struck = self.at or time.time(), True
            os.kill(pid, number)
        status = waited(pid, time.monotonic() + PATIENCE)
        if status is None:
            os.kill(pid, signal.SIGABRT)  # prints where every thread is
            if waited(pid, time.monotonic() + 5) is None:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        return status, struck


class Aim(Strike):
    """A kill some seconds after the command has told that it came to a point of its charge; `told` holds its words."""

    def __init__(self, word, seconds):
        super().__init__((seconds, signal.SIGKILL))
        self.word, self.told = word, []
        self.reader, self.writer = os.pipe()

    def prepare_child(self):
        """Tell of the charge: its row is written but not committed, it is committed; and the same of settling."""

        def tell(word):
            return lambda: os.write(self.writer, f"{word} ".encode())

        wrap("dpunion.ledger.ledgers.append", after=tell("reserving"), nth=1)
        wrap("dpunion.ledger.ledgers.append", after=tell("settling"), nth=2)
        wrap("dpunion.ledger.ledgers.Ledger.reserve", after=tell("reserved"))
        wrap("dpunion.ledger.ledgers.Reservation.settle", after=tell("settled"))

    def follow(self, pid):
        """Wait for the word, kill, and wait for the end."""
        os.close(self.writer)
        with os.fdopen(self.reader, "rb", buffering=0) as reader:
            said = b""
            while self.word.encode() not in said.split() and select.select([reader], [], [], PATIENCE)[0]:
                more = reader.read(100)
                if not more:
                    break
                said += more
            ending = super().follow(pid)
            self.told = (said + reader.read()).decode().split()
        return ending


def waited(pid, deadline):
    """Return the exit code of a child, or None if it is still there at the deadline."""
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(0.002, left))


def run_forked(arguments, folder, strike):
    """Run the command in a fork of this process, in `folder`."""
    said = folder / "said"
    with said.open("wb") as file:
        signal.pthread_sigmask(signal.SIG_BLOCK, POLITE)
        pid = os.fork()
        if not pid:
            be_command(arguments, folder, file.fileno(), strike)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, POLITE)
    code, struck = strike.follow(pid)
    return Run(code, said.read_bytes(), struck, strike.at)


def be_command(arguments, folder, said, strike):
    """Become the command, and never return."""
    try:
        for number in POLITE:
            signal.signal(number, signal.SIG_DFL)  # until the command listens; not a handler of this file
        signal.pthread_sigmask(signal.SIG_UNBLOCK, POLITE)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(said, 1)
        os.dup2(said, 2)
        faulthandler.enable()
        os.chdir(folder)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "temporary")
        sys.argv[:] = ["dpunion", *arguments]
        strike.prepare_child()
        cli.main()
    except BaseException:  # noqa: BLE001 - nothing may return into the loop that forks
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(99)


def run_fresh(arguments, folder, strike, *, terminal, compiling):
    """Run the command as a process of its own; its standard error may be a terminal, its kernels not compiled yet."""
    program = Path(sys.executable).with_name("dpunion")
    start = [str(program)] if program.exists() else [sys.executable, "-c", "from dpunion.cli import main; main()"]
    environment = os.environ | {"TMPDIR": str(folder / "temporary"), "PYTHONFAULTHANDLER": "1"}
    if compiling:
        environment["XDG_CACHE_HOME"] = str(folder / "cache")
    heard = []
    with (folder / "said").open("wb") as file, contextlib.ExitStack() as stack:
        errors = file.fileno()
        if terminal:
            master, errors = pty.openpty()
            listener = threading.Thread(target=listen, args=(master, heard))
            listener.start()
            stack.callback(listener.join)
            stack.callback(os.close, errors)
        process = subprocess.Popen(
            [*start, *arguments], stdin=subprocess.DEVNULL, stdout=file, stderr=errors, cwd=folder, env=environment
        )
        code, struck = strike.follow(process.pid)
        process.returncode = code if code is not None else KILLED  # it was waited for
    return Run(code, (folder / "said").read_bytes() + b"".join(heard), struck, strike.at)


def listen(master, heard):
    """Read what is written to a terminal until nobody has it open."""
    with os.fdopen(master, "rb", buffering=0) as file, contextlib.suppress(OSError):
        while data := file.read(4096):
            heard.append(data)


def before_main(run):
    """Say whether Python itself was interrupted, before it came to the command's first line."""
    if run.code == -signal.SIGTERM:
        return not run.said
    if run.code == 1 and run.said.startswith(b"Fatal Python error: init_import_site"):
        return True
    return run.code == -signal.SIGINT and b"in main\n" not in run.said


# --- checks -------------------------------------------------------------------------------------------------
class Books:
    """A dataset in a ledger that a number of runs share; each must leave it exactly as its end says."""

    def __init__(self, address, dataset="people", releases=RELEASES_PER_LEDGER):
        from dpunion.ledger import Ledger

        self.address, self.dataset, self.releases = address, dataset, releases
        self.runs, self.entries, self.new = 0, (), ()
        book = Ledger.open(address, create=True)
        book.create_dataset(dataset, 8 * releases, 0.5)
        book.close()

    @property
    def options(self):
        """The options of a command that charges this dataset."""
        return ("--ledger", str(self.address), "--dataset", self.dataset)

    @property
    def phase(self):
        """How far the last run came with its charge."""
        from dpunion.ledger import EntryState

        states = {entry.state for entry in self.new}
        return BEFORE if not states else AFTER if EntryState.SETTLED in states else BETWEEN

    def read(self):
        """Read the ledger again and yield what is wrong with it; `new` are the entries since it was last read."""
        from dpunion.ledger import Ledger

        book = Ledger.open(self.address)
        verified = book.verify()
        if not verified.good:
            yield f"the ledger does not verify: {verified.problem}"
        entries = book.overview().entries
        book.close()
        before, self.entries = self.entries, tuple(entry for entry in entries if entry.dataset == self.dataset)
        if sum(entry.charge.epsilon for entry in self.spent) > self.releases * CHARGE:
            yield "more was granted than the total"
        if self.entries[: len(before)] != before:
            yield "an entry of an earlier run has changed"
        self.new = self.entries[len(before) :]
        if len(self.new) > 1 or any(entry.charge.epsilon != CHARGE for entry in self.new):
            yield "the new charge is not that of one release"
        if CANARY.search(repr(self.new).encode()):
            yield "a private value in the ledger"

    @property
    def spent(self):
        """The entries that were not given back."""
        from dpunion.ledger import EntryState

        return [entry for entry in self.entries if entry.state is not EntryState.CANCELLED]

    def check(self, run, target):
        """Yield what is wrong with the ledger after a run."""
        from dpunion.ledger import EntryState

        self.runs += 1
        yield from self.read()
        new = self.new
        states = {entry.state for entry in new}
        if run.code == 0 and states != {EntryState.SETTLED}:
            yield "a release without a settled charge"
        if run.code == 5 and (states - {EntryState.CANCELLED} or len(self.spent) < self.releases):
            yield "refused although there was budget, or charged although refused"
        if run.code == KILLED and EntryState.CANCELLED in states:
            yield "killed, and yet the charge was given back"
        if target.exists() and target.read_bytes() != OLD:
            if not states or EntryState.CANCELLED in states:
                yield "an output without a charge"
            digest = hashlib.sha256(target.read_bytes()).hexdigest()
            if EntryState.SETTLED in states and digest not in {held for _, held in new[0].outputs}:
                yield "the output is not the one that was settled"
        elif EntryState.SETTLED in states:
            yield "a settled charge without its output"


def check_words(told, phase):
    """Yield what is wrong where a killed command has told more than the ledger holds."""
    if "reserved" in told and phase == BEFORE:
        yield "a charge that was granted is lost"
    if "settled" in told and phase != AFTER:
        yield "a charge that was settled is open"
    if "reserving" not in told and phase != BEFORE:
        yield "a charge that nobody asked for"


def check_refused(code, run, before, books, folder, target):
    """Yield what is wrong where a command should have ended with this code and changed nothing; before: the output."""
    if run.code != code:
        yield f"exit code {run.code} and not {code}"
    if b"Traceback" in run.said:
        yield "a traceback"
    if content_of(target) != before:
        yield "the output has changed"
    if list((folder / "temporary").iterdir()):
        yield "temporary files"
    yield from leaks(run.said, [*target.parent.iterdir(), *(folder / "books").iterdir()])
    yield from books.read()
    if books.new:
        yield "charged in silence"


def content_of(target):
    return target.read_bytes() if target.exists() else None


def check_release(run, folder, target, *, old):
    """Yield what is wrong with what a run left and said."""
    if run.code is None:
        yield "it hung"
    elif run.code != KILLED and run.code not in {0, 5, 130}:
        yield f"exit code {run.code}"
    if b"Traceback" in run.said:
        yield "a traceback"
    if run.code == 130 and b"Interrupted" not in run.said:
        yield "it did not say that it was interrupted"
    there = target.exists() and not (old and target.read_bytes() == OLD)
    if old and not target.exists():
        yield "the old output is gone"
    if there:
        yield from whole(target)
    elif run.code == 0:
        yield "no output"
    if there and run.code == 0 and run.struck and target.stat().st_mtime > run.at:
        yield "an interrupt was lost: the release was made after it"
    if run.code == 5 and there:
        yield "refused, and yet an output"
    left = [path for path in target.parent.iterdir() if path.name.removesuffix(".private.toml") != target.name]
    temporary = [path for path in left if path.name.startswith(".dpunion-") and run.code == KILLED]
    if len(left) > len(temporary) or len(temporary) > 1:
        yield f"left behind: {[path.name for path in left]}"
    if any(path.stat().st_mode & 0o077 for path in temporary):
        yield "a temporary file that others can read"
    if list((folder / "temporary").iterdir()):
        yield "temporary files"
    yield from leaks(run.said, [*target.parent.iterdir(), *(folder / "books").iterdir()])


def whole(target):
    try:
        items = items_in(target)
    except Exception as error:  # noqa: BLE001 - whatever a partial file gives
        yield f"a partial output ({type(error).__name__})"
        return
    # Funnel leaves out an item that everybody has once in a while, but not all of them.
    if len(items) < 3:
        yield f"an output of {len(items)} items"


def leaks(said, files):
    if CANARY.search(said) or PASSWORD in said:
        yield "a private value was printed"
    for path in files:
        if path.is_file() and CANARY.search(path.read_bytes()):
            yield f"a private value in {path.name}"


def check_case(case, run, folder, codes):
    """Yield what is wrong after a run on damaged input."""
    if run.code is None:
        yield "it hung"
    elif run.code not in codes or run.code not in {*case.codes}:
        yield f"exit code {run.code}"
    if b"Traceback" in run.said:
        yield "a traceback"
    if run.code and b"Error" not in run.said:
        yield "no word about what was wrong"
    outputs = []
    if case.target is not None:
        target = folder / case.target
        if target.exists() != (run.code == 0):
            yield "no output" if run.code == 0 else "an output in spite of the error"
        if target.exists() and target.suffix == ".json":
            json.loads(target.read_bytes())
        outputs = [] if case.may_show else [target]
    if [path for path in folder.iterdir() if path.name.startswith(".dpunion-")]:
        yield "left behind: a temporary file"
    yield from leaks(without_column_names(run.said, folder), outputs)


def without_column_names(said, folder):
    """Return what was printed without the columns of damaged files: a header with a wanted column is public."""
    for path in [*folder.glob("*.csv"), *folder.glob("*.tsv")]:
        names = [one.strip(b'"') for one in re.split(rb"[,\t]", path.read_bytes().split(b"\n")[0].rstrip(b"\r"))]
        for name in names if {b"who", b"what"} & {*names} else ():
            said = said.replace(b"'" + name + b"'", b"''")
    return said


# --- a worker -----------------------------------------------------------------------------------------------
class Worker:
    """One of the processes that fork and start commands, and tell what became of each as a line of JSON."""

    def __init__(self, given):
        self.given, self.draw = given, random.Random(given["seed"])
        self.root = Path(given["root"]) / f"worker{given['seed']}"
        self.sources, self.keep = Path(given["root"]), Path(given["keep"])
        self.root.mkdir()
        self.books, self.failures = None, collections.Counter()
        self.seconds = {}

    def tell(self, kind, name, run, problems, folder, arguments, phase=None):
        """Report a run; the files of one that failed are kept. phase: of a kill, the ledger and how far it came."""
        problems, where = list(problems), None
        self.failures[kind, name, *problems] += bool(problems)
        if problems and self.failures[kind, name, *problems] <= KEPT_OF_A_KIND:
            where = str(self.keep / f"{os.getpid()}-{self.failures.total()}")
            shutil.copytree(folder, where)
            (Path(where) / "command.json").write_text(json.dumps(arguments))
        line = {"kind": kind, "name": name, "code": run.code, "problems": problems, "kept": where}
        line["phase"] = phase
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def clean(self, *folders):
        place = self.root / "place"
        for name in (".", "out", "temporary"):
            if name in folders or not folders:
                shutil.rmtree(place / name, ignore_errors=True)
        for name in ("books", "out", "temporary"):
            (place / name).mkdir(parents=True, exist_ok=True)
        return place

    def ask(self, scenario, books, *, old):
        """Return (folder, target, arguments) of a release of a scenario; old: it replaces a file."""
        place = self.clean("out", "temporary")
        target = place / "out" / f"released{scenario.suffix}"
        if old:
            target.write_bytes(OLD)
        arguments = [scenario.command, str(self.sources / scenario.source), *scenario.options, *BUDGET, *books.options]
        return place, target, [*arguments, "--out", str(target), *(["--force"] if old else [])]

    def release(self, scenario, strike, *, fresh=None, old=False):
        """Run one release of a scenario and return (run, folder, target, arguments)."""
        if self.books is None or self.books.runs >= RUNS_PER_LEDGER:
            self.books = Books(self.clean() / "books" / "budget.db")
        place, target, arguments = self.ask(scenario, self.books, old=old)
        arguments.append("--charge-again")
        run = run_forked(arguments, place, strike) if fresh is None else run_fresh(arguments, place, strike, **fresh)
        return run, place, target, arguments

    def strikes(self, kind, count, *, fresh):
        """Strike releases at random moments until `count` of them were met alive."""
        done = 0
        while done < count:
            scenario = self.draw.choice(SCENARIOS)
            how = self.surroundings() if fresh else None
            last = self.duration(scenario, how)
            number = signal.SIGKILL if kind == "kill" else self.draw.choice(POLITE)
            moments = [(self.draw.random() * last, number)]
            if kind == "interrupt" and self.draw.random() < TWICE:
                moments.append((moments[0][0] + self.draw.random() * 0.02, number))
            old = self.draw.random() < 0.3
            run, place, target, arguments = self.release(scenario, Strike(*moments), fresh=how, old=old)
            early = before_main(run)
            done += run.struck and not early
            name = f"{scenario.name}{' (fresh)' if fresh else ''}"
            if early:
                run, kind_told = dataclasses.replace(run, said=b"", code=130), "before dpunion began"
                problems = self.books.check(run, target)
            else:
                kind_told = kind if run.struck else f"{kind}, too late"
                problems = [*check_release(run, place, target, old=old), *self.books.check(run, target)]
            phase = (SQLITE, self.books.phase) if kind_told == "kill" else None
            self.tell(kind_told, name, run, problems, place, arguments, phase)

    def aimed_kills(self, count, ledger, address):
        """Kill releases around and after their charge until `count` of them had charged; then try each again."""
        done, numbers = 0, itertools.count(1)
        while done < count:
            scenario, old = self.draw.choice(SCENARIOS), self.draw.random() < 0.3
            word, most = self.draw.choice(AIMS)
            aim = Aim(word, self.draw.random() * (most or self.duration(scenario, None)))
            dataset = f"{self.root.name}-{next(numbers)}"
            books = Books(address or self.clean("out") / "books" / "aimed.db", dataset, RELEASES_PER_KILL)
            place, target, arguments = self.ask(scenario, books, old=old)
            run = run_forked(arguments, place, aim)
            problems = [*check_release(run, place, target, old=old), *books.check(run, target)]
            problems += check_words(aim.told, books.phase)
            done += run.struck and books.phase != BEFORE
            kind = "aimed kill" if run.struck else "aimed kill, too late"
            phase = (ledger, books.phase) if run.struck else None
            self.tell(kind, f"{scenario.name} ({ledger})", run, problems, place, arguments, phase)
            self.try_again(f"{books.phase} ({ledger})", books, place, target, arguments)

    def try_again(self, name, books, place, target, arguments):
        """Run a killed command again: as it was, charged again while there is budget, and once more."""
        for left in target.parent.glob(".dpunion-*"):
            left.unlink()  # of the killed process, and checked
        phase, left = books.phase, books.releases - len(books.entries)
        if phase == BEFORE:
            left -= 1
            self.make("again", name, books, place, target, arguments)
        else:
            self.refuse("again", 6 if phase == AFTER else 5, name, books, place, target, arguments)
        arguments = [*arguments, "--charge-again", *(() if "--force" in arguments else ("--force",))]
        for _ in range(left):
            self.make("charged again", name, books, place, target, arguments)
        self.refuse("without budget", 5, name, books, place, target, arguments)

    def refuse(self, kind, code, name, books, place, target, arguments):
        """Run a command that is to end with this code and to change nothing."""
        before = content_of(target)
        run = run_forked(arguments, place, Strike())
        problems = check_refused(code, run, before, books, place, target)
        self.tell(kind, name, run, problems, place, arguments)

    def make(self, kind, name, books, place, target, arguments):
        """Run a command that is to make its release."""
        old = content_of(target) == OLD
        run = run_forked(arguments, place, Strike())
        problems = [*check_release(run, place, target, old=old), *books.check(run, target)]
        if run.code:
            problems.append("no release")
        self.tell(kind, name, run, problems, place, arguments)

    def surroundings(self):
        compiling = self.draw.random() < FRESH_COMPILING
        return {"terminal": self.draw.random() < FRESH_TERMINAL, "compiling": compiling}

    def duration(self, scenario, how):
        """Return how long a run takes that nothing strikes; measured once, and checked."""
        if how is not None and how["compiling"]:
            return SECONDS_COMPILING
        place = (scenario.name, how is None)
        if place not in self.seconds:
            began = time.monotonic()
            run, folder, target, arguments = self.release(scenario, Strike(), fresh=how)
            problems = [*check_release(run, folder, target, old=False), *self.books.check(run, target)]
            self.tell("left in peace", scenario.name, run, problems, folder, arguments)
            self.seconds[place] = time.monotonic() - began
        return self.seconds[place]

    def fuzz(self, count, release, codes):
        for _ in range(count):
            place = self.clean()
            case = draw_case(self.draw, place, release)
            run = run_forked(case.arguments, place, Strike())
            self.tell("fuzz", case.kind, run, check_case(case, run, place, codes), place, case.arguments)

    def work(self):
        warm_up()
        given = self.given
        self.strikes("interrupt", given["interrupts"], fresh=False)
        self.strikes("interrupt", given["fresh"], fresh=True)
        self.strikes("kill", given["kills"] // 2, fresh=False)
        self.strikes("kill", given["kills"] - given["kills"] // 2, fresh=True)
        self.aimed_kills(given["sqlite"], SQLITE, None)
        self.aimed_kills(given["postgres"], POSTGRESQL, given["server"])
        release = self.clean() / "out.json"
        arguments = ["release", str(self.sources / "rows.csv"), *ITEMS, *BUDGET, "--out", str(release)]
        assert run_forked(arguments, release.parent, Strike()).code == 0
        self.fuzz(given["fuzz"], release.read_bytes(), documented_codes())


def spark_worker(given):
    """Damaged inputs for Spark's readers, one after the other in one session of this process."""
    from dpunion.engines.spark.sessions import open_session

    worker, telling = Worker(given), os.dup(1)
    said = worker.root / "said"
    printed = os.open(said, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    sys.stdout = sys.__stdout__
    open_session("local[2]", {"spark.sql.shuffle.partitions": "2"})
    codes = documented_codes()
    for _ in range(given["spark"]):
        place = worker.clean()
        case = draw_spark_case(worker.draw, place)
        os.ftruncate(printed, 0)
        faulthandler.dump_traceback_later(PATIENCE * 2, exit=True)  # a run that hangs ends this worker, which counts
        code = 99
        try:
            cli.app(list(case.arguments))
        except SystemExit as leaving:
            code = leaving.code or 0
        except BaseException:  # noqa: BLE001 - whatever a damaged input raised
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        faulthandler.cancel_dump_traceback_later()
        run = Run(code, said.read_bytes(), struck=False)
        shutil.copy(said, place)
        with os.fdopen(os.dup(telling), "w") as sys.stdout:
            worker.tell("fuzz", case.kind, run, check_case(case, run, place, codes), place, case.arguments)
        sys.stdout = sys.__stdout__


# --- the whole ----------------------------------------------------------------------------------------------
def share(total, worker):
    return total // WORKERS + (worker < total % WORKERS)


@contextlib.contextmanager
def server_for(wanted, say):
    """Run a PostgreSQL server and yield its address, without the password; None where there is none."""
    if not wanted:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            secret = stack.enter_context(postgres_server.running_server())
        except pytest.skip.Exception as missing:
            say(f"All aimed kills are on SQLite: {missing}")
            yield None
            return
        yield secret.replace(urllib.parse.quote(f":{postgres_server.PASSWORD}", safe=":"), "")


def torture(options, say):
    """Run everything and return (passed, failed) with the table of what was run printed by `say`."""
    keep = Path(options.keep or tempfile.mkdtemp(prefix="dpunion-torture-"))
    keep.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="dpunion-torture-work-"))
        write_sources(Path(root))
        server = stack.enter_context(server_for(options.postgres and options.aimed, say))
        common = {"root": root, "keep": str(keep), "server": server}
        counts = {"interrupts": options.interrupts - options.fresh, "fresh": options.fresh, "kills": options.kills}
        counts["postgres"] = options.aimed // 2 if server else 0
        counts |= {"sqlite": options.aimed - counts["postgres"], "fuzz": options.fuzz - options.spark}
        jobs = []
        for number in range(WORKERS):
            shares = {name: share(total, number) for name, total in counts.items()}
            jobs.append({**common, **shares, "seed": options.seed * 100 + number})
        if options.spark:
            jobs.append({**common, "spark": options.spark, "seed": options.seed * 100 + WORKERS})
        table, phases, failures = follow(jobs, say)
    for kind, name in sorted(table):
        codes = ", ".join(f"{code}: {times}" for code, times in sorted(table[kind, name].items(), key=str))
        say(f"{kind:22} {name:42} {sum(table[kind, name].values()):6}   exit codes {codes}")
    for ledger, phase in sorted(phases):
        say(f"killed {phase}, {ledger}: {phases[ledger, phase]}")
    failed = len(failures)
    passed = sum(sum(codes.values()) for codes in table.values()) - failed
    if not failed and not options.keep:
        keep.rmdir()
    return passed, failed


def follow(jobs, say):
    """Start a process for each job and gather what they tell: exit codes, the phases of kills, and the failures."""
    table, failures, runs = collections.defaultdict(collections.Counter), [], [0]
    phases = collections.Counter()

    def listen_to(process):
        for line in process.stdout:
            told = json.loads(line)
            table[told["kind"], told["name"]][told["code"]] += 1
            phases.update([tuple(told["phase"])] if told["phase"] else [])
            runs[0] += 1
            if runs[0] % RUNS_BETWEEN_LINES == 0:
                say(f"{runs[0]} runs, {len(failures)} failed so far")
            if told["problems"]:
                failures.append(told)
                say(f"FAILED {told['kind']}, {told['name']}: {'; '.join(told['problems'])}. Kept in {told['kept']}")

    command = [sys.executable, __file__, "--job"]
    how = {"stdout": subprocess.PIPE, "text": True, "env": os.environ | {"PGPASSWORD": postgres_server.PASSWORD}}
    processes = [subprocess.Popen([*command, json.dumps(job)], **how) for job in jobs]
    listeners = [threading.Thread(target=listen_to, args=(process,)) for process in processes]
    for listener in listeners:
        listener.start()
    for listener, process in zip(listeners, processes, strict=True):
        listener.join()
        process.stdout.close()
        if process.wait():
            failures.append({})
            table["worker", "did not end"][process.returncode] += 1
            say(f"FAILED: a worker ended with {process.returncode}")
    return table, phases, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interrupts", type=int, default=2000)
    parser.add_argument("--fresh", type=int, default=300, help="this many of the interrupts meet a fresh process")
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--aimed", type=int, default=300, help="kills after the charge, half of them on PostgreSQL")
    parser.add_argument("--no-postgres", dest="postgres", action="store_false", help="all of them on SQLite")
    parser.add_argument("--fuzz", type=int, default=10_000)
    parser.add_argument("--spark", type=int, default=300, help="this many of the damaged inputs are read by Spark")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", help="where the files of failures go")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job = json.loads(options.job)
        spark_worker(job) if "spark" in job else Worker(job).work()
        return

    def say(line):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    say(f"seed {options.seed}")
    with usual_signals():
        passed, failed = torture(options, say)
    say(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

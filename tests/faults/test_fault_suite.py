"""Hundreds of injected faults, each in a real run of the command line: a complete, correct release or none.

A warm process forks one child for each fault. The child arms the fault (a signal, an error of the operating system, of
SQLite or of a library, at a named point; a limit; a damaged input), tells through a pipe what was done in fact
(reserved, started, reading, replaced, settled) and runs the command. Whatever becomes of it, afterwards:

- the output is absent, the old file, or the whole correct release; no temporary file stays, but for a private one of a
  killed process;
- no user id and no unreleased item is in anything that was printed or left;
- the ledger verifies, and holds exactly what was committed: nothing was read without a charge, and an error before
  reading gave the charge back;
- the same command once more is refused, pointed to what was made, or makes it, and never charges in silence.
"""

import contextlib
import csv
import ctypes
import dataclasses
import errno
import functools
import gc
import gzip
import importlib
import io
import itertools
import json
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # as pytest does; this file is also run alone

from running import CLI, PATIENCE

PEOPLE, FILES = 150, 3
POPULAR = tuple(sorted(f"popular-{i:02}-" + "long" * 40 for i in range(8)))
CANARY = re.compile(rb"canary", re.IGNORECASE)
OPTIONS = ("--user", "who", "--item", "what", "-a", "weighted-gaussian", "-e", "8", "-d", "1e-12")
# Each text is one word, so that n-grams are the same items, by other ways.
AS_TEXTS = ("--user", "who", "--text", "what", "--tokenizer", "whitespace", "-e", "8", "-d", "1e-12")
GAUSSIAN = "weighted-gaussian"
ASKED = {
    "items": ("release", *OPTIONS),
    "one set": ("release", *AS_TEXTS, "--ngrams", "1-2", "-a", GAUSSIAN),
    "length by length": (
        *("ngrams", *AS_TEXTS, "--longest", "2", "--first", GAUSSIAN, "--later", GAUSSIAN),
        *("--spurious-rate", "1e-6"),
    ),
}
NGRAMS = tuple(ASKED)[1:]
CHARGE = 8 * 10**9
PARTS = 8  # spill files: fewer than usual, for speed
CLEAN = ["reserved", "started", "reading", "replaced", "settled"]
OLD = b"the old file, whole"
EXPECTED_COUNT = 250
COUNTS = ("--counts", "--sort", "item")


# --- the process that forks ---------------------------------------------------------------------------------
def serve():
    """Answer each line of standard input, a request in JSON, after the forked run has ended."""
    from dpunion import cli

    warm_up()
    for line in sys.stdin:
        request = json.loads(line)
        (told, telling), (said, saying) = os.pipe(), os.pipe()
        child = os.fork()
        if not child:
            run_child(cli, request, telling, saying)
        os.close(telling)
        os.close(saying)
        # What a run says fits into a pipe; were it more, the run would wait and count as hung.
        code = ended(child)
        with os.fdopen(told) as events, os.fdopen(said, errors="replace") as words:
            answer = {"code": code, "events": events.read().split(), "said": words.read()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def warm_up():
    """Load and compile here what every run needs, so that no fork has to."""
    import dpunion
    import dpunion.cli.release
    import dpunion.ledger.ledgers
    from dpunion.releases.formats import WRITERS
    from dpunion.sets import spill

    released = dpunion.release(
        table_of(rows_of(0)), user="who", item="what", epsilon=8.0, delta=1e-12, algorithm="weighted-gaussian"
    )
    for writer in WRITERS.values():
        writer(released, io.BytesIO())
    with spill.RowStore(8) as store:
        store.append(np.zeros(9, np.int32), np.zeros(9, np.int32))
    one = {"user": "who", "epsilon": 8.0, "delta": 1e-12, "normalize": "nfc"}
    for options in ({"item": dpunion.Words("what", lengths="1-2")}, {"text": "what", "algorithm": dpunion.Ngrams()}):
        dpunion.release(table_of(rows_of(0)), **one, **options)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere), contextlib.suppress(SystemExit):
        dpunion.cli.app(["release", "/nonexistent.parquet", *OPTIONS])
    gc.freeze()  # what is loaded stays shared between the forks


def ended(child):
    """Return the exit code of the child, or the negative number of the signal that ended it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "it hung"


def run_child(cli, request, pipe, saying):
    code = 99
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(saying, 1)
        os.dup2(saying, 2)
        os.environ["TMPDIR"] = tempfile.tempdir = request["temporary"]
        record(lambda event: os.write(pipe, f"{event}\n".encode()))
        if request["fault"]:
            arm(*request["fault"])
        cli.app(request["arguments"])
    except SystemExit as leaving:
        code = leaving.code or 0
    except BaseException:  # noqa: BLE001 - nothing may return into the serving loop
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    os._exit(code)


def resolved(path):
    """Return (object, attribute) of a dotted path into dpunion or the standard library."""
    parts = path.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            owner = importlib.import_module(".".join(parts[:cut]))
            for part in parts[cut:-1]:
                owner = getattr(owner, part)
            return owner, parts[-1]
    raise AssertionError(path)


def wrap(path, *, before=None, after=None, nth=1):
    """Call `before` or `after` around the nth call of a function."""
    owner, name = resolved(path)
    real, calls = getattr(owner, name), itertools.count(1)

    @functools.wraps(real)
    def wrapped(*given, **options):
        mine = next(calls)  # other threads may call it meanwhile
        if before is not None and mine == nth:
            before()
        result = real(*given, **options)
        if after is not None and mine == nth:
            after()
        return result

    setattr(owner, name, wrapped)


def wrap_sql(tell):
    """Call `tell(moment, statement, kind)` before and after each statement that writes to the ledger."""
    from dpunion.ledger import sqlite

    real, kinds = sqlite._SqliteSession.run, []

    def run(self, sql, *values):
        word = sql.split()[0]
        if word == "BEGIN":
            kinds.append("writing" if sql.endswith("IMMEDIATE") else "looked")
        elif word == "INSERT":
            kinds[-1] = values[1]
        kind = kinds[-1] if kinds else ""
        tell("before", word, kind)
        result = real(self, sql, *values)
        tell("after", word, kind)
        return result

    sqlite._SqliteSession.run = run


def record(tell):
    """Report what is done in fact, and let rows wait on disk so that every run has spill files."""
    from dpunion import files
    from dpunion.engines import warming
    from dpunion.sets import spill

    wrap("dpunion.ledger.ledgers.Reservation.start_reading", after=lambda: tell("started"))
    wrap("dpunion.engines.local.engine.encode", before=lambda: tell("reading"))
    wrap("dpunion.sets.streams.number_rows", before=lambda: tell("reading"))
    named = files._name

    def telling(descriptor, source, folder, name, **options):
        ours = named(descriptor, source, folder, name, **options)
        if not name.endswith(".private.toml"):
            tell("replaced")
        return ours

    files._name = telling

    def committed(moment, word, kind):
        if (moment, word) == ("after", "COMMIT") and kind not in {"looked", "writing"}:
            tell(kind)

    wrap_sql(committed)
    spill.PARTS = PARTS
    real = spill.WaitingStore.__init__

    def waiting_on_disk(self, memory_limit=None):
        real(self, memory_limit)
        self.most_bytes = 800

    spill.WaitingStore.__init__ = waiting_on_disk
    warming.rehearse = lambda _plan: None  # the faults are for the release itself


def arm(kind, *details):
    """Arm one fault in this process."""
    match kind:
        case "at":
            path, moment, nth, what = details
            wrap(path, nth=nth, **{moment: functools.partial(strike, what)})
        case "sql":
            moment, word, entry, what = details
            wrap_sql(lambda *now: strike(what) if now == (moment, word, entry) else None)
        case "writer":
            half_writer(*details)
        case "progress":
            on_progress(*details)
        case "limit":
            name, value = details
            resource.setrlimit(getattr(resource, name), (value, value))
        case "call":
            SURROUNDINGS[details[0]](*details[1:])


def strike(what):
    """Do the fault: a signal, an error number, an error of SQLite, an exception that quotes the data."""
    if what.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, what))
        time.sleep(0)  # a chance for the handler to run here
    elif what.startswith("SQLITE_"):
        error = sqlite3.OperationalError("a row of CanaryUser")
        error.sqlite_errorname = what
        raise error
    elif what == "MemoryError":
        raise MemoryError
    elif what == "quoting":
        raise ValueError("could not parse 'CanaryUser,CanaryItem'")
    else:
        raise OSError(getattr(errno, what), os.strerror(getattr(errno, what)))


def half_writer(what):
    """Write half of the first bytes to the output, then strike."""
    from dpunion.releases import formats

    class Half:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            self.file.write(bytes(data)[: len(data) // 2])
            self.file.flush()
            strike(what)

        def __getattr__(self, name):
            return getattr(self.file, name)

    for suffix, real in list(formats.WRITERS.items()):
        formats.WRITERS[suffix] = lambda release, file, real=real: real(release, Half(file))


def on_progress(stage, nth, what):
    """Strike when the command is told the nth step of a stage."""
    owner, name = resolved("dpunion.cli.answers.progress_bar")
    real, steps = getattr(owner, name), []

    @contextlib.contextmanager
    def progress_bar(**_):
        with real() as show:

            def told(now, done):
                show(now, done)
                if now == stage:
                    steps.append(done)
                    if len(steps) == nth:
                        strike(what)

            yield told

    setattr(owner, name, progress_bar)


# Linux: CLONE_NEWUSER is needed where only root may leave the network.
CLONE_NEWNET, CLONE_NEWUSER = 0x40000000, 0x10000000
CAPABILITY_VERSION = 0x20080522


def without_network():
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(CLONE_NEWNET) and library.unshare(CLONE_NEWUSER | CLONE_NEWNET):
        os._exit(77)


def without_privileges():
    """Let permissions bind root too."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    if os.geteuid() == 0 and ctypes.CDLL(None, use_errno=True).capset(header, (ctypes.c_uint32 * 6)()):
        os._exit(77)


def lost_folder():
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


def elsewhere(**variables):
    os.environ |= variables
    tempfile.tempdir = os.environ["TMPDIR"]


def impatient():
    importlib.import_module("dpunion.ledger.sqlite").LONGEST_WAIT = 0.1


def interrupt_at_edge(side, nth, stage=None):
    """Interrupt as the nth part of the command begins or ends, in contextlib, where `answering` cannot catch it.

    stage: there is an interrupt in this stage before.
    """
    if stage is not None:
        on_progress(stage, 1, "SIGINT")
    manager, parts = contextlib._GeneratorContextManager, itertools.count(1)
    real = getattr(manager, side)

    def struck(self, *given):
        is_hit = self.gen.__name__ == "answering" and next(parts) == nth
        if is_hit and side == "__exit__":
            strike("SIGINT")
        value = real(self, *given)
        if is_hit:
            strike("SIGINT")
        return value

    setattr(manager, side, struck)


SURROUNDINGS = {
    "interrupt at edge": interrupt_at_edge,
    "without network": without_network,
    "without privileges": without_privileges,
    "closed": os.close,
    "full standard output": lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1),
    "lost folder": lost_folder,
    "umask": lambda mask: os.umask(mask) and None,
    "no home": lambda: elsewhere(HOME="/nonexistent", XDG_CACHE_HOME="/nonexistent/cache"),
    "home is a file": lambda: elsewhere(HOME="/dev/null", XDG_CACHE_HOME="/dev/null"),
    "no temporary folder": lambda: elsewhere(TMPDIR="/nonexistent"),
    "no variables": os.environ.clear,
    "impatient": impatient,
}


# --- the data -----------------------------------------------------------------------------------------------
def rows_of(part):
    """Return (user, item) rows: everybody has all popular items and one nobody else has."""
    rows = []
    for person in range(part, PEOPLE, FILES):
        user = f"CanaryUser{person:03}"
        rows.append((user, f"CanaryItem{person:03}"))
        rows.extend((user, item) for item in POPULAR)
    return rows


def table_of(rows):
    return pa.table({"who": [user for user, _ in rows], "what": [item for _, item in rows]})


def as_parquet(rows, **options):
    out = io.BytesIO()
    pq.write_table(table_of(rows), out, **options)
    return out.getvalue()


def as_arrow(rows):
    out = io.BytesIO()
    with pa.ipc.new_file(out, table_of(rows).schema) as writer:
        writer.write_table(table_of(rows), max_chunksize=100)
    return out.getvalue()


def as_csv(rows):
    return ("who,what\n" + "".join(f"{user},{item}\n" for user, item in rows)).encode()


def as_jsonl(rows):
    return "".join(json.dumps({"who": user, "what": item}) + "\n" for user, item in rows).encode()


FORMATS = {
    ".parquet": as_parquet, ".arrow": as_arrow, ".csv.gz": lambda rows: gzip.compress(as_csv(rows), mtime=0),
    ".jsonl.gz": lambda rows: gzip.compress(as_jsonl(rows), mtime=0), ".csv": as_csv, ".jsonl": as_jsonl,
}  # fmt: skip
CHECKED = {"write_page_checksum": True, "compression": "none", "use_dictionary": False, "row_group_size": 200}


# --- faults -------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Fault:
    """What goes wrong, and what may come of it.

    fault: what the child arms. codes: the exit codes permitted, the negative number of a signal. prepare: damages the
    place before the run. stays_charged: the charge may stay although nothing was read. fewer: the damaged input cannot
    be told from a shorter one, so fewer items are correct too. asked: which of ASKED is run.
    """

    name: str
    codes: tuple[int, ...]
    fault: tuple = ()
    prepare: Callable = lambda place: None
    suffix: str = ".txt"
    old: bool = False
    stays_charged: bool = False
    fewer: bool = False
    more: tuple[str, ...] = ()
    asked: str = "items"


E, L = "dpunion.engines.local.engine", "dpunion.ledger.ledgers"
# Every stage boundary of a release, in order: where, on which side, which call.
BOUNDARIES = [
    ("dpunion.pipeline.plan", "before", 1), (f"{L}.Ledger.open", "before", 1), (f"{L}.Ledger.open", "after", 1),
    (f"{L}.Ledger.reserve", "before", 1), (f"{L}.Ledger.reserve", "after", 1),
    ("dpunion.engines.publishing.Outputs.check", "after", 1), (f"{E}.LocalEngine.read", "before", 1),
    (f"{E}.open_source", "before", 1), (f"{E}.open_source", "after", 1),
    (f"{L}.Reservation.start_reading", "before", 1), (f"{L}.Reservation.start_reading", "after", 1),
    (f"{E}.encode", "before", 1), ("dpunion.reading.cleaning.Cleaner.clean", "before", 1),
    ("dpunion.reading.cleaning.Cleaner.clean", "before", 2), ("dpunion.reading.cleaning.Cleaner.clean", "after", 3),
    ("dpunion.sets.spill.WaitingStore._spill", "before", 1), ("dpunion.sets.spill.WaitingStore._spill", "after", 2),
    ("dpunion.sets.encoding.group_rows", "before", 1), ("dpunion.sets.encoding.group_rows", "after", 1),
    (f"{E}.encode", "after", 1), (f"{E}.run_rounds", "before", 1), (f"{E}.run_rounds", "after", 1),
    ("dpunion.releases.release.Release.write", "before", 1), ("dpunion.files._nameless", "before", 1),
    ("dpunion.files._nameless", "after", 1), ("os.fchmod", "after", 1), ("os.fsync", "before", 1),
    ("os.fsync", "after", 1), ("os.link", "before", 1), ("os.rename", "before", 1),
    ("dpunion.files._name", "after", 1), ("os.fsync", "before", 2),
    ("dpunion.releases.release.Release.write", "after", 1), (f"{L}.Reservation.settle", "before", 1),
    (f"{L}.sha256_of", "after", 1), (f"{L}.Reservation.settle", "after", 1),
    ("dpunion.cli.release.record_configuration", "before", 1),
    ("dpunion.cli.release.record_configuration", "after", 1),
]  # fmt: skip
# Those of texts, where n-grams part from items.
TEXT_BOUNDARIES = [
    ("dpunion.sets.streams.number_rows", "before", 1),
    ("dpunion.sets.spill.WaitingStore._spill", "before", 1),
    ("dpunion.sets.spill.WaitingStore._spill", "after", 2),
    ("dpunion.sets.streams.lay_out_texts", "before", 1),
    ("dpunion.sets.streams.lay_out_texts", "after", 1),
]
STATEMENTS = [
    ("before", "BEGIN", "writing"), ("before", "INSERT", "reserved"), ("after", "INSERT", "reserved"),
    ("before", "COMMIT", "reserved"), ("after", "COMMIT", "reserved"), ("before", "INSERT", "settled"),
    ("before", "COMMIT", "settled"), ("after", "COMMIT", "settled"),
]  # fmt: skip
LATE = ("after", "COMMIT", "reserved")
KILLED = -signal.SIGKILL
INTERRUPTED = (130,)
# Between the moment that the charge is on disk and the moment that somebody knows of it, it can only stay.
UNKNOWN = {(f"{L}.Ledger.reserve", "after")}


def short(path):
    for room in ("dpunion.", "reading.", "engines.local.engine.", "ledger.ledgers."):
        path = path.replace(room, "")
    return path


def death_faults():
    for number, (path, moment, nth) in enumerate(BOUNDARIES):
        polite = "SIGTERM" if number % 2 else "SIGINT"
        for what, codes in (("SIGKILL", (KILLED,)), (polite, INTERRUPTED)):
            kept = {"old": moment == "before" and nth == 1, "stays_charged": (path, moment) in UNKNOWN}
            yield Fault(f"{what} {moment} {short(path)} {nth}", codes, ("at", path, moment, nth, what), **kept)
    for moment, word, entry in STATEMENTS:
        for what, codes in (("SIGKILL", (KILLED,)), ("SIGTERM", INTERRUPTED)):
            late = (moment, word, entry) == LATE
            yield Fault(
                f"{what} {moment} {word} {entry}", codes, ("sql", moment, word, entry, what), stays_charged=late
            )
    for stage, nth in (("reading", 1), ("reading", 2), ("reading", 3), ("selecting", 1), ("writing", 1)):
        yield Fault(f"SIGKILL while {stage} {nth}", (KILLED,), ("progress", stage, nth, "SIGKILL"))
        yield Fault(f"SIGINT while {stage} {nth}", INTERRUPTED, ("progress", stage, nth, "SIGINT"))
    for part, nth in (("options", 1), ("release", 2)):
        for side, when in (("__enter__", "begins"), ("__exit__", "ends")):
            yield Fault(f"SIGINT as the {part} {when}", INTERRUPTED, ("call", "interrupt at edge", side, nth))
    twice = ("call", "interrupt at edge", "__exit__", 2, "selecting")
    yield Fault("SIGINT while selecting, and as the release ends", INTERRUPTED, twice)
    for what, codes in (("SIGKILL", (KILLED,)), ("SIGINT", INTERRUPTED)):
        yield Fault(f"{what} while counting", codes, ("progress", "counting", 1, what), more=COUNTS)
    for suffix in (".csv", ".parquet", ".json"):
        for what, codes in (("SIGKILL", (KILLED,)), ("ENOSPC", (4,))):
            yield Fault(
                f"{what} half way through {suffix} with counts", codes, ("writer", what), suffix=suffix, more=COUNTS
            )
    for suffix in (".txt", ".csv", ".jsonl", ".json", ".parquet", ".arrow"):
        yield Fault(f"SIGKILL half way through {suffix}", (KILLED,), ("writer", "SIGKILL"), suffix=suffix, old=True)
        yield Fault(f"ENOSPC half way through {suffix}", (4,), ("writer", "ENOSPC"), suffix=suffix, old=True)


def error_faults():
    writing = [
        ("dpunion.files._nameless", "before", 1), ("os.fchmod", "before", 1), ("os.fsync", "before", 1),
        ("os.link", "before", 1), ("os.link", "before", 2), ("os.rename", "before", 1), ("os.fsync", "before", 2),
    ]  # fmt: skip
    for path, moment, nth in writing:
        for what in ("ENOSPC", "EIO", "EDQUOT", "EROFS"):
            old = (path, nth) != ("os.fsync", 2)
            yield Fault(f"{what} {moment} {path} {nth}", (4,), ("at", path, moment, nth, what), old=old)
    second = ("at", "dpunion.files._nameless", "before", 2)
    for what, codes in (("ENOSPC", (4,)), ("SIGKILL", (KILLED,))):
        yield Fault(f"{what} before the second of two outputs", codes, (*second, what), more=("--out", "{out}/b.csv"))
    for what in ("ENOSPC", "EIO", "EMFILE"):
        yield Fault(f"{what} when spilling", (4,), ("at", "dpunion.sets.spill.nameless_file", "before", 5, what))
        yield Fault(
            f"{what} when writing spilled rows", (4,), ("at", "dpunion.sets.spill.split_rows", "after", 2, what)
        )
    anywhere = [f"{E}.open_source", f"{E}.encode", "dpunion.sets.encoding.group_rows", f"{E}.run_rounds"]
    for path in (*anywhere, "dpunion.releases.release.Release.write"):
        yield Fault(f"no memory at {short(path)}", (3,), ("at", path, "before", 1, "MemoryError"))
        yield Fault(f"a quoting error at {short(path)}", (1,), ("at", path, "before", 1, "quoting"))
    counting = ("at", f"{E}.count_listed", "before", 1)
    yield Fault("no memory when counting", (3,), (*counting, "MemoryError"), more=COUNTS)
    yield Fault("a quoting error when counting", (1,), (*counting, "quoting"), more=COUNTS)
    yield Fault(
        "a quoting error of a reader", (1, 3), ("at", "dpunion.reading.spelling.Column.text", "before", 2, "quoting")
    )


def ngram_faults():
    spilling = [
        ("at", "dpunion.sets.spill.nameless_file", "before", 5),
        ("at", "dpunion.sets.spill.split_rows", "after", 2),
    ]
    for asked in NGRAMS:
        for path, moment, nth in TEXT_BOUNDARIES:
            for what, codes in (("SIGKILL", (KILLED,)), ("SIGINT", INTERRUPTED), ("MemoryError", (3,))):
                name = f"{asked}: {what} {moment} {short(path)} {nth}"
                yield Fault(name, codes, ("at", path, moment, nth, what), old=True, asked=asked)
        for at in spilling:
            for what in ("ENOSPC", "EIO", "EMFILE"):
                yield Fault(f"{asked}: {what} {at[2]} {short(at[1])}", (4,), (*at, what), asked=asked)
        full = f"{asked}: a temporary disk of 4 kB"
        yield Fault(full, (4,), prepare=lambda at: at.small_disk(at.temporary, 4), asked=asked)


def ledger_faults():
    for moment, word, entry in STATEMENTS:
        for what in ("SQLITE_FULL", "SQLITE_IOERR_FSYNC", "SQLITE_BUSY", "SQLITE_READONLY"):
            late = (moment, word, entry) == LATE
            yield Fault(f"{what} {moment} {word} {entry}", (5,), ("sql", moment, word, entry, what), stays_charged=late)
    yield Fault("the ledger is gone", (5,), prepare=lambda at: at.ledger.unlink())
    yield Fault("the ledger is a folder", (5,), prepare=lambda at: (at.ledger.unlink(), at.ledger.mkdir()))
    yield Fault("the ledger is empty", (5,), prepare=lambda at: at.ledger.write_bytes(b""))
    yield Fault("the ledger is cut", (5,), prepare=lambda at: at.ledger.write_bytes(at.ledger.read_bytes()[:3000]))
    yield Fault("the ledger has two names", (5,), prepare=lambda at: os.link(at.ledger, at.ledger.with_name("b")))
    yield Fault("the ledger cannot be written", (5,), ("call", "without privileges"), prepare=read_only_ledger)
    yield Fault("the ledger's folder is full", (5,), prepare=lambda at: at.small_disk(at.ledger.parent, 24))
    yield Fault("the ledger is locked", (5,), ("call", "impatient"), prepare=lambda at: at.lock())
    yield Fault("the budget is used up", (5,), prepare=lambda at: at.use_up())
    yield Fault("no such dataset", (5,), more=("--dataset", "another"))


def read_only_ledger(at):
    at.ledger.chmod(0o444)
    at.ledger.parent.chmod(0o555)


def damage(part, change):
    """Return what puts a damaged file in the place of the second part; `change` gets its bytes."""
    return lambda at: at.put(part, change)


def cut(share):
    return lambda raw: raw[: max(1, min(len(raw) - 1, int(len(raw) * share)))]


def flipped(position, bit):
    return lambda raw: raw[:position] + bytes([raw[position] ^ (1 << bit)]) + raw[position + 1 :]


def zeroed(start, length):
    def change(raw):
        at = start if start >= 0 else len(raw) + start
        return raw[:at] + bytes(length) + raw[at + length :]

    return change


def noise(raw):
    return bytes((i * 131 + 7) % 256 for i in range(len(raw)))


def pages(raw):
    """Return positions inside the values of each page, well behind its header."""
    metadata = pq.ParquetFile(io.BytesIO(raw)).metadata
    for group in range(metadata.num_row_groups):
        for column in range(2):
            chunk = metadata.row_group(group).column(column)
            first, size = chunk.data_page_offset, chunk.total_compressed_size
            yield from (first + size * share // 16 for share in (3, 7, 12, 15))


def input_faults():
    for suffix, plain in [(name, name in {".csv", ".jsonl"}) for name in FORMATS]:
        for share in (0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.999, 1.0):
            codes = (0, 3) if plain else (3,)
            yield Fault(f"{suffix} cut at {share:.1%}", codes, prepare=damage(suffix, cut(share)), fewer=plain)
    checked = as_parquet(rows_of(1), **CHECKED)
    for number, position in enumerate(pages(checked)):
        name = f"bit {number % 8} flipped at {position}, with checksums"
        yield Fault(name, (3,), prepare=damage("checked", flipped(position, number % 8)))
    for position in (500, 5000, 20000, 30000):
        name = f"bit flipped at {position}, without checksums"
        yield Fault(name, (0, 3), prepare=damage("unchecked", flipped(position, 1)), fewer=True)
    for suffix in (".parquet", ".arrow"):
        for start, length in ((0, 4), (-8, 4), (-4, 4), (-40, 30), (-200, 100), (4, 60)):
            # Not all of a file is needed to read it.
            yield Fault(
                f"{suffix} zeroed at {start} for {length}", (0, 3), prepare=damage(suffix, zeroed(start, length))
            )
    for suffix in FORMATS:
        yield Fault(f"an empty {suffix}", (0, 3), prepare=damage(suffix, lambda _raw: b""), fewer=True)
        yield Fault(f"noise as {suffix}", (3,), prepare=damage(suffix, noise))
    strays = {
        "a NUL": b"\0",
        "bad UTF-8": b"\xff\xfe",
        "an open quote": b'CanaryUser,"CanaryItem\n',
        "a ragged row": b"CanaryUser,CanaryItem,CanaryItem\n",
        "a missing user": b",CanaryItem\n",
    }
    for name, stray in strays.items():
        yield Fault(f"{name} in a .csv", (3,), prepare=damage(".csv", lambda raw, stray=stray: raw + stray))
    yield Fault("no permission to read", (3,), ("call", "without privileges"), prepare=lambda at: at.parts[1].chmod(0))
    yield Fault("a part is missing", (3,), prepare=lambda at: at.parts[1].unlink())
    yield Fault("an unknown column", (3,), more=("--item", "wath"))


def surrounding_faults():
    for limit in (0, 1000, 4096, 9000, 13000, 17000, 21000, 25000, 33000, 50000):
        yield Fault(f"files of {limit} bytes at most", (0, 4, 5), ("limit", "RLIMIT_FSIZE", limit), suffix=".jsonl")
    for limit in (8, 10, 12, 14, 16, 20):
        yield Fault(f"{limit} open files at most", (0, 1, 3, 4, 5), ("limit", "RLIMIT_NOFILE", limit))
    for kilobytes in (4, 8):
        full = {"prepare": lambda at, size=kilobytes: at.small_disk(at.out, size), "suffix": ".json"}
        yield Fault(f"an output disk of {kilobytes} kB", (0, 4), **full)
    yield Fault("a temporary disk of 64 kB", (0, 4), prepare=lambda at: at.small_disk(at.temporary, 64))
    yield Fault("a temporary disk of 4 kB", (4,), prepare=lambda at: at.small_disk(at.temporary, 4))
    bound = ("call", "without privileges")
    yield Fault("a read-only output folder", (4,), bound, prepare=lambda at: at.out.chmod(0o555))
    yield Fault("a read-only temporary folder", (4,), bound, prepare=lambda at: at.temporary.chmod(0o555))
    yield Fault("the output exists", (4,), prepare=lambda at: at.target.write_bytes(OLD), more=("--no-force",))
    yield Fault("the output is a folder", (4,), prepare=lambda at: at.target.mkdir())
    yield Fault("no temporary folder", (4,), ("call", "no temporary folder"))
    for name in ("without network", "no home", "home is a file", "no variables", "lost folder"):
        yield Fault(name, (0,), ("call", name))
    yield Fault("umask 000", (0,), ("call", "umask", 0))
    yield Fault("umask 777", (0, 4, 5), ("call", "umask", 0o777))
    yield Fault("standard error is closed", (0, 1), ("call", "closed", 2))
    yield Fault("standard output is full", (0, 4), ("call", "full standard output"), more=("--json",))


def all_faults():
    found = [*death_faults(), *error_faults(), *ngram_faults()]
    found += [*ledger_faults(), *input_faults(), *surrounding_faults()]
    assert len({fault.name for fault in found}) == len(found)
    return found


# --- the check ----------------------------------------------------------------------------------------------
class Place:
    """The folders and files of one run."""

    def __init__(self, root, sources):
        from dpunion.ledger import Ledger

        self.root, self.sources, self.undo = root, sources, contextlib.ExitStack()
        self.out, self.temporary, books = (root / name for name in ("out", "temporary", "books"))
        for folder in (self.out, self.temporary, books):
            folder.mkdir(parents=True)
        self.ledger, self.said = books / "budget.db", ""
        self.parts = [root / f"part{i}.parquet" for i in range(FILES)]
        for i, part in enumerate(self.parts):
            part.write_bytes(sources[f"{i}.parquet"])
        book = Ledger.open(self.ledger, create=True)
        book.create_dataset("people", 100, 0.5)
        book.create_dataset("spare", 100, 0.5)

    def aim(self, suffix, asked="items"):
        self.asked = asked
        self.target = self.out / f"vocabulary{suffix}"
        self.record = self.out / f"vocabulary{suffix}.private.toml"

    def put(self, kind, change):
        """Put a damaged file in the place of the second part."""
        self.parts[1].unlink()
        self.parts[1] = self.root / f"part1{'.parquet' if kind in {'checked', 'unchecked'} else kind}"
        self.parts[1].write_bytes(change(self.sources[kind]))

    def small_disk(self, folder, kilobytes):
        """Put a folder on a tiny file system, or skip."""
        kept = {path.name: path.read_bytes() for path in folder.iterdir()}
        command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("mounting a small file system is not permitted here")
        self.undo.callback(self._without_disk, folder)
        for name, content in kept.items():
            (folder / name).write_bytes(content)

    def _without_disk(self, folder):
        """Take the tiny file system away and keep what is on it."""
        kept = [(path, path.read_bytes(), path.stat().st_mode & 0o777) for path in folder.iterdir()]
        subprocess.run(["umount", str(folder)], check=True)
        for path, content, mode in kept:
            path.write_bytes(content)
            path.chmod(mode)

    def lock(self):
        other = self.undo.enter_context(contextlib.closing(sqlite3.connect(self.ledger, isolation_level=None)))
        other.execute("BEGIN IMMEDIATE")
        self.undo.callback(other.rollback)

    def use_up(self):
        from dpunion.ledger import Amounts, Ledger

        Ledger.open(self.ledger).reserve("people", Amounts(epsilon=93 * 10**9), "something else")

    def close(self):
        self.undo.close()
        for path in (self.out, self.temporary, self.ledger.parent):
            path.chmod(0o755)

    def arguments(self, *more):
        where = ("--ledger", str(self.ledger), *(() if "--dataset" in more else ("--dataset", "people")))
        force = () if "--no-force" in more else ("--force",)
        rest = [word.replace("{out}", str(self.out)) for word in more if word != "--no-force"]
        command, *options = ASKED[self.asked]
        return [command, *map(str, self.parts), *options, *where, "--out", str(self.target), *force, *rest]


class Server:
    """The warm process."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, place, fault, *more):
        request = {"arguments": place.arguments(*more), "fault": fault, "temporary": str(place.temporary)}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if answer["code"] == 77:
            pytest.skip("this surrounding cannot be had here")
        place.said = answer["said"]
        return answer["code"], answer["events"]

    def close(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def sources():
    made = {f"{i}.parquet": as_parquet(rows_of(i)) for i in range(FILES)}
    made |= {suffix: write(rows_of(1)) for suffix, write in FORMATS.items()}
    made["checked"] = as_parquet(rows_of(1), **CHECKED)
    made["unchecked"] = as_parquet(rows_of(1), **CHECKED | {"write_page_checksum": False})
    return made


@pytest.fixture(scope="module")
def server(sources, tmp_path_factory):
    """A process that has made a release before, so that forks need not load or compile anything."""
    place = Place(tmp_path_factory.mktemp("warm") / "up", sources)
    assert CANARY.search(place.parts[0].read_bytes()), "without canaries in the data their absence proves nothing"
    started = Server()
    try:
        for suffix in (".txt", ".csv", ".jsonl", ".json", ".parquet", ".arrow"):
            place.aim(suffix)
            code, events = started.run(place, None, "--charge-again")
            assert code == 0, place.said
            assert events == CLEAN
            assert items_in(place.target) == POPULAR
        for asked in NGRAMS:
            place.aim(".txt", asked)
            code, events = started.run(place, None, "--charge-again")
            assert (code, events) == (0, CLEAN), place.said
            assert items_in(place.target) == POPULAR
        yield started
    finally:
        started.close()


@pytest.fixture
def place(tmp_path, sources):
    made = Place(tmp_path / "place", sources)
    yield made
    made.close()


def items_in(path, suffix=None):
    """Return the items of a whole and well-formed release."""
    raw = path.read_bytes()
    match suffix or path.suffix:
        case ".txt":
            assert raw.endswith(b"\n") or not raw
            return tuple(raw.decode().splitlines())
        case ".csv":
            return tuple(row[0] for row in csv.reader(io.StringIO(raw.decode())))[1:]
        case ".jsonl":
            return tuple(json.loads(line)["item"] for line in raw.decode().splitlines())
        case ".json":
            return tuple(json.loads(raw)["items"])
        case ".parquet":
            return tuple(pq.read_table(io.BytesIO(raw))["item"].to_pylist())
        case ".arrow":
            return tuple(pa.ipc.open_file(io.BytesIO(raw)).read_all()["item"].to_pylist())
    raise AssertionError(path)


def check_output(place, fault, code, events):
    if "replaced" in events:
        found = items_in(place.target)
        assert found == POPULAR or (fault.fewer and set(found) <= set(POPULAR))
    elif fault.old:
        assert place.target.read_bytes() == OLD
    elif place.target.is_file():
        assert fault.name == "the output exists"
    if code == 0:
        assert {"replaced", "settled"} <= set(events)


def check_leftovers(place, fault, code):
    left = [path for path in place.out.iterdir() if path not in (place.target, place.record)]
    if code == KILLED:
        assert len(left) <= 1
        for path in left:
            assert path.name.startswith(".dpunion-")
            # It gets the usual mode when it is whole, just before it gets its name.
            assert path.stat().st_mode & 0o077 == 0 or items_in(path, place.target.suffix) == POPULAR
    else:
        assert left == []
    if place.record.exists():
        assert place.record.stat().st_mode & 0o077 == 0
    assert list(place.temporary.iterdir()) == [], "spilled rows have no name"
    shown = [path for path in place.root.rglob("*") if path.is_file() and path not in place.parts]
    assert not CANARY.search(place.said.encode()), "a canary was printed"
    for path in shown:
        assert not CANARY.search(path.read_bytes()), f"a canary got into {path.name}"


def check_ledger(place, fault, code, events):
    """The ledger holds what was committed, and what was committed is right."""
    from dpunion.ledger import EntryState, Ledger

    granted = "reserved" in events and "cancelled" not in events
    if "reading" in events:
        assert granted, "data was read without a charge"
        assert events.index("reserved") < events.index("reading")
    if "replaced" in events:
        assert "reading" in events
    if granted and "started" not in events and code != KILLED:
        assert fault.stays_charged, "an error before reading gives the charge back"
    if place.ledger.is_file() and place.ledger.stat().st_nlink == 1 and fault.name not in NO_LEDGER:
        book = Ledger.open(place.ledger)
        assert book.verify().good
        entries = [entry for entry in book.overview().entries if entry.fingerprint != "something else"]
        assert [entry.charge.epsilon for entry in entries] == [CHARGE] * ("reserved" in events)
        assert sum(entry.state is not EntryState.CANCELLED for entry in entries) == granted
        if granted:
            assert (entries[0].state is EntryState.SETTLED) == ("settled" in events)
        assert not [entry for entry in entries if entry.dataset == "spare"]


NO_LEDGER = {"the ledger is empty", "the ledger is cut"}


def check_again(server, place, fault, events):
    """The same command once more: nothing is charged in silence, and paying for it gives a release."""
    asked = COUNTS if fault.more == COUNTS else ()
    code, later = server.run(place, None, *asked)
    if "settled" in events:
        assert (code, later) == (6, []), place.said
        assert "made before" in place.said
    elif "reserved" in events:
        assert (code, later) == (5, []), place.said
        assert "nothing more was charged" in place.said
        code, later = server.run(place, None, *asked, "--charge-again")
    if "settled" not in events:
        assert (code, later) == (0, CLEAN), place.said
        assert items_in(place.target) == POPULAR


FAULTS = all_faults()
EVERY = 10  # how many of the faults that are at no place of their own make one of the first run


def place_of(fault):
    """Return where a fault strikes, whatever it does there; None when it is not at a point of the program."""
    kind, *details = fault.fault or ("input",)
    if kind == "writer":
        return kind, fault.suffix
    named = () if fault.asked == "items" else (fault.asked,)
    return (kind, *details[:-1], *named) if kind in {"at", "sql", "progress"} else None


def first_run():
    """Return the names of the faults of the first run: one at every place, and a tenth of the others."""
    places = {}
    for fault in FAULTS:
        places.setdefault(place_of(fault), []).append(fault)
    elsewhere = places.pop(None)
    # Not always the first of a place, so that every kind of fault is among them.
    chosen = [found[number % len(found)] for number, found in enumerate(places.values())]
    return {fault.name for fault in (*chosen, *elsewhere[::EVERY])}


FIRST_RUN = first_run()


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, id=fault.name, marks=() if fault.name in FIRST_RUN else pytest.mark.full) for fault in FAULTS],
)
def test_a_complete_release_or_none(server, place, fault):
    place.aim(fault.suffix, fault.asked)
    if fault.old:
        place.target.write_bytes(OLD)
    fault.prepare(place)
    code, events = server.run(place, fault.fault or None, *fault.more)
    assert code in fault.codes, place.said
    assert "Traceback" not in place.said
    if code not in (0, KILLED) and fault.name != "standard error is closed":
        assert "Error: " in place.said
    place.undo.close()
    check_output(place, fault, code, events)
    check_leftovers(place, fault, code)
    check_ledger(place, fault, code, events)
    if code == KILLED:
        check_again(server, place, fault, events)


def test_there_are_many_faults():
    assert len(FAULTS) >= EXPECTED_COUNT
    kills = [fault for fault in FAULTS if KILLED in fault.codes]
    assert len(kills) >= 50


def test_the_first_run_has_a_fault_at_every_place():
    chosen = [fault for fault in FAULTS if fault.name in FIRST_RUN]
    assert len(chosen) < len(FAULTS) / 2
    assert {place_of(fault) for fault in chosen} == {place_of(fault) for fault in FAULTS}
    assert {place_of(fault) for fault in chosen} >= {("at", *boundary) for boundary in BOUNDARIES}
    assert {place_of(fault) for fault in chosen} >= {("sql", *statement) for statement in STATEMENTS}
    assert len([fault for fault in chosen if KILLED in fault.codes]) >= 20
    assert {130, 3, 4, 5} <= {code for fault in chosen for code in fault.codes}


# --- hostile content ----------------------------------------------------------------------------------------
HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "=cmd|'/C calc'!A0", "+1+1", "@SUM(A1)", "-2+3",
    "\x1b[31mred\x1b]0;title\x07", "../../etc/passwd", "/dev/null", "C:\\CON", "line\nbreak\rand\ttab", "\u202egnp.exe",
    "NULL", "'; DROP TABLE dpunion_ledger; --", "{{7*7}} ${x} %s %n",
)  # fmt: skip


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".jsonl", ".json", ".parquet", ".arrow"])
def test_hostile_items_are_only_items(server, place, suffix):
    from dpunion.releases.formats import restore_formula

    place.aim(suffix)
    rows = [(f"CanaryUser{i}", item) for i in range(300) for item in HOSTILE]
    for part in place.parts:
        part.write_bytes(as_parquet(rows))
    code, _ = server.run(place, None)
    assert code == 0, place.said
    raw = place.target.read_bytes()
    assert "\x1b" not in place.said
    found = items_in(place.target)
    match suffix:
        case ".txt":
            assert b"\x1b" not in raw
            assert len(found) == len(HOSTILE)
        case ".csv":
            assert all(cell[0] not in "=+-@\t\r" for cell in found)
            assert set(map(restore_formula, found)) == set(HOSTILE)
        case _:
            assert set(found) == set(HOSTILE)
    assert sorted(path.name for path in place.out.iterdir()) == sorted([place.target.name, place.record.name])


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".jsonl.gz"])
def test_huge_items_are_dropped_row_by_row(server, place, sources, suffix):
    place.aim(".txt")
    huge = "x" * 5_000_000
    rows = [*rows_of(1), *((f"CanaryUser{i:03}", f"{huge}Canary") for i in range(1, 4))]
    place.parts[1].unlink()
    place.parts[1] = place.root / f"part1{suffix}"
    place.parts[1].write_bytes(FORMATS[suffix](rows))
    code, events = server.run(place, None)
    assert code == 0, place.said
    assert events == CLEAN
    assert items_in(place.target) == POPULAR


# --- a fresh process ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("leaving", [["-n"], ["-r", "-n"]], ids=["as root", "as anybody"])
def test_a_fresh_process_needs_no_network_and_no_home(place, leaving):
    """Forks have loaded everything before; here loading too happens without network and home."""
    from dpunion.kernels.compiler import cache_directory

    if shutil.which("unshare") is None or subprocess.run(["unshare", *leaving, "true"], check=False).returncode:
        pytest.skip("leaving the network is not permitted here")
    place.aim(".parquet")
    compiled = cache_directory()
    environment = {"PATH": os.defpath, "HOME": "/nonexistent", "TMPDIR": str(place.temporary)}
    environment |= {"XDG_CACHE_HOME": str(compiled.parents[1])} if compiled else {}
    command = ["unshare", *leaving, sys.executable, "-c", CLI, *place.arguments()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    place.said = done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
    assert items_in(place.target) == POPULAR
    check_leftovers(place, FAULTS[0], 0)


# --- the check itself ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("events", "code"),
    [
        (["reading"], 3),
        (["reserved", "reading", "cancelled"], 3),
        (["reserved"], 3),
        (["reserved", "reading", "settled"], 0),
    ],
)
def test_the_check_sees_a_wrong_ledger(place, events, code):
    """The place's ledger has no entry, so each of these stories is a lie."""
    place.aim(".txt")
    with pytest.raises(AssertionError):
        check_ledger(place, Fault("a lie", (code,)), code, events)


def test_the_check_sees_canaries_and_leftovers(place):
    place.aim(".txt")
    fault = Fault("a leak", (3,))
    check_leftovers(place, fault, 3)
    outside = (place.root / "log", place.temporary / "rows", place.out / ".dpunion-a.tmp")
    for path in (*outside, place.ledger.with_name("log")):
        path.write_text("user CanaryUser001")
        with pytest.raises(AssertionError):
            check_leftovers(place, fault, KILLED)
        path.unlink()
    place.said = "user CanaryUser001"
    with pytest.raises(AssertionError):
        check_leftovers(place, fault, 3)
    place.target.write_text("popular")
    with pytest.raises(AssertionError):
        check_output(place, fault, 0, ["replaced", "settled"])


if __name__ == "__main__":
    serve()

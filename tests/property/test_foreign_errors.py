"""Errors of others become ours and leave nothing behind: neither cause nor context nor a frame that holds them."""

import ast
import builtins
import contextlib
import errno
import fcntl
import importlib
import os
import sqlite3
import tempfile
from pathlib import Path, PurePosixPath

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpunion
import dpunion_lab
from dpunion import errors, files, plans, samples
from dpunion.cli import records
from dpunion.engines.spark import sessions
from dpunion.errors import BadSource, DpunionError, ForeignErrors, LedgerError, system_reason
from dpunion.ledger import Ledger, events, fingerprints, postgres, schedules, sqlite
from dpunion.plans import ngrams
from dpunion.reading import blocks, drivers, jsonlines, locate, storage, tables
from dpunion.sets import spill
from dpunion.text import splitting, words
from dpunion_lab import reproduction, results

PACKAGE, LAB = Path(dpunion.__file__).parent, Path(dpunion_lab.__file__).parent
CANARY = "CanarySecret"
KINDS = [ValueError, KeyError, OSError, PermissionError, RuntimeError, pa.ArrowInvalid, UnicodeError]


def ours(_error):
    return BadSource("It cannot be read.", "Write it again.")


def refuse(*_args, **_options):
    raise OSError(errno.EIO, CANARY, CANARY)


def assert_clean(error):
    """Nothing of a foreign error is left: not in the text, nor in the chain, nor in the frames of dpunion."""
    assert CANARY not in f"{error} {error!r}"
    assert error.__cause__ is error.__context__ is None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith((str(PACKAGE), str(LAB))):
            held = [value for value in trace.tb_frame.f_locals.values() if isinstance(value, BaseException)]
            assert not [value for value in held if CANARY in repr(value)], trace.tb_frame.f_code.co_name
        trace = trace.tb_next


# --- the mechanism ------------------------------------------------------------------------------------------
def in_a_function(error, **options):
    with ForeignErrors(ours, **options):
        raise error


def in_a_generator(error, **options):
    def rows():
        with ForeignErrors(ours, **options):
            yield 1
            raise error

    list(rows())


def in_a_context_manager(error, **options):
    @contextlib.contextmanager
    def session():
        with ForeignErrors(ours, **options):
            yield

    with session():
        raise error


def in_two_of_them(error, **options):
    with ForeignErrors(ours, **options), ForeignErrors(ours, **options):
        raise error


def with_a_chain(error, **options):
    with ForeignErrors(ours, **options):
        try:
            int(CANARY)
        except ValueError as first:
            raise error from first


SHAPES = [in_a_function, in_a_generator, in_a_context_manager, in_two_of_them, with_a_chain]


@pytest.mark.parametrize("shape", SHAPES)
@given(st.sampled_from(KINDS))
def test_nothing_of_a_foreign_error_is_left(shape, kind):
    with pytest.raises(BadSource, match=r"^It cannot be read\. Write it again\.$") as caught:
        shape(kind(CANARY))
    assert_clean(caught.value)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interrupts_pass_unchanged(shape, kind):
    with pytest.raises(kind):
        shape(kind())


@pytest.mark.parametrize("shape", SHAPES)
def test_our_own_errors_pass_unless_they_are_meant_too(shape):
    error = LedgerError("The ledger is busy.", "Try again.")
    with pytest.raises(LedgerError) as caught:
        shape(error)
    assert caught.value is error
    with pytest.raises(BadSource):
        shape(LedgerError(CANARY, "Try again."), ours_too=True)


def test_other_kinds_pass_and_nothing_is_changed_without_an_error():
    with pytest.raises(KeyError), ForeignErrors(ours, OSError):
        raise KeyError
    with pytest.raises(OSError, match="kept"), ForeignErrors(lambda _: None, OSError):
        raise OSError("kept")
    with ForeignErrors(ours):
        pass


@given(st.sampled_from(sorted(errno.errorcode)))
def test_the_systems_reason_names_no_path(code):
    assert system_reason(OSError(code, CANARY, CANARY)) == os.strerror(code)
    assert system_reason(OSError(CANARY)) == "OSError"


# --- everybody who uses it ----------------------------------------------------------------------------------
def block(data):
    return blocks.Block(data, 1, "file 'a.jsonl'")


def event(details, kind="opened"):
    row = (1, kind, "d", 1, 0, 0, 0, 0, 0, "", details, "", "")
    assert len(row) == len(events.COLUMNS)
    return events.Event.from_row(row)


def without(monkeypatch, *modules):
    """Let the import of some modules fail, with a message that quotes."""

    def find(name, *_args, **_options):
        raise ImportError(CANARY)

    monkeypatch.setattr(importlib, "import_module", find)
    real = builtins.__import__

    def load(name, *args, **options):
        return find(name) if name.split(".")[0] in modules else real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", load)


def tokenizer(_text):
    raise LedgerError(CANARY, CANARY)


def bad_text():
    offsets = pa.py_buffer(b"\0\0\0\0\x02\0\0\0")
    values = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(b"\xff\xfe"))
    return pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), values)


def drive_postgres(monkeypatch, _place):
    store = postgres.PostgresStore("postgresql://user:CanarySecret@host/database")

    def begin(*, write):
        raise psycopg.OperationalError(CANARY)

    monkeypatch.setattr(store, "_begin", begin)
    with store.transaction(write=False):
        pass


def drive_sqlite(_monkeypatch, place):
    store = sqlite.SqliteStore(place / "b.db")
    store.prepare(create=True)
    with store.transaction(write=False):
        raise sqlite3.OperationalError(CANARY)


def drive_unsettled(monkeypatch, place):
    ledger = Ledger.open(place / "b.db", create=True)
    ledger.create_dataset("d", 1.0, 1e-6)
    plan = dpunion.plan("weighted-gaussian", epsilon=0.5, delta=1e-7)
    reservation = ledger.reserve("d", plan, "0" * 64)

    def close(*_args):
        raise LedgerError("It is busy.", CANARY)

    monkeypatch.setattr(ledger, "_close", close)
    reservation.settle(digest="0" * 64)


def drive_atomic_file(_monkeypatch, place):
    with files.atomic_file(place / "out.txt") as file:
        file.write(b"half")
        refuse()


def drive_session(monkeypatch, _place):
    pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    class Builder:
        """A builder whose session never comes."""

        def __getattr__(self, _name):
            return lambda *_args, **_named: self

        getOrCreate = refuse

    monkeypatch.setattr(sessions, "find_java", lambda: "Java 17")
    monkeypatch.setattr(SparkSession, "getActiveSession", staticmethod(lambda: None))
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    monkeypatch.setattr(SparkSession, "builder", Builder())
    sessions.open_session()


def patched(owner, name, call):
    """Return what lets one function of others fail, and then calls."""

    def drive(monkeypatch, place):
        monkeypatch.setattr(owner, name, refuse)
        call(place)

    return drive


def enter(context):
    with context:
        pass


def driven(call):
    return lambda _monkeypatch, _place: call()


def missing(*modules, call):
    def drive(monkeypatch, _place):
        without(monkeypatch, *modules)
        call()

    return drive


STORE = storage.ObjectStore("s3", None, PurePosixPath("bucket"), "s3://bucket")


DRIVERS = {
    "engines.spark.sessions.call_spark": driven(lambda: sessions.call_spark(refuse)),
    "engines.spark.sessions.open_session": drive_session,
    "engines.spark.sessions.guard_task.run": driven(lambda: list(sessions.guard_task(lambda _: map(refuse, [1]))([]))),
    "cli.records.record_configuration": lambda _, place: records.record_configuration(place / "none" / "a.toml", {}),
    "files.atomic_file": drive_atomic_file,
    "files.check_place": patched(Path, "is_dir", lambda place: files.check_place(place / "out", overwrite=False)),
    "lab.results._append": patched(results.os, "write", lambda place: results._append(place / "j", 0, "line")),
    "lab.results._take": patched(fcntl, "flock", lambda place: results._take(place / "j", 0)),
    "lab.results.open_journal": patched(results.os, "open", lambda place: enter(results.open_journal(place / "j"))),
    "lab.reproduction._journal_in": patched(
        Path, "mkdir", lambda place: enter(reproduction._journal_in(place / "results", overwrite=False))
    ),
    "ledger.events.Account.opened_by": driven(lambda: events.Account.opened_by(event(CANARY))),
    "ledger.events.Event.from_row": driven(lambda: event("", kind=CANARY)),
    "ledger.events._details": driven(lambda: events._details(event(CANARY))),
    "ledger.events.outputs_in": driven(lambda: events.outputs_in(CANARY)),
    "ledger.fingerprints.sha256_of": driven(lambda: fingerprints.sha256_of(Path(tempfile.gettempdir()))),
    "ledger.ledgers.Reservation.settle": drive_unsettled,
    "ledger.postgres.PostgresStore.transaction": drive_postgres,
    "ledger.postgres._database": missing("psycopg", call=lambda: postgres._database("postgresql://")),
    "ledger.schedules.as_day": driven(lambda: schedules.as_day(CANARY, "on")),
    "ledger.sqlite.SqliteStore._check_file": driven(lambda: sqlite.SqliteStore(Path("none", "b.db"))._check_file()),
    "ledger.sqlite.SqliteStore._make_file": patched(
        sqlite.os, "open", lambda place: sqlite.SqliteStore(place / "b.db")._make_file()
    ),
    "ledger.sqlite.SqliteStore._session": drive_sqlite,
    "plans.Plan.from_dict": driven(lambda: plans.Plan.from_dict({"noise": CANARY})),
    "plans.ngrams.NgramPlan.from_dict": driven(lambda: ngrams.NgramPlan.from_dict({"settings": CANARY})),
    "reading.blocks.check_text": driven(lambda: blocks.check_text(block(CANARY.encode() + b"\xff"))),
    "reading.drivers.ask": driven(lambda: drivers.ask(refuse, "database 'a'")),
    "reading.storage.look_at": driven(lambda: storage.look_at(refuse, Path("a"))),
    "errors.import_library": missing(call=lambda: samples.named_list("english")),
    "errors.attempt": driven(lambda: errors.attempt(refuse, "file 'a'")),
    "reading.jsonlines.load_line": driven(lambda: jsonlines.load_line(block(b""), 0, CANARY.encode())),
    "reading.tables.load_or_refuse": driven(lambda: tables.load_or_refuse(locate.DELTA, "a", refuse)),
    "reading.storage.ObjectStore._ask": driven(lambda: STORE._ask(refuse)),
    "reading.storage.open_store": patched(storage, "open_file_system", lambda _: storage.open_store("s3://b/logs")),
    "releases.release.Release.from_json": driven(lambda: dpunion.Release.from_json(f'"{CANARY}"')),
    "sets.spill.WaitingStore._spill": patched(tempfile, "TemporaryFile", lambda _: spill.RowStore(1)._spill()),
    "text.splitting.call_arrow": driven(lambda: splitting.call_arrow(pa.array([CANARY]).cast, pa.int64())),
    "text.splitting.call_tokenizer": driven(lambda: splitting.call_tokenizer(tokenizer, CANARY)),
    "text.words.flat_text": driven(lambda: words.flat_text(bad_text())),
}


def modules():
    """Yield each module of both packages, parsed, under its name inside the package; the lab's have lab before it."""
    for package, before in ((PACKAGE, ()), (LAB, ("lab",))):
        for path in package.rglob("*.py"):
            parts = (*before, *path.relative_to(package).with_suffix("").parts)
            yield ".".join(part for part in parts if part != "__init__"), ast.parse(path.read_text())


def users():
    """Yield the dotted names of the functions that say `with ForeignErrors`, or use it by `refuse_strange`."""
    contexts = ("ForeignErrors(", "refuse_strange(", "plans.refuse_strange(")

    def walk(node, name):
        for child in ast.iter_child_nodes(node):
            inside = f"{name}.{child.name}" if isinstance(child, ast.FunctionDef | ast.ClassDef) else name
            if isinstance(child, ast.With):
                yield from (name for item in child.items if ast.unparse(item).startswith(contexts))
            yield from walk(child, inside)

    for name, parsed in modules():
        yield from walk(parsed, name)


def test_everybody_who_uses_it_is_driven_here():
    assert sorted(set(users())) == sorted(DRIVERS)


@pytest.mark.parametrize("user", DRIVERS)
def test_nothing_of_a_foreign_error_is_left_by(user, monkeypatch, tmp_path):
    with pytest.raises(Exception) as caught:
        DRIVERS[user](monkeypatch, tmp_path)
    monkeypatch.undo()
    assert isinstance(caught.value, (DpunionError, events.BrokenChain, RuntimeError)), caught.value
    assert_clean(caught.value)


# --- nobody does without ------------------------------------------------------------------------------------
# Functions that still keep an error of their own to raise it later. The list may only get shorter.
BY_HAND = {
    "cli.answers.print_result", "cli.help._parse_toml", "cli.records.check_outputs", "plans.ngrams.NgramPlan.from_dict",
}  # fmt: skip


def by_hand(node):
    """Say whether a function keeps in a handler what it raises behind it."""
    for block_ in [value for child in ast.walk(node) for _, value in ast.iter_fields(child) if isinstance(value, list)]:
        for position, statement in enumerate(block_):
            if not isinstance(statement, ast.Try):
                continue
            kept = {
                target.id
                for handler in statement.handlers
                for each in ast.walk(handler)
                if isinstance(each, ast.Assign)
                for target in each.targets
                if isinstance(target, ast.Name)
            }
            raised = [
                each for later in block_[position + 1 :] for each in ast.walk(later) if isinstance(each, ast.Raise)
            ]
            if any(isinstance(name, ast.Name) and name.id in kept for each in raised for name in ast.walk(each)):
                return True
    return False


def functions(node, name):
    for child in ast.iter_child_nodes(node):
        inside = f"{name}.{child.name}" if isinstance(child, ast.FunctionDef | ast.ClassDef) else name
        if isinstance(child, ast.FunctionDef):
            yield inside, child
        yield from functions(child, inside)


def test_only_listed_functions_convert_errors_by_hand():
    found = {name for module, parsed in modules() for name, node in functions(parsed, module) if by_hand(node)}
    assert found <= BY_HAND

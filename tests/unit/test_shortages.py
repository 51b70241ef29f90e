"""Too little memory, or no further thread: one error with a remedy, whoever met it; fewer threads do the same work."""

import errno
import json
import pickle
import resource
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
import pytest
import rich.console

import dpunion
from dpunion import errors
from dpunion.engines.spark.sessions import MARK, call_spark, guard_task
from dpunion.threads import Threads, work_in_background, work_in_order, work_in_threads
from running import CLI, run_cli, run_python

CANARY = "CanarySecret"
COLUMNS = ("--user", "user", "--item", "item", "-e", "1", "-d", "1e-6")
PAIRS = [(f"u{number % 60}", f"w{number % 7}") for number in range(900)]


def caused(cause):
    """Return an error that says nothing of memory, raised from one that does."""
    error = ValueError(CANARY)
    error.__cause__ = cause
    return error


SHORTAGES = {
    "Python": MemoryError(CANARY),
    "numpy": np._core._exceptions._ArrayMemoryError((10**9,), np.dtype("f8")),
    "Arrow": pa.ArrowMemoryError(CANARY),
    "system": OSError(errno.ENOMEM, CANARY),
    "loader": ImportError(f"{CANARY}.so: failed to map segment from shared object"),
    "ctypes": OSError(f"{CANARY}.so: cannot create shared object descriptor: Cannot allocate memory"),
    "threads": RuntimeError(errors.NO_THREAD),
    "cause": caused(MemoryError()),
}
OTHERS = [
    ValueError("x"), OSError(errno.EIO, "Cannot allocate memory"), ImportError("No module named 'x'"),
    RuntimeError("x"), KeyboardInterrupt(), errors.NotEnoughMemory("There is none.", "Get some."),
    errors.BadSource("It is bad.", "Mend it."),
]  # fmt: skip


@pytest.mark.parametrize("error", SHORTAGES.values(), ids=SHORTAGES)
def test_every_lack_of_memory_is_the_same_error(error):
    with (
        pytest.raises(errors.NotEnoughMemory) as caught,
        errors.ForeignErrors(lambda _: errors.BadSource("It is damaged.", "Copy it.")),
    ):
        raise error
    failure = caught.value
    assert (failure.exit_code, isinstance(failure, MemoryError)) == (3, True)
    assert CANARY not in str(failure)
    assert failure.__cause__ is failure.__context__ is None
    assert str(pickle.loads(pickle.dumps(failure))) == str(failure)


@pytest.mark.parametrize("error", OTHERS, ids=repr)
def test_other_errors_are_no_lack_of_memory(error):
    assert errors.find_shortage(error) is None
    with pytest.raises(type(error)) as caught, errors.name_shortages():
        raise error
    assert caught.value is error


def test_the_note_about_the_charge_is_kept():
    error = MemoryError()
    error.add_note(CANARY)
    error.add_note(errors.LedgerNote("The charge stays.", {"charged": True}))
    shortage = errors.find_shortage(error)
    assert shortage.__notes__ == ["The charge stays."]
    assert errors.ledger_note(shortage).facts == {"charged": True}


def test_shortages_name_the_source_or_the_thread():
    assert "memory to read file 'a.csv'." in str(errors.find_shortage(MemoryError(), "file 'a.csv'"))
    assert "refused to start another thread" in str(errors.find_shortage(RuntimeError(errors.NO_THREAD)))


# --- readers ------------------------------------------------------------------------------------------------
@pytest.fixture
def files(tmp_path):
    table = pa.table({"user": [u for u, _ in PAIRS], "item": [i for _, i in PAIRS]})
    pq.write_table(table, tmp_path / "a.parquet")
    pa.csv.write_csv(table, tmp_path / "a.csv")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"user": u, "item": i}) + "\n" for u, i in PAIRS))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "module", "function"),
    [("a.csv", pyarrow.csv, "read_csv"), ("a.jsonl", pyarrow.json, "read_json"), ("a.parquet", pq, "ParquetFile")],
)
def test_readers_without_memory_call_no_file_damaged(files, monkeypatch, name, module, function):
    def fail(*_args, **_options):
        raise pa.ArrowMemoryError(CANARY)

    monkeypatch.setattr(module, function, fail)
    result = run_cli("release", files / name, *COLUMNS, "--json")
    values = json.loads(result.stdout)
    assert (result.exit_code, values["code"], values["error"]) == (3, 3, "NotEnoughMemory")
    assert "--memory-limit" in values["remedy"]
    assert not {"damaged", "bug", CANARY} & set(result.output.replace(".", " ").split())


def test_a_frame_without_memory_is_not_called_unreadable(monkeypatch):
    class Frame:
        def __arrow_c_stream__(self, requested_schema=None):
            raise MemoryError(CANARY)

    with pytest.raises(errors.NotEnoughMemory):
        dpunion.release(Frame(), user="user", item="item", epsilon=1.0, delta=1e-6)


def test_a_task_on_spark_sends_the_error_to_the_driver():
    def task(_batches):
        yield 1
        raise MemoryError(CANARY)

    with pytest.raises(RuntimeError, match=MARK) as caught:
        list(guard_task(task)([]))
    with pytest.raises(errors.NotEnoughMemory):
        call_spark(lambda: list(guard_task(task)([])))
    assert CANARY not in str(caught.value)


# --- threads ------------------------------------------------------------------------------------------------
@pytest.fixture(params=[0, 1, 2])
def few_threads(request, monkeypatch):
    """The system gives this many threads, and then no further one."""
    given, real = [], threading.Thread.start

    def start(thread):
        if len(given) >= request.param:
            raise RuntimeError(errors.NO_THREAD)
        given.append(thread)
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    return request.param


def test_fewer_threads_do_all_the_work(few_threads):
    assert list(work_in_order(lambda x: x * x, range(100), 4)) == [x * x for x in range(100)]
    done = []
    work_in_threads(done.append, range(100), 4)
    assert sorted(done) == [*range(100)]
    with work_in_background(lambda: 5, 4) as task:
        assert task.result() == 5


def test_with_fewer_threads_the_first_error_is_raised_in_its_place(few_threads):
    def work(x):
        if x in (3, 5):
            raise ValueError(x)
        return x

    made = []
    with pytest.raises(ValueError, match="3"):
        made.extend(work_in_order(work, range(10), 4))
    with pytest.raises(ValueError, match="3"):
        work_in_threads(work, range(10), 4)
    with Threads(4) as pool:
        assert pool.submit(work, 3) is not None  # an error that nobody asks for is not raised


def test_an_interrupt_of_work_in_the_callers_thread_passes(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    def start(_thread):
        raise MemoryError

    monkeypatch.setattr(threading.Thread, "start", start)
    with Threads(2) as pool, pytest.raises(KeyboardInterrupt):
        pool.submit(interrupted)


def test_a_release_is_the_same_with_fewer_threads(files, few_threads):
    options = {"user": "user", "item": "item", "epsilon": 1.0, "delta": 1e-6, "unsafe_test_key": 1}
    few = dpunion.release(files / "a.csv", run=dpunion.Run(threads=4), **options)
    one = dpunion.release(files / "a.csv", run=dpunion.Run(threads=1), **options)
    assert few.items == one.items
    assert one.items


# --- the command line ---------------------------------------------------------------------------------------
def test_an_error_is_printed_plainly_where_rich_finds_no_memory(files, monkeypatch):
    def fail(*_args, **_options):
        raise MemoryError(CANARY)

    monkeypatch.setattr(rich.console, "Console", fail)
    result = run_cli("release", files / "none.csv", *COLUMNS, "--json")
    assert result.exit_code == 3
    assert result.stderr.startswith("Error: There is no file ")
    assert json.loads(result.stdout)["error"] == "SourceNotFound"


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on addresses means the same on Linux only")
@pytest.mark.parametrize("megabytes", [70, 150, 300])
def test_a_process_with_little_memory_says_so_in_json(files, megabytes):
    """From the import of the first modules to that of the compiler."""
    limit = megabytes << 20
    limited = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))}
    done = run_python(CLI, "release", files / "a.csv", *COLUMNS, "--json", **limited)
    assert done.returncode == 3, done.stderr
    values = json.loads(done.stdout)
    assert (values["error"], values["code"], values["version"]) == ("NotEnoughMemory", 3, dpunion.__version__)
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("Error: There is not enough memory")

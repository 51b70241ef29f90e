"""The command line: release | ngrams | plan | report | ledger | audit | lab | demo.

Exit codes: 0 done; 1 a bug in dpunion; 2 a bad option or parameter; 3 the data cannot be read as asked, or memory is
short; 4 the output cannot be written; 5 the ledger refused, or an
audit found a violation; 6 the release was made before and is where it was asked for; 130 interrupted.

Everything heavy is imported inside the commands, so that --help answers at once.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from dpunion import __version__
from dpunion.errors import find_shortage, ledger_note

if TYPE_CHECKING:
    from dpunion.errors import NotEnoughMemory

__all__ = ["RELEASE_HELP", "app", "main"]

INTERRUPTED = 130
FEWEST_COLUMNS = 20
PR_SET_DUMPABLE = 4
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
LARGEST_PIECE = 32 << 20
"""What memory allocation takes from the heap at most; more than this it does not allow."""
UNFLUSHED = 120
"""What Python itself says when its streams cannot be flushed at the end."""
ended: list[bool] = []
"""Holds something once a command has ended: what it answered stands, whatever signal comes then."""
missed: list[int] = []
"""Signals that came then. If it was no more than a beginning, such as reading options, the next one is interrupted."""


def __getattr__(name: str) -> Any:
    """Put the commands together when somebody asks for them, and not before main listens to signals."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dpunion.cli import everything

    return getattr(everything, name)


def main() -> NoReturn:
    """Run the command line, and leave at once when it is done."""
    ended.clear()
    missed.clear()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as SIGINT is in a background job, SIGHUP under nohup
            signal.signal(number, _interrupt_outside)
    # An interrupt, or a fault, in a finaliser is not raised but printed, with a traceback and with what was at hand.
    sys.unraisablehook = lambda _unraisable: None
    # Importing makes more than a hundred thousand objects that stay; looking through them for garbage finds none.
    gc.set_threshold(250_000)
    _dump_no_core()
    _use_one_heap()
    # Nothing here multiplies matrices, and the threads for that turn round and round for a while once they are made.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # In so few columns rich cuts every word, and in none it prints nothing.
    if os.environ.get("COLUMNS", "").isdecimal() and int(os.environ["COLUMNS"]) < FEWEST_COLUMNS:
        del os.environ["COLUMNS"]
    _fill_closed_streams()
    code: object = 0
    try:
        from dpunion.cli import commands

        code = commands.run()
    except SystemExit as leaving:
        code = leaving.code
    except Exception as error:
        shortage = find_shortage(error)
        if shortage is None:
            raise
        code = _tell_shortage(shortage)
    _leave(code)


def _tell_shortage(shortage: NotEnoughMemory) -> int:
    """Say that memory ran out where no command can: before it has begun, or while it answers."""
    note = ledger_note(shortage)
    charge = str(note or "If a ledger was named, `dpunion ledger show` says whether it was charged.")
    with contextlib.suppress(OSError):
        os.write(2, f"Error: {shortage.what}\n  {shortage.remedy}\n  {charge}\n".encode())
        if "--json" in sys.argv[1:]:
            values = {"version": __version__, "error": type(shortage).__name__, "code": shortage.exit_code}
            values |= {"message": shortage.what, "remedy": shortage.remedy, "charge": charge}
            values["ledger"] = None if note is None else note.facts
            os.write(1, json.dumps(values).encode() + b"\n")
    return shortage.exit_code


def _fill_closed_streams() -> None:
    """Put nothing in the place of streams that were closed before we started.

    subtle: the next file that is opened would get the number of standard error, and what a library says there would be
    written into it. sys.stdout stays None where there was none, so that a release is not printed to nowhere.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - a stream of the process


def _dump_no_core() -> None:
    """Keep people's data in memory out of core dumps, and other processes of this user out of the memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def _use_one_heap() -> None:
    """Let all threads, and Arrow, take memory from one heap, so that what one of them frees serves the others.

    Fresh memory is cleared page by page by the system: some tenths of a second more at 77 million pairs. Arrow's own
    heap keeps what a thread has freed for that thread.
    """
    if sys.platform == "linux":
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        with contextlib.suppress(AttributeError):  # a C library without this setting
            library = ctypes.CDLL(None)
            library.mallopt(M_ARENA_MAX, 1)
            # Otherwise it gives large pieces back to the system as soon as they are free.
            library.mallopt(M_MMAP_THRESHOLD, LARGEST_PIECE)
            library.mallopt(M_TRIM_THRESHOLD, 2 * LARGEST_PIECE)


def _interrupt_outside(number: int, _frame: object) -> None:
    """Leave at once before a command begins, when nothing is to be cleaned up; after it, its answer stands."""
    if not ended:
        with contextlib.suppress(OSError):
            os.write(2, b"Error: Interrupted.\n  Nothing was released and nothing is left behind.\n")
        os._exit(INTERRUPTED)
    missed.append(number)


def _leave(code: object) -> NoReturn:
    """End the process without taking every library apart first, which takes a sixth of a second.

    What must be done is done before: outputs are closed by whoever opened them, exit handlers are run, streams flushed.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - the interpreter's own way, which os._exit leaves out
    status = code if isinstance(code, int) else int(code is not None)
    if isinstance(code, str) and sys.stderr is not None:
        sys.stderr.write(code + "\n")
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            status = status or UNFLUSHED
    os._exit(status & 0xFF)

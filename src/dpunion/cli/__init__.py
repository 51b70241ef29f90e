"""The command line: release | ngrams | plan | report | ledger | audit | lab | demo.

Exit codes: 0 done; 1 a bug in dpunion; 2 a bad option or parameter; 3 the data cannot be read, or memory is short;
4 the output cannot be written; 5 the ledger refused, or an audit found a violation; 6 the release was made before and
its output is in place; 7 a schedule has no release on this day; 130 interrupted.

Commands import heavy libraries when they run, so that --help answers at once.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import mmap
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from dpunion import __version__
from dpunion.errors import find_shortage, ledger_note

if TYPE_CHECKING:
    from dpunion.errors import NotEnoughMemory

__all__ = ["app", "main"]

INTERRUPTED = 130
FEWEST_COLUMNS = 20
PR_SET_DUMPABLE = 4
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
LARGEST_PIECE = 32 << 20  # the largest piece of memory that comes from the heap; the C library allows no larger limit
LEAST_MEMORY = 128 << 20
UNFLUSHED = 120
"""The exit code of Python itself when its streams cannot be flushed at the end."""
ended: list[bool] = []
"""Not empty once a command has ended: its answer is valid, and later signals do not change it."""
missed: list[int] = []
"""Signals that arrived after the end. If only one part, such as parsing options, had ended, they end the next one."""


def __getattr__(name: str) -> Any:
    """Import the commands at their first use, so that `main` handles signals before."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dpunion.cli.commands import app

    return app


def main() -> NoReturn:
    """Run the command line, and leave as soon as it is done."""
    ended.clear()
    missed.clear()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as SIGINT is in a background job, SIGHUP under nohup
            signal.signal(number, _interrupt_outside)
    # Python prints an interrupt or an error in a finaliser, with a traceback and with values that may be private.
    sys.unraisablehook = lambda _unraisable: None
    # Imports make more than a hundred thousand objects that stay; the garbage collector would search them in vain.
    gc.set_threshold(250_000)
    # Keep people's data out of core dumps, and keep other processes of this user from reading our memory.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        _use_one_heap()
    # dpunion multiplies no matrices, and numpy's threads for that would spin for a while after the import.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # With so few columns rich cuts every word, and with none it prints nothing.
    if os.environ.get("COLUMNS", "").isdecimal() and int(os.environ["COLUMNS"]) < FEWEST_COLUMNS:
        del os.environ["COLUMNS"]
    _fill_closed_streams()
    code: object = 0
    try:
        # numpy's OpenBLAS ends the process if it gets no memory. Ask for more than it needs first, to say so ourselves.
        mmap.mmap(-1, LEAST_MEMORY).close()
        from dpunion.cli import commands

        code = commands.run()
    except SystemExit as leaving:
        code = leaving.code
    except Exception as error:
        shortage = find_shortage(error)
        if shortage is None:
            raise
        code = _report_shortage(shortage)
    _leave(code)


def _report_shortage(shortage: NotEnoughMemory) -> int:
    """Report that memory ran out where no command can: before it begins, or while it prints its answer."""
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
    """Open /dev/null for each standard stream that was closed before we started.

    subtle: otherwise the next file that is opened would get the number of standard error, and messages of libraries
    would end up in it. sys.stdout stays None, so that a release is refused rather than printed to nowhere.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - stays open as long as the process


def _use_one_heap() -> None:
    """Let all threads, and Arrow, share one heap, so that memory that one of them frees serves the others.

    The system clears fresh memory page by page, which takes some tenths of a second more at 77 million pairs. Arrow's
    default heap keeps the memory that a thread has freed for that thread.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    with contextlib.suppress(AttributeError):  # a C library without this setting
        library = ctypes.CDLL(None)
        library.mallopt(M_ARENA_MAX, 1)
        # Otherwise the C library gives large pieces back to the system as soon as they are free.
        library.mallopt(M_MMAP_THRESHOLD, LARGEST_PIECE)
        library.mallopt(M_TRIM_THRESHOLD, 2 * LARGEST_PIECE)


def _interrupt_outside(number: int, _frame: object) -> None:
    """Leave at once before a command begins, when there is nothing to clean up; after it, only note the signal."""
    if not ended:
        with contextlib.suppress(OSError):
            os.write(2, b"Error: Interrupted.\n  Nothing was released and nothing is left behind.\n")
        os._exit(INTERRUPTED)
    missed.append(number)


def _leave(code: object) -> NoReturn:
    """End the process without the interpreter's cleanup of all modules, which takes a sixth of a second.

    All that matters is done before: outputs are closed by their writers; exit handlers run and streams are flushed
    here.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - as the interpreter does, but os._exit does not
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

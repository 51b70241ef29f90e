"""What a person sees: errors as two sentences and an exit code, progress on a terminal, results on standard output."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, ParamSpec

import typer

import dpunion
from dpunion.cli import INTERRUPTED, ended, missed
from dpunion.cli.terminal import is_terminal, wrap
from dpunion.errors import (
    AlreadyReleased,
    BadSource,
    CannotWrite,
    DpunionError,
    InternalError,
    LedgerError,
    find_shortage,
    ledger_note,
)
from dpunion.kernels import listening
from dpunion.threads import INTERRUPTS

P = ParamSpec("P")

COMPILING = "compiling"
ONCE = "Compiling, once on this machine: up to half a minute. 'dpunion warm-up' does it in advance."
AGAIN = (
    "The ledger refuses the same command from now on (exit code 5); --charge-again makes the release and charges it "
    "again."
)
PIPED_AGAIN = "The next run will be charged again."

_interrupts: list[int] = []
_stages: list[str] = []
_asked: dict[str, bool] = {}
"""Which of the options that change every answer the running command has: json, quiet, ledger, piped (standard input);
and whether it said that it compiles."""


def answering(command: Callable[P, None]) -> Callable[P, None]:
    """Turn what a command raises into one clear message and its exit code; private values never show."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        _interrupts.clear()
        _stages.clear()
        _asked.update(json=bool(kwargs.get("as_json")), quiet=bool(kwargs.get("quiet")), compiles=False)
        _asked.update(ledger=kwargs.get("ledger") is not None, piped=kwargs.get("source") == ["-"])
        ended.clear()
        warnings.showwarning = _show_warning
        try:
            with _listening(), listening(_tell_compiling):
                command(*args, **kwargs)
        except typer.Exit:
            raise
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the text of an unknown error may be private
            _explain(error)

    return wrapped


def _explain(error: BaseException) -> NoReturn:
    """Say what ended a command, what became of a charge, and what to do."""
    charge = _what_was_charged(error)
    shortage = find_shortage(error)
    if shortage is not None:
        # What the failed calls still hold is needed for the answer.
        traceback.clear_frames(error.__traceback__)
        error = shortage
    match error:
        case DpunionError():
            # A bad option promises that nothing was charged.
            note = ledger_note(error)
            was_charged = note is not None and note.facts.get("charged") is True
            code = max(error.exit_code, BadSource.exit_code) if was_charged else error.exit_code
            fail(error.what, error.remedy, code, charge, error)
        case InternalError():
            fail(str(error), "", error.exit_code, charge, error)
        case BrokenPipeError():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            note = ledger_note(error)
            if note is None or note.facts.get("delivered"):
                raise typer.Exit(0) from None
            what = "Standard output was closed before all items were written to it."
            fail(what, "Write to a file with --out.", CannotWrite.exit_code, charge, error)
        case _ if _interrupts or isinstance(error, KeyboardInterrupt):
            fail("Interrupted.", _what_is_left(), INTERRUPTED, charge, error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    fail(
        f"Unexpected {type(error).__name__} at {Path(place.filename).name}:{place.lineno}. Its message is not "
        "shown, as it may contain private values.",
        "This is a bug in dpunion: please report this line. No release was made.",
        InternalError.exit_code,
        charge,
        error,
    )


@contextlib.contextmanager
def _listening() -> Iterator[None]:
    """Let signals interrupt what is inside; before and after they are for whoever had them."""
    handlers = [(number, signal.getsignal(number)) for number in INTERRUPTS]
    # A signal that was ignored from the start stays ignored: SIGINT in a background job, SIGHUP under nohup.
    before = [(number, handler) for number, handler in handlers if handler is not signal.SIG_IGN]
    try:
        for number, _ in before:
            signal.signal(number, _interrupt)
        while missed:
            _interrupt(missed.pop(), None)
        yield
    finally:
        ended.append(True)
        for number, handler in before:
            signal.signal(number, handler)


def keep_signals() -> None:
    """Let no library take signals: Arrow does while it parses in the main thread, and loses one of some hundred."""
    import pyarrow as pa

    pa.enable_signal_handlers(False)


def _what_is_left() -> str:
    if "writing" in _stages:
        return "The run was writing already: any output file that exists is complete."
    return "Nothing was released, and no files were left behind."


def _what_was_charged(error: BaseException) -> str:
    """Return the sentences about the ledger that an error ends with."""
    note = ledger_note(error)
    if note is None:
        # A refusal of the ledger says it itself; from the writing on, a charge may have been settled already.
        unclear = isinstance(error, LedgerError) or "writing" in _stages
        return "Nothing was charged." if _asked.get("ledger") and not unclear else ""
    lost = note.facts.get("charged") and not note.facts.get("delivered")
    again = PIPED_AGAIN if _asked.get("piped") else AGAIN
    return f"{note} {again}" if lost else str(note)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print our warnings as one line; those of libraries are for developers."""
    if type(message).__module__.startswith("dpunion"):
        typer.echo(wrap(f"Note: {message}", sys.stderr), err=True)


def _interrupt(number: int, _frame: object) -> NoReturn:
    """Raise KeyboardInterrupt, and remember it: pyarrow swallows one that comes while it looks for pandas."""
    _interrupts.append(number)
    raise KeyboardInterrupt


def step(stage: str, _done: float | None = None) -> None:
    """Remember the stage, and notice an interrupt that a library swallowed."""
    _stages.append(stage)
    del _stages[:-1]
    if stage == COMPILING:
        _tell_compiling(begins=True)
    if _interrupts:
        raise KeyboardInterrupt


def _tell_compiling(begins: bool) -> None:
    """Say that kernels are compiled, where no bar shows it."""
    if begins and not _asked.get("compiles"):
        _asked["compiles"] = True
        say(ONCE)


def say(text: str) -> None:
    """Print to standard error, if there is one and it is wanted: once a release is made, nothing may fail any more."""
    if not _asked.get("quiet"):
        with contextlib.suppress(OSError):
            typer.echo(wrap(text, sys.stderr), err=True)


def say_lines(lines: Iterable[str]) -> None:
    """Print lines of a table to standard error as they are."""
    if not _asked.get("quiet"):
        with contextlib.suppress(OSError):
            typer.echo("\n".join(lines), err=True)


def is_watched() -> bool:
    """Say whether a person watches standard error, and wants to."""
    return is_terminal(sys.stderr) and not _asked.get("quiet")


def fail(what: str, remedy: str, code: int, charge: str = "", error: BaseException | None = None) -> NoReturn:
    """Print what was wrong and what to do about it, and leave with the exit code.

    With --json the same is one JSON object on standard output, which is what machines read.
    """
    with contextlib.suppress(OSError):
        _print_error([f"Error: {what}", *(f"  {line}" for line in (remedy, charge) if line)])
    if _asked.get("json"):
        values: dict[str, Any] = {"error": type(error).__name__, "code": code, "message": what, "remedy": remedy}
        note = None if error is None else ledger_note(error)
        values |= {"charge": charge, "ledger": None if note is None else note.facts}
        if isinstance(error, AlreadyReleased):
            values |= made_before(error)
        with contextlib.suppress(OSError, CannotWrite):
            print_json(values)
    raise typer.Exit(code) from None


def _print_error(lines: list[str]) -> None:
    """Print an error to standard error, its first word in red; plainly where there is no memory for that."""
    try:
        from rich.console import Console
        from rich.text import Text

        console = Console(stderr=True, soft_wrap=True, highlight=False)
        texts = [Text(wrap(line, sys.stderr)) for line in lines]
        texts[0].stylize("bold red", 0, len("Error: "))
        shown = Text("\n").join(texts)
    except Exception as failure:
        if find_shortage(failure) is None:
            raise
        sys.stderr.write("\n".join(lines) + "\n")
    else:
        console.print(shown)


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[str, float | None], None]]:
    """Show a bar on a terminal's stderr, nothing elsewhere; each step is also where a lost interrupt is noticed.

    Guarantees: it shows the stage, how long it takes, and of the input's bytes the part that was read: nothing else.
    """
    if not is_watched():
        yield step
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    share = TextColumn("{task.fields[share]:>4}")
    columns = (SpinnerColumn(), TextColumn("{task.description:<16}"), BarColumn(), share, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("planning", total=None, share="")

        def show(stage: str, done: float | None) -> None:
            if stage == COMPILING and not _asked.get("compiles"):
                _asked["compiles"] = True
                bar.console.print(wrap(ONCE, sys.stderr), highlight=False, markup=False)
            is_new = _stages != [stage]
            step(stage)
            bar.update(
                task,
                description=stage,
                completed=done or 0.0,
                total=None if done is None else 1.0,
                share="" if done is None else f"{100.0 * done:.0f} %",
                refresh=is_new,
            )

        with listening(lambda begins: show(COMPILING if begins else "planning", None)):
            yield show


def check_standard_output() -> None:
    """Refuse, before anything is charged, to print where nothing can be printed."""
    if sys.stdout is None:
        raise CannotWrite("There is no standard output.", "Open it, or write to a file with --out.")


def print_result(text: str) -> None:
    """Write to standard output as UTF-8, whatever the locale; a full disk behind it is the user's to mend."""
    check_standard_output()
    problem: str | None = None
    try:
        typer.echo(text.encode("utf-8", "surrogateescape"), nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else type(error).__name__
    if problem is not None:
        raise CannotWrite(f"Writing to standard output failed: {problem}.", "Free some space, or use --out.")


def print_json(values: dict[str, Any]) -> None:
    """Print one JSON object for machines, with the version that made it."""
    print_result(json.dumps({"version": dpunion.__version__} | values, ensure_ascii=False, indent=1) + "\n")


def made_before(already: AlreadyReleased) -> dict[str, Any]:
    """Return for machines what the ledger knows of a release that was made before."""
    from dpunion.ledger import is_intact

    files = [
        {"path": path, "sha256": digest, "intact": is_intact((path, digest))}
        for path, digest in already.outputs
        if path
    ]
    return {
        "already_released": True,
        "entry": already.entry,
        "files": files,
        "source_changed": already.source_changed,
    }

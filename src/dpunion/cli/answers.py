"""What a person sees: errors as two sentences and an exit code, progress on a terminal, results on standard output."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NoReturn

import click
from click.exceptions import Exit

import dpunion
from dpunion import errors
from dpunion.cli import INTERRUPTED, ended, missed
from dpunion.errors import CannotWrite, InternalError, find_note, find_shortage
from dpunion.kernels import on_compiling
from dpunion.threads import INTERRUPTS

COMPILING = "compiling"
ONCE = "Compiling, once on this machine: up to half a minute. 'dpunion warm-up' does it in advance."
AGAIN = (
    "The ledger refuses the same command from now on (exit code 5); --charge-again makes the release and charges it "
    "again, if the budget allows."
)
PIPED_AGAIN = "The next run will be charged again."
WROTE = "The run was writing already: any output file that exists is complete."
NOTHING_LEFT = "Nothing was released, and no files were left behind."

USUAL, NARROWEST, WIDEST = 80, 40, 120
"""The width for a terminal that reports none, and the smallest and largest width to which texts are wrapped."""


@dataclass
class Running:
    """The running command: the options that change every answer, its stage, and the signals it got."""

    as_json: bool = False
    quiet: bool = False
    has_ledger: bool = False
    is_piped: bool = False
    stage: str = ""
    said_compiling: bool = False
    interrupts: list[int] = field(default_factory=list)


running = Running()


@contextlib.contextmanager
def answering(given: Mapping[str, Any]) -> Iterator[None]:
    """Run a command with these options: turn each error into one clear message and an exit code.

    Guarantees: no message carries a private value.
    """
    global running  # noqa: PLW0603 - one command runs at a time
    running = Running(
        as_json=bool(given.get("as_json")),
        quiet=bool(given.get("quiet")),
        has_ledger=given.get("ledger") is not None,
        is_piped=given.get("source") == ("-",),
    )
    ended.clear()
    warnings.showwarning = _show_warning
    # A signal that was ignored from the start stays ignored: SIGINT in a background job, SIGHUP under nohup.
    previous = {each: handler for each in INTERRUPTS if (handler := signal.getsignal(each)) is not signal.SIG_IGN}
    try:
        try:
            for number in previous:
                signal.signal(number, _interrupt)
            while missed:
                _interrupt(missed.pop(), None)
            with on_compiling(lambda begins: _say_compiling(say, begins=begins)):
                yield
        finally:
            ended.append(True)
            for number, handler in previous.items():
                signal.signal(number, handler)
    except Exit:
        raise
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the text of an unknown error may be private
        _explain(error)


def explain_late_interrupt(error: BaseException) -> int:
    """Explain an interrupt that `answering` could not catch, and return the exit code.

    subtle: `with` calls a Python function of contextlib at its begin and end, and a signal is often delivered there,
    because none is delivered while the frames before it free their memory.
    """
    ended.append(True)
    try:
        _explain(error)
    except Exit as leaving:
        return leaving.exit_code


def _explain(error: BaseException) -> NoReturn:
    """Say what ended a command, what became of a charge, and what to do."""
    charge = _explain_charge(error)
    shortage = find_shortage(error)
    if shortage is not None:
        # The answer needs the memory that the variables of the failed calls still use.
        traceback.clear_frames(error.__traceback__)
        error = shortage
    match error:
        case errors.DpunionError():
            # The code of a bad option promises that nothing was charged.
            note = find_note(error)
            was_charged = note is not None and note.facts.get("charged") is True
            code = max(error.exit_code, errors.BadSource.exit_code) if was_charged else error.exit_code
            fail(error.what, error.remedy, code, charge, error)
        case InternalError():
            fail(str(error), "", error.exit_code, charge, error)
        case BrokenPipeError():
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            note = find_note(error)
            if note is None or note.facts.get("delivered"):
                raise Exit(0) from None
            what = "Standard output was closed before all items were written to it."
            fail(what, "Write to a file with --out.", CannotWrite.exit_code, charge, error)
        case _ if running.interrupts or isinstance(error, KeyboardInterrupt):
            is_writing = running.stage == "writing"
            fail("Interrupted.", WROTE if is_writing else NOTHING_LEFT, INTERRUPTED, charge, error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    fail(
        f"Unexpected {type(error).__name__} at {Path(place.filename).name}:{place.lineno}. Its message is not "
        "shown, as it may contain private values.",
        "This is a bug in dpunion: please report this line. No release was made.",
        InternalError.exit_code,
        charge,
        error,
    )


def _explain_charge(error: BaseException) -> str:
    """Return the sentences about the ledger that an error ends with."""
    note = find_note(error)
    if note is None:
        # A ledger's refusal speaks for itself. Once a run is writing, its charge may have been settled.
        unclear = isinstance(error, errors.LedgerError) or running.stage == "writing"
        return "Nothing was charged." if running.has_ledger and not unclear else ""
    lost = note.facts.get("charged") and not note.facts.get("delivered")
    again = PIPED_AGAIN if running.is_piped else AGAIN
    return f"{note} {again}" if lost else str(note)


def fail(what: str, remedy: str, code: int, charge: str = "", error: BaseException | None = None) -> NoReturn:
    """Print the problem and its remedy, and leave with the exit code.

    With --json, programs get the same as one JSON object on standard output.
    """
    label = "" if isinstance(error, errors.NotDue) else "Error: "  # most runs of a schedule end so
    text = wrap("\n  ".join(line for line in (label + what, remedy, charge) if line), sys.stderr)
    has_colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if label and has_colour:  # click removes colours for programs
        text = click.style("Error:", fg="red", bold=True) + text.removeprefix("Error:")
    with contextlib.suppress(OSError):
        click.echo(text, err=True)
    if running.as_json:
        values: dict[str, Any] = {"error": type(error).__name__, "code": code, "message": what, "remedy": remedy}
        note = None if error is None else find_note(error)
        values |= {"charge": charge, "ledger": None if note is None else note.facts}
        if isinstance(error, errors.NotDue):
            values |= {"next_day": error.next_day, "complete": error.complete}
        if isinstance(error, errors.AlreadyReleased):
            from dpunion.ledger.fingerprints import describe_earlier

            values |= describe_earlier(error)
        with contextlib.suppress(OSError, CannotWrite):
            print_json(values)
    raise Exit(code) from None


def _interrupt(number: int, _frame: object) -> None:
    """Raise KeyboardInterrupt, and remember it: pyarrow swallows one that arrives while it looks for pandas."""
    if ended:
        missed.append(number)
        return
    running.interrupts.append(number)
    raise KeyboardInterrupt


def say(text: str) -> None:
    """Print to standard error unless --quiet is given; a closed stream is ignored, as the release is made by then."""
    say_lines([wrap(text, sys.stderr)])


def say_lines(lines: Iterable[str]) -> None:
    """Print lines to standard error without wrapping them."""
    if not running.quiet:
        with contextlib.suppress(OSError):
            click.echo("\n".join(lines), err=True)


def is_watched() -> bool:
    """Say whether a person watches standard error, and did not ask for --quiet."""
    return is_terminal(sys.stderr) and not running.quiet


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print warnings of dpunion as one line; those of libraries are for developers."""
    if type(message).__module__.startswith("dpunion"):
        click.echo(wrap(f"Note: {message}", sys.stderr), err=True)


def step(stage: str, _done: float | None = None) -> None:
    """Remember the stage, say that kernels are compiled, and notice an interrupt that a library swallowed."""
    running.stage = stage
    if stage == COMPILING:
        _say_compiling(say)
    if running.interrupts:
        raise KeyboardInterrupt


def log_step(stage: str, _done: float | None = None) -> None:
    """Say each new stage, in one line."""
    if stage not in (running.stage, COMPILING):
        say(f"{stage[:1].upper()}{stage[1:]}.")
    step(stage)


def _say_compiling(write: Callable[[str], None], *, begins: bool = True) -> None:
    if begins and not running.said_compiling:
        running.said_compiling = True
        write(ONCE)


@contextlib.contextmanager
def progress_bar(*, in_log: bool = False) -> Iterator[Callable[[str, float | None], None]]:
    """Show a bar on a terminal's stderr; elsewhere nothing, or with in_log one line for each stage.

    Each step also notices swallowed interrupts.

    Guarantees: it shows the stage, the time it takes, and which part of the input's bytes was read; nothing else.
    """
    if not is_watched():
        yield log_step if in_log else step
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    share = TextColumn("{task.fields[share]:>4}")
    columns = (SpinnerColumn(), TextColumn("{task.description:<16}"), BarColumn(), share, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("planning", total=None, share="")

        def show(stage: str, done: float | None) -> None:
            if stage == COMPILING:
                # Through the console of the bar, which clears the bar before it prints.
                _say_compiling(lambda text: bar.console.print(wrap(text, sys.stderr), highlight=False, markup=False))
            is_new = running.stage != stage
            step(stage)
            bar.update(
                task,
                description=stage,
                completed=done or 0.0,
                total=None if done is None else 1.0,
                share="" if done is None else f"{100.0 * done:.0f} %",
                refresh=is_new,
            )

        with on_compiling(lambda begins: show(COMPILING if begins else "planning", None)):
            yield show


def check_standard_output() -> None:
    """Refuse, before anything is charged, to print when there is no standard output."""
    if sys.stdout is None:
        raise CannotWrite("There is no standard output.", "Open it, or write to a file with --out.")


def print_result(text: str) -> None:
    """Write to standard output as UTF-8 in any locale; a full disk behind it is an error of the output."""
    check_standard_output()
    problem: str | None = None
    try:
        click.echo(text.encode("utf-8", "surrogateescape"), nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else type(error).__name__
    if problem is not None:
        raise CannotWrite(f"Writing to standard output failed: {problem}.", "Free some space, or use --out.")


def print_json(values: dict[str, Any]) -> None:
    """Print one JSON object for programs, with the version of dpunion."""
    print_result(json.dumps({"version": dpunion.__version__} | values, ensure_ascii=False, indent=1) + "\n")


def is_terminal(stream: IO[Any] | None) -> bool:
    """Say whether a person reads this stream."""
    return stream is not None and not stream.closed and stream.isatty()


def terminal_width(stream: IO[Any] | None) -> int:
    """Return the width to which texts on this stream are wrapped."""
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    with contextlib.suppress(OSError, ValueError):
        width = width or os.get_terminal_size(stream.fileno() if stream is not None else 1).columns
    return min(max(width or USUAL, NARROWEST), WIDEST)


def wrap(text: str, stream: IO[Any] | None) -> str:
    """Wrap the lines of a text for a terminal, between words and with their indentation; leave it for programs."""
    if not is_terminal(stream):
        return text
    whole: Any = {"break_long_words": False, "break_on_hyphens": False}
    width = terminal_width(stream)
    indents = [(line, " " * (len(line) - len(line.lstrip()))) for line in text.split("\n")]
    return "\n".join(
        line if len(line) <= width else textwrap.fill(line, width, subsequent_indent=indent, **whole)
        for line, indent in indents
    )

"""What a person sees: errors as two sentences and an exit code, progress on a terminal, results on standard output."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, ParamSpec

import typer

from dpunion.cli import INTERRUPTED, ended
from dpunion.errors import AlreadyReleased, CannotWrite, DpunionError, InternalError

P = ParamSpec("P")

FIRST_RATE = 0.1
"""Seconds of reading after which the rate is worth showing."""

_interrupts: list[int] = []
_stages: list[str] = []


def answering(command: Callable[P, None]) -> Callable[P, None]:
    """Turn what a command raises into one clear message and its exit code; private values never show."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        _interrupts.clear()
        _stages.clear()
        ended.clear()
        warnings.showwarning = _show_warning
        try:
            with _listening():
                command(*args, **kwargs)
        except typer.Exit:
            raise
        except DpunionError as error:
            fail(error.what, error.remedy, error.exit_code)
        except InternalError as error:
            fail(str(error), "", error.exit_code)
        except KeyboardInterrupt:
            fail("Interrupted.", _what_is_left(), INTERRUPTED)
        except MemoryError:
            fail("There is not enough memory for this input.", "Use a machine with more memory or fewer rows.", 3)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except Exception as error:  # noqa: BLE001 - the text of an unknown error may hold private values
            if _interrupts:
                fail("Interrupted.", _what_is_left(), INTERRUPTED)
            place = traceback.extract_tb(error.__traceback__)[-1]
            fail(
                f"Unexpected {type(error).__name__} at {Path(place.filename).name}:{place.lineno}. "
                "Its text is withheld, as it may hold private values.",
                "This is a bug in dpunion: please report this line. No release was made.",
                InternalError.exit_code,
            )

    return wrapped


@contextlib.contextmanager
def _listening() -> Iterator[None]:
    """Let signals interrupt what is inside; before and after they are for whoever had them."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        for number, _ in before:
            signal.signal(number, _interrupt)
        yield
    finally:
        ended.append(True)
        for number, handler in before:
            signal.signal(number, handler)


def _what_is_left() -> str:
    if "writing" in _stages:
        return "It was writing already: an output that is there is whole, and a charged budget is spent."
    return "Nothing was released and nothing is left behind."


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print our warnings as one line; those of libraries are for developers."""
    if type(message).__module__.startswith("dpunion"):
        typer.echo(f"Note: {message}", err=True)


def _interrupt(number: int, _frame: object) -> NoReturn:
    """Raise KeyboardInterrupt, and remember it: pyarrow swallows one that comes while it looks for pandas."""
    _interrupts.append(number)
    raise KeyboardInterrupt


def _step(stage: str) -> None:
    """Remember the stage, and notice an interrupt that a library swallowed."""
    _stages.append(stage)
    del _stages[:-1]
    if _interrupts:
        raise KeyboardInterrupt


def say(text: str) -> None:
    """Print to standard error, if there is one: the release is made, so nothing may fail any more."""
    with contextlib.suppress(OSError):
        typer.echo(text, err=True)


def fail(what: str, remedy: str, code: int) -> NoReturn:
    """Print what was wrong and what to do about it, and leave with the exit code."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, soft_wrap=True)
    console.print(Text("Error: ", style="bold red") + Text(what, style="default"))
    if remedy:
        console.print(Text("  " + remedy))
    raise typer.Exit(code) from None


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[str, float | None], None]]:
    """Show a bar on a terminal's stderr, nothing elsewhere; each step is also where a lost interrupt is noticed."""
    if not sys.stderr.isatty():
        yield lambda stage, _done: _step(stage)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    rate = TextColumn("{task.fields[rate]}")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), rate, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("planning", total=None, rate="")
        began: dict[str, float] = {}

        def show(stage: str, done: float | None) -> None:
            _step(stage)
            new = stage not in began
            seconds = time.monotonic() - began.setdefault(stage, time.monotonic())
            bar.update(
                task,
                description=stage,
                completed=done or 0.0,
                total=None if done is None else 1.0,
                rate=rate_text(done, seconds),
                refresh=new,
            )

        yield show


def rate_text(done: float | None, seconds: float) -> str:
    """Say how much of the input was read each second so far, when that is known."""
    if not done or seconds < FIRST_RATE:
        return ""
    return f"{100.0 * done / seconds:.3g} % per s"


def print_result(text: str) -> None:
    """Write to standard output as UTF-8, whatever the locale; a full disk behind it is the user's to mend."""
    problem: str | None = None
    try:
        typer.echo(text.encode("utf-8", "surrogateescape"), nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else type(error).__name__
    if problem is not None:
        raise CannotWrite(f"Writing to standard output failed: {problem}.", "Free some space, or use --out.")


def answer_again(already: AlreadyReleased) -> None:
    """Point to the stored release when its files are still what was written; else pass the refusal on."""
    from dpunion.ledger import is_intact

    places = [path for path, _ in already.outputs if path]
    if not places or not all(is_intact(output) for output in already.outputs):
        raise already
    typer.echo(f"This release was made before, as entry {already.entry}: {', '.join(places)}.", err=True)
    typer.echo("Nothing was charged. Use --charge-again to make it once more.", err=True)

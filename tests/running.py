"""How tests run things: with the signals of a terminal wherever the tests were started, and with patience."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any

CLI = "from dpunion.cli import main; main()"
"""What a process of its own runs as the command line."""

PATIENCE = 600.0
"""Seconds after which something that takes a few counts as hung, on a busy machine too. It measures nothing."""

USUAL = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    # nohup shall still protect the tests. A process that they start gets the default, as this handler is not inherited.
    signal.SIGHUP: lambda _number, _frame: None,
}
"""What these signals do while a test runs, where whoever started the tests let them be ignored."""


@contextlib.contextmanager
def usual_signals() -> Iterator[None]:
    """Let no interrupt be ignored inside, as in a background job or under nohup; put every handler back at the end."""
    before = {number: signal.getsignal(number) for number in USUAL}
    for number, handler in before.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, USUAL[number])
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Return as soon as the condition holds; fail, with what was waited for, if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


def run_program(*words: object, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a program; return its exit code and all that it printed, by default as text."""
    usual = {"capture_output": "stdout" not in options, "text": True, "timeout": PATIENCE}
    return subprocess.run(list(map(str, words)), check=options.pop("check", False), **(usual | options))


def run_python(code: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run this code in a process of its own, as `run_program` does."""
    return run_program(sys.executable, "-c", textwrap.dedent(code), *arguments, **options)


def run_cli(*arguments: object, code: int | None = None, **options: Any) -> Any:
    """Run the command line in this process; return the result. code: the exit code that it must have."""
    from click.testing import CliRunner

    from dpunion.cli import app

    result = CliRunner().invoke(app, [str(argument) for argument in arguments], **options)
    assert code is None or result.exit_code == code, result.output
    return result


def run_command(*arguments: object, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run the command line in a process of its own, as a person would."""
    return run_python(CLI, *arguments, **options)


def assert_error(result: Any, code: int, *words: str) -> None:
    """Expect a message on stderr that has these words; nothing on stdout, and no traceback."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    for word in words:
        assert word in result.stderr, result.stderr
    assert "Traceback" not in result.stderr


def read_terminal(descriptor: int) -> bytes:
    """Return all that is shown on a terminal until nobody writes to it any more."""
    shown = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(descriptor, 1 << 16):
            shown += chunk
    os.close(descriptor)
    return shown

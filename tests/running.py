"""How tests run things: with the signals of a terminal wherever the tests were started, and with patience."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator

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

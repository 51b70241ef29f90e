"""The surroundings of tests: signals interrupt them wherever they were started."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from running import PATIENCE, USUAL, usual_signals

TESTS = Path(__file__).parents[1]
SEEN = """
import signal, subprocess, sys
from running import USUAL, usual_signals
child = "import signal; print(*[signal.getsignal(number) is signal.SIG_IGN for number in (1, 2, 15)])"
with usual_signals():
    for number in USUAL:
        if number != signal.SIGTERM:
            try:
                signal.raise_signal(number)
                print("goes on", flush=True)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
    subprocess.run([sys.executable, "-c", child], check=True)
subprocess.run([sys.executable, "-c", child], check=True)
"""


def test_what_the_tests_were_started_with_is_not_ignored_in_them():
    """Under nohup and in a background job: tests and what they start are interrupted, and a hangup ends no test run."""
    for number in USUAL:
        signal.signal(number, signal.SIG_IGN)
    command = [sys.executable, "-c", SEEN]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout.splitlines() == ["interrupted", "goes on", "False False False", "True True True"]


@pytest.mark.parametrize("number", USUAL)
def test_handlers_are_put_back(number):
    before = signal.getsignal(number)
    with usual_signals():
        signal.signal(number, signal.SIG_IGN)
    assert signal.getsignal(number) is before


def test_no_signal_is_ignored_here():
    """This test was started by whatever started the others."""
    assert not [number for number in USUAL if signal.getsignal(number) is signal.SIG_IGN]


def test_no_file_has_a_limit_of_its_own():
    """A limit is there to end what hangs: one number, large enough for a busy machine."""
    own = re.compile(r"(?:timeout=|\.wait\(|\.join\()[\d.]+[,)]")
    found = [path.name for path in TESTS.rglob("*.py") if own.search(path.read_text(encoding="utf-8"))]
    assert found == []

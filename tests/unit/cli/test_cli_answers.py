"""What a person sees while waiting, and how the process ends."""

import io
import re

import click
import pytest

from dpunion.cli import answers, options
from dpunion.cli.release import run_with_progress
from running import run_python


class Terminal(io.StringIO):
    """A stream that somebody watches."""

    def isatty(self):
        return True


def watch(monkeypatch, **given):
    """Put a terminal in the place of standard error; not in a fixture, after which pytest puts its own there."""
    stream = Terminal()
    monkeypatch.setattr(answers.sys, "stderr", stream)
    monkeypatch.setattr(answers, "running", answers.Running(**given))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return stream


def test_the_bar_says_what_is_done_and_shows_the_part_that_was_read(monkeypatch):
    terminal = watch(monkeypatch)
    with answers.progress_bar() as show:
        show("reading", 0.0)
        show("reading", 0.5)
        show("grouping", None)
        show("selecting", None)
    shown = terminal.getvalue()
    assert re.search(r"reading.* 0 %.*0:00:00", shown)
    assert re.search(r"grouping.*0:00:00", shown)
    assert not re.search(r"grouping[^\n\r]*%", shown)
    assert "selecting" in shown


def test_compiling_is_said_once_and_shown(monkeypatch):
    terminal = watch(monkeypatch)
    with answers.progress_bar() as show:
        show("compiling", None)
        show("reading", 0.0)
        show("compiling", None)
    assert " ".join(terminal.getvalue().split()).count("Compiling, once on this machine") == 1
    assert re.search(r"compiling.*0:00:00", terminal.getvalue())


def test_without_a_bar_compiling_is_announced_too(monkeypatch, capsys):
    monkeypatch.setattr(answers, "running", answers.Running())
    with answers.progress_bar() as show:
        show("compiling", None)
        show("compiling", None)
    assert capsys.readouterr().err.count("Compiling, once on this machine") == 1


def test_quiet_says_nothing_but_errors(monkeypatch):
    terminal = watch(monkeypatch, quiet=True)
    with answers.progress_bar() as show:
        show("compiling", None)
    answers.say("said")
    answers.say_lines(["said"])
    assert terminal.getvalue() == ""
    with pytest.raises(click.exceptions.Exit):
        answers.fail("It went wrong.", "Mend it.", 3)
    assert "It went wrong." in terminal.getvalue()


def test_texts_are_wrapped_between_words_on_a_terminal(monkeypatch):
    terminal = watch(monkeypatch)
    text = "  " + "one-hyphened/word " * 20
    answers.say(text)
    with pytest.raises(click.exceptions.Exit):
        answers.fail("word " * 40, "remedy " * 30, 3)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line.startswith("  one-hyphened/word") for line in lines[:5])
    assert {word for line in lines for word in line.split()} <= {"one-hyphened/word", "Error:", "word", "remedy"}


def test_a_pipe_gets_texts_as_they_are(capsys, monkeypatch):
    monkeypatch.setattr(answers, "running", answers.Running())
    answers.say("word " * 40)
    assert capsys.readouterr().err == "word " * 40 + "\n"


def test_on_spark_an_interrupt_knows_the_stage_too(capsys):
    """Once it was writing, nobody may say that nothing is left behind or charged."""

    given = options.Given(**{one.name: one.initial for one in options.engine} | {"engine": "spark", "force": False})
    with (
        pytest.raises(click.exceptions.Exit) as caught,
        answers.answering({"ledger": "budget.db"}),
        run_with_progress(given) as run,
    ):
        run.tell("writing")
        raise KeyboardInterrupt
    assert caught.value.exit_code == 130
    assert "The run was writing already" in capsys.readouterr().err
    assert answers._explain_charge(KeyboardInterrupt()) == ""


def test_notes_of_others_on_an_error_do_not_show(capsys):
    error = RuntimeError("private")
    error.add_note("canary-17")
    with pytest.raises(click.exceptions.Exit), answers.answering({"ledger": "budget.db"}):
        raise error
    said = capsys.readouterr().err
    assert "Nothing was charged." in said
    assert "canary-17" not in said


LEAVING = """
import atexit, sys
from dpunion import cli
from dpunion.cli import commands
atexit.register(lambda: print("handled"))
def end(**_):
    print("done")
    {how}
commands.app.main = end
cli.main()
"""


@pytest.mark.parametrize(
    ("how", "code"),
    [("pass", 0), ("sys.exit()", 0), ("sys.exit(5)", 5), ("sys.exit('a word')", 1), ("sys.stdout.close()", 0)],
)
def test_leaving_runs_exit_handlers_flushes_and_keeps_the_code(how, code):
    printing = "close" not in how
    text = LEAVING.format(how=how) if printing else LEAVING.format(how=how).replace('print("handled")', "None")
    done = run_python(text)
    assert done.returncode == (code if printing else 120)
    assert done.stdout == ("done\nhandled\n" if printing else "done\n")


def test_an_unknown_error_is_not_swallowed_at_the_end():
    done = run_python(LEAVING.format(how="1 / 0"))
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


INTERRUPTED_BETWEEN = """
import signal
from dpunion import cli
from dpunion.cli import answers, commands
def app(**_):
    with answers.answering({{}}):
        print("options read")
    signal.raise_signal(signal.{number})
    with answers.answering({{}}):
        print("released")
commands.app.main = app
cli.main()
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_an_interrupt_between_the_options_and_the_command_is_not_lost(number):
    done = run_python(INTERRUPTED_BETWEEN.format(number=number))
    assert (done.returncode, done.stdout) == (130, "options read\n")
    assert "Interrupted." in done.stderr


INTERRUPTED_OUTSIDE = """
import signal, sys
from dpunion import cli
from dpunion.cli import commands
def app(**_):
    if "{when}" == "after":
        from dpunion.cli import answers
        with answers.answering({{}}):
            print("the answer")
    signal.raise_signal(signal.{number})
commands.app.main = app
cli.main()
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize(("when", "code", "said"), [("before", 130, "Interrupted."), ("after", 0, "")])
def test_an_interrupt_outside_a_command(number, when, code, said):
    """Before a command there is nothing to clean up; after it its answer stands."""
    done = run_python(INTERRUPTED_OUTSIDE.format(number=number, when=when))
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ("the answer\n" if when == "after" else "")


INTERRUPTED_AT_EDGE = """
import contextlib, signal, sys
from dpunion import cli
manager = contextlib._GeneratorContextManager
real = manager.{side}
def struck(self, *given):
    if self.gen.__name__ == "answering":
        signal.raise_signal(signal.SIGINT)
    return real(self, *given)
manager.{side} = struck
sys.argv = ["dpunion", "lists"]
cli.main()
"""


@pytest.mark.parametrize("side", ["__enter__", "__exit__"])
def test_an_interrupt_as_the_command_line_starts_is_explained(side):
    """It comes to `run` itself, before click; the fault suite has the same for the parts that click calls."""
    done = run_python(INTERRUPTED_AT_EDGE.format(side=side))
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.count("Interrupted.") == 1
    assert "Traceback" not in done.stderr


def test_importing_the_command_line_leaves_signals_and_libraries_alone():
    """What is imported before main listens is little, so that hardly an interrupt meets Python's own handler."""
    code = "import signal, sys, dpunion.cli; print('click' in sys.modules, signal.getsignal(2).__name__)"
    done = run_python(code, check=True)
    assert done.stdout == "False default_int_handler\n"


def test_a_command_is_interrupted_by_us_not_by_arrow(monkeypatch):
    """Arrow's own way loses interrupts: it takes the signals while it parses and gives them back."""
    handlers = []
    monkeypatch.setattr("pyarrow.enable_signal_handlers", handlers.append)
    with run_with_progress(options.Given(**{one.name: one.initial for one in options.engine}, force=False)):
        assert handlers == [False]

"""Help that fits, examples that can be copied, what shells complete; `python -m dpunion`."""

import json
import os
import re
import shlex
import subprocess
import sys

import click
import pytest

from dpunion.cli import app
from dpunion.cli.commands import SHELLS
from dpunion.cli.help import EXAMPLE, break_example
from running import assert_error, run_python
from running import run_cli as run


def commands(command, *names):
    """Yield all commands below one, with their names."""
    yield names, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), *names, name)


EVERY = list(commands(app))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(("names", "command"), EVERY, ids=lambda value: " ".join(value) if type(value) is tuple else "")
def test_help_fits_and_its_examples_can_be_copied(names, command, width):
    shown = run(*names, "--help", code=0, env={"COLUMNS": str(width)})
    lines = shown.stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert not re.search(r"<(bool|str|int|float|path|list\[)", shown.stdout)
    joined = re.sub(r" \\\n\s+", " ", shown.stdout).splitlines()
    for line in (command.help or "").splitlines():
        if line.startswith(EXAMPLE):
            assert line in joined


@pytest.mark.parametrize("width", [50, 80, 300])
def test_a_broken_example_is_the_same_command(width):
    line = "dpunion release 'logs/*.csv.gz' --user uid --item 'a --b' -e 2 -d 1e-7 --out queries.txt"
    lines = break_example(line, width)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(line)  # as shells join lines
    assert all(len(one) + 2 <= width for one in lines)
    assert (len(lines) == 1) == (width == 300)


def test_options_of_a_command_say_what_they_take():
    shown = " ".join(run("release", "--help", env={"COLUMNS": "100"}).stdout.split())
    assert "-u, --user COLUMN Column with the user ids. Required." in shown
    assert "--known FILE" in shown
    assert "--include-known Add the known items" in shown
    assert "--null-users NAME refuse or drop rows without a user. Default: refuse." in shown


def completed(line):
    """Ask as bash does what may stand at the end of a line."""
    asked = {"_DPUNION_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    code = "import sys; sys.argv[0] = 'dpunion'; from dpunion.cli import main; main()"
    done = run_python(code, env=os.environ | asked, check=True)
    return [word.removeprefix("plain,") for word in done.stdout.split()]


def test_a_shell_completes_commands_options_and_their_words():
    assert completed("dpunion wa") == ["warm-up"]
    assert completed("dpunion release x.csv --max") == ["--max-items-per-user"]
    assert completed("dpunion release x.csv --algorithm poli") == ["policy-gaussian", "policy-laplace"]
    assert completed("dpunion plan --calibration ") == ["exact", "published"]


def test_completion_can_be_shown_and_installed():
    shown = run("--help").stdout
    assert "--install-completion" in shown
    assert "--show-completion" in shown


def test_words_that_options_take_are_completed():
    found = {one.name for _, command in EVERY for one in command.params if getattr(one, "choices", ())}
    chosen = {"algorithm", "calibration", "composition", "engine", "first", "later", "normalize", "null_users", "sort"}
    assert found == chosen | {"tokenizer", "user_order"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown_and_installed_for_the_shell_in_use(shell, tmp_path, monkeypatch):
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    monkeypatch.setattr("os.getppid", lambda: 0)  # no process has this number
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    shown = run("--show-completion", code=0)
    assert f"_DPUNION_COMPLETE={shell}_complete" in shown.stdout
    for _ in range(2):
        assert run("--install-completion", code=0).stdout.startswith(f"{shell} completion installed in {tmp_path}")
    script, place, line = SHELLS[shell]
    assert (tmp_path / script).read_text() == shown.stdout
    if place:
        assert (tmp_path / place).read_text() == f"\n{line.format(home=tmp_path)}\n"


def test_an_unknown_shell_is_refused(monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    monkeypatch.setattr("os.getppid", lambda: 0)
    assert_error(run("--install-completion"), 2, "none of bash, zsh and fish")


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "dpunion"]
    done = subprocess.run([*command, "plan", "-e", "1", "-d", "0"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Error: The 'delta' parameter" in done.stderr
    shown = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("dpunion ")


# --- mistakes in options -------------------------------------------------------------------------------------
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        (("plan", "-e", "1"), "Missing option '--delta' / '-d'.", "See 'dpunion plan --help'."),
        (("plan", "--people", "x"), "'x' is not a whole number.", "See 'dpunion plan --help'."),
        (("release", "--nope"), "No such option '--nope'.", "See 'dpunion release --help'."),
        (("relase",), "No such command 'relase'.", "See 'dpunion --help'."),
        (("plan", "-e", "1", "-d", "x"), "'x' is not a number.", "See 'dpunion plan --help'."),
    ],
)
def test_mistakes_in_options_look_like_other_errors(arguments, problem, remedy, as_json):
    result = run(*arguments, *(["--json"] if as_json else []), code=2)
    first, second = result.stderr.splitlines()
    assert first.startswith("Error: ")
    assert problem in first
    assert second == f"  {remedy}"
    if as_json:
        values = json.loads(result.stdout)
        assert (values["code"], values["remedy"]) == (2, remedy)
        assert problem in values["message"]

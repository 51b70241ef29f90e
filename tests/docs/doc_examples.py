"""Reading the examples out of Markdown, running them, and comparing what they print with what is shown."""

import contextlib
import doctest
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner

from dpunion.cli import app
from dpunion.cli.release import MADE_BEFORE
from running import run_program

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)(`{3,}|~{3,})([^`]*)$")
# Fences that hold no example of use; everything else must be console or python, which are run.
INERT = {"", "text", "toml", "json", "sql", "csv", "{toctree}", "{eval-rst}"}
LOOKS_RUNNABLE = re.compile(r"^\s*(\$ |>>> |dpunion |make |pip |python |import |from \w+ import )", re.MULTILINE)
SHELL_SIGNS = re.compile(r"[|;&`]|\$\(|<")
ELLIPSIS = "..."
# A table has no room for the parts that are the same everywhere.
ABRIDGED = " -e 1 -d 1e-6 --out out{number}.parquet"
HEX = re.compile(r"\b[0-9a-f]{16,64}\b")
# How many items come out is random, and so are estimates of people: such numbers may differ by this part, and by a few.
TOLERANCE, FEW = 0.3, 10
NUMBER = r"\d[\d,]*"
COUNT = rf"(?<!at most )\b{NUMBER}(?= (?:new )?(?:items|n-grams|of length)\b)"
# An estimate is `people (low to high)`; a row of a table, which ends with these three, is read as one.
ESTIMATE = rf"\b{NUMBER}(?= \({NUMBER} to {NUMBER}\))|(?<=\(){NUMBER}(?= to {NUMBER}\))|(?<= to ){NUMBER}(?=\))"
ROW_END = re.compile(r"(?<=[, ])(\d+)[, ](\d+)[, ](\d+)$", re.MULTILINE)
# What only the first run on a machine says.
COMPILING = re.compile(r"^Compiling, once on this machine\b[^\n]*\n", re.MULTILINE)
# What may differ between a page and what is printed.
# A look chooses one of a few limits: any of them may be printed.
LOOKED = r"(?<=at most )\d+(?= items per person)"
CHANCE = re.compile(
    rf"(?P<gap>\s*\.\.\.\s*)|(?P<hash>{HEX.pattern})|(?P<choice>{LOOKED})|(?P<number>{COUNT}|{ESTIMATE})"
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; line is that of its first line of text."""

    page: str
    line: int
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command of a page, with the output that is shown for it; written: as it stands there, when abridged."""

    page: str
    line: int
    text: str
    shown: str = ""
    written: str = ""


@dataclass
class Outcome:
    """What running a page came to."""

    ran: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def blocks(page, text):
    """Yield the fenced blocks of a Markdown text."""
    opened, indent, start, language, lines = "", "", 0, "", []
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if found and not opened:
            indent, opened, start, language, lines = found[1], found[2], number + 1, found[3].strip().split(" ")[0], []
        elif opened and line.strip() == opened:
            yield Block(page, start, language, "\n".join(lines))
            opened = ""
        elif opened:
            lines.append(line.removeprefix(indent))
    assert not opened, f"{page}:{start}: a block that does not end"


def commands(block):
    """Yield the commands of a console block, each with the output shown below it."""
    found = []
    for number, line in enumerate(block.text.splitlines(), block.line):
        if line.startswith("$ "):
            found.append([number, line[2:], []])
        elif found and found[-1][1].endswith("\\"):
            found[-1][1] = found[-1][1][:-1] + line.removeprefix("> ")
        else:
            assert found, f"{block.page}:{number}: output before any command"
            found[-1][2].append(line)
    for number, text, shown in found:
        yield Command(block.page, number, " ".join(without_comment(text).split()), "\n".join(shown))


def without_comment(text):
    """Return a command without the comment at its end."""
    return re.sub(r"\s+# .*$", "", text)


def table_commands(page, text):
    """Yield the commands in the first cells of tables; `...` at their end stands for what is left out."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("| `"):
            cell = re.split(r"(?<!\\)\|", line)[1]
            for code in re.findall(r"`((?:dpunion|make) [^`]+)`", cell):
                whole = code.replace(ELLIPSIS, ABRIDGED.format(number=number)).replace("  ", " ")
                yield Command(page, number, whole, written=code)


def examples(page, text):
    """Return everything on a page that can be run, in order: commands and python blocks."""
    found = [*table_commands(page, text)]
    for block in blocks(page, text):
        if block.language == "console":
            found += commands(block)
        elif block.language == "python":
            found.append(block)
    return sorted(found, key=lambda one: one.line)


def stray_examples(page, text):
    """Return the blocks that look like examples but would not be run."""
    return [
        f"{page}:{one.line}: {one.language or 'a block without a language'} is not run; use console or python"
        for one in blocks(page, text)
        if one.language not in {*INERT, "console", "python"}
        or (one.language in INERT and not one.language.startswith("{") and LOOKS_RUNNABLE.search(one.text))
    ] + [
        f"{page}:{number}: an indented example is not run; use console or python"
        for number, line in enumerate(without_blocks(text).splitlines(), 1)
        if re.match(r" {4,}(\$ |>>> |dpunion |make )", line)
    ]


def without_blocks(text):
    """Return a page's text outside its fenced blocks, the lines keeping their numbers."""
    kept, opened = [], ""
    for line in text.splitlines():
        found = FENCE.match(line)
        inside = bool(opened or found)
        opened = (found[2] if found else "") if not opened else ("" if line.strip() == opened else opened)
        kept.append("" if inside else line)
    return "\n".join(kept)


def wrong_words(page, text, options, targets):
    """Return the commands, options and targets named in the running text that do not exist.

    options: those of each command, by its full name. A command may be named without what it needs.
    """
    everywhere = set().union(*options.values())
    wrong = []
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", without_blocks(text)):
        words = code.split()
        if words[0] == "make" and not set(words[1:2]) <= targets:
            wrong.append(f"{page}: `{code}`: no such target")
        if words[0] == "dpunion" and re.fullmatch(r"dpunion( [a-z-]+)+.*", code):
            path = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
            names = (" ".join(path[:3]), " ".join(path[:2]))
            known = next((name for name in names if name in options), None)
            named = {word.split("=")[0] for word in words if re.fullmatch(r"--?[a-z][\w=-]*", word)}
            if known is None or not named <= options[known]:
                wrong.append(f"{page}: `{code}`: no such command or option")
        if re.fullmatch(r"--[a-z][a-z-]+", words[0]) and words[0] not in everywhere:
            wrong.append(f"{page}: `{code}`: no such option")
    return wrong


def name_of(example):
    """Return what an exception calls an example: its command as it is written, or the first line of its block."""
    return getattr(example, "written", "") or example.text.splitlines()[0]


class Player:
    """Runs the examples of pages, each page in a folder of its own.

    not_run: (page, name) -> why. shorter: what is put behind a command that begins like the key, so that it takes
    seconds. exit_codes: of commands that do not end with 0. A plan that was made before is not made again.
    """

    def __init__(self, not_run, shorter, exit_codes):
        self.not_run = not_run
        self.exit_codes = exit_codes
        self.shorter = shorter
        self.targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
        self.finished = {}
        self.hashes = {}

    def play(self, page, text, folder):
        """Run all examples of a page in a folder; return what came of them."""
        outcome, namespace = Outcome(), {"__name__": "__main__"}
        self.hashes.clear()
        with contextlib.chdir(folder):
            for example in examples(page, text):
                name = name_of(example)
                if (page, name) in self.not_run:
                    outcome.skipped.append(name)
                    continue
                run = run_python if isinstance(example, Block) else self.run_command
                problem = run(example, namespace)
                outcome.ran.append(name)
                if problem:
                    outcome.problems.append(f"{page}:{example.line}: {name}\n{problem}")
        return outcome

    def run_command(self, command, _namespace):
        """Run a command; return what is wrong, or None."""
        words = command.text.split()
        if words[0] == "make":
            return None if set(words[1:]) <= self.targets else "the Makefile has no such target"
        more = next((more for start, more in self.shorter.items() if command.text.startswith(start)), "")
        text = HEX.sub(lambda found: self.hashes.get(found[0], found[0]), command.text)
        code, output = self.finished.get(command.text) or run_line(with_options(text, more))
        if words[:2] == ["dpunion", "plan"]:
            self.finished[command.text] = code, output
        shows_error = any(line.startswith("Error:") for line in command.shown.splitlines())
        wanted = MADE_BEFORE if "was made before" in command.shown else self.exit_codes.get(command.text, 0)
        if (code == 0) if shows_error else (code != wanted):
            return f"exit code {code}\n{output}"
        return difference(command.shown, output, self.hashes)


def with_options(text, more):
    """Put options behind a command in the place of those that it has: no option may be given twice."""
    for name, value in re.findall(r"(--[a-z-]+)( [^-\s]\S*)?", more):
        text = re.sub(rf" {name} \S+" if value else rf" {name.replace('--no-', '--(no-)?')}(?!\S)", "", text)
    return f"{text} {more}".strip()


def run_line(text):
    """Run a command line, in this process when it is plainly ours; return its exit code and all it printed."""
    words = shlex.split(text)
    target = words[-1] if len(words) > 2 and words[-2] == ">" else None
    plain = words[0] == "dpunion" and not SHELL_SIGNS.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", text))
    if plain:
        return run_here(words[1:-2] if target else words[1:], target)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    together = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = run_program("bash", "-c", text, env=os.environ | {"PATH": path, "COLUMNS": "120"}, **together)
    return done.returncode, done.stdout


def run_here(words, target):
    """Run the command line in this process."""
    shown = warnings.showwarning
    try:
        result = CliRunner().invoke(app, words, env={"COLUMNS": "120", "TERM": "dumb"})
    finally:
        warnings.showwarning = shown
    if target:
        Path(target).write_bytes(result.stdout_bytes)
    return result.exit_code, result.output


def run_python(block, namespace):
    """Run a python block in the page's namespace; return what is wrong, or None."""
    printed = io.StringIO()
    if ">>> " in block.text:
        test = doctest.DocTestParser().get_doctest(block.text, namespace, block.page, block.page, block.line)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        failed = runner.run(test, out=printed.write, clear_globs=False).failed
        namespace.update(test.globs)
        return printed.getvalue() if failed else None
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(block.text, f"{block.page}:{block.line}", "exec"), namespace)
    except Exception as error:  # noqa: BLE001 - whatever an example raises is what is wrong with it
        return f"{type(error).__name__}: {error}"
    return None


def difference(shown, printed, hashes=None):
    """Say how what was printed differs from what a page shows, or None.

    Words must match, line by line; `...` stands for anything, hashes for other hashes, and numbers of released items
    and estimates of people for numbers that are close. `hashes` is told which hash was printed where another is shown,
    as later commands of the page may name it.
    """
    if not shown.strip():
        return None
    wanted, got = tidied(shown), tidied(printed)
    pattern, drawn = expected(wanted)
    match = re.fullmatch(pattern, got, re.DOTALL)
    if match is None:
        return f"shown:\n{wanted}\nprinted:\n{got}"
    pairs = [(kind, ours, theirs) for (kind, ours), theirs in zip(drawn, match.groups(), strict=True)]
    if hashes is not None:
        hashes.update({ours: theirs for kind, ours, theirs in pairs if kind == "hash"})
    far = [(ours, theirs) for kind, ours, theirs in pairs if kind == "number" and not are_close(ours, theirs)]
    return f"numbers that are far apart (shown, printed): {far}" if far else None


def tidied(text):
    """Return a text without its empty lines and further spaces, and with estimates at the end of rows spelled out."""
    lines = [" ".join(line.split()) for line in COMPILING.sub("", text).splitlines()]
    return ROW_END.sub(r"\1 (\2 to \3)", "\n".join(line for line in lines if line))


def expected(shown):
    """Return the pattern of what may be printed, and of each of its groups what kind it is and what is shown."""
    parts, drawn, end = [], [], 0
    for found in CHANCE.finditer(shown):
        kind = found.lastgroup
        parts += [
            re.escape(shown[end : found.start()]),
            {"gap": ".*", "hash": f"({HEX.pattern})"}.get(kind, f"({NUMBER})"),
        ]
        drawn += [] if kind == "gap" else [(kind, found[0])]
        end = found.end()
    return "".join([*parts, re.escape(shown[end:])]), drawn


def are_close(ours, theirs):
    """Say whether two numbers differ by no more than chance makes them."""
    one, other = (int(number.replace(",", "")) for number in (ours, theirs))
    return abs(one - other) <= TOLERANCE * max(one, other) + FEW

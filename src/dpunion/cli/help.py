"""Commands: their help, which fits the terminal and has examples to copy, and options from a TOML file (--config)."""

from __future__ import annotations

import io
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpunion.checks import nearest
from dpunion.cli.answers import answering, is_terminal, terminal_width
from dpunion.errors import BadParameter

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

OTHER = "Other options"
VALUES = {"integer": "NUMBER", "float": "NUMBER", "path": "FILE", "text": "TEXT", "whole_or_auto": "NUMBER"}
"""What the help shows for a value, by the name of its type in click."""
WIDEST_NAMES = 28
EXAMPLE = "  dpunion "
"""A line of a help text that begins with this is an example."""

NEVER_INSIDE = ("config", "help")
KINDS: dict[str, tuple[str, str, tuple[type, ...]]] = {
    "boolean": ("true or false", "true", (bool,)),
    "integer": ("a whole number", "3", (int,)),
    "float": ("a number", "1.0", (int, float)),
    "whole_or_auto": ('a whole number or "auto"', "50", (int, str)),
}
"""What a value in a configuration must be, with an example, by the name of its type; all other options are texts."""


class WithHelp(click.Command):
    """A command whose help is written here."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from rich.console import Console

        file = io.StringIO()
        is_seen = is_terminal(sys.stdout) or None
        width = terminal_width(sys.stdout)
        _write_help(self, ctx, Console(file=file, width=width, force_terminal=is_seen, highlight=False))
        formatter.write("\n".join(line.rstrip() for line in file.getvalue().split("\n")))


class Command(WithHelp):
    """A command that takes options from its --config file, refuses repeated options, and explains its errors."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse twice: first for repeated options and the configuration, whose values become defaults."""
        given, _, order = self.make_parser(ctx).parse_args(list(args))
        if not ctx.resilient_parsing and not any("--help" in one.opts for one in order):
            with answering({"as_json": given.get("as_json")}):
                for one in order:
                    if order.count(one) > 1 and not (one.multiple or one.nargs == -1):
                        raise BadParameter(f"{one.opts[0]} is given more than once.", "Give it once.")
                if (path := given.get("config")) is not None:
                    ctx.default_map = {**(ctx.default_map or {}), **read_configuration(Path(path), self)}
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its errors become messages and exit codes."""
        with answering(ctx.params):
            return super().invoke(ctx)


class Commands(WithHelp, click.Group):
    """Several commands under one name, listed in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's interface
        return list(self.commands)


def command(name: str, text: str, *groups: Iterable[click.Parameter]) -> Callable[[Callable[..., None]], Command]:
    """Return a decorator that makes a function a command with these options and this help text."""

    def make(function: Callable[..., None]) -> Command:
        parameters = [parameter for group in groups for parameter in group]
        return Command(name, callback=function, params=parameters, help=text)

    return make


def value_word(parameter: Any) -> str:
    """Return what the help shows for the value of a parameter; nothing for a flag."""
    if parameter.metavar or getattr(parameter, "is_flag", False):
        return parameter.metavar or ""
    return "NAME" if getattr(parameter, "choices", ()) else VALUES.get(parameter.type.name, "TEXT")


def _write_help(command: click.Command, context: click.Context, console: Console) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console.print(Text("Usage", style="bold"))
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    usage = [value_word(one) if one.required else f"[{value_word(one)}]" for one in arguments]
    options = [one for one in command.params if isinstance(one, click.Option) and one.required]
    usage += [f"{max(one.opts, key=len)} {value_word(one)}" for one in options]
    more = ["COMMAND ..."] if isinstance(command, click.Group) else []
    for line in break_example(" ".join([context.command_path, *usage, "[OPTIONS]", *more]), console.width):
        console.print(Padding(Text(line), (0, 0, 0, 2)))
    for paragraph in (command.help or "").split("\n\n"):
        prose, examples = split_examples(paragraph)
        console.print()
        console.print(Text.from_markup(prose))
        for line in (line for example in examples for line in break_example(example, console.width)):
            console.print(Padding(Text(line, style="cyan"), (0, 0, 0, 2)))
    for heading, rows in _sections(command, context).items():
        console.print()
        console.print(Text(heading, style="bold"))
        # Names are to the left of their meanings; a name that is too long has a line to itself.
        left = min(max(len(name) for name, _ in rows), WIDEST_NAMES)
        for name, meaning in rows:
            if len(name) > left:
                console.print(Padding(name, (0, 0, 0, 2)))
                console.print(Padding(meaning, (0, 0, 0, left + 4)))
                continue
            row = Table.grid(padding=(0, 2, 0, 0))
            row.add_column(width=left)
            row.add_column()
            row.add_row(name, meaning)
            console.print(Padding(row, (0, 0, 0, 2)))


def split_examples(paragraph: str) -> tuple[str, list[str]]:
    """Return the text of a paragraph in one line, and the examples below it."""
    lines = paragraph.split("\n")
    prose = " ".join(line.strip() for line in lines if not line.startswith(EXAMPLE))
    return prose, [line.strip() for line in lines if line.startswith(EXAMPLE)]


def break_example(line: str, width: int) -> list[str]:
    """Break a command into lines that fit and can be copied: all but the last end in a backslash, for the shell."""
    parts: list[str] = []
    for word in re.findall(r"(?:'[^']*'|[^\s'])+", line):
        # A part begins at an option or a redirection; the values after it belong to it.
        if parts and not re.match(r"-|[<>|]|\[OPTIONS", word):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    lines = [""]
    for part in parts:
        if lines[-1] and len(f"{lines[-1]} {part}") > width - 4:
            lines.append(f"  {part}")
        else:
            lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return [f"{one} \\" for one in lines[:-1]] + lines[-1:]


def _sections(command: click.Command, context: click.Context) -> dict[str, list[tuple[Text, Text]]]:
    """Return the rows of the help by heading: a name, and what it means."""
    from rich.text import Text

    sections: dict[str, list[tuple[Text, Text]]] = {}
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            first, _ = split_examples(((below and below.help) or "").split("\n\n")[0])
            row = (Text(name, style="cyan"), Text.from_markup(first))
            sections.setdefault("Commands", []).append(row)
    for one in command.get_params(context):
        if not getattr(one, "hidden", False):
            sections.setdefault(getattr(one, "heading", "") or OTHER, []).append(_row(one))
    # Options that every command has come last.
    return {name: sections[name] for name in sorted(sections, key=lambda name: name == OTHER)}


def _row(parameter: Any) -> tuple[Text, Text]:
    """Return the names of a parameter, and its help with whether it is required and its default."""
    from rich.text import Text

    value, text, default = value_word(parameter), parameter.help or "", parameter.default
    names = Text(value, style="cyan")
    if isinstance(parameter, click.Option):
        spelled = ", ".join([*sorted(parameter.opts, key=len), *parameter.secondary_opts])
        names = Text(spelled, style="cyan") + Text(f" {value}" if value else "", style="default")
    is_plain = isinstance(default, (str, int, float, Path)) and not isinstance(default, bool)
    if parameter.required:
        text += " [bold]Required.[/bold]"
    elif isinstance(parameter.show_default, str):
        text += f" [dim]Default: {parameter.show_default}.[/dim]"
    elif is_plain and parameter.show_default is not False:
        text += f" [dim]Default: {default}.[/dim]"
    return names, Text.from_markup(text)


def read_configuration(path: Path, command: click.Command) -> dict[str, Any]:
    """Return the options of the TOML file by the names of the parameters; refuse unknown options and wrong types."""
    # Options have the same names in a file as on the command line, without the dashes before them.
    options = {max(parameter.opts, key=len).lstrip("-"): parameter for parameter in command.params}
    values: dict[str, Any] = {}
    for key, value in _parse_toml(path).items():
        name = key.replace("_", "-")
        if name in NEVER_INSIDE:
            raise BadParameter(
                f"The configuration {path} contains {key!r}, which it cannot set.", "Give it on the command line."
            )
        if name not in options:
            names = [option for option in options if option not in NEVER_INSIDE]
            near = nearest(name, names)
            remedy = f"Did you mean {near!r}?" if near is not None else f"It may contain {', '.join(sorted(names))}."
            raise BadParameter(f"The configuration {path} has an unknown option {key!r}.", remedy)
        parameter = options[name]
        if parameter.name in values:
            raise BadParameter(f"The configuration {path} has {name!r} in two spellings.", "Keep one of them.")
        values[str(parameter.name)] = _check_value(path, name, value, parameter)
    return values


def _parse_toml(path: Path) -> dict[str, Any]:
    remedy = 'Write lines such as user = "author" or epsilon = 1.0, in UTF-8.'
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        problem = BadParameter(f"There is no configuration file {path}.", "Check the path.")
    except OSError as error:
        what = f"The configuration {path} cannot be read: {os.strerror(error.errno or 0)}."
        problem = BadParameter(what, "Check its permissions, or name another file.")
    except UnicodeDecodeError:
        problem = BadParameter(f"The configuration {path} is not UTF-8.", remedy)
    except (ValueError, RecursionError) as error:
        line = re.search(r"at line (\d+)", str(error))
        where = f" (line {line[1]})" if line else ""
        problem = BadParameter(f"The configuration {path} is not valid TOML{where}.", remedy)
    raise problem


def _check_value(path: Path, name: str, value: Any, parameter: click.Parameter) -> Any:
    """Return the value, or the list of values, if the option can have it."""
    what, example, types = KINDS.get(parameter.type.name, ("a text", '"…"', (str,)))
    several = parameter.multiple or parameter.nargs == -1
    values = value if several and isinstance(value, list) else [value]
    for one in values:
        # subtle: a bool is an int to Python.
        if not isinstance(one, types) or (isinstance(one, bool) and bool not in types):
            or_list = ", or a list of such" if several else ""
            raise BadParameter(
                f"In the configuration {path}, {name!r} must be {what}{or_list}.", f"Write {name} = {example}."
            )
        if isinstance(one, str) and "\0" in one:
            raise BadParameter(f"In the configuration {path}, {name!r} contains a null character.", "Remove it.")
    # subtle: click converts a text that is too large for a float to infinity, but fails with such an int.
    values = [str(one) if type(one) is int else one for one in values]
    return values if several else values[0]

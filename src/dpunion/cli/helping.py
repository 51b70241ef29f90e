"""Help that fits the terminal, with examples that can be copied; and what a shell completes."""

from __future__ import annotations

import inspect
import io
import re
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup
from typer.models import OptionInfo

from dpunion import checks
from dpunion.cli.terminal import is_terminal, width_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WORDS = {int: "NUMBER", float: "NUMBER", Path: "FILE", str: "TEXT"}
"""What stands in the help for a value of a type."""
SPECIAL = {"user": "COLUMN", "item": "COLUMN", "text": "COLUMN", "dataset": "NAME", "query": "SQL"}
CHOICES = {
    "algorithm": typing.get_args(checks.AlgorithmName),
    "calibration": typing.get_args(checks.CalibrationName),
    "user_order": typing.get_args(checks.UserOrderName),
    "tokenizer": typing.get_args(checks.TokenizerName),
    "normalize": typing.get_args(checks.NormalizationName),
    "null_users": typing.get_args(checks.NullUsersName),
    "sort": typing.get_args(checks.OrderName),
    "first": ("funnel", "policy-gaussian", "weighted-gaussian"),
    "later": ("funnel", "policy-gaussian", "weighted-gaussian"),
    "composition": ("additive", "tight"),
    "engine": ("local", "spark"),
}
"""What a shell completes, by the option."""
WIDEST_NAMES = 28
EXAMPLE = re.compile(r"\s*\[cyan\](.*)\[/cyan\]\s*", re.DOTALL)


def complete_choices(callback: Callable[..., Any]) -> None:
    """Let a shell complete the words that an option of this command takes."""
    for name, hint in typing.get_type_hints(callback, include_extras=True).items():
        for info in getattr(hint, "__metadata__", ()):
            if name in CHOICES and isinstance(info, OptionInfo):
                info.autocompletion = _completer(CHOICES[name])


def _completer(words: tuple[str, ...]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def value_words(command: Any) -> dict[str, str]:
    """Return the word for the value of each parameter of a command, nothing for a switch."""
    hints = typing.get_type_hints(inspect.unwrap(command.callback)) if command.callback is not None else {}
    words: dict[str, str] = {}
    for parameter in command.params:
        kinds = set(_kinds(hints.get(parameter.name)))
        word = next((word for kind, word in WORDS.items() if kind in kinds), "")
        named = SPECIAL.get(parameter.name) or ("NAME" if parameter.name in CHOICES else word)
        words[parameter.name] = parameter.metavar or (word and named)
    return words


def _kinds(hint: Any) -> Iterator[Any]:
    yield hint
    for inner in typing.get_args(hint):
        yield from _kinds(inner)


class Helped:
    """A command whose help is written here."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's interface
        """Print the help, as typer itself does: how it is called, what it does, its commands and options."""
        from rich.console import Console

        is_seen = is_terminal(sys.stdout)
        width = width_of(sys.stdout)
        file = io.StringIO()
        console = Console(file=file, width=width, force_terminal=is_seen or None, highlight=False, soft_wrap=False)
        _write_help(self, ctx, console)
        typer.echo("\n".join(line.rstrip() for line in file.getvalue().split("\n")), nl=False)


class Commands(Helped, TyperGroup):
    """Several commands under one name."""


def _write_help(command: Any, context: Any, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    words = value_words(command)
    console.print(Text("Usage", style="bold"))
    for line in break_example(_usage(command, context, words), console.width):
        console.print(Padding(Text(line), (0, 0, 0, 2)))
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        example = EXAMPLE.fullmatch(paragraph)
        if example is None:
            console.print()
            console.print(Text.from_markup(" ".join(paragraph.split())))
        else:
            for line in break_example(example[1], console.width):
                console.print(Padding(Text(line, style="cyan"), (0, 0, 0, 2)))
    for heading, rows in _panels(command, context, words).items():
        console.print()
        console.print(Text(heading, style="bold"))
        _write_rows(rows, console)


def break_example(line: str, width: int) -> list[str]:
    """Return a command in lines that fit and can be copied: all but the last end in a backslash, as shells take it."""
    room, lines = width - 4, [""]
    for part in _options_with_values(line):
        if lines[-1] and len(f"{lines[-1]} {part}") > room:
            lines.append(f"  {part}")
        else:
            lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return [f"{one} \\" for one in lines[:-1]] + lines[-1:]


def _options_with_values(line: str) -> list[str]:
    """Return the words of a command, what belongs to an option or an arrow together with it."""
    parts: list[str] = []
    for word in re.findall(r"(?:'[^']*'|[^\s'])+", line):
        if parts and not re.match(r"-|[<>|]|\[OPTIONS", word):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    return parts


def _usage(command: Any, context: Any, words: dict[str, str]) -> str:
    """Return how the command is called: what is required, then that there is more."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    named = [words[one.name] or one.name.upper() for one in arguments]
    shown = [name if one.required else f"[{name}]" for name, one in zip(named, arguments, strict=True)]
    needed = [
        f"{max(one.opts, key=len)} {words[one.name]}"
        for one in command.params
        if one.param_type_name == "option" and one.required
    ]
    more = ["COMMAND ..."] if isinstance(command, TyperGroup) else []
    return " ".join([context.command_path, *shown, *needed, "[OPTIONS]", *more])


def _panels(command: Any, context: Any, words: dict[str, str]) -> dict[str, list[tuple[Text, Text]]]:
    """Return what is explained, by its heading: names and what they mean."""
    from rich.text import Text

    panels: dict[str, list[tuple[Text, Text]]] = {}
    if isinstance(command, TyperGroup):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                first = inspect.cleandoc(below.help or "").split("\n\n")[0]
                row = (Text(name, style="cyan"), Text.from_markup(" ".join(first.split())))
                panels.setdefault("Commands", []).append(row)
    for one in command.get_params(context):
        if not getattr(one, "hidden", False):
            plain = "Arguments" if one.param_type_name == "argument" else "Other options"
            heading = getattr(one, "rich_help_panel", None) or plain
            panels.setdefault(heading, []).append((_names(one, words), Text.from_markup(_meaning(one))))
    # What every command has comes last.
    return {name: rows for name, rows in panels.items() if name != "Other options"} | {
        name: rows for name, rows in panels.items() if name == "Other options"
    }


def _names(parameter: Any, words: dict[str, str]) -> Text:
    from rich.text import Text

    value = words.get(parameter.name, "")
    if parameter.param_type_name == "argument":
        return Text(value or parameter.name.upper(), style="cyan")
    spelled = [*sorted(parameter.opts, key=len), *parameter.secondary_opts]
    return Text(", ".join(spelled), style="cyan") + Text(f" {value}" if value else "", style="default")


def _meaning(parameter: Any) -> str:
    """Return the help of a parameter, whether it is required, and its default."""
    text = " ".join((parameter.help or "").split())
    default = parameter.default
    if parameter.required:
        return f"{text} [bold]Required.[/bold]"
    if isinstance(parameter.show_default, str):
        return f"{text} [dim]Default: {parameter.show_default}.[/dim]"
    plain = isinstance(default, (str, int, float, Path)) and not isinstance(default, bool)
    return f"{text} [dim]Default: {default}.[/dim]" if plain and parameter.show_default else text


def _write_rows(rows: list[tuple[Text, Text]], console: Console) -> None:
    """Write names to the left and what they mean to the right; names that are too long get a line of their own."""
    from rich.padding import Padding
    from rich.table import Table

    left = min(max(len(spelled) for spelled, _ in rows), WIDEST_NAMES)
    for spelled, meaning in rows:
        if len(spelled) > left:
            console.print(Padding(spelled, (0, 0, 0, 2)))
            console.print(Padding(meaning, (0, 0, 0, left + 4)))
            continue
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_column(width=left)
        line.add_column()
        line.add_row(spelled, meaning)
        console.print(Padding(line, (0, 0, 0, 2)))

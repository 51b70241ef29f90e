"""Writes the page `cli` from the command line itself, so that the two cannot differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dpunion.cli import app as command_line
from dpunion.cli.help import split_examples, value_word

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PAGE = "cli"
PROGRAM = "dpunion"
SHARED = {"--help", "-h"}  # every command has it; the page says so once


def commands(command: Any, name: str = PROGRAM) -> Iterator[tuple[str, Any]]:
    """Yield (full name, command) of a command and of everything below it, in the order of its help."""
    yield name, command
    for below, one in commands_below(command).items():
        yield from commands(one, f"{name} {below}")


def commands_below(command: Any) -> dict[str, Any]:
    """Return the commands of a group by name; none for a single command."""
    if not isinstance(command, click.Group):
        return {}
    context = click.Context(command)
    return {name: command.get_command(context, name) for name in command.list_commands(context)}


def reference() -> str:
    """Return the reference of all commands as Markdown."""
    return "\n\n".join(section(name, command) for name, command in commands(command_line))


def section(name: str, command: Any) -> str:
    """Return one command: its heading, usage, help text and options."""
    below = commands_below(command)
    parts = [f"## {name}", f"```text\n{usage(name, command)}\n```", prose(command.help or "")]
    if below:
        rows = [f"- [{name} {one}](#{anchor(f'{name} {one}')}): {first_sentence(each)}" for one, each in below.items()]
        parts.append("\n".join(rows))
    for panel, parameters in panels(command).items():
        parts += [f"**{panel}**", "\n".join(entry(one) for one in parameters)]
    return "\n\n".join(part for part in parts if part)


def usage(name: str, command: Any) -> str:
    """Return the line that says how the command is called: what is required, then the rest."""
    given = [one for one in visible(command) if one.param_type_name == "argument"]
    words = {one.name: one.metavar or one.name.upper() for one in given}
    arguments = [words[one.name] if one.required else f"[{words[one.name]}]" for one in given]
    required = [f"{longest(one)} {value_word(one)}" for one in options(command) if one.required]
    tail = ["COMMAND ..."] if isinstance(command, click.Group) else []
    return " ".join([name, *arguments, *required, "[OPTIONS]", *tail])


def panels(command: Any) -> dict[str, list[Any]]:
    """Return the parameters by the panel of the help that they stand in."""
    found: dict[str, list[Any]] = {}
    for one in visible(command):
        plain = "Arguments" if one.param_type_name == "argument" else "Options"
        found.setdefault(getattr(one, "heading", None) or plain, []).append(one)
    return found


def visible(command: Any) -> list[Any]:
    """Return the parameters that the command's help shows, without --help itself."""
    return [one for one in command.params if not getattr(one, "hidden", False) and not SHARED & set(one.opts)]


def options(command: Any) -> list[Any]:
    """Return the parameters that are named by a word with dashes."""
    return [one for one in visible(command) if one.param_type_name == "option"]


def longest(option: Any) -> str:
    """Return the spelled-out name of an option."""
    return str(max(option.opts, key=len))


def entry(one: Any) -> str:
    """Return a parameter as a list item: names, value, what it does, whether it is needed, its default."""
    if one.param_type_name == "argument":
        names = f"`{one.metavar or one.name.upper()}`"
    else:
        spelled = [*sorted(one.opts, key=len, reverse=True), *one.secondary_opts]
        names = ", ".join(f"`{name}`" for name in spelled)
        names += f" `{value_word(one)}`" if value_word(one) else ""
    notes = ["required"] if one.required else []
    notes += ["may be repeated"] if (one.multiple or one.nargs == -1) and "epeat" not in (one.help or "") else []
    notes += [f"default {shown_default(one)}"] if shown_default(one) else []
    text = re.sub(r"(?<!\.)\.$", "", markdown(one.help or ""))
    described = f"- {names}: {text}" if text else f"- {names}"
    return described + (f" ({', '.join(notes)})." if notes else "" if described.endswith("...") else ".")


def shown_default(one: Any) -> str:
    """Return the default as the help shows it, or nothing."""
    if isinstance(getattr(one, "show_default", None), str):
        return str(one.show_default)
    switch = getattr(one, "is_flag", False)
    missing = one.default is None or one.default == [] or not isinstance(one.default, (str, int, float))
    return "" if one.required or switch or missing else f"`{one.default}`"


def prose(text: str) -> str:
    """Return a help text as Markdown: its examples become one block."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        plain, examples = split_examples(paragraph)
        lines.append(markdown(plain))
        if examples:
            lines.append("\n".join(["```console", *(f"$ {example}" for example in examples), "```"]))
    return "\n\n".join(lines)


def markdown(text: str) -> str:
    """Return a text of the help without its colours; what Markdown would take for markup is escaped."""
    plain = re.sub(r"([*_<>|\\])", r"\\\1", text)
    plain = re.sub(r"\[cyan\](.*?)\[/cyan\]", lambda found: "`" + re.sub(r"\\(.)", r"\1", found[1]) + "`", plain)
    return re.sub(r"\[bold\](.*?)\[/bold\]", r"**\1**", plain)


def first_sentence(command: Any) -> str:
    """Return the first paragraph of a command's help."""
    return markdown(split_examples((command.help or "").split("\n\n")[0])[0])


def anchor(heading: str) -> str:
    """Return the anchor that the page's heading gets."""
    return heading.lower().replace(" ", "-")


def _write(_app: Sphinx, page: str, source: list[str]) -> None:
    if page == PAGE:
        source[0] += "\n" + reference() + "\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

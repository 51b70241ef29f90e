"""Options from a TOML file: read, checked and taken as defaults before a command begins."""

from __future__ import annotations

import inspect
import os
import re
import tomllib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from dpunion.checks import nearest
from dpunion.cli.answers import answering
from dpunion.cli.helping import Helped
from dpunion.cli.options import WholeOrAuto
from dpunion.errors import BadParameter

NEVER_INSIDE = ("config", "help")
KINDS: dict[object, tuple[str, str, tuple[type, ...]]] = {
    bool: ("true or false", "true", (bool,)),
    int: ("a whole number", "3", (int,)),
    float: ("a number", "1.0", (int, float)),
    WholeOrAuto: ('a whole number or "auto"', "50", (int, str)),
}
"""By an option's type: what its value in a file must be, and an example; all other options are texts."""
TEXT = ("a text", '"…"', (str,))


class Command(Helped, TyperCommand):
    """A command that takes options from its --config file, and refuses an option that is given twice."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Look at the options once by themselves, then go on as always."""
        given, _, order = self.make_parser(ctx).parse_args(list(args))
        if not ctx.resilient_parsing and not given.get("help"):
            _prepare(ctx, given.get("config"), order, as_json=bool(given.get("as_json")))
        return super().parse_args(ctx, args)


@answering
def _prepare(context: Any, path: str | None, order: Sequence[Any], *, as_json: bool) -> None:
    del as_json  # for `answering`, which writes errors as JSON then
    for parameter in order:
        if order.count(parameter) > 1 and not (parameter.multiple or parameter.nargs == -1):
            raise BadParameter(f"{parameter.opts[0]} is given more than once.", "Give it once.")
    if path is not None:
        context.default_map = {**(context.default_map or {}), **read_configuration(Path(path), context.command)}


def read_configuration(path: Path, command: Any) -> dict[str, Any]:
    """Return the options of the TOML file by the names of the parameters; refuse what is none, in the file's words."""
    options = {_name_in_file(parameter): parameter for parameter in command.params}
    types = typing.get_type_hints(inspect.unwrap(command.callback))
    values: dict[str, Any] = {}
    for key, value in _parsed(path).items():
        name = key.replace("_", "-")
        if name in NEVER_INSIDE:
            raise BadParameter(
                f"The configuration {path} contains {key!r}, which it cannot set.", "Give it on the command line."
            )
        if name not in options:
            raise BadParameter(f"The configuration {path} has an unknown option {key!r}.", _guess(name, options))
        parameter = options[name]
        if parameter.name in values:
            raise BadParameter(f"The configuration {path} has {name!r} in two spellings.", "Keep one of them.")
        values[parameter.name] = _check_value(path, name, value, types[parameter.name])
    return values


def _parsed(path: Path) -> dict[str, Any]:
    remedy = 'Write lines such as user = "author" or epsilon = 1.0, in UTF-8.'
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        problem = BadParameter(f"There is no configuration file {path}.", "Check the path.")
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        problem = BadParameter(
            f"The configuration {path} cannot be read: {reason}.", "Check its permissions, or name another file."
        )
    except UnicodeDecodeError:
        problem = BadParameter(f"The configuration {path} is not UTF-8.", remedy)
    except (ValueError, RecursionError) as error:
        line = re.search(r"at line (\d+)", str(error))
        where = f" (line {line[1]})" if line else ""
        problem = BadParameter(f"The configuration {path} is not valid TOML{where}.", remedy)
    raise problem


def _name_in_file(parameter: Any) -> str:
    """Return what an option is called in a file: as on the command line, without the dashes before it."""
    return max(parameter.opts, key=len).lstrip("-") if parameter.opts[0].startswith("-") else str(parameter.name)


def _guess(name: str, options: Mapping[str, object]) -> str:
    names = [option for option in options if option not in NEVER_INSIDE]
    near = nearest(name, names)
    return f"Did you mean {near!r}?" if near is not None else f"It may contain {', '.join(sorted(names))}."


def _check_value(path: Path, name: str, value: Any, type_: Any) -> Any:
    """Return the value, or the list of values, if the option can have it."""
    members = (type_, *typing.get_args(type_))
    what, example, types = next((KINDS[member] for member in members if member in KINDS), TEXT)
    several = any(typing.get_origin(member) is list for member in members)
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
    return values if several else value

"""Groups of options: classes whose fields are options, which a command names as its parameters."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

FLAT = inspect.Parameter.KEYWORD_ONLY


def in_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the options of its groups in place of these, as flat options for the command line."""
    hints = typing.get_type_hints(command, include_extras=True)
    own = inspect.signature(command).parameters
    groups = {name: hints[name] for name in own if is_dataclass(hints[name])}
    flat: dict[str, inspect.Parameter] = {}
    for name, parameter in own.items():
        if name not in groups:
            flat[name] = parameter.replace(annotation=hints[name], kind=FLAT)
            continue
        flat |= options_of(groups[name])

    def run(**values: Any) -> None:
        packed = {
            name: group(**{one.name: values.pop(one.name) for one in fields(group)}) for name, group in groups.items()
        }
        command(**packed, **values)

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__signature__ = inspect.Signature(list(flat.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in flat.items()}
    return run


option_group = dataclass(repr=False, eq=False)
"""Makes a class of options; every further method that dataclasses write would take a part of a millisecond."""


@functools.cache
def options_of(group: type[Any]) -> dict[str, inspect.Parameter]:
    """Return the options of a group as parameters."""
    types, empty, kind = typing.get_type_hints(group, include_extras=True), inspect.Parameter.empty, FLAT
    defaults = {one.name: empty if one.default is MISSING else one.default for one in fields(group)}
    return {n: inspect.Parameter(n, kind, default=value, annotation=types[n]) for n, value in defaults.items()}


class Group:
    """Some options that belong together."""

    def values(self) -> dict[str, Any]:
        """Return the options by their names."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

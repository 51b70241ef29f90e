"""Repeated runs: options from a TOML file, and the resolved options written beside the output.

The record `<out>.private.toml` is for the operator: mode 0600, never part of the release, credentials removed.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from dpunion.errors import BadParameter, CannotWrite

PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):[^@/\s]*@")
KEYWORD_PASSWORD = re.compile(r"(password|passfile|sslpassword)=[^&\s]*", re.IGNORECASE)


def use_configuration(context: typer.Context, path: Path | None) -> Path | None:
    """Take the options of the TOML file as defaults; what is said on the command line wins."""
    if path is None:
        return None
    problem = ""
    values: dict[str, Any] = {}
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        problem = f"The configuration {path} cannot be read: {os.strerror(error.errno or 0)}."
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        problem = f"The configuration {path} is not valid TOML."
    known = {parameter.name: parameter for parameter in context.command.params}
    given = {key.replace("-", "_"): value for key, value in values.items()}
    given = {ALIASES.get(key, key): value for key, value in given.items()}
    odd = [key for key in given if key not in known]
    if not problem and odd:
        problem = f"The configuration {path} has unknown options: {', '.join(odd)}."
    if problem:
        raise BadParameter(problem, f"It may hold {', '.join(sorted(name for name in known if name))}.")
    lists = {key: [value] for key, value in given.items() if key in LISTS and not isinstance(value, list)}
    context.default_map = {**(context.default_map or {}), **given, **lists}
    return path


ALIASES = {"set": "settings", "json": "as_json", "conf": "spark_settings"}
LISTS = {"source", "out", "settings", "item", "spark_settings"}


def without_credentials(text: str) -> str:
    """Return a source or ledger name without its password."""
    return KEYWORD_PASSWORD.sub(r"\1=...", PASSWORD.sub(r"\1@", text))


def record_configuration(targets: Iterable[Path], sources: list[str], algorithm: Any, options: dict[str, Any]) -> None:
    """Write the resolved options beside each output, for the operator alone.

    Guarantees: mode 0600; no password; nothing from the data.
    """
    values: dict[str, Any] = {"source": [without_credentials(source) for source in sources]}
    values |= {key: value for key, value in options.items() if value is not None and value is not False}
    if algorithm is not None:
        values |= {"algorithm": algorithm.name}
        values |= {"set": [f"{key}={value}" for key, value in algorithm.parameters().items()]}
    lines = [f"{key.replace('_', '-')} = {_toml(value)}" for key, value in values.items()]
    text = "# Private: how this release was made. Not part of the release.\n" + "\n".join(lines) + "\n"
    for target in targets:
        place = target.with_name(target.name + ".private.toml")
        problem: str | None = None
        try:
            place.unlink(missing_ok=True)
            with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            problem = os.strerror(error.errno or 0)
        if problem is not None:
            raise CannotWrite(
                f"The release was written, but not its private record {place}: {problem}.",
                "Make room beside the output.",
            )


def _toml(value: Any) -> str:
    """Return a plain value in TOML, whose strings, numbers and arrays are JSON's."""
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, str):
        value = without_credentials(value)
    return json.dumps(value, ensure_ascii=False)

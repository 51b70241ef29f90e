"""Which release this is, and whether what it wrote is still there."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import hashlib
import json
import re
import types
from pathlib import Path
from typing import Any

from dpunion.errors import BadParameter, ForeignErrors, InternalError, LedgerError, system_reason


def fingerprint(**configuration: Any) -> str:
    """Return the SHA-256 of a release's public configuration: sources' names, columns, every option and plan.

    Values must be plain (JSON); names are sorted, so the order of arguments does not matter.
    """
    text = json.dumps(configuration, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"dpunion-release-request/2\n{text}".encode("ascii")).hexdigest()


def told(value: Any) -> Any:
    """Return an option as plain values for a fingerprint: a function by its code, a description by all its fields."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [told(each) for each in value]
    if dataclasses.is_dataclass(value):
        return {field.name: told(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if callable(value):
        return hashlib.sha256(json.dumps(_spelled(value)).encode("ascii")).hexdigest()
    raise InternalError(f"a fingerprint of a {type(value).__name__}")


def _spelled(value: Any) -> Any:
    """Spell what a function does as far as its own code tells; refuse objects whose state nothing tells.

    subtle: what a function calls counts by name only, and another version of Python has other code. The second makes
    an old release look new, which is charged; against the first only the operator can help.
    """
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes() | types.EllipsisType():
            return [type(value).__name__, repr(value)]
        case list() | tuple():
            return [type(value).__name__, [_spelled(each) for each in value]]
        case set() | frozenset():
            return ["set", sorted(json.dumps(_spelled(each)) for each in value)]
        case dict():
            return ["dict", sorted(json.dumps([_spelled(key), _spelled(each)]) for key, each in value.items())]
        case re.Pattern():
            return ["pattern", _spelled(value.pattern), value.flags]
        case type() | types.MethodDescriptorType():
            return ["name", getattr(value, "__module__", ""), value.__qualname__]
        case types.ModuleType():
            return ["module", value.__name__]
        case types.CodeType():
            names = [list(each) for each in (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)]
            return ["code", value.co_code.hex(), value.co_flags, names, _spelled(value.co_consts)]
        case types.FunctionType():
            held = [cell.cell_contents for cell in value.__closure__ or ()]
            name = [value.__module__, value.__qualname__]
            rest = [value.__code__, value.__defaults__, value.__kwdefaults__, held]
            return ["function", name, [_spelled(each) for each in rest]]
        case types.BuiltinFunctionType():
            return ["built-in", value.__qualname__, _spelled(value.__self__)]
        case types.MethodType():
            return ["method", _spelled(value.__func__), _spelled(value.__self__)]
        case functools.partial():
            return ["partial", _spelled(value.func), _spelled(value.args), _spelled(value.keywords)]
    raise BadParameter(
        "A ledger cannot identify a tokenizer that contains objects.",
        "Pass a plain function, and let it use global names instead of closed-over objects.",
    )


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hex."""

    def explain(error: OSError) -> LedgerError:
        why = system_reason(error)
        return LedgerError(
            f"dpunion cannot read {path} back: {why}.",
            "The release's budget is spent, but its ledger entry is not settled.",
        )

    with ForeignErrors(explain, OSError), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_intact(output: tuple[str, str]) -> bool:
    """Say whether a stored release's file is still what was written."""
    path, digest = output
    with contextlib.suppress(LedgerError):
        return bool(path) and Path(path).is_file() and sha256_of(Path(path)) == digest
    return False

"""The fingerprint of a release, and whether its files are still as they were written."""

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

from dpunion.errors import AlreadyReleased, BadParameter, ForeignErrors, InternalError, LedgerError, system_reason


def fingerprint(**configuration: Any) -> str:
    """Return the SHA-256 of a release's public configuration: names of sources, columns, all options and the plan.

    Values must be plain (JSON). The order of the arguments does not matter.
    """
    text = json.dumps(configuration, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"dpunion-release-request/2\n{text}".encode("ascii")).hexdigest()


def json_value(value: Any) -> Any:
    """Return an option as plain values for a fingerprint: a function as a hash of its code, an object as its fields."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [json_value(each) for each in value]
    if dataclasses.is_dataclass(value):
        return {field.name: json_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if callable(value):
        return hashlib.sha256(json.dumps(_describe(value)).encode("ascii")).hexdigest()
    raise InternalError(f"a fingerprint of a {type(value).__name__}")


def _describe(value: Any) -> Any:
    """Describe a function by its own code; refuse objects whose state cannot be read.

    subtle: functions that it calls count by name only, which only the operator can take care of. Another version of
    Python has other code, which makes an old release look new, and charges it.
    """
    match value:
        case None | bool() | int() | float() | complex() | str() | bytes() | types.EllipsisType():
            return [type(value).__name__, repr(value)]
        case list() | tuple():
            return [type(value).__name__, [_describe(each) for each in value]]
        case set() | frozenset():
            return ["set", sorted(json.dumps(_describe(each)) for each in value)]
        case dict():
            return ["dict", sorted(json.dumps([_describe(key), _describe(each)]) for key, each in value.items())]
        case re.Pattern():
            return ["pattern", _describe(value.pattern), value.flags]
        case type() | types.MethodDescriptorType():
            return ["name", getattr(value, "__module__", ""), value.__qualname__]
        case types.ModuleType():
            return ["module", value.__name__]
        case types.CodeType():
            names = [list(each) for each in (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)]
            return ["code", value.co_code.hex(), value.co_flags, names, _describe(value.co_consts)]
        case types.FunctionType():
            held = [cell.cell_contents for cell in value.__closure__ or ()]
            name = [value.__module__, value.__qualname__]
            rest = [value.__code__, value.__defaults__, value.__kwdefaults__, held]
            return ["function", name, [_describe(each) for each in rest]]
        case types.BuiltinFunctionType():
            return ["built-in", value.__qualname__, _describe(value.__self__)]
        case types.MethodType():
            return ["method", _describe(value.__func__), _describe(value.__self__)]
        case functools.partial():
            return ["partial", _describe(value.func), _describe(value.args), _describe(value.keywords)]
    raise BadParameter(
        "A ledger cannot identify a tokenizer that contains objects.",
        "Pass a plain function, and let it use global names instead of closed-over objects.",
    )


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hex."""

    def explain(error: OSError) -> LedgerError:
        return LedgerError(
            f"dpunion cannot read {path} back: {system_reason(error)}.",
            "The release's budget is spent, but its ledger entry is not settled.",
        )

    with ForeignErrors(explain, OSError), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_intact(output: tuple[str, str]) -> bool:
    """Say whether a file of a release still has the content that was written."""
    path, digest = output
    with contextlib.suppress(LedgerError):
        return bool(path) and Path(path).is_file() and sha256_of(Path(path)) == digest
    return False


def describe_earlier(already: AlreadyReleased) -> dict[str, Any]:
    """Return, for programs, what the ledger knows about a release that was made before."""
    files = [
        {"path": path, "sha256": digest, "intact": is_intact((path, digest))}
        for path, digest in already.outputs
        if path
    ]
    return {"already_released": True, "entry": already.entry, "files": files, "source_changed": already.source_changed}

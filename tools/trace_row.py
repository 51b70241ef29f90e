"""Follow one row of a CSV or Parquet file from the command line to the released file, and print its functions.

    python tools/trace_row.py [--parquet] [--all]

A real run of `dpunion release` is traced. A function counts when it hands the row on, that is returns or yields it: the
row's text, in whatever Arrow or numpy buffer, or one of the objects into which it is numbered, weighed and published.
What only looks at the row (checks, properties) does not count, and compiled kernels are not seen; their callers are.
--all prints every function of dpunion that was called.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

USER, ITEM = "canary-user-17", "canary-item-23"
TEXTS = (USER.encode(), ITEM.encode())
HOLDERS = {
    "Contributions",
    "RowStore",
    "TextStore",
    "Sets",
    "Part",
    "Weights",
    "State",
    "Stored",
    "ItemTable",
    "StringTable",
}
"""Objects in which the row is a number."""
DEEPEST = 3


def holds_row(value: Any, depth: int = 0) -> bool:
    """Say whether a value holds the row."""
    kind = type(value)
    if kind in (int, float, bool, type(None)) or depth > DEEPEST:
        return False
    if kind is str:
        return USER in value or ITEM in value
    if kind in (bytes, bytearray, memoryview):
        return any(text in bytes(value) for text in TEXTS)
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(holds_row(one, depth + 1) for one in list(value)[:64])
    if kind is dict:
        return any(holds_row(one, depth + 1) for one in list(value.values())[:64])
    module = kind.__module__
    if module.startswith("pyarrow"):
        return any(holds_row(buffer, depth + 1) for buffer in arrow_buffers(value))
    if module == "numpy":
        return getattr(value, "dtype", None) == "uint8" and holds_row(value.tobytes(), depth + 1)
    if module.startswith("dpunion"):
        return kind.__name__ in HOLDERS or any(holds_row(one, depth + 1) for one in fields_of(value))
    return False


def arrow_buffers(value: Any) -> Iterable[bytes]:
    """Return the bytes of Arrow data."""
    columns = getattr(value, "columns", None)
    chunks = value.chunks if hasattr(value, "chunks") else columns if isinstance(columns, list) else [value]
    for chunk in chunks:
        if hasattr(chunk, "chunks"):
            yield from arrow_buffers(chunk)
        elif hasattr(chunk, "buffers"):
            yield from (buffer.to_pybytes() for buffer in chunk.buffers() if buffer is not None)
        elif hasattr(chunk, "to_pybytes"):
            yield chunk.to_pybytes()


def fields_of(value: Any) -> list[Any]:
    """Return what an object of dpunion holds."""
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if isinstance(name, str)]
    if hasattr(value, "__dict__"):
        return [*vars(value).values()]
    return [getattr(value, name) for name in names if hasattr(value, name)]


class Walk:
    """The functions that were called, in the order of their first call, and whether they handed the row on."""

    def __init__(self, package: Path) -> None:
        self.package = str(package)
        self.called: dict[CodeType, bool] = {}
        self.errors: list[str] = []
        self.own = threading.local()  # each thread's own: what one thread looks at does not hide another's calls

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note a call, or what it returned or yielded."""
        code = frame.f_code
        if (
            event not in ("call", "return")
            or getattr(self.own, "busy", False)
            or not code.co_filename.startswith(self.package)
        ):
            return
        if self.called.get(code):
            return
        self.own.busy = True
        try:
            self.called[code] = event == "return" and holds_row(argument)
        except Exception as error:  # noqa: BLE001 - raised here it would end the release; main tells of it
            self.errors.append(f"{code.co_qualname}: {type(error).__name__}")
        finally:
            self.own.busy = False

    def names(self, *, everything: bool) -> list[tuple[str, str]]:
        """Return (module, function) of what handed the row on, or of all."""
        found = []
        for code, had_row in self.called.items():
            if (had_row or everything) and not code.co_name.startswith(("<", "__")):
                module = os.path.relpath(code.co_filename, self.package).removesuffix(".py").replace(os.sep, ".")
                found.append((module.removesuffix(".__init__"), code.co_qualname))
        return list(dict.fromkeys(found))


def trace_release(suffix: str) -> Walk:
    """Trace a release of a small file, twice: the first run compiles. suffix: ".csv" or ".parquet"."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    import dpunion
    from dpunion.cli import app

    walk = Walk(Path(dpunion.__file__).parent)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, f"rows{suffix}"), Path(folder, "released.csv")
        users = [USER, *(f"u{number}" for number in range(900))]
        write = pa.csv.write_csv if suffix == ".csv" else pa.parquet.write_table
        write(pa.table({"who": users, "what": [ITEM] * len(users)}), str(source))
        arguments = ["release", str(source), "--user", "who", "--item", "what", "-e", "1", "-d", "1e-4"]
        for trace in (None, walk):
            threading.setprofile(trace)
            sys.setprofile(trace)
            with contextlib.redirect_stderr(io.StringIO()):
                app([*arguments, "--out", str(target), "--force"], standalone_mode=False)
            sys.setprofile(None)
            threading.setprofile(None)
        if ITEM not in target.read_text():
            raise SystemExit("the row was not released")
    if walk.errors:
        raise SystemExit("Not everything could be looked at: " + ", ".join(sorted(set(walk.errors))))
    return walk


def main() -> None:
    """Print the walk of a row of a CSV or Parquet file."""
    walk = trace_release(".parquet" if "--parquet" in sys.argv[1:] else ".csv")
    found = walk.names(everything="--all" in sys.argv[1:])
    for module, function in found:
        print(f"{module:32} {function}")
    print(f"\n{len(found)} functions in {len({module for module, _ in found})} modules")


if __name__ == "__main__":
    main()

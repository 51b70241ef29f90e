"""Files of a study: results, each stamped NOT PRIVATE, generated data, and the journal of finished trials."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from dpunion.checks import check_suffix, check_whole
from dpunion.engines.publishing import Outputs
from dpunion.errors import CannotWrite, ForeignErrors, system_reason
from dpunion.files import OWNER_ONLY, atomic_file, check_place
from dpunion_lab.data import NOT_PRIVATE
from dpunion_lab.generators import Generated

JOURNAL_FORMAT = "dpunion-lab-journal/1"
HEADER = json.dumps({"format": JOURNAL_FORMAT, "warning": NOT_PRIVATE})


class Journal:
    """Finished trials by their identity: a file of JSON lines that survives a kill, so that a study can continue.

    Guarantees:
    - it never changes a file that is not a journal; only the owner can read a journal, as it has counts of the data;
    - when `add` returns, the trial is on disk, whole and synced; a line that a kill cut short is dropped later;
    - one process at a time can write; a second one is refused.
    """

    def __init__(self, path: Path, descriptor: int, entries: dict[str, dict[str, Any]]) -> None:
        self.path = path
        self.entries = entries
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def add(self, identity: str, values: dict[str, Any]) -> None:
        """Write a finished trial to disk."""
        line = json.dumps({"identity": identity} | values, separators=(",", ":"), allow_nan=False)
        with self._lock:
            _append(self.path, self._descriptor, line)
            self.entries[identity] = values


@contextlib.contextmanager
def open_journal(path: Path, *, start_over: bool = False) -> Iterator[Journal]:
    """Open a journal to read and add, or create it. start_over: drop its entries."""

    def explain(error: OSError) -> CannotWrite:
        why = "it is a link" if error.errno == errno.ELOOP else system_reason(error)
        return CannotWrite(f"The journal {path} cannot be opened: {why}.", "Choose another place for the results.")

    # Do not follow links, and do not wait for a pipe.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with ForeignErrors(explain, OSError):
        descriptor = os.open(path, flags, OWNER_ONLY)
    try:
        _refuse_strange(path, os.fstat(descriptor))
        _take(path, descriptor)
        content = _content(path, descriptor)
        entries = {} if start_over else _entries(path, content)
        os.fchmod(descriptor, OWNER_ONLY)
        os.ftruncate(descriptor, 0 if start_over else content.rfind(b"\n") + 1)
        if not os.fstat(descriptor).st_size:
            _append(path, descriptor, HEADER)
        yield Journal(path, descriptor, entries)
    finally:
        os.close(descriptor)


def _refuse_strange(path: Path, status: os.stat_result) -> None:
    """Refuse anything but a file of this user: another owner could read what we add."""
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise CannotWrite(
            f"The journal {path} is not a file of this user.",
            "Move that file, or choose another place for the results.",
        )


def _take(path: Path, descriptor: int) -> None:
    taken = CannotWrite(f"Another run is writing {path}.", "Wait for it, or choose another place for the results.")
    with ForeignErrors(lambda _: taken, OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _content(path: Path, descriptor: int) -> bytes:
    """Return the bytes of a journal without changing it, or refuse a file that is not a journal."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        content = file.read()
    first, end, _ = content.partition(b"\n")
    is_journal = not end and HEADER.encode().startswith(first)
    with contextlib.suppress(ValueError, KeyError, TypeError):
        is_journal = is_journal or json.loads(first)["format"] == JOURNAL_FORMAT
    if not is_journal:
        raise CannotWrite(
            f"{path} is not a journal of trials.", "Move that file, or choose another place for the results."
        )
    return content


def _entries(path: Path, content: bytes) -> dict[str, dict[str, Any]]:
    """Return the entries. A last line without its end is the rest of a killed write and is ignored."""
    entries: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        for line in content.split(b"\n")[1:-1]:
            values = json.loads(line)
            entries[values.pop("identity")] = values
        return entries
    raise CannotWrite(f"The journal {path} is damaged.", "Start over (--force, overwrite=True), or move it away.")


def _append(path: Path, descriptor: int, line: str) -> None:

    def explain(error: OSError) -> CannotWrite:
        return CannotWrite(
            f"Writing {path} failed: {system_reason(error)}.", "Free some space; finished trials are kept."
        )

    content = line.encode() + b"\n"
    with ForeignErrors(explain, OSError):
        # A short write on a full disk leaves a line without its end; the next `open_journal` drops it.
        if os.write(descriptor, content) < len(content):
            raise OSError(errno.ENOSPC, "short write")
        os.fsync(descriptor)


SUFFIXES = (".json", ".parquet")
DATA_SUFFIXES = (".parquet", ".csv")
MOST_USERS = 2**30
STAMP = {"dpunion": "NOT PRIVATE", "warning": NOT_PRIVATE}


def refuse_replacing(targets: list[Path], source: Any) -> None:
    """Refuse results that would overwrite the data of the study."""
    Outputs.of(targets, overwrite=True, counts=False).check_apart(source=source, known=None, charge=None)


def check_results(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Check early that results can be written to this path."""
    return check_results_file(Path(path), "results", SUFFIXES, overwrite=overwrite)


def check_results_file(target: Path, what: str, suffixes: tuple[str, ...], *, overwrite: bool) -> Path:
    """Check early that a file can be written and has one of these suffixes."""
    check_suffix(f"The suffix of {what}", target, suffixes, f"Name the file for example {what}{suffixes[0]}.")
    check_place(target, overwrite=overwrite)
    return target


def write_results(path: str | os.PathLike[str], values: dict[str, Any], *, overwrite: bool) -> Path:
    """Write all values as JSON, or the trials as Parquet, atomically. Only the owner can read them: NOT PRIVATE."""
    target = check_results(path, overwrite=overwrite)
    with atomic_file(target, overwrite=overwrite, mode=OWNER_ONLY) as file:
        if target.suffix.lower() == ".json":
            file.write(json.dumps(values, ensure_ascii=False, indent=1, allow_nan=False).encode() + b"\n")
        else:
            _write_parquet(values, file)
    return target


def _write_parquet(values: dict[str, Any], file: IO[bytes]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [one | {"parameters": json.dumps(one["parameters"], sort_keys=True)} for one in values["trials"]]
    facts = {"data": json.dumps(values["data"])}
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(STAMP | facts), file, compression="zstd")


def write_generated(path: str | os.PathLike[str], generator: Generated, *, overwrite: bool = False) -> Path:
    """Write generated data as Parquet or CSV with columns user and item, atomically."""
    import pyarrow.csv as pcsv
    import pyarrow.parquet as pq

    check_whole("generated data", "users", generator.users, 1, MOST_USERS)
    check_whole("generated data", "seed", generator.seed, 0, 2**63 - 1)
    target = check_results_file(Path(path), "data", DATA_SUFFIXES, overwrite=overwrite)
    reader = generator.reader()
    stamp = {"dpunion": "generated data, nobody's", "users": str(generator.users), "seed": str(generator.seed)}
    with atomic_file(target, overwrite=overwrite) as file:
        if target.suffix.lower() == ".csv":
            with pcsv.CSVWriter(file, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
        else:
            with pq.ParquetWriter(file, reader.schema.with_metadata(stamp), compression="zstd") as writer:
                for batch in reader:
                    writer.write_batch(batch)
    return target

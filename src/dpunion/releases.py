"""Release: the sorted items, the plan and what was guaranteed; and how it is written safely.

Everything in here is public. Files are rebuilt from plain strings, sorted by bytes, in a fixed layout: nothing of
the input's dictionaries, order, statistics or buffers can be in them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from dpunion.budget import guarantee
from dpunion.errors import BadParameter
from dpunion.files import atomic_file, check_place
from dpunion.plans import Plan

FORMAT = "dpunion-release/2"
FIRST_FORMAT = "dpunion-release/1"
COLUMN = "item"
NOT_PRIVATE = "NOT PRIVATE: made with a fixed test key, so nothing is guaranteed. Never publish this."
ASSUMPTIONS = (
    "It assumes that one user id stands for one person, that the operator is trusted, and that the budget of all "
    "releases from the same data is added up. It does not cover running time or memory use."
)
ROWS_PER_GROUP = 1 << 16
# What begins a formula, full-width forms too, which spreadsheets in East Asia read alike.
SIGNS = "=+-@＝＋－＠"
MAY_RUN = re.compile(f"['{re.escape(SIGNS)}]")
# Where a spreadsheet may begin a cell, besides commas; the separators are kept when splitting.
CELLS = re.compile("([;\t\r\n])")
QUOTED = re.compile('[",;\t\r\n]')


@dataclass(frozen=True, slots=True)
class Release:
    """What may be published.

    items: sorted by their UTF-8 bytes: texts, or for keys of several columns tuples of texts. guaranteed: False when a
    test key was used. notes: further public sentences of the statement: the ledger entry, the known list. columns: the
    names of the key's columns, with which the items are written. stored: the folder in which Spark wrote the items,
    which are then not here.
    """

    items: tuple[Any, ...]
    plan: Plan
    guaranteed: bool
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = (COLUMN,)
    stored: str | None = None

    def __len__(self) -> int:
        self._refuse_if_stored()
        return len(self.items)

    def __repr__(self) -> str:
        where = f"{len(self.items)} items" if self.stored is None else f"items in {self.stored}"
        return f"Release({where}, {self.plan.algorithm.name}, guaranteed={self.guaranteed})"

    def _refuse_if_stored(self) -> None:
        if self.stored is not None:
            raise BadParameter(
                "The items of this release are in the folder that Spark wrote.",
                "Read them from there, or collect them.",
            )

    @property
    def statement(self) -> str:
        """Say in plain words what was guaranteed."""
        return statement(self.plan, guaranteed=self.guaranteed, notes=self.notes)

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield each item as one text for each column."""
        self._refuse_if_stored()
        return iter(self.items) if len(self.columns) > 1 else ((item,) for item in self.items)

    def lines(self) -> Iterator[str]:
        """Yield each item on one line, escaped, with tabs between its texts."""
        return map(text_line, self.rows())

    def table(self) -> Any:
        """Return the items as a new Arrow table, one column of texts for each column of the key."""
        import pyarrow as pa

        rows = list(self.rows())
        return pa.table({name: text_array([row[i] for row in rows]) for i, name in enumerate(self.columns)})

    def to_json(self) -> str:
        """Return everything as JSON, items included."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, items included."""
        self._refuse_if_stored()
        return {
            "format": FORMAT,
            "guaranteed": self.guaranteed,
            "statement": self.statement,
            "notes": list(self.notes),
            "plan": self.plan.to_dict(),
            "columns": list(self.columns),
            "items": [list(item) for item in self.items] if len(self.columns) > 1 else list(self.items),
        }

    @classmethod
    def from_json(cls, text: str) -> Release:
        """Read back what `to_json` wrote."""
        values: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            values = with_new_word(json.loads(text), FIRST_FORMAT, FORMAT)
        if not (isinstance(values, dict) and values.get("format") == FORMAT and _is_release(values)):
            raise BadParameter("This is not a release of dpunion.", "Pass the text that Release.to_json returned.")
        notes = tuple(values.get("notes", []))
        columns = tuple(values.get("columns", (COLUMN,)))
        items = values["items"] if len(columns) == 1 else map(tuple, values["items"])
        return cls(tuple(sorted(items)), Plan.from_dict(values["plan"]), values["guaranteed"], notes, columns)

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the items in the format of the suffix, whole or not at all; return where.

        Guarantees:
        - the file appears complete or not at all, also when the process is killed or the disk is full;
        - it holds the released items (and, in JSON, the plan and the statement) and nothing else.
        """
        target = Path(path)
        writer = check_target(target, overwrite=overwrite)
        with atomic_file(target, overwrite=overwrite) as file:
            writer(self, file)
        return target


def _is_release(values: dict[str, Any]) -> bool:
    items, columns = values.get("items"), values.get("columns", [COLUMN])
    return (
        isinstance(items, list)
        and are_texts(columns)
        and len(set(columns)) == len(columns) > 0
        and (
            are_texts(items)
            if len(columns) == 1
            else all(are_texts(item) and len(item) == len(columns) for item in items)
        )
        and are_texts(values.get("notes", []))
        and isinstance(values.get("guaranteed"), bool)
        and isinstance(values.get("plan"), dict)
    )


def are_texts(values: Any) -> bool:
    """Say whether these are a list of texts, which can be written as UTF-8."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return False
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        return False
    return True


def with_new_word(values: Any, first_format: str, new_format: str) -> Any:
    """Return what was read from JSON with 'guaranteed' for 'private', as the first format called it."""
    if not (isinstance(values, dict) and values.get("format") == first_format and "private" in values):
        return values
    return values | {"format": new_format, "guaranteed": values["private"]}


def statement(plan: Plan, *, guaranteed: bool, notes: tuple[str, ...] = ()) -> str:
    """Say in plain words what a release with this plan guarantees, and what it does not."""
    if not guaranteed:
        return NOT_PRIVATE
    limit = plan.algorithm.max_items_per_user
    lines = [
        *guarantee(plan.budget),
        f"It was made by {plan.algorithm.name}, with at most {limit} items of each person taken into account, by "
        "secret random decisions that were made once and not kept.",
        ASSUMPTIONS,
        *notes,
    ]
    return "\n".join(lines)


class Writable(Protocol):
    """A release as the writers see it: rows of texts, and of numbers, under names."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        ...

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows."""
        ...

    def lines(self) -> Iterator[str]:
        """Yield the rows as lines of plain text."""
        ...

    def table(self) -> Any:
        """Return the rows as a new Arrow table."""
        ...

    def to_json(self) -> str:
        """Return everything as JSON."""
        ...


Writer = Callable[[Writable, IO[bytes]], None]


def check_target(target: Path, *, overwrite: bool) -> Writer:
    """Return the writer for the suffix; refuse early what cannot be written."""
    writer = WRITERS.get(target.suffix.lower())
    if writer is None:
        raise BadParameter(
            f"The output's suffix must be one of {', '.join(WRITERS)}. Got {target.suffix!r} instead.",
            "Name the output file after the format you want, for example vocabulary.parquet.",
        )
    check_place(target, overwrite=overwrite)
    return writer


def escape_controls(text: str) -> str:
    """Return the text with backslashes and all control and line-breaking characters escaped."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        character if character.isprintable() and character != "\\" else character.encode("unicode_escape").decode()
        for character in text
    )


def text_line(row: Sequence[str]) -> str:
    """Return an item's texts on one line, escaped, with tabs between them."""
    return "\t".join(map(escape_controls, row))


def defuse_formula(text: str) -> str:
    """Return the text with an apostrophe before anything a spreadsheet would run, and before a leading apostrophe.

    Many spreadsheets begin a cell at a semicolon or a tab, and quotes do not hinder them behind a line's first comma:
    so what follows one of these, or a line's end, is treated like a beginning. `restore_formula` gives the item back.
    """
    return "".join(map(_defused, CELLS.split(text))) if MAY_RUN.search(text) else text


def restore_formula(text: str) -> str:
    """Return the text of which `defuse_formula` made this one; apostrophes that it would not have put stay."""
    if "'" not in text:
        return text
    return "".join(cell[1:] if cell == _defused(cell[1:]) else cell for cell in CELLS.split(text))


def _defused(cell: str) -> str:
    """Return the cell, with an apostrophe before it when its first visible character is a sign, or its very first one
    an apostrophe.

    Quotes do not count as visible: a reader that separates at semicolons takes them for its own.
    """
    visible = next((character for character in cell if character.isprintable() and character not in ' "'), "")
    return "'" + cell if cell[:1] == "'" or (visible and visible in SIGNS) else cell


def text_array(texts: Sequence[str]) -> Any:
    """Return the texts as a new Arrow array; pa.array would import an installed pandas, which takes half a second."""
    from array import array
    from itertools import accumulate

    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    offsets = array("q", accumulate(map(len, encoded), initial=0))
    large = pa.LargeStringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))
    return large.cast(pa.string())


def _write_parquet(release: Writable, file: IO[bytes]) -> None:
    import pyarrow.parquet as pq

    pq.write_table(
        release.table(),
        file,
        compression="zstd",
        use_dictionary=False,
        write_page_checksum=True,
        row_group_size=ROWS_PER_GROUP,
    )


def _write_arrow(release: Writable, file: IO[bytes]) -> None:
    import pyarrow as pa

    table = release.table()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=ROWS_PER_GROUP)


def csv_line(row: Sequence[Any]) -> bytes:
    """Return the texts and numbers as a line of CSV (RFC 4180), formulas defused."""
    return ",".join(map(_csv_field, map(defuse_formula, map(str, row)))).encode() + b"\n"


def _csv_field(text: str) -> str:
    """Return the text as a field, quoted if it holds what any reader might take for the end of a field or a line."""
    return '"' + text.replace('"', '""') + '"' if not text or QUOTED.search(text) else text


def _write_csv(release: Writable, file: IO[bytes]) -> None:
    for row in (release.columns, *release.rows()):
        file.write(csv_line(row))


def _write_jsonl(release: Writable, file: IO[bytes]) -> None:
    for row in release.rows():
        values = dict(zip(release.columns, row, strict=True))
        file.write(json.dumps(values, ensure_ascii=False).encode() + b"\n")


def _write_txt(release: Writable, file: IO[bytes]) -> None:
    for line in release.lines():
        file.write(line.encode() + b"\n")


def _write_json(release: Writable, file: IO[bytes]) -> None:
    file.write(release.to_json().encode())


WRITERS: dict[str, Writer] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".txt": _write_txt,
    ".arrow": _write_arrow,
    ".json": _write_json,
}

"""Release: the sorted items, their numbers, the plan and the guarantee. All of it is public."""

from __future__ import annotations

import enum
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, overload

from dpunion.checks import check_whole
from dpunion.errors import BadParameter, ForeignErrors, import_library
from dpunion.files import atomic_file
from dpunion.plans import Plan
from dpunion.plans.counts import MOST_PEOPLE, Counted, Totals
from dpunion.plans.ngrams import LengthResult, NgramPlan, read_length
from dpunion.releases import formats
from dpunion.releases.about import UNTOLD, About, draw_card
from dpunion.releases.formats import COLUMN, LISTED, SINCE, check_target
from dpunion.releases.statements import statement

FORMAT = "dpunion-release/2"
NGRAM_FORMAT = "dpunion-ngrams/2"
FIRST_FORMATS = {"dpunion-release/1": FORMAT, "dpunion-ngrams/1": NGRAM_FORMAT}
"""The first formats, which say 'private' for 'guaranteed', and their successors."""
LENGTH, PEOPLE = "length", "people"
SHOWN = 10  # rows of a release that a notebook or a terminal shows
COUNTED = (PEOPLE, "low", "high")
"""The columns of counts, with their names in Counted."""


class Order(enum.Enum):
    """The order of a release: by the bytes of the items, or the most popular first."""

    ITEM = "item"
    PEOPLE = "people"


@dataclass(frozen=True, slots=True)
class Numbers:
    """A column of whole numbers, one for each item; bits: its width in Parquet and Arrow, 1 for truth values."""

    name: str
    values: tuple[int, ...]
    bits: int = 64


@dataclass(frozen=True, slots=True)
class Release:
    """What may be published: a collection of items, and a table for every library that takes Arrow's streams.

    pl.DataFrame(release), pa.table(release) and to_pandas() have all columns; pd.DataFrame(release) has the items only.
    items: texts, or tuples for keys of several columns; sorted by their UTF-8 bytes, or the most popular first.
    guaranteed: False if a test key was used. notes: more public sentences of the statement: the ledger entry, the known
    list. columns: the column names of the items' texts. numbers: columns of numbers: for n-grams the length, with
    candidates whether the item is listed, with counts the people and the interval. results: for n-grams, the results of
    each length. stored: the folder in which Spark wrote the items, which are then not here. totals: with counts, the
    numbers of all people together. about: its title, owner, note, day and entry in a ledger. gone: if the candidates
    are the previous release, its items that are not in this one.
    """

    items: tuple[Any, ...]
    plan: Plan | NgramPlan
    guaranteed: bool
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = (COLUMN,)
    numbers: tuple[Numbers, ...] = ()
    results: tuple[LengthResult, ...] = ()
    stored: str | None = None
    totals: Totals | None = None
    about: About = UNTOLD
    gone: tuple[Any, ...] | None = None
    _members: list[frozenset[Any]] = field(default_factory=list, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        self._refuse_if_stored()
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        self._refuse_if_stored()
        return iter(self.items)

    def __contains__(self, item: object) -> bool:
        self._refuse_if_stored()
        if not self._members:
            self._members.append(frozenset(self.items))
        return item in self._members[0]

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Any, ...]: ...
    def __getitem__(self, place: int | slice) -> Any:
        self._refuse_if_stored()
        return self.items[place]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the table as Arrow's C stream, so that polars, pyarrow and DuckDB take a release directly."""
        return self.table().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """Return a small card for notebooks."""
        if self.stored is not None:
            return draw_card(f"Items released to {self.stored}", self.statement.split("\n")[:2], (), (), 0)
        rows = tuple(itertools.islice(self.rows(), SHOWN))
        heading = f"{len(self):,} {'n-grams' if self.results else 'items'} released"
        return draw_card(heading, self.statement.split("\n")[:2], self.header, rows, len(self) - len(rows))

    def __repr__(self) -> str:
        where = f"{len(self.items)} items" if self.stored is None else f"items in {self.stored}"
        if self.results:
            where = ", ".join(f"{one.released} of length {one.length}" for one in self.results)
        return f"Release({where}, {self.plan.algorithm.name}, guaranteed={self.guaranteed})"

    def _refuse_if_stored(self) -> None:
        if self.stored is not None:
            raise BadParameter(
                "The items of this release are in the folder that Spark wrote.",
                "Read them from that folder, or collect them.",
            )

    @property
    def statement(self) -> str:
        """Return what is guaranteed, in plain words."""
        return statement(
            self.plan, guaranteed=self.guaranteed, notes=self.notes, results=self.results, totals=self.totals
        )

    @property
    def header(self) -> tuple[str, ...]:
        """Return the names of all columns, those of the items' texts first."""
        return (*self.columns, *(one.name for one in self.numbers))

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield each item as one text for each of its columns, followed by its numbers."""
        self._refuse_if_stored()
        texts = iter(self.items) if len(self.columns) > 1 else ((item,) for item in self.items)
        if not self.numbers:
            return texts
        numbers = zip(*(one.values for one in self.numbers), strict=True)
        return (text + more for text, more in zip(texts, numbers, strict=True))

    def lines(self) -> Iterator[str]:
        """Yield each item as one line, escaped, its texts separated by tabs, without its numbers."""
        width = len(self.columns)
        return (formats.text_line(row[:width]) for row in self.rows())

    def table(self) -> Any:
        """Return a new Arrow table: the columns of texts, then those of numbers."""
        import pyarrow as pa

        from dpunion.buffers import number_array, text_array

        self._refuse_if_stored()
        width = len(self.columns)
        columns = [[row[i] for row in self.items] for i in range(width)] if width > 1 else [self.items]
        texts = {name: text_array(column) for name, column in zip(self.columns, columns, strict=True)}
        return pa.table(texts | {one.name: number_array(one.values, one.bits) for one in self.numbers})

    def to_pandas(self) -> Any:
        """Return the table as a pandas DataFrame. `pd.DataFrame(release)` would have the items alone."""
        import_library("pandas", "to_pandas needs pandas", "pandas")
        return self.table().to_pandas()

    def to_polars(self) -> Any:
        """Return the table as a polars DataFrame, as `pl.DataFrame(release)` does."""
        return import_library("polars", "to_polars needs polars", "polars").DataFrame(self)

    def of_length(self, length: int) -> tuple[str, ...]:
        """Return the n-grams of one length."""
        lengths = self._numbers(LENGTH, "The items of this release have no length.", "Release n-grams: Ngrams().")
        return tuple(item for item, size in zip(self.items, lengths, strict=True) if size == length)

    @property
    def people(self) -> dict[Any, int]:
        """Return the estimated number of people who have each item, in the order of the items."""
        people = self._numbers(PEOPLE, "This release has no counts.", "Ask for them: counts=True (--counts).")
        return dict(zip(self.items, people, strict=True))

    def _numbers(self, name: str, problem: str, remedy: str) -> tuple[int, ...]:
        self._refuse_if_stored()
        for one in self.numbers:
            if one.name == name:
                return one.values
        raise BadParameter(problem, remedy)

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the items and their numbers, which identifies a release without a file."""
        width = len(self.columns)
        joined = (
            " ".join([row[0] if width == 1 else formats.join_key(row[:width]), *map(str, row[width:])])
            for row in self.rows()
        )
        return hashlib.sha256("\0".join(joined).encode()).hexdigest()

    def to_json(self) -> str:
        """Return everything as JSON, items included."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, items included."""
        self._refuse_if_stored()
        ngrams = isinstance(self.plan, NgramPlan)
        values = {
            "format": NGRAM_FORMAT if ngrams else FORMAT,
            "guaranteed": self.guaranteed,
            "statement": self.statement,
            "notes": list(self.notes),
            "plan": self.plan.to_dict(),
            **self.about.to_dict(),
        }
        if self.totals is not None:
            values["totals"] = self.totals.to_dict()
        if numbers := {one.name: list(one.values) for one in self.numbers if one.name != LENGTH}:
            values["numbers"] = numbers
        if ngrams:
            rows = [list(row[:2]) for row in self.rows()]
            return values | {"results": [asdict(one) for one in self.results], "ngrams": rows}
        if self.gone is not None:
            values["gone"] = list(self.gone)
        items = [list(item) for item in self.items] if len(self.columns) > 1 else list(self.items)
        return values | {"columns": list(self.columns), "items": items}

    @classmethod
    def from_json(cls, text: str) -> Release:
        """Read back what `to_json` wrote."""
        strange = BadParameter(
            "This is not a release in JSON.",
            "Use a file that --out release.json wrote, or the text that Release.to_json returned.",
        )
        kinds = (AttributeError, KeyError, TypeError, ValueError, RecursionError)
        with ForeignErrors(lambda _: strange, *kinds, ours_too=True):
            return _read_release(json.loads(text))

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the items in the format of the suffix, whole or not at all; return the path.

        Guarantees:
        - the file appears complete or not at all, also when the process is killed or the disk is full;
        - it has the released items and their numbers (and, in JSON, the plan and the statement) and nothing else.
        """
        target = Path(path)
        writer = check_target(target, overwrite=overwrite)
        with atomic_file(target, overwrite=overwrite) as file:
            writer(self, file)
        return target


def with_items(
    draft: Release,
    texts: Sequence[str],
    counted: Counted | None = None,
    order: Order | None = None,
    numbers: tuple[Numbers, ...] = (),
) -> Release:
    """Return the release with these items, each one text: sorted, and keys of several columns in their parts.

    texts: distinct. counted: how many people have each of them. numbers: further columns, such as the week of each item
    in a schedule, and whether it is on a list of candidates.

    Guarantees: the result depends on the set of texts and their numbers, not on their order.
    """
    items: list[Any] = list(texts) if len(draft.columns) == 1 else list(map(formats.split_key, texts))
    return _with_rows(draft, items, numbers, counted, order)


def with_gone(made: Release, before: Mapping[str, int]) -> Release:
    """Return the release with the items of the previous release that are not in it; before: since when each one was."""
    earlier: Iterable[Any] = before if len(made.columns) == 1 else map(formats.split_key, before)
    gone = tuple(sorted(set(earlier).difference(made.items)))
    note = (
        f"The candidates are the {len(before):,} items of the list that this release continues; {len(gone):,} of them "
        f"are not in this one. {SINCE!r} says in which week of the schedule an item came onto the list."
    )
    return replace(made, gone=gone, notes=(*made.notes, note))


def with_ngrams(
    draft: Release,
    found: Sequence[tuple[str, int]],
    results: tuple[LengthResult, ...],
    counted: Counted | None = None,
    order: Order | None = None,
) -> Release:
    """Return the release with these n-grams, each with its length, sorted.

    Guarantees: the result depends on the set of n-grams and their counts, not on their order.
    """
    lengths = Numbers(LENGTH, tuple(length for _, length in found), 32)
    return _with_rows(draft, [text for text, _ in found], (lengths,), counted, order, results)


def _with_rows(
    draft: Release,
    items: list[Any],
    numbers: tuple[Numbers, ...],
    counted: Counted | None,
    order: Order | None,
    results: tuple[LengthResult, ...] = (),
) -> Release:
    if counted is not None:
        numbers = (*numbers, *(Numbers(name, getattr(counted, name)) for name in COUNTED))
    chosen = order or (Order.ITEM if counted is None else Order.PEOPLE)
    places = sorted(range(len(items)), key=items.__getitem__)
    if counted is not None and chosen is Order.PEOPLE:
        places.sort(key=lambda place: -counted.people[place])
    sorted_numbers = tuple(replace(one, values=tuple(map(one.values.__getitem__, places))) for one in numbers)
    return replace(
        draft,
        items=tuple(map(items.__getitem__, places)),
        numbers=sorted_numbers,
        results=results,
        totals=None if counted is None else counted.totals,
    )


def _read_release(values: dict[str, Any]) -> Release:
    """Return the release that these values describe; raise one of several errors where they describe none."""
    if "private" in values and values["format"] in FIRST_FORMATS:
        values = values | {"format": FIRST_FORMATS[values["format"]], "guaranteed": values["private"]}
    ngrams = {FORMAT: False, NGRAM_FORMAT: True}[values["format"]]
    notes, about = tuple(_read_texts(values.get("notes", []))), About.from_dict(values)
    if not isinstance(values["guaranteed"], bool):
        raise TypeError("neither guaranteed nor not")
    plan = NgramPlan.from_dict(values["plan"]) if ngrams else Plan.from_dict(values["plan"])
    draft = Release((), plan, values["guaranteed"], notes, about=about)
    return _read_ngrams(draft, values) if ngrams else _read_items(draft, values)


def _read_items(draft: Release, values: dict[str, Any]) -> Release:
    columns = tuple(_read_texts(values.get("columns", [COLUMN])))
    if not len(set(columns)) == len(columns) > 0 or not isinstance(values["items"], list):
        raise ValueError("no items, or no columns for them")
    items = _read_keys(values["items"], len(columns))
    gone = None if "gone" not in values else tuple(_read_keys(values["gone"], len(columns)))
    numbers = _numbers_from(values, len(items))
    return replace(draft, items=tuple(items if numbers else sorted(items)), columns=columns, gone=gone, **numbers)


def _read_keys(items: list[Any], width: int) -> list[Any]:
    """Return items, each of `width` texts; refuse others."""
    keys = _read_texts(items) if width == 1 else [tuple(_read_texts(item)) for item in items]
    if width > 1 and any(len(key) != width for key in keys):
        raise ValueError("an item with another number of texts than columns")
    return keys


def _numbers_from(values: dict[str, Any], count: int) -> dict[str, Any]:
    """Return the columns of numbers and the totals that were written, or nothing."""
    written = values.get("numbers", {})
    if ("totals" in values) != (PEOPLE in written) or not set(written) <= {SINCE, LISTED, *COUNTED}:
        raise ValueError("counts without totals, or other numbers")
    found: list[Numbers] = []
    for name, numbers in written.items():
        if len(numbers) != count:
            raise ValueError("another number of counts than of items")
        for number in numbers:
            if name != LISTED:
                check_whole("counts", "people", number, 0, MOST_PEOPLE)
            elif not isinstance(number, bool):
                raise ValueError("neither listed nor not")
        found.append(Numbers(name, tuple(numbers), {SINCE: 32, LISTED: 1}.get(name, 64)))
    totals = {"totals": Totals.from_dict(values["totals"])} if "totals" in values else {}
    return {"numbers": tuple(found)} | totals if found else {}


def _read_ngrams(draft: Release, values: dict[str, Any]) -> Release:
    if not isinstance(values["results"], list) or not isinstance(values["ngrams"], list):
        raise TypeError("no n-grams, or no results")
    results = tuple(LengthResult.from_dict(one) for one in values["results"])
    rows = [(ngram, read_length({"length": length})) for ngram, length in values["ngrams"]]
    texts = tuple(_read_texts([ngram for ngram, _ in rows]))
    counts = _numbers_from(values, len(rows))
    if not counts:
        return with_ngrams(draft, rows, results)
    lengths = Numbers(LENGTH, tuple(length for _, length in rows), 32)
    return replace(draft, items=texts, results=results, **counts | {"numbers": (lengths, *counts["numbers"])})


def _read_texts(values: Any) -> list[str]:
    """Return a list of texts; refuse anything else, and texts that cannot be written as UTF-8."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("no list of texts")
    if not formats.is_utf8("".join(values)):
        raise ValueError("texts that are no UTF-8")
    return values

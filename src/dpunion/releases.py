"""Release: the sorted items, the numbers beside them, the plan and what was guaranteed. All of it is public."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpunion import formats, keys
from dpunion.budget import guarantee
from dpunion.errors import BadParameter
from dpunion.files import atomic_file
from dpunion.formats import COLUMN, check_target
from dpunion.ngrams.plans import LengthResult, NgramPlan, read_length
from dpunion.plans import Plan

FORMAT = "dpunion-release/2"
NGRAM_FORMAT = "dpunion-ngrams/2"
FIRST_FORMATS = {"dpunion-release/1": FORMAT, "dpunion-ngrams/1": NGRAM_FORMAT}
"""Formats that say 'private' for 'guaranteed', and those that followed them."""
NGRAM_COLUMN, LENGTH = "ngram", "length"
NOT_PRIVATE = "NOT PRIVATE: made with a fixed test key, so nothing is guaranteed. Never publish this."
ASSUMPTIONS = (
    "It assumes that one user id stands for one person, that the operator is trusted, and that the budget of all "
    "releases from the same data is added up. It does not cover running time or memory use."
)


@dataclass(frozen=True, slots=True)
class Numbers:
    """A whole number for each item, under the name of its column; bits: how wide it is in Parquet and Arrow."""

    name: str
    values: tuple[int, ...]
    bits: int = 64


@dataclass(frozen=True, slots=True)
class Release:
    """What may be published.

    items: sorted by their UTF-8 bytes: texts, or for keys of several columns tuples of texts. guaranteed: False when a
    test key was used. notes: further public sentences of the statement: the ledger entry, the known list. columns: the
    names with which the texts of an item are written. numbers: what stands beside each item: of n-grams the length.
    results: of n-grams, what is known about each length. stored: the folder in which Spark wrote the items, which are
    then not here.
    """

    items: tuple[Any, ...]
    plan: Plan | NgramPlan
    guaranteed: bool
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = (COLUMN,)
    numbers: tuple[Numbers, ...] = ()
    results: tuple[LengthResult, ...] = ()
    stored: str | None = None

    def __len__(self) -> int:
        self._refuse_if_stored()
        return len(self.items)

    def __repr__(self) -> str:
        where = f"{len(self.items)} items" if self.stored is None else f"items in {self.stored}"
        if self.results:
            where = ", ".join(f"{one.released} of length {one.length}" for one in self.results)
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
        return statement(self.plan, guaranteed=self.guaranteed, notes=self.notes, results=self.results)

    @property
    def header(self) -> tuple[str, ...]:
        """The names of all columns, those of the items' texts first."""
        return (*self.columns, *(one.name for one in self.numbers))

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield each item as one text for each of its columns, and the numbers beside it."""
        self._refuse_if_stored()
        texts = iter(self.items) if len(self.columns) > 1 else ((item,) for item in self.items)
        beside = zip(*(one.values for one in self.numbers), strict=True) if self.numbers else None
        return texts if beside is None else (text + more for text, more in zip(texts, beside, strict=True))

    def lines(self) -> Iterator[str]:
        """Yield each item on one line, escaped, with tabs between its texts and without its numbers."""
        width = len(self.columns)
        return (formats.text_line(row[:width]) for row in self.rows())

    def table(self) -> Any:
        """Return a new Arrow table: the columns of texts, then those of numbers."""
        import pyarrow as pa

        self._refuse_if_stored()
        rows = self.items if len(self.columns) > 1 else [(item,) for item in self.items]
        texts = {name: formats.text_array([row[i] for row in rows]) for i, name in enumerate(self.columns)}
        return pa.table(texts | {one.name: pa.array(one.values, f"int{one.bits}") for one in self.numbers})

    def of_length(self, length: int) -> tuple[str, ...]:
        """Return the n-grams of one length."""
        lengths = next((one.values for one in self.numbers if one.name == LENGTH), None)
        if lengths is None:
            raise BadParameter("The items of this release have no length.", "Release n-grams: algorithm=Ngrams().")
        return tuple(item for item, size in zip(self.items, lengths, strict=True) if size == length)

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the items and their numbers, by which a release without a file is known again."""
        width = len(self.columns)
        joined = (
            " ".join([row[0] if width == 1 else keys.join_key(row[:width]), *map(str, row[width:])])
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
        }
        if ngrams:
            return values | {"results": [asdict(one) for one in self.results], "ngrams": [list(r) for r in self.rows()]}
        items = [list(item) for item in self.items] if len(self.columns) > 1 else list(self.items)
        return values | {"columns": list(self.columns), "items": items}

    @classmethod
    def from_json(cls, text: str) -> Release:
        """Read back what `to_json` wrote."""
        values: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            values = _newest(json.loads(text))
        if isinstance(values, dict) and _is_whole(values):
            if values.get("format") == FORMAT and _has_items(values):
                return _items_from(values)
            if values.get("format") == NGRAM_FORMAT and _has_ngrams(values):
                with contextlib.suppress(KeyError, TypeError, ValueError):
                    return _ngrams_from(values)
        raise BadParameter("This is not a release of dpunion.", "Pass the text that Release.to_json returned.")

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the items in the format of the suffix, whole or not at all; return where.

        Guarantees:
        - the file appears complete or not at all, also when the process is killed or the disk is full;
        - it holds the released items and their numbers (and, in JSON, the plan and the statement) and nothing else.
        """
        target = Path(path)
        writer = check_target(target, overwrite=overwrite)
        with atomic_file(target, overwrite=overwrite) as file:
            writer(self, file)
        return target


def with_items(draft: Release, texts: Iterable[str]) -> Release:
    """Return the release with these items, each one text: sorted, and keys of several columns in their parts.

    Guarantees: the items depend on the set of the texts alone, not on their order.
    """
    sorted_items = sorted(set(texts)) if len(draft.columns) == 1 else sorted(map(keys.split_key, set(texts)))
    return _replaced(draft, tuple(sorted_items), ())


def with_ngrams(draft: Release, found: Sequence[tuple[str, int]], results: tuple[LengthResult, ...]) -> Release:
    """Return the release with these n-grams, each with its length, sorted.

    Guarantees: the items depend on the set of the n-grams alone, not on their order.
    """
    rows = sorted(found)
    lengths = Numbers(LENGTH, tuple(length for _, length in rows), 32)
    return _replaced(draft, tuple(text for text, _ in rows), (lengths,), results)


def _replaced(
    draft: Release, items: tuple[Any, ...], numbers: tuple[Numbers, ...], results: tuple[LengthResult, ...] = ()
) -> Release:
    return Release(items, draft.plan, draft.guaranteed, draft.notes, draft.columns, numbers, results)


def _newest(values: Any) -> Any:
    """Return what was read from JSON with 'guaranteed' for 'private', as the first formats called it."""
    if not (isinstance(values, dict) and isinstance(values.get("format"), str) and "private" in values):
        return values
    followed = FIRST_FORMATS.get(values["format"])
    return values if followed is None else values | {"format": followed, "guaranteed": values["private"]}


def _is_whole(values: dict[str, Any]) -> bool:
    return (
        isinstance(values.get("guaranteed"), bool)
        and isinstance(values.get("plan"), dict)
        and _are_texts(values.get("notes", []))
    )


def _has_items(values: dict[str, Any]) -> bool:
    items, columns = values.get("items"), values.get("columns", [COLUMN])
    if not (isinstance(items, list) and _are_texts(columns) and len(set(columns)) == len(columns) > 0):
        return False
    if len(columns) == 1:
        return _are_texts(items)
    return all(_are_texts(item) and len(item) == len(columns) for item in items)


def _items_from(values: dict[str, Any]) -> Release:
    columns = tuple(values.get("columns", (COLUMN,)))
    items = values["items"] if len(columns) == 1 else map(tuple, values["items"])
    notes = tuple(values.get("notes", []))
    return Release(tuple(sorted(items)), Plan.from_dict(values["plan"]), values["guaranteed"], notes, columns)


def _has_ngrams(values: dict[str, Any]) -> bool:
    rows = values.get("ngrams")
    return (
        isinstance(rows, list)
        and all(isinstance(row, list) and len(row) == 2 for row in rows)
        and _are_texts([row[0] for row in rows])
        and isinstance(values.get("results"), list)
    )


def _ngrams_from(values: dict[str, Any]) -> Release:
    results = tuple(LengthResult.from_dict(one) for one in values["results"])
    rows = [(ngram, read_length({"length": length})) for ngram, length in values["ngrams"]]
    plan, notes = NgramPlan.from_dict(values["plan"]), tuple(values.get("notes", []))
    return with_ngrams(Release((), plan, values["guaranteed"], notes, (NGRAM_COLUMN,)), rows, results)


def _are_texts(values: Any) -> bool:
    """Say whether these are a list of texts, which can be written as UTF-8."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        return False
    return formats.is_utf8("".join(values))


def statement(
    plan: Plan | NgramPlan, *, guaranteed: bool, notes: Sequence[str] = (), results: Sequence[LengthResult] = ()
) -> str:
    """Say in plain words what a release with this plan guarantees, and what it does not."""
    if not guaranteed:
        return NOT_PRIVATE
    if isinstance(plan, NgramPlan):
        lines = [*guarantee(plan.budget, covers="texts"), *_how_ngrams_were_made(plan, results)]
    else:
        limit = plan.algorithm.max_items_per_user
        lines = [
            *guarantee(plan.budget),
            f"It was made by {plan.algorithm.name}, with at most {limit} items of each person taken into account, by "
            "secret random decisions that were made once and not kept.",
        ]
    return "\n".join([*lines, ASSUMPTIONS, *notes])


def _how_ngrams_were_made(plan: NgramPlan, results: Sequence[LengthResult]) -> list[str]:
    """Say by what n-grams were released, and which of them may be spurious."""
    lines = [f"Single tokens were released by {plan.first.algorithm.name}; all of them were written by somebody."]
    if len(plan.lengths) > 1:
        expected = (f"at most {r.spurious:.3g} of {r.released:,} at length {r.length}" for r in results if r.length > 1)
        lines.append(
            "Longer n-grams were released from those whose two parts one token shorter were released. Any of them may "
            "be spurious, that is written by nobody; which ones, nobody can know. To be expected: "
            f"{', '.join(expected)}."
        )
    return [*lines, "Every part of a listed n-gram is listed too."]


def closed_under_parts(texts: Iterable[str]) -> tuple[str, ...]:
    """Keep the n-grams (tokens joined by spaces) whose every shorter part is among the texts too.

    For a set union of all lengths, where that is not so by construction. It only looks at what was released, so it
    costs no privacy.
    """
    everything = set(texts)

    def is_closed(tokens: list[str]) -> bool:
        count = len(tokens)
        return all(
            " ".join(tokens[start : start + size]) in everything
            for size in range(1, count)
            for start in range(count - size + 1)
        )

    return tuple(sorted(text for text in everything if is_closed(text.split(" "))))

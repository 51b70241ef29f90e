"""NgramRelease: the n-grams with their lengths, the plan and what was guaranteed; and how it is written safely."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpunion.budget import guarantee
from dpunion.errors import BadParameter
from dpunion.files import atomic_file
from dpunion.ngrams.plans import LengthResult, NgramPlan, length_in
from dpunion.releases import (
    ASSUMPTIONS,
    NOT_PRIVATE,
    are_texts,
    check_target,
    escape_controls,
    text_array,
    with_new_word,
)

FORMAT = "dpunion-ngrams/2"
FIRST_FORMAT = "dpunion-ngrams/1"
COLUMNS = ("ngram", "length")


@dataclass(frozen=True, slots=True)
class NgramRelease:
    """What may be published.

    ngrams: (text, length), sorted by the text's UTF-8 bytes; a text is the tokens joined by one space. results: what is
    known about each length. guaranteed: False when a test key was used.
    """

    ngrams: tuple[tuple[str, int], ...]
    plan: NgramPlan
    results: tuple[LengthResult, ...]
    guaranteed: bool
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ngrams)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{one.released} of length {one.length}" for one in self.results)
        return f"NgramRelease({sizes}, guaranteed={self.guaranteed})"

    def of_length(self, length: int) -> tuple[str, ...]:
        """Return the texts of one length."""
        return tuple(text for text, size in self.ngrams if size == length)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns with which the n-grams are written."""
        return COLUMNS

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield each n-gram with its length."""
        return iter(self.ngrams)

    def lines(self) -> Iterator[str]:
        """Yield each n-gram on one line, escaped, without its length."""
        return (escape_controls(text) for text, _ in self.ngrams)

    def table(self) -> Any:
        """Return the n-grams and their lengths as a new Arrow table."""
        import pyarrow as pa

        lengths = pa.array([length for _, length in self.ngrams], pa.int32())
        return pa.table({COLUMNS[0]: text_array([text for text, _ in self.ngrams]), COLUMNS[1]: lengths})

    @property
    def statement(self) -> str:
        """Say in plain words what was guaranteed, and which n-grams may be spurious."""
        return statement(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, n-grams included."""
        return {
            "format": FORMAT,
            "guaranteed": self.guaranteed,
            "statement": self.statement,
            "notes": list(self.notes),
            "plan": self.plan.to_dict(),
            "results": [dataclasses.asdict(one) for one in self.results],
            "ngrams": [list(one) for one in self.ngrams],
        }

    def to_json(self) -> str:
        """Return everything as JSON, n-grams included."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> NgramRelease:
        """Read back what `to_json` wrote."""
        values: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            values = with_new_word(json.loads(text), FIRST_FORMAT, FORMAT)
        if isinstance(values, dict) and values.get("format") == FORMAT and _is_release(values):
            with contextlib.suppress(KeyError, TypeError, ValueError):
                results = tuple(LengthResult.from_dict(one) for one in values["results"])
                rows = tuple((ngram, length_in({"length": length})) for ngram, length in values["ngrams"])
                notes = tuple(values.get("notes", []))
                return cls(rows, NgramPlan.from_dict(values["plan"]), results, values["guaranteed"], notes)
        raise BadParameter(
            "This is not a release of n-grams of dpunion.", "Pass the text that NgramRelease.to_json returned."
        )

    def write(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the n-grams in the format of the suffix, whole or not at all; return where.

        Guarantees:
        - the file appears complete or not at all, also when the process is killed or the disk is full;
        - it holds the released n-grams and their lengths (and, in JSON, plan and statement) and nothing else.
        """
        target = Path(path)
        writer = check_target(target, overwrite=overwrite)
        with atomic_file(target, overwrite=overwrite) as file:
            writer(self, file)
        return target


def _is_release(values: dict[str, Any]) -> bool:
    rows = values.get("ngrams")
    return (
        isinstance(rows, list)
        and all(isinstance(row, list) and len(row) == 2 for row in rows)
        and are_texts([row[0] for row in rows])
        and are_texts(values.get("notes", []))
        and isinstance(values.get("results"), list)
        and isinstance(values.get("plan"), dict)
        and isinstance(values.get("guaranteed"), bool)
    )


def statement(release: NgramRelease) -> str:
    """Say in plain words what a release of n-grams guarantees, and what it does not."""
    if not release.guaranteed:
        return NOT_PRIVATE
    plan = release.plan
    lines = [
        *guarantee(plan.budget, covers="texts"),
        f"Single tokens were released by {plan.first.algorithm.name}; all of them were written by somebody.",
    ]
    if len(plan.lengths) > 1:
        lines.append(
            "Longer n-grams were released from those whose two parts one token shorter were released. Any of them may "
            "be spurious, that is written by nobody; which ones, nobody can know. To be expected: "
            + ", ".join(
                f"at most {one.spurious:.3g} of {one.released:,} at length {one.length}"
                for one in release.results
                if one.length > 1
            )
            + "."
        )
    return "\n".join([*lines, "Every part of a listed n-gram is listed too.", ASSUMPTIONS, *release.notes])


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

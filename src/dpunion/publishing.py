"""From what was selected to a release: checked places, one statement, files whole or not at all."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpunion.charging import Entry
from dpunion.engines import Chosen, Engine
from dpunion.errors import BadParameter
from dpunion.formats import check_target
from dpunion.ngrams.plans import NgramPlan
from dpunion.plans import Plan
from dpunion.randomness import RunKey
from dpunion.reading.overlaps import refuse_overwriting
from dpunion.releases import NGRAM_COLUMN, Release, with_items, with_ngrams
from dpunion.requests import Charge, Folder, Known, PathLike, Request, Run, SparkSource


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a release goes: files by their suffixes, or a folder for Spark to write."""

    files: tuple[Path, ...]
    folder: Folder | None
    overwrite: bool

    @classmethod
    def of(cls, out: PathLike | Sequence[PathLike] | Folder, *, overwrite: bool) -> Outputs:
        """Take what was asked for, unchecked."""
        if isinstance(out, Folder):
            return cls((), out, overwrite)
        named = [out] if isinstance(out, (str, os.PathLike)) else out
        return cls(tuple(map(Path, named)), None, overwrite)

    def check_apart(self, *, source: Any, known: Any, charge: Charge | None) -> None:
        """Refuse outputs that would replace what is read or kept, or be read the next time."""
        names = list(source.names) if isinstance(source, SparkSource) else source
        listed = known.source if isinstance(known, Known) else known
        read = {"source": names, "known list": [listed], "ledger": charge and charge.ledger}
        refuse_overwriting(self.files if self.folder is None else self.folder.path, read)

    def check(self) -> None:
        """Refuse what cannot be written."""
        for target in self.files:
            check_target(target, overwrite=self.overwrite)
        if len({target.resolve() for target in self.files}) < len(self.files):
            raise BadParameter("Two outputs name the same file.", "Name each output file once.")


def draft_release(plan: Plan | NgramPlan, request: Request, engine: Engine, entry: Entry, key: RunKey) -> Release:
    """Return the release without its items.

    Guarantees: it holds what is public before anything was read.
    """
    columns = (NGRAM_COLUMN,) if isinstance(plan, NgramPlan) else request.columns
    notes = (*engine.notes, *request.notes(), *entry.notes, *request.known_notes())
    return Release((), plan, not key.is_test, notes, columns)


def publish(
    chosen: Chosen, draft: Release, request: Request, engine: Engine, outputs: Outputs, run: Run
) -> tuple[Release, list[Path]]:
    """Turn what was selected, and the known list when it is included, into the release; return it and its files.

    Guarantees: the items are sorted by bytes; nothing else of the input reaches the release.
    """
    run.tell("writing")
    if outputs.folder is not None:
        return dataclasses.replace(draft, stored=engine.store(chosen, draft.columns)), []
    if isinstance(draft.plan, NgramPlan):
        made = with_ngrams(draft, chosen.ngrams, chosen.results)
    else:
        known = request.known.items if request.include_known and request.known is not None else ()
        made = with_items(draft, (*chosen.items, *known))
    return made, [made.write(target, overwrite=outputs.overwrite) for target in outputs.files]

"""Turn what an engine selected into a release: outputs that were checked first, one statement, complete files."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpunion.addresses import check_output
from dpunion.buffers import large_texts, pc, text_array
from dpunion.chances import least_holders
from dpunion.checks import OrderName, as_choice
from dpunion.engines import Chosen, Engine, Listed
from dpunion.errors import AlreadyReleased, BadParameter
from dpunion.files import atomic_file, claim_names
from dpunion.kernels.compiler import cache_directory
from dpunion.ledger.schedules import UNREADABLE, Earlier
from dpunion.plans import Plan
from dpunion.plans.counts import Counted
from dpunion.plans.ngrams import NgramPlan
from dpunion.randomness import RunKey
from dpunion.reading.locate import is_read, local_path, refuse_overwriting
from dpunion.releases.about import About
from dpunion.releases.formats import LISTED, SINCE, check_target
from dpunion.releases.release import COUNTED, Numbers, Order, Release, with_gone, with_items, with_ngrams
from dpunion.requests import Candidates, Charge, Folder, Known, PathLike, Request, Run, SparkSource, Words


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a release is written, files by their suffixes or a folder of Spark's, and how it is sorted."""

    files: tuple[Path, ...]
    folder: Folder | None
    overwrite: bool
    order: Order | None = None

    @classmethod
    def of(
        cls,
        out: PathLike | Sequence[PathLike] | Folder,
        *,
        overwrite: bool,
        sort: OrderName | None = None,
        counts: bool,
    ) -> Outputs:
        """Accept the options of `release`; refuse an unknown order. `check` refuses other bad outputs later."""
        order = None if sort is None else as_choice("sort", sort, Order)
        if order is Order.PEOPLE and not counts:
            raise BadParameter(
                "Items can only be sorted by people when people are counted.",
                "Ask for counts (counts=True, --counts), or leave out 'sort' (--sort).",
            )
        if isinstance(out, Folder):
            return cls((), out, overwrite, order)
        named = [out] if isinstance(out, (str, os.PathLike)) else out
        for name in named:
            check_output(name)
        return cls(tuple(map(Path, named)), None, overwrite, order)

    def check_apart(
        self, *, source: Any, item: Any = None, known: Any, candidates: Candidates | None = None, charge: Charge | None
    ) -> None:
        """Refuse outputs that would replace an input or the ledger, or that the next run would read.

        Refuse for a schedule outputs from which its next release could not read the list and its weeks; and as a public
        list a file of the source.
        """
        listed = [] if candidates is None else list(candidates.sources)
        earlier = [one for one in (known, *listed) if isinstance(one, Earlier)]
        if earlier and not any(one.suffix.lower() not in UNREADABLE for one in self.files):
            raise BadParameter(
                "A scheduled release needs an output file that the next one can read.",
                "Give 'out' (--out) a file with one of the suffixes .parquet, .csv, .jsonl, .arrow and .json.",
            )
        names = list(source.names) if isinstance(source, SparkSource) else source
        stopped = item.stop_words if isinstance(item, Words) else None
        read = {"source": names, "known list": [known.source if isinstance(known, Known) else known]}
        read |= {"ledger": charge and charge.ledger, "earlier list": [one.source for one in earlier]}
        read["list of stop words"] = [stopped]
        read["list of candidates"] = listed
        refuse_overwriting(self.files if self.folder is None else self.folder.path, read)
        for what in ("known list", "list of stop words", "list of candidates"):
            for path in filter(None, map(local_path, read[what])):
                if path.is_file() and is_read(names, path):
                    raise BadParameter(
                        f"The {what} {path} is a source of this release, so it is not public.",
                        "Name a list that exists without these people's data, such as an earlier release.",
                    )

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Claim the names of the files while the release is made; refuse names that another run has claimed."""
        directory = cache_directory() if self.files else None
        if directory is None:
            yield
            return
        # The lock is next to the folders of compiled kernels, so that all versions of dpunion share it.
        with claim_names(self.files, directory.parent / "outputs.lock"):
            yield

    def check(self) -> None:
        """Refuse files that cannot be written."""
        for target in self.files:
            check_target(target, overwrite=self.overwrite)
        if len({target.resolve() for target in self.files}) < len(self.files):
            raise BadParameter("Two outputs name the same file.", "Name each output file once.")


def draft_release(
    plan: Plan | NgramPlan, request: Request, engine: Engine, charge_notes: tuple[str, ...], key: RunKey, about: About
) -> Release:
    """Return the release without its items.

    Guarantees: everything in it was public before any row was read.
    """
    notes = (*engine.notes, *request.notes(), *charge_notes, *request.known_notes())
    return Release((), plan, not key.is_test, notes, request.columns, about=about)


def list_chosen(chosen: Chosen, request: Request) -> Listed:
    """Return the public list: the selected items, and the known list if it is included.

    Guarantees: of the input, only selected items are in it.
    """
    if chosen.levels:
        return Listed((), (), tuple(length == 1 for _, length in chosen.ngrams), chosen.levels)
    known, selected = () if request.known is None else request.known.items, set(chosen.items)
    texts = tuple(sorted(selected.union(known) if request.include_known else selected))
    candidates = find_candidates(texts, chosen, request)
    sure = tuple(text in selected and not one for text, one in zip(texts, candidates, strict=True))
    return Listed(texts, () if request.include_known else known, sure, candidates=candidates)


def find_candidates(texts: Sequence[str], chosen: Chosen, request: Request) -> list[bool]:
    """Say which texts are on the request's list of candidates, and so may have no people."""
    found = chosen.candidates
    if request.candidates is not None and not found:
        listed = request.candidates.texts
        found = frozenset(listed.filter(pc.is_in(listed, value_set=large_texts(text_array(texts)))).to_pylist())
    return [text in found for text in texts]


def count_holders(
    engine: Engine, held: Any, chosen: Chosen, request: Request, plan: Plan | NgramPlan, key: RunKey
) -> Counted | None:
    """Count the people who have each item of the list, if the plan has counts.

    Guarantees: only the engine's `count` uses people's sets; the least numbers to show depend on the plan alone.
    """
    if plan.counts is None:
        return None
    listed = dataclasses.replace(list_chosen(chosen, request), least=least_holders(plan))
    return engine.count(held, listed, plan.counts, key)


def publish(
    chosen: Chosen,
    counted: Counted | None,
    draft: Release,
    request: Request,
    engine: Engine,
    outputs: Outputs,
    run: Run,
) -> tuple[Release, list[Path]]:
    """Return the release of the selected items, and of the known list if it is included, and the files written.

    Guarantees: the items are sorted; of the input, only selected items reach the release.
    """
    run.tell("writing")
    if chosen.results:
        made = with_ngrams(draft, chosen.ngrams, chosen.results, counted, outputs.order)
    elif chosen.is_remote:
        made = draft
    else:
        public = list_chosen(chosen, request)
        texts, listed = public.texts, public.candidates
        if request.drop_doubtful and counted is not None:
            sound = [place for place, low in enumerate(counted.low) if low > 0 or not listed[place]]
            texts, listed = tuple(texts[place] for place in sound), [listed[place] for place in sound]
            people, low, high = (tuple(getattr(counted, name)[place] for place in sound) for name in COUNTED)
            counted = Counted(people, low, high, counted.totals)
        before = request.vocabulary
        since = None if before is None else before.weeks_of(texts)
        numbers = () if since is None else (Numbers(SINCE, since, 32),)
        earlier = frozenset() if before is None else before.listed
        if request.candidates is not None or earlier:
            flags = tuple(flag or text in earlier for flag, text in zip(listed, texts, strict=True))
            numbers = (*numbers, Numbers(LISTED, flags, 1))
        made = with_items(draft, texts, counted, outputs.order, numbers)
        if before is not None and before is request.candidates:
            made = with_gone(made, before.since)
    made = dataclasses.replace(made, notes=(*made.notes, *request.notes_on(made.items)))
    if outputs.folder is not None:
        return dataclasses.replace(made, items=(), numbers=(), stored=engine.store(chosen, made)), []
    return made, [made.write(target, overwrite=outputs.overwrite) for target in outputs.files]


def copy_earlier(already: AlreadyReleased, targets: Sequence[Path], *, overwrite: bool) -> tuple[list[str], list[Path]]:
    """Copy the stored files of an earlier release to the targets; return the stored files, and the targets it wrote.

    Guarantees: it names or copies only files with the hash in the ledger; without any it raises the refusal again.
    """
    stored = [(Path(path), digest) for path, digest in already.outputs if path]
    intact = [(path, content) for path, digest in stored if (content := _read_intact(path, digest)) is not None]
    if not intact or (not targets and len(intact) < len(stored)):
        raise already
    missing = [target for target in targets if not _is_copy(target, stored)]
    for target in missing:
        check_target(target, overwrite=overwrite)
        content = next((content for path, content in intact if path.suffix.lower() == target.suffix.lower()), None)
        if content is None or already.source_changed:
            why = "it was made from other data" if content else "no file of this format was written then, or it is gone"
            problem = AlreadyReleased(f"{already.what} It is not copied to {target}: {why}.", already.remedy)
            problem.entry, problem.outputs = already.entry, already.outputs
            problem.source_changed = already.source_changed
            raise problem
        with atomic_file(target, overwrite=overwrite) as file:
            file.write(content)
    return [str(path) for path, _ in intact], missing


def _is_copy(target: Path, stored: Sequence[tuple[Path, str]]) -> bool:
    """Say whether the target exists and is the stored release, under its own or another name."""
    suffix = target.suffix.lower()
    return any(path.suffix.lower() == suffix and _read_intact(target, digest) is not None for path, digest in stored)


def _read_intact(path: Path, digest: str) -> bytes | None:
    """Return the bytes of a file if they have this hash."""
    with contextlib.suppress(OSError):
        content = path.read_bytes()
        return content if hashlib.sha256(content).hexdigest() == digest else None
    return None

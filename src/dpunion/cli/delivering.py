"""From a release to whoever asked for it: as rows or JSON, with its ledger entry; and what was made before."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from dpunion.cli.answers import is_watched, made_before, print_json, print_result, say, say_lines
from dpunion.cli.terminal import table_lines
from dpunion.errors import AlreadyReleased, LedgerNote

if TYPE_CHECKING:
    from dpunion.releases.release import Release

MADE_BEFORE = 6
"""The exit code of a release that was made before and is where it was asked for."""
FEW = 10
"""Fewer items than this are explained."""
ADDS_UP = (
    "This release was not charged to a ledger. The budgets of all releases from the same data add up, and "
    "together they guarantee less. See dpunion ledger --help."
)


@contextlib.contextmanager
def delivering(released: Release, written: Sequence[object]) -> Iterator[None]:
    """Let whatever fails after the release was settled say that its charge stays, and where the items are."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        entry = released.about.charged
        if entry is not None:
            where = f"The release is in {' and '.join(map(str, written))}." if written else "The items are lost."
            error.add_note(
                LedgerNote(
                    f"The charge of ({entry.epsilon:g}, {entry.delta:g}) on {entry.dataset!r} stays: entry "
                    f"{entry.entry}. {where}",
                    dataclasses.asdict(entry) | {"charged": True, "delivered": bool(written)},
                )
            )
        raise


def answer_release(made: Release, targets: Sequence[Path], *, as_json: bool) -> None:
    """Print a release, or say where it was written; on a terminal show its first rows."""
    from dpunion.releases.release import SHOWN

    if as_json:
        values = {"ledger": None} | made.to_dict()
        if targets:
            values.pop("numbers", None)  # they are in the files, beside the items
            values["released"] = len(values.pop("ngrams" if made.results else "items"))
            values["written"] = [str(target) for target in targets]
        print_json(values)
        return
    if not targets:
        print_result("".join(line + "\n" for line in _lines(made)))
    elif is_watched() and len(made):
        left = len(made) - SHOWN
        say_lines([*table_lines(made, SHOWN), *([f"… and {left:,} more"] if left > 0 else []), ""])
    places = " and ".join(str(target) for target in targets) or "standard output"
    sizes = ", ".join(f"{one.released:,} of length {one.length}" for one in made.results)
    unit = "n-gram" if sizes else "item"
    what = f"{len(made):,} {unit}{'' if len(made) == 1 else 's'}" + (f" ({sizes})" if sizes else "")
    say(f"Released {what} to {places}.\n{made.statement}")
    if len(made) < FEW and made.guaranteed:
        from dpunion.chances import needed_sentence

        say(needed_sentence(made.plan))
    if made.about.charged is None and made.guaranteed and is_watched():
        say(ADDS_UP)


def _lines(made: Release) -> Iterator[str]:
    """Return the rows as they are printed: with tabs for programs; counts below each other for people."""
    from dpunion.releases.formats import text_line

    if made.totals is not None and sys.stdout.isatty():
        return table_lines(made)
    return map(text_line, made.rows())


def answer_again(already: AlreadyReleased, targets: Sequence[Path], *, overwrite: bool, as_json: bool) -> NoReturn:
    """Answer with the stored release: point to its files, and copy one to each place that was asked for.

    Guarantees: only bytes with the hash that the ledger holds are pointed to or copied; else the refusal is passed on.
    """
    stored = [(Path(path), digest) for path, digest in already.outputs if path]
    whole = [(path, digest, content) for path, digest in stored if (content := _content(path, digest)) is not None]
    if not whole or (not targets and len(whole) < len(stored)):
        raise already
    copied = [target for target in targets if not _is_stored(target, stored)]
    for target in copied:
        _copy(already, target, whole, overwrite=overwrite)
    places = [str(path) for path, _, _ in whole]
    changed = " The source has changed since." if already.source_changed else ""
    say(f"This release was made before, as entry {already.entry}: {', '.join(places)}.{changed}")
    if copied:
        say(f"It was copied to {' and '.join(map(str, copied))}.")
    say("Nothing was charged. Use --charge-again to make it again.")
    if as_json:
        print_json(made_before(already) | {"copied": [str(target) for target in copied]})
    raise typer.Exit(MADE_BEFORE)


def _content(path: Path, digest: str) -> bytes | None:
    """Return a stored file's bytes if they are what was written."""
    with contextlib.suppress(OSError):
        content = path.read_bytes()
        return content if hashlib.sha256(content).hexdigest() == digest else None
    return None


def _is_stored(target: Path, stored: Sequence[tuple[Path, str]]) -> bool:
    """Say whether the file that is asked for is there and is the release, under its own or another stored name."""
    suffix = target.suffix.lower()
    return any(path.suffix.lower() == suffix and _content(target, digest) is not None for path, digest in stored)


def _copy(already: AlreadyReleased, target: Path, whole: Sequence[tuple[Path, str, bytes]], *, overwrite: bool) -> None:
    """Write the stored file of the same format to `target`, if it is of the data that is there now."""
    from dpunion.files import atomic_file
    from dpunion.releases.formats import check_target

    check_target(target, overwrite=overwrite)
    content = next((content for path, _, content in whole if path.suffix.lower() == target.suffix.lower()), None)
    if content is None or already.source_changed:
        why = "it was made from other data" if content else "no file of this format was written then, or it is gone"
        problem = AlreadyReleased(f"{already.what} It is not copied to {target}: {why}.", already.remedy)
        problem.entry, problem.outputs = already.entry, already.outputs
        problem.source_changed = already.source_changed
        raise problem
    with atomic_file(target, overwrite=overwrite) as file:
        file.write(content)

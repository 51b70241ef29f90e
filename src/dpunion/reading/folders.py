"""What is below a folder and what matches a pattern, with nothing left out in silence.

Python's own `glob` and `os.walk` pass over folders that may not be read, and links that lead nowhere.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import TypeVar

from dpunion.errors import BadSource, ForeignErrors, system_reason

T = TypeVar("T")

ANY_DEPTH = "**"
ABSENT = (FileNotFoundError, NotADirectoryError)


def status(path: Path) -> os.stat_result | None:
    """Return what a path leads to, links followed; None when there is nothing."""
    return look_at(path.stat, path)


def is_directory(found: os.stat_result | None) -> bool:
    """Say whether what was found at a path is a folder."""
    return found is not None and stat.S_ISDIR(found.st_mode)


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder in order of name; nothing when there is no such folder."""

    def listed() -> list[os.DirEntry[str]]:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)

    return look_at(listed, folder) or []


def look_at(look: Callable[[], T], path: Path) -> T | None:
    """Return what `look` returns, None when the path is not there; refuse a path that cannot be looked at."""

    def explain(error: OSError) -> BadSource:
        why = system_reason(error)
        return BadSource(
            f"{shown(path)!r} cannot be accessed: {why}.", "Ask for permission to read it, or read a copy."
        )

    # A ValueError is a NUL in the path. Folders may be named after data.
    with ForeignErrors(explain, OSError), contextlib.suppress(*ABSENT, ValueError):
        return look()
    return None


def walk(root: Path) -> Iterator[Path]:
    """Yield the files below a folder, links followed, without those that writers hide.

    Guarantees:
    - a folder that cannot be read is refused, not passed over.
    """
    seen: set[str] = set()
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        real = os.path.realpath(folder)
        # subtle: a link to a folder above would be followed for ever; rows read twice would not matter.
        if real in seen:
            continue
        seen.add(real)
        for entry in entries(folder):
            if is_hidden(entry.name):
                continue
            if is_folder(entry):
                waiting.append(folder / entry.name)
            else:
                yield folder / entry.name


def is_hidden(name: str) -> bool:
    """Say whether a file or folder is not data by the convention of Hadoop's writers."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Say whether an entry is a folder or a link to one."""
    return bool(look_at(entry.is_dir, Path(entry.path)))


def matching(pattern: Path) -> list[Path]:
    """Return all that a pattern matches, sorted: *, ? and [...] within a name, ** for folders at any depth.

    Names that begin with a dot are matched only by patterns that do.

    Guarantees:
    - a folder that must be read to tell and cannot be, and a link to nowhere in a folder's place, are refused;
    - a match that is no file is among the matches, unless the pattern matches all that is in it as well.
    """
    start, parts = Path(pattern.anchor), pattern.parts[1 if pattern.anchor else 0 :]
    found = sorted(set(_matches(start, parts, set())))
    return [path for path in found if not (goes_on(parts) and is_directory(status(path)))]


def goes_on(pattern: Sequence[str]) -> bool:
    """Say whether a pattern, part by part, matches all that is in a folder that it matches."""
    return pattern[-1] == ANY_DEPTH or tuple(pattern[-2:]) == (ANY_DEPTH, "*")


def fits_pattern(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Say whether the pattern, part by part, means the path; ** means any number of folders."""
    if not pattern:
        return not parts
    if pattern[0] == ANY_DEPTH:
        plain = next((place for place, part in enumerate(parts) if part.startswith(".")), len(parts))
        return any(fits_pattern(parts[skipped:], pattern[1:]) for skipped in range(plain + 1))
    if not parts or (parts[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(parts[0], pattern[0]) and fits_pattern(parts[1:], pattern[1:])


def _matches(folder: Path, parts: Sequence[str], seen: set[str]) -> Iterator[Path]:
    """Yield what matches the parts of a pattern in a folder; seen: folders whose depths were searched."""
    first, rest = parts[0], parts[1:]
    if first == ANY_DEPTH:
        real = os.path.realpath(folder)
        if real in seen:
            return
        seen.add(real)
        if rest:
            yield from _matches(folder, rest, set())
        for entry in entries(folder):
            if entry.name.startswith("."):
                continue
            if leads_on(entry):
                yield from _matches(folder / entry.name, parts, seen)
            elif not rest:
                yield folder / entry.name
    elif not glob.has_magic(first):
        if not rest:
            yield from [folder / first] if look_at((folder / first).lstat, folder / first) is not None else []
        else:
            yield from _matches(folder / first, rest, set())
    else:
        fits = re.compile(fnmatch.translate(first)).match
        for entry in entries(folder):
            if not fits(entry.name) or (entry.name.startswith(".") and not first.startswith(".")):
                continue
            if not rest:
                yield folder / entry.name
            elif leads_on(entry):
                yield from _matches(folder / entry.name, rest, set())


def leads_on(entry: os.DirEntry[str]) -> bool:
    """Say whether a pattern goes on below an entry; refuse a link to nowhere, which may have been a folder."""
    if is_folder(entry):
        return True
    path = Path(entry.path)
    if entry.is_symlink() and status(path) is None:
        raise BadSource(
            f"{shown(path)!r}, which the pattern passes through, is a broken link.", "Fix the link, or remove it."
        )
    return False


def shown(path: PurePath) -> str:
    """Return a path with the values of partitions left out, for they are data."""
    pieces = ((part, *part.partition("=")) for part in path.parts)
    return str(type(path)(*(f"{key}=…" if mark else part for part, key, mark, _ in pieces)))

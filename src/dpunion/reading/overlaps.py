"""An output never takes the place of what a release reads or keeps, nor lies where it would be read the next time."""

from __future__ import annotations

import glob
import os
import urllib.parse
from collections.abc import Iterable, Mapping
from pathlib import Path

from dpunion.addresses import DATABASE_FILES, Address
from dpunion.errors import CannotWrite
from dpunion.reading.folders import fits_pattern, is_hidden, walk

PathLike = str | os.PathLike[str]


def refuse_overwriting(out: PathLike | Iterable[PathLike], read: Mapping[str, object]) -> None:
    """Refuse outputs that are what is read, links followed; `read` says what each name or list of names is.

    What is no path of this machine (frames, other databases, standard input, nothing) is passed over.
    """
    paths = {
        what: [path for path in map(local_path, names if isinstance(names, (list, tuple)) else [names]) if path]
        for what, names in read.items()
    }
    for target in [Path(out)] if isinstance(out, (str, os.PathLike)) else map(Path, out):
        for what, places in paths.items():
            for path in places:
                if is_same(target, path) or _holds(path, target):
                    raise CannotWrite(
                        f"The output {target} is also the {what} of this run, or would be read as one by the next run.",
                        "Choose another name or folder for the output; overwriting does not help here.",
                    )


def local_path(name: object) -> Path | None:
    """Return the path or pattern on this machine that a name means, None when it means none."""
    if not isinstance(name, (str, os.PathLike)):
        return None
    text = os.fspath(name)
    if text in ("", "-"):
        return None
    address = Address.of(text)
    if not address.scheme:
        return Path(text).expanduser()
    if not address.is_known or address.scheme not in ("file", *DATABASE_FILES):
        return None
    return Path(urllib.parse.unquote(address.path) if address.scheme == "file" else address.path[1:])


def is_same(one: Path, other: Path) -> bool:
    """Say whether two paths are one file, by inode or, where there is none yet, by name."""
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return os.path.realpath(one) == os.path.realpath(other)


def _holds(source: Path, target: Path) -> bool:
    """Say whether a folder or pattern reads the target, now or once it is written."""
    if source.is_dir():
        below = [place.relative_to(os.path.realpath(source)) for place in _places(target) if _is_below(place, source)]
        return any(not any(map(is_hidden, place.parts)) for place in below) or _is_among(target, walk(source))
    if not glob.has_magic(str(source)) or source.exists():
        return False
    parts = source.absolute().parts
    plain = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root = Path(os.path.realpath(Path(*parts[:plain])))
    reached = [place.relative_to(root).parts for place in _places(target) if place.is_relative_to(root)]
    found = glob.iglob(str(source), recursive=True)  # noqa: PTH207 - the pattern may be absolute
    return any(fits_pattern(place, parts[plain:]) for place in reached) or _is_among(target, map(Path, found))


def _places(target: Path) -> set[Path]:
    """Return where the target is, by its own name in its real folder, and by what it links to."""
    return {Path(os.path.realpath(target.parent), target.name), Path(os.path.realpath(target))}


def _is_below(place: Path, folder: Path) -> bool:
    return place.is_relative_to(os.path.realpath(folder))


def _is_among(target: Path, files: Iterable[Path]) -> bool:
    return target.exists() and any(is_same(target, file) for file in files)

"""The one home of numba: compile a kernel, cached in a directory that only this user can write.

Numba's cache files are pickles, so a cache directory that somebody else could write would be a way to run
code here. The directory is therefore ours, mode 0700 and not a link; when no such directory can be had,
kernels compile afresh in each process instead (slower start, same results).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.core.caching
import numba.core.config

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` to machine code that runs without the interpreter lock."""
    compiled = numba.njit(nogil=True, error_model="numpy")(function)
    directory = cache_directory()
    if directory is not None:
        before = numba.core.config.CACHE_DIR
        # subtle: a cache chooses its place when it is made, so the setting is ours only for this call.
        numba.core.config.CACHE_DIR = str(directory)
        try:
            compiled._cache = ForgivingCache(function)  # noqa: SLF001 - what numba's own cache=True does
        finally:
            numba.core.config.CACHE_DIR = before
    return cast("F", compiled)


class ForgivingCache(numba.core.caching.FunctionCache):  # type: ignore[misc]
    """A cache whose faults cost time only: damaged files are dropped, and a full disk keeps nothing."""

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compiled function, or None if it must be compiled."""
        try:
            return super().load_overload(signature, target)
        except Exception:  # noqa: BLE001 - whatever a damaged pickle raises
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        """Keep the compiled function, if that can be done."""
        with contextlib.suppress(OSError):
            super().save_overload(signature, data)


@functools.cache
def cache_directory() -> Path | None:
    """Return a private directory for compiled kernels, or None when there is none to be had."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpunion"
        directory = base / f"kernels-{source_digest()}"
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        for folder in (base, directory):
            if not is_private(folder):
                return None
        if not os.access(directory, os.W_OK | os.X_OK):
            return None
    except (OSError, RuntimeError):
        return None
    return directory


def is_private(folder: Path) -> bool:
    """Say whether `folder` is a real directory of this user that nobody else can write or read."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077 == 0


def source_digest() -> str:
    """Name the cache after the text of all kernels: numba itself does not see edits in a callee's file."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]

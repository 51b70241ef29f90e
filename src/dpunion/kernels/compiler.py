"""The one home of numba: compile a kernel, cached in a directory that only this user can write.

Numba's cache files are pickles: anybody who could write to the cache directory, or exchange it for another, could run
code here. So the directory is ours, mode 0700 and not a link, and nobody but us and root can rename anything above it.
Without such a directory, kernels are compiled in each process (slower, same results), and a warning says what to do.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite.ir
import numpy as np
import numpy.typing as npt

from dpunion.kernels import call_hook, hidden_from_numba

with hidden_from_numba():
    import numba
    import numba.core.caching
    import numba.core.config
    import numba.core.event
    import numba.extending
    from numba.core.runtime import rtsys

from dpunion.errors import system_reason
from dpunion.threads import uninterrupted

F = TypeVar("F", bound=Callable[..., Any])

# Versions of numba whose compiled kernels, as was tested, need its runtime and nothing else: see load_overload.
LOADS_ALONE = numba.__version__.startswith("0.68.")


class CompileListener(numba.core.event.Listener, threading.local):  # type: ignore[misc]
    """Calls the hook of `kernels` when this thread begins to compile a kernel, and when it is done.

    numba sends events for what it compiles, not loads. depth: how many a thread compiles: one, and what that one needs.
    """

    depth = 0

    def on_start(self, event: Any) -> None:  # noqa: ARG002 - numba's interface
        # subtle: the hook may raise an interrupt; numba then stops compiling, and sends no event that it ended.
        if self.depth == 0:
            call_hook(True)
        self.depth += 1

    def on_end(self, event: Any) -> None:  # noqa: ARG002 - numba's interface
        self.depth -= 1
        if self.depth == 0:
            call_hook(False)


numba.core.event.register("numba:compile", CompileListener())


def kernel(function: F) -> F:
    """Compile `function` to machine code that runs without the interpreter lock."""
    return _cached(numba.njit(nogil=True, error_model="numpy")(function), function)


def inlined(function: F) -> F:
    """Compile a small `function` into each of its callers.

    A call with arrays passes every array's shape and strides, which takes longer than a few operations on them.
    """
    return _cached(numba.njit(nogil=True, error_model="numpy", forceinline=True)(function), function)


def _cached(compiled: Any, function: F) -> F:
    # An interrupt while compiling or loading would leave locks taken for ever (see threads.py).
    compiled.compile = functools.partial(uninterrupted, compiled.compile)
    # Kernels need none of the installed extensions of numba, and finding these takes a while.
    compiled._compilation_chain_init_hook = lambda: None  # noqa: SLF001
    directory = cache_directory()
    if directory is not None:
        before = numba.core.config.CACHE_DIR
        # subtle: a cache chooses its folder when it is created, so the setting changes only for this call.
        numba.core.config.CACHE_DIR = str(directory)
        try:
            cache = ForgivingCache(function)
            # If numba cannot write to this folder, it chooses another, for example that of the source.
            if directory in Path(cache.cache_path).parents:
                compiled._cache = cache  # noqa: SLF001 - what numba's own cache=True does
            else:
                _tell_uncached(f"{directory} cannot be written")
        except RuntimeError:
            _tell_uncached(f"{directory} cannot be written")
        finally:
            numba.core.config.CACHE_DIR = before
    return cast("F", compiled)


def _at_place(emit: Callable[..., Any]) -> Callable[..., Any]:
    """Return what numba calls to compile an access to an array: it gives `emit` the place and the other values."""

    def emit_access(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        found = emit(builder, builder.gep(array.data, [values[1]]), *values[2:])
        return context.get_dummy_value() if signature.return_type == numba.types.void else found

    return emit_access


def _word_at(_typing: Any, data: Any, at: Any) -> Any:
    """Compile `word_at` to one load, which need not be aligned."""

    def emit(builder: Any, place: Any) -> Any:
        word = builder.load(builder.bitcast(place, llvmlite.ir.IntType(64).as_pointer()), align=1)
        return word if sys.byteorder == "little" else builder.bswap(word)

    return numba.types.uint64(data, at), _at_place(emit)


def _load_word(_typing: Any, words: Any, at: Any) -> Any:
    return numba.types.uint64(words, at), _at_place(lambda builder, place: builder.load_atomic(place, "acquire", 8))


def _store_word(_typing: Any, words: Any, at: Any, value: Any) -> Any:
    store = _at_place(lambda builder, place, word: builder.store_atomic(word, place, "release", 8))
    return numba.types.void(words, at, value), store


def _swap_word(_typing: Any, words: Any, at: Any, old: Any, new: Any) -> Any:
    def emit(builder: Any, place: Any, before: Any, after: Any) -> Any:
        return builder.extract_value(builder.cmpxchg(place, before, after, "acq_rel", "monotonic"), 1)

    return numba.types.boolean(words, at, old, new), _at_place(emit)


def _add_word(_typing: Any, words: Any, at: Any, value: Any) -> Any:
    add = _at_place(lambda builder, place, more: builder.atomic_rmw("add", place, more, "acq_rel"))
    return numba.types.uint64(words, at, value), add


word_at: Callable[[npt.NDArray[np.uint8], np.uint64], np.uint64] = numba.extending.intrinsic(_word_at)
"""In kernels: the eight bytes data[at:at+8], little-endian, without a check of bounds.

subtle: the compiler turns eight joined bytes into one load only if nothing is done to the word at once.
"""

load_word: Callable[[npt.NDArray[np.uint64], np.uint64], np.uint64] = numba.extending.intrinsic(_load_word)
"""In kernels: words[at]; then everything that the storing thread had written before is visible too."""

store_word: Callable[[npt.NDArray[np.uint64], np.uint64, np.uint64], None] = numba.extending.intrinsic(_store_word)
"""In kernels: write words[at] for `load_word` in other threads."""

swap_word: Callable[[npt.NDArray[np.uint64], np.uint64, np.uint64, np.uint64], bool] = numba.extending.intrinsic(
    _swap_word
)
"""In kernels: if words[at] is the old word, make it the new one and return True; of several threads, one succeeds."""

add_word: Callable[[npt.NDArray[np.uint64], np.uint64, np.uint64], np.uint64] = numba.extending.intrinsic(_add_word)
"""In kernels: add to words[at], atomically, and return its value before."""


class ForgivingCache(numba.core.caching.FunctionCache):  # type: ignore[misc]
    """A cache whose faults only cost time: it drops damaged files, and keeps nothing on a full disk."""

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compiled function, or None if it must be compiled.

        subtle: numba's own method first loads all functions that its compiler knows, which takes a fifth of a second.
        Compiled kernels need none of them, and compiling loads them by itself.
        """
        try:
            if not LOADS_ALONE:
                return super().load_overload(signature, target)
            rtsys.initialize(target)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(signature, target)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - whatever a damaged pickle raises
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            super().save_overload(signature, data)
        except OSError as error:
            _tell_uncached(f"{self.cache_path} cannot be written ({system_reason(error)})")


class CompiledAnew(UserWarning):
    """Kernels are compiled in each process, because there is no safe folder to save them."""


def _tell_uncached(problem: str) -> None:
    # subtle: without stacklevel the warning has one place, so that Python shows it once.
    warnings.warn(  # noqa: B028
        f"dpunion has to compile its kernels at each start, which takes some seconds: {problem}. Set "
        "XDG_CACHE_HOME to a folder that only you can write, in folders that only you or root can write.",
        CompiledAnew,
    )


@functools.cache
def cache_directory() -> Path | None:
    """Return a private directory for compiled kernels; or warn and return None if there is none."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").resolve()
        directory = home / "dpunion" / f"kernels-{source_digest()}"
        problem = _unsafe(directory)
    except OSError as error:
        problem = f"{error.filename} cannot be a folder of ours ({system_reason(error)})"
    except RuntimeError:
        problem = "this user has no home folder"
    if problem is None:
        return directory
    _tell_uncached(problem)
    return None


def _unsafe(directory: Path) -> str | None:
    """Create the directory; return why it is not safe to load code from it, or None if it is.

    subtle: the check goes from the root downwards. Nobody else can rename the content of a folder that passed, so the
    next folder checked is the one that its path will lead to later.
    """
    for folder in (*reversed(directory.parents), directory):
        folder.mkdir(mode=0o700, exist_ok=True)
        if not is_kept(folder):
            return f"{folder} belongs to other users, or they can write to it"
    for folder in (directory.parent, directory):
        if not is_private(folder):
            return f"{folder} is open to other users"
    return None if os.access(directory, os.W_OK | os.X_OK) else f"{directory} cannot be written"


def is_kept(folder: Path) -> bool:
    """Say whether `folder` is a directory in which only this user and root can rename what they own."""
    status = folder.lstat()
    closed = not status.st_mode & 0o022 or status.st_mode & stat.S_ISVTX
    return stat.S_ISDIR(status.st_mode) and status.st_uid in {0, os.geteuid()} and bool(closed)


def is_private(folder: Path) -> bool:
    """Say whether `folder` is a directory of this user that nobody else can read or write."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077 == 0


def source_digest() -> str:
    """Return a digest of the source of all kernels: numba does not notice edits in a callee's file."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]

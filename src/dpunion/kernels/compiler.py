"""The one home of numba: compile a kernel, cached in a directory that only this user can write.

Numba's cache files are pickles, so a cache directory that somebody else could write, or exchange for another, would be
a way to run code here. The directory is therefore ours, mode 0700 and not a link, and nobody but us and root can rename
anything above it; when no such directory can be had, kernels compile afresh in each process instead (slower start, same
results), and a warning says what to do about it.
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

from dpunion.kernels import LISTENERS, hidden_from_numba

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

# Versions of numba for which it was tested that compiled kernels need its runtime and nothing else: see load_overload.
LOADS_ALONE = numba.__version__.startswith("0.68.")


class _Depth(threading.local):
    """How deep a thread is in kernels that are compiled because others need them."""

    value = 0


class CompilingTold(numba.core.event.Listener):  # type: ignore[misc]
    """Passes on to whoever listens that this thread begins to compile, and that it is done.

    numba announces what it really compiles, and not what it loads.
    """

    def __init__(self) -> None:
        self._depth = _Depth()

    def on_start(self, event: Any) -> None:  # noqa: ARG002 - numba's interface
        """Say that compiling begins, once for all that one kernel needs."""
        # subtle: a listener may raise an interrupt; then numba does not go on, and does not say that it ended.
        if self._depth.value == 0:
            for listener in LISTENERS[-1:]:
                listener(True)
        self._depth.value += 1

    def on_end(self, event: Any) -> None:  # noqa: ARG002 - numba's interface
        """Say that it has ended."""
        self._depth.value -= 1
        if self._depth.value == 0:
            for listener in LISTENERS[-1:]:
                listener(False)


numba.core.event.register("numba:compile", CompilingTold())


def kernel(function: F) -> F:
    """Compile `function` to machine code that runs without the interpreter lock."""
    return _cached(numba.njit(nogil=True, error_model="numpy")(function), function)


def inlined(function: F) -> F:
    """Compile a small `function` into each of its callers.

    A call with arrays passes every array's shape and strides, which takes longer than a few operations on them.
    """
    return _cached(numba.njit(nogil=True, error_model="numpy", forceinline=True)(function), function)


def _cached(compiled: Any, function: F) -> F:
    # Compiling and loading take locks that an interrupt would leave taken for ever (see threads.py).
    compiled.compile = functools.partial(uninterrupted, compiled.compile)
    # Extensions of numba that others have installed have nothing to do here, and finding them takes a while.
    compiled._compilation_chain_init_hook = lambda: None  # noqa: SLF001
    directory = cache_directory()
    if directory is not None:
        before = numba.core.config.CACHE_DIR
        # subtle: a cache chooses its place when it is made, so the setting is ours only for this call.
        numba.core.config.CACHE_DIR = str(directory)
        try:
            cache = ForgivingCache(function)
            # numba looks for another place, beside the source for example, where it cannot write to this one.
            if directory in Path(cache.cache_path).parents:
                compiled._cache = cache  # noqa: SLF001 - what numba's own cache=True does
            else:
                _tell_uncached(f"{directory} cannot be written")
        except RuntimeError:
            _tell_uncached(f"{directory} cannot be written")
        finally:
            numba.core.config.CACHE_DIR = before
    return cast("F", compiled)


def _word_at(_typing: Any, data: Any, at: Any) -> Any:
    """Say how `word_at` is compiled: one load that need not be aligned."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        place = builder.gep(array.data, [values[1]])
        word = builder.load(builder.bitcast(place, llvmlite.ir.IntType(64).as_pointer()), align=1)
        return word if sys.byteorder == "little" else builder.bswap(word)

    return numba.types.uint64(data, at), emit


def _load_word(_typing: Any, words: Any, at: Any) -> Any:
    """Say how `load_word` is compiled."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        return builder.load_atomic(builder.gep(array.data, [values[1]]), "acquire", 8)

    return numba.types.uint64(words, at), emit


def _store_word(_typing: Any, words: Any, at: Any, value: Any) -> Any:
    """Say how `store_word` is compiled."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        builder.store_atomic(values[2], builder.gep(array.data, [values[1]]), "release", 8)
        return context.get_dummy_value()

    return numba.types.void(words, at, value), emit


def _swap_word(_typing: Any, words: Any, at: Any, old: Any, new: Any) -> Any:
    """Say how `swap_word` is compiled."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        place = builder.gep(array.data, [values[1]])
        found = builder.cmpxchg(place, values[2], values[3], "acq_rel", "monotonic")
        return builder.extract_value(found, 1)

    return numba.types.boolean(words, at, old, new), emit


def _add_word(_typing: Any, words: Any, at: Any, value: Any) -> Any:
    """Say how `add_word` is compiled."""

    def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        return builder.atomic_rmw("add", builder.gep(array.data, [values[1]]), values[2], "acq_rel")

    return numba.types.uint64(words, at, value), emit


word_at: Callable[[npt.NDArray[np.uint8], np.uint64], np.uint64] = numba.extending.intrinsic(_word_at)
"""In kernels: the eight bytes data[at:at+8], little-endian. Bounds are the caller's to keep.

subtle: eight bytes read one by one and joined are turned into one load only where nothing is done to the word at once.
"""

load_word: Callable[[npt.NDArray[np.uint64], np.uint64], np.uint64] = numba.extending.intrinsic(_load_word)
"""In kernels: words[at], and with it all that the thread that stored it had written before."""

store_word: Callable[[npt.NDArray[np.uint64], np.uint64, np.uint64], None] = numba.extending.intrinsic(_store_word)
"""In kernels: write words[at] for `load_word` in other threads."""

swap_word: Callable[[npt.NDArray[np.uint64], np.uint64, np.uint64, np.uint64], bool] = numba.extending.intrinsic(
    _swap_word
)
"""In kernels: make words[at] the new word if it is the old one, and say whether it was; one of several threads is told
so."""

add_word: Callable[[npt.NDArray[np.uint64], np.uint64, np.uint64], np.uint64] = numba.extending.intrinsic(_add_word)
"""In kernels: add to words[at], whatever other threads add, and return what it was before."""


class ForgivingCache(numba.core.caching.FunctionCache):  # type: ignore[misc]
    """A cache whose faults cost time only: damaged files are dropped, and a full disk keeps nothing."""

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compiled function, or None if it must be compiled.

        subtle: numba's own method first tells its compiler about every function that it knows, which takes a fifth of
        a second. What is compiled needs none of that, and compiling does it by itself.
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
        """Keep the compiled function, if that can be done."""
        try:
            super().save_overload(signature, data)
        except OSError as error:
            _tell_uncached(f"{self.cache_path} cannot be written ({system_reason(error)})")


class CompiledAnew(UserWarning):
    """Kernels are compiled in each process, because there is no place where they could be kept."""


def _tell_uncached(problem: str) -> None:
    # subtle: without stacklevel the warning has one place, so that Python shows it once.
    warnings.warn(  # noqa: B028
        f"dpunion has to compile its kernels at each start, which takes some seconds: {problem}. Set "
        "XDG_CACHE_HOME to a folder that only you can write, in folders that only you or root can write.",
        CompiledAnew,
    )


@functools.cache
def cache_directory() -> Path | None:
    """Return a private directory for compiled kernels; or None, with a warning, when there is none to be had."""
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
    """Make the directory, and say why it is not safe to load code from, None when it is.

    subtle: from the root downwards. Nobody else can rename what lies in a folder that was found good, so what is looked
    at next is what its path will lead to later.
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
    """Say whether nobody but this user and root can rename what they own in `folder`, a real directory."""
    status = folder.lstat()
    closed = not status.st_mode & 0o022 or status.st_mode & stat.S_ISVTX
    return stat.S_ISDIR(status.st_mode) and status.st_uid in {0, os.geteuid()} and bool(closed)


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

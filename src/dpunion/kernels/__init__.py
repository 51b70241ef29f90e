"""Compiled loops: arrays in, arrays out. Those that weigh, bound or draw have a slow, readable twin in the tests."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

HIDDEN_FROM_NUMBA: list[str] = []
"""Modules that numba does not find while it is imported. The command line adds yaml, so that numba reads no settings
from the current folder, and scipy, which takes long to import and is not needed."""

FIRST_TIME = (
    "dpunion compiles code that it uses for the first time on this machine, which takes up to half a minute. "
    "Later runs reuse it; 'dpunion warm-up' compiles in advance."
)
_hooks: list[Callable[[bool], None]] = []
_logged: list[bool] = []


@contextlib.contextmanager
def on_compiling(hook: Callable[[bool], None]) -> Iterator[None]:
    """Call this hook, and no earlier one, with True when a kernel begins to compile and with False when it is done.

    A kernel that an earlier run compiled is only loaded, and calls no hook.
    """
    _hooks.append(hook)
    try:
        yield
    finally:
        _hooks.remove(hook)


def call_hook(begins: bool) -> None:  # noqa: FBT001 - the one argument of a hook
    """Call the last hook; without any, log that kernels are compiled, once per process."""
    if _hooks:
        _hooks[-1](begins)
    elif begins and not _logged:
        import logging

        _logged.append(True)
        logging.getLogger("dpunion").warning(FIRST_TIME)


@contextlib.contextmanager
def hidden_from_numba() -> Iterator[None]:
    """Hide the modules above, unless they are imported already; afterwards they can be imported again."""
    names = [name for name in HIDDEN_FROM_NUMBA if name not in sys.modules]
    sys.modules.update(dict.fromkeys(names))  # type: ignore[arg-type]  # None marks a missing module
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)

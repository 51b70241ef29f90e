"""Threads beside the main one, and interrupts: what is left by an exception never waits for a thread.

subtle: an interrupt is an exception between any two steps of the main thread, also just after it took a lock inside
somebody's Python code (an `__enter__` of llvmlite, of threading.Condition, of an import). That lock is never given
back, and whoever waits for a thread that waits for the lock waits for ever. So here a thread and the main one meet only
at locks written in C, which are taken whole or not at all, and work that takes other locks is not interrupted.
"""

from __future__ import annotations

import collections
import contextlib
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, cast

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Things that wait for a thread, so that none waits for a thing.
AHEAD = 2
FEWEST_SHARES = 16


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Task(Generic[T]):
    """A piece of work that a thread does, and what came of it."""

    __slots__ = ("_done", "_error", "_value", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._value: T | None = None
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    @classmethod
    def done(cls, value: T) -> Task[T]:
        """Return a task of which this came, for work that was done here.

        subtle: `run` keeps for later whatever is raised, an interrupt too, and so is for threads beside the main one.
        """
        task = cls(lambda: value)
        task._work, task._value = None, value
        task._done.release()
        return task

    def run(self, keep: type[BaseException] = BaseException) -> None:
        """Do the work, once, in the thread that calls this; errors of the kind `keep` are raised by `result`."""
        work, self._work = self._work, None
        try:
            if work is not None:
                self._value = work()
        except keep as error:
            self._error = error
        finally:
            self._done.release()

    def result(self) -> T:
        """Wait until the work is done and return what it returned, or raise what it raised."""
        with self._done:
            pass
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def hand_over(self) -> T:
        """Return what `result` returns, for the last time, so that its memory is free once the caller is done."""
        value = self.result()
        self._value, self._error = None, RuntimeError("what came of this work was handed over before")
        return value


class Threads:
    """Some threads that work off a queue: left in peace they are waited for, left by an exception they are not.

    An exception drops what was not begun. What is under way ends by itself or with the process. Where the system gives
    no thread at all, the caller's thread does the work.
    """

    def __init__(self, count: int) -> None:
        self._tasks: queue.SimpleQueue[Task[Any] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        for _ in range(count):
            thread = threading.Thread(target=_work_off, args=(self._tasks,), daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError):
                break  # The system gives no further thread: those that run do all the work.
            self._threads.append(thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
            return
        try:
            while True:
                self._tasks.get_nowait()
        except queue.Empty:
            self._send_home()

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Task[T]:
        """Have a thread call `work`; ask the returned task for the result."""
        task = Task(lambda: work(*args, **kwargs))
        if self._threads:
            self._tasks.put(task)
        else:
            task.run(keep=Exception)
        return task

    def work_in_order(self, work: Callable[[S], T], things: Iterable[S]) -> Iterator[T]:
        """Yield work(thing) for each thing, in order, while the threads are at later ones.

        The things are fetched here, a few more than there are threads ahead of what is yielded.

        Guarantees: what is raised is what one thread would have raised, the first by the order of the things.
        """
        rest = iter(things)
        waiting: collections.deque[Task[T]] = collections.deque()
        end: list[Exception | None] = []
        while waiting or not end:
            while not end and len(waiting) <= len(self._threads) + AHEAD:
                try:
                    waiting.append(self.submit(work, next(rest)))
                except StopIteration:
                    end.append(None)
                except Exception as error:  # noqa: BLE001 - raised below, after what came before it
                    end.append(error)
            if waiting:
                yield waiting.popleft().result()
        if end[0] is not None:
            raise end[0]

    def finish(self) -> None:
        """Wait until all work is done."""
        self._send_home()
        for thread in self._threads:
            thread.join()

    def _send_home(self) -> None:
        for _ in self._threads:
            self._tasks.put(None)


def _work_off(tasks: queue.SimpleQueue[Task[Any] | None]) -> None:
    while (task := tasks.get()) is not None:
        task.run()
        del task  # not kept while waiting for the next


def share_count(threads: int) -> int:
    """Return into how many shares work is divided for some threads: several each, so that none waits for a slow one."""
    return 1 if threads == 1 else max(2 * threads, FEWEST_SHARES)


def work_in_threads(work: Callable[[T], None], shares: Sequence[T], threads: int) -> None:
    """Work off the shares in some threads; with one, all is done here. Kernels hold no interpreter lock."""
    count = min(threads, len(shares))
    if count <= 1:
        for share in shares:
            work(share)
        return
    with Threads(count) as pool:
        for task in [pool.submit(work, share) for share in shares]:
            task.result()


@contextlib.contextmanager
def work_beside(work: Callable[[], T], threads: int) -> Iterator[Task[T] | None]:
    """Do some work in a thread beside what is done inside; with one thread it is left to who wants what comes of it."""
    if threads == 1:
        yield None
        return
    with Threads(1) as beside:
        yield beside.submit(work)


def work_in_order(work: Callable[[S], T], things: Iterable[S], threads: int) -> Iterator[T]:
    """Yield work(thing) for each thing, in order, while some threads are at later ones; with one, all is done here.

    Guarantees: those of Threads.work_in_order.
    """
    if threads == 1:
        yield from map(work, things)
        return
    with Threads(threads) as pool:
        yield from pool.work_in_order(work, things)


def uninterrupted(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work`; an interrupt that comes meanwhile is raised when it is done."""
    if threading.current_thread() is not threading.main_thread():
        return work(*args, **kwargs)
    held: list[int] = []
    busy: list[bool] = []
    handlers = [(int(which), signal.getsignal(which)) for which in INTERRUPTS]
    # Others are ignored, or end the process.
    before: dict[int, Callable[[int, FrameType | None], Any]] = {which: had for which, had in handlers if callable(had)}

    # subtle: a signal may strike between any two of these lines. Whoever is left replaced by that does what it did
    # before, unless busy, and from the moment when that is said to the moment when it is unsaid nothing is raised.
    def hold(number: int, frame: FrameType | None) -> None:
        if busy:
            held.append(number)
        else:
            before[number](number, frame)

    try:
        for number in before:
            signal.signal(number, hold)
        busy.append(True)
        return work(*args, **kwargs)
    finally:
        busy.clear()
        for number, had in before.items():
            signal.signal(number, had)
        for number in held:
            signal.raise_signal(number)

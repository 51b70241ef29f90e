"""Worker threads, and interrupts that never hang: a block that an exception leaves does not wait for its threads.

subtle: an interrupt is an exception between any two steps of the main thread, also just after it took a lock inside
Python code of a library (an `__enter__` of llvmlite, of threading.Condition, of an import). Nobody releases that lock,
and waiting for a thread that waits for the lock takes for ever. So threads here synchronize only by locks written in C,
which are taken completely or not at all, and work that takes other locks is not interrupted.
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
AHEAD = 2  # inputs that are fetched before a thread is free for them, so that no thread waits for input
FEWEST_SHARES = 16


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Task(Generic[T]):
    """A call that a thread makes, and its result."""

    __slots__ = ("_done", "_error", "_value", "_work")

    def __init__(self, work: Callable[[], T]) -> None:
        self._work: Callable[[], T] | None = work
        self._value: T | None = None
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    @classmethod
    def done(cls, value: T) -> Task[T]:
        """Return a finished task with this result, for work that the caller did itself.

        subtle: `run` stores every exception for later, interrupts too, so the main thread should not call it.
        """
        task = cls(lambda: value)
        task._work, task._value = None, value
        task._done.release()
        return task

    def run(self, keep: type[BaseException] = BaseException) -> None:
        """Do the work, once, in the calling thread; keep: the kind of errors that `result` raises later."""
        work, self._work = self._work, None
        try:
            if work is not None:
                self._value = work()
        except keep as error:
            self._error = error
        finally:
            self._done.release()

    def result(self) -> T:
        """Wait for the work; return what it returned, or raise what it raised."""
        with self._done:
            pass
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def take(self) -> T:
        """Return what `result` returns and drop it here, so that its memory is free when the caller is done with it."""
        value = self.result()
        self._value, self._error = None, RuntimeError("the result of this task was taken before")
        return value


class Threads:
    """Threads that run tasks from a queue; the end of the block waits for them, an exception does not.

    An exception drops the tasks that have not started. Running ones end by themselves, or with the process. If the
    system gives no thread at all, the caller's thread does the work.
    """

    def __init__(self, count: int) -> None:
        self._tasks: queue.SimpleQueue[Task[Any] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        for _ in range(count):
            thread = threading.Thread(target=_work_off, args=(self._tasks,), daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError):
                break  # The system gives no more threads: those that run do all the work.
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
            self._stop()

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Task[T]:
        """Let a thread call `work`; return the task, which has the result."""
        task = Task(lambda: work(*args, **kwargs))
        if self._threads:
            self._tasks.put(task)
        else:
            task.run(keep=Exception)
        return task

    def work_in_order(self, work: Callable[[S], T], things: Iterable[S]) -> Iterator[T]:
        """Yield work(thing) for each thing, in order, while the threads work on later ones.

        The caller's thread fetches the things, a few more than there are threads before it yields.

        Guarantees: it raises what one thread would have raised, the first error in the order of the things.
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
                except Exception as error:  # noqa: BLE001 - raised below, after the results before it
                    end.append(error)
            if waiting:
                yield waiting.popleft().result()
        if end[0] is not None:
            raise end[0]

    def finish(self) -> None:
        """Wait until all work is done."""
        self._stop()
        for thread in self._threads:
            thread.join()

    def _stop(self) -> None:
        for _ in self._threads:
            self._tasks.put(None)


def _work_off(tasks: queue.SimpleQueue[Task[Any] | None]) -> None:
    while (task := tasks.get()) is not None:
        task.run()
        del task  # free its memory while waiting for the next


def share_count(threads: int) -> int:
    """Return the number of shares of some work: several for each thread, so that none waits long for a slow one."""
    return 1 if threads == 1 else max(2 * threads, FEWEST_SHARES)


def work_in_threads(work: Callable[[T], None], shares: Sequence[T], threads: int) -> None:
    """Call `work` for each share, in some threads; with one, in the caller's. Kernels release the interpreter lock."""
    count = min(threads, len(shares))
    if count <= 1:
        for share in shares:
            work(share)
        return
    with Threads(count) as pool:
        for task in [pool.submit(work, share) for share in shares]:
            task.result()


@contextlib.contextmanager
def work_in_background(work: Callable[[], T], threads: int) -> Iterator[Task[T] | None]:
    """Run `work` in another thread during the block, and yield its task; with one thread, yield None instead."""
    if threads == 1:
        yield None
        return
    with Threads(1) as worker:
        yield worker.submit(work)


def work_in_order(work: Callable[[S], T], things: Iterable[S], threads: int) -> Iterator[T]:
    """Yield work(thing) for each thing, as `Threads.work_in_order`; with one thread, in the caller's."""
    if threads == 1:
        yield from map(work, things)
        return
    with Threads(threads) as pool:
        yield from pool.work_in_order(work, things)


def uninterrupted(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work`; an interrupt that arrives meanwhile is raised afterwards."""
    if threading.current_thread() is not threading.main_thread():
        return work(*args, **kwargs)
    queued: list[int] = []
    working: list[bool] = []
    handlers = [(int(number), signal.getsignal(number)) for number in INTERRUPTS]
    # Only Python handlers are replaced: a signal that is ignored, or that kills the process, stays as it is.
    previous: dict[int, Callable[[int, FrameType | None], Any]] = {
        number: handler for number, handler in handlers if callable(handler)
    }

    # subtle: a signal can arrive between any two lines below. While `working` is set, `defer` queues it, to be raised
    # when the work is done; before and after, `defer` calls the handler that it replaced, as if it were not there.
    def defer(number: int, frame: FrameType | None) -> None:
        if working:
            queued.append(number)
        else:
            previous[number](number, frame)

    try:
        for number in previous:
            signal.signal(number, defer)
        working.append(True)
        return work(*args, **kwargs)
    finally:
        working.clear()
        for number, handler in previous.items():
            signal.signal(number, handler)
        for number in queued:
            signal.raise_signal(number)

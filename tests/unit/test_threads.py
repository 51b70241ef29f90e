"""Threads that are never waited for on the way out, and work that no interrupt breaks into."""

import os
import signal
import sys
import threading
import time
import types
import weakref

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpunion
import dpunion.threads
from dpunion.algorithms import UserOrder
from dpunion.contributions import offsets_of
from dpunion.engines import local, warming
from dpunion.errors import BadSource
from dpunion.kernels.interning import BUSY, refill_slots
from dpunion.randomness import RunKey
from dpunion.sets import narrowing, spill, strings
from dpunion.sets.encoding import Normalization, encode
from dpunion.sets.grouping import PAIRS_PER_USER, even_ranges, gathering_ranges, heavy_ranges
from dpunion.sets.streams import encode_ngrams
from dpunion.sets.strings import StringTable
from dpunion.text.splitting import Splitting
from dpunion.threads import (
    AHEAD,
    INTERRUPTS,
    Task,
    Threads,
    uninterrupted,
    usable_cores,
    work_in_background,
    work_in_order,
    work_in_threads,
)
from running import PATIENCE, run_python


def test_results_come_back_and_errors_too():
    with Threads(2) as threads:
        tasks = [threads.submit(divmod, number, 7) for number in range(20)]
        wrong = threads.submit(divmod, 1, 0)
        assert [task.result() for task in tasks] == [divmod(number, 7) for number in range(20)]
        assert tasks[0].result() == (0, 0), "a result can be asked for twice"
        with pytest.raises(ZeroDivisionError):
            wrong.result()


def test_a_result_that_was_taken_is_not_kept():
    with Threads(1) as threads:
        task = threads.submit(np.arange, 3)
        value = task.take()
        kept = weakref.ref(value)
        assert value.tolist() == [0, 1, 2]
        del value
        assert kept() is None
        with pytest.raises(RuntimeError, match="was taken before"):
            task.result()
        with pytest.raises(ZeroDivisionError):
            threads.submit(lambda: 1 // 0).take()


def test_leaving_in_peace_waits_for_the_work():
    done = []
    with Threads(2) as threads:
        for number in range(4):
            threads.submit(lambda number=number: (time.sleep(0.02), done.append(number)))
    assert sorted(done) == [0, 1, 2, 3]


def test_leaving_by_an_exception_waits_for_nobody_and_begins_nothing_more():
    stuck, begun, later = threading.Event(), threading.Event(), []
    with pytest.raises(KeyboardInterrupt), Threads(1) as threads:
        threads.submit(lambda: (begun.set(), stuck.wait(PATIENCE)))
        threads.submit(later.append, 1)
        begun.wait()
        raise KeyboardInterrupt
    assert threads._threads[0].is_alive(), "nobody waited for its work"
    stuck.set()
    for thread in threads._threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert later == []


def test_a_process_ends_although_a_thread_never_does():
    code = """
        import threading
        from dpunion.threads import Threads
        with Threads(1) as threads:
            threads.submit(threading.Event().wait)
            raise SystemExit(7)
    """
    assert run_python(code).returncode == 7


@pytest.mark.parametrize("number", INTERRUPTS)
def test_an_interrupt_waits_for_uninterrupted_work(number):
    steps = []

    def work():
        signal.raise_signal(number)
        steps.append("worked")

    def handler(_number, _frame):
        steps.append("interrupted")
        raise KeyboardInterrupt

    signal.signal(number, handler)
    with pytest.raises(KeyboardInterrupt):
        uninterrupted(work)
    assert steps == ["worked", "interrupted"]
    assert signal.getsignal(number) is handler


def struck_at(nth, number):
    """Call uninterrupted work with a signal at the nth line that threads.py runs; say whether it came that far."""
    lines = []

    def trace(frame, event, _argument):
        if frame.f_code.co_filename != threads_file:
            return None
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == nth:
                signal.raise_signal(number)
        return trace

    sys.settrace(trace)
    try:
        uninterrupted(time.sleep, 0)
    finally:
        sys.settrace(None)
    return len(lines) >= nth


threads_file = dpunion.threads.__file__


@pytest.mark.parametrize("number", INTERRUPTS)
def test_no_interrupt_is_lost_wherever_another_strikes(number):
    def handler(_number, _frame):
        raise KeyboardInterrupt

    struck = 0
    for each in INTERRUPTS:
        signal.signal(each, handler)
    for nth in range(1, 1000):
        try:
            if not struck_at(nth, number):
                break
        except KeyboardInterrupt:
            struck += 1
        for each in INTERRUPTS:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(each)
            signal.signal(each, handler)
    assert struck == nth - 1 > 20, "every signal was raised in the end"


def test_uninterrupted_work_may_run_in_any_thread():
    with Threads(1) as threads:
        assert threads.submit(uninterrupted, lambda: 3).result() == 3


RELEASE_STRUCK_AT_A_LOCK = """
    import signal, sys, threading
    import numpy as np
    from llvmlite.binding import ffi
    from dpunion import cli
    from dpunion.reading import cleaning
    from dpunion.kernels import bounding
    from dpunion.sets import strings
    nth, taken, struck = int(sys.argv.pop(1)), [], threading.Event()
    def in_main():
        return threading.current_thread() is threading.main_thread()
    def strike():
        # Called by llvmlite just after it took its lock.
        if in_main() and loading:
            taken.append(None)
            if len(taken) == nth:
                struck.set()
                signal.raise_signal(signal.SIGINT)
    ffi.register_lock_callback(strike, lambda: None)
    loading, real = [], strings.StringTable.number
    def number(*given):
        # The other thread needs the lock after the main one was struck.
        struck.wait()
        return real(*given)
    strings.StringTable.number = number
    real_pieces = cleaning.find_pieces
    def find_pieces(*given):
        # The main thread loads kernels while the other one is at the first piece.
        yield from real_pieces(*given)
        loading.append(None)
        items, held = np.zeros(1, np.int32), np.zeros(1, np.bool_)
        bounding.count_items(items, np.zeros(1, int))
        bounding.gather_users(np.zeros(1, int), items, np.zeros(1, int), np.arange(2), items)
        bounding.drop_items(np.zeros(1, int), items, np.ones(1, int), held)
    cleaning.find_pieces = find_pieces
    cli.main()
"""


@pytest.mark.parametrize("nth", [1, 2, 5])
def test_an_interrupt_while_a_kernel_is_loaded_ends_the_run(tmp_path, nth):
    """An interrupt inside the compiler's lock must not leave the lock to a thread that waits for it."""
    source = tmp_path / "rows.csv"
    source.write_text("user,item\n" + "".join(f"u{i},word\nu{i},own{i}\n" for i in range(100)))
    options = ["release", source, "--user", "user", "--item", "item", "-e", "1", "-d", "1e-6"]
    done = run_python(RELEASE_STRUCK_AT_A_LOCK, nth, *options)
    assert done.returncode == 130, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


# --- shares of the work -------------------------------------------------------------------------------------
@given(st.integers(0, 50), st.integers(1, 9))
def test_even_ranges_cover_everything_once(count, parts):
    shares = even_ranges(count, parts)
    assert [place for share in shares for place in share] == list(range(count))
    assert all(shares)
    assert len(shares) <= parts


@given(st.lists(st.integers(0, 20) | st.integers(0, 1000), max_size=40), st.integers(1, 9))
def test_ranges_cover_everything_once_and_weigh_or_take_about_the_same(sizes, parts):
    heavy = heavy_ranges(np.cumsum(np.array(sizes, np.int64)), parts)
    gathering = gathering_ranges(offsets_of(np.array(sizes, np.int64)), parts)
    for shares, costs in ((heavy, sizes), (gathering, [size + PAIRS_PER_USER for size in sizes])):
        assert [place for share in shares for place in share] == list(range(len(sizes)))
        assert all(shares)
        assert len(shares) <= parts
        for share in shares:
            assert sum(costs[place] for place in share) <= sum(costs) / parts + 2 * max(costs)


def test_each_share_is_worked_off_once_and_errors_come_out():
    for threads in (1, 2, 5):
        done = []
        work_in_threads(done.append, [1, 2, 3], threads)
        assert sorted(done) == [1, 2, 3]
        work_in_threads(done.append, [], threads)
        with pytest.raises(ZeroDivisionError):
            work_in_threads(lambda share: 1 // share, [1, 0, 1], threads)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_work_comes_back_in_its_order_and_little_is_fetched_ahead(threads):
    fetched = []

    def things():
        for number in range(40):
            fetched.append(number)
            yield number

    def work(number):
        time.sleep(0.002 * (number % 3))
        return number * number

    for place, made in enumerate(work_in_order(work, things(), threads)):
        assert made == place * place
        assert len(fetched) <= place + 1 + (threads + AHEAD if threads > 1 else 0)
    assert len(fetched) == 40


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("broken", [(3, None), (3, 4), (None, 4), (4, 4)])
def test_the_first_error_in_the_order_of_the_work_is_raised(threads, broken):
    """Whether a thing cannot be fetched or cannot be worked on, and however late the earlier error comes."""
    in_work, in_fetching = broken
    done = []

    def things():
        for number in range(9):
            if number == in_fetching:
                raise LookupError(number)
            yield number

    def work(number):
        if number == in_work:
            time.sleep(0.02)
            raise ZeroDivisionError(number)
        return number

    first = min(number for number in broken if number is not None)
    with pytest.raises(ZeroDivisionError if in_work == 3 else LookupError):
        for made in work_in_order(work, things(), threads):
            done.append(made)  # noqa: PERF402 - what comes before the error counts
    assert done == list(range(first))


@pytest.mark.parametrize("many", [2, 1 << 20])
def test_strings_have_one_number_whichever_threads_bring_them(many, monkeypatch):
    """A table of two places grows in all ways while eight threads number overlapping strings, short and long.

    many: from how many words on they all move what is there to a larger table.
    """
    monkeypatch.setattr(strings, "MANY_SLOTS", many)
    names = [f"{number * 7919 % 4001}" + "x" * (number % 40) for number in range(4001)]
    table = StringTable(np.uint64(7), capacity=2, threads=8)

    def number(start):
        mine = names[start:] + names[:start]
        return mine, table.number(pa.array(mine)).tolist()

    found = {}
    for mine, numbers in work_in_order(number, [start * 137 % 4001 for start in range(48)], 8):
        assert all(found.setdefault(name, number) == number for name, number in zip(mine, numbers, strict=True))
    assert sorted(found.values()) == list(range(len(set(names)))) == list(range(table.count))
    offsets, data = table.buffers()
    for name, place in found.items():
        assert data[offsets[place] : offsets[place + 1]].tobytes().decode() == name


def test_threads_that_refill_a_table_together_lose_nothing():
    """Eight threads fill the same places again and again, with hashes so few that they keep meeting."""
    words = 1 << 12
    full = np.zeros(2 * words, np.uint64)
    full[0::2] = np.arange(words, dtype=np.uint64) % np.uint64(64)
    full[1::2] = np.arange(1, words + 1, dtype=np.uint64) << np.uint64(32)  # the numbers, of empty strings
    expected = sorted(zip(full[0::2].tolist(), full[1::2].tolist(), strict=True))
    for turn in range(25):
        slots = np.zeros(4 * words, np.uint64)
        shares = even_ranges(words, 8)
        seed = np.uint64(turn)

        def refill(some, slots=slots, seed=seed):
            refill_slots(full[2 * some.start : 2 * some.stop], slots, seed)

        work_in_threads(refill, shares, 8)
        taken = slots[1::2] != 0
        assert sorted(zip(slots[0::2][taken].tolist(), slots[1::2][taken].tolist(), strict=True)) == expected


def refused_in_every_thread(error, words, tasks):
    table = StringTable(np.uint64(7), capacity=2, threads=4)
    arrays = [pa.array([f"{start} {number}" for number in range(1000)]) for start in range(tasks)]
    with Threads(4) as threads:
        for task in [threads.submit(table.number, array) for array in arrays]:
            with pytest.raises(error, match=words):
                task.result()


def test_too_many_strings_are_refused_in_every_thread(monkeypatch):
    monkeypatch.setattr(strings, "MAX_ITEMS", 100)
    refused_in_every_thread(BadSource, "more than 100 distinct values", 4)


@pytest.mark.parametrize("failing", ["refill_slots", "intern_rows"])
def test_without_memory_for_a_larger_table_no_thread_waits_for_ever(failing, monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(strings.interning, failing, fail)
    refused_in_every_thread(MemoryError, None, 8)


def test_all_usable_cores_are_used():
    assert usable_cores() == len(os.sched_getaffinity(0)) >= 1


ROWS = [(f"u{n * 7 % 40}", f"i{n * n % 61} i{n % 9}") for n in range(600)]


def batches():
    for start in range(0, len(ROWS), 100):
        users, items = zip(*ROWS[start : start + 100], strict=True)
        yield pa.array(users), pa.array(items)


def parts_of(made):
    return [array.tobytes() for array in (made.offsets, made.items, made.user_digests, made.table.data)]


@pytest.mark.parametrize("order", UserOrder)
@pytest.mark.parametrize("limit", [3, 1000])
@pytest.mark.parametrize("spills", [False, True])
def test_the_number_of_threads_changes_nothing(order, limit, spills, monkeypatch):
    key = RunKey.for_tests(5)
    if spills:
        monkeypatch.setattr(spill, "ROWS_SHARE", 1e-6)

    def encoded(threads):
        options = {"max_items_per_user": limit, "user_order": order, "threads": threads}
        words = encode(batches(), key, normalization=Normalization.NFC, split_words=True, memory_limit=10**8, **options)
        lengths = {"shortest": 1, "longest": 2, "splitting": Splitting()}
        ngrams = encode_ngrams(batches(), key, memory_limit=10**8, **lengths, **options)
        return parts_of(words), parts_of(ngrams)

    expected = encoded(1)
    for threads in (None, 2, 3, 8):
        assert encoded(threads) == expected


def test_a_tokenizer_of_the_callers_is_called_by_the_callers_thread():
    called = set()

    def split(text):
        called.add(threading.current_thread())
        return text.split()

    options = {"shortest": 1, "longest": 1, "max_items_per_user": 9, "user_order": UserOrder.RANDOM}
    made = encode_ngrams(batches(), RunKey.for_tests(5), splitting=Splitting(split), threads=4, **options)
    assert len(made.table) > 9
    assert called == {threading.main_thread()}


# --- kernels that are loaded beside reading -----------------------------------------------------------------
@pytest.mark.parametrize("name", ["funnel", "policy-gaussian", "policy-laplace", "weighted-gaussian", "dp-sips"])
def test_every_plan_can_be_rehearsed_and_bounds_somebody(name, monkeypatch):
    bounded = []
    real = local.run_rounds
    monkeypatch.setattr(warming, "REHEARSED", set())
    monkeypatch.setattr(local, "run_rounds", lambda *given: bounded.append((given[1], real(*given))))
    planned = dpunion.plan(name, epsilon=1.0, delta=1e-6)
    with warming.preload_kernels(planned, 2):
        pass
    [(made, chosen)] = bounded
    assert len(made.items) < len(made.table) or name == "dp-sips", "DP-SIPS bounds in its rounds"
    assert len(chosen) == 0, "nobody's item is released"


@pytest.mark.parametrize(("threads", "expected"), [(1, 0), (2, 1)])
def test_kernels_are_loaded_ahead_where_there_is_a_core_for_it(threads, expected, monkeypatch):
    rehearsed = []
    monkeypatch.setattr(warming, "rehearse", rehearsed.append)
    monkeypatch.setattr(warming, "REHEARSED", set())
    for _ in range(2):  # what was loaded stays
        released = dpunion.release({"u": ["a"]}, epsilon=1.0, delta=1e-6, run=dpunion.Run(threads=threads))
        assert len(rehearsed) == expected
        assert len(released) == 0
    dpunion.release(
        {"u": ["a"]}, algorithm="policy-gaussian", epsilon=1.0, delta=1e-6, run=dpunion.Run(threads=threads)
    )
    assert len(rehearsed) == 2 * expected


def test_a_thread_waits_for_another_that_was_stopped_while_entering_a_string(monkeypatch):
    table = StringTable(np.uint64(7), threads=2)
    table._state[int(BUSY)] = 1
    naps = []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            table._state[int(BUSY)] = 0

    monkeypatch.setattr(strings, "time", types.SimpleNamespace(sleep=nap))
    assert table.number(pa.array(["one", "two", "one"])).tolist() == [0, 1, 0]
    assert naps == [strings.PATIENCE] * 3


@pytest.mark.parametrize("algorithm", ["weighted-gaussian", "policy-gaussian", "dp-sips"])
def test_with_one_thread_an_interrupt_is_not_kept_for_later(monkeypatch, algorithm):
    """Nobody may ask for what the interrupted work was to find out."""

    def interrupted(*_):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(narrowing, "count_items", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dpunion.release({"u": ["a"]}, algorithm=algorithm, epsilon=1.0, delta=1e-6, run=dpunion.Run(threads=1))


@pytest.mark.parametrize("threads", [1, 2])
def test_work_beside_is_left_to_who_wants_it_where_there_is_one_thread(threads):
    with work_in_background(lambda: 7, threads) as task:
        assert (task is None) == (threads == 1)
        assert task is None or task.result() == 7
    assert Task.done(8).result() == 8

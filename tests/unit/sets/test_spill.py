"""Rows beyond the memory limit: same result, nothing left behind."""

import errno
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpunion
from dpunion.algorithms import UserOrder
from dpunion.plans.ngrams import Ngrams
from dpunion.randomness import RunKey
from dpunion.requests import Run, SparkSource, Words
from dpunion.sets import spill
from making import encode_items

rows = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), min_size=0, max_size=400)


def encoded(pairs, limit):
    parts = ([[f"u{user}" for user, _ in some], [f"i{item}" for _, item in some]] for some in
             (pairs[:50], pairs[50:200], pairs[200:]))  # fmt: skip
    batches = [[pa.array(column, pa.string()) for column in part] for part in parts]
    return encode_items(batches, RunKey.for_tests(3), 3, UserOrder.SMALLEST_FIRST, memory_limit=limit)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=60), st.booleans())
def test_a_chunk_is_the_rows_that_it_was_made_of(pairs, grouped):
    pairs = sorted(pairs) if grouped else pairs
    users, items = (np.array([pair[column] for pair in pairs], np.int32) for column in (0, 1))
    chunk = (*spill.runs_of(users), items)
    with spill.RowStore() as store:
        assert [column.tolist() for column in store.rows_of(chunk)] == [users.tolist(), items.tolist()]
    runs = sum(1 for _ in itertools.groupby(users.tolist()))
    assert len(chunk[0]) == (runs if 0 < runs <= len(pairs) // spill.SHORTEST_RUNS else len(pairs))


def test_rows_of_one_user_that_stand_together_take_little_memory():
    with spill.RowStore() as store:
        store.append(np.repeat(np.arange(100, dtype=np.int32), 50), np.zeros(5000, np.int32))
        together = store.waiting
        store.append(np.tile(np.arange(100, dtype=np.int32), 50), np.zeros(5000, np.int32))
        assert together == 5000 * 4 + 100 * 8
        assert store.waiting - together == 5000 * 8


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=30))
def test_rows_told_in_runs_are_the_same_rows(runs):
    users = np.array([user for user, _ in runs], np.int32)
    lengths = np.array([length for _, length in runs], np.int64)
    items = np.arange(lengths.sum(), dtype=np.int32)
    with spill.RowStore() as store:
        store.append(users, items, lengths)
        assert [column.tolist() for column in store.rows_of(store.chunks[0])] == [
            np.repeat(users, lengths).tolist(),
            items.tolist(),
        ]


def test_the_memory_of_rows_is_used_again():
    with spill.RowStore() as store:
        for start in (0, 100):
            place = store.make_place(100)
            place[:] = np.arange(start, start + 100)
            store.append(np.zeros(100, np.int32), place)
        [(_, _, chunks)] = store.give_back()
        first, second = (items for *_, items in chunks)
        assert first.tolist() == list(range(100))
        assert second.tolist() == list(range(100, 200))
        assert np.shares_memory(store.take_room(150), first)
        assert not np.shares_memory(store.take_room(150), first), "it is given once"


@pytest.mark.parametrize(("limit", "size"), [(None, 201), (None, 99), (8, 150)])
def test_memory_that_does_not_fit_is_not_used_again(limit, size):
    with spill.RowStore(limit) as store:
        place = store.make_place(200)
        place[:] = np.arange(200)
        store.append(np.zeros(200, np.int32), place)
        parts = list(store.give_back())
        room = store.take_room(size)
        assert room.shape == (size,)
        assert not any(np.shares_memory(room, items) for *_, chunks in parts for *_, items in chunks)


def test_memory_is_free_again_once_rows_have_spilled():
    with spill.RowStore(4 * 8 * 100) as store:
        store.append(np.arange(50, dtype=np.int32), store.make_place(50))
        room = weakref.ref(store._room)
        for _ in range(2):
            store.append(np.arange(100, dtype=np.int32), store.make_place(100))
        assert store.files
        assert room() is None
        assert sum(len(items) for *_, chunks in store.give_back() for *_, items in chunks) == 250


def test_rows_wait_where_no_memory_can_be_reserved(monkeypatch):
    real = np.empty

    def refuse_many(size, *given):
        if size > 10:
            raise MemoryError
        return real(size, *given)

    with spill.RowStore() as store:
        with monkeypatch.context() as patched:
            patched.setattr(spill.np, "empty", refuse_many)
            place = store.make_place(3)
        assert store._room.shape == (0,)
        place[:] = np.arange(3)
        store.append(np.zeros(3, np.int32), place)
        [(_, _, chunks)] = store.give_back()
        assert [items.tolist() for *_, items in chunks] == [[0, 1, 2]]


@given(rows)
def test_spilling_changes_nothing(pairs):
    kept, spilled = encoded(pairs, None), encoded(pairs, 64)
    assert np.array_equal(kept.offsets, spilled.offsets)
    assert np.array_equal(kept.items, spilled.items)
    assert np.array_equal(kept.user_digests, spilled.user_digests)


def test_spill_files_have_no_name_and_belong_to_us_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with spill.RowStore(8) as store:
        for _ in range(3):
            store.append(np.arange(100, dtype=np.int32), np.arange(100, dtype=np.int32))
        assert store.files
        assert list(tmp_path.iterdir()) == []
        assert all(os.fstat(file.fileno()).st_mode & 0o077 == 0 for file in store.files)
        assert all(os.fstat(file.fileno()).st_nlink == 0 for file in store.files)
        assert sum(len(items) for *_, chunks in store.give_back() for *_, items in chunks) == 300
    assert not store.files


def test_a_full_disk_while_spilling_is_a_clear_error(monkeypatch):
    class Full:
        def write(self, _data):
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spill, "nameless_file", Full)
    with pytest.raises(dpunion.CannotWrite, match="No space left"), spill.RowStore(8) as store:
        store.append(np.arange(100, dtype=np.int32), np.arange(100, dtype=np.int32))


KILLED = """
import numpy as np, sys, time
from dpunion.sets.spill import RowStore
store = RowStore(8)
for _ in range(3):
    store.append(np.arange(100000, dtype=np.int32), np.arange(100000, dtype=np.int32))
print("spilled", flush=True)
time.sleep(600)
"""


def test_a_killed_run_leaves_nothing_and_a_living_one_is_not_touched(tmp_path):
    environment = os.environ | {"TMPDIR": str(tmp_path)}

    def start():
        process = subprocess.Popen([sys.executable, "-c", KILLED], env=environment, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "spilled\n"
        return process

    killed, living = start(), start()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.stdout.close()
    assert list(tmp_path.iterdir()) == []
    held = [
        os.readlink(link) for link in Path(f"/proc/{living.pid}/fd").iterdir() if link.exists() or link.is_symlink()
    ]
    assert sum(str(tmp_path) in name for name in held) == spill.PARTS
    living.kill()
    living.wait()
    living.stdout.close()
    time.sleep(0)


@pytest.mark.parametrize(
    ("text", "expected"), [("2GB", 2 * 10**9), ("1.5 GiB", 3 * 2**29), (10**9, 10**9), ("300mb", 3 * 10**8)]
)
def test_limits_are_read_as_people_write_them(text, expected):
    assert spill.as_bytes(text) == expected


@pytest.mark.parametrize("text", ["2 apples", "-1GB", "1KB", 0, True, "nan"])
def test_bad_limits_are_refused(text):
    with pytest.raises(dpunion.BadParameter, match="memory_limit"):
        spill.as_bytes(text)


documents = st.lists(st.lists(st.integers(0, 2**31 - 3), max_size=6), max_size=30)


@given(st.lists(st.tuples(documents, st.integers(1, 200)), min_size=1, max_size=4))
def test_documents_stay_whole_on_disk(pieces):
    """Numbers as large as they get, documents without tokens and users of every part among them."""
    kept, found = [], []
    with spill.TextStore(8) as store:
        for texts, step in pieces:
            writers = (np.arange(len(texts)) * step).astype(np.int32)
            counts = np.array([len(text) for text in texts], np.int64)
            store.append(writers, np.array([token for text in texts for token in text], np.int32), counts)
            kept += zip(writers.tolist(), map(tuple, texts), strict=True)
        for phase, stride, chunks in store.give_back():
            for counts, writers, tokens in chunks:
                ends = np.cumsum(counts).tolist()
                texts = [tuple(tokens[end - count : end].tolist()) for end, count in zip(ends, counts, strict=True)]
                found += zip((writers * stride + phase).tolist(), texts, strict=True)
    assert sorted(found) == sorted(kept)


def test_a_full_disk_while_texts_wait_is_the_same_error(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(dpunion.CannotWrite, match="Writing temporary files to"), spill.TextStore(8) as store:
        store.append(np.zeros(9, np.int32), np.zeros(9, np.int32), np.ones(9, np.int64))


@pytest.mark.parametrize("form", ["words", "n-grams as one set", "n-grams length by length", "n-grams with counts"])
@pytest.mark.parametrize(
    "options",
    [
        {}, {"tokenizer": "whitespace"}, {"tokenizer": str.split}, {"drop_urls": True}, {"stop_words": ["word1"]},
        {"sentences": True},
    ],
    ids=str,
)  # fmt: skip
def test_texts_of_every_tokenizer_wait_on_disk_and_stay_the_same(form, options, monkeypatch):
    texts = [f"Word{n % 7} www.a.b WORD{n % 3}. word{n % 5}, {n}" if n % 11 else "" for n in range(900)]
    source = pa.table({"user": [f"u{n % 300}" for n in range(900)], "text": texts})
    asked = {"user": "user", "item": Words("text", **options), "epsilon": 8.0, "delta": 1e-4, "unsafe_test_key": 1}
    if form == "n-grams as one set":
        asked["item"] = Words("text", lengths="1-2", **options)
    elif form != "words":
        asked |= {"algorithm": Ngrams(longest=3), "counts": form == "n-grams with counts"}
    expected = dpunion.release(source, **asked).items
    spilled = []
    real = spill.WaitingStore._spill
    monkeypatch.setattr(spill.WaitingStore, "_spill", lambda store: spilled.append(real(store)))
    monkeypatch.setattr(spill, "ROWS_SHARE", 1e-6)
    for portion in ("sets.streams.CODES_AT_ONCE", "ngrams.lengths.PAIRS_AT_ONCE", "ngrams.lengths.PLACES_AT_ONCE"):
        monkeypatch.setattr(f"dpunion.{portion}", 97)
    for threads in (1, 2, 4):
        assert dpunion.release(source, **asked, run=Run(memory_limit="100MB", threads=threads)).items == expected
    assert len(expected) > 5
    assert spilled


@pytest.mark.parametrize("asked", [{"item": "item"}, {"text": "item", "algorithm": Ngrams()}], ids=["items", "n-grams"])
def test_a_limit_is_refused_on_spark_before_it_starts(asked):
    options = {"user": "user", "epsilon": 1.0, "delta": 1e-6, **asked}
    with pytest.raises(
        dpunion.BadParameter, match="cannot enforce a memory limit on Spark: the cluster manages memory"
    ):
        dpunion.release(SparkSource(("none.parquet",), "local[1]", ()), run=Run(memory_limit="200MB"), **options)

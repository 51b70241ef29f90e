"""One test key, one, two, four and eight threads: the same release, and the same refusal, from every kind of source."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion.errors import DamagedSource, NullUsers
from dpunion.plans.ngrams import Ngrams
from dpunion.requests import Run, Words

THREADS = (1, 2, 4, 8)
BUDGET = {"epsilon": 3.0, "delta": 1e-4}


def make_rows(count=40_000):
    """Return rows in random order: some thousand people, words with a long tail, short texts of them."""
    draw = np.random.default_rng(11)
    ranks = np.minimum(draw.zipf(1.4, count), 2_000)
    words = [f"wörd{rank}" if rank % 5 else f"a rather long word with number {rank}" for rank in ranks.tolist()]
    users = [f"user{number}" for number in draw.integers(0, 2_000, count).tolist()]
    texts = [f"{word} {other}, {word}!" for word, other in zip(words, words[::-1], strict=True)]
    return pa.table({"user": users, "item": words, "text": texts})


ROWS = make_rows()


def as_parquet(folder, rows):
    pq.write_table(rows, folder / "rows.parquet", row_group_size=1_500)
    return folder / "rows.parquet"


def as_plain_parquet(folder, rows):
    pq.write_table(rows, folder / "rows.parquet", row_group_size=7_000, use_dictionary=False)
    return folder / "rows.parquet"


def as_files(folder, rows):
    for number in range(7):
        pq.write_table(rows.slice(number * 6_000, 6_000), folder / f"{number}.parquet", row_group_size=4_000)
    return folder


def as_csv(folder, rows):
    pyarrow.csv.write_csv(rows, folder / "rows.csv")
    return folder / "rows.csv"


def as_json_lines(folder, rows):
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows.to_pylist()))
    return path


def as_frame(_folder, rows):
    return rows.set_column(0, "user", rows["user"].dictionary_encode())


SOURCES = [as_parquet, as_plain_parquet, as_files, as_csv, as_json_lines, as_frame]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Let small data come in many pieces."""
    monkeypatch.setattr("dpunion.reading.delimited.BLOCK_BYTES", 100_000)
    monkeypatch.setattr("dpunion.reading.cleaning.ROWS_PER_BATCH", 3_000)
    monkeypatch.setattr("dpunion.reading.cleaning.TEXTS_PER_BATCH", 2_000)
    monkeypatch.setattr("dpunion.reading.columnar.LARGEST_BATCH", 2_000)
    monkeypatch.setattr("dpunion.reading.columnar.PIECE_BYTES", 60_000)
    monkeypatch.setattr("dpunion.sets.narrowing.FEWEST_PAIRS", 500)
    monkeypatch.setattr("dpunion.sets.narrowing.MOST_PAIRS", 2_000)
    monkeypatch.setattr("dpunion.engines.local.usable_cores", lambda: max(THREADS))


def released(source, threads, **asked):
    return dpunion.release(source, user="user", **asked, **BUDGET, unsafe_test_key=3, run=Run(threads=threads)).items


@pytest.mark.parametrize("write", SOURCES)
def test_items_are_the_same_from_any_number_of_threads(tmp_path, write):
    source = write(tmp_path, ROWS)
    expected = released(ROWS, 1, item="item")
    assert 100 < len(expected) < 2_000
    for threads in THREADS:
        assert released(source, threads, item="item") == expected


ASKED = {
    "words": {"text": "text"},
    "n-grams as one set": {"item": Words("text", lengths="1-2")},
    "another tokenizer": {"item": Words("text", tokenizer="whitespace")},
    "n-grams length by length": {"text": "text", "algorithm": Ngrams(longest=2)},
    "counts": {"item": "item", "counts": True},
    "one round": {"item": "item", "algorithm": "weighted-gaussian"},
    "a policy": {"item": "item", "algorithm": "policy-gaussian"},
    "two passes": {"item": "item", "algorithm": "policy-gaussian", "passes": 2},
    "shares of l1": {"item": "item", "algorithm": "policy-laplace"},
    "draws in each round": {"item": "item", "algorithm": "dp-sips"},
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=list(ASKED))
def test_other_releases_are_the_same_from_any_number_of_threads(tmp_path, asked):
    source = as_parquet(tmp_path, ROWS.slice(0, 12_000))
    expected = released(source, 1, **asked)
    assert len(expected) > 20
    for threads in THREADS[1:]:
        assert released(source, threads, **asked) == expected


@pytest.mark.parametrize("write", [as_parquet, as_csv, as_json_lines, as_frame])
def test_what_ends_a_run_is_the_same_from_any_number_of_threads(tmp_path, write):
    """A row without its user, and later on a value that ends the run for another reason."""
    users = ROWS["user"].to_pylist()
    users[20_001], users[30_005] = "", "x" * 5_000
    source = write(tmp_path, ROWS.set_column(0, "user", pa.array(users)))
    messages = set()
    for threads in THREADS:
        with pytest.raises(dpunion.BadSource) as caught:
            released(source, threads, item="item")
        messages.add((type(caught.value), str(caught.value)))
    assert len(messages) == 1
    assert next(iter(messages))[0] is NullUsers


def test_a_broken_line_is_named_as_one_thread_names_it(tmp_path):
    """A block that cannot be read is noticed while earlier ones are parsed; the first error by the lines counts."""
    path = as_csv(tmp_path, ROWS)
    lines = path.read_bytes().split(b"\n")
    lines[30_000] += b",one more"
    lines[36_000] = b"\xff" + lines[36_000]
    path.write_bytes(b"\n".join(lines))
    messages = set()
    for threads in THREADS:
        with pytest.raises(DamagedSource) as caught:
            released(path, threads, item="item")
        messages.add(str(caught.value))
    assert len(messages) == 1
    assert "line 30001" in next(iter(messages))

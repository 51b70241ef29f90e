"""The data that the benchmarks of speed read, each file made by a process of its own when it is not there.

    python benchmarks/speed_data.py NAME FOLDER

A process that starts another hands its own peak memory on to it, so nobody who measures makes data: `ready` starts this
file and waits. NAME: tiny, small, large or billion, grouped by user; large-shuffled; small-duckdb, the same rows
written by DuckDB; small.csv; ordinary, one_user and many_users, with as many pairs each; texts, 100 MB of
generated text; lines-2000.jsonl, 2,000 MB of the pairs as JSON Lines; list-1000000.txt (or .csv, .parquet): the
likeliest items of all these as a public list of that length.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq

USERS = {"tiny": 2_000, "small": 223_388, "large": 2_000_000, "billion": 25_900_000}
SKEWED_PAIRS = 5_000_000
SKEWED = ("ordinary", "one_user", "many_users")
VOCABULARY = 200_000
WORDS_PER_TEXT = 100
TEXTS_PER_USER = 5
MEGABYTES = 100.0


def path_of(folder: Path, name: str) -> Path:
    """Return the file of this name in the folder: Parquet, if the name does not say otherwise."""
    return folder / (name if "." in name else f"{name}.parquet")


def ready(folder: Path, name: str) -> Path:
    """Return the file of this name in the folder; another process makes it when it is not there."""
    path = path_of(folder, name)
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, __file__, name, str(folder)], check=True)
    return path


def make(name: str, folder: Path, target: Path) -> None:
    """Write the data of this name into the target."""
    if name in USERS:
        from dpunion_lab.generators import AskRedditLike

        AskRedditLike(users=USERS[name]).write_parquet(target)
    elif name == "small-duckdb":
        import duckdb

        duckdb.sql(f"copy (from '{ready(folder, 'small')}') to '{target}' (format parquet, compression zstd)")
    elif name == "small.csv":
        pa.csv.write_csv(pq.read_table(ready(folder, "small")), target, pa.csv.WriteOptions(quoting_style="none"))
    elif name == "large-shuffled":
        shuffle(USERS["large"], target)
    elif name in SKEWED:
        skew(name, target)
    elif name == "texts":
        write_texts(target, MEGABYTES)
    elif name.endswith(".jsonl"):
        write_lines(ready(folder, "small"), target, int(name.removesuffix(".jsonl").rpartition("-")[2]))
    elif name.startswith("list-"):
        length, suffix = name.removeprefix("list-").split(".")
        write_list(int(length), suffix, target)
    else:
        raise SystemExit(f"There is no data {name!r}.")


def shuffle(users: int, target: Path) -> None:
    """Write the set with this many users, rows in random order."""
    from dpunion_lab.generators import AskRedditLike

    maker = AskRedditLike(users=users)
    parts = [(owner.astype(np.int32), token.astype(np.int32)) for owner, token in maker.chunks()]
    owners, tokens = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.random.default_rng(1).permutation(len(owners))
    owners, tokens = owners[order], tokens[order]
    people = pa.array([f"user{number}" for number in range(users)])
    words = pa.array([f"word{rank}" for rank in range(maker.items + 1)])
    schema = pa.schema({"user": pa.string(), "item": pa.string()})
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for start in range(0, len(owners), 1 << 20):
            rows = slice(start, start + (1 << 20))
            columns = {"user": people.take(pa.array(owners[rows])), "item": words.take(pa.array(tokens[rows]))}
            writer.write_table(pa.table(columns))


def skew(name: str, target: Path) -> None:
    """Write as many pairs of ordinary people, of one user with all items, or of users with one item each."""
    numbers = np.arange(SKEWED_PAIRS)
    users, items = {
        "ordinary": (numbers // 40, np.random.default_rng(1).integers(0, 20_000, SKEWED_PAIRS)),
        "one_user": (np.zeros(SKEWED_PAIRS, np.int64), numbers),
        "many_users": (numbers, numbers % 20_000),
    }[name]
    pq.write_table(pa.table({"user": labelled("user", users), "item": labelled("item", items)}), target)


def write_lines(pairs: Path, target: Path, megabytes: int) -> None:
    """Write megabytes of log lines, of about 220 bytes: one for each pair, from the first again if need be."""
    rest = ', "at": "2026-11-18T12:00:00Z", "note": "%s"}\n' % ("0123456789" * 13)
    with target.open("wb") as file:
        while file.tell() < megabytes * 1e6:
            for batch in pq.ParquetFile(pairs).iter_batches(1 << 18):
                user, item = (column.cast(pa.string()) for column in batch.columns)
                parts = ('{"user": "', user, '", "item": "', item, '"' + rest, "")
                lines = pa.compute.binary_join_element_wise(*parts)
                file.write("".join(lines.to_pylist()).encode())
                if file.tell() >= megabytes * 1e6:
                    break


def write_list(length: int, suffix: str, target: Path) -> None:
    """Write a public list of this length as dpunion reads it; the first ones are those that people have."""
    table = pa.table({"item": labelled("word", np.arange(length))})
    if suffix == "parquet":
        pq.write_table(table, target)
    elif suffix == "csv":
        pa.csv.write_csv(table, target, pa.csv.WriteOptions(quoting_style="none"))
    else:
        pa.csv.write_csv(table, target, pa.csv.WriteOptions(include_header=False, quoting_style="none"))


def labelled(word: str, numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Return texts like user17."""
    return pa.compute.binary_join_element_wise(word, pa.array(numbers).cast(pa.string()), "")


def write_texts(target: Path, megabytes: float) -> None:
    """Write about this many megabytes of text.

    Words are drawn from a Zipf-like vocabulary of 200,000, some of them followed by a usual companion, so that n-grams
    repeat as in real text; 100 words make a text, 5 texts a user.
    """
    random = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    lengths = np.clip(random.poisson(3 + np.log10(np.arange(1, VOCABULARY + 1)), VOCABULARY), 1, 14)
    words = np.array(["".join(random.choice(letters, n)) + f"{i % 97}" * (i > 2000) for i, n in enumerate(lengths)])
    weight = 1.0 / np.arange(1, VOCABULARY + 1) ** 1.05
    companion = random.permutation(VOCABULARY)
    texts: list[str] = []
    size, cumulative = 0, np.cumsum(weight / weight.sum())
    while size < megabytes * 1e6:
        drawn = np.minimum(np.searchsorted(cumulative, random.random((2_000, WORDS_PER_TEXT))), VOCABULARY - 1)
        follows = random.random(drawn.shape) < 0.35
        drawn[:, 1:] = np.where(follows[:, 1:], companion[drawn[:, :-1]], drawn[:, 1:])
        some = [" ".join(row).capitalize() + "." for row in words[drawn]]
        texts += some
        size += sum(map(len, some))
    users = [f"user{i // TEXTS_PER_USER}" for i in range(len(texts))]
    pq.write_table(pa.table({"user": users, "text": texts}), target, row_group_size=20_000, compression="zstd")


def main() -> None:
    """Make one file: whole, or not at all."""
    name, folder = sys.argv[1], Path(sys.argv[2])
    path = path_of(folder, name)
    make(name, folder, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").rename(path)


if __name__ == "__main__":
    main()

"""The small files that the examples in the documentation read, under the names used there."""

import gzip
import json
import random
import shutil
import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq

from dpunion import samples

AUTHORS = 1500
TEXT = """the a of and to in is it that was for on with as at by an be this have from or one had not but what all were
when we there can said which do their time if will how each tell set three want air well also play small end put home"""
WORDS = TEXT.split()
COUNTRIES, DEVICES = ("Chile", "Ghana", "Japan", "Norway"), ("phone", "laptop", "watch")

# A policy of one's own for `dpunion audit policy`: a user adds 1/sqrt(number of items) to each.
POLICY = """
def update(weights, items):
    changed = weights.copy()
    changed[items] += len(items) ** -0.5
    return changed
"""


def write_all(folder):
    """Write every file into the folder."""
    dice = random.Random(20261115)
    weights = [1 / rank for rank in range(1, len(WORDS) + 1)]
    posts = [
        (f"author{number}", " ".join(dice.choices(WORDS, weights, k=dice.randint(4, 12))))
        for number in range(AUTHORS)
        for _ in range(2)
    ]
    pairs = [(author, word) for author, body in posts for word in body.split()]
    shutil.copy(samples.debian_depends(), folder / "debian_depends.parquet")
    authors, words = [author for author, _ in pairs], [word for _, word in pairs]
    for name in ("posts.parquet", "new.parquet", "public.parquet"):
        _parquet(folder / name, author=authors, word=words, body=words)
    _parquet(folder / "old.parquet", item=["of", "the"])
    for name, who in (("posts.jsonl", "author"), ("public.jsonl", "author"), ("reviews.jsonl", "id")):
        lines = [json.dumps({who: author, "body": body}) for author, body in posts]
        (folder / name).write_text("\n".join(lines) + "\n", "utf-8")
    _csv(folder / "new.csv", ("id", "word"), pairs)
    visits = [(f"v{at}", dice.choice(COUNTRIES), dice.choice(DEVICES)) for at in range(2 * AUTHORS)]
    _csv(folder / "visits.csv", ("id", "country", "device"), visits)
    products, sold = [f"product {number:04}" for number in range(1, 2001)], [1 / rank for rank in range(1, 801)]
    orders = [
        (f"c{who}", one) for who in range(6000) for one in dice.choices(products[:800], sold, k=dice.randint(1, 5))
    ]
    amounts = [str(dice.randint(1, 20)) for _ in orders]
    rows = [(*order, amount) for order, amount in zip(orders, amounts, strict=True)]
    _csv(folder / "orders.csv", ("customer", "product", "amount"), rows)
    _csv(folder / "catalogue.csv", ("item", "price"), [(one, "9.99") for one in products])
    (folder / "logs").mkdir()
    with gzip.open(folder / "logs" / "monday.csv.gz", "wt", encoding="utf-8") as file:
        file.writelines(["uid,query\n", *(f"{author},{word}\n" for author, word in pairs)])
    (folder / "mine.py").write_text(POLICY, "utf-8")
    with sqlite3.connect(folder / "posts.db") as database:
        database.execute("create table posts (author text, word text)")
        database.executemany("insert into posts values (?, ?)", pairs)
    database.close()


def _parquet(path, **columns):
    pq.write_table(pa.table(columns), path)


def _csv(path, names, rows):
    path.write_text("\n".join([",".join(names), *(",".join(row) for row in rows)]) + "\n", "utf-8")

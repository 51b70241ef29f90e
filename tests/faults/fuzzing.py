"""Damaged inputs of every kind that a command reads, drawn at random: what `torture.py` runs them on.

In all of them whatever holds the word "canary" is private: user ids, items of one person, passwords.
"""

import dataclasses
import gzip
import io
import json
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from test_fault_suite import FORMATS, as_csv, as_jsonl, as_parquet, rows_of

BUDGET = ("-e", "8", "-d", "1e-12", "-a", "weighted-gaussian")
COLUMNS = ("--user", "who", "--item", "what")
REFUSED = (0, 2, 3, 4, 5)
BINARY = (".parquet", ".arrow")


@dataclasses.dataclass(frozen=True)
class Case:
    """A command whose files lie in the folder where it is run, and the exit codes that its input can deserve.

    may_show: damage to a binary file can give everybody the item of one person, which is then rightly released.
    """

    kind: str
    arguments: tuple[str, ...]
    codes: tuple[int, ...]
    target: str | None = "out.json"
    may_show: bool = False


def as_tsv(rows):
    return as_csv(rows).replace(b",", b"\t")


def zstd(data):
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return out.getvalue().to_pybytes()


PACKED = {".gz": lambda data: gzip.compress(data, 1, mtime=0), ".zst": zstd}
TEXTS = {".csv": as_csv, ".tsv": as_tsv, ".jsonl": as_jsonl}
SOURCES = [*BINARY, *TEXTS, *(name + packed for name in TEXTS for packed in PACKED)]


# --- damage -------------------------------------------------------------------------------------------------
STRAYS = (
    *(
        b'"', b'""', b"\\", b"\0", b"\r", b"\n", b"\r\n", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\xed\xa0\x80", b",",
        b"\t",
    ),
    *(b"{", b"[" * 300, b'{"a":' * 300, b"}", b"null", b"NaN", b"1e999", b"-0", b"9" * 40, b"\\ud800", b"true", b"''"),
    *("\u0301\u0323".encode() * 50, "\u202e".encode(), b"\x1b[31m", b"=1+1", b"%s%n", b"../..", b"canary" * 9),
)  # fmt: skip


def flip(draw, raw):
    at = draw.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ (1 << draw.randrange(8))]) + raw[at + 1 :]


def overwrite(draw, raw):
    at, length = draw.randrange(len(raw)), draw.choice((1, 2, 4, 8, 30))
    return raw[:at] + draw.choice((bytes(length), b"\xff" * length, draw.randbytes(length))) + raw[at + length :]


def insert(draw, raw):
    at = draw.randrange(len(raw) + 1)
    return raw[:at] + draw.choice(STRAYS) + raw[at:]


def cut(draw, raw):
    at = draw.randrange(len(raw))
    return draw.choice((raw[:at], raw[at:], raw[:at] + raw[at + draw.randrange(1, 200) :]))


def repeat(draw, raw):
    at, length = draw.randrange(len(raw)), draw.randrange(1, 400)
    return raw[: at + length] + raw[at : at + length] * draw.randrange(1, 4) + raw[at + length :]


def exchange(draw, raw):
    one, other = sorted(draw.randrange(len(raw)) for _ in range(2))
    length = draw.randrange(1, 60)
    return raw[:one] + raw[other : other + length] + raw[one + length : other] + raw[one : one + length] + raw[other:]


DAMAGE = (flip, flip, overwrite, insert, insert, cut, repeat, exchange)


def damaged(draw, raw):
    """Return the bytes after one to four accidents."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        raw = draw.choice(DAMAGE)(draw, raw) or b"\n"
    return raw


# --- cases --------------------------------------------------------------------------------------------------
def source_bytes(draw, suffix):
    """Return a damaged source: compressed after the damage, or before it."""
    rows = rows_of(1)[: draw.choice((9, 90, 450))]
    if suffix in BINARY:
        if suffix == ".parquet":
            choices = {"compression": ("none", "snappy", "zstd"), "use_dictionary": (True, False)}
            options = {name: draw.choice(values) for name, values in choices.items()}
            return damaged(draw, as_parquet(rows, **options))
        return damaged(draw, FORMATS[suffix](rows))
    plain = TEXTS["." + suffix.split(".")[1]](rows)
    packed = suffix.split(".")[2:]
    if not packed:
        return damaged(draw, plain)
    pack = PACKED["." + packed[0]]
    return pack(damaged(draw, plain)) if draw.random() < 0.6 else damaged(draw, pack(plain))


def good_source(folder):
    (folder / "good.csv").write_bytes(as_csv(rows_of(1)))
    return "good.csv"


def source_case(draw, folder):
    suffix = draw.choice(SOURCES)
    name = "part" + suffix
    (folder / name).write_bytes(source_bytes(draw, suffix))
    sources = [name, good_source(folder)] if draw.random() < 0.3 else [name]
    columns = ("--user", "who", "--text", "what") if draw.random() < 0.2 else COLUMNS
    arguments = ("release", *sources, *columns, *BUDGET, "--out", "out.json")
    return Case("source " + suffix, arguments, (0, 3), may_show=suffix in BINARY)


def written(table, write):
    out = io.BytesIO()
    write(table, out)
    return out.getvalue()


def write_arrow(table, out):
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)


def known_case(draw, folder):
    items = [f"known-{number}" for number in range(30)]
    plain = {
        ".txt": "\n".join(items).encode(),
        ".csv": ("item\n" + "\n".join(items)).encode(),
        ".json": json.dumps({"items": items}).encode(),
        ".jsonl": "".join(json.dumps({"item": item}) + "\n" for item in items).encode(),
        ".parquet": written(pa.table({"item": items}), pq.write_table),
        ".arrow": written(pa.table({"item": items}), write_arrow),
    }
    suffix = draw.choice(list(plain))
    (folder / ("known" + suffix)).write_bytes(damaged(draw, plain[suffix]))
    arguments = ("release", good_source(folder), *COLUMNS, *BUDGET, "--known", "known" + suffix, "--out", "out.json")
    return Case("known " + suffix, arguments, (0, 2, 3))


CONFIGURATION = """source = ["good.csv"]
user = "who"
item = ["what"]
epsilon = 8.0
delta = 1e-12
algorithm = "weighted-gaussian"
max-items-per-user = 50
null-users = "drop"
normalize = "nfc"
memory-limit = "1GB"
"""


ODD_TOML = (
    *(
        "true", "-1", "0", "nan", "-inf", "1e400", "9" * 400, '""', '"x"', "[]", "[[]]", "{}", "[1, true]",
        '["", "what"]',
    ),
    *("1979-05-27", "07:32:00", '"\\u0000"', '"\\u202e"', "'odd'", "0x10", "{a = 1}", "1_000", '"/dev/null"', '"-"'),
)  # fmt: skip


def configuration_case(draw, folder):
    good_source(folder)
    lines = CONFIGURATION.splitlines()
    if draw.random() < 0.5:
        at = draw.randrange(len(lines))
        lines[at] = f"{lines[at].partition('=')[0]}= {draw.choice(ODD_TOML)}"
        text = "\n".join(lines).encode()
    else:
        # The operator's own options are not private, and may be repeated to the operator.
        text = damaged(draw, CONFIGURATION.encode()).replace(b"canary", b"stray")
    (folder / "run.toml").write_bytes(text)
    return Case("config", ("release", "--config", "run.toml", "--out", "out.json"), (0, 2, 3, 4))


SCHEMES = ("postgresql://", "PostgreSQL://", "postgres://", " postgresql://", "postgresql:/", "postgresql+psycopg://")
PEOPLE = ("u:canary@", "canary:canary@", "u:c%61nary@", "@", "u:canary:x@", "u:canary@@", "")
PLACES = ("127.0.0.1:1/db", "127.0.0.1:1", "[::1]:1/db", "127.0.0.1:99999/db", "127.0.0.1:x/db", "/db", "")
TAILS = ("", "?password=canary", "?sslmode=canary", "?p%61ssword=canary", "#canary", "?host=127.0.0.1")
WORDS = (
    "host=127.0.0.1 port=1 password=canary dbname=d", "file:budget.db?mode=rw", "mysql://u:canary@h/d", "", ".", "-",
)  # fmt: skip


def address_case(draw, folder):
    """A ledger's address that is wrong: whatever it is taken for, no password may show."""
    parts = (SCHEMES, PEOPLE, PLACES, TAILS)
    address = draw.choice(WORDS) if draw.random() < 0.2 else "".join(draw.choice(part) for part in parts)
    where = ("--ledger", address, "--dataset", "people")
    if draw.random() < 0.3:
        command = draw.choice(("show", "verify"))
        return Case("ledger address", ("ledger", command, address), REFUSED, target=None)
    arguments = ("release", good_source(folder), *COLUMNS, *BUDGET, *where, "--out", "out.json")
    return Case("ledger address", arguments, (2, 4, 5))


def ledger_case(draw, folder):
    """A ledger whose file was damaged."""
    from dpunion.ledger import Amounts, Ledger

    path = folder / "budget.db"
    book = Ledger.open(path, create=True)
    book.create_dataset("people", 100, 0.5)
    for number in range(draw.randrange(3)):
        book.reserve("people", Amounts(epsilon=10**9), f"release {number}")
    book.close()
    with sqlite3.connect(path) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()
    path.write_bytes(damaged(draw, path.read_bytes()))
    where = ("--ledger", "budget.db", "--dataset", "people")
    choices = [("ledger", "show", "budget.db"), ("ledger", "verify", "budget.db")]
    arguments = draw.choice(choices) if draw.random() < 0.4 else None
    if arguments is not None:
        return Case("ledger file", arguments, (0, 2, 3, 5), target=None)
    release = ("release", good_source(folder), *COLUMNS, *BUDGET, *where, "--out", "out.json")
    return Case("ledger file", release, (0, 2, 5))


def odd_value(draw):
    return draw.choice([None, True, -1, 0, 10**400, 1e308, float("nan"), "", "x" * 300, [], {}, [[]], "\ud800", "<b>"])


def changed(draw, value):
    """Return JSON with one value somewhere in it exchanged for an odd one."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        name = draw.choice(sorted(value))
        if draw.random() < 0.1:
            return {key: held for key, held in value.items() if key != name}
        return value | {name: changed(draw, value[name])}
    if isinstance(value, list) and value and draw.random() < 0.8:
        at = draw.randrange(len(value))
        return [*value[:at], changed(draw, value[at]), *value[at + 1 :]]
    return odd_value(draw)


def report_case(draw, folder, release):
    """A release written as JSON and changed since, for a page."""
    if draw.random() < 0.6:
        text = json.dumps(changed(draw, json.loads(release)))
        raw = text.encode("utf-8", "surrogatepass")
    else:
        raw = damaged(draw, release)
    (folder / "release.json").write_bytes(raw)
    return Case("report", ("report", "release.json", "--out", "page.html"), (0, 2, 3), target="page.html")


def draw_case(draw, folder, release):
    """Put the files of one random case into the folder and return it."""
    folder = Path(folder)
    kinds = (source_case, known_case, configuration_case, address_case, ledger_case)
    kind = draw.choices((*kinds, report_case), (66, 8, 8, 5, 5, 8))[0]
    return kind(draw, folder, release) if kind is report_case else kind(draw, folder)


SPARK_SOURCES = [name for name in SOURCES if name != ".arrow"]


def draw_spark_case(draw, folder):
    """Put a damaged source into the folder, for Spark's readers."""
    suffix = draw.choice(SPARK_SOURCES)
    (folder / ("part" + suffix)).write_bytes(source_bytes(draw, suffix))
    spark = ("--engine", "spark", "--out", "out.json")
    arguments = ("release", str(folder / ("part" + suffix)), *COLUMNS, *BUDGET, *spark[:-1], str(folder / "out.json"))
    return Case("Spark " + suffix, arguments, (0, 2, 3), may_show=suffix in BINARY)

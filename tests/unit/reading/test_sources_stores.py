"""Object stores: complete or refused, nothing secret in names or errors, and an early error without a key."""

import contextlib
import http.server
import io
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion.errors import BadSource, DamagedSource, SourceNotFound
from dpunion.ledger import Ledger
from dpunion.reading.storage import explain_store, open_store
from opening import check_source, read_pairs
from s3_server import KEY, SECRET

CANARY = "CANARYvalue"
ROWS = pa.table({"u": ["a"], "v": ["x"]})


def put(s3, path, table=ROWS):
    s3.create_dir(path.split("/", maxsplit=1)[0])
    pq.write_table(table, path, filesystem=s3)


def write(s3, path, data=b"{}"):
    with s3.open_output_stream(path, compression=None) as file:
        file.write(data)


def pairs(source, **more):
    return sorted(read_pairs(source, **more))


def refused(source, words, error=BadSource):
    with pytest.raises(error, match=words) as caught:
        check_source(source)
    text = str(caught.value)
    assert not [secret for secret in (CANARY, KEY, SECRET) if secret in text]
    assert caught.value.__context__ is None
    return text


# --- completeness on a server of S3 -------------------------------------------------------------------------
def test_a_folder_is_read_whole_or_refused(s3):
    put(s3, f"whole/t/k={CANARY}/0.parquet")
    put(s3, "whole/t/k=2/sub/1.parquet")
    put(s3, "whole/t/_temporary/2.parquet")
    write(s3, "whole/t/_SUCCESS", b"")
    assert pairs("s3://whole/t") == [("a", "x")] * 2
    assert pairs("s3://whole/t/", value="k") == [("a", "2"), ("a", CANARY)]
    write(s3, "whole/t/k=2/notes.txt")
    refused("s3://whole/t", r"File 's3://whole/t/k=…/notes.txt' in directory 's3://whole/t' is not a Parquet file")
    put(s3, "whole/mixed/k=1/0.parquet")
    put(s3, "whole/mixed/0.parquet")
    refused("s3://whole/mixed", "name other partitions")


def test_patterns_are_those_of_this_machine(s3, tmp_path):
    names = ["a/0.parquet", "a/.hidden.parquet", "a/b/1.parquet", "c/2.parquet", "c/3.csv"]
    for name in names:
        put(s3, f"patterns/{name}") if name.endswith("parquet") else write(s3, f"patterns/{name}", b"u,v\na,y\n")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(ROWS, tmp_path / name) if name.endswith("parquet") else (tmp_path / name).write_text(
            "u,v\na,y\n"
        )
    for pattern in ("*/*.parquet", "**/*.parquet", "a/**", "**", "c/*", "[ac]/?.*", "**/1.parquet"):
        assert pairs(f"s3://patterns/{pattern}") == pairs(str(tmp_path / pattern)), pattern
    for pattern in ("a/*", "*"):
        refused(f"s3://patterns/{pattern}", "There is a folder")
        refused(str(tmp_path / pattern), "There is a folder")
    refused("s3://patterns/z*", "No file matches the pattern", SourceNotFound)


def put_key(bucket, key):
    """Put an object under a key that Arrow would not write."""
    boto3 = pytest.importorskip("boto3")
    buffer = io.BytesIO()
    pq.write_table(ROWS, buffer)
    boto3.client("s3").put_object(Bucket=bucket, Key=key, Body=buffer.getvalue())


KEYS = ["t//a.parquet", "t/./a.parquet", "t/../a.parquet", "t/a.parquet/b.parquet"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("query", [None, "select u, v from source"])
def test_keys_that_paths_cannot_tell_apart_are_refused(s3, key, query):
    bucket = f"odd{KEYS.index(key)}"
    put(s3, f"{bucket}/t/a.parquet")
    put(s3, f"{bucket}/t/b.parquet")
    put_key(bucket, key)
    for name in ("t", "t/", "t/*.parquet", "**/*.parquet"):
        with pytest.raises(BadSource, match=r"has an empty part, '\.' or '\.\.' in it, or is the name of .* a folder"):
            check_source(f"s3://{bucket}/{name}", query=query)
    is_folder_too = key.endswith("b.parquet")
    refused(f"s3://{bucket}/t/a.parquet" if is_folder_too else f"s3://{bucket}/{key}", "A key in")
    assert pairs(f"s3://{bucket}/t/b.parquet") == [("a", "x")]


def test_missing_and_damaged_objects_are_named(s3):
    put(s3, "there/0.parquet")
    write(s3, "there/1.xlsx")
    refused("s3://there/1.parquet", "There is no file or folder 's3://there/1.parquet'", SourceNotFound)
    refused("s3://nobucket/0.parquet", "There is no file or folder", SourceNotFound)
    refused("s3://there/1.xlsx", "is not a known format")
    write(s3, "there/2.parquet", b"PAR1 damaged")
    refused("s3://there/2.parquet", "damaged", DamagedSource)


@pytest.mark.parametrize("mark", ["_delta_log/0.json", ".hoodie/hoodie.properties", "metadata/v1.metadata.json"])
def test_files_of_a_table_are_refused(s3, mark):
    bucket = f"tables{len(mark)}"
    put(s3, f"{bucket}/k={CANARY}/t/day=1/0.parquet")
    write(s3, f"{bucket}/k={CANARY}/t/{mark}")
    for name in ("t", "t/day=1", "t/day=1/0.parquet", "t/*/*.parquet", "**/*.parquet"):
        refused(f"s3://{bucket}/k={CANARY}/{name}", "a table of")
    refused(f"s3://{bucket}/**/*.parquet", "a table of")


def test_a_release_and_its_ledger_hold_no_key(s3, tmp_path):
    put(s3, "ledgered/0.parquet", pa.table({"u": [str(i) for i in range(300)], "v": ["x"] * 300}))
    ledger = Ledger.open(tmp_path / "ledger.db", create=True)
    ledger.create_dataset("d", epsilon=3.0, delta=1e-5)
    ledger.close()
    asked = {"user": "u", "item": "v", "epsilon": 1.0, "delta": 1e-6, "out": tmp_path / "out.json"}
    made = dpunion.release("s3://ledgered/0.parquet", charge=dpunion.Charge(tmp_path / "ledger.db", "d"), **asked)
    assert made.items == ("x",)
    for path in tmp_path.iterdir():
        assert not [secret for secret in (KEY, SECRET) if secret.encode() in path.read_bytes()]


# --- without a server ---------------------------------------------------------------------------------------
@pytest.fixture
def nothing_set(monkeypatch):
    """No key and no place in the environment, and nothing real that could be asked."""
    import os

    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return monkeypatch


def test_a_server_that_is_not_there_is_told_within_the_limit(nothing_set):
    nothing_set.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    before = time.monotonic()
    refused("s3://bucket/rows.parquet", "S3 cannot be reached for 's3://bucket'.*AWS_ENDPOINT_URL")
    assert time.monotonic() - before < 30


class Refusing(http.server.BaseHTTPRequestHandler):
    """A store that lets nobody in."""

    def do_GET(self):
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *args):
        """Say nothing."""


@contextlib.contextmanager
def serving(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def test_without_a_key_the_remedy_is_named(nothing_set):
    with serving(Refusing) as port:
        nothing_set.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        before = time.monotonic()
        refused("s3://bucket/rows.parquet", "S3 denied access to 's3://bucket'.*AWS_ACCESS_KEY_ID")
        assert time.monotonic() - before < 30


@pytest.mark.parametrize(
    ("scheme", "said", "words"),
    [
        ("s3", "AWS Error ACCESS_DENIED during ListObjectsV2", "AWS_ACCESS_KEY_ID"),
        ("gs", "Could not create a OAuth2 access token to authenticate", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("abfss", "Failed to get token from DefaultAzureCredential", "AZURE_STORAGE_KEY"),
        ("gs", "Couldn't resolve host name", "cannot be reached"),
        ("s3", f"something about {CANARY}", "did not answer as expected"),
    ],
)
def test_failures_are_explained_without_being_quoted(scheme, said, words):
    text = str(explain_store(OSError(said), scheme, f"{scheme}://bucket"))
    assert words in text
    assert CANARY not in text


@pytest.mark.parametrize(
    "address",
    [
        f"s3://{KEY}:{SECRET}@bucket/rows.parquet", f"s3://{KEY}@bucket/rows.parquet",
        f"s3://bucket/rows.parquet?access_key={KEY}&secret_key={SECRET}", f"gs://{KEY}@bucket/rows.parquet",
        f"abfs://container:{SECRET}@account.dfs.core.windows.net/x", "s3://", "abfs://account.dfs.core.windows.net/x",
        "abfs://container@elsewhere/x",
    ],
)  # fmt: skip
def test_an_address_with_a_key_is_refused_and_not_repeated(address, nothing_set):
    refused(address, "address")


def test_the_name_of_a_container_is_not_taken_for_a_key(nothing_set):
    nothing_set.setenv("AZURE_STORAGE_KEY", "a2V5")
    store = open_store("abfs://box@account.dfs.core.windows.net/a/k=secret/b")
    assert str(store.root) == "box/a/k=secret/b"
    assert store.name(store.root) == "abfs://box@account.dfs.core.windows.net/a/k=…/b"

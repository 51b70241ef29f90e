"""Object stores and https: complete or refused, nothing secret in names or errors, and an early error without a key."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import http.server
import io
import ipaddress
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion.cli.records import without_credentials
from dpunion.engines.local.engine import LocalEngine
from dpunion.errors import BadSource, DamagedSource, SourceNotFound
from dpunion.ledger import Ledger
from dpunion.reading import ValueKind, check_source, open_rows
from dpunion.reading.stores import explain_store, open_store
from dpunion.requests import Request, Run
from s3_server import KEY, SECRET

CANARY = "CANARYvalue"
ROWS = pa.table({"u": ["a"], "v": ["x"]})


def put(s3: Any, path: str, table: pa.Table = ROWS) -> None:
    s3.create_dir(path.split("/", maxsplit=1)[0])
    pq.write_table(table, path, filesystem=s3)


def write(s3: Any, path: str, data: bytes = b"{}") -> None:
    with s3.open_output_stream(path, compression=None) as file:
        file.write(data)


def pairs(source: Any, value: str = "v") -> list[tuple[str, str]]:
    with open_rows(source, user="u", value=value, kind=ValueKind.ITEM) as batches:
        return sorted(pair for batch in batches for pair in zip(*(one.to_pylist() for one in batch), strict=True))


def refused(source: Any, words: str, error: type[BadSource] = BadSource) -> str:
    with pytest.raises(error, match=words) as caught:
        check_source(source, user="u", value="v", kind=ValueKind.ITEM)
    text = str(caught.value)
    assert not [secret for secret in (CANARY, KEY, SECRET) if secret in text]
    assert caught.value.__context__ is None
    return text


# --- completeness on a server of S3 -------------------------------------------------------------------------


def test_a_folder_is_read_whole_or_refused(s3: Any) -> None:
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


def test_patterns_are_those_of_this_machine(s3: Any, tmp_path: Path) -> None:
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
        refused(f"s3://patterns/{pattern}", "there is a folder")
        refused(str(tmp_path / pattern), "there is a folder")
    refused("s3://patterns/z*", "No file matches the pattern", SourceNotFound)


def put_key(bucket: str, key: str) -> None:
    """Put an object under a key that Arrow would not write."""
    boto3 = pytest.importorskip("boto3")
    buffer = io.BytesIO()
    pq.write_table(ROWS, buffer)
    boto3.client("s3").put_object(Bucket=bucket, Key=key, Body=buffer.getvalue())


KEYS = ["t//a.parquet", "t/./a.parquet", "t/../a.parquet", "t/a.parquet/b.parquet"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("query", [None, "select u, v from source"])
def test_keys_that_paths_cannot_tell_apart_are_refused(s3: Any, key: str, query: str | None) -> None:
    bucket = f"odd{KEYS.index(key)}"
    put(s3, f"{bucket}/t/a.parquet")
    put(s3, f"{bucket}/t/b.parquet")
    put_key(bucket, key)
    for name in ("t", "t/", "t/*.parquet", "**/*.parquet"):
        with pytest.raises(BadSource, match=r"has an empty part, '\.' or '\.\.' in it, or is the name of .* a folder"):
            check_source(f"s3://{bucket}/{name}", user="u", value="v", kind=ValueKind.ITEM, query=query)
    is_folder_too = key.endswith("b.parquet")
    refused(f"s3://{bucket}/t/a.parquet" if is_folder_too else f"s3://{bucket}/{key}", "A key in")
    assert pairs(f"s3://{bucket}/t/b.parquet") == [("a", "x")]


def test_what_is_not_there_is_said(s3: Any) -> None:
    put(s3, "there/0.parquet")
    write(s3, "there/1.xlsx")
    refused("s3://there/1.parquet", "There is no file or folder 's3://there/1.parquet'", SourceNotFound)
    refused("s3://nobucket/0.parquet", "There is no file or folder", SourceNotFound)
    refused("s3://there/1.xlsx", "does not name a format")
    write(s3, "there/2.parquet", b"PAR1 damaged")
    refused("s3://there/2.parquet", "damaged", DamagedSource)


@pytest.mark.parametrize("mark", ["_delta_log/0.json", ".hoodie/hoodie.properties", "metadata/v1.metadata.json"])
def test_files_of_a_table_are_refused(s3: Any, mark: str) -> None:
    bucket = f"tables{len(mark)}"
    put(s3, f"{bucket}/k={CANARY}/t/day=1/0.parquet")
    write(s3, f"{bucket}/k={CANARY}/t/{mark}")
    for name in ("t", "t/day=1", "t/day=1/0.parquet", "t/*/*.parquet", "**/*.parquet"):
        refused(f"s3://{bucket}/k={CANARY}/{name}", "a table of")
    refused(f"s3://{bucket}/**/*.parquet", "a table of")


def test_a_release_and_its_ledger_hold_no_key(s3: Any, tmp_path: Path) -> None:
    put(s3, "ledgered/0.parquet", pa.table({"u": [str(i) for i in range(300)], "v": ["x"] * 300}))
    ledger = Ledger.open(tmp_path / "ledger.db", create=True)
    ledger.create_dataset("d", epsilon=3.0, delta=1e-5)
    ledger.close()
    made = dpunion.release(
        "s3://ledgered/0.parquet",
        user="u",
        item="v",
        epsilon=1.0,
        delta=1e-6,
        charge=dpunion.Charge(tmp_path / "ledger.db", "d"),
        out=tmp_path / "out.json",
    )
    assert made.items == ("x",)
    for path in tmp_path.iterdir():
        assert not [secret for secret in (KEY, SECRET) if secret.encode() in path.read_bytes()]


# --- without a server ---------------------------------------------------------------------------------------


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No key and no place in the environment, and nothing real that could be asked."""
    import os

    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return monkeypatch


def test_a_server_that_is_not_there_is_told_within_the_limit(nothing_set: pytest.MonkeyPatch) -> None:
    nothing_set.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    before = time.monotonic()
    refused("s3://bucket/rows.parquet", "S3 cannot be reached for 's3://bucket'.*AWS_ENDPOINT_URL")
    assert time.monotonic() - before < 30


class Refusing(http.server.BaseHTTPRequestHandler):
    """A store that lets nobody in."""

    def do_GET(self) -> None:
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(handler: Any, context: ssl.SSLContext | None = None) -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def test_without_a_key_the_remedy_is_named(nothing_set: pytest.MonkeyPatch) -> None:
    with serving(Refusing) as port:
        nothing_set.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        before = time.monotonic()
        refused("s3://bucket/rows.parquet", "S3 lets nobody read 's3://bucket'.*AWS_ACCESS_KEY_ID")
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
def test_failures_are_explained_without_being_quoted(scheme: str, said: str, words: str) -> None:
    text = str(explain_store(OSError(said), scheme, f"{scheme}://bucket"))
    assert words in text
    assert CANARY not in text


@pytest.mark.parametrize(
    "address",
    [
        f"s3://{KEY}:{SECRET}@bucket/rows.parquet",
        f"s3://{KEY}@bucket/rows.parquet",
        f"s3://bucket/rows.parquet?access_key={KEY}&secret_key={SECRET}",
        f"gs://{KEY}@bucket/rows.parquet",
        f"abfs://container:{SECRET}@account.dfs.core.windows.net/x",
        "s3://",
        "abfs://account.dfs.core.windows.net/x",
        "abfs://container@elsewhere/x",
    ],
)
def test_an_address_with_a_key_is_refused_and_not_repeated(address: str, nothing_set: pytest.MonkeyPatch) -> None:
    refused(address, "address")


def test_the_name_of_a_container_is_not_taken_for_a_key(nothing_set: pytest.MonkeyPatch) -> None:
    nothing_set.setenv("AZURE_STORAGE_KEY", "a2V5")
    store = open_store("abfs://box@account.dfs.core.windows.net/a/k=secret/b")
    assert str(store.root) == "box/a/k=secret/b"
    assert store.shown(store.root) == "abfs://box@account.dfs.core.windows.net/a/k=…/b"


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("s3://bucket/k=1/rows.parquet", True),
        ("abfs://box@account.dfs.core.windows.net/rows.parquet", True),
        (f"abfs://box:{SECRET}@account.dfs.core.windows.net/rows.parquet", False),
        (f"s3://{KEY}:{SECRET}@bucket/rows.parquet", False),
        (f"https://host/rows.csv?token={SECRET}", False),
        ("https://host/rows.csv", True),
    ],
)
def test_the_record_beside_an_output_keeps_no_key(address: str, *, kept: bool) -> None:
    assert without_credentials(address) == (address if kept else None)


# --- https --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, with its key."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    plain = serialization.NoEncryption()
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


class Files(http.server.SimpleHTTPRequestHandler):
    """Files of a folder; some addresses misbehave."""

    def do_GET(self) -> None:
        if "short" in self.path:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"u,v\n")
        elif "endless" in self.path:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"u,v\na,x\n")
        elif "elsewhere" in self.path:
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1/rows.csv")
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def web(tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server with files in several formats."""
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_text("u,v\na,x\n")
    (tmp_path / "nothing.csv").write_text("")
    with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, ROWS.schema) as writer:
        writer.write_table(ROWS)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serving(functools.partial(Files, directory=str(tmp_path)), context) as port:
        yield f"https://127.0.0.1:{port}"


def test_a_file_at_an_https_address_is_read(web: str) -> None:
    for name in ("rows.parquet", "rows.csv", "rows.arrow", f"rows.csv?signature={CANARY}"):
        assert pairs(f"{web}/{name}") == [("a", "x")], name


def test_what_is_not_whole_or_not_safe_is_refused(web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(f"{web}/short.csv", "ended early|Could not fetch")
    refused(f"{web}/endless.csv", "does not say where .* ends", DamagedSource)
    refused(f"{web}/elsewhere.csv", "not https")
    refused(f"{web}/none.csv?token={CANARY}", "status 404")
    refused(f"{web}/nothing.csv", "nothing.csv")
    refused(f"http://user:{CANARY}@127.0.0.1/rows.csv", "Use https")
    monkeypatch.delenv("SSL_CERT_FILE")
    refused(f"{web}/rows.csv?token={CANARY}", "Could not fetch")


def test_names_tell_addresses_apart_and_hold_no_secret() -> None:
    def named(source: str) -> list[str]:
        return LocalEngine.for_run(Run(), None).name_sources(Request.of(source, user="u", item="v"))

    one, two = (named(f"https://me:{SECRET}@host/a.csv?token={KEY}{number}") for number in (1, 2))
    assert one != two
    assert one[0].startswith("https://host/a.csv?sha256=")
    assert not [secret for secret in (KEY, SECRET) if secret in str(one)]
    assert named("s3://bucket/a") == ["s3://bucket/a"]

"""A throw-away server that speaks S3 on loopback (moto), for the tests that need a real one."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from running import PATIENCE, wait_until

KEY, SECRET = "AKIACANARYKEY", "CanarySecretOfTheStore"


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    """Run a server; give its address."""
    if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask") is None:
        pytest.skip("moto is not installed: pip install 'dpunion[dev]'")
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(port, process), "the server of S3")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Say whether the server answers yet."""
    assert process.poll() is None, "the server did not start"
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def environment(address: str) -> dict[str, str]:
    """Return the variables by which AWS's tools, Arrow and deltalake find the server."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def file_system(address: str) -> Any:
    """Return a file system to put files there."""
    from pyarrow import fs

    return fs.S3FileSystem(
        access_key=KEY, secret_key=SECRET, region="us-east-1", endpoint_override=address, allow_bucket_creation=True
    )

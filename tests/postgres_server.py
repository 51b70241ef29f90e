"""A throw-away PostgreSQL server on loopback, for the tests that need a real one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from running import PATIENCE

ROLE, PASSWORD, DATABASE = "tester", "pa:ss@w/rd", "people"
CONFIGURATION = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
fsync = off
max_connections = 60
shared_buffers = 32MB
"""


def find_binaries() -> Path:
    """Return the folder of the server's programs, installing Debian's package if we may; else skip, saying why."""
    if newest_binaries() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with Path(tempfile.gettempdir(), "dpunion-install-postgres.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one worker of the test run installs, the others wait
            if newest_binaries() is None:
                install()
    newest = newest_binaries()
    if newest is None:
        pytest.skip("no PostgreSQL server is installed, and it cannot be installed here")
    return newest


def install() -> None:
    """Try to install Debian's package."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", "postgresql"]):
        with contextlib.suppress(subprocess.TimeoutExpired):
            command = ["apt-get", "-o", "DPkg::Lock::Timeout=120", *arguments]
            subprocess.run(command, timeout=PATIENCE, env=environment, capture_output=True, check=False)


def newest_binaries() -> Path | None:
    """Return the folder of the newest installed server, if there is any."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((path.parent for path in found), key=lambda path: float(path.parent.name), default=None)


def unprivileged() -> pwd.struct_passwd | None:
    """Return whom to run the server as when we are root, which it refuses; else None."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    pytest.skip("PostgreSQL does not run as root, and there is no other user to run it as")


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    """Start a server in a new folder and yield its URL, with password; stop it and remove the folder at the end."""
    binaries, user = find_binaries(), unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="dpunion-postgres-"))
    try:
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
        data = folder / "data"
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)

        def run(program: str, *arguments: str) -> None:
            done = subprocess.run(
                [binaries / program, *arguments],
                **({} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}),
                cwd=folder,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=PATIENCE,
            )
            if done.returncode:
                pytest.skip(f"PostgreSQL's {program} does not work here: {done.stdout[-300:]}")

        run("initdb", "-D", str(data), "-U", ROLE, f"--pwfile={secret}", "-A", "scram-sha-256", "-E", "UTF8", "-N")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with (data / "postgresql.conf").open("a") as file:
            file.write(CONFIGURATION.format(port=port))
        run("pg_ctl", "-D", str(data), "-l", str(folder / "log"), "-w", "-t", str(int(PATIENCE)), "start")
        try:
            url = f"postgresql://{ROLE}:pa%3Ass%40w%2Frd@127.0.0.1:{port}"
            create_database(f"{url}/postgres")
            yield f"{url}/{DATABASE}"
        finally:
            run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def create_database(url: str) -> None:
    """Make the tests' database."""
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE}")

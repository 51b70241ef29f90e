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
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from running import PATIENCE

ROLE, PASSWORD, DATABASE = "tester", "pa:ss@w/rd", "people"
CONFIGURATION = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
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


class Server:
    """A throw-away server in a folder of its own, run by somebody other than root."""

    def __init__(self, role: str, password: str, settings: str = "") -> None:
        self.binaries, self.user = find_binaries(), unprivileged()
        self.folder = Path(tempfile.mkdtemp(prefix="dpunion-postgres-"))
        self.role, self.password, self.settings = role, password, settings
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the server's programs on its data."""
        user = self.user
        done = subprocess.run(
            [self.binaries / program, "-D", self.folder / "data", *arguments],
            **({} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}),
            cwd=self.folder,
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, f"PostgreSQL's {program} does not work here: {done.stdout[-300:]}"

    def create(self) -> None:
        """Make the data of the server."""
        if self.user is not None:
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        secret = self.folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)
        self.run("initdb", "-U", self.role, f"--pwfile={secret}", "-A", "scram-sha-256", "-E", "UTF8", "-N")
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.write(CONFIGURATION.format(port=self.port) + self.settings)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.run("pg_ctl", "-l", str(self.folder / "log"), "-w", "-t", str(int(PATIENCE)), "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop it, as a crash does unless something else is said."""
        self.run("pg_ctl", "-w", "-m", mode, "stop")

    def address(self, database: str, *, password: str = "") -> str:
        """Return the URL of a database, with a password where one is given."""
        secret = f":{urllib.parse.quote(password, safe='')}" if password else ""
        return f"postgresql://{self.role}{secret}@127.0.0.1:{self.port}/{database}"


@contextlib.contextmanager
def started(role: str, password: str, settings: str = "") -> Iterator[Server]:
    """Start a server in a new folder, or skip where none starts; stop it and remove the folder at the end."""
    server = Server(role, password, settings)
    try:
        try:
            server.create()
            server.start()
        except AssertionError as missing:
            pytest.skip(str(missing))
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(server.folder, ignore_errors=True)


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    """Start a server and yield the URL, with password, of its database for tests."""
    with started(ROLE, PASSWORD, "fsync = off\n") as server:
        create_database(server.address("postgres", password=PASSWORD))
        yield server.address(DATABASE, password=PASSWORD)


def create_database(url: str) -> None:
    """Make the tests' database."""
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE}")

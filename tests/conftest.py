"""What all tests share."""

import hashlib
import importlib.util
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import postgres_server
import s3_server
from dpunion.engines.spark import sessions
from dpunion.errors import BadParameter
from dpunion.randomness import KEY_BYTES, RunKey
from running import usual_signals
from spark_in_process import in_many_tasks

settings.register_profile(
    "house", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("house")


# These test the real thing: keys of the operating system.
WITH_REAL_KEYS = {"test_randomness.py", "test_house.py"}
FRESH = RunKey.fresh


# What `make test` leaves to `make test-all`: these folders, whatever needs one of these fixtures, and each file, test
# or parameter that is marked so itself.
TESTS = Path(__file__).parent
FULL_FOLDERS = {"browser", "docs", "journeys", "statistical"}
SERVERS = {"spark", "postgres_url", "s3_address"}
running: list[pytest.Item] = []


def pytest_addoption(parser):
    """Let `pytest --threads 4` run all that takes no number of threads with so many: see `make test-threads`."""
    parser.addoption("--threads", type=int, help="as if this many cores were usable; 1: processes have one core too")


def pytest_configure(config):
    """Make as many cores usable, or seem so, as were asked for."""
    threads = config.getoption("--threads")
    if threads == 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    elif threads is not None:
        os.sched_getaffinity = lambda _pid: set(range(threads))


def pytest_collection_modifyitems(items):
    """Mark what is too much for a first run: `full`."""
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in FULL_FOLDERS or SERVERS & set(item.fixturenames):
            item.add_marker(pytest.mark.full)


def check_full():
    """Refuse a server to a test that `make test` would run."""
    assert running[-1].get_closest_marker("full"), "a test that needs a server is marked full"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Give every test the same "fresh" keys in each run: with real ones, an item at a policy's cutoff is missed once in
    740 releases, and a test that expects it fails as often. Processes that a test starts have real keys.

    Signals interrupt every test and what it starts, also where `make test` runs in the background or under nohup.
    """
    numbers = itertools.count()

    def repeatable():
        secret = hashlib.blake2b(f"{item.nodeid} {next(numbers)}".encode(), digest_size=KEY_BYTES).digest()
        return RunKey(secret, is_test=False)

    RunKey.fresh = FRESH if item.path.name in WITH_REAL_KEYS else staticmethod(repeatable)
    running.append(item)
    try:
        with usual_signals():
            return (yield)
    finally:
        running.pop()
        RunKey.fresh = FRESH


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the larger data sets, or a skip that says why."""
    folder = os.environ.get("DPUNION_DATA")
    if not folder:
        pytest.skip("DPUNION_DATA is not set: the larger data sets are not here")
    return Path(folder)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark session on two cores that all tests of a process share; or a skip that says why."""
    check_full()
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("PySpark is not installed: pip install 'dpunion[spark]'")
    try:
        sessions.find_java()
    except BadParameter as missing:
        pytest.skip(str(missing))
    settings = {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false", "spark.driver.memory": "1g"}
    session = sessions.open_session("local[2]", {**settings, "spark.ui.showConsoleProgress": "false"})
    yield session
    session.stop()


@pytest.fixture(params=["one task", "many tasks"])
def tasks_of_spark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the rounds in one task, as for small sets, and then in many."""
    if request.param == "many tasks":
        in_many_tasks(monkeypatch)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL, with password, of a database on a PostgreSQL server of this session; or a skip that says why."""
    check_full()
    with postgres_server.running_server() as url:
        yield url


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    """The address of a server of this session that speaks S3; or a skip that says why."""
    check_full()
    with s3_server.running_server() as address:
        yield address


@pytest.fixture
def s3(s3_address: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A file system on that server, with the environment set so that s3:// finds it."""
    for name, value in s3_server.environment(s3_address).items():
        monkeypatch.setenv(name, value)
    return s3_server.file_system(s3_address)


@pytest.fixture
def trials_run(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The trials of the lab that are really run, as (setting, number)."""
    from dpunion_lab import trials

    runs, real = [], trials.run_trial

    def run(data: Any, setting: Any, plan: Any, contributions: Any, number: int) -> Any:
        runs.append((setting, number))
        return real(data, setting, plan, contributions, number)

    monkeypatch.setattr(trials, "run_trial", run)
    return runs

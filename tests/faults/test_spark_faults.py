"""Spark under stress: a worker that dies, tasks that fail, logs that tell too much.

A release either comes out as it would have without the fault, or not at all; and nothing that was not released is
written where operators look.
"""

import base64
import json
import os
import re
import subprocess
import sys

import pytest
import spark_cluster
from spark_cluster import BUDGET, FUNNEL, GRAMS, KEY, KNOWN, OWNER, RARE, SHARDS, WEIGHTED

import dpunion
from dpunion.engines.spark import sessions
from dpunion.errors import BadParameter
from dpunion.ledger import Ledger
from dpunion.randomness import Purpose, RunKey
from running import PATIENCE, wait_until
from spark_in_process import by_rounds, database_of

pytestmark = pytest.mark.full
CANARY = re.compile(rb"RareCanary|UserCanary", re.IGNORECASE)


@pytest.fixture(scope="module", autouse=True)
def _java():
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'dpunion[spark]'")
    try:
        sessions.find_java()
    except BadParameter as missing:
        pytest.skip(str(missing))


def spellings_of_the_key():
    """Return every form in which a key could be written: the key itself, and the subkeys in use."""
    key = RunKey.for_tests(KEY)
    secrets = [key._secret, *(key.subkey(purpose) for purpose in Purpose)]
    found = []
    for secret in secrets:
        plain, escaped = base64.b64encode(secret), repr(secret)[2:-1].encode()
        # subtle: in a longer base64 text the key can begin at any of three places; its inner part stays the same.
        inner = [base64.b64encode(b"\0" * shift + secret)[4:40] for shift in (1, 2)]
        found += [
            secret,
            secret.hex().encode(),
            secret.hex().upper().encode(),
            plain.rstrip(b"=")[:-1],
            escaped,
            *inner,
        ]
    return found


def assert_clean(content, *, canaries=True):
    for spelling in spellings_of_the_key():
        assert spelling not in content, "the key got out"
    if canaries:
        assert not CANARY.search(content), "a canary got out"


def test_the_search_would_find_the_key_and_canaries():
    secret = RunKey.for_tests(KEY)._secret
    for shift in range(3):
        with pytest.raises(AssertionError, match="key"):
            assert_clean(b"xx" + base64.b64encode(b"y" * shift + secret + b"zz") + b"xx")
    for hidden in (b"a" + secret, secret.hex().encode(), repr({"key": secret}).encode()):
        with pytest.raises(AssertionError, match="key"):
            assert_clean(hidden)
    with pytest.raises(AssertionError, match="canary"):
        assert_clean(f"user {OWNER}12".encode())


# --- a worker dies ------------------------------------------------------------------------------------------


def run_driver(cluster, folder, *arguments):
    """Run a driver to its end; return what it found."""
    log = folder / "driver.log"
    driver = spark_cluster.driver(*arguments, log=log)
    if cluster is not None:
        cluster.processes.append(driver)
    try:
        assert driver.wait(3 * PATIENCE) == 0, log.read_text()[-3000:]
    finally:
        spark_cluster.kill_group(driver)
    return json.loads((folder / "found.json").read_text())


def assert_logs_are_clean(folder):
    """Search the logs of drivers, of the master, of workers and of executors, which say what they do."""
    executors = list(folder.glob("work-*/*/*/stderr"))
    assert any(b" INFO " in path.read_bytes() for path in executors)
    for told in [*executors, *folder.glob("work-*/*/*/stdout"), *folder.glob("*.log")]:
        assert_clean(told.read_bytes())


@pytest.mark.parametrize("phase", spark_cluster.PHASES)
def test_a_killed_worker_changes_nothing(tmp_path, phase):
    """Two workers; the one that works is killed with its executor and what that held, in each phase of a release.

    Before the result is stored, no worker works: then either is killed.
    """
    spark_cluster.write_rows(tmp_path)
    with spark_cluster.running_cluster(tmp_path) as cluster:
        log = tmp_path / "driver.log"
        driver = spark_cluster.driver("killed", cluster.master, tmp_path, phase, log=log)
        cluster.processes.append(driver)

        def begun():
            assert driver.poll() is None, log.read_text()[-3000:]
            return any(tmp_path.glob("begun-*"))

        wait_until(begun, f"the phase {phase}")
        busy = {int(group) for file in tmp_path.glob("begun-*") for group in file.read_text().split()}
        working = [worker for worker in cluster.workers if worker.pid in busy]
        assert bool(working) == (phase != "store")
        spark_cluster.kill_group([*working, *cluster.workers][0])
        (tmp_path / "go").touch()
        assert driver.wait(3 * PATIENCE) == 0, log.read_text()[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["executors"] == [2, 1]
    assert found["rows"] == (
        counted_here() if phase in {"look", "count"} else [[one] for one in in_shards_without_faults()]
    )
    written = spark_cluster.read_events(tmp_path)
    assert b"SparkListenerTaskEnd" in written
    assert_clean(written)
    assert_logs_are_clean(tmp_path)
    # Shuffle and cache files contain rows, as the page on Spark says, but never the key.
    for left in tmp_path.glob("local-*/**/*"):
        assert_clean(left.read_bytes() if left.is_file() else b"", canaries=False)


def counted_here():
    made = dpunion.release(spark_cluster.rows(), unsafe_test_key=KEY, counts=True, **BUDGET)
    assert len(made) > 20
    return list(map(list, made.rows()))


# --- a cluster as people have it --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    spark_cluster.write_rows(folder)
    return folder


@pytest.fixture(scope="module")
def cluster(folder):
    with spark_cluster.running_cluster(folder) as cluster:
        yield cluster
    assert_logs_are_clean(folder)


def open_ledger(path):
    book = Ledger.open(path, create=True)
    book.create_dataset("people", 100.0, 0.5)
    return book


def states(book):
    return [entry.state.value for entry in book.overview().entries]


def test_a_session_of_the_users_own_gives_what_one_machine_gives(cluster, folder, monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    found = run_driver(cluster, folder, "own", cluster.master, folder)
    assert found["funnel"] == [[item] for item in in_shards_without_faults()]
    assert found["counted"] == counted_here()
    grams = dpunion.release(spark_cluster.bodies(), unsafe_test_key=KEY, **GRAMS)
    assert found["grams"] == list(map(list, grams.rows()))


def command(cluster, *given):
    """Run a command of dpunion on the cluster; return its lines."""
    settings = [f"--conf={name}={value}" for name, value in spark_cluster.LOOPBACK.items()]
    common = ["--user=user", "--epsilon=3", "--delta=1e-4", "--engine=spark", "--shards=1"]
    program = [sys.executable, "-m", "dpunion", *given, f"--master={cluster.master}", *common, *settings]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=3 * PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]
    assert_clean(done.stderr.encode())
    return done.stdout.splitlines()


def test_the_command_line_gives_what_one_machine_gives(cluster, folder):
    data, written, key = str(folder / "data"), str(folder / "bodies.parquet"), f"--unsafe-test-key={KEY}"
    counted = command(cluster, "release", data, "--item=item", "--counts", key)
    assert [line.split("\t")[0] for line in counted] == [row[0] for row in counted_here()]
    options = {"user": "user", "text": "body", "epsilon": 3.0, "delta": 1e-4, "unsafe_test_key": KEY}
    grams = dpunion.release_ngrams(spark_cluster.bodies(), longest=2, **options)
    told = command(cluster, "ngrams", written, "--text=body", "--longest=2", key)
    assert [line.split("\t")[0] for line in told] == [row[0] for row in grams.rows()]
    book = open_ledger(folder / "budget.db")
    ledger = [f"--ledger={folder}/budget.db", "--dataset=people"]
    assert len(command(cluster, "release", data, "--item=item", *ledger)) > 20
    assert states(book) == ["settled"]
    book.close()


def test_both_workers_read_one_large_json_lines_file(cluster, tmp_path):
    with (tmp_path / "lines.jsonl").open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in spark_cluster.rows().to_pylist())
    found = run_driver(cluster, tmp_path, "lines", cluster.master, tmp_path)
    assert found == list(dpunion.release(spark_cluster.rows(), unsafe_test_key=KEY, **WEIGHTED, **BUDGET).items)
    scans = spark_cluster.find_scans(tmp_path)
    assert scans
    for scan in scans:
        assert len(scan) == 2, "each of the two executors has tasks"
        assert sum(read for _, read in scan.values()) >= (tmp_path / "lines.jsonl").stat().st_size
    assert_clean(spark_cluster.read_events(tmp_path))


def test_a_full_disk_ends_the_release_or_changes_nothing(tmp_path, monkeypatch):
    """Of two workers, one cannot write more than a few bytes to a file."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    spark_cluster.write_rows(tmp_path)
    with spark_cluster.running_cluster(tmp_path, workers=1) as cluster:
        cluster.add_worker(largest_file=20_000)
        log = tmp_path / "driver.log"
        driver = spark_cluster.driver("own", cluster.master, tmp_path, log=log)
        cluster.processes.append(driver)
        ended = driver.wait(3 * PATIENCE)
    if ended == 0:
        found = json.loads((tmp_path / "found.json").read_text())
        assert found["funnel"] == [[item] for item in in_shards_without_faults()]
    else:
        # Threads of the JVM may print a last line of their own.
        assert any(line.startswith("dpunion.errors.") for line in log.read_text().splitlines())
    assert_logs_are_clean(tmp_path)


def test_pythons_that_cannot_run_dpunion_are_refused_and_nothing_is_charged(tmp_path):
    """The last one lacks dpunion alone: dpunion is sent there."""
    spark_cluster.write_rows(tmp_path)
    book = open_ledger(tmp_path / "budget.db")
    found = run_driver(None, tmp_path, "strangers", tmp_path)
    wanted = dpunion.release(spark_cluster.rows(), unsafe_test_key=KEY, **WEIGHTED, **BUDGET).items
    assert "is not installed in the workers' Python" in found["nothing"]
    assert "A worker of Spark has dpunion 0.0.1" in found["old dpunion"]
    assert "A worker of Spark has numpy 0.0.1" in found["old numpy"]
    assert all("PYSPARK_PYTHON=" in found[name] for name in ("nothing", "old dpunion", "old numpy"))
    assert found["no dpunion"] == list(wanted)
    assert sorted(states(book)) == ["cancelled"] * 3 + ["settled"]
    book.close()


def test_a_session_whose_java_ended_is_refused(tmp_path):
    """In the middle of a release the charge stays, and later nothing is charged."""
    spark_cluster.write_rows(tmp_path)
    book = open_ledger(tmp_path / "budget.db")
    found = run_driver(None, tmp_path, "ended", tmp_path)
    assert sorted(found) == ["after", "by name", "during"]
    assert all(
        "Spark does not answer: its Java process has ended. Start a new session" in one for one in found.values()
    )
    assert states(book)[0] == "unsettled"
    assert set(states(book)[1:]) <= {"cancelled"}
    book.close()


def in_shards_without_faults():
    """What the same tasks release here, one after the other, without Spark."""
    plan = dpunion.plan(FUNNEL["algorithm"], epsilon=BUDGET["epsilon"], delta=BUDGET["delta"])
    return sorted(by_rounds(plan, database_of(spark_cluster.rows()), RunKey.for_tests(KEY), SHARDS))


# --- tasks fail, and everything is watched ------------------------------------------------------------------


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """The folder of one driver that released under fault, with everything Spark wrote down."""
    folder = tmp_path_factory.mktemp("watched")
    spark_cluster.write_rows(folder)
    log = folder / "driver.log"
    driver = spark_cluster.driver("watched", folder, log=log)
    try:
        assert driver.wait(3 * PATIENCE) == 0, log.read_text()[-3000:]
    finally:
        spark_cluster.kill_group(driver)
    return folder


@pytest.fixture(scope="module")
def found(watched):
    return json.loads((watched / "found.json").read_text())


def test_tasks_that_fail_in_their_first_attempt_change_nothing(watched, found):
    wanted = dpunion.release(spark_cluster.rows(), unsafe_test_key=KEY, known=KNOWN, **WEIGHTED, **BUDGET).items
    assert tuple(found["weighted"]) == wanted
    assert found["funnel"] == found["written"] == in_shards_without_faults()
    counts = dpunion.release(spark_cluster.rows(), unsafe_test_key=KEY, known=KNOWN, counts=True, **WEIGHTED, **BUDGET)
    assert list(map(tuple, found["counted"])) == list(counts.rows())
    assert len(counts) > 20
    grams = dpunion.release(spark_cluster.bodies(), unsafe_test_key=KEY, **GRAMS)
    assert found["grams"] == list(map(list, grams.rows()))
    assert found["grams of lengths"] == [one.released for one in grams.results]
    assert min(found["grams of lengths"]) > 20
    assert 20 < len(found["funnel"]) < 5_000
    assert not any(RARE in item for item in found["funnel"])
    # Really failed, many times: mapping, summing and deciding tasks of all rounds.
    failures = [line for line in spark_cluster.read_events(watched).splitlines() if b'"ExceptionFailure"' in line]
    assert len(failures) > 10
    assert all(b"ConnectionError" in line or b"dpunion-error" in line or b"ValueError" in line for line in failures)


def test_the_event_log_tells_neither_the_key_nor_what_was_not_released(watched):
    log = spark_cluster.read_events(watched)
    assert b"SparkListenerSQLExecutionStart" in log
    assert b"MapInArrow" in log
    assert_clean(log)


def test_plans_tell_nothing(watched):
    plans = (watched / "plans.txt").read_bytes()
    assert plans.count(b"== Physical Plan ==") >= 5
    assert_clean(plans)


def test_the_driver_says_nothing_even_when_it_says_everything(watched):
    log = (watched / "driver.log").read_bytes()
    assert b" INFO " in log
    assert b"ERROR" in log
    assert_clean(log)


def test_errors_come_back_clean(found):
    assert [kind for kind, _ in found["errors"]] == ["NullUsers", "BadSource"]
    for _, told in found["errors"]:
        assert_clean(told.encode())
        assert "During handling" not in told
        assert "direct cause" not in told
    assert "failed with ValueError" in found["errors"][1][1]


def test_the_key_is_in_no_file_while_spark_runs(found):
    """Looked for before the session ended, with shuffle and cache files in place, after a closure above a megabyte."""
    files, with_key = found["files"]
    assert files > 0
    assert with_key == 0


def test_nothing_is_left_on_disk(watched):
    assert [path for path in (watched / "local").rglob("*") if path.is_file()] == []
    for path in [*(watched / "out").iterdir(), *(watched / "grams").iterdir()]:
        assert_clean(path.read_bytes())
    assert sum(os.path.basename(path).startswith("part-") for path in (watched / "out").iterdir()) == 1

"""Spark under stress: a worker that dies, tasks that fail, logs that tell too much.

A release either comes out as it would have without the fault, or not at all; and nothing that was not released is
written where operators look.
"""

import base64
import json
import os
import re

import pytest
import spark_cluster
from spark_cluster import BUDGET, FUNNEL, GRAMS, KEY, KNOWN, OWNER, RARE, SHARDS, WEIGHTED

import dpunion
from dpunion.engines.spark import sessions
from dpunion.errors import BadParameter
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


def test_a_killed_worker_changes_nothing(tmp_path):
    """Two workers; one is killed with its executor and what that held, in the second of Funnel's rounds."""
    spark_cluster.write_rows(tmp_path)
    with spark_cluster.running_cluster(tmp_path) as cluster:
        log = tmp_path / "driver.log"
        driver = spark_cluster.driver("killed", cluster.master, tmp_path, log=log)
        cluster.processes.append(driver)

        def begun():
            assert driver.poll() is None, log.read_text()[-3000:]
            return any(tmp_path.glob("begun-*"))

        wait_until(begun, "the second round")
        spark_cluster.kill_group(cluster.workers[0])
        (tmp_path / "go").touch()
        assert driver.wait(3 * PATIENCE) == 0, log.read_text()[-3000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["executors"] == [2, 1]
    assert found["items"] == in_shards_without_faults()
    for told in [log, *tmp_path.glob("*.log"), *tmp_path.glob("work-*/*/*/std*")]:
        assert_clean(told.read_bytes())


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


def events(watched):
    return b"".join(path.read_bytes() for path in (watched / "events").rglob("*") if path.is_file())


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
    failures = [line for line in events(watched).splitlines() if b'"ExceptionFailure"' in line]
    assert len(failures) > 10
    assert all(b"ConnectionError" in line or b"dpunion-error" in line or b"ValueError" in line for line in failures)


def test_the_event_log_tells_neither_the_key_nor_what_was_not_released(watched):
    log = events(watched)
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

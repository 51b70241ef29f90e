"""Writing is whole or not at all: killed, interrupted, out of space, forbidden; and refused before data is read."""

import contextlib
import errno
import hashlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpunion
from dpunion import files
from dpunion.engines.local import engine
from dpunion.plans.counts import Counted, Estimate, Totals
from dpunion.releases.formats import WRITERS
from dpunion.releases.release import Release, with_items
from dpunion.threads import INTERRUPTS
from running import PATIENCE, run_cli

ITEMS = tuple(f"item{i:05}" for i in range(20_000))
PLAN = dpunion.plan("weighted-laplace", epsilon=1.0, delta=1e-6)
COUNTED_PLAN = dpunion.plan("weighted-gaussian", epsilon=1.0, delta=1e-6, counts=True)
OLD = b"the old file, whole"
ROOT = os.geteuid() == 0


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "data.parquet"
    people, items = 60, [f"item{i}" for i in range(20)]
    users = [f"user{i}" for i in range(people) for _ in items]
    pq.write_table(pa.table({"user": users, "item": items * people}), path)
    return path


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def python(code, *arguments, **options):
    """Start a Python process that prints "ready" and then waits where the code says so."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def wait_for(process, word=b"ready"):
    line = process.stdout.readline()
    assert line.strip() == word, line + process.communicate(timeout=PATIENCE)[1]


def finish(process):
    """Return the exit code and what was printed to stderr; end the process if it does not end itself."""
    try:
        _, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, err.decode()


# --- kill -9 ------------------------------------------------------------------------------------------------
PAUSING_WRITE = """
    import os, sys, time
    import dpunion
    from dpunion import files
    from dpunion.releases import formats, release

    target, where, nameless = sys.argv[1:]
    if nameless == "False":
        files._nameless = lambda folder: None
    def pause():
        print("ready", flush=True)
        time.sleep(600)
    real = formats.WRITERS[os.path.splitext(target)[1]]
    class Half:
        def __init__(self, file):
            self.file = file
        def write(self, data):
            self.file.write(bytes(data)[: len(data) // 2])
            self.file.flush()
            pause()
    def writer(release, file):
        if where == "before":
            pause()
        real(release, Half(file) if where == "middle" else file)
        if where == "after":
            file.flush()
            pause()
    formats.WRITERS[os.path.splitext(target)[1]] = writer
    if where == "replaced":
        files._sync = lambda folder: pause()
    items = tuple(f"item{i:05}" for i in range(20000))
    plan = dpunion.plan("weighted-laplace", epsilon=1.0, delta=1e-6)
    release.Release(items, plan, guaranteed=True).write(target, overwrite=True)
"""


@pytest.mark.parametrize(
    ("where", "old", "nameless", "number"),
    [
        ("before", OLD, True, signal.SIGKILL), ("middle", OLD, True, signal.SIGHUP),
        ("middle", OLD, False, signal.SIGKILL), ("middle", None, True, signal.SIGALRM),
        ("after", OLD, True, signal.SIGUSR1), ("after", None, False, signal.SIGKILL),
        ("replaced", None, True, signal.SIGKILL),
    ],
)  # fmt: skip
def test_a_kill_while_writing_leaves_the_old_file_or_the_whole_new_one(out, where, old, nameless, number):
    """Only on a file system without nameless files something is left, for its owner alone."""
    target = out / "vocabulary.txt"
    if old is not None:
        target.write_bytes(old)
    process = python(PAUSING_WRITE, target, where, nameless)
    wait_for(process)
    process.send_signal(number)
    assert finish(process)[0] == -number
    whole = "".join(item + "\n" for item in ITEMS).encode()
    found = target.read_bytes() if target.exists() else None
    assert found == (whole if where == "replaced" else old)
    left = [path for path in out.iterdir() if path != target]
    assert [(path.suffix, path.stat().st_mode & 0o077) for path in left] == ([] if nameless else [(".tmp", 0)])


# --- Ctrl-C -------------------------------------------------------------------------------------------------
PAUSING_RELEASE = """
    import sys, time
    from dpunion import cli
    from dpunion.releases import formats
    from dpunion.engines.local import engine
    from dpunion.reading import cleaning

    where, *arguments = sys.argv[1:]
    def pause():
        print("ready", flush=True)
        for _ in range(6000):
            time.sleep(0.1)
    if where == "reading":
        real_clean = cleaning.Cleaner.clean
        def clean(self, *given):
            pause()
            return real_clean(self, *given)
        cleaning.Cleaner.clean = clean
    if where == "selecting":
        engine.run_rounds = lambda *given: pause()
    if where == "counting":
        engine.count_listed = lambda *given: pause()
    if where == "writing":
        real = dict(formats.WRITERS)
        class Slow:
            def __init__(self, file):
                self.file, self.paused = file, False
            def write(self, data):
                self.file.write(data)
                self.file.flush()
                if not self.paused:
                    self.paused = True
                    pause()
            def __getattr__(self, name):
                return getattr(self.file, name)
        for suffix in real:
            formats.WRITERS[suffix] = lambda release, file, suffix=suffix: real[suffix](release, Slow(file))
    sys.argv[1:] = arguments
    cli.main()
"""


OPTIONS = ("--user", "user", "--item", "item", "-e", "2", "-d", "1e-4", "-a", "weighted-gaussian")


def interrupted(data, target, where, number, extra=()):
    process = python(PAUSING_RELEASE, where, "release", data, *OPTIONS, "--out", target, *extra)
    wait_for(process)
    process.send_signal(number)
    return finish(process)


COUNTS = ("--counts",)


@pytest.mark.parametrize(
    ("where", "suffix", "number", "extra"),
    [
        ("reading", ".parquet", signal.SIGINT, ()), ("selecting", ".parquet", signal.SIGTERM, ()),
        ("counting", ".parquet", signal.SIGINT, COUNTS), ("counting", ".csv", signal.SIGTERM, COUNTS),
        ("writing", ".csv", signal.SIGTERM, ()), ("writing", ".csv", signal.SIGHUP, COUNTS),
    ],
)  # fmt: skip
def test_an_interrupt_at_any_stage_leaves_no_file(data, out, where, suffix, number, extra):
    code, err = interrupted(data, out / f"vocabulary{suffix}", where, number, extra)
    assert code == 130
    assert "Interrupted" in err
    assert "Traceback" not in err
    assert list(out.iterdir()) == []


def test_an_interrupt_while_overwriting_leaves_the_old_file(data, out):
    target = out / "vocabulary.parquet"
    target.write_bytes(OLD)
    code, _ = interrupted(data, target, "writing", signal.SIGINT, ["--force"])
    assert code == 130
    assert target.read_bytes() == OLD
    assert list(out.iterdir()) == [target]


@pytest.mark.parametrize("nameless", [True, False])
@pytest.mark.parametrize("number", INTERRUPTS)
@pytest.mark.parametrize("suffix", WRITERS)
def test_interrupted_while_writing_any_format(data, out, monkeypatch, suffix, number, nameless):
    """Here the signal comes from inside the write itself, so that no subprocess is needed."""
    if not nameless:
        monkeypatch.setattr(files, "_nameless", lambda _folder: None)
    real, sent = WRITERS[suffix], []

    class Signalling:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            self.file.write(data)
            if not sent:
                sent.append(len(list(out.iterdir())))
                os.kill(os.getpid(), number)

        def __getattr__(self, name):
            return getattr(self.file, name)

    monkeypatch.setitem(WRITERS, suffix, lambda release, file: real(release, Signalling(file)))
    result = run_cli("release", data, *OPTIONS, "--out", out / f"a{suffix}")
    assert sent == [0 if nameless else 1], "the interrupt came while the file was being written"
    assert result.exit_code == 130
    assert "Interrupted" in result.output
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("number", INTERRUPTS)
def test_a_signal_that_was_ignored_from_the_start_stays_ignored(data, out, number):
    """So SIGHUP is under nohup, and SIGINT in a background job of a script."""
    code = """
        import os, signal, sys
        number = int(sys.argv.pop(1))
        os.kill(os.getpid(), number)
        from dpunion import cli
        from dpunion.engines.local import engine
        real = engine.encode
        def encode(*given, **options):
            os.kill(os.getpid(), number)
            return real(*given, **options)
        engine.encode = encode
        cli.main()
    """
    before = signal.signal(number, signal.SIG_IGN)
    process = python(code, int(number), "release", data, *OPTIONS, "--out", out / "a.txt")
    signal.signal(number, before)
    assert finish(process)[0] == 0
    assert (out / "a.txt").exists()


def test_an_interrupt_that_a_library_swallowed_is_noticed(data, out, monkeypatch):
    """pyarrow loses a KeyboardInterrupt that comes while it looks for pandas; so might others."""
    real = engine.encode

    def swallowing(*given, **options):
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        return real(*given, **options)

    monkeypatch.setattr(engine, "encode", swallowing)
    result = run_cli("release", data, *OPTIONS, "--out", out / "a.txt")
    assert result.exit_code == 130
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_interrupted_in_the_middle_of_a_real_file(tmp_path, out, suffix):
    """No pause is built in: the interrupt comes while a large file is being read by the real readers."""
    source = tmp_path / f"large{suffix}"
    people, items = 30_000, [f"item{i}" for i in range(20)]
    columns = {"user": [f"user{i}" for i in range(people) for _ in items], "item": items * people}
    match suffix:
        case ".parquet":
            pq.write_table(pa.table(columns), source)
        case ".csv":
            rows = zip(columns["user"], columns["item"], strict=True)
            source.write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in rows))
    code = """
        import os, signal, sys, threading, time
        from dpunion import cli
        from dpunion.engines.local import engine
        real = engine.encode
        def encode(batches, *given, **options):
            def counted():
                for number, batch in enumerate(batches):
                    if number == 0:
                        threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGINT]).start()
                    yield batch
                time.sleep(20)
            return real(counted(), *given, **options)
        engine.encode = encode
        cli.main()
    """
    code, err = finish(python(code, "release", source, *OPTIONS, "--out", out / "a.txt"))
    assert code == 130, err
    assert "Interrupted" in err
    assert list(out.iterdir()) == []


# --- no space -----------------------------------------------------------------------------------------------
@contextlib.contextmanager
def small_disk(folder, size):
    """Mount a tiny file system at `folder`, or skip."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def small_files(limit):
    """Let no file grow beyond `limit`: writing fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def with_counts(items):
    """Return a release with numbers beside the items that do not compress to nothing."""
    numbers = tuple(int.from_bytes(hashlib.sha256(item.encode()).digest()[:5]) + 1 for item in items)
    totals = Totals(Estimate(9, 1, 20), Estimate(0, 0, 5), 0.0, 1.0)
    return with_items(Release((), COUNTED_PLAN, guaranteed=True), items, Counted(numbers, numbers, numbers, totals))


def without_counts(items):
    return Release(tuple(sorted(items)), PLAN, guaranteed=True)


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("old", [None, OLD], ids=["new", "overwriting"])
@pytest.mark.parametrize("made", [without_counts, with_counts])
def test_without_space_nothing_is_written(out, suffix, old, made):
    target = out / f"vocabulary{suffix}"
    if old is not None:
        target.write_bytes(old)
    release = made(ITEMS)
    with small_files(8192), pytest.raises(dpunion.CannotWrite, match="File too large") as caught:
        release.write(target, overwrite=True)
    assert "nothing was written" in caught.value.remedy
    assert caught.value.exit_code == 4
    assert list(out.iterdir()) == ([] if old is None else [target])
    assert old is None or target.read_bytes() == old


@pytest.mark.skipif(not ROOT, reason="needs root to mount")
@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("made", [without_counts, with_counts])
def test_on_a_full_disk_nothing_is_left(out, suffix, made):
    with small_disk(out, "16k"):
        # Of these names no compression leaves less than the disk holds.
        names = {hashlib.sha256(item.encode()).hexdigest() for item in ITEMS}
        with pytest.raises(dpunion.CannotWrite, match="No space left on device"):
            made(names).write(out / f"vocabulary{suffix}")
        assert list(out.iterdir()) == []


@pytest.mark.parametrize("extra", [(), COUNTS])
def test_no_space_on_the_command_line(data, out, extra):
    code = """
        import resource, signal, sys
        from dpunion import cli
        from dpunion.releases import release as releases
        real = releases.Release.write
        def write(self, *given, **options):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
            return real(self, *given, **options)
        releases.Release.write = write
        cli.main()
    """
    exit_code, err = finish(python(code, "release", data, *OPTIONS, *extra, "--out", out / "a.parquet"))
    assert exit_code == 4
    assert "File too large" in err
    assert "nothing was written" in err
    assert list(out.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_no_space_behind_standard_output(data):
    command = [sys.executable, "-c", "from dpunion.cli import main; main()", "release", data]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*command, *OPTIONS], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 4
    assert b"standard output" in done.stderr
    assert b"bug" not in done.stderr


def test_a_reader_that_stops_early_is_no_error(data):
    code = """
        import sys
        from dpunion import cli
        from dpunion.releases import release as releases
        from dpunion.pipeline import release as real
        import dpunion.pipeline
        def release(*given, **options):
            made = real(*given, **options)
            return releases.Release(tuple(f"item{i:06}" for i in range(100000)), made.plan, made.guaranteed)
        dpunion.pipeline.release = release
        cli.main()
    """
    process = python(code, "release", data, *OPTIONS)
    assert process.stdout.readline() == b"item000000\n"
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(PATIENCE) == 0, err
    assert b"Error" not in err
    assert b"Traceback" not in err


def test_a_failing_sync_is_no_success(out, monkeypatch):
    """Some disks tell only when synced that a write failed."""

    def fail(_descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(dpunion.CannotWrite, match="Input/output error"):
        Release(("a",), PLAN, guaranteed=True).write(out / "a.txt")
    assert list(out.iterdir()) == []


# --- refused before data is read ----------------------------------------------------------------------------
class Untouchable:
    """A source that tells when it is looked at."""

    def __iter__(self):
        raise AssertionError("the data was read")

    def __getattr__(self, name):
        raise AssertionError(f"the data was asked for {name}")


def refused(*arguments):
    """Run the command with a source that does not exist: any look at it would be the error reported instead."""
    base = ["release", "/nonexistent/source.parquet", "--user", "user", "--item", "item"]
    return run_cli(*base, "-e", "1", "-d", "1e-6", *arguments)


def assert_refused(result, code, *words):
    assert result.exit_code == code, result.output
    for word in words:
        assert word in result.output
    assert "nonexistent/source" not in result.output


@pytest.mark.parametrize(
    ("names", "more", "code", "words"),
    [
        (["old.csv"], [], 4, ["exists already", "--force"]),
        (["a.xlsx"], [], 2, ["'.xlsx'", ".parquet"]),
        (["a"], [], 2, [".parquet"]),
        (["folder.csv"], ["--force"], 4, ["is a folder"]),
        (["no/a.csv"], [], 4, ["does not exist", "Create it"]),
        (["a.csv", "b.xlsx"], [], 2, ["'.xlsx'"]),
        (["a.csv", "./a.csv"], [], 2, ["same file"]),
    ],
    ids=["exists", "unknown suffix", "no suffix", "a folder", "no such folder", "one of several", "the same twice"],
)
def test_a_bad_output_is_refused_before_the_data_is_read(out, names, more, code, words):
    (out / "old.csv").write_bytes(OLD)
    (out / "folder.csv").mkdir()
    outputs = [part for name in names for part in ("--out", f"{out}/{name}")]
    assert_refused(refused(*outputs, *more), code, *words)
    assert (out / "old.csv").read_bytes() == OLD
    assert sorted(path.name for path in out.iterdir()) == ["folder.csv", "old.csv"]


def test_a_missing_source_is_reported_when_nothing_else_is_wrong(out):
    """Power: with --force the same command gets as far as the source."""
    target = out / "a.csv"
    target.write_bytes(OLD)
    result = refused("--out", target, "--force")
    assert result.exit_code == 3
    assert "nonexistent/source" in result.output
    assert target.read_bytes() == OLD


def test_an_unwritable_folder_is_refused_before_the_data_is_read(out, monkeypatch):
    if ROOT:
        monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    else:
        out.chmod(0o500)
    try:
        assert_refused(refused("--out", out / "a.csv"), 4, "dpunion cannot write to the folder")
    finally:
        out.chmod(0o700)


@pytest.mark.skipif(not ROOT, reason="needs root to become somebody else")
def test_a_folder_of_somebody_else_is_refused(tmp_path):
    """Not by a patch: as another user, once for a folder without write and once without search permission."""
    code = """
        import os, sys
        from pathlib import Path
        from dpunion.errors import CannotWrite
        from dpunion.releases.formats import check_target
        os.setgid(65534), os.setuid(65534)
        try:
            check_target(Path(sys.argv[1]), overwrite=False)
        except CannotWrite as error:
            print(error)
    """
    for mode in (0o755, 0o700):
        folder = tmp_path / oct(mode)
        folder.mkdir()
        folder.chmod(mode)
        opened = [tmp_path, *tmp_path.parents]
        modes = [(path, path.stat().st_mode) for path in opened if path.stat().st_mode & 0o001 == 0]
        for path, before in modes:
            path.chmod(before | 0o011)
        try:
            process = python(code, folder / "deep" / ".." / "a.csv" if mode == 0o700 else folder / "a.csv")
            shown, err = process.communicate(timeout=PATIENCE)
        finally:
            for path, before in modes:
                path.chmod(before)
        assert any(word in shown for word in (b"cannot write", b"cannot be written", b"does not exist")), err


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": float("nan")}, {"epsilon": 0.0}, {"delta": 1.0}, {"algorithm": "greedy"},
        {"algorithm": "no-such"}, {"algorithm": 3}, {"null_users": "maybe"}, {"normalize": "upper"},
        {"item": "a", "text": "b"}, {"counts": "yes"}, {"counts": True, "algorithm": "policy-laplace"},
        {"counts": True, "user": "u", "item": ["high", "b"]}, {"sort": "people"},
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_call_is_refused_before_the_data_is_read(wrong):
    with pytest.raises(dpunion.BadParameter):
        dpunion.release(Untouchable(), **{"epsilon": 1.0, "delta": 1e-6, **wrong})


def test_untouchable_data_is_noticed():
    """Power of the test above."""
    with pytest.raises(AssertionError, match="the data was"):
        dpunion.release(Untouchable(), epsilon=1.0, delta=1e-6)


def test_a_release_that_cannot_be_written_can_be_written_elsewhere(out):
    """The budget is spent, so the release object must survive a failed write."""
    release = Release(ITEMS, PLAN, guaranteed=True)
    with small_files(1024), pytest.raises(dpunion.CannotWrite):
        release.write(out / "a.txt")
    assert release.write(out / "b.txt").read_bytes().count(b"\n") == len(ITEMS)

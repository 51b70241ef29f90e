"""Another user of the machine, in folders that everybody can write: nothing of the operator's is opened or run."""

import contextlib
import os
import subprocess
import sys
import textwrap

import pytest

import dpunion
from dpunion import files
from dpunion.releases.release import Release
from running import run_python

pytestmark = [pytest.mark.full, pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")]

NOBODY = 65534
ITEMS = tuple(f"item{i:05}" for i in range(2000))
PLAN = dpunion.plan("weighted-laplace", epsilon=1.0, delta=1e-6)
ROUNDS = 300

# Waits for every file that is not the output, and puts a link to the secret in its place.
EXCHANGER = """
    import contextlib, os, sys
    folder, secret = sys.argv[1:]
    os.chdir(folder)
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
    print("ready", flush=True)
    while True:
        for name in os.listdir("."):
            if name.startswith(".dpunion-"):
                with contextlib.suppress(OSError):
                    os.unlink(name)
                    os.symlink(secret, name)
"""

# Puts a folder of its own in the place of the cache, with code in it that tells who ran it.
POISONER = """
    import contextlib, os, sys, time
    os.chdir(sys.argv[1])
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
    os.mkdir("mine", 0o755)
    print("ready", flush=True)
    while True:
        with contextlib.suppress(OSError):
            os.rename("dpunion", f"theirs-{time.monotonic_ns()}")
        with contextlib.suppress(OSError):
            os.rename("mine", "dpunion")
        time.sleep(0.01)
        with contextlib.suppress(OSError):
            os.rename("dpunion", "mine")
"""


@contextlib.contextmanager
def attacker(code, *arguments):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process
        assert process.poll() is None, "the attacker was at work to the end"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def shared(tmp_path):
    """A folder that everybody can write, without the sticky bit."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"the operator's own")
    path.chmod(0o600)
    return path


def written(target, *, overwrite):
    """Write the release; say whether that succeeded, and that it is then the release."""
    try:
        Release(ITEMS, PLAN, guaranteed=True).write(target, overwrite=overwrite)
    except dpunion.CannotWrite as error:
        assert "Another program replaced" in error.what or "failed" in error.what
        return False
    assert not target.is_symlink()
    assert target.read_text() == "".join(f"{item}\n" for item in ITEMS)
    return True


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("nameless", [True, False])
def test_an_exchanged_draft_opens_no_secret(shared, secret, monkeypatch, nameless, overwrite):
    if not nameless:
        monkeypatch.setattr(files, "_nameless", lambda _folder: None)
    outcomes = []
    with attacker(EXCHANGER, shared, secret):
        for number in range(ROUNDS):
            target = shared / ("a.txt" if overwrite else f"{number}.txt")
            outcomes.append(written(target, overwrite=overwrite))
            assert (secret.stat().st_mode & 0o777, secret.read_bytes()) == (0o600, b"the operator's own")
            assert secret.stat().st_nlink == 1
    if nameless and not overwrite:
        assert all(outcomes), "what has no name cannot be exchanged"
    if not nameless:
        assert not all(outcomes), "the attacker does win against names, and is noticed"


def test_a_poisoned_cache_is_not_loaded(shared, tmp_path):
    """While somebody exchanges the folder again and again, the kernels are compiled and nothing of his is opened."""
    code = """
        import sys
        opened = []
        sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)
        from dpunion.kernels import compiler
        from dpunion.kernels.normal import upper_tail
        assert abs(upper_tail(1.0) - 0.15865525393145707) < 1e-15
        print(compiler.cache_directory(), sum(name.startswith(sys.argv[1]) for name in opened))
    """
    with attacker(POISONER, shared):
        done = run_python(code, shared, env=os.environ | {"XDG_CACHE_HOME": str(shared), "HOME": str(tmp_path)})
    assert done.stdout.split() == ["None", "0"], done.stderr
    assert f"{shared} belongs to other users, or they can write to it" in done.stderr

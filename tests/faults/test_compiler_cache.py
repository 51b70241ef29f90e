"""The cache of compiled kernels: a private directory or none at all, and the same results either way."""

import os
import subprocess
import textwrap
from pathlib import Path

import pytest

from dpunion.kernels import FIRST_TIME
from running import run_python

pytestmark = pytest.mark.full
ROOT = os.geteuid() == 0

PROBE = """
    import os, sys
    {before}
    from dpunion.kernels import FIRST_TIME, compiler
    from dpunion.kernels.normal import upper_tail
    print(compiler.cache_directory(), repr(upper_tail(1.0)))
"""
ANSWER = "0.15865525393145707"


def probe(environment, before="", *, is_kept=True, **options):
    """Compile and run a small kernel in a new process; return its cache directory or None.

    It must say once when it has none, or when it could keep nothing there.
    """
    done = run_at_home(textwrap.dedent(PROBE).format(before=before), environment, **options)
    assert done.returncode == 0, done.stderr
    said = done.stderr.replace(f"{FIRST_TIME}\n", "")
    directory, answer = done.stdout.split()
    assert abs(float(answer) - float(ANSWER)) < 1e-15
    if directory == "None" or not is_kept:
        assert said.count("has to compile its kernels at each start") == said.count("Set XDG_CACHE_HOME") == 1
    else:
        assert said == ""
    return None if directory == "None" else Path(directory)


def run_at_home(code, environment, **options):
    """Run code where this environment says where the home and the caches are."""
    kept = {name: value for name, value in os.environ.items() if name not in {"HOME", "XDG_CACHE_HOME"}}
    return run_python(code, env={**kept, **environment}, **options)


def cached_files(directory):
    return [path for path in directory.rglob("*") if path.is_file()]


def test_the_cache_is_private_and_used(tmp_path):
    directory = probe({"XDG_CACHE_HOME": str(tmp_path)})
    assert directory.parent == tmp_path / "dpunion"
    for folder in (directory, directory.parent):
        assert folder.stat().st_mode & 0o777 == 0o700
    files = {path: path.stat().st_mtime_ns for path in cached_files(directory)}
    assert files
    # The second process finds everything and writes nothing.
    assert probe({"XDG_CACHE_HOME": str(tmp_path)}) == directory
    assert {path: path.stat().st_mtime_ns for path in cached_files(directory)} == files


def test_nothing_is_cached_beside_the_source(tmp_path):
    import dpunion

    probe({"XDG_CACHE_HOME": str(tmp_path)})
    package = Path(dpunion.__file__).parent
    assert not [path for path in package.rglob("*.nb?") if path.is_file()]


def test_the_home_directory_is_the_usual_place(tmp_path):
    assert probe({"HOME": str(tmp_path)}).parent == tmp_path / ".cache" / "dpunion"


@pytest.mark.parametrize("home", ["/proc/self", "/dev/null"])
def test_a_home_that_cannot_be_written(home):
    assert probe({"HOME": home}) is None


def test_a_user_without_name_and_home():
    """As in a container with an arbitrary user id: HOME is not set and the id has no entry."""
    before = "import pwd; pwd.getpwuid = lambda uid: {}[uid]"
    assert probe({}, before=before) is None


NEEDS_ROOT = pytest.mark.skipif(not ROOT, reason="needs root to give a directory away")
TAKEN = {"of others too": lambda path: path.chmod(0o777), "of others": lambda path: os.chown(path, 54321, 54321)}


@pytest.mark.parametrize("level", ["base", "directory"])
@pytest.mark.parametrize("whose", ["of others too", pytest.param("of others", marks=NEEDS_ROOT)])
def test_a_directory_that_others_can_use_or_own_is_not_used(tmp_path, level, whose):
    directory = Path(decision({"XDG_CACHE_HOME": str(tmp_path)}))
    TAKEN[whose](directory.parent if level == "base" else directory)
    assert probe({"XDG_CACHE_HOME": str(tmp_path)}) is None
    assert cached_files(directory) == []


@pytest.mark.parametrize("mode", [0o700, 0o770, 0o707, 0o701, 0o740, 0o4700])
def test_a_private_folder_is_closed_to_other_users(tmp_path, mode):
    from dpunion.kernels.compiler import is_private

    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    assert is_private(folder) == (mode & 0o077 == 0)
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert not is_private(link)
    (tmp_path / "file").touch(mode=0o600)
    assert not is_private(tmp_path / "file")


def decision(environment, **options):
    """Return where kernels would be cached, without compiling one: the same question, sooner answered."""
    code = "from dpunion.kernels import compiler; print(compiler.cache_directory())"
    return run_at_home(code, environment, check=True, **options).stdout.strip()


@pytest.mark.parametrize("level", ["base", "directory"])
def test_a_link_is_not_followed(tmp_path, level):
    """A link may lead to where somebody else can write, or change later."""
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    if level == "base":
        (tmp_path / "dpunion").symlink_to(real)
    else:
        (tmp_path / "dpunion").mkdir(mode=0o700)
        name = Path(decision({"XDG_CACHE_HOME": str(tmp_path / "other")})).name
        (tmp_path / "dpunion" / name).symlink_to(real)
    assert probe({"XDG_CACHE_HOME": str(tmp_path)}) is None
    assert cached_files(real) == []


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "dpunion").write_text("not a directory")
    assert probe({"XDG_CACHE_HOME": str(tmp_path)}) is None


def mounted(folder, options):
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("mounting is not permitted here")


@pytest.mark.skipif(not ROOT, reason="needs root to mount")
def test_a_read_only_file_system(tmp_path):
    """Also one that already holds the directories, as an image may."""
    mounted(tmp_path, "size=1m")
    try:
        decision({"XDG_CACHE_HOME": str(tmp_path)})
        subprocess.run(["mount", "-o", "remount,ro", tmp_path], check=True)
        assert probe({"XDG_CACHE_HOME": str(tmp_path)}) is None
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.skipif(not ROOT, reason="needs root to mount")
def test_a_full_file_system(tmp_path):
    """The directory can be made but nothing be written: kernels must still compile."""
    mounted(tmp_path, "size=4k")
    try:
        probe({"XDG_CACHE_HOME": str(tmp_path)}, is_kept=False)
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.skipif(not ROOT, reason="needs root to mount")
def test_no_other_place_is_used_instead(tmp_path):
    """Where it cannot write to the place it is told, numba would choose one itself, unchecked."""
    import dpunion

    home, full = tmp_path / "home", tmp_path / "full"
    home.mkdir()
    full.mkdir()
    # Inodes for the folders of the cache, and none for numba's.
    mounted(full, "size=1m,nr_inodes=3")
    try:
        probe({"XDG_CACHE_HOME": str(full), "HOME": str(home)}, is_kept=False)
    finally:
        subprocess.run(["umount", full], check=True)
    assert cached_files(home) == []
    assert not [path for path in Path(dpunion.__file__).parent.rglob("*.nb?") if path.is_file()]


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_folder_above_that_others_can_write_is_not_trusted(tmp_path, mode, depth):
    """Whoever can write it can exchange all that is in it."""
    home = tmp_path / "group" / "cache"
    home.mkdir(parents=True)
    (home, home.parent)[depth - 1].chmod(mode)
    assert decision({"XDG_CACHE_HOME": str(home)}) == "None"
    assert list(home.iterdir()) == []


def test_a_sticky_folder_above_is_good(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o1777)
    assert decision({"XDG_CACHE_HOME": str(tmp_path / "cache")}) != "None"


@pytest.mark.skipif(not ROOT, reason="needs root to give a directory away")
def test_a_folder_above_of_somebody_else_is_not_trusted(tmp_path):
    home = tmp_path / "group" / "cache"
    home.mkdir(parents=True)
    os.chown(home.parent, 54321, 54321)
    assert decision({"XDG_CACHE_HOME": str(home)}) == "None"


def test_a_link_above_is_resolved_once(tmp_path):
    """A home behind a link is common; what counts is where it leads, and that is what is used."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert decision({"XDG_CACHE_HOME": str(tmp_path / "link")}).startswith(str(tmp_path / "real" / "dpunion"))


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x80\x05"], ids=["empty", "garbage", "cut"])
def test_damaged_cache_files_are_replaced(tmp_path, content):
    """A crash of the machine can leave them empty: no fault of the data, so no reason to fail."""
    directory = probe({"XDG_CACHE_HOME": str(tmp_path)})
    files = cached_files(directory)
    assert files
    for path in files:
        path.write_bytes(content)
    probe({"XDG_CACHE_HOME": str(tmp_path)})
    # They were replaced, so that the next process is quick again.
    assert all(len(path.read_bytes()) > len(content) for path in cached_files(directory))


def test_the_name_follows_the_text_of_all_kernels(tmp_path, monkeypatch):
    """numba does not see edits of a kernel that is called by another; the directory's name does."""
    from dpunion.kernels import compiler

    for name in ("compiler.py", "one.py", "two.py"):
        (tmp_path / name).write_text(f"# {name}")
    monkeypatch.setattr(compiler, "__file__", str(tmp_path / "compiler.py"))
    before = compiler.source_digest()
    assert compiler.source_digest() == before
    (tmp_path / "two.py").write_text("# edited")
    assert compiler.source_digest() != before
    monkeypatch.setattr(compiler.numba, "__version__", "0.0")
    assert compiler.source_digest() != before

"""Files: modes, names that are taken, links, and file systems that lack something."""

import contextlib
import errno
import os
import stat
import threading

import pytest

from dpunion import files
from dpunion.errors import CannotWrite
from dpunion.files import OWNER_ONLY, atomic_file, check_place
from running import PATIENCE

ROOT = os.geteuid() == 0
SYSTEMS = ["nameless files", "names only", "no hard links"]


@pytest.fixture(params=SYSTEMS, autouse=True)
def system(request, monkeypatch):
    """Run every test as on file systems that have everything, no O_TMPFILE, and no hard links either."""
    if request.param != SYSTEMS[0]:
        monkeypatch.setattr(files, "_nameless", lambda _folder: None)
    if request.param == SYSTEMS[2]:
        monkeypatch.setattr(os, "link", refuse_links)
    return request.param


def refuse_links(*_given, **_options):
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def write(target, content=b"new", **options):
    with atomic_file(target, **options) as file:
        file.write(content)


def mode_of(path):
    return stat.S_IMODE(path.lstat().st_mode)


@contextlib.contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_the_system_here_has_nameless_files(tmp_path, system):
    """Without them the first kind of system would not be tested at all."""
    if system == SYSTEMS[0] and os.uname().sysname == "Linux":
        with atomic_file(tmp_path / "a"):
            assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_replacing_keeps_the_mode(tmp_path, mode):
    target = tmp_path / "a"
    target.write_bytes(b"old")
    target.chmod(mode)
    write(target)
    assert (target.read_bytes(), mode_of(target)) == (b"new", mode)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.skipif(not ROOT, reason="needs root to give a file away")
@pytest.mark.parametrize(("theirs", "ours"), [(0o600, 0o600), (0o666, 0o644), (0o640, 0o640)])
def test_the_mode_of_somebody_elses_file_opens_nothing(tmp_path, theirs, ours):
    target = tmp_path / "a"
    target.write_bytes(b"old")
    target.chmod(theirs)
    os.chown(target, 54321, 54321)
    with umask(0o022):
        write(target)
    assert mode_of(target) == ours


@pytest.mark.parametrize("old", [None, 0o644])
def test_a_mode_that_is_asked_for_is_the_files(tmp_path, old):
    target = tmp_path / "a"
    if old is not None:
        target.write_bytes(b"old")
        target.chmod(old)
    write(target, mode=OWNER_ONLY)
    assert mode_of(target) == OWNER_ONLY


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_a_new_file_gets_the_usual_mode(tmp_path, mask):
    with umask(mask):
        write(tmp_path / "a")
    assert mode_of(tmp_path / "a") == 0o666 & ~mask


def test_the_later_of_two_writers_gets_exists_already(tmp_path):
    """Both begin before there is a file, so that no check beforehand can tell."""
    target = tmp_path / "a"
    with pytest.raises(CannotWrite, match="exists already"), atomic_file(target, overwrite=False) as slow:
        slow.write(b"slow")
        write(target, b"quick", overwrite=False)
    assert target.read_bytes() == b"quick"
    assert list(tmp_path.iterdir()) == [target]


def test_of_many_writers_at_once_one_succeeds(tmp_path):
    target, barrier, done = tmp_path / "a", threading.Barrier(8), []

    def run(number):
        try:
            with atomic_file(target, overwrite=False) as file:
                file.write(str(number).encode())
                barrier.wait(PATIENCE)
        except CannotWrite:
            return
        done.append(number)

    threads = [threading.Thread(target=run, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target.read_text() == str(done[0])
    assert len(done) == 1
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("leads", ["somewhere", "nowhere"])
def test_a_link_is_never_followed(tmp_path, leads):
    other, target = tmp_path / "other", tmp_path / "a"
    if leads == "somewhere":
        other.write_bytes(b"other")
        other.chmod(0o600)
    target.symlink_to(other)
    with pytest.raises(CannotWrite, match="exists already"):
        check_place(target, overwrite=False)
    with pytest.raises(CannotWrite, match="exists already"):
        write(target, overwrite=False)
    assert target.is_symlink()
    write(target)
    assert not target.is_symlink()
    assert target.read_bytes() == b"new"
    if leads == "somewhere":
        assert (other.read_bytes(), mode_of(other)) == (b"other", 0o600)
    else:
        assert not other.exists()


def test_a_folder_that_is_renamed_meanwhile_gets_the_file(tmp_path):
    """Not the one that was put in its place."""
    (tmp_path / "here").mkdir()
    with atomic_file(tmp_path / "here" / "a") as file:
        file.write(b"new")
        (tmp_path / "here").rename(tmp_path / "there")
        (tmp_path / "here").mkdir()
    assert (tmp_path / "there" / "a").read_bytes() == b"new"
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_draft_that_was_exchanged_is_an_error(tmp_path, system, overwrite):
    """The link that somebody put in its place is neither followed nor taken for the release."""
    secret, target = tmp_path / "secret", tmp_path / "out" / "a"
    secret.write_bytes(b"secret")
    secret.chmod(0o600)
    target.parent.mkdir()
    if overwrite:
        target.write_bytes(b"old")
    expected = (
        contextlib.nullcontext()
        if system == SYSTEMS[0]
        else pytest.raises(CannotWrite, match="Another program replaced")
    )
    with expected, atomic_file(target, overwrite=overwrite) as file:
        file.write(b"new")
        for draft in target.parent.glob(".dpunion-*"):
            draft.unlink()
            draft.symlink_to(secret)
    assert (secret.read_bytes(), mode_of(secret), secret.stat().st_nlink) == (b"secret", 0o600, 1)
    if system == SYSTEMS[0]:
        assert target.read_bytes() == b"new"


def test_a_failing_rename_leaves_the_old_file_and_nothing_else(tmp_path, system, monkeypatch):
    def fail(*_given, **_options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "rename", fail)
    target = tmp_path / "a"
    target.write_bytes(b"old")
    with pytest.raises(CannotWrite, match="No space left on device"):
        write(target)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]
    if system == SYSTEMS[2]:
        with pytest.raises(CannotWrite, match="No space left on device"):
            write(tmp_path / "b", overwrite=False)
        assert list(tmp_path.iterdir()) == [target]


def test_a_system_without_a_process_folder_has_no_nameless_files(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_path_of", lambda _descriptor: str(tmp_path / "no" / "such"))
    write(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"new"

"""Write a file whole and with its final mode, or not at all, also in folders that other users can write to.

dpunion writes every named file in this way. Others who can write to a folder can exchange names in it at any moment.
So nothing here uses a name that could reach another file: mode and content go through the descriptor, names are looked
up in the folder that was opened once, and links are never followed. docs/security.md, "Folders that others can write",
says what others can do there and what not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from dpunion.addresses import check_output
from dpunion.errors import CannotWrite, ForeignErrors, system_reason

OWNER_ONLY = 0o600
# What file systems without hard links answer, FAT for example.
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}


def check_place(target: Path, *, overwrite: bool) -> None:
    """Refuse early a path where no file can be written."""

    def explain(error: OSError) -> CannotWrite:
        return CannotWrite(f"{target} cannot be written: {system_reason(error)}.", "Choose another name or folder.")

    check_output(target)
    folder = target.parent
    with ForeignErrors(explain, OSError):
        if not folder.is_dir():
            raise CannotWrite(f"The folder {folder} does not exist.", "Create it, or choose another folder.")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise CannotWrite(f"dpunion cannot write to the folder {folder}.", "Choose another folder.")
        if target.is_dir():
            raise CannotWrite(f"{target} is a folder.", "Choose another name.")
        with contextlib.suppress(FileNotFoundError):
            target.lstat()  # also finds a link that leads nowhere
            if not overwrite:
                raise CannotWrite(*_taken(target))


def _taken(target: Path) -> tuple[str, str]:
    return f"{target} exists already.", "Choose another name, or allow overwriting (--force, overwrite=True)."


@contextlib.contextmanager
def claim_names(targets: Sequence[Path], book: Path) -> Iterator[None]:
    """Claim the names of these files against other runs with the same book, and refuse names that another has claimed.

    A claim is a lock on a byte of the book, at a place that depends on the folder and the name. Without such locks, on
    systems other than Linux and on some file systems, nothing is claimed and nothing is refused.

    Guarantees:
    - nothing is written, neither to the folders of the targets nor to the book;
    - a claim ends with the process, in whatever way.
    """
    try:
        descriptor = os.open(book, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, OWNER_ONLY)
    except OSError:
        yield
        return
    try:
        for target in targets:
            if not _lock_byte(descriptor, target):
                raise CannotWrite(
                    f"Another run is about to write {target}.", "Wait until it ends, or choose another name."
                )
        yield
    finally:
        os.close(descriptor)


def _lock_byte(descriptor: int, target: Path) -> bool:
    """Lock the byte of a target; say whether no other open file has locked it."""
    command = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None:
        return True
    try:
        folder = target.parent.stat()
        digest = hashlib.sha256(f"{folder.st_dev} {folder.st_ino} {target.name}".encode(errors="surrogateescape"))
        place = int.from_bytes(digest.digest()[:7], "big")
        fcntl.fcntl(descriptor, command, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0))
    except OSError as error:
        return error.errno not in {errno.EAGAIN, errno.EACCES}
    return True


@contextlib.contextmanager
def atomic_file(target: Path, *, overwrite: bool = True, mode: int | None = None) -> Iterator[IO[bytes]]:
    """Yield a file that gets the target's name at the end of the block, complete and synced.

    mode: the file's mode; by default that of the file it replaces, or the usual one.

    Guarantees:
    - an exception before it has its name, Ctrl-C included, leaves nothing behind and the target untouched;
    - without `overwrite` nothing is ever replaced, even if others write at the same moment;
    - no other file is read, changed or named, whatever others do in the folder.
    """
    named = False

    def explain(error: OSError) -> CannotWrite:
        if isinstance(error, FileExistsError):
            return CannotWrite(*_taken(target))
        if named:
            return CannotWrite(
                f"{target} was written, but its folder could not be synced: {system_reason(error)}.",
                "The file is complete, but may not survive a power failure; check the disk.",
            )
        return CannotWrite(
            f"Writing {target} failed: {system_reason(error)}.",
            "Free some space, or choose another folder; nothing was written.",
        )

    with ForeignErrors(explain, OSError), _open_folder(target.parent) as folder, _draft(folder) as (file, source):
        yield file
        file.flush()
        # A file system that shows another mode than the file was created with stores no modes.
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) == OWNER_ONLY:
            os.fchmod(file.fileno(), _mode_of(folder, target.name) if mode is None else mode)
        os.fsync(file.fileno())
        ours = _name(file.fileno(), source, folder, target.name, overwrite=overwrite)
        named = True
        _sync(folder)
    if not ours:
        raise CannotWrite(
            f"Another program replaced {target} while dpunion was writing it.",
            "Write to a folder that only you can write to, with one run per file.",
        )


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    with _open_folder(folder) as descriptor:
        _sync(descriptor)


@contextlib.contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    """Open the folder once: the file goes into this one, even if its name changes."""
    descriptor = os.open(folder, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _draft(folder: int) -> Iterator[tuple[IO[bytes], str]]:
    """Open a new file for its owner alone; yield it and the path by which it can be linked.

    It has no name if the system supports that: then nobody can exchange it, and the system frees it when we end.
    """
    descriptor = _nameless(folder)
    if descriptor is not None:
        with os.fdopen(descriptor, "wb") as file:
            yield file, _path_of(descriptor)
        return
    with _temporary_name(folder) as name:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, OWNER_ONLY, dir_fd=folder), "wb") as file:
            yield file, name


def _nameless(folder: int) -> int | None:
    """Open a file without a name that can get one; None if the system or the file system cannot."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        descriptor = os.open(".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, OWNER_ONLY, dir_fd=folder)
    except OSError:
        return None
    if Path(_path_of(descriptor)).exists():
        return descriptor
    os.close(descriptor)
    return None


def _path_of(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


@contextlib.contextmanager
def _temporary_name(folder: int) -> Iterator[str]:
    name = f".dpunion-{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}.tmp"
    try:
        yield name
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)


def _name(descriptor: int, source: str, folder: int, name: str, *, overwrite: bool) -> bool:
    """Give the draft its name, replacing only with `overwrite`; say whether the name is certainly that of the draft."""
    is_nameless = source == _path_of(descriptor)
    try:
        _link(source, folder, name)
    except FileExistsError:
        if not overwrite:
            raise
    except OSError as error:
        if is_nameless or error.errno not in NO_LINKS:
            raise
        if not overwrite:
            return _take(descriptor, source, folder, name)
    else:
        return is_nameless or _is(descriptor, folder, name)
    if not is_nameless:
        os.rename(source, name, src_dir_fd=folder, dst_dir_fd=folder)
        return _is(descriptor, folder, name)
    with _temporary_name(folder) as temporary:
        _link(source, folder, temporary)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    return _is(descriptor, folder, name)


def _link(source: str, folder: int, name: str) -> None:
    """Make a name for the draft; fail if the name is taken.

    subtle: only the system's own path of a descriptor is followed, never a name that somebody may have exchanged.
    """
    os.link(source, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=source.startswith("/"))


def _take(descriptor: int, source: str, folder: int, name: str) -> bool:
    """Without hard links: take the name with an empty file, which fails if it is taken, and replace that at once."""
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, OWNER_ONLY, dir_fd=folder))
    try:
        os.rename(source, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise
    return _is(descriptor, folder, name)


def _is(descriptor: int, folder: int, name: str) -> bool:
    """Say whether the name is that of the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _mode_of(folder: int, name: str) -> int:
    """Return the mode of our file with this name; of another user's file, only its usual bits; else the usual mode."""
    mask = os.umask(0o077)
    os.umask(mask)
    usual = 0o666 & ~mask
    try:
        old = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return usual
    if not stat.S_ISREG(old.st_mode):
        return usual
    return old.st_mode & (0o777 if old.st_uid == os.geteuid() else usual)


def _sync(folder: int) -> None:
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

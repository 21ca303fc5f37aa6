"""The files of result folders: all are opened, written, renamed and removed here.

Only regular files are opened, never through a link, and opening never waits. Files are written under a temporary name,
synced and renamed. Only files with names of our own are removed, and folders only when they are empty.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO

from fedsim.errors import CorruptData, InvalidInput, RuntimeFailed
from fedsim.results.process import is_dead, tag

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TEMPORARY = re.compile(r"\.(.+)\.([0-9a-f]{8}-\d+-\d+-\d+|\d+-\d+)\.tmp")  # as `_sibling` makes them, now and earlier
_BAD_PLACE = (
    errno.EACCES,
    errno.EEXIST,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
)
_NOT_PLAIN = (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR)  # a link, a pipe or a socket, a folder
_SAFE = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
_OURS = re.compile(
    r"(run|manifest|checkpoint-\d+)\.json|(rounds|metrics|clients|events|visits)\.parquet"
    r"|(samples|state-\d+|segment-\d+(\.copy)?)\.npz"
)
_CACHED = re.compile(r"sums\.json|.+\.npy")  # arrays of data sets, in temporary folders


def descriptor(path: Path, flags: int) -> int:
    """Open a regular file; refuse links, pipes, folders and devices."""
    try:
        opened = os.open(path, flags | _SAFE, 0o666)
    except OSError as error:
        if error.errno in _NOT_PLAIN:
            raise _not_plain(path) from error
        raise
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise _not_plain(path)
    return opened


def reading(path: Path) -> BufferedReader:
    """Open a file for reading."""
    return os.fdopen(descriptor(path, os.O_RDONLY), "rb")


def read(path: Path) -> bytes:
    """Return the bytes of a file."""
    with reading(path) as file:
        return file.read()


def new_file(path: Path) -> IO[bytes]:
    """Open a file that does not exist for writing."""
    return os.fdopen(descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")


def is_file(path: Path) -> bool:
    """Return True for a regular file that is no link."""
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Return True for a folder that is no link."""
    return stat.S_ISDIR(_mode(path))


def size(path: Path) -> int:
    """Return the bytes of a regular file, -1 for anything else."""
    try:
        found = path.lstat()
    except (OSError, ValueError):  # a name with a null byte
        return -1
    return found.st_size if stat.S_ISREG(found.st_mode) else -1


def listed(folder: Path, pattern: str = "*") -> list[Path]:
    """Return the sorted paths in a folder, none of a link or of a missing folder."""
    return sorted(folder.glob(pattern)) if is_folder(folder) else []


def make_folder(path: Path) -> None:
    """Make a folder in a folder of ours, unless it exists; refuse a link in its place."""
    check_folder(path)
    path.mkdir(exist_ok=True)


def make_parents(path: Path) -> bool:
    """Make a folder and those above it; return False if it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True


def check_folder(path: Path) -> None:
    """Refuse a link or a file in the place of a folder of ours."""
    if os.path.lexists(path) and not is_folder(path):
        raise CorruptData(f"{path} is damaged: it is no plain folder; remove it or choose another --out")


def move(path: Path, to: Path) -> None:
    """Rename a file or a folder; `to` may be a regular file, which is replaced."""
    if os.path.lexists(to) and not is_file(to):
        raise InvalidInput(f"cannot write {to} (it is no plain file); remove it or choose another place")
    path.replace(to)


def restore(moved: Path, path: Path) -> None:
    """Give a file that was moved its old name again, unless the name is taken."""
    with suppress(OSError):
        os.link(moved, path)
    remove(moved)


def remove(path: Path) -> None:
    """Remove a regular file if it exists."""
    if is_file(path):
        path.unlink(missing_ok=True)


def remove_folder(folder: Path, deep: bool = False) -> None:
    """Remove files with names of our own, then the folder if it is empty.

    `deep` is for temporary folders: in their sub-folders, too.
    """
    patterns = (_OURS, _TEMPORARY, _CACHED) if deep else (_OURS, _TEMPORARY)
    for path in listed(folder):
        with suppress(OSError):
            if any(pattern.fullmatch(path.name) for pattern in patterns):
                remove(path)
            if deep:
                remove_folder(path, deep)
    remove_empty(folder)


def remove_empty(folder: Path) -> None:
    """Remove a folder if it is empty."""
    if is_folder(folder):
        with suppress(OSError):
            folder.rmdir()


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _not_plain(path: Path) -> CorruptData:
    return CorruptData(f"{path} is damaged: it is no plain file; remove it or choose another --out")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary sibling that is renamed to `path` if the body succeeds and removed if it fails."""
    if os.path.lexists(path):
        raise _taken(path)
    temporary = _sibling(path)
    try:
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_stale(path.parent, path.name)
            temporary.mkdir()
            yield temporary
            sync_folder(temporary)
            _rename_folder(temporary, path)
            sync_folder(path.parent)
    except BaseException:
        remove_folder(temporary, deep=True)
        raise


def check_writable(path: Path) -> None:
    """Refuse a `path` that cannot be written, before a long run starts."""
    parent = path.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InvalidInput(f"cannot write {path} ({parent} is not writable); choose a place that can be written")
    with explained(path):
        probe = _sibling(parent / path.name)
        probe.touch()
        probe.unlink()


def write_atomic(path: str | Path, data: bytes) -> None:
    """Replace the file `path` by `data` atomically."""
    path = Path(path).absolute()
    temporary = _sibling(path)
    try:
        with explained(path):
            with durable(temporary) as file:
                file.write(data)
            move(temporary, path)
            sync_folder(path.parent)
    except BaseException:
        remove(temporary)
        raise


@contextmanager
def durable(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file and sync it to disk at the end."""
    with new_file(path) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_files(folder: Path) -> None:
    """Sync all files of `folder` in parallel, so that the journal commits them together."""
    with ThreadPoolExecutor(8, "fedsim-sync") as threads:
        for done in [threads.submit(_sync, Path(entry.path)) for entry in os.scandir(folder)]:
            done.result()


def _sync(path: Path) -> None:
    opened = descriptor(path, os.O_RDWR)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def remove_stale(folder: Path, name: str | None = None, ours: bool = False) -> None:
    """Remove temporary files and folders, of `name` or of all names, whose process was killed.

    With `ours` the caller holds the folder's lock, so all of them are stale.
    """
    for entry in os.scandir(folder):
        found = _TEMPORARY.fullmatch(entry.name)
        if found and name in (None, found[1]) and (ours or is_dead(found[2])):
            remove_folder(Path(entry.path), deep=True)
            remove(Path(entry.path))


def _sibling(path: Path) -> Path:
    return path.with_name(f".{path.name}.{tag()}.tmp")


def _taken(path: Path) -> InvalidInput:
    return InvalidInput(f"{path} already exists; choose another --out or remove it")


def _rename_folder(temporary: Path, path: Path) -> None:
    try:
        temporary.rename(path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):  # another process was faster
            raise _taken(path) from error
        raise


def sync_folder(folder: Path) -> None:
    """Sync the names in `folder` to disk."""
    if os.name == "nt":
        return  # Windows opens no folders
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an OSError into one sentence about `path`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _NO_ROOM:
            raise RuntimeFailed(f"no room to write {path} ({reason}); free some and run again") from error
        if error.errno in _BAD_PLACE:
            raise InvalidInput(f"cannot write {path} ({reason}); choose a place that can be written") from error
        raise RuntimeFailed(f"writing {path} failed ({reason})") from error

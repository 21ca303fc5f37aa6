"""Atomic files and folders: written under a temporary name, synced, renamed."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fedsim.errors import InvalidInput, RuntimeFailed
from fedsim.results.lock import is_dead, tag

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
        shutil.rmtree(temporary, ignore_errors=True)
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
            temporary.replace(path)
            sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def durable(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file and sync it to disk at the end."""
    with path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_files(folder: Path) -> None:
    """Sync all files of `folder` in parallel, so that the journal commits them together."""
    with ThreadPoolExecutor(8, "fedsim-sync") as threads:
        for done in [threads.submit(_sync, Path(entry.path)) for entry in os.scandir(folder)]:
            done.result()


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def remove_stale(folder: Path, name: str | None = None, ours: bool = False) -> None:
    """Remove temporary files and folders, of `name` or of all names, whose process was killed.

    With `ours` the caller holds the folder's lock, so all of them are stale.
    """
    for entry in os.scandir(folder):
        found = _TEMPORARY.fullmatch(entry.name)
        if found and name in (None, found[1]) and (ours or is_dead(found[2])):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)


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
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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

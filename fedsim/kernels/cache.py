"""The disk cache of compiled kernels. It never stops a run: at worst a kernel is compiled again.

Numba writes machine code beside the source or, where that folder is read-only, into the user's cache folder; without
either it refuses to compile. Here a folder that is not writable, or is full, is replaced by a temporary folder. Every
file ends in a digest, which is checked before the file is unpickled; a damaged file, or one that another user owns or
can write, is deleted and its kernel compiled again. Each case logs one line, once.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import pickle
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba as nb
from numba.core import caching, config

from fedsim.code_digest import kernel_digest
from fedsim.kernels import KernelState
from fedsim.kernels.compiler import KernelDispatcher, dispatched_by

DIGEST = 16  # bytes at the end of every file; pickle ignores them
log = logging.getLogger("fedsim")


def use_512_bit_vectors() -> None:
    """Use 512-bit vectors where they do not lower the clock rate (Ice Lake and later); LLVM would use 256 bits.

    Bits do not depend on it. The user's NUMBA_CPU_FEATURES and NUMBA_CPU_NAME take precedence.
    """
    if config.CPU_FEATURES is None and config.CPU_NAME is None:
        features = llvm.get_host_cpu_features()
        if features.get("avx512vbmi2"):
            config.CPU_FEATURES = features.flatten() + ",-prefer-256-bit"


use_512_bit_vectors()


def cached(decorator: Callable[..., Any]) -> Callable[..., Any]:
    """Return the compiling decorator with a disk cache for each function."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = decorator(function)
        dispatcher._cache = _cache_of(function)
        return dispatcher

    return decorate


jit: Any = cached(dispatched_by(KernelDispatcher))
inline: Any = cached(dispatched_by(KernelDispatcher, forceinline=True))


def kernel_state(function: Any, *arguments: object) -> KernelState:
    """Return whether a kernel is loaded, cached or missing for arguments of these types."""
    signature = tuple(nb.typeof(a) for a in arguments)
    if signature in function.overloads:
        return KernelState.LOADED
    files = function._cache
    if isinstance(files, SafeCache) and files.has(signature, function.targetctx):
        return KernelState.CACHED
    return KernelState.MISSING


class Damaged(Exception):
    """A file of the cache differs from what was written."""


class Untrusted(PermissionError):
    """Another user owns a file of the cache or can write it, so that it may run any code."""


class ChecksummedFile(caching.IndexDataCacheFile):  # type: ignore[misc]
    """Numba's index and data files, each with a digest at its end.

    Data hold their key: two processes that save at the same time may overwrite each other's files, and machine code for
    other argument types would crash.
    """

    def save(self, key: object, data: object) -> None:
        super().save(key, (key, data))

    def load(self, key: object) -> Any:
        found = super().load(key)
        return found[1] if found is not None and found[0] == key else None

    def has(self, key: object) -> bool:
        return key in self._load_index()

    def _dump(self, obj: object) -> bytes:
        data: bytes = super()._dump(obj)
        return data + blake2b(data, digest_size=DIGEST).digest()

    def _load_index(self) -> Any:
        try:
            data = _trusted_bytes(Path(self._index_path))
        except FileNotFoundError:
            return {}
        version, stamp, overloads = pickle.loads(_checked(data))
        return pickle.loads(overloads) if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, overloads: object) -> None:
        with self._open_for_write(self._index_path) as file:
            file.write(self._dump((self._version, self._source_stamp, caching.dumps(overloads))))

    def _load_data(self, name: str) -> Any:
        return pickle.loads(_checked(_trusted_bytes(Path(self._data_path(name)))))

    @contextmanager
    def _open_for_write(self, path: str) -> Iterator[Any]:
        with super()._open_for_write(path) as file:
            os.fchmod(file.fileno(), 0o644)  # whatever the umask allows
            yield file


class SafeCache(caching.FunctionCache):  # type: ignore[misc]
    """The cache of one kernel."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._files = (
            f"{self._impl.filename_base}.fedsim3"  # differs from the names of plain Numba and earlier versions
        )
        self._cache_file: Any = ChecksummedFile(
            self._cache_path, self._files, kernel_digest(Path(function.__code__.co_filename))
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # damaged bytes may raise anything
            self._delete()
            why = (
                "are not used, because another user owns them or can write them" if isinstance(error, Untrusted) else ""
            )
            _warn_once(
                f"compiled kernels in {self._cache_path} {why or 'were damaged'}; they are deleted and compiled again"
            )
            return None

    def has(self, sig: Any, target_context: Any) -> bool:
        """Return whether the index lists code for these types."""
        try:
            return bool(self._cache_file.has(self._index_key(sig, target_context.codegen())))
        except Exception:  # damaged: `load_overload` reports it
            return False

    def save_overload(self, sig: Any, data: object) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:  # a full disk, a removed folder, a damaged index
            if not isinstance(error, OSError):
                self._delete()
            elif use_temporary_folder(error) is None:
                self.disable()
                return
            try:
                if isinstance(error, OSError):
                    self.__init__(self._py_func)  # type: ignore[misc]
                super().save_overload(sig, data)
            except Exception:
                self.disable()

    def _delete(self) -> None:
        for file in (*Path(self._cache_path).glob(f"{self._files}.*.nbc"), Path(self._cache_file._index_path)):
            try:
                file.unlink()
            except OSError:  # another user's file: overwritten, or compiled in every process
                continue


def _cache_of(function: Callable[..., Any]) -> Any:
    try:
        return SafeCache(function)
    except RuntimeError as error:  # no writable folder
        if use_temporary_folder(error) is None:
            return caching.NullCache()
        return SafeCache(function)


@cache
def _temporary_folder() -> str | None:
    try:
        folder = tempfile.mkdtemp(prefix="fedsim-kernels-")
    except OSError:
        return None
    atexit.register(_remove, folder, os.getpid())
    return folder


def use_temporary_folder(why: Exception) -> str | None:
    """Cache kernels in a temporary folder from now on, in child processes too. Return it, or None without one."""
    folder = _temporary_folder()
    if folder is None:
        _warn_once("no folder can cache compiled kernels; every process compiles them again, which takes a minute")
        return None
    reason = f" ({why.strerror})" if isinstance(why, OSError) and why.strerror else ""
    _warn_once(
        f"compiled kernels cannot be cached beside fedsim{reason}; this run uses a temporary folder; set "
        "NUMBA_CACHE_DIR=DIR to cache them"
    )
    config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"] = folder
    return folder


def _trusted_bytes(path: Path) -> bytes:
    """Return the bytes of a file of this user or of root that no other user can change; refuse any other."""
    with path.open("rb") as file:
        facts = os.fstat(file.fileno())
        if facts.st_uid not in (os.getuid(), 0) or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Untrusted(errno.EACCES, "another user owns them or can write them", str(path))
        return file.read()


def _checked(checksummed: bytes) -> bytes:
    """Return bytes without their digest; refuse damaged ones before they are unpickled."""
    if blake2b(checksummed[:-DIGEST], digest_size=DIGEST).digest() != checksummed[-DIGEST:]:
        raise Damaged
    return checksummed[:-DIGEST]


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked child must not delete its parent's folder
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _warn_once(sentence: str) -> None:
    log.warning("fedsim: %s", sentence)

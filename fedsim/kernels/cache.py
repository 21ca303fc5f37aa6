"""Where compiled kernels are kept from one process to the next, whatever state that place is in.

Numba keeps them beside the source, else in the user's cache folder, else it refuses to compile at all. Here a place
that cannot be written to, or is full, is exchanged for a temporary folder, and what is damaged (a digest tells) is
thrown away and compiled again. Each says so in one line, once.
"""

from __future__ import annotations

import atexit
import logging
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba as nb
from numba.core import caching, config

from fedsim.code_digest import digest_of
from fedsim.kernels import Found
from fedsim.kernels.compiler import Kernel, compiled

DIGEST = 16  # bytes at the end of every file; a reader of pickles does not look at them
log = logging.getLogger("fedsim")


def use_whole_vectors() -> None:
    """512-bit vectors where they are no slower by the clock (Ice Lake and later); LLVM would halve them.

    Bits do not depend on it. The user's own NUMBA_CPU_FEATURES and NUMBA_CPU_NAME stand.
    """
    if config.CPU_FEATURES is None and config.CPU_NAME is None:
        features = llvm.get_host_cpu_features()
        if features.get("avx512vbmi2"):
            config.CPU_FEATURES = features.flatten() + ",-prefer-256-bit"


use_whole_vectors()


def kept(decorator: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that compiles, whose products are kept safely."""

    def decorate(function: Callable[..., Any]) -> Any:
        made = decorator(function)
        made._cache = _made(function)
        return made

    return decorate


jit: Any = kept(compiled(Kernel))
inline: Any = kept(compiled(Kernel, forceinline=True))


def find(function: Any, *arguments: object) -> Found:
    """Where the code of a function of `jit` is, for arguments such as these."""
    signature = tuple(nb.typeof(a) for a in arguments)
    if signature in function.overloads:
        return Found.LOADED
    files = function._cache
    return Found.KEPT if isinstance(files, SafeCache) and files.holds(signature, function.targetctx) else Found.NOWHERE


class Damaged(Exception):
    """A file of the cache is not what was written."""


class SealedFile(caching.IndexDataCacheFile):  # type: ignore[misc]
    """Numba's two kinds of files, each with a digest at its end.

    What is kept says what it is: of two processes that save at the same time one may write over the other's file, and
    machine code for other types than asked for would crash.
    """

    def save(self, key: object, data: object) -> None:
        super().save(key, (key, data))

    def load(self, key: object) -> Any:
        found = super().load(key)
        return found[1] if found is not None and found[0] == key else None

    def holds(self, key: object) -> bool:
        """Whether the index has it."""
        return key in self._load_index()

    def _dump(self, obj: object) -> bytes:
        data: bytes = super()._dump(obj)
        return data + blake2b(data, digest_size=DIGEST).digest()

    def _load_index(self) -> Any:
        try:
            with open(self._index_path, "rb") as file:
                pickle.load(file)  # Numba's version
                _check(file.read())
        except FileNotFoundError:
            return {}
        return super()._load_index()

    def _load_data(self, name: str) -> Any:
        _check(Path(self._data_path(name)).read_bytes())
        return super()._load_data(name)


class SafeCache(caching.FunctionCache):  # type: ignore[misc]
    """The cache of one function, which never fails: at worst it compiles again."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._files = f"{self._impl.filename_base}.sealed"  # apart from what plain Numba may have left there
        self._cache_file: Any = SealedFile(
            self._cache_path, self._files, digest_of(Path(function.__code__.co_filename))
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever damaged bytes make a reader stumble over
            self._forget()
            _say_once(f"compiled kernels in {self._cache_path} were damaged; they are deleted and compiled again")
            return None

    def holds(self, sig: Any, target_context: Any) -> bool:
        """Whether an earlier process left the code for these types, by what the index says."""
        try:
            return bool(self._cache_file.holds(self._index_key(sig, target_context.codegen())))
        except Exception:  # damaged: whoever loads it says so
            return False

    def save_overload(self, sig: Any, data: object) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:  # a full disk, a folder that is gone, an index that is damaged
            if not isinstance(error, OSError):
                self._forget()
            elif temporary(error) is None:
                self.disable()
                return
            try:
                if isinstance(error, OSError):
                    self.__init__(self._py_func)  # type: ignore[misc]
                super().save_overload(sig, data)
            except Exception:
                self.disable()

    def _forget(self) -> None:
        for file in (*Path(self._cache_path).glob(f"{self._files}.*.nbc"), Path(self._cache_file._index_path)):
            try:
                file.unlink()
            except OSError:  # not ours to delete: then it is written over, or compiled in every process
                continue


def _made(function: Callable[..., Any]) -> Any:
    try:
        return SafeCache(function)
    except RuntimeError as error:  # no folder that can be written to
        if temporary(error) is None:
            return caching.NullCache()
        return SafeCache(function)


@cache
def _folder() -> str | None:
    try:
        folder = tempfile.mkdtemp(prefix="fedsim-kernels-")
    except OSError:
        return None
    atexit.register(_remove, folder, os.getpid())
    return folder


def temporary(why: Exception) -> str | None:
    """Keep compiled kernels in a temporary folder from now on; child processes find it too."""
    folder = _folder()
    if folder is None:
        _say_once("compiled kernels cannot be kept anywhere; every process compiles them again, which takes a minute")
        return None
    reason = f" ({why.strerror})" if isinstance(why, OSError) and why.strerror else ""
    _say_once(
        f"compiled kernels cannot be kept beside fedsim{reason}; a temporary folder serves for this run, and "
        "NUMBA_CACHE_DIR=DIR would keep them"
    )
    config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"] = folder
    return folder


def _check(with_checksum: bytes) -> None:
    if blake2b(with_checksum[:-DIGEST], digest_size=DIGEST).digest() != with_checksum[-DIGEST:]:
        raise Damaged


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked child leaves it to its parent
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _say_once(sentence: str) -> None:
    log.warning("fedsim: %s", sentence)

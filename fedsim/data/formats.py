"""Readers of the files that data sets come in. None runs anything that a file brings, or grows beyond its bound."""

from __future__ import annotations

import gzip
import io
import math
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.errors import CorruptData, InvalidInput, shown

MOST_BYTES = 2**31  # of one array, or of one unpacked file
_DTYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def unpack(path: Path, most: int = MOST_BYTES) -> bytes:
    """What a gzip file holds, at most so many bytes."""
    try:
        with gzip.open(path) as file:
            data = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise CorruptData(f"{path} cannot be unpacked ({error}); fetch it again") from None
    if len(data) > most:
        raise CorruptData(f"{path} unpacks to more than {most:,} bytes; it is not what it claims to be")
    return data


def idx(path: Path) -> Array:
    """An array in the IDX format of MNIST, gzipped."""
    data = unpack(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _DTYPES or data[3] == 0:
        raise CorruptData(f"{path} is not an IDX file; fetch it again")
    begin = 4 + 4 * data[3]
    shape = np.frombuffer(data[4:begin], ">u4").tolist()
    dtype = np.dtype(_DTYPES[data[2]])
    if len(shape) != data[3] or len(data) != begin + math.prod(shape) * dtype.itemsize:
        raise CorruptData(f"{path} is truncated or padded: it announces shape {tuple(shape)}; fetch it again")
    return np.frombuffer(data, dtype, offset=begin).reshape(shape)


def npz(path: Path, names: tuple[str, ...], optional: tuple[str, ...] = ()) -> Arrays:
    """The named arrays of an npz file; Python objects in it are refused, and not loaded."""
    try:
        with zipfile.ZipFile(path) as archive:
            present = {info.filename: info for info in archive.infolist()}
            missing = [n for n in names if f"{n}.npy" not in present]
            if missing:
                raise CorruptData(f"{path} lacks the array {missing[0]!r}; it must hold {', '.join(names)}")
            wanted = [n for n in (*names, *optional) if f"{n}.npy" in present]
            return {name: _member(path, archive, present[f"{name}.npy"]) for name in wanted}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        if isinstance(error, CorruptData) or not path.exists():
            raise
        raise CorruptData(f"{path} is no npz file of plain arrays ({error}); fetch or write it again") from None


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """One array, its announced size checked against its bytes before any room is made for it."""
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise CorruptData(f"{path}: {info.filename} has the unknown version {version}; write it with NumPy")
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
        if dtype.hasobject:
            raise CorruptData(
                f"{path}: {info.filename} holds Python objects, which are not loaded; store plain numbers"
            )
        size = math.prod(shape) * dtype.itemsize
        if size > MOST_BYTES or size > info.file_size:
            raise CorruptData(f"{path}: {info.filename} announces {size:,} bytes, more than it holds or may hold")
        data = file.read(size + 1)
    if len(data) != size:
        raise CorruptData(f"{path}: {info.filename} is truncated or padded; fetch it again")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def tar_members(path: Path, names: tuple[str, ...], size: int) -> list[bytes]:
    """Files of a gzipped tar archive, each of exactly `size` bytes; nothing is extracted to a disk."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                if member.name in names:
                    file = archive.extractfile(member) if member.isreg() and member.size == size else None
                    if file is None:
                        raise CorruptData(
                            f"{path}: {member.name} is not a plain file of {size:,} bytes; fetch it again"
                        )
                    found[member.name] = file.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise CorruptData(f"{path} cannot be unpacked ({error}); fetch it again") from None
    missing = [n for n in names if len(found.get(n, b"")) != size]
    if missing:
        raise CorruptData(f"{path} lacks {missing[0]}; fetch it again")
    return [found[n] for n in names]


def table(path: Path, heading: bool = True) -> Any:
    """A csv file, gzipped or not, as a pandas frame; its first line names the columns unless it has no `heading`."""
    import pandas as pd

    try:
        text = io.BytesIO(unpack(path) if path.suffix == ".gz" else path.read_bytes())
        return pd.read_csv(text, header=0 if heading else None)
    except OSError as error:
        raise InvalidInput(f"{shown(path)}: cannot be read ({error.strerror}); give the path of a csv file") from None
    except ValueError as error:  # not text, not a table, empty: all of pandas' own are ValueErrors
        raise CorruptData(f"{shown(path)} is no csv table ({shown(error, 80)}); give another file") from None

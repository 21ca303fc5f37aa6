"""Reading recordings that somebody else made: bounded in size, never unpickled, never trusted.

A file that cannot be opened, or is of a kind we do not read, is the caller's mistake (InvalidInput); one that
is not what it claims to be is CorruptData.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.checks import path_of
from fedsim.devices.columns import Array
from fedsim.errors import CorruptData, InvalidInput, shown

LIMIT = 2**30  # bytes after decompression: a small archive can unpack to anything
NO_PICKLE = (
    "a pickle can run any code when it is opened, so it is not read; where you trust it, convert it by"
    " json.dump(pickle.load(open(old, 'rb')), open(new, 'w')) and give the new file"
)


def read_bytes(path: str | Path) -> bytes:
    """The whole file, unpacked if it is gzip; pickles are refused."""
    path = path_of("path", path)
    try:
        with path.open("rb") as file:
            start = file.read(2)
            if start[:1] == b"\x80" or path.suffix in (".pkl", ".pickle"):
                raise InvalidInput(f"{path}: {NO_PICKLE}")
            file.seek(0)
            if start != b"\x1f\x8b":
                data = file.read(LIMIT + 1)
            else:
                with gzip.GzipFile(fileobj=file) as unpacked:
                    data = unpacked.read(LIMIT + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorruptData(f"{path}: the gzip file is damaged ({error}); fetch it again") from error
    except OSError as error:
        raise InvalidInput(f"{shown(path)}: cannot be read ({error.strerror}); give a trace file's path") from error
    if len(data) > LIMIT:
        raise InvalidInput(f"{path}: over {LIMIT} bytes when unpacked; split it into smaller files")
    return data


def read_csv(path: str | Path, names: Sequence[str]) -> dict[str, list[str]]:
    """The named columns of a CSV file (gzip or plain) as text; there is at least one row."""
    data = read_bytes(path)
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8")), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise CorruptData(f"{path}: not a CSV file in UTF-8 ({error})") from error
    header = rows[0] if rows else []
    missing = [name for name in names if name not in header]
    if missing or len(rows) < 2:
        raise CorruptData(f"{path}: needs the columns {', '.join(names)} and a row; missing: {missing or 'rows'}")
    for i, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise CorruptData(f"{path}: line {i} has {len(row)} fields, the header has {len(header)}")
    return {name: [row[header.index(name)] for row in rows[1:]] for name in names}


def numbers(path: str | Path, name: str, texts: Sequence[Any]) -> Array:
    """A column of numbers, float64; empty fields become NaN."""
    try:
        return np.array([np.nan if text == "" else float(text) for text in texts], np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise CorruptData(f"{path}: column {name} is not all numbers ({error})") from error


def read_npz(path: str | Path, kinds: dict[str, str]) -> dict[str, Array]:
    """The named arrays of an .npz file, one-dimensional, each of its kind ("f" float, "i" integer, ...)."""
    data = read_bytes(path)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > LIMIT:
                raise InvalidInput(f"{path}: over {LIMIT} bytes when unpacked; split it into smaller files")
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in kinds}
    except InvalidInput:
        raise
    except KeyError as error:
        raise CorruptData(f"{path}: needs the arrays {', '.join(kinds)}; {error}") from error
    except Exception as error:  # numpy and zipfile raise a dozen kinds on damaged bytes
        raise CorruptData(f"{path}: not a readable .npz file ({error})") from error
    for name, kind in kinds.items():
        if not isinstance(arrays[name], np.ndarray) or arrays[name].ndim != 1 or arrays[name].dtype.kind != kind:
            raise CorruptData(f"{path}: the array {name} has to be one-dimensional and of kind {kind!r}")
    return arrays


def checked_offsets(path: str | Path, offsets: Array, owners: int, total: int) -> Array:
    """Offsets that cut `total` items into `owners` pieces."""
    bounds = offsets.astype(np.int64)
    if len(bounds) != owners + 1 or bounds[0] != 0 or bounds[-1] != total or (np.diff(bounds) < 0).any():
        raise CorruptData(f"{path}: offsets do not cut {total} items into {owners} pieces")
    return bounds


def read_records(path: str | Path, fields: Sequence[str]) -> list[dict[str, Any]]:
    """The values of a JSON object {whole number: {field: ...}}, in the order of the numbers; at least one."""
    data = read_bytes(path)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        if data.endswith(b"."):  # as the oldest pickles do, which begin like text
            raise InvalidInput(f"{path}: {NO_PICKLE}") from error
        raise CorruptData(f"{path}: not a JSON file ({error})") from error
    if not isinstance(content, dict) or not content:
        raise CorruptData(f"{path}: has to be a JSON object with one entry per client")
    try:
        ordered = sorted((int(client), client) for client in content)
    except ValueError as error:
        raise CorruptData(f"{path}: client ids have to be whole numbers ({error})") from error
    records = [content[client] for _, client in ordered]
    for (_, client), record in zip(ordered, records, strict=True):
        if not isinstance(record, dict) or any(field not in record for field in fields):
            raise CorruptData(f"{path}: client {client} needs the fields {', '.join(fields)}")
    return records

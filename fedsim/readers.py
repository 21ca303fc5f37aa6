"""Bounded readers of untrusted files: CSV, NPZ, Parquet, IDX, TAR and JSON, plain or gzipped.

No reader runs code from a file, unpickles, or exceeds its limit of memory: the size that a file declares is checked
before it is read. A file that cannot be opened or has an
unsupported format is an InvalidInput; damaged content is CorruptData.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.checks import check_path
from fedsim.errors import CorruptData, InvalidInput
from fedsim.text import short_str

if TYPE_CHECKING:
    import pandas as pd

LIMIT = 2**30  # bytes after decompression
NO_PICKLE = (
    "a pickle can run any code when it is opened, so it is not read; if you trust it, convert it with"
    " json.dump(pickle.load(open(old, 'rb')), open(new, 'w')) and give the new file"
)


def read_bytes(path: str | Path) -> bytes:
    """Return the bytes of a file, unpacked if it is gzip; pickles are refused."""
    path = check_path("path", path)
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
        raise InvalidInput(f"{short_str(path)}: cannot be read ({error.strerror}); give a trace file's path") from error
    if len(data) > LIMIT:
        raise InvalidInput(f"{path}: over {LIMIT} bytes when unpacked; split it into smaller files")
    return data


def read_csv(path: str | Path, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the named columns of a CSV file (gzip or plain) as text, with at least one row."""
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
    """Return a column of numbers, float64; empty fields become NaN."""
    try:
        return np.array([np.nan if text == "" else float(text) for text in texts], np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise CorruptData(f"{path}: column {name} is not all numbers ({error})") from error


def read_npz(path: str | Path, kinds: dict[str, str]) -> dict[str, Array]:
    """Return the named arrays of an .npz file, one-dimensional, each of its kind ("f" float, "i" integer, ...)."""
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
    except Exception as error:  # numpy and zipfile raise many types on damaged bytes
        raise CorruptData(f"{path}: not a readable .npz file ({error})") from error
    for name, kind in kinds.items():
        if not isinstance(arrays[name], np.ndarray) or arrays[name].ndim != 1 or arrays[name].dtype.kind != kind:
            raise CorruptData(f"{path}: the array {name} must be one-dimensional and of kind {kind!r}")
    return arrays


def checked_offsets(path: str | Path, offsets: Array, owners: int, total: int) -> Array:
    """Return offsets that cut `total` items into `owners` pieces."""
    bounds = offsets.astype(np.int64)
    if len(bounds) != owners + 1 or bounds[0] != 0 or bounds[-1] != total or (np.diff(bounds) < 0).any():
        raise CorruptData(f"{path}: offsets do not cut {total} items into {owners} pieces")
    return bounds


def read_records(path: str | Path, fields: Sequence[str]) -> list[dict[str, Any]]:
    """Return the values of a JSON object {integer: {field: ...}} in the order of the integers, at least one."""
    data = read_bytes(path)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        if data.endswith(b"."):  # pickles of protocol 0 start like text
            raise InvalidInput(f"{path}: {NO_PICKLE}") from error
        raise CorruptData(f"{path}: not a JSON file ({error})") from error
    if not isinstance(content, dict) or not content:
        raise CorruptData(f"{path}: must be a JSON object with one entry per client")
    try:
        ordered = sorted((int(client), client) for client in content)
    except ValueError as error:
        raise CorruptData(f"{path}: client ids must be integers ({error})") from error
    records = [content[client] for _, client in ordered]
    for (_, client), record in zip(ordered, records, strict=True):
        if not isinstance(record, dict) or any(field not in record for field in fields):
            raise CorruptData(f"{path}: client {client} needs the fields {', '.join(fields)}")
    return records


MAX_BYTES = 2**31  # of one array, or of one unpacked file
_DTYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def unpack(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return the content of a gzip file of at most `limit` bytes."""
    try:
        with gzip.open(path) as file:
            data = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise CorruptData(f"{path} cannot be unpacked ({error}); fetch it again") from None
    if len(data) > limit:
        raise CorruptData(f"{path} unpacks to more than {limit:,} bytes; give another file")
    return data


def idx(path: Path) -> Array:
    """Return an array in the IDX format of MNIST, gzipped."""
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
    """Return the named arrays of an npz file; Python objects in it are refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            present = {info.filename: info for info in archive.infolist()}
            missing = [n for n in names if f"{n}.npy" not in present]
            if missing:
                raise CorruptData(f"{path} lacks the array {missing[0]!r}; it must contain {', '.join(names)}")
            wanted = [n for n in (*names, *optional) if f"{n}.npy" in present]
            return {name: _member(f"{path}: {name}", archive, present[f"{name}.npy"], MAX_BYTES) for name in wanted}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        if isinstance(error, CorruptData) or not path.exists():
            raise
        raise CorruptData(f"{path} is not an npz file of plain arrays ({error}); fetch or write it again") from None


def stored_arrays(file: IO[bytes]) -> Arrays:
    """Return all arrays of an npz file that fedsim wrote. They are not compressed, so they take no more memory."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            left = file.seek(0, io.SEEK_END)
            for entry in entries:
                left -= entry.file_size
                if entry.flag_bits & 1 or entry.compress_type != zipfile.ZIP_STORED or left < 0:
                    raise CorruptData(f"{short_str(entry.filename)} is encrypted, compressed or larger than the file")
            return {
                entry.filename.removesuffix(".npy"): _member(short_str(entry.filename), archive, entry, entry.file_size)
                for entry in entries
            }
    except (EOFError, ValueError, SyntaxError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise CorruptData(f"not an npz file of plain arrays ({short_str(error)})") from error


def _member(where: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, limit: int) -> Array:
    """Return one array; its size is checked before memory is allocated."""
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise CorruptData(f"{where} has the unknown version {version}; write it with NumPy")
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(file)
        if dtype.hasobject:
            raise CorruptData(f"{where} contains Python objects, which are not loaded; store plain numbers")
        size = math.prod(shape) * dtype.itemsize
        if size > limit or size > info.file_size:
            raise CorruptData(f"{where} has a header for {size:,} bytes, more than it contains or may contain")
        array = np.empty(size, np.uint8)
        read = file.readinto(array.data) if size else 0  # type: ignore[attr-defined]
        while 0 < read < size and (more := file.readinto(array.data[read:])):  # type: ignore[attr-defined]
            read += more
        if read != size or file.read(1):
            raise CorruptData(f"{where} is truncated or padded; fetch it again")
    return array.view(dtype).reshape(shape, order="F" if fortran else "C") if size else np.empty(shape, dtype)


ALWAYS = 2**29  # bytes that a table may take in memory, whatever the size of its file
RATIO = 1000  # of a table in memory to its file: equal numbers are stored once
BATCH = 65_536  # rows


def parquet(file: IO[bytes]) -> pd.DataFrame:
    """Return a Parquet table of numbers, text and lists of numbers; refuse one far larger in memory than its file.

    The file is open: given a path, pyarrow may turn a folder named "a=1" into a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    limit = max(ALWAYS, RATIO * file.seek(0, io.SEEK_END))
    file.seek(0)
    table = pq.ParquetFile(file, page_checksum_verification=True)
    facts, schema = table.metadata, table.schema_arrow
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)

    def is_plain(kind: Any) -> bool:
        return any(is_one(kind) for is_one in kinds)

    def is_long(kind: Any) -> bool:
        of_numbers = pa.types.is_list(kind) and is_plain(kind.value_type)
        return pa.types.is_string(kind) or pa.types.is_large_string(kind) or of_numbers

    if not all(is_plain(f.type) or is_long(f.type) for f in schema):
        raise CorruptData("it has a column of neither numbers, text nor lists of numbers")
    long = [is_long(f.type) for f in schema]
    declared = facts.num_rows * len(schema) * 8
    if declared > limit:
        raise CorruptData(f"it declares {declared:,} bytes, more than {limit:,}")
    groups = [facts.row_group(i) for i in range(facts.num_row_groups)]
    longest = max((g.column(i).total_uncompressed_size for g in groups for i in np.flatnonzero(long)), default=1)
    rows = max(1, min(BATCH, limit // (16 * max(longest, 1))))  # no text or list is longer than its column
    batches, left = [], limit
    for batch in table.iter_batches(rows):
        left -= batch.nbytes
        if left < 0:
            raise CorruptData(f"it takes more than {limit:,} bytes of memory")
        batches.append(batch)
    return pa.Table.from_batches(batches, schema).to_pandas(ignore_metadata=True)


def tar_members(path: Path, names: tuple[str, ...], size: int) -> list[bytes]:
    """Return files of a gzipped tar archive, each of exactly `size` bytes, without extracting to a disk."""
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
    """Return a csv file, gzipped or not, as a pandas frame; the first line has the column names if `heading`."""
    import pandas as pd

    try:
        text = io.BytesIO(unpack(path) if path.suffix == ".gz" else path.read_bytes())
        return pd.read_csv(text, header=0 if heading else None)
    except OSError as error:
        raise InvalidInput(
            f"{short_str(path)}: cannot be read ({error.strerror}); give the path of a csv file"
        ) from None
    except ValueError as error:  # all of pandas' parser errors are ValueErrors
        raise CorruptData(f"{short_str(path)} is not a csv table ({short_str(error, 80)}); give another file") from None

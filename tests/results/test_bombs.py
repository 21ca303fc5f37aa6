"""Small files that would take much memory, and files that are not what they declare, are refused before they are read."""

from __future__ import annotations

import io
import resource
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tools.faults import run

import fedsim as fs
from fedsim import readers
from fedsim.cli.app import call
from fedsim.errors import CorruptData
from fedsim.results.checkpoints import Checkpoints
from fedsim.results.checksums import read_json, with_checksum
from fedsim.results.folder import FORMAT

MOST = 1_500_000_000  # bytes that a refusal may take: less than any of the bombs


def peak() -> int:
    """The most memory that this process has ever used."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def deflated() -> bytes:
    """4 GB of zeros in an array of 4 MB."""
    buffer, zeros = io.BytesIO(), bytes(2**20)
    with (
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("samples.npy", "w", force_zip64=True) as file,
    ):
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (2**29,)})
        for _ in range(4096):
            file.write(zeros)
    return buffer.getvalue()


def announced() -> bytes:
    """An array whose header declares 8 TB."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, archive.open("samples.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
        file.write(bytes(800))
    return buffer.getvalue()


def overlapping() -> bytes:
    """Entries of the directory that all point to one array."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        with archive.open("a.npy", "w") as file:
            np.lib.format.write_array(file, np.zeros(1_000_000))
        for number in range(1000):
            twin = zipfile.ZipInfo(f"{number}.npy")
            first = archive.filelist[0]
            for name in ("header_offset", "file_size", "compress_size", "CRC", "flag_bits", "compress_type"):
                setattr(twin, name, getattr(first, name))
            archive.filelist.append(twin)
    return buffer.getvalue()


def encrypted() -> bytes:
    """An archive whose entries have the flag of encryption."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        with archive.open("samples.npy", "w") as file:
            np.lib.format.write_array(file, np.zeros(3))
        archive.filelist[0].flag_bits |= 1
    return buffer.getvalue()


def objects() -> bytes:
    """An array of Python objects, which is a pickle."""
    buffer = io.BytesIO()
    np.savez(buffer, samples=np.array([{}], object))
    return buffer.getvalue()


def equal_numbers() -> bytes:
    """480 million equal numbers in 1 MB: 3.8 GB in memory."""
    buffer, table = io.BytesIO(), pa.table({"replica": np.zeros(1_200_000, np.int64)})
    with pq.ParquetWriter(buffer, table.schema) as writer:
        for _ in range(400):
            writer.write_table(table)
    return buffer.getvalue()


def equal_texts() -> bytes:
    """100,000 times the same text of 1 MB, which is stored once."""
    buffer = io.BytesIO()
    text = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), ["x" * 1_000_000])
    pq.write_table(pa.table({"replica": text}), buffer, store_schema=False)
    return buffer.getvalue()


def lists() -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"replica": [[[1, 2]], [[3]]]}), buffer)
    return buffer.getvalue()


BOMBS = [
    *(("samples.npz", bomb) for bomb in (deflated, announced, overlapping, encrypted, objects)),
    *(("rounds.parquet", bomb) for bomb in (equal_numbers, equal_texts, lists)),
]


@pytest.mark.parametrize(("name", "bomb"), BOMBS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_bomb_with_a_valid_checksum_is_refused(
    tmp_path: Path, name: str, bomb: Callable[[], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "a")
    data = bomb()
    assert len(data) < 10_000_000
    (tmp_path / "a" / name).write_bytes(data)
    facts = read_json(tmp_path / "a/manifest.json", FORMAT)
    facts["files"][name], facts["sizes"][name] = sha256(data).hexdigest(), len(data)
    (tmp_path / "a/manifest.json").write_bytes(with_checksum(FORMAT, facts))
    before = peak()
    with pytest.raises(CorruptData, match=name) as refused:
        fs.load(tmp_path / "a")
    assert peak() - before < MOST
    assert "\n" not in str(refused.value)
    assert not isinstance(refused.value.__cause__, MemoryError)
    assert call(["report", str(tmp_path / "a")]) != 0
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("bomb", [deflated, announced, overlapping, encrypted, objects])
def test_a_bomb_in_a_checkpoint_is_refused(tmp_path: Path, bomb: Callable[[], bytes]) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", "me")
    checkpoints._write = lambda name, arrays, copy="": _store(tmp_path / "checkpoints" / name, bomb())  # type: ignore[method-assign]
    checkpoints.save(1, {}, None)
    before = peak()
    with pytest.raises(CorruptData, match=r"no checkpoint in .* can be read: checkpoint-000000001.json is damaged"):
        checkpoints.latest()
    assert peak() - before < MOST


def _store(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return sha256(data).hexdigest()


def test_large_tables_of_equal_numbers_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit grows with the file, so that a long run whose columns are constant can be read."""
    monkeypatch.setattr(readers, "ALWAYS", 1)
    table = pa.table({"a": np.arange(1_000_000), "b": np.zeros(1_000_000), "c": ["arrived", None] * 500_000})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    assert readers.parquet(buffer).equals(table.to_pandas())

"""A result as a folder: manifest.json, *.parquet, samples.npz; no pickle.

The manifest holds the SHA-256 of every other file and a checksum of its own. `load` checks them and executes nothing.

A run's folder is in one of these states:

    empty       no files, or temporary files of a killed run
    running     a process holds the folder
    unfinished  a run has started; `is_resumable` if it has a checkpoint, else starting again loses nothing
    complete    a finished result with all its files
    damaged     a finished result with a file that is missing, has another size or, with `check`, other bytes
    foreign     anything else

A folder is that of a run only if its manifest.json, run.json or a checkpoint has our format and its checksum.
Only the holder of the folder's lock repairs it. The result is written to `.complete`, which appears in one step, and
moved from there, manifest last. If a run is killed between these moves, the next process finishes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from fedsim import readers
from fedsim.errors import CorruptData, FedsimError, InvalidInput
from fedsim.results import files, lock
from fedsim.results.checkpoints import INDEX, is_checkpoint
from fedsim.results.checksums import file_checksum, read_json, with_checksum
from fedsim.results.files import explained, new_folder, remove_stale, sync_files, sync_folder
from fedsim.text import short_str

if TYPE_CHECKING:
    import pandas as pd

    from fedsim.results import Result

FORMAT, OLDER = "fedsim-result-2", ("fedsim-result-1",)  # the first had no digests
RUN_FORMAT, RUN_OLDER = "fedsim-run-2", ("fedsim-run-1",)  # of run.json
_TABLES = ("rounds", "metrics", "clients", "events", "visits")
_OPTIONAL = ("clients", "events", "visits")


def save(result: Result, path: str | Path) -> Path:
    """Write `result` as the new folder `path`, completely or not at all."""
    path = Path(path).absolute()
    with new_folder(path) as folder:
        _write(result, folder)
    return path


def save_in_place(result: Result, path: str | Path) -> Path:
    """Write `result` into the folder of its run, manifest last."""
    path = Path(path).absolute()
    if not path.is_dir():
        raise InvalidInput(f"{path} was removed during the run, so the result cannot be saved")
    with new_folder(path / COMPLETE) as folder:
        _write(result, folder)
    publish(path)
    return path


def _write(result: Result, folder: Path) -> None:
    with_checksum(FORMAT, result.manifest)  # refuses values that JSON cannot hold before a file is written
    arrays = {
        "sample_rounds": np.asarray(result.sample_rounds),
        "lengths": np.asarray(result.lengths),
        "replicas": np.asarray(result.replicas, np.int64),
        "stopped_by": np.asarray(result.stopped_by, np.str_),
    }
    if result.samples is not None:
        arrays["samples"] = result.samples
    tables = {f"{name}.parquet": table for name in _TABLES if (table := getattr(result, name)) is not None}
    for name, table in tables.items():
        with files.new_file(folder / name) as file:
            write_table(file, table)
    with files.new_file(folder / "samples.npz") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    names = (*tables, "samples.npz")
    facts = {
        "files": {n: file_checksum(folder / n) for n in names},
        "sizes": {n: files.size(folder / n) for n in names},
    }
    with files.new_file(folder / MANIFEST) as file:
        file.write(with_checksum(FORMAT, {**result.manifest, **facts}))
    sync_files(folder)


def load(path: str | Path) -> Result:
    """Read a folder that `save` wrote; refuse a damaged one with the name of the file."""
    from fedsim.results import Result

    folder = Path(path)
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is no folder; pass one that fs.run(..., out=...) wrote")
    manifest = read_manifest(folder)
    sums = manifest.pop("files", None)
    manifest.pop("sizes", None)
    if sums is not None and not isinstance(sums, dict):
        raise CorruptData(f"{folder / MANIFEST} is damaged: its list of files is no object")
    tables = {
        name: _read(file, readers.parquet, sums)
        for name in _TABLES
        if (file := folder / f"{name}.parquet").name in (sums or ())
        or name not in _OPTIONAL
        or (sums is None and os.path.lexists(file))
    }
    arrays = _read(folder / "samples.npz", readers.stored_arrays, sums)
    try:
        return Result(
            samples=arrays.get("samples"),
            sample_rounds=arrays["sample_rounds"],
            lengths=arrays["lengths"],
            stopped_by=tuple(str(cause) for cause in arrays["stopped_by"]),
            replicas=tuple(int(replica) for replica in arrays["replicas"]),
            manifest=manifest,
            **tables,
        )
    except (InvalidInput, LookupError, TypeError, ValueError, AttributeError) as error:
        raise CorruptData(f"the files in {folder} do not fit together: {error}") from error


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return a finished run's manifest with the digests of its `files`; refuse an unfinished run."""
    try:
        return read_json(folder / MANIFEST, FORMAT, OLDER)
    except FileNotFoundError:
        found = state(folder)
    if found == "running":
        raise InvalidInput(f"{folder} holds a run that is still going on; wait until it has ended")
    if found == "unfinished":
        raise InvalidInput(f"{folder} holds an unfinished run; go on with: fedsim resume {folder}")
    raise CorruptData(f"{folder / MANIFEST} is missing; is {folder} a folder that fedsim wrote?")


def write_table(file: IO[bytes], table: pd.DataFrame) -> None:
    """Write a table as Parquet: numbers are never null (NaN is a value), integers are int64."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns, fields = [], []
    for name in table.columns:
        values = table[name].to_numpy()
        number = values.dtype.kind in "iufb"
        if values.dtype.kind in "iu":
            values = values.astype(np.int64)
        column = pa.array(values, from_pandas=False) if number else pa.array(table[name], from_pandas=True)
        columns.append(column)
        fields.append(pa.field(str(name), column.type, nullable=not number))
    pq.write_table(pa.Table.from_arrays(columns, schema=pa.schema(fields)), file, write_page_checksum=True)


def _read(path: Path, parse: Callable[[IO[bytes]], Any], sums: dict[str, Any] | None) -> Any:
    try:
        with files.reading(path) as file:
            if sums is not None and file_digest(file, "sha256").hexdigest() != sums.get(path.name):
                raise CorruptData(
                    f"{path} is damaged: its bytes do not match the checksum in {MANIFEST}; "
                    f"remove {path.parent} and run it again, or restore the file"
                )
            file.seek(0)
            try:
                return parse(file)
            except Exception as error:  # parsers of damaged bytes may raise anything, MemoryError included
                raise CorruptData(f"{path} is damaged or not what fedsim wrote: {short_str(error)}") from error
    except FileNotFoundError:
        raise CorruptData(f"{path} is missing; is {path.parent} a folder that fedsim wrote?") from None
    except PermissionError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}); ask its owner for access") from error
    except OSError as error:
        raise CorruptData(f"{path} is damaged or not what fedsim wrote: {error}") from error


State = Literal["empty", "running", "unfinished", "complete", "damaged", "foreign"]
MANIFEST, STARTED, CHECKPOINTS, COMPLETE = "manifest.json", "run.json", "checkpoints", ".complete"


def state(folder: Path, *, held: bool = False, check: bool = False) -> State:
    """Return the state of a folder; without the lock it can change at any time.

    `held`: this process holds the lock. `check`: read every file, not only its size.
    """
    if os.path.lexists(folder / MANIFEST):
        if not damage(folder, check):
            return "complete"
        return "damaged" if _has_format(folder / MANIFEST) else "foreign"
    indices = files.listed(folder / CHECKPOINTS, INDEX)
    began = os.path.lexists(folder / STARTED)
    if is_ours(folder / STARTED) or (began and any(map(is_checkpoint, indices))):
        return "running" if not held and lock.held(folder) else "unfinished"
    if began or any(not _is_left(name) for name in os.listdir(folder)):
        return "foreign"
    return "running" if not held and lock.held(folder) else "empty"


def is_resumable(folder: Path) -> bool:
    """Return True if an unfinished run has a checkpoint."""
    return bool(files.listed(folder / CHECKPOINTS, INDEX))


def damage(folder: Path, check: bool = False) -> str:
    """Return what is wrong with a finished result, "" if nothing is: with the sizes of its files or, with `check`, the
    bytes."""
    try:
        if check:
            load(folder)
            return ""
        manifest = read_manifest(folder)
        sums, sizes = manifest.get("files") or {}, manifest.get("sizes") or {}
        if not isinstance(sums, dict) or not isinstance(sizes, dict):
            return f"{folder / MANIFEST} is damaged: its list of files is no object"
        for name in {*map(str, sums), "samples.npz"}:
            found = files.size(folder / name)
            if found < 0 or found != sizes.get(name, found):
                what = (
                    "is missing" if found < 0 else f"is damaged: it has {found:,} bytes, not {short_str(sizes[name])}"
                )
                return f"{folder / name} {what}; restore it, or remove {folder} and run it again"
        return ""
    except FedsimError as error:
        return str(error)


def _has_format(path: Path) -> bool:
    """Return True if a manifest is or was ours: it names a format."""
    try:
        return b'"fedsim_format": "fedsim-result-' in files.read(path)
    except (OSError, FedsimError):
        return False


def is_ours(path: Path) -> bool:
    """Return True if format and checksum of a manifest.json or run.json are right."""
    formats = (FORMAT, OLDER) if path.name == MANIFEST else (RUN_FORMAT, RUN_OLDER)
    try:
        return bool(read_json(path, *formats))
    except (OSError, FedsimError):
        return False


def _is_left(name: str) -> bool:
    """Return True for the name of a lock or of a temporary file that a killed process can leave."""
    return name in (lock.LOCK, lock.OWNER) or (name[0] == "." and name[-4:] == ".tmp")


def is_clean(folder: Path) -> bool:
    """Return True if a complete folder has no files of an unfinished run."""
    names = os.listdir(folder)
    return not {STARTED, CHECKPOINTS, COMPLETE}.intersection(names) and not any(map(_is_left, names))


def repair(folder: Path) -> State:
    """Publish or remove the files that a killed run has left, and return the state; the caller holds the lock."""
    found = state(folder, held=True)
    if found in ("foreign", "damaged"):
        return found
    for name in (CHECKPOINTS, COMPLETE):
        files.check_folder(folder / name)
    with explained(folder):
        remove_stale(folder, ours=True)
        publish(folder)
        found = state(folder, held=True)
        if found == "complete":
            remove_checkpoints(folder)
    return found


def publish(folder: Path) -> None:
    """Move a complete result, or the results of a grid, to their place, manifest last."""
    aside = folder / COMPLETE
    if not files.is_folder(aside):
        return
    if not is_ours(aside / MANIFEST) and not all(is_ours(path / MANIFEST) for path in files.listed(aside)):
        raise CorruptData(f"{aside} holds no result of fedsim; remove it or choose another --out")
    for path in sorted(files.listed(aside), key=lambda path: path.name == MANIFEST):
        if path.name == MANIFEST:
            sync_folder(folder)
        files.move(path, folder / path.name)
    sync_folder(folder)
    files.remove_folder(aside)


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints and run.json of a complete run."""
    files.remove_folder(folder / CHECKPOINTS)
    if is_ours(folder / STARTED):
        files.remove(folder / STARTED)


def clean(folder: Path) -> None:
    """Repair a folder that no process holds, if it can be written."""
    if not folder.is_dir() or is_clean(folder) or state(folder) in ("foreign", "damaged"):
        return
    with suppress(OSError, FedsimError):
        ours = lock.take(folder)
        try:
            repair(folder)
        finally:
            ours.release()

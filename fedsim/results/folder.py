"""A result as a folder that anyone can read: manifest.json, *.parquet, samples.npz. Never pickle, in or out.

The manifest holds a SHA-256 of every other file and a seal of its own; `load` checks them and executes nothing.

How far a run's folder is, and what a run that was killed has left to be put right.

    free    nothing in it, or nothing but what a killed run left before it began
    begun   a run has begun; there is no checkpoint, so nothing is lost by beginning again
    kept    a run has begun and can go on from a checkpoint
    whole   a finished result
    other   something that is no run's

Only the holder of the folder's lock mends it. The result is written aside as `.whole`, which appears complete, and
moved from there, manifest last: a run that was killed while it did that is finished by whoever comes next.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from fedsim.errors import CorruptData, FedsimError, InUse, InvalidInput
from fedsim.results import lock
from fedsim.results.checksums import file_sum, read_json, sealed
from fedsim.results.files import explained, new_folder, remove_stale, sync_files, sync_folder

if TYPE_CHECKING:
    import pandas as pd

    from fedsim.results import Result

FORMAT, UNSEALED = "fedsim-result-2", "fedsim-result-1"  # the first version had no digests
_TABLES = ("rounds", "metrics", "clients", "events", "visits")
_OPTIONAL = ("clients", "events", "visits")


def save(result: Result, path: str | Path) -> Path:
    """Write `result` as the new folder `path`, whole or not at all."""
    path = Path(path).absolute()
    with new_folder(path) as folder:
        _write(result, folder)
    return path


def complete(result: Result, path: str | Path) -> Path:
    """Write `result` into the folder that its run has been using; the manifest comes last and makes it whole."""
    path = Path(path).absolute()
    if not path.is_dir():
        raise InvalidInput(f"{path} has vanished; the result has nowhere to go")
    with new_folder(path / WHOLE) as folder:
        _write(result, folder)
    settle(path)
    return path


def _write(result: Result, folder: Path) -> None:
    sealed(FORMAT, result.manifest)  # refuses what JSON cannot hold before anything is written
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
        with (folder / name).open("xb") as file:
            write_table(file, table)
    with (folder / "samples.npz").open("xb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    sums = {name: file_sum(folder / name) for name in (*tables, "samples.npz")}
    (folder / MANIFEST).write_bytes(sealed(FORMAT, {**result.manifest, "files": sums}))
    sync_files(folder)


def load(path: str | Path) -> Result:
    """Read a folder that `save` wrote; a damaged or foreign one is refused with the name of the file."""
    from fedsim.results import Result

    folder = Path(path)
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is no folder; pass one that fs.run(..., out=...) wrote")
    manifest = read_manifest(folder)
    sums = manifest.pop("files", None)
    if sums is not None and not isinstance(sums, dict):
        raise CorruptData(f"{folder / MANIFEST} is damaged: its list of files is none")
    tables = {
        name: _read(file, _read_table, sums)
        for name in _TABLES
        if (file := folder / f"{name}.parquet").name in (sums or ())
        or name not in _OPTIONAL
        or (sums is None and file.exists())
    }
    arrays = _read(folder / "samples.npz", _read_arrays, sums)
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
        raise CorruptData(f"the files in {folder} do not belong together: {error}") from error


def read_manifest(folder: Path) -> dict[str, Any]:
    """A finished run's manifest, with the digests of its `files`; an unfinished run is said to be one."""
    try:
        return read_json(folder / MANIFEST, FORMAT, (UNSEALED,))
    except FileNotFoundError:
        found = state(folder)
    if lock.held(folder):
        raise InvalidInput(f"{folder} holds a run that is still going on; wait until it has ended")
    if found in ("begun", "kept"):
        raise InvalidInput(f"{folder} holds an unfinished run; go on with: fedsim resume {folder}")
    raise CorruptData(f"{folder / MANIFEST} is missing; is {folder} a folder that fedsim wrote?")


def write_table(file: IO[bytes], table: pd.DataFrame) -> None:
    """A table as Parquet: numbers are never null (NaN is a value of its own), whole ones are int64."""
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
        if not path.is_file() and path.exists():
            raise CorruptData(f"{path} is damaged: it is no plain file")
        with path.open("rb") as file:
            if sums is not None and file_digest(file, "sha256").hexdigest() != sums.get(path.name):
                raise CorruptData(
                    f"{path} is damaged: its bytes are not those that {MANIFEST} vouches for; "
                    f"remove {path.parent} and run it again, or restore the file"
                )
            file.seek(0)
            return parse(file)
    except FileNotFoundError:
        raise CorruptData(f"{path} is missing; is {path.parent} a folder that fedsim wrote?") from None
    except PermissionError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}); ask its owner for access") from error
    except FedsimError:
        raise
    except Exception as error:  # parsers of damaged bytes may raise anything, MemoryError included
        raise CorruptData(f"{path} is damaged or not what fedsim wrote: {error}") from error


def _read_table(file: IO[bytes]) -> pd.DataFrame:
    import pyarrow.parquet as pq

    # From the open file: given a path, pyarrow may turn a folder named "a=1" into a column.
    return pq.ParquetFile(file, page_checksum_verification=True).read().to_pandas(ignore_metadata=True)


def _read_arrays(file: IO[bytes]) -> dict[str, Any]:
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


State = Literal["free", "begun", "kept", "whole", "other"]
MANIFEST, STARTED, CHECKPOINTS, WHOLE = "manifest.json", "run.json", "checkpoints", ".whole"


def state(folder: Path) -> State:
    """What a folder holds. Without the lock it may be another the next moment."""
    if (folder / MANIFEST).exists():
        return "whole"
    if (folder / STARTED).exists():
        return "kept" if any((folder / CHECKPOINTS).glob("checkpoint-*.json")) else "begun"
    ours = (lock.LOCK, lock.OWNER, WHOLE)
    left = [name for name in os.listdir(folder) if name not in ours and not (name[0] == "." and name[-4:] == ".tmp")]
    return "other" if left else "free"


def is_tidy(folder: Path) -> bool:
    """Whether a whole folder holds nothing that belongs to a run under way."""
    names = os.listdir(folder)
    stale = {STARTED, CHECKPOINTS, WHOLE, lock.LOCK, lock.OWNER}
    return not stale.intersection(names) and not any(n[0] == "." and n[-4:] == ".tmp" for n in names)


def mend(folder: Path) -> State:
    """Finish or take away what a killed run has left; for the holder of the lock."""
    with explained(folder):
        remove_stale(folder, ours=True)
        settle(folder)
        found = state(folder)
        if found == "whole":
            forget(folder)
    return found


def settle(folder: Path) -> None:
    """Move a complete result from aside to its place, the manifest last, for it makes the folder whole."""
    aside = folder / WHOLE
    if not aside.is_dir():
        return
    for path in sorted(aside.iterdir(), key=lambda path: path.name == MANIFEST):
        if path.name == MANIFEST:
            sync_folder(folder)
        path.replace(folder / path.name)
    sync_folder(folder)
    aside.rmdir()


def forget(folder: Path) -> None:
    """Checkpoints have served their purpose."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    (folder / STARTED).unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Mend a folder that nobody is using, as far as we may write there; for those who only want to read it."""
    if not folder.is_dir() or state(folder) == "other" or (state(folder) == "whole" and is_tidy(folder)):
        return
    with suppress(OSError, InUse):
        ours = lock.take(folder)
        try:
            mend(folder)
        finally:
            ours.release()

"""A result as a folder that anyone can read: manifest.json, *.parquet, samples.npz. Never pickle, in or out."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from fedsim.errors import CorruptData, FedsimError, InvalidInput
from fedsim.results.atomic import durable, new_folder

if TYPE_CHECKING:
    import pandas as pd

    from fedsim.results import Result

FORMAT = "fedsim-result-1"
_TABLES = ("rounds", "metrics", "clients", "events")
_OPTIONAL = ("clients", "events")


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
    shutil.rmtree(path / ".whole", ignore_errors=True)  # of a run that was killed while it did this
    with new_folder(path / ".whole") as folder:
        _write(result, folder)
    for file in sorted((path / ".whole").iterdir(), key=lambda f: f.name == "manifest.json"):
        file.replace(path / file.name)
    (path / ".whole").rmdir()
    return path


def _write(result: Result, folder: Path) -> None:
    manifest = to_json({"fedsim_format": FORMAT, **result.manifest})
    arrays = {
        "sample_rounds": np.asarray(result.sample_rounds),
        "lengths": np.asarray(result.lengths),
        "replicas": np.asarray(result.replicas, np.int64),
        "stopped_by": np.asarray(result.stopped_by, np.str_),
    }
    if result.samples is not None:
        arrays["samples"] = result.samples
    for name in _TABLES:
        if (table := getattr(result, name)) is not None:
            with durable(folder / f"{name}.parquet") as file:
                write_table(file, table)
    with durable(folder / "samples.npz") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    with durable(folder / "manifest.json") as file:
        file.write(manifest)


def load(path: str | Path) -> Result:
    """Read a folder that `save` wrote; a damaged or foreign one is refused with the name of the file."""
    from fedsim.results import Result

    folder = Path(path)
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is no folder; pass one that fs.run(..., out=...) wrote")
    manifest = _read(folder / "manifest.json", _read_manifest)
    tables = {
        name: _read(file, _read_table)
        for name in _TABLES
        if (file := folder / f"{name}.parquet").exists() or name not in _OPTIONAL
    }
    arrays = _read(folder / "samples.npz", _read_arrays)
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
    except (InvalidInput, LookupError, TypeError, ValueError) as error:
        raise CorruptData(f"the files in {folder} do not belong together: {error}") from error


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


def to_json(value: Any) -> bytes:
    """`value` as strict JSON; NaN and infinities, which JSON lacks, become the strings nan, inf and -inf."""
    return (json.dumps(_plain(value, "manifest"), indent=2, allow_nan=False) + "\n").encode()


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(float(value))
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist(), where)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    kind = type(value).__name__
    raise InvalidInput(f"{where} is a {kind}, which JSON cannot hold; use numbers, text, lists and dicts")


def _read(path: Path, parse: Callable[[IO[bytes]], Any]) -> Any:
    try:
        with path.open("rb") as file:
            return parse(file)
    except FileNotFoundError:
        raise CorruptData(f"{path} is missing; is {path.parent} a folder that fedsim wrote?") from None
    except PermissionError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}); ask its owner for access") from error
    except FedsimError:
        raise
    except Exception as error:  # parsers of damaged bytes may raise anything, MemoryError included
        raise CorruptData(f"{path} is damaged or not what fedsim wrote: {error}") from error


def _read_manifest(file: IO[bytes]) -> dict[str, Any]:
    manifest = json.loads(file.read())
    found = manifest.pop("fedsim_format", None) if isinstance(manifest, dict) else None
    if found != FORMAT:
        raise CorruptData(f"{file.name} has the format {found!r}; this version of fedsim reads {FORMAT!r}")
    return dict(manifest)


def _read_table(file: IO[bytes]) -> pd.DataFrame:
    import pyarrow.parquet as pq

    # From the open file: given a path, pyarrow may turn a folder named "a=1" into a column.
    return pq.ParquetFile(file, page_checksum_verification=True).read().to_pandas()


def _read_arrays(file: IO[bytes]) -> dict[str, Any]:
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}

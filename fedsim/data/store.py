"""Where data files are, whether they are what they should be, and how they get there.

A file is looked for in the folder that FEDSIM_DATA names and in the cache (`$XDG_CACHE_HOME/fedsim`, else
`~/.cache/fedsim`), each with a folder per data set. Its checksum is checked every time. Nothing is downloaded unless
asked for; what does not arrive whole does not stay. Unpacked arrays are kept in the cache, to be memory-mapped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsim.arrays import Arrays
from fedsim.errors import CorruptData, FedsimError, InvalidInput, RuntimeFailed
from fedsim.results import files as atomic

TRIES = 3


@dataclass(frozen=True)
class File:
    """A file of a data set: any of these checksums will do; the first is that of what `url` gives."""

    name: str
    digests: tuple[str, ...]  # "sha256:..." or "md5:..."
    url: str | None = None


def cache() -> Path:
    """Where downloads and unpacked arrays are kept."""
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "fedsim" if base else Path.home() / ".cache" / "fedsim"


def folders(dataset: str) -> list[Path]:
    named = os.environ.get("FEDSIM_DATA")
    if named and not Path(named).is_dir():
        raise InvalidInput(f"FEDSIM_DATA={named}: no such folder; name the one that holds {dataset}/, or unset it")
    return [Path(root) / dataset for root in (named, cache() / "files") if root]


def find(dataset: str, files: tuple[File, ...], download: bool) -> list[Path] | None:
    """The files, checked; None where one is missing and may not be downloaded."""
    found = []
    for file in files:
        path = next((f / file.name for f in folders(dataset) if (f / file.name).is_file()), None)
        if path is None and download and file.url:
            path = fetch(dataset, file)
        if path is None:
            return None
        check(path, file)
        found.append(path)
    return found


def check(path: Path, file: File) -> None:
    """Refuse a file that is not, to the byte, one of those known."""
    seen = {kind: digest(path, kind) for kind in {d.partition(":")[0] for d in file.digests}}
    if not any(seen[kind] == value for kind, _, value in (d.partition(":") for d in file.digests)):
        size = path.stat().st_size
        raise CorruptData(
            f"{path} ({size:,} bytes) does not have the checksum of {file.name}: it is truncated or was changed; "
            "remove it and fetch it again"
        )


def digest(path: Path, kind: str = "sha256") -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, kind).hexdigest()
    except OSError as error:
        raise InvalidInput(f"cannot read {path} ({error.strerror}); check its permissions") from error


def fetch(dataset: str, file: File) -> Path:
    """Download a file into the cache, tried anew if the line breaks; it appears whole and checked, or not at all."""
    try:
        import pooch
    except ImportError:
        raise InvalidInput(
            f"downloading {dataset} needs pooch: pip install 'fedsim-systems[data]', or put {file.name} into "
            f"{folders(dataset)[-1]}"
        ) from None
    folder = cache() / "files" / dataset
    keeper = pooch.create(
        path=folder, base_url="", registry={file.name: file.digests[0]}, urls={file.name: file.url},
        retry_if_failed=TRIES,
    )  # fmt: skip
    pooch.get_logger().setLevel("WARNING")
    try:
        return Path(keeper.fetch(file.name, downloader=pooch.HTTPDownloader(progressbar=_has_bar(), timeout=30)))
    except ValueError as error:  # the checksum; pooch has removed what came
        raise CorruptData(
            f"{file.url} gave something else than {file.name} ({str(error)[:60]}...); try later"
        ) from None
    except Exception as error:  # whatever requests and the system raise when there is no network
        raise RuntimeFailed(
            f"{dataset}: {file.url} cannot be reached ({type(error).__name__}); go online, or put {file.name} into "
            f"{folder} or FEDSIM_DATA/{dataset}; 'digits' and 'breast-cancer' need no file"
        ) from None


def _has_bar() -> bool:
    from importlib.util import find_spec

    return find_spec("tqdm") is not None


def mapped(key: str, paths: list[Path], decode: Callable[[], Arrays]) -> Arrays:
    """Arrays that `decode` makes of checked files, memory-mapped; made once, and again if the cache is damaged.

    Where the cache cannot be written they stay in memory.
    """
    source = hashlib.sha256("".join(digest(p) for p in paths).encode()).hexdigest()[:16]
    folder = cache() / "arrays" / f"{key}-{source}"
    if folder.is_dir():
        kept = _open(folder)
        if kept is not None:
            return kept
        _remove(folder)
    arrays = decode()
    try:
        with atomic.new_folder(folder) as new:
            for name, array in arrays.items():
                with atomic.durable(new / f"{name}.npy") as file:
                    np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
            sums = {name: digest(new / f"{name}.npy") for name in arrays}
            with atomic.durable(new / "sums.json") as file:
                file.write(json.dumps(sums).encode())
    except FedsimError:  # no room or no right to write there, or somebody else was faster
        pass
    return (_open(folder) if folder.is_dir() else None) or arrays


def _open(folder: Path) -> Arrays | None:
    try:
        sums = json.loads((folder / "sums.json").read_text())
        if any(digest(folder / f"{name}.npy") != value for name, value in sums.items()):
            return None
        return {name: np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in sums}
    except (OSError, ValueError, AttributeError):
        return None


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)

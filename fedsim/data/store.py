"""`load`: data sets by name, from checked files.

A file is looked up in the folder FEDSIM_DATA and in the cache (`$XDG_CACHE_HOME/fedsim`, else `~/.cache/fedsim`), each
with a folder per data set. Its checksum is verified every time. Files are downloaded only with `download=True`, and
incomplete downloads are removed. Unpacked arrays are in the cache, memory-mapped.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np

from fedsim import readers
from fedsim.arrays import Arrays
from fedsim.checks import check_bool, check_path
from fedsim.data import catalogue
from fedsim.data.catalogue import File
from fedsim.data.dataset import Dataset, from_arrays
from fedsim.errors import CorruptData, FedsimError, InvalidInput, RuntimeFailed
from fedsim.results import files as atomic
from fedsim.text import short_repr

TRIES = 3  # of a download that has another checksum
PAUSE_S, TOTAL_S = 30.0, 3600.0  # the longest pause in a download, and the longest download
CHUNK = 2**16
NAMES = (*sorted((*catalogue.INSIDE, *catalogue.ENTRIES)), "synthetic(alpha, beta)")
INSIDE = Path(__file__).parent / "inside"
_SYNTHETIC = re.compile(r"synthetic\(\s*([\d.]+)\s*,\s*([\d.]+)\s*\)")


def load(name: str, *, download: bool = False) -> Dataset:
    """Return a data set by name, or from the path of an npz file with arrays x, y and optionally test_x, test_y."""
    download = check_bool("data.load(download={})", download)
    path = check_path("data.load(name)", name)
    name = str(name)
    if name in catalogue.INSIDE:
        decode, classes, shape, scale = catalogue.INSIDE[name]
        return _dataset(name, decode(INSIDE / f"{name}.npz"), classes, shape, scale)
    if name in catalogue.ENTRIES:
        return _from_files(name, download)
    if parameters := _SYNTHETIC.fullmatch(name):
        return catalogue.synthetic(float(parameters[1]), float(parameters[2]))
    if path.suffix == ".npz":
        if not path.is_file():
            raise InvalidInput(f"data.load({short_repr(name)}): no such file; give the path of an npz file")
        a = readers.npz(path, ("x", "y"), ("test_x", "test_y"))
        return from_arrays(a["x"], a["y"], a.get("test_x"), a.get("test_y"), name=path.stem)
    raise InvalidInput(f"data.load({short_repr(name)}): unknown; choose among {', '.join(NAMES)}, or give an npz file")


def _from_files(name: str, download: bool) -> Dataset:
    entry = catalogue.ENTRIES[name]
    found = find(entry.folder, entry.files, download)
    if found is None and entry.otherwise:
        found = find(entry.folder, entry.otherwise, download)
    if found is None and name == "cifar10-2class":  # airplane and automobile of CIFAR-10
        complete = find("cifar10", catalogue.ENTRIES["cifar10"].files, download)
        if complete is not None:
            return _from_files("cifar10", download).only(0, 1)
    if found is None:
        roots = folders(entry.folder)
        where = " or ".join(map(str, roots))
        lead = (
            f"it is not in FEDSIM_DATA={roots[0].parent}" if len(roots) > 1 else "FEDSIM_DATA names no folder with it"
        )
        remedy = entry.note or "or call data.load with download=True"
        wanted = ", ".join(f.name for f in entry.files)
        raise InvalidInput(f"data.load({name!r}): {lead}; put {wanted} into {where} ({remedy}); 'digits' needs no file")
    arrays = mapped(name, found, lambda: entry.decode(found))
    return _dataset(name, arrays, entry.classes, entry.shape, entry.scale)


def _dataset(name: str, a: dict[str, Any], classes: int, shape: Any, scale: float) -> Dataset:
    return Dataset(
        a["x"], a["y"], a.get("test_x"), a.get("test_y"), classes, name,
        np.asarray(a["scale"]) if "scale" in a else scale, np.asarray(a["shift"]) if "shift" in a else 0.0, shape,
    )  # fmt: skip


def cache() -> Path:
    """Return the folder of downloads and unpacked arrays."""
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) / "fedsim" if base else Path.home() / ".cache" / "fedsim"


def folders(dataset: str) -> list[Path]:
    """Return the folders in which the files of a data set are looked up."""
    named = os.environ.get("FEDSIM_DATA")
    if named and not Path(named).is_dir():
        raise InvalidInput(f"FEDSIM_DATA={named}: no such folder; name the one that holds {dataset}/, or unset it")
    return [Path(root) / dataset for root in (named, cache() / "files") if root]


def find(dataset: str, files: tuple[File, ...], download: bool) -> list[Path] | None:
    """Return the checked files; None if one is missing and must not be downloaded."""
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
    """Refuse a file without one of the known checksums."""
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
    """Download a file into the cache, with retries; it appears complete and checked, or not at all."""
    try:
        import pooch
    except ImportError:
        raise InvalidInput(
            f"downloading {dataset} needs pooch: pip install 'fedsim-systems[data]', or put {file.name} into "
            f"{folders(dataset)[-1]}"
        ) from None
    folder = cache() / "files" / dataset
    downloader = pooch.create(
        path=folder, base_url="", registry={file.name: file.digests[0]}, urls={file.name: file.url},
        retry_if_failed=TRIES,
    )  # fmt: skip
    pooch.get_logger().setLevel("WARNING")
    try:
        return Path(downloader.fetch(file.name, downloader=partial(_download, most=file.most)))
    except FedsimError:
        raise
    except ValueError as error:  # the checksum; pooch has removed the file
        raise CorruptData(
            f"{file.url} returned another file than {file.name} ({str(error)[:60]}...); try later"
        ) from None
    except Exception as error:  # any error of requests or the system without a network
        raise RuntimeFailed(
            f"{dataset}: {file.url} cannot be reached ({type(error).__name__}); go online, or put {file.name} into "
            f"{folder} or FEDSIM_DATA/{dataset}; 'digits' and 'breast-cancer' need no file"
        ) from None


def _download(url: str, path: str, _: object, *, most: int) -> None:
    """Download a file of at most `most` bytes in at most TOTAL_S seconds, with a bar if tqdm is installed."""
    with ExitStack() as stack:
        bar = None
        if find_spec("tqdm") is not None:
            from tqdm import tqdm  # type: ignore[import-untyped]

            bar = stack.enter_context(tqdm(unit="B", unit_scale=True))
        until, left = time.monotonic() + TOTAL_S, most
        response = stack.enter_context(urlopen(url, timeout=PAUSE_S))
        file = stack.enter_context(open(path, "wb"))
        while data := response.read1(CHUNK):  # what has arrived: a slow server does not keep it waiting
            left -= len(data)
            if left < 0:
                raise CorruptData(f"{url} sends more than the {most:,} bytes that the file has at most; try later")
            if time.monotonic() > until:
                raise RuntimeFailed(f"{url} takes longer than {TOTAL_S:,.0f} s; try later, or fetch the file yourself")
            file.write(data)
            if bar is not None:
                bar.update(len(data))


def mapped(key: str, paths: list[Path], decode: Callable[[], Arrays]) -> Arrays:
    """Return the arrays that `decode` makes of checked files, memory-mapped from the cache.

    They are made again if the cache is damaged, and are in memory if the cache cannot be written.
    """
    source = hashlib.sha256("".join(digest(p) for p in paths).encode()).hexdigest()[:16]
    folder = cache() / "arrays" / f"{key}-{source}"
    if folder.is_dir():
        cached = _open(folder)
        if cached is not None:
            return cached
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
    except FedsimError:  # no space, no permission, or another process was faster
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
    shutil.rmtree(folder, ignore_errors=True)

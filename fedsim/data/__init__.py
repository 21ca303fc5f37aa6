"""Data sets by name, arrays of your own, and who holds which rows.

    d = fs.data.load("digits")                                # x, y, test_x, test_y, classes, name
    shards = fs.data.dirichlet(d.y, clients=100, alpha=0.3, seed=1)
    problem = fs.problems.SoftmaxRegression.of(d, shards)

`digits` and `breast-cancer` are inside the package. Others are looked for in the folder that FEDSIM_DATA names and in
the cache; `load(name, download=True)` fetches what is missing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from fedsim import readers
from fedsim.checks import check_bool, check_path
from fedsim.data import catalogue, store
from fedsim.data.catalogue import synthetic
from fedsim.data.dataset import Dataset, from_arrays, from_frame, from_huggingface
from fedsim.data.distribution import holdings, picture
from fedsim.data.partition import dirichlet, dominant, iid, natural, pathological, quantity, shards
from fedsim.errors import InvalidInput
from fedsim.text import short_repr

__all__ = [
    "NAMES",
    "Dataset",
    "dirichlet",
    "dominant",
    "from_arrays",
    "from_frame",
    "from_huggingface",
    "holdings",
    "iid",
    "load",
    "natural",
    "pathological",
    "picture",
    "quantity",
    "shards",
    "synthetic",
]
NAMES = (*sorted((*catalogue.INSIDE, *catalogue.ENTRIES)), "synthetic(alpha, beta)")
_INSIDE = Path(__file__).parent / "inside"
_SYNTHETIC = re.compile(r"synthetic\(\s*([\d.]+)\s*,\s*([\d.]+)\s*\)")


def load(name: str, *, download: bool = False) -> Dataset:
    """A data set by name, or an npz file with arrays x, y and, if it has them, test_x, test_y, by path."""
    download = check_bool("data.load(download={})", download)
    path = check_path("data.load(name)", name)
    name = str(name)
    if name in catalogue.INSIDE:
        decode, classes, shape, scale = catalogue.INSIDE[name]
        return _dataset(name, decode(_INSIDE / f"{name}.npz"), classes, shape, scale)
    if name in catalogue.ENTRIES:
        return _from_files(name, download)
    made = _SYNTHETIC.fullmatch(name)
    if made:
        return synthetic(float(made[1]), float(made[2]))
    if path.suffix == ".npz":
        if not path.is_file():
            raise InvalidInput(f"data.load({short_repr(name)}): no such file; give the path of an npz file")
        a = readers.npz(path, ("x", "y"), ("test_x", "test_y"))
        return from_arrays(a["x"], a["y"], a.get("test_x"), a.get("test_y"), name=path.stem)
    raise InvalidInput(f"data.load({short_repr(name)}): unknown; choose among {', '.join(NAMES)}, or give an npz file")


def _from_files(name: str, download: bool) -> Dataset:
    entry = catalogue.ENTRIES[name]
    found = store.find(entry.folder, entry.files, download)
    if found is None and entry.otherwise:
        found = store.find(entry.folder, entry.otherwise, download)
    if found is None and name == "cifar10-2class":  # airplane and automobile, out of the whole set
        whole = store.find("cifar10", catalogue.ENTRIES["cifar10"].files, download)
        if whole is not None:
            return _from_files("cifar10", download).only(0, 1)
    if found is None:
        where = " or ".join(str(f) for f in store.folders(entry.folder))
        remedy = entry.note or "or call data.load with download=True"
        wanted = ", ".join(f.name for f in entry.files)
        raise InvalidInput(f"data.load({name!r}): put {wanted} into {where} ({remedy}); 'digits' needs no file")
    arrays = store.mapped(name, found, lambda: entry.decode(found))
    return _dataset(name, arrays, entry.classes, entry.shape, entry.scale)


def _dataset(name: str, a: dict[str, Any], classes: int, shape: Any, scale: float) -> Dataset:
    return Dataset(
        a["x"], a["y"], a.get("test_x"), a.get("test_y"), classes, name,
        np.asarray(a["scale"]) if "scale" in a else scale, np.asarray(a["shift"]) if "shift" in a else 0.0, shape,
    )  # fmt: skip

"""Data sets by name, data sets of your own arrays, and partitions of rows over clients.

    d = fs.data.load("digits")                                # x, y, test_x, test_y, classes, name
    shards = fs.data.dirichlet(d.y, clients=100, alpha=0.3, seed=1)
    problem = fs.problems.SoftmaxRegression.of(d, shards)

`digits` and `breast-cancer` are inside the package. Others are looked up in the folder FEDSIM_DATA and in the cache;
`load(name, download=True)` downloads missing files.
"""

from __future__ import annotations

from fedsim.data.catalogue import synthetic
from fedsim.data.dataset import Dataset, from_arrays, from_frame, from_huggingface
from fedsim.data.distribution import draw_label_counts, label_counts
from fedsim.data.partition import dirichlet, dominant, iid, natural, pathological, quantity, shards
from fedsim.data.store import NAMES, load

__all__ = [
    "NAMES",
    "Dataset",
    "dirichlet",
    "dominant",
    "draw_label_counts",
    "from_arrays",
    "from_frame",
    "from_huggingface",
    "iid",
    "label_counts",
    "load",
    "natural",
    "pathological",
    "quantity",
    "shards",
    "synthetic",
]

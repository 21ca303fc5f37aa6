"""The known data sets: their files with checksums and addresses, and the arrays made from them.

Besides downloads these are GiveMeSomeCredit as Perdomo, Zrnic, Mendler-Duenner and Hardt (ICML 2020) prepare it, and
SYNTHETIC(alpha, beta) of Li et al. (FedProx, MLSys 2020), whose users differ in models and features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsim import readers, rng
from fedsim.arrays import Array, Arrays
from fedsim.checks import as_float_array, check_allocation, check_bool, check_int, check_positive
from fedsim.data.dataset import Dataset
from fedsim.errors import CorruptData
from fedsim.kernels import reference
from fedsim.rng import Stream, keys, uniform

CIFAR_ROWS = 10_000  # in each of six files
TEST_SHARE = 0.2  # of data sets without test rows


@dataclass(frozen=True)
class File:
    """A file of a data set with its valid checksums; the first is that of the file at `url`."""

    name: str
    digests: tuple[str, ...]  # "sha256:..."
    url: str | None = None
    most: int = 0  # bytes of a download


@dataclass(frozen=True)
class CatalogueEntry:
    """Files in the folder `folder` of FEDSIM_DATA, and a function that decodes them to x, y, test_x, test_y."""

    folder: str
    files: tuple[File, ...]
    decode: Callable[[list[Path]], Arrays]
    classes: int
    shape: tuple[int, ...] | None = None
    scale: float = 1.0
    note: str = ""  # where to get files that cannot be downloaded
    otherwise: tuple[File, ...] = ()  # other files with the same arrays


def split(x: Array, y: Array) -> Arrays:
    """Return a fifth of the rows as test rows, the same on every machine, and the others in their order."""
    order = np.argsort(uniform(keys(0, Stream.DATA), len(x))[0], kind="stable")
    held = np.zeros(len(x), bool)
    held[order[: round(TEST_SHARE * len(x))]] = True
    return {"x": x[~held], "y": y[~held], "test_x": x[held], "test_y": y[held]}


def standardised(arrays: Arrays) -> Arrays:
    """Add the scale and shift per column that give the training rows mean 0 and variance 1."""
    deviation = arrays["x"].std(axis=0, dtype=np.float64)
    scale = 1 / np.where(deviation > 0, deviation, 1.0)
    return {**arrays, "scale": scale, "shift": -arrays["x"].mean(axis=0, dtype=np.float64) * scale}


def _mnist(paths: list[Path]) -> Arrays:
    x, y, test_x, test_y = (readers.idx(p) for p in paths)
    return {"x": x.reshape(len(x), -1), "y": y, "test_x": test_x.reshape(len(test_x), -1), "test_y": test_y}


def _idx_files(*known: tuple[str, ...], url: str) -> tuple[File, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple(
        File(f"{name}-ubyte.gz", digests, f"{url}{name}-ubyte.gz", 30_000_000)
        for name, digests in zip(names, known, strict=True)
    )


def _cifar10(paths: list[Path]) -> Arrays:
    """Decode the binary archive, six files of label and pixels by channel; rows become (32, 32, 3)."""
    names = (*(f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)), "cifar-10-batches-bin/test_batch.bin")
    files = readers.tar_members(paths[0], names, CIFAR_ROWS * 3073)
    parts = [np.frombuffer(b, np.uint8).reshape(-1, 3073) for b in files]

    def pixels(rows: Array) -> Array:
        return np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)).reshape(len(rows), -1)

    train, test = np.concatenate(parts[:5]), parts[5]
    return {"x": pixels(train), "y": train[:, 0].copy(), "test_x": pixels(test), "test_y": test[:, 0].copy()}


def _cifar10_two(paths: list[Path]) -> Arrays:
    a = readers.npz(paths[0], ("x_train", "y_train", "x_test", "y_test"))
    x, test_x = (a[name].reshape(len(a[name]), -1) for name in ("x_train", "x_test"))
    return {"x": x, "y": a["y_train"], "test_x": test_x, "test_y": a["y_test"]}


def _covtype(paths: list[Path]) -> Arrays:
    """Decode arrays X and y, or UCI's table: 54 columns and the cover type, 1 to 7."""
    if paths[0].suffix == ".npz":
        a = readers.npz(paths[0], ("X", "y"))
    else:
        rows = readers.table(paths[0], heading=False).to_numpy(np.int16)
        a = {"X": rows[:, :-1], "y": rows[:, -1].astype(np.uint8)}
    return standardised(split(a["X"], a["y"] - np.uint8(1)))


def _credit(paths: list[Path]) -> Arrays:
    x, y = prepare(readers.table(paths[0]))
    return {"x": x, "y": y}


def digits(path: Path) -> Arrays:
    a = readers.npz(path, ("x", "y"))
    return split(a["x"], a["y"])


def breast_cancer(path: Path) -> Arrays:
    a = readers.npz(path, ("x", "y"))
    return standardised(split(a["x"], a["y"]))


INSIDE: dict[str, tuple[Callable[[Path], Arrays], int, tuple[int, ...] | None, float]] = {
    "digits": (digits, 10, (8, 8), 1 / 16),
    "breast-cancer": (breast_cancer, 2, None, 1.0),
}
FASHION = (
    ("sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",),
    ("sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",),
    ("sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",),
    ("sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",),
)
MNIST = (  # as published, and the same bytes in another gzip wrapper
    ("sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
     "sha256:71524e2cd1ad2968737f7f2f2ff69cbfc32df8ccddff51593f7cb2d4e0eb5b64"),
    ("sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
     "sha256:fe03b8bd7915f70bf5aa08be480aa413fbd85afcaa58b35d230d335f284fd88e"),
    ("sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
     "sha256:5634745efa576a17e7d4cf5cd9d09123c75e6538e5114267c2d156edaf519341"),
    ("sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
     "sha256:ae18e77e031ccde52407f794d123116439864147d33ac992975f85dd4dc42af6"),
)  # fmt: skip
KMNIST = (
    ("sha256:51467d22d8cc72929e2a028a0428f2086b092bb31cfb79c69cc0a90ce135fde4",),
    ("sha256:e38f9ebcd0f3ebcdec7fc8eabdcdaef93bb0df8ea12bee65224341c8183d8e17",),
    ("sha256:edd7a857845ad6bb1d0ba43fe7e794d164fe2dce499a1694695a792adfac43c5",),
    ("sha256:20bb9a0ef54c7db3efc55a92eef5582c109615df22683c380526788f98e42a1c",),
)
CIFAR10 = File(
    "cifar-10-binary.tar.gz",
    ("sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",),
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    200_000_000,
)
CIFAR10_TWO = File(
    "cifar10_airplane_automobile.npz", ("sha256:0d2882dc9587386bf6bd45c125bab7722b68b895ca8b9d5fd803f27c7e0151f1",)
)
COVTYPE = File("covtype.npz", ("sha256:a8945f6f6e4a18059cb5479031931c7765491f16c28adfa4edf6335fc29e6233",))
COVTYPE_TABLE = File(  # scikit-learn's copy of UCI's file
    "covtype.data.gz",
    ("sha256:614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",),
    "https://ndownloader.figshare.com/files/5976039",
    20_000_000,
)
CREDIT = File("cs-training.csv.gz", ("sha256:af451a1ef057cba625581c4be556cde51043f605b6334988b86149cd4d6e8288",))

_FASHION_AT = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"
_MNIST_AT = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_KMNIST_AT = "https://codh.rois.ac.jp/kmnist/dataset/kmnist/"
ENTRIES = {
    "fashion-mnist": CatalogueEntry(
        "fashion-mnist", _idx_files(*FASHION, url=_FASHION_AT), _mnist, 10, (28, 28), 1 / 255
    ),
    "mnist": CatalogueEntry("mnist", _idx_files(*MNIST, url=_MNIST_AT), _mnist, 10, (28, 28), 1 / 255),
    "kmnist": CatalogueEntry("kmnist", _idx_files(*KMNIST, url=_KMNIST_AT), _mnist, 10, (28, 28), 1 / 255),
    "cifar10": CatalogueEntry("cifar10", (CIFAR10,), _cifar10, 10, (32, 32, 3), 1 / 255),
    "cifar10-2class": CatalogueEntry("cifar10-2class", (CIFAR10_TWO,), _cifar10_two, 2, (32, 32, 3), 1 / 255),
    "covtype": CatalogueEntry(
        "covtype", (COVTYPE,), _covtype, 7, None, 1.0,
        "or UCI's covtype.data.gz, which data.load fetches with download=True", (COVTYPE_TABLE,),
    ),
    "credit": CatalogueEntry(
        "credit", (CREDIT,), _credit, 2, None, 1.0,
        "GiveMeSomeCredit's cs-training.csv, gzipped, from Kaggle, whose terms forbid redistribution",
    ),
}  # fmt: skip

if TYPE_CHECKING:
    import pandas as pd

LABEL = "SeriousDlqin2yrs"
NON_DEFAULTS = 10_000  # rows without a default, the first of the table


def prepare(frame: pd.DataFrame) -> tuple[Array, Array]:
    """Return rows (n, 11) with an intercept last, and labels, 1 for a default, in a fixed random order.

    Rows with a gap are dropped and features standardised over the remaining rows; the result is all defaults and the
    first 10,000 others, 18,357 rows. (The authors' order is NumPy's shuffle with seed 0.)
    """
    if LABEL not in frame.columns or frame.shape[1] != 12:
        raise CorruptData(f"credit: the table must have 12 columns, one of them {LABEL}; this is another file")
    frame = frame.drop(columns=frame.columns[0]).dropna()
    y, x = (as_float_array(part.to_numpy()) for part in (frame.pop(LABEL), frame))
    if x is None or y is None or not np.isfinite(x).all() or not np.isin(y, (0, 1)).all():
        raise CorruptData("credit: the table must contain finite numbers, and labels 0 and 1; this is another file")
    if not len(x) or (np.ptp(x, axis=0) == 0).any():
        raise CorruptData("credit: the table has a column without two different numbers; this is another file")
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    rows = np.concatenate([np.flatnonzero(y == 1), np.flatnonzero(y == 0)[:NON_DEFAULTS]])
    rows = rows[np.argsort(rng.uniform(rng.keys(0, rng.Stream.DATA), len(rows))[0], kind="stable")]
    return np.column_stack([x[rows], np.ones(len(rows))]), y[rows].astype(np.uint8)


ROWS = 450  # of a user, the mean
TEST = 10  # every tenth row of a user is a test row


def synthetic(
    alpha: float = 1.0, beta: float = 1.0, clients: int = 30, features: int = 60, classes: int = 10, seed: int = 0,
    iid: bool = False,
) -> Dataset:  # fmt: skip
    """Return SYNTHETIC(alpha, beta), with alpha and beta as standard deviations.

    User k has u_k ~ N(0, alpha), B_k ~ N(0, beta), W_k, b_k ~ N(u_k, 1), v_k ~ N(B_k, 1), and rows
    x ~ N(v_k, diag(j^-1.2)) and y = argmax(x W_k + b_k), over floor(lognormal(4, 2)) + 50 rows. `iid`: one W and b for
    all, v_k = B_k = 0. `fs.data.natural(d.ids)` gives every user its rows.
    """
    alpha, beta = (
        check_positive("synthetic(alpha={})", alpha, zero=True),
        check_positive("synthetic(beta={})", beta, zero=True),
    )
    clients, features = check_int("synthetic(clients={})", clients), check_int("synthetic(features={})", features)
    classes, iid = check_int("synthetic(classes={})", classes, least=2), check_bool("synthetic(iid={})", iid)
    size = 45.0 * clients * (float(ROWS) * features + (features + 1.0) * classes)
    check_allocation(f"synthetic({clients:,} clients)", size, "ask for fewer clients, features or classes")

    def draw(round: int, lanes: int, rows: int = clients) -> Array:
        return rng.normal(rng.keys(seed, rng.Stream.DATA, round=round, client=np.arange(rows)), lanes)

    sizes = np.floor(reference.exp(4 + 2 * draw(0, 1)[:, 0])).astype(np.int64) + 50
    centre = draw(1, 2) * ((0.0, 0.0) if iid else (alpha, beta))
    weights = draw(2, (features + 1) * classes).reshape(clients, features + 1, classes)
    weights = np.broadcast_to(weights[:1], weights.shape) if iid else weights + centre[:, :1, None]
    v = np.zeros((clients, features)) if iid else draw(3, features) + centre[:, 1:]
    ids = np.repeat(np.arange(clients), sizes)
    x = v[ids] + np.arange(1, features + 1) ** -0.6 * draw(4, features, len(ids))
    y = np.concatenate([(x[ids == k] @ weights[k, :-1] + weights[k, -1]).argmax(axis=1) for k in range(clients)])
    held = np.concatenate([np.arange(n) % TEST == TEST - 1 for n in sizes])
    name = f"synthetic({alpha:g}, {beta:g})"
    return Dataset(x[~held], y[~held], x[held], y[held], classes, name, ids=ids[~held])

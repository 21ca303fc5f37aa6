"""QLSD, figure 1: error of the estimated E|theta| against the bits sent, on the Gaussian toy.

Seven algorithms: LSD*, and QLSD* and QLSD# with 2^4, 2^8 and 2^16 levels. Messages are really Elias-coded.
"""

from itertools import pairwise

import _toy
import numpy as np

import fedsim as fs
from fedsim.reproduce import pick, plots

quick = {"algorithm": _toy.ALGORITHMS, "iterations": 6000, "sampled": 5000, "replicas": 10}
full = {"algorithm": _toy.ALGORITHMS, "iterations": 500_000, "sampled": 50_000, "replicas": 30}


def scenario(
    *,
    algorithm: str = "LSD*",
    step_size: float = _toy.STEP,
    iterations: int = 6000,
    sampled: int = 5000,
    replicas: int = 10,
) -> fs.Scenario:
    return _toy.scenario(algorithm, step_size, iterations, sampled, replicas)


def figure(study):
    made = _toy.problem()
    means = [made.x[a:b, :2].mean(axis=0) for a, b in pairwise(made.offsets)]
    data = {"observations": plots.Series(*made.x[:, :2].T, "points"),
            "clients' means": plots.Series(*np.transpose(means), "points")}  # fmt: skip
    error = {name: _toy.mse(pick(study, algorithm=name)) for name in _toy.ALGORITHMS}
    content = {"two of 50 coordinates": data, "E |theta|, estimated": error}
    x, y = ["y_1", "uplink bits since the warm-up"], ["y_2", "mean squared error"]
    return plots.panels(content, x, y, ["", "xy"])

"""Small problems for tests of policies and algorithms."""

from __future__ import annotations

import numpy as np

from fedsim import rng
from fedsim.arrays import Array, Arrays
from fedsim.problems import GaussianMean, LogisticRegression, SoftmaxRegression
from fedsim.protocols import Job, ProblemLike, Replies, Rng, Visitors

SIZES = (12, 8, 19, 10, 7, 15, 13)  # rows of the clients


def small_problem(clients: int = 7) -> GaussianMean:
    """Return a problem of equal clients in three dimensions, with exact posterior."""
    return GaussianMean.synthetic(clients=clients, dim=3, heterogeneity=2.0, samples=12, seed=5)


def small_problems(own: int | None = None) -> list[ProblemLike]:
    """Return a Gaussian, a logistic and a softmax problem, each with a prior and seven clients of unequal sizes.

    With `own`, all rows but this client's are replaced.
    """
    x, y = _data(own)
    offsets = np.cumsum([0, *SIZES])
    return [
        GaussianMean.from_arrays(x, offsets, np.eye(3), prior_precision=2.0),
        LogisticRegression.from_arrays(x, y % 2, offsets, prior_precision=2.0),
        SoftmaxRegression.from_arrays(x[:, :2], y, offsets, classes=3, prior_precision=2.0),
    ]


def _data(own: int | None = None) -> tuple[Array, Array]:
    """Return rows (n, 3) and labels 0, 1, 2; with `own`, all rows but this client's are replaced."""
    x, y = _drawn(5)
    if own is None:
        return x, y
    mine, (others_x, others_y) = np.repeat(np.arange(len(SIZES)), SIZES) == own, _drawn(6)
    return np.where(mine[:, None], x, others_x), np.where(mine, y, others_y)


def _drawn(seed: int) -> tuple[Array, Array]:
    """Return rows around a centre for each client, and labels that depend on them up to noise."""
    rows = np.arange(sum(SIZES))
    owner = np.repeat(np.arange(len(SIZES)), SIZES)
    centres, noise, doubt = (
        rng.normal(rng.keys(seed, rng.Stream.DATA, round=part, client=index), 3)
        for part, index in enumerate((owner, rows, rows))
    )
    x = np.sqrt(2.0) * centres + noise
    return x, (x + doubt).argmax(axis=1).astype(np.float64)


class ReportsLoss:
    """Gradient descent whose clients report their losses, for policies that read them."""

    local_only = ("loss",)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return {"theta": initial}

    def broadcast(self, state: Arrays) -> Arrays:
        return state

    def work(self, job: Visitors) -> float:
        return 1

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        theta = message["theta"]
        return {"theta": theta - 1e-3 * job.gradient(theta, 0), "loss": job.loss(theta)}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return {"theta": replies.mean("theta")}

"""SYNTHETIC(alpha, beta) of Li et al. (FedProx, MLSys 2020): users whose models and features differ."""

from __future__ import annotations

import numpy as np

from fedsim import rng
from fedsim.arrays import Array
from fedsim.checks import refuse_beyond_memory
from fedsim.data.dataset import Dataset
from fedsim.errors import flag, positive, whole
from fedsim.kernels import reference

ROWS = 450  # of a user, on average
TEST = 10  # every tenth row of a user is for testing


def synthetic(
    alpha: float = 1.0, beta: float = 1.0, clients: int = 30, features: int = 60, classes: int = 10, seed: int = 0,
    iid: bool = False,
) -> Dataset:  # fmt: skip
    """User k has u_k ~ N(0, alpha), B_k ~ N(0, beta), W_k, b_k ~ N(u_k, 1), v_k ~ N(B_k, 1); alpha, beta as deviations.

    x ~ N(v_k, diag(j^-1.2)) and y = argmax(x W_k + b_k), over floor(lognormal(4, 2)) + 50 rows. `iid`: one W and b for
    all, v_k = B_k = 0. `fs.data.natural(d.ids)` gives every user their own rows.
    """
    alpha, beta = positive("synthetic(alpha={})", alpha, zero=True), positive("synthetic(beta={})", beta, zero=True)
    clients, features = whole("synthetic(clients={})", clients), whole("synthetic(features={})", features)
    classes, iid = whole("synthetic(classes={})", classes, least=2), flag("synthetic(iid={})", iid)
    size = 45.0 * clients * (float(ROWS) * features + (features + 1.0) * classes)
    refuse_beyond_memory(f"synthetic({clients:,} clients)", size, "ask for fewer clients, features or classes")

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

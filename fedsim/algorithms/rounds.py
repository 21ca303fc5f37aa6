"""What the kernels of many rounds have in common: who answers in each of them."""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array
from fedsim.protocols import RoundsToTake


def of_round(everybody: Array, rounds: RoundsToTake, k: int) -> tuple[Array, Array, Array]:
    """Whose replies the k-th round folds, their weights, and where each replica's begin; `everybody`: under full()."""
    answered, replicas = rounds.answered, len(rounds.replicas)
    if answered is None:
        clients = len(everybody)
        client, weights = np.tile(np.arange(clients), replicas), np.tile(everybody, replicas)
        starts = clients * np.arange(replicas + 1)
    else:
        starts = answered.starts[k * replicas : (k + 1) * replicas + 1]
        own = slice(starts[0], starts[-1])
        client, weights, starts = answered.client[own], answered.weights[own], starts - starts[0]
    weights.flags.writeable = False  # as where rounds are taken singly: the same compiled sum serves
    return client, weights, starts

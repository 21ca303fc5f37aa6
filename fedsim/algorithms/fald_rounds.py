"""FA-LD for several rounds at a go, where its local steps are compiled: no engine between two rounds.

The bits are those of the rounds taken one by one, through `client` and `server`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsim.algorithms.rounds import of_round
from fedsim.arrays import Array, Arrays
from fedsim.problems import weights_of
from fedsim.protocols import Backend, ManyRounds, ProblemLike, RoundKeys, RoundsToTake

# From theta (jobs, d), clients, their p_c (jobs, 1), keys of private and shared noise and the round to theta (jobs, d).
Walk = Callable[[Array, Array, Array, tuple[Array, Array], int], Array]


def iterations(problem: ProblemLike, backend: Backend, walk: Walk, common: bool) -> ManyRounds:
    """`go(rounds, keys)`; `common`: some noise is shared."""
    p = weights_of(problem)

    def go(rounds: RoundsToTake, keys: RoundKeys) -> tuple[Arrays, Arrays]:
        replicas, first, count = rounds.replicas, rounds.first, rounds.count
        theta, n = rounds.state["theta"], len(replicas)
        weight = p.astype(theta.dtype)[:, None]
        history = np.empty((count, *theta.shape), theta.dtype)
        for k in range(count):
            if k == 0 or rounds.answered is not None:  # everybody is the same in every round
                client, weights, starts = of_round(p, rounds, k)
                at, own = np.repeat(np.arange(n), np.diff(starts)), weight[client]
                who, private = replicas[at], np.empty((len(client), 4), np.uint32)
                shared = np.empty_like(private) if common else private
            keys.noise(who, client, first + k, private)
            if common:
                keys.shared(who, first + k, shared)
            reply = theta[at]
            if len(client):
                reply = walk(reply, client, own, (private, shared), first + k)
            mean = backend.segment_sum(reply, weights, starts)
            nobody = np.diff(starts) == 0
            theta = history[k] = np.where(nobody[:, None], theta, mean) if nobody.any() else mean
        return {"theta": history}, {}

    return go

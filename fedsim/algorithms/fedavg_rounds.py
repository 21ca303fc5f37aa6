"""FedAvg for several rounds at a go, where its local descent is compiled: no engine between two rounds.

The bits are those of the rounds taken one by one, through `client` and `server`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsim.algorithms import local_fused, objectives
from fedsim.algorithms.local import Descent
from fedsim.algorithms.rounds import of_round
from fedsim.arrays import Array, Arrays
from fedsim.problems import weights_of
from fedsim.protocols import Answered, Backend, ManyRounds, ProblemLike, RoundKeys


@dataclass(frozen=True)
class Everybody:
    """What the objective looks at, of all clients."""

    clients: int
    weight: Array  # (clients, 1)
    size: Array  # (clients, 1)


@dataclass(frozen=True)
class JobsOfRound:
    """What the descent looks at of a round's jobs."""

    client: Array  # (jobs,)
    round: int
    rows_key: Array  # (jobs, 4)


def iterations(
    problem: ProblemLike, backend: Backend, how: Descent, objective: str, server_step: float
) -> ManyRounds | None:
    """`go(keys, replicas, first, count, state, memory, answered)`; None where no kernel serves."""
    descend = local_fused.descent(problem, backend, how)
    if descend is None:
        return None
    sizes, p, clients = problem.sizes[:, None], weights_of(problem)[:, None], problem.clients
    everybody = p[:, 0] if objective == "mean" else np.full(clients, 1.0 / clients)  # weights under full()

    def go(
        keys: RoundKeys,
        replicas: Array,
        first: int,
        count: int,
        state: Arrays,
        memory: Arrays,
        answered: Answered | None = None,
    ) -> tuple[Arrays, Arrays]:
        theta, n = state["theta"], len(replicas)
        scale = objectives.scale(objective, Everybody(clients, p.astype(theta.dtype), sizes), theta.dtype)
        history = np.empty((count, *theta.shape), theta.dtype)
        for k in range(count):
            client, shares, starts = of_round(everybody, answered, k, n)
            at = np.repeat(np.arange(n), np.diff(starts))
            key, delta = np.empty((len(client), 4), np.uint32), theta[:0]
            if len(client):
                keys.rows(replicas[at], client, first + k, key)
                delta = descend(JobsOfRound(client, first + k, key), theta[at], scale[client])
            mean = backend.segment_sum(delta, shares, starts)
            theta = history[k] = theta + server_step * mean
        return {"theta": history}, {}

    return go

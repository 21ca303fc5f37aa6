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
from fedsim.protocols import Backend, ManyRounds, ProblemLike, RoundKeys, RoundsToTake


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
    """`go(rounds, keys)`; None where no kernel serves."""
    descend = local_fused.descent(problem, backend, how)
    if descend is None:
        return None
    clients, p, examples = problem.clients, weights_of(problem)[:, None], problem.sizes[:, None]
    everybody = p[:, 0] if objective == "mean" else np.full(clients, 1.0 / clients)  # weights under full()

    def go(rounds: RoundsToTake, keys: RoundKeys) -> tuple[Arrays, Arrays]:
        replicas, first, count = rounds.replicas, rounds.first, rounds.count
        theta, n = rounds.state["theta"], len(replicas)
        scale = objectives.scale(objective, Everybody(clients, p.astype(theta.dtype), examples), theta.dtype)
        history = np.empty((count, *theta.shape), theta.dtype)
        folds = [of_round(everybody, rounds, k) for k in range(count)]
        sizes = np.concatenate([np.diff(starts) for _, _, starts in folds])
        at = np.repeat(np.tile(np.arange(n), count), sizes)
        key = np.empty((len(at), 4), np.uint32)
        number = np.repeat(np.repeat(np.arange(first, first + count), n), sizes)
        keys.rows(replicas[at], np.concatenate([client for client, _, _ in folds]), number, key)
        begin = 0
        for k, (client, shares, starts) in enumerate(folds):
            own, delta = slice(begin, begin + len(client)), theta[:0]
            if len(client):
                delta = descend(JobsOfRound(client, first + k, key[own]), theta[at[own]], scale[client])
            mean = backend.segment_sum(delta, shares, starts)
            theta = history[k] = theta + server_step * mean
            begin = own.stop
        return {"theta": history}, {}

    return go

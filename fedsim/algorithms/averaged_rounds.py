"""FA-LD and FA-HMC for several rounds at a go, where their local steps are compiled: no engine between two rounds.

The bits are those of the rounds taken one by one, through `client` and a server that averages theta.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from fedsim.algorithms.rounds import of_round
from fedsim.arrays import Array, Arrays
from fedsim.problems import weights_of
from fedsim.protocols import Backend, JobOfKernel, Kernel, ManyRounds, ProblemLike, RoundKeys, RoundsToTake


@dataclass(frozen=True)
class KeyedJobs:
    """What the kernels look at of a round's jobs; keys are made for those who ask."""

    problem: ProblemLike
    backend: Backend
    keys: RoundKeys
    replica: Array  # (jobs,)
    client: Array  # (jobs,)
    weight: Array  # (jobs, 1)
    round: int

    @cached_property
    def noise_key(self) -> Array:
        self.keys.noise(self.replica, self.client, self.round, out := self._empty())
        return out

    @cached_property
    def shared_key(self) -> Array:
        self.keys.shared(self.replica, self.round, out := self._empty())
        return out

    @cached_property
    def rows_key(self) -> Array:
        self.keys.rows(self.replica, self.client, self.round, out := self._empty())
        return out

    def gradient(self, theta: Array, step: int) -> Array:
        """Over all rows."""
        return np.asarray(self.backend.gradients(self.problem, theta, self.client, None))

    def _empty(self) -> Array:
        return np.empty((len(self.client), 4), np.uint32)


def iterations(
    problem: ProblemLike, backend: Backend, kernel: Kernel, added: Mapping[str, str] | None = None
) -> ManyRounds:
    """`go(rounds, keys)` of a compiled `client`; `added` names states and the reply that is summed up in each."""
    p, sums = weights_of(problem), added or {}

    def go(rounds: RoundsToTake, keys: RoundKeys) -> tuple[Arrays, Arrays]:
        replicas, state = rounds.replicas, dict(rounds.state)
        memory = {name: m.copy() for name, m in rounds.memory.items()}
        theta = state["theta"]
        own = p.astype(theta.dtype)[:, None]
        history = np.empty((rounds.count, *theta.shape), theta.dtype)
        for k in range(rounds.count):
            if k == 0 or rounds.answered is not None:  # everybody is the same in every round
                client, weights, starts = of_round(p, rounds, k)
                sizes = np.diff(starts)
                at, nobody = np.repeat(np.arange(len(replicas)), sizes), (sizes == 0)[:, None]
                who, weight = replicas[at], own[client]
            message = {name: s[at] for name, s in state.items()}
            reply: Arrays = {"theta": message["theta"]} | {said: message[name] for name, said in sums.items()}
            if len(client):
                job = KeyedJobs(problem, backend, keys, who, client, weight, rounds.first + k)
                recalled = {name: m[at, client] for name, m in memory.items()}
                reply, recalled = kernel(cast(JobOfKernel, job), message, recalled)
                for name, m in recalled.items():
                    memory[name][at, client] = m
            mean = backend.segment_sum(reply["theta"], weights, starts)
            theta = history[k] = np.where(nobody, theta, mean) if nobody.any() else mean
            ones = np.ones(len(client))
            state = {n: state[n] + backend.segment_sum(reply[said], ones, starts) for n, said in sums.items()}
            state["theta"] = theta
        return {name: s[None] for name, s in state.items()} | {"theta": history}, memory

    return go

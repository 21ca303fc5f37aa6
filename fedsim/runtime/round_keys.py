"""The keys that a kernel for many rounds draws with: those of the jobs and servers of the rounds taken one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsim.arrays import Array
from fedsim.protocols import Backend
from fedsim.rng import Stream


@dataclass(frozen=True)
class SeededKeys:
    """The `RoundKeys` of a run with this seed."""

    seed: int
    backend: Backend

    def server(self, replicas: Array, first: int, count: int) -> Array:
        rounds = np.repeat(range(first, first + count), len(replicas))
        return self.backend.keys(self.seed, Stream.SERVER, replica=np.tile(replicas, count), round=rounds)

    def codec(self, replica: Array, client: Array, round: int, out: Array) -> None:
        self.backend.keys_into(out, self.seed, Stream.CODEC, replica, client, round)

    def rows(self, replica: Array, client: Array, round: int, out: Array) -> None:
        self.backend.keys_into(out, self.seed, Stream.BATCH, replica, client, round)

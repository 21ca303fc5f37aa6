"""Many rounds at a go: the keys that such a kernel draws with, and replicas dealt out and put together again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedsim.arrays import Array, Arrays, Numbers
from fedsim.protocols import Answered, Backend, RoundsToTake
from fedsim.rng import Stream


@dataclass(frozen=True)
class SeededKeys:
    """The `RoundKeys` of a run with this seed: those of the jobs and servers of the rounds taken one by one."""

    seed: int
    backend: Backend

    def server(self, replicas: Array, first: int, count: int) -> Array:
        rounds = np.repeat(range(first, first + count), len(replicas))
        return self.backend.keys(self.seed, Stream.SERVER, replica=np.tile(replicas, count), round=rounds)

    def codec(self, replica: Array, client: Array, round: int, out: Array) -> None:
        self.backend.keys_into(out, self.seed, Stream.CODEC, replica, client, round)

    def rows(self, replica: Array, client: Array, round: Numbers, out: Array) -> None:
        self.backend.keys_into(out, self.seed, Stream.BATCH, replica, client, round)

    def noise(self, replica: Array, client: Array, round: int, out: Array) -> None:
        self.backend.keys_into(out, self.seed, Stream.NOISE, replica, client, round)

    def shared(self, replica: Array, round: int, out: Array) -> None:
        self.backend.keys_into(out, self.seed, Stream.SHARED, replica, np.zeros_like(replica), round)


def split(rounds: RoundsToTake, parts: int) -> list[RoundsToTake]:
    """The same rounds of consecutive replicas, in at most so many parts."""
    pieces = [slice(p[0], p[-1] + 1) for p in np.array_split(np.arange(len(rounds.replicas)), parts) if len(p)]
    return [rounds] if len(pieces) == 1 else [_part(rounds, piece) for piece in pieces]


def _part(rounds: RoundsToTake, piece: slice) -> RoundsToTake:
    """Those of some replicas."""
    state, memory = ({n: a[piece] for n, a in arrays.items()} for arrays in (rounds.state, rounds.memory))
    answered = None if rounds.answered is None else _answers(rounds, rounds.answered, piece)
    return replace(rounds, replicas=rounds.replicas[piece], state=state, memory=memory, answered=answered)


def _answers(rounds: RoundsToTake, answered: Answered, piece: slice) -> Answered:
    sizes = np.diff(answered.starts).reshape(rounds.count, len(rounds.replicas))
    kept = np.zeros(sizes.shape, bool)
    kept[:, piece] = True
    rows = np.repeat(kept.ravel(), sizes.ravel())
    starts = np.concatenate([[0], np.cumsum(sizes[:, piece].ravel())])
    return Answered(answered.client[rows], answered.weights[rows], starts)


def joined(done: list[tuple[Arrays, Arrays]]) -> tuple[Arrays, Arrays]:
    """States (rounds or 1, replicas, ...) and memory (replicas, ...) of all parts."""
    if len(done) == 1:
        return done[0]
    states, memories = zip(*done, strict=True)
    return (
        {name: np.concatenate([s[name] for s in states], axis=1) for name in states[0]},
        {name: np.concatenate([m[name] for m in memories]) for name in memories[0]},
    )

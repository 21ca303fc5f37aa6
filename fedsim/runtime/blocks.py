"""Blocks of rounds: broadcast, the compiled clients, segment sums and the server's step, round after round in one call.

The bits are those of the rounds taken one by one. What does not change from round to round is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.protocols import Algorithm
from fedsim.rng import Draws, Stream, check_address
from fedsim.runtime.aggregation import SegmentReplies, Segments, ServerDraws
from fedsim.runtime.jobs import Batch, JobsAtHand, Setting
from fedsim.runtime.validation import server_of

JOBS = 16_384  # whose columns and keys are made in one call: they stay in the caches
KEYS = ("noise_key", "shared_key", "rows_key", "_data_key")  # of a job in one round
FIRST_VISIT = np.zeros((), np.int64)
NO_SITE = np.zeros(1, np.int64)


@dataclass(frozen=True)
class LearningBlock:
    """Rounds of some replicas to be learnt in one call. State and memory stay as they are."""

    replicas: Array  # their numbers
    first: int  # the first round, from 1
    rounds: int
    state: Arrays  # (replicas, ...)
    memory: Arrays  # (replicas, clients, ...)
    segments: Segments  # one per replica, round after round; of one round alone if they are the same in all
    no_reply: Arrays  # (0, ...) the values of no reply

    @property
    def same_cohort(self) -> bool:
        """Return True if all rounds aggregate the same clients with the same weights."""
        return len(self.segments.site) == len(self.replicas)

    def segments_of(self, k: int) -> Segments:
        """Return the segments of the k-th round."""
        n = len(self.replicas)
        return self.segments if self.same_cohort else self.segments.consecutive(k * n, (k + 1) * n)

    def cohorts(self, setting: Setting) -> Iterator[BlockCohort]:
        """Yield the jobs of round after round; columns and keys of some rounds are made in one call."""
        jobs = max(1, len(self.segments.client))
        step = max(1, int(JOBS / (jobs if self.same_cohort else jobs / self.rounds)))
        for begin in range(0, self.rounds, step):
            rounds = range(begin, min(begin + step, self.rounds))
            own = [self.segments] if self.same_cohort else [self.segments_of(k) for k in rounds]
            numbers = range(self.first + rounds.start, self.first + rounds.stop)
            yield from JobColumns(setting, self.replicas, numbers, own).cohorts()

    def parts(self, most: int) -> list[LearningBlock]:
        """Return the same rounds of consecutive replicas, in at most `most` parts."""
        places = np.arange(len(self.replicas))
        pieces = [slice(p[0], p[-1] + 1) for p in np.array_split(places, most) if len(p)]
        return [self] if len(pieces) == 1 else [self._part(piece, places) for piece in pieces]

    def _part(self, piece: slice, places: Array) -> LearningBlock:
        state, memory = ({n: a[piece] for n, a in arrays.items()} for arrays in (self.state, self.memory))
        mine = np.isin(np.resize(places, len(self.segments.site)), places[piece])
        return replace(
            self, replicas=self.replicas[piece], state=state, memory=memory, segments=self.segments.chosen(mine)
        )


class Learnt(NamedTuple):
    """What a block of rounds leaves behind."""

    theta: Array  # (rounds, replicas, d) after every round
    state: Arrays  # (replicas, ...) after the last
    memory: Arrays  # (replicas, clients, ...) after the last

    @staticmethod
    def join(parts: list[Learnt]) -> Learnt:
        """Return consecutive replicas as one."""
        if len(parts) == 1:
            return parts[0]
        state, memory = (
            {name: np.concatenate([p[k][name] for p in parts]) for name in parts[0][k]} for k in (1, 2)
        )  # fmt: skip
        return Learnt(np.concatenate([p.theta for p in parts], axis=1), state, memory)


class JobColumns:
    """The columns of the jobs of some rounds, one after another; keys are made when a client first draws.

    One set of segments serves all these rounds: then the columns are those of one round, and the keys of all.
    """

    def __init__(self, setting: Setting, replicas: Array, rounds: range, segments: list[Segments]) -> None:
        self.setting, self.replicas, self.rounds, self.segments = setting, replicas, rounds, segments
        self.sizes = np.concatenate([s.sizes for s in segments])
        self.at = np.repeat(np.tile(np.arange(len(replicas)), len(segments)), self.sizes)  # places among the replicas
        self.replica, self.client = replicas[self.at], np.concatenate([s.client for s in segments])
        self.weight = setting.weights[self.client].astype(setting.dtype, copy=False)[:, None]
        self.size = setting.problem.sizes[self.client][:, None]
        self._keys: dict[tuple[int, int], Array] = {}

    def cohorts(self) -> Iterator[BlockCohort]:
        """Yield the jobs of every round."""
        same_cohort, begin = len(self.segments) < len(self.rounds), 0
        cohort = BlockCohort(self, self.segments[0], 0)
        for k, round in enumerate(self.rounds):
            if k and not same_cohort:
                cohort = BlockCohort(self, self.segments[k], begin)
            cohort.enter(round, k, begin)
            begin += len(cohort.client)
            yield cohort

    def keys(self, stream: Stream, visit: int) -> Array:
        """Return the keys of all jobs of all rounds."""
        if (stream, visit) not in self._keys:
            times = len(self.rounds) // len(self.segments)
            client = np.zeros(1, np.int64) if stream == Stream.SHARED else np.tile(self.client, times)
            rounds = np.repeat(self._numbers, np.tile(self.sizes, times))
            self._keys[stream, visit] = self._made(stream, np.tile(self.replica, times), client, rounds, visit)
        return self._keys[stream, visit]

    @cached_property
    def server_keys(self) -> Array:
        """The keys of the servers' draws, round after round."""
        replicas = np.tile(self.replicas, len(self.rounds))
        return self._made(Stream.SERVER, replicas, np.zeros(1, np.int64), self._numbers, 0)

    @property
    def _numbers(self) -> Array:
        return np.repeat(np.arange(self.rounds.start - 1, self.rounds.stop - 1), len(self.replicas))

    def _made(self, stream: Stream, replica: Array, client: Array, round: Array, visit: int) -> Array:
        s = self.setting
        made = s.backend.keys(s.seed, stream, replica=replica, client=client, round=round, visit=visit)
        return np.asarray(made)


@dataclass(frozen=True)
class KeysOfRounds:
    """The `RoundKeys` of a compiled block of rounds: those of the jobs and servers of the rounds taken one by one."""

    setting: Setting

    def codec(self, replica: Array, client: Array, round: Array) -> Array:
        return self._made(Stream.CODEC, replica, client, round)

    def rows(self, replica: Array, client: Array, round: Array) -> Array:
        return self._made(Stream.BATCH, replica, client, round)

    def server(self, replica: Array, round: Array) -> Array:
        return self._made(Stream.SERVER, replica, NO_SITE, round)

    def _made(self, stream: Stream, replica: Array, client: Array, round: Array) -> Array:
        out, s = np.empty((len(replica), 4), np.uint32), self.setting
        if s.backend.keys_into(np.uint64(s.seed), np.uint64(stream), replica, client, round - 1, NO_SITE, out):
            check_address(replica=replica, client=client, round=round - 1)
        return out


class BlockCohort(JobsAtHand):
    """The jobs of one round, or of one round after another."""

    def __init__(self, columns: JobColumns, segments: Segments, begin: int) -> None:
        own, self._columns, self.segments = slice(begin, begin + len(segments.client)), columns, segments
        self._setting, self._single, self.clients = columns.setting, False, columns.setting.problem.clients
        self.at, self.client, self.replica = columns.at[own], segments.client, columns.replica[own]
        self.weight, self.size = columns.weight[own], columns.size[own]
        self._batch = Batch(0, self.replica, self.client, FIRST_VISIT, {}, FIRST_VISIT)

    def enter(self, round: int, k: int, begin: int) -> None:
        """Go to a round, the k-th of these columns; its keys begin there."""
        self.round, self._k, self._own = round, k, slice(begin, begin + len(self.client))
        for name in KEYS:
            self.__dict__.pop(name, None)

    @property
    def batch(self) -> Batch:
        """Who works, for messages about errors."""
        return replace(self._batch, round=self.round - 1)

    def server_draws(self) -> ServerDraws:
        """Return the draws of the replicas' servers."""
        return ServerDraws(self._server_draws)

    def _server_draws(self) -> Draws:
        n = len(self._columns.replicas)
        return Draws(self._columns.server_keys[self._k * n : (self._k + 1) * n], False, self._setting.backend)

    def _keys(self, stream: Stream, client: Array, visit: Array | None = None) -> Array:
        return self._columns.keys(stream, 0 if visit is None else visit.item())[self._own]


Replies = Callable[
    [BlockCohort, Arrays, Arrays], tuple[Arrays, Arrays]
]  # jobs, messages and memory: values, new memory


def learn(block: LearningBlock, algorithm: Algorithm, setting: Setting, replies_of: Replies) -> Learnt:
    """Take the rounds of a block; `replies_of` computes those of a cohort from messages and memory by job."""
    state, memory = dict(block.state), {name: m.copy() for name, m in block.memory.items()}
    server, theta = server_of(algorithm), np.empty((block.rounds, *state["theta"].shape), state["theta"].dtype)
    for k, cohort in enumerate(block.cohorts(setting)):
        at, client = cohort.at, cohort.client
        message = {name: m.take(at, axis=0) for name, m in algorithm.broadcast(state).items()}
        recalled = {name: m[at, client] for name, m in memory.items()}
        values, remembered = replies_of(cohort, message, recalled) if len(client) else (block.no_reply, recalled)
        replies = SegmentReplies(values, cohort.segments, cohort.round, state, setting.backend)
        for name, value in server(state, replies, cohort.server_draws()).items():
            state[name] = np.asarray(value, state[name].dtype)
        for name, m in remembered.items():  # clients remember only what the server has aggregated
            memory[name][at, client] = m
        theta[k] = state["theta"]
    return Learnt(theta, state, memory)

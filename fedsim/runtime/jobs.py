"""Jobs, each one client's work in one round of one replica, and batches of jobs in flat arrays.

An algorithm's `client(job, message, memory)` is written once and runs at two ranks. At rank one `job` is a single job
and arrays are (d,). With `batched = True` the same body receives a batch: arrays gain a leading jobs axis,
`job.weight` becomes (jobs, 1), and every method returns one row per job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.errors import InvalidInput
from fedsim.problems import clipped_gradients
from fedsim.problems.shards import rows_per_batch
from fedsim.protocols import (
    BatchSize,
    Codec,
    PortableGradients,
    Potentials,
    Problem,
    Quantise,
    Reacts,
    as_problem,
    call,
    member,
    potentials_of,
)
from fedsim.rng import Stream, check_address
from fedsim.runtime.validation import locked, unlocked

SHARED_CLIENT = FIRST_VISIT = np.zeros(1, np.int64)  # in the keys of draws that clients share


@dataclass(frozen=True)
class Batch:
    """Jobs of one round number. A broadcast is stored once, not once per job."""

    round: int  # from 0, as in keys
    replica: Array  # (jobs,) replica numbers: part of every noise key
    client: Array  # (jobs,)
    visit: Array  # (jobs,) how many visits an asynchronous client had begun before; 0 in synchronous rounds
    message: Arrays  # (versions, ...)
    version: Array  # (jobs,) the row of `message` that a job starts from
    memory: Arrays = field(default_factory=dict)  # (jobs, ...)

    def __len__(self) -> int:
        return len(self.client)

    def part(self, chosen: slice | Array) -> Batch:
        """Return the chosen jobs alone."""
        memory = {name: m[chosen] for name, m in self.memory.items()}
        return Batch(
            self.round, self.replica[chosen], self.client[chosen], self.visit[chosen], self.message,
            self.version[chosen], memory,
        )  # fmt: skip


@dataclass(frozen=True)
class Reply:
    """The result of a batch: decoded values, exact bits on the wire, and the memory to commit once aggregated."""

    values: Arrays  # (jobs, ...)
    bits: Array  # int64 (jobs,)
    memory: Arrays

    def part(self, chosen: Array) -> Reply:
        """Return the chosen jobs' replies alone."""
        return Reply(
            {name: v[chosen] for name, v in self.values.items()},
            self.bits[chosen],
            {name: m[chosen] for name, m in self.memory.items()},
        )

    @staticmethod
    def join(parts: list[Reply]) -> Reply:
        """Return replies of consecutive chunks as one."""
        if len(parts) == 1:
            return parts[0]
        for p in parts:
            for mine, first in ((p.values, parts[0].values), (p.memory, parts[0].memory)):
                if mine.keys() != first.keys():
                    raise InvalidInput(f"clients returned {list(first)} and {list(mine)}; all return the same names")
                for name, array in mine.items():
                    if array.shape[1:] != first[name].shape[1:]:
                        both = f"{first[name].shape[1:]} and {array.shape[1:]}"
                        raise InvalidInput(f"clients returned {name} of shapes {both}; all return the same shape")
        return Reply(
            {name: np.concatenate([p.values[name] for p in parts]) for name in parts[0].values},
            np.concatenate([p.bits for p in parts]),
            {name: np.concatenate([p.memory[name] for p in parts]) for name in parts[0].memory},
        )


@dataclass(frozen=True)
class Encoded:
    """An encoded vector: its value as the server decodes it, and its length on the wire."""

    value: Array
    bits: Any


@dataclass(frozen=True)
class Setting:
    """The data that all jobs of a run share."""

    problem: Any
    weights: Array  # p_c, (clients,)
    seed: int
    dtype: np.dtype[Any]
    backend: Any
    rows: Arrays = field(default_factory=dict)  # latency, bandwidth, dropout of every client, for its host

    @cached_property
    def role(self) -> Problem:
        """The problem with all its optional members."""
        return as_problem(self.problem)

    @cached_property
    def fresh_gradients(self) -> bool:
        """True if its gradients are new arrays, which may be changed in place."""
        return isinstance(self.problem, PortableGradients) or self.role.fresh

    @cached_property
    def potentials(self) -> Potentials:
        """The clients' potentials; a problem without them is refused."""
        return potentials_of(self.problem)

    @cached_property
    def reacts(self) -> bool:
        """True if its data depend on theta."""
        return isinstance(self.problem, Reacts)


class JobsAtHand:
    """What `client` sees of its job or, stacked, of a batch; see `fs.explain("job")`."""

    def __init__(self, setting: Setting, batch: Batch, single: bool) -> None:
        self._setting, self._batch, self._single = setting, batch, single
        self.round, self.clients = batch.round + 1, setting.problem.clients
        self.client: Any = int(batch.client[0]) if single else batch.client
        self.replica: Any = int(batch.replica[0]) if single else batch.replica
        weight = setting.weights[batch.client].astype(setting.dtype, copy=False)
        self.weight: Any = weight[0] if single else weight[:, None]
        sizes = setting.problem.sizes[batch.client]
        self.size: Any = int(sizes[0]) if single else sizes[:, None]

    @property
    def batch(self) -> Batch:
        """The jobs, for messages about errors."""
        return self._batch

    def locked(self) -> JobsAtHand:
        """Return the jobs with read-only columns, for users' code."""
        self.client, self.replica = locked(self._batch.client), locked(self._batch.replica)
        self.weight, self.size = locked(self.weight), locked(self.size)
        return self

    def gradient(
        self, theta: Array, step: int, batch_size: BatchSize = None, *, split: int | None = None,
        clip: float | None = None, prior: bool = True,
    ) -> Array:  # fmt: skip
        """Return the gradient of the client's summed loss at `theta`: all its rows, or a fresh minibatch scaled up.

        Two calls with the same `step` use the same rows, as control variates need. `split=E` takes minibatch `step`
        of E disjoint ones drawn at the round's start; `clip` bounds the norm of every row's own gradient;
        `prior=False` omits the share of the prior, for servers that add it themselves. The caller may change the array.
        """
        problem, theta = self._setting.problem, self._up(theta)
        if self._setting.reacts:  # data are drawn given theta
            keys, backend = self._data_key, self._setting.backend
            return self._down(
                np.array(call(problem, "react", theta, self._batch.client, keys, step, batch_size, backend))
            )
        rows, scale = self._rows(batch_size, step, split)
        if clip is not None:
            out = clipped_gradients(problem, theta, self._batch.client, rows, clip, self._setting.backend)
        else:
            out = self._setting.backend.gradients(problem, theta, self._batch.client, rows)
        fresh = self._setting.fresh_gradients  # else the problem may use the array again
        if scale is not None:
            out = np.multiply(scale, out, out=out if fresh else None)
        elif not fresh:
            out = np.array(out)
        if not prior and (share := self._setting.role.share):
            out = out - (share * problem.sizes[self._batch.client]).astype(theta.dtype)[:, None] * theta
        return self._down(out)

    def normal(self, step: int) -> Array:
        """Return private standard normals of this job, one per coordinate."""
        return self._normal(self.noise_key, step)

    def shared_normal(self, step: int) -> Array:
        """Return standard normals that are equal for all clients of the replica (a common seed, nothing sent)."""
        return self._normal(self.shared_key, step)

    def uniform(self, step: int) -> Array:
        """Return a uniform number of this job: a float64 in (0, 1), shape (1,)."""
        key = self._keys(Stream.COIN, self._batch.client)
        return self._down(self._setting.backend.uniform(key, 1, step))

    def potential(self, theta: Array) -> Array:
        """Return the client's summed loss at `theta` with its share of the prior, in float64, shape (1,)."""
        return self._down(self._setting.potentials(self._up(theta), self._batch.client, None)[:, None])

    def loss(self, theta: Array) -> Array:
        """Return the mean loss at `theta` over the client's rows, without the prior, in float64, shape (1,)."""
        at, sizes = self._up(theta).astype(np.float64), self._setting.problem.sizes[self._batch.client]
        total = self._setting.potentials(at, self._batch.client, None)
        return self._down((total / sizes - self._setting.role.share / 2 * (at * at).sum(axis=1))[:, None])

    def encode(self, codec: Codec | tuple[Codec, ...], value: Array, lane: int = 0) -> Encoded:
        """Return `value` as the server decodes it, with its exact bits; each vector of a reply needs its own `lane`.

        A tuple of codecs is one per client.
        """
        if not isinstance(codec, tuple):
            return self.encode_by(member(codec, "quantise"), value, lane)
        kinds = list(dict.fromkeys(codec))
        kind = np.array([kinds.index(c) for c in codec])[self._batch.client]

        def quantise(values: Array, keys: Array) -> tuple[Array, Array]:
            out, bits = call(kinds[0], "quantise", values, keys)
            for k in np.unique(kind[kind > 0]):
                other, length = call(kinds[k], "quantise", values, keys)
                out, bits = np.where((kind == k)[:, None], other, out), np.where(kind == k, length, bits)
            return out, bits

        return self.encode_by(quantise, value, lane)

    def encode_by(self, quantise: Quantise, value: Array, lane: int = 0) -> Encoded:
        """Encode by a function of (rows, d) and of their keys, such as a kernel that also computes."""
        keys = self._keys(Stream.CODEC, self._batch.client, visit=self._batch.visit * 8 + lane)
        decoded, bits = quantise(self._up(value), keys)
        return Encoded(self._down(decoded), int(bits[0]) if self._single else bits)

    @cached_property
    def noise_key(self) -> Array:
        return self._keys(Stream.NOISE, self._batch.client)

    @cached_property
    def shared_key(self) -> Array:
        return self._keys(Stream.SHARED, SHARED_CLIENT, visit=FIRST_VISIT)

    @cached_property
    def _data_key(self) -> Array:
        return self._keys(Stream.DATA, self._batch.client)

    @cached_property
    def rows_key(self) -> Array:
        return self._keys(Stream.BATCH, self._batch.client)

    def _keys(self, stream: Stream, client: Array, visit: Array | None = None) -> Array:
        b, seed, keys = self._batch, self._setting.seed, np.empty((len(self._batch), 4), np.uint32)
        address = (b.replica, client, np.array([b.round]), b.visit if visit is None else visit)
        if self._setting.backend.keys_into(np.uint64(seed), np.uint64(stream), *address, keys):
            check_address(**dict(zip(("replica", "client", "round", "visit"), address, strict=True)))
        return keys

    def _normal(self, key: Array, step: int) -> Array:
        s = self._setting
        return self._down(s.backend.normal(key, s.problem.dim, step, s.dtype))

    def _rows(
        self, batch_size: BatchSize, step: int, split: int | None
    ) -> tuple[tuple[Array, Array] | None, Array | None]:
        if batch_size is None:
            return None, None
        sizes = self._setting.problem.sizes[self._batch.client]
        m = rows_per_batch(batch_size, sizes, self._batch.client)
        start = np.concatenate([[0], np.cumsum(m)])
        key = self.rows_key
        if split is None:
            rows = self._setting.backend.choose_rows(key, sizes, start, step)
        else:
            all_rows = self._setting.backend.choose_rows(key, sizes, split * start, 0)
            rows = np.concatenate(
                [all_rows[split * a + step * n : split * a + (step + 1) * n] for a, n in zip(start, m, strict=False)]
            )
        return (rows, start), (sizes / m).astype(self._setting.dtype)[:, None]

    def _up(self, value: Array) -> Array:
        value = unlocked(np.asarray(value))
        return value[None] if self._single else value

    def _down(self, value: Array) -> Array:
        return value[0] if self._single else value

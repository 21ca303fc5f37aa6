"""The lengths of messages, before anything is computed.

The length of a reply is measured by running the algorithm's own `client` body once on a job without data: gradients and
noise are zero, and a codec is only asked for its length. So algorithms need not declare what they send.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.checks import call_users_code
from fedsim.errors import ClientFailed
from fedsim.protocols import Algorithm, BatchSize, Codec, FixedLength, Problem, call, member, potentials_of
from fedsim.runtime.jobs import Encoded
from fedsim.runtime.validation import all_locked, client_answer, memory_answer, real


class DryJob:
    """A job of client 0 whose gradients and noise are zero."""

    client, replica, weight, size, clients = 0, 0, 1.0, 1, 1

    def __init__(self, problem: Problem, dtype: np.dtype[Any], round: int) -> None:
        self.round, self._problem, self._zeros = round, problem.wrapped, np.zeros(problem.dim, dtype)

    def gradient(self, theta: Array, step: int, batch_size: BatchSize = None, **options: object) -> Array:
        return self._zeros

    def normal(self, step: int) -> Array:
        return self._zeros

    def shared_normal(self, step: int) -> Array:
        return self._zeros

    def uniform(self, step: int) -> Array:
        return np.full(1, 0.5)

    def potential(self, theta: Array) -> Array:
        potentials_of(self._problem)  # which refuses a problem without them before the first round
        return np.zeros(1)

    def loss(self, theta: Array) -> Array:
        return self.potential(theta)

    def encode(self, codec: Codec | tuple[Codec, ...], value: Array, lane: int = 0) -> Encoded:
        if isinstance(codec, FixedLength) and member(codec, "fixed"):
            return Encoded(value, call(codec, "length", value.shape[-1], value.dtype))
        return Encoded(value, None)  # a codec per client: the length depends on the client


@dataclass(frozen=True)
class ReplyShape:
    """What one reply consists of: an empty array per name, and its bits, None where they depend on the values."""

    values: dict[str, Array]  # (0, ...)
    bits: int | None


def sum_bits(shape: ReplyShape, dtype: np.dtype[Any]) -> int:
    """Return the bits of a sum of such replies, uncompressed, and of their count."""
    return 8 * dtype.itemsize * (sum(math.prod(v.shape[1:]) for v in shape.values.values()) + 1)


def reply_shape(algorithm: Algorithm, problem: Problem, state: Arrays, dtype: np.dtype[Any], round: int) -> ReplyShape:
    """Return the shape of a reply in a round, counted from 1."""
    where = f"{type(algorithm.wrapped).__name__}.client"
    memory = {n: np.asarray(m, dtype) for n, m in algorithm.memory(problem.wrapped).items()}
    message = {n: np.zeros_like(m) for n, m in algorithm.broadcast(state).items()}

    def failed(what: str) -> ClientFailed:
        return ClientFailed(f"{where} {what} (while its reply was measured on a job without data, round {round})")

    job, client = DryJob(problem, dtype, round), algorithm.wrapped.client
    answer = call_users_code(failed, client, job, all_locked(message), all_locked(memory))
    values, remembered = client_answer(where, answer)
    memory_answer(where, remembered, memory)
    bits: int | None = 0
    empty = {}
    for name, v in values.items():
        array = np.asarray(v.value) if isinstance(v, Encoded) else real(where, name, v, dtype)
        empty[name] = np.empty((0, *array.shape), dtype)
        if name in algorithm.local_only:  # it never travels
            continue
        length = v.bits if isinstance(v, Encoded) else array.size * dtype.itemsize * 8
        bits = None if bits is None or length is None else bits + int(length)
    return ReplyShape(empty, bits)

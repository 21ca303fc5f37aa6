"""How long messages are, before anything is computed.

The length of a reply is learnt by running the algorithm's own `client` body once on a job without data: gradients and
noise are zero, and a codec is only asked for its length. Nobody has to declare what they send.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.errors import ClientFailed, FedsimError
from fedsim.runtime.jobs import Encoded

Array = npt.NDArray[Any]


class DryJob:
    """Looks like a job of client 0 and computes nothing."""

    client, replica, weight, size, clients = 0, 0, 1.0, 1, 1

    def __init__(self, dim: int, dtype: np.dtype[Any], round: int) -> None:
        self.round, self._zeros = round, np.zeros(dim, dtype)

    def gradient(self, theta: Array, step: int, batch_size: Any = None, **options: Any) -> Array:
        return self._zeros

    def normal(self, step: int) -> Array:
        return self._zeros

    def shared_normal(self, step: int) -> Array:
        return self._zeros

    def uniform(self, step: int) -> Array:
        return np.full(1, 0.5)

    def potential(self, theta: Array) -> Array:
        return np.zeros(1)

    def encode(self, codec: Any, value: Array, lane: int = 0) -> Encoded:
        return Encoded(value, codec.length(value.shape[-1], value.dtype) if codec.fixed else None)


@dataclass(frozen=True)
class Shape:
    """What one reply consists of: an empty array per name, and its bits, None where they depend on the values."""

    values: dict[str, Array]  # (0, ...)
    bits: int | None


def reply_shape(algorithm: Any, problem: Any, state: dict[str, Array], dtype: np.dtype[Any], round: int) -> Shape:
    """The shape of a reply in this round."""
    rows = algorithm.memory(problem) if hasattr(algorithm, "memory") else {}
    memory = {n: np.asarray(m, dtype) for n, m in rows.items()}
    message = {n: np.zeros_like(m) for n, m in algorithm.broadcast(state).items()}
    try:
        values, _ = algorithm.client(DryJob(problem.dim, dtype, round), message, memory)
    except FedsimError:
        raise
    except Exception as error:
        raise ClientFailed(
            f"{type(algorithm).__name__}.client raised {type(error).__name__}: {error} (while its reply was "
            f"measured on a job without data, round {round + 1})"
        ) from error
    bits: int | None = 0
    empty = {}
    for name, v in values.items():
        array = np.asarray(v.value if isinstance(v, Encoded) else v)
        empty[name] = np.empty((0, *array.shape), dtype)
        if name in getattr(algorithm, "kept", ()):  # it never travels
            continue
        length = v.bits if isinstance(v, Encoded) else array.size * dtype.itemsize * 8
        bits = None if bits is None or length is None else bits + int(length)
    return Shape(empty, bits)


def message_bits(message: dict[str, Array], known: tuple[str, ...] = ()) -> int:
    """Bits of one copy of a broadcast; the arrays have a leading replicas axis.

    What the clients already have from an earlier broadcast (`known`, such as a control point) is not sent again.
    """
    return sum(8 * m.itemsize * math.prod(m.shape[1:]) for name, m in message.items() if name not in known)

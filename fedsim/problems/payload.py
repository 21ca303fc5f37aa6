"""A problem without data, for timing studies: only the lengths of its messages matter."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import check_allocation, is_int
from fedsim.errors import InvalidInput
from fedsim.text import short_str

CLIENT = 150  # bytes of a client's own numbers: its size, weight and counts


class Payload:
    """Equal clients and a number of parameters, without data: run it with `timing_only=True`."""

    timing_only = True  # it has no samples, so none are allocated

    def __init__(self, clients: int, parameters: int) -> None:
        self.clients = _count("clients", clients, most=2**32)
        self.dim = _count("parameters", parameters, most=10**9)
        check_allocation(f"Payload(clients={self.clients:,})", CLIENT * self.clients, "take fewer clients")

    @property
    def sizes(self) -> Array:
        return np.ones(self.clients, np.int64)

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> NoReturn:
        raise InvalidInput("problems.Payload has no data to compute with; run the scenario with timing_only=True")

    potential = gradient


def _count(name: str, value: int, most: int) -> int:
    if not is_int(value, least=1) or value > most:
        raise InvalidInput(f"Payload({name}={short_str(value)}): must be an integer of at least 1 and at most {most:,}")
    return int(value)

"""A model that is only as long as its messages: for timing studies, which need neither data nor numerics."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import is_int, refuse_beyond_memory
from fedsim.errors import InvalidInput
from fedsim.text import short_str

CLIENT = 150  # bytes of a client's own numbers: its size, weight and counts


class Payload:
    """So many equal clients and so many parameters, nothing to learn: run it with `timing_only=True`."""

    timing_only = True  # no samples come of it, so none are budgeted for

    def __init__(self, clients: int, parameters: int) -> None:
        self.clients = _count("clients", clients, most=2**32)
        self.dim = _count("parameters", parameters, most=10**9)
        refuse_beyond_memory(f"Payload(clients={self.clients:,})", CLIENT * self.clients, "take fewer clients")

    @property
    def sizes(self) -> Array:
        return np.ones(self.clients, np.int64)

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> NoReturn:
        raise InvalidInput("problems.Payload has no data to compute with; run the scenario with timing_only=True")

    potential = gradient


def _count(name: str, value: int, most: int) -> int:
    if not is_int(value, least=1) or value > most:
        raise InvalidInput(
            f"Payload({name}={short_str(value)}): must be a whole number of at least 1 and at most {most:,}"
        )
    return int(value)

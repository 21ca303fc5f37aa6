"""A model that is only as long as its messages: for timing studies, which need neither data nor numerics."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from fedsim.errors import InvalidInput

Array = npt.NDArray[Any]


class Payload:
    """So many equal clients and so many parameters, nothing to learn: run it with `compute="skip"`."""

    timing_only = True  # no samples come of it, so none are budgeted for

    def __init__(self, clients: int, parameters: int) -> None:
        for name, value in (("clients", clients), ("parameters", parameters)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise InvalidInput(f"Payload({name}={value!r}): must be a whole number of at least 1")
        self.clients, self.dim = int(clients), int(parameters)

    @property
    def sizes(self) -> Array:
        return np.ones(self.clients, np.int64)

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> NoReturn:
        raise InvalidInput('problems.Payload has no data to compute with; run the scenario with compute="skip"')

"""Virtual time: which clients participate, what arrives when, what was sent. A clock has no access to models.

`simpy/` is the reference: SimPy processes that read like the semantics, for every part, users' own included.
`compiled/` is for parts that have columns. Both call `fedsim.rules` and give the same bits; `choose` decides.
"""

from __future__ import annotations

from typing import Protocol

from fedsim.arrays import Array, Arrays
from fedsim.engine.rounds import RoundBlock


class Clock(Protocol):
    """Blocks of rounds of all replicas."""

    name: str  # "simpy" or "compiled"
    path: str  # "loop" or "short"

    async def next(self, active: Array, rounds: int) -> RoundBlock:
        """Return the next rounds of the active replicas. Where values are asked for, `rounds` is 1."""

    def state(self) -> Arrays:
        """Return what `resume` needs to reach any round since the latest block began."""

    async def resume(self, rounds: int, active: Array, saved: Arrays) -> None:
        """Continue after this many rounds; `saved` is what `state` returned."""

    async def close(self) -> None:
        """Release what the clock holds; the run is over."""


class Learning(Protocol):
    """What a clock may ask the learner, where virtual time depends on values."""

    async def bits(self, position: Array, client: Array, visit: Array, round: int) -> Array:
        """Return the bits of the replies of these visits of a round, which all start from the present broadcast."""

    def observed(self, position: int, clients: Array) -> Array:
        """Return the loss that each client's latest aggregated reply reported; nan where there was none."""

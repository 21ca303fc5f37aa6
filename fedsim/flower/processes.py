"""A runtime of processes on this machine, for `fs.flower.run(..., runtime=fs.flower.Processes(4))`."""

from __future__ import annotations

from dataclasses import dataclass

from fedsim.checks import check_int


@dataclass(frozen=True)
class Processes:
    """Execute ClientApps in processes of their own, as many at a time as there are processes."""

    processes: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "processes", check_int("Processes({})", self.processes))

    def describe(self) -> str:
        return f"{self.processes} processes"

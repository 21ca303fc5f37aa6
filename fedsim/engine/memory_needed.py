"""The memory that a run needs, checked before anything is allocated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsim import text
from fedsim.checks import free_bytes
from fedsim.errors import InvalidInput

if TYPE_CHECKING:
    from fedsim.scenario import Scenario

ROW = 500  # bytes of a replica's row in the table of rounds while it is sorted; 450 were measured
COPIES = 4  # of a model, for every job under way: its message, its reply, and two on the way between them
REPLICA = 400  # bytes of a replica's own clock, counts and keys


def check_memory(scenario: Scenario, timing_only: bool) -> None:
    """Refuse a run whose state, jobs and tables this machine cannot hold at once."""
    replicas, rounds = len(scenario.replica_numbers), scenario.budget.rounds or 1
    rows = ROW * max(1, rounds // scenario.record.rounds_every)
    model = 0 if timing_only else scenario.problem.dim * np.dtype(scenario.dtype).itemsize
    jobs, memory = 0 if timing_only else _participants(scenario), _client_memory(scenario, timing_only)
    models = scenario.sites.models * COPIES * model
    each = REPLICA + rows + models + jobs * (COPIES * model + 2 * memory) + scenario.problem.clients * memory
    free = free_bytes()
    if replicas * each <= free:
        return
    fit = int(free // each)
    if fit:
        remedy = f"run at most {fit:,} at a time, such as replicas=range(0, {fit})"
    elif rows > free / 2:
        remedy = f"keep fewer rows with record=fs.Record(rounds_every={int(2 * ROW * rounds // free) + 1})"
    else:
        remedy = "ask fewer clients at a time, take a smaller model, or a machine with more memory"
    what = f"{replicas:,} replica{'s' * (replicas > 1)} of {jobs:,} jobs with d={scenario.problem.dim:,}"
    raise InvalidInput(f"{what} would take {text.size(replicas * each)}, and {text.size(free)} are free: {remedy}")


def _participants(scenario: Scenario) -> int:
    """Return the largest number of jobs of a round of one replica."""
    clients = int(scenario.problem.clients)
    asked = scenario.parts.policy.size
    return clients if asked is None else min(asked * scenario.sites.count, clients)


def _client_memory(scenario: Scenario, timing_only: bool) -> int:
    """Return the bytes of the memory of one client."""
    if timing_only:
        return 0
    itemsize = np.dtype(scenario.dtype).itemsize
    rows = scenario.parts.algorithm.memory(scenario.problem)
    return sum(int(np.size(row)) * itemsize for row in rows.values())

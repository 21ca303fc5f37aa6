"""`replay`: compute one client's job again, to inspect its message and its reply."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.budget import Budget
from fedsim.checks import check_path, is_int
from fedsim.engine.manifest import describes
from fedsim.engine.recorder import Record
from fedsim.errors import InvalidInput, NotRecorded
from fedsim.protocols import AlgorithmLike
from fedsim.results import load
from fedsim.running import run
from fedsim.running.folder import read_facts
from fedsim.runtime.inline import Inline, Worker
from fedsim.runtime.jobs import Batch, Reply, Setting
from fedsim.runtime.process import one_blas_thread
from fedsim.scenario import Scenario
from fedsim.scenario_file import from_origin
from fedsim.text import short_str


@dataclass(frozen=True)
class Replayed:
    """One job: the client's message, its memory and its reply."""

    replica: int
    round: int  # from 1
    client: int
    message: Arrays
    memory: Arrays
    values: Arrays  # the reply as the server decodes it
    bits: int
    new_memory: Arrays


def replay(
    path: str | Path, *, replica: int, round: int, client: int, scenario: Scenario | None = None
) -> Replayed:  # fmt: skip
    """Compute the job of `client` in round `round` (from 1) of one replica of the run in `path` again.

    The replica is simulated up to that round, which gives the message bit for bit, and then the job is computed
    alone. A client that failed in the run fails here, under your debugger. Pass `scenario` only if the run was not made
    from a scenario file. Without it the copy of the file in the folder is executed, so replay only folders that you
    trust.
    """
    folder = check_path("replay(path)", path)
    facts, _ = read_facts(folder)
    if scenario is None:
        file, settings = from_origin(facts.get("source") or {})
        scenario = file.build(settings)
    if not isinstance(scenario, Scenario):
        raise InvalidInput(
            f"{folder} is a run of {type(scenario).__name__}; only runs of a fs.Scenario can be replayed"
        )
    if "scenario" in facts and not describes(facts["scenario"], scenario):
        raise InvalidInput(f"the scenario is not the one that {folder} was made from; pass the same one as scenario=")
    _check(scenario, replica, round, client)
    if "scenario" in facts:
        rounds = load(folder).rounds
        if not (rounds.loc[rounds["replica"] == replica, "round"] >= round).any():
            raise NotRecorded(f"replica {replica} ended before round {round}; ask for an earlier one")
    catcher = _JobCatcher(round - 1, client)
    # A target depends on all replicas, so it is dropped. With asynchronous clients, a job that starts in a round may be
    # computed many rounds later.
    asynchronous = scenario.parts.policy.asynchronous
    budget = replace(scenario.budget, target=None) if asynchronous else Budget(rounds=round)
    alone = replace(
        scenario, replicas=range(replica, replica + 1), metrics=(), budget=budget, record=Record(every=round),
        initial=_start(scenario, replica),
    )  # fmt: skip
    try:
        run(alone, runtime=catcher)
    except _JobReached as found:
        return _again(scenario, catcher.setting, found.job)
    raise NotRecorded(f"client {client} took no part in round {round} of replica {replica}; see the events of the run")


def _start(scenario: Scenario, replica: int) -> Array:
    """Return the initial point of the replica, for all its sites."""
    at, models = scenario.replica_numbers.index(replica), scenario.sites.models
    if models == 1:
        return np.asarray(scenario.starts[at])
    return np.asarray(scenario.site_starts.reshape(-1, models, scenario.problem.dim)[at : at + 1])


class _JobReached(BaseException):
    """The end of the simulation at the job; no Exception, so that no handler catches it."""

    def __init__(self, job: Batch) -> None:
        self.job = job


@dataclass
class _JobCatcher:
    """A runtime and its session that computes like Inline until the wanted job arrives."""

    round: int  # from 0
    client: int
    elsewhere = learns_blocks = False

    def kernels(self) -> Any:
        return Inline().kernels()

    def open(self, algorithm: AlgorithmLike, setting: Setting) -> _JobCatcher:
        self.setting, self._session = setting, Inline().open(algorithm, setting)
        return self

    async def submit(self, batch: Batch, work: float = 1.0) -> Reply:
        here = np.flatnonzero(batch.client == self.client)
        if batch.round == self.round and len(here):
            raise _JobReached(batch.part(here[:1]))
        return await self._session.submit(batch, work)

    def close(self) -> None:
        self._session.close()


def _again(scenario: Scenario, setting: Setting, job: Batch) -> Replayed:
    with one_blas_thread():
        reply = Worker(scenario.parts.algorithm.wrapped, setting).compute(job)
    at = int(job.version[0])
    return Replayed(
        int(job.replica[0]), job.round + 1, int(job.client[0]),
        {name: m[at] for name, m in job.message.items()}, _only(job.memory), _only(reply.values),
        int(reply.bits[0]), _only(reply.memory),
    )  # fmt: skip


def _only(arrays: Arrays) -> Arrays:
    return {name: a[0] for name, a in arrays.items()}


def _check(scenario: Scenario, replica: int, round: int, client: int) -> None:
    if not is_int(replica) or replica not in scenario.replica_numbers:
        raise InvalidInput(f"replica={short_str(replica)}: the run has {scenario.replica_numbers}")
    if not is_int(round, least=1) or round > (scenario.budget.rounds or round):
        raise InvalidInput(f"round={short_str(round)}: rounds count from 1 to {scenario.budget.rounds or 'the last'}")
    if not is_int(client, most=scenario.problem.clients - 1):
        raise InvalidInput(f"client={short_str(client)}: clients are numbered 0 to {scenario.problem.clients - 1}")

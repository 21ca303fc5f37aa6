"""Jobs are computed when their round is committed: the jobs of aggregated replies, and no others, on either clock."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import Counter

import numpy as np
import pytest

import fedsim as fs
from fedsim import kernels
from fedsim.analysis import timeline
from fedsim.errors import ClientFailed, Interrupted
from fedsim.runtime.inline import Worker

CLIENTS = 6


class Apart:
    """A runtime whose replies come when they are awaited, as from other processes. It notes its jobs."""

    def __init__(self):
        self._log = []  # (replica, client, round - 1, visit)

    def kernels(self):
        return kernels.backend("cpu")

    def describe(self):
        return "apart"

    def open(self, algorithm, setting):
        self._worker = Worker(algorithm, setting)
        return self

    async def submit(self, batch, work=1.0):
        columns = (batch.replica, batch.client, np.broadcast_to(batch.round, len(batch)), batch.visit)
        self._log += zip(*(column.tolist() for column in columns), strict=True)
        await asyncio.sleep(0)
        return self._worker.compute(batch)

    def close(self):
        pass

    def jobs(self, result):
        """Return the jobs as `visits` names them."""
        counted = result.manifest["clock"]["asynchronous"]
        return [(replica, client, visit if counted else round) for replica, client, round, visit in self._log]


@pytest.fixture
def apart():
    return Apart()


def scenario(algorithm=None, dropout=0.0, rounds=12, policy=None, **more):
    return fs.Scenario(
        **{
            "problem": fs.problems.GaussianMean.synthetic(CLIENTS, dim=3, samples=6, seed=4),
            "algorithm": algorithm or fs.algorithms.FALD(step_size=1e-3, local_steps=3),
            "network": fs.topologies.star(CLIENTS, uplink_bps=2e4, downlink_bps=1e5, latency_s=0.02),
            "devices": fs.devices.lognormal(0.05, sigma=1.0, dropout=dropout),
            "participation": policy or fs.participation.buffered(2),
            "budget": fs.Budget(rounds=rounds),
            "record": fs.Record(events=True),
            "replicas": 2,
            "seed": 5,
        }
        | more
    )


def scaffold():
    return fs.algorithms.Scaffold(step_size=1e-2, local_steps=2)


def elias():
    return fs.algorithms.FedPAQ(step_size=1e-2, local_steps=2, codec=fs.codecs.Elias(3))


def visits(result):
    """Return a table of visits by replica, client and number: of a synchronous client the round, else a count."""
    table = timeline.visits(result)
    table["number"] = table["round"] - 1
    if result.manifest["clock"]["asynchronous"]:
        table["number"] = table.groupby(["replica", "client"]).cumcount()
    return table.set_index(["replica", "client", "number"])


CLOCKS = ["simpy", "compiled"]


CASES = {
    "plain": lambda: scenario(),
    "drops": lambda: scenario(dropout={"before": 0.1, "compute": 0.1, "upload": 0.2}),
    "remembers": lambda: scenario(scaffold(), dropout=0.2),
    "lengths depend on values": lambda: scenario(elias(), dropout={"compute": 0.1, "upload": 0.2}),
    "comes and goes": lambda: scenario(
        scaffold(), devices=fs.devices.constant(0.05, availability=fs.devices.markov(0.3, off_s=0.2)), rounds=20
    ),
    "some at a time": lambda: scenario(policy=fs.participation.buffered(2, of=4), dropout=0.1),
    "stops in time": lambda: scenario(budget=fs.Budget(seconds=2.0)),
    "synchronous": lambda: scenario(scaffold(), policy=fs.participation.first(3, of=5), dropout=0.2),
    "synchronous, shared links": lambda: scenario(
        scaffold(), policy=fs.participation.deadline(0.4), network=fs.topologies.multiple_access(CLIENTS, capacity_bps=2e4),
        devices=fs.devices.lognormal(0.05, sigma=1.0, dropout={"before": 0.1, "compute": 0.2, "upload": 0.2}),
    ),
}  # fmt: skip
ASKED_EARLY = "lengths depend on values"  # the clock needs the bits of these replies; only SimPy serves them here
ON_EACH_CLOCK = [(name, clock) for name in CASES for clock in CLOCKS if (name, clock) != (ASKED_EARLY, "compiled")]


@pytest.mark.parametrize("name, clock", [case for case in ON_EACH_CLOCK if case[0] != ASKED_EARLY])
def test_the_jobs_of_replies_that_arrived_are_computed_and_no_others(apart, name, clock):
    result = fs.run(CASES[name](), runtime=apart, clock=clock)
    table, jobs = visits(result), apart.jobs(result)
    assert len(jobs) == len(set(jobs))
    assert set(jobs) == set(table.index[table["outcome"] == "upload"])
    assert (table["outcome"] != "upload").sum() > 5


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_reply_whose_length_the_clock_asks_for_is_computed_once(apart, clock):
    policy, devices = fs.participation.first(3, of=5), fs.devices.lognormal(0.05, sigma=1.0)
    result = fs.run(scenario(elias(), policy=policy, devices=devices), runtime=apart, clock=clock)
    assert result.rounds["late"].sum() > 5
    jobs = apart.jobs(result)
    assert len(jobs) == len(set(jobs)) == result.rounds["selected"].sum()


def test_a_reply_of_an_asynchronous_client_is_computed_for_its_length_and_for_its_aggregation(apart):
    result = fs.run(CASES[ASKED_EARLY](), runtime=apart)
    table, counts = visits(result), Counter(apart.jobs(result))
    assert {counts[visit] for visit in table.index[table["outcome"] == "upload"]} == {2}
    assert {counts[visit] for visit in table.index[table["outcome"] != "upload"]} <= {0, 1}


@pytest.mark.parametrize("name, clock", ON_EACH_CLOCK)
def test_replies_from_other_processes_have_the_bits_of_inline(apart, name, clock):
    expected, found = fs.run(CASES[name](), clock="simpy"), fs.run(CASES[name](), runtime=apart, clock=clock)
    assert found.fingerprint == expected.fingerprint
    assert found.events.equals(expected.events)
    assert found.clients.equals(expected.clients)
    assert found.stopped_by == expected.stopped_by


@pytest.mark.parametrize("name, clock", ON_EACH_CLOCK)
def test_a_run_that_is_stopped_resumes_to_the_same_bits(tmp_path, apart, name, clock):
    whole = fs.run(CASES[name]())
    stop = threading.Event()
    with pytest.raises(Interrupted):
        fs.run(
            CASES[name](), runtime=apart, out=tmp_path / "run", stop=stop, clock=clock,
            observers=[lambda progress: stop.set() if progress.round == 7 else None],
        )  # fmt: skip
    resumed = fs.run(CASES[name](), runtime=Apart(), out=tmp_path / "run", resume=True)
    assert resumed.fingerprint == whole.fingerprint
    assert resumed.events.equals(whole.events)


def slow_last(algorithm):
    """Client 0 answers every second, client 1 after 10.5 s and then at 21 s, client 2 never; buffers of one."""
    return scenario(
        algorithm,
        problem=fs.problems.GaussianMean.synthetic(3, dim=3, samples=6, seed=4),
        network=None,
        devices=fs.devices.constant([1.0 / 3, 3.5, 1e6]),
        policy=fs.participation.buffered(1),
        rounds=15,
    )


@dataclasses.dataclass(frozen=True)
class Clumsy(fs.algorithms.FALD):
    who: int = 0
    batched = False
    fused = None

    def client(self, job, message, memory):
        if job.client == self.who and job.weight < 1:
            raise ZeroDivisionError("my own mistake")
        return super().client(job, message, memory)


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_failure_counts_only_if_its_reply_is_needed(apart, clock):
    """All three start together. Client 2 never replies, so its failure is not met."""
    never_needed = slow_last(Clumsy(1e-3, local_steps=3, who=2))
    assert fs.run(never_needed, runtime=apart, clock=clock).fingerprint == fs.run(never_needed).fingerprint
    for runtime in (apart, None):
        with pytest.raises(ClientFailed, match=r"my own mistake .*client 1, round 1, replica \d"):
            fs.run(slow_last(Clumsy(1e-3, local_steps=3, who=1)), runtime=runtime, clock=clock)


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_failure_counts_only_if_its_reply_is_needed_in_synchronous_rounds_too(apart, clock):
    """Links are shared; the first two replies close a round, and client 2 is the last."""
    late = dataclasses.replace(
        slow_last(None), participation=fs.participation.first(2),
        network=fs.topologies.multiple_access(3, capacity_bps=1e6),
    )  # fmt: skip
    never_needed = dataclasses.replace(late, algorithm=Clumsy(1e-3, local_steps=3, who=2))
    assert fs.run(never_needed, runtime=apart, clock=clock).fingerprint == fs.run(never_needed).fingerprint
    needed = dataclasses.replace(late, algorithm=Clumsy(1e-3, local_steps=3, who=1))
    for runtime in (apart, None):
        with pytest.raises(ClientFailed, match=r"my own mistake .*client 1, round 1, replica \d"):
            fs.run(needed, runtime=runtime, clock=clock)

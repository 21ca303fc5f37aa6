"""Runs where other processes compute: the same bits, no job that is not needed, no failure that does not count."""

from __future__ import annotations

import asyncio
import dataclasses
import threading

import pytest

import fedsim as fs
from fedsim import kernels
from fedsim.analysis import timeline
from fedsim.errors import ClientFailed, Interrupted
from fedsim.runtime.worker import Worker

CLIENTS = 6


class Apart:
    """As if other processes computed: replies come when somebody awaits them. Notes what is asked of it."""

    def __init__(self):
        self.elsewhere = True
        self._log = []  # (replica, client, visit)

    def kernels(self):
        return kernels.backend("cpu")

    def describe(self):
        return "apart"

    def open(self, algorithm, setting):
        self._worker = Worker(algorithm, setting)
        return self

    async def submit(self, batch, work=1.0):
        self._log += zip(batch.replica.tolist(), batch.client.tolist(), batch.visit.tolist(), strict=True)
        await asyncio.sleep(0)
        return self._worker.compute(batch)

    def close(self):
        pass


@pytest.fixture
def apart():
    return Apart()


def scenario(algorithm=None, dropout=0.0, rounds=12, policy=None, **more):
    return fs.Scenario(
        **{
            "problem": fs.problems.GaussianMean.synthetic(CLIENTS, dim=3, samples=6, seed=4),
            "algorithm": algorithm or fs.algorithms.FALD(step_size=1e-3, local_steps=3),
            "network": fs.topologies.star(CLIENTS, uplink_bps=2e4, downlink_bps=1e5, latency_s=0.02),
            "devices": fs.devices.lognormal(0.05, 1.0, dropout=dropout),
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
    """By replica, client and visit number: when it set out, when it had computed, and how it ended."""
    table = timeline.visits(result)
    table["number"] = table.groupby(["replica", "client"]).cumcount()
    return table.set_index(["replica", "client", "number"])


def test_no_job_is_sent_for_a_visit_that_will_drop_out(apart):
    result = fs.run(scenario(dropout={"before": 0.1, "compute": 0.2, "upload": 0.2}), runtime=apart)
    table = visits(result)
    dropped = set(table.index[table["outcome"] == "drop"])
    assert len(dropped) > 5
    assert not dropped & set(apart._log)


CASES = {
    "plain": lambda: scenario(),
    "drops": lambda: scenario(dropout={"before": 0.1, "compute": 0.1, "upload": 0.2}),
    "remembers": lambda: scenario(scaffold(), dropout=0.2),
    "lengths depend on values": lambda: scenario(elias(), dropout={"compute": 0.1, "upload": 0.2}),
    "comes and goes": lambda: scenario(
        scaffold(), devices=fs.devices.constant(0.05, availability=fs.devices.markov(0.3, 0.2)), rounds=20
    ),
    "some at a time": lambda: scenario(policy=fs.participation.buffered(2, of=4), dropout=0.1),
    "stops in time": lambda: scenario(budget=fs.Budget(seconds=2.0)),
    "synchronous": lambda: scenario(scaffold(), policy=fs.participation.first(3, of=5), dropout=0.2),
}


@pytest.mark.parametrize("name", CASES)
def test_replies_from_elsewhere_have_the_bits_of_inline(apart, name):
    expected, found = fs.run(CASES[name]()), fs.run(CASES[name](), runtime=apart)
    assert found.fingerprint == expected.fingerprint
    assert found.events.equals(expected.events)
    assert found.clients.equals(expected.clients)
    assert found.stopped_by == expected.stopped_by


@pytest.mark.parametrize("name", ["drops", "remembers", "lengths depend on values", "comes and goes"])
def test_a_run_that_is_stopped_resumes_to_the_same_bits(tmp_path, apart, name):
    whole = fs.run(CASES[name]())
    stop = threading.Event()
    with pytest.raises(Interrupted):
        fs.run(
            CASES[name](), runtime=apart, out=tmp_path / "run", stop=stop,
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


def test_a_failure_counts_only_if_its_reply_is_needed(apart):
    """All three start together. Client 2 never answers, so nobody learns that it fails."""
    never_needed = slow_last(Clumsy(1e-3, local_steps=3, who=2))
    assert fs.run(never_needed, runtime=apart).fingerprint == fs.run(never_needed).fingerprint
    for runtime in (apart, None):
        with pytest.raises(ClientFailed, match=r"my own mistake .*client 1, round 1, replica \d"):
            fs.run(slow_last(Clumsy(1e-3, local_steps=3, who=1)), runtime=runtime)


def test_a_failure_counts_only_if_its_reply_is_needed_in_synchronous_rounds_too(apart):
    """Links are shared, so rounds go event by event; the first two replies close a round, and client 2 is the last."""
    late = dataclasses.replace(
        slow_last(None), participation=fs.participation.first(2),
        network=fs.topologies.multiple_access(3, capacity_bps=1e6),
    )  # fmt: skip
    never_needed = dataclasses.replace(late, algorithm=Clumsy(1e-3, local_steps=3, who=2))
    assert fs.run(never_needed, runtime=apart).fingerprint == fs.run(never_needed).fingerprint
    for runtime in (apart, None):
        with pytest.raises(ClientFailed, match=r"my own mistake .*client 1, round 1, replica \d"):
            fs.run(dataclasses.replace(late, algorithm=Clumsy(1e-3, local_steps=3, who=1)), runtime=runtime)

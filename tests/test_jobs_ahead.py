"""Asynchronous runs where other processes compute: jobs go out when visits do, and are waited for when needed."""

from __future__ import annotations

import asyncio
import dataclasses
import threading

import pytest

import fedsim as fs
from fedsim import kernels
from fedsim.analysis import timeline
from fedsim.engine.clock.choose import reference_clock
from fedsim.errors import ClientFailed, Interrupted
from fedsim.old_engine.asynchronous_replica import AsynchronousReplica
from fedsim.runtime.worker import Worker

CLIENTS = 6


class Apart:
    """As if other processes computed: replies come when somebody awaits them. Notes what is asked of it, and when."""

    def __init__(self):
        self.elsewhere = True
        self.stuck = ()  # a client, and the version from which on its jobs take for ever
        self._log = []  # (replica, client, visit, virtual time)
        self._replicas = []
        self._given_up = []

    def kernels(self):
        return kernels.backend("cpu")

    def describe(self):
        return "apart"

    def open(self, algorithm, setting):
        self._worker = Worker(algorithm, setting)
        return self

    async def submit(self, batch, work=1.0):
        clocks = {int(s.world.replicas[s.position]): s.clock.now for s in self._replicas}
        columns = (batch.replica.tolist(), batch.client.tolist(), batch.visit.tolist())
        self._log.extend((r, c, v, clocks.get(r)) for r, c, v in zip(*columns, strict=True))
        await asyncio.sleep(0)
        if self.stuck and self.stuck[0] in batch.client and batch.round >= self.stuck[1]:
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                self._given_up.append(batch.round)
                raise
        return self._worker.compute(batch)

    def close(self):
        pass


@pytest.fixture
def apart(monkeypatch):
    runtime = Apart()

    begin = AsynchronousReplica.__init__

    def noted(self, run, position):
        begin(self, run, position)
        runtime._replicas.append(self)

    monkeypatch.setattr(AsynchronousReplica, "__init__", noted)
    return runtime


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


def test_jobs_are_sent_when_their_visits_set_out(apart):
    """Clients with memory set out when a version is released, and so do their jobs: long before they are through."""
    result = fs.run(scenario(scaffold()), runtime=apart)
    table = visits(result)
    sent = {(r, c, v): now for r, c, v, now in apart._log}
    assert len(sent) == len(apart._log) >= 2 * 12 * 2
    closed = {r: rows["closed_s"].max() for r, rows in result.rounds.groupby("replica")}
    for who, row in table[table["end_s"].notna()].iterrows():
        if row["end_s"] <= closed[who[0]]:
            assert sent[who] == row["select"] < row["compute"]


def test_visits_that_set_out_between_folds_go_with_the_next(apart):
    result = fs.run(scenario(), runtime=apart)
    table, sent = visits(result), {(r, c, v): now for r, c, v, now in apart._log}
    folds = {r: rows["closed_s"].to_numpy() for r, rows in result.rounds.groupby("replica")}
    ahead = 0
    for who, row in table[table["end_s"].notna()].iterrows():
        following = folds[who[0]][folds[who[0]] >= row["select"]].min()
        assert row["select"] <= sent[who] <= following
        ahead += sent[who] < row["compute"]
    assert ahead > 10


def test_inline_sends_jobs_when_they_are_needed(apart):
    apart.elsewhere = False
    with reference_clock():  # the compiled clock knows the time of every fold beforehand, and sends at the fold as well
        result = fs.run(scenario(), runtime=apart)
    folds = set(result.rounds["closed_s"])
    assert {now for *_, now in apart._log} == folds


def test_no_job_is_sent_for_a_visit_that_will_drop_out(apart):
    result = fs.run(scenario(dropout={"before": 0.1, "compute": 0.2, "upload": 0.2}), runtime=apart)
    table = visits(result)
    dropped = set(table.index[table["outcome"] == "drop"])
    assert len(dropped) > 5
    assert not dropped & {(r, c, v) for r, c, v, _ in apart._log}


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
def test_jobs_sent_ahead_give_the_bits_of_inline(apart, name):
    expected, found = fs.run(CASES[name]()), fs.run(CASES[name](), runtime=apart)
    assert found.fingerprint == expected.fingerprint
    assert found.events.equals(expected.events)
    assert found.clients.equals(expected.clients)
    assert found.stopped_by == expected.stopped_by


@pytest.mark.parametrize("name", ["drops", "remembers", "lengths depend on values", "comes and goes"])
def test_a_run_stopped_with_jobs_under_way_resumes_to_the_same_bits(tmp_path, apart, name):
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


def test_a_reply_is_waited_for_only_when_it_is_needed(apart):
    """The second job of client 1 never ends; its reply would be folded at 21 s, and the run is over before that."""
    apart.stuck = (1, 1)
    result = fs.run(slow_last(None), runtime=apart)
    assert apart._given_up
    assert result.fingerprint == fs.run(slow_last(None)).fingerprint


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

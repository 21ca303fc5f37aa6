"""Real time never enters a result: a runtime that answers late and in any order gives the same bits."""

from __future__ import annotations

import asyncio
import dataclasses
import random

import pytest

import fedsim as fs
from fedsim import kernels
from fedsim.runtime.inline import Worker
from fedsim.runtime.jobs import Reply


@dataclasses.dataclass(frozen=True)
class Dawdling:
    """A runtime that cuts batches up and answers the pieces in random order, after random real delays."""

    seed: int
    longest_s: float = 0.004
    elsewhere: bool = False  # as if other processes computed while the clock runs here

    def kernels(self):
        return kernels.backend("cpu")

    def open(self, algorithm, setting):
        return DawdlingSession(self, Worker(algorithm, setting))


class DawdlingSession:
    def __init__(self, runtime, worker):
        self.worker, self.elsewhere, self.longest_s = worker, runtime.elsewhere, runtime.longest_s
        self.chance = random.Random(runtime.seed)
        self.orders = []  # per batch, in which its pieces were answered

    async def submit(self, batch, work=1.0):
        parts = {at: batch.part(slice(at, at + 2)) for at in range(0, len(batch), 2)}
        answers = {}
        self.orders.append(order := [])

        async def answer(at):
            await asyncio.sleep(self.chance.uniform(0.0, self.longest_s))
            answers[at] = self.worker.compute(parts[at])
            order.append(at)

        tasks = [asyncio.create_task(answer(at)) for at in self.chance.sample(list(parts), len(parts))]
        await asyncio.gather(*tasks)
        return Reply.join([answers[at] for at in sorted(answers)])

    def close(self):
        pass


CLIENTS = 6


def scenario_of(algorithm=None, **more):
    return fs.Scenario(
        **{
            "problem": fs.problems.GaussianMean.synthetic(CLIENTS, dim=3, samples=6, seed=4),
            "algorithm": algorithm or fs.algorithms.FALD(step_size=1e-3, local_steps=3, correlation=0.4),
            "network": fs.topologies.star(CLIENTS, uplink_bps=2e3, downlink_bps=1e4, latency_s=0.02),
            "devices": fs.devices.lognormal(0.05, sigma=1.0, dropout={"compute": 0.1, "upload": 0.1}),
            "budget": fs.Budget(rounds=6),
            "replicas": 3,
            "seed": 5,
        }
        | more
    )


def shared():
    return fs.topologies.multiple_access(CLIENTS, capacity_bps=5e3, latency_s=0.01)


SCENARIOS = {
    "closed form": lambda: scenario_of(),
    "closed form, lengths depend on values": lambda: scenario_of(
        fs.algorithms.FedPAQ(step_size=1e-2, local_steps=2, codec=fs.codecs.Elias(3))
    ),
    "events on a shared channel": lambda: scenario_of(network=shared(), participation=fs.participation.first(3)),
    "events, lengths depend on values": lambda: scenario_of(
        fs.algorithms.FedPAQ(step_size=1e-2, local_steps=2, codec=fs.codecs.Elias(3)),
        network=shared(),
        participation=fs.participation.deadline(0.5),
    ),
    "events, clients come and go": lambda: scenario_of(
        devices=fs.devices.constant(0.05, availability=fs.devices.markov(0.5, off_s=0.5)),
        participation=fs.participation.uniform(3),
    ),
    "clients remember": lambda: scenario_of(fs.algorithms.Scaffold(step_size=1e-2, local_steps=2), network=shared()),
    "buffered": lambda: scenario_of(participation=fs.participation.buffered(2)),
    "buffered on a shared channel, some at a time": lambda: scenario_of(
        network=shared(), participation=fs.participation.buffered(2, of=4, discount=lambda k: 1 / (1 + k))
    ),
    "buffered, lengths depend on values": lambda: scenario_of(
        fs.algorithms.FedPAQ(step_size=1e-2, local_steps=2, codec=fs.codecs.Elias(3)),
        participation=fs.participation.buffered(3),
    ),
    "buffered, clients remember": lambda: scenario_of(
        fs.algorithms.Scaffold(step_size=1e-2, local_steps=2), participation=fs.participation.buffered(2)
    ),
}


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("name", SCENARIOS)
def test_results_do_not_depend_on_the_speed_of_the_runtime(name, elsewhere):
    scenario = SCENARIOS[name]()
    expected = fs.run(scenario, runtime=fs.Inline(threads=1))
    for seed in (1, 2):
        found = fs.run(scenario, runtime=Dawdling(seed, elsewhere=elsewhere))
        assert found.fingerprint == expected.fingerprint
        assert found.rounds.equals(expected.rounds)
        assert found.clients.equals(expected.clients)
        assert found.stopped_by == expected.stopped_by


def test_the_dawdling_runtime_does_answer_out_of_order():
    """Otherwise the test above would show nothing."""
    opened = []

    class Watched(Dawdling):
        def open(self, algorithm, setting):
            opened.append(super().open(algorithm, setting))
            return opened[-1]

    fs.run(scenario_of(), runtime=Watched(1))
    shuffled = [order for order in opened[0].orders if order != sorted(order)]
    assert len(shuffled) > 3

"""A scenario made of a user's own parts, written from `fedsim/protocols/` and the README alone: public names only."""

import math
import threading
from dataclasses import dataclass

import numpy as np
import pytest

import fedsim as fs


@dataclass(frozen=True)
class HeavyBall:
    """Local gradient steps, a server with momentum, and clients that count their visits."""

    step_size: float
    local_steps: int = 2
    momentum: float = 0.5

    def init(self, problem, initial):
        return {"theta": initial, "speed": np.zeros(problem.dim)}

    def memory(self, problem):
        return {"visits": np.zeros(1)}

    def broadcast(self, state):
        return {"theta": state["theta"]}

    def work(self, job):
        return self.local_steps

    def client(self, job, message, memory):
        theta = message["theta"]
        for k in range(self.local_steps):
            theta = theta - self.step_size * job.gradient(theta, k) / job.size
        return {"step": theta - message["theta"]}, {"visits": memory["visits"] + 1}

    def server(self, state, replies, rng):
        speed = self.momentum * state["speed"] + replies.mean("step")
        return {"theta": state["theta"] + speed, "speed": speed}


@dataclass(frozen=True)
class InTurn:
    """Every second client, the others in the next round; the first so many replies close it."""

    replies: int
    batched = True

    def select(self, view, rng):
        return view.online_clients()[..., (view.round - 1) % 2 :: 2]

    def close(self, view):
        return view.now_s if len(view.arrived) >= self.replies else math.inf


class Cable:
    """A private link down for each client, and one shared cable up."""

    contended = True

    def __init__(self, clients, up_bps, down_bps, latency_s):
        self.clients, self.capacities_bps = clients, np.array([up_bps] + clients * [down_bps])
        self._latency_s = np.full(clients, latency_s)

    def delay_s(self, upward):
        return self._latency_s

    def loss_factor(self, upward):
        return np.ones(self.clients)

    def bottleneck_bps(self, upward):
        return np.full(self.clients, self.capacities_bps[0 if upward else 1])

    def route(self, client, upward):
        return [0] if upward else [1 + client]


@dataclass(frozen=True)
class Warm:
    """Phones that slow down as the day gets warmer, and now and then lose an upload half-way."""

    step_s: float
    loss: float

    def compute_s(self, clients, work, now_s, rng):
        return work * self.step_s * (1 + rng.uniform()) * (1 + now_s / 3600)

    def drop(self, clients, now_s, rng):
        lost = rng.uniform() < self.loss
        return np.where(lost, 3, 0), np.where(lost, 0.5, 0.0)


CLIENTS, DIM = 7, 3
PARTS = [HeavyBall(0.1), InTurn(2), Cable(CLIENTS, 1e4, 1e5, 0.01), Warm(0.05, 0.2)]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_a_part_written_from_the_protocols_passes_the_check_of_its_role(part):
    assert fs.testing.check(part)


def scenario(**changed):
    algorithm, policy, network, devices = PARTS
    problem = fs.problems.GaussianMean.synthetic(clients=CLIENTS, dim=DIM, samples=12, seed=5)
    given = {
        "problem": problem, "algorithm": algorithm, "participation": policy, "network": network, "devices": devices,
        "budget": fs.Budget(rounds=60), "replicas": 4, "seed": 3,
    }  # fmt: skip
    return fs.Scenario(**(given | changed))


def test_four_own_parts_run_together():
    result = fs.run(scenario())
    rounds = result.rounds
    assert rounds.selected.tolist() == (3 + rounds["round"] % 2).tolist()
    assert rounds.arrived.max() == 2
    assert rounds.dropped.sum() > 0
    assert rounds.downlink_bits.tolist() == (64 * DIM * rounds.selected).tolist()
    alone_s = 0.01 + 64 * DIM / 1e5 + 2 * 0.05 + 0.01 + 64 * DIM / 1e4  # no client is faster
    assert (rounds.closed_s - rounds.opened_s > alone_s).all()
    best = scenario().problem.exact()[0]
    assert np.allclose(result.samples[20:].mean(axis=(0, 1)), best, atol=0.1)


def test_neither_threads_nor_a_resume_change_a_run_of_own_parts(tmp_path):
    whole, stop = fs.run(scenario(), runtime=fs.Inline(threads=1)), threading.Event()

    def interrupt(progress):
        if progress.round == 20:
            stop.set()

    assert fs.run(scenario(), runtime=fs.Inline(threads=2, chunk=3)).fingerprint == whole.fingerprint
    with pytest.raises(fs.errors.Interrupted):
        fs.run(scenario(), out=tmp_path / "run", checkpoint_every=50, stop=stop, observers=[interrupt])
    assert fs.run(scenario(), out=tmp_path / "run", resume=True).fingerprint == whole.fingerprint


@dataclass(frozen=True)
class SaysItWaits(InTurn):
    waits = True


def test_a_policy_that_closes_earlier_than_it_says_is_refused_by_its_check():
    with pytest.raises(fs.testing.Broken, match=r"rounds differ between clocks: .*`waits`"):
        fs.testing.check(SaysItWaits(2))


def test_own_parts_on_shared_links_run_on_simpy_alone():
    assert fs.run(scenario(), timing_only=True).manifest["clock"]["name"] == "simpy"
    with pytest.raises(fs.errors.InvalidInput, match='the policy InTurn has no columns; use clock="simpy"'):
        fs.run(scenario(), clock="compiled")

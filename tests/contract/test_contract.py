"""One contract for every algorithm, and the bits of one round of each, counted by hand.

Inputs unmutated, replay exact, the order of replies irrelevant, the same bits after a resume, inline and on Ray, and
partial participation or a reason why not.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from strategies.every_algorithm import EVERY, SINGLE, UNEQUAL, scenario

import fedsim as fs
from fedsim import algorithms, participation
from fedsim.errors import Interrupted, InvalidInput
from fedsim.runtime.ray import RaySession
from fedsim.runtime.ray.host import Host
from fedsim.runtime.ray.private import OwnRay
from fedsim.testing import Broken, check

GOSSIPING = {"DESGLD", "DIGingSGLD"}  # no server: test_sites.py and test_sites_exact.py have their promises


def test_every_algorithm_is_held_to_the_contract():
    assert {name.partition(",")[0] for name in EVERY} == set(algorithms.__all__) - GOSSIPING
    assert set(WIRE) == set(EVERY)


every = pytest.mark.parametrize("name", EVERY)


# --- The six promises ---------------------------------------------------------------------------------------


@every
def test_arguments_stay_as_they_were_replay_is_exact_and_replies_have_no_order(name):
    promises = check(*EVERY[name])
    assert {
        "client does not change its inputs",
        "the server does not change its state and the replies",
        "replay is exact",
        "the order of the replies is irrelevant",
        "one job at a time and stacked agree",
    } <= set(promises)


@every
def test_the_order_in_which_replies_come_in_changes_no_bit(name):
    """Devices of very different speed, so that clients answer in another order in every round."""
    slow = fs.devices.constant(1.0, slowdown=fs.devices.pareto_slowdown(1.0))
    at_once, one_by_one = (
        fs.run(scenario(name, participation=participation.full(), devices=devices, record=fs.Record(events=True)))
        for devices in (None, slow)
    )
    assert np.array_equal(at_once.samples, one_by_one.samples)
    if name not in SINGLE:
        uploads = one_by_one.events[one_by_one.events.event == "upload"].sort_values(["replica", "time_s"])
        orders = {tuple(own.client) for _, own in uploads.groupby(["replica", "round"])}
        assert len(orders) > 6


@every
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(name, tmp_path):
    stop = threading.Event()
    with pytest.raises(Interrupted):
        fs.run(scenario(name), out=tmp_path / "run", checkpoint_every=2, stop=stop, observers=[
            lambda progress: stop.set() if progress.round == 3 else None
        ])  # fmt: skip
    assert list((tmp_path / "run" / "checkpoints").iterdir())
    seen = []
    resumed = fs.run(scenario(name), out=tmp_path / "run", resume=True, observers=[lambda p: seen.append(p.round)])
    assert seen == [4, 5, 6]
    assert resumed.fingerprint == fs.run(scenario(name)).fingerprint


class Room(Host):
    """A host whose run can be exchanged: a new process takes seconds, and here are many small runs."""

    def __init__(self):
        pass

    async def settle(self, *arguments):
        self.__dict__.clear()
        super().__init__(*arguments)


@dataclass(frozen=True)
class Letting:
    """In the place of the actor class: the next host is a room that is there already."""

    room: object

    def options(self, **_):
        return self

    def remote(self, *arguments):
        import ray

        ray.get(self.room.settle.remote(*arguments))
        return self.room


class Lodging(RaySession):
    def _host(self, index, options):
        self._actor = Letting(ROOMS[index])
        return super()._host(index, options)

    def close(self):
        self._hosts.actors = []
        super().close()


@dataclass(frozen=True)
class Boarding(fs.Ray):
    def open(self, algorithm, setting):
        return Lodging(self, algorithm, setting)


ROOMS: list = []


@pytest.fixture(scope="module")
def rooms():
    """One Ray with two hosts for the whole file."""
    ray = pytest.importorskip("ray")
    from ray import cloudpickle

    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    own = OwnRay(4)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ROOMS[:] = [ray.remote(Room).remote() for _ in range(2)]
    yield
    ROOMS.clear()
    own.close()


@every
def test_hosts_give_the_bits_of_inline(name, rooms):
    on_hosts = fs.run(scenario(name, 4), runtime=Boarding(hosts=2))
    assert on_hosts.fingerprint == fs.run(scenario(name, 4), runtime=fs.Inline(threads=2, chunk=3)).fingerprint


SOME = {
    "uniform": participation.uniform(4),
    "with replacement": participation.with_replacement(4),
    "bernoulli": participation.bernoulli(0.4),
    "first": participation.first(2, of=4),
    "deadline": participation.deadline(0.6),
    "buffered": participation.buffered(2),
}


@pytest.mark.parametrize("some", SOME)
@every
def test_with_partial_participation_the_run_is_finite_and_counts_the_clients(name, some):
    policy = participation.bernoulli(0.4) if name in SINGLE else SOME[some]
    devices = fs.devices.lognormal(median_step_s=0.1, sigma=1.0, dropout=0.1)
    if name == "FSGLD" and some not in ("uniform", "with replacement"):
        with pytest.raises(InvalidInput, match="must visit client c with probability p_c"):
            scenario(name, 8, participation=policy, devices=devices)
        return
    result = fs.run(scenario(name, 8, participation=policy, devices=devices))
    assert np.isfinite(result.samples).all()
    assert result.rounds.arrived.sum() < 2 * 8 * result.manifest["scenario"]["problem"]["clients"]
    assert len(np.unique(result.samples[:, 0], axis=0)) > 2


REFUSED = {  # name, scenario: algorithms that refuse partial participation
    "FALD": "biased here because the clients' weights differ",
    "FAHMC": "biased here because the clients' weights differ",
    "FAHMC, de-biased": "biased here because the clients' weights differ",
}


@every
def test_unequal_clients_are_averaged_rightly_or_refused_with_a_remedy(name):
    if name in SINGLE or name == "PFedAvg":
        algorithm = EVERY[name][0]
        with pytest.raises(InvalidInput, match=r"pass fs.problems.pooled|whose data do not depend.*use FedAvg"):
            fs.run(fs.Scenario(problem=UNEQUAL, algorithm=algorithm, budget=fs.Budget(rounds=1)))
    elif name in REFUSED:
        with pytest.raises(InvalidInput, match=REFUSED[name] + ".*choose weighting='normalised', or with_replacement"):
            scenario(name, problem=UNEQUAL)
        scenario(name, problem=UNEQUAL, participation=participation.uniform(4, weighting="normalised"))
    elif name == "FSGLD":
        with pytest.raises(InvalidInput, match=r"with probability p_c.*use with_replacement\(1\)"):
            scenario(name, problem=UNEQUAL)
        scenario(name, problem=UNEQUAL, participation=participation.with_replacement(1))
    else:
        assert np.isfinite(fs.run(scenario(name, 3, UNEQUAL)).samples).all()


# --- One round, counted by hand -----------------------------------------------------------------------------

WIRE = {  # d = 3 numbers of 64 bits are 192; two of six clients are asked, or the one machine
    "FALD": (2 * 192, 2 * 192),
    "FAHMC": (2 * 192, 2 * 192),
    "FAHMC, de-biased": (2 * 384, 2 * 384),  # theta and a gradient, both ways
    "QLSD": (2 * 44, 6 * 192),  # a norm of 32 bits and 3 levels of 4; theta goes to all clients
    "QLSDStar": (2 * 44, 6 * 192),
    "QLSDPlusPlus": (2 * 44, 6 * 192),
    "FedAvg": (2 * 192, 2 * 192),
    "distributed_sgd": (2 * 192, 2 * 192),
    "FedPAQ": (2 * 47, 2 * 192),  # ten levels and a sign are 5 bits
    "PrivateFedPAQ": (2 * 47, 2 * 192),
    "Scaffold": (2 * 384, 2 * 384),  # the model and the control variate, both ways
    "FedProx": (2 * 192, 2 * 192),
    "FedNova": (2 * 256, 2 * 192),  # the direction and how far
    "FedDyn": (2 * 192, 2 * 192),
    "FedAdam": (2 * 192, 2 * 192),
    "FedYogi": (2 * 192, 2 * 192),
    "FedAdagrad": (2 * 192, 2 * 192),
    "FedBE": (2 * 192, 2 * 192),
    "FedBE, Dirichlet": (2 * 192, 2 * 192),
    "DGSGLD": (2 * 192, 2 * 192),
    "FSGLD": (2 * 192, 2 * 192),
    "PSGLD": (192, 192),
    "PFedAvg": (2 * 64, 2 * 64),  # d = 1
    "SGLD": (192, 192),
    "MALA": (192, 192),
    "HMC": (192, 192),
}


@every
def test_the_bits_of_a_round_are_those_counted_by_hand(name):
    up, down = WIRE[name]
    two = participation.full() if name in SINGLE else participation.uniform(2)
    rounds = fs.run(scenario(name, 3, participation=two)).rounds
    once = 6 * 9 * 64 * (name == "FSGLD")  # every client's surrogate, a mean and a triangle, in the first round
    assert rounds.uplink_bits.tolist() == [up + once * (round == 1) for round in rounds["round"]]
    assert rounds.downlink_bits.tolist() == [down] * 6
    assert rounds.wasted_bits.sum() == 0


# --- The contract can be broken -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Spoilt:
    """FedAvg with one promise broken."""

    broken: str
    batched = True

    def init(self, problem, initial):
        return {"theta": initial}

    def broadcast(self, state):
        return state

    def work(self, job):
        return 1

    def client(self, job, message, memory):
        theta = message["theta"]
        if self.broken == "client does not change its inputs":
            theta += 1.0
        move = job.gradient(theta, 0) / job.size
        if self.broken == "replay is exact":
            move = move + next(TICKS)
        if self.broken == "one job at a time and stacked agree":
            move = move - move.mean()
        return {"delta": -0.1 * move}, memory

    def server(self, state, replies, rng):
        theta = state["theta"]
        if self.broken == "the server does not change its state and the replies":
            theta += 1.0
        move = replies.mean("delta")
        if self.broken == "the order of the replies is irrelevant":
            move = move + replies["delta"][0]
        if self.broken == "the server accepts a round without replies":
            with np.errstate(all="ignore"):
                move = move / np.minimum(replies.count, 1)
        return {"theta": theta + move}


TICKS = itertools.count()
PROMISES = {  # and the message of a failure
    "client does not change its inputs": "client changes its inputs: .* copies",
    "replay is exact": "replay is not exact: .* twice",
    "one job at a time and stacked agree": "one job at a time and stacked disagree: delta differs by up to 0",
    "the server does not change its state and the replies": "the server changes the state or the replies .* copies",
    "the order of the replies is irrelevant": "the order of the replies matters: .* another state",
    "the server accepts a round without replies": "the server does not accept a round without replies: .* not finite",
}


@pytest.mark.parametrize("promise", PROMISES)
def test_a_broken_promise_is_a_failure_with_a_message(promise):
    with pytest.raises(Broken, match=f"Spoilt: {PROMISES[promise]}"):
        check(Spoilt(promise))


def test_the_spoilt_algorithm_is_sound_otherwise():
    held = set(check(Spoilt("")))
    for problem in ("GaussianMean", "LogisticRegression", "SoftmaxRegression"):
        assert {f"{promise} (on {problem})" for promise in PROMISES} <= held

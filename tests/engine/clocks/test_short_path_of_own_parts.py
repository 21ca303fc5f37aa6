"""Users' own batched policies and devices take the short path of the compiled clock, with the bits of SimPy."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace

import numpy as np
import pytest

import fedsim as fs
from fedsim.errors import Interrupted, InvalidInput

N = 12
PROBLEM = fs.problems.GaussianMean.synthetic(clients=N, dim=3, heterogeneity=1.0, samples=12, seed=5)
LINKS = fs.topologies.star(N, uplink_bps=np.linspace(1e3, 4e3, N), downlink_bps=1e4, latency_s=0.01)
BASE = fs.Scenario(
    problem=PROBLEM, algorithm=fs.algorithms.FALD(1e-3, local_steps=3), network=LINKS, budget=fs.Budget(rounds=30), replicas=4,
    seed=2,
)  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """Devices whose compute time is drawn, and of which some drop out."""

    dropout: float = 0.0
    always_available = True

    @property
    def reliable(self):
        return self.dropout == 0.0

    def compute_s(self, client, work, start_s, rng):
        return 0.01 * work * (1.0 + rng.uniform())

    def drop(self, client, start_s, rng):
        u = np.asarray(rng.uniform(2))
        return np.where(u[:, 0] < self.dropout, 1 + client % 3, 0), u[:, 1]


@dataclass(frozen=True)
class Coins:
    """Selects clients by coins, for all replicas in one call."""

    batched = waits = True

    def select(self, view, rng):
        return np.asarray(rng.uniform(view.clients)) < 0.4

    def close(self, view):
        return math.inf


@dataclass(frozen=True)
class Curious(Coins):
    """Reads a history without saying so."""

    def select(self, view, rng):
        view.received([0])
        return super().select(view, rng)


CASES = {
    "devices": {"devices": Drawn()},
    "devices that drop out": {"devices": Drawn(0.3)},
    "devices, first": {"devices": Drawn(), "participation": fs.participation.first(3, of=6)},
    "devices that drop out, deadline": {"devices": Drawn(0.2), "participation": fs.participation.deadline(0.6)},
    "devices, uniform": {"devices": Drawn(), "participation": fs.participation.uniform(5)},
    "devices, with replacement": {"devices": Drawn(), "participation": fs.participation.with_replacement(5)},
    "policy": {"participation": Coins()},
    "policy and devices": {"participation": Coins(), "devices": Drawn(0.3)},
    "a budget that ends a block": {"participation": Coins(), "devices": Drawn(), "budget": fs.Budget(seconds=9.0)},
}


@pytest.mark.parametrize("case", CASES)
def test_own_parts_have_the_bits_of_simpy_on_the_short_path(case):
    scenario = replace(BASE, **CASES[case])
    short = fs.run(scenario, clock="compiled")
    assert (short.manifest["clock"]["name"], short.manifest["clock"]["path"]) == ("compiled", "short")
    assert short.fingerprint == fs.run(scenario, clock="simpy").fingerprint


def test_a_run_with_own_parts_resumes_to_the_same_bits(tmp_path):
    scenario = replace(BASE, **CASES["policy and devices"])
    stop = threading.Event()
    with pytest.raises(Interrupted):
        fs.run(
            scenario, clock="compiled", out=tmp_path / "run", stop=stop,
            observers=[lambda progress: stop.set() if progress.round == 11 else None],
        )  # fmt: skip
    resumed = fs.run(scenario, out=tmp_path / "run", resume=True)
    assert resumed.manifest["clock"]["name"] == "compiled"
    assert resumed.fingerprint == fs.run(scenario, clock="simpy").fingerprint


def test_own_parts_on_shared_links_and_over_tiers_run_on_simpy():
    shared = replace(BASE, network=fs.topologies.multiple_access(N, capacity_bps=1e4), devices=Drawn())
    tiers = replace(BASE, exchange=fs.exchanges.tiers((0, 1) * 6, 2), devices=Drawn())
    for scenario in (shared, tiers):
        assert fs.run(scenario).manifest["clock"]["name"] == "simpy"
        with pytest.raises(InvalidInput, match="the devices Drawn has no columns"):
            fs.run(scenario, clock="compiled")


def test_a_batched_policy_that_reads_a_history_is_told_to_say_so():
    with pytest.raises(InvalidInput, match="set history = True"):
        fs.run(replace(BASE, participation=Curious()), clock="compiled")

"""The last round that counts is evaluated whatever stopped the run, for every replica and on every clock.

A run that evaluates every round says what the figures are; one that hardly ever does must end with the same.
"""

from __future__ import annotations

import dataclasses
import threading

import networkx as nx
import numpy as np
import pytest
from tools.clocks import always_compiled, reference_clock

import fedsim as fs
from fedsim import algorithms, devices, exchanges, participation, topologies
from fedsim.errors import Interrupted

N = 6
PROBLEM = fs.problems.GaussianMean.synthetic(clients=N, dim=3, heterogeneity=2.0, samples=12, seed=5)
LINKS = topologies.star(N, uplink_bps=(800.0, 1000.0, 1500.0, 900.0, 2000.0, 1200.0), downlink_bps=4e3, latency_s=0.01)
SLOW = devices.lognormal(median_step_s=0.1, sigma=1.0, dropout=0.1, slowdown=devices.pareto_slowdown(2.0))
ENDING = devices.constant(
    0.1, availability=devices.intervals([0.0] * N, ends=[7.0 + c for c in range(N)], offsets=list(range(N + 1)))
)
SECONDS, BITS = fs.Budget(seconds=15.0), fs.Budget(total_bits=40_000)

TIMED = fs.Scenario(
    problem=PROBLEM, algorithm=algorithms.FALD(1e-3, local_steps=3), network=LINKS, devices=SLOW, budget=SECONDS, replicas=4,
    seed=3, metrics=("w2", "mean_error", fs.metrics.distance_to([1.0, 2.0, 3.0], "away"), "ess_per_second"),
)  # fmt: skip
CASES = {
    "seconds": {},
    "seconds, nothing drawn": {"devices": None},
    "seconds, shared links": {"network": topologies.multiple_access(N, capacity_bps=3e3, latency_s=0.02)},
    "seconds, first": {"participation": participation.first(2, of=4)},
    "seconds, buffered": {"participation": participation.buffered(2)},
    "seconds, tiers": {"exchange": exchanges.tiers((0, 1) * 3, 2)},
    "seconds, gossip": {"exchange": exchanges.gossip(nx.cycle_graph(N))},
    "seconds, gossip in closed form": {"exchange": exchanges.gossip(nx.cycle_graph(N)), "devices": devices.constant(0.1)},
    "seconds, thinned": {"record": fs.Record(every=2, rounds_every=3)},
    "bits": {"budget": BITS},
    "bits, buffered of 4": {"budget": BITS, "participation": participation.buffered(2, of=4)},
    "uplink bits, gossip": {"budget": fs.Budget(backhaul_bits=30_000), "exchange": exchanges.gossip(nx.cycle_graph(N))},
    "bits, rounds in blocks": {"budget": BITS, "devices": None},
    "seconds and bits": {"budget": fs.Budget(seconds=15.0, total_bits=30_000)},
    "no clients": {"devices": ENDING, "budget": fs.Budget(rounds=1000)},
    "no clients, gossip": {
        "devices": ENDING, "budget": fs.Budget(rounds=1000), "exchange": exchanges.gossip(nx.cycle_graph(N)),
    },
    "no clients, tiers": {
        "devices": ENDING, "budget": fs.Budget(rounds=1000), "exchange": exchanges.tiers((0, 1) * 3, 2),
    },
    "no clients, buffered": {
        "devices": ENDING, "budget": fs.Budget(rounds=1000), "participation": participation.buffered(2),
    },
    "target": {"budget": fs.Budget(rounds=60, target=fs.Target("away", below=3.0))},
}  # fmt: skip
CLOCKS = {"either": None, "simpy": reference_clock, "compiled": always_compiled}


def run_on(clock, scenario, **more):
    if CLOCKS[clock] is None:
        return fs.run(scenario, **more)
    with CLOCKS[clock]():
        return fs.run(scenario, **more)


def last_rows(result):
    return result.rounds.groupby("replica").tail(1).set_index("replica")


@pytest.mark.filterwarnings("ignore::fedsim.errors.ResultWarning")
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("case", CASES)
def test_a_run_ends_with_the_figures_of_its_last_round(case, clock):
    scenario = dataclasses.replace(TIMED, **CASES[case])
    often, seldom = (
        run_on(clock, dataclasses.replace(scenario, evaluate_every=every))
        for every in (1, 1 if case == "target" else 1000)
    )
    assert seldom.stopped_by == often.stopped_by
    assert "rounds" not in seldom.stopped_by or case == "target"
    here, there = last_rows(seldom), last_rows(often)
    assert here["round"].tolist() == there["round"].tolist()
    assert here["round"].max() > 2
    assert here["away"].tolist() == there["away"].tolist()
    if case != "target":
        assert int(seldom.rounds["away"].notna().sum()) == scenario.replicas  # and no other row was evaluated
    every = often.metrics.set_index("round")
    ends = sorted(set(here["round"]))
    shown = seldom.metrics if case != "target" else seldom.metrics[seldom.metrics["round"].isin(ends)]
    assert shown["round"].tolist() == ends
    for row in shown.to_dict("records"):
        number = row.pop("round")
        assert all(np.array_equal(value, every.loc[number, name], equal_nan=True) for name, value in row.items())


@pytest.mark.filterwarnings("ignore::fedsim.errors.ResultWarning")
@pytest.mark.parametrize("case", ["seconds", "seconds, gossip", "bits, buffered of 4"])
def test_a_replica_ends_as_it_does_alone(case):
    scenario = dataclasses.replace(TIMED, **CASES[case], evaluate_every=1000, metrics=(TIMED.metrics[2],))
    together = fs.run(scenario).rounds
    alone = fs.run(dataclasses.replace(scenario, replicas=range(2, 3))).rounds
    assert together[together.replica == 2].reset_index(drop=True).equals(alone)


PRIVATE = fs.Scenario(
    problem=PROBLEM, algorithm=algorithms.PrivateFedPAQ(0.1, local_steps=2, clip=1.0, epsilon=1.0, delta=1e-4, batch_size=2),
    budget=fs.Budget(rounds=1000, epsilon=3.0), participation=participation.uniform(3), replicas=2, seed=3,
    metrics=(fs.privacy.spent(delta=1e-4),),
)  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"network": LINKS, "devices": SLOW, "budget": fs.Budget(seconds=9.0)},
        {"network": LINKS, "devices": SLOW, "budget": fs.Budget(uplink_bits=9_000), "participation": participation.buffered(2)},
    ],
    ids=["epsilon", "seconds", "bits, buffered"],
)  # fmt: skip
def test_the_manifest_says_what_privacy_was_spent_by_the_rounds_that_count(change):
    often, seldom = (fs.run(dataclasses.replace(PRIVATE, **change, evaluate_every=every)) for every in (1, 1000))
    spent = seldom.manifest["privacy"]["spent"]["epsilon"]
    assert spent == often.manifest["privacy"]["spent"]["epsilon"]
    assert spent == last_rows(often)["epsilon"].tolist()
    assert min(spent) > 0
    if not change:
        assert max(spent) <= 3.0  # the round that would cross the budget does not count


def test_a_run_in_which_no_round_counts_has_spent_no_privacy():
    result = fs.run(dataclasses.replace(PRIVATE, budget=fs.Budget(rounds=10, epsilon=1e-6)))
    assert not len(result.rounds)
    assert result.manifest["privacy"]["spent"]["epsilon"] == [0.0, 0.0]


# --- Interrupts ---------------------------------------------------------------------------------------------------


class Stopping:
    """An observer that asks for an end after round 4."""

    def __init__(self):
        self.stop, self.seen = threading.Event(), []

    def __call__(self, progress):
        self.seen.append((progress.round, progress.metrics.get("away")))
        if progress.round == 4:
            self.stop.set()


@pytest.mark.filterwarnings("ignore::fedsim.errors.ResultWarning")
@pytest.mark.parametrize("clock", ["simpy", "compiled"])
@pytest.mark.parametrize(
    "case", ["seconds", "seconds, buffered", "seconds, tiers", "seconds, gossip", "seconds, thinned"]
)
def test_an_interrupted_run_shows_its_last_figures_and_the_resumed_run_does_not_keep_them(tmp_path, case, clock):
    scenario = dataclasses.replace(TIMED, **CASES[case], evaluate_every=1000)
    watch = Stopping()
    with pytest.raises(Interrupted, match="stopped after round 4"):
        run_on(clock, scenario, out=tmp_path / "run", checkpoint_every=1000, stop=watch.stop, observers=[watch])
    often = run_on(clock, dataclasses.replace(scenario, evaluate_every=1, record=fs.Record()))
    shown = often.rounds[often.rounds["round"] == 4]["away"].median()
    assert [away for round, away in watch.seen if round == 4][-1] == shown
    resumed = run_on(clock, scenario, out=tmp_path / "run", resume=True)
    assert resumed.fingerprint == run_on(clock, scenario).fingerprint


@pytest.mark.filterwarnings("ignore::fedsim.errors.ResultWarning")
def test_a_checkpoint_keeps_the_last_figures_of_replicas_that_stopped_before_it(tmp_path):
    scenario = dataclasses.replace(TIMED, evaluate_every=1000, replicas=6)
    whole = fs.run(scenario)
    ends = last_rows(whole)["round"]
    assert ends.nunique() > 1  # replicas stop separately
    stop = threading.Event()
    with pytest.raises(Interrupted):
        fs.run(
            scenario, out=tmp_path / "run", checkpoint_every=1, stop=stop,
            observers=[lambda p: stop.set() if p.round == ends.min() + 1 else None],
        )  # fmt: skip
    assert fs.run(scenario, out=tmp_path / "run", resume=True).fingerprint == whole.fingerprint

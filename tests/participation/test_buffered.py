"""Asynchronous rounds: who is at work, what a fold does with stale replies, and when it ends."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import fedsim as fs
from fedsim.analysis import timeline


@dataclasses.dataclass(frozen=True)
class Add:
    """A client adds its number plus one to the model it started from: replies are distinct."""

    def init(self, problem, initial):
        return {"theta": initial}

    def broadcast(self, state):
        return {"theta": state["theta"]}

    def work(self, job):
        return 1.0

    def client(self, job, message, memory):
        return {"theta": message["theta"] + job.client + 1.0}, memory

    def server(self, state, replies, rng):
        return {"theta": replies.mean("theta")}


@dataclasses.dataclass(frozen=True)
class Remember(Add):
    """Also counts its visits that the server has aggregated."""

    def memory(self, problem):
        return {"visits": np.zeros(1)}

    def client(self, job, message, memory):
        return {"theta": message["theta"] + memory["visits"][0]}, {"visits": memory["visits"] + 1.0}


def scenario_of(seconds, policy, algorithm=None, rounds=3, **more):
    """Devices without a network: client c computes for seconds[c]."""
    devices = seconds if hasattr(seconds, "compute_s") else fs.devices.constant(seconds_per_step=seconds)
    clients = more.pop("clients", None) or len(seconds)
    return fs.Scenario(
        **{
            "problem": fs.problems.GaussianMean.synthetic(clients, dim=1, samples=2, seed=1),
            "algorithm": algorithm or Add(),
            "devices": devices,
            "participation": policy,
            "budget": fs.Budget(rounds=rounds),
            "record": fs.Record(events=True),
        }
        | more
    )


def thetas(result):
    return result.samples[:, 0, 0].tolist()


# --- What a fold does -------------------------------------------------------------------------------------
# Clients compute 2, 3 and 7 s. Arrivals: 0 at 2, 4; 1 at 3, 6; ... with a buffer of two:
#   0 at 2 (version 0), 1 at 3 (version 0)   fold 1 at 3
#   0 at 4 (began at 2, version 0), 0 at 6 (began at 4, version 1), 1 at 6 (began at 3, version 1)
#     fold 2 at 6: 0 from version 0 and whichever of the two comes first at 6
# To keep clear of that tie client 1 takes 3.5 s:
#   0 at 2, 1 at 3.5: fold 1.  0 at 4 (v0, stale 1), 0 at 6 (v1, stale 0): fold 2 at 6, twice the same client.
#   1 at 7 (v1, stale 1), 2 at 7.5 (v0, stale 2): fold 3 at 7.5.
SECONDS = [2.0, 3.5, 7.5]


def test_every_so_many_arrivals_make_a_version():
    result = fs.run(scenario_of(SECONDS, fs.participation.buffered(2)))
    assert result.rounds["closed_s"].tolist() == [3.5, 6.0, 7.5]
    # Replies are re-based on the version that they are aggregated into: each moves it by its client's number plus one.
    assert thetas(result) == pytest.approx([(1 + 2) / 2, 1.5 + (1 + 1) / 2, 2.5 + (2 + 3) / 2])


def test_stale_replies_are_discounted():
    result = fs.run(scenario_of(SECONDS, fs.participation.buffered(2, discount=lambda k: 1 / (1 + k))))
    steps = [(1 + 2) / 2, (1 / 2 + 1) / 2, (2 / 2 + 3 / 3) / 2]
    assert thetas(result) == pytest.approx(np.cumsum(steps).tolist())


def test_replies_weigh_as_their_clients_do():
    """p = 1/7, 2/7, 4/7, renormalised over what arrived; a client that arrived twice counts twice."""
    problem = fs.problems.GaussianMean.synthetic(3, dim=1, samples=[2, 4, 8], seed=1)
    result = fs.run(scenario_of(SECONDS, fs.participation.buffered(2), problem=problem))
    steps = [(1 * 1 + 2 * 2) / 3, 1.0, (2 * 2 + 4 * 3) / 6]
    assert thetas(result) == pytest.approx(np.cumsum(steps).tolist())


def test_a_client_with_memory_waits_for_its_fold():
    # 0 at 2, waits; 1 at 3.5: fold 1, both replies were made with 0 visits. 0 at 5.5, 1 at 7: fold 2 with 1 visit each.
    # Client 2 arrives at 7.5 with 0 visits, 0 at 9: fold 3, visits 2 and 0.
    result = fs.run(scenario_of(SECONDS, fs.participation.buffered(2), Remember()))
    assert result.rounds["closed_s"].tolist() == [3.5, 7.0, 9.0]
    assert thetas(result) == pytest.approx([0.0, 1.0, 1.0 + (2 + 0) / 2])


@pytest.mark.parametrize("discount", [lambda k: -1.0, lambda k: math.nan, lambda k: math.inf])
def test_a_discount_that_is_no_weight_is_refused(discount):
    with pytest.raises(fs.errors.InvalidInput, match="discount returned"):
        fs.run(scenario_of(SECONDS, fs.participation.buffered(2, discount=discount)))


def test_a_fast_client_draws_new_noise_at_every_visit():
    """Visits of one client from one version differ in their visit number, and so in their noise."""
    scenario = scenario_of([1.0, 100.0], fs.participation.buffered(3), fs.algorithms.FALD(step_size=1e-2), rounds=1)
    result = fs.run(scenario)
    assert result.clients["arrived"].tolist() == [3, 0]
    one = fs.run(dataclasses.replace(scenario, participation=fs.participation.buffered(1)))
    assert result.samples[0, 0, 0] != one.samples[0, 0, 0]  # three equal replies would have the mean of one


# --- Who is at work ---------------------------------------------------------------------------------------


def at_work(visits, instant):
    """The clients under way at an instant of replica 0."""
    visits = visits[(visits["replica"] == 0) & (visits["select"] <= instant)]
    return visits.loc[visits["end_s"].isna() | (visits["end_s"] > instant), "client"].tolist()


def on_during(*intervals):
    flat = [pair for own in intervals for pair in own]
    return fs.devices.intervals(
        [s for s, _ in flat], ends=[e for _, e in flat], offsets=np.cumsum([0, *(len(own) for own in intervals)])
    )


def test_all_clients_work_continuously_by_default():
    result = fs.run(scenario_of([1.1, 2.3, 0.7, 1.9], fs.participation.buffered(3), rounds=20))
    visits = timeline.visits(result)
    for instant in np.linspace(0.1, result.rounds["closed_s"].max() - 0.1, 50):
        assert sorted(at_work(visits, instant)) == [0, 1, 2, 3]


def test_so_many_are_at_work_as_asked_for():
    seconds = np.linspace(0.5, 2.0, 12).tolist()
    result = fs.run(scenario_of(seconds, fs.participation.buffered(3, of=4), rounds=60))
    visits = timeline.visits(result)
    for instant in np.linspace(0.1, result.rounds["closed_s"].max() - 0.1, 50):
        now = at_work(visits, instant)
        assert len(now) == len(set(now)) == 4
    assert (result.clients["arrived"] > 3).all()  # drawn at random, so that all clients have visits


def test_who_is_off_at_first_joins_when_it_comes_on():
    # Client 2 is off until 4.0: it then starts from version 1 (fold 1 at 3.5) and arrives at 4.0 + 0.4.
    devices = fs.devices.constant(
        seconds_per_step=[2.0, 3.5, 0.4], availability=on_during([(0, 100)], [(0, 100)], [(4, 100)])
    )
    result = fs.run(scenario_of(devices, fs.participation.buffered(2), clients=3))
    visits = timeline.visits(result)
    assert visits.loc[visits["client"] == 2, ["select", "end_s"]].iloc[0].tolist() == pytest.approx([4.0, 4.4])


@pytest.mark.parametrize("of", [None, 2])
def test_the_clock_waits_for_the_first_to_come_on(of):
    devices = fs.devices.constant(
        seconds_per_step=1.0, availability=on_during([(9, 100)], [(5, 100)], [(7.5, 100)], [(50, 100)])
    )
    result = fs.run(scenario_of(devices, fs.participation.buffered(1, of=of), clients=4, rounds=2))
    # Client 1 comes on at 5 and answers at 6 and 7.
    assert result.rounds["closed_s"].tolist() == pytest.approx([6.0, 7.0])
    visits = timeline.visits(result)
    assert visits["client"].iloc[0] == 1


def test_places_are_never_lost_while_clients_come_and_go():
    """Three places among ten clients that are on for short times: whenever three are on, three are at work."""
    devices = fs.devices.constant(seconds_per_step=0.2, availability=fs.devices.markov(on_s=1.0, off_s=0.5))
    scenario = scenario_of(devices, fs.participation.buffered(2, of=3), clients=10, rounds=80)
    result = fs.run(scenario)
    assert result.stopped_by == ("rounds",)
    assert result.rounds["dropped"].sum() > 8  # some went off during a visit
    visits = timeline.visits(result)
    for instant in np.linspace(0.1, result.rounds["closed_s"].max() - 0.1, 60):
        assert len(at_work(visits, instant)) == 3


def test_going_off_during_a_visit_is_a_dropout_and_it_comes_back():
    # On during 0 to 3 and from 10: visits 0-2, 2-(3, lost), 10-12.
    devices = fs.devices.constant(seconds_per_step=2.0, availability=on_during([(0, 3), (10, 100)]))
    result = fs.run(scenario_of(devices, fs.participation.buffered(1), clients=1, rounds=2))
    assert result.rounds["closed_s"].tolist() == [2.0, 12.0]
    assert result.rounds["dropped"].tolist() == [0, 1]


def test_no_one_left_ends_the_run():
    devices = fs.devices.constant(seconds_per_step=2.0, availability=on_during([(0, 5)], [(0, 3)]))
    result = fs.run(scenario_of(devices, fs.participation.buffered(2), clients=2, rounds=50))
    assert result.stopped_by == ("no clients",)
    assert result.rounds["closed_s"].tolist() == [2.0]  # both at 2; of what follows only one reply arrives, at 4


# --- When it ends -----------------------------------------------------------------------------------------


def test_visits_that_all_drop_out_do_not_go_on_for_ever():
    devices = fs.devices.constant(seconds_per_step=1.0, dropout=1.0)
    result = fs.run(scenario_of(devices, fs.participation.buffered(2), clients=3), timing_only=True)
    assert result.stopped_by == ("no clients",)
    assert len(result.rounds) == 0


def test_a_replica_among_many_equals_the_replica_alone():
    devices = fs.devices.lognormal(1.0, sigma=0.6, dropout=0.2, slowdown=fs.devices.pareto_slowdown(2.0))
    scenario = scenario_of(
        devices,
        fs.participation.buffered(3, of=5),
        fs.algorithms.FALD(step_size=1e-3),
        clients=8,
        rounds=12,
        replicas=6,
    )
    together = fs.run(scenario)
    alone = fs.run(dataclasses.replace(scenario, replicas=range(4, 5)))
    assert alone.rounds.equals(together.rounds[together.rounds["replica"] == 4].reset_index(drop=True))
    assert alone.samples[:, 0].tobytes() == together.samples[:, 4].tobytes()


def test_instant_clients_fold_without_time_passing():
    result = fs.run(scenario_of([0.0, 0.0, 0.0], fs.participation.buffered(2), rounds=50))
    assert result.rounds["closed_s"].max() == 0.0
    assert result.rounds["arrived"].tolist() == [2] * 50

"""`timing_only=True`: the whole timeline without numerics, and with `Payload` without data."""

from __future__ import annotations

import numpy as np
import pytest

import fedsim as fs

CLIENTS, DIM = 5, 4
DEVICES = fs.devices.lognormal(0.1, sigma=0.7, dropout={"before": 0.05, "compute": 0.1, "upload": 0.1})


def scenario_of(algorithm=None, **more):
    return fs.Scenario(
        **{
            "problem": fs.problems.GaussianMean.synthetic(CLIENTS, dim=DIM, samples=6, seed=4),
            "algorithm": algorithm or fs.algorithms.FALD(step_size=1e-3, local_steps=3),
            "network": fs.topologies.star(CLIENTS, uplink_bps=2e3, downlink_bps=1e4, latency_s=0.02),
            "devices": DEVICES,
            "budget": fs.Budget(rounds=8),
            "replicas": 3,
            "seed": 9,
        }
        | more
    )


ALGORITHMS = {
    "FALD": fs.algorithms.FALD(step_size=1e-3, local_steps=3),
    "FedPAQ": fs.algorithms.FedPAQ(step_size=1e-2, local_steps=2, codec=fs.codecs.QSGD(3)),
    "Scaffold": fs.algorithms.Scaffold(step_size=1e-2, local_steps=2),
    "QLSD++": fs.algorithms.QLSDPlusPlus(step_size=1e-4, refresh_every=3, codec=fs.codecs.QSGD(4)),
    "FAHMC": fs.algorithms.FAHMC(step_size=1e-2, leapfrog_steps=2, debias="stale"),
}
POLICIES = {
    "full": fs.participation.full(),
    "first": fs.participation.first(2),
    "deadline": fs.participation.deadline(0.4),
    "buffered": fs.participation.buffered(2),
}


def assert_same_timeline(skipped, computed):
    assert skipped.samples is None
    assert skipped.rounds.equals(computed.rounds)
    assert skipped.clients.equals(computed.clients)
    assert skipped.stopped_by == computed.stopped_by
    if computed.events is not None:
        assert skipped.events.equals(computed.events)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_timeline_of_every_algorithm_is_known_without_computing(algorithm):
    scenario = scenario_of(ALGORITHMS[algorithm])
    assert_same_timeline(fs.run(scenario, timing_only=True), fs.run(scenario))


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("network", ["star", "shared"])
def test_the_timeline_is_the_same_on_every_path(network, policy, events):
    more = (
        {"network": fs.topologies.multiple_access(CLIENTS, capacity_bps=4e3, latency_s=0.01)}
        if network == "shared"
        else {}
    )
    scenario = scenario_of(participation=POLICIES[policy], record=fs.Record(events=events), **more)
    assert_same_timeline(fs.run(scenario, timing_only=True), fs.run(scenario))


def test_a_payload_takes_the_time_of_a_model_of_its_size():
    computed = fs.run(scenario_of())
    payload = fs.run(scenario_of(problem=fs.problems.Payload(CLIENTS, parameters=DIM)), timing_only=True)
    assert_same_timeline(payload, computed)


def test_a_payload_needs_no_room_for_its_samples_or_replicas():
    """A model of 32 Mbit in 50 replicas for 1,000 rounds: its samples alone would take 200 GB."""
    scenario = fs.Scenario(
        problem=fs.problems.Payload(clients=100, parameters=10**6),
        algorithm=fs.algorithms.FALD(step_size=1e-3),
        network=fs.topologies.star(100, uplink_bps=1e6, downlink_bps=1e6),
        budget=fs.Budget(rounds=1000), replicas=50, record=fs.Record(rounds_every=1000), dtype="float32",
    )  # fmt: skip
    result = fs.run(scenario, timing_only=True)
    assert result.rounds["closed_s"].unique().tolist() == pytest.approx([64_000.0])  # 2 x 32e6 / 1e6 s a round


def test_metrics_are_not_evaluated():
    result = fs.run(scenario_of(metrics=("w2",)), timing_only=True)
    assert len(result.metrics) == 0


# --- What has no timeline without its values ------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_codec_whose_length_depends_on_the_values_is_refused(policy):
    algorithm = fs.algorithms.FedPAQ(step_size=1e-2, codec=fs.codecs.Elias(3))
    with pytest.raises(fs.errors.InvalidInput, match=r"FedPAQ with Elias.*depends on its values.*QSGD"):
        fs.run(scenario_of(algorithm, participation=POLICIES[policy]), timing_only=True)


def test_a_target_is_refused():
    scenario = scenario_of(budget=fs.Budget(rounds=9, target=fs.Target("w2", below=1.0)), metrics=("w2",))
    with pytest.raises(fs.errors.InvalidInput, match="evaluates no metrics"):
        fs.run(scenario, timing_only=True)


def test_a_payload_cannot_be_computed_with():
    scenario = scenario_of(problem=fs.problems.Payload(CLIENTS, DIM))
    with pytest.raises(fs.errors.InvalidInput, match="no data to compute with"):
        fs.run(scenario)
    with pytest.raises(fs.errors.InvalidInput, match="no data to compute with"):
        scenario.problem.gradient(np.zeros(DIM), 0)


@pytest.mark.parametrize("clients, parameters", [(0, 3), (3, 0), (2.5, 3), (3, "many"), (True, 3), (2**70, 3)])
def test_a_payload_of_nothing_is_refused(clients, parameters):
    with pytest.raises(fs.errors.InvalidInput, match="integer of at least 1"):
        fs.problems.Payload(clients, parameters)

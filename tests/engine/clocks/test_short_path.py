"""The short path, where it serves only as long as nothing contends, and where it asks for the sizes of replies."""

from __future__ import annotations

import numpy as np
import pytest

import fedsim as fs

PROBLEM = fs.problems.GaussianMean.synthetic(6, dim=3, samples=4, seed=1)
STAR = fs.topologies.star(
    6, uplink_bps=[1e3, 2e3, 3e3, 1e3, 2e3, 3e3], downlink_bps=[4e3, 2e3, 4e3, 8e3, 4e3, 4e3], latency_s=0.02
)
DEVICES = fs.devices.lognormal(0.1, sigma=0.7, dropout={"before": 0.05, "compute": 0.1, "upload": 0.1})
POLICIES = {
    "bernoulli": fs.participation.bernoulli(0.7),
    "uniform": fs.participation.uniform(2),
    "first": fs.participation.first(2, of=4),
    "deadline": fs.participation.deadline(0.6, of=4),
}


def scenario(codec=None, **changes):
    algorithm = fs.algorithms.QLSD(1e-3, codec=codec or fs.codecs.QSGD(4))
    given = {"network": STAR, "budget": fs.Budget(rounds=60), "replicas": 3, "seed": 3}
    return fs.Scenario(problem=PROBLEM, algorithm=algorithm, **(given | changes))


def same(a, b):
    assert np.array_equal(a.samples, b.samples, equal_nan=True)
    for name in ("rounds", "clients", "metrics", *(("events",) if a.events is not None else ())):
        assert getattr(a, name).equals(getattr(b, name)), name
    assert a.stopped_by == b.stopped_by


def compiled(s, **options):
    result = fs.run(s, clock="compiled", **options)
    assert result.manifest["clock"]["name"] == "compiled"
    return result, result.manifest["clock"]["path"]


@pytest.mark.parametrize("devices", [None, DEVICES], ids=["instant", "devices"])
@pytest.mark.parametrize("policy", POLICIES)
def test_unselected_broadcasts_change_no_bit(policy, devices):
    s = scenario(participation=POLICIES[policy], devices=devices, record=fs.Record(events=True))
    result, _ = compiled(s)
    same(result, fs.run(s, clock="simpy"))


def test_unselected_broadcasts_that_end_before_the_next_round_need_no_flows():
    assert compiled(scenario(participation=POLICIES["uniform"], devices=fs.devices.constant(2.0)))[1] == "short"


def test_a_round_that_meets_the_broadcast_of_the_one_before_is_simulated_with_flows():
    s = scenario(participation=fs.participation.bernoulli(0.2), record=fs.Record(events=True))  # some rounds are empty
    result, path = compiled(s)
    assert path == "loop"
    same(result, fs.run(s, clock="simpy"))


@pytest.mark.parametrize("devices", [None, DEVICES], ids=["instant", "devices"])
@pytest.mark.parametrize("policy", [*POLICIES, "full"])
def test_sizes_that_depend_on_values_give_the_same_bits_on_both_clocks(policy, devices):
    policy = POLICIES.get(policy, fs.participation.full())
    s = scenario(fs.codecs.Elias(4), participation=policy, devices=devices, broadcast_to="selected")
    result, path = compiled(s)
    assert path == "short"
    same(result, fs.run(s, clock="simpy"))


class Interrupt:
    def __call__(self, progress):
        if progress.round == 30:
            raise KeyboardInterrupt


@pytest.mark.parametrize("codec", [fs.codecs.Elias(4), fs.codecs.QSGD(4)])
@pytest.mark.parametrize("chance", [0.2, 0.9])
def test_a_run_on_the_short_path_resumes_to_the_same_bits(codec, chance, tmp_path):
    more = {"broadcast_to": "selected"} if isinstance(codec, fs.codecs.Elias) else {}
    s = scenario(codec, participation=fs.participation.bernoulli(chance), devices=DEVICES, **more)
    with pytest.raises(KeyboardInterrupt):
        fs.run(s, out=tmp_path / "run", checkpoint_every=7, observers=[Interrupt()], clock="compiled")
    same(fs.run(s, out=tmp_path / "run", resume=True), fs.run(s, clock="simpy"))


@pytest.mark.parametrize("codec", [fs.codecs.QSGD(4), fs.codecs.Elias(4)], ids=["fixed sizes", "sizes by value"])
def test_broadcasts_to_all_over_an_ideal_network_stay_on_the_short_path(codec):
    scenario = fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(clients=6, dim=3, samples=12, seed=5),
        algorithm=fs.algorithms.QLSD(1e-3, codec=codec), participation=fs.participation.bernoulli(0.5),
        budget=fs.Budget(rounds=20), replicas=3, seed=2,
    )  # fmt: skip
    short = fs.run(scenario, clock="compiled")
    assert short.manifest["clock"]["path"] == "short"
    assert short.fingerprint == fs.run(scenario, clock="simpy").fingerprint

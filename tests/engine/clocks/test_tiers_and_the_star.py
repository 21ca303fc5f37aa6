"""Tiers that merge every round are the star under full participation, or the algorithm is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

import fedsim as fs
from fedsim import algorithms, codecs
from fedsim.errors import InvalidInput
from fedsim.problems import GaussianMean, PerformativeMean, pooled

GROUPS = (0, 1, 1, 0, 1, 1)  # two clients and four
SIZES = (4, 8, 12, 10, 6, 20)
UNEQUAL = GaussianMean.synthetic(clients=6, dim=3, heterogeneity=2.0, samples=SIZES, seed=5)
REACTING = PerformativeMean((2.0, 4.0, 7.0, 3.0, 9.0, 5.0), (0.1, 0.9, 0.4, 0.2, 0.3, 0.1), 0.8, np.array(SIZES) / 60)
LINE = GaussianMean.synthetic(clients=6, dim=1, heterogeneity=2.0, samples=10, seed=5)  # edges of 1/3 and 2/3
STEPS = (3, 1, 2, 2, 1, 3)

EVERY = {  # every kind in fs.algorithms, with several local steps, memory and a real wire where it has them
    "FALD": (algorithms.FALD(1e-3, local_steps=2, correlation=0.5, batch_size=3), UNEQUAL),
    "FAHMC": (algorithms.FAHMC(1e-2, leapfrog_steps=3, local_steps=2, correlation=0.5, codec=codecs.QSGD(4)), UNEQUAL),
    "FAHMC, de-biased": (
        algorithms.FAHMC(1e-2, leapfrog_steps=3, local_steps=2, correlation=0.5, debias="stale"),
        UNEQUAL,
    ),
    "QLSD": (algorithms.QLSD(1e-3, batch_size=3, codec=codecs.Elias(4)), UNEQUAL),
    "QLSD, inverse": (algorithms.QLSD(1e-3, weighting="inverse", activity=1.0), UNEQUAL),
    "QLSDStar": (algorithms.QLSDStar(1e-3, batch_size=3, codec=codecs.QSGD(4)), UNEQUAL),
    "QLSDPlusPlus": (algorithms.QLSDPlusPlus(1e-3, refresh_every=2, batch_size=3, codec=codecs.QSGD(4)), UNEQUAL),
    "FedAvg": (
        algorithms.FedAvg(1e-2, local_steps=3, batch_size=3, server_step=0.7, momentum=0.5, weight_decay=0.1),
        UNEQUAL,
    ),
    "FedAvg, scaled": (algorithms.FedAvg(1e-2, local_steps=3, objective="scaled"), UNEQUAL),
    "distributed_sgd": (algorithms.distributed_sgd(1e-2, batch_size=3), UNEQUAL),
    "FedPAQ": (algorithms.FedPAQ(1e-2, local_steps=3, codec=codecs.Elias(3)), UNEQUAL),
    "FedPAQ, scaled": (algorithms.FedPAQ(1e-2, local_steps=3, objective="scaled"), UNEQUAL),
    "PrivateFedPAQ": (
        algorithms.PrivateFedPAQ(1e-2, local_steps=2, clip=1.0, epsilon=1.0, delta=1e-4, batch_size=2),
        UNEQUAL,
    ),
    "FedProx": (algorithms.FedProx(1e-2, local_steps=STEPS, proximal=0.5), UNEQUAL),
    "FedProx, scaled": (algorithms.FedProx(1e-2, local_steps=STEPS, proximal=0.5, objective="scaled"), UNEQUAL),
    "FedProx, scaled, equal clients": (
        algorithms.FedProx(1e-2, local_steps=STEPS, proximal=0.5, objective="scaled"),
        LINE,
    ),
    "PFedAvg": (algorithms.PFedAvg(0.1, local_steps=3), REACTING),
    "PFedAvg, scaled": (algorithms.PFedAvg(0.1, local_steps=3, objective="scaled"), REACTING),
    "FedNova": (algorithms.FedNova(1e-2, local_steps=STEPS), UNEQUAL),
    "FedNova, scaled": (algorithms.FedNova(1e-2, local_steps=STEPS, objective="scaled"), UNEQUAL),
    "Scaffold": (algorithms.Scaffold(1e-2, local_steps=2), UNEQUAL),
    "FedDyn": (algorithms.FedDyn(1e-2, local_steps=2, regularity=0.5), UNEQUAL),
    "FedAdam": (algorithms.FedAdam(1e-2, local_steps=2), UNEQUAL),
    "FedYogi": (algorithms.FedYogi(1e-2, local_steps=2), UNEQUAL),
    "FedAdagrad": (algorithms.FedAdagrad(1e-2, local_steps=2), UNEQUAL),
    "FedBE": (algorithms.FedBE(1e-2, local_steps=2, members=3), UNEQUAL),
    "DGSGLD": (algorithms.DGSGLD(1e-3, coupling=0.1, local_steps=2), UNEQUAL),
    "FSGLD": (algorithms.FSGLD.laplace(UNEQUAL, step_size=1e-3, local_steps=2), UNEQUAL),
    "DESGLD": (algorithms.DESGLD(1e-3), UNEQUAL),
    "DIGingSGLD": (algorithms.DIGingSGLD(1e-3), UNEQUAL),
    "PSGLD": (algorithms.PSGLD(1e-3, local_steps=2, damping=1e-2), pooled(UNEQUAL)),
    "SGLD": (algorithms.SGLD(1e-3, local_steps=2), pooled(UNEQUAL)),
    "MALA": (algorithms.MALA(1e-2, local_steps=2), pooled(UNEQUAL)),
    "HMC": (algorithms.HMC(5e-2, leapfrog_steps=3, local_steps=2), pooled(UNEQUAL)),
}
REFUSED = {
    "FAHMC, de-biased": "have gradient besides theta",
    "FedAvg, scaled": r"FedAvg\(objective='scaled'\) over tiers: .*objective='mean'",
    "FedPAQ, scaled": r"FedPAQ\(objective='scaled'\) over tiers: .*objective='mean'",
    "FedProx, scaled": r"FedProx\(objective='scaled'\) over tiers: .*objective='mean'",
    "PFedAvg, scaled": r"PFedAvg\(objective='scaled'\) over tiers: .*objective='mean'",
    "FedNova": "FedNova over tiers: .*star",
    "FedNova, scaled": "FedNova over tiers: .*star",
    "FSGLD": "FSGLD over tiers: .*star",
    "Scaffold": "have c besides theta",
    "FedDyn": "have h, share besides theta",
    "FedAdam": "have m, v besides theta",
    "FedYogi": "have m, v besides theta",
    "FedAdagrad": "have m, v besides theta",
    "FedBE": "have held, models besides theta",
    "DGSGLD": "have offset, precision, start besides theta",
    "DESGLD": "has no server step",
    "DIGingSGLD": "has no server step",
}


def scenario(name, exchange, **more):
    algorithm, problem = EVERY[name]
    usual = {"problem": problem, "algorithm": algorithm, "budget": fs.Budget(rounds=5), "replicas": 2, "seed": 3}
    return fs.Scenario(**usual | {"exchange": exchange, "initial": np.full(problem.dim, 0.5)} | more)


def test_every_algorithm_is_tried():
    assert {name.partition(",")[0] for name in EVERY} == set(algorithms.__all__)
    accepted = {name for name in EVERY if name not in REFUSED}
    assert {"FALD", "FAHMC", "FedAvg", "FedPAQ", "FedProx", "PFedAvg", "QLSD"} <= accepted


@pytest.mark.parametrize("name", EVERY)
def test_tiers_that_merge_every_round_equal_the_star_or_are_refused_by_name(name):
    clients = EVERY[name][1].clients
    tiers = fs.exchanges.tiers(GROUPS[:clients], every=1)
    if name in REFUSED:
        with pytest.raises(InvalidInput, match=REFUSED[name]) as refused:
            scenario(name, tiers)
        assert type(EVERY[name][0]).__name__ in str(refused.value)
        return
    star = fs.run(scenario(name, fs.exchanges.star())).samples
    assert np.ptp(star[:, 0], axis=0).min() > 1e-6
    np.testing.assert_allclose(fs.run(scenario(name, tiers)).samples, star, rtol=0, atol=1e-13)


def activity_of(policy, sizes=SIZES, groups=GROUPS):
    """Everybody's chance to be selected by its edge, by enumeration in plain arithmetic."""
    group = np.array(groups)
    count = np.bincount(group)[group]
    p = np.array(sizes) / np.bincount(group, sizes)[group]
    return {"uniform": 2 / count, "with_replacement": 1 - (1 - p) ** 2, "full": np.ones(len(p))}[policy]


@pytest.mark.parametrize("policy", ["uniform", "with_replacement", "full"])
def test_generalised_qlsd_divides_by_the_chance_to_be_selected_by_ones_own_edge(policy):
    chosen = fs.participation.full() if policy == "full" else getattr(fs.participation, policy)(2)
    tiers, chance = fs.exchanges.tiers(GROUPS, every=1), activity_of(policy)

    def made(activity):
        return scenario(
            "QLSD", tiers, participation=chosen,
            algorithm=algorithms.QLSD(1e-3, weighting="inverse", activity=tuple(activity)),
        )  # fmt: skip

    assert made(chance).participation is chosen
    star = {"uniform": np.full(6, 2 / 6), "with_replacement": 1 - (1 - np.array(SIZES) / 60) ** 2, "full": chance / 2}
    with pytest.raises(InvalidInput, match=f"probability {chance[0]:.6g} here"):
        made(star[policy])


def test_generalised_qlsd_over_tiers_has_an_unbiased_gradient():
    """From the same start on average, one round moves by -gamma sum_i 1{i in A} grad U_i / p_i."""
    policy = fs.participation.uniform(2)
    sampler = algorithms.QLSD(1e-3, weighting="inverse", activity=tuple(activity_of("uniform")))
    made = scenario(
        "QLSD", fs.exchanges.tiers(GROUPS, every=1), participation=policy, algorithm=sampler, replicas=4000,
        budget=fs.Budget(rounds=1),
    )  # fmt: skip
    samples, start = fs.run(made).samples[0], np.full(3, 0.5)
    gradients = np.array([UNEQUAL.gradient(start, c) for c in range(6)])
    expected = start - 1e-3 * gradients.sum(axis=0)
    z = (samples.mean(axis=0) - expected) / (samples.std(axis=0, ddof=1) / np.sqrt(len(samples)))
    assert np.abs(z).max() < 5


@pytest.mark.parametrize("policy", [
    fs.participation.uniform(2), fs.participation.with_replacement(2), fs.participation.first(1, of=2),
    fs.participation.deadline(1.0, of=2),
], ids=lambda policy: type(policy).__name__)  # fmt: skip
def test_generalised_qlsd_refuses_draws_among_those_online(policy):
    """The chance of a client that is always online is above S / N, and depends on who else is."""
    asleep = fs.devices.constant(1e-3, availability=fs.devices.markov(on_s=1.0, off_s=1.0))
    for exchange in (fs.exchanges.star(), fs.exchanges.tiers(GROUPS, every=1)):
        with pytest.raises(InvalidInput, match=r"devices that go offline.*weighting='count'"):
            scenario(
                "QLSD", exchange, participation=policy, devices=asleep,
                algorithm=algorithms.QLSD(1e-3, weighting="inverse", activity=0.05),
            )  # fmt: skip

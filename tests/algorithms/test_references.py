"""Single-machine samplers: SGLD against its recursion, MALA and HMC against the posterior itself, |z| < 5."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import moments

import fedsim as fs
from fedsim.algorithms import FALD
from fedsim.algorithms.hmc import HMC
from fedsim.algorithms.mala import MALA
from fedsim.algorithms.sgld import SGLD
from fedsim.errors import InvalidInput
from fedsim.problems import pooled
from fedsim.problems.performative import PerformativeMean

SIZES, START, REPLICAS = (5, 9, 16), np.array([1.0, -1.0]), 4000
SIGMA = np.array([[2.0, -0.8], [-0.8, 1.0]])


def points():
    generator = np.random.default_rng(6)
    return [generator.normal(size=(n, 2)) + generator.normal(size=2) for n in SIZES]


def gaussian(prior_precision=3.0):
    """The pooled problem: 30 points, posterior standard deviations of about 0.2."""
    return pooled(fs.problems.GaussianMean(points(), SIGMA, prior_precision))


def regression():
    generator = np.random.default_rng(7)
    x = generator.normal(size=(30, 2)) * [1.0, 0.5]
    y = x @ [0.5, -1.0] + generator.normal(size=30)
    return fs.problems.LinearRegression([(x, y)], noise_variance=1.5, prior_precision=2.0)


def simulate(algorithm, problem, rounds, replicas=REPLICAS, seed=2, **scenario):
    return fs.run(
        fs.Scenario(
            problem=problem, algorithm=algorithm, budget=fs.Budget(rounds=rounds), replicas=replicas, seed=seed,
            initial=START[: problem.dim] if problem.dim == 2 else None, **scenario,
        )
    )  # fmt: skip


def z(samples, mean, covariance):
    return np.abs(moments.z_scores(samples, mean, covariance)).max()


# --- SGLD -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size, temperature", [(None, 1.0), (6, 0.5)])
def test_sgld_has_the_exact_moments(batch_size, temperature):
    whole = moments.gaussian_means(
        [np.concatenate(points())], [SIGMA], 3.0, batch=None if batch_size is None else [batch_size]
    )
    law = moments.fald(whole, moments.full(whole.p), lambda t: 5e-3, 5, 10, temperature, 0.0, START)
    algorithm = SGLD(5e-3, local_steps=5, temperature=temperature, batch_size=batch_size)
    samples = simulate(algorithm, gaussian(), 10).samples
    assert max(z(samples[r], *law[r]) for r in (0, 3, 9)) < 5


def test_sgld_is_fald_with_one_client():
    runs = [simulate(a(5e-3, local_steps=3, batch_size=4), gaussian(), 5, replicas=4).samples for a in (SGLD, FALD)]
    assert np.allclose(*runs, rtol=1e-13, atol=1e-13)


# --- MALA and HMC ---------------------------------------------------------------------------------------

STEP = 0.015  # so long that without rejections the variance would be off by more than half
ADJUSTED = {
    "MALA": (MALA(STEP, local_steps=10), 15),
    "MALA at temperature 2": (MALA(STEP, local_steps=10, temperature=2.0), 15),
    "HMC": (HMC(0.13, leapfrog_steps=4, local_steps=6), 8),
    "HMC at temperature 2": (HMC(0.18, leapfrog_steps=4, local_steps=6, temperature=2.0), 8),
}


@pytest.mark.parametrize("problem", [gaussian, regression])
@pytest.mark.parametrize("sampler", ADJUSTED)
def test_adjusted_samplers_reach_the_exact_posterior(sampler, problem):
    algorithm, rounds = ADJUSTED[sampler]
    mean, covariance = problem().exact()
    samples = simulate(algorithm, problem(), rounds).samples
    assert z(samples[-1], mean, algorithm.temperature * covariance) < 5


def test_the_same_step_without_rejections_would_miss_it():
    mean, covariance = gaussian().exact()
    assert z(simulate(SGLD(STEP, local_steps=10), gaussian(), 8).samples[-1], mean, covariance) > 6
    assert z(simulate(MALA(STEP, local_steps=10), gaussian(), 8).samples[-1], 1.02 * mean + 0.02, covariance) > 6


@pytest.mark.parametrize("algorithm", [MALA(STEP), HMC(0.2, leapfrog_steps=4)])
def test_a_good_many_proposals_are_rejected_and_repeat_the_sample(algorithm):
    samples = simulate(algorithm, gaussian(), 30, replicas=200).samples
    moved = (np.diff(samples, axis=0) != 0).all(axis=2)[10:].mean()
    assert 0.5 < moved < 0.98


@pytest.mark.parametrize("algorithm", [MALA(1e6, local_steps=3), HMC(1e150, leapfrog_steps=3, local_steps=3)])
def test_a_proposal_that_flies_off_is_rejected(algorithm):
    samples = simulate(algorithm, gaussian(), 3, replicas=5).samples
    assert np.array_equal(samples, np.broadcast_to(START, samples.shape))


def test_adjusted_samplers_agree_on_a_posterior_without_a_closed_form():
    problem = pooled(
        fs.problems.LogisticRegression.synthetic(clients=3, dim=2, samples=10, seed=3, prior_precision=0.5)
    )
    one = simulate(MALA(0.15, local_steps=12), problem, 4, replicas=1200).samples[-1]
    two = simulate(HMC(0.4, leapfrog_steps=5, local_steps=3), problem, 4, replicas=1200, seed=8).samples[-1]
    entries = []
    for s in (one, two):
        centred = s - one.mean(axis=0)
        entries.append(np.column_stack([s, centred**2, centred[:, :1] * centred[:, 1:]]))
    error = np.sqrt(sum(e.var(axis=0) / len(e) for e in entries))
    assert np.abs((entries[0].mean(axis=0) - entries[1].mean(axis=0)) / error).max() < 5


def test_single_precision_samples_the_same_posterior():
    for algorithm, rounds in (ADJUSTED["MALA"], ADJUSTED["HMC"]):
        mean, covariance = gaussian().exact()
        samples = simulate(algorithm, gaussian(), rounds, dtype="float32").samples
        assert samples.dtype == np.float32
        assert z(samples[-1], mean, covariance) < 5


# --- Pooling --------------------------------------------------------------------------------------------


def test_pooling_keeps_the_posterior_and_the_sum_of_gradients():
    spread = fs.problems.GaussianMean(points(), SIGMA, 3.0)
    whole = pooled(spread)
    assert (whole.clients, whole.sizes.tolist()) == (1, [30])
    for a, b in zip(whole.exact(), spread.exact(), strict=True):
        assert np.allclose(a, b)
    softmax = fs.problems.SoftmaxRegression.synthetic(3, 4, classes=3, samples=8, dtype=np.float64, test_samples=5)
    logistic = fs.problems.LogisticRegression.synthetic(3, 4, samples=8)
    linear = fs.problems.LinearRegression.synthetic(3, 4, samples=8, noise_variance=2.0)
    for problem in (softmax, logistic, linear):
        theta = np.linspace(-1, 1, problem.dim)
        parts = sum(problem.gradient(theta, c) for c in range(3))
        assert np.allclose(pooled(problem).gradient(theta, 0), parts)
        assert pooled(problem).x is problem.x


# --- Bits, contracts, refusals --------------------------------------------------------------------------

SAMPLERS = [
    SGLD(1e-3, local_steps=3),
    SGLD(1e-3, local_steps=3, batch_size=4),
    MALA(STEP, local_steps=3),
    HMC(0.2, leapfrog_steps=3, local_steps=2),
]


@pytest.mark.parametrize("algorithm", SAMPLERS)
def test_theta_goes_each_way_once_a_round(algorithm):
    rounds = simulate(algorithm, gaussian(), 2, replicas=1).rounds
    assert rounds.uplink_bits.tolist() == rounds.downlink_bits.tolist() == [2 * 64] * 2


def test_work_counts_gradients():
    assert SGLD(1e-3, local_steps=3).work(None) == MALA(STEP, local_steps=3).work(None) == 3
    assert HMC(0.2, leapfrog_steps=5, local_steps=3).work(None) == 15


LOGISTIC = pooled(fs.problems.LogisticRegression.synthetic(clients=3, dim=4, samples=10))


@pytest.mark.parametrize("problem", [gaussian(), LOGISTIC], ids=["gaussian", "logistic"])
@pytest.mark.parametrize("algorithm", SAMPLERS)
def test_the_contract_holds(algorithm, problem):
    assert len(fs.testing.check(algorithm, problem)) >= 8


SPREAD = fs.problems.GaussianMean(points(), SIGMA)
REFUSED = {
    r"SGLD is a reference .* 3 clients; pass fs.problems.pooled": lambda: simulate(SGLD(1e-3), SPREAD, 1),
    r"MALA is a reference": lambda: simulate(MALA(1e-3), SPREAD, 1),
    r"HMC is a reference": lambda: simulate(HMC(1e-3), SPREAD, 1),
    r"HMC\(leapfrog_steps=0\)": lambda: HMC(0.1, leapfrog_steps=0),
    r"MALA\(temperature=0\)": lambda: MALA(0.1, temperature=0),
    r"PerformativeMean: its data change with theta, .* neither potential nor loss": lambda: fs.testing.check(
        MALA(0.1), PerformativeMean((1.0,), (0.1,))
    ),
    r"pooled\(list\): only": lambda: pooled([1]),
    r"the clients' covariances differ": lambda: pooled(
        fs.problems.GaussianMean(points(), np.array([SIGMA, 2 * SIGMA, SIGMA]))
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_impossible_requests_are_refused_with_a_remedy(message):
    with pytest.raises(InvalidInput, match=message):
        REFUSED[message]()

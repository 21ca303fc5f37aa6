"""FA-LD samples a posterior that has no closed form: binary logistic regression against a long Metropolis run.

MALA has no discretisation bias, so it is the reference; FA-LD runs at step sizes whose own bias (of relative
size eta L / 2 in the variances, of order eta K in the mean) is below the Monte-Carlo error. Replicas and chains
are independent, so standard errors come from averages over each of them. Every entry agrees at |z| < 5.
"""

from __future__ import annotations

import numpy as np
import pytest

import fedsim as fs

DIM = 5
SIZES = (10, 14, 16, 24)


def client_data():
    rng = np.random.default_rng(3)
    truth = rng.normal(size=DIM)
    data = []
    for n in SIZES:
        x = rng.normal(size=(n, DIM))
        data.append((x, (rng.uniform(size=n) < 1 / (1 + np.exp(-x @ truth))).astype(float)))
    return data


def potential_and_gradient(prior_precision):
    """A function from theta (chains, d) to -log posterior and its gradient, from all rows of data at once."""
    data = client_data()
    x, y = np.concatenate([x for x, _ in data]), np.concatenate([y for _, y in data])

    def at(theta):
        score = theta @ x.T
        value = np.logaddexp(0, score).sum(axis=1) - score @ y + prior_precision / 2 * (theta**2).sum(axis=1)
        return value, (1 / (1 + np.exp(-score)) - y) @ x + prior_precision * theta

    return at


def mala(prior_precision, chains=500, steps=1000, warmup=150, step_size=0.06, seed=8):
    """Samples (kept, chains, d) of the Metropolis-adjusted Langevin algorithm, all chains at once."""
    rng = np.random.default_rng(seed)
    at = potential_and_gradient(prior_precision)
    theta = 0.3 * rng.normal(size=(chains, DIM))
    value, gradient = at(theta)
    kept, accepted = [], 0.0
    for step in range(warmup + steps):
        move = -step_size * gradient + np.sqrt(2 * step_size) * rng.normal(size=theta.shape)
        there_value, there_gradient = at(theta + move)
        forward = ((move + step_size * gradient) ** 2).sum(axis=1)
        back = ((-move + step_size * there_gradient) ** 2).sum(axis=1)
        accept = np.log(rng.uniform(size=chains)) < value - there_value + (forward - back) / (4 * step_size)
        theta = np.where(accept[:, None], theta + move, theta)
        value = np.where(accept, there_value, value)
        gradient = np.where(accept[:, None], there_gradient, gradient)
        if step >= warmup:
            kept.append(theta)
            accepted += accept.mean()
    assert 0.4 < accepted / steps < 0.95
    return np.array(kept)


@pytest.fixture(scope="module")
def reference():
    return mala(prior_precision=1.0)


def fald(step_size, local_steps, rounds, warmup, replicas, every, start):
    problem = fs.problems.LogisticRegression(client_data(), prior_precision=1.0)
    scenario = fs.Scenario(
        problem=problem, algorithm=fs.algorithms.FALD(step_size=step_size, local_steps=local_steps),
        initial=start, budget=fs.Budget(rounds=rounds), replicas=replicas, seed=4,
        record=fs.Record(every=every, warmup=warmup, rounds_every=rounds),
    )  # fmt: skip
    return fs.run(scenario).samples


def averages(samples, centre):
    """Per chain: the averages of theta - centre and of all products of its entries, (chains, entries)."""
    centred = samples - centre
    i, j = np.triu_indices(DIM)
    return np.concatenate([centred.mean(axis=0), (centred[..., i] * centred[..., j]).mean(axis=0)], axis=1)


def z_scores(first, second):
    """Difference of two sets of independent chains in every mean and second moment, in standard errors."""
    centre = second.mean(axis=(0, 1))
    a, b = averages(first, centre), averages(second, centre)
    error = np.sqrt(a.var(axis=0, ddof=1) / len(a) + b.var(axis=0, ddof=1) / len(b))
    return (a.mean(axis=0) - b.mean(axis=0)) / error


@pytest.fixture(scope="module")
def one_step(reference):
    return fald(1.5e-3, 1, rounds=1500, warmup=500, replicas=400, every=25, start=reference.mean(axis=(0, 1)))


@pytest.fixture(scope="module")
def five_steps(reference):
    return fald(6e-4, 5, rounds=500, warmup=240, replicas=800, every=10, start=reference.mean(axis=(0, 1)))


@pytest.mark.parametrize("samples", ["one_step", "five_steps"])
def test_samples_have_the_posterior_mean_and_covariance(samples, reference, request):
    z = z_scores(request.getfixturevalue(samples), reference)
    assert np.abs(z).max() < 5, np.round(z, 1)


def test_a_prior_counted_twice_would_be_noticed(five_steps):
    z = z_scores(five_steps, mala(prior_precision=2.0))
    assert np.abs(z).max() > 8


def test_two_reference_runs_agree(reference):
    assert np.abs(z_scores(mala(1.0, steps=400, seed=9), reference)).max() < 5

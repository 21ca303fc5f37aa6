"""Over gossip a mixing that is not doubly stochastic changes neither the samplers' target nor the optimisers'."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import fedsim as fs
from fedsim.errors import InvalidInput

W = np.array([[0.5, 0.5, 0, 0], [0.1, 0.5, 0.4, 0], [0, 0.2, 0.5, 0.3], [0, 0, 0.6, 0.4]])
PI = np.array([1, 5, 10, 5]) / 21  # PI @ W == PI
PATH = nx.path_graph(4)
SIZES, CENTRES = (2, 3, 1, 2), (0.0, 1.0, 4.0, 9.0)
DATA = [np.full((n, 1), m) for n, m in zip(SIZES, CENTRES, strict=True)]
PROBLEM = fs.problems.GaussianMean(DATA, np.eye(1))  # grad U_i = n_i (theta - m_i)
H, B = np.diag(SIZES).astype(float), np.array(SIZES) * CENTRES
P = np.array(SIZES) / 8
MINIMUM = float(P @ CENTRES)  # of sum_i p_i f_i, and the posterior's mean


def exchange(mixing=W):
    return fs.exchanges.gossip(PATH, mixing)


def scenario(algorithm, rounds, mixing=W, **more):
    return fs.Scenario(
        problem=PROBLEM, algorithm=algorithm, budget=fs.Budget(rounds=rounds), exchange=exchange(mixing), seed=5,
        record=fs.Record(sites="all", warmup=rounds - 1), **more,
    )  # fmt: skip


def worst(samples, mean, cov):
    """The largest |z| over all entries of the sites' mean and covariance; samples (replicas, sites, 1)."""
    x = samples[:, :, 0]
    z = (x.mean(axis=0) - mean) / np.sqrt(np.diag(cov) / len(x))
    away = x - mean
    spread = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / len(x))
    return max(np.abs(z).max(), np.abs((away.T @ away / len(x) - cov) / spread).max())


def desgld(eta):
    """(A, b, Q) of x' = A x + b + N(0, Q): site i's step is eta / (N pi_i)."""
    own = np.diag(eta / (4 * PI))
    return W - own @ H, own @ B, 2 * own


def diging(eta):
    """The same of (x, y): x' = W x - eta y + noise, y' = W y + g(x') - g(x), g_i = grad U_i / (N pi_i)."""
    scale, eye = np.diag(1 / (4 * PI)), np.eye(4)
    g = scale @ H
    a = np.block([[W, -eta * eye], [g @ W - g, W - eta * g]])
    noise = np.vstack([eye, g])
    return a, np.zeros(8), 2 * eta * noise @ scale @ noise.T


SAMPLERS = {
    "DESGLD": (fs.algorithms.DESGLD, desgld),
    "DIGingSGLD": (fs.algorithms.DIGingSGLD, diging),
}


def law(name, eta, rounds, start=0.5):
    a, b, q = SAMPLERS[name][1](eta)
    mean, cov = np.full(4, start), np.zeros((len(b), len(b)))
    if len(b) == 8:
        mean = np.concatenate([mean, (H @ mean - B) / (4 * PI)])
    for _ in range(rounds):
        mean, cov = a @ mean + b, a @ cov @ a.T + q
    return mean[:4], cov[:4, :4]


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_have_their_exact_moments_at_every_site(name):
    made = scenario(SAMPLERS[name][0](0.05), 6, replicas=4000, initial=np.array([0.5]))
    assert worst(fs.run(made).samples[0], *law(name, 0.05, 6)) < 5


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_sites_weighted_average_has_the_posterior_as_its_law_for_small_steps(name):
    """By the recursion that the test above holds the code to, iterated by squaring it: 2^22 rounds."""
    a, b, q = SAMPLERS[name][1](1e-4)
    mean = np.concatenate([np.zeros(4), -B / (4 * PI)])[: len(b)]
    for _ in range(22):
        b, q, a = a @ b + b, a @ q @ a.T + q, a @ a
    mean, cov = a @ mean + b, q
    assert PI @ mean[:4] == pytest.approx(MINIMUM, abs=0.01)
    assert PI @ cov[:4, :4] @ PI == pytest.approx(1 / 8, rel=0.01)


def test_fahmc_divides_by_the_stationary_weights():
    """K = 1 is FA-LD with step eta^2/2: x' = W (x - s H x / pi + s b / pi + noise), s = eta^2/2."""
    s, eta = 0.01, 0.02**0.5
    own = np.diag(s / PI)
    mean, cov = np.full(4, 0.5), np.zeros((4, 4))
    for _ in range(5):
        a = W @ (np.eye(4) - own @ H)
        mean, cov = a @ mean + W @ own @ B, a @ cov @ a.T + W @ (2 * own) @ W.T
    made = scenario(fs.algorithms.FAHMC(eta, leapfrog_steps=1), 5, replicas=4000, initial=np.array([0.5]))
    assert worst(fs.run(made).samples[0], mean, cov) < 5


# --- FedAvg ---------------------------------------------------------------------------------------------------


def fedavg(mixing, pi, eta, rounds, local=3, server=0.7, momentum=0.4, decay=0.1):
    x = np.full(4, 0.5)
    step = eta * P / pi
    for _ in range(rounds):
        y, v = x, 0.0
        for _ in range(local):
            v = momentum * v + (y - CENTRES) + decay * y
            y = y - step * v
        x = x + server * (mixing @ y - x)
    return x


METROPOLIS = np.array([[2, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 2]]) / 3
MIXINGS = {"not doubly stochastic": (W, PI), "doubly stochastic": (METROPOLIS, np.full(4, 0.25))}


@pytest.mark.parametrize("kind", MIXINGS)
def test_fedavg_over_gossip_is_its_recursion_with_steps_of_p_over_pi(kind):
    mixing, pi = MIXINGS[kind]
    algorithm = fs.algorithms.FedAvg(0.05, local_steps=3, server_step=0.7, momentum=0.4, weight_decay=0.1)
    made = scenario(algorithm, 7, "metropolis" if mixing is METROPOLIS else mixing, initial=np.array([0.5]))
    np.testing.assert_allclose(fs.run(made).samples[0, 0, :, 0], fedavg(mixing, pi, 0.05, 7), rtol=0, atol=1e-13)


@pytest.mark.parametrize("kind", MIXINGS)
def test_fedavg_over_gossip_settles_at_the_minimiser_by_sizes_for_small_steps(kind):
    """By the recursion that the test above holds the code to."""
    mixing, pi = MIXINGS[kind]
    x = fedavg(mixing, pi, 1e-3, 20_000, 1, 1.0, 0.0, 0.0)
    assert pi @ x == pytest.approx(MINIMUM, abs=0.01)


# --- Refusals -------------------------------------------------------------------------------------------------


class Unscaled:
    """Decentralised gradient descent that does not divide by job.weight."""

    needs_gossip, local_only = True, ("slope",)

    def init(self, problem, initial):
        return {"theta": initial}

    def broadcast(self, state):
        return state

    def work(self, job):
        return 1

    def client(self, job, message, memory):
        return {"theta": message["theta"], "slope": job.gradient(message["theta"], 0)}, memory

    def server(self, state, replies, rng):
        return {"theta": replies.mean("theta") - 0.01 * replies.own("slope")}


class Scaled(Unscaled):
    any_mixing = True


SWAP = np.eye(4)[[1, 0, 3, 2]]
PAIRS = np.kron(np.eye(2), np.full((2, 2), 0.5))
MIDDLE = np.array([[1, 0, 0, 0], [0, 0.5, 0.5, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 1]])
REFUSED = {
    "no mixing": (lambda: exchange(np.eye(4)), "never reach consensus"),
    "pairs apart": (lambda: exchange(PAIRS), "never reach consensus"),
    "a list of the same pairs": (lambda: exchange([PAIRS, np.eye(4), PAIRS]), "never reach consensus"),
    "neighbours that swap": (lambda: exchange([SWAP, np.eye(4)]), "never reach consensus"),
    "a matrix that blows up": (lambda: exchange(3 * W - 2 * np.eye(4)), "never reach consensus"),
    "a site without weight": (
        lambda: exchange([[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0.5, 0, 0.5], [0, 0, 0.5, 0.5]]), "site 0 has the stationary weight 0"
    ),
    "an algorithm that is not scaled": (lambda: scenario(Unscaled(), 2), "doubly stochastic mixing.*any_mixing"),
    "a scaled objective": (
        lambda: scenario(fs.algorithms.FedAvg(0.1, objective="scaled"), 2), "scaled by p_i / pi_i there already"
    ),
    "steps of more than ten times": (
        lambda: scenario(
            fs.algorithms.FedAvg(0.1), 2, [[0.5, 0.5, 0, 0], [0.02, 0.5, 0.48, 0], [0, 0.2, 0.5, 0.3], [0, 0, 0.6, 0.4]]
        ),
        "client 0's steps would be 29 times step_size",
    ),
    "SGLD": (lambda: fs.Scenario(
        problem=fs.problems.pooled(PROBLEM), algorithm=fs.algorithms.SGLD(0.1), budget=fs.Budget(rounds=1),
        exchange=fs.exchanges.gossip(nx.empty_graph(1)),
    ), "needs a server"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_miss_the_target_is_refused_in_one_sentence(name):
    make, words = REFUSED[name]
    with pytest.raises(InvalidInput, match=words) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_matrices_that_connect_the_sites_only_in_turn_are_accepted():
    assert exchange([PAIRS, MIDDLE]).weights.tolist() == [0.25] * 4
    weighed = [W @ W, np.eye(4)]
    with pytest.raises(InvalidInput, match="has no such edge"):  # two steps away on a path
        exchange(weighed)
    np.testing.assert_allclose(exchange([W, (W + np.eye(4)) / 2, np.eye(4)]).weights, PI, atol=1e-12)
    scenario(Scaled(), 2)
    scenario(Unscaled(), 2, "metropolis")

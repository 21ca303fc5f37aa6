"""Over tiers and gossip everything on Gaussian potentials is affine in the stacked models of all sites.

So mean and covariance of the whole stack propagate exactly; the oracle does that from the data alone, in plain NumPy,
and every entry of both must be within 5 standard errors over the replicas.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import fedsim as fs

DIM = 2
SIZES = (3, 6, 2, 5, 4)
SIGMA = np.array([[1.0, 0.3], [0.3, 0.8]])
GRAPHS = {"ring": nx.cycle_graph(5), "star": nx.star_graph(4), "random": nx.erdos_renyi_graph(5, 0.6, seed=3)}


def data():
    draw = np.random.default_rng(7)
    return [draw.normal(size=(n, DIM)) + draw.normal(size=DIM) for n in SIZES]


def potentials(rows):
    """H_c and b_c of grad U_c = H_c theta - b_c, summed over the client's rows."""
    inverse = np.linalg.inv(SIGMA)
    return [len(x) * inverse for x in rows], [inverse @ x.sum(axis=0) for x in rows]


def blocks(matrices):
    out = np.zeros((DIM * len(matrices), DIM * len(matrices)))
    for i, m in enumerate(matrices):
        out[DIM * i : DIM * i + DIM, DIM * i : DIM * i + DIM] = m
    return out


def lifted(matrix):
    return np.kron(matrix, np.eye(DIM))


def local_steps(mean, cov, weights, eta, steps, rho):
    """FA-LD's steps at all clients at once."""
    hessians, linears = potentials(data())
    a = np.eye(DIM * len(weights)) - eta * blocks([h / w for h, w in zip(hessians, weights, strict=True)])
    c = eta * np.concatenate([b / w for b, w in zip(linears, weights, strict=True)])
    shared = np.ones((len(weights), len(weights)))
    q = 2 * eta * lifted(rho**2 * shared + (1 - rho**2) * np.diag(1 / np.asarray(weights)))
    for _ in range(steps):
        mean, cov = a @ mean + c, a @ cov @ a.T + q
    return mean, cov


def metropolis(graph):
    n = len(graph)
    w = np.zeros((n, n))
    for i, j in graph.edges:
        w[i, j] = w[j, i] = 1 / (1 + max(graph.degree[i], graph.degree[j]))
    return w + np.diag(1 - w.sum(axis=1))


def worst(samples, mean, cov):
    """The largest |z| over all entries of the stacked mean and covariance; samples (replicas, sites, d)."""
    x = samples.reshape(len(samples), -1)
    z = (x.mean(axis=0) - mean) / np.sqrt(np.diag(cov) / len(x))
    away = x - mean
    spread = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / len(x))
    return max(np.abs(z).max(), np.abs((away.T @ away / len(x) - cov) / spread).max())


def last_samples(algorithm, exchange, rounds, replicas):
    scenario = fs.Scenario(
        problem=fs.problems.GaussianMean(data(), SIGMA), algorithm=algorithm, budget=fs.Budget(rounds=rounds),
        replicas=replicas, seed=5, exchange=exchange, initial=np.array([0.5, -1.0]),
        record=fs.Record(sites="all", warmup=rounds - 1),
    )  # fmt: skip
    samples = fs.run(scenario).samples
    assert samples.shape == (1, replicas, scenario.sites.count, DIM)
    return samples[0]


def start(copies):
    return np.tile([0.5, -1.0], copies), np.zeros((DIM * copies, DIM * copies))


@pytest.mark.parametrize("rho", [0.0, 0.6])
@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("name", GRAPHS)
def test_fald_over_gossip_has_its_exact_moments(name, steps, rho):
    graph, eta, rounds = GRAPHS[name], 4e-3, 4
    algorithm = fs.algorithms.FALD(step_size=eta, local_steps=steps, correlation=rho)
    mean, cov = start(5)
    mix = lifted(metropolis(graph))
    for _ in range(rounds):
        mean, cov = local_steps(mean, cov, [0.2] * 5, eta, steps, rho)
        mean, cov = mix @ mean, mix @ cov @ mix.T
    assert worst(last_samples(algorithm, fs.exchanges.gossip(graph), rounds, 4000), mean, cov) < 5


def test_fald_over_a_matrix_that_is_not_doubly_stochastic_weighs_by_its_stationary_weights():
    w = np.array([[0.5, 0.5, 0], [0.2, 0.3, 0.5], [0, 0.4, 0.6]])
    w = np.pad(w, ((0, 2), (0, 2)))
    w[2] = [0, 0.4, 0.4, 0.2, 0]
    w[3] = [0, 0, 0.3, 0.4, 0.3]
    w[4] = [0, 0, 0, 0.7, 0.3]
    values, vectors = np.linalg.eig(w.T)
    pi = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    pi /= pi.sum()
    algorithm, (mean, cov) = fs.algorithms.FALD(step_size=4e-3, local_steps=2), start(5)
    for _ in range(4):
        mean, cov = local_steps(mean, cov, pi, 4e-3, 2, 0.0)
        mean, cov = lifted(w) @ mean, lifted(w) @ cov @ lifted(w).T
    exchange = fs.exchanges.gossip(nx.path_graph(5), w)
    np.testing.assert_allclose(exchange.weights, pi, atol=1e-12)
    assert worst(last_samples(algorithm, exchange, 4, 4000), mean, cov) < 5


@pytest.mark.parametrize("every", [1, 3])
def test_fald_over_tiers_has_its_exact_moments(every):
    groups, eta, rounds = [0, 1, 0, 1, 1], 4e-3, 4
    p = np.array(SIZES) / sum(SIZES)
    of = np.eye(2)[groups]  # (clients, edges)
    fold = (of * p[:, None]).T / (of.T @ p)[:, None]
    merge = np.tile(of.T @ p, (2, 1))
    mean, cov = start(2)
    for round in range(rounds):
        mean, cov = lifted(of) @ mean, lifted(of) @ cov @ lifted(of).T
        mean, cov = local_steps(mean, cov, p, eta, 2, 0.6)
        step = lifted(merge @ fold if (round + 1) % every == 0 else fold)
        mean, cov = step @ mean, step @ cov @ step.T
    algorithm = fs.algorithms.FALD(step_size=eta, local_steps=2, correlation=0.6)
    samples = last_samples(algorithm, fs.exchanges.tiers(groups, every), rounds, 2000)
    cov = cov + 1e-30 * np.eye(len(cov))
    assert worst(samples, mean, cov) < 5


def test_desgld_has_its_exact_moments():
    graph, eta, rounds = GRAPHS["ring"], 0.02, 5
    hessians, linears = potentials(data())
    a = lifted(metropolis(graph)) - eta * blocks(hessians)
    mean, cov = start(5)
    for _ in range(rounds):
        mean = a @ mean + eta * np.concatenate(linears)
        cov = a @ cov @ a.T + 2 * eta * np.eye(len(cov))
    samples = last_samples(fs.algorithms.DESGLD(step_size=eta), fs.exchanges.gossip(graph), rounds, 4000)
    assert worst(samples, mean, cov) < 5


@pytest.mark.parametrize("changing", [False, True])
def test_diging_sgld_has_its_exact_moments(changing):
    graph, eta, rounds = GRAPHS["ring"], 0.01, 5
    even, odd = np.eye(5), np.eye(5)
    for i, j in ((0, 1), (2, 3)):
        even[[i, i, j, j], [i, j, i, j]] = 0.5
    for i, j in ((1, 2), (3, 4), (4, 3)):
        odd[[i, i, j, j], [i, j, i, j]] = 0.5
    mixing = [even, metropolis(graph), odd] if changing else [metropolis(graph)]
    hessians, linears = potentials(data())
    h, b, n = blocks(hessians), np.concatenate(linears), 5 * DIM
    mean, cov = np.concatenate([start(5)[0], h @ start(5)[0] - b]), np.zeros((2 * n, 2 * n))  # (x, y)
    for round in range(rounds):
        w = lifted(mixing[round % len(mixing)])
        # x' = W x - eta y + noise, y' = W y + H x' - H x
        a = np.block([[w, -eta * np.eye(n)], [h @ w - h, w - eta * h]])
        noise = np.block([[np.eye(n)], [h]])
        mean, cov = a @ mean, a @ cov @ a.T + 2 * eta * noise @ noise.T
    exchange = fs.exchanges.gossip(graph, mixing if changing else "metropolis")
    samples = last_samples(fs.algorithms.DIGingSGLD(step_size=eta), exchange, rounds, 4000)
    assert worst(samples, mean[:n], cov[:n, :n]) < 5


def test_the_oracle_can_fail():
    mean, cov = start(5)
    mean, cov = local_steps(mean, cov, [0.2] * 5, 4e-3, 1, 0.0)
    mix = lifted(metropolis(GRAPHS["ring"]))
    samples = last_samples(fs.algorithms.FALD(step_size=4e-3), fs.exchanges.gossip(GRAPHS["star"]), 1, 4000)
    assert worst(samples, mix @ mean, mix @ cov @ mix.T) > 5

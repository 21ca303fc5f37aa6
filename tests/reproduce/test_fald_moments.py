"""FA-LD's exact moments: those of a round, those of each step on quadratic clients, and the bounds judged by them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import fedsim as fs
from fedsim.reproduce import bounded, figures
from fedsim.reproduce.figures import load_figure

FIG2, THEOREMS = (load_figure(*figures(f"fa-ld/{name}")[0]) for name in ("fig2", "theorems"))
FALDMoments, Weights, bound = (FIG2.names[name] for name in ("FALDMoments", "Weights", "bound"))
drawn, start, theorem = (THEOREMS.names[name] for name in ("drawn", "start", "theorem"))


def _by_hand(start: float, eta: float, K: int, rho: float, p: list[float], h: list[float], m: list[float], rounds: int):
    """Return mean and variance of a scalar FA-LD from the squared coefficients of all its noises."""
    mean, variance = start, 0.0
    for _ in range(rounds):
        ends = []  # mean, factor of theta, coefficients of (shared noise of step k), (own noise of step k)
        for p_c, h_c, m_c in zip(p, h, m, strict=True):
            a = 1 - eta * h_c / p_c
            mu = mean
            for _ in range(K):
                mu = a * mu + eta * h_c * m_c / p_c
            shared = [np.sqrt(2 * eta) * rho * a ** (K - 1 - k) for k in range(K)]
            own = [np.sqrt(2 * eta * (1 - rho**2) / p_c) * a ** (K - 1 - k) for k in range(K)]
            ends.append((mu, a**K, shared, own))
        mean = sum(w * e[0] for w, e in zip(p, ends, strict=True))
        variance *= sum(w * e[1] for w, e in zip(p, ends, strict=True)) ** 2
        variance += sum(sum(w * e[2][k] for w, e in zip(p, ends, strict=True)) ** 2 for k in range(K))
        variance += sum(w**2 * x**2 for w, e in zip(p, ends, strict=True) for x in e[3])
    return mean, variance


@pytest.mark.parametrize(("K", "rho"), [(1, 0.0), (3, 0.0), (3, 0.6), (4, 1.0)])
def test_exact_moments_are_those_of_the_recursion_written_out(K: int, rho: float) -> None:
    problem = fs.problems.GaussianMean([[[1.0], [2.0]], [[5.0]]], [[[1.0]], [[0.5]]])
    moments = FALDMoments(problem, 0.02, K, rho)
    mean, variance = moments.after(7)
    expected = _by_hand(0.0, 0.02, K, rho, [2 / 3, 1 / 3], [2.0, 2.0], [1.5, 5.0], 7)
    assert (mean[0], variance[0, 0]) == pytest.approx(expected, rel=1e-12)


def test_weights_of_both_schemes_have_the_moments_of_their_draws() -> None:
    from itertools import combinations, product

    p, S = np.array([0.5, 0.3, 0.2]), 2
    with_, without = Weights.with_replacement(p, S), Weights.uniform(p, S)
    draws = [(np.prod(p[list(own)]), np.bincount(own, minlength=3) / S) for own in product(range(3), repeat=S)]
    np.testing.assert_allclose(with_.second, sum(q * np.outer(a, a) for q, a in draws), rtol=1e-12)
    sets = [np.isin(range(3), own) / S for own in combinations(range(3), S)]
    np.testing.assert_allclose(without.second, np.mean([np.outer(a, a) for a in sets], axis=0), rtol=1e-12)


def test_rounds_to_a_level_is_the_first_round_below_it() -> None:
    moments = FALDMoments(fs.problems.GaussianMean([[[1.0]], [[3.0]]], [[1.0]]), 0.01, 5)
    n = int(moments.rounds_to(0.5))
    before, after = (moments.w2(moments.after(k)) for k in (n - 1, n))
    assert after <= 0.5 < before
    assert np.isinf(moments.rounds_to(1e-9))
    curve = [moments.w2(moments.after(k)) for k in range(1, n)]
    assert all(a > b for a, b in pairwise(curve))


@pytest.mark.parametrize("rho", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("scheme", ["full", "I", "II"])
def test_the_law_of_each_step_has_the_moments_of_a_round(rho: float, scheme: str) -> None:
    q = drawn(1, balanced=True).with_(tau=0.3)
    weights = {"full": Weights.full(q.p), "I": Weights.with_replacement(q.p, 2), "II": Weights.uniform(q.p, 2)}[scheme]
    K, rounds = 3, 4
    *_, last = q.steps(0.02, K, rounds * K + 1, start(q), rho, weights)  # one step after a synchronisation
    begun = FALDMoments(q, 0.02, K, rho, weights, start(q), q.tau).after(rounds)
    m = np.eye(q.dim) - 0.02 * q.hessians
    mean = m @ begun[0] + 0.02 * np.einsum("cij,cj->ci", q.hessians, q.centres)
    np.testing.assert_allclose(last.mean, mean, rtol=1e-10)
    noise = 2 * 0.02 * q.tau * (rho**2 + (1 - rho**2) / q.p[0]) * np.eye(q.dim)
    np.testing.assert_allclose(last.covariance[0, :, 0, :], m[0] @ begun[1] @ m[0].T + noise, rtol=1e-9)


def test_the_divergence_is_the_spread_of_the_clients_about_their_average() -> None:
    q = drawn(1)
    *_, last = q.steps(0.02, 5, 4, start(q), 0.5)
    root = np.linalg.cholesky(last.covariance.reshape(8, 8) + 1e-15 * np.eye(8))
    draws = fs.rng.normal(fs.rng.keys(1, fs.rng.Stream.DATA), 8 * 20_000)[0].reshape(20_000, 8)
    theta = last.mean + (draws @ root.T).reshape(-1, 4, 2)
    apart = ((theta - np.einsum("c,rci->ri", q.p, theta)[:, None]) ** 2).sum(axis=2) @ q.p
    assert last.divergence(q.p) == pytest.approx(apart.mean(), rel=0.02)


def test_the_target_is_stationary_in_the_limit_of_small_steps() -> None:
    q = drawn(2, dim=3, kappa=30).with_(tau=0.5)
    moments = FALDMoments(q, 1e-6 / q.L, 2, temperature=q.tau)
    assert moments.w2(moments.stationary()) < 1e-5


def test_a_chain_that_diverges_passes_the_bound_of_theorem_5_7() -> None:
    q = drawn(1)
    limits = np.array([theorem(q, 0.5 / q.L, 20, k + 1) for k in range(100)])
    for scale, verdict in ((0.5, "held"), (2.5, "not held")):
        values = [q.w2(step.average(q.p)) for step in q.steps(scale / q.L, 20, 100, start(q))]
        assert bounded(values, limits).verdict == verdict


def test_the_bound_for_all_devices_is_that_of_theorem_5_9() -> None:
    q = drawn(1, balanced=True)
    ours = bound(q.dim, 4, 4, "II", q.m, q.L, 0.01, 5, 30, 0.5, q.tau, q.D2(start(q)), q.gamma)
    assert ours == pytest.approx(theorem(q, 0.01, 5, 30, 0.5), rel=1e-12)

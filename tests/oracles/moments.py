"""Exact mean and covariance of FA-LD on quadratic potentials, from its equations: no line of fedsim is used.

Local step of client c, with f^c = l^c / p_c of Hessian H_c and linear term b_c:

    theta <- (I - eta H_c) theta + eta b_c + eta e_c + sqrt(2 eta tau) (rho xi' + sqrt((1 - rho^2) / p_c) xi_c)

The minibatch error e_c has a covariance that does not depend on theta. K steps compose to
theta_c = M_c theta + v_c + shared noise + private noise. The server takes theta <- sum_c a_c theta_c with
random weights a, independent of the noise, so that E a and E a a' say all there is to say:

    mean'       = sum_c  E[a_c] m_c,    m_c = M_c mean + v_c
    covariance' = sum_ce E[a_c a_e] (M_c covariance M_e' + U_ce + 1{c = e} W_c + m_c m_e') - mean' mean''

U_ce is the covariance of the shared noise, W_c that of private noise and minibatches. A last, idle client
(M = I, no noise) has the weight of rounds without replies.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product

import numpy as np


@dataclass(frozen=True)
class Clients:
    """The clients' potentials f^c."""

    hessian: np.ndarray  # (N, d, d)
    linear: np.ndarray  # (N, d): grad f^c = hessian theta - linear
    error: np.ndarray  # (N, d, d) covariance of a minibatch gradient of f^c
    p: np.ndarray  # (N,)


def gaussian_means(data, covariances, prior_precision=0.0, batch=None):
    """l^c = sum_i (theta - x_i)' S^-1 (theta - x_i) / 2 + (n_c / n) prior_precision |theta|^2 / 2.

    `batch` is the number of rows of every client's minibatches.
    """
    n = sum(len(x) for x in data)
    d = data[0].shape[1]
    hessian, linear, error = [], [], []
    for c, (x, covariance) in enumerate(zip(data, covariances, strict=True)):
        p, inverse = len(x) / n, np.linalg.inv(covariance)
        hessian.append((len(x) * inverse + p * prior_precision * np.eye(d)) / p)
        linear.append(inverse @ x.sum(axis=0) / p)
        m = len(x) if batch is None else batch[c]
        scatter = np.cov(x.T, ddof=1).reshape(d, d) if len(x) > 1 else np.zeros((d, d))
        error.append(p**-2 * len(x) ** 2 * (1 - m / len(x)) / m * inverse @ scatter @ inverse)
    return Clients(*(np.array(a) for a in (hessian, linear, error)), np.array([len(x) / n for x in data]))


def linear_regression(data, noise_variance=1.0, prior_precision=0.0):
    """l^c = |X theta - y|^2 / (2 noise_variance) + (n_c / n) prior_precision |theta|^2 / 2."""
    n = sum(len(y) for _, y in data)
    p = np.array([len(y) / n for _, y in data])
    d = data[0][0].shape[1]
    hessian = [x.T @ x / noise_variance / q + prior_precision * np.eye(d) for (x, _), q in zip(data, p, strict=True)]
    linear = [x.T @ y / noise_variance / q for (x, y), q in zip(data, p, strict=True)]
    return Clients(np.array(hessian), np.array(linear), np.zeros((len(p), d, d)), p)


# --- Random weights: E a and E a a', the idle client last -----------------------------------------------


def full(p):
    return _with_idle(p, np.outer(p, p))


def with_replacement(p, draws):
    """Scheme I: multiplicity / draws, one trajectory for each different client."""
    return _with_idle(p, (1 - 1 / draws) * np.outer(p, p) + np.diag(p) / draws)


def uniform(p, size):
    """Scheme II: 1 / size."""
    n = len(p)
    second = np.full((n, n), (size - 1) / (size * n * (n - 1)))
    np.fill_diagonal(second, 1 / (size * n))
    return _with_idle(np.full(n, 1 / n), second)


def uniform_subsets(p, size, weigh):
    """Uniform subsets, all of them, with the weights that `weigh` gives their members' p."""
    subsets = list(combinations(range(len(p)), size))
    return _enumerated(p, [(set(s), 1 / len(subsets)) for s in subsets], weigh)


def bernoulli(p, probability):
    """Independent coins, all 2^N outcomes: p renormalised over the received, no step without replies."""
    q = np.broadcast_to(probability, (len(p),))
    outcomes = []
    for coins in product((False, True), repeat=len(p)):
        chance = np.prod(np.where(coins, q, 1 - q))
        outcomes.append(({c for c, on in enumerate(coins) if on}, chance))
    return _enumerated(p, outcomes, lambda members: members / members.sum())


def _enumerated(p, outcomes, weigh):
    first, second = np.zeros(len(p) + 1), np.zeros((len(p) + 1, len(p) + 1))
    for members, chance in outcomes:
        a = np.zeros(len(p) + 1)
        chosen = sorted(members)
        if chosen:
            a[chosen] = weigh(p[chosen])
        else:
            a[-1] = 1
        first += chance * a
        second += chance * np.outer(a, a)
    return first, second


def _with_idle(first, second):
    return np.append(first, 0), np.pad(second, (0, 1))


# --- The recursion --------------------------------------------------------------------------------------


def local_steps(clients, etas, temperature, correlation, private=None):
    """M (N, d, d), v (N, d), U (N, N, d, d) and W (N, d, d) of the K steps with these sizes.

    `private` overrides the variance factor (1 - rho^2) / p_c of the private noise.
    """
    n, d = clients.linear.shape
    private = (1 - correlation**2) / clients.p if private is None else private
    transition, shift = np.tile(np.eye(d), (n, 1, 1)), np.zeros((n, d))
    shared, own = np.zeros((n, n, d, d)), np.zeros((n, d, d))
    for eta in etas:
        step = np.eye(d) - eta * clients.hessian
        transition = step @ transition
        shift = np.einsum("cij,cj->ci", step, shift) + eta * clients.linear
        shared = np.einsum("cij,cejk,elk->ceil", step, shared, step)
        shared += 2 * eta * temperature * correlation**2 * np.eye(d)
        own = step @ own @ step.transpose(0, 2, 1) + eta**2 * clients.error
        own += 2 * eta * temperature * private[:, None, None] * np.eye(d)
    return transition, shift, shared, own


def fald(clients, weights, step_size, local, rounds, temperature=1.0, correlation=0.0, start=None, private=None):
    """[(mean, covariance) after round 1, 2, ...]; `step_size` is a function of the global local-step index."""
    n, d = clients.linear.shape
    first, second = weights
    mean, covariance = np.zeros(d) if start is None else np.asarray(start, float), np.zeros((d, d))
    out = []
    for r in range(rounds):
        etas = [step_size(r * local + k) for k in range(local)]
        m, v, u, w = local_steps(clients, etas, temperature, correlation, private)
        m, v = np.concatenate([m, np.eye(d)[None]]), np.concatenate([v, np.zeros((1, d))])  # the idle client
        noise = np.pad(u, ((0, 1), (0, 1), (0, 0), (0, 0)))
        noise[np.arange(n), np.arange(n)] += w
        centre = m @ mean + v
        spread = np.einsum("ce,cij,jk,elk->il", second, m, covariance, m)
        spread += np.einsum("ce,ceij->ij", second, noise) + np.einsum("ce,ci,ej->ij", second, centre, centre)
        mean = first @ centre
        covariance = spread - np.outer(mean, mean)
        out.append((mean, covariance))
    return out


def z_scores(samples, mean, covariance):
    """Every entry of mean and covariance of `samples` (R, d) minus the exact one, in standard errors.

    Covariances are averages of products about the exact mean: theirs is the standard error of an average too.
    """
    centred = np.asarray(samples, np.float64) - mean
    i, j = np.triu_indices(len(mean))
    products = centred[:, i] * centred[:, j] - covariance[i, j]
    both = np.concatenate([centred, products], axis=1)
    return both.mean(axis=0) / (both.std(axis=0, ddof=1) / np.sqrt(len(both)))

"""P-FedAvg's Gaussian benchmark (section 4.1): 25 clients, mean sensitivity 0.9, theta_PS = 100, all known exactly.

The paper does not give sigma, the start and the steps of figures 1 to 4 (D9). They are those of the authors' published
code: sigma 0.001, start at the mean of m, step 100/(t + 10^4), which is theorem 3.1's 2/(mu~(t + gamma)) with mu~ 0.02.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

import fedsim as fs
from fedsim.reproduce import Outcome, exact, plots, system

CLIENTS, START, SIGMA = 25, 10.0, 0.001
BETA, GAMMA = 100.0, 1e4  # the step beta/(t + gamma)
T = 30_000  # iterations of figures 1 to 4, 6000 rounds of E = 5
TENTH = np.arange(3000, T + 1, 1500)  # the iterations recorded from a tenth of the run on
SCHEMES = {"full": "full participation", "I": "scheme I", "II": "scheme II"}
AXES = "iterations", "E |theta - theta_PS|^2", "xy"
LINES = "lines: exact moments; bands: lowest to highest of the seeds"


@cache
def problem(variance_m: float = 0.6, variance_eps: float = 0.1, sigma: float = SIGMA) -> fs.problems.PerformativeMean:
    return fs.problems.PerformativeMean.synthetic(
        CLIENTS, base_variance=variance_m, sensitivity_variance=variance_eps, sigma=sigma, seed=0
    )


def policy(scheme: str, chosen: int):
    """The paper's three ways to take part."""
    policies = {
        "full": fs.participation.full(),
        "I": fs.participation.with_replacement(chosen),
        "II": fs.participation.uniform(chosen),
    }
    return policies[scheme]


def weight_moments(p: np.ndarray, scheme: str, chosen: int) -> tuple[np.ndarray, np.ndarray]:
    """The first two moments of the weights of an aggregation; scheme II has p_k N/K."""
    n = len(p)
    if scheme == "II":
        second = np.outer(p, p) * n * (chosen - 1) / (chosen * (n - 1))
        second[np.diag_indices(n)] = p**2 * n / chosen
        return p, second
    if scheme == "I":
        return p, (1 - 1 / chosen) * np.outer(p, p) + np.diag(p) / chosen
    return p, np.outer(p, p)


@dataclass(frozen=True)
class Path:
    """Exact moments of thetabar - theta_PS and of the clients' divergence after each iteration: (rounds, E)."""

    mean: np.ndarray
    variance: np.ndarray
    consensus: np.ndarray  # sum_i p_i E |theta_i - thetabar|^2 before the aggregation
    gradient: float  # the largest E |gradient|^2 of a client on its way

    @property
    def squared(self) -> np.ndarray:
        return self.mean**2 + self.variance

    def at(self, iterations: np.ndarray) -> np.ndarray:
        """E |thetabar - theta_PS|^2 after these iterations."""
        return self.squared.ravel()[np.asarray(iterations) - 1]


@dataclass
class _Law:
    mean: float
    variance: float


def path(
    problem, step: Callable, local_steps: int, rounds: int, scheme: str = "full", chosen: int = 20,
    start: float = START, scaled: bool = False, law: _Law | None = None, first: int = 0,
) -> Path:  # fmt: skip
    """Return the exact moments of all iterations: theta_i is affine in theta, and d = 1.

    In d_i = theta_i - theta_PS, client i maps d to (1 - eta (1 - eps_i)) d + eta c_i + eta sigma xi. `step` takes an
    array of global steps. `scaled`: gradients times p_i N and weights 1/K. `law`: continue from it,
    and return only the ends of the rounds.
    """
    p, ps = problem.weights, float(problem.performatively_stable()[0])
    drift = problem.base_means - (1 - problem.sensitivities) * ps
    stays, scale = 1 - problem.sensitivities, np.ones(len(p))
    if scaled:
        scale, p = p * len(p), np.full(len(p), 1 / len(p))
    stays, drift = scale * stays, scale * drift
    expected, second = weight_moments(p, scheme, chosen)
    covariance = second - np.outer(expected, expected)
    shift = 0.0 if np.allclose(covariance @ np.ones(len(p)), 0, atol=1e-12) else ps  # weights that do not sum to 1
    etas = step(np.arange(first, first + rounds * local_steps, dtype=float)).reshape(rounds, local_steps)
    a, b, v = np.ones((rounds, len(p))), np.zeros((rounds, len(p))), np.zeros((rounds, len(p)))
    inside = []
    for k in range(local_steps):
        eta = etas[:, k, None]
        if law is None:
            inside.append((a, b, v))
        shrink = 1 - eta * stays
        a, b, v = shrink * a, shrink * b + eta * drift, shrink**2 * v + (eta * scale * problem.sigma) ** 2
    after = law or _Law(start - ps, 0.0)
    pull, push = (a @ expected).tolist(), (b @ expected).tolist()
    before_mean, mean = np.empty(rounds), after.mean
    for r in range(rounds):
        before_mean[r] = mean
        mean = mean * pull[r] + push[r]
    x = before_mean[:, None] * a + b + shift
    added = (np.einsum("ri,ri->r", x @ covariance, x) + v @ np.diag(second)).tolist()
    carried = np.einsum("ri,ri->r", a @ second, a).tolist()
    before_variance, variance = np.empty(rounds), after.variance
    for r in range(rounds):
        before_variance[r] = variance
        variance = variance * carried[r] + added[r]
    after.mean, after.variance = mean, variance
    ends = np.append(before_mean[1:], mean), np.append(before_variance[1:], variance)
    if not inside:
        return Path(ends[0][:, None], ends[1][:, None], np.empty(0), 0.0)
    apart = np.diag(p) - np.outer(p, p)
    means, variances, consensus, gradients = [], [], [], []
    for k, (a0, b0, v0) in enumerate(inside):
        own = before_mean[:, None] * a0 + b0
        spread = before_variance[:, None] * a0**2 + v0
        gradients.append(((own * stays - drift) ** 2 + stays**2 * spread + (scale * problem.sigma) ** 2).max())
        a1, b1, v1 = inside[k + 1] if k + 1 < local_steps else (a, b, v)
        own = before_mean[:, None] * a1 + b1
        means.append(own @ p)
        variances.append(before_variance * (a1 @ p) ** 2 + v1 @ p**2)
        between = np.einsum("ri,ri->r", own @ apart, own) + before_variance * np.einsum("ri,ri->r", a1 @ apart, a1)
        consensus.append(between + v1 @ (p - p**2))
    means[-1], variances[-1] = ends
    return Path(np.stack(means, 1), np.stack(variances, 1), np.stack(consensus, 1), float(max(gradients)))


def inverse(beta: float = BETA, gamma: float = GAMMA):
    return lambda t: beta / (t + gamma)


@cache
def standard(case=(0.6, 0.1), local_steps: int = 5, scheme: str = "full", chosen: int = 20) -> Path:
    """T iterations with the authors' step and start."""
    return path(problem(*case), inverse(), local_steps, T // local_steps, scheme, chosen)


def squared(problem, step, local_steps: int, rounds: int, scheme: str = "full", chosen: int = 20):
    """Exact E |theta - theta_PS|^2 after each round."""
    return path(problem, step, local_steps, rounds, scheme, chosen).squared[:, -1]


def long_run(problem, scheme: str, local_steps: int = 5, chosen: int = 20, step: Callable | None = None):
    """Return iterations and E |theta - theta_PS|^2 over the last decade of 10^6 iterations."""
    law, block, at, values = None, 2000, [], []
    for first in range(0, 1_000_000, block * local_steps):
        if law is None:
            law = _Law(START - float(problem.performatively_stable()[0]), 0.0)
        own = path(
            problem, step or inverse(), local_steps, block, scheme, chosen, law=law, first=first
        ).squared[:, -1]  # fmt: skip
        if first + block * local_steps > 100_000:
            at.append(first + local_steps * block)
            values.append(own[-1])
    return np.array(at), np.array(values)


def smaller(left: np.ndarray, right: np.ndarray) -> Outcome:
    """Test that one exact curve is below another at every time, beyond rounding."""
    ratio = np.asarray(left, np.float64) / np.asarray(right, np.float64)
    held = bool((ratio < 1 - 1e-9).all())
    range_ = f"{ratio.min():.6g} to {ratio.max():.6g}"
    return exact(held, f"ratio {range_} at {ratio.size:,} times", change="a ratio on the other side of 1")


def scenario(
    problem, step, local_steps: int, rounds: int, scheme: str, chosen: int, replicas: int, seed: int,
    objective: str = "mean",
) -> fs.Scenario:  # fmt: skip
    """A run that keeps theta twenty times on its way."""
    every = max(1, rounds // 20)
    return fs.Scenario(
        problem=problem,
        algorithm=fs.algorithms.PFedAvg(step_size=step, local_steps=local_steps, objective=objective),
        participation=policy(scheme, chosen),
        budget=fs.Budget(rounds=rounds),
        initial=np.array([START]),
        metrics=("distance_to_ps",),
        evaluate_every=every,
        record=fs.Record(every=every, rounds_every=every),
        replicas=replicas,
        seed=seed,
        **system(CLIENTS),
    )


def curve(result, power: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Return the rounds evaluated after the start, and the root mean |distance|^power over replicas."""
    table = result.rounds[["round", "distance_to_ps"]].dropna()
    mean = (table["distance_to_ps"] ** power).groupby(table["round"]).mean() ** (1 / power)
    mean = mean[mean.index > 0]
    return mean.index.to_numpy(), mean.to_numpy()


def series(results, exact_values, local_steps: int) -> list[plots.Series]:
    """Exact moments, and the band of the seeds, by iteration."""
    at = local_steps * np.arange(1, len(exact_values) + 1)
    return [
        plots.Series(at, exact_values),
        *plots.seeds(results, "distance_to_ps", power=2, steps=local_steps)[1:],
    ]


def figure(letter: str, values: list[int], series_of):
    """A panel for each scheme of sampling, with `series_of(value, scheme)` for every value of E or K."""
    content = {f"scheme {s}": {f"{letter} = {v}": series_of(v, s) for v in values} for s in ("I", "II")}
    return plots.panels(content, *AXES, LINES)

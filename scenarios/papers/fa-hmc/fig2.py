"""FA-HMC, figure 2: rounds to W2^2 < 0.1 against the dimension, with a step of 0.02/d^(1/4).

Half of the clients have the posterior N(20 1, I), half N(1 1, 4 I). All is separable and Gaussian: a leapfrog path is
linear in (theta, p), so the law of theta after any round follows from scalars. The runs check those scalars.
"""

import numpy as np

import fedsim as fs
from fedsim.reproduce import plots, system

K, T = 5, 10  # leapfrog steps, local HMC iterations
MEANS, VARIANCES = np.array([20.0, 1.0]), np.array([1.0, 4.0])
TARGET = (16.2, 1.6)
DIMS = (2, 50, 100, 150, 200, 300, 400, 500, 600, 700, 800, 900, 1000)
quick = {"dim": [2, 50], "rounds": 200, "replicas": 2000}
full = {"dim": [2, 50, 100, 200, 500, 1000], "rounds": 8000, "replicas": 2000}


def scenario(*, dim: int = 2, rounds: int = 200, replicas: int = 2000) -> fs.Scenario:
    """One coordinate of the problem in `dim` dimensions: they are independent and identical (B12)."""
    return fs.Scenario(
        problem=problem(),
        algorithm=fs.algorithms.FAHMC(step_size=step(dim), leapfrog_steps=K, local_steps=T, correlation=1.0),
        budget=fs.Budget(rounds=rounds),
        record=fs.Record(every=max(1, rounds // 10), rounds_every=rounds),
        replicas=replicas,
        seed=1,
        **system(2),
    )


def step(dim: int) -> float:
    return 0.02 / dim**0.25


def problem(variances=VARIANCES) -> fs.problems.GaussianMean:
    """Two clients of weight 1/2, one point each: f^c = 2 l^c must be (theta - m)^2/(2 v), so l^c has variance 2 v."""
    return fs.problems.GaussianMean([np.array([[m]]) for m in MEANS], 2 * np.asarray(variances)[:, None, None])


def affine(eta: float, variances=VARIANCES) -> tuple[float, float, float]:
    """a, b, q of one round: theta -> a theta + b + N(0, q), every coordinate; the momentum is common to all clients."""
    paths = []
    for mean, variance in zip(MEANS, variances, strict=True):
        h = 1 / variance
        leap = np.array([[1 - eta**2 * h / 2, eta], [-eta * h * (1 - eta**2 * h / 4), 1 - eta**2 * h / 2]])
        (stay, push), _ = np.linalg.matrix_power(leap, K)
        powers = stay ** np.arange(T)
        paths.append((stay**T, (1 - stay**T) * mean, push * powers))  # one push for each iteration's momentum
    a, b = (np.mean([p[i] for p in paths]) for i in (0, 1))
    return a, b, float((np.mean([p[2] for p in paths], axis=0) ** 2).sum())


def law(eta: float, rounds: int, variances=VARIANCES) -> tuple[float, float]:
    """Mean and variance of a coordinate after `rounds` rounds from 0."""
    a, b, q = affine(eta, variances)
    return b * (1 - a**rounds) / (1 - a), q * (1 - a ** (2 * rounds)) / (1 - a**2)


def rounds_to(dim: int, level: float = 0.1, most: int = 100_000) -> int:
    a, b, q = affine(step(dim))
    n = np.arange(1, most + 1)
    mean, variance = b * (1 - a**n) / (1 - a), q * (1 - a ** (2 * n)) / (1 - a**2)
    below = np.flatnonzero(squared_w2(dim, mean, variance) < level)
    return int(below[0]) + 1 if len(below) else 0


def figure(study):
    rounds = {d: rounds_to(d) for d in DIMS}
    slope = np.polyfit(DIMS, [n**2 for n in rounds.values()], 1)
    squares = {
        "exact": plots.of({d: n**2 for d, n in rounds.items()}, "points"),
        "straight line": plots.Series([0, DIMS[-1]], np.polyval(slope, [0, DIMS[-1]]), "guide"),
    }
    runs = {f"d = {s['dim']}": [followed(s["dim"], result), distances(s["dim"], result)] for s, result in study.runs}
    x, y = ["dimension d", "communication rounds"], ["(rounds to W2^2 < 0.1)^2", "W2^2"]
    content = {"rounds against the dimension": squares, "lines: exact; points: 2000 replicas": runs}
    return plots.panels(content, x, y, ["", "y"])


def followed(dim: int, result) -> plots.Series:
    """Exact W2^2, round by round."""
    return plots.of({n: squared_w2(dim, *law(step(dim), n)) for n in range(1, int(result.sample_rounds[-1]) + 1)})


def distances(dim: int, result) -> plots.Series:
    """The same of the replicas."""
    recorded = zip(result.sample_rounds, result.samples[:, :, 0], strict=True)
    return plots.of({int(n): squared_w2(dim, own.mean(), own.var(ddof=1)) for n, own in recorded}, "points")


def squared_w2(dim: int, mean, variance):
    return dim * ((mean - TARGET[0]) ** 2 + (np.sqrt(variance) - np.sqrt(TARGET[1])) ** 2)

"""P-FedAvg's Gaussian benchmark (section 4.1): 25 clients, mean sensitivity 0.9, theta_PS = 100, all known exactly."""

import numpy as np

import fedsim as fs
from fedsim.reproduce import plots, system

CLIENTS = 25
SCHEMES = {"full": "full participation", "I": "scheme I", "II": "scheme II"}
AXES = "iterations", "E |theta - theta_PS|^2", "xy"
LINES = "lines: exact moments; points: the replicas' mean"


def problem(variance_m: float = 0.6, variance_eps: float = 0.1, seed: int = 0) -> fs.problems.PerformativeMean:
    return fs.problems.PerformativeMean.synthetic(
        CLIENTS, base_variance=variance_m, sensitivity_variance=variance_eps, seed=seed
    )


def policy(scheme: str, chosen: int):
    """The paper's three ways to take part."""
    policies = {
        "full": fs.participation.full(),
        "I": fs.participation.with_replacement(chosen),
        "II": fs.participation.uniform(chosen),
    }
    return policies[scheme]


def moments(problem, step, local_steps: int, rounds: int, scheme: str = "full", chosen: int = 20, start: float = 0.0):
    """Exact mean and variance of theta after each round, (rounds,) each: theta_i is affine in theta, d = 1.

    `step` is a function of the global step; weights as in the paper (equal p for scheme II).
    """
    p, eps, m = problem.weights, problem.sensitivities, problem.base_means
    n = len(p)
    both = (chosen - 1) / (chosen * n * (n - 1))  # two clients together, under scheme II
    second = {
        "full": np.outer(p, p),
        "I": (1 - 1 / chosen) * np.outer(p, p) + np.diag(p) / chosen,
        "II": np.full((n, n), both) + np.eye(n) * (1 / (chosen * n) - both),
    }[scheme]
    mean, square, means, variances = start, start**2, [], []
    for r in range(rounds):
        a, b, v = np.ones(n), np.zeros(n), np.zeros(n)
        for k in range(local_steps):
            eta = step(r * local_steps + k)
            shrink = 1 - eta * (1 - eps)
            a, b, v = shrink * a, shrink * b + eta * m, shrink**2 * v + (eta * problem.sigma) ** 2
        square = square * (a @ second @ a) + 2 * mean * (a @ second @ b) + b @ second @ b + np.diag(second) @ v
        mean = mean * (p @ a) + p @ b
        means.append(mean)
        variances.append(square - mean**2)
    return np.array(means), np.array(variances)


def squared(problem, step, local_steps: int, rounds: int, scheme: str = "full", chosen: int = 20, start: float = 0.0):
    """Exact E |theta - theta_PS|^2 after each round."""
    mean, variance = moments(problem, step, local_steps, rounds, scheme, chosen, start)
    return (mean - problem.performatively_stable()[0]) ** 2 + variance


def inverse(beta: float, gamma: float):
    return lambda t: beta / (t + gamma)


def scenario(
    problem, step, local_steps: int, rounds: int, scheme: str, chosen: int, replicas: int, objective: str = "mean"
) -> fs.Scenario:
    """A run that keeps theta twenty times on its way."""
    every = max(1, rounds // 20)
    return fs.Scenario(
        problem=problem,
        algorithm=fs.algorithms.PFedAvg(step_size=step, local_steps=local_steps, objective=objective),
        participation=policy(scheme, chosen),
        budget=fs.Budget(rounds=rounds),
        metrics=("distance_to_ps",),
        evaluate_every=every,
        record=fs.Record(every=every, rounds_every=every),
        replicas=replicas,
        seed=1,
        **system(CLIENTS),
    )


def ran(result) -> np.ndarray:
    """|theta - theta_PS|^2 averaged over replicas, at the recorded rounds."""
    table = result.rounds[["round", "distance_to_ps"]].dropna()
    return (table["distance_to_ps"] ** 2).groupby(table["round"]).mean().to_numpy()


def series(result, exact, local_steps: int) -> list[plots.Series]:
    """Exact moments and the runs, by iteration."""
    at = local_steps * np.arange(1, len(exact) + 1)
    return [
        plots.Series(at, exact),
        plots.curve(result, "distance_to_ps", "points", power=2, steps=local_steps),
    ]


def figure(letter: str, values: list[int], series_of):
    """A panel for each scheme of sampling, with `series_of(value, scheme)` for every value of E or K."""
    content = {f"scheme {s}": {f"{letter} = {v}": series_of(v, s) for v in values} for s in ("I", "II")}
    return plots.panels(content, *AXES, LINES)

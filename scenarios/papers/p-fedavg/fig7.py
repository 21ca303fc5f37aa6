"""P-FedAvg, figure 7: scheme II with unequal weights, Var(p) = 0.01, step 5/(t + 10000).

The paper's sentence is judged as printed: that the model may fail to train at all. The paper does not give p: one
client weighs much more than 24 equal ones. "scaled" has local objectives p_i N f_i with average 1/K, as section 3.2
advises; "weights" averages with p_k N/K, as section 2.4 defines scheme II.
"""

import math
from itertools import combinations

import _gaussian
import numpy as np
from _gaussian import START, inverse, path

import fedsim as fs
from fedsim.reproduce import every, exact, found, identical, judge, ordered, plots, repeats, stream, within_range

N, K, E = _gaussian.CLIENTS, 20, 5
STEP = (5.0, 1e4)
AVERAGES = {"scaled": "objectives p_i N f_i, average 1/K", "weights": "weights p_k N/K"}
paper = {"variance_p": 0.01, "beta": STEP[0], "gamma": STEP[1]}
quick = {"average": list(AVERAGES), "rounds": 3000, "replicas": 10, "seed": repeats(5)}
full = {"average": list(AVERAGES), "rounds": 20_000, "replicas": 40, "seed": repeats(5)}


def weights(variance: float = 0.01) -> np.ndarray:
    """One heavy client and 24 equal ones: (a - 1/N)^2 = variance (N - 1)."""
    heavy = 1 / N + np.sqrt(variance * (N - 1))
    return np.array([heavy, *np.full(N - 1, (1 - heavy) / (N - 1))])


def problem(variance: float = 0.01) -> fs.problems.PerformativeMean:
    """m_i and eps_i are shifted so that their weighted means are 10 and 0.9."""
    plain, p = _gaussian.problem(), weights(variance)
    m = plain.base_means - p @ plain.base_means + 10
    eps = plain.sensitivities - p @ plain.sensitivities + 0.9
    return fs.problems.PerformativeMean(m, eps, plain.sigma, p)


def scenario(
    *, average: str = "scaled", variance_p: float = 0.01, beta: float = STEP[0], gamma: float = STEP[1],
    rounds: int = 3000, replicas: int = 10, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    step, objective = fs.schedules.inverse_time(beta, gamma), "scaled" if average == "scaled" else "mean"
    number = stream("p-fedavg/fig7", average, seed)
    return _gaussian.scenario(problem(variance_p), step, E, rounds, "II", K, replicas, number, objective)


@judge("fig7-fails-scaled", average="scaled")
@judge("fig7-fails-weights", average="weights")
def fails(study, average):
    changes = []
    for result in found(study, average=average):
        rounds, distances = _gaussian.curve(result, 1.0)
        changes.append(distances[-1] / (100 - START) - 1)
    iterations = E * int(rounds[-1])
    published = "a small learning rate may cause the model to fail to train at all"
    found_ = within_range(changes, -0.05, math.inf, published=published)
    own = path(problem(), inverse(*STEP), E, iterations // E, "II", K, scaled=average == "scaled")
    reason = (
        f"Relative change of the mean distance over {iterations:,} iterations. Exact: the distance of the mean changes"
    )
    reason += f" by {abs(own.mean[-1, -1]) / (100 - START) - 1:.3g}, about (1 + t/10^4)^(-0.5)."
    if average == "weights":
        reason += (
            " The weights do not sum to 1, so a typical path shrinks towards 0 whatever the step, and few grow: exact "
            f"standard deviation at the end {own.variance[-1, -1] ** 0.5:.3g}. It is not the small step that fails."
        )
    return found_.because(reason)


@judge("fig7-slower")
def slower():
    paths = {
        "p = 1/N, 100/(t + 10000)": path(_gaussian.problem(), inverse(), E, 20_000, "II", K),
        "Var(p) = 0.01, 5/(t + 10000)": path(problem(), inverse(*STEP), E, 200_000, "II", K, scaled=True),
    }
    tests = {}
    for share in (0.5, 0.1):
        level = share * (100 - START) ** 2
        needed = {name: float(E * (np.flatnonzero(own.squared[:, -1] <= level)[0] + 1)) for name, own in paths.items()}
        tests[f"iterations to {share:g} of the start"] = ordered(needed, increasing=True)
    p = weights()
    small, large = N * p.min(), N * p.max()
    return every(tests).because(
        f"The constants of the scaled objectives allow no step: mu' - epsbar L' = {small:.3g} - 0.9 x {large:.3g} is "
        "negative, so the step is figure 7's own."
    )


@judge("scheme-ii-weights")
def sums():
    p = np.array([0.4, 0.3, 0.2, 0.1])
    totals = np.array([sum(p[list(s)]) * 4 / 2 for s in combinations(range(4), 2)])
    growth = N / K * ((weights() ** 2).sum() + (1 - (weights() ** 2).sum()) * (K - 1) / (N - 1))
    _, second = _gaussian.weight_moments(p, "II", 2)
    return every(
        {
            "sums": exact(
                bool((np.abs(totals - 1) > 1e-9).any()), f"{totals.min():g} to {totals.max():g} for p = 0.4 to 0.1"
            ),
            "second moment": identical(second.sum(), (totals**2).mean()),
            "figure 7": exact(growth > 1 + 1e-9, f"E (sum of weights)^2 = {growth:.4g}"),
        }
    )


def figure(study):
    own = {name: plots.seeds(found(study, average=key), "distance_to_ps", steps=E) for key, name in AVERAGES.items()}
    x = next(iter(own.values()))[0].x
    theory = {"90 (1 + t/10000)^-0.5": plots.Series(x, (100 - START) * (1 + x / 1e4) ** -0.5, "guide")}
    return plots.panels({"scheme II, Var(p) = 0.01": {**own, **theory}}, "iterations", "|theta - theta_PS|", "y")

"""P-FedAvg, figure 7: scheme II with unequal weights, Var(p) = 0.01, step 5/(t + 10000).

One client weighs much more than the others. Local objectives are scaled by p_i N and averaged with 1/K, as the paper's
section 3.3 advises; weights p_k N/K on the models themselves would make the second moment grow without bound.
"""

import _gaussian
import numpy as np

import fedsim as fs
from fedsim.reproduce import Claim, Finding, pick, plots

N, K, E = _gaussian.CLIENTS, 20, 5
quick = {"rounds": 3000, "replicas": 40}
full = {"rounds": 100_000, "replicas": 100}


def weights() -> np.ndarray:
    """One heavy client and 24 equal ones with variance 0.01 exactly: (a - 1/N)^2 = 0.01 (N - 1)."""
    heavy = 1 / N + np.sqrt(0.01 * (N - 1))
    return np.array([heavy, *np.full(N - 1, (1 - heavy) / (N - 1))])


def problem() -> fs.problems.PerformativeMean:
    """m_i and eps_i are shifted so that their weighted means are 10 and 0.9."""
    plain, p = _gaussian.problem(), weights()
    m = plain.base_means - p @ plain.base_means + 10
    eps = plain.sensitivities - p @ plain.sensitivities + 0.9
    return fs.problems.PerformativeMean(m, eps, 1.0, p)


def scenario(*, rounds: int = 3000, replicas: int = 40) -> fs.Scenario:
    step = fs.schedules.inverse_time(5, 10_000)
    return _gaussian.scenario(problem(), step, E, rounds, "II", K, replicas, objective="scaled")


def towards(study) -> Finding:
    distances = np.sqrt(_gaussian.ran(pick(study)))
    return Finding(
        bool((np.diff(distances) < 0).all()),
        f"root mean square distance {distances[0]:.1f} at the start, {distances[-1]:.1f} at the end, falling all "
        f"the way",
    )


def speed(study) -> Finding:
    """The mean follows (1 + t/10000)^(-5 x 0.1) up to the drift."""
    result = pick(study)
    t = E * result.sample_rounds[-1]
    theory, own = 100 * (1 + t / 10_000) ** -0.5, float(np.sqrt(_gaussian.ran(result)[-1]))
    return Finding(
        abs(own / theory - 1) < 0.15, f"{own:.1f} after {t} iterations; 100 (1 + t/10000)^-0.5 = {theory:.1f}"
    )


def spreads(study) -> Finding:
    p = weights()
    growth = N / K * ((p**2).sum() + (1 - (p**2).sum()) * (K - 1) / (N - 1))
    return Finding(growth <= 1, f"E (sum of weights)^2 = {growth:.3f} a round: the second moment is multiplied by it")


def figure(study):
    own = plots.curve(pick(study), "distance_to_ps", power=2, steps=E)
    theory = plots.Series(own.x, 100**2 / (1 + own.x / 10_000), "guide")
    panel = {"replicas' mean": own, "100^2/(1 + t/10000), full participation": theory}
    return plots.panels({"scheme II, Var(p) = 0.01": panel}, *_gaussian.AXES)


claims = [
    Claim(
        "Scheme II converges towards theta_PS with unequal weights",
        towards,
        published="sampling without replacement with Var(p) = 0.01 and step 5/(t + 10000)",
        why="objectives scaled by p_i N (D3), which the lower step is for",
    ),
    Claim(
        "It does so at the speed of full participation",
        speed,
        published="figure 7",
        why="the mean's exponent is beta (1 - epsbar) = 0.5",
    ),
    Claim(
        "The weights p_k N/K converge as well with such unequal clients",
        spreads,
        expected="cannot",
        published="scheme II averages with p_k N/K (equation 5)",
        why="D2: these weights do not sum to one; their random sum multiplies theta every round",
    ),
]

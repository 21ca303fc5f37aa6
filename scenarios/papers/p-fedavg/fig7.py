"""P-FedAvg, figure 7: scheme II with unequal weights, Var(p) = 0.01, step 5/(t + 10000).

One client weighs much more than the others. Local objectives are scaled by p_i N and averaged with 1/K, as the paper's
section 3.3 advises; weights p_k N/K on the models themselves would make the second moment grow without bound.
"""

import _gaussian
import numpy as np

import fedsim as fs
from fedsim.reproduce import pick, plots

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


def figure(study):
    own = plots.curve(pick(study), "distance_to_ps", power=2, steps=E)
    theory = plots.Series(own.x, 100**2 / (1 + own.x / 10_000), "guide")
    panel = {"replicas' mean": own, "100^2/(1 + t/10000), full participation": theory}
    return plots.panels({"scheme II, Var(p) = 0.01": panel}, *_gaussian.AXES)

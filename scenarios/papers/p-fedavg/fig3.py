"""P-FedAvg, figure 3: how many devices to sample (K), E = 5."""

import _gaussian
import numpy as np

import fedsim as fs
from fedsim.reproduce import Claim, Finding, pick

STEP, E, SIZES = (20.0, 200.0), 5, [5, 10, 20, 25]
quick = {"chosen": SIZES, "scheme": ["I", "II"], "rounds": 500, "replicas": 100}
full = {"chosen": SIZES, "scheme": ["I", "II"], "rounds": 5000, "replicas": 1000}


def scenario(*, chosen: int = 20, scheme: str = "I", rounds: int = 500, replicas: int = 100) -> fs.Scenario:
    step = fs.schedules.inverse_time(*STEP)
    return _gaussian.scenario(_gaussian.problem(), step, E, rounds, scheme, chosen, replicas)


def curves(scheme: str) -> dict[int, float]:
    return {K: _gaussian.squared(_gaussian.problem(), _gaussian.inverse(*STEP), E, 500, scheme, K)[-1] for K in SIZES}


def more(study) -> Finding:
    exact = curves("I")
    sampled = [_gaussian.ran(pick(study, chosen=K, scheme="I"))[-5:].mean() for K in SIZES]
    held = bool((np.diff(list(exact.values())) < 0).all() and sampled[0] > sampled[-1])
    return Finding(
        held,
        f"exact E|theta - theta_PS|^2 after 500 rounds: {shown(exact)}; replicas "
        f"{', '.join(f'{q:.3g}' for q in sampled)}",
    )


def rises(study) -> Finding:
    exact = curves("II")
    return Finding(
        bool((np.diff(list(exact.values())) > 0).any()), f"exact E|theta - theta_PS|^2 after 500 rounds: {shown(exact)}"
    )


def shown(values) -> str:
    return ", ".join(f"K={K} {q:.3g}" for K, q in values.items())


def figure(study):
    problem, step, rounds = _gaussian.problem(), _gaussian.inverse(*STEP), int(study.runs[0][0]["rounds"])

    def series(K: int, scheme: str):
        exact = _gaussian.squared(problem, step, E, rounds, scheme, K)
        return _gaussian.series(pick(study, chosen=K, scheme=scheme), exact, E)

    return _gaussian.figure("K", SIZES, series)


claims = [
    Claim(
        "Under scheme I a larger K converges faster",
        more,
        published="for scheme I, larger k leads to faster convergence",
        why="the means are equal, the variance falls as 1/K (D10)",
    ),
    Claim(
        "Under scheme II the rate first rises and then falls with K",
        rises,
        expected="cannot",
        published="for scheme II the convergence rate will first increase and then decrease",
        why="D10: the mean does not depend on K and the variance falls with every further device",
    ),
]

"""P-FedAvg, figure 2: how often to aggregate (E), K = 20, Var(m) = 0.6, Var(eps) = 0.1."""

import _gaussian

import fedsim as fs
from fedsim.reproduce import pick

STEP, T, K = (20.0, 1000.0), 5000, 20
EVERY = [1, 5, 10, 50]
quick = {"local_steps": EVERY, "scheme": ["I", "II"], "replicas": 50}
full = {"local_steps": EVERY, "scheme": ["I", "II"], "replicas": 1000}


def scenario(*, local_steps: int = 5, scheme: str = "I", replicas: int = 50) -> fs.Scenario:
    step = fs.schedules.inverse_time(*STEP)
    return _gaussian.scenario(_gaussian.problem(), step, local_steps, T // local_steps, scheme, K, replicas)


def figure(study):
    problem, step = _gaussian.problem(), _gaussian.inverse(*STEP)

    def series(E: int, scheme: str):
        exact = _gaussian.squared(problem, step, E, T // E, scheme, K)
        return _gaussian.series(pick(study, local_steps=E, scheme=scheme), exact, E)

    return _gaussian.figure("E", EVERY, series)

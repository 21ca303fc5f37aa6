"""P-FedAvg, figure 3: how many devices to sample (K), E = 5."""

import _gaussian

import fedsim as fs
from fedsim.reproduce import pick

STEP, E, SIZES = (20.0, 200.0), 5, [5, 10, 20, 25]
quick = {"chosen": SIZES, "scheme": ["I", "II"], "rounds": 500, "replicas": 100}
full = {"chosen": SIZES, "scheme": ["I", "II"], "rounds": 5000, "replicas": 1000}


def scenario(*, chosen: int = 20, scheme: str = "I", rounds: int = 500, replicas: int = 100) -> fs.Scenario:
    step = fs.schedules.inverse_time(*STEP)
    return _gaussian.scenario(_gaussian.problem(), step, E, rounds, scheme, chosen, replicas)


def figure(study):
    problem, step, rounds = _gaussian.problem(), _gaussian.inverse(*STEP), int(study.runs[0][0]["rounds"])

    def series(K: int, scheme: str):
        exact = _gaussian.squared(problem, step, E, rounds, scheme, K)
        return _gaussian.series(pick(study, chosen=K, scheme=scheme), exact, E)

    return _gaussian.figure("K", SIZES, series)

"""P-FedAvg, figure 1: distance to the performatively stable point, full participation and schemes I and II."""

import _gaussian
import numpy as np

import fedsim as fs
from fedsim.reproduce import pick, plots

SCHEMES = ["full", "I", "II"]
E, K, STEP = 5, 20, (20.0, 200.0)
quick = {"scheme": SCHEMES, "rounds": 2000, "replicas": 100}
full = {"scheme": SCHEMES, "rounds": 20_000, "replicas": 300}


def scenario(*, scheme: str = "full", rounds: int = 2000, replicas: int = 100) -> fs.Scenario:
    step = fs.schedules.inverse_time(*STEP)
    return _gaussian.scenario(_gaussian.problem(), step, E, rounds, scheme, K, replicas)


def exact(scheme: str, rounds: int = 8000) -> np.ndarray:
    return _gaussian.squared(_gaussian.problem(), _gaussian.inverse(*STEP), E, rounds, scheme, K)


def figure(study):
    rounds = int(study.runs[0][0]["rounds"])
    panel = {_gaussian.SCHEMES[s]: _gaussian.series(pick(study, scheme=s), exact(s, rounds), E) for s in SCHEMES}
    at = E * np.arange(rounds // 10, rounds + 1)
    panel["1/T"] = plots.Series(at, exact("full", rounds)[-1] * at[-1] / at, "guide")
    return plots.panels({"": panel}, *_gaussian.AXES, _gaussian.LINES)

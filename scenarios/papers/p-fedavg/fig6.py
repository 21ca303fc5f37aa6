"""P-FedAvg, figure 6: a constant step of 0.02 with E = 10 does not converge to theta_PS."""

import _gaussian

import fedsim as fs
from fedsim.reproduce import pick, plots

quick = {"step": ["constant", "decaying"], "rounds": 600, "replicas": 50}
full = {"step": ["constant", "decaying"], "rounds": 10_000, "replicas": 500}


def scenario(*, step: str = "constant", rounds: int = 600, replicas: int = 50) -> fs.Scenario:
    size = fs.schedules.constant(0.02) if step == "constant" else fs.schedules.inverse_time(20, 1000)
    return _gaussian.scenario(_gaussian.problem(), size, 10, rounds, "full", 25, replicas)


def figure(study):
    problem, rounds = _gaussian.problem(), int(study.runs[0][0]["rounds"])
    steps = {"constant": lambda t: 0.02, "decaying": _gaussian.inverse(20, 1000)}
    panel = {
        f"{name} step": _gaussian.series(pick(study, step=name), _gaussian.squared(problem, step, 10, rounds), 10)
        for name, step in steps.items()
    }
    return plots.panels({"E = 10": panel}, *_gaussian.AXES, _gaussian.LINES)

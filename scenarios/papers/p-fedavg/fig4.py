"""P-FedAvg, figure 4: heterogeneous data (Var m) against heterogeneous shifts (Var eps), K = 20."""

import _gaussian

import fedsim as fs
from fedsim.reproduce import pick, plots

STEP, E, K = (20.0, 200.0), 5, 20
CASES = {"m 0": (0.0, 0.1), "m 6": (6.0, 0.1), "eps 0.1": (0.6, 0.1), "eps 0.6": (0.6, 0.6)}
quick = {"case": list(CASES), "scheme": ["I", "II"], "rounds": 1000, "replicas": 50}
full = {"case": list(CASES), "scheme": ["I", "II"], "rounds": 10_000, "replicas": 500}


def scenario(*, case: str = "m 0", scheme: str = "I", rounds: int = 1000, replicas: int = 50) -> fs.Scenario:
    step = fs.schedules.inverse_time(*STEP)
    return _gaussian.scenario(_gaussian.problem(*CASES[case]), step, E, rounds, scheme, K, replicas)


def figure(study):
    step, rounds = _gaussian.inverse(*STEP), int(study.runs[0][0]["rounds"])

    def panel(*cases: str):
        return {
            f"Var {case}, scheme {s}": _gaussian.series(
                pick(study, case=case, scheme=s),
                _gaussian.squared(_gaussian.problem(*CASES[case]), step, E, rounds, s, K),
                E,
            )
            for case in cases
            for s in ("I", "II")
        }

    content = {"(a) heterogeneous data": panel("m 0", "m 6"), "(b) heterogeneous shifts": panel("eps 0.1", "eps 0.6")}
    return plots.panels(content, *_gaussian.AXES, _gaussian.LINES)

"""QLSD, figure S6: calibration and confident predictions of LeNet-5 on MNIST (not the paper's: fewer steps)."""

from itertools import pairwise

import _nets
import numpy as np

import fedsim as fs
from fedsim.reproduce import Outcome, every, judge, pick, plots, repeats, superiority, within_range

needs = ("mnist", "torch")
THRESHOLDS = (0.0, 0.5, 0.8, 0.95)
paper = {"method": _nets.METHODS, **_nets.PAPER}
quick = {"method": ["SGLD", "QLSD++", "QLSD++ PP"], **_nets.SHORT, "seed": repeats(1)}
full = {"method": _nets.METHODS, "iterations": 200, "rows": 5000, "tests": 10_000, "seed": repeats(1)}


def scenario(
    *, method: str = "QLSD++", iterations: int = 12, rows: int = 500, tests: int = 500, step_size: float = 4e-5,
    start: str = "warm", replicas: int = 5, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    metrics = (fs.metrics.confident(*THRESHOLDS),)
    return _nets.scenario("figS6", method, step_size, iterations, rows, tests, metrics, replicas, seed)


@judge("fig-s6-sgld", method="SGLD")
@judge("fig-s6-psgld", method="pSGLD")
@judge("fig-s6-qlsd", method="QLSD")
@judge("fig-s6-qlsd-pp", method="QLSD PP")
@judge("fig-s6-qlsdpp", method="QLSD++")
@judge("fig-s6-qlsdpp-pp", method="QLSD++ PP")
@judge("fig-s6-fedbe-gauss", method="FedBe-Gauss.")
@judge("fig-s6-fedbe-dirich", method="FedBe-Dirich.")
@judge("fig-s6-fsgld", method="FSGLD")
def confident(study, method):
    own = {t: _nets.values(study, method, f"accuracy_above_{t:g}") for t in THRESHOLDS}
    last = own[0.95]
    if isinstance(last, Outcome):
        return last
    rows, tests = _nets.size(study)
    made = _nets.problem(rows, tests)
    p = np.asarray(made.predict(_nets.start(rows, tests)), np.float64)
    start = fs.metrics.accuracy_curve(p / p.sum(axis=1, keepdims=True), made.test[1], [0.95])[0][0]
    rises = {f"{b:g} over {a:g}": superiority(own[b], own[a]) for a, b in pairwise(THRESHOLDS)}
    gain = superiority(last, np.full(len(last), start))
    return every({"at 0.95": within_range(last, 0.99, 1.0, published="100 %"), "above the start": gain, **rises})


def figure(study):
    rows, tests = _nets.size(study)
    made = _nets.problem(rows, tests)
    methods = dict.fromkeys(settings["method"] for settings, _ in study.runs)
    found = {m: fs.metrics.predictions(pick(study, method=m, seed=0), made) for m in methods}
    bins = {m: fs.metrics.reliability(p, made.test[1], 10) for m, p in found.items()}
    gaps = {m: plots.Series(confidence, right - confidence) for m, (confidence, right, _) in bins.items()}
    at = np.linspace(0, 0.99, 34)
    above = {m: plots.Series(at, fs.metrics.accuracy_curve(p, made.test[1], at)[0]) for m, p in found.items()}
    x, y = ["confidence", "confidence threshold"], ["accuracy - confidence", "accuracy above it"]
    return plots.panels({"reliability": gaps, "confident predictions": above}, x, y)

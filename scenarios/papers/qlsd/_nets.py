"""QLSD's networks on images (section S5.3): LeNet-5 by torch, 20 clients with a dominant digit each (figure S4).

The short forms take the first rows of MNIST, a larger step than the paper's 1e-7 and a start that a little descent has
warmed up, so that a minute of sampling suffices. Every replica is a chain with its own random numbers.
"""

from functools import cache

import numpy as np

import fedsim as fs
from fedsim.metrics.classification import Scored
from fedsim.reproduce import Outcome, found, not_run, per_replica, stream, system

CLIENTS, LOCAL_STEPS = 20, 4  # of FSGLD's visits; the paper has 16 of 1e5
METHODS = ["SGLD", "pSGLD", "QLSD", "QLSD PP", "QLSD++", "QLSD++ PP", "FedBe-Gauss.", "FedBe-Dirich.", "FSGLD"]
SERIAL = ("SGLD", "pSGLD")
IDS = dict(
    zip(METHODS, ["sgld", "psgld", "qlsd", "qlsd-pp", "qlsdpp", "qlsdpp-pp", "fedbe-gauss", "fedbe-dirich", "fsgld"],
        strict=True)
)  # fmt: skip
PAPER = {"rows": 60_000, "tests": 10_000, "iterations": 100_000, "step_size": 1e-7, "start": "random"}
SHORT = {"iterations": 6, "rows": 300, "tests": 300}
COST = (
    "left out of this form; an iteration of QLSD++ with batches of 8 takes 0.075 s (measured, one core), so that five "
    "chains of 1e5 iterations take 10 hours a method"
)


@cache
def data(name: str, rows: int, tests: int) -> fs.data.Dataset:
    d = fs.data.load(name)
    return fs.data.Dataset(
        d.x[:rows], d.y[:rows], d.test_x[:tests], d.test_y[:tests], d.classes, d.name, d.scale, d.shift, d.shape
    )


@cache
def problem(rows: int, tests: int, outside: str = "") -> fs.problems.Torch:
    """Weight decay 5; the test rows are followed by as many of the set `outside`."""
    from fedsim.problems.torch import models

    d = data("mnist", rows, tests)
    if outside:
        other = data(outside, rows, tests)
        x, y = np.concatenate([d.test_x, other.test_x]), np.concatenate([d.test_y, other.test_y])
        d = fs.data.Dataset(d.x, d.y, x, y, d.classes, d.name, d.scale, d.shift, d.shape)
    parts = fs.data.dominant(d.y, CLIENTS, 0.4, 0.01, seed=1)
    return fs.problems.Torch.of(models.lenet5((1, 28, 28), d.classes), d, parts, prior_precision=5.0)


@cache
def start(rows: int, tests: int, outside: str = "", steps: int = 200) -> np.ndarray:
    """Return the end of gradient descent on one machine."""
    made = fs.Scenario(
        problem=fs.problems.pooled(problem(rows, tests, outside)),
        algorithm=fs.algorithms.FedAvg(step_size=0.05, local_steps=steps, batch_size=64, momentum=0.9),
        budget=fs.Budget(rounds=1), dtype="float32", metrics=(), seed=stream("qlsd/nets", "start"),
    )  # fmt: skip
    return fs.run(made).samples[-1, 0]


def algorithm(name: str, gamma: float):
    """PP takes part with probability 1/4."""
    kind = name.removesuffix(" PP")
    codec = fs.codecs.QSGD(2**8)
    if kind == "SGLD":
        return fs.algorithms.SGLD(step_size=gamma, batch_size=64)
    if kind == "pSGLD":
        return fs.algorithms.PSGLD(step_size=gamma / 10, batch_size=64)
    if kind == "FSGLD":
        return fs.algorithms.FSGLD(2 * gamma, local_steps=LOCAL_STEPS, batch_size=16)
    if kind.startswith("FedBe"):
        law = "gauss" if kind.endswith("Gauss.") else "dirichlet"
        return fs.algorithms.FedBE(step_size=1e-2, local_steps=LOCAL_STEPS, law=law, batch_size=64)
    if kind == "QLSD":
        return fs.algorithms.QLSD(step_size=gamma, batch_size=8, codec=codec)
    return fs.algorithms.QLSDPlusPlus(step_size=gamma, refresh_every=20, batch_size=8, codec=codec)


def policy(name: str):
    if name == "FSGLD":
        return fs.participation.with_replacement(1)
    return fs.participation.bernoulli(0.25) if name.endswith("PP") else fs.participation.full()


def scenario(
    figure: str, method: str, step_size: float, iterations: int, rows: int, tests: int, metrics, replicas: int,
    seed: int, outside: str = "",
) -> fs.Scenario:  # fmt: skip
    """As many iterations of the chain for every method; FSGLD and FedBe have several in a round."""
    made = problem(rows, tests, outside)
    rounds = max(2, iterations // LOCAL_STEPS) if method.startswith("F") else iterations
    return fs.Scenario(
        problem=fs.problems.pooled(made) if method in SERIAL else made,
        algorithm=algorithm(method, step_size),
        participation=policy(method),
        budget=fs.Budget(rounds=rounds),
        initial=start(rows, tests, outside),
        metrics=metrics,
        evaluate_every=rounds,
        record=fs.Record(warmup=rounds // 2, every=max(1, rounds // 30), rounds_every=rounds),
        dtype="float32",
        replicas=replicas,
        seed=stream(f"qlsd/{figure}", method, seed),
        **({} if method in SERIAL else system(CLIENTS)),
    )


def values(study, method: str, metric: str) -> np.ndarray | Outcome:
    """One value per replica at the end, or the verdict where the form leaves the method out or a score is infinite."""
    if not found(study, method=method):
        return not_run(COST)
    own = per_replica(study, metric, method=method)
    infinite = int((~np.isfinite(own)).sum())
    if infinite:
        return Outcome("not held", f"{metric} of {method} is infinite in {infinite} of {len(own)} chains")
    return own


def size(study) -> tuple[int, int]:
    """Rows and test rows of the runs."""
    settings = study.runs[0][0]
    return int(settings["rows"]), int(settings["tests"])


def area(p: np.ndarray) -> float:
    """The area under the ROC curve of the entropy: the first half of the rows is in distribution."""
    entropy = fs.metrics.entropy(p)
    half = len(p) // 2
    from scipy.stats import rankdata

    ranks = rankdata(entropy)
    return float((ranks[half:].sum() - half * (half + 1) / 2) / half**2)


def told_apart(p: np.ndarray) -> float:
    """The share that the paper's rule labels right."""
    entropy = fs.metrics.entropy(p)
    half = len(p) // 2
    return float(fs.metrics.outside_accuracy(entropy[:half], entropy[half:]))


DETECTION = Scored(("area", "told_apart"), lambda _, p: (area(p), told_apart(p)))

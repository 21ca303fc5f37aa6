"""QLSD's networks on images (section S5.3): LeNet-5 by torch, 20 clients with a dominant digit each (figure S4).

The quick forms take the first rows of MNIST, a larger step than the paper's 1e-7 and a start that a little descent has
warmed up, so that a minute of sampling suffices; the full ones take all rows and the paper's clients.
"""

from functools import cache

import numpy as np

import fedsim as fs
from fedsim.reproduce import pick, stream, system

CLIENTS, LOCAL_STEPS = 20, 4  # of FSGLD's visits
METHODS = ["SGLD", "QLSD", "QLSD PP", "QLSD++", "QLSD++ PP", "FSGLD"]


@cache
def data(name: str, rows: int, tests: int) -> fs.data.Dataset:
    d = fs.data.load(name)
    return fs.data.Dataset(
        d.x[:rows], d.y[:rows], d.test_x[:tests], d.test_y[:tests], d.classes, d.name, d.scale, d.shift, d.shape
    )


@cache
def problem(rows: int, tests: int, outside: str = "") -> fs.problems.Torch:
    """Weight decay 5; `outside` puts another set's images in place of the test rows."""
    from fedsim.problems.torch import models

    d = data("mnist", rows, tests)
    if outside:
        other = data(outside, rows, tests)
        d = fs.data.Dataset(d.x, d.y, other.test_x, other.test_y, d.classes, d.name, d.scale, d.shift, d.shape)
    parts = fs.data.dominant(d.y, CLIENTS, 0.4, 0.01, seed=1)
    return fs.problems.Torch.of(models.lenet5((1, 28, 28), d.classes), d, parts, prior_precision=5.0)


@cache
def start(rows: int, tests: int, steps: int = 120) -> np.ndarray:
    """Return the end of gradient descent on one machine."""
    made = fs.Scenario(
        problem=fs.problems.pooled(problem(rows, tests)),
        algorithm=fs.algorithms.FedAvg(step_size=0.05, local_steps=steps, batch_size=64, momentum=0.9),
        budget=fs.Budget(rounds=1), dtype="float32", metrics=(), seed=1,
    )  # fmt: skip
    return fs.run(made).samples[-1, 0]


def algorithm(name: str, rate: float, rows: int):
    """`rate` is the step on the mean loss; PP takes part with probability 1/4."""
    gamma, kind = rate / rows, name.removesuffix(" PP")
    codec = fs.codecs.QSGD(2**8)
    if kind == "SGLD":
        return fs.algorithms.SGLD(step_size=gamma, batch_size=64)
    if kind == "FSGLD":
        return fs.algorithms.FSGLD(2 * gamma, local_steps=LOCAL_STEPS, batch_size=16)
    if kind == "QLSD":
        return fs.algorithms.QLSD(step_size=gamma, batch_size=8, codec=codec)
    return fs.algorithms.QLSDPlusPlus(step_size=gamma, refresh_every=20, batch_size=8, codec=codec)


def policy(name: str):
    if name == "FSGLD":
        return fs.participation.with_replacement(1)
    return fs.participation.bernoulli(0.25) if name.endswith("PP") else fs.participation.full()


def scenario(method: str, rate: float, iterations: int, rows: int, tests: int, metrics) -> fs.Scenario:
    """As many iterations of the chain for every method; FSGLD has several in a round."""
    made = problem(rows, tests)
    rounds = iterations // LOCAL_STEPS if method == "FSGLD" else iterations
    return fs.Scenario(
        problem=fs.problems.pooled(made) if method == "SGLD" else made,
        algorithm=algorithm(method, rate, rows),
        participation=policy(method),
        budget=fs.Budget(rounds=rounds),
        initial=start(rows, tests),
        metrics=metrics,
        evaluate_every=rounds,
        record=fs.Record(warmup=rounds // 2, every=max(1, rounds // 30), rounds_every=rounds),
        dtype="float32",
        seed=stream("qlsd/nets", method, rate),
        **({} if method == "SGLD" else system(CLIENTS)),
    )


@cache
def probabilities(study, method: str, rows: int, tests: int, outside: str = "") -> np.ndarray:
    """Averaged class probabilities of the test rows, or of another set's."""
    return fs.metrics.predictions(pick(study, method=method), problem(rows, tests, outside))

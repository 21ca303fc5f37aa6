"""QLSD, table 4: ResNet-20 on CIFAR-10: accuracy, agreement and total variation with HMC's predictions.

All of CIFAR-10 is not available: its airplanes and automobiles replace it. The quick form halves the images'
sides and takes a few hundred of them, over 4 clients; the reference is Metropolised HMC from the same warm start.
"""

from functools import cache

import numpy as np

import fedsim as fs
from fedsim.reproduce import pick, stream, system

needs = ("cifar10-2class", "torch")
METHODS = ["HMC", "SGLD", "QLSD++", "QLSD++ PP"]
CLIENTS, TESTS = 4, 300
quick = {"method": METHODS, "iterations": 15, "rows": 160, "side": 16}
full = {"method": METHODS, "iterations": 400, "rows": 2000, "side": 32}


@cache
def problem(rows: int, side: int) -> fs.problems.Torch:
    """Prior N(0, I/5)."""
    from fedsim.problems.torch import models

    d = fs.data.load("cifar10-2class")
    every = 32 // side
    x, test = (part.reshape(-1, 32, 32, 3)[:, ::every, ::every].transpose(0, 3, 1, 2).reshape(len(part), -1)
               for part in (d.x[:rows], d.test_x[:TESTS]))  # fmt: skip
    small = fs.data.Dataset(x, d.y[:rows], test, d.test_y[:TESTS], 2, d.name, 2 / 255, -1.0)
    module = models.resnet20((3, side, side), 2)
    return fs.problems.Torch.of(module, small, fs.data.iid(small.y, CLIENTS, seed=1), prior_precision=5.0)


@cache
def start(rows: int, side: int) -> np.ndarray:
    """Where a short descent on one machine ends: the paper starts from trained weights."""
    made = fs.Scenario(
        problem=fs.problems.pooled(problem(rows, side)),
        algorithm=fs.algorithms.FedAvg(step_size=0.05, local_steps=30, batch_size=32, momentum=0.9),
        budget=fs.Budget(rounds=1), dtype="float32", metrics=(), seed=1,
    )  # fmt: skip
    return fs.run(made).samples[-1, 0]


def scenario(*, method: str = "QLSD++", iterations: int = 15, rows: int = 160, side: int = 16) -> fs.Scenario:
    made, gamma = problem(rows, side), 0.02 / rows
    algorithms = {
        "HMC": fs.algorithms.HMC(step_size=(2 * gamma) ** 0.5 / 4, leapfrog_steps=4),
        "SGLD": fs.algorithms.SGLD(step_size=gamma, batch_size=32),
    }
    compressed = fs.algorithms.QLSDPlusPlus(step_size=gamma, refresh_every=20, batch_size=8, codec=fs.codecs.QSGD(2))
    return fs.Scenario(
        problem=fs.problems.pooled(made) if method in algorithms else made,
        algorithm=algorithms.get(method, compressed),
        participation=fs.participation.bernoulli(0.25) if method.endswith("PP") else fs.participation.full(),
        budget=fs.Budget(rounds=iterations),
        initial=start(rows, side),
        metrics=("accuracy",),
        evaluate_every=iterations,
        record=fs.Record(warmup=iterations // 3, every=max(1, iterations // 12), rounds_every=iterations),
        dtype="float32",
        seed=stream("qlsd/table4", method),
        **({} if method in algorithms else system(CLIENTS)),
    )


def judged(study) -> fs.problems.Torch:
    """The problem at the size that was run."""
    settings = study.runs[0][0]
    return problem(int(settings["rows"]), int(settings["side"]))


@cache
def predicted(study) -> dict[str, np.ndarray]:
    return {m: fs.metrics.predictions(pick(study, method=m), judged(study)) for m in METHODS}


PUBLISHED = {"HMC": (0.896, 0.94, 0.07), "SGLD": (0.888, 0.91, 0.11), "QLSD++": (0.881, 0.90, 0.12),
             "QLSD++ PP": (0.866, 0.90, 0.12)}  # fmt: skip


def table(study):
    found, y = predicted(study), judged(study).test[1]
    return [
        {"method": m, "accuracy": fs.metrics.accuracy(found[m], y), "published accuracy": accuracy,
         "agreement": fs.metrics.agreement(found[m], found["HMC"]), "published agreement": agreement,
         "total variation": fs.metrics.total_variation(found[m], found["HMC"]), "published variation": variation}
        for m, (accuracy, agreement, variation) in PUBLISHED.items()
    ]  # fmt: skip

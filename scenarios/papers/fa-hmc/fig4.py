"""FA-HMC, figure 4: local iterations T on Fashion-MNIST, logistic regression; not the paper's rounds.

The full form has the paper's settings but 12 rounds: 17 minutes, from 5.4 ms a minibatch gradient of all clients
(timed). 400 rounds, as a follow-up has, take 21 processor hours.
"""

import _images

import fedsim as fs
from fedsim.reproduce import judge, repeats

needs = ("fashion-mnist",)
LOCAL, RATES = [1, 10, 20, 50, 100], [0.01, 0.2]
paper = {**_images.PAPER, "local_steps": LOCAL, "leapfrog_steps": 10}
quick = {
    "local_steps": LOCAL, "rate": RATES, "leapfrog_steps": 3, "rounds": 5, "batch_size": 50, "seed": repeats(5),
}  # fmt: skip
full = {
    "local_steps": LOCAL, "rate": RATES, "leapfrog_steps": 10, "rounds": 12, "batch_size": 1000, "seed": repeats(5),
}  # fmt: skip


def scenario(
    *, local_steps: int = 10, rate: float = 0.01, leapfrog_steps: int = 3, rounds: int = 5, batch_size: int = 50,
    clients: int = 10, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return _images.scenario(
        "fig4", "fashion-mnist", leapfrog_steps, local_steps, rate, rounds, batch_size, clients, seed
    )


def ends(study, metric: str):
    return _images.ends(study, "local_steps", metric)


@judge("fig4-t1-worst-accuracy", metric="accuracy")
@judge("fig4-t1-worst-brier", metric="brier")
@judge("fig4-t1-worst-ece", metric="ece")
@judge("fig4-t1-worst-nll", metric="nll")
def worst(study, metric):
    return _images.worst(ends(study, metric), metric, 1)


@judge("fig4-best-brier", metric="brier", T=50)
@judge("fig4-best-nll", metric="nll", T=20)
def best(study, metric, T):
    return _images.best(ends(study, metric), metric, T)


@judge("fig4-differs")
def differs(study):
    return _images.differ({m: ends(study, m) for m in _images.METRICS})


@judge("figure-l2")
def bands(study):
    return _images.five_runs(study, "local_steps")


def figure(study):
    return _images.figure(study, {"": ("local_steps", LOCAL, "T = ")})

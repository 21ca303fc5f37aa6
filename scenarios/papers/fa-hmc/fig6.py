"""FA-HMC, figure 6: leapfrog steps K on CIFAR-10's airplanes and automobiles; not the paper's batches.

KMNIST is not at hand. The full form has batches of 200 and 5 rounds: 20 minutes, from 3 ms a minibatch gradient
of all clients. The paper's batches take 15 ms (timed): 265 processor hours for the 400 rounds of a follow-up.
"""

import _images

import fedsim as fs
from fedsim.reproduce import judge, repeats

needs = ("cifar10-2class",)
SCORES = ("accuracy", "brier", "ece")
STEPS, RATES = [1, 10, 50, 100], [0.003, 0.03]
paper = {**_images.PAPER, "leapfrog_steps": STEPS, "local_steps": 50}
quick = {
    "leapfrog_steps": STEPS, "rate": RATES, "local_steps": 2, "rounds": 5, "batch_size": 20, "seed": repeats(5),
}  # fmt: skip
full = {
    "leapfrog_steps": STEPS, "rate": RATES, "local_steps": 50, "rounds": 5, "batch_size": 200, "seed": repeats(5),
}  # fmt: skip


def scenario(
    *, leapfrog_steps: int = 10, rate: float = 0.003, local_steps: int = 2, rounds: int = 5, batch_size: int = 20,
    clients: int = 10, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return _images.scenario(
        "fig6", "cifar10-2class", leapfrog_steps, local_steps, rate, rounds, batch_size, clients, seed, metrics=SCORES
    )


def ends(study, metric: str):
    return _images.ends(study, "leapfrog_steps", metric)


@judge("fig6-cifar2-best-accuracy", metric="accuracy")
@judge("fig6-cifar2-best-brier", metric="brier")
def best(study, metric):
    return _images.best(ends(study, metric), metric, 10)


@judge("fig6-cifar2-best-ece")
def best_above_ten(study):
    values = ends(study, "ece")
    chosen = min((k for k in values if k > 10), key=lambda k: values[k].mean())
    return _images.best({k: own for k, own in values.items() if k in (1, 10, chosen)}, "ece", chosen)


@judge("fig6-cifar2-k1-not-best-accuracy", metric="accuracy")
@judge("fig6-cifar2-k1-not-best-brier", metric="brier")
@judge("fig6-cifar2-k1-not-best-ece", metric="ece")
def not_best(study, metric):
    return _images.best_of_others(study, "leapfrog_steps", metric, 1)


@judge("fig6-varies")
def varies(study):
    return _images.differ({m: ends(study, m) for m in SCORES})


def figure(study):
    return _images.figure(study, {"": ("leapfrog_steps", STEPS, "K = ")}, SCORES)

"""FA-HMC, figure 7: local iterations T on CIFAR-10's airplanes and automobiles; not the paper's rounds.

KMNIST is not at hand. The full form has the paper's settings but 12 rounds: 18 minutes, from 15 ms a minibatch
gradient of all clients (timed). 400 rounds, as a follow-up has, take 19 processor hours.
"""

import _images

import fedsim as fs
from fedsim.reproduce import Outcome, every, judge, repeats, superiority

needs = ("cifar10-2class",)
SCORES = ("accuracy", "brier", "ece")
LOCAL, RATES = [1, 10, 50], [0.003, 0.03]
paper = {**_images.PAPER, "local_steps": LOCAL, "leapfrog_steps": 10}
quick = {
    "local_steps": LOCAL, "rate": RATES, "leapfrog_steps": 3, "rounds": 5, "batch_size": 20, "seed": repeats(5),
}  # fmt: skip
full = {
    "local_steps": LOCAL, "rate": RATES, "leapfrog_steps": 10, "rounds": 12, "batch_size": 1000, "seed": repeats(5),
}  # fmt: skip


def scenario(
    *, local_steps: int = 10, rate: float = 0.003, leapfrog_steps: int = 3, rounds: int = 5, batch_size: int = 20,
    clients: int = 10, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return _images.scenario(
        "fig7", "cifar10-2class", leapfrog_steps, local_steps, rate, rounds, batch_size, clients, seed, metrics=SCORES
    )


@judge("fig7-cifar2-brier", metric="brier")
@judge("fig7-cifar2-ece", metric="ece")
def outperforms(study, metric):
    values = _images.ends(study, "local_steps", metric)
    return every({f"T = {T}": superiority(values[T], values[1], higher=False, comparisons=2) for T in LOCAL[1:]})


@judge("fig7-cifar2-accuracy")
def exception(study):
    """The exception from "outperforms": the best T > 1 is not shown to be above T = 1."""
    gain = _images.best_of_others(study, "local_steps", "accuracy", 1)
    if gain.verdict == "not run" or gain.interval is None:
        return gain
    verdict = "held" if gain.interval[0] <= 0 else "not held"
    change = "an interval above 0" if verdict == "held" else "an interval that reaches 0"
    return Outcome(verdict, gain.ours, "T > 1 does not outperform T = 1", gain.interval, gain.seeds, change)


def figure(study):
    return _images.figure(study, {"": ("local_steps", LOCAL, "T = ")}, SCORES)

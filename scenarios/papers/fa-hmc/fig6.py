"""FA-HMC, figure 6: leapfrog steps K on CIFAR-10's airplanes and automobiles, and on KMNIST.

Where KMNIST is not at hand, MNIST stands in for it, and without that the 8 x 8 digits; the claims say which it was.
"""

import _images

import fedsim as fs
from fedsim.reproduce import Claim, Finding, available

needs = ("cifar10-2class",)
LETTERS = available("kmnist", "mnist", "digits")
VALUES, RATES = [1, 4, 12], [0.003, 0.03]
quick = {"data": ["cifar10-2class", LETTERS], "value": VALUES, "rate": RATES, "rounds": 10, "batch_size": 50}
full = {"data": ["cifar10-2class", LETTERS], "value": VALUES, "rate": RATES, "rounds": 60, "batch_size": 500}
SCORES = ("accuracy", "brier", "ece")


def scenario(
    *, data: str = "cifar10-2class", value: int = 4, rate: float = 0.03, rounds: int = 10, batch_size: int = 50
) -> fs.Scenario:
    return _images.scenario(data, value, 4, rate, rounds, batch_size, metrics=SCORES)


def scores(study, data: str, metrics):
    return _images.scores(study, "value", VALUES, RATES, metrics, data=data)


def planes(study) -> Finding:
    return _images.one_is_not_best(scores(study, "cifar10-2class", ("accuracy", "brier")), "K")


def letters(study) -> Finding:
    found = _images.one_is_not_best(scores(study, LETTERS, ("accuracy", "brier")), "K")
    return Finding(found.held, f"on {LETTERS}: {found.ours}")


def calibration(study) -> Finding:
    found = _images.one_is_not_best(scores(study, "cifar10-2class", ("ece",)), "K")
    return Finding(found.held, found.ours)


def figure(study):
    return _images.figure(
        {f"{data}: ": _images.panels(study, "value", VALUES, RATES, SCORES, "K", data=data) for data in quick["data"]}
    )


claims = [
    Claim(
        "CIFAR-10, two classes: K = 1 is best in neither accuracy nor Brier score",
        planes,
        published="the best K is 10 for AC and BS",
        why="T = 4, smaller batches, tuned steps; rates 0.003 and 0.03, chosen after a first look at 0.02 and 0.1 "
        "(see figure 7)",
    ),
    Claim(
        "CIFAR-10, two classes: K = 1 does not have the best calibration",
        calibration,
        published="the best K is larger than 10 for ECE",
        why="T = 4, smaller batches, tuned steps; rates 0.003 and 0.03, chosen after a first look at 0.02 and 0.1 "
        "(see figure 7)",
    ),
    Claim(
        "KMNIST: K = 1 is best in neither accuracy nor Brier score",
        letters,
        published="none of the experiments support K = 1",
        why=f"run on {LETTERS}; T = 4, smaller batches, tuned steps; rates as above",
    ),
]

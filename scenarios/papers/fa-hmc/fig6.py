"""FA-HMC, figure 6: leapfrog steps K on CIFAR-10's airplanes and automobiles, and on KMNIST.

Without KMNIST, MNIST replaces it, and without that the 8 x 8 digits; the claims name the data set.
"""

import _images
import _two_sets
from _two_sets import LETTERS, PLANES, scores

import fedsim as fs
from fedsim.reproduce import Claim, Finding

needs = (PLANES,)
quick, full = _two_sets.QUICK, _two_sets.FULL


def scenario(
    *, data: str = "cifar10-2class", value: int = 4, rate: float = 0.03, rounds: int = 10, batch_size: int = 50
) -> fs.Scenario:
    return _images.scenario(data, value, 4, rate, rounds, batch_size, metrics=_two_sets.SCORES)


def planes(study) -> Finding:
    return _images.one_is_not_best(scores(study, PLANES, ("accuracy", "brier")), "K")


def letters(study) -> Finding:
    return _two_sets.on_letters(_images.one_is_not_best(scores(study, LETTERS, ("accuracy", "brier")), "K"))


def calibration(study) -> Finding:
    return _images.one_is_not_best(scores(study, PLANES, ("ece",)), "K")


def figure(study):
    return _two_sets.figure(study, "K")


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

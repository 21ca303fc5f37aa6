"""FA-HMC's figures 6 and 7: the same values of K or of T on CIFAR-10's airplanes and automobiles, and on KMNIST.

Without KMNIST, MNIST replaces it, and without that the 8 x 8 digits; the claims name the data set.
"""

import _images

from fedsim.reproduce import available

PLANES = "cifar10-2class"
LETTERS = available("kmnist", "mnist", "digits")
VALUES, RATES = [1, 4, 12], [0.003, 0.03]
SCORES = ("accuracy", "brier", "ece")
SETTINGS = {"data": [PLANES, LETTERS], "value": VALUES, "rate": RATES}
QUICK = {**SETTINGS, "rounds": 10, "batch_size": 50}
FULL = {**SETTINGS, "rounds": 60, "batch_size": 500}


def scores(study, data: str, metrics):
    return _images.scores(study, "value", VALUES, RATES, metrics, data=data)


def figure(study, letter: str):
    """Scores by round for every value of K or T, on both sets."""
    sets = (PLANES, LETTERS)
    return _images.figure(
        {f"{data}: ": _images.panels(study, "value", VALUES, RATES, SCORES, letter, data=data) for data in sets}
    )

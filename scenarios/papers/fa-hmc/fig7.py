"""FA-HMC, figure 7: local iterations T on CIFAR-10's airplanes and automobiles, and on KMNIST.

Without KMNIST, MNIST replaces it, and without that the 8 x 8 digits; the claims name the data set.
"""

import _images
import _two_sets
from _two_sets import PLANES

import fedsim as fs

needs = (PLANES,)
quick, full = _two_sets.QUICK, _two_sets.FULL


def scenario(
    *, data: str = "cifar10-2class", value: int = 4, rate: float = 0.03, rounds: int = 10, batch_size: int = 50
) -> fs.Scenario:
    return _images.scenario(data, 4, value, rate, rounds, batch_size, metrics=_two_sets.SCORES)


def figure(study):
    return _two_sets.figure(study, "T")

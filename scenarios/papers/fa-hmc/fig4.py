"""FA-HMC, figure 4: local iterations T on Fashion-MNIST, logistic regression, at the same number of rounds."""

import _images

import fedsim as fs
from fedsim.reproduce import Claim, Finding

needs = ("fashion-mnist",)
LOCAL, RATES = [1, 5, 15], [0.1, 0.4]
quick = {"local_steps": LOCAL, "rate": RATES, "leapfrog_steps": 4, "rounds": 12, "batch_size": 100}
full = {"local_steps": LOCAL, "rate": RATES, "leapfrog_steps": 10, "rounds": 60, "batch_size": 1000}


def scenario(
    *, local_steps: int = 5, rate: float = 0.1, leapfrog_steps: int = 4, rounds: int = 12, batch_size: int = 100
) -> fs.Scenario:
    return _images.scenario("fashion-mnist", leapfrog_steps, local_steps, rate, rounds, batch_size)


def worst(study) -> Finding:
    return _images.one_is_worst(_images.scores(study, "local_steps", LOCAL, RATES, ("accuracy", "brier", "nll")), "T")


def calibration(study) -> Finding:
    return _images.one_is_worst(_images.scores(study, "local_steps", LOCAL, RATES, ("ece",)), "T")


def figure(study):
    return _images.figure({"": _images.panels(study, "local_steps", LOCAL, RATES, _images.METRICS, "T")})


claims = [
    Claim(
        "T = 1 is the worst in accuracy, Brier score and likelihood",
        worst,
        published="FA-HMC with T = 1 performs the worst in terms of all four statistics",
        why="K = 4 in the quick form, tuned steps, the same rounds (B5)",
    ),
    Claim(
        "T = 1 has the worst calibration",
        calibration,
        published="the worst in terms of all four statistics",
        why="as above",
    ),
    Claim(
        "The best T is 50 for the Brier score and 20 for the likelihood",
        None,
        published="50 and 20",
        why="not run: T = 100 with K = 10 and batches of 1000 is beyond an hour of two cores",
    ),
]

"""FA-HMC, figure 4: local iterations T on Fashion-MNIST, logistic regression, at the same number of rounds."""

import _images

import fedsim as fs

needs = ("fashion-mnist",)
LOCAL, RATES = [1, 5, 15], [0.1, 0.4]
quick = {"local_steps": LOCAL, "rate": RATES, "leapfrog_steps": 4, "rounds": 12, "batch_size": 100}
full = {"local_steps": LOCAL, "rate": RATES, "leapfrog_steps": 10, "rounds": 60, "batch_size": 1000}


def scenario(
    *, local_steps: int = 5, rate: float = 0.1, leapfrog_steps: int = 4, rounds: int = 12, batch_size: int = 100
) -> fs.Scenario:
    return _images.scenario("fashion-mnist", leapfrog_steps, local_steps, rate, rounds, batch_size)


def figure(study):
    return _images.figure({"": _images.panels(study, "local_steps", LOCAL, RATES, _images.METRICS, "T")})

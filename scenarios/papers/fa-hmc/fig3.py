"""FA-HMC, figure 3: leapfrog steps K on Fashion-MNIST, logistic regression, at the same number of rounds."""

import _images

import fedsim as fs

needs = ("fashion-mnist",)
STEPS, RATES = [1, 5, 15], [0.1, 0.4]
quick = {"leapfrog_steps": STEPS, "rate": RATES, "local_steps": 4, "rounds": 12, "batch_size": 100}
full = {"leapfrog_steps": STEPS, "rate": RATES, "local_steps": 20, "rounds": 60, "batch_size": 500}


def scenario(
    *, leapfrog_steps: int = 5, rate: float = 0.1, local_steps: int = 4, rounds: int = 12, batch_size: int = 100
) -> fs.Scenario:
    return _images.scenario("fashion-mnist", leapfrog_steps, local_steps, rate, rounds, batch_size)


def figure(study):
    return _images.figure({"": _images.panels(study, "leapfrog_steps", STEPS, RATES, _images.METRICS, "K")})

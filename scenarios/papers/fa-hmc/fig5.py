"""FA-HMC, figure 5: leapfrog steps K and local iterations T for a network with two hidden layers, on Fashion-MNIST.

The full form has the paper's widths as B18 reads them, 512 and 512; the quick one 16 and 16.
"""

import _images

import fedsim as fs

needs = ("fashion-mnist",)
ARMS, RATES = ["K 1", "K 5", "K 15", "T 1", "T 12"], [0.05, 0.2]
quick = {"arm": ARMS, "rate": RATES, "width": 16, "rounds": 12, "batch_size": 50}
full = {"arm": ARMS, "rate": RATES, "width": 512, "rounds": 40, "batch_size": 200}
SCORES = ("accuracy", "brier", "ece")


def scenario(
    *, arm: str = "K 5", rate: float = 0.05, width: int = 16, rounds: int = 12, batch_size: int = 50
) -> fs.Scenario:
    """`K 5` has T = 4, `T 12` has K = 4."""
    kind, number = arm.split()
    K, T = (int(number), 4) if kind == "K" else (4, int(number))
    return _images.scenario("fashion-mnist", K, T, rate, rounds, batch_size, widths=(width, width), metrics=SCORES)


def figure(study):
    parts = {letter: [arm for arm in ARMS if arm.startswith(letter)] for letter in "KT"}
    return _images.figure(
        {f"{letter}: ": _images.panels(study, "arm", arms, RATES, SCORES) for letter, arms in parts.items()}
    )

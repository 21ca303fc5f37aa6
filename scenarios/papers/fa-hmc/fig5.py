"""FA-HMC, figure 5: K and T for a network with two hidden layers, Fashion-MNIST; not the paper's widths.

B18 reads the paper's widths as 512 and 512. The paper has one chain of each setting; five are run, for intervals.
The full form has widths of 128, batches of 100, K up to 10 and 6 rounds: 16 minutes, from 15 ms a minibatch gradient
of all clients (timed). The paper's settings take 0.45 s a gradient: 21 processor hours for one round of all runs.
"""

import _images

import fedsim as fs
from fedsim.reproduce import judge, repeats, superiority

needs = ("fashion-mnist",)
LEAPS, LOCAL, RATES = ["K 1", "K 10", "K 50", "K 100"], ["T 1", "T 10", "T 50"], [0.01, 0.2]
paper = {**_images.PAPER, "arm": LEAPS + LOCAL, "width": 512, "local_steps": 50, "leapfrog_steps": 10}
quick = {
    "arm": LEAPS + LOCAL, "rate": RATES, "width": 16, "local_steps": 2, "leapfrog_steps": 3, "rounds": 4,
    "batch_size": 50, "seed": repeats(5),
}  # fmt: skip
full = {
    "arm": LEAPS[:2] + LOCAL, "rate": RATES, "width": 128, "local_steps": 50, "leapfrog_steps": 10, "rounds": 6,
    "batch_size": 100, "seed": repeats(5),
}  # fmt: skip
SCORES = ("accuracy", "brier", "ece")


def scenario(
    *, arm: str = "K 10", rate: float = 0.01, width: int = 16, local_steps: int = 2, leapfrog_steps: int = 3,
    rounds: int = 4, batch_size: int = 50, clients: int = 10, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    """`K 10` has `local_steps` iterations a round, `T 10` has `leapfrog_steps` leapfrog steps an iteration."""
    kind, number = arm.split()
    K, T = (int(number), local_steps) if kind == "K" else (leapfrog_steps, int(number))
    return _images.scenario(
        f"fig5/{kind}", "fashion-mnist", K, T, rate, rounds, batch_size, clients, seed, widths=(width, width),
        metrics=SCORES,
    )  # fmt: skip


def arms(study, letter: str) -> list[str]:
    return [arm for arm in _images.ran(study, "arm") if arm[0] == letter]


def ends(study, metric: str, letter: str):
    return _images.ends(study, "arm", metric, arms(study, letter))


@judge("fig5-best-k-accuracy", metric="accuracy", arm="K 10")
@judge("fig5-best-k-ece", metric="ece", arm="K 10")
@judge("fig5-best-k-brier", metric="brier", arm="K 1")
@judge("fig5-t50-best-accuracy", metric="accuracy", arm="T 50")
@judge("fig5-t50-best-brier", metric="brier", arm="T 50")
@judge("fig5-t50-best-ece", metric="ece", arm="T 50")
def best(study, metric, arm):
    return _images.best(ends(study, metric, arm[0]), metric, arm)


@judge("fig5-t1-worst-accuracy", metric="accuracy")
@judge("fig5-t1-worst-brier", metric="brier")
@judge("fig5-t1-worst-ece", metric="ece")
def worst(study, metric):
    return _images.worst(ends(study, metric, "T"), metric, "T 1")


@judge("fig5-notably-accuracy", metric="accuracy")
@judge("fig5-notably-ece", metric="ece")
def notably(study, metric):
    values = ends(study, metric, "K")
    return superiority(values["K 10"], values["K 1"], higher=metric == "accuracy")


def figure(study):
    return _images.figure(study, {f"{letter}: ": ("arm", arms(study, letter), "") for letter in "KT"}, SCORES)

"""HET_MNIST(2): MNIST over 100 devices with two digits each (E15), softmax regression, FedPAQ plain and private.

Equation 16's noise as printed (`noise="printed"`) leaves nothing to learn. The authors' code divides it by the device's
n rows, and so does `noise="mean"`. That is no proof of privacy: a step averages over b rows, not n, so that the epsilon
named there is a label of how much noise there is, not a guarantee.
"""

from functools import cache

import fedsim as fs
from fedsim.reproduce import end, pick, system

DEVICES, ROWS, DELTA, STEP = 100, 600, 1e-4, 0.1


@cache
def problem() -> fs.problems.SoftmaxRegression:
    d = fs.data.load("mnist")
    parts = fs.data.pathological(d.y, DEVICES, 2, seed=1, class_assignment_mode="deterministic")
    return fs.problems.SoftmaxRegression.of(d, parts)


def scenario(
    mode: str, *, local_steps: int = 10, chosen: int = 10, levels: int = 10, epsilon: float = 1.0, clip: float = 1.0,
    fraction: float = 0.2, rounds: int = 20, replicas: int = 2, every: int = 0, noise: str = "mean",
) -> fs.Scenario:  # fmt: skip
    """`mode` is "plain" (neither subsampling, clipping nor noise, E13) or "private"; `levels` 0 does not quantise."""
    every = every or max(1, rounds // 5)
    return fs.Scenario(
        problem=problem(),
        algorithm=algorithm(mode, local_steps, levels, epsilon, clip, fraction, noise),
        participation=fs.participation.uniform(chosen, weighting="normalised"),
        budget=fs.Budget(rounds=rounds),
        metrics=("loss",),
        evaluate_every=every,
        record=fs.Record(every=rounds, rounds_every=every),
        dtype="float32",
        replicas=replicas,
        seed=1,
        **system(DEVICES),
    )


def algorithm(
    mode: str, local_steps: int = 10, levels: int = 10, epsilon: float = 1.0, clip: float = 1.0, fraction: float = 0.2,
    noise: str = "mean",
):  # fmt: skip
    step_size = fs.schedules.per_round(STEP, 100)  # 0.1/(1 + k E/100), held inside a round (E12)
    codec = fs.codecs.QSGD(levels) if levels else fs.codecs.Identity("float32")
    if mode == "plain":
        return fs.algorithms.FedPAQ(step_size=step_size, local_steps=local_steps, codec=codec)
    return fs.algorithms.PrivateFedPAQ(
        step_size=step_size, local_steps=local_steps, clip=clip, epsilon=epsilon * (ROWS if noise == "mean" else 1),
        delta=DELTA, fraction=fraction, codec=codec,
    )  # fmt: skip


def loss(study, **settings) -> float:
    """The training loss at the end."""
    return end(pick(study, **settings), "loss")


def curve(result, metric: str = "loss"):
    """Averaged over replicas, at the rounds evaluated."""
    table = result.rounds[["round", metric]].dropna()
    return table[metric].groupby(table["round"]).mean()

"""FA-LD, figure 4: figure 3 with a warm-up whose samples do not count; not the paper's rounds.

The warm-up takes 500 rounds in the full form and 4 of 10 in the quick one. The full form takes 2.3 processor
hours, extrapolated from 1.5 ms a local step of ten clients.
"""

import _images

import fedsim as fs
from fedsim.reproduce import judge, repeats, some, superiority

needs = ("mnist", "fashion-mnist")
paper = {**_images.PAPER, "warmup": 500, "rounds": "not in the text, above 500"}
quick = {
    "data": _images.SETS, "local_steps": _images.STEPS, "rate": _images.QUICK_RATES, "rounds": 10, "warmup": 4,
    "every": 2, "seed": repeats(5),
}  # fmt: skip
full = {
    "data": _images.SETS, "local_steps": _images.STEPS, "rate": _images.RATES, "rounds": 1000, "warmup": 500,
    "every": 10, "seed": repeats(5),
}  # fmt: skip


def scenario(
    *, data: str = "mnist", local_steps: int = 10, rate: float = 0.3, rounds: int = 10, warmup: int = 4,
    every: int = 2, clients: int = 10, temperature: float = 0.05, batch_size: int = 200, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return _images.scenario(
        "fa-ld/fig4", data, local_steps, rate, rounds, warmup, every, seed, clients, temperature, batch_size
    )


@judge("fig4-mnist-k1-accuracy", data="mnist", metric="accuracy")
@judge("fig4-mnist-k1-brier", data="mnist", metric="brier")
@judge("fig4-mnist-k1-ece", data="mnist", metric="ece")
@judge("fig4-fashion-k1-accuracy", data="fashion-mnist", metric="accuracy")
@judge("fig4-fashion-k1-brier", data="fashion-mnist", metric="brier")
def worst(study, data, metric):
    return _images.worst(study, data, metric)


@judge("fig4-fashion-k1-ece")
def not_best(study):
    values = _images.ends(study, "fashion-mnist", "ece")
    others = [K for K in values if K != 1]
    return some(
        {
            f"K = {K}": superiority(values[K], values[1], higher=False, comparisons=len(others))
            for K in others
        }
    )  # fmt: skip


@judge("fig4-mnist-best-accuracy", data="mnist", metric="accuracy", K=20)
@judge("fig4-mnist-best-brier", data="mnist", metric="brier", K=20)
@judge("fig4-mnist-best-ece", data="mnist", metric="ece", K=20)
@judge("fig4-fashion-best-accuracy", data="fashion-mnist", metric="accuracy", K=20)
@judge("fig4-fashion-best-brier", data="fashion-mnist", metric="brier", K=10)
@judge("fig4-fashion-best-ece", data="fashion-mnist", metric="ece", K=50)
def best(study, data, metric, K):
    return _images.best(study, data, metric, K)


figure = _images.figure

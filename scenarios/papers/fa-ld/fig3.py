"""FA-LD, figure 3: accuracy, Brier score and calibration error on two sets, no warm-up; not the paper's rounds.

The full form takes 2.3 processor hours, extrapolated from 1.5 ms a local step of ten clients.
"""

import _images

import fedsim as fs
from fedsim.reproduce import Outcome, extreme, judge, repeats

needs = ("mnist", "fashion-mnist")
paper = {**_images.PAPER, "warmup": 0, "rounds": "not in the text, above 500"}
quick = {
    "data": _images.SETS, "local_steps": _images.STEPS, "rate": _images.QUICK_RATES, "rounds": 10, "every": 2,
    "seed": repeats(5),
}  # fmt: skip
full = {
    "data": _images.SETS, "local_steps": _images.STEPS, "rate": _images.RATES, "rounds": 1000, "every": 10,
    "seed": repeats(5),
}  # fmt: skip


def scenario(
    *, data: str = "mnist", local_steps: int = 10, rate: float = 0.3, rounds: int = 10, warmup: int = 0,
    every: int = 2, clients: int = 10, temperature: float = 0.05, batch_size: int = 200, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return _images.scenario(
        "fa-ld/fig3", data, local_steps, rate, rounds, warmup, every, seed, clients, temperature, batch_size
    )


@judge("fig3-mnist-k1-accuracy", data="mnist", metric="accuracy")
@judge("fig3-mnist-k1-brier", data="mnist", metric="brier")
@judge("fig3-mnist-k1-ece", data="mnist", metric="ece")
@judge("fig3-fashion-k1-accuracy", data="fashion-mnist", metric="accuracy")
@judge("fig3-fashion-k1-brier", data="fashion-mnist", metric="brier")
@judge("fig3-fashion-k1-ece", data="fashion-mnist", metric="ece")
def worst(study, data, metric):
    return _images.worst(study, data, metric)


@judge("fig3-mnist-best-brier", data="mnist", metric="brier", K=20)
@judge("fig3-fashion-best-brier", data="fashion-mnist", metric="brier", K=100)
def best(study, data, metric, K):
    return _images.best(study, data, metric, K)


@judge("fig3-mnist-best-accuracy")
def fifty_to_hundred(study):
    values = _images.ends(study, "mnist", "accuracy")
    better = max((50, 100), key=lambda K: values[K].mean())
    return extreme({K: own for K, own in values.items() if K in (1, 10, 20, better)}, better)


@judge("fig3-statistics-differ")
def differ(study):
    parts = []
    for data in _images.SETS:
        shown = {m: _images.best_values(study, data, m) for m in _images.METRICS}
        parts.append((data, shown, len({values[0] for values in shown.values() if values}) > 1))
    ours = "; ".join(f"{data}: best K {shown}" for data, shown, _ in parts)
    shown = any(differs for *_, differs in parts)
    change = "two statistics with different best K, each shown by its intervals"
    return Outcome("held" if shown else "inconclusive", ours, seeds=5, change="" if shown else change)


figure = _images.figure

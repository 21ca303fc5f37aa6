"""P-FedAvg, figure 11: credit scores; started at the stable score, the iterate leaves it and returns."""

import _credit
import numpy as np

import fedsim as fs
from fedsim.reproduce import every, judge, superiority

needs = ("credit",)
BATCHES = [1, 4, 16]
paper = {**_credit.PAPER, "batch_size": BATCHES}
quick = {"scheme": _credit.SCHEMES, "batch_size": BATCHES, "rounds": 500, "replicas": 10}
full = {"scheme": _credit.SCHEMES, "batch_size": BATCHES, "rounds": 100_000, "replicas": 10}


def scenario(
    *, scheme: str = "full", batch_size: int = 16, rounds: int = 500, regularisation: float = 1.0, chosen: int = 5,
    local_steps: int = 5, replicas: int = 10, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return _credit.scenario(
        "fig11", scheme, batch_size, rounds, replicas, regularisation, chosen, local_steps, "stable", seed
    )


def fall(study, scheme: str, batch_size: int) -> np.ndarray:
    """(peak - end)/peak of half of the chains, at the peak's round of the other half's mean."""
    _, values = _credit.runs(study, "distance", scheme=scheme, batch_size=batch_size)
    half = len(values) // 2
    peak = int(values[:half].mean(axis=0).argmax())
    return 1 - values[half:, -1] / values[half:, peak]


@judge("fig11-returns-4-full", scheme="full", batch_size=4)
@judge("fig11-returns-4-I", scheme="I", batch_size=4)
@judge("fig11-returns-4-II", scheme="II", batch_size=4)
@judge("fig11-returns-16-full", scheme="full", batch_size=16)
@judge("fig11-returns-16-I", scheme="I", batch_size=16)
@judge("fig11-returns-16-II", scheme="II", batch_size=16)
def returns(study, scheme, batch_size):
    own = fall(study, scheme, batch_size)
    return superiority(own, np.zeros(len(own)))


@judge("fig11-batch-1")
def batch_one(study):
    return every(
        {
            f"{scheme}, batch {batch}": superiority(
                fall(study, scheme, 1), fall(study, scheme, batch), higher=False, comparisons=6
            )
            for scheme in _credit.SCHEMES
            for batch in (4, 16)
        }
    )


@judge("fig11-leaves")
def leaves(study):
    tests = {}
    for scheme in _credit.SCHEMES:
        for batch in BATCHES:
            rounds, values = _credit.runs(study, "distance", scheme=scheme, batch_size=batch)
            first = values[:, rounds <= rounds[-1] / 10].mean(axis=1)
            tests[f"{scheme}, batch {batch}"] = superiority(first, np.zeros(len(first)))
    return every(tests)


figure = _credit.figure

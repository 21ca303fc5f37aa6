"""P-FedAvg, figure 11: credit scores; started at the stable score, the iterate leaves it and returns."""

import _credit

import fedsim as fs
from fedsim.reproduce import Claim, Finding, pick

needs = ("credit",)
quick = {"scheme": _credit.SCHEMES, "batch_size": [1, 16], "rounds": 600, "replicas": 10}
full = {"scheme": _credit.SCHEMES, "batch_size": [1, 4, 16], "rounds": 20_000, "replicas": 5}


def scenario(*, scheme: str = "full", batch_size: int = 16, rounds: int = 600, replicas: int = 10) -> fs.Scenario:
    return _credit.scenario(scheme, batch_size, rounds, replicas, start="stable")


def returns(study) -> Finding:
    parts, held = [], True
    for s in _credit.SCHEMES:
        curve = _credit.curve(pick(study, scheme=s, batch_size=16))
        held = held and curve[-6:].mean() < 0.7 * curve.max()
        parts.append(f"{s} up to {curve.max():.3f}, back to {curve[-6:].mean():.3f}")
    return Finding(held, "; ".join(parts))


def further(study) -> Finding:
    peaks = {b: max(_credit.curve(pick(study, scheme=s, batch_size=b)).max() for s in _credit.SCHEMES) for b in (1, 16)}
    return Finding(
        peaks[1] > 2 * peaks[16], f"furthest from theta_PS: batch 1 {peaks[1]:.3f}, batch 16 {peaks[16]:.3f}"
    )


figure = _credit.figure
claims = [
    Claim(
        "Started at theta_PS with batches above 1, theta leaves and returns",
        returns,
        published="deviate from theta_PS and gradually stabilize back for batch sizes larger than 1",
        why="decaying steps, batch 16",
    ),
    Claim(
        "With batch 1 it is thrown much further",
        further,
        published="this motivates our choice of a batch size larger than 1",
        why="gradient noise at batch 1 is about four times as large",
    ),
]

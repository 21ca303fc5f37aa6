"""P-FedAvg, figure 5: credit scores; loss and distance to the stable score for three schemes, batch 4."""

import _credit

import fedsim as fs
from fedsim.reproduce import Claim, Finding, pick

needs = ("credit",)
quick = {"scheme": _credit.SCHEMES, "rounds": 900, "replicas": 5}
full = {"scheme": _credit.SCHEMES, "rounds": 20_000, "replicas": 5}


def scenario(*, scheme: str = "full", rounds: int = 900, replicas: int = 5) -> fs.Scenario:
    return _credit.scenario(scheme, 4, rounds, replicas)


def similar(study) -> Finding:
    losses = {s: _credit.curve(pick(study, scheme=s), "loss") for s in _credit.SCHEMES}
    fall = losses["full"][0] - losses["full"][-6:].mean()
    ends = {s: own[-6:].mean() for s, own in losses.items()}
    gap = max(ends.values()) - min(ends.values())
    return Finding(
        gap < 0.4 * fall,
        f"losses end at {', '.join(f'{s} {v:.5f}' for s, v in ends.items())}: apart by {gap:.1e}, fallen by "
        f"{fall:.1e} since the first row",
    )


def converge(study) -> Finding:
    ends = {s: (_credit.curve(pick(study, scheme=s))[0], _credit.late(pick(study, scheme=s))) for s in _credit.SCHEMES}
    return Finding(
        all(b < a / 2 for a, b in ends.values()),
        "distance to theta_PS, first row and end: "
        + ", ".join(f"{s} {a:.3f} to {b:.3f}" for s, (a, b) in ends.items()),
    )


figure = _credit.figure
claims = [
    Claim(
        "All three schemes go to the stable score",
        converge,
        published="the distances to the PS solution fall for all three",
        why="step 40/(t + 200), regularisation 1000/n (D12: not stated in the paper)",
    ),
    Claim(
        "The three schemes behave very similarly",
        similar,
        published="the actual convergence behaviors of all three schemes are very similar",
        why="compared by the loss at the end",
    ),
]

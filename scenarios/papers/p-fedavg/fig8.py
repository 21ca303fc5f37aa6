"""P-FedAvg, figure 8: credit scores; the three schemes with batch size 1."""

import _credit

import fedsim as fs
from fedsim.reproduce import Claim, Finding, pick

needs = ("credit",)
BATCH = 1
quick = {"scheme": _credit.SCHEMES, "rounds": 900, "replicas": 10}
full = {"scheme": _credit.SCHEMES, "rounds": 20_000, "replicas": 5}


def scenario(*, scheme: str = "full", rounds: int = 900, replicas: int = 10) -> fs.Scenario:
    return _credit.scenario(scheme, BATCH, rounds, replicas)


def converge(study) -> Finding:
    told = {
        s: (_credit.curve(pick(study, scheme=s))[:3].mean(), _credit.late(pick(study, scheme=s)))
        for s in _credit.SCHEMES
    }
    return Finding(
        all(b < 0.7 * a for a, b in told.values()),
        "distance to theta_PS, early and late: " + ", ".join(f"{s} {a:.3f} to {b:.3f}" for s, (a, b) in told.items()),
    )


def full_first(study) -> Finding:
    ends = {s: _credit.late(pick(study, scheme=s)) for s in _credit.SCHEMES}
    return Finding(ends["full"] < min(ends["I"], ends["II"]), ", ".join(f"{s} {v:.4f}" for s, v in ends.items()))


figure = _credit.figure
claims = [
    Claim(
        f"With batch size {BATCH} all schemes approach theta_PS",
        converge,
        published="distances to the PS solution fall",
        why="step 40/(t + 200), regularisation 1000/n (D12)",
    ),
    Claim(
        f"With batch size {BATCH} full participation is nearest to theta_PS",
        full_first,
        published="partial participation trails full participation at small batches",
        why="equal means, more variance with fewer banks (D10)",
    ),
]

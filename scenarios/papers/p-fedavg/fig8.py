"""P-FedAvg, figure 8: credit scores; the three schemes with batch size 1."""

import math

import _credit
import numpy as np

import fedsim as fs
from fedsim.reproduce import judge, not_run, superiority

needs = ("credit",)
BATCHES = [1, 16]
paper = {**_credit.PAPER, "batch_size": BATCHES}
quick = {"scheme": _credit.SCHEMES, "batch_size": BATCHES, "rounds": 500, "replicas": 5}
full = {"scheme": _credit.SCHEMES, "batch_size": BATCHES, "rounds": 100_000, "replicas": 5}


def scenario(
    *, scheme: str = "full", batch_size: int = 1, rounds: int = 500, regularisation: float = 1.0, chosen: int = 5,
    local_steps: int = 5, replicas: int = 5, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return _credit.scenario(
        "fig8", scheme, batch_size, rounds, replicas, regularisation, chosen, local_steps, seed=seed
    )


@judge("fig8-especially-partial-I", scheme="I")
@judge("fig8-especially-partial-II", scheme="II")
def especially(study, scheme):
    """Rounds to the worst end of batch 1, batch 1 over batch 16, one value a chain."""
    gains = {}
    for own in ("full", scheme):
        rounds, small = _credit.runs(study, "distance", scheme=own, batch_size=1)
        _, large = _credit.runs(study, "distance", scheme=own, batch_size=16)
        begin, end = _credit.first_level("distance"), float(small[:, -1].max())
        if end >= begin:
            return not_run(
                f"no distance is reached by both batches: batch 1 under {own} is at {end:.3g} after {rounds[-1]:,} "
                f"rounds, further than the start at {begin:.3g}, the fitted score"
            )
        needed = [_credit.rounds_to(rounds, values, end) for values in (small, large)]
        if not all(np.isfinite(n).all() for n in needed):
            return not_run(f"not every chain reaches {end:.3g} in {rounds[-1]:,} rounds")
        gains[own] = np.log(needed[0] / needed[1])
    return superiority(gains[scheme], gains["full"]).because(f"Logarithms; log 2 = {math.log(2):.2f}.")


figure = _credit.figure

"""P-FedAvg, figure 9: credit scores; the three schemes with batch size 4, and batch size 1 beside it."""

import _credit

import fedsim as fs
from fedsim.reproduce import judge

needs = ("credit",)
BATCHES = [1, 4]
paper = {**_credit.PAPER, "batch_size": BATCHES}
quick = {"scheme": _credit.SCHEMES, "batch_size": BATCHES, "rounds": 500, "replicas": 5}
full = {"scheme": _credit.SCHEMES, "batch_size": BATCHES, "rounds": 100_000, "replicas": 5}


def scenario(
    *, scheme: str = "full", batch_size: int = 4, rounds: int = 500, regularisation: float = 1.0, chosen: int = 5,
    local_steps: int = 5, replicas: int = 5, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return _credit.scenario(
        "fig9", scheme, batch_size, rounds, replicas, regularisation, chosen, local_steps, seed=seed
    )


@judge("fig9-batch-4-loss-full", metric="loss", scheme="full")
@judge("fig9-batch-4-loss-I", metric="loss", scheme="I")
@judge("fig9-batch-4-loss-II", metric="loss", scheme="II")
@judge("fig9-batch-4-distance-full", metric="distance", scheme="full")
@judge("fig9-batch-4-distance-I", metric="distance", scheme="I")
@judge("fig9-batch-4-distance-II", metric="distance", scheme="II")
def larger(study, metric, scheme):
    own = [{"scheme": scheme, "batch_size": batch} for batch in (4, 1)]
    return _credit.faster(study, metric, *own)


figure = _credit.figure

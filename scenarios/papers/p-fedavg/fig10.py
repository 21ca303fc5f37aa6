"""P-FedAvg, figure 10: credit scores; the three schemes with batch size 16, and batch size 4 beside it."""

import _credit

import fedsim as fs
from fedsim.reproduce import judge

needs = ("credit",)
BATCHES = [4, 16]
paper = {**_credit.PAPER, "batch_size": BATCHES}
quick = {"scheme": _credit.SCHEMES, "batch_size": BATCHES, "rounds": 500, "replicas": 5}
full = {"scheme": _credit.SCHEMES, "batch_size": BATCHES, "rounds": 100_000, "replicas": 5}


def scenario(
    *, scheme: str = "full", batch_size: int = 16, rounds: int = 500, regularisation: float = 1.0, chosen: int = 5,
    local_steps: int = 5, replicas: int = 5, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return _credit.scenario(
        "fig10", scheme, batch_size, rounds, replicas, regularisation, chosen, local_steps, seed=seed
    )


@judge("fig10-batch-16-loss-full", metric="loss", scheme="full")
@judge("fig10-batch-16-loss-I", metric="loss", scheme="I")
@judge("fig10-batch-16-loss-II", metric="loss", scheme="II")
@judge("fig10-batch-16-distance-full", metric="distance", scheme="full")
@judge("fig10-batch-16-distance-I", metric="distance", scheme="I")
@judge("fig10-batch-16-distance-II", metric="distance", scheme="II")
def larger(study, metric, scheme):
    own = [{"scheme": scheme, "batch_size": batch} for batch in (16, 4)]
    return _credit.faster(study, metric, *own)


@judge("fig10-as-fast-loss-I", metric="loss", scheme="I")
@judge("fig10-as-fast-loss-II", metric="loss", scheme="II")
@judge("fig10-as-fast-distance-I", metric="distance", scheme="I")
@judge("fig10-as-fast-distance-II", metric="distance", scheme="II")
def as_fast(study, metric, scheme):
    return _credit.as_fast(study, metric, scheme, batch_size=16)


figure = _credit.figure

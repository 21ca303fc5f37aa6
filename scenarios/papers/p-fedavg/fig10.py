"""P-FedAvg, figure 10: credit scores; batch size 16 against 1 and 4."""

import _credit

import fedsim as fs

needs = ("credit",)
BATCHES = [1, 4, 16]
quick = {"scheme": _credit.SCHEMES, "batch_size": BATCHES, "rounds": 600, "replicas": 10}
full = {"scheme": _credit.SCHEMES, "batch_size": BATCHES, "rounds": 20_000, "replicas": 5}


def scenario(*, scheme: str = "full", batch_size: int = 16, rounds: int = 600, replicas: int = 10) -> fs.Scenario:
    return _credit.scenario(scheme, batch_size, rounds, replicas)


figure = _credit.figure

"""P-FedAvg, figure 11: credit scores; started at the stable score, the iterate leaves it and returns."""

import _credit

import fedsim as fs

needs = ("credit",)
quick = {"scheme": _credit.SCHEMES, "batch_size": [1, 16], "rounds": 600, "replicas": 10}
full = {"scheme": _credit.SCHEMES, "batch_size": [1, 4, 16], "rounds": 20_000, "replicas": 5}


def scenario(*, scheme: str = "full", batch_size: int = 16, rounds: int = 600, replicas: int = 10) -> fs.Scenario:
    return _credit.scenario(scheme, batch_size, rounds, replicas, start="stable")


figure = _credit.figure

"""P-FedAvg, figure 5: credit scores; loss and distance to the stable score for three schemes, batch 4."""

import _credit

import fedsim as fs

needs = ("credit",)
quick = {"scheme": _credit.SCHEMES, "rounds": 900, "replicas": 5}
full = {"scheme": _credit.SCHEMES, "rounds": 20_000, "replicas": 5}


def scenario(*, scheme: str = "full", rounds: int = 900, replicas: int = 5) -> fs.Scenario:
    return _credit.scenario(scheme, 4, rounds, replicas)


figure = _credit.figure

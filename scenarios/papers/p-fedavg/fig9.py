"""P-FedAvg, figure 9: credit scores; the three schemes with batch size 4."""

import _credit

import fedsim as fs

needs = ("credit",)
BATCH_SIZE = 4
quick = {"scheme": _credit.SCHEMES, "rounds": 900, "replicas": 10}
full = {"scheme": _credit.SCHEMES, "rounds": 20_000, "replicas": 5}


def scenario(*, scheme: str = "full", rounds: int = 900, replicas: int = 10) -> fs.Scenario:
    return _credit.scenario(scheme, BATCH_SIZE, rounds, replicas)


figure = _credit.figure

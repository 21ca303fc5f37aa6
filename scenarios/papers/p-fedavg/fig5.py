"""P-FedAvg, figure 5: credit scores; loss and distance to the stable score for three schemes, batch 4."""

import _credit

import fedsim as fs
from fedsim.reproduce import every, judge, superiority

needs = ("credit",)
paper = {**_credit.PAPER, "batch_size": 4}
quick = {"scheme": _credit.SCHEMES, "batch_size": 4, "rounds": 1000, "regularisation": [1.0, 10.0], "replicas": 5}
full = {"scheme": _credit.SCHEMES, "batch_size": 4, "rounds": 100_000, "regularisation": [1.0, 10.0], "replicas": 5}


def scenario(
    *, scheme: str = "full", batch_size: int = 4, rounds: int = 1000, regularisation: float = 1.0, chosen: int = 5,
    local_steps: int = 5, replicas: int = 5, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return _credit.scenario(
        "fig5", scheme, batch_size, rounds, replicas, regularisation, chosen, local_steps, seed=seed
    )


def with_ten(judged):
    """Return the verdict at 1/n, with that at the authors' 10/n beside it."""
    beside = judged(10.0)
    return judged(1.0).because(f"With the regularisation 10/n: {beside.verdict}; {beside.ours}.")


@judge("fig5-similar-loss-full-I", metric="loss", pair=("full", "I"))
@judge("fig5-similar-loss-full-II", metric="loss", pair=("full", "II"))
@judge("fig5-similar-loss-I-II", metric="loss", pair=("I", "II"))
@judge("fig5-similar-distance-full-I", metric="distance", pair=("full", "I"))
@judge("fig5-similar-distance-full-II", metric="distance", pair=("full", "II"))
@judge("fig5-similar-distance-I-II", metric="distance", pair=("I", "II"))
def similar(study, metric, pair):
    return with_ten(lambda r: _credit.similar(study, metric, pair, regularisation=r))


@judge("scheme-ii-outperforms-fig5-loss", metric="loss")
@judge("scheme-ii-outperforms-fig5-distance", metric="distance")
def outperforms(study, metric):
    return with_ten(
        lambda r: _credit.less(
            study, metric, {"scheme": "II", "regularisation": r}, {"scheme": "I", "regularisation": r}
        )
    )


@judge("fig5-converges")
def converges(study):
    def judged(regularisation):
        begin, tests = _credit.first_level("distance", regularisation), {}
        for scheme in _credit.SCHEMES:
            _, values = _credit.runs(study, "distance", scheme=scheme, regularisation=regularisation)
            tests[scheme] = superiority(values[:, -1], [begin] * len(values), higher=False)
        return every(tests)

    return with_ten(judged).because("The start is the fitted score.")


figure = _credit.figure

"""QLSD, table S2: LeNet-5 on a highly heterogeneous MNIST: accuracy, calibration error, Brier score, likelihood."""

import _nets

import fedsim as fs
from fedsim.reproduce import end, pick

needs = ("mnist", "torch")
SCORES = ("accuracy", "ece", "brier", "nll")
quick = {"method": _nets.METHODS, "iterations": 30, "rows": 1000, "tests": 1000, "rate": 0.02}
full = {"method": _nets.METHODS, "iterations": 3000, "rows": 20_000, "tests": 10_000, "rate": 0.02}


def scenario(
    *, method: str = "QLSD++", iterations: int = 30, rows: int = 1000, tests: int = 1000, rate: float = 0.02
) -> fs.Scenario:
    return _nets.scenario(method, rate, iterations, rows, tests, SCORES)


def scores(study, metric: str, names=tuple(_nets.METHODS)) -> dict[str, float]:
    return {name: end(pick(study, method=name), metric) for name in names}


PUBLISHED = {  # accuracy, ece, brier, nll
    "SGLD": (0.991, 0.00577, 0.0138, 0.0286), "QLSD": (0.988, 0.00916, 0.0198, 0.0415),
    "QLSD PP": (0.983, 0.0157, 0.0223, 0.0482), "QLSD++": (0.988, 0.00692, 0.0191, 0.0411),
    "QLSD++ PP": (0.987, 0.0093, 0.0218, 0.0465), "FSGLD": (0.985, 0.0265, 0.0264, 0.0619),
}  # fmt: skip


def table(study):
    ours = {name: scores(study, name, tuple(PUBLISHED)) for name in SCORES}
    return [
        {"method": method}
        | {key: value for name, published in zip(SCORES, row, strict=True)
           for key, value in ((name, ours[name][method]), (f"published {name}", published))}
        for method, row in PUBLISHED.items()
    ]  # fmt: skip

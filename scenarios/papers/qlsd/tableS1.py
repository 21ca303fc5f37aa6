"""QLSD, table S1: Bayesian logistic regression on covtype, 99 % HPD region (not the paper's: fewer iterations).

Lodgepole pine or spruce; the paper's random subset is not given, 2000 rows are taken.
"""

from functools import cache

import _logistic
import numpy as np

import fedsim as fs
from fedsim.reproduce import every, exact, judge, repeats, stream

needs = ("covtype",)
METHODS = ["reference", *_logistic.COMPRESSED, "DG-SGLD"]
ROWS, CLIENTS = 2000, 50
paper = {"method": METHODS, "iterations": 500_000, "burn_in": 50_000, "step_size": 1e-5}
quick = {"method": METHODS, "iterations": 300, "burn_in": 100, "seed": repeats(1)}
full = {"method": METHODS, "iterations": 20_000, "burn_in": 2000, "step_size": 1e-5, "seed": repeats(1)}
PUBLISHED = {"DG-SGLD": 1.8e-2, "QLSD++ 4": 2.2e-3, "QLSD++ 8": 2.0e-2, "QLSD++ 16": 1.9e-2}


@cache
def problem() -> fs.problems.LogisticRegression:
    """The first rows of classes 1 and 2, standardised, with the prior of table 3."""
    d = fs.data.load("covtype").only(0, 1)
    x = np.c_[d.values(d.x[:ROWS]), np.ones(ROWS)]
    return fs.problems.LogisticRegression(
        [(x[own], d.y[:ROWS][own]) for own in fs.data.iid(d.y[:ROWS], CLIENTS, seed=1)], prior_precision=50.0
    )


@cache
def start() -> np.ndarray:
    return _logistic.optimum(problem(), 2e-4)


def scenario(
    *, method: str = "LSD++", iterations: int = 300, burn_in: int = 100, step_size: float = 1e-4, replicas: int = 5,
    seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    """The reference is Metropolis-adjusted, with half the step and ten steps a round."""
    made = _logistic.scenario(
        "tableS1", problem(), method, step_size, iterations, burn_in, start(), replicas, seed
    )  # fmt: skip
    if method != "reference":
        return made
    return fs.Scenario(
        problem=fs.problems.pooled(problem()), algorithm=fs.algorithms.MALA(step_size=step_size / 2, local_steps=10),
        budget=fs.Budget(rounds=iterations), record=made.record, initial=start(), metrics=("accepted",),
        evaluate_every=iterations, replicas=replicas, seed=stream("qlsd/tableS1", "MALA", seed),
    )  # fmt: skip


@judge("tables1-dg-sgld", method="DG-SGLD")
@judge("tables1-qlsdpp-4-bits", method="QLSD++ 4")
@judge("tables1-qlsdpp-8-bits", method="QLSD++ 8")
@judge("tables1-qlsdpp-16-bits", method="QLSD++ 16")
def error(study, method):
    published = PUBLISHED[method]
    true = _logistic.thresholds(study, problem(), "reference").mean()
    still = abs(float(_logistic.potential(problem(), start()[None])[0]) - true) / true
    outside = exact(not published / 2 <= still <= 2 * published, f"error {still:.2g}")
    own = _logistic.within_factor(_logistic.errors(study, problem(), method), published)
    return every({"error": own, "a chain that stays at the start is outside": outside})


def table(study):
    return [
        {"algorithm": n, "99 % HPD error": float(_logistic.errors(study, problem(), n).mean()), "published error": e}
        for n, e in PUBLISHED.items()
    ]

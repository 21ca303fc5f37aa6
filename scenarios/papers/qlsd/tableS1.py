"""QLSD, table S1: Bayesian logistic regression on covtype (lodgepole pine or spruce), error of the 99 % HPD region."""

from functools import cache

import _logistic
import numpy as np

import fedsim as fs
from fedsim.reproduce import stream

needs = ("covtype",)
METHODS = ["MALA", "LSD++", *_logistic.COMPRESSED, "DG-SGLD"]
ROWS, CLIENTS, STEP = 2000, 10, 1e-4
quick = {"method": METHODS, "iterations": 1500}
full = {"method": METHODS, "iterations": 200_000}


@cache
def problem() -> fs.problems.LogisticRegression:
    """The first rows of classes 1 and 2, standardised; more would only ask for smaller steps."""
    d = fs.data.load("covtype").only(0, 1)
    x = np.c_[d.values(d.x[:ROWS]), np.ones(ROWS)]
    return fs.problems.LogisticRegression(
        [(x[own], d.y[:ROWS][own]) for own in fs.data.iid(d.y[:ROWS], CLIENTS, seed=1)], prior_precision=1.0
    )


@cache
def start() -> np.ndarray:
    return _logistic.optimum(problem(), 2 * STEP)


def scenario(*, method: str = "LSD++", iterations: int = 1500) -> fs.Scenario:
    """MALA's steps are half as long and it takes ten of them a round."""
    if method != "MALA":
        return _logistic.scenario(problem(), method, STEP, iterations, start())
    pooled = fs.problems.pooled(problem())
    made = _logistic.scenario(problem(), "LSD++", STEP, iterations, start())
    return fs.Scenario(
        problem=pooled, algorithm=fs.algorithms.MALA(step_size=STEP / 2, local_steps=10), budget=made.budget,
        record=made.record, initial=start(), metrics=("accepted",), evaluate_every=iterations,
        seed=stream("qlsd/tableS1", method),
    )  # fmt: skip


def errors(study, *names: str) -> dict[str, float]:
    return _logistic.errors(study, problem(), list(names), "MALA")


PUBLISHED = {"DG-SGLD": 1.8e-2, "QLSD++ 4": 2.2e-3, "QLSD++ 8": 2.0e-2, "QLSD++ 16": 1.9e-2}


def table(study):
    found = errors(study, *PUBLISHED)
    return [{"algorithm": n, "99 % HPD error": found[n], "published error": e} for n, e in PUBLISHED.items()]

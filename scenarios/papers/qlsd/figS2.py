"""QLSD, figure S2: the step size against compression, on the Gaussian toy."""

import _toy
import numpy as np

import fedsim as fs
from fedsim.reproduce import Claim, Finding, pick, plots

STEPS = [4.9e-4, 2e-4, 1e-4]
BITS = ["QLSD* 2", "QLSD* 8", "LSD*"]
quick = {"algorithm": BITS, "step_size": STEPS, "iterations": 6000, "sampled": 5000, "replicas": 10}
full = {"algorithm": BITS, "step_size": STEPS, "iterations": 500_000, "sampled": 50_000, "replicas": 30}


def scenario(
    *,
    algorithm: str = "LSD*",
    step_size: float = _toy.STEP,
    iterations: int = 6000,
    sampled: int = 5000,
    replicas: int = 10,
) -> fs.Scenario:
    return _toy.scenario(algorithm, step_size, iterations, sampled, replicas)


def ratios(study, name: str) -> np.ndarray:
    return np.array([_toy.variance_ratio(pick(study, algorithm=name, step_size=eta)) for eta in STEPS])


def smaller(study) -> Finding:
    found = {name: ratios(study, name) for name in BITS}
    held = all((np.diff(own) < 0).all() for own in found.values())
    return Finding(
        bool(held),
        f"stationary over posterior variance, step {STEPS}: "
        + "; ".join(f"{n} {', '.join(f'{v:.3f}' for v in own)}" for n, own in found.items()),
    )


def coarser(study) -> Finding:
    extra = ratios(study, "QLSD* 2") - ratios(study, "LSD*")
    return Finding(
        bool((np.diff(extra) < 0).all()),
        f"what 2 bits add to the variance ratio at steps {STEPS}: {', '.join(f'{e:.3f}' for e in extra)}",
    )


def stepped(study) -> Finding:
    n = int(_toy.problem().sizes.sum())
    exact = [1 / (1 - eta * n / 2) for eta in STEPS]
    return Finding(
        exact[0] < 1.1,
        f"gamma sum N_i = {_toy.STEP * n:.2f}: LSD*'s exact variance is {exact[0]:.2f} times the posterior's; at "
        f"gamma = 1e-4 {exact[-1]:.2f}",
    )


def figure(study):
    content = {
        f"step {eta:g}": {name: _toy.mse(pick(study, algorithm=name, step_size=eta)) for name in BITS} for eta in STEPS
    }
    return plots.panels(content, "uplink bits since the warm-up", "mean squared error of E |theta|", "xy")


claims = [
    Claim(
        "A smaller step lowers the bias at every compression",
        smaller,
        published="the saving can be further improved by decreasing gamma",
        why="C13",
    ),
    Claim(
        "What compression adds to the bias shrinks with the step",
        coarser,
        published="the asymptotic bias of QLSD* is of the order omega O(gamma)",
        why="Table 2 (C20)",
    ),
    Claim(
        "gamma = 4.9e-4 is a small step",
        stepped,
        expected="cannot",
        published="the (optimised) step-size gamma = 4.9e-4",
        why="C13: gamma m is near 1 there; the theorem needs gamma <= 2/(5(m + L)), about 1e-4",
    ),
]

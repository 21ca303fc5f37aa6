"""QLSD, figure S2: the step size against compression, on the Gaussian toy."""

import _toy

import fedsim as fs
from fedsim.reproduce import pick, plots

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


def figure(study):
    content = {
        f"step {eta:g}": {name: _toy.mse(pick(study, algorithm=name, step_size=eta)) for name in BITS} for eta in STEPS
    }
    return plots.panels(content, "uplink bits since the warm-up", "mean squared error of E |theta|", "xy")

"""P-FedAvg, figure 6: a constant step of 0.02 with E = 10 does not converge to theta_PS."""

import _gaussian
import numpy as np

import fedsim as fs
from fedsim.reproduce import Claim, Finding, pick, plots

quick = {"step": ["constant", "decaying"], "rounds": 600, "replicas": 50}
full = {"step": ["constant", "decaying"], "rounds": 10_000, "replicas": 500}


def scenario(*, step: str = "constant", rounds: int = 600, replicas: int = 50) -> fs.Scenario:
    size = fs.schedules.constant(0.02) if step == "constant" else fs.schedules.inverse_time(20, 1000)
    return _gaussian.scenario(_gaussian.problem(), size, 10, rounds, "full", 25, replicas)


def fails(study) -> Finding:
    mean, _ = _gaussian.moments(_gaussian.problem(), lambda t: 0.02, 10, 3000)
    one, _ = _gaussian.moments(_gaussian.problem(), lambda t: 0.02, 1, 30_000)
    own = pick(study, step="constant").samples[-1, :, 0]
    held = abs(mean[-1] - 100) > 3 and abs(own.mean() - 100) > 3
    return Finding(
        held,
        f"exact limit {mean[-1]:.2f} instead of 100 (E=1: {one[-1]:.2f}); replicas {own.mean():.2f} +- {own.std():.2f}",
    )


def cures(study) -> Finding:
    early, late = (
        _gaussian.squared(_gaussian.problem(), _gaussian.inverse(20, 1000), 10, n)[-1] for n in (600, 20_000)
    )
    own = np.sqrt(_gaussian.ran(pick(study, step="decaying"))[-1])
    return Finding(
        late < 0.1 and late < early,
        f"exact root mean square distance {early**0.5:.2f} after 600 rounds, {late**0.5:.3f} after 20000; replicas "
        f"{own:.2f} after 600",
    )


def figure(study):
    problem, rounds = _gaussian.problem(), int(study.runs[0][0]["rounds"])
    steps = {"constant": lambda t: 0.02, "decaying": _gaussian.inverse(20, 1000)}
    panel = {
        f"{name} step": _gaussian.series(pick(study, step=name), _gaussian.squared(problem, step, 10, rounds), 10)
        for name, step in steps.items()
    }
    return plots.panels({"E = 10": panel}, *_gaussian.AXES, _gaussian.LINES)


claims = [
    Claim(
        "A constant step fails to converge to theta_PS",
        fails,
        published="constant learning rates fail to converge (0.02, E = 10)",
        why="D10: with E > 1 the mean itself has a wrong fixed point; it is not only noise",
    ),
    Claim("A decaying step cures it", cures, published="the decay is a necessity", why="step 20/(t + 1000) (D9)"),
]

"""P-FedAvg, figure 6: a constant step of 0.02 with E = 10 does not converge to theta_PS.

Sigma and start are those of the authors' code, since the paper gives none.
"""

import _gaussian
import numpy as np
from _gaussian import BETA, GAMMA, START, inverse, long_run, path

import fedsim as fs
from fedsim.reproduce import every, exact, exact_range, found, judge, plots, rate, repeats, stream, superiority

E = 10
STEPS = {"constant": lambda t: 0.02 + 0 * t, "decaying": inverse()}
paper = {"step": ["constant", "decaying"], "local_steps": E}
quick = {"step": ["constant", "decaying"], "rounds": 3000, "replicas": 4, "seed": repeats(5)}
full = {"step": ["constant", "decaying"], "rounds": 10_000, "replicas": 20, "seed": repeats(5)}


def scenario(
    *, step: str = "constant", local_steps: int = E, rounds: int = 3000, replicas: int = 4, seed: int = 0
) -> fs.Scenario:
    size = fs.schedules.constant(0.02) if step == "constant" else fs.schedules.inverse_time(BETA, GAMMA)
    number = stream("p-fedavg/fig6", step, seed)
    return _gaussian.scenario(_gaussian.problem(), size, local_steps, rounds, "full", 25, replicas, number)


@judge("decay-necessary")
def necessary():
    tests, problem = {}, _gaussian.problem()
    for size in (0.02, 0.002):
        limit = path(problem, lambda t, size=size: size + 0 * t, E, 20_000).squared[[-5000, -1], -1]
        settled = abs(limit[1] / limit[0] - 1) < 1e-6
        tests[f"constant {size:g}"] = exact(bool(limit[1] > 0 and settled), f"limit {limit[1]:.3g}")
    at, values = long_run(problem, "full", E)
    tests["decaying, last decade of 1,000,000 iterations"] = rate(at, values, at_most=-0.95)
    tests["decaying, end"] = exact_range(values[-1] / (START - 100) ** 2, high=1e-3, name="of the start ")
    return every(tests).because("With E > 1 the mean itself has a wrong fixed point: it is not only noise (D10).")


@judge("fig6-constant-fails")
def fails(study):
    own = {step: [summary(result) for result in found(study, step=step)] for step in STEPS}
    tests = {
        name: superiority(*([run[i] for run in own[step]] for step in STEPS))
        for i, name in enumerate(("distance of the mean", "root mean square distance"))
    }
    limit = np.sqrt(path(_gaussian.problem(), STEPS["constant"], E, 10_000).squared[-1, -1])
    return every(tests).because(f"Constant step against the decaying one at the end; the exact limit is {limit:.3g}.")


def summary(result) -> tuple[float, float]:
    """The distance of the replicas' mean and the root mean square distance, at the end."""
    away = result.samples[-1, :, 0] - float(_gaussian.problem().performatively_stable()[0])
    return float(abs(away.mean())), float(np.sqrt((away**2).mean()))


def figure(study):
    problem, rounds = _gaussian.problem(), int(study.runs[0][0]["rounds"])
    panel = {
        f"{name} step": _gaussian.series(found(study, step=name), _gaussian.squared(problem, step, E, rounds), E)
        for name, step in STEPS.items()
    }
    return plots.panels({"E = 10": panel}, *_gaussian.AXES, _gaussian.LINES)

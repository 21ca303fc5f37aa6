"""Private FedPAQ, figure 2: local iterations E at a fixed number of rounds and at a fixed number of iterations."""

import _het

import fedsim as fs
from fedsim.reproduce import pick, plots

needs = ("mnist",)
MODES, HORIZONS = ["plain", "private 0.2", "private 0.8"], ["rounds", "iterations"]
quick = {"mode": MODES, "local_steps": [1, 10, 40], "fixed": HORIZONS, "rounds": 20, "iterations": 80, "replicas": 1}
full = {
    "mode": MODES,
    "local_steps": [1, 10, 20, 40],
    "fixed": HORIZONS,
    "rounds": 20,
    "iterations": 2000,
    "replicas": 3,
}


def scenario(
    *, mode: str = "plain", local_steps: int = 10, fixed: str = "rounds", rounds: int = 20, iterations: int = 80,
    replicas: int = 1,
) -> fs.Scenario:  # fmt: skip
    """`mode` is "plain", or "private" and the share of its rows that a device uses in a round."""
    kind, _, fraction = mode.partition(" ")
    rounds = rounds if fixed == "rounds" else max(1, iterations // local_steps)
    return _het.scenario(
        kind, local_steps=local_steps, fraction=float(fraction or 0.2), rounds=rounds, replicas=replicas
    )


def losses(study, mode: str, fixed: str, steps=(1, 10, 40)) -> list[float]:
    return [_het.loss(study, mode=mode, fixed=fixed, local_steps=E) for E in steps]


def figure(study):
    steps = list(dict.fromkeys(s["local_steps"] for s, _ in study.runs))

    def curves(fixed: str):
        runs = {E: pick(study, mode="plain", fixed=fixed, local_steps=E) for E in steps}
        return {
            f"E = {E}": plots.curve(run, "loss", steps=E if fixed == "iterations" else 1) for E, run in runs.items()
        }

    def ends(fixed: str):
        return {
            mode.replace(" ", ", gamma = "): plots.of(dict(zip(steps, losses(study, mode, fixed, steps), strict=True)))
            for mode in MODES
        }

    content = {
        "(a) FedPAQ over rounds": curves("rounds"), "(b) FedPAQ over iterations": curves("iterations"),
        "(c) after all rounds": ends("rounds"), "(d) after all iterations": ends("iterations"),
    }  # fmt: skip
    x = ["communication rounds", "iterations", "local iterations E", "local iterations E"]
    return plots.panels(content, x, "training loss", ["", "", "x", "x"])

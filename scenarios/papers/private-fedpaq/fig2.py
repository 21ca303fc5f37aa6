"""Private FedPAQ, figure 2: local iterations E at a fixed number of rounds and at a fixed number of iterations."""

import _het
import numpy as np

import fedsim as fs
from fedsim.reproduce import Claim, Finding, pick, plots

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


def shown(values) -> str:
    return ", ".join(f"{v:.3f}" for v in values)


def plain_rounds(study) -> Finding:
    found = losses(study, "plain", "rounds")
    return Finding(bool(np.all(np.diff(found) < 0)), f"training loss after 20 rounds, E = 1, 10, 40: {shown(found)}")


def private_rounds(study) -> Finding:
    found = losses(study, "private 0.2", "rounds", (1, 10))
    return Finding(found[1] < found[0], f"training loss after 20 rounds, E = 1, 10: {shown(found)}")


def diminishing(study) -> Finding:
    found = losses(study, "plain", "rounds")
    gains = -np.diff(found) / np.diff(np.log([1, 10, 40]))
    return Finding(bool(gains[1] < gains[0]), f"fall of the loss per factor e in E: {shown(gains)}")


def iterations(study) -> Finding:
    parts, held = [], True
    for mode in ("plain", "private 0.2"):
        found = losses(study, mode, "iterations")
        held = held and bool(np.all(np.diff(found) > 0))
        parts.append(f"{mode}: {shown(found)}")
    return Finding(held, f"training loss after as many iterations, E = 1, 10, 40: {'; '.join(parts)}")


def sampling(study) -> Finding:
    little, much = (np.array(losses(study, f"private {g}", "rounds")) for g in ("0.2", "0.8"))
    extra = much - little
    return Finding(
        bool(extra[2] > extra[0]), f"what gamma = 0.8 adds to the loss over 0.2, E = 1, 10, 40: {shown(extra)}"
    )


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


claims = [
    Claim(
        "At a fixed number of rounds a larger E is better",
        plain_rounds,
        published="the accuracy of the model increases for larger E per round",
        why="plain FedPAQ, M = 10, s = 10",
    ),
    Claim(
        "Privately, too, E = 10 is better than E = 1 at a fixed number of rounds",
        private_rounds,
        published="proportionally increasing both E and T clearly helps both versions of FedPaq",
        why="Delta_f of a mean over the rows, see E4; noise as printed is judged under figure 4",
    ),
    Claim(
        "The gain diminishes",
        diminishing,
        published="although a diminishing gain is achieved",
        why="per factor e in E, plain FedPAQ",
    ),
    Claim(
        "At a fixed number of iterations a larger E is worse",
        iterations,
        published="larger E in fact delays the convergence of the model at each iteration",
        why="fewer occasions to average, with and without privacy",
    ),
    Claim(
        "A larger share gamma of the rows hurts more at larger E",
        sampling,
        published="larger subsampling ratio would be more detrimental for larger values of E",
        why="the noise grows with E (E4) and with gamma (equation 16)",
    ),
]

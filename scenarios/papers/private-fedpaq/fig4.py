"""Private FedPAQ, figure 4: what epsilon, the clipping bound C and the share gamma of the rows do to convergence."""

import _het

import fedsim as fs
from fedsim.reproduce import pick, plots

needs = ("mnist",)
SETTINGS = [
    f"noise={noise} eps={eps} C={clip} gamma={gamma}"
    for noise, eps, clip, gamma in [
        ("mean", 1, 1, 0.2),
        ("mean", 0.1, 1, 0.2),
        ("mean", 10, 1, 0.2),
        ("mean", 1, 1, 0.8),
        ("mean", 1, 0.5, 0.2),
        ("mean", 1, 2, 0.2),
        ("mean", 0.1, 0.5, 0.8),
        ("mean", 0.1, 1, 0.8),
        ("mean", 0.1, 2, 0.8),
        ("printed", 1, 0.5, 0.2),
        ("printed", 1, 1, 0.2),
        ("printed", 1, 2, 0.2),
    ]
]
quick = {"setting": SETTINGS, "rounds": 20, "replicas": 2}
full = {"setting": SETTINGS, "rounds": 100, "replicas": 5}


def scenario(*, setting: str = SETTINGS[0], rounds: int = 20, replicas: int = 2) -> fs.Scenario:
    given = dict(part.split("=") for part in setting.split())
    return _het.scenario(
        "private", epsilon=float(given["eps"]), clip=float(given["C"]), fraction=float(given["gamma"]), rounds=rounds,
        replicas=replicas, noise=given["noise"],
    )  # fmt: skip


def figure(study):
    def run(noise: str = "mean", eps: float = 1, clip: float = 1, gamma: float = 0.2):
        return plots.curve(pick(study, setting=f"noise={noise} eps={eps} C={clip} gamma={gamma}"), "loss")

    content = {
        "(a) privacy": {f"epsilon = {eps}": run(eps=eps) for eps in (0.1, 1, 10)},
        "(b) clipping, noise as printed": {f"C = {clip}": run("printed", clip=clip) for clip in (0.5, 1, 2)},
        "(c) share of the rows": {f"gamma = {gamma}": run(gamma=gamma) for gamma in (0.2, 0.8)},
        "(d) both": {f"C = {c}, gamma = {g}, epsilon = {e}": run(eps=e, clip=c, gamma=g)
                     for e, g in ((1, 0.2), (0.1, 0.8)) for c in (0.5, 1, 2)},
    }  # fmt: skip
    return plots.panels(content, "communication rounds", "training loss", ["", "y", "", ""])

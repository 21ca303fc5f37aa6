"""FA-LD, figure 1(c): the effect of correlated noise (rho) on speed, K = 100.

With equal Hessians and full participation the averaged noise has the same law for every rho, and the clients' paths
differ by constants: nothing can depend on rho. With unequal Hessians, or with partial participation, it does.
"""

import _toy
import numpy as np
from _moments import FALDMoments, Weights

import fedsim as fs
from fedsim.reproduce import Claim, Finding, end, pick, plots, system

RHOS = [0.0, 0.5, 1.0]
quick = {"correlation": RHOS, "setting": ["paper", "partial"], "rounds": 100}
full = {"correlation": RHOS, "setting": ["paper", "unequal", "partial"], "rounds": 300}
CHOSEN = 10


def scenario(
    *, correlation: float = 0.0, setting: str = "paper", rounds: int = 100, replicas: int = 300
) -> fs.Scenario:
    return fs.Scenario(
        problem=problem(setting),
        algorithm=fs.algorithms.FALD(step_size=1e-7, local_steps=100, correlation=correlation),
        participation=fs.participation.uniform(CHOSEN) if setting == "partial" else fs.participation.full(),
        budget=fs.Budget(rounds=rounds),
        metrics=("w2",),
        record=fs.Record(every=rounds),
        replicas=replicas,
        seed=1,
        **system(_toy.CLIENTS),
    )


def problem(setting: str) -> fs.problems.GaussianMean:
    return _toy.problem(0.0, turn=0.3 if setting == "unequal" else 0.0)


def moments(setting: str, rho: float) -> FALDMoments:
    p = np.full(_toy.CLIENTS, 1 / _toy.CLIENTS)
    return FALDMoments(problem(setting), 1e-7, 100, rho, Weights.uniform(p, CHOSEN) if setting == "partial" else None)


def faster(study) -> Finding:
    rounds = [moments("paper", rho).rounds_to(1e-3) for rho in RHOS]
    return Finding(rounds[-1] < rounds[0], f"exact rounds to W2 <= 1e-3 for rho {RHOS}: {[int(r) for r in rounds]}")


def unequal(study) -> Finding:
    w2 = [moments("unequal", rho).w2(moments("unequal", rho).stationary()) for rho in RHOS]
    return Finding(w2[-1] < w2[0], f"exact stationary W2 for rho {RHOS}: {', '.join(f'{w:.2e}' for w in w2)}")


def partial(study) -> Finding:
    exact = [moments("partial", rho).w2(moments("partial", rho).stationary()) for rho in RHOS]
    ran = [end(pick(study, correlation=rho, setting="partial"), "w2", rows=20) for rho in RHOS]
    held = exact[-1] < exact[0] and ran[-1] < ran[0]
    return Finding(
        held,
        f"W2 for rho {RHOS}: exact {', '.join(f'{w:.2e}' for w in exact)}; 300 replicas "
        f"{', '.join(f'{w:.2e}' for w in ran)}",
    )


def figure(study):
    titles = {"paper": "all devices", "unequal": "all devices, unequal Hessians", "partial": f"{CHOSEN} of 50 devices"}
    ran = dict.fromkeys(s["setting"] for s, _ in study.runs)
    content = {
        titles[setting]: {
            f"rho = {rho:g}": plots.curve(pick(study, correlation=rho, setting=setting), "w2") for rho in RHOS
        }
        for setting in ran
    }
    return plots.panels(content, "communication rounds", "Wasserstein-2 distance", "y")


claims = [
    Claim(
        "A larger correlation slightly accelerates convergence",
        faster,
        expected="cannot",
        published="a larger correlation slightly accelerates the computation",
        why="A13: with equal Hessians and full participation the law of the average is the same for every rho",
    ),
    Claim(
        "With unequal Hessians correlated noise leaves less error",
        unequal,
        published="a larger correlation accelerates",
        why="A13's nearby setting: covariances turned by up to 0.3 rad, where rho does matter",
    ),
    Claim(
        "With partial participation correlated noise leaves less error",
        partial,
        published="the bound's term rho^2 + N(1 - rho^2)",
        why="Theorem 5.10 (A10); uniform(10) of 50",
    ),
]

"""FA-LD, figure 1(c): the effect of correlated noise (rho) on speed, K = 100.

With equal Hessians and full participation the averaged noise has the same law for every rho, and the clients' paths
differ by constants: nothing can depend on rho. With partial participation it does.
"""

import _toy
import numpy as np
from _moments import FALDMoments, Weights

import fedsim as fs
from fedsim.reproduce import every, found, judge, ordered, plots, repeats, stream, system

RHOS = [0.0, 0.5, 1.0]
CHOSEN, P = 10, np.full(_toy.CLIENTS, 1 / _toy.CLIENTS)
paper = {"correlation": RHOS, "local_steps": 100, "replicas": 300}
quick = {"correlation": RHOS, "setting": ["paper", "partial"], "rounds": 100, "seed": repeats(1)}
full = {"correlation": RHOS, "setting": ["paper", "partial"], "rounds": 300, "seed": repeats(5)}


def scenario(
    *, correlation: float = 0.0, setting: str = "paper", rounds: int = 100, replicas: int = 300,
    local_steps: int = 100, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return fs.Scenario(
        problem=_toy.problem(0.0),
        algorithm=fs.algorithms.FALD(step_size=1e-7, local_steps=local_steps, correlation=correlation),
        participation=fs.participation.uniform(CHOSEN) if setting == "partial" else fs.participation.full(),
        budget=fs.Budget(rounds=rounds),
        metrics=("w2",),
        record=fs.Record(every=rounds),
        replicas=replicas,
        seed=stream("fa-ld/fig1c", correlation, setting, seed),
        **system(_toy.CLIENTS),
    )


@judge("fig1c-correlation")
def faster():
    rounds = {f"rho = {rho:g}": FALDMoments(_toy.problem(0.0), 1e-7, 100, rho).rounds_to(1e-3) for rho in RHOS}
    return ordered(rounds, name="exact rounds, ", published="slightly accelerates").refuted(
        "A13: with equal Hessians and all devices the law of the average is the same for every rho."
    )


@judge("partial-rho-one")
def partial():
    parts = {}
    for S in (1, 5, 10, 20, 40):
        for scheme, weights in (("I", Weights.with_replacement(P, S)), ("II", Weights.uniform(P, S))):
            laws = {rho: FALDMoments(_toy.problem(0.0), 1e-7, 100, rho, weights) for rho in (0.0, 1.0)}
            biases = {f"rho = {rho:g}": moments.w2(moments.stationary()) for rho, moments in laws.items()}
            parts[f"scheme {scheme}, S = {S}"] = ordered(biases)
    return every(parts)


def figure(study):
    titles = {"paper": "all devices", "partial": f"{CHOSEN} of 50 devices"}
    content = {
        titles[setting]: {
            f"rho = {rho:g}": plots.seeds(found(study, correlation=rho, setting=setting), "w2") for rho in RHOS
        }
        for setting in titles
    }
    return plots.panels(content, "communication rounds", "Wasserstein-2 distance", "y")

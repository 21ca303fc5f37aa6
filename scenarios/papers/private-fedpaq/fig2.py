"""Private FedPAQ, figure 2: local iterations E at a fixed number of rounds and at a fixed number of iterations."""

from dataclasses import replace
from itertools import pairwise

import _het
import numpy as np
from _exact import Problem, larger, terms

import fedsim as fs
from fedsim.reproduce import every, exact_range, judge, ordered, pick, plots, superiority

needs = ("mnist",)
STEPS = [1, 10, 20, 40]
MODES = ["plain", *(f"{noise} {gamma}" for noise in _het.NOISES for gamma in (0.2, 0.8, 1))]
paper = {"local_steps": STEPS, "rounds": 20, "iterations": 2000, "chosen": 10, "levels": 10, "clip": 1}
quick = {"mode": MODES, "local_steps": STEPS, "fixed": ["rounds"]}
full = {"mode": MODES, "local_steps": STEPS, "fixed": ["rounds", "iterations"]}


def scenario(
    *, mode: str = "plain", local_steps: int = 10, fixed: str = "rounds", rounds: int = 20, iterations: int = 2000,
    chosen: int = 10, levels: int = 10, clip: float = 1,
) -> fs.Scenario:  # fmt: skip
    """`mode` is "plain", or the noise and the share of its rows that a device uses in a round."""
    kind, _, fraction = mode.partition(" ")
    count = rounds if fixed == "rounds" else iterations // local_steps
    return _het.scenario(
        ("fig2", mode, local_steps, fixed), kind, local_steps=local_steps, fraction=float(fraction or 0.2),
        rounds=count, chosen=chosen, levels=levels, clip=clip, every=max(1, count // 10), metrics=("loss", "accuracy"),
    )  # fmt: skip


@judge("remark-7-e")
@judge("fixed-t-theory")
def theory():
    found = larger({E: Problem(E=E) for E in (1, 2, 5, 10, 20, 40)}, 2000)
    return every({key: ordered(values, increasing=True, name="by E ") for key, values in found.items()})


@judge("large-e-last-term")
def last_term():
    """Softmax regression on MNIST at gamma = 0.2, s = 10; mu is the weight decay of the authors' code, G = C = 1."""
    p = Problem(
        devices=100, dim=7850, mu=1e-3, kappa=1e5, spread=0.0, sigma=1.0, q=7850**0.5 / 10, M=10, E=40, private=True
    )
    p = replace(p, rows=_het.ROWS)
    shares = {}
    for repaired in (False, True):
        own = terms(p, 2000.0, 1.0, first=1.0, repaired=repaired)
        own["privacy"] *= 3**2  # b = 3 rows, in place of 1
        shares[repaired] = own["privacy"] / sum(own.values())
    return exact_range(shares[False], 0.5, 1.0, name="share ").because(
        f"E9: the printed term lacks 1/mu^2, which the others have; with it its share is {shares[True]:.3f}. The paper "
        "gives no mu; without regularisation it is 0 and the other terms are infinite."
    )


def ends(study, mode, fixed="rounds"):
    return {E: _het.last(study, mode=mode, fixed=fixed, local_steps=E) for E in STEPS}


@judge("fig2a-plain-loss", mode="plain", metric="loss")
@judge("fig2a-plain-accuracy", mode="plain", metric="accuracy")
@judge("fig2a-private-loss-printed", mode="printed 0.2", metric="loss")
@judge("fig2a-private-loss-mean", mode="mean 0.2", metric="loss")
@judge("fig2a-private-accuracy-printed", mode="printed 0.2", metric="accuracy")
@judge("fig2a-private-accuracy-mean", mode="mean 0.2", metric="accuracy")
def per_round(study, mode, metric):
    curves = {f"E = {E}": _het.losses(study, metric, mode=mode, fixed="rounds", local_steps=E) for E in STEPS}
    return _het.ordered_curves(curves, higher=metric == "accuracy")


@judge("fig2b-plain", mode="plain")
@judge("fig2b-private-printed", mode="printed 0.2")
@judge("fig2b-private-mean", mode="mean 0.2")
def per_iteration(study, mode):
    curves = {}
    for E in STEPS:
        values = _het.losses(study, mode=mode, fixed="iterations", local_steps=E)
        curves[f"E = {E}"] = {E * k: v for k, v in values.items()}
    return _het.ordered_curves(curves, higher=True)


@judge("fig2-proportional-plain", mode="plain")
@judge("fig2-proportional-private-printed", mode="printed 0.2")
@judge("fig2-proportional-private-mean", mode="mean 0.2")
def proportional(study, mode):
    return _het.ordered_means({f"E = {E}": v for E, v in ends(study, mode).items()}, higher=False)


@judge("fig2-diminishing-plain", mode="plain")
@judge("fig2-diminishing-private-printed", mode="printed 0.2")
@judge("fig2-diminishing-private-mean", mode="mean 0.2")
def diminishing(study, mode):
    """Two neighbouring falls share the runs of one E: paired by run."""
    loss = ends(study, mode)
    falls = {f"{a} to {b}": (loss[a] - loss[b]) / np.log2(b / a) for a, b in pairwise(STEPS)}
    pairs = {
        f"{more} against {less}": superiority(falls[more], falls[less], higher=False, paired=True, comparisons=2)
        for less, more in pairwise(falls)
    }
    return every(pairs)


def increase(study, noise, fixed="rounds", low=0.2, high=0.8):
    little, much = ends(study, f"{noise} {low}", fixed), ends(study, f"{noise} {high}", fixed)
    return {f"E = {E}": much[E] - little[E] for E in STEPS}


@judge("fig2c-gamma-printed", noise="printed", fixed="rounds")
@judge("fig2c-gamma-mean", noise="mean", fixed="rounds")
@judge("fig2d-gamma-printed", noise="printed", fixed="iterations")
@judge("fig2d-gamma-mean", noise="mean", fixed="iterations")
def detrimental(study, noise, fixed):
    return _het.ordered_means(increase(study, noise, fixed), higher=True)


@judge("lesson-4-printed", noise="printed")
@judge("lesson-4-mean", noise="mean")
def lesson_4(study, noise):
    return every({
        f"over gamma = {high}": _het.ordered_means(increase(study, noise, high=high), higher=True) for high in (0.8, 1)
    })  # fmt: skip


@judge("large-e-larger-b-printed", noise="printed")
@judge("large-e-larger-b-mean", noise="mean")
def larger_b(study, noise):
    return superiority(ends(study, f"{noise} 0.8")[40], ends(study, f"{noise} 0.2")[40])


@judge("small-e-larger-gamma-printed", noise="printed")
@judge("small-e-larger-gamma-mean", noise="mean")
def small_e(study, noise):
    own = increase(study, noise)
    return superiority(own["E = 1"], own["E = 40"], higher=False)


@judge("lesson-2")
def lesson_2(study):
    loss = ends(study, "plain")
    return superiority(loss[10], loss[1], higher=False)


def figure(study):
    horizons = list(dict.fromkeys(s["fixed"] for s, _ in study.runs))

    def curves(mode: str, fixed: str):
        runs = {E: pick(study, mode=mode, fixed=fixed, local_steps=E) for E in STEPS}
        return {
            f"E = {E}": plots.curve(run, "loss", steps=E if fixed == "iterations" else 1) for E, run in runs.items()
        }

    def ends(fixed: str):
        return {
            mode: plots.of({E: _het.last(study, mode=mode, fixed=fixed, local_steps=E).mean() for E in STEPS})
            for mode in MODES
            if not mode.startswith("printed")
        }

    content = {f"{mode}, {fixed}": curves(mode, fixed) for fixed in horizons for mode in ("plain", "mean 0.2")}
    x = [{"rounds": "communication rounds", "iterations": "iterations"}[fixed] for fixed in horizons for _ in range(2)]
    content |= {f"after all {fixed}": ends(fixed) for fixed in horizons}
    x += ["local iterations E"] * len(horizons)
    return plots.panels(content, x, "training loss", [""] * 2 * len(horizons) + ["x"] * len(horizons))

"""Private FedPAQ, figure 4: what epsilon, the clipping bound C and the share gamma of the rows do to convergence."""

from dataclasses import replace
from math import exp, log, log1p

import _het
import numpy as np
from _exact import Problem, rounds_to

import fedsim as fs
from fedsim.privacy import fedpaq
from fedsim.reproduce import (
    bounded,
    exact_range,
    extreme,
    found,
    identical,
    judge,
    ordered,
    pick,
    plots,
    some,
    superiority,
    within_range,
)

needs = ("mnist",)
CLIPS, GAMMAS, EPSILONS = (0.5, 1, 2), (0.2, 0.4, 0.6, 0.8), (0.1, 1, 10)
CENTRE = {"eps": 1, "C": 1, "gamma": 0.2, "delta": 1e-4}


def name(noise: str, **changed) -> str:
    return " ".join([f"noise={noise}", *(f"{key}={value}" for key, value in {**CENTRE, **changed}.items())])


QUICK = [{}, {"eps": 0.1}, {"eps": 10}, {"C": 0.5}, {"C": 2}, {"gamma": 0.8}, {"C": 0.5, "gamma": 0.8}, {"delta": 1e-2}]
GRID = [{"C": C, "gamma": g} for C in CLIPS for g in GAMMAS]
WITHOUT = name("mean", gamma=1, eps=2)  # equation 16 at gamma = 1 and 2 epsilon is equation 13, without subsampling
PLAIN, SILENT = "noise=plain", name("silent", C=0.5)
FULL = list({name("", **s): s for s in [*QUICK, *GRID]}.values())
paper = {"rounds": 100, "local_steps": 10, "chosen": 10, "levels": 10}
quick = {"setting": [PLAIN, SILENT, WITHOUT, *(name(n, **s) for n in _het.NOISES for s in QUICK)]}
full = {"setting": [PLAIN, SILENT, WITHOUT, *(name(n, **s) for n in _het.NOISES for s in FULL)]}


def scenario(
    *, setting: str = WITHOUT, rounds: int = 100, local_steps: int = 10, chosen: int = 10, levels: int = 10
) -> fs.Scenario:
    given = dict(part.split("=") for part in setting.split())
    noise, values = given.pop("noise"), {**CENTRE, **{key: float(value) for key, value in given.items()}}
    each = 1 if values["C"] == 0.5 and noise in _het.NOISES and values["gamma"] in (0.2, 0.8) else 20
    return _het.scenario(
        ("fig4", setting), noise, local_steps=local_steps, chosen=chosen, levels=levels, epsilon=values["eps"],
        delta=values["delta"], clip=values["C"], fraction=values["gamma"], rounds=rounds, every=each,
    )  # fmt: skip


# --- Exact -----------------------------------------------------------------------------------------------------------

STEPS = 10 * _het.STEP  # the sum of a first round's step sizes, E = 10


def sigma(epsilon=1.0, delta=1e-4, gamma=0.2, clip=1.0) -> float:
    """Equation 16 in the first round, as printed."""
    return float(fedpaq.noise_sigma(fedpaq.sensitivity("paper", clip, STEPS), epsilon, delta, gamma))


@judge("amplification")
def amplification():
    base, gamma, E = 1 / 0.4, 0.2, 10
    chain = [
        log1p((1 - (1 - gamma / E) ** E) * (exp(base) - 1)), log(1 + gamma * (exp(base) - 1)), gamma * (exp(base) - 1),
        2 * gamma * base,
    ]  # fmt: skip
    return bounded(chain[:-1], chain[1:]).refuted(
        f"E5: the chain is {', '.join(f'{v:.3g}' for v in chain)}; e^x - 1 <= 2x needs x <= 1.256, and equation 16 "
        f"uses the base epsilon x = epsilon/(2 gamma) = {base}."
    )


@judge("eq-16-guarantee")
def guarantee():
    base = fedpaq.guarantee(1.0, 1e-4, 0.2).base_epsilon
    return exact_range(base, 0, 1, name="epsilon/(2 gamma) = ").refuted(
        "E5: the Gaussian mechanism's formula is proved for epsilon up to 1, and is used at 2.5. The noise is safe all "
        "the same: a Renyi account gives epsilon = 0.36 a round, as the sensitivity is twice what is needed (E4)."
    )


@judge("sensitivity")
def sensitivity():
    """Each of two trajectories from one point moves by eta C a step at most; opposite ones attain the sum."""
    cases = [(eta, E, C) for eta in (0.1, 0.01) for E in (1, 10, 40) for C in (0.5, 1, 2)]
    largest = [np.linalg.norm(np.array([eta * E * C]) - np.array([-eta * E * C])) for eta, E, C in cases]
    return bounded(largest, [fedpaq.sensitivity("paper", C, E * eta) for eta, E, C in cases])


@judge("noise-quadratic")
def quadratic():
    C = np.array([0.5, 1.0, 2.0, 4.0])
    return identical([sigma(clip=c) ** 2 for c in C], sigma() ** 2 * C**2)


@judge("gamma-amplifies-noise", key="gamma", values=(0.05, 0.2, 0.4, 0.6, 0.8, 1.0), increasing=True)
@judge("noise-falls-with-epsilon", key="epsilon", values=(0.1, 0.5, 1.0, 10.0), increasing=False)
@judge("noise-falls-with-delta", key="delta", values=(1e-5, 1e-4, 1e-3, 1e-2), increasing=False)
def noise(key, values, increasing):
    return ordered({v: sigma(**{key: v}) ** 2 for v in values}, increasing=increasing, name=f"sigma^2 by {key}: ")


@judge("remark-8-epsilon", key="epsilon", values=(4.0, 2.0, 1.0, 0.5))
@judge("remark-8-delta", key="delta", values=(1e-2, 1e-3, 1e-4, 1e-5))
@judge("remark-8-g", key="bound", values=(1.0, 2.0, 4.0, 8.0))
def slower(key, values):
    """The noise is that of equation 51 with the clipping bound G, which no gradient is assumed to pass."""
    base = Problem(private=True, bound=4.0, rows=100)
    found = {v: 5 * rounds_to(replace(base, **{key: v}), 0.3, 20_000) for v in values}
    return ordered(found, increasing=True, name=f"iterations to an error of 0.3 by {key}: ")


# --- Runs ------------------------------------------------------------------------------------------------------------


def end(study, noise, **changed):
    return _het.last(study, setting=name(noise, **changed))


def curve(study, noise, **changed):
    return _het.losses(study, setting=name(noise, **changed))


@judge("eq-16-learns")
def learns(study):
    start = np.full(_het.REPLICAS, _het.START)
    return superiority(end(study, "printed"), start, higher=False).because(
        f"E4: sigma of the first round is {sigma():.1f} a coordinate in 7850 dimensions, while clipped steps move a "
        f"model by {STEPS:g} at most: equation 16 takes the sensitivity of a sum over rows, a step takes their mean."
    )


@judge("eq-16-utility")
def utility(study):
    without = _het.last(study, setting=WITHOUT)
    return superiority(end(study, "mean"), without, higher=False).because(
        "Noise of a mean over the rows; without subsampling all rows are used, with the noise of equation 13."
    )


@judge("clipping-hurts-plain")
def clipping(study):
    return superiority(_het.last(study, setting=SILENT), _het.last(study, setting=PLAIN))


@judge("increasing-epsilon-printed", noise="printed", key="eps", values=EPSILONS, higher=False)
@judge("increasing-epsilon-mean", noise="mean", key="eps", values=EPSILONS, higher=False)
@judge("increasing-delta-printed", noise="printed", key="delta", values=(1e-4, 1e-2), higher=False)
@judge("increasing-delta-mean", noise="mean", key="delta", values=(1e-4, 1e-2), higher=False)
@judge("fig4c-gamma-printed", noise="printed", key="gamma", values=GAMMAS, higher=True)
@judge("fig4c-gamma-mean", noise="mean", key="gamma", values=GAMMAS, higher=True)
def by(study, noise, key, values, higher):
    return _het.ordered_means({f"{key} = {v}": end(study, noise, **{key: v}) for v in values}, higher=higher)


@judge("fig4a-utility-printed", noise="printed")
@judge("fig4a-utility-mean", noise="mean")
def worst_epsilon(study, noise):
    return extreme({eps: end(study, noise, eps=eps) for eps in EPSILONS}, 0.1)


@judge("fig4a-hindered-printed", noise="printed")
@judge("fig4a-hindered-mean", noise="mean")
def hindered(study, noise):
    """Progress as a fraction of that at the largest epsilon, whose runs are taken one by one."""
    gained = _het.START - end(study, noise, eps=10)
    if gained.mean() <= 0:
        text = "Epsilon = 10 makes no progress either, so that the ratio has no meaning; the rise itself is judged."
        return superiority(end(study, noise, eps=0.1), np.full(_het.REPLICAS, _het.START)).because(text)
    return within_range((end(study, noise, eps=0.1) - _het.START) / gained, -0.5, np.inf)


@judge("fig4b-clipping-printed", noise="printed")
@judge("fig4b-clipping-mean", noise="mean")
def larger_clip(study, noise):
    found = _het.ordered_curves({f"C = {C}": curve(study, noise, C=C) for C in CLIPS}, higher=True)
    return found.because(
        "Divided by the rows, the noise is small and clipping slows; as printed, it swamps the steps and grows with C."
    )


@judge("fig4d-not-always")
def not_always(study):
    pairs = {g: (end(study, "mean", C=0.5, gamma=g), end(study, "mean", C=1, gamma=g)) for g in GAMMAS}
    return some({
        f"gamma = {g}": superiority(*pair, comparisons=len(GAMMAS)) for g, pair in pairs.items() if all(map(len, pair))
    })  # fmt: skip


@judge("fig4d-best-printed", noise="printed", best=True)
@judge("fig4d-best-mean", noise="mean", best=True)
@judge("fig4d-worst-printed", noise="printed", best=False)
@judge("fig4d-worst-mean", noise="mean", best=False)
def over_grid(study, noise, best):
    """`best` of all settings, or among the two worst: above all others but one."""
    values = {f"C = {s['C']}, gamma = {s['gamma']}": end(study, noise, **s) for s in GRID}
    if missing := _het.absent(values.values()):
        return missing
    outcomes = {}
    for g in GAMMAS:
        own, others = f"C = 0.5, gamma = {g}", dict(values)
        if not best:
            del others[max((k for k in values if k != own), key=lambda k: values[k].mean())]
        outcomes[f"gamma = {g}"] = extreme(others, own, higher=not best)
    return some(outcomes)


@judge("fig4d-small-c-gamma-printed", noise="printed")
@judge("fig4d-small-c-gamma-mean", noise="mean")
def small_both(study, noise):
    return superiority(end(study, noise, C=0.5), end(study, noise))


@judge("fig4d-c-1-resilient-printed", noise="printed")
@judge("fig4d-c-1-resilient-mean", noise="mean")
def resilient(study, noise):
    """The range over gamma, of the runs as they are numbered: runs of different gamma are independent."""
    own = {C: [end(study, noise, C=C, gamma=g) for g in GAMMAS] for C in (0.5, 1)}
    if missing := _het.absent([v for values in own.values() for v in values]):
        return missing
    return superiority(np.ptp(own[1], axis=0), np.ptp(own[0.5], axis=0), higher=False)


@judge("lesson-5-better-printed", noise="printed")
@judge("lesson-5-better-mean", noise="mean")
def lesson(study, noise):
    values = {g: end(study, noise, gamma=g) for g in GAMMAS}
    return _het.absent(values.values()) or extreme(values, 0.2, higher=False)


@judge("lesson-5-unstable-printed", noise="printed")
@judge("lesson-5-unstable-mean", noise="mean")
def unstable(study, noise):
    little, much = (_het.rises(study, setting=name(noise, C=0.5, gamma=g)) for g in (0.2, 0.8))
    return superiority(little, much)


def figure(study):
    def run(noise: str = "mean", **changed):
        return plots.curve(pick(study, setting=name(noise, **changed)), "loss")

    grid = [s for s in ({"C": C, "gamma": g} for C in CLIPS for g in GAMMAS) if found(study, setting=name("mean", **s))]
    content = {
        "(a) privacy": {f"epsilon = {eps}": run(eps=eps) for eps in EPSILONS},
        "(b) clipping": {f"C = {C}": run(C=C) for C in CLIPS},
        "(b) clipping, noise as printed": {f"C = {C}": run("printed", C=C) for C in CLIPS},
        "(c) share of the rows": {
            f"gamma = {g}": run(gamma=g) for g in GAMMAS if found(study, setting=name("mean", gamma=g))
        },
        "(d) both": {f"C = {s['C']}, gamma = {s['gamma']}": run(**s) for s in grid},
    }
    return plots.panels(content, "communication rounds", "training loss", ["", "", "y", "", ""])

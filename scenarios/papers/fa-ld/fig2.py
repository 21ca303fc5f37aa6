"""FA-LD, figure 2: W2 under device sampling, schemes I and II, at K = 100, for several S and step sizes."""

from functools import cache

import _toy
import numpy as np
from _moments import FALDMoments, Weights
from _quadratics import bound, drawn, start, varied

import fedsim as fs
from fedsim.reproduce import (
    bounded,
    every,
    exact,
    exact_range,
    found,
    identical,
    judge,
    ordered,
    plots,
    rate,
    repeats,
    stream,
    system,
)

K, N, P = 100, _toy.CLIENTS, np.full(_toy.CLIENTS, 1 / _toy.CLIENTS)
SIZES, STEPS, TINY = (40, 20, 10, 5), (1e-6, 1e-7, 1e-8), (1e-7, 1e-9, 1e-11)
SCHEMES = ("I", "II")
paper = {"local_steps": K, "replicas": 300}
quick = {"scheme": ["full", "I", "II"], "chosen": [5, 20], "step_size": 1e-7, "rounds": 120, "seed": repeats(1)}
full = {
    "scheme": ["full", "I", "II"], "chosen": [5, 10, 20, 40], "step_size": list(STEPS), "rounds": 1500,
    "seed": repeats(5),
}  # fmt: skip


def scenario(
    *, scheme: str = "I", chosen: int = 10, step_size: float = 1e-7, rounds: int = 120, replicas: int = 300,
    local_steps: int = K, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    policies = {
        "full": fs.participation.full(),
        "I": fs.participation.with_replacement(chosen),
        "II": fs.participation.uniform(chosen),
    }
    return fs.Scenario(
        problem=_toy.problem(0.0),
        algorithm=fs.algorithms.FALD(step_size=step_size, local_steps=local_steps),
        participation=policies[scheme],
        budget=fs.Budget(rounds=rounds),
        metrics=("w2",),
        record=fs.Record(every=rounds),
        replicas=replicas,
        seed=stream("fa-ld/fig2", scheme, chosen, step_size, seed),
        **system(N),
    )


def weights(scheme: str, S: int, p=P) -> Weights:
    made = {"full": lambda: Weights.full(p), "I": lambda: Weights.with_replacement(p, S),
            "II": lambda: Weights.uniform(p, S)}  # fmt: skip
    return made[scheme]()


def moments(scheme: str, S: int = N, eta: float = 1e-7, rho: float = 0.0, alpha: float = 0.0) -> FALDMoments:
    return FALDMoments(_toy.problem(alpha), eta, K, rho, weights(scheme, S))


@cache
def bias(scheme: str, S: int = N, eta: float = 1e-7, rho: float = 0.0) -> float:
    """The exact W2 in the long run."""
    own = moments(scheme, S, eta, rho)
    return own.w2(own.stationary())


@judge("abstract-additional-bias")
@judge("partial-bias-regardless-of-eta")
def plateau():
    parts = {}
    for scheme in SCHEMES:
        for S in SIZES:
            values = [bias(scheme, S, eta) for eta in TINY]
            flat = abs(values[2] / values[1] - 1) < 0.01 and values[2] > 0
            shown = ", ".join(f"{value:.3g}" for value in values)
            parts[f"scheme {scheme}, S = {S}"] = exact(flat, shown, change="a difference of 1 % between the last two")
    values = [bias("full", N, eta) for eta in TINY]
    shown = ", ".join(f"{value:.2g}" for value in values)
    parts["all devices"] = exact(values[2] < 1e-3 * values[0], shown, change="a bias that does not fall with eta")
    return every(parts)


A10 = (
    "A10: the root covers the complete product. W2 is that of Gaussians with the exact moments, a lower bound of W2 "
    "to the mixtures that device sampling gives."
)


@judge("theorem-5.10")
def theorem():
    left, right = [], []
    for q in varied(balanced=True).values():
        q = q.with_(sigma=0.0)
        n = len(q.p)
        for eta in (0.5 / q.L, 0.05 / q.L):
            for local in (1, 4, 20):
                for rho in (0.0, 0.5, 1.0):
                    for scheme in SCHEMES:
                        for S in (1, 2, n):
                            own = FALDMoments(q, eta, local, rho, weights(scheme, S, q.p), start(q), q.tau)
                            for rounds in (1, 2, 5, 20, 100):
                                left.append(q.w2(own.after(rounds)))
                                right.append(bound(q.dim, n, S, scheme, q.m, q.L, eta, local, rounds * local, rho,
                                                   q.tau, q.D2(start(q)), q.gamma))  # fmt: skip
    return bounded(left, right).because(A10)


@judge("theorem-5.10-informal")
def informal():
    sizes, rhos, eta = np.array([2, 5, 10, 20, 40]), np.array([0.0, 0.5, 0.8, 0.95]), 1e-9
    factor = rhos**2 + N * (1 - rhos**2)
    return every(
        {
            "1/S, scheme I": rate(1 / sizes, [bias("I", S, eta) for S in sizes], at_most=0.55),
            "C_S/S, scheme II": rate((N - sizes) / (N - 1) / sizes, [bias("II", S, eta) for S in sizes], at_most=0.55),
            "rho factor, scheme I": rate(factor, [bias("I", 10, eta, rho) for rho in rhos], at_most=0.55),
            "rho factor, scheme II": rate(factor, [bias("II", 10, eta, rho) for rho in rhos], at_most=0.55),
        }
    ).because(
        "The part that sampling adds to the covariance is proportional to the product; W2 grows as its root only when "
        "this part is large beside the target's covariance, and in proportion to it when it is small."
    )


@judge("scheme-1-robust")
def robust():
    parts = {}
    for alpha in (0.0, 1000.0):
        own = moments("I", 10, alpha=alpha)
        parts[f"equal p, alpha = {alpha:g}"] = identical(own.stationary()[0], _toy.problem(alpha).exact()[0])
    q = drawn(3, equal=True, spread=5.0)
    own = FALDMoments(q, 0.05 / q.L, 10, 0.0, weights("I", 2, q.p))
    parts["unequal p"] = identical(own.stationary()[0], q.optimum)
    return every(parts)


@judge("schemes-s-1", S=1, other="I")
@judge("schemes-s-n", S=N, other="full")
def same(S, other):
    return every(
        {
            f"eta = {eta:g}, rho = {rho:g}": identical(bias("II", S, eta, rho), bias(other, S, eta, rho))
            for eta in STEPS
            for rho in (0.0, 0.5)
        }
    )


@judge("schemes-ii-better")
def better():
    return every({f"S = {S}": ordered({s: bias(s, S) for s in SCHEMES}) for S in (40, 45, 49)})


@judge("fig2a-large-eta-faster")
def large_faster():
    rounds = {}
    for eta in STEPS:
        own = moments("full", eta=eta)
        rounds[f"eta = {eta:g}"] = own.rounds_to(1.1 * bias("full", N, eta), most=10**9)
    return ordered(rounds, increasing=True)


@judge("fig2a-large-eta-bias")
def large_bias():
    return ordered({f"eta = {eta:g}": bias("full", N, eta) for eta in STEPS})


@judge("fig2a-small-eta")
def small_eta():
    return rate(STEPS, [bias("full", N, eta) for eta in STEPS], at_least=0.5, published="1/2 in theorem 5.7")


@judge("fig2-partial-eta")
def less_dependent():
    def ratio(scheme: str, S: int) -> float:
        return bias(scheme, S, STEPS[0]) / bias(scheme, S, STEPS[-1])

    return every(
        {
            f"scheme {scheme}, S = {S}": exact_range(ratio(scheme, S) / ratio("full", N), 0.0, 0.1)
            for scheme in SCHEMES
            for S in SIZES
        }
    )


@judge("fig2-fewer-devices-I", scheme="I")
@judge("fig2-fewer-devices-II", scheme="II")
def fewer(scheme):
    values = {f"S = {S}": bias(scheme, S) for S in SIZES}
    over = min(values.values()) / bias("full")
    return every({"bias": ordered(values, increasing=True), "least over that of all devices": exact_range(over, 2.0)})


@judge("fig2-bias-stays")
def stays():
    parts = {}
    for scheme in SCHEMES:
        for S in SIZES:
            own = moments(scheme, S)
            early, late = (own.w2(own.after(rounds)) for rounds in (1500, 15_000))
            parts[f"scheme {scheme}, S = {S}"] = exact_range(late / early, 0.99, 1.01)
    return every(parts)


def figure(study):
    schemes, steps = (list(dict.fromkeys(s.get(name, 1e-7) for s, _ in study.runs)) for name in ("scheme", "step_size"))
    content = {
        f"scheme {scheme}, step {eta:g}" if scheme != "full" else f"all devices, step {eta:g}": {
            f"S = {S}": both(found(study, scheme=scheme, chosen=S, step_size=eta), bias(scheme, S, eta))
            for S in dict.fromkeys(s["chosen"] for s, _ in study.runs)
        }
        for scheme in schemes
        for eta in steps
    }
    note = "lines: 300 replicas; dashes: exact, in the long run"
    return plots.panels(content, "communication rounds", "Wasserstein-2 distance", "y", note)


def both(results, level: float) -> list[plots.Series]:
    own = plots.seeds(results, "w2")
    return [*own, plots.Series(own[0].x[[0, -1]], [level, level], "dashes")]

"""FA-LD, figure 1(a): communication rounds to W2 <= 1e-3 against the number K of local steps.

The paper's clients share one Hessian. Then the law of the average after k local steps is that of plain Langevin
dynamics whatever K is, so K steps save K-fold and there is no trade-off.
"""

from functools import cache

import _toy
import numpy as np
from _moments import FALDMoments
from _quadratics import FLAT, best_rounds

import fedsim as fs
from fedsim.reproduce import every, exact, exact_range, found, judge, ordered, plots, repeats, stream, system

STEP, LEVEL = 1e-7, 1e-3
ALPHAS = [0.0, 1.0, 10.0, 100.0, 1000.0]
SWEPT = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
ONE_HESSIAN = (
    "A13: all clients have the Hessian n Sigma^-1, so the law of the average after k local steps is that of plain "
    "Langevin dynamics for every K, and rounds fall as 1/K until one is enough."
)

paper = {"alpha": ALPHAS, "replicas": 300}
quick = {"alpha": ALPHAS, "local_steps": [10, 100, 1000], "seed": repeats(1)}
full = {"alpha": ALPHAS, "local_steps": [1, 10, 30, 100, 300, 1000, 3000, 10_000], "seed": repeats(5)}


def scenario(
    *, alpha: float = 1.0, local_steps: int = 10, most: int = 30_000, replicas: int = 300, seed: int = 0
) -> fs.Scenario:
    """`most` is the number of local steps after which a run gives up."""
    every_ = max(1, 10 // local_steps)
    return fs.Scenario(
        problem=_toy.problem(alpha),
        algorithm=fs.algorithms.FALD(step_size=STEP, local_steps=local_steps),
        budget=fs.Budget(rounds=max(10, most // local_steps), target=fs.Target("w2", below=LEVEL)),
        metrics=("w2",),
        evaluate_every=every_,
        record=fs.Record(every=10_000, rounds_every=every_),
        replicas=replicas,
        seed=stream("fa-ld/fig1a", alpha, local_steps, seed),
        **system(_toy.CLIENTS),
    )


@cache
def rounds(alpha: float) -> dict[int, float]:
    """K: rounds, by exact moments, from infinitely many replicas."""
    problem = _toy.problem(alpha)
    return {K: FALDMoments(problem, STEP, K).rounds_to(LEVEL) for K in SWEPT}


def shown(values: dict[int, float]) -> str:
    return ", ".join(f"K={K}: {'never' if np.isinf(n) else f'{n:.0f}'}" for K, n in values.items())


@judge("contribution-sgld-inefficient")
def inefficient():
    best = {a: min(n for K, n in rounds(a).items() if K > 1) for a in ALPHAS}
    return every({f"alpha = {a:g}": ordered({"K = 1": rounds(a)[1], "best K": best[a]}) for a in ALPHAS})


@judge("fig1a-small-k")
def small():
    pairs = [(less, more) for less in (1, 10) for more in (100, 1000)]
    held = all(rounds(a)[less] > rounds(a)[more] * (1 + 1e-9) for a in ALPHAS for less, more in pairs)
    return exact(held, "; ".join(f"alpha = {a:g}: {shown(rounds(a))}" for a in ALPHAS))


@judge("fig1a-large-k-bias")
def large():
    parts = {}
    for a in ALPHAS:
        laws = {K: FALDMoments(_toy.problem(a), STEP, K) for K in (3000, 10_000)}
        biases = {f"K = {K}": moments.w2(moments.stationary()) for K, moments in laws.items()}
        parts[f"bias, alpha = {a:g}"] = ordered(biases, increasing=True)
        needed = {f"K = {K}": rounds(a)[K] for K in laws}
        parts[f"rounds, alpha = {a:g}"] = ordered(needed, increasing=True)
    return every(parts).refuted(ONE_HESSIAN)


@judge("fig1a-optimal-k")
def optimum():
    parts = {}
    for a in ALPHAS:
        best = min(SWEPT, key=lambda K, a=a: (rounds(a)[K], K))
        inner = 1000 <= best < SWEPT[-1] and rounds(a)[SWEPT[-1]] > rounds(a)[best]
        parts[f"alpha = {a:g}"] = exact(inner, shown(rounds(a)), published="around 3000")
    return every(parts).refuted(ONE_HESSIAN)


@judge("fig1a-savings")
def savings():
    largest = max(rounds(a)[1] / min(rounds(a).values()) for a in ALPHAS)
    return exact_range(largest, 20, 45, published="30", name="rounds at K = 1 over the least ").refuted(ONE_HESSIAN)


@judge("gamma-values")
def gammas():
    quoted = dict(zip(ALPHAS, (1e8, 4e11, 4e12, 4e13, 4e14), strict=True))
    ours = {a: gamma(a) for a in ALPHAS}
    held = all(0.5 <= ours[a] / quoted[a] <= 2 for a in ALPHAS)
    text = ", ".join(f"{a:g}: {ours[a]:.2g}" for a in ALPHAS)
    found = exact(held, f"gamma by alpha: {text}", published="1e8, 4e11, 4e12, 4e13, 4e14")
    return found.refuted(
        f"A12: the printed values grow by 1000 from alpha = 1 to 1000, and gamma grows as the root of alpha, by "
        f"{ours[1000.0] / ours[1.0]:.3g}, whatever n_c is. They are gamma squared at n_c = 1000: "
        f"{', '.join(f'{ours[a] ** 2:.2g}' for a in ALPHAS)}."
    )


def gamma(alpha: float) -> float:
    """max_c |grad f^c(theta*)|, with f^c = l^c / p_c."""
    problem = _toy.problem(alpha)
    hessian, linear = problem.quadratic()
    own = np.einsum("cij,j->ci", hessian, problem.exact()[0]) - linear
    return float(np.linalg.norm(own, axis=1).max()) * _toy.CLIENTS


@judge("optimal-k-u-shape")
def u_shape():
    """Unequal Hessians, quadratic clients, the step tuned for every K."""
    parts = {}
    for kappa in (10.0, 100.0):
        values = best_rounds(kappa, 0.02)
        least = min(values, key=lambda K: (values[K], K))
        inner = values[1] > values[least] * (1 + 1e-9) and values[max(values)] > values[least] * (1 + 1e-9)
        parts[f"kappa = {kappa:g}"] = exact(inner and 1 < least < max(values), f"best K {least}; {shown(values)}")
    return every(parts).because(FLAT)


def figure(study):
    content = {}
    for alpha in dict.fromkeys(s["alpha"] for s, _ in study.runs):
        steps = dict.fromkeys(s["local_steps"] for s, _ in study.runs)
        ran = {K: np.mean([last(result) for result in found(study, alpha=alpha, local_steps=K)]) for K in steps}
        content[f"alpha = {alpha:g}"] = [plots.of(rounds(alpha)), plots.of(ran, "points")]
    note = "lines: exact moments; points: 300 replicas"
    return plots.panels({"to W2 <= 1e-3": content}, "local steps K", "communication rounds", "xy", note)


def last(result) -> float:
    """The round at which 300 replicas show the level; NaN if they do not."""
    metrics = result.metrics
    return float(metrics["round"].max()) if metrics["w2"].iloc[-1] <= LEVEL else np.nan

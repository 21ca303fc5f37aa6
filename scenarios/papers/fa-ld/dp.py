"""FA-LD, section 6: privacy against accuracy, by theorem 6.1 and exact moments, on the Gaussian toy.

The gradient of a row, Sigma^-1 (theta - x), changes by Sigma^-1 (x' - x) when the row is substituted, whatever theta
is. So the toy's own rows give the sensitivity that the theorem asks for, and nothing is clipped.
"""

import math
from functools import cache

import _toy
import numpy as np
from _moments import FALDMoments, Weights
from _quadratics import bound
from scipy.stats import norm

import fedsim as fs
from fedsim.privacy import fald
from fedsim.reproduce import (
    bounded,
    every,
    exact,
    exact_range,
    identical,
    judge,
    ordered,
    pick,
    plots,
    rate,
    stream,
    system,
)

K, CHOSEN, DELTA, N = 10, 10, 1e-5, _toy.CLIENTS
P = np.full(N, 1 / N)
RHOS, STEPS = [0.0, 0.7, 0.95], [3e-8, 1e-7]
SLACK = {"delta0": 1e-9, "delta1": 1e-7, "delta2": 1e-6}
quick = {"correlation": RHOS, "step_size": STEPS, "rounds": 300, "replicas": 300}
full = {"correlation": [0.0, 0.5, 0.7, 0.95], "step_size": [1e-8, 3e-8, 1e-7], "rounds": 3000, "replicas": 300}


def scenario(
    *, correlation: float = 0.0, step_size: float = 1e-7, rounds: int = 300, replicas: int = 300
) -> fs.Scenario:
    return fs.Scenario(
        problem=_toy.problem(0.0),
        algorithm=fs.algorithms.FALD(step_size=step_size, local_steps=K, correlation=correlation),
        participation=fs.participation.uniform(CHOSEN),
        budget=fs.Budget(rounds=rounds),
        metrics=("w2", fs.privacy.spent(delta=DELTA, sensitivity=sensitivity())),
        evaluate_every=10,
        record=fs.Record(every=rounds, rounds_every=10),
        replicas=replicas,
        seed=stream("fa-ld/dp", correlation, step_size),
        **system(N),
    )


@cache
def sensitivity() -> float:
    """The largest |Sigma^-1 (x - x')| of two rows: twice the largest distance from the centre bounds it."""
    rows = _toy.problem(0.0).x @ np.linalg.inv(_toy.SIGMA)
    return float(2 * np.linalg.norm(rows - rows.mean(axis=0), axis=1).max())


DEFAULTS = {
    "step_size": 1e-8, "local_steps": K, "rounds": 100, "drawn": CHOSEN, "correlation": 0.0, "temperature": 1.0,
    "fraction": 1.0, **SLACK,
}  # fmt: skip


def theorem(scheme: str = "II", **changes):
    return fald.guarantee(weights=P, sensitivity=sensitivity(), scheme=scheme, **(DEFAULTS | changes))


def printed(scheme: str = "II", **changes) -> tuple[float, float]:
    """Theorem 6.1 (scheme II) and the epsilon of theorem G.3 (scheme I), written out; delta of scheme II."""
    v = DEFAULTS | changes
    R, S = v["rounds"], v["drawn"]
    K, share = v["local_steps"], S / N if scheme == "II" else 1 - (1 - 1 / N) ** S
    private = v["temperature"] * (1 - v["correlation"] ** 2) / N
    e1 = 2 * sensitivity() * math.sqrt(v["step_size"] * math.log(1.25 / v["delta0"]) / private)
    visits = [float(K)]
    if v["delta1"]:
        visits.append(math.sqrt(2 * K * math.log(1 / v["delta1"])) + K * math.expm1(e1))
    eK = e1 * min(visits)
    tilde = math.log1p(share * math.expm1(eK))
    rounds = [float(R)]
    if v["delta2"]:
        grown = S * math.expm1(eK) / N if scheme == "II" else math.expm1(tilde)
        rounds.append(math.sqrt(2 * R * math.log(1 / v["delta2"])) + R * grown)
    delta = S / N * v["fraction"] * R * K * v["delta0"] + R * S / N * v["delta1"] + v["delta2"]
    return tilde * min(rounds), delta


CASES = [
    {"step_size": eta, "rounds": R, "drawn": S, "correlation": rho, "local_steps": local}
    for eta in (1e-13, 1e-11, 1e-9)
    for R in (1, 100, 3000)
    for S in (1, 10, 50)
    for rho in (0.0, 0.9)
    for local in (1, 10, 100)
]


@judge("theorem-6.1")
def formula():
    """The formula, and its guarantee against the exact privacy profile of Gaussian mechanisms, with all devices."""
    ours = [theorem(**case) for case in CASES]
    theirs = np.array([printed(**case) for case in CASES])
    left, right = [], []
    for case in (c | {"drawn": N} for c in CASES):
        found = theorem(**case)
        if not found.valid or found.delta >= 1:
            continue
        step = sensitivity() * math.sqrt(case["step_size"] * N / (2 * (1 - case["correlation"] ** 2)))
        mu = step * math.sqrt(case["rounds"] * case["local_steps"])
        profile = norm.cdf(mu / 2 - found.epsilon / mu)
        profile -= math.exp(min(700.0, found.epsilon + norm.logcdf(-mu / 2 - found.epsilon / mu)))
        left.append(max(0.0, profile))
        right.append(found.delta)
    return every(
        {
            "epsilon": identical([g.epsilon / e for g, e in zip(ours, theirs[:, 0], strict=True)], 1, tolerance=1e-12),
            "delta": identical([g.delta / e for g, e in zip(ours, theirs[:, 1], strict=True)], 1, tolerance=1e-12),
            "exact delta at this epsilon": bounded(left, right),
        }
    )


@judge("theorem-6.1-least")
def least():
    plain = {"delta1": 0.0, "delta2": 0.0}
    epsilons, deltas = [], []
    for case in CASES:
        found = theorem(**case, **plain)
        R, S, local = case["rounds"], case["drawn"], case["local_steps"]
        private = (1 - case["correlation"] ** 2) / N
        e1 = 2 * sensitivity() * math.sqrt(case["step_size"] * math.log(1.25 / SLACK["delta0"]) / private)
        epsilons.append(found.epsilon / (R * math.log1p(S / N * math.expm1(local * e1))))
        deltas.append(found.delta / (S / N * R * local * SLACK["delta0"]))
    parts = {"epsilon": epsilons, "delta": deltas}
    return every({name: identical(values, 1, tolerance=1e-12) for name, values in parts.items()})


@judge("theorem-6.1-order")
def order():
    """In the limit of small eta; K = 100 and 10,000 rounds, so that the roots are the smaller branch."""
    base = {"step_size": 1e-22, "local_steps": 100, "rounds": 10_000}
    grids = {
        "eta": ("step_size", np.geomspace(1e-24, 1e-20, 5), lambda x: x, 0.5),
        "T": ("rounds", np.array([1000, 3000, 10_000, 30_000]), lambda x: x, 0.5),
        "S/N": ("drawn", np.array([2, 5, 10, 20, 50]), lambda x: x / N, 1.0),
        "1/(1 - rho^2)": ("correlation", np.array([0.0, 0.5, 0.9, 0.99]), lambda x: 1 / (1 - x**2), 0.5),
    }
    return every(
        {
            name: rate(x(values), [theorem(**(base | {key: value})).epsilon for value in values.tolist()],
                       at_least=power - 0.05, at_most=power + 0.05)
            for name, (key, values, x, power) in grids.items()
        }
    )  # fmt: skip


GRIDS = {
    "step_size": np.geomspace(1e-13, 1e-9, 12).tolist(),
    "correlation": np.linspace(0, 0.95, 12).tolist(),
    "temperature": np.geomspace(10, 0.1, 12).tolist(),  # falling, so that eta / tau grows
    "drawn": [1, 2, 4, 6, 8, 10, 15, 20, 30, 40, 45, 50],
    "rounds": [1, 3, 10, 20, 30, 50, 100, 200, 300, 500, 1000, 3000],
    "fraction": np.linspace(0.05, 1, 12).tolist(),
}


@judge("epsilon-increases-eta", names=("step_size", "temperature", "correlation"), value="epsilon")
@judge("epsilon-increases-participation", names=("drawn",), value="epsilon")
@judge("epsilon-increases-iterations", names=("rounds",), value="epsilon")
@judge("delta-increases-participation", names=("drawn",), value="delta")
@judge("delta-increases-fraction", names=("fraction",), value="delta")
@judge("delta-increases-iterations", names=("rounds",), value="delta")
def increases(names, value):
    base = {"step_size": 1e-11}
    return every(
        {
            name: ordered([getattr(theorem(**(base | {name: x})), value) for x in GRIDS[name]], increasing=True)
            for name in names
        }
    )


@judge("bound-monotone-rho", name="rho", values=np.linspace(0, 1, 12).tolist(), increasing=False)
@judge("bound-monotone-t", name="k", values=[10 * i for i in range(1, 13)], increasing=False)
@judge("bound-monotone-s", name="S", values=[1, 2, 4, 6, 8, 10, 15, 20, 30, 40, 45, 50], increasing=False)
@judge("bound-monotone-tau", name="tau", values=np.geomspace(0.1, 10, 12).tolist(), increasing=True)
@judge("bound-monotone-n", name="n", values=[20, 25, 30, 40, 50, 60, 80, 100, 150, 200, 500, 1000], increasing=True)
def monotone(name, values, increasing):
    """The bound of theorem C.3, both schemes."""
    base = {"d": 2, "n": 50, "S": 10, "m": 1.0, "L": 10.0, "eta": 0.01, "local": 10, "k": 100, "rho": 0.5, "tau": 1.0,
            "D2": 1.0, "gamma": 1.0}  # fmt: skip
    return every(
        {
            f"scheme {scheme}": ordered([bound(scheme=scheme, **(base | {name: x})) for x in values],
                                        increasing=increasing)
            for scheme in ("I", "II")
        }
    )  # fmt: skip


def error(step_size: float, rounds: int, chosen: int = CHOSEN) -> float:
    """Exact W2 to the target after `rounds` rounds under scheme II."""
    weights = Weights.full(P) if chosen == N else Weights.uniform(P, chosen)
    moments = FALDMoments(_toy.problem(0.0), step_size, K, 0.0, weights)
    return moments.w2(moments.after(rounds))


@judge("optimal-eta")
def best_step():
    steps, parts = np.logspace(-9, -5.5, 36), {}
    for chosen in (CHOSEN, N):
        errors = [error(eta, 300, chosen) for eta in steps]
        best = int(np.argmin(errors))
        shown = f"W2 {errors[0]:.1e} at {steps[0]:.0e}, least {errors[best]:.1e} at {steps[best]:.1e}, {errors[-1]:.1e}"
        inner = 0 < best < len(steps) - 1 and max(errors[0], errors[-1]) > errors[best] * (1 + 1e-9)
        name = "all devices" if chosen == N else f"{chosen} of {N} devices, scheme II"
        parts[name] = exact(inner, f"{shown} at {steps[-1]:.0e}")
    return every(parts)


@judge("epsilon-arbitrarily-small")
def small():
    return exact_range(theorem(step_size=1e-28).epsilon, 0.0, 1e-6, name="at eta = 1e-28: ")


@judge("theorem-g.3-scheme-1")
def scheme_one():
    ratios = [theorem("I", **case).epsilon / printed("I", **case)[0] for case in CASES]
    return identical(ratios, 1, tolerance=1e-12)


def figure(study):
    rhos, steps = (list(dict.fromkeys(s[name] for s, _ in study.runs)) for name in ("correlation", "step_size"))
    content = {
        f"step {eta:g}": {f"rho = {rho:g}": spent(pick(study, correlation=rho, step_size=eta)) for rho in rhos}
        for eta in steps
    }
    return plots.panels(content, f"epsilon spent, at delta = {DELTA:g}", "Wasserstein-2 distance", "xy")


def spent(result) -> plots.Series:
    """W2 against epsilon, round by round."""
    return plots.Series(plots.curve(result, "epsilon").y, plots.curve(result, "w2").y)

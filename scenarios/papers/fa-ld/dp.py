"""FA-LD, section 6: privacy against accuracy, by theorem 6.1, exact moments and runs, on the Gaussian toy.

The gradient of a row, Sigma^-1 (theta - x), changes by Sigma^-1 (x' - x) when the row is substituted, whatever theta
is. So the toy's own rows give the sensitivity that the theorem asks for, and nothing is clipped.
"""

from functools import cache

import _toy
import numpy as np
from _moments import FALDMoments, Weights

import fedsim as fs
from fedsim.privacy import fald
from fedsim.reproduce import Claim, Finding, end, pick, plots, system

K, CHOSEN, DELTA = 10, 10, 1e-5
P = np.full(_toy.CLIENTS, 1 / _toy.CLIENTS)
RHOS, STEPS = [0.0, 0.7, 0.95], [3e-8, 1e-7]
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
        seed=1,
        **system(_toy.CLIENTS),
    )


@cache
def sensitivity() -> float:
    """The largest |Sigma^-1 (x - x')| of two rows: twice the largest distance from the centre bounds it."""
    rows = _toy.problem(0.0).x @ np.linalg.inv(_toy.SIGMA)
    return float(2 * np.linalg.norm(rows - rows.mean(axis=0), axis=1).max())


def theorem(*, step_size=1e-8, rounds=100, chosen=CHOSEN, correlation=0.0, temperature=1.0, fraction=1.0):
    return fald.guarantee(
        step_size=step_size, local_steps=K, rounds=rounds, weights=P, sensitivity=sensitivity(), drawn=chosen,
        correlation=correlation, temperature=temperature, fraction=fraction, delta0=1e-9, delta1=1e-7, delta2=1e-6,
    )  # fmt: skip


def error(step_size: float, rounds: int, chosen: int = CHOSEN, correlation: float = 0.0) -> float:
    """Exact W2 to the target after `rounds` rounds under scheme II."""
    weights = Weights.full(P) if chosen == len(P) else Weights.uniform(P, chosen)
    moments = FALDMoments(_toy.problem(0.0), step_size, K, correlation, weights)
    return moments.w2(moments.after(rounds))


def grows(study) -> Finding:
    parts, held = [], True
    for name, values in {
        "step_size": (1e-9, 1e-8, 3e-8), "correlation": (0.0, 0.7, 0.95), "chosen": (5, 20, 50),
        "rounds": (10, 100, 1000),
    }.items():  # fmt: skip
        found = [theorem(**{name: v}).epsilon for v in values]
        held = held and bool(np.all(np.diff(found) > 0))
        parts.append(f"{name} {values}: {', '.join(f'{e:.3g}' for e in found)}")
    hot, cold = theorem(temperature=2.0).epsilon, theorem(temperature=1.0).epsilon
    return Finding(held and hot < cold, f"epsilon at {'; '.join(parts)}; temperature 2 and 1: {hot:.3g}, {cold:.3g}")


def slack(study) -> Finding:
    parts, held = [], True
    for name, values in {"chosen": (5, 20, 50), "fraction": (0.1, 0.5, 1.0), "rounds": (10, 100, 1000)}.items():
        found = [theorem(**{name: v}).delta for v in values]
        held = held and bool(np.all(np.diff(found) > 0))
        parts.append(f"{name} {values}: {', '.join(f'{d:.2e}' for d in found)}")
    return Finding(held, f"delta at {'; '.join(parts)}")


def small(study) -> Finding:
    found = {eta: theorem(step_size=eta).epsilon for eta in (1e-8, 1e-10, 1e-12, 1e-14)}
    return Finding(
        found[1e-14] < 0.01 * found[1e-8], ", ".join(f"step {s:g}: epsilon {e:.2g}" for s, e in found.items())
    )


def best_step(study) -> Finding:
    steps = np.logspace(-9, -5.5, 15)
    errors = [error(eta, 300, len(P)) for eta in steps]
    best = int(np.argmin(errors))
    return Finding(
        0 < best < len(steps) - 1,
        f"exact W2 after 300 rounds, all devices: {errors[0]:.1e} at {steps[0]:.0e}, least {errors[best]:.1e} at "
        f"{steps[best]:.1e}, {errors[-1]:.1e} at {steps[-1]:.0e}",
    )


def trade(study) -> Finding:
    exact = [error(1e-7, 300, correlation=rho) for rho in RHOS]
    runs = [pick(study, correlation=rho, step_size=1e-7) for rho in RHOS]
    ran, spent = ([end(run, name, rows) for run in runs] for name, rows in (("w2", 10), ("epsilon", 1)))
    held = all(np.all(np.diff(w) < 0) for w in (exact, ran)) and bool(np.all(np.diff(spent) > 0))
    return Finding(
        bool(held),
        f"rho {RHOS}: exact W2 {', '.join(f'{w:.2e}' for w in exact)}; 300 replicas "
        f"{', '.join(f'{w:.2e}' for w in ran)}; "
        f"epsilon spent by the accountant at delta = {DELTA:g}: {', '.join(f'{e:.1f}' for e in spent)}",
    )


def more(study) -> Finding:
    sizes = (5, 10, 20, 50)
    errors = [error(1e-7, 300, S) for S in sizes]
    return Finding(bool(np.all(np.diff(errors) < 0)), f"S {sizes}: exact W2 {', '.join(f'{w:.2e}' for w in errors)}")


def none(study) -> Finding:
    return Finding(np.isinf(theorem(correlation=1.0).epsilon), f"rho = 1: epsilon {theorem(correlation=1.0).epsilon}")


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


claims = [
    Claim(
        "Epsilon grows with eta/(tau(1 - rho^2)), S/N and T",
        grows,
        published="epsilon_{K,T} is an increasing function of eta/(tau (1 - rho^2)), S/N, and T",
        why="theorem 6.1 as printed; sensitivity of the toy's own rows",
    ),
    Claim(
        "Delta grows with S/N, the batch fraction and T",
        slack,
        published="delta_{K,T} is an increasing function of S/N, gamma, and T",
        why="theorem 6.1; gamma is the batch fraction here (A11)",
    ),
    Claim(
        "Epsilon can be made arbitrarily small by a smaller step",
        small,
        published="we can make epsilon_{K,T} arbitrarily small by decreasing eta for any fixed T",
        why="theorem 6.1",
    ),
    Claim(
        "For a fixed T there is a best step size for accuracy",
        best_step,
        published="there is an optimal eta to minimize W2(mu_T, mu) for fixed T",
        why="exact moments in place of the paper's upper bound",
    ),
    Claim(
        "Under partial participation a larger rho is more accurate and less private",
        trade,
        published="the bound on W2 is a decreasing function of rho; epsilon an increasing one",
        why="exact moments, 300 replicas beside them, and the accountant over the same runs (A15)",
    ),
    Claim(
        "More devices are more accurate",
        more,
        published="the upper bound of W2(mu_T, mu) is a decreasing function of S",
        why="exact moments (A15)",
    ),
    Claim("With rho = 1 nothing is private", none, published="1 - rho^2 is in the denominator of epsilon_1", why="A17"),
]

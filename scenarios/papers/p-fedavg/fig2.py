"""P-FedAvg, figure 2: how often to aggregate (E), K = 20, Var(m) = 0.6, Var(eps) = 0.1."""

import _gaussian

import fedsim as fs
from fedsim.reproduce import Claim, Finding, pick

STEP, T, K = (20.0, 1000.0), 5000, 20
EVERY = [1, 5, 10, 50]
quick = {"local_steps": EVERY, "scheme": ["I", "II"], "replicas": 50}
full = {"local_steps": EVERY, "scheme": ["I", "II"], "replicas": 1000}


def scenario(*, local_steps: int = 5, scheme: str = "I", replicas: int = 50) -> fs.Scenario:
    step = fs.schedules.inverse_time(*STEP)
    return _gaussian.scenario(_gaussian.problem(), step, local_steps, T // local_steps, scheme, K, replicas)


def after(E: int, scheme: str, iterations: int = T) -> float:
    return _gaussian.squared(_gaussian.problem(), _gaussian.inverse(*STEP), E, iterations // E, scheme, K)[-1]


def shown(ends) -> str:
    return "; ".join(f"scheme {s}: " + ", ".join(f"E={E} {q:.3g}" for E, q in own.items()) for s, own in ends.items())


def larger(study) -> Finding:
    ends = {s: {E: after(E, s, T // 4) for E in (1, 5, 10)} for s in ("I", "II")}
    held = all(own[1] > own[5] > own[10] for own in ends.values())
    return Finding(held, f"exact E|theta - theta_PS|^2 after {T // 4} iterations, {shown(ends)}")


def too_large(study) -> Finding:
    ends = {s: {E: after(E, s) for E in EVERY} for s in ("I", "II")}
    sampled = {s: _gaussian.ran(pick(study, local_steps=50, scheme=s))[-1] for s in ("I", "II")}
    held = all(own[50] > 5 * max(own[1], own[5], own[10]) for own in ends.values())
    at_50 = ", ".join(f"{s} {q:.3g}" for s, q in sampled.items())
    return Finding(held, f"exact after {T} iterations, {shown(ends)}; 50 replicas at E=50: {at_50}")


def figure(study):
    problem, step = _gaussian.problem(), _gaussian.inverse(*STEP)

    def series(E: int, scheme: str):
        exact = _gaussian.squared(problem, step, E, T // E, scheme, K)
        return _gaussian.series(pick(study, local_steps=E, scheme=scheme), exact, E)

    return _gaussian.figure("E", EVERY, series)


claims = [
    Claim(
        "A slightly larger E is faster per iteration",
        larger,
        published="a slightly larger E leads to faster convergence",
        why="step 20/(t + 1000) (D9: not stated in the paper): drift pushes towards and later beyond theta_PS",
    ),
    Claim(
        "E = 50 is slower",
        too_large,
        published="an extremely large E (E=50) can also cause slower convergence",
        why="the mean overshoots theta_PS by an amount that grows with eta E (D10)",
    ),
]

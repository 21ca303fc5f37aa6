"""QLSD's logistic regressions: QLSD++ at 4, 8 and 16 bits against its uncompressed twin and rivals with local steps.

Judged by the 99 % region of highest posterior density: the relative error of its threshold of -log pi, and how many
uplink bits a method needs for an iteration, against LSD++.
"""

from functools import cache

import numpy as np

import fedsim as fs
from fedsim.reproduce import pick, stream, system

BITS = (4, 8, 16)
COMPRESSED = [f"QLSD++ {b}" for b in BITS]
LOCAL_STEPS = 10  # of the rivals, between two uploads


def algorithm(name: str, problem, step_size: float, start):
    """`QLSD++ 4` has 2^4 levels, Elias-coded; the rivals' steps are scaled so that one of theirs moves as far."""
    kind, _, bits = name.partition(" ")
    if kind in ("QLSD++", "LSD++"):
        codec = fs.codecs.Elias(2 ** int(bits), form="dense") if bits else fs.codecs.Identity("float32")
        return fs.algorithms.QLSDPlusPlus(step_size=step_size, refresh_every=100, batch_size=0.2, codec=codec)
    if kind == "DG-SGLD":
        own = step_size * problem.clients
        return fs.algorithms.DGSGLD(step_size=own, coupling=5 * own, local_steps=LOCAL_STEPS, batch_size=0.2)
    if kind == "FSGLD":
        means, precisions = surrogates(problem, start)
        return fs.algorithms.FSGLD(
            2 * step_size / LOCAL_STEPS, local_steps=LOCAL_STEPS, means=means, precisions=precisions, batch_size=0.2
        )
    if kind == "MALA":
        return fs.algorithms.MALA(step_size=step_size)
    raise fs.errors.InvalidInput(f"method={name!r}: choose QLSD++, LSD++, DG-SGLD, FSGLD or MALA")


def scenario(problem, name: str, step_size: float, iterations: int, initial) -> fs.Scenario:
    policy = fs.participation.with_replacement(1) if name == "FSGLD" else fs.participation.full()
    return fs.Scenario(
        problem=problem,
        algorithm=algorithm(name, problem, step_size, initial),
        participation=policy,
        budget=fs.Budget(rounds=iterations),
        record=fs.Record(warmup=iterations // 3, every=max(1, iterations // 400), rounds_every=iterations),
        initial=initial,
        metrics=(),
        dtype="float32",
        seed=stream("qlsd/logistic", name),
        **system(problem.clients),
    )


@cache
def threshold(study, problem, name: str, alpha: float = 0.01) -> float:
    """The (1 - alpha) quantile of -log pi over a run's samples; a problem's mean loss is -log pi over its rows."""
    samples = pick(study, method=name).samples.reshape(-1, problem.dim)
    return float(np.quantile(problem.loss(samples) * problem.sizes.sum(), 1 - alpha))


def errors(study, problem, names: list[str], reference: str) -> dict[str, float]:
    """{method: relative error of the threshold}."""
    true = threshold(study, problem, reference)
    return {n: abs(threshold(study, problem, n) - true) / true for n in names}


def bits(study, name: str) -> float:
    """Uplink bits of a round."""
    rounds = pick(study, method=name).rounds
    return float(rounds["uplink_bits"].sum() / rounds["round"].max())


def steps(name: str) -> int:
    """Iterations of the chain in a round."""
    return LOCAL_STEPS if name in ("DG-SGLD", "FSGLD") else 1


def efficiencies(study, names: list[str]) -> dict[str, float]:
    """{method: LSD++'s uplink bits for an iteration over the method's}."""
    return {n: bits(study, "LSD++") / (bits(study, n) / steps(n)) for n in names}


def shown(values: dict[str, float], form: str = ".1e") -> str:
    return ", ".join(f"{name} {value:{form}}" for name, value in values.items())


def surrogates(problem, theta) -> tuple[np.ndarray, np.ndarray]:
    """Diagonal Gaussians of a softmax regression's clients: curvature at the common mode, centre one Newton step off.

    Laplace's own, at every client's optimum, take d gradients a Newton step, too many for hundreds of dimensions.
    """
    n = problem.sizes.sum()
    means, precisions = [], []
    for c, own in enumerate(problem.sizes):
        x = problem.x[problem.offsets[c] : problem.offsets[c + 1]] * problem.scale
        x = np.c_[x, np.ones(len(x))]
        score = x @ theta.reshape(-1, problem.classes)
        p = np.exp(score - score.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        precisions.append((x**2).T @ (p * (1 - p)) + problem.prior_precision * own / n)
        means.append(theta - problem.gradient(theta, c) / precisions[-1].ravel())
    return np.array(means), np.array(precisions).reshape(len(means), -1)


def optimum(problem, step_size: float, steps: int = 300) -> np.ndarray:
    """Return a point near the mode by gradient descent on the potential of all data."""
    theta = np.zeros(problem.dim)
    for _ in range(steps):
        theta = theta - step_size * sum(problem.gradient(theta, c) for c in range(problem.clients))
    return theta

"""QLSD's logistic regressions: QLSD++ at 4, 8 and 16 bits against its uncompressed twin and rivals with local steps.

Judged by the 99 % region of highest posterior density: the relative error of its threshold of -log pi, and how many
uplink bits a method needs for an iteration, against LSD++.
"""

from functools import cache

import numpy as np

import fedsim as fs
from fedsim.reproduce import Outcome, found, stream, system, within_range

BITS = (4, 8, 16)
COMPRESSED = [f"QLSD++ {b}" for b in BITS]
LOCAL_STEPS = 10  # of the rivals, between two uploads; the paper does not give it


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


def scenario(
    figure: str, problem, name: str, step_size: float, iterations: int, burn_in: int, initial, replicas: int, seed: int
) -> fs.Scenario:  # fmt: skip
    """The method "reference" is LSD++ with its own random numbers and four times as many iterations."""
    own = "LSD++" if name == "reference" else name
    iterations = iterations * 4 if name == "reference" else iterations
    policy = fs.participation.with_replacement(1) if own == "FSGLD" else fs.participation.full()
    return fs.Scenario(
        problem=problem,
        algorithm=algorithm(own, problem, step_size, initial),
        participation=policy,
        budget=fs.Budget(rounds=iterations),
        record=fs.Record(warmup=burn_in, every=max(1, (iterations - burn_in) // 200), rounds_every=iterations),
        initial=initial,
        metrics=(),
        dtype="float32",
        replicas=replicas,
        seed=stream(f"qlsd/{figure}", name, seed),
        **system(problem.clients),
    )


def potential(problem, theta: np.ndarray) -> np.ndarray:
    """-log pi; a problem's mean loss is -log pi over its rows."""
    return np.asarray(problem.loss(theta) * problem.sizes.sum())


@cache
def thresholds(study, problem, name: str, alpha: float = 0.01) -> np.ndarray:
    """The (1 - alpha) quantile of -log pi over the samples, of every chain."""
    chains = np.concatenate([run.samples for run in found(study, method=name)], axis=1)
    return np.array([np.quantile(potential(problem, chains[:, r]), 1 - alpha) for r in range(chains.shape[1])])


def errors(study, problem, name: str) -> np.ndarray:
    """Relative error of the threshold of every chain, against the mean of the reference's chains."""
    true = thresholds(study, problem, "reference").mean()
    return np.abs(thresholds(study, problem, name) - true) / true


def within_factor(values: np.ndarray, published: float, factor: float = 2.0) -> Outcome:
    return within_range(values, published / factor, published * factor, published=f"{published:.1e}")


def bits(study, name: str) -> float:
    """Uplink bits of an iteration of one chain; a round of the rivals has several."""
    run = found(study, method=name)[0]
    rounds = float(run.rounds["uplink_bits"].sum() / len(run.replicas) / run.rounds["round"].max())
    return rounds / (LOCAL_STEPS if name in ("DG-SGLD", "FSGLD") else 1)


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

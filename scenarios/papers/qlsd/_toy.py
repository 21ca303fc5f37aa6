"""QLSD's Gaussian toy: 20 unbalanced clients in 50 dimensions, and what each algorithm sends."""

import numpy as np
from scipy.stats import t

import fedsim as fs
from fedsim import rng
from fedsim.reproduce import Outcome, plots, stream, system

CLIENTS, DIM = 20, 50
STEP = 4.9e-4
ALGORITHMS = ["LSD*", "QLSD* 4", "QLSD* 8", "QLSD* 16", "QLSD# 4", "QLSD# 8", "QLSD# 16"]  # p bits: 2^p levels


def problem(seed: int = 3, spread: float = 3.0) -> fs.problems.GaussianMean:
    """N_i uniform on 10 ... 200, centres `spread` x N(0, I): neither is given in the paper (C13)."""
    sizes = 10 + (rng.uniform(rng.keys(seed, rng.Stream.DATA), CLIENTS)[0] * 191).astype(int)
    centres = spread * rng.normal(rng.keys(seed, rng.Stream.DATA, client=np.arange(CLIENTS)), DIM, 1)
    noise = rng.normal(rng.keys(seed, rng.Stream.DATA, round=1, client=np.arange(sizes.sum())), DIM, 0)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return fs.problems.GaussianMean.from_arrays(noise + np.repeat(centres, sizes, axis=0), offsets, np.eye(DIM))


def algorithm(name: str, step_size: float):
    """`QLSD* 4` is QLSD* with 2^4 levels, Elias-coded so that the bits are those of a real message."""
    kind, _, bits = name.partition(" ")
    codec = fs.codecs.Elias(2 ** int(bits), form="dense") if bits else fs.codecs.Identity("float32")
    make = fs.algorithms.QLSDStar if kind.endswith("*") else fs.algorithms.QLSD
    return make(step_size=step_size, batch_size=0.1, codec=codec)


def scenario(
    figure: str, name: str, step_size: float, iterations: int, sampled: int, replicas: int, seed: int
) -> fs.Scenario:
    """The last `sampled` iterations give up to 500 samples."""
    return fs.Scenario(
        problem=problem(),
        algorithm=algorithm(name, step_size),
        budget=fs.Budget(rounds=iterations),
        record=fs.Record(warmup=iterations - sampled, every=max(1, sampled // 500), rounds_every=iterations),
        metrics=(),
        replicas=replicas,
        seed=stream(f"qlsd/{figure}", name, step_size, seed),
        **system(CLIENTS, phones=False),
    )


def truth() -> float:
    """E |theta| under the posterior N(mean, I/n), by 4000 antithetic draws."""
    mean, covariance = problem().exact()
    draws = rng.normal(rng.keys(7, rng.Stream.DATA, client=np.arange(2000)), DIM, 0) * np.sqrt(covariance[0, 0])
    return float(np.mean([np.linalg.norm(mean + draws, axis=1), np.linalg.norm(mean - draws, axis=1)]))


def errors(results, budget: float | None = None) -> np.ndarray:
    """Squared error of the average of |theta| after this many bits of all clients, of every run; None: at the end."""
    found = []
    for result in results:
        norms = np.linalg.norm(result.samples, axis=2)  # (samples, replicas)
        if budget is not None:
            norms = norms[: max(1, int(budget / bits_per_sample(result)))]
        found.append((norms.mean(axis=0) - truth()) ** 2)
    return np.concatenate(found)


def bits_per_sample(result) -> float:
    """Uplink bits of all clients between two samples."""
    return bits(result) * CLIENTS * int(result.sample_rounds[-1] - result.sample_rounds[-2])


def ratio(own: np.ndarray, other: np.ndarray, low: float, high: float) -> Outcome:
    """Judge a ratio of two means over independent runs by the interval of its logarithm."""
    error = np.sqrt(sum(x.var(ddof=1) / len(x) / x.mean() ** 2 for x in (own, other)))
    half = float(t.ppf(0.975, min(len(own), len(other)) - 1)) * error
    value = own.mean() / other.mean()
    below, above = float(value * np.exp(-half)), float(value * np.exp(half))
    verdict = (
        "held" if low <= below and above <= high else "not held" if above < low or below > high else "inconclusive"
    )
    if verdict == "inconclusive" and above - below >= high - low:
        verdict = "not run"  # the interval is wider than what the sentence allows: more runs
    count = min(len(own), len(other))
    return Outcome(
        verdict, f"ratio {value:.3g} (95 % {below:.3g} to {above:.3g}, {count} runs)", "", (below, above), count,
        f"about {int(count * (np.log(above / below) / np.log(high / low)) ** 2) + 1:,} runs",
    )  # fmt: skip


def bits(result) -> float:
    """Uplink bits of one client in one iteration."""
    return float(result.rounds["uplink_bits"].sum() / len(result.replicas) / result.rounds["round"].max() / CLIENTS)


def bound(levels: int) -> float:
    """The authors' length of a message in this regime, with natural logarithms as in their code (EXPERIMENTS)."""
    dense = np.log(1 + (levels**2 + min(DIM, levels * np.sqrt(DIM))) / DIM)
    return (0.5 * (dense + 1) + 2) * DIM + 32


def mse(result) -> plots.Series:
    """Mean squared error of the running average of |theta|, against the bits that all clients have sent for it."""
    norms = np.linalg.norm(result.samples, axis=2)  # (samples, replicas)
    count = np.arange(1, len(norms) + 1)
    error = (norms.cumsum(axis=0) / count[:, None] - truth()) ** 2
    return plots.Series(bits_per_sample(result) * count, error.mean(axis=1))

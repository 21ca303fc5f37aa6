"""QLSD's Gaussian toy: 20 unbalanced clients in 50 dimensions, and what each algorithm sends."""

import numpy as np

import fedsim as fs
from fedsim import rng
from fedsim.reproduce import plots, stream, system

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


def scenario(name: str, step_size: float, iterations: int, sampled: int, replicas: int) -> fs.Scenario:
    """The last `sampled` iterations give up to 500 samples."""
    return fs.Scenario(
        problem=problem(),
        algorithm=algorithm(name, step_size),
        budget=fs.Budget(rounds=iterations),
        record=fs.Record(warmup=iterations - sampled, every=max(1, sampled // 500), rounds_every=iterations),
        metrics=(),
        replicas=replicas,
        seed=stream("qlsd/toy", name, step_size),
        **system(CLIENTS, phones=False),
    )


def truth() -> float:
    """E |theta| under the posterior N(mean, I/n), by 4000 antithetic draws."""
    mean, covariance = problem().exact()
    draws = rng.normal(rng.keys(7, rng.Stream.DATA, client=np.arange(2000)), DIM, 0) * np.sqrt(covariance[0, 0])
    return float(np.mean([np.linalg.norm(mean + draws, axis=1), np.linalg.norm(mean - draws, axis=1)]))


def error(result) -> np.ndarray:
    """(average of |theta| over a run's samples - truth)^2 of every run, (replicas,)."""
    return (np.linalg.norm(result.samples, axis=2).mean(axis=0) - truth()) ** 2


def variance_ratio(result) -> float:
    """Variance about the exact mean over the posterior's, pooled over coordinates, runs and sampled iterations."""
    mean, covariance = problem().exact()
    return float(((result.samples - mean) ** 2).mean() / covariance[0, 0])


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
    every = int(result.sample_rounds[-1] - result.sample_rounds[-2])
    return plots.Series(bits(result) * CLIENTS * every * count, error.mean(axis=1))

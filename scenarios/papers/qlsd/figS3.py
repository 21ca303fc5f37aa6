"""QLSD, figure S3: what the memory of QLSD++ does to the variance it samples, on SYNTHETIC(1, 1) in the plane.

The reference is the posterior's variance by quadrature on a grid, which in two dimensions needs no MALA.
"""

from functools import cache

import numpy as np

import fedsim as fs
from fedsim.reproduce import Claim, Finding, bootstrap, pick, plots, system

CLIENTS, ROWS, LEVELS, STEP = 50, 50, [2, 4], 1e-4
MEMORY = ["none", "memory"]
quick = {"levels": LEVELS, "memory": MEMORY, "iterations": 20_000, "replicas": 8}
full = {"levels": LEVELS, "memory": MEMORY, "iterations": 100_000, "replicas": 20}


@cache
def problem() -> fs.problems.LogisticRegression:
    """At most 50 rows a client, as in the authors' code."""
    d = fs.data.synthetic(1.0, 1.0, clients=CLIENTS, features=2, classes=2, seed=1)
    parts = fs.data.natural(d.ids)
    return fs.problems.LogisticRegression([(d.x[own[:ROWS]], d.y[own[:ROWS]]) for own in parts], prior_precision=1.0)


def scenario(*, levels: int = 2, memory: str = "memory", iterations: int = 20_000, replicas: int = 8) -> fs.Scenario:
    return fs.Scenario(
        problem=problem(),
        algorithm=fs.algorithms.QLSDPlusPlus(
            step_size=STEP, refresh_every=100, batch_size=0.1, codec=fs.codecs.QSGD(levels),
            memory_rate=None if memory == "memory" else 0.0,
        ),
        budget=fs.Budget(rounds=iterations),
        record=fs.Record(warmup=iterations // 10, every=10, rounds_every=iterations),
        initial=posterior()[0],
        metrics=(),
        replicas=replicas,
        seed=1,
        **system(CLIENTS, phones=False),
    )  # fmt: skip


@cache
def posterior() -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of both coordinates, from 61 x 61 points that close in on where the mass is."""
    centre, half = np.zeros(2), np.full(2, 4.0)
    for _ in range(5):
        axes = [np.linspace(c - h, c + h, 61) for c, h in zip(centre, half, strict=True)]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        rows = problem().sizes.sum()  # the mean loss is -log posterior over its rows
        height = rows * np.concatenate([problem().loss(part) for part in np.array_split(points, 40)])
        mass = np.exp(height.min() - height)
        mass /= mass.sum()
        centre = mass @ points
        variance = mass @ (points - centre) ** 2
        half = np.maximum(8 * np.sqrt(variance), half / 20)
    return centre, variance


def errors(study, levels: int, memory: str) -> np.ndarray:
    """|variance of a run - the posterior's| over the latter, of every run."""
    samples = pick(study, levels=levels, memory=memory).samples
    return np.linalg.norm(samples.var(axis=0) - posterior()[1], axis=1) / np.linalg.norm(posterior()[1])


def compared(study, levels: int) -> Finding:
    without, own = errors(study, levels, "none"), errors(study, levels, "memory")
    low, high = bootstrap(without - own)
    return Finding(
        low > 0,
        f"relative error of the variance, s = {levels}: {without.mean():.2f} without memory, {own.mean():.2f} with; "
        f"difference 95 % {low:.2f} to {high:.2f}",
        undecided=low <= 0 <= high,
    )


def coarse(study) -> Finding:
    return compared(study, 2)


def finer(study) -> Finding:
    return compared(study, 4)


def omega(study) -> Finding:
    gains = {s: errors(study, s, "none").mean() - errors(study, s, "memory").mean() for s in LEVELS}
    by_levels = ", ".join(f"s = {s} (omega = {fs.codecs.QSGD(s).omega(2):.2f}): {g:.3f}" for s, g in gains.items())
    return Finding(gains[2] > gains[4], f"what memory takes off the relative error: {by_levels}")


def figure(study):
    content = {
        f"s = {levels}": {
            {"none": "without memory"}.get(memory, "with memory"): running(pick(study, levels=levels, memory=memory))
            for memory in MEMORY
        }
        for levels in LEVELS
    }
    return plots.panels(content, "iterations", "error of the variance over the variance", "xy")


def running(result) -> plots.Series:
    """The relative error of the variance of the samples so far, averaged over runs, at forty iterations."""
    at = np.unique(np.geomspace(min(20, len(result.samples)), len(result.samples), 40).astype(int))
    so_far = np.array([np.linalg.norm(result.samples[:n].var(axis=0) - posterior()[1], axis=1).mean() for n in at])
    return plots.Series(result.sample_rounds[at - 1], so_far / np.linalg.norm(posterior()[1]))


claims = [
    Claim(
        "With s = 2 memory lowers the error of the variance",
        coarse,
        published="the memory mechanism reduces the impact of the compression on the asymptotic bias",
        why="reference by quadrature; alpha = 1/(1 + omega) (C9), memories start at 0 (C4)",
    ),
    Claim(
        "With s = 4 as well",
        finer,
        published="s in {2, 4}",
        why="reference by quadrature; alpha = 1/(1 + omega) (C9), memories start at 0 (C4)",
    ),
    Claim(
        "It matters more where omega is large",
        omega,
        published="when omega is large",
        why="omega = min(d/s^2, sqrt(d)/s) (C9)",
    ),
]

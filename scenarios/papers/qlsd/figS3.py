"""QLSD, figure S3: what the memory of QLSD++ does to the variance it samples, on SYNTHETIC(1, 1) in the plane.

The step is the paper's, there is no burn-in, and chains start at 0 as in the authors' code. The reference is the
posterior's variance by quadrature on a grid, which in two dimensions needs no MALA.
"""

from functools import cache

import numpy as np

import fedsim as fs
from fedsim.reproduce import found, judge, pick, plots, repeats, stream, superiority, system

CLIENTS, ROWS, LEVELS = 50, 50, [2, 4]
MEMORY = ["none", "memory"]
paper = {"levels": LEVELS, "memory": MEMORY, "iterations": 100_000, "step_size": 1e-5, "burn_in": 0}
quick = {"levels": LEVELS, "memory": MEMORY, "iterations": 2000, "replicas": 8, "seed": repeats(1)}
full = {"levels": LEVELS, "memory": MEMORY, "iterations": 100_000, "replicas": 20, "seed": repeats(1)}


@cache
def problem() -> fs.problems.LogisticRegression:
    """At most 50 rows a client, as in the authors' code."""
    d = fs.data.synthetic(1.0, 1.0, clients=CLIENTS, features=2, classes=2, seed=1)
    parts = fs.data.natural(d.ids)
    return fs.problems.LogisticRegression([(d.x[own[:ROWS]], d.y[own[:ROWS]]) for own in parts], prior_precision=1.0)


def scenario(
    *, levels: int = 2, memory: str = "memory", iterations: int = 2000, step_size: float = 1e-5, burn_in: int = 0,
    replicas: int = 8, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return fs.Scenario(
        problem=problem(),
        algorithm=fs.algorithms.QLSDPlusPlus(
            step_size=step_size, refresh_every=100, batch_size=0.1, codec=fs.codecs.QSGD(levels),
            memory_rate=None if memory == "memory" else 0.0,
        ),
        budget=fs.Budget(rounds=iterations),
        record=fs.Record(warmup=burn_in, every=10, rounds_every=iterations),
        initial=np.zeros(2),
        metrics=(),
        replicas=replicas,
        seed=stream("qlsd/figS3", levels, memory, seed),
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
    """|variance of a run - the posterior's| of every run, relative to the latter."""
    runs = found(study, levels=levels, memory=memory)
    samples = np.concatenate([run.samples for run in runs], axis=1)
    return np.linalg.norm(samples.var(axis=0) - posterior()[1], axis=1) / np.linalg.norm(posterior()[1])


@judge("fig-s3-memory-2", levels=2)
@judge("fig-s3-memory-4", levels=4)
def reduces(study, levels):
    return superiority(errors(study, levels, "memory"), errors(study, levels, "none"), higher=False)


@judge("fig-s3-large-omega")
def large_omega(study):
    gains = {s: errors(study, s, "none") - errors(study, s, "memory") for s in LEVELS}
    return superiority(gains[2], gains[4])


def figure(study):
    content = {
        f"s = {levels}": {
            {"none": "without memory"}.get(memory, "with memory"): running(
                pick(study, levels=levels, memory=memory, seed=0)
            )
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

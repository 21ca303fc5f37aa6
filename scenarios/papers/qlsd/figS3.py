"""QLSD, figure S3: what the memory of QLSD++ does to the variance it samples, on SYNTHETIC(1, 1) in the plane.

The reference is the posterior's variance by quadrature on a grid, which in two dimensions needs no MALA.
"""

from functools import cache

import numpy as np

import fedsim as fs
from fedsim.reproduce import pick, plots, stream, system

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
        seed=stream("qlsd/figS3", levels, memory),
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

"""Four workloads, their data and the NumPy client: what every peer's script is given, whatever environment it runs in.

Standard library and NumPy alone. Data: seed 20240601, client i owns consecutive rows.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Workload:
    kind: str  # softmax, linear
    clients: int
    samples: int  # of a client
    cohort: int  # clients a round
    steps: int
    batch: int
    rounds: int
    features: int
    classes: int
    lr: float = 0.1

    def rows(self, client: int) -> slice:
        return slice(client * self.samples, (client + 1) * self.samples)

    def start(self) -> Arrays:
        """Zero weights (features, classes) and, for softmax, a zero bias."""
        weights = [np.zeros((self.features, self.classes), np.float32)]
        return [*weights, np.zeros(self.classes, np.float32)] if self.kind == "softmax" else weights


WORKLOADS = {
    "W1": Workload("softmax", 10, 6000, 10, 10, 200, 30, 784, 10),
    "W2": Workload("softmax", 1000, 60, 100, 5, 20, 30, 784, 10),
    "W3": Workload("linear", 1000, 100, 1000, 1, 10, 20, 50, 1),
    "W4": Workload("linear", 10_000, 100, 100, 1, 10, 20, 50, 1),
}


def make_data(folder: Path) -> None:
    """Write the data once; every script reads the same files."""
    if (folder / "linear_y.npy").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20240601)
    x = rng.standard_normal((60_000, 784), dtype=np.float32)
    np.save(folder / "softmax_x.npy", x)
    np.save(folder / "softmax_y.npy", (x @ rng.standard_normal((784, 10), dtype=np.float32)).argmax(1).astype(np.int64))
    x = rng.standard_normal((1_000_000, 50), dtype=np.float32)
    y = x @ rng.standard_normal(50, dtype=np.float32) + 0.1 * rng.standard_normal(len(x), dtype=np.float32)
    np.save(folder / "linear_x.npy", x)
    np.save(folder / "linear_y.npy", y.astype(np.float32))


def load(folder: Path, w: Workload, mapped: bool = False) -> tuple[np.ndarray, np.ndarray]:
    mode: Any = "r" if mapped else None
    x, y = (np.load(folder / f"{w.kind}_{part}.npy", mmap_mode=mode)[: w.clients * w.samples] for part in "xy")
    return x, y


def batches(rng: np.random.Generator, w: Workload, fresh: bool = False) -> Iterator[np.ndarray]:
    """Shuffle, walk through in batches, shuffle again when exhausted; or, as fedsim does, a fresh subset every step."""
    if fresh:
        yield from (rng.permutation(w.samples)[: w.batch] for _ in range(w.steps))
        return
    order, at = rng.permutation(w.samples), 0
    for _ in range(w.steps):
        if at + w.batch > w.samples:
            order, at = rng.permutation(w.samples), 0
        yield order[at : at + w.batch]
        at += w.batch


def local_sgd(
    w: Workload, start: Arrays, x: np.ndarray, y: np.ndarray, rng: np.random.Generator, fresh: bool = False
) -> Arrays:
    """One client's local steps in NumPy: the mean loss's gradient."""
    rate, (weights, *bias) = np.float32(w.lr / w.batch), [p.copy() for p in start]
    for chosen in batches(rng, w, fresh):
        rows = x[chosen]
        if w.kind == "softmax":
            z = rows @ weights + bias[0]
            z = np.exp(z - z.max(1, keepdims=True))
            z /= z.sum(1, keepdims=True)
            z[np.arange(w.batch), y[chosen]] -= 1
            z *= rate
            weights -= rows.T @ z
            bias[0] -= z.sum(0)
        else:
            residual = rows @ weights[:, 0] - y[chosen]
            weights[:, 0] -= 2 * rate * (residual @ rows)
    return [weights, *bias]


def final_loss(w: Workload, parameters: Arrays, x: np.ndarray, y: np.ndarray) -> float:
    """Of the last model on all data: it shows that the same work was done."""
    if w.kind == "linear":
        return float(((x @ parameters[0][:, 0] - y) ** 2).mean())
    z = x @ parameters[0] + parameters[1]
    z -= z.max(1, keepdims=True)
    return float((np.log(np.exp(z).sum(1)) - z[np.arange(len(y)), y]).mean())


class Record:
    """When rounds ended by the wall clock, and what came out, as JSON for `measure.py`."""

    def __init__(self, **defaults: Any) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--workload", choices=WORKLOADS, required=True)
        parser.add_argument("--data", type=Path, required=True)
        parser.add_argument("--out", type=Path, required=True)
        for name, value in defaults.items():
            parser.add_argument(f"--{name}", type=type(value), default=value)
        self.given = parser.parse_args()
        self.workload = WORKLOADS[self.given.workload]
        self.ends: list[float] = []
        self.rounds: list[int] = []  # how many were done then
        self.began = 0.0

    def begin(self, *_: Any) -> None:
        self.began = self.began or time.time()

    def end(self, *_: Any) -> None:
        """A round is done."""
        self.ended(len(self.ends) + 1)

    def ended(self, rounds: int) -> None:
        """So many rounds are done, one or several since the last call."""
        self.ends.append(time.time())
        self.rounds.append(rounds)

    def load(self, mapped: bool = False) -> tuple[np.ndarray, np.ndarray]:
        return load(self.given.data, self.workload, mapped)

    def write(self, parameters: Arrays, updates: int) -> None:
        loss = final_loss(self.workload, parameters, *self.load(mapped=True))
        report = {"began": self.began, "ends": self.ends, "rounds": self.rounds, "loss": loss, "updates": updates}
        self.given.out.write_text(json.dumps(report))

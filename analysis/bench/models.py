"""How fast models learn, as ratios taken in one run, and what a Ray host holds.

    python analysis/bench/models.py [--ray]

Local steps are those of FedAvg as runs take them: rows drawn, gathered, gradient, update. Bare is what no program could
leave out: the rows' gather, from bytes to floats, and the BLAS products. All on one thread, timed in turn, best of
several.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import fedsim as fs
from fedsim.algorithms import FedAvg
from fedsim.kernels import cpu  # loads every BLAS there is, so that all of them can be held to one thread
from fedsim.problems import weights_of
from fedsim.rng import Stream, integers, keys
from fedsim.runtime.jobs import Batch, Setting
from fedsim.runtime.ray import Ray
from fedsim.runtime.worker import Worker

FEATURES, CLASSES, WIDTHS = 784, 10, (64, 32)
ROUNDS, STEPS = 8, 5


def best(*functions: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """The least seconds of each, called in turn so that all see the same machine."""
    least = [np.inf] * len(functions)
    for f in functions:
        f()
    for _ in range(rounds):
        for i, f in enumerate(functions):
            began = time.perf_counter()
            f()
            least[i] = min(least[i], time.perf_counter() - began)
    return least


def images(rows: int) -> fs.data.Dataset:
    """Random bytes in the shape of Fashion-MNIST: speed does not depend on what is in the pictures."""
    x = integers(keys(1, Stream.DATA, client=np.arange(rows)), FEATURES, 256).astype(np.uint8)
    return fs.data.from_arrays(x, np.arange(rows) % CLASSES, name="random bytes")


def local_steps(problem: Any, batch_size: int) -> Callable[[], object]:
    """STEPS local steps of every client, as a run has them computed."""
    setting = Setting(problem, weights_of(problem), 1, np.dtype("float32"), cpu)
    worker, clients = Worker(FedAvg(1e-3, STEPS, batch_size), setting), np.arange(problem.clients)
    message = {"theta": np.zeros((1, problem.dim), np.float32)}
    batch = Batch(0, 0 * clients, clients, 0 * clients, message, 0 * clients)
    return lambda: worker.compute(batch)


def gradients(problem: Any, batches: list[np.ndarray]) -> Callable[[], object]:
    """The gradients of one step alone, some jobs at a time as a run has them."""
    theta = np.zeros((4, problem.dim), np.float32)
    rows = [b - problem.offsets[c] for c, b in enumerate(batches)]
    start = len(batches[0]) * np.arange(5)
    groups = [np.arange(c, min(c + 4, problem.clients)) for c in range(0, problem.clients, 4)]
    calls = [(theta[: len(g)], g, (np.concatenate([rows[c] for c in g]), start[: len(g) + 1])) for g in groups]
    return lambda: [problem.gradients(*call) for call in calls]


def chosen(problem: Any, batch_size: int) -> list[np.ndarray]:
    """A batch of rows of every client."""
    start = np.arange(problem.clients + 1) * batch_size
    rows = cpu.choose_rows(keys(1, Stream.BATCH, client=np.arange(problem.clients)), problem.sizes, start, 0)
    return [rows[start[c] : start[c + 1]] + problem.offsets[c] for c in range(problem.clients)]


def softmax() -> None:
    d = images(20_000)
    problem = fs.problems.SoftmaxRegression.of(d, fs.data.iid(d.y, 10))
    batches, weights = chosen(problem, 200), np.zeros((FEATURES, CLASSES), np.float32)
    scale = np.float32(1 / 255)

    def bare() -> None:
        for rows in batches:
            x = problem.x[rows].astype(np.float32)
            x *= scale
            x.T @ (x @ weights)

    ours, slope, least = best(local_steps(problem, 200), gradients(problem, batches), bare)
    report("softmax 784x10, batch 200, bytes", ours / STEPS / 10, slope / 10, least / 10)


def network() -> None:
    d = images(20_000)
    problem = fs.problems.NeuralNetwork.of(d, fs.data.iid(d.y, 100), widths=WIDTHS)
    batches = chosen(problem, 20)
    sizes = (FEATURES, *WIDTHS, CLASSES)
    weights = [np.full(shape, 0.01, np.float32) for shape in pairwise(sizes)]
    scale = np.float32(1 / 255)

    def bare() -> None:
        for rows in batches:
            x = problem.x[rows].astype(np.float32)
            x *= scale
            inputs = [x]
            for w in weights:
                inputs.append(inputs[-1] @ w)
            slope = inputs[-1]
            for w, below in zip(weights[::-1], inputs[-2::-1], strict=True):
                below.T @ slope
                if below is not x:
                    slope = slope @ w.T

    timed = [local_steps(problem, 20), gradients(problem, batches), bare]
    loop = torch_loop(problem, batches)
    if loop is not None:
        timed.append(loop)
    # A line for fs.problems.Torch on the same batches belongs here: `local_steps(Torch.of(module, d, parts), 20)`.
    ours, slope, least, *theirs = best(*timed)
    report("network 784-64-32-10, batch 20, bytes", ours / STEPS / 100, slope / 100, least / 100)
    if theirs:
        print(
            f"    PyTorch, a loop over 100 clients      {theirs[0] / 100 * 1e6:6.0f} us a client step   ours is "
            f"{theirs[0] / (ours / STEPS):4.1f} x as fast  (at least 3)"
        )


def torch_loop(problem: Any, batches: list[np.ndarray]) -> Callable[[], object] | None:
    """One SGD step of every client, each with a module of its own, as anybody would write it."""
    try:
        import torch
    except ImportError:
        print("    PyTorch is not installed: its line is left out")
        return None
    torch.set_num_threads(1)
    sizes = (FEATURES, *WIDTHS, CLASSES)
    layers: list[Any] = []
    for wide, high in pairwise(sizes):
        layers += [torch.nn.Linear(wide, high), torch.nn.ReLU()]
    module = torch.nn.Sequential(*layers[:-1])
    optimiser = torch.optim.SGD(module.parameters(), lr=1e-3)
    x, y = torch.from_numpy(problem.x.copy()), torch.from_numpy(problem.y.copy())
    picked = [torch.from_numpy(rows) for rows in batches]

    def loop() -> None:
        for rows in picked:
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(module(x[rows].float() / 255), y[rows]).backward()
            optimiser.step()

    return loop


def report(what: str, ours: float, slope: float, least: float) -> None:
    print(f"{what:38} gather + products {least * 1e6:5.0f} us a client step")
    for name, value in (("gradient", slope), ("whole local step", ours)):
        print(f"    {name:34} {value * 1e6:17.0f} us   {value / least:5.2f} x  (at most 1.3)")


SESSIONS: list[Any] = []


@dataclass(frozen=True)
class Watched(Ray):
    """A Ray runtime that shows its session."""

    def open(self, algorithm: Any, setting: Setting) -> Any:
        SESSIONS.append(super().open(algorithm, setting))
        return SESSIONS[-1]


def hosts() -> None:
    """60,000 x 784 bytes over 100 clients on 2 hosts; all clients work, so that every host has seen all its rows."""
    import ray

    d = images(60_000)
    problem = fs.problems.NeuralNetwork.of(d, fs.data.dirichlet(d.y, 100, 0.3, seed=1), widths=WIDTHS)
    said: list[dict[str, Any]] = []

    def ask(progress: Any) -> None:
        if progress.round == 5:
            said.extend(ray.get([h.about.remote() for h in SESSIONS[-1].hosts]))
            for host in said:
                with open(f"/proc/{host['pid']}/status") as status:
                    lines = dict(line.split(":", 1) for line in status)
                host["now"], host["most"] = (int(lines[k].split()[0]) / 1024 for k in ("VmRSS", "VmHWM"))

    scenario = fs.Scenario(
        problem=problem, algorithm=FedAvg(0.1, 50, 20), budget=fs.Budget(rounds=5), dtype="float32", seed=1
    )
    fs.run(scenario, runtime=Watched(hosts=2), observers=[ask])
    for host in said:
        print(
            f"Ray host of {len(host['clients'])} clients: {host['rows_held']:,} of {len(d.x):,} rows, "
            f"{host['now']:.0f} MB, at most {host['most']:.0f} MB  (at most 350)"
        )
    held = sum(host["rows_held"] for host in said)
    print(f"rows held by all hosts together: {held:,}  (each by one: {len(d.x):,})")


if __name__ == "__main__":
    with threadpool_limits(1):
        softmax()
        network()
    if "--ray" in sys.argv:
        hosts()

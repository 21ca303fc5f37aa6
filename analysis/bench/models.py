"""How fast models learn, as ratios taken in one run, and what a Ray host holds.

    python -m analysis.bench.models         # the ratios
    python -m analysis.bench.models --ray   # what hosts hold

Local steps are those of FedAvg as runs take them: rows drawn, gathered, gradient, update. Bare is what no program could
leave out: the rows' gather, from bytes to floats, and the BLAS products. All on one thread, timed in turn, best of
several.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import fedsim as fs
from analysis.bench.timing import best
from fedsim.algorithms import FedAvg
from fedsim.kernels import cpu  # loads every BLAS there is, so that all of them can be held to one thread
from fedsim.problems import weights_of
from fedsim.rng import Stream, keys
from fedsim.runtime.inline import Worker
from fedsim.runtime.jobs import Batch, Setting
from fedsim.runtime.ray import Ray

FEATURES, CLASSES, WIDTHS = 784, 10, (64, 32)
ROUNDS, STEPS = 12, 10


def images(rows: int) -> fs.data.Dataset:
    """Random bytes in the shape of Fashion-MNIST: speed does not depend on what is in the pictures."""
    x = np.random.default_rng(1).integers(0, 256, (rows, FEATURES), np.uint8)
    return fs.data.from_arrays(x, np.arange(rows) % CLASSES, name="random bytes")


def sums(groups: int, *contenders: Callable[[int], Callable[[], object]]) -> list[float]:
    """Each contender's processor seconds over all groups of clients; short calls, so that some see the machine idle."""
    calls = [make(g) for g in range(groups) for make in contenders]
    least = np.array(best(*calls, rounds=ROUNDS, clock=time.thread_time)).reshape(groups, len(contenders))
    return least.sum(axis=0).tolist()


def local_steps(problem: Any, batch_size: int, groups: int) -> Callable[[int], Callable[[], object]]:
    """STEPS local steps of a group of clients, as a run has them computed."""
    setting = Setting(problem, weights_of(problem), 1, np.dtype("float32"), cpu)
    worker = Worker(FedAvg(1e-3, local_steps=STEPS, batch_size=batch_size), setting)
    message = {"theta": np.full((1, problem.dim), 0.01, np.float32)}

    def make(group: int) -> Callable[[], object]:
        clients = np.array_split(np.arange(problem.clients), groups)[group]
        batch = Batch(0, 0 * clients, clients, 0 * clients, message, 0 * clients)
        return lambda: worker.compute(batch)

    return make


def chosen(problem: Any, batch_size: int, groups: int) -> list[list[np.ndarray]]:
    """The rows that those local steps draw: for every group, those of each of its clients and steps."""
    clients = np.arange(problem.clients)
    start, key = np.arange(len(clients) + 1) * batch_size, keys(1, Stream.BATCH, client=clients)
    drawn = [cpu.choose_rows(key, problem.sizes, start, step) for step in range(STEPS)]
    return [
        [rows[start[c] : start[c + 1]] + problem.offsets[c] for rows in drawn for c in own]
        for own in np.array_split(clients, groups)
    ]


def bare(problem: Any, batches: list[list[np.ndarray]], weights: list[np.ndarray]) -> Callable[[int], Any]:
    """Rows from bytes to floats, the products forwards, the products backwards."""

    def make(group: int) -> Callable[[], object]:
        def run() -> None:
            for rows in batches[group]:
                x = problem.x[rows].astype(np.float32)
                x *= np.float32(1 / 255)
                inputs = [x]
                for w in weights:
                    inputs.append(inputs[-1] @ w)
                slope = inputs[-1]
                for w, below in zip(weights[::-1], inputs[-2::-1], strict=True):
                    below.T @ slope
                    if below is not x:
                        slope = slope @ w.T

        return run

    return make


def softmax() -> None:
    d = images(20_000)
    problem = fs.problems.SoftmaxRegression.of(d, fs.data.iid(d.y, 10))
    batches = chosen(problem, 200, 1)
    weights = [np.full((FEATURES, CLASSES), 0.01, np.float32)]
    ours, least = sums(1, local_steps(problem, 200, 1), bare(problem, batches, weights))
    report("softmax 784x10, batch 200, bytes", 10, ours, least)


def network() -> None:
    d = images(20_000)
    problem = fs.problems.NeuralNetwork.of(d, fs.data.iid(d.y, 100), widths=WIDTHS)
    batches = chosen(problem, 20, 20)
    weights = [np.full(shape, 0.01, np.float32) for shape in pairwise((FEATURES, *WIDTHS, CLASSES))]
    contenders = [local_steps(problem, 20, 20), bare(problem, batches, weights)]
    loop = torch_loop(problem, batches)
    if loop is not None:
        contenders.append(loop)
    ours, least, *theirs = sums(20, *contenders)
    report("network 784-64-32-10, batch 20, bytes", 100, ours, least)
    if theirs:
        theirs += sums(
            3, local_steps(torch_problem(d, fs.data.iid(d.y, 100)), 20, 3)
        )  # 33 clients, as on three threads
        print(
            f"    PyTorch, a loop over the clients  {theirs[0] / STEPS / 100 * 1e6:18.0f} us   ours is "
            f"{theirs[0] / ours:4.1f} x as fast  (at least 3)"
        )
        print(
            f"    fs.problems.Torch, its local step {theirs[1] / STEPS / 100 * 1e6:18.0f} us   it is   "
            f"{theirs[0] / theirs[1]:4.1f} x as fast as the loop  (at least 1)"
        )


def torch_problem(d: fs.data.Dataset, parts: list[np.ndarray]) -> fs.problems.Torch:
    """The same network as a `torch.nn.Module`."""
    from fedsim.problems.torch.models import mlp

    return fs.problems.Torch.of(mlp(FEATURES, WIDTHS, CLASSES), d, parts)


def torch_loop(problem: Any, batches: list[list[np.ndarray]]) -> Callable[[int], Any] | None:
    """The SGD steps of every client, one after the other, as anybody would write it."""
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
    picked = [[torch.from_numpy(rows) for rows in group] for group in batches]

    def make(group: int) -> Callable[[], object]:
        def run() -> None:
            for rows in picked[group]:
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(module(x[rows].float() / 255), y[rows]).backward()
                optimiser.step()

        return run

    return make


def report(what: str, clients: int, ours: float, least: float) -> None:
    each = 1e6 / STEPS / clients
    print(
        f"{what:38} local step {ours * each:5.0f} us   gather + products {least * each:5.0f} us   {ours / least:5.2f} x  "
        "(at most 1.3)"
    )


SESSIONS: list[Any] = []


@dataclass(frozen=True)
class Watched(Ray):
    """A Ray runtime that shows its session."""

    def open(self, algorithm: Any, setting: Setting) -> Any:
        SESSIONS.append(super().open(algorithm, setting))
        return SESSIONS[-1]


def memory(process: int) -> dict[str, float]:
    """Resident megabytes of a process, now and at the most, and what they are made of."""
    with open(f"/proc/{process}/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return {k: int(lines[k].split()[0]) / 1024 for k in ("VmRSS", "VmHWM", "RssAnon", "RssFile", "RssShmem")}


def hosts() -> None:
    """60,000 x 784 bytes over 100 clients on 2 hosts; all clients work, so that every host has seen all its rows.

    What has to be compiled is, before: a host that compiles for itself holds some 60 MB more from then on.
    """
    import ray

    d = images(60_000)
    problem = fs.problems.NeuralNetwork.of(d, fs.data.dirichlet(d.y, 100, 0.3, seed=1), widths=WIDTHS)
    said: list[dict[str, Any]] = []

    def ask(progress: Any) -> None:
        if progress.round == 5:
            said.extend(ray.get([h.about.remote() for h in SESSIONS[-1].hosts]))
            for host in said:
                host["memory"] = memory(host["pid"])

    scenario = fs.Scenario(
        problem=problem,
        algorithm=FedAvg(0.1, local_steps=50, batch_size=20),
        budget=fs.Budget(rounds=5),
        dtype="float32",
        seed=1,
    )
    fs.run(replace(scenario, budget=fs.Budget(rounds=1)))
    fs.run(scenario, runtime=Watched(hosts=2), observers=[ask])
    for host in said:
        print(
            f"Ray host of {len(host['clients'])} clients: {host['rows_held']:,} of {len(d.x):,} rows, "
            "{VmRSS:.0f} MB, at most {VmHWM:.0f} MB  (at most 350); of these {RssAnon:.0f} of its own, {RssFile:.0f} of "
            "files, {RssShmem:.0f} of Ray's store".format(**host["memory"])
        )
    held = sum(host["rows_held"] for host in said)
    print(f"rows held by all hosts together: {held:,}  (each by one: {len(d.x):,})")


if __name__ == "__main__":
    if "--ray" in sys.argv:
        hosts()
    else:
        with threadpool_limits(1):
            softmax()
            network()

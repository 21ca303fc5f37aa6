"""For tests of what goes wrong: a run that dies before any of its file operations, and two processes at once."""

from __future__ import annotations

import errno
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fedsim as fs
from fedsim import sweeps
from fedsim.results import process
from fedsim.scenario_file import load_file
from fedsim.sweeps.execution import execute

CHANGES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link")
PRELOAD = ["fedsim.sweeps.study", "fedsim.sweeps.execution", "fedsim.kernels.cpu", "fedsim.problems", "pyarrow.parquet"]

SWEPT = """
import fedsim as fs

def scenario(*, level: int = 0, step_size: float = 1e-3):
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(4, 2, 4.0, 20, seed=1),
        algorithm=fs.algorithms.FALD(step_size=step_size, local_steps=2),
        budget=fs.Budget(rounds=4 + level), metrics=("mean_error",), replicas=2, seed=3)
"""


def scenario(rounds: int = 6) -> fs.Scenario:
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(4, 2, 4.0, 20, seed=1),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=2),
        budget=fs.Budget(rounds=rounds),
        metrics=("mean_error",),
        replicas=2,
        seed=3,
    )


def run(folder: Path, rounds: int = 6, **options: Any) -> Any:
    return fs.run(scenario(rounds), out=folder, runtime=fs.Inline(threads=1), **options)


@contextmanager
def in_this_process() -> Iterator[None]:
    """Let sweeps execute their runs in this process, so that it can die in any of them."""

    def here(spec: Any, runs: Any, out: Path, *_: Any) -> Iterator[Any]:
        loaded = load_file(spec.file)
        for run in runs:
            yield run, execute(loaded, run, out, 1)

    before, sweeps._reports = sweeps._reports, here
    try:
        yield
    finally:
        sweeps._reports = before


def sweep(file: Path, folder: Path, **options: Any) -> fs.Study:
    with in_this_process():
        return fs.sweep(file, {"level": [0, 1]}, out=folder, **options)


# --- Dying --------------------------------------------------------------------------------------------


class Killed(BaseException):
    """As good as SIGKILL: from now on nothing changes the folder any more, no cleaning up either."""


class _Watch:
    """Audit hooks cannot be taken away, so there is one, which sleeps most of the time."""

    place, left, dead, installed, full = "", 0, False, False, False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.place or event not in CHANGES or not str(arguments[0]).startswith(self.place):
            return
        if event == "open" and not int(arguments[2] or 0) & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            return
        if self.full and event not in ("open", "os.mkdir"):  # what needs no space
            return
        self.left -= 1
        if self.left <= 0:
            self.dead = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0])) if self.full else Killed


_WATCH = _Watch()


@contextmanager
def dying(number: int, place: Path) -> Iterator[None]:
    """Let the body die before its file operation of this number (from 1) that changes `place` or what is in it."""
    if not _WATCH.installed:
        sys.addaudithook(_WATCH)
        _WATCH.installed = True
    _WATCH.place, _WATCH.left, _WATCH.dead = str(place), number, False
    began, process._began = process._began, lambda pid: "boot-1"  # what it leaves is that of a process that is gone
    try:
        yield
    except BaseException:
        if not _WATCH.dead:
            raise
    finally:
        _WATCH.place, process._began = "", began


@contextmanager
def full_disk(number: int, place: Path) -> Iterator[None]:
    """Let `place` have no room from the file operation of this number on."""
    if not _WATCH.installed:
        sys.addaudithook(_WATCH)
        _WATCH.installed = True
    _WATCH.place, _WATCH.left, _WATCH.dead, _WATCH.full = str(place), number, False, True
    try:
        yield
    finally:
        _WATCH.place, _WATCH.full = "", False


def died() -> bool:
    """Whether the last body that was `dying` did."""
    return _WATCH.dead


# --- Two at once --------------------------------------------------------------------------------------


def _serve(pipe: Any, barrier: Any) -> None:
    """A process that acts when the other does, and sends the outcome."""
    while (order := pipe.recv()) is not None:
        what, delay_s, arguments, options = order
        barrier.wait()
        time.sleep(delay_s)
        try:
            out = {"run": run, "sweep": sweep}[what](*arguments, **options)
            end = ("complete", out.fingerprint if what == "run" else sorted(r.fingerprint for _, r in out.runs))
        except fs.errors.InvalidInput as error:
            end = ("refused", str(error))
        except BaseException as error:
            end = ("crashed", repr(error))
        pipe.send(end)


@contextmanager
def pair() -> Iterator[Any]:
    """`both(first, second)` carries out two orders at the same time, in two processes, and gives both answers."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    barrier, pipes = context.Barrier(2), [context.Pipe() for _ in range(2)]
    workers = [context.Process(target=_serve, args=(far, barrier), daemon=True) for _, far in pipes]
    for worker in workers:
        worker.start()

    def both(*orders: Any) -> list[Any]:
        for (near, _), order in zip(pipes, orders, strict=True):
            near.send(order)
        for near, _ in pipes:
            assert near.poll(120), "a process has hung"
        return [near.recv() for near, _ in pipes]

    try:
        yield both
    finally:
        for near, _ in pipes:
            near.send(None)
        for worker in workers:
            worker.join(20)

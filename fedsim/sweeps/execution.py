"""One run of a sweep, in whatever process it happens: claimed, carried out or continued, its failure noted.

How far a sweep is, read from its folder alone.

What a sweep will take, from one run that is timed and thrown away.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.errors import FedsimError, Interrupted, InUse
from fedsim.results import lock, write_atomic
from fedsim.results.checksums import read_json, to_json
from fedsim.results.files import remove_stale
from fedsim.results.folder import MANIFEST
from fedsim.running import run
from fedsim.running import run as simulate
from fedsim.runtime.inline import Inline
from fedsim.scenario_file import ScenarioFile, load_source
from fedsim.sweeps.spec import Order, Plan
from fedsim.sweeps.study import Failure, outcome

FAILED, LOG = "failed.json", "run.log"
CHECKPOINT_EVERY = "60s"
CLAIMS = ".claims"

Report = dict[str, Any]  # state: whole, failed, interrupted, elsewhere; then what came out, or what went wrong


def perform(file: ScenarioFile, order: Order, out: Path, threads: int, stop: threading.Event | None = None) -> Report:
    """Carry out one run in its folder, unless it is whole already; a failure is reported, never raised."""
    folder = out / order.run
    with claimed(out, order.run) as mine:
        if not mine:
            return {"state": "elsewhere"}
        said = io.StringIO()  # what the scenario's own code prints belongs to its log, not on the terminal
        try:
            tidy(folder)
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                scenario = file.build(order.settings)
                with file.blamed(FedsimError):
                    result = simulate(
                        scenario, runtime=Inline(threads=threads), out=folder, resume=True, stop=stop,
                        checkpoint_every=CHECKPOINT_EVERY, source=file.origin(order.settings),
                    )  # fmt: skip
            return {"state": "whole", "ends": outcome(result)}
        except Interrupted:
            return {"state": "interrupted"}
        except InUse:  # somebody resumes this run by itself
            return {"state": "elsewhere"}
        except Exception as error:
            story = said.getvalue() + "".join(traceback.format_exception(error))
            blamed = error.__cause__ if type(error) is FedsimError and error.__cause__ else error
            return fail(folder, order, type(blamed).__name__, str(error), story)


def fail(folder: Path, order: Order, kind: str, message: str, story: str) -> Report:
    """Leave the reason in the run's folder, as far as that can be written."""
    reason = {"error": kind, "message": message, "traceback": story, "settings": order.settings}
    with contextlib.suppress(FedsimError, OSError):
        folder.mkdir(exist_ok=True)
        write_atomic(folder / LOG, story.encode())
        write_atomic(folder / FAILED, to_json(reason))
    return {"state": "failed", "error": kind, "message": message}


def tidy(folder: Path) -> None:
    """Take away an earlier failure; what else a killed run has left is seen to by the next."""
    if folder.exists() and not (folder / MANIFEST).exists():
        for name in (FAILED, LOG):
            (folder / name).unlink(missing_ok=True)


@contextlib.contextmanager
def claimed(out: Path, run: str) -> Iterator[bool]:
    """Whether the run is ours alone."""
    while True:
        (out / CLAIMS).mkdir(exist_ok=True)
        try:
            mine = lock.take(out / CLAIMS, run)
            break
        except FileNotFoundError:  # the last holder of another took the folder away
            continue
        except InUse:
            yield False
            return
    try:
        yield True
    finally:
        mine.release()
        with contextlib.suppress(OSError):
            (out / CLAIMS).rmdir()  # if it is the last


def running(out: Path) -> set[str]:
    """Which runs some process, perhaps on another machine, holds at this moment."""
    names = {path.name.removesuffix("-owner") for path in (out / CLAIMS).glob("*")}
    return {name for name in names if lock.held(out / CLAIMS, name)}


def clean(out: Path) -> None:
    """Take away what killed processes have left beside the runs: claims that nobody holds, half-written files."""
    remove_stale(out)
    for path in (out / CLAIMS).glob("*"):
        with contextlib.suppress(InUse, OSError):
            lock.take(out / CLAIMS, path.name.removesuffix("-owner"), wait_s=0.0).release()
    with contextlib.suppress(OSError):
        (out / CLAIMS).rmdir()


@dataclass(frozen=True)
class Status:
    """Every run of the plan is in one of these."""

    plan: Plan
    whole: tuple[Order, ...]
    failed: tuple[Failure, ...]
    running: tuple[Order, ...]
    todo: tuple[Order, ...]  # interrupted ones among them: they go on from their checkpoint


def status(out: str | Path) -> Status:
    """Look at every run's folder."""
    out = Path(out)
    plan = Plan.read(out)
    return look(plan, plan.orders, out)


def look(plan: Plan, orders: tuple[Order, ...], out: Path) -> Status:
    """The same for some of the runs."""
    held = running(out)
    whole, failed, busy, todo = [], [], [], []
    for order in orders:
        folder = out / order.run
        if (folder / "manifest.json").exists():
            whole.append(order)
        elif order.run in held:
            busy.append(order)
        elif (folder / FAILED).exists():
            failed.append(failure(order, folder))
        else:
            todo.append(order)
    return Status(plan, tuple(whole), tuple(failed), tuple(busy), tuple(todo))


def failure(order: Order, folder: Path) -> Failure:
    """Why a run failed."""
    try:
        reason = read_json(folder / FAILED)
        return Failure(order.run, order.settings, str(reason["error"]), str(reason["message"]))
    except (OSError, LookupError, FedsimError):
        return Failure(order.run, order.settings, "CorruptData", f"{folder / FAILED} is damaged; use --retry-failed")


WARM_S = 10.0  # a run shorter than this is timed a second time, without the compilation of kernels


@dataclass(frozen=True)
class Estimate:
    """One run: real seconds on one thread, and what its folder takes."""

    real_s: float
    bytes: int


def estimate(plan: Plan, orders: tuple[Order, ...]) -> Estimate:
    """Time the run in the middle of the grid, where it is neither the smallest nor the largest."""
    file = load_source(Path(plan.file), plan.source, plan.folder, plan.modules)
    settings = orders[len(orders) // 2].settings
    spent = 0.0
    for attempt in range(2):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            scenario = file.build(settings)
            with file.blamed(FedsimError):
                run(scenario, runtime=Inline(threads=1), out=Path(folder) / "run", source=file.origin(settings))
            spent = time.perf_counter() - began
            size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        if attempt or spent > WARM_S:
            break
    return Estimate(spent, size)

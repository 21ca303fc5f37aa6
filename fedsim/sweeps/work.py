"""One run of a sweep, in whatever process it happens: claimed, carried out or continued, its failure noted."""

from __future__ import annotations

import contextlib
import io
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedsim.errors import FedsimError, Interrupted, InUse
from fedsim.results import lock, write_atomic
from fedsim.results.atomic import remove_stale
from fedsim.results.sealed import to_json
from fedsim.results.state import MANIFEST
from fedsim.running import run as simulate
from fedsim.runtime.inline import Inline
from fedsim.scenario_file import ScenarioFile
from fedsim.sweeps.plan import Order
from fedsim.sweeps.study import outcome

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

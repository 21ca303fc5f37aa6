"""Execution of one run of a sweep, the status of all runs, and an estimate of their cost."""

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
from fedsim.results import files, lock, write_atomic
from fedsim.results.checksums import read_json, to_json
from fedsim.results.files import remove_stale
from fedsim.results.folder import damage, state
from fedsim.running import run as simulate
from fedsim.runtime.inline import Inline
from fedsim.scenario_file import ScenarioFile, load_source
from fedsim.sweeps.spec import NAME, RunSpec, SweepSpec
from fedsim.sweeps.study import Failure, outcome

FAILED, LOG = "failed.json", "run.log"
CHECKPOINT_EVERY = "60s"
CLAIMS = ".claims"
WARM_S = 10.0  # a run shorter than this is timed again, without the compilation of kernels

Report = dict[str, Any]  # state: complete, failed, interrupted, elsewhere; then the outcome, or the error


def execute(
    file: ScenarioFile, run: RunSpec, out: Path, threads: int, stop: threading.Event | None = None
) -> Report:  # fmt: skip
    """Execute one run in its folder unless it is complete; report a failure, never raise it."""
    folder = out / run.name
    with claimed(out, run.name) as mine:
        if not mine:
            return {"state": "elsewhere"}
        printed = io.StringIO()  # output of the scenario's code goes to its log
        try:
            remove_failure(folder)
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                scenario = file.build(run.settings)
                with file.blamed(FedsimError):
                    result = simulate(
                        scenario, runtime=Inline(threads=threads), out=folder, resume=True, stop=stop,
                        checkpoint_every=CHECKPOINT_EVERY, source=file.origin(run.settings),
                    )  # fmt: skip
            return {"state": "complete", "outcome": outcome(result)}
        except Interrupted:
            return {"state": "interrupted"}
        except InUse:  # `fedsim resume` holds this run
            return {"state": "elsewhere"}
        except Exception as error:
            log = printed.getvalue() + "".join(traceback.format_exception(error))
            cause = error.__cause__ if type(error) is FedsimError and error.__cause__ else error
            return record_failure(folder, run, type(cause).__name__, str(error), log)


def record_failure(folder: Path, run: RunSpec, kind: str, message: str, log: str) -> Report:
    """Write the error and the log into the run's folder if possible, and return the report."""
    reason = {"error": kind, "message": message, "traceback": log, "settings": run.settings}
    with contextlib.suppress(FedsimError, OSError):
        files.make_folder(folder)
        write_atomic(folder / LOG, log.encode())
        write_atomic(folder / FAILED, to_json(reason))
    return {"state": "failed", "error": kind, "message": message}


def remove_failure(folder: Path) -> None:
    """Remove the files of an earlier failure, and those of a damaged result."""
    files.check_folder(folder)
    found = state(folder) if folder.exists() else "empty"
    if found != "complete":
        for name in (FAILED, LOG):
            files.remove(folder / name)
    if found == "damaged":
        files.remove_folder(folder)


@contextlib.contextmanager
def claimed(out: Path, name: str) -> Iterator[bool]:
    """Hold the claim on a run; yield False if another process holds it."""
    while True:
        files.make_folder(out / CLAIMS)
        try:
            mine = lock.take(out / CLAIMS, name)
            break
        except FileNotFoundError:  # the holder of the last claim removed the folder
            continue
        except InUse:
            yield False
            return
    try:
        yield True
    finally:
        mine.release()
        files.remove_empty(out / CLAIMS)  # succeeds after the last claim


def remove_stale_claims(out: Path) -> None:
    """Remove claims and temporary files of killed processes."""
    remove_stale(out)
    files.check_folder(out / CLAIMS)
    for name in claims(out):
        with contextlib.suppress(InUse, OSError):
            lock.take(out / CLAIMS, name, wait_s=0.0).release()
    files.remove_empty(out / CLAIMS)


def claims(out: Path) -> set[str]:
    """Return the names of runs with a claim, valid or stale."""
    names = (path.name.removesuffix("-owner") for path in files.listed(out / CLAIMS))
    return {name for name in names if NAME.fullmatch(name)}


@dataclass(frozen=True)
class Status:
    """The runs of a sweep by state; every run has exactly one state."""

    spec: SweepSpec
    complete: tuple[RunSpec, ...]
    failed: tuple[Failure, ...]
    running: tuple[RunSpec, ...]
    to_do: tuple[RunSpec, ...]  # interrupted runs among them resume from their checkpoint


def status(out: str | Path, check: bool = False) -> Status:
    """Return the status of all runs of the sweep in a folder; `check` reads every file of complete runs."""
    out = Path(out)
    spec = SweepSpec.read(out)
    return read_status(spec, spec.runs, out, check)


def read_status(spec: SweepSpec, runs: tuple[RunSpec, ...], out: Path, check: bool = False) -> Status:
    """Return the status of these runs from their folders; a damaged result is a failed run."""
    held = {name for name in claims(out) if lock.held(out / CLAIMS, name)}
    complete, failed, running, to_do = [], [], [], []
    for run in runs:
        folder = out / run.name
        found = state(folder, check=check) if files.is_folder(folder) else "empty"
        if found == "complete":
            complete.append(run)
        elif run.name in held or found == "running":
            running.append(run)
        elif found == "damaged":
            failed.append(Failure(run.name, run.settings, "CorruptData", damage(folder, check)))
        elif (folder / FAILED).exists():
            failed.append(_read_failure(run, folder))
        else:
            to_do.append(run)
    return Status(spec, tuple(complete), tuple(failed), tuple(running), tuple(to_do))


def _read_failure(run: RunSpec, folder: Path) -> Failure:
    try:
        reason = read_json(folder / FAILED)
        return Failure(run.name, run.settings, str(reason["error"]), str(reason["message"]))
    except (OSError, LookupError, FedsimError):
        return Failure(run.name, run.settings, "CorruptData", f"{folder / FAILED} is damaged; use --retry-failed")


@dataclass(frozen=True)
class Estimate:
    """Cost of one run: real seconds, and the size of its folder."""

    real_s: float
    bytes: int


def estimate(spec: SweepSpec, runs: tuple[RunSpec, ...], threads: int) -> Estimate:
    """Time the run in the middle of the grid and discard its result."""
    file = load_source(Path(spec.file), spec.source, spec.folder, spec.modules)
    settings = runs[len(runs) // 2].settings
    spent = 0.0
    for attempt in range(2):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            scenario = file.build(settings)
            with file.blamed(FedsimError):
                simulate(
                    scenario, runtime=Inline(threads=threads), out=Path(folder) / "run", source=file.origin(settings)
                )
            spent = time.perf_counter() - began
            size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
        if attempt or spent > WARM_S:
            break
    return Estimate(spent, size)

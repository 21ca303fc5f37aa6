"""Many runs of one scenario file: `sweep` executes a grid, `load` reads a run or a sweep from its folder."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim import results
from fedsim.checks import check_path, is_int
from fedsim.errors import FedsimError, Interrupted, InvalidInput
from fedsim.protocols import Runtime
from fedsim.results import Result
from fedsim.results.folder import clean
from fedsim.runtime.inline import Inline
from fedsim.runtime.ray import Ray
from fedsim.scenario_file import load_file
from fedsim.sweeps.spec import FILE, RunSpec, SweepSpec, make_spec
from fedsim.sweeps.study import Study

__all__ = ["Event", "load", "sweep"]


@dataclass(frozen=True)
class Event:
    """A change in the state of a run, as observers of a sweep receive it."""

    run: RunSpec
    state: str  # skipped, started, complete, failed, interrupted, elsewhere
    outcome: Mapping[str, Any]  # of a complete run, as in a row of the study's table
    reason: str = ""


def sweep(
    file: str | Path, grid: Mapping[str, Iterable[Any]] | None = None, *, out: str | Path,
    settings: Mapping[str, Any] | None = None, jobs: int | None = None, shard: tuple[int, int] | None = None,
    resume: bool = False, retry_failed: bool = False, runtime: Runtime | None = None,
    observers: Iterable[Callable[[Event], None]] = (), stop: threading.Event | None = None,
) -> Study:  # fmt: skip
    """Run a scenario file with every combination of `grid` (or of the file's own), each in a folder in `out`.

    `jobs` runs execute at a time (by default one per core), in processes of this machine or, with
    `runtime=fs.Ray(...)`, as tasks of a cluster. `shard=(3, 20)` executes every twentieth run from number 3.
    Completed runs are skipped, interrupted runs resume from their last checkpoint, and failed runs keep their error
    message unless `retry_failed` is set. A failed run does not stop the others; see `study.failed`. With `resume`,
    `out` may hold other values and axes; the new runs are added to it.
    """
    folder = Path(out).absolute()
    return run_sweep(
        make_spec(load_file(file), grid, settings or {}, folder), folder, jobs=jobs, shard=shard,
        resume=resume, retry_failed=retry_failed, runtime=runtime, observers=tuple(observers), stop=stop,
    )  # fmt: skip


def run_sweep(
    spec: SweepSpec, out: Path, *, jobs: int | None = None, shard: tuple[int, int] | None = None,
    resume: bool = False, retry_failed: bool = False, runtime: Runtime | None = None,
    observers: Sequence[Callable[[Event], None]] = (), stop: threading.Event | None = None,
    only: tuple[RunSpec, ...] | None = None,
) -> Study:  # fmt: skip
    """Execute a sweep, or one shard of it, or `only` some of its runs."""
    from fedsim.sweeps.execution import read_status, remove_stale_claims
    from fedsim.sweeps.study import Rows, merge, outcomes, rows_of

    if jobs is not None and not is_int(jobs, least=1):
        raise InvalidInput(f"jobs={jobs}: ask for an integer of at least 1")
    if runtime is not None and not isinstance(runtime, Inline | Ray):
        raise InvalidInput(f"runtime={runtime!r}: a sweep runs on processes of this machine (None) or on fs.Ray(...)")
    mine = spec.shard(shard) if only is None else only
    stored = spec.claim(out, resume=resume or retry_failed, shared=shard is not None)
    remove_stale_claims(out)
    stop = stop if stop is not None else threading.Event()

    def notify(event: Event) -> None:
        for observer in observers:
            observer(event)

    found = read_status(spec, mine, out)
    retried = {failure.run for failure in found.failed} if retry_failed else set()
    pending = {run.name for run in found.to_do} | retried
    earlier = outcomes(found.complete, out) if observers else {}
    for run in found.complete:
        clean(out / run.name)
        notify(Event(run, "skipped", earlier.get(run.name, {})))
    for failure in found.failed:
        if failure.run not in retried:
            notify(Event(RunSpec(failure.run, failure.settings), "failed", {}, f"{failure.kind}: {failure.message}"))
    fresh: dict[str, Rows] = {}
    shown = {run.name: run for run in stored.runs}  # with the settings of all axes in the folder
    with closing(_reports(spec, [run for run in mine if run.name in pending], out, jobs, runtime, stop)) as reports:
        for run, report in reports:
            if report["state"] == "complete":
                with suppress(FedsimError, OSError):  # `merge` raises it
                    fresh[run.name] = rows_of(shown[run.name], out)
            reason = f"{report['error']}: {report['message']}" if report["state"] == "failed" else ""
            notify(Event(run, report["state"], report.get("outcome", {}), reason))
    merge(stored, out, fresh)
    if stop.is_set() and (left := read_status(spec, mine, out).to_do):
        raise Interrupted(
            f"stopped with {len(left)} of {len(mine)} runs to do; go on with the same command and --resume"
        )
    return study(stored, out, mine)


def load(path: str | Path) -> Any:
    """Load a folder: the Result of a run, or the Study of a sweep."""
    folder = check_path("load(path)", path)
    if (folder / FILE).exists():
        spec = SweepSpec.read(folder)
        return study(spec, folder.absolute(), spec.runs)
    return results.load(folder)


def study(spec: SweepSpec, out: Path, runs: tuple[RunSpec, ...]) -> Study:
    """Return the study of all complete runs in a sweep's folder, with the failures among `runs`."""
    from fedsim.sweeps.execution import read_status
    from fedsim.sweeps.study import tables

    found, names = read_status(spec, spec.runs, out), {run.name for run in runs}
    complete = list(found.complete)
    lazy = LazyRuns(tuple((run.settings, out / run.name) for run in complete))
    failed = tuple(failure for failure in found.failed if failure.run in names)
    return Study(spec.name, lazy, failed, out, lambda: tables(complete, out))


class LazyRuns(Sequence[tuple[dict[str, Any], Result]]):
    """Settings and results of runs, read from their folders on access."""

    def __init__(self, folders: tuple[tuple[dict[str, Any], Path], ...]) -> None:
        self._folders = folders

    def __len__(self) -> int:
        return len(self._folders)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return LazyRuns(self._folders[index])
        settings, folder = self._folders[index]
        return settings, results.load(folder)


def _reports(
    spec: SweepSpec, runs: list[RunSpec], out: Path, jobs: int | None, runtime: Runtime | None, stop: threading.Event
) -> Generator[tuple[RunSpec, dict[str, Any]], None, None]:  # fmt: skip
    from fedsim.sweeps import workers

    if isinstance(runtime, Ray):
        return workers.ray_tasks(spec, runs, out, jobs, runtime, stop)
    return workers.processes(spec, runs, out, jobs or os.cpu_count() or 1, stop)

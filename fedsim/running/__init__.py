"""`run` and `arun`: execute one scenario."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from fedsim import protocols, renamed
from fedsim.checks import check_bool, check_choice, check_path
from fedsim.engine.memory_needed import check_memory
from fedsim.errors import InvalidInput, ResultWarning, RuntimeFailed
from fedsim.results import Result
from fedsim.results.folder import CHECKPOINTS
from fedsim.running.folder import RunFolder
from fedsim.running.progress import progress_observers
from fedsim.runtime.inline import Inline
from fedsim.runtime.process import one_blas_thread, rare_collections
from fedsim.scenario import Scenario
from fedsim.text import short_repr


class RunOptions(TypedDict, total=False):
    """Options of `run` and `arun`; `help(fs.run)` explains each."""

    out: str | Path | None
    progress: bool
    runtime: protocols.Runtime | None
    resume: bool
    checkpoint_every: int | str | None
    timing_only: bool
    clock: str
    observers: Iterable[protocols.Observer]
    stop: threading.Event | None
    source: dict[str, Any] | None


DEFAULTS: RunOptions = {
    "out": None,
    "progress": False,
    "runtime": None,
    "resume": False,
    "checkpoint_every": None,
    "timing_only": False,
    "clock": "auto",
    "observers": (),
    "stop": None,
    "source": None,
}


def run(scenario: Scenario, **options: Unpack[RunOptions]) -> Result:
    """Run a scenario and return its result, in a script or in a notebook.

    | option             | meaning                                                                                |
    |--------------------|----------------------------------------------------------------------------------------|
    | `out`              | a new folder for the result; `fs.load` reads it, `fedsim report` makes a page of it    |
    | `progress`         | True: show a bar on a terminal or a line in a notebook                                 |
    | `runtime`          | `fs.Inline(threads)` (the default) or `fs.Ray(hosts, address)`; the bits are the same  |
    | `resume`           | True: resume the unfinished run in `out`                                               |
    | `checkpoint_every` | rounds, or seconds as in "60s", between two checkpoints in `out`                       |
    | `timing_only`      | True: run the timeline without learning                                                |
    | `clock`            | "auto", "simpy" or "compiled"; the bits are the same                                   |
    | `observers`        | functions that receive the progress of every round                                     |
    | `stop`             | a threading.Event; once it is set, the run finishes its round, saves a checkpoint and  |
    |                    | raises Interrupted                                                                     |
    | `source`           | where the scenario came from, for the manifest                                         |

    `errors.ResultWarning` warns of figures that can mislead; `result.manifest["warnings"]` lists them.
    """
    if isinstance(scenario, protocols.Executable):
        with _resumable(options.get("out")):
            result: Result = scenario.execute(**options)
    else:
        job = arun(scenario, **options)
        result = _in_another_thread(job) if _in_a_loop() else asyncio.run(job)
    if options.get("source") is None:  # the command line prints the warnings of a scenario file itself
        for text in result.manifest.get("warnings", ()):
            warnings.warn(text, ResultWarning, stacklevel=2)
    return result


async def arun(scenario: Scenario, **options: Unpack[RunOptions]) -> Result:
    """Run a scenario inside a running event loop; the options are those of `run`."""
    from fedsim import engine

    if isinstance(scenario, protocols.Executable):
        return await asyncio.to_thread(partial(run, scenario, **options))
    if not isinstance(scenario, Scenario):
        raise InvalidInput(f"run({short_repr(scenario)}): pass a fs.Scenario")
    given = _checked(options)
    runtime, timing_only, clock = given["runtime"], given["timing_only"], given["clock"]
    runtime = runtime if runtime is not None else Inline()
    check_memory(scenario, timing_only)
    began = time.perf_counter()
    place = RunFolder.take(scenario, given, scenario.budget.rounds)
    if place.result is not None:
        return place.result
    try:
        runtime.kernels()  # loads every BLAS there is, before they are held to one thread
        with one_blas_thread(), rare_collections(), progress_observers(scenario.budget, given["progress"]) as bars:
            observers, checkpoints = (*given["observers"], *bars), place.checkpoints
            clock = checkpoints.clock_of(clock)
            with _resumable(given["out"]):
                done = await engine.simulate(scenario, runtime, observers, timing_only, checkpoints, clock)
        manifest = {"source": given["source"] or {}, "resumed": place.note}
        if place.work:
            manifest["work"] = place.work
        result = engine.collect(done, runtime, time.perf_counter() - began, manifest)
        place.finish(result)
    finally:
        place.release()
    return result


@contextmanager
def _resumable(out: str | Path | None) -> Iterator[None]:
    """Add the command that resumes the run to a failure of the runtime, if there is a checkpoint."""
    try:
        yield
    except RuntimeFailed as error:
        if out is None or not (Path(out) / CHECKPOINTS).exists():
            raise
        raise RuntimeFailed(f"{error}; go on with: fedsim resume {out}") from error


def _checked(options: RunOptions) -> RunOptions:
    """Return all options, with defaults for those that were not given."""
    for name in options:
        if name not in DEFAULTS:
            remedy = f"run({name}=): no such option; choose among {', '.join(DEFAULTS)}"
            raise InvalidInput(renamed.sentence(f"fs.run({name}=)") or remedy)
    given = cast(RunOptions, {**DEFAULTS, **options})
    given["out"] = None if given["out"] is None else check_path("out", given["out"])
    given["timing_only"] = check_bool("timing_only={!r}", given["timing_only"])
    given["resume"] = check_bool("resume={}", given["resume"])
    check_choice("clock={!r}", given["clock"], ("auto", "simpy", "compiled"))
    observers = given["observers"] if given["observers"] is not None else ()
    if not isinstance(observers, tuple | list) or not all(map(callable, observers)):
        raise InvalidInput(f"observers={short_repr(observers)}: pass a list of functions of the progress")
    given["observers"] = observers
    if given["stop"] is not None and not isinstance(given["stop"], threading.Event):
        raise InvalidInput(f"stop={short_repr(given['stop'])}: pass a threading.Event, or None")
    runtime = given["runtime"]
    if runtime is not None and (isinstance(runtime, type) or protocols.missing(runtime, protocols.Runtime)):
        raise InvalidInput(f"runtime={short_repr(runtime)}: write fs.Inline() or fs.Ray()")
    return given


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_another_thread(job: Coroutine[Any, Any, Result]) -> Result:
    box: list[Any] = []

    def work() -> None:
        try:
            box.append(asyncio.run(job))
        except BaseException as error:
            box.append(error)

    thread = threading.Thread(target=work, name="fedsim-run")
    thread.start()
    thread.join()
    if isinstance(box[0], BaseException):
        raise box[0]
    assert isinstance(box[0], Result)
    return box[0]

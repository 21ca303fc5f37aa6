"""`run` and `arun`: a scenario is executed, and how that is done stays hidden."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from fedsim import protocols
from fedsim.checks import check_bool, check_choice
from fedsim.engine.memory_needed import check_memory
from fedsim.errors import InvalidInput, ResultWarning
from fedsim.results import Result
from fedsim.running.folder import RunFolder
from fedsim.running.progress import followed
from fedsim.runtime.inline import Inline
from fedsim.runtime.process import one_blas_thread, rare_collections
from fedsim.scenario import Scenario
from fedsim.text import short_repr


def run(scenario: Scenario, **options: Any) -> Result:
    """Run a scenario and return its result. Works inside a notebook too.

    Options, all as keywords (those of `arun`):

    | option             | meaning                                                                                |
    |--------------------|----------------------------------------------------------------------------------------|
    | `out`              | a new folder for the result; `fs.load` reads it, `fedsim report` makes a page of it    |
    | `progress`         | True: a bar on a terminal, a line in a notebook; it never changes the run              |
    | `runtime`          | `fs.Inline(threads)` (the default) or `fs.Ray(hosts, address)`; the bits are the same  |
    | `resume`           | take up the unfinished run in `out`                                                    |
    | `checkpoint_every` | rounds, or seconds as in "60s": how often `out` is made resumable                      |
    | `compute`          | "skip": the timeline alone, nothing is learnt                                          |
    | `clock`            | "auto", "simpy" or "compiled"; the bits are the same                                   |
    | `observers`        | functions that see every round's progress                                              |
    | `stop`             | a threading.Event; once set, the round is finished, a checkpoint kept, Interrupted raised |
    | `source`           | where the scenario came from, for the manifest                                         |

    Where a figure says less than it seems, an `errors.ResultWarning` says so, and `result.manifest["warnings"]`.
    """
    if isinstance(scenario, protocols.Executable):
        result: Result = scenario.execute(**options)
    else:
        job = arun(scenario, **options)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            result = asyncio.run(job)
        else:
            result = _in_another_thread(job)
    if options.get("source") is None:  # a scenario file's run is told of by whoever started it
        for doubt in result.manifest.get("warnings", ()):
            warnings.warn(doubt, ResultWarning, stacklevel=2)
    return result


async def arun(
    scenario: Scenario, *, runtime: protocols.Runtime | None = None, out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int | str | None = None, compute: str = "run", observers: Iterable[Any] = (),
    progress: bool = False, stop: threading.Event | None = None, source: dict[str, Any] | None = None,
    clock: str = "auto",
) -> Result:  # fmt: skip
    """`run` for those who already have an event loop.

    `out` leaves the result as a folder; `checkpoint_every` (rounds, or "60s") keeps it resumable on the way,
    and `resume` takes it up where it was left. `compute="skip"` gives the timeline alone. Setting `stop`
    finishes the round, writes a checkpoint and raises Interrupted. `source` says where the scenario came from,
    for the manifest. `progress=True` shows how far it is. `clock` names the virtual clock; results do not depend on it.
    """
    from fedsim import engine

    if isinstance(scenario, protocols.Executable):
        given = {
            "runtime": runtime, "out": out, "resume": resume, "checkpoint_every": checkpoint_every, "compute": compute,
            "observers": observers, "progress": progress, "stop": stop, "source": source, "clock": clock,
        }  # fmt: skip
        return await asyncio.to_thread(partial(run, scenario, **given))
    if not isinstance(scenario, Scenario):
        raise InvalidInput(f"run({short_repr(scenario)}): give it a fs.Scenario")
    check_choice("compute={!r}", compute, ("run", "skip"), "'run', or 'skip' for the timeline alone")
    check_choice("clock={!r}", clock, ("auto", "simpy", "compiled"))
    watching = tuple(observers) if isinstance(observers, tuple | list) else ()
    if (observers is not None and not isinstance(observers, tuple | list)) or not all(map(callable, watching)):
        raise InvalidInput(f"observers={short_repr(observers)}: give a list of functions of what happens")
    if stop is not None and not isinstance(stop, threading.Event):
        raise InvalidInput(f"stop={short_repr(stop)}: give a threading.Event, or None")
    runtime = runtime if runtime is not None else Inline()
    if isinstance(runtime, type) or protocols.missing(runtime, protocols.Runtime):
        raise InvalidInput(f"runtime={short_repr(runtime)}: write fs.Inline() or fs.Ray()")
    resume = check_bool("resume={}", resume)
    check_memory(scenario, compute == "skip")
    began = time.perf_counter()
    place = RunFolder.take(out, scenario, compute, checkpoint_every, resume, stop, source, clock)
    if place.whole is not None:
        return place.whole
    try:
        runtime.kernels()  # loads every BLAS there is, before they are held to one thread
        with one_blas_thread(), rare_collections(), followed(scenario.budget, progress) as watch:
            parts = scenario, runtime, (*watching, *watch), compute == "skip", place.checkpoints
            done = await engine.simulate(*parts, place.checkpoints.clock_of(clock))
        manifest = {"source": source or {}, "resumed": place.note, **({"work": place.work} if place.work else {})}
        result = engine.collect(done, runtime, time.perf_counter() - began, manifest)
        place.finish(result)
    finally:
        place.release()
    return result


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

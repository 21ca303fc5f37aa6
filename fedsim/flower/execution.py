"""Execute a Flower app on the virtual clock: from its folder to an ordinary result."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim import problems
from fedsim.algorithms import FedAvg
from fedsim.analysis import timeline
from fedsim.budget import Budget
from fedsim.checks import check_int
from fedsim.engine.checkpoint import Checkpointer
from fedsim.engine.manifest import described
from fedsim.engine.run import Progress
from fedsim.engine.system import System, setting_of
from fedsim.errors import FedsimError, InvalidInput
from fedsim.flower import installed
from fedsim.flower.node_ids import FIRST, NodeIds, mixed
from fedsim.flower.process_state import restored, seeded
from fedsim.flower.virtual_time import REAL, replaced_time, use_timekeeper
from fedsim.kernels import backend
from fedsim.results import Result, cpu_features, versions
from fedsim.running import DEFAULTS, RunOptions
from fedsim.running.folder import RunFolder
from fedsim.runtime.process import blas_kernels, one_blas_thread
from fedsim.scenario import Scenario
from fedsim.text import plural

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import ServerApp

    from fedsim.flower.app import App
    from fedsim.flower.grid import Grid
    from fedsim.flower.loading import Description
    from fedsim.protocols import Runtime


def simulate(
    app: App, *, out: str | Path | None = None, resume: bool = False, checkpoint_every: int | str | None = None,
    runtime: Runtime | None = None, stop: threading.Event | None = None, source: dict[str, Any] | None = None,
    observers: Iterable[Callable[[Progress], None]] = (),
) -> Result:  # fmt: skip
    """Run an app until its ServerApp returns."""
    installed.require()
    from fedsim.flower.loading import describe, sources

    began, description = REAL["perf_counter"](), describe(app.app, app.set)
    nodes = app.nodes if app.nodes is not None else description.nodes
    if nodes is None:
        raise InvalidInput(f"{description.name} has no num-supernodes in its pyproject; give the number of nodes")
    system = system_of(app, check_int("nodes={}", nodes))
    app.work.check(app.devices)
    identity = AppIdentity(app, description.settings, installed.version() or "", sources(description.folder))
    options: RunOptions = {
        **DEFAULTS, "out": out, "resume": resume, "checkpoint_every": checkpoint_every, "stop": stop, "source": source,
        "clock": "simpy",
    }  # fmt: skip
    place = RunFolder.take(identity, options, None)  # type: ignore[arg-type]
    if place.result is not None:
        return place.result
    try:
        grid, digest = _execute(app, description, system, runtime, place.checkpoints, tuple(observers))
        manifest = _manifest(app, description, system, grid, digest, runtime)
        manifest |= {"real_s": REAL["perf_counter"]() - began, "source": source or {}, "resumed": place.note}
        if place.work:
            manifest["work"] = place.work
        result = _result(system, grid, manifest)
        place.finish(result)
    finally:
        place.release()
    return result


@dataclass(frozen=True)
class AppIdentity:
    """What makes two runs the same."""

    app: App
    settings: dict[str, Any]
    flwr: str
    sources: dict[str, str]


def system_of(app: App, nodes: int) -> System:
    """Return the network and the devices as a clock reads them, checked as those of any scenario."""
    scenario = Scenario(
        problem=problems.Payload(nodes, 1), algorithm=FedAvg(step_size=1.0), budget=Budget(rounds=1),
        network=app.network, devices=app.devices, seed=app.seed,
    )  # fmt: skip
    return System(scenario, setting_of(scenario, backend("numpy")), timing_only=True)


def _execute(
    app: App, description: Description, system: System, runtime: Runtime | None, checkpoints: Checkpointer,
    observers: tuple[Callable[[Progress], None], ...],
) -> tuple[Grid, str]:  # fmt: skip
    """Load the app and call its ServerApp; afterwards the process is as it was."""
    with restored(description.folder):
        # Before the app is imported: a name that it imports from `time` is the replaced function.
        from fedsim.flower import flwr_names as flwr
        from fedsim.flower.grid import Grid
        from fedsim.flower.in_flight import Nodes
        from fedsim.flower.legacy import without_threads
        from fedsim.flower.loading import load
        from fedsim.flower.nodes import ClientCaller
        from fedsim.flower.recorded import Recorded
        from fedsim.flower.runtimes import executor_of

        with replaced_time(), seeded("server", app.seed):
            server_app, client_app = load(app.app, description)
            run_id = mixed(app.seed) | FIRST
            caller = ClientCaller(client_app, run_id, description.settings, app.seed, app.work.counts)
            with one_blas_thread(), executor_of(runtime, caller, description) as executor:
                nodes = Nodes(
                    system=system, ids=NodeIds(app.seed, system.population),
                    config=partial(app.config_of, nodes=system.population), executor=executor, caller=caller,
                    work=app.work, codec=app.codec, strict=app.strict, recorded=Recorded(checkpoints),
                )  # fmt: skip
                grid = Grid(nodes, flwr.Run.create_empty(run_id), observers)
                context = flwr.Context(
                    run_id=run_id, node_id=flwr.SUPERLINK, node_config={}, state=flwr.RecordDict(),
                    run_config=dict(description.settings),
                )  # fmt: skip
                with flwr.task_identity(run_id), seeded("server", app.seed), without_threads(context):
                    _call(server_app, grid, context)
                return grid, grid.finish()


def _call(server_app: ServerApp, grid: Grid, context: Context) -> None:
    try:
        with use_timekeeper(grid):
            server_app(grid=grid, context=context)
    except (Exception, SystemExit) as error:
        if grid.failure is not None or isinstance(error, FedsimError):
            raise grid.failure or error from None
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise InvalidInput(
            f"the ServerApp raised {type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno}), after "
            f"{plural(len(grid.rows), 'round')} and {grid.clock.now_s:g} virtual seconds"
        ) from error


def _manifest(
    app: App, description: Description, system: System, grid: Grid, digest: str, runtime: Runtime | None
) -> dict[str, Any]:  # fmt: skip
    failures = [str(failure) for failure in grid.visits.failures]
    warnings = []
    if failures:
        warnings.append(f"{plural(len(failures), 'call')} of the ClientApp raised, the first at {failures[0]}")
    network = system.scenario.parts.network
    return {
        "format": 1,
        "scenario": {
            "type": "App", "problem": {"type": "Flower app"}, "algorithm": {"type": description.name},
            "network": described(app.network), "devices": described(app.devices), "participation": None,
            "budget": None, "seed": app.seed, "settings": description.settings, "work": described(app.work),
            "codec": described(app.codec),
        },
        "runtime": described(runtime),
        "network": None if network is None else network.sketch(),
        "clock": {
            "network": app.network is not None, "compute": app.devices is not None, "asynchronous": False,
            "name": "simpy", "path": "loop", "reason": "a Flower app",
        },
        "flower": {
            "flwr": installed.version(), "nodes": system.population, "digest": digest, "failures": failures,
            "work": app.work.finish(),
        },
        "versions": versions(), "cpu_features": cpu_features(), "blas_kernels": blas_kernels(),
        "sites": {"count": 1, "weights": [1.0]}, "judged": {}, "warnings": warnings,
    }  # fmt: skip


def _result(system: System, grid: Grid, manifest: dict[str, Any]) -> Result:
    import pandas as pd

    from fedsim.flower.rows import tables_of

    tables = tables_of(grid.rows, system)
    result = Result(
        samples=None, sample_rounds=np.zeros(0, np.int64), lengths=np.zeros(1, np.int64),
        stopped_by=("the ServerApp returned",), rounds=pd.DataFrame(tables.rounds),
        metrics=pd.DataFrame(tables.metrics),
        clients=pd.DataFrame(tables.clients), events=pd.DataFrame(tables.events), manifest=manifest,
    )  # fmt: skip
    visits = timeline.visits(result)
    extra = {name: values for name, values in tables.visits.items() if name not in ("client", "round", "visit")}
    return replace(result, visits=visits.assign(**extra))

"""Run a Flower app on the virtual clock: from its folder to an ordinary result."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
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
from fedsim.flower.process_state import restored, seeded
from fedsim.flower.virtual_time import REAL, replaced_time, use_timekeeper
from fedsim.flower.work import WorkModel, examples
from fedsim.kernels import backend
from fedsim.protocols import Codec, Describes, missing
from fedsim.results import Result, cpu_features, versions
from fedsim.running import DEFAULTS, RunOptions
from fedsim.running import run as execute
from fedsim.running.folder import RunFolder
from fedsim.running.progress import progress_observers
from fedsim.runtime.process import blas_kernels, one_blas_thread
from fedsim.scenario import Scenario
from fedsim.text import call_of, plural, short_repr

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import ServerApp

    from fedsim.flower.grid import Grid
    from fedsim.flower.loading import Description
    from fedsim.protocols import DevicesLike, NetworkLike

GOLDEN, MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


@dataclass(frozen=True, eq=False)
class App:
    """A Flower app with its nodes, network and devices.

    | field         | meaning                                                                                          |
    |---------------|--------------------------------------------------------------------------------------------------|
    | `app`         | the app's folder, or (server_app, client_app)                                                    |
    | `nodes`       | how many nodes there are; None: the app's num-supernodes                                         |
    | `network`     | `fs.topologies.star(...)` or `fs.Network(graph)`; None: messages take no time                    |
    | `devices`     | `fs.devices.lognormal(...)` or the like; None: computing takes no time, no node drops out        |
    | `work`        | how much a visit computes: `fs.flower.examples()` (default), `flops`, `declared`, `measured`     |
    | `set`         | settings of the app, as `flwr run --run-config`                                                  |
    | `node_config` | what a node's config has besides partition-id and num-partitions: a dict, or a function of i     |
    | `codec`       | a codec for the arrays of replies, `fs.codecs.QSGD(16)`; None: as the app sends them             |
    | `seed`        | of all random numbers; equal seeds give equal results                                            |
    | `strict`      | True: a ClientApp that raises ends the run; False: it is an error reply, as in Flower            |
    """

    app: Any
    nodes: int | None = None
    network: NetworkLike | None = None
    devices: DevicesLike | None = None
    work: Any = field(default_factory=examples)
    set: Mapping[str, Any] = field(default_factory=dict)
    node_config: Mapping[str, Any] | Callable[[int], Mapping[str, Any]] | None = None
    codec: Any = None
    seed: int = 0
    strict: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.app, str | Path | tuple):
            raise InvalidInput(f"flower: app={short_repr(self.app)}; give a folder, or (server_app, client_app)")
        if not isinstance(self.work, WorkModel):
            raise InvalidInput(
                f"work={short_repr(self.work)}: write fs.flower.examples(), flops(), declared or measured"
            )
        if not (self.node_config is None or callable(self.node_config) or isinstance(self.node_config, Mapping)):
            raise InvalidInput(f"node_config={short_repr(self.node_config)}: give a dict, or a function of i")
        if self.codec is not None and missing(self.codec, Codec):
            raise InvalidInput(f"codec={short_repr(self.codec)}: write fs.codecs.QSGD(16) or the like")

    def config_of(self, client: int, nodes: int) -> dict[str, Any]:
        """Return a node's config."""
        own = self.node_config(client) if callable(self.node_config) else self.node_config
        return {"partition-id": client, "num-partitions": nodes, **(own or {})}

    @property
    def budget(self) -> Budget:
        """A limit that no app reaches: it has no messages between sites, and ends when its ServerApp returns."""
        return Budget(backhaul_bits=1)

    def execute(
        self, *, timing_only: bool = False, clock: str = "auto", observers: Iterable[Any] = (), progress: bool = False,
        **options: Any,
    ) -> Result:  # fmt: skip
        """Run the app with the options of `fs.run`."""
        if timing_only:
            raise InvalidInput("timing_only=True: a Flower app decides by its replies what to send; remove it")
        if clock not in ("auto", "simpy"):
            raise InvalidInput(f"clock={clock!r}: Flower apps run on the SimPy clock; remove it, or use 'simpy'")
        with progress_observers(self.budget, progress) as bars:
            return simulate(self, observers=(*observers, *bars), **options)

    def header(self) -> tuple[str, dict[str, str]]:
        """Return what is printed before the run."""
        nodes = "" if self.nodes is None else f"{plural(self.nodes, 'node')}, "
        title = f"Flower app {self.app if isinstance(self.app, str | Path) else ''}, {nodes}seed {self.seed}"
        facts = {
            "network": _described(self.network, "none: messages take no time"),
            "devices": _described(self.devices, "none: computing takes no time, and no node drops out"),
            "work": call_of(self.work),
        }
        return title, facts | ({} if self.codec is None else {"codec": call_of(self.codec)})


def _described(part: Any, nothing: str) -> str:
    return nothing if part is None else str(part.describe()) if isinstance(part, Describes) else call_of(part)


def run(
    app: Any, *, nodes: int | None = None, network: NetworkLike | None = None, devices: DevicesLike | None = None,
    work: Any = None, set: Mapping[str, Any] | None = None, node_config: Any = None, codec: Any = None, seed: int = 0,
    strict: bool = False, **options: Any,
) -> Result:  # fmt: skip
    """Run a Flower app, unmodified, on the virtual clock. The arguments are the fields of `App`.

    Further options, as of `fs.run`: `out`, `resume`, `checkpoint_every`, `runtime`, `stop`.
    """
    made = App(
        app, nodes, network, devices, examples() if work is None else work, {} if set is None else set, node_config,
        codec, seed, strict,
    )  # fmt: skip
    return execute(made, **options)  # type: ignore[arg-type]


def simulate(
    app: App, *, out: str | Path | None = None, resume: bool = False, checkpoint_every: int | str | None = None,
    runtime: Any = None, stop: threading.Event | None = None, source: dict[str, Any] | None = None,
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
    place = RunFolder.take(identity, options)  # type: ignore[arg-type]
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


def node_ids(seed: int, nodes: int) -> list[int]:
    """Return ids that differ and have one length on the wire: those of SplitMix64 in [2**62, 2**63)."""
    found: list[int] = []
    at = _mixed(seed)
    while len(found) < nodes:
        x = np.uint64(at) + np.arange(1, 4 * nodes + 1, dtype=np.uint64) * np.uint64(GOLDEN)
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        found += x[x >> np.uint64(62) == 1].tolist()
        at = (at + 4 * nodes * GOLDEN) & MASK
    return found[:nodes]


def _mixed(seed: int) -> int:
    """Return 64 bits of a seed."""
    return int.from_bytes(blake2b(seed.to_bytes(8, "little"), digest_size=8).digest(), "little")


def _execute(
    app: App, description: Description, system: System, runtime: Any, checkpoints: Checkpointer,
    observers: tuple[Callable[[Progress], None], ...],
) -> tuple[Grid, str]:  # fmt: skip
    """Load the app and call its ServerApp; afterwards the process is as it was."""
    with restored(description.folder):
        # Before the app is imported: a name that it imports from `time` is the replaced function.
        from fedsim.flower import flwr_names as flwr
        from fedsim.flower.grid import Grid, Setup
        from fedsim.flower.loading import load
        from fedsim.flower.nodes import ClientCaller
        from fedsim.flower.recorded import Recorded
        from fedsim.flower.runtimes import executor_of

        with replaced_time(), seeded("server", app.seed):
            server_app, client_app = load(app.app, description)
            run_id = _mixed(app.seed) >> 2 | 1 << 62
            caller = ClientCaller(client_app, run_id, description.settings, app.seed, app.work.counts)
            recorded = Recorded(checkpoints)
            ids = node_ids(app.seed, system.population)
            with one_blas_thread(), executor_of(runtime, caller, description) as executor:
                grid = Grid(
                    Setup(
                        system=system, node_ids=ids, node_config=partial(app.config_of, nodes=len(ids)),
                        executor=executor, caller=caller, work=app.work, codec=app.codec, strict=app.strict,
                        run=flwr.Run.create_empty(run_id), recorded=recorded, observers=observers,
                    )
                )  # fmt: skip
                context = flwr.Context(
                    run_id=run_id, node_id=flwr.SUPERLINK, node_config={}, state=flwr.RecordDict(),
                    run_config=dict(description.settings),
                )  # fmt: skip
                with flwr.task_identity(run_id), seeded("server", app.seed):
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
    app: App, description: Description, system: System, grid: Grid, digest: str, runtime: Any
) -> dict[str, Any]:  # fmt: skip
    failures = [str(failure) for failure in grid.failures]
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

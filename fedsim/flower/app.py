"""A Flower app with its nodes, network and devices: `fs.flower.App`, and `fs.flower.run`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsim.budget import Budget
from fedsim.errors import InvalidInput
from fedsim.flower.execution import simulate
from fedsim.flower.work import WorkModel, examples
from fedsim.protocols import Codec, Describes, missing
from fedsim.results import Result
from fedsim.running import run as execute
from fedsim.running.progress import progress_observers
from fedsim.text import call_of, plural, short_repr

if TYPE_CHECKING:
    from fedsim.flower.loading import AppSource
    from fedsim.protocols import DevicesLike, NetworkLike


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

    app: AppSource
    nodes: int | None = None
    network: NetworkLike | None = None
    devices: DevicesLike | None = None
    work: WorkModel = field(default_factory=examples)
    set: Mapping[str, Any] = field(default_factory=dict)
    node_config: Mapping[str, Any] | Callable[[int], Mapping[str, Any]] | None = None
    codec: Codec | None = None
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


def _described(part: object, nothing: str) -> str:
    return nothing if part is None else str(part.describe()) if isinstance(part, Describes) else call_of(part)


def run(
    app: AppSource, *, nodes: int | None = None, network: NetworkLike | None = None,
    devices: DevicesLike | None = None, work: WorkModel | None = None, set: Mapping[str, Any] | None = None,
    node_config: Mapping[str, Any] | Callable[[int], Mapping[str, Any]] | None = None, codec: Codec | None = None,
    seed: int = 0, strict: bool = False, **options: Any,
) -> Result:  # fmt: skip
    """Run a Flower app, unmodified, on the virtual clock. The arguments are the fields of `App`.

    Further options, as of `fs.run`: `out`, `resume`, `checkpoint_every`, `runtime`, `stop`.
    """
    made = App(
        app, nodes, network, devices, examples() if work is None else work, {} if set is None else set, node_config,
        codec, seed, strict,
    )  # fmt: skip
    return execute(made, **options)  # type: ignore[arg-type]

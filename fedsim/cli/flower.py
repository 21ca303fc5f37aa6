"""`fedsim flower`: anyone's Flower app from its folder to the summary."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsim.analysis.summary import lines as summary_lines
from fedsim.cli.run import CHECKPOINT_EVERY, observed
from fedsim.cli.terminal import outputs, stop_signals
from fedsim.errors import CorruptData, InvalidInput
from fedsim.protocols import Runtime
from fedsim.settings import pairs
from fedsim.text import short_str, width, wrapped

WIDTH = 11


@dataclass(frozen=True)
class Arguments:
    """What the command line says about an app."""

    path: str
    nodes: int | None
    network: Path | None
    devices: Path | None
    settings: tuple[str, ...]
    seed: int

    def app(self) -> Any:
        """Return the app with its network and devices."""
        from fedsim import flower

        network = None if self.network is None else _network(self.network)
        nodes = self.nodes if self.nodes is not None or network is None else network.clients
        devices = None if self.devices is None else _devices(self.devices)
        values = {name: _value(text) for name, text in pairs(self.settings, "--set").items()}
        return flower.App(self.path, nodes=nodes, network=network, devices=devices, set=values, seed=self.seed)

    def source(self) -> dict[str, Any]:
        """Return what a resumed run needs, as JSON keeps it."""

        def absolute(path: Path | None) -> str | None:
            return None if path is None else str(path.absolute())

        return {
            "flower": {
                "path": str(Path(self.path).absolute()), "nodes": self.nodes, "network": absolute(self.network),
                "devices": absolute(self.devices), "settings": list(self.settings), "seed": self.seed,
            }
        }  # fmt: skip

    @classmethod
    def of(cls, source: dict[str, Any]) -> Arguments:
        """Return the arguments that a run was begun with."""
        try:
            given = source["flower"]
            network, devices = (None if given[name] is None else Path(given[name]) for name in ("network", "devices"))
            return cls(given["path"], given["nodes"], network, devices, tuple(given["settings"]), given["seed"])
        except (LookupError, TypeError) as error:
            raise CorruptData(f"the run's record of its Flower app is damaged: {error}") from None


def run(
    arguments: Arguments, *, out: Path | None, quiet: bool, runtime: Runtime, checkpoint_every: int | str | None = None
) -> None:  # fmt: skip
    """Run an app and print its summary."""
    if checkpoint_every is not None and out is None:
        raise InvalidInput("--checkpoint-every needs --out")
    every = CHECKPOINT_EVERY if checkpoint_every is None else checkpoint_every
    options = {"out": out, "checkpoint_every": every} if out is not None else {}
    after = "next: add --out DIR to keep tables and manifest" if out is None else f"next: fedsim report {out}"
    _run(arguments, quiet, runtime, after, **options)


def resume(folder: Path, facts: dict[str, Any], *, quiet: bool, runtime: Runtime) -> None:
    """Continue an app's run in its folder; no ClientApp is called twice."""
    arguments = Arguments.of(facts["source"])
    every = facts.get("checkpoint_every")
    _run(
        arguments, quiet, runtime, f"next: fedsim report {folder}", out=folder, resume=True, checkpoint_every=every
    )  # fmt: skip


def _run(arguments: Arguments, quiet: bool, runtime: Runtime, after: str, **options: Any) -> None:
    write, console = outputs(quiet)
    app = arguments.app()
    title, facts = app.header()
    lines = [title, *(f"{name:{WIDTH}}{text}" for name, text in facts.items())]
    write(*(piece for line in lines for piece in wrapped(line, width(), indent=WIDTH)))
    with stop_signals() as stop:
        result = observed(app, console, write, "", runtime=runtime, stop=stop, source=arguments.source(), **options)
    write("", *summary_lines(result, width()), after)


def _network(path: Path) -> Any:
    from fedsim.topologies import from_graphml

    return from_graphml(path)


def _devices(path: Path) -> Any:
    import pandas as pd

    from fedsim.devices import table

    try:
        frame = pd.read_csv(path)
    except FileNotFoundError:
        raise InvalidInput(f"--devices {path}: no such file") from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"--devices {path}: no CSV that can be read ({short_str(error)})") from None
    return table(frame)


def _value(text: str) -> Any:
    """Return a setting as TOML reads it, or the text itself."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float | str) else text

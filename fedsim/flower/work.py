"""Work models: how much a ClientApp computes in a visit, in units of the devices' time.

    examples    examples times epochs, as the reply's metrics and the settings say (the default)
    flops       floating-point operations, as torch counts them
    declared    the user's own function
    measured    processor seconds of this machine, written by the first run and read by later ones

Virtual time must not depend on this machine, so only `measured` looks at real time, and only in its first run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from fedsim.checks import check_path
from fedsim.errors import CorruptData, InvalidInput
from fedsim.results.files import write_atomic
from fedsim.text import short_repr

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict

    from fedsim.protocols import DevicesLike

NOTHING, FLOPS, SECONDS = "", "flops", "seconds"  # what is counted around the call of a ClientApp


@runtime_checkable
class WorkModel(Protocol):
    """What a visit's compute time is made of."""

    counts: str  # NOTHING, FLOPS or SECONDS

    def check(self, devices: DevicesLike | None) -> None:
        """Refuse devices whose unit of time the model cannot serve."""

    def work(self, message: Message, reply: Message, context: Context, counted: float) -> float:
        """Return the work of a visit; `counted` around the call."""

    def finish(self) -> str:
        """Write what later runs read; return a sentence for the manifest, "" for none."""


@dataclass(frozen=True)
class Examples:
    """`examples` times `epochs` to train, `examples` to evaluate or query."""

    examples: str = "num-examples"
    epochs: str | None = "local-epochs"
    counts = NOTHING

    def check(self, devices: DevicesLike | None) -> None:
        """Any devices will do."""

    def work(self, message: Message, reply: Message, context: Context, counted: float) -> float:
        kind = message.metadata.message_type
        found = _lookup(reply.content, (self.examples, self.examples.replace("-", "_")))
        if found is None:
            raise InvalidInput(
                f"a reply to a {kind} message has no metric {self.examples!r}, so its compute time is not known; "
                "add it to the reply's MetricRecord, or pass work=fs.flower.declared(...)"
            )
        if not kind.startswith("train") or self.epochs is None:
            return found
        epochs = _lookup(message.content, (self.epochs,))
        if epochs is None:
            epochs = context.run_config.get(self.epochs, 1)
        return found * float(epochs)

    def finish(self) -> str:
        return ""


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of torch, over the devices' floating-point speed."""

    counts = FLOPS
    _per_step: list[float] = field(default_factory=list, repr=False)

    def check(self, devices: DevicesLike | None) -> None:
        per_step = getattr(devices, "flops_per_step", None)
        if devices is not None and per_step is None:
            raise InvalidInput(
                "work=flops() needs devices with a floating-point speed; use "
                "fs.devices.from_flops(flops_per_step=1, flops_per_second=...)"
            )
        self._per_step[:] = [float(per_step or 1.0)]

    def work(self, message: Message, reply: Message, context: Context, counted: float) -> float:
        return counted / self._per_step[0]

    def finish(self) -> str:
        return ""


@dataclass(frozen=True)
class Declared:
    """Local steps by the user's function of the message, the reply and the node's context."""

    function: Callable[[Any, Any, Any], float]
    counts = NOTHING

    def check(self, devices: DevicesLike | None) -> None:
        """Any devices will do."""

    def work(self, message: Message, reply: Message, context: Context, counted: float) -> float:
        steps = self.function(message, reply, context)
        try:
            steps = float(steps)
        except (TypeError, ValueError):
            steps = -1.0
        if not 0 <= steps < float("inf"):
            raise InvalidInput("work=declared(fn): fn must return a number of local steps, 0 or more")
        return steps

    def finish(self) -> str:
        return ""


@dataclass(frozen=True)
class Measured:
    """Processor seconds by node class and message type; devices give the factor to this machine."""

    profile: Path
    node_class: Callable[[Mapping[str, Any]], str]
    counts = SECONDS
    _read: dict[str, float] = field(default_factory=dict, repr=False)
    _sums: dict[str, tuple[int, float]] = field(default_factory=dict, repr=False)

    def check(self, devices: DevicesLike | None) -> None:
        self._read.clear()
        self._sums.clear()
        if self.profile.exists():
            try:
                seconds = json.loads(self.profile.read_text(encoding="utf-8"))["seconds"]
                self._read.update({str(name): float(value) for name, value in seconds.items()})
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                raise CorruptData(
                    f"{self.profile} is no profile of work=measured(); remove it to measure again"
                ) from None

    def work(self, message: Message, reply: Message, context: Context, counted: float) -> float:
        name = f"{self.node_class(context.node_config)}/{message.metadata.message_type}"
        if not self._read:
            count, total = self._sums.get(name, (0, 0.0))
            self._sums[name] = count + 1, total + counted
            return counted
        if name not in self._read:
            raise InvalidInput(f"{self.profile} has no time of {name}; remove the file to measure again")
        return self._read[name]

    def finish(self) -> str:
        if self._read:
            return f"compute times read from {self.profile.name}"
        means = {name: total / count for name, (count, total) in sorted(self._sums.items())}
        write_atomic(self.profile, json.dumps({"seconds": means}, indent=1).encode())
        return f"compute times measured by this run and written to {self.profile.name}; another run reads them"


def examples(examples: str = "num-examples", *, epochs: str | None = "local-epochs") -> Examples:
    """Return the work model of metrics: the reply's `examples`, times the setting `epochs` to train."""
    return Examples(examples, epochs)


def flops() -> Flops:
    """Return the work model that counts torch's floating-point operations."""
    return Flops()


def declared(function: Callable[[Any, Any, Any], float]) -> Declared:
    """Return a work model from `function(message, reply, context)` in local steps."""
    if not callable(function):
        raise InvalidInput(f"declared({short_repr(function)}): give a function of message, reply and context")
    return Declared(function)


def measured(profile: str | Path, *, node_class: Callable[[Mapping[str, Any]], str] | None = None) -> Measured:
    """Return the work model that measures, or reads the file of an earlier run.

    `node_class(node_config)` names the class of a node; without it all nodes are of one class.
    """
    return Measured(Path(check_path("measured(profile)", profile)), node_class or _one_class)


def _one_class(node_config: Mapping[str, Any]) -> str:
    return "all"


def _lookup(content: RecordDict, names: tuple[str, ...]) -> float | None:
    """Return the first number of one of these names in a message's metrics or settings."""
    for record in (*content.metric_records.values(), *content.config_records.values()):
        for name in names:
            value = record.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
    return None

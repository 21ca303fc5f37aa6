"""Budgets: when a run stops. A round counts only if it closes within every budget; else it is discarded."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from fedsim.checks import check_float, check_int, check_positive
from fedsim.errors import InvalidInput
from fedsim.text import short_repr

CUMULATIVE = ("uplink_bits", "downlink_bits", "backhaul_bits", "total_bits", "seconds", "epsilon")


@dataclass(frozen=True)
class Target:
    """A level of a metric at which a run stops."""

    metric: str
    above: float | None = None
    below: float | None = None

    def __post_init__(self) -> None:
        name_of_metric = short_repr(self.metric).replace("{", "{{").replace("}", "}}")
        if not isinstance(self.metric, str):
            raise InvalidInput(f"Target({short_repr(self.metric)}): give the column of a metric, such as 'w2'")
        if (self.above is None) == (self.below is None):
            raise InvalidInput(f"Target({short_repr(self.metric)}): give exactly one of above= and below=")
        name, level = ("above", self.above) if self.below is None else ("below", self.below)
        object.__setattr__(self, name, check_float(f"Target({name_of_metric}, {name}={{}})", level))

    def reached(self, value: Any) -> Any:
        """Return whether `value` has reached the level; NaN has not."""
        return value >= self.above if self.above is not None else value <= self.below


@dataclass(frozen=True)
class Budget:
    """Limits of a run: the first that is reached stops the replica, and `stopped_by` names it."""

    rounds: int | None = None
    uplink_bits: float | None = None
    downlink_bits: float | None = None
    backhaul_bits: float | None = None  # between sites: edges and the cloud, or neighbours that gossip
    total_bits: float | None = None
    seconds: float | None = None
    epsilon: float | None = None
    target: Target | None = None

    def __post_init__(self) -> None:
        if all(getattr(self, f.name) is None for f in fields(self)):
            raise InvalidInput("Budget(): the run would never stop; give at least rounds=")
        if self.rounds is not None:
            object.__setattr__(self, "rounds", check_int("Budget(rounds={})", self.rounds))
        for name in CUMULATIVE:
            if getattr(self, name) is not None:
                limit = check_positive(f"Budget({name}={{}})", getattr(self, name))
                if type(getattr(self, name)) not in (int, float):
                    object.__setattr__(self, name, limit)
        if self.target is not None and not isinstance(self.target, Target):
            raise InvalidInput(
                f"Budget(target={short_repr(self.target)}): write fs.Target('w2', below=1e-3) or "
                "fs.Target('accuracy', above=.83)"
            )

    @property
    def limits(self) -> dict[str, float]:
        """The limits on quantities that add up from round to round, by name."""
        return {name: limit for name in CUMULATIVE if (limit := getattr(self, name)) is not None}

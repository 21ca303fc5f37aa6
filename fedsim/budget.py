"""When to stop. A round counts only if it closes within every budget; the crossing round is discarded whole."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from fedsim.checks import check_float, check_int, check_positive
from fedsim.errors import InvalidInput
from fedsim.text import short_repr

ADDS_UP = ("uplink_bits", "downlink_bits", "backhaul_bits", "total_bits", "seconds", "epsilon")


@dataclass(frozen=True)
class Target:
    """Stop once a metric has reached a level."""

    metric: str
    above: float | None = None
    below: float | None = None

    def __post_init__(self) -> None:
        shown_metric = short_repr(self.metric).replace("{", "{{").replace("}", "}}")
        if not isinstance(self.metric, str):
            raise InvalidInput(f"Target({short_repr(self.metric)}): name a metric's column, such as 'w2'")
        if (self.above is None) == (self.below is None):
            raise InvalidInput(f"Target({short_repr(self.metric)}): give exactly one of above= and below=")
        name, level = ("above", self.above) if self.below is None else ("below", self.below)
        object.__setattr__(self, name, check_float(f"Target({shown_metric}, {name}={{}})", level))

    def reached(self, value: Any) -> Any:
        """Whether `value` is there; NaN is not."""
        return value >= self.above if self.above is not None else value <= self.below


@dataclass(frozen=True)
class Budget:
    """What may be spent: whichever runs out first stops the replica, and `stopped_by` says which."""

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
            raise InvalidInput("Budget(): nothing would ever stop the run; give at least rounds=")
        if self.rounds is not None:
            object.__setattr__(self, "rounds", check_int("Budget(rounds={})", self.rounds))
        for name in ADDS_UP:
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
        """What may be spent of what adds up from round to round, by name."""
        return {name: limit for name in ADDS_UP if (limit := getattr(self, name)) is not None}

"""Default values of the optional members of parts. No other module tests whether an object has such a member."""

from __future__ import annotations

import inspect
from functools import cache
from types import FunctionType, MethodType
from typing import Any, cast

from fedsim.protocols.algorithms import Algorithm
from fedsim.protocols.answers import has, member
from fedsim.protocols.devices import DeviceModel
from fedsim.protocols.metrics import Observer, ObserverOptions
from fedsim.protocols.network import NetworkModel
from fedsim.protocols.participation import Policy
from fedsim.protocols.problems import Problem
from fedsim.protocols.runtime import Session

FUSED = {  # compiled forms, and the members that they replace
    "fused": ("client",), "fused_rounds": ("client", "server", "broadcast", "weigh"),
}  # fmt: skip
DESCRIBED = {  # members that `to_columns` describes
    "policy": ("select", "close"), "devices": ("compute_s", "drop", "next_available", "available_until"),
    "network": ("route", "delay_s", "loss_factor", "bottleneck_bps"),
}  # fmt: skip


class WithDefaults:
    """A part with all members of its role; those that it lacks have the role's default."""

    def __init__(self, part: object, role: type) -> None:
        for name, default in members(role).items():
            value = member(part, name)
            if value is None and (callable(default) or not hasattr(part, name)):
                if isinstance(default, property):
                    assert default.fget is not None
                    value = default.fget(part)
                else:
                    value = MethodType(default, part) if isinstance(default, FunctionType) else default
            setattr(self, name, value)
        self.wrapped = part


def with_defaults(part: object, role: type) -> Any:
    """Return the part with all members of a role; a part that is wrapped already is returned unchanged."""
    return part if isinstance(part, WithDefaults) else WithDefaults(part, role)


def as_algorithm(part: object) -> Algorithm:
    """Return an algorithm with defaults; a class that overrides `client` or `server` loses inherited compiled forms."""
    if not isinstance(part, WithDefaults):
        made = WithDefaults(part, Algorithm)
        for form, names in FUSED.items():
            if _is_outdated(type(part), form, names):
                setattr(made, form, MethodType(members(Algorithm)[form], part))
        part = made
    return cast(Algorithm, part)


def as_problem(part: object) -> Problem:
    return cast(Problem, with_defaults(part, Problem))


def as_policy(part: object) -> Policy:
    return cast(Policy, with_defaults(part, Policy))


def as_devices(part: object) -> DeviceModel:
    return cast(DeviceModel, with_defaults(part, DeviceModel))


def as_network(part: object) -> NetworkModel:
    return cast(NetworkModel, with_defaults(part, NetworkModel))


def as_session(part: object) -> Session:
    return cast(Session, with_defaults(part, Session))


def is_sparse(observer: Observer) -> bool:
    return cast(ObserverOptions, with_defaults(observer, ObserverOptions)).sparse


def has_columns(part: object, role: str) -> bool:
    """Return True if no class overrides a member that an inherited `to_columns` describes."""
    return not _is_outdated(type(part), "to_columns", DESCRIBED[role])


def _is_outdated(kind: type, form: str, names: tuple[str, ...]) -> bool:
    """Return True if a class overrides one of these members but inherits the form that replaces them."""
    return any(_depth(kind, name) < _depth(kind, form) for name in names)


def _depth(kind: type, name: str) -> int:
    """Return the place among a class and its bases where a member is defined; their number where it is not."""
    return next((i for i, base in enumerate(kind.__mro__) if name in vars(base)), len(kind.__mro__))


def missing(part: object, required: type) -> str:
    """Return the first required member of a role that an object lacks; "" for none."""
    return next((name for name in members(required) if not has(part, name)), "")


@cache
def members(role: type) -> dict[str, Any]:
    """Return the members of a role, required ones first, with their defaults (None where there is none)."""
    found: dict[str, Any] = {}
    for base in reversed(role.__mro__):
        if base.__module__.startswith("fedsim.protocols."):
            own = {**dict.fromkeys(inspect.get_annotations(base)), **vars(base)}
            found |= {name: value for name, value in own.items() if not name.startswith("_")}
    return found

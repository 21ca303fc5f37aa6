"""From anybody's object to a part with every member of its role. Nothing else in fedsim asks what an object can do."""

from __future__ import annotations

import inspect
from functools import cache
from types import FunctionType, MethodType
from typing import Any, cast

from fedsim.protocols.algorithms import Algorithm
from fedsim.protocols.devices import DeviceModel
from fedsim.protocols.metrics import Observer, Watching
from fedsim.protocols.network import NetworkModel
from fedsim.protocols.participation import Policy
from fedsim.protocols.problems import Problem
from fedsim.protocols.runtime import Session


class WithDefaults:
    """A part with every member of its role: its own where it has one, else the role's default."""

    def __init__(self, own: object, role: type) -> None:
        for name, default in members(role).items():
            said = getattr(own, name, None)
            if said is not None or (hasattr(own, name) and not callable(default)):
                value = said
            elif isinstance(default, property):
                assert default.fget is not None
                value = default.fget(own)
            else:
                value = MethodType(default, own) if isinstance(default, FunctionType) else default
            setattr(self, name, value)
        self.wrapped = own


def as_algorithm(own: object) -> Algorithm:
    """A class that overrides `client` or `server` does not inherit its compiled form."""
    if isinstance(own, WithDefaults):
        return cast(Algorithm, own)
    made, kind = WithDefaults(own, Algorithm), type(own)
    for form, names in (("fused", ("client",)), ("fused_rounds", ("client", "server", "broadcast", "weigh"))):
        if any(_defined_at(kind, name) < _defined_at(kind, form) for name in names):
            setattr(made, form, MethodType(members(Algorithm)[form], own))
    return cast(Algorithm, made)


def _defined_at(kind: type, name: str) -> int:
    """How far up among its base classes a member is defined; past the last where it is not."""
    return next((i for i, base in enumerate(kind.__mro__) if name in vars(base)), len(kind.__mro__))


def as_problem(own: object) -> Problem:
    return cast(Problem, own if isinstance(own, WithDefaults) else WithDefaults(own, Problem))


def as_policy(own: object) -> Policy:
    return cast(Policy, own if isinstance(own, WithDefaults) else WithDefaults(own, Policy))


def as_devices(own: object) -> DeviceModel:
    return cast(DeviceModel, own if isinstance(own, WithDefaults) else WithDefaults(own, DeviceModel))


def as_network(own: object) -> NetworkModel:
    return cast(NetworkModel, own if isinstance(own, WithDefaults) else WithDefaults(own, NetworkModel))


def as_session(own: object) -> Session:
    return cast(Session, own if isinstance(own, WithDefaults) else WithDefaults(own, Session))


def is_sparse(observer: Observer) -> bool:
    return cast(Watching, WithDefaults(observer, Watching)).sparse


def missing(own: object, required: type) -> str:
    """The first member that a part of this role must have and this object lacks; "" for none."""
    return next((name for name in members(required) if not hasattr(own, name)), "")


@cache
def members(role: type) -> dict[str, Any]:
    """The members of a role, required ones first, with their defaults (None where there is none)."""
    found: dict[str, Any] = {}
    for base in reversed(role.__mro__):
        if base.__module__.startswith("fedsim.protocols."):
            own = {**dict.fromkeys(inspect.get_annotations(base)), **vars(base)}
            found |= {name: value for name, value in own.items() if not name.startswith("_")}
    return found

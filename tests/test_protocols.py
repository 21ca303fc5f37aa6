"""Roles are written down in one place, and nobody asks an object what it can do but that place."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import fedsim as fs
from fedsim import protocols

PACKAGE = Path(fs.__file__).parent
FILES = sorted(p.relative_to(PACKAGE) for p in PACKAGE.rglob("*.py") if "scenarios" not in p.parts)
ROLES = [c for _, c in inspect.getmembers(protocols, inspect.isclass) if getattr(c, "_is_protocol", False)]
MEMBERS = {name for role in ROLES for name in protocols.members(role)}
NOT_ROLES = {  # the same words about other things: a result's samples, an event loop's name, a frame's columns
    "name", "columns", "keys", "test", "clients", "weights", "size", "round", "replica", "client", "arrived", "selected",
}  # fmt: skip


def probes(path):
    """Calls of hasattr, or of getattr with a default, that name a member of some role."""
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) >= 2:
            asks = node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) == 3)
            word = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
            if asks and word in MEMBERS - NOT_ROLES:
                yield f"{path}:{node.lineno} asks for {word!r}"


@pytest.mark.parametrize("path", FILES, ids=str)
def test_nobody_probes_a_role_but_the_protocols(path):
    if path != Path("protocols/completing.py"):
        assert not list(probes(path))


def test_there_is_one_alias_for_arrays():
    using = [str(p) for p in FILES if "NDArray[Any]" in (PACKAGE / p).read_text()]
    assert using == ["arrays.py"]


def test_no_two_classes_have_one_name():
    found = defaultdict(list)
    for path in FILES:
        for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


@dataclass(frozen=True)
class Least:
    """An algorithm with what it must have and nothing else."""

    def init(self, problem, initial):
        return {"theta": initial}

    def broadcast(self, state):
        return state

    def work(self, job):
        return 1

    def client(self, job, message, memory):
        return {"theta": message["theta"] - 0.01 * job.gradient(message["theta"], 0)}, memory

    def server(self, state, replies, rng):
        return {"theta": replies.mean("theta")}


class Bare:
    def compute_s(self, clients, work, now_s, rng):
        return np.ones(len(clients))


def test_a_part_has_every_member_of_its_role_once_it_is_completed():
    role = protocols.as_algorithm(Least())
    assert role.memory(None) == {}
    assert (role.batched, role.sampler, role.reach, role.known, role.weigh) == (False, False, "selected", (), None)
    assert role.fused(None, None) is None
    assert role.own == Least()
    devices = protocols.as_devices(Bare())
    assert devices.reliable
    assert devices.always_available
    assert np.isinf(devices.available_until(np.arange(2), np.zeros(2), None)).all()


def test_what_a_class_says_itself_counts():
    policy = protocols.as_policy(fs.participation.uniform(3))
    assert policy.batched
    assert policy.undecided
    assert protocols.as_policy(policy) is policy


def test_the_least_algorithm_runs_and_passes_its_contract():
    assert fs.testing.check(Least())


@pytest.mark.parametrize("role", [r for r in ROLES if r.__name__.endswith("Like")])
def test_what_is_missing_is_named(role):
    assert protocols.missing(object(), role) in protocols.members(role)

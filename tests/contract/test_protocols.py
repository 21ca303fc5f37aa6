"""Roles are defined in one place, and only that place probes objects for optional members."""

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
def test_only_the_protocols_probe_for_members_of_a_role(path):
    if path != Path("protocols/defaults.py"):
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


def test_a_part_has_every_member_of_its_role_once_it_has_defaults():
    role = protocols.as_algorithm(Least())
    assert role.memory(None) == {}
    assert (role.batched, role.sampler, role.broadcast_to, role.known, role.weigh) == (
        False,
        False,
        "selected",
        (),
        None,
    )
    assert role.fused(None, None) is None
    assert role.wrapped == Least()
    devices = protocols.as_devices(Bare())
    assert devices.reliable
    assert devices.always_available
    assert np.isinf(devices.available_until(np.arange(2), np.zeros(2), None)).all()


def test_members_of_the_class_replace_defaults():
    policy = protocols.as_policy(fs.participation.uniform(3))
    assert policy.batched
    assert policy.weighting is None
    assert protocols.as_policy(policy) is policy


def test_the_least_algorithm_runs_and_passes_its_contract():
    assert fs.testing.check(Least())


@pytest.mark.parametrize("role", [r for r in ROLES if r.__name__.endswith("Like")])
def test_what_is_missing_is_named(role):
    assert protocols.missing(object(), role) in protocols.members(role)


def trees():
    return {str(path): ast.parse((PACKAGE / path).read_text()) for path in FILES}


def test_few_parameters_are_typed_any():
    """Where NumPy, LLVM or anybody's own value forces it; a role has a Protocol."""
    found = 0
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                a = node.args
                every = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
                found += sum(isinstance(x.annotation, ast.Name) and x.annotation.id == "Any" for x in every)
    assert found < 130


def test_algorithms_make_no_keys_and_read_nothing_private_of_a_job():
    for path, tree in trees().items():
        if path.startswith("algorithms/"):
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute):
                    at = f"{path}:{node.lineno}"
                    assert node.attr not in ("keys_into", "Stream"), at
                    private = node.attr.startswith("_") and not node.attr.startswith("__")
                    assert not private or not (isinstance(node.value, ast.Name) and node.value.id == "job"), at
                if isinstance(node, ast.ImportFrom):
                    assert node.module != "fedsim.rng", f"{path}:{node.lineno}"


def test_scenarios_and_algorithms_name_no_policy():
    policies = {"Full", "WithReplacement", "Uniform", "Bernoulli", "First", "Deadline", "Buffered"}
    for path, tree in trees().items():
        if path.startswith(("algorithms/", "scenario.py", "engine/")):
            names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
            names |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
            assert not names & policies, path


def test_backends_have_the_same_names_and_arguments():
    from fedsim.kernels import cpu, cuda, reference

    for name in protocols.members(protocols.Backend):
        forms = [getattr(backend, name) for backend in (reference, cpu, cuda)]
        if callable(forms[0]):
            asked = list(inspect.signature(getattr(protocols.Backend, name)).parameters)[1:]
            for form in forms:
                assert list(inspect.signature(form).parameters) == asked, (name, form)


def test_a_class_that_overrides_a_client_does_not_inherit_its_compiled_forms():
    class Still(fs.algorithms.FALD):
        def client(self, job, message, memory):
            return {"theta": message["theta"]}, memory

    class Further(fs.algorithms.FALD):
        def server(self, state, replies, rng):
            return {"theta": replies.mean("theta") + 1.0}

    problem = fs.problems.GaussianMean.synthetic(clients=3, dim=2, samples=4, seed=1)
    for kind, end in ((Still, 0.0), (Further, 4.0)):
        algorithm = kind(step_size=1e-9, local_steps=2, temperature=1e-12)
        assert np.allclose(fs.run(fs.Scenario(problem, algorithm, fs.Budget(rounds=4))).samples[-1], end, atol=1e-3)

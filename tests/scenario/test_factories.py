"""The arguments of a factory are the fields of what it makes, so that `--set participation.of=20` works."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

import fedsim as fs
from fedsim import devices, participation, topologies

MADE: dict[str, tuple[Any, dict[str, Any]]] = {  # a factory, and arguments to call it with
    "full": (participation.full, {}),
    "with_replacement": (participation.with_replacement, {"draws": 2}),
    "uniform": (participation.uniform, {"size": 2}),
    "bernoulli": (participation.bernoulli, {"probability": 0.5}),
    "first": (participation.first, {"k": 2}),
    "deadline": (participation.deadline, {"seconds": 1.0}),
    "buffered": (participation.buffered, {"k": 2}),
    "markov": (devices.markov, {"on_s": 1.0, "off_s": 2.0}),
    "diurnal": (devices.diurnal, {"period_s": 1.0, "on_fraction": 0.5}),
    "intervals": (devices.intervals, {"starts": [0.0], "ends": [1.0], "offsets": [0, 1]}),
    "lognormal_slowdown": (devices.lognormal_slowdown, {"sigma": 1.0}),
    "pareto_slowdown": (devices.pareto_slowdown, {"shape": 2.0}),
    "bimodal_slowdown": (devices.bimodal_slowdown, {"probability": 0.5, "slow_factor": 2.0}),
    "star": (topologies.star, {"clients": 3}),
    "tiers": (fs.exchanges.tiers, {}),
    "inverse_time": (fs.schedules.inverse_time, {"a": 1.0, "b": 1.0}),
    "per_round": (fs.schedules.per_round, {"eta0": 1.0, "every": 1.0}),
    "normal": (fs.initial.normal, {"scale": 1.0}),
    "spent": (fs.privacy.spent, {"delta": 1e-5}),
}
# These combine their arguments (a law of speed, a graph, a table) instead of storing them.
BUILDERS = {
    devices: {"constant", "lognormal", "from_flops", "table"},
    topologies: set(topologies.__all__) - {"star"},
    participation: set(),
}


@pytest.mark.parametrize("name", MADE)
def test_the_arguments_of_a_factory_are_the_fields_of_what_it_makes(name):
    factory, arguments = MADE[name]
    parameters = inspect.signature(factory).parameters
    fields = [f.name for f in dataclasses.fields(factory(**arguments)) if f.init]
    assert list(parameters) == fields
    kind = inspect.signature(type(factory(**arguments))).parameters
    assert {n: p.default for n, p in parameters.items()} == {n: kind[n].default for n in parameters}


@pytest.mark.parametrize("module", BUILDERS, ids=lambda module: module.__name__)
def test_no_factory_is_left_out(module):
    factories = {name for name in module.__all__ if inspect.isfunction(getattr(module, name))}
    assert factories == {name for name in MADE if hasattr(module, name)} | BUILDERS[module]


@pytest.mark.parametrize("module", BUILDERS, ids=lambda module: module.__name__)
def test_all_arguments_after_the_first_are_keyword_only(module):
    for name in module.__all__:
        made = getattr(module, name)
        if inspect.ismodule(made) or name == "from_graphml":
            continue
        later = list(inspect.signature(made).parameters.values())[1:]
        assert all(p.kind is p.KEYWORD_ONLY for p in later), name


def test_a_field_of_a_policy_is_set_by_its_name():
    assert dataclasses.replace(participation.first(2), of=20) == participation.first(2, of=20)

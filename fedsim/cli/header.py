"""What will run, before it runs."""

from __future__ import annotations

from typing import Any

from fedsim.analysis.units import called, many, policy, width, wrapped
from fedsim.engine.message_sizes import reply_shape
from fedsim.protocols import Describes, Runtime, as_algorithm, as_problem
from fedsim.scenario import Scenario

WIDTH = 11


def lines(name: str, scenario: Scenario, runtime: Runtime, runs: list[dict[str, Any]]) -> list[str]:
    """The header of one run, or of several that differ in the settings of a grid."""
    problem = scenario.problem
    title = (
        f"{name}: {type(scenario.algorithm).__name__}, {type(problem).__name__} d={problem.dim:,}, "
        f"{many(problem.clients, 'client')}, {many(len(scenario.replica_numbers), 'replica')}, "
        f"seed {scenario.seed}, {_described(runtime, 'inline')}"
    )
    facts = {
        "algorithm": called(scenario.algorithm),
        "network": _described(scenario.network, "none: messages take no time"),
        "devices": _described(scenario.devices, "none: computing takes no time, and nobody drops out"),
        "policy": f"{policy(scenario.participation)}     wire  {_wire(scenario)}",
        "budget": called(scenario.budget),
        **_settings(runs),
    }
    lines = [title, *(f"{key:{WIDTH}}{text}" for key, text in facts.items())]
    return [piece for line in lines for piece in wrapped(line, width(), indent=WIDTH)]


def _settings(runs: list[dict[str, Any]]) -> dict[str, str]:
    """What was set from outside, and in what several runs differ."""
    values = {name: list(dict.fromkeys(str(settings[name]) for settings in runs)) for name in runs[0]}
    fixed = [f"{name}={texts[0]}" for name, texts in values.items() if len(texts) == 1]
    axes = [f"{name} = {', '.join(texts)}" for name, texts in values.items() if len(texts) > 1]
    rows = {"set": ", ".join(fixed)} if fixed else {}
    return rows | ({"runs": f"{len(runs)}: {'; '.join(axes)} (the first is shown above)"} if axes else {})


def _described(part: object, nothing: str) -> str:
    if part is None:
        return nothing
    return str(part.describe()) if isinstance(part, Describes) else called(part)


def _wire(scenario: Scenario) -> str:
    import numpy as np

    algorithm, problem = as_algorithm(scenario.algorithm), as_problem(scenario.problem)
    state = algorithm.init(scenario.problem, scenario.start)
    size = reply_shape(algorithm, problem, state, np.dtype(scenario.dtype), 0).bits
    return f"{scenario.dtype}, " + ("bits up depend on the values" if size is None else f"{size:,} bits up")

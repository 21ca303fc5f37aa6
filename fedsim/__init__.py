"""fedsim: federated samplers and optimisers, really run, over a simulated network of slow and flaky clients.

    import fedsim as fs
    result = fs.run(fs.Scenario(problem=..., algorithm=..., budget=fs.Budget(rounds=200)))

Names load on first use, so that `import fedsim` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Budget": "fedsim.budget",
    "Inline": "fedsim.runtime.inline",
    "Network": "fedsim.network",
    "Ray": "fedsim.runtime.ray",
    "Record": "fedsim.engine.record",
    "Scenario": "fedsim.scenario",
    "Study": "fedsim.study",
    "Target": "fedsim.budget",
    "arun": "fedsim.scenario",
    "load": "fedsim.batch",
    "replay": "fedsim.one_job",
    "run": "fedsim.scenario",
    "sweep": "fedsim.batch",
}
_MODULES = (
    "algorithms",
    "codecs",
    "data",
    "devices",
    "errors",
    "metrics",
    "network",
    "participation",
    "privacy",
    "problems",
    "rng",
    "schedules",
    "testing",
    "topologies",
)

__all__ = sorted([*_HOME, *_MODULES])

if TYPE_CHECKING:
    from fedsim import algorithms, data, errors, metrics, participation, problems, rng, schedules, testing
    from fedsim.batch import load, sweep
    from fedsim.budget import Budget, Target
    from fedsim.engine.record import Record
    from fedsim.one_job import replay
    from fedsim.runtime.inline import Inline
    from fedsim.runtime.ray import Ray
    from fedsim.scenario import Scenario, arun, run
    from fedsim.study import Study


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _MODULES:
        return import_module(f"fedsim.{name}")
    raise AttributeError(f"module 'fedsim' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

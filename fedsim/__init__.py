"""fedsim: federated samplers and optimisers, really run, over a simulated network of slow and flaky clients.

    import fedsim as fs
    result = fs.run(fs.Scenario(problem=..., algorithm=..., budget=fs.Budget(rounds=200)))

Where to look: `help(fs.Scenario)` for what can be set, `help(fs.run)` for how it is run, `help(fs.algorithms.FALD)` and
the like for equations and arguments, `fs.explain("job")` for what an algorithm of your own sees (`replies` likewise,
and `view` for policies), `fs.explain("A5")` for a code that a docstring mentions, `fs.analysis` for pictures.

Names load on first use, so that `import fedsim` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0.dev2"

_HOME = {
    "Budget": "fedsim.budget",
    "Inline": "fedsim.runtime.inline",
    "Network": "fedsim.network",
    "Ray": "fedsim.runtime.ray",
    "Record": "fedsim.engine.recorder",
    "Result": "fedsim.results",
    "Scenario": "fedsim.scenario",
    "Study": "fedsim.sweeps.study",
    "Target": "fedsim.budget",
    "arun": "fedsim.running",
    "explain": "fedsim.docs",
    "load": "fedsim.sweeps",
    "plan": "fedsim.sweeps.tuner",
    "replay": "fedsim.running.replay",
    "run": "fedsim.running",
    "sweep": "fedsim.sweeps",
}
__all__ = [
    "Budget",
    "Inline",
    "Network",
    "Ray",
    "Record",
    "Result",
    "Scenario",
    "Study",
    "Target",
    "algorithms",
    "analysis",
    "arun",
    "codecs",
    "data",
    "devices",
    "errors",
    "exchanges",
    "explain",
    "initial",
    "load",
    "metrics",
    "network",
    "participation",
    "plan",
    "privacy",
    "problems",
    "protocols",
    "replay",
    "rng",
    "run",
    "schedules",
    "sweep",
    "testing",
    "topologies",
]
_MODULES = tuple(name for name in __all__ if name not in _HOME)

if TYPE_CHECKING:
    from fedsim import (
        algorithms,
        analysis,
        codecs,
        data,
        devices,
        errors,
        exchanges,
        initial,
        metrics,
        network,
        participation,
        privacy,
        problems,
        protocols,
        rng,
        schedules,
        testing,
        topologies,
    )
    from fedsim.budget import Budget, Target
    from fedsim.docs import explain
    from fedsim.engine.recorder import Record
    from fedsim.results import Result
    from fedsim.running import arun, run
    from fedsim.running.replay import replay
    from fedsim.runtime.inline import Inline
    from fedsim.runtime.ray import Ray
    from fedsim.scenario import Scenario
    from fedsim.sweeps import load, sweep
    from fedsim.sweeps.study import Study
    from fedsim.sweeps.tuner import plan


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _MODULES:
        return import_module(f"fedsim.{name}")
    raise AttributeError(f"module 'fedsim' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

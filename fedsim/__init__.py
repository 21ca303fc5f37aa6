"""Simulate federated learning and federated MCMC on realistic networks.

    import fedsim as fs
    result = fs.run(fs.Scenario(problem=..., algorithm=..., budget=fs.Budget(rounds=200)))

Where to look:

    fs.explain("first-run")        the page to read next; fs.explain() lists all pages of the manual
    help(fs.Scenario)              the parts of a scenario
    help(fs.run)                   the options of a run
    help(fs.algorithms.FALD)       equations and arguments of an algorithm
    fs.explain("algorithm")        an algorithm of your own; "policy", "network", "pytorch", "problem", "metric", ...
    fs.explain("A5")               a decision that a docstring cites
    fs.analysis                    figures and comparisons

Names load on first use, so that `import fedsim` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedsim import renamed

__version__ = "0.3.0"

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
    "replay": "fedsim.running.replay",
    "run": "fedsim.running",
    "sweep": "fedsim.sweeps",
    "tune": "fedsim.sweeps.tuner",
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
    "flower",
    "initial",
    "load",
    "metrics",
    "network",
    "participation",
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
    "tune",
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
    from fedsim.network import Network
    from fedsim.results import Result
    from fedsim.running import arun, run
    from fedsim.running.replay import replay
    from fedsim.runtime.inline import Inline
    from fedsim.runtime.ray import Ray
    from fedsim.scenario import Scenario
    from fedsim.sweeps import load, sweep
    from fedsim.sweeps.study import Study
    from fedsim.sweeps.tuner import tune


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _MODULES:
        return import_module(f"fedsim.{name}")
    removed = renamed.sentence(f"fs.{name}")
    raise AttributeError(removed or f"module 'fedsim' has no attribute {name!r}; choose among {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

"""Exchanges, starts, metrics, privacy and what reads results, with good arguments, for tests/strategies/hostile.py."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import networkx as nx
import numpy as np

import fedsim as fs

X = np.arange(24.0).reshape(12, 2) % 7
LABELS = np.arange(12) % 2
CHANCES = np.array([[0.2, 0.8], [0.6, 0.4]])


@functools.cache
def results() -> list[Any]:
    problem = fs.problems.GaussianMean([np.full((4, 2), c, float) for c in range(3)], np.eye(2))
    kinds = [fs.algorithms.FALD(step_size=1e-2, local_steps=steps) for steps in (1, 2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fs.errors.ResultWarning)
        return [fs.run(fs.Scenario(problem, a, fs.Budget(rounds=12), replicas=2, metrics=("w2",))) for a in kinds]


def rows() -> list[tuple[str, Any, str, dict[str, Any]]]:
    """Name, what is called, the product's place in a scenario ("" for none), and good arguments."""
    n, m, e, v = fs.analysis, fs.metrics, fs.exchanges, fs.privacy
    some = {"results": results(), "metric": "w2"}
    level = {"above": None, "below": 5.0}
    axis = {"against": "seconds"}
    spent = {
        "rounds": 5.0,
        "seconds": None,
        "uplink_bits": None,
        "downlink_bits": None,
        "backhaul_bits": None,
        "total_bits": None,
    }
    problem = fs.problems.LogisticRegression(
        [(X[i : i + 4], LABELS[i : i + 4]) for i in (0, 4, 8)], 1.0, test=(X, LABELS)
    )
    four = np.full(3, 4)
    mechanism = v.Mechanism(four, four // 2, np.ones(3), lambda _: np.ones(2), True)
    promise = v.Guarantee(1.0, 1e-5, 1.0, True)
    return [
        ("at_budget", n.at_budget, "", some | spent),
        ("bits_to", n.bits_to, "", some | level | {"bits": "uplink_bits"}),
        ("time_to", n.time_to, "", some | level | axis),
        ("compare", n.compare, "", {"a": results()[0], "b": results()[1], "metric": "w2"} | level | axis),
        ("deadline of results", n.meets_deadline, "", some | level | {"seconds": 3.0}),
        ("ess_rates", n.ess_rates, "", {"results": results()}),
        ("fairness", n.fairness, "", {"results": results()}),
        ("waste", n.waste, "", {"results": results()}),
        ("pareto", n.pareto, "", some | {"among": ("uplink_bits", "seconds"), "higher_is_better": None}),
        ("u_curve", n.u_curve, "", some | level | {"parameter": "local_steps", "against": "rounds"}),
        ("gossip", e.gossip, "", {"graph": nx.cycle_graph(3), "mixing": "metropolis"}),
        ("tiers", e.tiers, "exchange", {"groups": None, "every": 2, "cloud": None}),
        ("explain", fs.explain, "", {"topic": "A5"}),
        ("initial.normal", fs.initial.normal, "initial", {"scale": 1.0, "centre": None}),
        ("accuracy_curve", m.accuracy_curve, "", {"p": CHANCES, "y": [1, 0], "thresholds": [0.5, 0.7]}),
        ("outside_accuracy", m.outside_accuracy, "", {"inside": X[:, 0] / 7, "outside": X[:, 1] / 7}),
        ("predictions", m.predictions, "", {"result": results()[0], "problem": problem}),
        ("predictive", m.predictive, "", {"of": None}),
        ("ess_per_megabit", m.ess_per_megabit, "metric", {"bits": "uplink_bits", "name": "rate"}),
        ("ess_per_second", m.ess_per_second, "metric", {"name": "rate"}),
        ("epsilons", v.epsilons, "", {"mechanism": mechanism, "visits": [1, 2, 3], "delta": 1e-5}),
        ("privacy.compare", v.compare, "", {"paper": promise, "mechanism": mechanism, "visits": 2}),
        ("draw_gossip", fs.network.draw_gossip, "", {"graph": nx.cycle_graph(3), "ax": None}),
        ("FSGLD.laplace", fs.algorithms.FSGLD.laplace, "", {"problem": problem, "step_size": 1e-3, "local_steps": 2, "diagonal": False}),
        ("tune", fs.tune, "", {"file": "nowhere.py", "grid": {"a": [1]}, "goal": "w2 < 1", "minimize": "seconds", "limits": None, "out": None, "settings": None, "seeds": 3, "jobs": 1, "runtime": None, "observers": (), "log": None, "stop": None}),
        ("testing.check", fs.testing.check, "", {"subject": fs.algorithms.FALD(step_size=1e-3), "problem": None}),
    ]  # fmt: skip

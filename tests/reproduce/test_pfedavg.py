"""The exact moments of P-FedAvg's figures against runs, whose moments they must have."""

from __future__ import annotations

import numpy as np
import pytest

import fedsim as fs
from fedsim.scenario_file import load_names, scenarios_folder

NAMES = load_names(scenarios_folder() / "papers" / "p-fedavg" / "fig7.py")
REPLICAS, ROUNDS, E, K = 4000, 6, 3, 2


@pytest.mark.parametrize(
    ("scheme", "weights", "scaled"),
    [
        ("full", None, False),
        ("I", None, False),
        ("II", None, False),
        ("I", [0.6, 0.3, 0.1], False),
        ("II", [0.6, 0.3, 0.1], False),
        ("II", [0.6, 0.3, 0.1], True),
    ],
)
def test_the_exact_path_has_the_moments_of_the_runs(scheme: str, weights: list[float] | None, scaled: bool) -> None:
    problem = fs.problems.PerformativeMean([1.0, 4.0, -2.0], [0.2, 0.5, -0.4], 0.7, weights)
    chosen = {"full": fs.participation.full(), "I": fs.participation.with_replacement(K)}
    run = fs.run(
        fs.Scenario(
            problem=problem,
            algorithm=fs.algorithms.PFedAvg(
                step_size=fs.schedules.inverse_time(3, 10), local_steps=E, objective="scaled" if scaled else "mean"
            ),
            participation=chosen.get(scheme) or fs.participation.uniform(K),
            budget=fs.Budget(rounds=ROUNDS),
            initial=np.array([5.0]),
            record=fs.Record(every=ROUNDS),
            replicas=REPLICAS,
            seed=8,
        )
    )
    step = lambda t: 3 / (t + 10)  # noqa: E731
    exact = NAMES["path"](problem, step, E, ROUNDS, scheme, K, start=5.0, scaled=scaled)
    away = run.samples[-1, :, 0] - problem.performatively_stable()[0]
    spread = np.sqrt(exact.variance[-1, -1])
    assert abs(away.mean() - exact.mean[-1, -1]) < 5 * spread / np.sqrt(REPLICAS)
    assert abs(away.var() / exact.variance[-1, -1] - 1) < 0.2

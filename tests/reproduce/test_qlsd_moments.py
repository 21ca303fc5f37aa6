"""The exact moments behind QLSD's theorems, against runs and closed forms, and planted errors that they must show."""

from __future__ import annotations

import numpy as np
import pytest

import fedsim as fs
from fedsim.reproduce import figures
from fedsim.reproduce.figures import load_figure

THEOREMS = load_figure(*figures("qlsd/theorems")[0]).names
TABLE = load_figure(*figures("qlsd/figS5")[0]).names["_nets"]
Chain, Clients, T = THEOREMS["Chain"], THEOREMS["Clients"], 0
small, toy, limit, stationary = (THEOREMS[name] for name in ("small", "toy", "limit", "stationary"))


def test_uncompressed_control_variates_have_the_law_of_exact_gradients_on_the_toy() -> None:
    q, gamma = toy(), 1e-4
    expected = 1 / (q.m * (1 - gamma * q.m / 2))
    assert np.allclose(np.diag(stationary(Chain("star"), q, gamma)), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["sharp", "star", "plus"])
def test_moments_are_those_of_the_engine(kind: str) -> None:
    """Batches, two clients of four active on average and a control point, without compression."""
    draw = np.random.default_rng(4)
    rows = [draw.normal(size=(n, 1)) + c for n, c in ((4, 0.0), (6, 2.0), (9, -1.0), (5, 1.0))]
    made = fs.problems.GaussianMean(rows, np.eye(1))
    q = Clients.of(rows, [np.ones_like(x) for x in rows], 2)
    share = fs.participation.bernoulli(0.5)
    common = {"step_size": 0.01, "batch_size": 2}
    algorithm = {
        "sharp": lambda: fs.algorithms.QLSD(**common),
        "star": lambda: fs.algorithms.QLSDStar(**common),
        "plus": lambda: fs.algorithms.QLSDPlusPlus(**common, refresh_every=3, memory_rate=0.5),
    }[kind]()
    scenario = fs.Scenario(
        problem=made, algorithm=algorithm, participation=share, budget=fs.Budget(rounds=10), replicas=4000,
        initial=made.exact()[0] + 1.0, metrics=(), record=fs.Record(every=10), seed=3,
    )  # fmt: skip
    ran = fs.run(scenario).samples[-1, :, 0] - made.exact()[0]
    chain = Chain(kind, 0.0, 0.5, "count", alpha=0.5, refresh=3)
    *_, (S, _) = chain.path(q, np.ones(1), 0.01, 10)
    error = (ran**2).std() / np.sqrt(len(ran))
    assert abs((ran**2).mean() - S[0, T, T]) < 5 * error


def test_memories_that_divide_by_the_activity_grow_without_limit() -> None:
    q = small(1)
    ends = {}
    for memory in ("active", "inverse"):
        chain = Chain("plus", 1.0, 0.1, refresh=5, memory=memory)
        *_, (S, _) = chain.path(q, np.zeros(q.dim), limit(chain, q), 60)
        ends[memory] = S[:, 4, 4].max()
    assert ends["active"] < 1e4 < 1e20 < ends["inverse"]


def test_the_bounds_are_judged_on_paths_that_can_break_them(monkeypatch: pytest.MonkeyPatch) -> None:
    case = [(Chain("sharp", 1.0, 0.5), small(1), 1.0)]
    covered = THEOREMS["covered"]
    assert covered(case).verdict == "held"
    right = THEOREMS["right_side"]
    monkeypatch.setitem(covered.__globals__, "right_side", lambda *given: right(*given) / 1e4)
    assert covered(case).verdict == "not held"


def test_detection_needs_entropies_that_differ() -> None:
    certain, unsure = np.tile([0.99, 0.01], (50, 1)), np.tile([0.5, 0.5], (50, 1))
    assert TABLE.area(np.concatenate([certain, unsure])) == 1.0
    assert TABLE.area(np.concatenate([certain, certain])) == 0.5

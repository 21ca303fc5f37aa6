"""FA-HMC's exact moments, and the judges' own tests of tuned scores."""

from __future__ import annotations

import numpy as np
import pytest

from fedsim.algorithms.fahmc import leapfrog
from fedsim.reproduce import figures
from fedsim.reproduce.figures import load_figure

THEOREMS, FIG3 = (load_figure(*figures(f"fa-hmc/{name}")[0]) for name in ("theorems", "fig3"))
Gaussians, Rounds, Setting, needed, trajectory = (
    THEOREMS.names[name] for name in ("Gaussians", "Rounds", "Setting", "needed_constant", "trajectory")
)
Coupling, applied = (needed.__globals__[name] for name in ("Coupling", "applied"))
images = FIG3.names["_images"]
ETA, K, NOISE = 0.1, 5, 3.0


def _by_the_algorithm(h: float, m: float) -> tuple[float, float, float]:
    """Return a, b and the noise's variance of one trajectory, from its response to each input."""
    centre, draws = np.array([m]), 2 * K - 1

    def end(theta: float, p: float, noisy: int = -1, noise: float = 0.0) -> float:
        def gradient(x: np.ndarray, draw: int) -> np.ndarray:
            return np.asarray(h * (x - centre) + noise * (draw == noisy))

        return float(leapfrog(gradient, np.array([theta]), np.array([p]), ETA, K, True)[0])

    rest = end(m, 0.0)
    variance = sum((end(m, 0.0, draw, 1.0) - rest) ** 2 for draw in range(draws))
    return end(m + 1, 0.0) - rest, end(m, 1.0) - rest, NOISE * variance


def test_a_trajectory_is_that_of_the_algorithm() -> None:
    problem = Gaussians()
    log_a, b, v = trajectory(problem.h, ETA, K, NOISE)
    for c in range(2):
        assert (np.exp(log_a[c]), b[c], v[c]) == pytest.approx(_by_the_algorithm(problem.h[c], problem.m[c]), rel=1e-9)


@pytest.mark.parametrize(("T", "rho"), [(1, 0.0), (4, 0.3), (4, 1.0)])
def test_rounds_are_those_of_the_joint_recursion(T: int, rho: float) -> None:
    problem, rounds = Gaussians(clients=4), 6
    own = Rounds.of(problem, trajectory(problem.h, ETA, K, 0.25 * problem.large), T, rho, dim=3)
    joint = Coupling(problem, ETA, K, T, rho, sigma=0.5)
    mean, covariance = joint.start()
    for _ in range(rounds):
        mean, covariance = applied(joint.round, (mean, covariance))
    at, variance = problem.target
    expected = 3 * ((mean[0] - at) ** 2 + (np.sqrt(covariance[0, 0]) - np.sqrt(variance)) ** 2)
    assert own.squared_w2((1 - own.gone) ** rounds) == pytest.approx(expected, rel=1e-9)


def test_rounds_to_a_level_bring_w2_to_it() -> None:
    own = Setting(T=3, rho=0.5).rounds(np.array(0.01))
    level = 2 * own.limit()
    assert np.sqrt(own.squared_w2((1 - own.gone) ** own.rounds_to(level))) == pytest.approx(level, rel=1e-6)
    assert np.isinf(own.rounds_to(own.limit() / 2))


def test_a_step_that_is_too_long_in_T_is_rejected() -> None:
    drift = THEOREMS.names["no_drift"]
    assert {one.verdict for one in drift(Setting()).values()} == {"held"}
    assert drift(Setting(), "root of T")["1/C in T"].verdict == "not held"


def _scores(*means: float) -> dict[int, np.ndarray]:
    noise = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) * 1e-3
    return {k: mean + noise for k, mean in zip((1, 10, 50, 100), means, strict=True)}


def test_second_worst_is_better_than_exactly_one() -> None:
    def verdict(*means: float) -> str:
        return str(images.position(_scores(*means), "accuracy", 1, above=1).verdict)

    assert verdict(0.7, 0.8, 0.9, 0.6) == "held"
    assert verdict(0.5, 0.8, 0.9, 0.6) == "not held"  # the worst
    assert verdict(0.85, 0.8, 0.9, 0.6) == "not held"
    assert verdict(0.7, 0.7, 0.9, 0.6) == "inconclusive"
    assert verdict(0.7, 0.7, 0.7, 0.7) == "inconclusive"  # a method that does not matter


def test_statistics_differ_only_where_each_best_is_shown() -> None:
    a, b, tie = _scores(0.9, 0.8, 0.7, 0.6), _scores(0.6, 0.9, 0.7, 0.5), _scores(0.9, 0.9, 0.7, 0.6)
    assert images.differ({"accuracy": a, "brier": {k: -v for k, v in b.items()}}).verdict == "held"
    assert images.differ({"accuracy": a, "brier": {k: -v for k, v in a.items()}}).verdict == "not held"
    assert images.differ({"accuracy": a, "brier": {k: -v for k, v in tie.items()}}).verdict == "inconclusive"

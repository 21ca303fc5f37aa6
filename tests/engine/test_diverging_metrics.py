"""A run that diverges ends as NonFinite, with the round and a step size to try, also where a metric meets it first."""

from __future__ import annotations

import re

import networkx as nx
import numpy as np
import pytest

import fedsim as fs
from fedsim import algorithms, exchanges, metrics, participation
from fedsim.errors import InvalidInput, NonFinite

N, DIM = 4, 3
PROBLEM = fs.problems.GaussianMean.synthetic(clients=N, dim=DIM, heterogeneity=2.0, samples=12, seed=5)
RNG = np.random.default_rng(0)
ROWS = [(RNG.normal(size=(10, 4)), RNG.integers(0, 3, 10)) for _ in range(N)]
LINEAR = fs.problems.LinearRegression([(RNG.normal(size=(8, DIM)), RNG.normal(size=8)) for _ in range(N)])
TEST = (RNG.normal(size=(20, 4)), RNG.integers(0, 3, 20))


def diverging(**more):
    """Every local step multiplies theta by about -1e4: its square leaves float64 long before theta does."""
    more = {"replicas": 3, "seed": 1, "budget": fs.Budget(rounds=60)} | more
    return fs.Scenario(algorithm=algorithms.FALD(200.0, local_steps=2), **({"problem": PROBLEM} | more))


METRICS = {
    "w2": metrics.w2(),
    "w2 of the history": metrics.w2(over="history"),
    "mean_error": metrics.mean_error(),
    "covariance_error": metrics.covariance_error(),
    "rhat": metrics.rhat(),
    "ess": metrics.ess(),
    "loss": metrics.loss(),
    "consensus": metrics.consensus(),
    "distance_to": metrics.distance_to(np.zeros(DIM)),
    "marginal_error": metrics.marginal_error(RNG.normal(size=(50, DIM))),
    "mse": metrics.mse(lambda theta: (theta**2).sum(axis=1), 1.0),
}
SENTENCE = (
    r"^theta reaches (\S+) in round (\d+) and \S+ cannot be computed \(replica \d+, seed 1\); try step_size <= \S+$"
)
SQUARES = ("w2", "w2 of the history", "mean_error", "covariance_error", "distance_to", "mse")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("replicas", [3, 20])  # no more than coordinates, and more
@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("metric", METRICS)
def test_no_metric_fails_on_numbers_whose_square_is_not_finite(metric, every, replicas):
    problem = LINEAR if metric == "loss" else PROBLEM
    with pytest.raises(NonFinite) as error:
        fs.run(diverging(metrics=(METRICS[metric],), evaluate_every=every, problem=problem, replicas=replicas))
    if metric not in SQUARES:  # the run goes on until theta itself is not finite
        assert re.search(r"in round \d+ .*try step_size <= \S+$", str(error.value))
        return
    found = re.search(SENTENCE, str(error.value))
    assert found is not None, error.value
    assert 1e70 < float(found[1]) < np.inf
    assert int(found[2]) % every == 0


@pytest.mark.parametrize("chosen", [participation.full(), participation.uniform(3)])
def test_the_round_named_is_the_first_whose_figure_is_not_finite(chosen):
    with pytest.raises(NonFinite) as error:
        fs.run(diverging(metrics=("w2",), participation=chosen))
    number = int(re.search(SENTENCE, str(error.value))[2])
    before = fs.run(diverging(metrics=("w2",), participation=chosen, budget=fs.Budget(rounds=number - 1)))
    assert np.isfinite(before.metrics["w2"]).all()
    there = fs.run(diverging(participation=chosen, budget=fs.Budget(rounds=number)))  # without metrics it gets there
    assert np.isfinite(there.samples).all()
    with np.errstate(over="ignore"):
        assert not np.isfinite((there.samples[-1] ** 2).sum())


def test_over_gossip_the_client_is_named():
    scenario = diverging(metrics=("consensus",), exchange=exchanges.gossip(nx.cycle_graph(N)))
    with pytest.raises(NonFinite, match=r"theta of client \d reaches .* in round \d+ .*try step_size <="):
        fs.run(scenario)


@pytest.mark.parametrize("metric", ["accuracy", "nll"])
def test_predictions_that_leave_float32_end_the_run_too(metric):
    """Of test rows that are far larger than the clients' own; the metric was NaN, without a word."""
    problem = fs.problems.SoftmaxRegression(ROWS, classes=3, test=(1e32 * TEST[0], TEST[1]))
    scenario = fs.Scenario(
        problem=problem, algorithm=algorithms.FedAvg(1e9, local_steps=1), budget=fs.Budget(rounds=20), metrics=(metric,),
        dtype="float32", seed=1,
    )  # fmt: skip
    with pytest.raises(NonFinite, match=rf"in round 1 and {metric} cannot be computed .*try step_size <="):
        fs.run(scenario)


def test_a_start_beyond_reach_is_refused_before_the_run():
    with pytest.raises(InvalidInput, match="initial: theta reaches 1e\\+160"):
        fs.run(diverging(metrics=("w2",), initial=np.full(DIM, 1e160)))


def test_a_figure_whose_square_is_not_finite_is_no_error_at_the_end():
    """theta stays within reach, the covariance relative to a narrow law does not."""
    law = (np.zeros(DIM), 1e-100 * np.eye(DIM))
    start = np.linspace(-1e65, 1e65, 3 * DIM).reshape(3, DIM)
    scenario = fs.Scenario(
        problem=PROBLEM, algorithm=algorithms.FALD(1e-9, local_steps=1), budget=fs.Budget(rounds=2), replicas=3, seed=1,
        metrics=(metrics.covariance_error(law),), initial=start,
    )  # fmt: skip
    assert fs.run(scenario).metrics["covariance_error"].iloc[-1] > 1e200

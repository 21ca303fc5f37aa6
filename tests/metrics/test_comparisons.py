"""Metrics against a reference, out of distribution, by confidence and of HPD regions: by hand, and streaming as in one go."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import fedsim as fs
from fedsim import metrics
from fedsim.algorithms import FALD, FedAvg
from fedsim.errors import Interrupted, InvalidInput
from fedsim.problems import GaussianMean, SoftmaxRegression

PROBLEM = SoftmaxRegression.synthetic(3, 4, classes=3, samples=30, seed=2, dtype=np.float64, test_samples=60)
ELSEWHERE = (5 * PROBLEM.test[0][::2], PROBLEM.test[1][::2])
OUTSIDE = SoftmaxRegression.from_arrays(PROBLEM.x, PROBLEM.y, PROBLEM.offsets, 3, test=ELSEWHERE)


def scenario(algorithm=None, rounds=12, problem=PROBLEM, **more):
    more = {"replicas": 2, "seed": 4, "record": fs.Record(every=2, warmup=2), "evaluate_every": 4} | more
    return fs.Scenario(
        problem=problem, algorithm=algorithm or FALD(0.02, local_steps=3), budget=fs.Budget(rounds=rounds), **more
    )


def average(samples, problem=PROBLEM):
    """Class probabilities of one replica, averaged over its samples by hand."""
    return np.mean([problem.predict(theta) for theta in samples], axis=0)


def last(result, column):
    return result.rounds.groupby("replica")[column].last().to_numpy()


REFERENCE = fs.run(scenario(seed=9))


def test_agreement_and_total_variation_are_those_with_the_reference_runs_average():
    result = fs.run(scenario(metrics=(metrics.against(REFERENCE),)))
    q = np.mean([average(REFERENCE.samples[:, r]) for r in range(2)], axis=0)
    assert np.allclose(metrics.predictions(REFERENCE, PROBLEM), q)
    for r in range(2):
        p = average(result.samples[:, r])
        assert np.isclose(last(result, "agreement")[r], np.mean(p.argmax(1) == q.argmax(1)))
        assert np.isclose(last(result, "total_variation")[r], np.abs(p - q).sum(1).mean() / 2)
    given = fs.run(scenario(metrics=(metrics.against(q),)))
    assert np.allclose(last(given, "agreement"), last(result, "agreement"))


def test_an_optimiser_is_compared_by_its_current_theta():
    result = fs.run(scenario(FedAvg(0.5, local_steps=3), metrics=(metrics.against(REFERENCE),)))
    p, q = PROBLEM.predict(result.samples[-1, 0]), metrics.predictions(REFERENCE, PROBLEM)
    assert np.isclose(last(result, "total_variation")[0], np.abs(p - q).sum(1).mean() / 2)


@pytest.mark.parametrize("bins", [1, 7, 15])
def test_calibration_takes_any_number_of_bins(bins):
    result = fs.run(scenario(metrics=(metrics.calibration(bins),)))
    p, y = average(result.samples[:, 1]), PROBLEM.test[1]
    confidence, right, error = p.max(1), p.argmax(1) == y, 0.0
    for m in range(bins):
        own = (confidence > m / bins) & (confidence <= (m + 1) / bins)
        error += abs(right[own].sum() - confidence[own].sum()) / len(y)
    assert np.isclose(last(result, "ece")[1], error)


def test_confident_rows_are_counted_and_scored():
    result = fs.run(scenario(metrics=(metrics.confident(0.6, 1.0),)))
    p, y = average(result.samples[:, 0]), PROBLEM.test[1]
    sure = p.max(1) >= 0.6
    assert np.isclose(last(result, "accuracy_above_0.6")[0], (p.argmax(1) == y)[sure].mean())
    assert np.isclose(last(result, "share_above_0.6")[0], sure.mean())
    assert last(result, "share_above_1")[0] == 0
    assert np.isnan(result.rounds["accuracy_above_1"]).all()
    right, share = metrics.accuracy_curve(p, y, [0.0, 0.6])
    assert np.allclose([right[0], share[0], share[1]], [(p.argmax(1) == y).mean(), 1.0, sure.mean()])


@pytest.mark.parametrize(
    "algorithm", [FALD(0.02, local_steps=3), FedAvg(0.5, local_steps=3)], ids=["average", "current"]
)
def test_entropies_inside_and_outside_are_those_computed_in_one_go(algorithm):
    result = fs.run(scenario(algorithm, metrics=(metrics.entropies(OUTSIDE),)))
    for r in range(2):
        samples = result.samples[:, r] if isinstance(algorithm, FALD) else result.samples[-1:, r]
        own, other = (-(p * np.log(p)).sum(1) for p in (average(samples), average(samples, OUTSIDE)))
        assert np.isclose(last(result, "entropy")[r], own.mean())
        assert np.isclose(last(result, "entropy_outside")[r], other.mean())
        assert other.mean() < own.mean() - 0.01  # far from the boundaries it is the surer
        assert np.isclose(last(result, "outside_accuracy")[r], metrics.outside_accuracy(own, other))


def test_entropies_tell_sets_apart_by_their_densities():
    rng = np.random.default_rng(1)
    low, high = rng.normal(0, 1, 400), rng.normal(6, 1, 300)
    assert metrics.outside_accuracy(low, high) > 0.98
    assert abs(metrics.outside_accuracy(low, rng.normal(0, 1, 400)) - 0.5) < 0.1
    assert metrics.outside_accuracy(np.zeros(5), np.zeros(5)) == 0.5
    assert metrics.outside_accuracy(np.zeros(5), np.ones(5)) == 1.0


GAUSSIAN = GaussianMean.synthetic(clients=3, dim=2, samples=20, seed=3)


def test_hpd_error_is_that_of_the_samples_recorded_so_far():
    rng = np.random.default_rng(2)
    mean, covariance = GAUSSIAN.exact()
    reference = rng.multivariate_normal(mean, covariance, 5000)
    result = fs.run(scenario(FALD(2e-3, local_steps=3), 40, GAUSSIAN, metrics=(metrics.hpd(reference, 0.1),)))

    def level(theta):
        return np.einsum("ni,ij,nj->n", theta - mean, np.linalg.inv(covariance), theta - mean) / 2

    eta_ref = np.quantile(level(reference), 0.9)
    assert np.isclose(eta_ref, np.log(10), rtol=0.1)  # |xi|^2 / 2 in two dimensions is exponential
    for r in range(2):
        eta = np.quantile(level(result.samples[:, r]), 0.9)
        assert np.isclose(last(result, "hpd_error")[r], abs(eta - eta_ref) / eta_ref)
    threshold = fs.run(scenario(FALD(2e-3, local_steps=3), 40, GAUSSIAN, metrics=(metrics.hpd(eta_ref, 0.1),)))
    assert np.allclose(last(threshold, "hpd_error"), last(result, "hpd_error"))


def test_a_resumed_run_has_the_same_figures(tmp_path):
    def made():
        return scenario(metrics=(metrics.entropies(OUTSIDE), metrics.against(REFERENCE), metrics.calibration(5)))

    stop = threading.Event()
    with pytest.raises(Interrupted):
        fs.run(made(), out=tmp_path / "run", checkpoint_every=3, stop=stop, observers=[
            lambda progress: stop.set() if progress.round == 7 else None
        ])  # fmt: skip
    resumed = fs.run(made(), out=tmp_path / "run", resume=True)
    complete = fs.run(made())
    for column in ("entropy", "entropy_outside", "agreement", "ece"):
        assert np.allclose(last(resumed, column), last(complete, column))


def test_one_metric_serves_several_runs():
    metric = metrics.entropies(OUTSIDE)
    first, again = (fs.run(scenario(metrics=(metric,))) for _ in range(2))
    assert first.rounds.equals(again.rounds)


REFUSED = {
    r"calibration\(bins=0\)": lambda: metrics.calibration(0),
    r"confident\(2,\): give probabilities": lambda: metrics.confident(2),
    r"hpd\(alpha=2\)": lambda: metrics.hpd(1.0, 2),
    r"'against' needs arguments": lambda: scenario(metrics=("against",)),
    r"the same model and other test rows": lambda: fs.run(scenario(metrics=(metrics.entropies(GAUSSIAN),))),
    r"has no test rows": lambda: fs.run(scenario(FALD(1e-3), 2, GAUSSIAN, metrics=(metrics.calibration(),))),
    r"two predictors have shapes": lambda: fs.run(scenario(metrics=(metrics.against(np.full((3, 3), 1 / 3)),))),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_compared_is_refused(message):
    with pytest.raises(InvalidInput, match=message):
        REFUSED[message]()

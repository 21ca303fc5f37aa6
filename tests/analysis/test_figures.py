"""Figures show the values of the results."""

from __future__ import annotations

import numpy as np
import pytest

import fedsim as fs
from fedsim.analysis import figures, timeline
from fedsim.results import Result


@pytest.fixture(scope="module")
def result() -> Result:
    data = [np.full((4, 2), c, float) for c in range(5)]
    scenario = fs.Scenario(
        problem=fs.problems.GaussianMean(data, np.eye(2)),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=10),
        devices=fs.devices.table({"seconds_per_step": [1, 2, 3, 4, 5]}),
        budget=fs.Budget(rounds=6),
        metrics=("w2", fs.metrics.distance_to([2.0, 2.0], "off")),
        record=fs.Record(events=True),
        replicas=4,
    )
    return fs.run(scenario)


def test_a_curve_is_drawn_through_the_results_own_points(result: Result) -> None:
    axes = figures.blank().subplots()
    figures.curves(axes, {"one": result, "two": result}, "w2", against="seconds")
    assert [line.get_label() for line in axes.lines] == ["one", "two"]
    expected = result.curve("w2", against="seconds")
    np.testing.assert_array_equal(axes.lines[0].get_xydata(), expected.to_numpy())
    assert (axes.get_xscale(), axes.get_xlabel()) == ("log", "virtual seconds")


def test_a_metric_of_each_replica_gets_a_band(result: Result) -> None:
    axes = figures.blank().subplots()
    figures.curves(axes, {"one": result}, "off", log="")
    (band,) = axes.collections
    curve = result.curve("off")
    top = band.get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx(curve["high"].max())
    assert axes.get_xscale() == "linear"


def test_the_ellipse_contains_its_probability() -> None:
    mean, covariance = np.array([1.0, -2.0]), np.array([[2.0, 0.8], [0.8, 0.5]])
    axes = figures.blank().subplots()
    figures.ellipse(axes, mean, covariance, 0.95)
    away = axes.lines[0].get_xydata() - mean
    squared = np.einsum("ni,ij,nj->n", away, np.linalg.inv(covariance), away)
    np.testing.assert_allclose(squared, 5.991464547107979)  # the 95 % quantile of chi-square with 2 degrees of freedom


def test_shares_of_virtual_time_add_up_and_match_the_devices(result: Result) -> None:
    shares = timeline.shares(result)
    assert shares is not None
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["transfer"] == 0  # no network
    assert shares["compute"] == pytest.approx((1 + 2 + 3 + 4 + 5) / (5 * 5))  # all wait for the slowest


def test_without_a_timeline_there_are_no_shares(result: Result) -> None:
    from dataclasses import replace

    assert timeline.shares(replace(result, events=None)) is None

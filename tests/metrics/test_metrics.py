"""Metrics against closed forms, brute force, and ArviZ and SciPy as referees."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedsim import metrics, protocols
from fedsim.errors import InvalidInput
from fedsim.metrics import diagnostics


def generator(seed=0):
    return np.random.default_rng(seed)


def random_covariance(dim, rng):
    root = rng.normal(size=(dim, dim))
    return root @ root.T + 0.1 * np.eye(dim)


def view(theta=None, history=None, target=None, problem=None):
    theta = np.zeros((2, 1)) if theta is None else np.asarray(theta)
    history = np.empty((0, *theta.shape)) if history is None else np.asarray(history)
    return SimpleNamespace(theta=theta, history=history, target=target, problem=problem)


# --- Gaussian W2 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_w2_agrees_with_the_trace_formula(dim):
    from scipy.linalg import sqrtm

    rng = generator(dim)
    m1, m2, c1, c2 = (
        rng.normal(size=dim),
        rng.normal(size=dim),
        *(random_covariance(dim, rng) for _ in range(2)),
    )
    root = np.real(sqrtm(c2))
    squared = np.sum((m1 - m2) ** 2) + np.trace(c1 + c2 - 2 * np.real(sqrtm(root @ c1 @ root)))
    assert metrics.gaussian_w2(m1, c1, m2, c2) == pytest.approx(math.sqrt(squared), rel=1e-9)


def test_w2_of_a_law_with_itself_is_zero_to_full_precision():
    covariance = random_covariance(6, generator(3))
    assert metrics.gaussian_w2(np.ones(6), covariance, np.ones(6), covariance) < 1e-13


def test_w2_resolves_laws_that_differ_in_the_ninth_digit():
    covariance = random_covariance(4, generator(4))
    expected = (math.sqrt(1 + 1e-9) - 1) * math.sqrt(np.trace(covariance))
    found = metrics.gaussian_w2(np.zeros(4), covariance, np.zeros(4), covariance * (1 + 1e-9))
    assert found == pytest.approx(expected, rel=1e-4)


def test_w2_between_point_masses_is_the_distance_of_the_points():
    zero = np.zeros((2, 2))
    assert metrics.gaussian_w2([0, 0], zero, [3, 4], zero) == 5.0


def test_w2_accepts_eigenvalues_that_rounding_made_negative():
    vector = np.array([1.0, 1e-9, 3.0])
    singular = np.outer(vector, vector)
    singular[1, 1] -= 1e-18
    assert metrics.gaussian_w2(np.zeros(3), singular, np.zeros(3), singular) < 1e-7


@pytest.mark.parametrize(
    "covariance, message",
    [
        ([[1.0, 0.5], [0.0, 1.0]], "not symmetric"),
        ([[1.0, 0.0], [0.0, -0.5]], "eigenvalue -0.5"),
        ([1.0, 2.0], r"must be \(d, d\)"),
        ([[np.nan, 0.0], [0.0, 1.0]], "must be finite"),
        (np.eye(3), "give equal dimensions"),
    ],
)
def test_w2_refuses_what_is_no_covariance(covariance, message):
    with pytest.raises(InvalidInput, match=message):
        metrics.gaussian_w2(np.zeros(2), np.eye(2), np.zeros(2), covariance)


@given(st.integers(0, 2**31), st.integers(1, 5))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_w2_is_a_symmetric_distance_with_triangle_inequality(seed, dim):
    rng = generator(seed)
    laws = [(rng.normal(size=dim), random_covariance(dim, rng)) for _ in range(3)]
    a, b, c = laws
    ab, ba = metrics.gaussian_w2(*a, *b), metrics.gaussian_w2(*b, *a)
    assert ab == pytest.approx(ba, rel=1e-9)
    assert ab <= metrics.gaussian_w2(*a, *c) + metrics.gaussian_w2(*c, *b) + 1e-9


def test_floor_is_the_root_mean_square_w2_of_perfect_samples():
    covariance = np.diag([1.0, 4.0, 0.1])
    metric, rng = metrics.w2((np.zeros(3), covariance)), generator(5)
    squared = [metric.evaluate(view(rng.normal(size=(300, 3)) @ np.sqrt(covariance)))["w2"] ** 2 for _ in range(1000)]
    # Two per cent is three standard errors of the root mean square of 1000 draws, plus the next order in 1/R.
    assert math.sqrt(np.mean(squared)) == pytest.approx(metrics.w2_floor(covariance, 300), rel=0.02)


# --- marginals and HPD -----------------------------------------------------------------------------------


@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(1, 12), st.integers(1, 3))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_marginal_error_agrees_with_scipy_for_any_two_sizes(seed, n, m, dim):
    from scipy.stats import wasserstein_distance

    rng = generator(seed)
    x, y = rng.integers(-3, 4, size=(n, dim)) / 2, rng.normal(size=(m, dim))
    expected = np.mean([wasserstein_distance(x[:, j], y[:, j]) for j in range(dim)])
    assert metrics.marginal_w1(x, y) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_marginal_error_does_not_see_how_often_a_sample_is_repeated():
    x, y = generator(1).normal(size=(2, 40, 2))
    assert metrics.marginal_w1(np.repeat(x, 3, axis=0), y) == pytest.approx(metrics.marginal_w1(x, y), rel=1e-12)


def test_marginal_error_of_a_shift_is_the_shift():
    x = generator(2).normal(size=(50, 3))
    assert metrics.marginal_w1(x + np.array([1.0, -2.0, 0.0]), x) == pytest.approx(1.0)


@pytest.mark.parametrize("samples", [np.zeros((0, 2)), np.zeros((3, 1)), [[np.nan, 1.0]]])
def test_marginal_error_refuses_samples_it_cannot_compare(samples):
    with pytest.raises(InvalidInput):
        metrics.marginal_w1(samples, np.zeros((4, 2)))


def test_hpd_error_takes_a_quantile_or_the_samples_behind_it():
    energies, reference = np.arange(101.0), np.arange(101.0) * 2
    assert metrics.hpd_error(energies, 198.0, alpha=0.01) == pytest.approx(0.5)
    assert metrics.hpd_error(energies, reference, alpha=0.01) == pytest.approx(0.5)
    assert metrics.hpd_error(-energies - 1, -energies - 1, alpha=0.05) == 0.0


@pytest.mark.parametrize("reference, alpha", [(0.0, 0.01), (1.0, 0.0), (1.0, 1.0)])
def test_hpd_error_refuses_undefined_cases(reference, alpha):
    with pytest.raises(InvalidInput):
        metrics.hpd_error(np.arange(5.0), reference, alpha)


# --- chains ----------------------------------------------------------------------------------------------


def autoregressive(correlation, draws, count, dim, seed=0):
    rng = generator(seed)
    x = np.zeros((draws, count, dim))
    for t in range(1, draws):
        x[t] = correlation * x[t - 1] + rng.normal(size=(count, dim))
    return x


@pytest.fixture(scope="module")
def arviz():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("arviz")


@pytest.mark.parametrize("correlation", [-0.9, -0.3, 0.0, 0.5, 0.95])
@pytest.mark.parametrize("draws", [4, 5, 6, 7, 9, 10, 51, 400])
def test_rhat_and_ess_equal_arviz(arviz, correlation, draws):
    x = autoregressive(correlation, draws, count=3, dim=4, seed=draws)
    columns = [np.ascontiguousarray(x[:, :, j].T) for j in range(4)]
    rhat = [float(arviz.rhat(c)) for c in columns]  # method="rank"
    ess = [float(arviz.ess(c, method="bulk")) for c in columns]
    tail = [float(arviz.ess(c, method="tail")) for c in columns]
    np.testing.assert_allclose(metrics.split_rhat(x), rhat, rtol=1e-8)
    np.testing.assert_allclose(diagnostics.ess(x), ess, rtol=1e-8)
    np.testing.assert_allclose(diagnostics.ess_tail(x), tail, rtol=1e-8)


def test_ess_of_one_chain_of_heavy_tails_and_of_repeated_draws_equals_arviz(arviz):
    one = autoregressive(0.7, 200, count=1, dim=1)
    for x in (one, one**5, np.round(one)):
        for ours, method in ((diagnostics.ess, "bulk"), (diagnostics.ess_tail, "tail")):
            assert ours(x)[0] == pytest.approx(float(arviz.ess(x[:, :, 0].T, method=method)), rel=1e-8)


@pytest.mark.parametrize("draws", [8, 21, 100])
@pytest.mark.parametrize("shape", ["heavy tails", "ties", "two values", "a frozen chain", "skewed"])
def test_rhat_and_tail_ess_equal_arviz_whatever_the_law(arviz, shape, draws):
    x = autoregressive(0.4, draws, count=4, dim=1, seed=draws)
    x[:, 1] *= 3.0
    if shape == "a frozen chain":
        x[:, 2] = x[0, 2]
    laws = {"heavy tails": x**5, "ties": np.round(x), "two values": np.sign(x - 0.01), "skewed": np.exp(x)}
    x = laws.get(shape, x)
    column = np.ascontiguousarray(x[:, :, 0].T)
    assert metrics.split_rhat(x)[0] == pytest.approx(float(arviz.rhat(column)), rel=1e-8)
    assert diagnostics.ess_tail(x)[0] == pytest.approx(float(arviz.ess(column, method="tail")), rel=1e-8)


def test_a_chain_with_six_times_the_right_deviation_is_found_by_rhat():
    x = generator(3).normal(size=(1000, 4, 1))
    assert metrics.split_rhat(x)[0] < 1.01
    x[:, 0] *= 6.0
    assert metrics.split_rhat(x)[0] > 1.1


def test_rhat_of_heavy_tails_finds_chains_in_different_places():
    x = generator(3).standard_cauchy(size=(1000, 4, 1))
    assert metrics.split_rhat(x)[0] < 1.01
    x[:, 0] += 3.0
    assert metrics.split_rhat(x)[0] > 1.1


def test_rhat_of_chains_that_stand_still_apart_is_infinite():
    apart = np.broadcast_to([[[0.1], [0.7], [0.3]]], (10, 3, 1))
    assert metrics.split_rhat(apart)[0] == np.inf


def test_chains_that_have_stopped_are_left_out_of_rhat_and_of_both_sizes(arviz):
    history = autoregressive(0.5, 40, count=4, dim=2, seed=6)
    history[25:, 1] = np.nan
    seen = view(history[-1], history)
    running = history[:, [0, 2, 3]]
    columns = [np.ascontiguousarray(running[:, :, j].T) for j in range(2)]
    assert metrics.rhat().evaluate(seen)["rhat"] == pytest.approx(max(float(arviz.rhat(c)) for c in columns), rel=1e-8)
    for metric, method in ((metrics.ess(), "bulk"), (metrics.ess_tail(), "tail")):
        least = min(float(arviz.ess(c, method=method)) for c in columns)
        assert next(iter(metric.evaluate(seen).values())) == pytest.approx(least, rel=1e-8)


def test_chains_that_never_moved_have_no_effective_sample_size():
    apart = np.broadcast_to([[[1.0], [7.0]]], (10, 2, 1))  # each at its own start
    middle = np.ones((11, 2, 1))
    middle[5] = 3.0  # split chains leave the middle draw out
    for still in (np.ones((10, 2, 1)), apart, middle):
        assert np.isnan(diagnostics.ess(still)[0])
        assert np.isnan(diagnostics.ess_tail(still)[0])


def test_a_chain_that_moved_once_among_frozen_ones_counts_as_arviz_counts_it(arviz):
    x = np.ones((20, 3, 1))
    x[11:, 1] = 2.0
    assert diagnostics.ess(x)[0] == pytest.approx(float(arviz.ess(x[:, :, 0].T, method="bulk")), rel=1e-8)


def test_ess_of_an_autoregression_is_near_its_known_value():
    x = autoregressive(0.5, 4000, count=8, dim=1)
    assert diagnostics.ess(x)[0] == pytest.approx(8 * 4000 / 3, rel=0.1)  # (1 - a)/(1 + a) = 1/3


def test_rhat_of_chains_in_different_places_is_large_and_of_frozen_chains_undefined():
    x = autoregressive(0.0, 100, count=2, dim=1)
    assert metrics.split_rhat(x)[0] < 1.1
    x[:, 1] += 10.0
    assert metrics.split_rhat(x)[0] > 1.8
    assert np.isnan(metrics.split_rhat(np.ones((10, 2, 1)))[0])


def test_nan_in_one_coordinate_leaves_the_others_alone():
    x = autoregressive(0.2, 50, count=2, dim=2)
    x[7, 1, 0] = np.nan
    for statistic in (metrics.split_rhat, diagnostics.ess, diagnostics.ess_tail):
        assert np.isnan(statistic(x)).tolist() == [True, False]


@pytest.mark.parametrize("statistic", [metrics.split_rhat, diagnostics.ess, diagnostics.ess_tail])
@pytest.mark.parametrize("shape", [(3, 2, 1), (10, 2), (10, 0, 1)])
def test_chains_too_short_or_of_another_shape_are_refused(statistic, shape):
    with pytest.raises(InvalidInput):
        statistic(np.zeros(shape))


# --- predictions -----------------------------------------------------------------------------------------

P = np.array([[0.7, 0.2, 0.1], [0.1, 0.5, 0.4], [0.3, 0.3, 0.4], [0.0, 0.0, 1.0]])
Y = np.array([0, 2, 2, 2])


def test_scores_match_a_calculation_by_hand():
    assert metrics.accuracy(P, Y) == 0.75
    assert metrics.brier(P, Y) == pytest.approx((0.14 + 0.62 + 0.54 + 0.0) / 4)
    assert metrics.nll(P, Y) == pytest.approx(-np.log([0.7, 0.4, 0.4, 1.0]).mean())
    assert metrics.accuracy_above(P, Y, 0.5) == pytest.approx(2 / 3)
    assert np.isnan(metrics.accuracy_above(P[:3], Y[:3], 0.9))


def test_calling_the_truth_impossible_costs_infinitely_much():
    assert metrics.nll(P, [0, 2, 2, 0]) == math.inf


def test_entropy_is_positive_zero_when_certain_and_log_of_classes_when_uniform():
    found = metrics.entropy([[1.0, 0.0], [0.5, 0.5]])
    assert found == pytest.approx([0.0, math.log(2)])
    assert not np.signbit(found[0])


@pytest.mark.parametrize("m", range(11, 21))
def test_a_confidence_on_an_edge_belongs_to_the_bin_below(m):
    confidence = m / 20
    points = metrics.reliability([[confidence, 1 - confidence]], [0], bins=20).points
    assert np.flatnonzero(points).tolist() == [m - 1]


@st.composite
def predictions(draw):
    n, classes = draw(st.integers(1, 25)), draw(st.integers(2, 5))
    scores = draw(arrays(float, (n, classes), elements=st.floats(0.01, 1.0)))
    labels = draw(arrays(int, n, elements=st.integers(0, classes - 1)))
    return scores / scores.sum(axis=1, keepdims=True), labels


@given(predictions(), st.integers(1, 25))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_ece_equals_a_loop_over_bins(prediction, bins):
    p, y = prediction
    confidence, right, expected = p.max(axis=1), p.argmax(axis=1) == y, 0.0
    for m in range(1, bins + 1):
        inside = (confidence > (m - 1) / bins) & ((confidence <= m / bins) | (m == bins))
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert metrics.ece(p, y, bins) == pytest.approx(expected, abs=1e-12)


@given(predictions())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_a_predictor_agrees_with_itself_and_scores_stay_in_their_ranges(prediction):
    p, y = prediction
    assert metrics.agreement(p, p) == 1.0
    assert metrics.total_variation(p, p) == 0.0
    assert 0.0 <= metrics.total_variation(p, np.roll(p, 1, axis=1)) <= 1.0 + 1e-12
    assert 0.0 <= metrics.brier(p, y) <= 2.0
    assert metrics.reliability(p, y, 7).points.sum() == len(y)


def test_agreement_and_total_variation_by_hand():
    q = np.array([[0.2, 0.7, 0.1], [0.1, 0.5, 0.4], [0.3, 0.3, 0.4], [0.0, 0.5, 0.5]])
    assert metrics.agreement(P[:3], q[:3]) == pytest.approx(2 / 3)
    assert metrics.total_variation(P, q) == pytest.approx((0.5 + 0.5) / 4)


@pytest.mark.parametrize(
    "p, y, message",
    [
        ([0.2, 0.8], [1, 0], r"\(points, classes\)"),
        ([[2.0, -1.0]], [0], "logits"),
        ([[2.0, 3.0]], [0], "logits"),
        ([[np.nan, 0.5]], [0], "logits"),
        ([[0.5, 0.5]], [2], "2 classes are 0..1"),
        ([[0.5, 0.5]], [0.0], "integers"),
        ([[0.5, 0.5]], [0, 1], "1 integers"),
    ],
)
def test_scores_refuse_what_is_no_prediction(p, y, message):
    for score in (metrics.accuracy, metrics.brier, metrics.nll, metrics.ece):
        with pytest.raises(InvalidInput, match=message):
            score(p, y)


# --- metric objects --------------------------------------------------------------------------------------


def test_moment_metrics_use_the_replica_mean_and_the_unbiased_covariance():
    rng = generator(9)
    theta, mean, covariance = rng.normal(size=(30, 3)), rng.normal(size=3), random_covariance(3, rng)
    seen = view(theta, target=SimpleNamespace(mean=mean, covariance=covariance))
    sample_mean, sample_covariance = theta.mean(axis=0), np.cov(theta, rowvar=False)
    assert metrics.w2().evaluate(seen)["w2"] == pytest.approx(
        metrics.gaussian_w2(sample_mean, sample_covariance, mean, covariance), rel=1e-10
    )
    assert metrics.mean_error().evaluate(seen)["mean_error"] == pytest.approx(np.linalg.norm(sample_mean - mean))
    assert metrics.covariance_error().evaluate(seen)["covariance_error"] == pytest.approx(
        np.linalg.norm(sample_covariance - covariance) / np.linalg.norm(covariance)
    )


def test_w2_with_fewer_replicas_than_dimensions_uses_the_singular_covariance():
    rng = generator(10)
    theta, covariance = rng.normal(size=(4, 6)), random_covariance(6, rng)
    expected = metrics.gaussian_w2(theta.mean(axis=0), np.cov(theta, rowvar=False), np.zeros(6), covariance)
    found = metrics.w2(reference=(np.zeros(6), covariance)).evaluate(view(theta))["w2"]
    assert found == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("replicas, dim", [(2, 2), (4, 6), (30, 50), (16, 16), (300, 2), (40, 17)])
def test_w2_of_a_block_of_rounds_has_the_bits_of_each(replicas, dim):
    rng = generator(replicas)
    theta = rng.normal(size=(9, replicas, dim)).astype(np.float32)
    theta[4] = theta[4, 0]  # all equal
    metric = metrics.w2(reference=(np.zeros(dim), random_covariance(dim, rng)))
    together = metric.evaluate_rounds(view(theta[0]), theta)["w2"]
    assert together.tolist() == [metric.evaluate(view(t))["w2"] for t in theta]
    assert (
        metrics.w2(reference=(np.zeros(dim), np.eye(dim)), over="history").evaluate_rounds(view(theta[0]), theta)
        is None
    )
    theta[3, 1, 0] = np.inf
    assert metric.evaluate_rounds(view(theta[0]), theta) is None


@pytest.mark.parametrize("gap", [1e-2, 1e-6, 1e-9])
def test_w2_of_fewer_replicas_than_dimensions_keeps_its_digits_where_laws_are_close(gap):
    """Three replicas of a law along one axis of 20, but for `gap` along two others: the distance in closed form."""
    theta = np.zeros((3, 20))
    theta[:2, 0] = 1, -1  # variance 1
    covariance = np.diag([1.0, gap**2, gap**2, *np.zeros(17)])
    found = metrics.w2(reference=(np.zeros(20), covariance)).evaluate(view(theta))["w2"]
    assert found == pytest.approx(np.sqrt(2) * gap, rel=1e-6)


def test_a_reference_outranks_the_problems_own_law():
    theta, own = generator(0).normal(size=(10, 2)), metrics.Moments(np.full(2, 9.0), np.eye(2))
    reference = (theta.mean(axis=0), np.cov(theta, rowvar=False))
    assert metrics.w2(reference).evaluate(view(theta, target=own))["w2"] < 1e-12


def test_replicas_that_have_stopped_do_not_count():
    theta = generator(0).normal(size=(6, 2))
    padded = np.vstack([theta, np.full((3, 2), np.nan)])
    law = metrics.Moments(np.zeros(2), np.eye(2))
    for metric in (metrics.w2(), metrics.mean_error(), metrics.covariance_error()):
        assert metric.evaluate(view(padded, target=law)) == metric.evaluate(view(theta, target=law))
        none = metric.evaluate(view(np.full((4, 2), np.nan), target=law))
        assert np.isnan(list(none.values())).all()


@pytest.mark.parametrize("make", [metrics.w2, metrics.covariance_error])
def test_the_law_over_replicas_needs_two_of_them(make):
    one = view(np.zeros((1, 2)), target=metrics.Moments(np.zeros(2), np.eye(2)))
    with pytest.raises(InvalidInput, match=r"the law over replicas: ask for replicas >= 2"):
        make().evaluate(one)


@pytest.mark.parametrize("make", [metrics.w2, metrics.mean_error, metrics.covariance_error])
def test_without_an_exact_law_the_remedy_is_named(make):
    class Payload:
        pass

    with pytest.raises(InvalidInput, match=r"metrics.\w+\(\): Payload has no exact\(\).*pass reference="):
        make().evaluate(view(np.zeros((3, 2)), problem=Payload()))


def test_a_reference_of_another_dimension_is_refused():
    with pytest.raises(InvalidInput, match="exact mean has shape"):
        metrics.w2((np.zeros(3), np.eye(3))).evaluate(view(np.zeros((3, 2))))
    with pytest.raises(InvalidInput, match=r"give \(d,\) and \(d, d\)"):
        metrics.w2((np.zeros(3), np.eye(2)))
    with pytest.raises(InvalidInput, match="a pair"):
        metrics.w2(np.zeros((50, 2)))


def test_a_state_that_left_the_real_line_gives_nan_rather_than_a_crash():
    theta = generator(0).normal(size=(6, 2))
    for bad in (np.nan, np.inf):
        theta[2, 1] = bad
        assert np.isnan(metrics.w2((np.zeros(2), np.eye(2))).evaluate(view(theta))["w2"])


def test_marginal_error_pools_recorded_samples_or_takes_the_replicas_now():
    rng = generator(3)
    history, reference = rng.normal(size=(5, 4, 2)), rng.normal(size=(11, 2))
    seen = view(history[-1], history)
    pooled, now = metrics.marginal_error(reference), metrics.marginal_error(reference, over="replicas")
    assert pooled.evaluate(seen)["marginal_error"] == metrics.marginal_w1(history.reshape(20, 2), reference)
    assert now.evaluate(seen)["marginal_error"] == metrics.marginal_w1(history[-1], reference)
    assert np.isnan(pooled.evaluate(view(history[-1]))["marginal_error"])


def test_mse_averages_over_a_run_before_squaring_and_over_runs_after():
    history = generator(4).normal(size=(6, 3, 2))
    norms = np.linalg.norm(history, axis=2)
    metric = metrics.mse(lambda theta: np.linalg.norm(theta, axis=1), truth=1.0, name="mse_norm")
    assert metric.columns == ("mse_norm",)
    found = metric.evaluate(view(history[-1], history))["mse_norm"]
    assert found == pytest.approx(np.mean((norms.mean(axis=0) - 1.0) ** 2))
    history[4:, 1] = np.nan  # this run ended early: its estimate uses its recorded samples
    estimates = np.array([norms[:, 0].mean(), norms[:4, 1].mean(), norms[:, 2].mean()])
    found = metric.evaluate(view(history[-1], history))["mse_norm"]
    assert found == pytest.approx(np.mean((estimates - 1.0) ** 2))
    assert np.isnan(metric.evaluate(view(history[-1]))["mse_norm"])


def test_chain_metrics_report_the_worst_coordinate_once_there_are_four_draws():
    history = autoregressive(0.5, 40, count=3, dim=2)
    seen = view(history[-1], history)
    assert metrics.rhat().evaluate(seen)["rhat"] == metrics.split_rhat(history).max()
    assert metrics.ess().evaluate(seen)["ess"] == diagnostics.ess(history).min()
    assert metrics.ess_tail().evaluate(seen)["ess_tail"] == diagnostics.ess_tail(history).min()
    for metric in (metrics.rhat(), metrics.ess(), metrics.ess_tail()):
        assert np.isnan(list(metric.evaluate(view(history[2], history[:3])).values())).all()


def test_distance_to_a_point_is_one_number_per_replica():
    metric = metrics.distance_to([3.0, 4.0])
    assert (metric.columns, metric.per_replica) == (("distance_to_ps",), True)
    assert metric.evaluate(view([[0.0, 0.0], [3.0, 4.0]]))["distance_to_ps"].tolist() == [5.0, 0.0]


def every_metric():
    return [
        metrics.w2(),
        metrics.mean_error(),
        metrics.covariance_error(),
        metrics.marginal_error(np.zeros((3, 2))),
        metrics.mse(lambda theta: theta[:, 0], 0.0),
        metrics.rhat(),
        metrics.ess(),
        metrics.ess_tail(),
        metrics.distance_to(np.zeros(2)),
        metrics.resolve(largest),
        metrics.resolve(spread, probe=np.zeros((3, 2))),
    ]


def largest(theta):
    return theta.max(axis=1)


def spread(theta):
    return theta.std()


@pytest.mark.parametrize("metric", every_metric(), ids=lambda metric: metric.columns[0])
def test_every_metric_fills_its_columns_with_the_promised_rank_and_leaves_its_view_alone(metric):
    history = generator(0).normal(size=(5, 7, 2))
    seen = view(history[-1].copy(), history.copy(), target=metrics.Moments(np.zeros(2), np.eye(2)))
    seen.theta.setflags(write=False)
    seen.history.setflags(write=False)
    values = metric.evaluate(seen)
    assert isinstance(metric, protocols.Metric)
    assert tuple(values) == metric.columns
    for value in values.values():
        assert np.shape(value) == ((7,) if metric.per_replica else ())
        assert np.isfinite(value).all()


def test_bits_do_not_depend_on_the_memory_layout():
    history = autoregressive(0.5, 40, count=33, dim=3)
    law = metrics.Moments(np.zeros(3), np.eye(3))
    seen, turned = (view(h[-1], h, law) for h in (history, np.asfortranarray(history)))
    turned.theta = np.asfortranarray(seen.theta)
    for metric in (
        metrics.w2(),
        metrics.mean_error(),
        metrics.covariance_error(),
        metrics.rhat(),
        metrics.ess(),
        metrics.ess_tail(),
    ):
        assert metric.evaluate(seen) == metric.evaluate(turned)


# --- resolve ---------------------------------------------------------------------------------------------


def test_resolve_accepts_objects_names_and_functions():
    metric = metrics.w2()
    assert metrics.resolve(metric) is metric
    assert metrics.resolve("w2").columns == ("w2",)
    assert metrics.resolve(largest).columns == ("largest",)


def test_a_function_is_asked_whether_it_answers_per_replica():
    probe = np.zeros((3, 2))
    assert metrics.resolve(largest, probe).per_replica
    assert not metrics.resolve(spread, probe).per_replica
    everywhere = metrics.resolve(spread).evaluate(view([[0.0, 0.0], [2.0, 2.0]]))["spread"]
    assert everywhere.tolist() == [1.0, 1.0]


def test_a_function_that_returns_another_shape_is_refused():
    def whole(theta):
        return theta

    with pytest.raises(InvalidInput, match=r"whole\(theta\) returned shape \(2, 2\)"):
        metrics.resolve(whole).evaluate(view(np.zeros((2, 2))))


@pytest.mark.parametrize(
    "wrong, message",
    [
        ("w3", "choose among w2"),
        ("mse", "needs arguments"),
        (metrics.w2, r"call it: fs.metrics.w2"),
        (lambda theta: 0.0, "write `def"),
        (3, "is not a metric"),
        (type(metrics.w2()), "is not a metric"),
    ],
)
def test_resolve_refuses_with_a_remedy(wrong, message):
    with pytest.raises(InvalidInput, match=message):
        metrics.resolve(wrong)


def test_importing_metrics_loads_neither_pandas_nor_scipy():
    import subprocess
    import sys

    code = "import sys, fedsim.metrics, fedsim.results; print({'pandas', 'pyarrow', 'scipy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"

"""Softmax regression in float32 has the bits of the same sums written out in NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsim as fs
from fedsim import problems
from fedsim.algorithms import FedAvg
from fedsim.kernels import cpu
from fedsim.kernels.cpu.classification_float32 import add_slopes, scores
from fedsim.kernels.cpu.sums import ALL_ROWS
from fedsim.kernels.intrinsics import LANES, aligned
from fedsim.problems import weights_of
from fedsim.rng.elementary import exp, fma32
from fedsim.runtime.inline import Worker
from fedsim.runtime.jobs import Batch, JobsAtHand, Setting


@pytest.fixture(scope="module")
def problem():
    """Return two clients of 20 rows; the vector of five features is mostly padding."""
    generator = np.random.default_rng(3)
    x, y = generator.normal(size=(40, 5)).astype(np.float32), generator.integers(0, 3, 40)
    return problems.SoftmaxRegression.from_arrays(x, y, np.array([0, 20, 40]), classes=3)


def written_out_scores(x, weights):
    """Add features l, l + 16, ... in lane l with one rounding a term; then add the upper half to the lower."""
    sums = np.zeros((len(x), len(weights), 16), np.float32)
    for k in range(0, x.shape[1], 16):
        sums = fma32(x[:, None, k : k + 16], weights[None, :, k : k + 16], sums)
    for half in (8, 4, 2, 1):
        sums = sums[..., :half] + sums[..., half : 2 * half]
    return sums[..., 0]


def written_out_slopes(x, z, slopes):
    for row, scored in zip(x, z, strict=True):
        slopes = fma32(scored[:, None], row[None], slopes)
    return slopes


def numbers(generator, *shape):
    """Return numbers of many magnitudes, so that the order of a sum changes its bits."""
    return (generator.normal(size=shape) * 2.0 ** generator.integers(-8, 8, shape)).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 11), st.integers(1, 13), st.integers(1, 7), st.integers(0, 2**32))
def test_products_are_the_written_out_sums(rows, classes, vectors, seed):
    generator = np.random.default_rng(seed)
    x, weights, z = aligned(rows, vectors * LANES), aligned(classes, vectors * LANES), numbers(generator, rows, classes)
    x[:], weights[:] = numbers(generator, *x.shape), numbers(generator, *weights.shape)
    slopes = numbers(generator, *weights.shape)
    expected = written_out_slopes(x, z, slopes)
    add_slopes(x, rows, z, slopes)
    np.testing.assert_array_equal(slopes, expected)
    scores(x, rows, weights, z)
    np.testing.assert_array_equal(z, written_out_scores(x, weights))


def test_rows_start_at_cache_lines_and_padding_is_zero():
    for _ in range(20):
        buffer = aligned(3, 50)
        assert buffer.shape == (3, 64)
        assert buffer.ctypes.data % (4 * LANES) == 0
        assert not buffer.any()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("features", [5, 16, 37])
def test_gradients_are_the_written_out_steps_for_any_tile(bias, features):
    generator, classes, sizes = np.random.default_rng(7), 6, np.array([150, 3])  # 150: two tiles and a part
    x = generator.normal(size=(153, features)).astype(np.float32)
    y = generator.integers(0, classes, 153)
    problem = problems.SoftmaxRegression.from_arrays(
        x, y, np.concatenate([[0], np.cumsum(sizes)]), classes=classes, bias=bias, prior_precision=2.0
    )
    theta = generator.normal(size=(2, problem.dim)).astype(np.float32)
    found = np.empty_like(theta)
    cpu.softmax_gradient(
        theta, problem.x, problem.y, problem.offsets, np.arange(2), *ALL_ROWS, classes, bias,
        np.float32(problem.share), found, None, None,
    )  # fmt: skip
    split = features * classes
    for job, own in enumerate((slice(0, 150), slice(150, 153))):
        rows, weights = aligned(sizes[job], features), aligned(classes, features)
        rows[:, :features] = x[own]
        weights[:, :features] = theta[job, :split].reshape(features, classes).T
        z = written_out_scores(rows, weights) + (theta[job, split:] if bias else np.float32(0))
        z = exp(z - z.max(axis=1, keepdims=True))
        z /= np.add.accumulate(z, axis=1)[:, -1:]
        z[np.arange(len(z)), y[own]] -= np.float32(1)
        slopes = written_out_slopes(rows, z, np.zeros_like(weights))[:, :features].T.ravel()
        sums = np.add.accumulate(z, axis=0)[-1] if bias else np.zeros(0, np.float32)
        pull = np.float32(problem.share * sizes[job]) * theta[job]
        np.testing.assert_array_equal(found[job], np.concatenate([slopes, sums]) + pull)


def test_a_job_that_diverged_does_not_change_the_next(problem):
    worker = Worker(
        FedAvg(0.1, local_steps=2, batch_size=4),
        Setting(problem, weights_of(problem), 1, np.dtype("float32"), fs.Inline().kernels()),
    )
    clients = np.zeros(3, np.int64)
    theta = np.zeros((3, problem.dim), np.float32)
    theta[1] = np.nan
    batch = Batch(0, 0 * clients, clients, 0 * clients, {"theta": theta}, np.arange(3))
    assert worker.kernel is not None
    delta = worker.kernel(JobsAtHand(worker.setting, batch, single=False), {"theta": theta}, {})[0]["delta"]
    assert np.isnan(delta[1]).all()
    np.testing.assert_array_equal(delta[2], delta[0])
    assert delta[0].any()


def test_a_row_that_a_client_does_not_have_is_refused(problem):
    theta = np.zeros((1, problem.dim), np.float32)
    for row in (-1, 20, 10**9):
        with pytest.raises(IndexError, match="row"):
            problem.gradients(theta, np.array([0]), (np.array([row]), np.array([0, 1])))

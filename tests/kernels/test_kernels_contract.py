"""One contract for every backend: NumPy, Numba, CUDA on the host and, if present, on a device.

Integers agree bit for bit. So do floats in all that draws noise or takes Langevin or leapfrog steps: polynomials are
evaluated in one order and nothing is fused. On a device they may differ by a few units in the last place: it is
the only form whose machine code is not made here.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from tools import cuda_on_host

from fedsim import problems, rng
from fedsim.kernels import cpu, cuda, reference
from fedsim.kernels.cpu import draws
from fedsim.kernels.cuda import device
from fedsim.kernels.cuda import draws as cuda_draws
from fedsim.kernels.reference import leapfrog
from fedsim.rng import Stream

DTYPES = ["float32", "float64"]
ON_HOST = pytest.param("cuda on host", marks=pytest.mark.skipif(not cuda_on_host.COMPILER, reason="no C++ compiler"))
ON_DEVICE = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture
def choose(monkeypatch):
    """Return a function from a backend's name to its module."""
    device._module.cache_clear()
    device._tables.clear()

    def module(name):
        if name == "cuda on host":
            monkeypatch.setitem(sys.modules, "cupy", cuda_on_host)
        if name.startswith("cuda"):
            cuda.require_device()
            return cuda
        return {"numpy": reference, "cpu": cpu}[name]

    yield module
    device._module.cache_clear()
    device._tables.clear()


@pytest.fixture(params=["numpy", "cpu", ON_HOST, ON_DEVICE])
def backend(request, choose):
    return choose(request.param)


@pytest.fixture(params=["cpu", ON_HOST, ON_DEVICE])
def compiled(request, choose):
    """Return each backend that is compared with the NumPy reference."""
    return choose(request.param)


def words_of(backend):
    return {reference: rng.words, cpu: draws.words, cuda: cuda_draws.words}[backend]


def assert_same(found, expected):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.dtype.kind == "f" and "cupy" in sys.modules and sys.modules["cupy"] is not cuda_on_host:
        eps = np.finfo(found.dtype).eps
        np.testing.assert_allclose(found, expected, rtol=16 * eps, atol=16 * eps)
    else:
        np.testing.assert_array_equal(found, expected)


def keys(jobs, stream=Stream.NOISE, seed=11):
    return rng.keys(seed, stream, replica=np.arange(jobs) % 13, client=np.arange(jobs) // 13, round=3)


def chunks(jobs):
    for size in (1, 7, 64):
        yield [slice(a, min(a + size, jobs)) for a in range(0, jobs, size)]


# --- Draws ----------------------------------------------------------------------------------------------

# Salmon et al., Random123: counter, key, encrypted counter.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize("counter, key, expected", KNOWN)
def test_philox_has_the_published_answers(backend, counter, key, expected):
    c, k, answer = ([int(word, 16) for word in text.split()] for text in (counter, key, expected))
    row = np.array([[k[0], k[1], c[2], c[3]]], np.uint32)
    assert words_of(backend)(row, 1, step=c[1], first=c[0]).tolist() == [answer]


@pytest.mark.parametrize("dtype", DTYPES)
def test_normals_are_box_muller_of_the_words(backend, dtype):
    key = keys(5)
    w = rng.words(key, 6 if dtype == "float64" else 3).astype(np.int64)
    if dtype == "float64":
        first, second, turn, fine = np.moveaxis(w.reshape(5, 6, 4), -1, 0)
        unit = (first >> 1) / 2**31 + ((second >> 11) + 0.5) / 2**52
    else:
        first, turn = np.moveaxis(w.reshape(5, 6, 2), -1, 0)
        unit, fine = ((first >> 1) + 0.5) / 2**31, 0 * first
    # The top two bits of `turn` are the quadrant, the others a signed angle around its middle.
    inside = (turn << 2 & 0xFFFFFFFF ^ 0x80000000) / 2**31 - 1 + (fine >> 11) / 2**51
    angle = np.pi / 2 * (turn >> 30) + np.pi / 4 * inside
    expected = np.sqrt(-2 * np.log(unit))[..., None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    tolerance = 1e-12 if dtype == "float64" else 5e-6
    np.testing.assert_allclose(backend.normal(key, 12, 0, dtype), expected.reshape(5, 12), rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 5, 50, 513])
def test_normals_equal_the_reference(compiled, dtype, lanes):
    for rows, step, call in ((1, 0, 0), (9, 1, 0), (9, 2, 5), (300, 7, 1)):
        assert_same(
            compiled.normal(keys(rows), lanes, step, dtype, call),
            rng.normal(keys(rows), lanes, step, dtype, call),
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_normals_do_not_depend_on_their_place_in_a_batch(backend, dtype):
    together = backend.normal(keys(150), 5, 3, dtype)
    for parts in chunks(150):
        alone = np.concatenate([backend.normal(keys(150)[part], 5, 3, dtype) for part in parts])
        np.testing.assert_array_equal(alone, together)


def test_normals_continue_beyond_block_2_to_the_32(compiled):
    step = 2**35
    assert_same(compiled.normal(keys(2), 4, step, "float32"), rng.normal(keys(2), 4, step, "float32"))


def test_uniforms_integers_choices_and_keys_equal_the_reference(compiled):
    where = {"replica": np.arange(6), "client": np.arange(6) ** 2, "round": 2**20, "visit": 3}
    assert_same(compiled.keys(2**63 + 5, Stream.BATCH, **where), rng.keys(2**63 + 5, Stream.BATCH, **where))
    for dtype in DTYPES:
        assert_same(compiled.uniform(keys(9), 7, 2, dtype), rng.uniform(keys(9), 7, 2, dtype))
    assert_same(compiled.integers(keys(9), 5, 1000, 4), rng.integers(keys(9), 5, 1000, 4))
    assert_same(compiled.choice(keys(9), 20, 6, 1), rng.choice(keys(9), 20, 6, 1))


def row_counts():
    """Return jobs that choose none, one, some or all of their client's rows."""
    population = np.array([1, 2, 5, 9, 24, 100, 1000, 20, 7, 3] * 8)
    sizes = np.minimum(population, np.array([1, 0, 5, 4, 24, 10, 30, 19, 1, 2] * 8))
    return population, np.concatenate([[0], np.cumsum(sizes)])


def test_chosen_rows_equal_the_reference(compiled):
    population, start = row_counts()
    for step in (0, 3):
        expected = reference.choose_rows(keys(80, Stream.BATCH), population, start, step)
        assert_same(compiled.choose_rows(keys(80, Stream.BATCH), population, start, step), expected)


def test_chosen_rows_are_different_rows_of_the_client(backend):
    population, start = row_counts()
    rows = backend.choose_rows(keys(80, Stream.BATCH), population, start, 1)
    for i, n in enumerate(population):
        mine = rows[start[i] : start[i + 1]]
        assert len(set(mine.tolist())) == len(mine)
        assert np.all((mine >= 0) & (mine < n))


def test_chosen_rows_do_not_depend_on_their_place_in_a_batch(backend):
    population, start = row_counts()
    key = keys(80, Stream.BATCH)
    together = backend.choose_rows(key, population, start, 2)
    for parts in chunks(80):
        alone = [
            backend.choose_rows(key[p], population[p], start[p.start : p.stop + 1] - start[p.start], 2) for p in parts
        ]
        np.testing.assert_array_equal(np.concatenate(alone), together)


# --- Langevin steps -------------------------------------------------------------------------------------


def quadratic_jobs(jobs, d, dtype, rho, steps):
    """Return arguments of `langevin_quadratic` with five clients; every job has its own start and scale."""
    draw = rng.normal(keys(5, Stream.DATA), d * d + d, 0)
    root = draw[:, : d * d].reshape(5, d, d)
    hessian = root + root.transpose(0, 2, 1) + 3 * np.sqrt(d) * np.eye(d)
    client = np.arange(jobs) * 3 % 5
    start = rng.normal(keys(jobs, Stream.DATA, seed=4), d, 0).astype(dtype)
    scale = np.sqrt((1 - rho**2) * (1 + client)).astype(dtype)
    eta = 0.01 / (1 + np.arange(steps))
    return (
        start, hessian.astype(dtype), draw[:, d * d :].astype(dtype), client, keys(jobs),
        keys(jobs, Stream.SHARED), scale, scale.dtype.type(rho), eta.astype(dtype), np.sqrt(1.4 * eta).astype(dtype),
    )  # fmt: skip


def langevin(backend, start, *arguments):
    """Return the end of the steps, which are taken in place."""
    out = start.copy()
    backend.langevin_quadratic(start.shape[1])(out, *arguments)
    return out


@pytest.mark.parametrize("rho", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [1, 2, 3, 8, 12, 50])
def test_langevin_steps_equal_the_reference(compiled, d, dtype, rho):
    for steps in (1, 5, 7):
        arguments = quadratic_jobs(70, d, dtype, rho, steps)
        assert_same(langevin(compiled, *arguments), langevin(reference, *arguments))


@pytest.mark.parametrize("rho", [0.0, 0.6, 1.0])
def test_langevin_steps_follow_the_update_rule(backend, rho):
    arguments = quadratic_jobs(8, 3, "float64", rho, 4)
    start, hessian, linear, client, private, shared, scale, _, eta, amplitude = arguments
    found = langevin(backend, *arguments)
    for job, c in enumerate(client):
        theta = start[job]
        for k in range(4):
            own, common = (rng.normal(key[job : job + 1], 3, k)[0] for key in (private, shared))
            noise = rho * common + scale[job] * own
            theta = theta - eta[k] * (hessian[c] @ theta - linear[c]) + amplitude[k] * noise
        np.testing.assert_allclose(found[job], theta, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [2, 12])
def test_langevin_steps_do_not_depend_on_a_jobs_place_in_a_batch(backend, d, dtype):
    theta, hessian, linear, client, private, shared, scale, *rest = quadratic_jobs(80, d, dtype, 0.5, 5)
    together = langevin(backend, theta, hessian, linear, client, private, shared, scale, *rest)
    for parts in chunks(80):
        alone = [
            langevin(backend, theta[p], hessian, linear, client[p], private[p], shared[p], scale[p], *rest)
            for p in parts
        ]
        np.testing.assert_array_equal(np.concatenate(alone), together)


def test_langevin_steps_change_theta_alone(backend):
    arguments = quadratic_jobs(20, 3, "float64", 0.5, 5)
    before = [np.copy(a) for a in arguments]
    backend.langevin_quadratic(3)(*arguments)
    assert (arguments[0] != before[0]).all()
    for old, now in zip(before[1:], arguments[1:], strict=True):
        np.testing.assert_array_equal(now, old)


# --- Trajectories on logistic regression ----------------------------------------------------------------

SIZES = np.array([7, 30, 1, 70])  # one row, some, and more than a tile
BATCH = np.array([2, 9, 1, 13])


def logistic_jobs(jobs, d, dtype, common, trajectories, steps, batch, linear=True):
    """Return arguments of `leapfrog_logistic`; every job has its own start, linear term and scale."""
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    draw = rng.normal(keys(offsets[-1], Stream.DATA), d + 1)
    own = rng.normal(keys(jobs, Stream.DATA, seed=4), 2 * d).astype(dtype)
    client = np.arange(jobs) * 7 % 11 % 4
    return (
        0.3 * own[:, :d], np.ascontiguousarray(draw[:, :d], dtype), (draw[:, d] > 0).astype(dtype), offsets, client,
        (1 + client) / 3, 0.1 * (1 + client), own[:, d:] if linear else None, BATCH if batch else None,
        keys(jobs, Stream.BATCH) if batch else None, keys(jobs), keys(jobs, Stream.SHARED),
        np.sqrt((1 - common**2) * (1 + client)), common, 0.2 / (1 + np.arange(trajectories)), steps,
    )  # fmt: skip


@pytest.mark.parametrize("batch", [False, True], ids=["full", "minibatch"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [1, 8, 21])  # less than a group of eight, a complete one, and a remainder
def test_logistic_trajectories_equal_the_reference(compiled, d, dtype, batch):
    for common, trajectories, steps in ((0.0, 1, 1), (0.5, 2, 3), (1.0, 2, 2)):
        arguments = logistic_jobs(40, d, dtype, common, trajectories, steps, batch, linear=common > 0)
        assert_same(compiled.leapfrog_logistic(*arguments), leapfrog.leapfrog_logistic(*arguments))


@pytest.mark.parametrize("batch", [False, True], ids=["full", "minibatch"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_logistic_trajectories_do_not_depend_on_a_jobs_place_in_a_batch(compiled, dtype, batch):
    arguments = logistic_jobs(80, 11, dtype, 0.5, 2, 3, batch)
    before = [np.copy(a) for a in arguments]
    together = compiled.leapfrog_logistic(*arguments)
    per_job = (0, *range(4, 8), *range(9, 13))
    for parts in chunks(80):
        for part in parts:
            mine = [a[part] if i in per_job and a is not None else a for i, a in enumerate(arguments)]
            np.testing.assert_array_equal(compiled.leapfrog_logistic(*mine), together[part])
    none = [a[:0] if i in per_job and a is not None else a for i, a in enumerate(arguments)]
    assert compiled.leapfrog_logistic(*none).shape == (0, 11)
    for old, now in zip(before, arguments, strict=True):
        np.testing.assert_array_equal(now, old)


@pytest.mark.parametrize("linear", [None, 0.5])
@pytest.mark.parametrize("batch", [False, True], ids=["full", "minibatch"])
def test_logistic_trajectories_follow_the_leapfrog_rule(compiled, batch, linear):
    """Compare with Algorithm 1, one job at a time: two draws of a minibatch per position, one exact gradient."""
    theta, x, y, offsets, client, factor, ridge, _, rows, key, private, shared, scale, common, etas, steps = logistic_jobs(
        9, 10, "float64", 0.6, 2, 3, batch
    )  # fmt: skip
    off = None if linear is None else np.full_like(theta, linear)
    found = compiled.leapfrog_logistic(
        theta, x, y, offsets, client, factor, ridge, off, rows, key, private, shared, scale, common, etas, steps
    )
    for job, c in enumerate(client):

        def gradient(at, draw, job=job, c=c):
            mine = np.arange(offsets[c], offsets[c + 1])
            if batch:
                mine = mine[rng.choice(key[job : job + 1], SIZES[c], BATCH[c], draw)[0]]
            residual = 1 / (1 + np.exp(-(x[mine] @ at))) - y[mine]
            return factor[job] * (x[mine].T @ residual) + ridge[job] * at - (linear or 0)

        at, draw = theta[job], 0
        for t, eta in enumerate(etas):
            own, all_ = (rng.normal(k[job : job + 1], 10, t)[0] for k in (private, shared))
            p = common * all_ + scale[job] * own
            for k in range(steps):
                g = gradient(at, draw)
                moved = at + eta * p - eta**2 / 2 * g
                p = p - eta / 2 * (g + gradient(moved, draw + 1))
                at, draw = moved, draw + (1 if k == steps - 1 else 2)  # the last momentum is not needed
        np.testing.assert_allclose(found[job], at, rtol=1e-11, atol=1e-11)


# --- Sums of replies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_segment_sums_equal_sequential_sums(backend, dtype):
    values, weights = rng.normal(keys(40), 5, 0, dtype), rng.uniform(keys(40), 1)[:, 0]
    starts = np.array([0, 0, 1, 8, 30, 40, 40])
    found = backend.segment_sum(values, weights, starts)
    expected = np.zeros((6, 5), dtype)
    for r in range(6):
        for i in range(starts[r], starts[r + 1]):
            expected[r] += weights[i].astype(dtype) * values[i]
    np.testing.assert_array_equal(found, expected)


# --- Gradients ------------------------------------------------------------------------------------------

OFFSETS = np.array([0, 3, 70, 71, 180, 200])


def gaussian(x, y):
    return problems.GaussianMean.from_arrays(x, OFFSETS, np.eye(6) + 0.3, prior_precision=2.0)


def gaussian_of_many_covariances(x, y):
    sigma = np.eye(6) * (1 + np.arange(5))[:, None, None] + 0.2
    return problems.GaussianMean.from_arrays(x, OFFSETS, sigma)


def linear(x, y):
    return problems.LinearRegression.from_arrays(x, y, OFFSETS, noise_variance=0.4, prior_precision=1.5)


def logistic(x, y):
    return problems.LogisticRegression.from_arrays(x, (y > 0).astype(x.dtype), OFFSETS, prior_precision=3.0)


def softmax(x, y):
    labels = (np.abs(y) * 3).astype(int) % 4
    return problems.SoftmaxRegression.from_arrays(x, labels, OFFSETS, classes=4, prior_precision=1.0)


def softmax_without_bias(x, y):
    labels = (np.abs(y) * 3).astype(int) % 4
    return problems.SoftmaxRegression.from_arrays(x, labels, OFFSETS, classes=4, bias=False)


def as_bytes(x):
    return ((x + 4) * 32).clip(0, 255).astype(np.uint8), {"scale": 1 / 32, "shift": np.full(6, -4.0)}


def softmax_of_bytes(x, y):
    labels, (rows, scale) = (np.abs(y) * 3).astype(int) % 4, as_bytes(x)
    return problems.SoftmaxRegression.from_arrays(rows, labels, OFFSETS, classes=4, prior_precision=1.0, **scale)


def network(x, y):
    labels = (np.abs(y) * 3).astype(int) % 4
    return problems.NeuralNetwork.from_arrays(x, labels, OFFSETS, (7, 5), 4, prior_precision=1.0)


def network_of_bytes(x, y):
    labels, (rows, scale) = (np.abs(y) * 3).astype(int) % 4, as_bytes(x)
    return problems.NeuralNetwork.from_arrays(rows, labels, OFFSETS, (9,), 4, **scale)


@pytest.fixture(
    params=[
        gaussian,
        gaussian_of_many_covariances,
        linear,
        logistic,
        softmax,
        softmax_without_bias,
        softmax_of_bytes,
        network,
        network_of_bytes,
    ],
    ids=lambda make: make.__name__,
)
def make(request):
    return request.param


def gradient_jobs(make, dtype, data_dtype, batch):
    x = rng.normal(keys(200, Stream.DATA), 7, 0).astype(data_dtype)
    problem = make(np.ascontiguousarray(x[:, :6]), x[:, 6].copy())
    client = np.arange(80) * 7 % 5
    theta = 0.5 * rng.normal(keys(80, Stream.DATA, seed=2), problem.dim, 0)
    rows = None
    if batch:
        m = np.minimum(problem.sizes[client], 1 + np.arange(80) % 30)
        start = np.concatenate([[0], np.cumsum(m)])
        rows = reference.choose_rows(keys(80, Stream.BATCH), problem.sizes[client], start, 0), start
    return problem, theta.astype(dtype), client, rows


@pytest.mark.parametrize("batch", [False, True], ids=["full", "minibatch"])
@pytest.mark.parametrize("dtype, data_dtype", [("float32", "float32"), ("float32", "float64"), ("float64", "float64")])
def test_gradients_equal_the_reference_to_rounding(compiled, make, dtype, data_dtype, batch):
    problem, theta, client, rows = gradient_jobs(make, dtype, data_dtype, batch)
    found = compiled.gradients(problem, theta, client, rows)
    expected = reference.gradients(problem, theta, client, rows)
    assert found.dtype == expected.dtype == dtype
    # The terms of a sum of up to 109 rows cancel: rounding is proportional to the terms, not to the sum.
    np.testing.assert_allclose(found, expected, rtol=0, atol=200 * np.finfo(dtype).eps * np.abs(expected).max())


@pytest.mark.parametrize("batch", [False, True], ids=["full", "minibatch"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_do_not_depend_on_a_jobs_place_in_a_batch(backend, make, dtype, batch):
    problem, theta, client, rows = gradient_jobs(make, dtype, dtype, batch)
    together = backend.gradients(problem, theta, client, rows)

    def part(p):
        if rows is None:
            return backend.gradients(problem, theta[p], client[p], None)
        flat, start = rows
        mine = flat[start[p.start] : start[p.stop]], start[p.start : p.stop + 1] - start[p.start]
        return backend.gradients(problem, theta[p], client[p], mine)

    for parts in chunks(80):
        np.testing.assert_array_equal(np.concatenate([part(p) for p in parts]), together)

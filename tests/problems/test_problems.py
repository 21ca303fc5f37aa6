"""Problems: gradients against finite differences, exact posteriors against the long way, and every refusal."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsim.errors import InvalidInput
from fedsim.problems import (
    GaussianMean,
    LinearRegression,
    LogisticRegression,
    NeuralNetwork,
    SoftmaxRegression,
    weights_of,
)
from fedsim.protocols import potentials_of, total_potential

SIZES = (4, 7, 11)
N = sum(SIZES)
OFFSETS = np.array([0, 4, 11, 22])


def generator(seed=1):
    return np.random.default_rng(seed)


def features(columns=3):
    return generator().normal(size=(N, columns))


def gaussian(prior=2.0, shared=False, dtype=np.float64):
    root = generator(2).normal(size=(3, 3, 3))
    covariance = root @ root.transpose(0, 2, 1) + 0.5 * np.eye(3)
    x = features().astype(dtype)
    return GaussianMean.from_arrays(x, OFFSETS, covariance[0] if shared else covariance, prior)


def linear(prior=2.0, dtype=np.float64):
    x = features()
    y = x @ [1.0, -2.0, 0.5] + generator(3).normal(size=N)
    return LinearRegression.from_arrays(x.astype(dtype), y.astype(dtype), OFFSETS, 0.7, prior)


def logistic(prior=2.0, dtype=np.float64):
    y = (generator(3).uniform(size=N) < 0.4).astype(dtype)
    return LogisticRegression.from_arrays(features().astype(dtype), y, OFFSETS, prior)


def softmax(prior=2.0, bias=True, dtype=np.float64):
    y = generator(3).integers(0, 4, N)
    return SoftmaxRegression.from_arrays(features().astype(dtype), y, OFFSETS, 4, bias, None, prior)


def network(prior=2.0, widths=(5, 6), dtype=np.float64):
    y = generator(3).integers(0, 4, N)
    return NeuralNetwork.from_arrays(features().astype(dtype), y, OFFSETS, widths, 4, None, prior)


EVERY = {
    "network": network, "deep network": lambda **k: network(widths=(4, 3, 5), **k),
    "gaussian": gaussian, "gaussian, one covariance": lambda **k: gaussian(shared=True, **k), "linear": linear,
    "logistic": logistic, "softmax": softmax, "softmax without bias": lambda **k: softmax(bias=False, **k),
}  # fmt: skip
every_problem = pytest.mark.parametrize("name", EVERY)


# --- Client potentials, written out row by row ----------------------------------------------------------


def potential(problem, theta, client, rows=None):
    """l^c: the sum over the client's rows, with the share of the prior that these rows carry."""
    own = np.arange(problem.offsets[client], problem.offsets[client + 1])
    own = own if rows is None else own[rows]
    total = 0.0
    for i in own:
        x = problem.x[i]
        if isinstance(problem, GaussianMean):
            precision = problem.precision[client if len(problem.precision) > 1 else 0]
            total += (theta - x) @ precision @ (theta - x) / 2
        elif isinstance(problem, LinearRegression):
            total += (x @ theta - problem.y[i]) ** 2 / (2 * problem.noise_variance)
        elif isinstance(problem, LogisticRegression):
            total += np.log1p(np.exp(x @ theta)) - problem.y[i] * (x @ theta)
        elif isinstance(problem, NeuralNetwork):
            at, values = 0, x
            for wide, high in itertools.pairwise(problem.layers):
                values = np.maximum(values, 0) if at else values
                weights = theta[at : at + wide * high].reshape(wide, high)
                values = values @ weights + theta[at + wide * high : at + wide * high + high]
                at += wide * high + high
            total += np.log(np.exp(values).sum()) - values[problem.y[i]]
        else:
            split = problem.features * problem.classes
            scores = x @ theta[:split].reshape(problem.features, problem.classes)
            scores = scores + theta[split:] if problem.bias else scores
            total += np.log(np.exp(scores).sum()) - scores[problem.y[i]]
    return total + problem.prior_precision * len(own) / len(problem.x) * (theta @ theta) / 2


def differences(function, theta, step=1e-6):
    unit = np.eye(len(theta)) * step
    return np.array([(function(theta + e) - function(theta - e)) / (2 * step) for e in unit])


def somewhere(problem, seed=5):
    return generator(seed).normal(size=problem.dim)


@every_problem
def test_gradients_are_the_slopes_of_the_client_potentials(name):
    problem = EVERY[name]()
    theta = somewhere(problem)
    for client in range(problem.clients):
        slope = differences(lambda t, c=client: potential(problem, t, c), theta)
        assert np.allclose(problem.gradient(theta, client), slope, rtol=1e-6, atol=1e-6)


@every_problem
def test_minibatch_gradients_are_the_slopes_of_their_rows(name):
    problem = EVERY[name]()
    theta, rows = somewhere(problem), np.array([3, 0, 2])
    slope = differences(lambda t: potential(problem, t, 1, rows), theta)
    assert np.allclose(problem.gradient(theta, 1, rows), slope, rtol=1e-6, atol=1e-6)


@every_problem
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 3e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("data_dtype", [np.float32, np.float64])
def test_compiled_gradients_agree_with_the_reference(name, dtype, tolerance, data_dtype):
    problem = EVERY[name](dtype=data_dtype)
    clients = np.array([2, 0, 1, 1, 2, 0])
    theta = generator().normal(size=(6, problem.dim)).astype(dtype)
    rows = [np.array(r) for r in ([10, 3], [0], [6, 1, 5], list(range(7)), [0, 1], [2])]
    start = np.concatenate([[0], np.cumsum([len(r) for r in rows])])
    full, batch = (
        problem.gradients(theta, clients),
        problem.gradients(theta, clients, (np.concatenate(rows), start)),
    )
    assert full.dtype == batch.dtype == dtype
    for i, client in enumerate(clients):
        scale = tolerance * max(1, np.abs(full[i]).max())
        assert np.allclose(full[i], problem.gradient(theta[i], client), rtol=0, atol=scale)
        assert np.allclose(batch[i], problem.gradient(theta[i], client, rows[i]), rtol=0, atol=scale)


@every_problem
def test_gradients_leave_their_arguments_alone(name):
    problem = EVERY[name]()
    theta = generator().normal(size=(3, problem.dim))
    before = theta.copy()
    problem.gradients(theta, np.arange(3))
    problem.gradient(theta[0], 0)
    assert np.array_equal(theta, before)


@pytest.mark.parametrize("make", [logistic, softmax, network])
def test_loss_is_the_mean_potential(make):
    problem = make()
    theta = generator().normal(size=(3, problem.dim))
    total = [sum(potential(problem, t, c) for c in range(3)) for t in theta]
    assert np.allclose(problem.loss(theta), np.array(total) / N, rtol=1e-10)


def test_linear_loss_is_the_mean_squared_error_without_the_prior():
    problem = linear()
    theta = generator().normal(size=(3, 3))
    total = [sum(potential(linear(prior=0.0), t, c) for c in range(3)) for t in theta]
    assert np.allclose(problem.loss(theta), np.array(total) / N, rtol=1e-10)


@pytest.mark.parametrize("make", [linear, logistic, softmax, network])
def test_client_gradients_sum_to_the_slope_of_the_loss(make):
    problem = make(prior=0.0)
    theta = somewhere(problem)
    slope = N * differences(lambda t: problem.loss(t[None])[0], theta)
    assert np.allclose(sum(problem.gradient(theta, c) for c in range(3)), slope, rtol=1e-5, atol=1e-5)


@every_problem
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_clients_potential_is_the_sum_over_its_rows_and_their_share_of_the_prior(name, dtype):
    problem = EVERY[name]()
    theta = somewhere(problem).astype(dtype)
    for client, rows in itertools.product(range(3), (None, np.array([3, 0, 2]))):
        found = problem.potential(theta, client, rows)
        assert isinstance(found, float)
        assert np.isclose(found, potential(problem, theta.astype(np.float64), client, rows), rtol=1e-12)


@every_problem
def test_the_clients_potentials_sum_to_minus_the_log_posterior(name):
    problem = EVERY[name]()
    theta = generator().normal(size=(2, problem.dim))
    total = [sum(potential(problem, t, c) for c in range(3)) for t in theta]
    assert np.allclose(total_potential(problem, theta), total, rtol=1e-12)


@every_problem
@pytest.mark.parametrize("minibatch", [False, True])
@pytest.mark.parametrize("data_dtype", [np.float32, np.float64])
def test_potentials_of_chunks_have_the_bits_of_the_whole_batch(name, minibatch, data_dtype):
    problem = EVERY[name](dtype=data_dtype)
    jobs = 150
    clients = generator(8).integers(0, 3, jobs)
    theta = generator(9).normal(size=(jobs, problem.dim))
    counts = generator(10).integers(1, np.array(SIZES)[clients] + 1)
    start = np.concatenate([[0], np.cumsum(counts)])
    flat = np.concatenate(
        [generator(i).choice(SIZES[c], n, False) for i, (c, n) in enumerate(zip(clients, counts, strict=True))]
    )
    of = potentials_of(problem)

    def part(a, b):
        chosen = (flat[start[a] : start[b]], start[a : b + 1] - start[a]) if minibatch else None
        return of(theta[a:b], clients[a:b], chosen)

    whole = part(0, jobs)
    for size in (1, 7, 64):
        assert np.array_equal(whole, np.concatenate([part(a, min(a + size, jobs)) for a in range(0, jobs, size)]))
    for i in range(0, jobs, 13):
        rows = flat[start[i] : start[i + 1]] if minibatch else None
        assert np.isclose(whole[i], potential(problem, theta[i], clients[i], rows), rtol=1e-10)


@pytest.mark.parametrize("make", [gaussian, linear])
def test_potentials_of_data_far_from_zero_keep_their_differences(make):
    """y and x around 1e6: sums of squares near 1e13, of which differences of order one must survive."""
    near = make(prior=0.0)
    if isinstance(near, GaussianMean):
        far = GaussianMean.from_arrays(near.x + 1e6, OFFSETS, np.linalg.inv(near.precision))
        shift = np.full(3, 1e6)
    else:
        shift = np.full(3, 1e6)
        far = LinearRegression.from_arrays(near.x, near.y + near.x @ shift, OFFSETS, near.noise_variance)
    theta = generator(9).normal(size=(8, 3))
    clients = np.arange(8) % 3
    exact = np.array([potential(near, t, c) for t, c in zip(theta, clients, strict=True)])
    assert np.allclose(potentials_of(far)(theta + shift, clients, None), exact, rtol=0, atol=1e-4)


def test_potentials_do_not_saturate_where_probabilities_do():
    x = np.array([[1000.0], [-1000.0]])
    many = SoftmaxRegression([(x, np.array([0, 1]))], classes=2, bias=False)
    assert many.potential(np.array([-5.0, 5.0]), 0) == pytest.approx(20_000.0, rel=1e-15)


def test_extreme_scores_stay_finite():
    x = np.array([[1000.0], [-1000.0]])
    binary = LogisticRegression([(x, np.array([0, 1]))])
    assert binary.potential(np.array([5.0]), 0) == pytest.approx(10_000.0, rel=1e-15)
    assert binary.potentials(np.array([[5.0]]), np.array([0])) == pytest.approx(10_000.0, rel=1e-15)
    assert binary.gradient(np.array([5.0]), 0) == pytest.approx([2000.0])
    many = SoftmaxRegression([(x, np.array([0, 1]))], classes=2)
    assert np.isfinite(many.gradient(np.full(4, 9.0), 0)).all()
    assert np.isfinite(many.loss(np.array([[1.0, -1.0, 0.0, 0.0]]))).all()


# --- The prior is spread over the rows ------------------------------------------------------------------


@every_problem
def test_clients_carry_the_prior_in_proportion_to_their_rows(name):
    theta = somewhere(EVERY[name]())
    for client, size in enumerate(SIZES):
        added = EVERY[name](prior=3.0).gradient(theta, client) - EVERY[name](prior=0.0).gradient(theta, client)
        assert np.allclose(added, 3.0 * size / N * theta)


@every_problem
def test_a_minibatch_scaled_up_carries_the_clients_whole_share(name):
    theta = somewhere(EVERY[name]())
    rows = np.array([0, 2])
    added = EVERY[name](prior=3.0).gradient(theta, 2, rows) - EVERY[name](prior=0.0).gradient(theta, 2, rows)
    assert np.allclose(SIZES[2] / 2 * added, 3.0 * SIZES[2] / N * theta)


def test_weights_are_the_clients_shares_of_the_data():
    assert np.allclose(weights_of(gaussian()), np.array(SIZES) / N)

    class Own:
        clients, sizes, weights = 2, np.array([1, 1]), (0.25, 0.75)

    assert weights_of(Own()).tolist() == [0.25, 0.75]


# --- Exact posteriors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [0.0, 4.0])
def test_gaussian_posterior_is_the_long_formula(prior):
    problem = gaussian(prior)
    precision, shift = prior * np.eye(3), np.zeros(3)
    for i in range(N):
        p = problem.precision[np.searchsorted(OFFSETS, i, side="right") - 1]
        precision, shift = precision + p, shift + p @ problem.x[i]
    mean, covariance = problem.exact()
    assert np.allclose(covariance, np.linalg.inv(precision))
    assert np.allclose(mean, np.linalg.solve(precision, shift))


def test_one_covariance_without_a_prior_gives_the_data_mean_and_sigma_over_n():
    sigma = np.array([[5.0, -2.0], [-2.0, 1.0]])
    x = generator().normal(size=(40, 2))
    mean, covariance = GaussianMean([x[:10], x[10:]], sigma).exact()
    assert np.allclose(mean, x.mean(axis=0))
    assert np.allclose(covariance, sigma / 40)


@pytest.mark.parametrize("prior", [0.0, 4.0])
def test_linear_posterior_is_ridge_regression(prior):
    problem = linear(prior)
    precision = problem.x.T @ problem.x / 0.7 + prior * np.eye(3)
    mean, covariance = problem.exact()
    assert np.allclose(covariance, np.linalg.inv(precision))
    assert np.allclose(mean, np.linalg.solve(precision, problem.x.T @ problem.y / 0.7))


@pytest.mark.parametrize("make", [gaussian, linear])
def test_the_posterior_mean_is_where_the_gradients_cancel(make):
    problem = make()
    mean, _ = problem.exact()
    assert np.allclose(sum(problem.gradient(mean, c) for c in range(3)), 0, atol=1e-10)


@pytest.mark.parametrize("make", [gaussian, linear])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quadratic_tables_are_the_gradient(make, dtype):
    problem = make()
    hessian, shift = problem.quadratic(dtype)
    assert hessian.dtype == shift.dtype == dtype
    theta = somewhere(problem)
    for c in range(3):
        assert np.allclose(hessian[c] @ theta - shift[c], problem.gradient(theta, c), rtol=1e-5)


def test_a_posterior_that_the_data_do_not_determine_is_refused():
    x = np.ones((5, 3))
    with pytest.raises(InvalidInput, match="5 rows do not determine 3 coefficients; set prior_precision > 0"):
        LinearRegression([(x, np.ones(5))]).exact()
    mean, _ = LinearRegression([(x, np.ones(5))], prior_precision=1.0).exact()
    assert mean.shape == (3,)


# --- Data is kept as it comes ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_flat_arrays_are_shared_not_copied(dtype):
    x, y, labels = features().astype(dtype), np.ones(N, dtype), np.zeros(N, np.int64)
    assert np.shares_memory(GaussianMean.from_arrays(x, OFFSETS, np.eye(3)).x, x)
    for problem, target in (
        (LinearRegression.from_arrays(x, y, OFFSETS), y),
        (LogisticRegression.from_arrays(x, y, OFFSETS), y),
        (SoftmaxRegression.from_arrays(x, labels, OFFSETS), labels),
    ):
        assert np.shares_memory(problem.x, x)
        assert np.shares_memory(problem.y, target)
        assert problem.x.dtype == dtype


@every_problem
def test_read_only_data_is_welcome(name):
    problem = EVERY[name]()
    problem.x.flags.writeable = False
    assert np.isfinite(problem.gradients(np.zeros((3, problem.dim)), np.arange(3))).all()


def test_lists_of_clients_and_flat_arrays_are_the_same_problem():
    x, y = features(), generator(3).integers(0, 2, N)
    cuts = [slice(a, b) for a, b in itertools.pairwise(OFFSETS)]
    theta = generator().normal(size=(3, 3))
    pairs = [
        (GaussianMean([x[c] for c in cuts], np.eye(3)), GaussianMean.from_arrays(x, OFFSETS, np.eye(3))),
        (LinearRegression([(x[c], y[c]) for c in cuts]), LinearRegression.from_arrays(x, y, OFFSETS)),
        (LogisticRegression([(x[c], y[c]) for c in cuts]), LogisticRegression.from_arrays(x, y, OFFSETS)),
    ]
    for listed, flat in pairs:
        assert listed.sizes.tolist() == flat.sizes.tolist() == list(SIZES)
        assert (listed.clients, listed.dim) == (flat.clients, flat.dim) == (3, 3)
        assert np.array_equal(listed.gradients(theta, np.arange(3)), flat.gradients(theta, np.arange(3)))


def test_labels_of_plus_and_minus_one_mean_one_and_zero():
    x, y = features(), generator(3).integers(0, 2, N)
    theta = np.array([0.3, -1.0, 2.0])
    signed = LogisticRegression.from_arrays(x, 2 * y - 1, OFFSETS, test=(x, 2 * y - 1))
    assert np.array_equal(signed.gradient(theta, 0), LogisticRegression.from_arrays(x, y, OFFSETS).gradient(theta, 0))
    assert signed.test[1].tolist() == y.tolist()


@pytest.mark.parametrize("make", [logistic, softmax])
def test_predictions_are_probabilities_of_the_test_rows(make):
    problem = make()
    kind = type(problem)
    labels = np.arange(5) % 2
    extra = {"classes": 4} if kind is SoftmaxRegression else {}
    problem = kind.from_arrays(problem.x, problem.y, OFFSETS, test=(features()[:5], labels), **extra)
    p = problem.predict(somewhere(problem))
    assert p.shape == (5, 4 if extra else 2)
    assert np.allclose(p.sum(axis=1), 1)
    assert (p > 0).all()


# --- Synthetic problems ---------------------------------------------------------------------------------

SYNTHETIC = {
    "gaussian": lambda **k: GaussianMean.synthetic(6, 2, **k),
    "linear": lambda **k: LinearRegression.synthetic(6, 2, **k),
    "logistic": lambda **k: LogisticRegression.synthetic(6, 2, **k),
    "softmax": lambda **k: SoftmaxRegression.synthetic(6, 2, 3, **k),
}


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_problems_are_a_function_of_their_seed(name):
    make = SYNTHETIC[name]
    first, again, other = make(samples=20, seed=4), make(samples=20, seed=4), make(samples=20, seed=5)
    assert first.x.tobytes() == again.x.tobytes()
    assert first.x.shape == (120, 2)
    assert not np.intersect1d(first.x, other.x).size
    if name != "gaussian":
        assert first.y.tobytes() == again.y.tobytes()


@pytest.mark.parametrize("name", SYNTHETIC)
def test_synthetic_problems_take_a_size_per_client(name):
    assert SYNTHETIC[name](samples=[1, 2, 3, 4, 5, 6]).sizes.tolist() == [1, 2, 3, 4, 5, 6]


def test_synthetic_gaussian_data_have_the_stated_spread():
    sigma = np.array([[5.0, -2.0], [-2.0, 1.0]])
    problem = GaussianMean.synthetic(400, 2, heterogeneity=9.0, samples=50, seed=1, covariance=sigma)
    clients = problem.x.reshape(400, 50, 2)
    within = np.einsum("cni,cnj->ij", *[clients - clients.mean(axis=1, keepdims=True)] * 2) / (400 * 49)
    between = np.cov(clients.mean(axis=1).T)
    assert np.allclose(within, sigma, atol=0.25)
    assert np.allclose(between, 9 * np.eye(2) + sigma / 50, atol=3.5)
    assert np.allclose(problem.exact()[1], sigma / 20_000)


def test_synthetic_regressions_recover_what_they_were_made_from():
    mean, covariance = LinearRegression.synthetic(5, 3, heterogeneity=0.0, samples=4000, seed=2).exact()
    again, _ = LinearRegression.synthetic(5, 3, heterogeneity=0.0, samples=100, seed=2).exact()
    assert np.abs(mean - again).max() < 0.3
    assert np.allclose(covariance, np.eye(3) / 20_000, atol=2e-6)


# --- Refusals -------------------------------------------------------------------------------------------

X, Y = np.ones((4, 2)), np.array([0, 1, 0, 1])
NAN = np.array([[1.0, 2.0], [np.nan, 1.0]])
NEGATIVE = np.array([[1.0, 2.0], [2.0, 1.0]])
WORDS = np.array(["a", "b", "a", "b"])

WRONG = {
    "no clients": (lambda: GaussianMean([], np.eye(2)), "data is empty"),
    "data that is a number": (lambda: GaussianMean(5, np.eye(2)), "GaussianMean"),
    "one array for all clients": (lambda: GaussianMean(X, np.eye(2)), r"two axes .* not shape \(2,\)"),
    "NaN in a client's data": (
        lambda: GaussianMean([X, NAN], np.eye(2)),
        "client 1 has a NaN or infinity in row 1",
    ),
    "infinity in flat data": (
        lambda: LinearRegression.from_arrays(np.array([[1.0], [np.inf]]), [0, 1], [0, 1, 2]),
        "client 1 .* row 0",
    ),
    "clients with different columns": (
        lambda: GaussianMean([X, np.ones((3, 5))], np.eye(2)),
        r"data\[1\] has 5 columns, data\[0\] has 2",
    ),
    "ragged rows": (lambda: GaussianMean([[[1, 2], [3]]], np.eye(2)), r"data\[0\] is not a rectangular array"),
    "words for data": (lambda: GaussianMean([[["a", "b"]]], np.eye(2)), "not a rectangular array of numbers"),
    "words for flat data": (
        lambda: GaussianMean.from_arrays(WORDS[:, None], [0, 4], np.eye(1)),
        "GaussianMean",
    ),
    "vectors for matrices": (lambda: LinearRegression([(np.ones(4), Y)]), "two axes"),
    "flat vectors for matrices": (lambda: GaussianMean.from_arrays(np.ones(4), [0, 4], np.eye(2)), "two axes"),
    "no columns": (lambda: LogisticRegression([(np.ones((4, 0)), Y)]), "column"),
    "no columns of means": (lambda: GaussianMean([np.ones((4, 0))], np.ones((0, 0))), "column"),
    "a client without rows": (lambda: GaussianMean([X, np.ones((0, 2))], np.eye(2)), "client 1 has no data"),
    "offsets that stop early": (lambda: GaussianMean.from_arrays(X, [0, 2], np.eye(2)), "number of rows, 4"),
    "offsets that start late": (lambda: GaussianMean.from_arrays(X, [1, 4], np.eye(2)), "from 0"),
    "offsets that go back": (
        lambda: GaussianMean.from_arrays(X, [0, 3, 2, 4], np.eye(2)),
        "client 1 has no data",
    ),
    "offsets between rows": (lambda: GaussianMean.from_arrays(X, [0, 1.5, 4], np.eye(2)), "offsets"),
    "words for offsets": (lambda: GaussianMean.from_arrays(X, ["a", "b"], np.eye(2)), "offsets"),
    "a covariance of another dimension": (
        lambda: GaussianMean([X], np.eye(3)),
        r"give \(2, 2\) or \(1, 2, 2\)",
    ),
    "covariances for other clients": (lambda: GaussianMean([X, X], np.ones((3, 2, 2))), r"\(2, 2, 2\)"),
    "a number for a covariance": (lambda: GaussianMean([X], 1.0), r"shape \(\)"),
    "a word for a covariance": (lambda: GaussianMean([X], "identity"), "covariance"),
    "a lopsided covariance": (lambda: GaussianMean([X], np.array([[1.0, 0.5], [0.0, 1.0]])), "symmetric"),
    "NaN in a covariance": (lambda: GaussianMean([X], np.full((2, 2), np.nan)), "finite symmetric"),
    "an indefinite covariance": (
        lambda: GaussianMean([X], NEGATIVE),
        "eigenvalue -1; it must be positive definite",
    ),
    "a singular covariance": (lambda: GaussianMean([X], np.zeros((2, 2))), "positive definite"),
    "a negative prior": (lambda: GaussianMean([X], np.eye(2), prior_precision=-1), "prior_precision=-1"),
    "an infinite prior": (lambda: LinearRegression([(X, Y)], prior_precision=np.inf), "prior_precision=inf"),
    "a vector of priors": (lambda: LogisticRegression([(X, Y)], prior_precision=[1, 2]), "prior_precision"),
    "a word for a prior": (lambda: LogisticRegression([(X, Y)], prior_precision="flat"), "prior_precision"),
    "data without labels": (lambda: LinearRegression([X]), r"data\[0\] must be a pair \(X, y\), not ndarray"),
    "too few labels": (lambda: LinearRegression([(X, Y[:3])]), r"4 rows but labels of shape \(3,\)"),
    "too few flat labels": (
        lambda: LinearRegression.from_arrays(X, Y[:3], [0, 4]),
        r"give one label per row, \(4,\)",
    ),
    "NaN labels": (lambda: LinearRegression([(X, [0, np.nan, 1, 1])]), "y holds a NaN or infinity in row 1"),
    "words for labels": (lambda: LogisticRegression([(X, WORDS)]), "label|y "),
    "words for classes": (lambda: SoftmaxRegression([(X, WORDS)]), "label|y "),
    "no noise": (lambda: LinearRegression([(X, Y)], noise_variance=0), "noise_variance=0"),
    "NaN noise": (lambda: LinearRegression([(X, Y)], noise_variance=np.nan), "noise_variance=nan"),
    "a word for noise": (lambda: LinearRegression([(X, Y)], noise_variance="small"), "noise_variance"),
    "labels that are not binary": (lambda: LogisticRegression([(X, Y + 1)]), r"0/1 or -1/\+1, found \[1, 2\]"),
    "fractional binary labels": (lambda: LogisticRegression([(X, Y / 2)]), r"0/1 or -1/\+1"),
    "a class too many": (lambda: SoftmaxRegression([(X, Y + 9)]), "integers from 0 to 9, found 9 to 10"),
    "negative classes": (lambda: SoftmaxRegression([(X, Y - 1)]), "found -1 to 0"),
    "fractional classes": (lambda: SoftmaxRegression([(X, Y / 2)]), "integers"),
    "a single class": (lambda: SoftmaxRegression([(X, Y * 0)], classes=1), r"classes=1\): needs at least 2"),
    "half a class": (lambda: SoftmaxRegression([(X, Y)], classes=2.5), "classes=2.5"),
    "a word for the classes": (lambda: SoftmaxRegression([(X, Y)], classes="ten"), "classes"),
    "test rows with other columns": (
        lambda: SoftmaxRegression([(X, Y)], test=(np.ones((4, 3)), Y)),
        "3 columns",
    ),
    "binary test rows with other columns": (
        lambda: LogisticRegression([(X, Y)], test=(np.ones((4, 3)), Y)),
        "3 columns",
    ),
    "test labels out of range": (
        lambda: SoftmaxRegression([(X, Y)], classes=2, test=(X, Y + 5)),
        "found 5 to 6",
    ),
    "NaN in a test set": (lambda: LogisticRegression([(X, Y)], test=(X * np.nan, Y)), "NaN"),
    "a test set without labels": (lambda: LogisticRegression([(X, Y)], test=(X,)), "test"),
    "an empty test set": (lambda: LogisticRegression([(X, Y)], test=(X[:0], Y[:0])), "test"),
    "no synthetic clients": (lambda: GaussianMean.synthetic(0, 2), "clients=0"),
    "no synthetic rows": (lambda: LinearRegression.synthetic(3, 2, samples=0), "samples=0"),
    "sizes for other clients": (lambda: LinearRegression.synthetic(3, 2, samples=[4, 4]), "samples"),
    "no synthetic columns": (lambda: LogisticRegression.synthetic(3, 0), "column|dim"),
    "negative heterogeneity": (lambda: GaussianMean.synthetic(3, 2, heterogeneity=-1.0), "heterogeneity"),
    "a negative seed": (lambda: GaussianMean.synthetic(3, 2, seed=-1), "seed=-1"),
}


@pytest.mark.parametrize("mistake", WRONG)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_wrong_data_is_refused_in_one_sentence(mistake):
    build, says = WRONG[mistake]
    with pytest.raises(InvalidInput, match=says) as caught:
        build()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 250


@given(data=st.lists(st.lists(st.floats(allow_nan=True), max_size=3), max_size=3))
def test_any_lists_of_numbers_are_a_problem_or_a_refusal(data):
    try:
        problem = GaussianMean([data], np.eye(2))
    except InvalidInput:
        return
    assert problem.x.shape == (len(data), 2)
    assert np.isfinite(problem.x).all()

"""Models on data sets: networks and softmax regression over rows kept as bytes, dealt to clients and to hosts."""

from __future__ import annotations

import numpy as np
import pytest

import fedsim as fs
from fedsim.algorithms import FALD, FedAvg, PrivateFedPAQ
from fedsim.errors import InvalidInput
from fedsim.kernels.cpu.rows import STRIP, gather
from fedsim.problems import LinearRegression, NeuralNetwork, SoftmaxRegression, clipped_gradients, weights_of
from fedsim.runtime.inline import Worker
from fedsim.runtime.jobs import Batch, Setting


@pytest.fixture(scope="module")
def digits():
    return fs.data.load("digits")


@pytest.fixture(scope="module")
def parts(digits):
    return fs.data.dirichlet(digits.y, clients=10, alpha=0.5, seed=1)


def network(digits, parts, **more):
    return NeuralNetwork.of(digits, parts, **{"widths": (16, 8), **more})


# --- Rows as they are stored ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SoftmaxRegression, NeuralNetwork])
def test_bytes_stay_bytes_and_count_as_their_scaled_values(digits, parts, kind):
    stored = kind.of(digits, parts)
    order = np.concatenate(parts)
    more = {"classes": 10, "test": (digits.test_x / 16, digits.test_y)}
    plain = kind.from_arrays(digits.x[order] / 16, digits.y[order], stored.offsets, **more)
    assert stored.x.dtype == np.uint8
    assert stored.test[0] is digits.test_x
    theta = np.random.default_rng(1).normal(size=(10, stored.dim)) / 8
    clients = np.arange(10)
    for rows in (None, (np.tile([0, 2, 1], 10), 3 * np.arange(11))):
        assert np.array_equal(stored.gradients(theta, clients, rows), plain.gradients(theta, clients, rows))
    assert np.array_equal(stored.predict(theta[0]), plain.predict(theta[0]))
    assert np.allclose(stored.loss(theta[:2]), plain.loss(theta[:2]), rtol=1e-13)


def test_clients_have_the_rows_that_they_were_given(digits, parts):
    problem = SoftmaxRegression.of(digits, parts)
    assert problem.sizes.tolist() == [len(p) for p in parts]
    for c, own in enumerate(parts):
        mine = slice(problem.offsets[c], problem.offsets[c + 1])
        assert np.array_equal(problem.x[mine], digits.x[own])
        assert np.array_equal(problem.y[mine], digits.y[own])


def test_a_set_without_test_rows_makes_a_problem_without():
    d = fs.data.from_arrays(np.eye(4), [0, 1, 0, 1])
    problem = NeuralNetwork.of(d, [[0, 1], [2, 3]], widths=(3,))
    assert problem.test is None
    assert problem.scale is None


@pytest.mark.parametrize("kind", [SoftmaxRegression, NeuralNetwork])
def test_a_hosts_shard_has_its_clients_rows_alone_and_gives_their_bits(digits, parts, kind):
    problem = kind.of(digits, parts, prior_precision=2.0)
    theta = np.random.default_rng(1).normal(size=(3, problem.dim)).astype(np.float32) / 8
    rows = np.array([1, 0, 2, 1, 0]), np.array([0, 2, 3, 5])
    for clients in (np.array([2, 3, 4]), np.array([0, 4, 9])):
        held = problem.shard(clients)
        assert len(held.x) == problem.sizes[clients].sum()
        assert held.test is None
        assert held.sizes.tolist() == problem.sizes.tolist()
        for chosen in (None, rows):
            assert np.array_equal(held.gradients(theta, clients, chosen), problem.gradients(theta, clients, chosen))
    assert problem.test is not None


def linear(digits, parts, **more):
    rows = np.concatenate(parts)
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return LinearRegression.from_arrays(digits.x[rows] / 16.0, digits.y[rows] / 10.0, offsets, **more)


def softmax(digits, parts, **more):
    return SoftmaxRegression.of(digits, parts, **more)


@pytest.mark.parametrize("of", [linear, softmax, network])
@pytest.mark.parametrize(("dtype", "prior"), [("float32", 0.0), ("float64", 3.0)])
def test_compiled_descent_takes_the_steps_of_the_loop_bit_by_bit(digits, parts, of, dtype, prior):
    problem = of(digits, parts, prior_precision=prior)
    algorithm = FedAvg(fs.schedules.inverse_time(5.0, 20.0), local_steps=3, batch_size=0.3, objective="scaled")
    worker = Worker(algorithm, Setting(problem, weights_of(problem), 1, np.dtype(dtype), fs.Inline().kernels()))
    clients = np.arange(10)
    message = {"theta": np.random.default_rng(1).normal(size=(1, problem.dim)).astype(dtype) / 8}
    batch = Batch(3, 0 * clients, clients, 0 * clients, message, 0 * clients)
    compiled = worker.compute(batch).values["delta"]
    assert worker.kernel is not None
    worker.kernel = None
    assert np.array_equal(compiled, worker.compute(batch).values["delta"])
    assert compiled.any()


# --- Networks ---------------------------------------------------------------------------------------------


def test_a_network_has_a_weight_for_every_connection_and_a_bias_for_every_unit(digits, parts):
    assert network(digits, parts).dim == 64 * 16 + 16 + 16 * 8 + 8 + 8 * 10 + 10
    assert NeuralNetwork.of(digits, parts, widths=()).dim == SoftmaxRegression.of(digits, parts).dim


def test_a_network_without_hidden_layers_is_softmax_regression(digits, parts):
    deep, flat = NeuralNetwork.of(digits, parts, widths=()), SoftmaxRegression.of(digits, parts)
    theta = np.random.default_rng(1).normal(size=(10, flat.dim)) / 8
    assert np.allclose(deep.gradients(theta, np.arange(10)), flat.gradients(theta, np.arange(10)), atol=1e-11)
    assert np.allclose(deep.predict(theta[0]), flat.predict(theta[0]))


def test_a_run_starts_where_the_network_says(digits, parts):
    problem = NeuralNetwork.of(digits, parts, widths=(200, 100))
    first, again, other = problem.initial(3), problem.initial(3), problem.initial(4)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    for (weights, bias), inputs in zip(problem._split(first), (64, 200, 100), strict=True):
        assert abs(weights.std() / np.sqrt(2 / inputs) - 1) < 0.1
        assert not bias.any()
    scenario = fs.Scenario(problem=problem, algorithm=FedAvg(0.1), budget=fs.Budget(rounds=1), seed=3)
    assert np.array_equal(scenario.start, first)


@pytest.mark.parametrize("prior", [0.0, 3.0])
def test_clipped_gradients_are_sums_of_rows_each_scaled_to_the_bound(digits, parts, prior):
    problem = network(digits, parts, prior_precision=prior)
    theta = np.stack([problem.initial(s) for s in range(2)])
    clients, rows = np.array([3, 5]), (np.array([0, 1, 2, 3, 4]), np.array([0, 2, 5]))
    cpu = fs.Inline().kernels()
    found = clipped_gradients(problem, theta, clients, rows, 0.8, cpu)
    for j, (c, own) in enumerate(((3, [0, 1]), (5, [2, 3, 4]))):
        each = [problem.gradient(theta[j], c, np.array([r])) for r in own]
        norms = [np.linalg.norm(g) for g in each]
        assert max(norms) > 0.8
        assert np.allclose(found[j], sum(g * min(1, 0.8 / n) for g, n in zip(each, norms, strict=True)))


def test_clipping_in_pieces_changes_no_bit(digits, parts, monkeypatch):
    from fedsim import problems

    problem = network(digits, parts)
    theta = np.stack([problem.initial(s) for s in range(6)])
    clients, cpu = np.arange(6), fs.Inline().kernels()
    rows = np.tile(np.arange(4), 6), 4 * np.arange(7)
    whole = clipped_gradients(problem, theta, clients, rows, 0.5, cpu)
    monkeypatch.setattr(problems, "CLIPPED", 5 * problem.dim)
    assert np.array_equal(clipped_gradients(problem, theta, clients, rows, 0.5, cpu), whole)
    all_rows = clipped_gradients(problem, theta[:2], clients[:2], None, 0.5, cpu)
    monkeypatch.setattr(problems, "CLIPPED", 2**40)
    assert np.array_equal(clipped_gradients(problem, theta[:2], clients[:2], None, 0.5, cpu), all_rows)


@pytest.mark.parametrize(
    "algorithm",
    [
        FedAvg(0.1, local_steps=2, batch_size=8),
        FALD(1e-5, local_steps=2, batch_size=8),
        PrivateFedPAQ(0.1, local_steps=2, clip=1.0, epsilon=0.5, delta=1e-3, batch_size=2),
    ],
)
def test_the_contract_holds(digits, parts, algorithm):
    assert len(fs.testing.check(algorithm, network(digits, parts))) >= 8


def test_a_network_is_a_problem_like_any_other(digits, parts):
    assert fs.testing.check(network(digits, parts))


def test_threads_and_chunks_give_the_same_bits(digits, parts):
    scenario = fs.Scenario(
        problem=network(digits, parts, prior_precision=1.0), algorithm=FALD(1e-5, local_steps=3, batch_size=20),
        budget=fs.Budget(rounds=3), metrics=("accuracy", "loss"), dtype="float32", replicas=2,
    )  # fmt: skip
    expected = fs.run(scenario, runtime=fs.Inline(threads=1)).fingerprint
    assert fs.run(scenario, runtime=fs.Inline(threads=2, chunk=3)).fingerprint == expected


def test_fedavg_learns_the_digits(digits, parts):
    scenario = fs.Scenario(
        problem=NeuralNetwork.of(digits, parts, widths=(64, 32)), algorithm=FedAvg(0.2, local_steps=20, batch_size=20),
        budget=fs.Budget(rounds=25), metrics=("accuracy",), evaluate_every=25, dtype="float32", seed=1,
        record=fs.Record(every=25),
    )  # fmt: skip
    assert fs.run(scenario).rounds.accuracy.iloc[-1] > 0.93


def test_pooled_networks_have_one_client(digits, parts):
    problem = network(digits, parts, prior_precision=2.0)
    one = fs.problems.pooled(problem)
    theta = problem.initial(1)[None]
    assert one.clients == 1
    all_rows = problem.gradients(np.repeat(theta, 10, 0), np.arange(10)).sum(axis=0)
    assert np.allclose(one.gradients(theta, np.arange(1))[0], all_rows)


X, Y = np.ones((4, 2), np.uint8), np.array([0, 1, 0, 1])
WRONG = {
    r"widths=\(0,\)": lambda: NeuralNetwork([(X, Y)], widths=(0,)),
    "give integers of at least 1": lambda: NeuralNetwork([(X, Y)], widths=5),
    "one for each of 2 columns": lambda: NeuralNetwork([(X, Y)], scale=[1.0, 2.0, 3.0]),
    r"SoftmaxRegression\(shift": lambda: SoftmaxRegression([(X, Y)], shift=np.nan),
    "from 0 to 1, found 0 to 2": lambda: NeuralNetwork([(X, Y + (Y == 1))], classes=2),
    "prior_precision=-1": lambda: NeuralNetwork([(X, Y)], prior_precision=-1),
    "row 1 has 2 clients": lambda: NeuralNetwork.of(fs.data.from_arrays(X, Y), [[0, 1], [1, 2]]),
    "give a list of arrays of row numbers": lambda: SoftmaxRegression.of(fs.data.from_arrays(X, Y), "iid"),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_fit_is_refused(message):
    with pytest.raises(InvalidInput, match=message):
        WRONG[message]()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stored", [np.uint8, np.int16, np.float32])
def test_rows_are_gathered_and_converted_with_numpys_bits(stored, dtype):
    draw = np.random.default_rng(0)
    x, scale, shift = (200 * draw.random((60, 13))).astype(stored), draw.random(13), draw.random(13)
    for count in (1, STRIP - 1, STRIP, 3 * STRIP + 5):
        rows = draw.integers(0, 60, count)
        expected = x[rows].astype(dtype) * scale.astype(dtype) + shift.astype(dtype)
        assert np.array_equal(gather(x, rows, np.dtype(dtype), scale, shift), expected)

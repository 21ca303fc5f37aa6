"""`job.potential` and `job.loss` are the client's own: a federated MALA has the law of its clients' posteriors."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pytest

import fedsim as fs
from fedsim import kernels
from fedsim.errors import InvalidInput
from fedsim.problems import (
    GaussianMean,
    LinearRegression,
    LogisticRegression,
    NeuralNetwork,
    Payload,
    PerformativeMean,
    SoftmaxRegression,
    StrategicCredit,
    weights_of,
)
from fedsim.protocols import potentials_of
from fedsim.runtime.jobs import Batch, JobsAtHand, Setting

SIZES = (3, 12, 6, 20, 9, 4)
OFFSETS = np.cumsum([0, *SIZES])
N, PRIOR = sum(SIZES), 2.0


@dataclass(frozen=True)
class ConsensusMALA:
    """Every client samples exp(-U_c) by MALA and keeps its chain; the server averages the latest samples by p_c.

    The chains of different clients are independent, so that theta has mean sum_c p_c m_c and variance
    sum_c p_c^2 v_c, where m_c and v_c are those of client c's own posterior (consensus Monte Carlo).
    """

    step_size: float
    local_steps: int = 10

    batched = True
    sampler = True

    def init(self, problem, initial):
        return {"theta": initial}

    def memory(self, problem):
        return {"chain": np.zeros(problem.dim)}

    def broadcast(self, state):
        return {"theta": state["theta"]}

    def work(self, job):
        return self.local_steps

    def client(self, job, message, memory):
        eta, theta = self.step_size / np.sqrt(job.size), memory["chain"]
        f, slope = job.potential(theta), job.gradient(theta, 0)
        for k in range(self.local_steps):
            there = theta - eta * slope + np.sqrt(2 * eta) * job.normal(k)
            f_there, slope_there = job.potential(there), job.gradient(there, 0)
            out, back = there - theta + eta * slope, theta - there + eta * slope_there
            away = ((out**2).sum(axis=-1, keepdims=True) - (back**2).sum(axis=-1, keepdims=True)) / (4 * eta)
            yes = np.log(job.uniform(k)) < f - f_there + away
            theta, slope = np.where(yes, there, theta), np.where(yes, slope_there, slope)
            f = np.where(yes, f_there, f)
        return {"theta": theta}, {"chain": theta}

    def server(self, state, replies, rng):
        return {"theta": replies.mean("theta")}


def data():
    g = np.random.default_rng(4)
    x = g.normal(size=(N, 1)) + np.repeat(g.normal(size=len(SIZES)), SIZES)[:, None]
    return x, (g.uniform(size=N) < 1 / (1 + np.exp(-1.5 * x[:, 0]))).astype(float)


class OwnLogistic:
    """Logistic regression as someone outside the package would write it."""

    clients, dim, sizes = len(SIZES), 1, np.array(SIZES)

    def __init__(self):
        self.x, self.y = data()

    def gradient(self, theta, client, rows=None):
        x, y = (part[OFFSETS[client] : OFFSETS[client + 1]] for part in (self.x, self.y))
        x, y = (x, y) if rows is None else (x[rows], y[rows])
        return x.T @ (1 / (1 + np.exp(-(x @ theta))) - y) + PRIOR * len(x) / N * theta

    def potential(self, theta, client, rows=None):
        x, y = (part[OFFSETS[client] : OFFSETS[client + 1]] for part in (self.x, self.y))
        x, y = (x, y) if rows is None else (x[rows], y[rows])
        score = x @ theta
        return (np.logaddexp(0, score) - y * score).sum() + PRIOR * len(x) / N * (theta @ theta) / 2


def logistic():
    return LogisticRegression.from_arrays(*data(), OFFSETS, PRIOR)


def softmax():
    """Two classes, no bias: a difference of weights away from logistic regression, each with half the share."""
    x, y = data()
    return SoftmaxRegression.from_arrays(x, y.astype(int), OFFSETS, 2, False, None, PRIOR)


def gaussian():
    return GaussianMean.from_arrays(data()[0], OFFSETS, [[2.0]], PRIOR)


# --- Laws by quadrature, from the data alone --------------------------------------------------------------


def quadrature(heights, points):
    mass = np.exp(heights.min() - heights)
    mass /= mass.sum()
    mean = mass @ points
    return mean, mass @ (points - mean) ** 2


def client_laws(name):
    """Mean and variance of every client's posterior of a scalar: theta, or the difference of softmax's two weights."""
    grid = np.linspace(-30, 30, 60_001)
    x, y = data()
    for c, n in enumerate(SIZES):
        own = slice(OFFSETS[c], OFFSETS[c + 1])
        if name == "gaussian":
            losses = ((grid[:, None] - x[own, 0]) ** 2 / 4).sum(axis=1)
        else:
            score = grid[:, None] * x[own, 0]
            losses = (np.logaddexp(0, score) - y[own] * score).sum(axis=1)
        # The difference of two weights N(0, 1/share) has precision share / 2.
        share = PRIOR * n / N / (2 if name == "softmax" else 1)
        yield quadrature(losses + share * grid**2 / 2, grid)


PROBLEMS = {"logistic": logistic, "own": OwnLogistic, "softmax": softmax, "gaussian": gaussian}


# A loop over jobs in Python takes long, so these have fewer replicas.
REPLICAS = {"logistic": 2000, "gaussian": 2000, "own": 250, "softmax": 250}


@pytest.mark.parametrize("name", ["logistic", "own", "gaussian", pytest.param("softmax", marks=pytest.mark.slow)])
def test_a_federated_mala_has_the_variance_of_its_clients_posteriors(name):
    replicas = REPLICAS[name]
    scenario = fs.Scenario(
        problem=PROBLEMS[name](), algorithm=ConsensusMALA(1.0, 10), budget=fs.Budget(rounds=6), replicas=replicas,
        seed=5, record=fs.Record(every=6),
    )  # fmt: skip
    theta = fs.run(scenario).samples[-1]
    theta = theta[:, 1] - theta[:, 0] if name == "softmax" else theta[:, 0]
    p = np.array(SIZES) / N
    means, variances = (np.array(column) for column in zip(*client_laws(name), strict=True))
    mean, variance = p @ means, p**2 @ variances
    squares = (theta - mean) ** 2
    assert abs(theta.mean() - mean) / math.sqrt(variance / replicas) < 5
    assert abs(squares.mean() - variance) / (squares.std() / math.sqrt(replicas)) < 5
    assert abs(theta.var() / variance - 1) < 0.5  # the whole problem's potential in place of a client's: 0.2


# --- The job's own view -----------------------------------------------------------------------------------


def network():
    x, y = data()
    return NeuralNetwork.from_arrays(x, y.astype(int), OFFSETS, (3,), 2, None, PRIOR)


def linear():
    x, y = data()
    return LinearRegression.from_arrays(x, y + x[:, 0], OFFSETS, 0.5, PRIOR)


JOBS = PROBLEMS | {"network": network, "linear": linear}


def losses(name, theta, client):
    """A client's losses row by row, from the data alone."""
    x, y = (part[OFFSETS[client] : OFFSETS[client + 1]] for part in data())
    x = x[:, 0]
    if name == "gaussian":
        return (theta[0] - x) ** 2 / 4
    if name == "linear":
        return (x * theta[0] - y - x) ** 2
    if name == "network":
        first, last = theta[:6].reshape(2, 3), theta[6:].reshape(4, 2)
        scores = np.maximum(x[:, None] * first[0] + first[1], 0) @ last[:3] + last[3]
    else:
        scores = x[:, None] * (theta if name == "softmax" else np.array([0.0, theta[0]]))
    return np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(x)), y.astype(int)]


def jobs_of(problem, clients, dtype="float64"):
    setting = Setting(problem, weights_of(problem), 1, np.dtype(dtype), kernels.backend("cpu"))
    batch = Batch(0, np.zeros_like(clients), clients, np.zeros_like(clients), {}, np.zeros_like(clients))
    return [JobsAtHand(setting, batch.part(slice(i, i + 1)), single=True) for i in range(len(clients))], JobsAtHand(
        setting, batch, single=False
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", JOBS)
def test_a_job_sees_its_own_clients_potential_and_loss(name, dtype):
    problem = JOBS[name]()
    clients = np.array([5, 0, 3, 3, 1])
    theta = np.random.default_rng(1).normal(size=(5, problem.dim)).astype(dtype)
    singles, batched = jobs_of(problem, clients, dtype)
    for i, (job, client) in enumerate(zip(singles, clients, strict=True)):
        rows = losses(name, theta[i].astype(float), client)
        potential, loss = job.potential(theta[i]), job.loss(theta[i])
        assert potential.shape == loss.shape == (1,)
        assert potential.dtype == loss.dtype == np.float64
        share = 0 if name == "own" else problem.share
        square = (theta[i].astype(float) ** 2).sum()
        prior = PRIOR * len(rows) / N * square / 2
        assert np.isclose(potential[0], rows.sum() + prior, rtol=1e-12)
        assert np.isclose(loss[0], rows.mean() + (0 if share else prior / len(rows)), rtol=1e-12)
        assert np.array_equal(batched.potential(theta)[i], potential)
        assert np.array_equal(batched.loss(theta)[i], loss)


@pytest.mark.parametrize("name", [name for name in JOBS if name != "own"])
def test_a_shard_is_enough_for_its_clients_potentials_and_gradients(name):
    whole = JOBS[name]()
    theta, own = np.random.default_rng(2).normal(size=whole.dim), np.array([4, 1])
    part = whole.shard(own)
    assert len(part.x) == SIZES[4] + SIZES[1]
    for client, rows in itertools.product(own, (None, np.array([3, 0]))):
        assert part.potential(theta, client, rows) == whole.potential(theta, client, rows)
    jobs, backend = np.array([1, 4, 1]), kernels.backend("cpu")
    thetas, flat = np.stack([theta, theta + 1, 2 * theta]), (np.array([2, 0, 1]), np.arange(4))
    for rows in (None, flat):
        expected = backend.gradients(whole, thetas, jobs, rows)
        assert np.array_equal(backend.gradients(part, thetas, jobs, rows), expected)
        assert np.array_equal(potentials_of(part)(thetas, jobs, rows), potentials_of(whole)(thetas, jobs, rows))


def test_every_shipped_problem_with_rows_has_shards():
    shipped = [getattr(fs.problems, name) for name in fs.problems.__all__]
    classes = {part for part in shipped if isinstance(part, type)}
    assert {part.__name__ for part in classes if not hasattr(part, "shard")} == {"Payload", "PerformativeMean"}


def test_a_shard_of_strategic_credit_reacts_like_the_whole_problem():
    rng = np.random.default_rng(3)
    data = [(rng.normal(size=(n, 9)), rng.integers(0, 2, n).astype(float)) for n in SIZES]
    whole, own, backend = fs.problems.StrategicCredit(data, 0.5), np.array([1, 4]), kernels.backend("cpu")
    part, theta = whole.shard(own), rng.normal(size=(2, 9))
    assert len(part.x) == SIZES[1] + SIZES[4]
    key = backend.keys(1, 0, client=own)
    for batch_size in (None, 2):
        expected = whole.react(theta, own, key, 0, batch_size, backend)
        assert np.array_equal(part.react(theta, own, key, 0, batch_size, backend), expected)


@pytest.mark.parametrize("name", ["own", "softmax"])
def test_the_federated_mala_keeps_the_contract(name):
    assert len(fs.testing.check(ConsensusMALA(0.5, 3), PROBLEMS[name]())) >= 8


def test_without_a_problem_an_algorithm_is_tried_on_three():
    kept = fs.testing.check(ConsensusMALA(0.5, 3))
    for problem in ("GaussianMean", "LogisticRegression", "SoftmaxRegression"):
        assert f"client 4's reply depends on no other client's rows (on {problem})" in kept
        assert f"one job at a time and stacked agree (on {problem})" in kept


@dataclass(frozen=True)
class Peeks(ConsensusMALA):
    """Reads another client's data behind the job's back."""

    batched = False

    def client(self, job, message, memory):
        other = sum(job._setting.problem.gradient(message["theta"], c) for c in range(job.clients))
        return {"theta": message["theta"] - 1e-3 * other}, memory


def test_an_algorithm_that_sees_other_clients_rows_is_found():
    with pytest.raises(
        fs.testing.Broken, match=r"client 0's reply depends on other clients' rows.* \(on GaussianMean\)"
    ):
        fs.testing.check(Peeks(0.5, 3))


# --- Policies that go by losses ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Telling(fs.algorithms.FedAvg):
    """FedAvg whose clients report their mean loss at the model they received."""

    local_only = ("loss",)

    def client(self, job, message, memory):
        reply, memory = super().client(job, message, memory)
        return reply | {"loss": job.loss(message["theta"])}, memory


SEEN: list[np.ndarray] = []


@dataclass(frozen=True)
class Curious:
    """Asks all clients and stores the losses that they reported last."""

    def select(self, view, rng):
        ids = np.arange(view.clients)
        SEEN.append(view.last(ids, "loss"))
        return ids

    def close(self, view):
        return math.inf


def test_policies_see_every_clients_own_loss():
    SEEN.clear()
    problem = logistic()
    result = fs.run(fs.Scenario(problem, Telling(0.1, local_steps=2), fs.Budget(rounds=3), participation=Curious()))
    for number, theta in ((1, np.zeros(1)), (2, result.samples[0, 0])):
        expected = [losses("logistic", theta, c).mean() for c in range(len(SIZES))]
        assert np.allclose(SEEN[number], expected, rtol=1e-12)
        assert np.ptp(expected) > 0 or number == 1


# --- Refusals ---------------------------------------------------------------------------------------------


def credit():
    g = np.random.default_rng(0)
    return StrategicCredit([(g.normal(size=(6, 9)), np.arange(6) % 2)] * 2, 1.0)


class NoPotential:
    clients, dim, sizes, gradient = 2, 1, np.array([1, 2]), lambda self, theta, client, rows=None: theta


REFUSED = {
    "PerformativeMean: its data change with theta": lambda: PerformativeMean((1.0, 2.0), 0.1),
    "StrategicCredit: its data change with theta": credit,
    r"NoPotential has no potential\(theta, client, rows=None\); write one": NoPotential,
}


@pytest.mark.parametrize("message", REFUSED)
@pytest.mark.parametrize("algorithm", [ConsensusMALA(0.5, 1), Telling(0.1)])
def test_what_has_no_potential_is_refused_before_the_first_round(message, algorithm):
    with pytest.raises(InvalidInput, match=message):
        fs.run(fs.Scenario(REFUSED[message](), algorithm, fs.Budget(rounds=1)))


def test_payload_times_an_algorithm_that_accepts_or_rejects_and_computes_nothing():
    scenario = fs.Scenario(Payload(4, 3), ConsensusMALA(0.5, 2), fs.Budget(rounds=2), devices=fs.devices.constant(1.0))
    assert fs.run(scenario, timing_only=True).rounds["closed_s"].tolist() == [2.0, 4.0]
    with pytest.raises(InvalidInput, match="has no data to compute with"):
        fs.run(scenario)
    with pytest.raises(InvalidInput, match="has no data to compute with"):
        Payload(4, 3).potential(np.zeros(3), 0)

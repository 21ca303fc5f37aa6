"""`fs.problems.Jax`: a JAX loss as a problem; without jax these tests are skipped, all but the last."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fedsim as fs
from fedsim import participation
from fedsim.algorithms import FALD, FedAvg
from fedsim.errors import InvalidInput
from fedsim.problems import Jax, SoftmaxRegression

DRAW = np.random.default_rng(3)
SIZES = (9, 5, 12)
DATA = [(DRAW.normal(size=(n, 6)), DRAW.integers(0, 4, n)) for n in SIZES]
TEST = (DRAW.normal(size=(20, 6)), DRAW.integers(0, 4, 20))
START = {"b": np.zeros(4), "w": 0.1 * DRAW.normal(size=(6, 4))}  # leaves in the order of their names


def scores(parameters, x):
    return x @ parameters["w"] + parameters["b"]


def loss(parameters, x, y):
    import jax

    return -jax.nn.log_softmax(scores(parameters, x))[np.arange(len(x)), y].mean()


def summed(parameters, x, y):
    return loss(parameters, x, y) * len(x)


def far(parameters, x, y):
    """A mean that is zero everywhere near the start."""
    import jax

    return jax.nn.relu(scores(parameters, x) - 1e6).mean()


def weighted(parameters, x, y):
    """A mean with weights that depend on all rows."""
    import jax

    weights = jax.numpy.arange(1.0, len(x) + 1)
    return (weights * (scores(parameters, x)[:, 0] - y) ** 2).sum() / weights.sum()


def problem(**more):
    return Jax(loss, DATA, START, scores, TEST, **more)


@pytest.fixture
def there():
    pytest.importorskip("jax", reason="jax is not installed; pip install jax==0.10.2 for these tests")


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_equals_the_librarys_own_softmax_regression(dtype):
    mine, own = problem(prior_precision=0.3), SoftmaxRegression(DATA, classes=4, test=TEST, prior_precision=0.3)
    theta = (mine.initial(0) + 0.3 * DRAW.normal(size=(3, 28))).astype(dtype)
    swapped = np.concatenate([theta[:, 4:], theta[:, :4]], axis=1)  # ours has the weights first
    near = {"rtol": 1e-10, "atol": 1e-11} if dtype == "float64" else {"rtol": 1e-3, "atol": 1e-4}
    for rows in (None, np.array([3, 0, 4])):
        for c in range(3):
            found = mine.gradient(theta[c], c, rows)
            assert found.dtype == dtype
            assert np.allclose(np.r_[found[4:], found[:4]], own.gradient(swapped[c], c, rows), **near)
            assert np.isclose(mine.potential(theta[c], c, rows), own.potential(swapped[c], c, rows), rtol=1e-10)
    assert np.allclose(mine.loss(theta), own.loss(swapped), **near)
    assert np.allclose(mine.predict(theta[0]), own.predict(swapped[0]), **near)


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("more", [{}, {"reduction": "sum"}])
def test_a_summed_loss_is_found_to_be_one(more):
    mean, total = problem(prior_precision=0.3), Jax(summed, DATA, START, prior_precision=0.3, **more)
    theta = mean.initial(0) + 0.3
    for c in range(3):
        assert np.allclose(total.gradient(theta, c), mean.gradient(theta, c), rtol=1e-11)
        assert np.isclose(total.potential(theta, c), mean.potential(theta, c), rtol=1e-12)


@pytest.mark.usefixtures("there")
def test_what_the_rows_leave_open_the_user_says():
    theta = np.concatenate([[2e6, 0, 0, 0], np.zeros(24)])
    for reduction, times in (("mean", SIZES[0]), ("sum", 1)):
        slope = Jax(far, DATA, START, reduction=reduction).gradient(theta, 0)
        assert np.allclose(slope[:4], [0.25 * times, 0, 0, 0])


@pytest.mark.usefixtures("there")
def test_the_contract_holds():
    assert len(fs.testing.check(problem())) >= 4


@pytest.mark.usefixtures("there")
def test_threads_do_not_change_a_run_and_a_shard_has_its_clients_bits():
    def run(runtime):
        scenario = fs.Scenario(
            problem=problem(), algorithm=FedAvg(0.1, local_steps=3, batch_size=4), budget=fs.Budget(rounds=3), replicas=3, seed=2,
            participation=participation.uniform(2), dtype="float32", metrics=("accuracy", "nll"),
        )  # fmt: skip
        return fs.run(scenario, runtime=runtime)

    one = run(fs.Inline(threads=1))
    assert one.fingerprint == run(fs.Inline(threads=2, chunk=1)).fingerprint
    assert np.isfinite(one.rounds.nll).all()
    whole, part = problem(), problem().shard(np.array([0, 2]))
    assert len(part.x) == SIZES[0] + SIZES[2]
    assert np.array_equal(part.gradient(whole.initial(0), 2), whole.gradient(whole.initial(0), 2))
    assert part.potential(whole.initial(0), 2) == whole.potential(whole.initial(0), 2)


@pytest.mark.usefixtures("there")
def test_samplers_run_on_it():
    scenario = fs.Scenario(
        problem=problem(prior_precision=1.0),
        algorithm=FALD(1e-3, local_steps=3, batch_size=4),
        budget=fs.Budget(rounds=3),
    )
    assert np.isfinite(fs.run(scenario).samples).all()


REFUSED = {
    r"Jax\(loss='mse'\): give a function": lambda: Jax("mse", DATA, START),
    "give both, or neither": lambda: Jax(loss, DATA, START, test=TEST),
    "a tree of arrays of finite": lambda: Jax(loss, DATA, {}),
    "data is empty": lambda: Jax(loss, [], START),
    r"Jax\(loss\): on \d+ rows at 4 points it equals both .*reduction='mean'": lambda: Jax(far, DATA, START),
    r"Jax\(loss\): on several rows it is neither": lambda: Jax(weighted, DATA, START),
    r"Jax\(reduction='sum'\): on \d+ rows the loss is the mean": lambda: problem(reduction="sum"),
    r"Jax\(reduction='none'\): choose None, 'mean' or 'sum'": lambda: problem(reduction="none"),
    r"it returns int\d+ of shape \(\)": lambda: Jax(lambda p, x, y: (scores(p, x).argmax(1) != y).sum(), DATA, START),
    r"it returns float64 of shape \(\d+,\)": lambda: Jax(lambda p, x, y: scores(p, x)[:, 0], DATA, START),
    r"Jax\(loss\) raised .*division": lambda: Jax(lambda p, x, y: 1 / 0, DATA, START),
}


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence(message):
    with pytest.raises(InvalidInput, match=message):
        REFUSED[message]()


def test_without_jax_the_refusal_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(InvalidInput, match="JAX is not installed; pip install"):
        Jax(loss, DATA, START)

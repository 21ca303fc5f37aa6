"""`fs.problems.Torch`: any module as a problem, the same bits in any batch, thread and host; without torch it is skipped."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

import fedsim as fs
from fedsim import participation
from fedsim.algorithms import FALD, PSGLD, FedAvg, PrivateFedPAQ
from fedsim.errors import InvalidInput
from fedsim.problems import NeuralNetwork, Torch, pooled

torch = pytest.importorskip("torch", reason="torch is not installed; pip install torch==2.13.0 for these tests")
from fedsim.problems.torch import gradients as torch_maths  # noqa: E402
from fedsim.problems.torch import vmap  # noqa: E402
from fedsim.problems.torch.models import lenet5, mlp, resnet20  # noqa: E402

CROSS_ENTROPY = torch.nn.functional.cross_entropy
SIZES = (30, 5, 70, 9, 21)


def rows(n, shape, seed=0, classes=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, *shape)), rng.integers(0, classes, n)


def clients(shape, sizes=SIZES):
    return [rows(n, shape, seed) for seed, n in enumerate(sizes)]


def small(**more):
    return Torch(mlp(12, (8,), 4), CROSS_ENTROPY, clients((12,)), rows(20, (12,), 9), **more)


class Branching(torch.nn.Module):
    """A forward that looks at values, which vmap refuses."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(12, 4)

    def forward(self, x):
        out = self.layer(x)
        return out if out.detach().sum().item() > 1e9 else 2 * out


KINDS = {
    "MLP": lambda **more: small(**more),
    "a layer that vmap refuses": lambda **more: Torch(Branching(), CROSS_ENTROPY, clients((12,)), **more),
    "LeNet-5": lambda **more: Torch(lenet5((1, 8, 8), 4), CROSS_ENTROPY, clients((64,), (9, 5, 12)), **more),
    "a loss of one's own": lambda **more: Torch(
        mlp(12, (8,), 1), lambda out, y: (out[:, 0] - y).square().mean(),
        [(x, y.astype(float)) for x, y in clients((12,))], **more,
    ),
}  # fmt: skip


# --- Right ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_agree_with_finite_differences(kind):
    problem = pooled(KINDS[kind](prior_precision=0.5))
    theta = problem.initial(0)
    gradient = problem.gradient(theta, 0)
    rng = np.random.default_rng(1)
    for _ in range(6):
        direction = rng.normal(size=problem.dim) / np.sqrt(problem.dim)
        up, down = (problem.potential(theta + step * direction, 0) for step in (1e-5, -1e-5))
        assert np.isclose((up - down) / 2e-5, direction @ gradient, rtol=1e-5, atol=1e-6)


def test_a_residual_network_has_gradients_too():
    problem = Torch(resnet20((3, 8, 8), 4), CROSS_ENTROPY, clients((3, 8, 8), (3, 2)))
    theta, e = problem.initial(0), np.random.default_rng(2).normal(size=problem.dim) / 500
    up, down = (pooled(problem).potential(theta + s * e, 0) for s in (1e-5, -1e-5))
    assert np.isclose((up - down) / 2e-5, e @ sum(problem.gradient(theta, c) for c in range(2)), rtol=1e-4)
    assert problem.dim == 269_722 - 6 * 65


def numpy_mlp(theta, x, y, widths=(12, 8, 4)):
    """Summed cross-entropy and its gradient, backpropagation written out."""
    w, b, at = [], [], 0
    for a, c in pairwise(widths):
        w.append(theta[at : at + a * c].reshape(c, a))
        b.append(theta[at + a * c : at + a * c + c])
        at += a * c + c
    hidden = np.maximum(x @ w[0].T + b[0], 0)
    scores = hidden @ w[1].T + b[1]
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).sum()
    p[np.arange(len(y)), y] -= 1
    back = (p @ w[1]) * (hidden > 0)
    parts = [(back.T @ x).ravel(), back.sum(0), (p.T @ hidden).ravel(), p.sum(0)]
    return loss, np.concatenate(parts)


def test_it_equals_a_network_written_in_numpy():
    problem = small()
    theta = problem.initial(0) + 0.1 * np.random.default_rng(3).normal(size=(5, problem.dim))
    ours = problem.gradients(theta, np.arange(5))
    for c, (x, y) in enumerate(clients((12,))):
        loss, gradient = numpy_mlp(theta[c], x, y)
        assert np.allclose(ours[c], gradient, rtol=1e-11, atol=1e-12)
        assert np.isclose(problem.potential(theta[c], c), loss, rtol=1e-12)


def test_a_clients_potential_is_the_summed_loss_of_its_rows_and_their_share_of_the_prior():
    problem = small(prior_precision=0.7)
    theta = problem.initial(0) + 0.1 * np.random.default_rng(3).normal(size=problem.dim)
    prior, total = 0.7 / 2 * (theta @ theta), sum(SIZES)
    for c, (x, y) in enumerate(clients((12,))):
        for chosen in (np.arange(SIZES[c]), np.array([3, 0])):
            expected = numpy_mlp(theta, x[chosen], y[chosen])[0] + prior * len(chosen) / total
            given = None if len(chosen) == SIZES[c] else chosen
            assert np.isclose(problem.potential(theta, c, given), expected, rtol=1e-12)
            rounded = theta.astype(np.float32)
            assert problem.potential(rounded, c, given) == problem.potential(rounded.astype(float), c, given)
    whole = sum(problem.potential(theta, c) for c in range(5))
    assert np.isclose(problem.loss(theta[None])[0], whole / total, rtol=1e-12)
    assert np.isclose(pooled(problem).potential(theta, 0), whole, rtol=1e-12)


def linear_of_zeros():
    module = torch.nn.Linear(12, 1)
    torch.nn.init.zeros_(module.weight)
    torch.nn.init.zeros_(module.bias)
    return module


FEW = np.random.default_rng(6).normal(size=(300, 12))
SIGN = np.where(FEW[:, 0] > 0, 1.0, -1.0)
RARE = np.zeros(300)
RARE[7] = 1.0


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("said", [False, True])
def test_a_loss_that_is_zero_on_most_rows_at_the_start_is_not_taken_for_another(reduction, said):
    more = {"reduction": reduction} if said else {}
    theta, ones = np.random.default_rng(7).normal(size=13), np.concatenate([FEW, np.ones((300, 1))], axis=1)

    def squares(out, y):  # at the start, zero on all rows but one
        return getattr((out[:, 0] - y).square(), reduction)()

    def perceptron(out, y):  # at the start, zero on all rows
        return getattr(torch.relu(-y * out[:, 0]), reduction)()

    problem = Torch(linear_of_zeros(), squares, [(FEW, RARE)], **more)
    expected = 2 * (ones @ theta - RARE) @ ones
    assert np.allclose(problem.gradient(theta, 0), expected, rtol=1e-10)
    problem = Torch(linear_of_zeros(), perceptron, [(FEW, SIGN)], **more)
    expected = -((SIGN * (ones @ theta) < 0) * SIGN) @ ones
    assert np.allclose(problem.gradient(theta, 0), expected, rtol=1e-10)
    assert np.isclose(problem.potential(theta, 0), np.maximum(-SIGN * (ones @ theta), 0).sum(), rtol=1e-12)


def far(reduction):
    """A loss that is zero everywhere near the start."""
    return lambda out, y: getattr(torch.relu(out[:, 0] - 1e6), reduction)()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_what_the_rows_leave_open_the_user_says(reduction):
    problem = Torch(linear_of_zeros(), far(reduction), [(FEW, RARE)], reduction=reduction)
    theta = np.append(np.zeros(12), 2e6)
    assert np.isclose(problem.gradient(theta, 0)[-1], 300)
    assert np.isclose(problem.potential(theta, 0), 300 * 1e6)


def test_it_equals_the_librarys_own_network_on_the_same_weights():
    ours, theirs = small(), NeuralNetwork(clients((12,)), (8,), 4, test=rows(20, (12,), 9))
    theta = ours.initial(0)
    gradients = (
        ours.gradients(np.stack([theta] * 5), np.arange(5)),
        theirs.gradients(np.stack([turned(theta)] * 5), np.arange(5)),
    )
    for a, b in zip(*gradients, strict=True):
        assert np.allclose(turned(a), b, rtol=1e-10, atol=1e-12)
    assert np.allclose(ours.predict(theta), theirs.predict(turned(theta)))


def turned(theta, sizes=(12, 8, 4)):
    """torch keeps a layer's weights (out, in), `NeuralNetwork` (in, out); the biases follow in both."""
    parts, at = [], 0
    for a, b in pairwise(sizes):
        parts += [theta[at : at + a * b].reshape(b, a).T.ravel(), theta[at + a * b : at + a * b + b]]
        at += a * b + b
    return np.concatenate(parts)


def test_predictions_are_softmax_probabilities_and_a_run_starts_from_the_module():
    problem = small()
    x, _ = problem.test
    module = mlp(12, (8,), 4).double()
    with torch.no_grad():
        expected = module(torch.tensor(x)).softmax(dim=1).numpy()
    assert np.allclose(problem.predict(problem.initial(0)), expected)
    scenario = fs.Scenario(problem=problem, algorithm=FedAvg(0.1), budget=fs.Budget(rounds=1))
    flat = np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])
    assert np.array_equal(scenario.start, flat)


def test_parameters_that_are_frozen_stay_out_of_theta():
    module = mlp(12, (8,), 4)
    module[1].weight.requires_grad = False
    problem = Torch(module, CROSS_ENTROPY, clients((12,)))
    assert problem.dim == 12 * 8 + 8 + 8 * 4 + 4 - 12 * 8
    assert problem.gradient(problem.initial(0), 0).shape == (problem.dim,)


def test_small_integers_are_read_through_scale_and_shift():
    x, y = rows(40, (12,), 4)
    stored = np.clip(np.round(100 + 20 * x), 0, 255).astype(np.uint8)
    kept = Torch(mlp(12, (8,), 4), CROSS_ENTROPY, [(stored, y)], (stored, y), scale=1 / 20, shift=-5.0)
    plain = Torch(mlp(12, (8,), 4), CROSS_ENTROPY, [(stored / 20 - 5.0, y)], (stored / 20 - 5.0, y))
    theta = kept.initial(0)
    assert kept.x.dtype == np.uint8
    assert np.allclose(kept.gradient(theta, 0), plain.gradient(theta, 0))
    assert np.allclose(kept.predict(theta), plain.predict(theta))


@dataclass
class Rows:
    """What `of` needs of a data set."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    classes: int = 4


def test_of_gives_clients_the_rows_of_their_parts():
    (x, y), (test_x, test_y) = rows(50, (12,), 1), rows(10, (12,), 2)
    problem = Torch.of(mlp(12, (8,), 4), Rows(x, y, test_x, test_y), [np.array([3, 1, 4]), np.arange(10, 30)])
    by_hand = Torch(mlp(12, (8,), 4), CROSS_ENTROPY, [(x[[3, 1, 4]], y[[3, 1, 4]]), (x[10:30], y[10:30])])
    theta = problem.initial(0)
    assert np.array_equal(
        problem.gradients(np.stack([theta] * 2), np.arange(2)), by_hand.gradients(np.stack([theta] * 2), np.arange(2))
    )
    assert np.array_equal(problem.test[0], test_x)


# --- The same bits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["MLP", "a layer that vmap refuses", "LeNet-5"])
def test_a_jobs_bits_do_not_depend_on_its_batch(kind, dtype):
    problem = KINDS[kind](prior_precision=0.1)
    jobs = 70 if kind == "MLP" else 15
    rng = np.random.default_rng(5)
    who = np.arange(jobs) % problem.clients
    theta = (problem.initial(0) + 0.05 * rng.normal(size=(jobs, problem.dim))).astype(dtype)
    counts = np.minimum(rng.choice([3, 4, 5, 8, 20, 65], jobs), problem.sizes[who])
    start = np.concatenate([[0], np.cumsum(counts)])
    chosen = np.concatenate([rng.permutation(problem.sizes[c])[:m] for c, m in zip(who, counts, strict=True)])
    for batch in (None, (chosen, start)):
        whole = problem.gradients(theta, who, batch)
        for size in (1, 7, 64):
            parts = []
            for a in range(0, jobs, size):
                b = min(a + size, jobs)
                own = None if batch is None else (chosen[start[a] : start[b]], start[a : b + 1] - start[a])
                parts.append(problem.gradients(theta[a:b], who[a:b], own))
            assert np.array_equal(np.concatenate(parts), whole), f"chunks of {size}"


def test_blocks_under_vmap_are_really_used_and_agree_with_the_loop():
    stacked, looped = small(), small()
    looped._blocks.sizes = ()
    theta = stacked.initial(0) + 0.05 * np.random.default_rng(5).normal(size=(40, stacked.dim))
    args = theta, np.arange(40) % 5, (np.tile(np.arange(5), 40), 5 * np.arange(41))
    assert np.allclose(stacked.gradients(*args), looped.gradients(*args), rtol=1e-10, atol=1e-12)
    assert set(stacked._blocks.exact.values()) == {True}
    assert not looped._blocks.exact


def test_a_block_whose_bits_depend_on_the_place_is_computed_alone(monkeypatch):
    true = torch_maths.Maths.stacked

    def uneven(self, theta, x, y, present):
        out = true(self, theta, x, y, present)
        return out * (1 + 1e-15 * torch.arange(len(out), dtype=out.dtype))[:, None]

    monkeypatch.setattr(torch_maths.Maths, "stacked", uneven)
    problem = small()
    theta = np.stack([problem.initial(0)] * 3)
    rows = np.tile(np.arange(4), 3), 4 * np.arange(4)
    assert np.array_equal(problem.gradients(theta, np.arange(3), rows)[1], problem.gradient(theta[1], 1, np.arange(4)))
    assert set(problem._blocks.exact.values()) == {False}


def test_a_block_whose_bits_depend_on_its_size_is_computed_alone(monkeypatch):
    true = torch_maths.Maths.stacked
    monkeypatch.setattr(
        torch_maths.Maths, "stacked", lambda self, theta, *rest: true(self, theta, *rest) * (1 + 1e-15 * len(theta))
    )
    problem = small()
    theta = np.stack([problem.initial(0)] * 3)
    rows = np.tile(np.arange(4), 3), 4 * np.arange(4)
    assert np.array_equal(problem.gradients(theta, np.arange(3), rows)[1], problem.gradient(theta[1], 1, np.arange(4)))
    assert set(problem._blocks.exact.values()) == {False}


@pytest.mark.parametrize("rows", [4, 5])  # a full block, and one with padding
def test_a_shape_that_comes_often_is_recorded_and_keeps_its_bits(monkeypatch, rows):
    monkeypatch.setattr(vmap, "OFTEN", 2)
    problem = small()
    theta = problem.initial(0) + 0.05 * np.random.default_rng(5).normal(size=(8, problem.dim))
    args = theta, np.arange(8) % 5, (np.tile(np.arange(rows), 8), rows * np.arange(9))
    first = problem.gradients(*args)
    problem.gradients(*args)
    monkeypatch.setattr(torch_maths, "vmap", None)  # no later call may use it
    assert np.array_equal(problem.gradients(*args), first)
    again = pickle.loads(pickle.dumps(problem))
    assert not again._blocks._recorded


def test_a_recording_with_other_bits_is_not_used(monkeypatch):
    def wrong(function):
        return lambda *example: lambda *jobs: function(*jobs) * (1 + 1e-15)

    monkeypatch.setattr(vmap, "OFTEN", 2)
    monkeypatch.setattr(vmap, "make_fx", wrong)
    problem = small()
    args = np.stack([problem.initial(0)] * 8), np.arange(8) % 5, (np.tile(np.arange(4), 8), 4 * np.arange(9))
    first = problem.gradients(*args)
    assert all(np.array_equal(problem.gradients(*args), first) for _ in range(3))


def test_the_contract_holds():
    assert len(fs.testing.check(small())) >= 4
    assert len(fs.testing.check(FedAvg(0.1, local_steps=2, batch_size=4, momentum=0.5), small())) >= 8


def run(problem, runtime=None, algorithm=None):
    scenario = fs.Scenario(
        problem=problem, algorithm=algorithm or FedAvg(0.1, local_steps=3, batch_size=5), budget=fs.Budget(rounds=3), replicas=3, seed=2,
        participation=participation.uniform(3), dtype="float32", metrics=("accuracy", "nll"),
    )  # fmt: skip
    return fs.run(scenario, runtime=runtime)


def test_threads_and_chunks_do_not_change_a_run():
    one = run(small(), fs.Inline(threads=1))
    assert one.fingerprint == run(small(), fs.Inline(threads=2, chunk=1)).fingerprint
    assert one.fingerprint == run(small(), fs.Inline(threads=2, chunk=4)).fingerprint
    assert np.isfinite(one.rounds.accuracy).all()


def test_a_problem_survives_pickling_and_a_shard_has_its_clients_bits():
    problem = small()
    theta = np.stack([problem.initial(0)] * 2)
    whole = problem.gradients(theta, np.array([1, 3]))
    assert np.array_equal(pickle.loads(pickle.dumps(problem)).gradients(theta, np.array([1, 3])), whole)
    part = problem.shard(np.array([1, 3]))
    assert len(part.x) == SIZES[1] + SIZES[3]
    assert np.array_equal(part.gradients(theta, np.array([1, 3])), whole)
    assert (part.clients, part.sizes.tolist()) == (5, list(SIZES))


@pytest.mark.slow
def test_hosts_give_the_bits_of_inline():
    problem = Torch(Branching(), CROSS_ENTROPY, clients((12,)), rows(20, (12,), 9))  # a class that no host can import
    for made in (small(), problem):
        assert run(made).fingerprint == run(made, fs.Ray(hosts=2)).fingerprint


def test_torchs_own_settings_are_left_as_they_were():
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), torch.random.get_rng_state()
    torch.set_num_threads(2)
    problem = small()
    problem.gradient(problem.initial(0), 0)
    assert torch.get_num_threads() == 2
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.equal(torch.random.get_rng_state(), before[2])
    torch.set_num_threads(before[0])


CONVOLUTIONS = """
import hashlib, sys, threading
import numpy as np, torch
torch.set_num_threads(int(sys.argv[1]))
import fedsim as fs
from fedsim.algorithms import FedAvg, PrivateFedPAQ
from fedsim.problems import Torch
from fedsim.problems.torch.models import lenet5

rng = np.random.default_rng(0)
data = [(rng.normal(size=(n, 64)), rng.integers(0, 10, n)) for n in (40, 25)]
problem = Torch(lenet5((1, 8, 8)), torch.nn.functional.cross_entropy, data)

def run(algorithm, threads):
    scenario = fs.Scenario(problem=problem, algorithm=algorithm, budget=fs.Budget(rounds=1))
    result = fs.run(scenario, runtime=fs.Inline(threads=threads))
    held = []
    new = threading.Thread(target=lambda: held.append(torch.get_num_threads()))
    new.start(), new.join()
    info = torch.__config__.parallel_info().splitlines()
    blas = [line.split()[-1] for line in info if "mkl_get_max_threads" in line] or sys.argv[1:]
    threads_left = {str(torch.get_num_threads()), str(held[0]), *blas}
    assert threads_left == {sys.argv[1]}, threads_left
    return hashlib.sha256(result.samples.tobytes()).hexdigest()[:16]

theta = problem.initial(0)
if sys.argv[2] == "runs":
    bits = [[run(FedAvg(0.1, local_steps=2), t) for t in (1, 1, 2)],
            [run(PrivateFedPAQ(0.1, local_steps=2, clip=1.0, epsilon=1.0, delta=1e-4, batch_size=10), t) for t in (1, 2)]]
else:
    bits = [[problem.gradient(theta, 0).tobytes().hex() for _ in range(2)],
            [problem.clipped(theta[None], np.array([0]), None, 1.0).tobytes().hex() for _ in range(2)]]
for one in bits:
    assert len(set(one)) == 1, one
print([hashlib.sha256(one[0].encode()).hexdigest() for one in bits])
"""


@pytest.mark.parametrize("use", ["runs", "gradients"])
def test_convolutions_have_the_same_bits_at_first_and_later_whatever_torchs_threads(use):
    found = {}
    for threads in ("1", "2"):
        command = [sys.executable, "-c", CONVOLUTIONS, threads, use]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        found[threads] = done.stdout
    assert found["1"] == found["2"]


def test_inside_there_is_one_thread_and_only_deterministic_algorithms(monkeypatch):
    problem, seen = small(), []
    true = torch_maths.Maths.gradient

    def looked_at(self, *args):
        seen.append((torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()))
        return true(self, *args)

    monkeypatch.setattr(torch_maths.Maths, "gradient", looked_at)
    problem.gradient(problem.initial(0), 0)
    assert seen == [(1, True)]


# --- Clipping, samplers, learning -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["MLP", "a layer that vmap refuses", "LeNet-5"])
def test_every_rows_own_gradient_is_clipped(kind):
    problem = KINDS[kind](prior_precision=0.5)
    theta = np.stack([problem.initial(0)] * 3) * np.array([[1.0], [2.0], [0.5]])
    each = [[problem.gradient(t, c, np.array([i])) for i in range(problem.sizes[c])] for c, t in enumerate(theta)]
    norms = np.concatenate([np.linalg.norm(rows, axis=1) for rows in each])
    clip = float(np.median(norms))
    expected = [sum(g * min(1, clip / np.linalg.norm(g)) for g in rows) for rows in each]
    assert np.allclose(problem.clipped(theta, np.arange(3), None, clip), expected, rtol=1e-9, atol=1e-10)
    some = (np.array([1, 3, 0]), np.array([0, 2, 2, 3]))
    by_hand = [
        sum((each[c][i] * min(1, clip / np.linalg.norm(each[c][i])) for i in own), np.zeros(problem.dim))
        for c, own in ((0, (1, 3)), (2, (0,)))
    ]
    assert np.allclose(problem.clipped(theta, np.arange(3), some, clip)[[0, 2]], by_hand, rtol=1e-9, atol=1e-10)


def test_private_training_and_samplers_run_on_it():
    problem = small(prior_precision=1.0)
    private = PrivateFedPAQ(0.1, local_steps=2, clip=1.0, epsilon=1.0, delta=1e-4, batch_size=2)
    assert np.isfinite(run(problem, algorithm=private).samples).all()
    scenario = fs.Scenario(
        problem=problem, algorithm=FALD(1e-4, local_steps=3, batch_size=5), budget=fs.Budget(rounds=3)
    )
    assert np.isfinite(fs.run(scenario).samples).all()
    whole = fs.Scenario(
        problem=pooled(problem), algorithm=PSGLD(1e-4, local_steps=3), budget=fs.Budget(rounds=3), dtype="float32"
    )
    assert np.isfinite(fs.run(whole).samples).all()


def test_lenet_learns_digits_by_fedavg_on_uneven_clients():
    d = fs.data.load("digits")
    parts = fs.data.dirichlet(d.y, clients=20, alpha=0.3, seed=1)
    scenario = fs.Scenario(
        problem=Torch.of(lenet5((1, 8, 8)), d, parts), algorithm=FedAvg(0.1, local_steps=15, batch_size=10),
        participation=participation.uniform(8), budget=fs.Budget(rounds=12), dtype="float32", seed=1,
        metrics=("accuracy",), evaluate_every=12, record=fs.Record(every=12),
    )  # fmt: skip
    assert fs.run(scenario).rounds.accuracy.iloc[-1] > 0.6  # a tenth is chance


# --- Refused ------------------------------------------------------------------------------------------------


class Fickle(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(12, 4)

    def forward(self, x):
        return torch.nn.functional.dropout(self.layer(x), 0.5, self.training)


class Centred(torch.nn.Module):
    """A row's outputs depend on the other rows."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(12, 4)

    def forward(self, x):
        return self.layer(x - x.mean(0))


class Complex(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(12, 4, dtype=torch.complex64))

    def forward(self, x):
        return (x.to(self.weight.dtype) @ self.weight).abs()


class Flat(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x).squeeze()


def hooked(register):
    module = mlp(12, (8,), 4)
    getattr(module[1].weight, register)(lambda given: None)
    return module


def of(module=None, loss=CROSS_ENTROPY, data=None, **more):
    return Torch(module or mlp(12, (8,), 4), loss, clients((12,)) if data is None else data, **more)


SEQUENCE, LINEAR = torch.nn.Sequential, torch.nn.Linear
REFUSED = {
    r"layer '1' \(Dropout\) draws random numbers": lambda: of(SEQUENCE(LINEAR(12, 4), torch.nn.Dropout(0.5))),
    r"\(BatchNorm1d\) holds the buffer 'running_mean'.*GroupNorm": lambda: of(
        SEQUENCE(LINEAR(12, 4), torch.nn.BatchNorm1d(4))
    ),
    r"other outputs at the second call; take out dropout": lambda: of(Fickle()),
    r"no parameters to learn": lambda: of(torch.nn.ReLU()),
    r"give a torch.nn.Module": lambda: of(lambda x: x),
    r"give a function such as torch.nn.functional.cross_entropy": lambda: of(loss="cross_entropy"),
    r"neither the mean nor the sum of each row's own loss.*reduction='sum'": lambda: of(
        loss=torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0, 9.0], dtype=torch.float64))
    ),
    r"on \d+ rows at 4 points it equals both the mean and the sum.*set reduction='mean'": lambda: Torch(
        linear_of_zeros(), far("mean"), [(FEW, RARE)]
    ),
    r"Torch\(reduction='sum'\): on \d+ rows the loss is the mean .*write reduction='mean'": lambda: of(reduction="sum"),
    r"Torch\(reduction='none'\): choose None, 'mean' or 'sum'": lambda: of(reduction="none"),
    r"Torch\(loss\): it is not finite at the initial parameters": lambda: of(loss=lambda out, y: (out / 0).sum()),
    r"it returns torch.int64, which has no gradient": lambda: of(loss=lambda out, y: (out.argmax(1) != y).sum()),
    r"it returns float, which has no gradient": lambda: of(loss=lambda out, y: CROSS_ENTROPY(out, y).item()),
    r"it is detached from the parameters": lambda: of(loss=lambda out, y: CROSS_ENTROPY(out.detach(), y)),
    r"a row's outputs depend on the other rows .* x - x.mean\(0\)": lambda: of(Centred()),
    r"Torch\(module\) on one row raised ValueError: Expected more than 1 value": lambda: of(
        SEQUENCE(LINEAR(12, 4), torch.nn.BatchNorm1d(4, track_running_stats=False))
    ),
    r"shape \(\) for one row and \(\d+,\) for \d+ rows; keep the rows": lambda: of(
        Flat(12, 1), lambda out, y: (out - y).square().mean()
    ),
    r"parameter '1.weight' has a hook": lambda: of(hooked("register_hook")),
    r"parameter '1.weight' has a hook, which gradients": lambda: of(hooked("register_post_accumulate_grad_hook")),
    r"parameter 'weight' is complex \(torch.complex64\)": lambda: of(Complex()),
    r"data hold a NaN": lambda: of(data=[(np.full((3, 12), np.nan), [0, 1, 2])]),
    r"data is empty": lambda: of(data=[]),
    r"list of pairs": lambda: of(data=3),
    r"data\[1\] has rows \(11,\)": lambda: of(data=[rows(3, (12,)), rows(3, (11,))]),
    r"X \(3, 12\) and y \(2,\)": lambda: of(data=[(np.zeros((3, 12)), np.zeros(2, int))]),
    r"Torch\(test\): X \(3, 11\)": lambda: of(test=(np.zeros((3, 11)), np.zeros(3, int))),
    r"client 1 has no data": lambda: Torch.of(mlp(12, (8,), 4), Rows(*rows(9, (12,)), None, None), [[1], []]),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence(message):
    with pytest.raises(InvalidInput, match=message):
        REFUSED[message]()


def test_without_torch_the_refusal_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None; import fedsim as fs\n"
        "try: fs.problems.Torch(None, len, [([[1.0]], [0])])\n"
        "except fs.errors.InvalidInput as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert "PyTorch is not installed; pip install 'fedsim-systems[torch]'" in done.stdout, done.stderr

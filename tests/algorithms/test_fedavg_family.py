"""FedAvg, FedPAQ, private FedPAQ and SCAFFOLD against recursions written out by hand.

Quadratic losses make every one of them linear: where nothing is random the iterates must agree to rounding,
where something is, every entry of mean and covariance must at |z| < 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pytest
from oracles import moments
from strategies.rows import DIM, START, client_data

import fedsim as fs
from fedsim import participation, protocols, rng
from fedsim.algorithms.fedavg import FedAvg, distributed_sgd
from fedsim.algorithms.fedpaq import FedPAQ
from fedsim.algorithms.private_fedpaq import PrivateFedPAQ
from fedsim.algorithms.scaffold import Scaffold
from fedsim.codecs import QSGD, Elias, Identity
from fedsim.errors import InvalidInput
from fedsim.privacy.fedpaq import noise_sigma
from fedsim.protocols import as_policy
from fedsim.runtime.aggregation import declared_weights

ETA = 0.15
SIZES = (6, 9, 12, 15, 18)


UNEQUAL, EQUAL = client_data(SIZES), client_data((12,) * 5)


def tables(data):
    """Hessian, linear term and weight of every client's mean loss f_i."""
    hessian = np.array([x.T @ x / len(y) for x, y in data])
    linear = np.array([x.T @ y / len(y) for x, y in data])
    sizes = np.array([len(y) for _, y in data])
    return hessian, linear, sizes / sizes.sum()


def minimiser(data):
    hessian, linear, p = tables(data)
    return np.linalg.solve(np.einsum("c,cij->ij", p, hessian), p @ linear)


def simulate(algorithm, data, rounds, policy=None, replicas=1, seed=1, **scenario):
    problem = fs.problems.LinearRegression(data=data) if isinstance(data, list) else data
    return fs.run(
        fs.Scenario(
            problem=problem, algorithm=algorithm, participation=policy or participation.full(), seed=seed,
            budget=fs.Budget(rounds=rounds), replicas=replicas, initial=START[: problem.dim], **scenario,
        )
    )  # fmt: skip


def fedavg_by_hand(data, etas, local, rounds, scale=None, weights=None, server_step=1.0):
    """x after every round; gradients times `scale`, averaged with `weights`."""
    hessian, linear, p = tables(data)
    scale = np.ones(len(p)) if scale is None else scale
    weights = p if weights is None else weights
    x, out = START.copy(), []
    for r in range(rounds):
        total = np.zeros(DIM)
        for c in range(len(p)):
            y = x.copy()
            for k in range(local):
                y = y - etas(r * local + k) * scale[c] * (hessian[c] @ y - linear[c])
            total += weights[c] * (y - x)
        x = x + server_step * total
        out.append(x)
    return np.array(out)


def same(a, b):
    assert np.allclose(a, b, rtol=1e-11, atol=1e-12), f"differ by up to {np.abs(a - b).max():.2g}"


def check_moments(samples, law, look):
    for r in look:
        z = moments.z_scores(samples[r - 1], *law[r - 1])
        assert np.abs(z).max() < 5, f"round {r}: z = {np.round(z, 1)}"


# --- FedAvg ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("local, server_step", [(1, 1.0), (5, 1.0), (5, 0.6)])
def test_fedavg_is_its_recursion(local, server_step):
    result = simulate(FedAvg(ETA, local_steps=local, server_step=server_step), UNEQUAL, 20)
    expected = fedavg_by_hand(UNEQUAL, lambda t: ETA, local, 20, server_step=server_step)
    same(result.samples[:, 0], expected)


def test_step_sizes_follow_the_schedule():
    within = simulate(FedAvg(fs.schedules.inverse_time(3, 20), local_steps=5), UNEQUAL, 10)
    same(within.samples[:, 0], fedavg_by_hand(UNEQUAL, lambda t: 3 / (t + 20), 5, 10))
    held = simulate(FedAvg(fs.schedules.per_round(0.2, 100), local_steps=5), UNEQUAL, 10)
    same(held.samples[:, 0], fedavg_by_hand(UNEQUAL, lambda t: 0.2 / (1 + t // 5 * 5 / 100), 5, 10))


@pytest.mark.parametrize("local", [1, 10])
def test_fedavg_settles_at_its_own_fixed_point(local):
    hessian, linear, p = tables(UNEQUAL)
    step = np.eye(DIM) - ETA * hessian
    power = np.array([np.linalg.matrix_power(a, local) for a in step])
    shift = np.array(
        [ETA * sum(np.linalg.matrix_power(a, j) for j in range(local)) @ h for a, h in zip(step, linear, strict=True)]
    )
    fixed = np.linalg.solve(np.eye(DIM) - np.einsum("c,cij->ij", p, power), p @ shift)
    reached = simulate(FedAvg(ETA, local_steps=local), UNEQUAL, 400).samples[-1, 0]
    assert np.allclose(reached, fixed, atol=1e-9)
    drift = np.linalg.norm(reached - minimiser(UNEQUAL))
    assert drift < 1e-8 if local == 1 else drift > 0.05


def test_scaled_objectives_with_a_plain_average_are_their_recursion():
    p = tables(UNEQUAL)[2]
    scaled = simulate(FedAvg(ETA, local_steps=5, objective="scaled"), UNEQUAL, 10).samples[:, 0]
    same(scaled, fedavg_by_hand(UNEQUAL, lambda t: ETA, 5, 10, scale=p * 5, weights=np.full(5, 1 / 5)))
    assert np.abs(scaled - simulate(FedAvg(ETA, local_steps=5), UNEQUAL, 10).samples[:, 0]).max() > 1e-3


def test_both_objectives_agree_for_one_local_step_or_equal_clients():
    one = [simulate(FedAvg(ETA, local_steps=1, objective=o), UNEQUAL, 10).samples for o in ("mean", "scaled")]
    equal = [simulate(FedAvg(ETA, local_steps=5, objective=o), EQUAL, 10).samples for o in ("mean", "scaled")]
    same(*one)
    same(*equal)


FAMILY = {
    "all clients": (None, moments.full),
    "n_c over three clients": (
        participation.uniform(3),
        lambda p: moments.uniform_subsets(p, 3, lambda a: a / a.sum()),
    ),
    "n_c over the received": (participation.bernoulli(0.4), lambda p: moments.bernoulli(p, 0.4)),
}


@pytest.mark.parametrize("who", FAMILY)
def test_minibatches_and_partial_participation_have_the_exact_moments(who):
    """FedAvg at step size eta is FA-LD at eta / n without temperature, whose law `moments` knows."""
    policy, weights = FAMILY[who]
    rng_ = np.random.default_rng(8)
    data = [rng_.normal(size=(n, 2)) + rng_.normal(size=2) for n in SIZES]
    covariances = [np.diag(rng_.uniform(0.5, 2, 2)) for _ in SIZES]
    clients = moments.gaussian_means(data, covariances, batch=[4] * 5)
    law = moments.fald(clients, weights(clients.p), lambda t: ETA / sum(SIZES), 3, 10, 0.0, 0.0, START[:2])
    problem = fs.problems.GaussianMean(data=data, covariance=np.array(covariances))
    samples = simulate(FedAvg(ETA, local_steps=3, batch_size=4), problem, 10, policy, replicas=4000).samples
    check_moments(samples, law, (1, 4, 10))


def test_a_round_without_replies_keeps_the_model():
    everything_lost = fs.devices.constant(1.0, dropout=1.0)
    for algorithm in (FedAvg(ETA, local_steps=2), Scaffold(ETA, local_steps=2), FedPAQ(ETA, local_steps=2)):
        assert np.array_equal(simulate(algorithm, EQUAL, 2, devices=everything_lost).samples[-1, 0], START)


@dataclass(frozen=True)
class Declared(protocols.Received):
    """Arrivals that say which policy they came by."""

    policy: Any = None


WEIGHTS = {
    "full": (participation.full(), [0.2, 0.3, 0.5]),
    "uniform": (participation.uniform(3), [0.2, 0.3, 0.5]),
    "uniform, scaled": (participation.uniform(3, weighting="scaled"), [0.1 * 5 / 3, 0.15 * 5 / 3, 0.25 * 5 / 3]),
    "with replacement": (participation.with_replacement(4), [0.25, 0.5, 0.25]),
    "deadline": (participation.deadline(1.0), [0.2, 0.3, 0.5]),
}


@pytest.mark.parametrize("policy", WEIGHTS)
@pytest.mark.parametrize("algorithm", [FedAvg(ETA), FedPAQ(ETA), Scaffold(ETA)])
def test_the_average_is_by_data_unless_the_policy_drew_by_data(algorithm, policy):
    came_by, expected = WEIGHTS[policy]
    multiplicity = np.array([1, 2, 1]) if policy == "with replacement" else np.ones(3, np.int64)
    replies = (np.array([0.1, 0.15, 0.25]), multiplicity, np.array([0, 3]), 5)
    arrived = Declared(*replies, came_by, declared_weights(as_policy(came_by).weighting, *replies))
    assert np.allclose(algorithm.weigh(arrived), expected)


def test_scaled_objectives_refuse_draws_by_weight():
    arrived = Declared(np.full(2, 0.5), np.ones(2), np.array([0, 2]), 2, participation.with_replacement(2))
    with pytest.raises(InvalidInput, match="would count p_i twice"):
        FedAvg(ETA, objective="scaled").weigh(arrived)


# --- FedPAQ ---------------------------------------------------------------------------------------------


def test_without_quantisation_fedpaq_is_fedavg_and_with_one_step_distributed_sgd():
    policy = participation.uniform(3)
    pairs = [
        (FedPAQ(ETA, local_steps=5, batch_size=4, codec=Identity()), FedAvg(ETA, local_steps=5, batch_size=4), policy),
        (FedPAQ(ETA, local_steps=1, batch_size=4, codec=Identity()), distributed_sgd(ETA, batch_size=4), None),
    ]
    for left, right, who in pairs:
        runs = [simulate(a, UNEQUAL, 6, who, replicas=3) for a in (left, right)]
        assert np.array_equal(runs[0].samples, runs[1].samples)
    descent = [START]
    hessian, linear, p = tables(UNEQUAL)
    for _ in range(6):
        descent.append(descent[-1] - ETA * p @ (hessian @ descent[-1] - linear))
    same(simulate(distributed_sgd(ETA), UNEQUAL, 6).samples[:, 0], descent[1:])


def test_quantisation_adds_exactly_its_variance():
    """One round: mean as without, covariance sum_i w_i^2 (|v_i| / s)^2 diag(f (1 - f))."""
    levels, local = 4, 3
    p = tables(UNEQUAL)[2]
    deltas = np.array(
        [fedavg_by_hand(UNEQUAL, lambda t: ETA, local, 1, weights=np.eye(5)[c])[0] - START for c in range(5)]
    )
    norms = np.linalg.norm(deltas, axis=1, keepdims=True)
    up = np.modf(levels * np.abs(deltas) / norms)[0]
    variance = (p[:, None] ** 2 * (norms / levels) ** 2 * up * (1 - up)).sum(axis=0)
    samples = simulate(FedPAQ(ETA, local_steps=local, codec=QSGD(levels)), UNEQUAL, 1, replicas=4000).samples
    check_moments(samples, [(START + p @ deltas, np.diag(variance))], (1,))


# --- SCAFFOLD -------------------------------------------------------------------------------------------


def scaffold_by_hand(data, eta, local, received_in, scaled=False):
    """x after every round in which the clients `received_in[r]` were received; equations 7 to 9."""
    hessian, linear, p = tables(data)
    n = len(p)
    own, c, x, out = np.zeros((n, DIM)), np.zeros(DIM), START.copy(), []
    for active in received_in:
        a = np.full(n, 1 / len(active)) if scaled else p / p[active].sum()
        share = np.full(n, 1 / n) if scaled else p
        delta, change = np.zeros(DIM), np.zeros(DIM)
        for i in active:
            y = x.copy()
            for _ in range(local):
                gradient = (p[i] * n if scaled else 1) * (hessian[i] @ y - linear[i])
                y = y - eta * (gradient - own[i] + c)
            new = own[i] - c - (y - x) / (local * eta)
            delta += a[i] * (y - x)
            change += share[i] * (new - own[i])
            own[i] = new
        x, c = x + delta, c + change
        out.append(x)
    return np.array(out)


def received(result, event):
    """The clients of every round that got so far."""
    rows = result.events[result.events.event == event]
    return [sorted(rows[rows["round"] == r].client) for r in range(1, result.rounds["round"].max() + 1)]


@pytest.mark.parametrize("objective", ["mean", "scaled"])
@pytest.mark.parametrize("data", [UNEQUAL, EQUAL], ids=["unequal", "equal"])
def test_scaffold_with_partial_participation_is_its_recursion(data, objective):
    record = fs.Record(events=True)
    result = simulate(
        Scaffold(ETA, local_steps=4, objective=objective), data, 25, participation.uniform(3), record=record
    )
    received_in = received(result, "select")
    assert all(len(f) == 3 for f in received_in)
    same(result.samples[:, 0], scaffold_by_hand(data, ETA, 4, received_in, objective == "scaled"))


def test_equal_clients_move_the_control_variate_by_one_over_their_number():
    all_of_them = [list(range(5))] * 10
    same(
        scaffold_by_hand(EQUAL, ETA, 4, all_of_them),
        scaffold_by_hand(EQUAL, ETA, 4, all_of_them, scaled=True),
    )


def test_a_lost_reply_leaves_the_clients_control_variate_alone():
    devices = fs.devices.constant(1.0, dropout=0.4)
    record = fs.Record(events=True)
    result = simulate(
        Scaffold(ETA, local_steps=4), UNEQUAL, 25, participation.uniform(4), devices=devices, record=record, seed=3
    )
    received_in = received(result, "upload")
    assert sum(map(len, received_in)) < 80
    assert all(received_in)
    same(result.samples[:, 0], scaffold_by_hand(UNEQUAL, ETA, 4, received_in))
    assert np.abs(result.samples[:, 0] - scaffold_by_hand(UNEQUAL, ETA, 4, received(result, "select"))).max() > 1e-3


@pytest.mark.parametrize("local, eta, rounds", [(1, ETA, 500), (10, ETA / 3, 200), (30, ETA / 3, 120)])
@pytest.mark.parametrize("objective", ["mean", "scaled"])
def test_scaffold_finds_the_true_minimiser_for_any_number_of_local_steps(local, eta, rounds, objective):
    result = simulate(Scaffold(eta, local_steps=local, objective=objective), UNEQUAL, rounds)
    assert np.allclose(result.samples[-1, 0], minimiser(UNEQUAL), atol=1e-9)


def test_scaffold_is_fedavg_among_identical_clients():
    data = [UNEQUAL[2]] * 4
    same(
        simulate(Scaffold(ETA, local_steps=5), data, 12).samples, simulate(FedAvg(ETA, local_steps=5), data, 12).samples
    )


def test_varying_steps_inside_a_round_divide_by_their_sum():
    """Then c_i is still an average of gradients, so that the fixed point is still the minimiser."""
    result = simulate(Scaffold(fs.schedules.inverse_time(20, 150), local_steps=10), UNEQUAL, 200)
    assert np.allclose(result.samples[-1, 0], minimiser(UNEQUAL), atol=1e-8)


# --- Private FedPAQ -------------------------------------------------------------------------------------

PRIVATE = {"clip": 0.5, "epsilon": 1.0, "delta": 1e-4}


def sigma_by_hand(factor, eta, local, clip, epsilon, delta, gamma):
    """Equation 51 for factor 4: 128 C^2 b^2 ln(1.25 E b / (n delta)) E^4 eta^2 / (n^2 epsilon^2)."""
    return np.sqrt(8 * factor**2 * clip**2 * gamma**2 * np.log(1.25 * gamma / delta) * local**2 * eta**2) / epsilon


def test_the_noise_is_that_of_equation_51():
    n, b, local, eta = 600, 12, 10, 0.1
    printed = 128 * 1.0 * b**2 * np.log(1.25 * local * b / (n * 1e-4)) * local**4 * eta**2 / n**2
    assert np.isclose(noise_sigma(4 * eta * local, 1.0, 1e-4, 0.2), np.sqrt(printed), rtol=1e-14)
    assert np.isclose(sigma_by_hand(4, eta, local, 1.0, 1.0, 1e-4, 0.2), np.sqrt(printed), rtol=1e-14)


@pytest.mark.parametrize("batch, rows", [({"batch_size": 2}, [2] * 5), ({"fraction": 0.7}, [1, 2, 2, 3, 4])])
@pytest.mark.parametrize("sensitivity, factor", [("paper", 4), ("tight", 2)])
def test_two_private_rounds_replayed_row_by_row(batch, rows, sensitivity, factor):
    """Subsets, disjoint batches, clipping and noise, all by hand from the addressed draws."""
    local, eta = 3, fs.schedules.per_round(0.2, 10)
    algorithm = PrivateFedPAQ(eta, local_steps=local, codec=Identity(), sensitivity=sensitivity, **PRIVATE, **batch)
    got = simulate(algorithm, UNEQUAL, 2, seed=9).samples[:, 0]
    p, x, clipped = tables(UNEQUAL)[2], START.copy(), 0
    for r in range(2):
        step, total = 0.2 / (1 + 3 * r / 10), np.zeros(DIM)
        for c, (features, labels) in enumerate(UNEQUAL):
            n, b = len(labels), rows[c]
            own = rng.choice(rng.keys(9, rng.Stream.BATCH, client=c, round=r), n, local * b)[0]
            assert len(set(own)) == local * b
            y = x.copy()
            for k in range(local):
                mean = np.zeros(DIM)
                for i in own[k * b : (k + 1) * b]:
                    g = features[i] * (features[i] @ y - labels[i])
                    clipped += np.linalg.norm(g) > PRIVATE["clip"]
                    mean += g * min(1, PRIVATE["clip"] / np.linalg.norm(g)) / b
                y = y - step * mean
            sigma = sigma_by_hand(factor, step, local, *PRIVATE.values(), local * b / n)
            z = rng.normal(rng.keys(9, rng.Stream.NOISE, client=c, round=r), DIM)[0]
            total += p[c] * (y - x + sigma * z)
        x = x + total
        same(got[r], x)
    assert 5 < clipped < 2 * local * sum(rows)


def test_the_noise_of_one_round_has_the_exact_variance():
    """All rows at the start: no gradient, so that what moves is noise, sum_i w_i z_i, quantised or not."""
    problem = fs.problems.GaussianMean(data=[np.tile(START[:2], (n, 1)) for n in SIZES], covariance=np.eye(2))
    p = np.array(SIZES) / sum(SIZES)
    gamma = 3 * 2 / np.array(SIZES)
    sigma = sigma_by_hand(4, 0.1, 3, *PRIVATE.values(), gamma)
    law = [(START[:2], (p**2 * sigma**2).sum() * np.eye(2))]
    algorithm = PrivateFedPAQ(0.1, local_steps=3, batch_size=2, codec=Identity(), **PRIVATE)
    check_moments(simulate(algorithm, problem, 1, replicas=2000).samples, law, (1,))
    tight = PrivateFedPAQ(0.1, local_steps=3, batch_size=2, codec=Identity(), sensitivity="tight", **PRIVATE)
    samples = simulate(tight, problem, 1, replicas=1000).samples
    assert np.abs(moments.z_scores(samples[0], *law[0])).max() > 6
    check_moments(samples, [(law[0][0], law[0][1] / 4)], (1,))


class Watched:
    """A problem that notes which rows its clipped gradients are asked for."""

    def __init__(self, sizes):
        self.clients, self.dim, self.sizes, self.seen = len(sizes), 2, np.array(sizes), []

    def gradient(self, theta, client, rows=None):
        raise AssertionError("private FedPAQ must ask for clipped gradients")

    def clipped(self, theta, clients, rows, clip):
        flat, start = rows
        assert theta.dtype == np.float32
        self.seen += [(int(c), flat[start[i] : start[i + 1]].tolist()) for i, c in enumerate(clients)]
        return np.zeros_like(theta)


def test_a_rounds_batches_are_disjoint_and_the_next_round_draws_anew():
    problem = Watched((8, 12))
    algorithm = PrivateFedPAQ(0.1, local_steps=4, batch_size=2, **PRIVATE)
    scenario = fs.Scenario(problem=problem, algorithm=algorithm, budget=fs.Budget(rounds=2), dtype="float32")
    fs.run(scenario, runtime=fs.Inline(threads=1))
    for c, n in enumerate((8, 12)):
        batches = [rows for client, rows in problem.seen if client == c]
        assert [len(b) for b in batches] == [2] * 8
        first, second = [*chain(*batches[:4])], [*chain(*batches[4:])]
        assert len(set(first)) == len(set(second)) == 8
        assert first != second
        assert max(first + second) < n


def test_a_fraction_means_the_same_rows_whatever_its_binary_expansion():
    for fraction, local, n, b in (
        (0.6, 3, 50, 10),
        (0.2, 10, 600, 12),
        (0.3, 3, 10, 1),
        (1.0, 1, 7, 7),
        (1.0, 7, 7, 1),
    ):
        algorithm = PrivateFedPAQ(0.1, local_steps=local, fraction=fraction, **PRIVATE)
        assert algorithm.guarantee(Watched((n,))).base_epsilon == pytest.approx(n / (2 * local * b))
    everything = PrivateFedPAQ(0.1, local_steps=1, fraction=1.0, clip=1e6, epsilon=1e9, delta=1e-4, codec=Identity())
    assert np.allclose(simulate(everything, UNEQUAL, 1).samples, simulate(FedAvg(0.1), UNEQUAL, 1).samples, atol=1e-2)


def test_the_guarantee_says_whether_the_proof_covers_it():
    problem = Watched((600, 300))
    paper = PrivateFedPAQ(0.1, local_steps=10, fraction=0.2, clip=1.0, epsilon=1.0, delta=1e-4).guarantee(problem)
    assert (paper.base_epsilon, paper.valid) == (2.5, False)
    assert PrivateFedPAQ(0.1, local_steps=10, fraction=0.2, clip=1.0, epsilon=0.4, delta=1e-4).guarantee(problem).valid
    count = PrivateFedPAQ(0.1, local_steps=10, batch_size=24, clip=1.0, epsilon=0.9, delta=1e-4).guarantee(problem)
    assert (count.base_epsilon, count.valid) == (0.9 / 0.8, False)


# --- Bits on the wire, both ways ----------------------------------------------------------------------------

QUANTISED = 32 + DIM * 5  # ceil(log2(21)) = 5
WIRE = {
    "distributed SGD": (distributed_sgd(ETA), 64 * DIM, 64 * DIM),
    "FedAvg": (FedAvg(ETA, local_steps=5), 64 * DIM, 64 * DIM),
    "FedAvg, scaled": (FedAvg(ETA, local_steps=5, objective="scaled"), 64 * DIM, 64 * DIM),
    "FedPAQ": (FedPAQ(ETA, local_steps=5), QUANTISED, 64 * DIM),
    "FedPAQ, one level": (FedPAQ(ETA, local_steps=5, codec=QSGD(1)), 32 + DIM * 2, 64 * DIM),
    "FedPAQ, float32": (FedPAQ(ETA, local_steps=5, codec=Identity("float32")), 32 * DIM, 64 * DIM),
    "private FedPAQ": (PrivateFedPAQ(ETA, local_steps=3, batch_size=2, **PRIVATE), QUANTISED, 64 * DIM),
    "SCAFFOLD": (Scaffold(ETA, local_steps=5), 2 * 64 * DIM, 2 * 64 * DIM),
}


@pytest.mark.parametrize("name", WIRE)
def test_bits_are_those_counted_by_hand(name):
    algorithm, up, down = WIRE[name]
    rounds = simulate(algorithm, UNEQUAL, 2, participation.uniform(3)).rounds
    assert rounds.uplink_bits.tolist() == [3 * up] * 2
    assert rounds.downlink_bits.tolist() == [3 * down] * 2
    all_clients = simulate(algorithm, UNEQUAL, 1, participation.uniform(3), broadcast_to="all").rounds
    assert all_clients.downlink_bits.tolist() == [5 * down]
    half = simulate(algorithm, UNEQUAL, 1, dtype="float32").rounds
    assert half.downlink_bits.tolist() == [5 * down // 2]


# --- Contracts and refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm",
    [
        FedAvg(ETA, local_steps=3), FedAvg(ETA, local_steps=3, batch_size=5, objective="scaled"), FedPAQ(ETA, local_steps=3),
        FedPAQ(ETA, local_steps=2, batch_size=4, codec=Elias(4)), PrivateFedPAQ(ETA, local_steps=3, batch_size=2, **PRIVATE),
        PrivateFedPAQ(ETA, local_steps=3, fraction=0.5, **PRIVATE), Scaffold(ETA, local_steps=3),
        Scaffold(ETA, local_steps=3, batch_size=4, objective="scaled"),
    ],
    ids=lambda a: type(a).__name__,
)  # fmt: skip
def test_the_contract_holds(algorithm):
    assert len(fs.testing.check(algorithm)) >= 8


@pytest.mark.parametrize(
    "algorithm",
    [
        FedAvg(ETA, local_steps=3, batch_size=4),
        FedPAQ(ETA, local_steps=3, batch_size=4, codec=Identity()),
        Scaffold(ETA, local_steps=3, batch_size=4, objective="scaled"),
    ],
)
def test_single_precision_stays_single_and_near(algorithm):
    asked = []

    class Spied(fs.problems.LinearRegression):
        def gradients(self, theta, clients, rows=None):
            asked.append(theta.dtype)
            return super().gradients(theta, clients, rows)

    short = simulate(algorithm, Spied(data=UNEQUAL), 5, dtype="float32").samples
    assert set(asked) == {np.dtype("float32")}
    assert np.allclose(short, simulate(algorithm, UNEQUAL, 5).samples, atol=1e-5)


REFUSED = {
    r"FedAvg\(step_size=-1\): must be a positive": lambda: FedAvg(-1),
    r"FedPAQ\(local_steps=0\): must be an integer": lambda: FedPAQ(ETA, local_steps=0),
    r"Scaffold\(objective='median'\): choose 'mean' or 'scaled'": lambda: Scaffold(ETA, objective="median"),
    r"FedAvg\(server_step=nan\)": lambda: FedAvg(ETA, server_step=float("nan")),
    r"FedPAQ\(codec=10\): give a codec": lambda: FedPAQ(ETA, codec=10),
    r"PrivateFedPAQ\(batch_size=None, fraction=None\): give one": lambda: PrivateFedPAQ(ETA, local_steps=3, **PRIVATE),
    r"PrivateFedPAQ\(clip=0\)": lambda: PrivateFedPAQ(ETA, local_steps=3, clip=0, epsilon=1.0, delta=1e-4, batch_size=2),
    r"PrivateFedPAQ\(delta=2\)": lambda: PrivateFedPAQ(ETA, local_steps=3, clip=1, epsilon=1.0, delta=2, batch_size=2),
    r"choose 'paper' or 'tight'": lambda: PrivateFedPAQ(ETA, local_steps=3, batch_size=2, sensitivity="none", **PRIVATE),
    r"3 disjoint batches take 9 rows, client 0 has 6": lambda: simulate(
        PrivateFedPAQ(ETA, local_steps=3, batch_size=3, **PRIVATE), UNEQUAL, 1
    ),
    r"delta=0.9\): must be below": lambda: simulate(
        PrivateFedPAQ(ETA, local_steps=3, clip=1.0, epsilon=1.0, delta=0.9, batch_size=1), UNEQUAL, 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_impossible_requests_are_refused_with_a_remedy(message):
    with pytest.raises(InvalidInput, match=message):
        REFUSED[message]()

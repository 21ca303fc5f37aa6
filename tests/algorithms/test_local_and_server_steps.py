"""FedProx, FedNova, FedDyn, adaptive servers, momentum and weight decay against recursions written out by hand.

Quadratic losses make the local steps linear; nothing is random, so that iterates must agree to rounding.
"""

from __future__ import annotations

import numpy as np
import pytest
from strategies.rows import DIM, START, client_data

import fedsim as fs
from fedsim import participation
from fedsim.algorithms import FedAdagrad, FedAdam, FedAvg, FedDyn, FedNova, FedProx, FedYogi
from fedsim.errors import InvalidInput

ETA, ROUNDS = 0.1, 12
SIZES, STEPS = (6, 9, 12, 15, 18), (1, 2, 5, 9, 3)
DATA = client_data(SIZES)
HESSIAN = np.array([x.T @ x / len(y) for x, y in DATA])
LINEAR = np.array([x.T @ y / len(y) for x, y in DATA])
P = np.array(SIZES) / sum(SIZES)
PROBLEM = fs.problems.LinearRegression(data=DATA)
MINIMISER = np.linalg.solve(np.einsum("c,cij->ij", P, HESSIAN), P @ LINEAR)


def simulate(algorithm, rounds=ROUNDS, policy=None, **more):
    scenario = fs.Scenario(
        problem=PROBLEM, algorithm=algorithm, participation=policy or participation.full(), seed=1,
        budget=fs.Budget(rounds=rounds), initial=START, **more,
    )  # fmt: skip
    return fs.run(scenario)


def iterates(algorithm, rounds=ROUNDS, **more):
    return simulate(algorithm, rounds, **more).samples[:, 0]


def local(c, x, steps, momentum=0.0, decay=0.0, extra=lambda y: 0.0):
    """(y, the sum of the coefficients of its gradients)."""
    y, v, coefficients, inertia = x.copy(), 0.0, 0.0, 0.0
    for _ in range(steps):
        v = momentum * v + HESSIAN[c] @ y - LINEAR[c] + decay * y + extra(y)
        inertia = momentum * inertia + 1
        y, coefficients = y - ETA * v, coefficients + ETA * inertia
    return y, coefficients


def same(a, b):
    assert np.allclose(a, b, rtol=1e-10, atol=1e-12), f"differ by up to {np.abs(a - b).max():.2g}"


def test_momentum_and_weight_decay_are_their_recursion():
    x, expected = START, []
    for _ in range(ROUNDS):
        x = x + sum(P[c] * (local(c, x, 4, 0.8, 0.05)[0] - x) for c in range(5))
        expected.append(x)
    same(iterates(FedAvg(ETA, local_steps=4, momentum=0.8, weight_decay=0.05)), expected)
    assert np.abs(iterates(FedAvg(ETA, local_steps=4)) - expected).max() > 0.01


def test_fedprox_is_its_recursion_with_uneven_work():
    x, expected = START, []
    for _ in range(ROUNDS):
        ys = [local(c, x, STEPS[c], extra=lambda y, x=x: 0.7 * (y - x))[0] for c in range(5)]
        x = P @ np.array(ys)
        expected.append(x)
    same(iterates(FedProx(ETA, local_steps=STEPS, proximal=0.7)), expected)


def test_fedprox_without_a_spring_is_fedavg():
    same(iterates(FedProx(ETA, local_steps=5, proximal=0.0)), iterates(FedAvg(ETA, local_steps=5)))


@pytest.mark.parametrize("momentum", [0.0, 0.6])
def test_fednova_is_its_recursion(momentum):
    x, expected = START, []
    for _ in range(ROUNDS):
        ends = [local(c, x, STEPS[c], momentum) for c in range(5)]
        effective = sum(p * a for p, (_, a) in zip(P, ends, strict=True))
        x = x + effective * sum(p * (y - x) / a for p, (y, a) in zip(P, ends, strict=True))
        expected.append(x)
    same(iterates(FedNova(ETA, local_steps=STEPS, momentum=momentum)), expected)


def test_fednova_counts_coefficients_as_its_paper_does():
    """|a|_1 = (tau - rho (1 - rho^tau) / (1 - rho)) / (1 - rho) for momentum rho."""
    rho, tau = 0.6, 9
    paper = (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
    assert np.isclose(local(0, START, tau, rho)[1], ETA * paper)


def test_with_equal_work_fednova_is_fedavg():
    same(iterates(FedNova(ETA, local_steps=5, momentum=0.5)), iterates(FedAvg(ETA, local_steps=5, momentum=0.5)))


def test_uneven_work_misleads_fedprox_and_not_fednova():
    """Small steps leave hardly any local drift; what remains is the objective that the average minimises."""
    nova = iterates(FedNova(0.01, local_steps=STEPS), 900)[-1]
    plain = iterates(FedProx(0.01, local_steps=STEPS, proximal=0.0), 900)[-1]
    assert np.linalg.norm(nova - MINIMISER) < 0.2 * np.linalg.norm(plain - MINIMISER)


def test_uneven_work_takes_uneven_time():
    rounds = simulate(
        FedProx(ETA, local_steps=STEPS), 1, devices=fs.devices.constant(2.0), record=fs.Record(events=True)
    )
    ends = rounds.events[rounds.events.event == "upload"].set_index("client").time_s
    assert [ends[c] for c in range(5)] == [2.0 * k for k in STEPS]


def test_feddyn_is_its_recursion():
    alpha, x, h, g, expected = 0.3, START, np.zeros(DIM), np.zeros((5, DIM)), []
    for _ in range(ROUNDS):
        deltas = np.array([
            local(c, x, 6, extra=lambda y, x=x, own=g[c]: alpha * (y - x) - own)[0] - x for c in range(5)
        ])  # fmt: skip
        g = g - alpha * deltas
        h = h - alpha * P @ deltas
        x = x + P @ deltas - h / alpha
        expected.append(x)
    same(iterates(FedDyn(ETA, local_steps=6, regularity=alpha)), expected)


@pytest.mark.parametrize("objective", ["mean", "scaled"])
def test_feddyn_finds_the_minimiser_where_fedavg_does_not(objective):
    policy = participation.uniform(3)
    reached = iterates(FedDyn(0.2, local_steps=20, regularity=0.5, objective=objective), 300, policy=policy)[-1]
    assert np.linalg.norm(reached - MINIMISER) < 1e-5
    assert np.linalg.norm(iterates(FedAvg(0.2, local_steps=20), 100)[-1] - MINIMISER) > 0.05


SECOND = {
    FedAdam: lambda v, d: 0.9 * v + 0.1 * d**2,
    FedYogi: lambda v, d: v - 0.1 * d**2 * np.sign(v - d**2),
    FedAdagrad: lambda v, d: v + d**2,
}


@pytest.mark.parametrize("kind", SECOND)
def test_adaptive_servers_are_their_recursions(kind):
    x, m, v, expected = START, np.zeros(DIM), np.full(DIM, 1e-4), []
    for _ in range(ROUNDS):
        delta = sum(P[c] * (local(c, x, 3)[0] - x) for c in range(5))
        m = 0.8 * m + 0.2 * delta
        v = SECOND[kind](v, delta)
        x = x + 0.05 * m / (np.sqrt(v) + 1e-2)
        expected.append(x)
    second = {} if kind is FedAdagrad else {"beta2": 0.9}
    same(iterates(kind(ETA, local_steps=3, server_step=0.05, beta1=0.8, tau=1e-2, **second)), expected)


@pytest.mark.parametrize("kind", [*SECOND, FedDyn])
def test_a_round_without_replies_moves_nothing(kind):
    result = simulate(kind(ETA, local_steps=2), 40, participation.bernoulli(0.15))
    empty = result.rounds.arrived.to_numpy()[1:] == 0
    moved = (np.diff(result.samples[:, 0], axis=0) != 0).any(axis=1)
    assert empty.sum() > 5
    assert np.array_equal(moved, ~empty)


REFUSED = {
    r"FedProx\(proximal=-1\)": lambda: FedProx(ETA, proximal=-1),
    r"FedProx\(local_steps=0\)": lambda: FedProx(ETA, local_steps=(1, 0)),
    r"2 numbers of local steps for 5 clients; give one, or one per client": lambda: iterates(
        FedNova(ETA, local_steps=(1, 2))
    ),
    r"FedAvg\(momentum=1.0\)": lambda: FedAvg(ETA, momentum=1.0),
    r"FedAvg\(weight_decay=-0.1\)": lambda: FedAvg(ETA, weight_decay=-0.1),
    r"FedDyn\(regularity=0\)": lambda: FedDyn(ETA, regularity=0),
    r"FedAdam\(beta2=1.5\)": lambda: FedAdam(ETA, beta2=1.5),
    r"FedYogi\(tau=0\)": lambda: FedYogi(ETA, tau=0),
}


@pytest.mark.parametrize("message", REFUSED)
def test_impossible_arguments_are_refused(message):
    with pytest.raises(InvalidInput, match=message):
        REFUSED[message]()

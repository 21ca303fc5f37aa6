"""FA-HMC against the exact law of its iterates, against FA-LD, and on the wire.

A leapfrog trajectory on a quadratic potential is linear in position and momentum, so mean and covariance of
every iterate follow from products of matrices. The recursion below is written from the paper's equations and
shares no code with the library; wrong ones are shown to be noticed.
"""

from __future__ import annotations

import functools
from itertools import product

import numpy as np
import pytest
from oracles import moments

import fedsim as fs
import fedsim.testing
from fedsim import rng
from fedsim.algorithms.fahmc import FAHMC, halving
from fedsim.errors import InvalidInput
from fedsim.kernels import cpu
from fedsim.kernels.cpu import leapfrog
from fedsim.kernels.reference import leapfrog as leapfrog_reference
from fedsim.rng import Stream
from fedsim.runtime.jobs import Batch, JobsAtHand, Setting

REPLICAS, ROUNDS, LOOK = 4000, 20, (1, 5, 20)
START = np.array([1.0, -1.0, 0.5])


# --- The exact recursion -------------------------------------------------------------------------------


def trajectory(hessian, eta, steps, cached=False):
    """theta_K = A theta_0 + B p_0 + R b + sum_j E_j e_j, the e_j independent errors of the gradients drawn.

    `cached` draws one gradient per position, where the paper draws two.
    """
    d = len(hessian)
    one, none = np.eye(d), np.zeros((d, d))
    drift = one - eta**2 / 2 * hessian
    step = np.block([[drift, eta * one], [-eta / 2 * hessian @ (one + drift), drift]])
    first = np.block([[-(eta**2) / 2 * one], [-eta / 2 * drift]])  # what an error at k does to (theta, p)
    second = np.block([[none], [-eta / 2 * one]])  # and one at k + 1/2
    state, shift, errors = np.eye(2 * d), np.zeros((2 * d, d)), []
    for k in range(steps):
        state, shift = step @ state, step @ shift - first - second
        errors = [step @ e for e in errors]
        if cached and k:
            errors[-1] = errors[-1] + first
        else:
            errors.append(first)
        errors.append(second)
    return state[:d, :d], state[:d, d:], shift[:d], [e[:d] for e in errors]


def local_iterations(clients, etas, steps, rho, noise=0.0, cached=False):
    """M, R (N, d, d), U (N, N, d, d), W (N, d, d): theta_c = M theta + R b_c + shared and private noise."""
    n, d = clients.linear.shape
    m, r = np.tile(np.eye(d), (n, 1, 1)), np.zeros((n, d, d))
    u, w = np.zeros((n, n, d, d)), np.zeros((n, d, d))
    for eta in etas:
        maps = [trajectory(h, eta, steps, cached) for h in clients.hessian]
        a, b, shift = (np.array([part[i] for part in maps]) for i in range(3))
        m, r = a @ m, a @ r + shift
        u = np.einsum("cij,cejk,elk->ceil", a, u, a) + rho * np.einsum("cij,ekj->ceik", b, b)
        w = a @ w @ a.transpose(0, 2, 1) + ((1 - rho) / clients.p)[:, None, None] * b @ b.transpose(0, 2, 1)
        for c, (*_, errors) in enumerate(maps):
            w[c] += sum(e @ (clients.error[c] + noise**2 * np.eye(d)) @ e.T for e in errors)
    return m, r, u, w


def averaged(clients, second, u, w):
    """Covariance of the noise in a weighted average of the clients, E[a a'] given."""
    return np.einsum("ce,ceij->ij", second, u) + np.einsum("c,cij->ij", np.diag(second), w)


def fahmc(clients, weights, step_size, steps, local, rounds, rho, noise=0.0, start=START, cached=False):
    """[(mean, covariance) after round 1, 2, ...]; `step_size` is a function of the iteration."""
    first, second = (x[..., :-1] if x.ndim == 1 else x[:-1, :-1] for x in weights)  # no client is idle here
    mean, covariance, out = np.asarray(start, float), 0.0, []
    maps = functools.cache(lambda *etas: local_iterations(clients, etas, steps, rho, noise, cached))
    for r in range(rounds):
        m, response, u, w = maps(*(step_size(r * local + t) for t in range(local)))
        centre = m @ mean + np.einsum("cij,cj->ci", response, clients.linear)
        spread = averaged(clients, second, u, w) + np.einsum("ce,ci,ej->ij", second, centre, centre)
        if r:
            spread += np.einsum("ce,cij,jk,elk->il", second, m, covariance, m)
        mean = first @ centre
        covariance = spread - np.outer(mean, mean)
        out.append((mean, covariance))
    return out


def debiased(clients, eta, steps, local, rounds, rho, noise=0.0, anchor="stale", first_anchor=False):
    """Everybody takes part: theta' = P theta + Q a + q + noise, with a the theta of one round ago."""
    m, response, u, w = local_iterations(clients, [eta] * local, steps, rho, noise)
    p, d = clients.p, clients.linear.shape[1]
    start = START[:d]
    hessian, linear = np.einsum("c,cij->ij", p, clients.hessian), p @ clients.linear
    noise = averaged(clients, np.outer(p, p), u, w)
    plain = np.einsum("c,cij->ij", p, m)
    pull = -np.einsum("c,cij,cjk->ik", p, response, hessian - clients.hessian)
    push = np.einsum("c,cij,j->i", p, response, linear)
    mean, covariance, out = np.tile(start, 2), np.zeros((2 * d, 2 * d)), []  # of (theta, a)
    for r in range(rounds):
        corrected = r > 0 or first_anchor
        back = pull if corrected else np.zeros((d, d))
        move = np.block([[plain, back], [np.eye(d), np.zeros((d, d))]])
        if anchor == "fresh":
            move[:d] = np.block([plain + back, np.zeros((d, d))])
        if r == 0 and first_anchor:  # the literal algorithm: a = 0, grad f(a) = 0, but grad f^c(a) = -b_c
            shift = np.zeros(d)
            mean = np.concatenate([start, np.zeros(d)])
            move[:d, d:] = 0
        else:
            shift = push if corrected else np.einsum("c,cij,cj->i", p, response, clients.linear)
        mean = move @ mean + np.concatenate([shift, np.zeros(d)])
        covariance = move @ covariance @ move.T
        covariance[:d, :d] += noise
        out.append((mean[:d], covariance[:d, :d]))
    return out


def debiased_with_replacement(clients, draws, eta, steps, local, rounds, rho):
    """Every outcome of the draws: (theta, grad l^1, ..., grad l^N), gradients where each client last was."""
    m, response, u, w = local_iterations(clients, [eta] * local, steps, rho)
    (n, d), p = clients.linear.shape, clients.p
    outcomes = []
    for drawn in product(range(n), repeat=draws):
        a = np.bincount(drawn, minlength=n) / draws
        move, shift = np.eye((n + 1) * d), np.zeros((n + 1) * d)
        move[:d] = 0
        block = [slice((c + 1) * d, (c + 2) * d) for c in range(n)]
        for c in np.flatnonzero(a):
            move[:d, :d] += a[c] * m[c]
            shift[:d] += a[c] * response[c] @ clients.linear[c]
            for e in range(n):
                move[:d, block[e]] -= a[c] * response[c] * (1 - (e == c) / p[c])
            move[block[c]] = 0
            move[block[c], :d] = p[c] * clients.hessian[c]
            shift[block[c]] = -p[c] * clients.linear[c]
        noise = np.zeros_like(move)
        noise[:d, :d] = averaged(clients, np.outer(a, a), u, w)
        outcomes.append((np.prod(p[list(drawn)]), move, shift, noise))
    mean, covariance, out = np.concatenate([START[:d], np.zeros(n * d)]), 0 * move, []
    for _ in range(rounds):
        centres = [(q, move @ mean + shift) for q, move, shift, _ in outcomes]
        spread = sum(q * (move @ covariance @ move.T + noise) for q, move, _, noise in outcomes)
        mean = sum(q * centre for q, centre in centres)
        covariance = spread + sum(q * np.outer(centre - mean, centre - mean) for q, centre in centres)
        out.append((mean[:d], covariance[:d, :d]))
    return out


# --- Problems and runs ---------------------------------------------------------------------------------


def client_data(sizes, dim=3, seed=20, spread=1.0):
    """Points around different centres, each client with a covariance of its own."""
    source = np.random.default_rng(seed)
    data = [source.normal(size=(n, dim)) + spread * source.normal(size=dim) for n in sizes]
    turns = np.linalg.qr(source.normal(size=(len(sizes), dim, dim)))[0]
    roots = turns * source.uniform(0.7, 1.7, (len(sizes), 1, dim))
    return data, roots @ roots.transpose(0, 2, 1)


SIZES = (4, 6, 8, 12, 15, 20, 35)
DATA = client_data(SIZES)
ALIKE = client_data(SIZES, spread=0.0)
FEW = client_data((6, 8, 12), dim=2, seed=3)


@functools.cache
def problem(name="many"):
    data, covariances = {"many": DATA, "alike": ALIKE, "few": FEW}[name]
    return fs.problems.GaussianMean(data=data, covariance=covariances)


def simulate(algorithm, of=None, participation=None, rounds=ROUNDS, replicas=REPLICAS, start=START, **more):
    """samples (rounds, replicas, d)."""
    scenario = fs.Scenario(
        problem=of or problem(), algorithm=algorithm, participation=participation or fs.participation.full(),
        budget=fs.Budget(rounds=rounds), replicas=replicas, seed=1, initial=start,
        record=fs.Record(rounds_every=rounds), **more,
    )  # fmt: skip
    return fs.run(scenario).samples


def worst_z(samples, law, look=LOOK):
    return max(np.abs(moments.z_scores(samples[r - 1], *law[r - 1])).max() for r in look)


# --- Exact moments -------------------------------------------------------------------------------------

ETA = 0.03


@pytest.mark.parametrize("local", [1, 4])
@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("rho", [0.0, 0.5, 1.0])
def test_iterates_have_the_exact_moments(rho, steps, local):
    clients = moments.gaussian_means(*DATA)
    law = fahmc(clients, moments.full(clients.p), lambda t: ETA, steps, local, ROUNDS, rho)
    assert worst_z(simulate(FAHMC(ETA, leapfrog_steps=steps, local_steps=local, correlation=rho)), law) < 5


@pytest.mark.parametrize("rho", [0.0, 0.5, 1.0])
def test_iterates_of_drawn_clients_have_the_exact_moments(rho):
    clients = moments.gaussian_means(*DATA)
    law = fahmc(clients, moments.with_replacement(clients.p, 3), lambda t: ETA, 5, 4, ROUNDS, rho)
    samples = simulate(
        FAHMC(ETA, leapfrog_steps=5, local_steps=4, correlation=rho), participation=fs.participation.with_replacement(3)
    )
    assert worst_z(samples, law) < 5


@pytest.mark.parametrize("batch, noise, steps", [(5, 0.0, 1), (5, 0.0, 4), (None, 20.0, 4), (5, 20.0, 3)])
def test_stochastic_gradients_add_exactly_their_covariance(batch, noise, steps):
    clients = moments.gaussian_means(*FEW, batch=batch and [batch] * 3)
    law = fahmc(clients, moments.full(clients.p), lambda t: 0.08, steps, 2, ROUNDS, 0.5, noise, START[:2])
    algorithm = FAHMC(
        0.08, leapfrog_steps=steps, local_steps=2, correlation=0.5, batch_size=batch, gradient_noise=noise
    )
    assert worst_z(simulate(algorithm, problem("few"), start=START[:2]), law) < 5


def test_schedules_are_functions_of_the_iteration():
    schedule = fs.schedules.inverse_time(0.5, 10)
    clients = moments.gaussian_means(*DATA)
    law = fahmc(clients, moments.full(clients.p), lambda t: 0.5 / (t + 10), 3, 4, ROUNDS, 0.5)
    assert worst_z(simulate(FAHMC(schedule, leapfrog_steps=3, local_steps=4, correlation=0.5)), law) < 5


def test_single_precision_has_the_same_moments():
    clients = moments.gaussian_means(*DATA)
    law = fahmc(clients, moments.full(clients.p), lambda t: ETA, 5, 2, ROUNDS, 0.5)
    samples = simulate(FAHMC(ETA, leapfrog_steps=5, local_steps=2, correlation=0.5), dtype="float32")
    assert samples.dtype == np.float32
    assert worst_z(samples, law) < 5


WRONG = {
    "a step too many": {"steps": 6},
    "FA-LD's reading of rho": {"rho": 0.25},
    "an iteration too few": {"local": 2},
    "five percent of the step size": {"step_size": lambda t: 1.05 * ETA},
}


@pytest.fixture(scope="module")
def drawn_clients():
    """A run to hold right and wrong laws against."""
    return simulate(
        FAHMC(ETA, leapfrog_steps=5, local_steps=3, correlation=0.5),
        problem("alike"),
        fs.participation.with_replacement(3),
    )


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_recursion_is_noticed(drawn_clients, mistake):
    clients = moments.gaussian_means(*ALIKE)
    right = {"step_size": lambda t: ETA, "steps": 5, "local": 3, "rounds": ROUNDS, "rho": 0.5}
    weights = moments.with_replacement(clients.p, 3)
    assert worst_z(drawn_clients, fahmc(clients, weights, **right)) < 5
    assert worst_z(drawn_clients, fahmc(clients, weights, **(right | WRONG[mistake]))) > 6


def test_one_gradient_per_position_would_be_noticed():
    clients = moments.gaussian_means(*FEW)
    samples = simulate(FAHMC(0.08, leapfrog_steps=3, gradient_noise=20.0), problem("few"), rounds=5, start=START[:2])
    right, cached = (
        fahmc(clients, moments.full(clients.p), lambda t: 0.08, 3, 1, 5, 0.0, 20.0, START[:2], cached=one)
        for one in (False, True)
    )
    assert worst_z(samples, right, (1, 5)) < 5
    assert worst_z(samples, cached, (1, 5)) > 6


# --- De-biased -----------------------------------------------------------------------------------------

SMALL = 0.02


@pytest.mark.parametrize("local", [1, 4])
@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("rho", [0.0, 0.5, 1.0])
def test_debiased_iterates_have_the_exact_moments(rho, steps, local):
    law = debiased(moments.gaussian_means(*DATA), SMALL, steps, local, ROUNDS, rho)
    assert (
        worst_z(simulate(FAHMC(SMALL, leapfrog_steps=steps, local_steps=local, correlation=rho, debias="stale")), law)
        < 5
    )


def test_debiased_minibatches_have_the_exact_moments():
    law = debiased(moments.gaussian_means(*FEW, batch=[5] * 3), 0.05, 3, 3, ROUNDS, 0.5, 20.0)
    algorithm = FAHMC(
        0.05, leapfrog_steps=3, local_steps=3, correlation=0.5, debias="stale", batch_size=5, gradient_noise=20.0
    )
    assert worst_z(simulate(algorithm, problem("few"), start=START[:2]), law) < 5


@pytest.mark.parametrize("rho", [0.0, 1.0])
def test_debiased_iterates_of_drawn_clients_have_the_exact_moments(rho):
    law = debiased_with_replacement(moments.gaussian_means(*FEW), 2, 0.05, 3, 3, ROUNDS, rho)
    algorithm = FAHMC(0.05, leapfrog_steps=3, local_steps=3, correlation=rho, debias="stale")
    samples = simulate(algorithm, problem("few"), fs.participation.with_replacement(2), start=START[:2])
    assert worst_z(samples, law) < 5


def test_a_wrong_anchor_is_noticed():
    clients = moments.gaussian_means(*DATA)
    samples = simulate(FAHMC(SMALL, leapfrog_steps=5, local_steps=4, correlation=0.5, debias="stale"), replicas=2000)
    for mistake in (
        {"anchor": "fresh"},
        {"first_anchor": True},
    ):  # the second pulls all clients to the origin at first
        assert worst_z(samples, debiased(clients, SMALL, 5, 4, ROUNDS, 0.5, **mistake)) > 6


def test_debiasing_removes_the_stationary_bias_of_the_mean():
    clients = moments.gaussian_means(*DATA)
    truth = problem().exact()[0]
    weights = moments.full(clients.p)
    assert np.allclose(debiased(clients, SMALL, 5, 4, 300, 1.0)[-1][0], truth, rtol=0, atol=1e-12)
    assert np.abs(fahmc(clients, weights, lambda t: SMALL, 5, 4, 40, 1.0)[-1][0] - truth).max() > 0.05

    def z(debias):
        final = simulate(
            FAHMC(SMALL, leapfrog_steps=5, local_steps=4, correlation=1.0, debias=debias), rounds=40, replicas=2000
        )[-1]
        return np.abs((final.mean(0) - truth) / final.std(0, ddof=1) * np.sqrt(len(final))).max()

    assert z("stale") < 5
    assert z(None) > 20


def test_the_servers_gradient_is_the_sum_of_what_the_clients_remember():
    scenario = fs.Scenario(
        problem=problem(), algorithm=FAHMC(SMALL, leapfrog_steps=3, local_steps=2, debias="stale", codec=fs.codecs.QSGD(64)),
        budget=fs.Budget(rounds=9), replicas=3, participation=fs.participation.bernoulli(0.4),
        devices=fs.devices.lognormal(median_step_s=1e-3, sigma=0.5, dropout=0.3), initial=START,
    )  # fmt: skip
    run = finished_run(scenario)
    assert np.abs(run.learner.state["gradient"]).min() > 0
    np.testing.assert_allclose(
        run.learner.state["gradient"], run.learner.memory["gradient"].sum(axis=1), rtol=1e-9, atol=1e-9
    )


def test_debiasing_stays_consistent_in_asynchronous_rounds():
    scenario = fs.Scenario(
        problem=fs.testing.small_problem(), algorithm=FAHMC(SMALL / 4, leapfrog_steps=3, debias="stale"), budget=fs.Budget(rounds=60), replicas=2,
        participation=fs.participation.buffered(2), devices=fs.devices.lognormal(median_step_s=1e-3, sigma=0.5, dropout=0.2),
    )  # fmt: skip
    run = finished_run(scenario)
    np.testing.assert_allclose(
        run.learner.state["gradient"], run.learner.memory["gradient"].sum(axis=1), rtol=1e-9, atol=1e-9
    )


def finished_run(scenario):
    """The engine's own state after the last round."""
    import asyncio

    from fedsim import engine

    return asyncio.run(engine.simulate(scenario, fs.Inline(threads=1), (), False))


# --- FA-LD is the case K = 1 ---------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [None, 5])
@pytest.mark.parametrize("rho", [0.0, 0.5, 1.0])
def test_one_leapfrog_step_is_langevin_sample_by_sample(rho, batch):
    hmc = simulate(FAHMC(ETA, leapfrog_steps=1, local_steps=4, correlation=rho, batch_size=batch), replicas=5)
    langevin = fs.algorithms.FALD(ETA**2 / 2, local_steps=4, correlation=np.sqrt(rho), batch_size=batch)
    np.testing.assert_allclose(hmc, simulate(langevin, replicas=5), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_one_leapfrog_step_has_the_law_of_langevin(rho):
    clients = moments.gaussian_means(*DATA)
    weights = moments.with_replacement(clients.p, 3)
    hmc = fahmc(clients, weights, lambda t: ETA, 1, 4, ROUNDS, rho)
    langevin = moments.fald(clients, weights, lambda t: ETA**2 / 2, 4, ROUNDS, 1.0, np.sqrt(rho), START)
    for one, other in zip(hmc, langevin, strict=True):
        np.testing.assert_allclose(one[0], other[0], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(one[1], other[1], rtol=1e-9, atol=1e-14)


# --- Experiment 5.2 ------------------------------------------------------------------------------------

GAUSSIANS = moments.Clients(
    np.array([[[1.0]], [[0.25]]]), np.array([[20.0], [0.25]]), np.zeros((2, 1, 1)), np.array([0.5, 0.5])
)  # half the clients N(20, 1), half N(1, 4); together N(16.2, 1.6)


def per_coordinate(d, rounds=10_000):
    """Mean and variance of every coordinate after round 1, 2, ...; all momenta are shared."""
    m, response, u, _ = local_iterations(GAUSSIANS, [0.02 / d**0.25] * 10, 5, 1.0)
    p = GAUSSIANS.p
    slope, shift = float(p @ m[:, 0, 0]), float(p @ (response[:, 0, 0] * GAUSSIANS.linear[:, 0]))
    noise = float(p @ u[:, :, 0, 0] @ p)
    mean = variance = 0.0
    for _ in range(rounds):
        mean, variance = slope * mean + shift, slope**2 * variance + noise
        yield mean, variance


EXACT = {2: 203, 50: 1376, 100: 2057, 200: 3065, 500: 5173, 1000: 7666}


@pytest.mark.parametrize("d", EXACT)
def test_the_target_is_reached_after_the_known_number_of_rounds(d):
    distances = (d * ((m - 16.2) ** 2 + (np.sqrt(v) - np.sqrt(1.6)) ** 2) for m, v in per_coordinate(d))
    assert next(number for number, w2 in enumerate(distances, 1) if w2 < 0.1) == EXACT[d]


def test_the_two_dimensional_experiment_follows_its_exact_law_up_to_the_target():
    gaussians = fs.problems.GaussianMean(
        data=[[[20.0, 20.0]], [[1.0, 1.0]]], covariance=np.array([2 * np.eye(2), 8 * np.eye(2)])
    )  # l^c = f^c / 2
    algorithm = FAHMC(0.02 / 2**0.25, leapfrog_steps=5, local_steps=10, correlation=1.0)
    samples = simulate(algorithm, gaussians, rounds=203, replicas=2000, start=np.zeros(2))
    law = [(np.full(2, mean), variance * np.eye(2)) for mean, variance in per_coordinate(2, 203)]
    assert worst_z(samples, law, (1, 50, 203)) < 5


# --- The contract, and what is computed ----------------------------------------------------------------

VARIANTS = {
    "vanilla": {},
    "stochastic": {"batch_size": 3, "gradient_noise": 0.5},
    "debiased": {"debias": "stale"},
    "debiased stochastic": {"debias": "stale", "batch_size": 0.4},
    "rounded": {"codec": fs.codecs.Identity("float32")},
    "quantised": {"codec": fs.codecs.QSGD(16)},
    "debiased quantised": {"debias": "stale", "codec": fs.codecs.Elias(4)},
}


@pytest.mark.parametrize("dim", [3, 12], ids=["narrow", "wide"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_keeps_the_contract(variant, dim):
    algorithm = FAHMC(0.05, leapfrog_steps=3, local_steps=2, correlation=0.4, **VARIANTS[variant])
    clients = fs.problems.GaussianMean.synthetic(clients=5, dim=dim, samples=6, seed=5)
    kept = fs.testing.check(algorithm, clients)
    assert ("fused and one at a time agree" in kept) == (algorithm.batch_size is None)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_keeps_the_contract_on_logistic_regression(variant):
    algorithm = FAHMC(0.05, leapfrog_steps=3, local_steps=2, correlation=0.4, **VARIANTS[variant])
    clients = fs.problems.LogisticRegression.synthetic(clients=5, dim=11, samples=[4, 6, 8, 40, 9], seed=5)
    kept = fs.testing.check(algorithm, clients)
    assert ("fused and one at a time agree" in kept) == (not algorithm.gradient_noise)


def test_what_has_no_kernel_is_not_fused():
    logistic = fs.problems.LogisticRegression([(np.eye(3), [0, 1, 1])] * 2, prior_precision=1.0)
    softmax = fs.problems.SoftmaxRegression([(np.eye(3), [0, 1, 1])] * 2, classes=2)
    assert FAHMC(0.1, leapfrog_steps=3).fused(problem(), cpu) is not None
    assert FAHMC(0.1, leapfrog_steps=3, batch_size=3).fused(problem(), cpu) is None
    assert FAHMC(0.1, leapfrog_steps=3, batch_size=2, debias="stale").fused(logistic, cpu) is not None
    assert FAHMC(0.1, leapfrog_steps=3).fused(softmax, cpu) is None
    for clients in (problem(), logistic):
        assert FAHMC(0.1, leapfrog_steps=3, gradient_noise=1.0).fused(clients, cpu) is None
    fs.testing.check(FAHMC(0.1, leapfrog_steps=3, local_steps=2, debias="stale"), softmax)


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("debias", [None, "stale"])
@pytest.mark.parametrize("batch", [None, 5, 0.3])
def test_fused_logistic_trajectories_equal_the_generic_ones_to_rounding(batch, debias, dtype, tolerance):
    """Data stay float64: a run in single precision has its own copy of them."""
    clients = fs.problems.LogisticRegression.synthetic(clients=4, dim=10, samples=[6, 20, 50, 3], seed=2)
    algorithm = FAHMC(
        fs.schedules.inverse_time(1.0, 10),
        leapfrog_steps=4,
        local_steps=3,
        correlation=0.5,
        debias=debias,
        batch_size=batch,
    )
    setting = Setting(clients, fs.problems.weights_of(clients), 5, np.dtype(dtype), cpu)
    jobs = np.arange(30)
    start, gradient, remembered = 0.3 * rng.normal(keys(30, Stream.USER), 30).astype(dtype).reshape(30, 3, 10).swapaxes(
        0, 1
    )
    message, memory = {"theta": start, "gradient": gradient}, {"gradient": remembered}
    batch_of_jobs = Batch(2, jobs // 4, jobs % 4, 0 * jobs, message, jobs, memory)
    found, expected = (
        compute(JobsAtHand(setting, batch_of_jobs, single=False), message, memory)
        for compute in (algorithm.fused(clients, cpu), algorithm.client)
    )
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].dtype == dtype
            np.testing.assert_allclose(one[name], other[name], rtol=0, atol=tolerance * np.abs(other[name]).max())
    assert np.abs(found[0]["theta"] - start).max() > 0.1


class Spy:
    """A job that notes which draws are asked for."""

    round, weight = 0, 0.5

    def __init__(self):
        self.rows, self.private, self.shared = [], [], []

    def gradient(self, theta, step, batch_size=None):
        self.rows.append(step if batch_size else None)
        return theta

    def normal(self, step):
        self.private.append(step)
        return np.ones(2)

    def shared_normal(self, step):
        self.shared.append(step)
        return np.ones(2)


@pytest.mark.parametrize("steps, gradients", [(1, 1), (2, 3), (5, 9)])
def test_a_stochastic_gradient_is_drawn_afresh_at_every_evaluation(steps, gradients):
    spy, algorithm = (
        Spy(),
        FAHMC(0.1, leapfrog_steps=steps, local_steps=3, correlation=0.5, batch_size=2, gradient_noise=1.0),
    )
    algorithm.client(spy, {"theta": np.zeros(2)}, {})
    assert spy.rows == list(range(3 * gradients)) == [step - 3 for step in sorted(spy.private)[3:]]
    assert sorted(spy.private)[:3] == spy.shared == [0, 1, 2]
    assert algorithm.work(None) == len(spy.rows)


@pytest.mark.parametrize("debias", [None, "stale"])
def test_an_exact_gradient_is_computed_once_per_position(debias):
    spy, algorithm = Spy(), FAHMC(0.1, leapfrog_steps=5, local_steps=3, debias=debias)
    zero = np.zeros(2)
    algorithm.client(spy, {"theta": zero, "gradient": zero}, {"gradient": zero})
    assert len(spy.rows) == 5 * 3 + (debias is not None) == algorithm.work(None)


# --- The wire ------------------------------------------------------------------------------------------

D, N = 3, len(SIZES)
WIRE = {
    "vanilla": ({}, "float64", 64 * D, 64 * D),
    "single precision": ({}, "float32", 32 * D, 32 * D),
    "debiased": ({"debias": "stale"}, "float64", 64 * 2 * D, 64 * 2 * D),
    "debiased, single precision": ({"debias": "stale"}, "float32", 32 * 2 * D, 32 * 2 * D),
    "rounded": ({"codec": fs.codecs.Identity("float32")}, "float64", 32 * D, 64 * D),
    "quantised": ({"codec": fs.codecs.QSGD(7)}, "float64", 32 + 4 * D, 64 * D),
    "debiased, both quantised": (
        {"codec": fs.codecs.QSGD(7), "debias": "stale"},
        "float64",
        2 * (32 + 4 * D),
        64 * 2 * D,
    ),
    "as it comes": ({"codec": fs.codecs.Identity(), "debias": "stale"}, "float32", 32 * 2 * D, 32 * 2 * D),
}


@pytest.mark.parametrize("case", WIRE)
def test_bits_are_those_counted_by_hand_in_every_round(case):
    arguments, dtype, up, down = WIRE[case]
    scenario = fs.Scenario(
        problem=problem(),
        algorithm=FAHMC(SMALL, leapfrog_steps=2, local_steps=2, **arguments),
        budget=fs.Budget(rounds=3),
        dtype=dtype,
    )
    rounds = fs.run(scenario).rounds
    assert rounds.uplink_bits.tolist() == [N * up] * 3
    assert rounds.downlink_bits.tolist() == [N * down] * 3


def test_what_the_codec_loses_is_lost_for_real():
    exact, rounded, coarse = (
        simulate(FAHMC(SMALL, leapfrog_steps=2, local_steps=2, codec=codec), rounds=3, replicas=2)
        for codec in (None, fs.codecs.Identity("float32"), fs.codecs.QSGD(4))
    )
    assert 0 < np.abs(rounded - exact).max() < 1e-6
    assert np.abs(coarse - exact).max() > 1e-3


# --- Arguments and schedules ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"step_size": 0.0}, "step_size=0.0"),
        ({"leapfrog_steps": 0}, "leapfrog_steps=0"),
        ({"leapfrog_steps": 2.5}, "leapfrog_steps=2.5"),
        ({"local_steps": 0}, "local_steps=0"),
        ({"correlation": 1.5}, "between 0 and 1"),
        ({"debias": "fresh"}, "choose None or 'stale'"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"gradient_noise": -1.0}, "at least 0"),
        ({"codec": "qsgd"}, "give a codec"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        FAHMC(**({"step_size": 0.1, "leapfrog_steps": 5} | arguments))


def test_uniform_selection_of_unequal_clients_is_refused():
    with pytest.raises(InvalidInput, match="weights differ"):
        simulate(FAHMC(SMALL, leapfrog_steps=5), participation=fs.participation.uniform(3))


def test_halving_takes_twice_as_long_for_every_half_of_the_squared_step():
    schedule = halving(0.4, 3)
    squares = np.array([schedule(t) ** 2 for t in range(3 + 6 + 12 + 1)])
    np.testing.assert_allclose(squares, 0.16 / np.repeat([1, 2, 4, 8], [3, 6, 12, 1]))
    assert schedule == halving(0.4, 3)
    with pytest.raises(InvalidInput, match="first=0"):
        halving(0.4, 0)
    with pytest.raises(InvalidInput, match="eta0=0"):
        halving(0, 3)


# --- The compiled trajectories -------------------------------------------------------------------------


def keys(jobs, stream):
    return rng.keys(11, stream, replica=np.arange(jobs) % 13, client=np.arange(jobs) // 13, round=3)


def jobs_of(jobs, d, dtype, common, trajectories, steps):
    """Five clients with symmetric tables; every job has its own start, linear term and scale."""
    draw = rng.normal(keys(5, Stream.DATA), d * d).reshape(5, d, d)
    hessian = draw + draw.transpose(0, 2, 1) + 3 * np.sqrt(d) * np.eye(d)
    own = rng.normal(keys(jobs, Stream.DATA), 2 * d).astype(dtype)
    client = np.arange(jobs) * 3 % 5
    scale = np.sqrt((1 - common**2) * (1 + client)).astype(dtype)
    private, shared = keys(jobs, Stream.NOISE), keys(jobs, Stream.SHARED)
    etas = 0.2 / (1 + np.arange(trajectories))
    hessian = hessian.astype(dtype)
    return own[:, :d], hessian, own[:, d:], client, private, shared, scale, common, etas, steps


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [1, 2, 3, 8, 9, 12, 50])
def test_compiled_trajectories_equal_the_reference(d, dtype):
    for common, trajectories, steps in product((0.0, 0.5, 1.0), (1, 5), (1, 4)):
        arguments = jobs_of(70, d, dtype, common, trajectories, steps)
        found = leapfrog.leapfrog_quadratic(*arguments)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, leapfrog_reference.leapfrog_quadratic(*arguments))


@pytest.mark.parametrize("d", [2, 12])
def test_trajectories_do_not_depend_on_a_jobs_place_in_a_batch(d):
    arguments = jobs_of(300, d, "float64", 0.5, 5, 3)
    before = [np.copy(a) for a in arguments]
    together = leapfrog.leapfrog_quadratic(*arguments)
    theta, hessian, linear, *per_job = arguments[:7]
    for size in (1, 7, 64):
        for at in range(0, 300, size):
            part = slice(at, at + size)
            mine = [theta[part], hessian, linear[part], *(a[part] for a in per_job)]
            np.testing.assert_array_equal(leapfrog.leapfrog_quadratic(*mine, *arguments[7:]), together[part])
    assert all(np.array_equal(kept, now) for kept, now in zip(before, arguments, strict=True))

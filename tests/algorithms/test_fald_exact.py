"""FA-LD against the exact law of its iterates: every entry of mean and covariance at |z| < 5.

The recursion in `moments.py` shares no code with the library. Hessians differ between clients, so that local
steps, correlation, participation and weights all leave their mark; wrong recursions are shown to be noticed.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from oracles import moments

import fedsim as fs

REPLICAS, ROUNDS, ETA = 4000, 50, 1.2e-3
LOOK = (1, 5, 50)
SIZES = (4, 6, 8, 12, 15, 20, 35)
START = np.array([1.0, -1.0, 0.5])


def client_data(sizes, dim=3, seed=20):
    """Points around different centres, each client with a covariance of its own."""
    rng = np.random.default_rng(seed)
    data = [rng.normal(size=(n, dim)) + 0.5 * rng.normal(size=dim) for n in sizes]
    covariances = []
    for _ in sizes:
        turn, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
        covariances.append(turn @ np.diag(rng.uniform(0.5, 3, dim)) @ turn.T)
    covariances = np.array([(c + c.T) / 2 for c in covariances])
    return data, covariances


UNBALANCED, BALANCED = client_data(SIZES), client_data((14,) * 7)


def simulate(
    problem, participation, rounds=ROUNDS, replicas=REPLICAS, seed=1, dtype="float64", start=START, **arguments
):
    """samples (rounds, replicas, d) of one run."""
    scenario = fs.Scenario(
        problem=problem, algorithm=fs.algorithms.FALD(**arguments), participation=participation,
        budget=fs.Budget(rounds=rounds), replicas=replicas, seed=seed, initial=start, dtype=dtype,
        record=fs.Record(every=1, rounds_every=rounds),
    )  # fmt: skip
    return fs.run(scenario).samples


def worst_z(samples, law, look=LOOK):
    return max(np.abs(moments.z_scores(samples[r - 1], *law[r - 1])).max() for r in look)


def check(samples, law, look=LOOK):
    for r in look:
        z = moments.z_scores(samples[r - 1], *law[r - 1])
        assert np.abs(z).max() < 5, f"round {r}: z = {np.round(z, 1)}"


@functools.cache
def problem_of(name):
    data, covariances = {"unbalanced": UNBALANCED, "balanced": BALANCED}[name]
    return fs.problems.GaussianMean(data=data, covariance=covariances)


# --- The grid -------------------------------------------------------------------------------------------

POLICIES = {
    "full": ("unbalanced", fs.participation.full(), moments.full),
    "with replacement": (
        "unbalanced",
        fs.participation.with_replacement(3),
        lambda p: moments.with_replacement(p, 3),
    ),
    "uniform": ("balanced", fs.participation.uniform(3), lambda p: moments.uniform(p, 3)),
}


@pytest.mark.parametrize("local", [1, 5, 20])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("policy", POLICIES)
def test_iterates_have_the_exact_moments(policy, correlation, local):
    name, participation, weights = POLICIES[policy]
    clients = moments.gaussian_means(*(UNBALANCED if name == "unbalanced" else BALANCED))
    law = moments.fald(clients, weights(clients.p), lambda t: ETA, local, ROUNDS, 1.0, correlation, START)
    samples = simulate(
        problem_of(name), participation, step_size=ETA, local_steps=local, correlation=correlation,
        seed=int(100 * correlation) + local,
    )  # fmt: skip
    check(samples, law)


# --- Other weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("probability", [0.25, (0.1, 0.9, 0.3, 0.5, 0.2, 1.0, 0.4)])
def test_bernoulli_rounds_have_the_exact_moments_empty_ones_included(probability):
    clients = moments.gaussian_means(*UNBALANCED)
    law = moments.fald(clients, moments.bernoulli(clients.p, probability), lambda t: ETA, 5, 20, 1.0, 0.5, START)
    samples = simulate(
        problem_of("unbalanced"),
        fs.participation.bernoulli(probability),
        20,
        step_size=ETA,
        local_steps=5,
        correlation=0.5,
    )
    check(samples, law, (1, 5, 20))


def test_uniform_selection_of_unequal_clients_has_the_exact_moments():
    clients = moments.gaussian_means(*UNBALANCED)
    weights = moments.uniform_subsets(clients.p, 3, lambda members: members / members.sum())
    law = moments.fald(clients, weights, lambda t: ETA, 5, 20, 1.0, 0.0, START)
    samples = simulate(
        problem_of("unbalanced"), fs.participation.uniform(3, weighting="normalised"), 20, step_size=ETA, local_steps=5
    )
    check(samples, law, (1, 5, 20))


SAMPLERS = {
    "FALD": fs.algorithms.FALD(1e-3), "FAHMC": fs.algorithms.FAHMC(1e-2, leapfrog_steps=2), "QLSD": fs.algorithms.QLSD(1e-3),
    "DGSGLD": fs.algorithms.DGSGLD(1e-3, coupling=0.1), "FSGLD": fs.algorithms.FSGLD(1e-3),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLERS)
def test_weights_that_do_not_sum_to_one_are_refused_for_samplers(name):
    """theta would be multiplied by a random factor every round; QLSD and DG-SGLD would not use the weights at all."""
    why = "leave weighting out" if name in ("QLSD", "DGSGLD") else "choose weighting='normalised'"
    with pytest.raises(fs.errors.InvalidInput, match=rf"uniform\(3, weighting='scaled'\) with {name}: .*{why}"):
        fs.Scenario(
            problem=problem_of("unbalanced"), algorithm=SAMPLERS[name], budget=fs.Budget(rounds=2),
            participation=fs.participation.uniform(3, weighting="scaled"),
        )  # fmt: skip


def test_the_schemes_second_moments_agree_with_enumeration():
    p = np.full(7, 1 / 7)
    every = moments.uniform_subsets(p, 3, lambda members: np.full(len(members), 1 / 3))
    assert np.allclose(every[0], moments.uniform(p, 3)[0])
    assert np.allclose(every[1], moments.uniform(p, 3)[1])
    every_client = moments.bernoulli(np.arange(1, 8) / 28, 1.0)
    assert np.allclose(every_client[1], moments.full(np.arange(1, 8) / 28)[1])
    assert np.allclose(moments.with_replacement(p, 1)[1], moments.uniform(p, 1)[1])


# --- Minibatches, temperature, schedules, priors, other problems and precisions -------------------------

BATCHES = {
    "a count": (5, [4, 5, 5, 5, 5, 5, 5]),
    "a fraction": (0.3, [1, 1, 2, 3, 4, 6, 10]),
    "one per client": ((1, 2, 3, 4, 15, 19, 40), [1, 2, 3, 4, 15, 19, 35]),
}


@pytest.mark.parametrize("batch", BATCHES)
def test_minibatch_gradients_add_exactly_their_covariance(batch):
    batch_size, rows = BATCHES[batch]
    clients = moments.gaussian_means(*UNBALANCED, batch=rows)
    law = moments.fald(clients, moments.full(clients.p), lambda t: ETA, 5, 20, 0.3, 0.5, START)
    samples = simulate(
        problem_of("unbalanced"), fs.participation.full(), 20, step_size=ETA, local_steps=5, correlation=0.5,
        temperature=0.3, batch_size=batch_size,
    )  # fmt: skip
    check(samples, law, (1, 5, 20))


def test_minibatches_and_partial_participation_together_have_the_exact_moments():
    clients = moments.gaussian_means(*BALANCED, batch=[4] * 7)
    law = moments.fald(clients, moments.uniform(clients.p, 3), lambda t: ETA, 4, 20, 0.5, 0.0, START)
    samples = simulate(
        problem_of("balanced"),
        fs.participation.uniform(3),
        20,
        step_size=ETA,
        local_steps=4,
        temperature=0.5,
        batch_size=4,
    )
    check(samples, law, (1, 5, 20))


@pytest.mark.parametrize("temperature", [0.0, 0.05, 4.0])
def test_temperature_scales_the_noise_and_nothing_else(temperature):
    clients = moments.gaussian_means(*UNBALANCED)
    law = moments.fald(clients, moments.with_replacement(clients.p, 3), lambda t: ETA, 5, 20, temperature, 0.5, START)
    samples = simulate(
        problem_of("unbalanced"), fs.participation.with_replacement(3), 20, step_size=ETA, local_steps=5,
        correlation=0.5, temperature=temperature,
    )  # fmt: skip
    check(samples, law, (1, 5, 20))


def test_without_noise_the_iterates_are_federated_averaging_exactly():
    clients = moments.gaussian_means(*UNBALANCED)
    law = moments.fald(clients, moments.full(clients.p), lambda t: ETA, 5, 20, 0.0, 0.0, START)
    samples = simulate(
        problem_of("unbalanced"),
        fs.participation.full(),
        20,
        replicas=2,
        step_size=ETA,
        local_steps=5,
        temperature=0.0,
    )
    assert np.allclose(samples[:, 0], [mean for mean, _ in law], rtol=1e-12, atol=1e-12)
    assert np.array_equal(samples[:, 0], samples[:, 1])


SCHEDULES = {
    "inverse time": (fs.schedules.inverse_time(0.06, 30), lambda t: 0.06 / (t + 30)),
    "per round": (fs.schedules.per_round(2e-3, 10), lambda t: 2e-3 / (1 + (t // 5 * 5) / 10)),
    "strongly convex": (fs.schedules.strongly_convex(300, 30), lambda t: 1 / (600 + 30 * t / 12)),
    "a function": (lambda t: 2e-3 / (1 + t) ** 0.5, lambda t: 2e-3 / (1 + t) ** 0.5),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_varying_step_sizes_follow_the_global_step_index(schedule):
    step_size, eta = SCHEDULES[schedule]
    clients = moments.gaussian_means(*UNBALANCED)
    law = moments.fald(clients, moments.full(clients.p), eta, 5, 20, 1.0, 0.5, START)
    samples = simulate(
        problem_of("unbalanced"),
        fs.participation.full(),
        20,
        step_size=step_size,
        local_steps=5,
        correlation=0.5,
    )
    check(samples, law, (1, 5, 20))


def test_a_prior_counts_once_however_it_is_spread():
    data, covariances = UNBALANCED
    problem = fs.problems.GaussianMean(data=data, covariance=covariances, prior_precision=40.0)
    clients = moments.gaussian_means(data, covariances, prior_precision=40.0, batch=[2] * 7)
    law = moments.fald(clients, moments.full(clients.p), lambda t: ETA, 5, 20, 1.0, 0.0, START)
    samples = simulate(problem, fs.participation.full(), 20, step_size=ETA, local_steps=5, batch_size=2)
    check(samples, law, (1, 5, 20))


def test_linear_regression_has_the_exact_moments():
    rng = np.random.default_rng(5)
    data = []
    for n in SIZES:
        x = rng.normal(size=(n, 3)) * rng.uniform(0.5, 1.5, 3)
        data.append((x, x @ rng.normal(size=3) + rng.normal(size=n)))
    clients = moments.linear_regression(data, noise_variance=1.5, prior_precision=3.0)
    problem = fs.problems.LinearRegression(data=data, noise_variance=1.5, prior_precision=3.0)
    law = moments.fald(clients, moments.with_replacement(clients.p, 3), lambda t: ETA, 5, ROUNDS, 1.0, 0.5, START)
    samples = simulate(problem, fs.participation.with_replacement(3), step_size=ETA, local_steps=5, correlation=0.5)
    check(samples, law)


def test_single_precision_has_the_same_moments():
    clients = moments.gaussian_means(*UNBALANCED)
    law = moments.fald(clients, moments.with_replacement(clients.p, 3), lambda t: ETA, 5, ROUNDS, 1.0, 0.5, START)
    samples = simulate(
        problem_of("unbalanced"), fs.participation.with_replacement(3), step_size=ETA, local_steps=5,
        correlation=0.5, dtype="float32",
    )  # fmt: skip
    assert samples.dtype == np.float32
    check(samples, law)


def test_many_dimensions_have_the_same_moments():
    """d = 12 runs the kernel that puts a coordinate in a lane."""
    data, covariances = client_data((30, 40, 50), dim=12)
    clients = moments.gaussian_means(data, covariances)
    start = np.linspace(-1, 1, 12)
    law = moments.fald(clients, moments.full(clients.p), lambda t: ETA, 5, 20, 1.0, 0.5, start)
    problem = fs.problems.GaussianMean(data=data, covariance=covariances)
    samples = simulate(problem, fs.participation.full(), 20, start=start, step_size=ETA, local_steps=5, correlation=0.5)
    check(samples, law, (1, 5, 20))


# --- Special cases that must be plain Langevin ----------------------------------------------------------


def langevin(clients, eta, steps, start):
    """theta <- theta - eta grad f + sqrt(2 eta) xi on f = sum_c p_c f^c, all data on one machine."""
    hessian, linear = np.einsum("c,cij->ij", clients.p, clients.hessian), clients.p @ clients.linear
    d = len(linear)
    mean, covariance, step = np.array(start), np.zeros((d, d)), np.eye(d) - eta * hessian
    out = []
    for _ in range(steps):
        mean, covariance = step @ mean + eta * linear, step @ covariance @ step.T + 2 * eta * np.eye(d)
        out.append((mean, covariance))
    return out


@pytest.mark.parametrize("correlation", [0.0, 0.5, 1.0])
def test_one_local_step_and_full_participation_is_sgld_for_every_correlation(correlation):
    law = langevin(moments.gaussian_means(*UNBALANCED), ETA, ROUNDS, START)
    samples = simulate(
        problem_of("unbalanced"), fs.participation.full(), step_size=ETA, correlation=correlation, seed=9
    )
    check(samples, law)


@pytest.mark.parametrize("local, correlation", [(5, 0.0), (5, 0.7), (25, 0.3)])
def test_equal_hessians_make_local_steps_and_correlation_irrelevant(local, correlation):
    data, covariances = UNBALANCED
    clients = moments.gaussian_means(data, [covariances[0]] * 7)
    law = langevin(clients, ETA, 50, START)[local - 1 :: local]
    problem = fs.problems.GaussianMean(data=data, covariance=covariances[0])
    samples = simulate(
        problem, fs.participation.full(), 50 // local, step_size=ETA, local_steps=local, correlation=correlation
    )
    check(samples, law, (1, 50 // local))


def test_local_steps_bias_the_stationary_law_where_hessians_differ():
    clients = moments.gaussian_means(*UNBALANCED)
    exact = problem_of("unbalanced").exact()[0]
    one, twenty = (moments.fald(clients, moments.full(clients.p), lambda t: ETA, k, 1000 // k)[-1][0] for k in (1, 20))
    assert np.allclose(one, exact, atol=1e-6)
    assert np.linalg.norm(twenty - exact) > 0.02


# --- The tests above can fail ---------------------------------------------------------------------------


def wrong_laws():
    clients = moments.gaussian_means(*UNBALANCED)
    p, rho, n = clients.p, 0.7, len(clients.p)
    scheme_one = moments.with_replacement(p, 3)

    def law(weights=scheme_one, local=5, correlation=rho, eta=lambda t: ETA, **options):
        return moments.fald(clients, weights, eta, local, ROUNDS, 1.0, correlation, START, **options)

    uniform_in_place = moments.with_replacement(np.full(n, 1 / n), 3)
    return {
        "right": law(),
        "private noise scaled by p_c": law(private=(1 - rho**2) * p),
        "private noise without 1/p_c": law(private=np.full(n, 1 - rho**2)),
        "rho^2 taken for rho": law(correlation=rho**2, private=(1 - rho**4) / p),
        "shared noise left out": law(correlation=0.0, private=(1 - rho**2) / p),
        "weights p_c as under full participation": law(weights=moments.full(p)),
        "clients drawn uniformly": law(weights=uniform_in_place),
        "a step too few": law(local=4),
        "five percent of the step size": law(eta=lambda t: 1.05 * ETA),
    }


@pytest.fixture(scope="module")
def reference_run():
    return simulate(
        problem_of("unbalanced"), fs.participation.with_replacement(3), replicas=12_000, step_size=ETA,
        local_steps=5, correlation=0.7,
    )  # fmt: skip


@pytest.mark.parametrize("mistake", [name for name in wrong_laws() if name != "right"])
def test_a_wrong_recursion_is_noticed(reference_run, mistake):
    laws = wrong_laws()
    assert worst_z(reference_run, laws["right"]) < 5
    assert worst_z(reference_run, laws[mistake]) > 6


def test_a_second_trajectory_for_a_client_drawn_twice_would_be_noticed(reference_run):
    """Scheme I counts one result twice (A2); two independent ones would halve that part of the noise."""
    clients = moments.gaussian_means(*UNBALANCED)
    right = moments.with_replacement(clients.p, 3)
    one_round = moments.fald(clients, right, lambda t: ETA, 5, 1, 1.0, 0.7, START)[0]
    _, _, _, own = moments.local_steps(clients, [ETA] * 5, 1.0, 0.7)
    excess = np.diag(right[1])[:-1] - clients.p / 3  # E a_c^2 of one result, minus that of three separate ones
    law = [(one_round[0], one_round[1] - np.einsum("c,cij->ij", excess, own))]
    assert worst_z(reference_run, law, look=(1,)) > 6

"""P-FedAvg against the exact law of its iterates, and the problems whose data react to the model.

On the Gaussian benchmark a local step is theta <- (1 - eta (1 - eps_i)) theta + eta m_i + eta sigma xi: FA-LD's
recursion in `moments.py` with Hessian 1 - eps_i, linear term m_i, gradient error sigma^2 and no temperature.
"""

from __future__ import annotations

import numpy as np
import pytest
from oracles import moments
from scipy.optimize import minimize, minimize_scalar
from strategies.rows import applicants

import fedsim as fs
from fedsim import kernels, participation, rng
from fedsim.algorithms.fedavg import FedAvg
from fedsim.algorithms.pfedavg import PFedAvg
from fedsim.errors import InvalidInput
from fedsim.problems.credit import StrategicCredit
from fedsim.problems.performative import PerformativeMean

MEANS = (2.0, 4.0, 7.0, 3.0, 9.0, 5.0)
SENSITIVITIES = (0.1, 0.9, 0.4, 1.2, 0.3, 0.1)
P = np.array([0.1, 0.1, 0.15, 0.15, 0.2, 0.3])
EQUAL = np.full(6, 1 / 6)
SIGMA, ETA, ROUNDS, REPLICAS = 0.8, 0.15, 20, 4000
START = np.array([-1.0])


def clients(p, sigma=SIGMA, q=None):
    """The clients' quadratics; `q` multiplies their gradients."""
    q = np.ones(6) if q is None else q
    hessian, linear = q * (1 - np.array(SENSITIVITIES)), q * np.array(MEANS)
    return moments.Clients(hessian[:, None, None], linear[:, None], (q**2 * sigma**2)[:, None, None], np.asarray(p))


def law(of, weights, local, eta=lambda t: ETA, rounds=ROUNDS):
    return moments.fald(of, weights, eta, local, rounds, 0.0, 0.0, START)


def simulate(p, policy, rounds=ROUNDS, replicas=REPLICAS, step_size=ETA, seed=1, **arguments):
    problem = PerformativeMean(MEANS, SENSITIVITIES, SIGMA, p)
    scenario = fs.Scenario(
        problem=problem, algorithm=PFedAvg(step_size, **arguments), participation=policy, initial=START,
        budget=fs.Budget(rounds=rounds), replicas=replicas, seed=seed, record=fs.Record(rounds_every=rounds),
    )  # fmt: skip
    return fs.run(scenario).samples


def worst_z(samples, exact, look=(1, 4, 20)):
    return max(np.abs(moments.z_scores(samples[r - 1], *exact[r - 1])).max() for r in look)


# --- The exact law --------------------------------------------------------------------------------------

SCHEMES = {
    "full": (P, participation.full(), moments.full(P)),
    "I, equal": (EQUAL, participation.with_replacement(3), moments.with_replacement(EQUAL, 3)),
    "II, equal": (EQUAL, participation.uniform(3), moments.uniform(EQUAL, 3)),
    "II": (P, participation.uniform(3), moments.uniform_subsets(P, 3, lambda members: members * 6 / 3)),
    "II, said": (
        P,
        participation.uniform(3, weighting="scaled"),
        moments.uniform_subsets(P, 3, lambda members: members * 6 / 3),
    ),
}


@pytest.mark.parametrize("local", [1, 5])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_iterates_have_the_exact_moments(scheme, local):
    p, policy, weights = SCHEMES[scheme]
    samples = simulate(p, policy, local_steps=local)
    assert worst_z(samples, law(clients(p), weights, local)) < 5


def test_scheme_one_with_unequal_weights_counts_every_draw_the_same():
    samples = simulate(P, participation.with_replacement(3), local_steps=5)
    assert worst_z(samples, law(clients(P), moments.with_replacement(P, 3), 5)) < 5


@pytest.mark.parametrize("policy", [participation.full(), participation.uniform(3)])
def test_scaled_objectives_have_the_exact_moments(policy):
    """Unequal p_i in scheme II the other way: gradients times p_i N, plain average (D3)."""
    weights = moments.full(EQUAL) if isinstance(policy, participation.Full) else moments.uniform(EQUAL, 3)
    samples = simulate(P, policy, local_steps=5, objective="scaled", step_size=ETA / 2)
    exact = law(clients(EQUAL, q=6 * P), weights, 5, lambda t: ETA / 2)
    assert worst_z(samples, exact) < 5


def test_more_draws_a_step_divide_the_noise():
    samples = simulate(P, participation.full(), local_steps=5, batch_size=4)
    assert worst_z(samples, law(clients(P, SIGMA / 2), moments.full(P), 5)) < 5
    assert worst_z(samples, law(clients(P), moments.full(P), 5)) > 6


def test_step_sizes_follow_the_global_step_index():
    samples = simulate(P, participation.full(), local_steps=5, step_size=fs.schedules.inverse_time(3, 10))
    assert worst_z(samples, law(clients(P), moments.full(P), 5, lambda t: 3 / (t + 10))) < 5


def test_data_answer_to_the_local_model_and_not_to_the_last_broadcast():
    """Were Z drawn at the broadcast theta_0, the local map would shrink towards m_i + eps_i theta_0."""
    samples = simulate(P, participation.full(), rounds=1, local_steps=5)
    shrink = (1 - ETA) ** 5
    per_client = shrink * START + (1 - shrink) * (np.array(MEANS) + np.array(SENSITIVITIES) * START)
    stale_mean = P @ per_client
    centred = samples[0, :, 0] - stale_mean
    assert abs(centred.mean()) / (centred.std() / np.sqrt(REPLICAS)) > 6


def test_all_schemes_have_the_same_mean_and_full_varies_least_then_two_then_one():
    schemes = [moments.full(EQUAL), moments.uniform(EQUAL, 3), moments.with_replacement(EQUAL, 3)]
    laws = [law(clients(EQUAL), w, 5) for w in schemes]
    for r in range(ROUNDS):
        means, variances = zip(*(x[r] for x in laws), strict=True)
        assert np.allclose(means, means[0], rtol=1e-12)
        assert variances[0] < variances[1] < variances[2]
    policies = (participation.full(), participation.uniform(3), participation.with_replacement(3))
    for exact, policy in zip(laws, policies, strict=True):
        samples = simulate(EQUAL, policy, local_steps=5, seed=7)
        assert abs(moments.z_scores(samples[-1], *exact[-1])[0]) < 5
        assert abs(samples[-1].var() / exact[-1][1][0, 0] - 1) < 0.15


# --- Where it goes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["full", "I, equal", "II, equal"])
def test_decaying_steps_reach_the_stable_point_at_rate_one_over_t(scheme):
    """Loud data, so that the squared bias, which goes as 1/t^2, is small beside the variance."""
    problem = PerformativeMean(MEANS, SENSITIVITIES, 6.0)
    policy = participation.full() if scheme == "full" else SCHEMES[scheme][1]
    rounds, local = 500, 5
    scenario = fs.Scenario(
        problem=problem, algorithm=PFedAvg(fs.schedules.inverse_time(6, 30), local_steps=local), participation=policy,
        budget=fs.Budget(rounds=rounds), replicas=300, record=fs.Record(rounds_every=rounds),
    )  # fmt: skip
    samples = fs.run(scenario, runtime=fs.Inline(threads=1)).samples[..., 0]
    error = ((samples - problem.performatively_stable()) ** 2).mean(axis=1)
    t = local * np.arange(1, rounds + 1)
    late = t > 250
    slope = np.polyfit(np.log(t[late]), np.log(error[late]), 1)[0]
    assert -1.15 < slope < -0.85
    assert error[-1] < 0.2


def test_a_constant_step_with_local_steps_settles_elsewhere():
    problem = PerformativeMean(MEANS, SENSITIVITIES, SIGMA, P)
    exact = law(clients(P), moments.full(P), 20, rounds=25)
    samples = simulate(P, participation.full(), 25, replicas=1000, local_steps=20)
    assert np.abs(moments.z_scores(samples[-1], *exact[-1])).max() < 5
    assert abs(samples[-1].mean() - problem.performatively_stable()[0]) > 0.2


def test_stable_and_optimal_points_are_what_their_names_say():
    problem = PerformativeMean(MEANS, SENSITIVITIES, SIGMA, P)
    stable = problem.performatively_stable()[0]
    brought_about = P @ (np.array(MEANS) + np.array(SENSITIVITIES) * stable)  # the mean is best for its data
    assert np.isclose(stable, brought_about)
    best = minimize_scalar(lambda t: float(problem.loss(np.array([[t]]))[0]), bounds=(0, 20), method="bounded")
    assert np.isclose(problem.performatively_optimal()[0], best.x, atol=1e-5)
    assert abs(stable - best.x) > 0.5


def test_the_papers_benchmark_has_its_stable_point_at_one_hundred():
    problem = PerformativeMean.synthetic(25, base_variance=0.6, sensitivity_variance=0.1, seed=3)
    assert np.allclose([problem.base_means.mean(), problem.base_means.var()], [10, 0.6])
    assert np.allclose([problem.sensitivities.mean(), problem.sensitivities.var()], [0.9, 0.1])
    assert np.isclose(problem.performatively_stable()[0], 100)


def test_the_distance_to_the_stable_point_is_a_metric():
    problem = PerformativeMean(MEANS, SENSITIVITIES, 0.0)
    stable = problem.performatively_stable()
    scenario = fs.Scenario(
        problem=problem, algorithm=PFedAvg(0.3), budget=fs.Budget(rounds=200), initial=START,
        metrics=(fs.metrics.distance_to(stable), "loss"),
    )  # fmt: skip
    rounds = fs.run(scenario).rounds
    assert rounds.distance_to_ps.iloc[0] > 1
    assert rounds.distance_to_ps.iloc[-1] < 1e-9
    assert np.isclose(rounds.loss.iloc[-1], problem.loss(stable[None])[0])


# --- Strategic credit scoring ---------------------------------------------------------------------------


EPS = np.array([0.2, 0.5, 0.8, 0.3])


def credit():
    return StrategicCredit(applicants(), EPS, strategic=(0, 2), regularisation=0.02)


def loss_on_answers(data, theta, published):
    """Mean loss of theta on the data that `published` brings about, all by hand."""
    total, rows = 0.0, 0
    for (x, y), eps in zip(data, EPS[: len(data)], strict=True):
        x = x.copy()
        x[:, [0, 2]] -= eps * published[[0, 2]]
        total += (np.logaddexp(0, x @ theta) - y * (x @ theta)).sum()
        rows += len(y)
    return total / rows + 0.01 * (theta[:-1] ** 2).sum()


def test_credit_gradients_are_those_of_the_answered_data_held_fixed():
    theta = np.array([0.3, -0.2, 0.5, 0.1, -0.4])
    problem = credit()
    key = rng.keys(1, rng.Stream.DATA, client=np.arange(4))
    got = problem.react(np.tile(theta, (4, 1)), np.arange(4), key, 0, None, kernels.backend("cpu")).sum(axis=0)
    h = 1e-6 * np.eye(5)
    slopes = [
        loss_on_answers(applicants(), theta + e, theta) - loss_on_answers(applicants(), theta - e, theta) for e in h
    ]
    assert np.allclose(got / 180, np.array(slopes) / 2e-6, atol=1e-8)
    assert np.isclose(problem.loss(theta[None])[0], loss_on_answers(applicants(), theta, theta))


def test_credit_minibatches_are_unbiased_and_drawn_without_replacement():
    problem, theta = credit(), np.array([[0.3, -0.2, 0.5, 0.1, -0.4]])
    cpu = kernels.backend("cpu")
    key = rng.keys(1, rng.Stream.DATA, replica=np.arange(6000))
    client = np.full(6000, 1)
    drawn = problem.react(np.repeat(theta, 6000, 0), client, key, 3, 4, cpu)
    full = problem.react(theta, client[:1], key[:1], 0, None, cpu)[0]
    z = (drawn.mean(axis=0) - full) / (drawn.std(axis=0) / np.sqrt(6000))
    assert np.abs(z).max() < 5
    all_rows = problem.react(theta, client[:1], key[:1], 0, 40, cpu)[0]
    assert np.allclose(all_rows, full)


def test_credit_minibatches_have_as_many_rows_as_everywhere_else():
    """A fraction of 30, 40, 50 and 60 rows, or one count per client; a list of them all is the full gradient."""
    problem, theta, clients = credit(), np.full((4, 5), 0.2), np.arange(4)
    key = rng.keys(1, rng.Stream.DATA, client=clients)

    def react(batch_size):
        return problem.react(theta, clients, key, 0, batch_size, kernels.backend("cpu"))

    assert np.array_equal(react(0.1), react([3, 4, 5, 6]))
    assert np.array_equal(react(0.3 - 0.2), react(0.1))  # 0.09999999999999998 of 30 rows are three
    assert not np.allclose(react(0.1), react([3, 4, 5, 7]))
    assert np.allclose(react([30, 40, 50, 60]), react(None))


def test_the_credit_stable_point_is_best_for_the_data_it_brings_about():
    stable = credit().performatively_stable()
    best = minimize(lambda t: loss_on_answers(applicants(), t, stable), np.zeros(5), tol=1e-10).x
    assert np.allclose(stable, best, atol=1e-4)
    scenario = fs.Scenario(
        problem=credit(), algorithm=PFedAvg(1.0), budget=fs.Budget(rounds=600), record=fs.Record(every=600)
    )
    assert np.allclose(fs.run(scenario).samples[-1, 0], stable, atol=1e-6)


# --- Bits, contracts, refusals --------------------------------------------------------------------------


def test_one_number_goes_each_way_a_participant_and_round():
    problem = PerformativeMean(MEANS, SENSITIVITIES, SIGMA, P)
    for reach, copies in ((None, 3), ("all", 6)):
        scenario = fs.Scenario(
            problem=problem, algorithm=PFedAvg(ETA, local_steps=5), budget=fs.Budget(rounds=2), broadcast_to=reach,
            participation=participation.uniform(3),
        )  # fmt: skip
        rounds = fs.run(scenario).rounds
        assert rounds.uplink_bits.tolist() == [3 * 64] * 2
        assert rounds.downlink_bits.tolist() == [copies * 64] * 2


@pytest.mark.parametrize("problem", [PerformativeMean(MEANS, SENSITIVITIES, SIGMA, P), credit()])
@pytest.mark.parametrize(
    "algorithm",
    [
        PFedAvg(0.1, local_steps=3),
        PFedAvg(0.1, local_steps=2, batch_size=5, objective="scaled"),
        FedAvg(0.1, local_steps=2),
    ],
)
def test_the_contract_holds(algorithm, problem):
    assert len(fs.testing.check(algorithm, problem)) >= 8


def test_single_precision_follows_double():
    short, long = (
        fs.run(
            fs.Scenario(
                problem=PerformativeMean(MEANS, SENSITIVITIES, 0.0, P), algorithm=PFedAvg(ETA, local_steps=5, batch_size=2),
                budget=fs.Budget(rounds=20), dtype=dtype,
            )
        ).samples
        for dtype in ("float32", "float64")
    )  # fmt: skip
    assert short.dtype == np.float32
    assert np.allclose(short, long, rtol=1e-5)


REFUSED = {
    "whose data do not depend": lambda: fs.testing.check(PFedAvg(0.1)),
    r"PFedAvg\(local_steps=0\)": lambda: PFedAvg(0.1, local_steps=0),
    "weights must be 6 positive numbers that sum to 1": lambda: PerformativeMean(MEANS, SENSITIVITIES, 1, 2 * P),
    r"sigma=-1\)": lambda: PerformativeMean(MEANS, SENSITIVITIES, -1),
    "one finite number per client": lambda: PerformativeMean((1.0, float("nan")), (0.1, 0.1)),
    "a stable point needs it below 1": lambda: PerformativeMean((1.0, 1.0), (1.1, 1.0)).performatively_stable(),
    "an integer of draws": lambda: simulate(P, participation.full(), 1, 1, batch_size=0.5),
    r"synthetic\(clients=2.5\): must be an integer of at least 2": lambda: PerformativeMean.synthetic(2.5),
    "columns are numbered 0 to 4": lambda: StrategicCredit(applicants(), EPS, strategic=(7,)),
    "give one, or 4": lambda: StrategicCredit(applicants(), EPS[:3], strategic=(0,)),
    "labels must be 0": lambda: StrategicCredit([(np.ones((2, 1)), [0, 2])], 0.1, strategic=(0,)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_impossible_requests_are_refused_with_a_remedy(message):
    with pytest.raises(InvalidInput, match=message):
        REFUSED[message]()

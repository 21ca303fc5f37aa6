"""pSGLD, DG-SGLD and FSGLD against the exact law of their iterates at |z| < 5; FedBE against its own formulas.

On Gaussian means all three are affine in what they carry along, given the preconditioner, the coupling, the surrogates.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from oracles import moments
from scipy import stats

import fedsim as fs
from fedsim import participation
from fedsim.algorithms import DGSGLD, FSGLD, PSGLD, SGLD, FedAvg, FedBE
from fedsim.algorithms.fedbe import gamma
from fedsim.errors import InvalidInput
from fedsim.problems import GaussianMean, LogisticRegression, pooled

REPLICAS, START = 4000, np.array([1.0, -1.0])
SIZES, PRIOR = (5, 9, 16), 3.0


def points():
    rng = np.random.default_rng(6)
    data = [rng.normal(size=(n, 2)) + rng.normal(size=2) for n in SIZES]
    covariances = []
    for _ in SIZES:
        a = rng.normal(size=(2, 2))
        covariances.append(a @ a.T + 0.5 * np.eye(2))
    return data, np.array(covariances)


DATA, COVARIANCES = points()
SPREAD = GaussianMean(DATA, COVARIANCES, PRIOR)
CLIENTS = moments.gaussian_means(DATA, COVARIANCES, PRIOR)  # of f^c = l^c / p_c
WHOLE = pooled(GaussianMean(DATA, COVARIANCES[0], PRIOR))


def simulate(algorithm, problem, rounds, policy=None, replicas=REPLICAS, seed=2, **more):
    scenario = fs.Scenario(
        problem=problem, algorithm=algorithm, budget=fs.Budget(rounds=rounds), replicas=replicas, seed=seed,
        participation=policy or participation.full(), initial=START, **more,
    )  # fmt: skip
    return fs.run(scenario).samples


def worst_z(samples, law, look):
    return max(np.abs(moments.z_scores(samples[r - 1], *law[r - 1])).max() for r in look)


# --- pSGLD ----------------------------------------------------------------------------------------------

SECOND, DAMPING = np.array([0.04, 1.0]), 0.1


def psgld_law(whole, eta, local, rounds, temperature):
    """theta <- theta - (eta / 2) G (H theta - b + e) + sqrt(eta tau G) xi with G held fixed."""
    g = np.diag(1 / (DAMPING + np.sqrt(SECOND)))
    hessian, linear, error = whole.hessian[0], whole.linear[0], whole.error[0]
    step = np.eye(2) - eta / 2 * g @ hessian
    noise = eta * temperature * g + eta**2 / 4 * g @ error @ g
    mean, covariance, out = START, np.zeros((2, 2)), []
    for _ in range(rounds):
        for _ in range(local):
            mean, covariance = step @ mean + eta / 2 * g @ linear, step @ covariance @ step.T + noise
        out.append((mean, covariance))
    return out


@pytest.mark.parametrize("batch_size, temperature", [(None, 1.0), (6, 0.5)])
def test_psgld_with_a_fixed_preconditioner_has_the_exact_moments(batch_size, temperature):
    batch = None if batch_size is None else [batch_size]
    whole = moments.gaussian_means([np.concatenate(DATA)], COVARIANCES[:1], PRIOR, batch)
    algorithm = PSGLD(
        5e-3,
        local_steps=5,
        decay=1.0,
        damping=DAMPING,
        second_moment=SECOND,
        temperature=temperature,
        batch_size=batch_size,
    )
    samples = simulate(algorithm, WHOLE, 10)
    assert worst_z(samples, psgld_law(whole, 5e-3, 5, 10, temperature), (1, 4, 10)) < 5
    assert worst_z(samples, psgld_law(whole, 6e-3, 5, 10, temperature), (1, 4, 10)) > 6


def test_psgld_moves_its_preconditioner_as_rmsprop_does():
    """One chain by hand, from the noise that SGLD draws from the same keys."""
    eta, a, lam, local = 1e-2, 0.7, 0.05, 3
    ours = simulate(PSGLD(eta, local_steps=local, decay=a, damping=lam), WHOLE, 1, replicas=1)[0, 0]
    hessian, linear = (t[0] for t in WHOLE.quadratic())
    noise = noise_of(local)
    theta, v = START, np.zeros(2)
    for k in range(local):
        gradient = hessian @ theta - linear
        v = a * v + (1 - a) * (gradient / sum(SIZES)) ** 2
        g = 1 / (lam + np.sqrt(v))
        theta = theta - eta / 2 * g * gradient + np.sqrt(eta * g) * noise[k]
    assert np.allclose(ours, theta, rtol=1e-10)


def noise_of(steps):
    """The normals of the first job: SGLD's first step from START less its drift, for every step number."""
    key = fs.rng.keys(2, fs.rng.Stream.NOISE, replica=np.array([0]), client=np.array([0]), round=0, visit=np.array([0]))
    normals = [fs.rng.normal(key, 2, k)[0] for k in range(steps)]
    hessian, linear = (t[0] for t in WHOLE.quadratic())
    once = simulate(SGLD(1e-3), WHOLE, 1, replicas=1)[0, 0]
    drawn = (once - START + 1e-3 * (hessian @ START - linear)) / np.sqrt(2e-3)
    assert np.allclose(drawn, normals[0], rtol=1e-6)
    return normals


# --- DG-SGLD --------------------------------------------------------------------------------------------

COUPLING = (0.02, 0.05, 0.03)


def dgsgld_law(gamma, local, rounds, chance, batch=None):
    """Mean and covariance of (theta, z_1, z_2, z_3), client by client present with probability `chance`."""
    d, b = 2, 3
    clients = moments.gaussian_means(DATA, COVARIANCES, PRIOR, batch)
    precision = 1 / np.array(COUPLING)
    size = d * (b + 1)
    at = [slice(d * i, d * (i + 1)) for i in range(b + 1)]
    mean, second = np.tile(START, b + 1), np.outer(np.tile(START, b + 1), np.tile(START, b + 1))
    out = []
    for _ in range(rounds):
        new_mean, new_second = np.zeros(size), np.zeros((size, size))
        for present in product((False, True), repeat=b):
            weight = np.prod([chance if on else 1 - chance for on in present])
            if weight == 0:
                continue
            move, shift, noise = np.eye(size), np.zeros(size), np.zeros((size, size))
            for i in range(b):
                for _ in range(local if present[i] else 0):
                    h, p = clients.hessian[i] * clients.p[i], clients.p[i]
                    one, own = np.eye(size), at[i + 1]
                    one[own, own] = (1 - gamma * precision[i]) * np.eye(d) - gamma * h
                    one[own, at[0]] = gamma * precision[i] * np.eye(d)
                    move, shift, noise = one @ move, one @ shift, one @ noise @ one.T
                    shift[own] += gamma * clients.linear[i] * p
                    noise[own, own] += 2 * gamma * np.eye(d) + gamma**2 * p**2 * clients.error[i]
            gibbs = np.eye(size)
            gibbs[at[0], at[0]] = 0
            for i in range(b):
                gibbs[at[0], at[i + 1]] = precision[i] / precision.sum() * np.eye(d)
            move, shift, noise = gibbs @ move, gibbs @ shift, gibbs @ noise @ gibbs.T
            noise[at[0], at[0]] += np.eye(d) / precision.sum()
            centre = move @ mean + shift
            new_mean += weight * centre
            spread = second - np.outer(mean, mean)
            new_second += weight * (move @ spread @ move.T + noise + np.outer(centre, centre))
        mean, second = new_mean, new_second
        out.append((mean[:d], (second - np.outer(mean, mean))[:d, :d]))
    return out


DISTRIBUTED = {
    "full": (participation.full(), 1.0, None),
    "some": (participation.bernoulli(0.5), 0.5, None),
    "minibatches": (participation.full(), 1.0, 4),
}


@pytest.mark.parametrize("case", DISTRIBUTED)
def test_dgsgld_has_the_exact_moments(case):
    policy, chance, batch_size = DISTRIBUTED[case]
    samples = simulate(DGSGLD(4e-3, coupling=COUPLING, local_steps=4, batch_size=batch_size), SPREAD, 12, policy)
    batch = None if batch_size is None else [batch_size] * 3
    assert worst_z(samples, dgsgld_law(4e-3, 4, 12, chance, batch), (1, 4, 12)) < 5
    assert worst_z(samples, dgsgld_law(4e-3, 3, 12, chance, batch), (1, 4, 12)) > 6


def test_a_tight_coupling_brings_the_posterior_closer():
    mean, covariance = SPREAD.exact()
    gaps = []
    for r in (0.3, 0.01):
        samples = simulate(DGSGLD(r / 10, coupling=r, local_steps=10), SPREAD, round(15 / r**0.5), replicas=600)[-1]
        gaps.append(fs.metrics.gaussian_w2(samples.mean(0), np.cov(samples.T), mean, covariance))
    assert gaps[1] < gaps[0] / 3


# --- FSGLD ----------------------------------------------------------------------------------------------


def fsgld_clients(means, precisions, batch=None):
    """The clients' drifts as potentials of FA-LD: H_s / f_s + P - P_s / f_s."""
    clients = moments.gaussian_means(DATA, COVARIANCES, PRIOR, batch)
    own = [np.diag(p) if p.ndim == 1 else p for p in precisions]
    pulls = np.array([p @ m for p, m in zip(own, means, strict=True)])
    f = clients.p
    hessian = clients.hessian + np.sum(own, axis=0) - np.array(own) / f[:, None, None]
    linear = clients.linear + pulls.sum(axis=0) - pulls / f[:, None]
    return replace(clients, hessian=hessian, linear=linear)


def surrogates(kind):
    rng = np.random.default_rng(3)
    if kind == "none":
        return np.zeros((3, 2)), np.zeros((3, 2)), FSGLD(4e-3, local_steps=3)
    if kind == "exact":
        made = FSGLD.laplace(SPREAD, step_size=4e-3, local_steps=3)
        return made.means, made.precisions, made
    means, precisions = rng.normal(size=(3, 2)), rng.uniform(1, 20, (3, 2))
    return means, precisions, FSGLD(4e-3, local_steps=3, means=means, precisions=precisions, batch_size=4)


ONE, SEVERAL = participation.with_replacement(1), participation.full()
VISITS = {"none": ONE, "exact": ONE, "diagonal": ONE, "exact, several visits": SEVERAL}


@pytest.mark.parametrize("visits", VISITS)
def test_fsgld_has_the_exact_moments(visits):
    kind, policy = visits.partition(",")[0], VISITS[visits]
    means, precisions, algorithm = surrogates(kind)
    clients = fsgld_clients(means, precisions, [4] * 3 if kind == "diagonal" else None)
    weights = moments.with_replacement(clients.p, 1)
    law = moments.fald(clients, weights, lambda t: 2e-3, 3, 20, 1.0, 0.0, START, private=np.ones(3))
    samples = simulate(algorithm, SPREAD, 20, policy)
    assert worst_z(samples, law, (1, 5, 20)) < 5
    if kind == "exact":  # every visit's drift is the full one: SGLD on the whole potential
        hessian, linear = (table.sum(axis=0) for table in SPREAD.quadratic())
        assert np.allclose(clients.hessian, hessian)
        assert np.allclose(clients.linear, linear)
    else:  # without them the law differs
        other = moments.fald(CLIENTS, weights, lambda t: 1e-3, 3, 20, 1.0, 0.0, START, private=np.ones(3))
        assert worst_z(samples, other, (1, 5, 20)) > 6


EVEN = fs.problems.GaussianMean.synthetic(4, 2, samples=5, seed=2)
ALWAYS_ON = fs.devices.constant(1e-3, dropout=0.3)
UNEVENLY_LOST = fs.devices.constant(1e-3, dropout=[0.1, 0.4, 0.1])
ASLEEP = fs.devices.constant(1e-3, availability=fs.devices.markov(on_s=1.0, off_s=1.0))


def fsgld(problem, policy, devices=None, **more):
    return fs.Scenario(
        problem=problem, algorithm=FSGLD(4e-3, local_steps=3), budget=fs.Budget(rounds=2), participation=policy, devices=devices,
        **more,
    )  # fmt: skip


@pytest.mark.parametrize("problem, policy, devices", [
    (SPREAD, participation.uniform(2, weighting="normalised"), None),
    (SPREAD, participation.uniform(2), None),
    (SPREAD, participation.bernoulli(0.5), None),
    (EVEN, participation.bernoulli(0.5), None),
    (SPREAD, participation.first(2), None),
    (SPREAD, participation.deadline(1.0), None),
    (SPREAD, participation.buffered(2), None),
    (SPREAD, participation.full(), ALWAYS_ON),
    (SPREAD, participation.with_replacement(2), ALWAYS_ON),
    (SPREAD, participation.with_replacement(1), UNEVENLY_LOST),
    (SPREAD, participation.with_replacement(1), ASLEEP),
])  # fmt: skip
def test_fsgld_refuses_whatever_does_not_visit_clients_by_their_weights(problem, policy, devices):
    with pytest.raises(InvalidInput, match=r"FSGLD must visit client c with probability p_c.*with_replacement\(1\)"):
        fsgld(problem, policy, devices)


def test_fsgld_accepts_whatever_visits_clients_by_their_weights():
    fsgld(SPREAD, participation.full())
    fsgld(SPREAD, participation.with_replacement(3))
    fsgld(SPREAD, participation.with_replacement(1), ALWAYS_ON)
    fsgld(EVEN, participation.uniform(2))
    fsgld(EVEN, participation.uniform(2), ALWAYS_ON)


def test_lost_visits_leave_the_law_of_those_that_arrive():
    """A visit that is lost leaves theta; the next is to client s with probability p_s again."""
    rows = fs.run(fsgld(SPREAD, ONE, ALWAYS_ON, replicas=4000, record=fs.Record(events=True)))
    events = rows.events[rows.events.event == "upload"]
    clients = moments.gaussian_means(DATA, COVARIANCES, PRIOR, None)
    count = np.bincount(events.client, minlength=3)
    z = (count - count.sum() * clients.p) / np.sqrt(count.sum() * clients.p * (1 - clients.p))
    assert np.abs(z).max() < 5


@pytest.mark.parametrize("diagonal, numbers", [(True, 2 + 2), (False, 2 + 3)])
def test_every_clients_surrogate_is_uploaded_once(diagonal, numbers):
    algorithm = FSGLD.laplace(SPREAD, step_size=4e-3, local_steps=3, diagonal=diagonal)
    for timing_only in (False, True):
        made = fs.Scenario(
            problem=SPREAD, algorithm=algorithm, budget=fs.Budget(rounds=4), participation=ONE, replicas=2, seed=1
        )
        result = fs.run(made, timing_only=True) if timing_only else fs.run(made)
        up = result.rounds.sort_values(["round", "replica"]).uplink_bits.to_numpy().reshape(4, 2)
        assert (up == np.array([3 * numbers * 64 + 128, 128, 128, 128])[:, None]).all()
        assert result.clients.uplink_bits.sum() == up.sum()
        assert (result.clients.uplink_bits - 128 * result.clients.arrived == 2 * numbers * 64).all()
        given = FSGLD(4e-3, local_steps=3, means=algorithm.means, precisions=algorithm.precisions)
        assert fs.run(fs.Scenario(
            problem=SPREAD, algorithm=given, budget=fs.Budget(uplink_bits=3 * numbers * 64 + 128), participation=ONE
        )).lengths.tolist() == [1]  # fmt: skip


def test_laplace_finds_every_clients_own_optimum_and_curvature():
    problem = LogisticRegression.synthetic(3, 2, 1.0, samples=30, seed=4)
    made = FSGLD.laplace(problem, step_size=1e-2)
    for c in range(3):
        x, y = problem.x[30 * c : 30 * c + 30], problem.y[30 * c : 30 * c + 30]
        p = 1 / (1 + np.exp(-x @ made.means[c]))
        assert np.allclose(x.T @ (p - y) + made.means[c] / 3, 0, atol=1e-6)
        assert np.allclose(made.precisions[c], (x.T * p * (1 - p)) @ x + np.eye(2) / 3, rtol=1e-4)
    assert np.allclose(FSGLD.laplace(problem, step_size=1e-2, diagonal=True).precisions[0], np.diag(made.precisions[0]))
    assert (made.surrogate_numbers(2), FSGLD(1.0).surrogate_numbers(2)) == (2 + 3, 0)


# --- FedBE ----------------------------------------------------------------------------------------------


class Seen:
    """FedBE that remembers the replies and the ensemble of every fold."""

    def __init__(self, algorithm):
        self.algorithm, self.folds = algorithm, []

    def __getattr__(self, name):
        return getattr(self.algorithm, name)

    def server(self, state, replies, rng):
        new = self.algorithm.server(state, replies, rng)
        self.folds.append((replies["theta"].copy(), replies.clients, replies.weights, *self.algorithm.ensemble(new)))
        return new


def ensemble(law, members, policy=None, **more):
    seen = Seen(FedBE(0.05, local_steps=3, members=members, law=law, **more))
    samples = simulate(seen, SPREAD, 2, policy, replicas=1)
    return samples, seen.folds[-1]


def test_the_ensemble_is_the_mean_the_arrived_and_the_samples():
    samples, (w, who, p, models, held) = ensemble("gauss", 5, participation.uniform(2))
    assert held[0].sum() == 1 + 2 + 5
    assert np.allclose(models[0, 0], p @ w)
    assert np.array_equal(models[0, 1 + who], w)
    assert np.array_equal(held[0, 1 + who], [1, 1])
    assert np.allclose(samples[-1, 0], p @ w)
    assert np.allclose(p, CLIENTS.p[who] / CLIENTS.p[who].sum())


def test_the_next_round_starts_from_the_mean():
    assert np.allclose(ensemble("gauss", 5)[0], simulate(FedAvg(0.05, local_steps=3), SPREAD, 2, replicas=1))


def test_predictions_are_averaged_over_the_ensemble():
    problem = fs.problems.SoftmaxRegression.synthetic(3, 4, classes=3, samples=20, dtype=np.float64, test_samples=40)
    seen = Seen(FedBE(0.5, local_steps=4, members=3))
    scenario = fs.Scenario(
        problem=problem, algorithm=seen, budget=fs.Budget(rounds=3), replicas=2, metrics=("nll",),
        participation=participation.bernoulli(0.6), seed=1,
    )  # fmt: skip
    found = fs.run(scenario).rounds.groupby("replica").nll.last()
    _, _, _, models, held = seen.folds[-1]
    for r in range(2):
        p = np.mean([problem.predict(w) for w, on in zip(models[r], held[r], strict=True) if on], axis=0)
        assert np.isclose(found[r], fs.metrics.nll(p, problem.test[1]))


def test_gauss_members_have_their_formula():
    _, (w, _, p, models, _) = ensemble("gauss", 20_000)
    spread = p @ (w - p @ w) ** 2
    assert np.abs(moments.z_scores(models[0, 4:], p @ w, np.diag(spread))).max() < 5


@pytest.mark.parametrize("concentration", [0.5, 2.0])
def test_dirichlet_members_have_their_formula(concentration):
    """Against Dirichlet draws by NumPy: the first two moments of both, at their standard errors."""
    _, (w, _, p, models, _) = ensemble("dirichlet", 20_000, concentration=concentration)
    g = np.random.default_rng(1).dirichlet([concentration] * 3, 20_000) * p
    by_hand = (g / g.sum(axis=1, keepdims=True)) @ w
    ours = models[0, 4:]
    for f in (lambda s: s, lambda s: (s - p @ w) ** 2, lambda s: s[:, :1] * s[:, 1:]):
        a, b = f(ours), f(by_hand)
        assert np.abs((a.mean(0) - b.mean(0)) / np.sqrt((a.var(0) + b.var(0)) / 20_000)).max() < 5


def test_gamma_variables_have_their_distribution():
    u = (np.arange(2000) + 0.5) / 2000
    assert np.allclose(stats.gamma(0.7).cdf(gamma(0.7, u)), u)
    assert (gamma(0.01, np.array([1e-12])) > 0).all()


# --- Refusals -------------------------------------------------------------------------------------------

REFUSED = {
    r"PSGLD is a reference .* pass fs.problems.pooled": lambda: simulate(PSGLD(1e-3), SPREAD, 1),
    r"PSGLD\(second_moment of shape \(3,\)\)": lambda: simulate(PSGLD(1e-3, second_moment=np.ones(3)), WHOLE, 1),
    r"DGSGLD\(coupling=0": lambda: DGSGLD(1e-3, coupling=0),
    r"2 couplings for 3 clients": lambda: simulate(DGSGLD(1e-3, coupling=(0.1, 0.2)), SPREAD, 1),
    r"give both or neither": lambda: FSGLD(1e-3, means=np.zeros((3, 2))),
    r"surrogates of shape \(4, 2\) for 3 clients": lambda: simulate(
        FSGLD(1e-3, local_steps=1, means=np.zeros((4, 2)), precisions=np.ones((4, 2))), SPREAD, 1
    ),
    r"client 0 has no optimum of its own": lambda: FSGLD.laplace(
        LogisticRegression([([[1.0], [-1.0]], [1, 0])], prior_precision=0.0), step_size=1e-3
    ),
    r"choose 'gauss' or 'dirichlet'": lambda: FedBE(0.1, law="swag"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_impossible_requests_are_refused_with_a_remedy(message):
    with pytest.raises(InvalidInput, match=message):
        REFUSED[message]()

"""The QLSD family against the exact law of its iterates, and what it puts on the wire against counts by hand.

On Gaussian means one iteration is affine in everything that is remembered, given who is active: the moments
follow from all 2^b active sets. The recursion below shares no code with the library; every entry of mean and
covariance is held to |z| < 5.
"""

from __future__ import annotations

import asyncio
import functools
from itertools import product

import numpy as np
import pytest
from oracles.moments import z_scores

import fedsim as fs
from fedsim import engine, rng
from fedsim.algorithms import QLSD, QLSDPlusPlus, QLSDStar
from fedsim.codecs import QSGD, Elias, Identity
from fedsim.errors import InvalidInput
from fedsim.kernels import cpu
from fedsim.kernels.cpu import qlsd, qlsd_logistic
from fedsim.kernels.reference import qlsd as qlsd_reference
from fedsim.rng import Stream

REPLICAS, GAMMA, PRIOR = 4000, 4e-3, 5.0
SIZES = (4, 6, 8, 12, 15, 20, 35)
START = np.array([1.0, -1.0, 0.5])
LOOK = (1, 2, 12)
UNEQUAL = (0.3, 0.6, 0.9, 0.5, 0.4, 0.8, 1.0)
FAMILY = {
    "QLSD": functools.partial(QLSD, GAMMA),
    "QLSDStar": functools.partial(QLSDStar, GAMMA),
    "QLSDPlusPlus": functools.partial(QLSDPlusPlus, GAMMA, refresh_every=3),
}


@functools.cache
def clients(prior=PRIOR):
    """Seven unequal clients in three dimensions, each with a covariance of its own."""
    g = np.random.default_rng(20)
    data = [g.normal(size=(n, 3)) + g.normal(size=3) for n in SIZES]
    covariances = []
    for _ in SIZES:
        turn, _ = np.linalg.qr(g.normal(size=(3, 3)))
        covariances.append(turn @ np.diag(g.uniform(0.5, 3, 3)) @ turn.T)
    return fs.problems.GaussianMean(data, (np.array(covariances) + np.swapaxes(covariances, 1, 2)) / 2, prior)


@functools.cache
def logistic(prior=2.0):
    return fs.problems.LogisticRegression.synthetic(
        clients=7, dim=5, samples=SIZES, heterogeneity=1.0, seed=2, prior_precision=prior
    )


@functools.cache
def minimum():
    """Of the logistic potential, prior included, by Newton's method."""
    problem, theta = logistic(), np.zeros(5)
    for _ in range(30):
        p = 1 / (1 + np.exp(-problem.x @ theta))
        hessian = (problem.x.T * (p * (1 - p))) @ problem.x + problem.prior_precision * np.eye(5)
        gradient = problem.x.T @ (p - problem.y) + problem.prior_precision * theta
        theta = theta - np.linalg.solve(hessian, gradient)
    return theta


def run(algorithm, problem=None, rounds=12, replicas=REPLICAS, participation=None, start=START, **more):
    scenario = fs.Scenario(
        problem=problem if problem is not None else clients(), algorithm=algorithm, replicas=replicas,
        participation=participation or fs.participation.full(), initial=start,
        budget=fs.Budget(rounds=rounds), **({"seed": 1} | more),
    )  # fmt: skip
    return fs.run(scenario)


# --- The exact law ----------------------------------------------------------------------------------------


def active_sets(probability):
    """Every active set as a mask, with its chance."""
    p = np.broadcast_to(probability, (len(SIZES),))
    for coins in product((False, True), repeat=len(p)):
        yield np.array(coins), float(np.prod(np.where(coins, p, 1 - p)))


def weights_of(mask, weighting, probability):
    if weighting == "inverse":
        return mask / np.broadcast_to(probability, mask.shape)
    return mask * (len(mask) / max(mask.sum(), 1))


def law(rounds, probability=1.0, weighting="count", rate=0.0, error=None, star=False, empty="noise", prior=PRIOR):
    """[(mean, covariance) of theta after iteration 1, 2, ...] from affine maps of z = (theta, e_1, ..., e_b).

    `error` (b, d, d) are the covariances of the clients' minibatch gradients, which do not depend on theta.
    """
    problem = clients(prior)
    b, d = problem.clients, problem.dim
    n = (b + 1) * d
    hessian = problem.sizes[:, None, None] * problem.precision
    bounds = zip(problem.offsets, problem.offsets[1:], strict=False)
    linear = np.array([p @ problem.x[i:j].sum(axis=0) for p, (i, j) in zip(problem.precision, bounds, strict=True)])
    pull = np.zeros(d)  # of the prior
    if star:
        optimum = np.linalg.solve(hessian.sum(axis=0) + prior * np.eye(d), linear.sum(axis=0))
        linear, pull = hessian @ optimum, prior * optimum
    blocks = [slice(k * d, (k + 1) * d) for k in range(b + 1)]
    maps = []
    for mask, chance in active_sets(probability):
        m, c, noise = np.eye(n), np.zeros(n), np.zeros((n, n))
        if mask.any() or empty == "noise":
            a = weights_of(mask, weighting, probability)
            m[:d, :d] -= GAMMA * (np.einsum("c,cij->ij", a, hessian) + prior * np.eye(d))
            c[:d] = GAMMA * (a @ linear + pull)
            noise[:d, :d] = 2 * GAMMA * np.eye(d)
            if error is not None:
                noise[:d, :d] += GAMMA**2 * np.einsum("c,cij->ij", a**2, error)
            for i in range(b):
                own = blocks[i + 1]
                m[:d, own] -= GAMMA * (1 - a[i]) * np.eye(d)  # e_i, less what m_i takes of it
                m[own, :d] += rate * mask[i] * hessian[i]
                m[own, own] -= rate * mask[i] * np.eye(d)
                c[own] = -rate * mask[i] * linear[i]
        maps.append((chance, m, c, noise))
    mean, second = np.zeros(n), np.zeros((n, n))
    mean[:d] = START
    second = np.outer(mean, mean)
    out = []
    for _ in range(rounds):
        new = np.zeros((n, n))
        for chance, m, c, noise in maps:
            cross = np.outer(m @ mean, c)
            new += chance * (m @ second @ m.T + cross + cross.T + np.outer(c, c) + noise)
        mean = sum(chance * (m @ mean + c) for chance, m, c, _ in maps)
        second = new
        out.append((mean[:d], (second - np.outer(mean, mean))[:d, :d]))
    return out


def minibatch_error(rows):
    """Covariances n^2 (1 - m/n) / m  P S P of the clients' minibatch gradients."""
    problem, out = clients(), []
    for c, m in enumerate(rows):
        x, n, p = problem.x[problem.offsets[c] : problem.offsets[c + 1]], problem.sizes[c], problem.precision[c]
        out.append(n**2 * (1 - m / n) / m * p @ np.cov(x.T, ddof=1) @ p)
    return np.array(out)


def check(samples, exact, look=LOOK):
    for k in look:
        z = z_scores(samples[k - 1], *exact[k - 1])
        assert np.abs(z).max() < 5, f"iteration {k}: z = {np.round(z, 1)}"


WEIGHTINGS = {
    "count": ("count", None, 0.4),
    "count, unequal": ("count", None, UNEQUAL),
    "inverse": ("inverse", 0.4, 0.4),
    "inverse, unequal": ("inverse", UNEQUAL, UNEQUAL),
}


@pytest.mark.parametrize("case", WEIGHTINGS)
@pytest.mark.parametrize("name", FAMILY)
def test_iterates_have_the_exact_moments_under_bernoulli_participation(name, case):
    weighting, activity, probability = WEIGHTINGS[case]
    memory = {"memory_rate": 0.4} if name == "QLSDPlusPlus" else {}
    algorithm = FAMILY[name](weighting=weighting, activity=activity, **memory)
    result = run(algorithm, participation=fs.participation.bernoulli(probability))
    exact = law(12, probability, weighting, rate=memory.get("memory_rate", 0.0), star=name == "QLSDStar")
    check(result.samples, exact)


def test_empty_active_sets_are_frequent_and_have_the_exact_moments_either_way():
    for name, empty in product(FAMILY, ("noise", "hold")):
        memory = {"memory_rate": 0.4} if name == "QLSDPlusPlus" else {}
        result = run(FAMILY[name](empty=empty, **memory), participation=fs.participation.bernoulli(0.08), rounds=6)
        assert (result.rounds.arrived == 0).mean() > 0.5
        exact = law(6, 0.08, rate=memory.get("memory_rate", 0.0), star=name == "QLSDStar", empty=empty)
        check(result.samples, exact, (1, 2, 6))


def test_minibatches_of_qlsd_have_the_exact_moments():
    rows = (1, 2, 2, 3, 5, 5, 9)
    result = run(QLSD(GAMMA, batch_size=rows), participation=fs.participation.bernoulli(0.6))
    check(result.samples, law(12, 0.6, error=minibatch_error(rows)))


@pytest.mark.parametrize("name", ["QLSDStar", "QLSDPlusPlus"])
def test_control_variates_leave_no_minibatch_noise_on_gaussian_means(name):
    memory = {"memory_rate": 0.4} if name == "QLSDPlusPlus" else {}
    small, whole = (run(FAMILY[name](batch_size=size, **memory), replicas=5) for size in (0.3, None))
    assert np.allclose(small.samples, whole.samples, rtol=1e-10)
    result = run(FAMILY[name](batch_size=2, **memory), participation=fs.participation.bernoulli(0.6))
    check(result.samples, law(12, 0.6, rate=memory.get("memory_rate", 0.0), star=name == "QLSDStar"))


def test_the_control_point_is_renewed_every_so_often():
    """Linear regression, refreshed every second iteration: the first has no minibatch noise, the second that of
    theta_1 - theta_0, the third none again."""
    g = np.random.default_rng(3)
    data = [(x := g.normal(size=(n, 2)), x @ [1.0, -1.0] + g.normal(size=n)) for n in (5, 8, 12)]
    problem, gamma, m, start = fs.problems.LinearRegression(data), 0.02, 2, np.array([3.0, -4.0])
    result = run(QLSDPlusPlus(gamma, refresh_every=2, memory_rate=0.0, batch_size=m), problem, 3, 20_000, start=start)
    hessian = sum(x.T @ x for x, _ in data)
    linear = sum(x.T @ y for x, y in data)
    step = np.eye(2) - gamma * hessian
    mean, covariance, exact = start, np.zeros((2, 2)), []
    for k in range(3):
        noise = 2 * gamma * np.eye(2)
        if k == 1:
            moved = covariance + np.outer(mean - start, mean - start)  # E (theta_1 - zeta)(theta_1 - zeta)'
            for x, _ in data:
                n = len(x)
                a = x[:, :, None] * x[:, None, :]
                a = a - a.mean(axis=0)
                spread = np.einsum("nij,jk,nlk->il", a, moved, a) / (n - 1)
                noise = noise + gamma**2 * n**2 * (1 - m / n) / m * spread
        mean, covariance = step @ mean + gamma * linear, step @ covariance @ step.T + noise
        exact.append((mean, covariance))
    without = step @ (2 * gamma * np.eye(2)) @ step.T + 2 * gamma * np.eye(2)
    assert exact[1][1][0, 0] > 1.2 * without[0, 0]  # the noise is there to be seen
    check(result.samples, exact, (1, 2, 3))


def test_wrong_recursions_are_noticed():
    result = run(QLSDPlusPlus(GAMMA, refresh_every=3, memory_rate=0.4), participation=fs.participation.bernoulli(0.4))
    for wrong in (law(12, 0.4, "inverse", 0.4), law(12, 0.4, "count", 0.0), law(12, 0.45, "count", 0.4)):
        assert max(np.abs(z_scores(result.samples[k - 1], *wrong[k - 1])).max() for k in LOOK) > 7


# --- Quantised ----------------------------------------------------------------------------------------------


def gradients_at(theta):
    problem = clients()
    own = [problem.gradient(theta, c) - problem.share * problem.sizes[c] * theta for c in range(problem.clients)]
    return np.array(own)


def rounding_variance(v, levels):
    """(|v| / s)^2 f (1 - f) of every coordinate."""
    norm = np.linalg.norm(v, axis=1, keepdims=True)
    f = levels * np.abs(v) / norm % 1
    return (norm / levels) ** 2 * f * (1 - f)


@pytest.mark.parametrize("codec", [QSGD(2), Elias(5)], ids=str)
@pytest.mark.parametrize("name", FAMILY)
def test_one_quantised_iteration_has_the_exact_mean_and_variance(name, codec):
    start, p = np.array([6.0, -3.0, 2.0]), 0.6
    result = run(FAMILY[name](codec=codec), None, 1, 20_000, fs.participation.bernoulli(p), start)
    optimum = clients().exact()[0]
    v = gradients_at(start) - (gradients_at(optimum) if name == "QLSDStar" else 0)
    pull = PRIOR * (start - (optimum if name == "QLSDStar" else 0))
    coin = rounding_variance(v, codec.levels)
    mean, second = np.zeros(3), np.zeros((3, 3))
    for mask, chance in active_sets(p):
        a = weights_of(mask, "count", p)
        moved = start - GAMMA * (a @ v + pull)
        mean += chance * moved
        second += chance * (np.outer(moved, moved) + np.diag(2 * GAMMA + GAMMA**2 * (a**2 @ coin)))
    check(result.samples, [(mean, second - np.outer(mean, mean))], (1,))
    assert (GAMMA**2 * coin.sum(axis=0)).max() > 2 * GAMMA / 4  # the rounding is there to be seen


@pytest.mark.parametrize("codec", [QSGD(2), Elias(5)], ids=str)
def test_with_memory_only_what_it_does_not_hold_is_rounded(codec):
    """The second iteration of QLSD++ given the first: mean as without memory, rounding that of H_i - e_i."""
    settings = {"problem": clients(), "initial": np.array([6.0, -3.0, 2.0]), "replicas": 20_000, "seed": 1}
    first, second = (
        asyncio.run(
            engine.simulate(
                fs.Scenario(algorithm=QLSDPlusPlus(GAMMA, refresh_every=3, codec=codec), budget=fs.Budget(rounds=n), **settings),
                fs.Inline(threads=1), (), False,
            )
        )
        for n in (1, 2)
    )  # fmt: skip
    theta, e = first.learner.state["theta"], first.learner.memory["e"]  # (replicas, d), (replicas, clients, d)
    hessian = clients().sizes[:, None, None] * clients().precision
    own = np.einsum("cij,rj->rci", hessian, theta) + gradients_at(np.zeros(3))
    mean = theta - GAMMA * (own.sum(axis=1) + PRIOR * theta)

    def scores(left):
        coin = np.array([rounding_variance(v, codec.levels).sum(axis=0) for v in left])
        z = (second.learner.state["theta"] - mean) / np.sqrt(2 * GAMMA + GAMMA**2 * coin)
        return [(x.mean(axis=0) - m) / x.std(axis=0) * np.sqrt(len(x)) for x, m in ((z, 0), (z**2, 1))]

    assert np.abs(scores(own - e)).max() < 5
    assert np.abs(scores(own)).max() > 7  # a quantiser without memory would be noticed


def test_in_one_dimension_quantising_loses_nothing():
    """Memory and all: the level is always s, and the norm a float32."""
    data = [np.random.default_rng(c).normal(size=(n, 1)) + c for c, n in enumerate(SIZES)]
    problem = fs.problems.GaussianMean(data, np.eye(1))
    settings = {"participation": fs.participation.bernoulli(0.5), "start": np.zeros(1), "replicas": 3}
    for s in (1, 4):
        rate = 1 / (1 + min(1 / s**2, 1 / s))
        packed = run(QLSDPlusPlus(GAMMA, refresh_every=2, batch_size=2, codec=QSGD(s)), problem, **settings)
        plain = run(QLSDPlusPlus(GAMMA, refresh_every=2, memory_rate=rate, batch_size=2), problem, **settings)
        assert np.allclose(packed.samples, plain.samples, rtol=1e-5, atol=1e-6)


@functools.cache
def toy():
    """20 clients in 50 dimensions with 10 to 200 points each, 2018 in all, around centres 3 N(0, I)."""
    g = np.random.default_rng(7)
    sizes = g.integers(10, 201, 20)
    while sizes.sum() != 2018:
        i = g.integers(20)
        sizes[i] = np.clip(sizes[i] + np.sign(2018 - sizes.sum()), 10, 200)
    data = [g.normal(size=(n, 50)) + 3 * g.normal(size=50) for n in sizes]
    return fs.problems.GaussianMean(data, np.eye(50)), tuple(int(n) // 10 for n in sizes)


REFERENCE = {  # stationary variance over the posterior's at gamma = 4.9e-4, and how near it has to come
    "LSD*": (QLSDStar, Identity(), 1.978, 0.02),
    "QLSD* 16": (QLSDStar, QSGD(16), 1.98, 0.02),
    "QLSD* 4": (QLSDStar, QSGD(4), 2.05, 0.02),
    "LSD#": (QLSD, Identity(), 11.3, 0.05),
    "QLSD# 256": (QLSD, QSGD(256), 11.4, 0.05),
    "QLSD# 16": (QLSD, QSGD(16), 48, 0.3),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_the_toy_problem_has_the_reference_stationary_variance(name):
    kind, codec, ratio, tolerance = REFERENCE[name]
    problem, rows = toy()
    mean, covariance = problem.exact()
    algorithm = kind(4.9e-4, batch_size=rows, codec=codec)
    samples = run(algorithm, problem, 220, 30, start=mean, record=fs.Record(warmup=20, rounds_every=220)).samples
    found = ((samples - mean) ** 2).mean() / covariance[0, 0]
    assert abs(found / ratio - 1) < tolerance, found


# --- Special cases ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILY)
def test_without_compression_and_with_full_participation_it_is_langevin_dynamics(name):
    """Whatever the memory and the control point do: the theta of the recursion on U with the same noise."""
    problem, seed, rounds = clients(), 9, 20
    algorithm = QLSDPlusPlus(GAMMA, refresh_every=1) if name == "QLSDPlusPlus" else FAMILY[name]()
    result = run(algorithm, rounds=rounds, replicas=4, seed=seed)
    theta = np.tile(START, (4, 1))
    for k in range(rounds):
        gradient = sum(problem.gradients(theta, np.full(4, c)) for c in range(problem.clients))
        noise = rng.normal(rng.keys(seed, Stream.SERVER, replica=np.arange(4), round=k), 3)
        theta = theta - GAMMA * gradient + np.sqrt(2 * GAMMA) * noise
        assert np.allclose(result.samples[k], theta, rtol=1e-11, atol=1e-12)


def test_an_empty_round_moves_by_the_prior_and_the_noise_or_not_at_all():
    part = fs.participation.bernoulli(0.1)
    for empty in ("noise", "hold"):
        result = run(QLSD(GAMMA, empty=empty), replicas=20, participation=part)
        arrived = result.rounds.pivot(index="round", columns="replica", values="arrived").to_numpy()
        before = np.concatenate([np.tile(START, (1, 20, 1)), result.samples[:-1]])
        key = [rng.keys(1, Stream.SERVER, replica=np.arange(20), round=k) for k in range(12)]
        noise = np.array([rng.normal(k, 3) for k in key])
        moved = before * (1 - GAMMA * PRIOR) + np.sqrt(2 * GAMMA) * noise if empty == "noise" else before
        empty = arrived == 0
        assert 0 < empty.sum() < empty.size
        assert np.allclose(result.samples[empty], moved[empty], rtol=1e-12)
        assert not np.isclose(result.samples[~empty], moved[~empty]).all(axis=1).any()


def test_an_empty_round_of_qlsd_plus_plus_takes_the_step_of_its_memory():
    """All clients reply once with alpha = 1, so that e is the gradient at the start; then none does."""

    class Once:
        def select(self, view, rng):
            return np.arange(view.clients if view.round == 1 else 0)

        def close(self, view):
            return view.now_s if len(view.in_flight) == 0 else np.inf

    result = run(QLSDPlusPlus(GAMMA, refresh_every=5, memory_rate=1.0), rounds=3, replicas=2, participation=Once())
    e = gradients_at(START).sum(axis=0)
    theta = np.tile(START, (2, 1))
    for k in range(3):
        noise = rng.normal(rng.keys(1, Stream.SERVER, replica=np.arange(2), round=k), 3)
        theta = theta - GAMMA * (e + PRIOR * theta) + np.sqrt(2 * GAMMA) * noise
        assert np.allclose(result.samples[k], theta, rtol=1e-12)


def test_a_schedule_counts_iterations():
    result = run(QLSD(lambda t: GAMMA / (t + 1)), rounds=3, replicas=2)
    gradient = gradients_at(result.samples[1, 0]).sum(axis=0) + PRIOR * result.samples[1, 0]
    noise = rng.normal(rng.keys(1, Stream.SERVER, replica=np.arange(1), round=2), 3)[0]
    step = GAMMA / 3
    assert np.allclose(result.samples[2, 0], result.samples[1, 0] - step * gradient + np.sqrt(2 * step) * noise)


def test_the_logistic_potential_is_sampled_with_its_own_minimum():
    """With the control point at the minimum, full batches and full participation, it is Langevin dynamics on U again."""
    problem = logistic()
    star, plain = (run(a, problem, 10, 3, start=np.zeros(5)) for a in (QLSDStar(GAMMA, optimum=minimum()), QLSD(GAMMA)))
    assert np.allclose(star.samples, plain.samples, rtol=1e-6, atol=1e-7)


# --- The wire -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec, bits", [(Identity(), 192), (Identity("float32"), 96), (QSGD(4), 32 + 3 * 4)])
@pytest.mark.parametrize("name", FAMILY)
def test_theta_goes_down_to_all_clients_and_one_message_up_from_the_active(name, codec, bits):
    algorithm = FAMILY[name](codec=codec, batch_size=2)
    result = run(algorithm, rounds=5, replicas=4, participation=fs.participation.bernoulli(0.4))
    assert (result.rounds.downlink_bits == 7 * 3 * 64).all()
    assert (result.rounds.uplink_bits == result.rounds.arrived * bits).all()
    assert result.rounds.arrived.nunique() > 1


def test_all_clients_wait_for_one_copy_down_and_one_message_up():
    network = fs.topologies.star(clients=7, uplink_bps=1000.0, downlink_bps=4000.0, latency_s=0.5)
    result = run(
        QLSDPlusPlus(GAMMA, refresh_every=2, batch_size=2, codec=QSGD(4)), rounds=3, replicas=2, network=network
    )
    one = 0.5 + 192 / 4000 + 0.5 + 44 / 1000
    assert np.allclose(result.rounds.closed_s, one * result.rounds["round"])


@pytest.mark.parametrize("codec", [Elias(5), (Identity(), QSGD(4), Elias(5)) * 2 + (QSGD(4),)], ids=str)
def test_bits_are_those_of_the_bytes_that_the_clients_codecs_would_send(codec):
    result = run(QLSD(GAMMA, codec=codec), rounds=1, replicas=3)
    v = gradients_at(START)
    own = codec if isinstance(codec, tuple) else (codec,) * 7
    for replica, sent in enumerate(result.rounds.uplink_bits):
        key = rng.keys(1, Stream.CODEC, replica=replica, client=np.arange(7))
        assert sent == sum(own[c].bits(v[c], key[c]) for c in range(7))


def test_own_codecs_give_each_client_its_own_rounding():
    """With the exact codec for all but one client, the iterate differs by that client's rounding alone."""
    mixed = run(QLSD(GAMMA, codec=(Identity(),) * 6 + (QSGD(2),)), rounds=1, replicas=3)
    plain = run(QLSD(GAMMA), rounds=1, replicas=3)
    v = gradients_at(START)[6]
    key = rng.keys(1, Stream.CODEC, replica=np.arange(3), client=6)
    rounded = np.array([QSGD(2).decode(QSGD(2).encode(v, k), 3) for k in key])
    assert np.allclose(mixed.samples[0] - plain.samples[0], -GAMMA * (rounded - v), rtol=1e-8, atol=1e-12)


# --- Contract and kernels -----------------------------------------------------------------------------------

VARIANTS = {
    "full": {},
    "minibatch": {"batch_size": 3, "codec": QSGD(4)},
    "Elias, a fraction": {"batch_size": 0.4, "codec": Elias(4), "empty": "hold"},
    "generalised": {
        "codec": (Identity(), QSGD(4), Elias(2)) * 2 + (QSGD(4),), "weighting": "inverse", "activity": UNEQUAL,
    },
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", FAMILY)
def test_the_family_keeps_the_contract(name, variant):
    algorithm = FAMILY[name](**VARIANTS[variant])
    assert fs.testing.check(algorithm)
    assert fs.testing.check(algorithm, clients())
    extra = {"optimum": minimum()} if name == "QLSDStar" else {}
    assert fs.testing.check(FAMILY[name](**VARIANTS[variant], **extra), logistic())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("codec", [Identity(), Identity("float32"), QSGD(4), Elias(4)], ids=str)
def test_kernels_agree_with_the_reference(codec, dtype):
    g = np.random.default_rng(1)
    d, sizes, jobs = 19, np.array([7, 30, 1, 15]), 90
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    x, y = g.normal(size=(offsets[-1], d)).astype(dtype), g.integers(0, 2, offsets[-1]).astype(dtype)
    client = g.choice(4, jobs, p=[0.75, 0.1, 0.05, 0.1])  # more than one group of the first
    theta, control, anchor, memory = 0.3 * g.normal(size=(4, jobs, d)).astype(dtype)
    key, coins = (cpu.keys(5, stream, client=np.arange(jobs)) for stream in (Stream.BATCH, Stream.CODEC))
    sums = np.add.reduceat(x, offsets[:-1], axis=0)
    square = g.normal(size=(4, d, d))
    full = np.eye(d) + (square + square.transpose(0, 2, 1)) / 10
    wire = (coins, *qlsd.wire_form(d, *(getattr(codec, n, None) for n in ("dtype", "levels", "code", "form"))))
    terms = (
        (None, None, None, 0.0),
        (control, None, None, 0.0),
        (control, anchor, memory, 0.3),
        (None, None, memory, 1.0),
    )
    for term, rows in product(terms, (None, np.array([2, 9, 1, 15]))):
        pairs = []
        for precision in (g.uniform(0.5, 2, (1, d)).astype(dtype), full.astype(dtype)):
            shared = (client, rows, key if rows is not None else None, term)
            pairs.append((
                qlsd.gaussian_messages(theta, x, offsets, sums, precision, *shared, wire),
                qlsd_reference.gaussian_messages(theta, x, offsets, sums, precision, *shared, (coins, codec.quantise)),
            ))  # fmt: skip
        pairs.append((
            qlsd_logistic.logistic_messages(theta, x, y, offsets, *shared, wire),
            qlsd_reference.logistic_messages(theta, x, y, offsets, *shared, (coins, codec.quantise)),
        ))  # fmt: skip
        for (sent, bits, kept), (sent0, bits0, kept0) in pairs:
            near = np.abs(sent - sent0) <= 1e-3 * np.abs(sent0).max(axis=1, keepdims=True)
            assert near.mean() >= (1 if dtype == "float64" else 0.999)  # in float32 a level may tip over
            assert (bits == bits0).mean() >= (1 if dtype == "float64" or codec.fixed else 0.97)
            assert not len(kept0) or np.allclose(kept[near], kept0[near], rtol=1e-3, atol=1e-3)


def test_minibatches_too_large_for_a_full_group_are_the_same_rows():
    g = np.random.default_rng(4)
    problem = fs.problems.GaussianMean([g.normal(size=(n, 2)) for n in (900, 5, 400)], np.eye(2))
    assert fs.testing.check(QLSD(1e-5, batch_size=700), problem)


def test_what_cannot_be_sent_is_refused_with_the_client_and_a_step_size_to_try():
    for codec in (QSGD(4), Elias(4), Identity()):
        with pytest.raises(fs.errors.NonFinite, match=r"client \d+ .* round \d+ .*step_size"):
            run(QLSD(50.0, codec=codec), rounds=400, replicas=2)


# --- Bad arguments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build, says",
    [
        (lambda: QLSD(0), "step_size=0"),
        (lambda: QLSD(GAMMA, batch_size=-1), "batch_size=-1"),
        (lambda: QLSD(GAMMA, codec="QSGD"), "fs.codecs.QSGD"),
        (lambda: QLSD(GAMMA, codec=(QSGD(4), None)), "None"),
        (lambda: QLSD(GAMMA, empty="skip"), "'noise' or 'hold'"),
        (lambda: QLSD(GAMMA, weighting="uniform"), "'count' or 'inverse'"),
        (lambda: QLSD(GAMMA, weighting="inverse"), "activity=0.5"),
        (lambda: QLSD(GAMMA, activity=0.5), "give both or neither"),
        (lambda: QLSD(GAMMA, weighting="inverse", activity=0.0), r"\(0, 1\]"),
        (lambda: QLSDPlusPlus(GAMMA, refresh_every=0), "refresh_every=0"),
        (lambda: QLSDPlusPlus(GAMMA, refresh_every=1, memory_rate=2), "memory_rate=2"),
        (lambda: run(QLSD(GAMMA, codec=(QSGD(4),) * 3), replicas=1), "3 codecs for 7 clients"),
        (lambda: run(QLSD(GAMMA, weighting="inverse", activity=(0.5, 1.0)), replicas=1), "2 activities for 7"),
        (lambda: run(QLSDStar(GAMMA), logistic(), start=np.zeros(5)), "LogisticRegression has no exact"),
        (lambda: run(QLSDStar(GAMMA, optimum=np.zeros(2))), r"shape \(2,\)"),
        (lambda: run(QLSDStar(GAMMA, optimum=np.zeros(3))), "posterior standard deviations away"),
    ],
)
def test_bad_arguments_are_refused_in_one_sentence(build, says):
    with pytest.raises(InvalidInput, match=says):
        build()


@pytest.mark.parametrize("name", FAMILY)
def test_a_count_of_replies_refuses_draws_by_unequal_weights(name):
    """b / |A| gives the clients mean weights of 0.30 to 2.28 in place of 1 here; 1 / p_i gives 1."""
    draws = fs.participation.with_replacement(3)
    p = np.array(SIZES) / sum(SIZES)
    with pytest.raises(InvalidInput, match="would count clients with much data more than others"):
        run(FAMILY[name](), participation=draws, replicas=1)
    run(FAMILY[name](weighting="inverse", activity=tuple(1 - (1 - p) ** 3)), participation=draws, replicas=1, rounds=1)
    even = fs.problems.GaussianMean.synthetic(clients=7, dim=3, samples=10, seed=1)
    run(FAMILY[name](), even, 1, 1, draws)


def test_a_control_point_without_the_prior_is_not_the_minimum():
    without = clients(0.0).exact()[0]
    with pytest.raises(InvalidInput, match="the prior included"):
        run(QLSDStar(GAMMA, optimum=without), clients(100.0), replicas=1)

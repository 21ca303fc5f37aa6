"""FA-HMC's trajectories and QLSD's messages in CUDA, compiled for the host, have the bits of the CPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tools import cuda_on_host

import fedsim as fs
from fedsim import rng
from fedsim.algorithms import FAHMC, FALD, QLSD, QLSDPlusPlus, QLSDStar
from fedsim.codecs import QSGD, Elias, Identity
from fedsim.kernels import cpu, cuda, reference
from fedsim.kernels.cpu import qlsd, qlsd_logistic
from fedsim.kernels.cuda import device
from fedsim.kernels.reference import leapfrog
from fedsim.rng import Stream

DTYPES = ["float32", "float64"]
needs_compiler = pytest.mark.skipif(not cuda_on_host.COMPILER, reason="no C++ compiler")


@pytest.fixture
def on_host(on_host, monkeypatch):
    """Return the names of all kernels that were launched there."""
    launched, get_function = [], cuda_on_host.RawModule.get_function

    def recorded(module, kernel):
        launched.append(kernel)
        return get_function(module, kernel)

    monkeypatch.setattr(cuda_on_host.RawModule, "get_function", recorded)
    return launched


def keys(jobs, stream):
    return rng.keys(11, stream, replica=np.arange(jobs) % 13, client=np.arange(jobs) // 13, round=3)


def chunks(jobs, *sizes):
    return [[slice(a, min(a + size, jobs)) for a in range(0, jobs, size)] for size in sizes]


# --- Trajectories ---------------------------------------------------------------------------------------


def trajectories(jobs, d, dtype, common, count, steps):
    """Return arguments for five clients with symmetric tables; every job has its own start, linear term and scale."""
    draw = rng.normal(keys(5, Stream.DATA), d * d).reshape(5, d, d)
    hessian = (draw + draw.transpose(0, 2, 1) + 3 * np.sqrt(d) * np.eye(d)).astype(dtype)
    own = rng.normal(keys(jobs, Stream.DATA), 2 * d).astype(dtype)
    client = np.arange(jobs) * 3 % 5
    scale = np.sqrt((1 - common**2) * (1 + client)).astype(dtype)
    return (
        own[:, :d], hessian, own[:, d:], client, keys(jobs, Stream.NOISE), keys(jobs, Stream.SHARED), scale, common,
        0.2 / (1 + np.arange(count)), steps,
    )  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [3, device.REGISTERS, device.REGISTERS + 1, 50])
def test_trajectories_equal_the_reference(on_host, d, dtype):
    for common, count, steps in product((0.0, 0.5, 1.0), (1, 5), (1, 4)):
        arguments = trajectories(70, d, dtype, common, count, steps)
        found = cuda.leapfrog_quadratic(*arguments)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, leapfrog.leapfrog_quadratic(*arguments))
    assert set(on_host) == {"leapfrog_small_dim" if d <= device.REGISTERS else "leapfrog_step"}


@needs_compiler
@pytest.mark.parametrize("d", [3, 12])
def test_trajectories_do_not_depend_on_a_jobs_place_in_a_batch(on_host, d):
    arguments = trajectories(150, d, "float64", 0.5, 5, 3)
    before = [np.copy(a) for a in arguments]
    together = cuda.leapfrog_quadratic(*arguments)
    theta, hessian, linear, *per_job = arguments[:7]
    for parts in chunks(150, 1, 64):
        for p in parts:
            mine = theta[p], hessian, linear[p], *(a[p] for a in per_job)
            np.testing.assert_array_equal(cuda.leapfrog_quadratic(*mine, *arguments[7:]), together[p])
    assert all(np.array_equal(old, now) for old, now in zip(before, arguments, strict=True))


@needs_compiler
@pytest.mark.parametrize("dim, debias", [(3, None), (3, "stale"), (11, None)])
def test_a_run_of_fahmc_has_the_bits_of_the_cpu(on_host, dim, debias):
    study = fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(clients=6, dim=dim, samples=20, seed=1),
        algorithm=FAHMC(step_size=0.05, leapfrog_steps=3, local_steps=2, correlation=0.3, debias=debias),
        budget=fs.Budget(rounds=4), replicas=9, seed=2,
    )  # fmt: skip
    found = fs.run(study, runtime=fs.Inline(threads=1, chunk=5, backend="cuda"))
    np.testing.assert_array_equal(found.samples, fs.run(study, runtime=fs.Inline(threads=1)).samples)
    assert ("leapfrog_small_dim" if dim == 3 else "leapfrog_step") in on_host


@needs_compiler
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch, debias", [(None, None), (None, "stale"), (5, None), (0.3, "stale")])
def test_a_run_of_fahmc_on_logistic_regression_has_the_bits_of_the_cpu(on_host, monkeypatch, batch, debias, dtype):
    algorithm = FAHMC(0.05, leapfrog_steps=3, local_steps=2, correlation=0.3, debias=debias, batch_size=batch)
    study = replace(
        qlsd_study("logistic", algorithm, dtype), participation=fs.participation.full(), budget=fs.Budget(rounds=2),
        replicas=5,
    )  # fmt: skip
    expected = fs.run(study, runtime=fs.Inline(threads=1)).samples
    for most in (device.SCORES, 100, 1):  # all jobs at once, a few at a time, one at a time
        monkeypatch.setattr(device, "SCORES", most)
        del on_host[:]
        found = fs.run(study, runtime=fs.Inline(threads=1, chunk=20, backend="cuda")).samples
        np.testing.assert_array_equal(found, expected)
    assert on_host.count("leapfrog_move") == 30 * 2 * 2 * (3 if batch is None else 5)  # jobs, rounds, T
    assert on_host.count("logistic_gradient") == on_host.count("leapfrog_move")


# --- Messages -------------------------------------------------------------------------------------------

SIZES = np.array([7, 30, 1, 15])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
BATCH = np.array([2, 9, 1, 15])
CODECS = [
    Identity(), Identity("float32"), QSGD(1), QSGD(16), Elias(4), Elias(300, code="gamma"), Elias(2, form="sparse"),
    Elias(2, code="gamma", form="dense"),
]  # fmt: skip


def wire_of(codec, coins, d):
    return (coins, *qlsd.wire_form(d, *(getattr(codec, n, None) for n in ("dtype", "levels", "code", "form"))))


class Messages:
    """Data of four clients, jobs with all terms of a message, and calls of both problems' kernels."""

    def __init__(self, d, dtype, jobs=90, data=None):
        draw = rng.normal(keys(OFFSETS[-1], Stream.DATA), d + 1)
        self.d, self.dtype, self.jobs = d, dtype, jobs
        self.x = np.ascontiguousarray(draw[:, :d], data or dtype)
        self.y = (draw[:, d] > 0).astype(data or dtype)
        self.sums = np.add.reduceat(self.x.astype(float), OFFSETS[:-1], axis=0).astype(dtype)
        self.client = np.arange(jobs) * 7 % 11 % 4
        own = 0.3 * rng.normal(keys(jobs, Stream.NOISE), 4 * d).astype(dtype)
        self.theta, self.control, self.anchor, self.memory = np.ascontiguousarray(
            own.reshape(jobs, 4, d).swapaxes(0, 1)
        )
        self.key, self.coins = keys(jobs, Stream.BATCH), keys(jobs, Stream.CODEC)
        root = rng.normal(keys(4, Stream.SHARED), d * d).reshape(4, d, d)
        full = (np.eye(d) + (root + root.transpose(0, 2, 1)) / 10).astype(dtype)
        diagonal = np.ascontiguousarray(1 + np.abs(root[:, 0])).astype(dtype)
        self.precisions = full, full[:1].copy(), diagonal, diagonal[:1].copy()

    def terms(self):
        yield None, None, None, 0.0
        yield self.control, None, None, 0.0
        yield self.control, self.anchor, self.memory, 0.3
        yield None, None, self.memory, 1.0

    def gaussian(self, kernel, precision, rows, terms, codec, part=slice(None)):
        mine = self._of(part, rows, terms, codec)
        return kernel(self.theta[part], self.x, OFFSETS, self.sums, precision, *mine)

    def logistic(self, kernel, rows, terms, codec, part=slice(None)):
        return kernel(self.theta[part], self.x, self.y, OFFSETS, *self._of(part, rows, terms, codec))

    def _of(self, part, rows, terms, codec):
        *vectors, rate = terms
        vectors = (None if v is None else v[part] for v in vectors)
        key = None if rows is None else self.key[part]
        return self.client[part], rows, key, (*vectors, rate), wire_of(codec, self.coins[part], self.d)


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


@needs_compiler
@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_messages_equal_numbas(on_host, dtype, codec):
    for d in (3, 16, 21):  # less than a group of eight, complete groups, and a remainder
        jobs = Messages(d, dtype)
        for terms, rows in product(jobs.terms(), (None, BATCH)):
            for precision in jobs.precisions:
                both = (
                    jobs.gaussian(k, precision, rows, terms, codec)
                    for k in (cuda.gaussian_messages, qlsd.gaussian_messages)
                )
                assert_same(*both)
            both = (
                jobs.logistic(k, rows, terms, codec) for k in (cuda.logistic_messages, qlsd_logistic.logistic_messages)
            )
            assert_same(*both)


@needs_compiler
@pytest.mark.parametrize("codec", [Identity(), QSGD(4), Elias(4)], ids=str)
def test_messages_are_the_quantised_gradients_of_the_problem(on_host, codec):
    """Compare with the generic parts: rows by `choose_rows`, gradients by the problem, levels and bits by the codec."""
    jobs = Messages(19, "float64")
    start = np.concatenate([[0], np.cumsum(BATCH[jobs.client])])
    rows = reference.choose_rows(jobs.key, SIZES[jobs.client], start, 0), start
    scale = (SIZES / BATCH)[jobs.client][:, None]
    terms = jobs.control, jobs.anchor, jobs.memory, 0.3
    gaussian = fs.problems.GaussianMean.from_arrays(jobs.x, OFFSETS, np.linalg.inv(jobs.precisions[0] + 2 * np.eye(19)))
    logistic = fs.problems.LogisticRegression.from_arrays(jobs.x, jobs.y, OFFSETS)
    for problem, messages in (
        (gaussian, lambda: jobs.gaussian(cuda.gaussian_messages, gaussian.precision, BATCH, terms, codec)),
        (logistic, lambda: jobs.logistic(cuda.logistic_messages, BATCH, terms, codec)),
    ):
        here, there = (reference.gradients(problem, at, jobs.client, rows) for at in (jobs.theta, jobs.control))
        sent, bits = codec.quantise(scale * (here - there) + jobs.anchor - jobs.memory, jobs.coins)
        found = messages()
        np.testing.assert_allclose(found[0], sent, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(found[1], bits)
        np.testing.assert_allclose(found[2], jobs.memory + 0.3 * sent, rtol=1e-9, atol=1e-9)


@needs_compiler
def test_data_of_another_precision_give_the_same_messages_to_rounding(on_host):
    jobs = Messages(21, "float32", data="float64")
    terms = jobs.control, jobs.anchor, jobs.memory, 0.3
    for found, expected in (
        (jobs.gaussian(k, jobs.precisions[0], BATCH, (None, *terms[1:]), Identity()) for k in (cuda.gaussian_messages, qlsd.gaussian_messages)),
        (jobs.logistic(k, BATCH, terms, Identity()) for k in (cuda.logistic_messages, qlsd_logistic.logistic_messages)),
    ):  # fmt: skip
        assert found[0].dtype == np.float32
        np.testing.assert_allclose(
            found[0], expected[0], rtol=0, atol=200 * np.finfo("float32").eps * np.abs(expected[0]).max()
        )


EXTREMES = {
    "zero": 0.0, "a negative zero": -0.0, "squares that vanish": 1e-170, "the least": 5e-324, "small": 1e-30,
    "close to what float32 holds": 3e38, "beyond float32": 1e39, "squares that overflow": 1e200, "infinite": np.inf,
    "not a number": np.nan,
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("codec", [Identity("float32"), QSGD(5), Elias(5)], ids=str)
@pytest.mark.parametrize("extreme", EXTREMES)
def test_extreme_vectors_are_sent_or_refused_as_on_the_cpu(on_host, codec, extreme):
    d = 13
    x, offsets, client = np.zeros((1, d)), np.array([0, 1]), np.zeros(3, int)
    theta = np.zeros((3, d))
    theta[1, 4] = theta[2, 12] = EXTREMES[extreme]  # inside a group of eight, and left over
    wire = wire_of(codec, keys(3, Stream.CODEC), d)
    rest = x, offsets, x, np.ones((1, d)), client, None, None, (None, None, None, 0.0), wire
    found = cuda.gaussian_messages(theta, *rest)
    assert_same(found, qlsd.gaussian_messages(theta, *rest))
    sendable = abs(EXTREMES[extreme]) < 3.4e38
    if not isinstance(codec, Identity):
        assert (found[1][1:] > 0).all() == sendable
        assert np.isfinite(found[0][1:]).all() == sendable
    if sendable:
        assert found[1].tolist() == [codec.bits(v, k) for v, k in zip(theta, keys(3, Stream.CODEC), strict=True)]


def quantised(vectors, codec, coins):
    """Return the messages of these vectors: gradients at theta of one row at zero."""
    (jobs, d), nothing = vectors.shape, np.zeros((1, vectors.shape[1]))
    rest = nothing, np.array([0, 1]), nothing, np.ones((1, d)), np.zeros(jobs, int)
    sent, bits, _ = cuda.gaussian_messages(
        vectors, *rest, None, None, (None, None, None, 0.0), wire_of(codec, coins, d)
    )
    return sent, bits


@needs_compiler
@pytest.mark.parametrize("d", [8, 24])
def test_squares_are_added_in_the_order_of_the_codec(on_host, d):
    """Seven squares of just under half a unit in the last place are lost if they are added to 1 one by one."""
    v = np.zeros((1, d))
    v[0, :8] = 1.4 * 2.0**-27
    v[0, 0] = 1
    coins = keys(1, Stream.CODEC)
    np.testing.assert_array_equal(quantised(v, QSGD(1), coins)[0], QSGD(1).quantise(v, coins)[0])
    assert quantised(v, QSGD(1), coins)[0][0, 0] == np.nextafter(np.float32(1), np.float32(2))


@needs_compiler
def test_a_level_is_rounded_up_above_its_random_word_plus_a_half(on_host):
    coins = keys(20, Stream.CODEC)
    word = rng.words(coins, 1)[:, 1].astype(float)
    for part, level in ((0.75, 0), (0.25, 1)):
        x = 1 - (word + part) / 2**32  # of two levels and a norm of 2
        v = np.stack([np.sqrt(4 - x * x) * (1 - 1e-9), x, 0 * x], axis=1)
        sent, _ = quantised(v, QSGD(2), coins)
        np.testing.assert_array_equal(sent[:, 1], level)
        np.testing.assert_array_equal(sent, QSGD(2).quantise(v, coins)[0])


@needs_compiler
@pytest.mark.parametrize("form", ["sparse", "dense", "auto"])
@pytest.mark.parametrize("code", ["omega", "gamma"])
def test_bits_are_those_of_the_message_if_most_levels_are_zero(on_host, code, form):
    d, codec = 1500, Elias(2, code=code, form=form)
    key = keys(4, Stream.CODEC)
    theta = rng.normal(keys(4, Stream.DATA), d) ** 9
    sent, bits = quantised(theta, codec, key)
    assert (sent != 0).sum(axis=1).max() < d / 10
    assert bits.tolist() == [codec.bits(v, k) for v, k in zip(theta, key, strict=True)]
    for row, v, k in zip(sent, theta, key, strict=True):
        np.testing.assert_array_equal(row, codec.decode(codec.encode(v, k), d))


@needs_compiler
@pytest.mark.parametrize("codec", [QSGD(4), Elias(4)], ids=str)
def test_messages_do_not_depend_on_a_jobs_place_in_a_batch_nor_on_its_parts(on_host, monkeypatch, codec):
    jobs = Messages(19, "float64", jobs=150)
    terms = jobs.control, jobs.anchor, jobs.memory, 0.3
    before = [np.copy(a) for a in (jobs.theta, *terms[:3])]
    calls = (
        lambda part: jobs.gaussian(cuda.gaussian_messages, jobs.precisions[0], BATCH, (None, *terms[1:]), codec, part),
        lambda part: jobs.logistic(cuda.logistic_messages, BATCH, terms, codec, part),
    )
    for call in calls:
        together = call(slice(None))
        for parts in chunks(150, 1, 64):
            alone = zip(*(call(p) for p in parts), strict=True)
            assert_same([np.concatenate(a) for a in alone], together)
        for most in (100, 1):  # a few jobs at a time, one at a time
            with monkeypatch.context() as patch:
                patch.setattr(device, "SCORES", most)
                del on_host[:]
                assert_same(call(slice(None)), together)
                assert on_host.count("round_levels") > (40 if most > 1 else 149)
    assert all(np.array_equal(old, now) for old, now in zip(before, (jobs.theta, *terms[:3]), strict=True))


@needs_compiler
def test_no_jobs_send_no_messages(on_host):
    none, jobs = slice(0, 0), Messages(5, "float64")
    for sent, bits, memory in (
        jobs.gaussian(cuda.gaussian_messages, jobs.precisions[0], BATCH, (None, None, jobs.memory, 1.0), QSGD(4), none),
        jobs.logistic(cuda.logistic_messages, None, (None, None, jobs.memory, 1.0), Elias(4), none),
    ):
        assert sent.shape == memory.shape == (0, 5)
        assert bits.shape == (0,)


# --- Complete runs -----------------------------------------------------------------------------------------


def qlsd_study(problem, algorithm, dtype):
    """Return data in the precision of the run; backends differ in the conversion of others."""
    x, offsets = rng.normal(keys(120, Stream.DATA), 10).astype(dtype), 20 * np.arange(7)
    data, labels = np.ascontiguousarray(x[:, :9]), (x[:, 9] > 0).astype(dtype)
    makers = {
        "gaussian": lambda: fs.problems.GaussianMean.from_arrays(data, offsets, np.eye(9) + 0.2),
        "logistic": lambda: fs.problems.LogisticRegression.from_arrays(data, labels, offsets, prior_precision=1.0),
    }
    return fs.Scenario(
        problem=makers[problem](), algorithm=algorithm, participation=fs.participation.bernoulli(0.7),
        budget=fs.Budget(rounds=4), replicas=9, seed=2, dtype=dtype,
    )  # fmt: skip


FAMILY = {
    "QLSD, all rows": QLSD(1e-3, codec=QSGD(8)),
    "QLSD": QLSD(1e-3, batch_size=5, codec=Elias(8)),
    "LSD++": QLSDPlusPlus(1e-3, refresh_every=2, batch_size=0.25),
    "QLSD++": QLSDPlusPlus(1e-3, refresh_every=2, batch_size=5, codec=QSGD(8)),
    "QLSD++, all rows": QLSDPlusPlus(1e-3, refresh_every=2, codec=Elias(8, code="gamma")),
}


@needs_compiler
@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("problem", ["gaussian", "logistic"])
def test_a_run_of_the_qlsd_family_has_the_bits_of_the_cpu(on_host, problem, name):
    study = qlsd_study(problem, FAMILY[name], "float32" if "all" in name else "float64")
    found = fs.run(study, runtime=fs.Inline(threads=1, chunk=7, backend="cuda"))
    expected = fs.run(study, runtime=fs.Inline(threads=1))
    np.testing.assert_array_equal(found.samples, expected.samples)
    np.testing.assert_array_equal(found.rounds.uplink_bits, expected.rounds.uplink_bits)
    assert f"{problem}_gradient" in on_host
    assert ("round_levels" in on_host) == (name != "LSD++")


@needs_compiler
def test_a_run_of_qlsd_star_has_the_bits_of_the_cpu(on_host):
    study = qlsd_study("gaussian", QLSDStar(1e-3, batch_size=5, codec=QSGD(8)), "float64")
    found = fs.run(study, runtime=fs.Inline(threads=2, chunk=7, backend="cuda"))
    np.testing.assert_array_equal(found.samples, fs.run(study, runtime=fs.Inline(threads=1)).samples)
    assert "gaussian_all_rows" in on_host


@needs_compiler
@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("d", [254, 255])  # 256 is the first gap that is longer in Elias's codes than 255
def test_a_message_of_zeros_is_as_long_as_its_bytes(on_host, d, backend):
    study = fs.Scenario(
        problem=fs.problems.GaussianMean([np.zeros((2, d))] * 3, np.eye(d)),
        algorithm=QLSD(1e-3, codec=Elias(4, code="gamma")), budget=fs.Budget(rounds=1),
    )  # fmt: skip
    result = fs.run(study, runtime=fs.Inline(threads=1, backend=backend))
    assert result.rounds.uplink_bits.tolist() == [
        3 * Elias(4, code="gamma").bits(np.zeros(d), keys(1, Stream.CODEC)[0])
    ]


def test_combinations_without_a_kernel_are_not_fused():
    gaussian = fs.problems.GaussianMean.synthetic(clients=3, dim=2, samples=5, seed=1)
    logistic = fs.problems.LogisticRegression([(np.zeros((2, 2)), [0, 1])])
    softmax = fs.problems.SoftmaxRegression([(np.zeros((2, 2)), [0, 1])], classes=2)
    for backend in (cpu, cuda):
        assert QLSD(0.1, codec=QSGD(2)).fused(gaussian, backend) is not None
        assert QLSD(0.1, codec=QSGD(2)).fused(softmax, backend) is None
        assert QLSD(0.1, codec=(QSGD(2), QSGD(3), Identity())).fused(gaussian, backend) is None
        assert FAHMC(0.1, leapfrog_steps=3).fused(gaussian, backend) is not None
        assert FAHMC(0.1, leapfrog_steps=3, batch_size=1).fused(logistic, backend) is not None
        assert FALD(0.1).fused(gaussian, backend) is not None
    assert QLSD(0.1, codec=QSGD(2)).fused(softmax, reference) is None


# --- On a device ----------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [3, 50])
def test_trajectories_on_a_device_agree_with_the_cpu_to_rounding(d, dtype):
    arguments = trajectories(70, d, dtype, 0.5, 3, 4)
    found, expected = (f(*arguments) for f in (cuda.leapfrog_quadratic, leapfrog.leapfrog_quadratic))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e4 * np.finfo(dtype).eps)


@pytest.mark.gpu
@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_messages_on_a_device_agree_with_the_cpu_to_rounding(dtype, codec):
    jobs = Messages(50, dtype)
    for terms, rows in product(jobs.terms(), (None, BATCH)):
        for found, expected in (
            [jobs.gaussian(k, jobs.precisions[0], rows, terms, codec) for k in (cuda.gaussian_messages, qlsd.gaussian_messages)],
            [jobs.logistic(k, rows, terms, codec) for k in (cuda.logistic_messages, qlsd_logistic.logistic_messages)],
        ):  # fmt: skip
            near = np.abs(found[0] - expected[0]) <= 1e-3 * np.abs(expected[0]).max(axis=1, keepdims=True)
            assert near.mean() >= 0.999  # where the last bit of a gradient differs, a level may tip over
            assert (found[1] == expected[1]).mean() >= (1 if codec.fixed else 0.97)

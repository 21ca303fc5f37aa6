"""The same scenario gives the same bits, however its jobs are cut up, threaded or accompanied.

Results are compared as bytes: samples, and every column of `rounds`.
"""

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np
import pytest

import fedsim as fs
from fedsim.kernels import cpu, reference

CLIENTS = 5


def generator():
    return np.random.default_rng(12)


def gaussian(dim=3):
    rng = generator()
    sizes = (4, 9, 5, 12, 7)
    data = [rng.normal(size=(n, dim)) + rng.normal(size=dim) for n in sizes]
    covariances = [np.diag(rng.uniform(0.5, 2, dim)) for _ in sizes]
    return fs.problems.GaussianMean(data, np.array(covariances), prior_precision=1.0)


def rows(labels, dim=6, sizes=(20, 30, 25, 35, 28)):
    rng = generator()
    return [(x, labels(x, rng)) for x in (rng.normal(size=(n, dim)) for n in sizes)]


def linear(dim=6):
    return fs.problems.LinearRegression(rows(lambda x, rng: x.sum(axis=1) + rng.normal(size=len(x)), dim), 0.7, 1.0)


def linear_untabulated():
    """More columns than rows per client: gradients come from the rows themselves."""
    data = rows(lambda x, rng: x.sum(axis=1), 12, (5, 7, 6, 9, 8))
    return fs.problems.LinearRegression(data, prior_precision=1.0)


def logistic():
    return fs.problems.LogisticRegression(rows(lambda x, rng: (x[:, 0] > 0).astype(float), 7), prior_precision=1.0)


def softmax():
    return fs.problems.SoftmaxRegression(
        rows(lambda x, rng: rng.integers(0, 4, len(x)), 9), classes=4, prior_precision=1.0
    )


PROBLEMS = {
    "gaussian": (gaussian, None), "gaussian, minibatch": (gaussian, 3),
    "gaussian, wide": (lambda: gaussian(11), None),
    "linear": (linear, None), "linear, minibatch": (linear, 0.2),
    "linear, untabulated": (linear_untabulated, None),
    "logistic": (logistic, None), "logistic, minibatch": (logistic, (3, 4, 5, 6, 40)),
    "softmax": (softmax, None), "softmax, minibatch": (softmax, 8),
}  # fmt: skip


def scenario_of(name, dtype, replicas, rounds=3, participation=None, local_steps=5):
    make, batch_size = PROBLEMS[name]
    return fs.Scenario(
        problem=make(),
        algorithm=fs.algorithms.FALD(
            step_size=fs.schedules.inverse_time(2e-3, 2), local_steps=local_steps, correlation=0.6,
            batch_size=batch_size,
        ),
        participation=participation or fs.participation.with_replacement(4),
        budget=fs.Budget(rounds=rounds), replicas=replicas, seed=2**40 + 3, dtype=dtype,
    )  # fmt: skip


def bits(result):
    """Samples and timeline as bytes."""
    columns = [
        (name, result.rounds[name].dtype.str, result.rounds[name].to_numpy().tobytes()) for name in result.rounds
    ]
    return result.samples.dtype.str, result.samples.shape, result.samples.tobytes(), columns


def of_replica(result, number):
    """What one replica of a run left, as bytes."""
    at = list(result.replicas).index(number)
    table = result.rounds[result.rounds["replica"] == number]
    return result.samples[:, at].tobytes(), [table[name].to_numpy().tobytes() for name in table]


RUNTIMES = [fs.Inline(threads=1, chunk=7)] + [fs.Inline(threads=2, chunk=chunk) for chunk in (1, 7, 64, None)]


# --- However the jobs are cut up ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_threads_and_chunks_change_no_bit(name, dtype):
    scenario = scenario_of(name, dtype, 40, rounds=2)  # some 120 jobs a round
    expected = bits(fs.run(scenario, runtime=fs.Inline(threads=1, backend="cpu")))
    for runtime in RUNTIMES:
        assert bits(fs.run(scenario, runtime=runtime)) == expected, runtime


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_threads_and_chunks_change_no_bit_of_the_numpy_reference(name, dtype):
    scenario = scenario_of(name, dtype, 5, rounds=2, local_steps=2)
    expected = bits(fs.run(scenario, runtime=fs.Inline(threads=1, backend="numpy")))
    for chunk in (1, 7, 64, None):
        found = bits(fs.run(scenario, runtime=fs.Inline(threads=2, chunk=chunk, backend="numpy")))
        assert found == expected, chunk


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_replica_among_300_equals_the_replica_alone(name, dtype):
    together = fs.run(scenario_of(name, dtype, 300))
    alone = fs.run(scenario_of(name, dtype, range(17, 18)))
    assert alone.replicas == (17,)
    assert of_replica(alone, 17) == of_replica(together, 17)
    assert of_replica(together, 16) != of_replica(together, 17)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_replica_among_several_equals_the_replica_alone_in_the_numpy_reference(name):
    together = fs.run(scenario_of(name, "float64", range(14, 19), 2), runtime=fs.Inline(backend="numpy"))
    alone = fs.run(scenario_of(name, "float64", range(17, 18), 2), runtime=fs.Inline(backend="numpy"))
    assert of_replica(alone, 17) == of_replica(together, 17)


POLICIES = [
    fs.participation.full(), fs.participation.with_replacement(3), fs.participation.uniform(3, weighting="normalised"),
    fs.participation.bernoulli(0.3),
]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__ + str(getattr(p, "weighting", "")))
def test_every_policy_leaves_replicas_to_themselves(policy):
    together = fs.run(scenario_of("gaussian", "float64", 100, 8, policy), runtime=fs.Inline(threads=2, chunk=11))
    ranged = fs.run(scenario_of("gaussian", "float64", range(90, 30, -7), 8, policy))
    for number in ranged.replicas:
        assert of_replica(ranged, number) == of_replica(together, number)


def test_replicas_that_stop_separately_equal_replicas_alone():
    """A bit budget under random participation: every replica runs out in a round of its own."""

    def scenario_with(replicas):
        base = scenario_of("gaussian", "float64", replicas, 60, fs.participation.bernoulli(0.4))
        return dataclasses.replace(base, budget=fs.Budget(rounds=60, uplink_bits=6000))

    together = fs.run(scenario_with(40))
    assert set(together.stopped_by) == {"uplink_bits"}
    assert len(set(together.lengths.tolist())) > 3
    for number in (0, 13, 39):
        alone = fs.run(scenario_with(range(number, number + 1)))
        kept = int(alone.lengths[0])
        assert kept == together.lengths[number]
        assert alone.samples[:kept, 0].tobytes() == together.samples[:kept, number].tobytes()
        assert np.isnan(together.samples[kept:, number]).all()
        assert of_replica(alone, number)[1] == of_replica(together, number)[1]


def test_more_rounds_begin_with_the_same_rounds():
    short, long = (fs.run(scenario_of("logistic, minibatch", "float64", 20, rounds)) for rounds in (3, 6))
    assert long.samples[:3].tobytes() == short.samples.tobytes()


def test_seeds_matter():
    base = scenario_of("gaussian", "float64", 20)
    first, again = fs.run(base), fs.run(base)
    other = fs.run(dataclasses.replace(base, seed=4))
    assert bits(first) == bits(again)
    assert first.fingerprint == again.fingerprint
    assert not np.intersect1d(first.samples, other.samples).size


# --- However the run is started -------------------------------------------------------------------------


def test_arun_inside_a_running_loop_gives_the_same_bits():
    scenario = scenario_of("softmax, minibatch", "float32", 40)
    expected = bits(fs.run(scenario))

    async def main():
        return await fs.arun(scenario, runtime=fs.Inline(threads=2, chunk=7))

    assert bits(asyncio.run(main())) == expected


def test_several_runs_in_one_loop_do_not_disturb_each_other():
    scenarios = [scenario_of(name, "float64", 40) for name in ("gaussian", "logistic", "softmax, minibatch")]
    expected = [bits(fs.run(s)) for s in scenarios]

    async def main():
        return await asyncio.gather(*(fs.arun(s, runtime=fs.Inline(threads=2, chunk=7)) for s in scenarios))

    assert [bits(r) for r in asyncio.run(main())] == expected


def test_run_works_where_a_loop_is_already_running():
    """As in a notebook, whose cells run inside an event loop."""
    scenario = scenario_of("gaussian", "float64", 40)
    expected = bits(fs.run(scenario))

    async def main():
        return fs.run(scenario)

    assert bits(asyncio.run(main())) == expected


def test_run_inside_a_loop_raises_the_runs_own_error():
    scenario = dataclasses.replace(
        scenario_of("gaussian", "float64", 2, 200), algorithm=fs.algorithms.FALD(step_size=1e6, local_steps=50)
    )

    async def main():
        return fs.run(scenario)

    with pytest.raises(fs.errors.NonFinite, match=r"client \d+ .* round \d+ .* try step_size <= "):
        asyncio.run(main())


# --- The reference and its compiled form ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["gaussian", "gaussian, wide", "linear"])
def test_quadratic_runs_have_the_same_bits_in_numpy_and_compiled(name, dtype):
    scenario = scenario_of(name, dtype, 9)
    results = [fs.run(scenario, runtime=fs.Inline(backend=backend)) for backend in ("numpy", "cpu")]
    assert bits(results[0]) == bits(results[1])


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-4), ("float64", 1e-12)])
@pytest.mark.parametrize("name", [n for n in PROBLEMS if n not in ("gaussian", "gaussian, wide", "linear")])
def test_other_runs_agree_to_rounding_in_numpy_and_compiled(name, dtype, tolerance):
    scenario = scenario_of(name, dtype, 9)
    numpy, compiled = (fs.run(scenario, runtime=fs.Inline(backend=backend)) for backend in ("numpy", "cpu"))
    assert numpy.samples.dtype == compiled.samples.dtype == np.dtype(dtype)
    assert np.allclose(numpy.samples, compiled.samples, rtol=tolerance, atol=tolerance)
    assert numpy.rounds.equals(compiled.rounds)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("correlation", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dim", [1, 2, 3, 7, 8, 9, 16, 33])
@pytest.mark.parametrize("steps", [1, 4, 5, 11])
def test_langevin_kernels_have_the_same_bits_for_every_shape(dim, correlation, dtype, steps):
    rng = generator()
    jobs = 300 if dim < 9 else 20  # more than one block of 256 lanes
    eta = 1e-3 / np.arange(1, steps + 1)
    hessian = rng.normal(size=(CLIENTS, dim, dim))
    hessian = (hessian @ hessian.transpose(0, 2, 1)).astype(dtype)
    linear = rng.normal(size=(CLIENTS, dim)).astype(dtype)
    client = rng.integers(0, CLIENTS, jobs)
    private, shared = (reference.keys(1, s, client=client, replica=np.arange(jobs)) for s in (1, 2))
    arguments = (
        rng.normal(size=(jobs, dim)).astype(dtype), hessian, linear, client, private, shared,
        rng.uniform(1, 2, jobs).astype(dtype), np.dtype(dtype).type(correlation), eta.astype(dtype),
        np.sqrt(1.4 * eta).astype(dtype),
    )  # fmt: skip
    plain, compiled = arguments[0].copy(), arguments[0].copy()
    reference.langevin_quadratic(dim)(plain, *arguments[1:])
    cpu.langevin_quadratic(dim)(compiled, *arguments[1:])
    assert plain.dtype == compiled.dtype == dtype
    assert plain.tobytes() == compiled.tobytes()


def test_segment_sums_have_the_same_bits_in_numpy_and_compiled():
    rng = generator()
    starts = np.array([0, 3, 3, 10, 50])
    for dtype in (np.float32, np.float64):
        values, weights = rng.normal(size=(50, 7)).astype(dtype), rng.uniform(size=50)
        plain, compiled = (k.segment_sum(values, weights, starts) for k in (reference, cpu))
        assert plain.tobytes() == compiled.tobytes()
        assert not plain[1].any()

"""Keyed random numbers: published answers, the same bits compiled, and the laws of the draws.

Statistical statements hold at |z| < 5, or at a chi-square p-value above 1e-6, with fixed seeds.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedsim import rng
from fedsim.errors import InvalidInput
from fedsim.kernels.compiler import KernelDispatcher, dispatched_by
from fedsim.kernels.cpu import draws
from fedsim.rng import Draws, Stream, elementary

MAX = 0xFFFFFFFF
DTYPES = [np.float32, np.float64]
KNOWN = [  # counter, key, answer: the file kat_vectors of Random123, philox4x32 with 10 rounds
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MAX, MAX, MAX, MAX), (MAX, MAX), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def bits(array):
    return array.dtype.str, array.shape, array.tobytes()


def some_keys(rows, seed=7, stream=Stream.USER):
    return draws.keys(seed, stream, client=np.arange(rows))


def p_value(counts, expected=None):
    counts = np.asarray(counts, float)
    expected = np.full_like(counts, counts.sum() / counts.size) if expected is None else np.asarray(expected)
    return stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), counts.size - 1)


def z_score(values, mean, variance):
    return (np.mean(values, dtype=np.float64) - mean) / np.sqrt(variance / np.size(values))


# --- Philox ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counter, key, answer", KNOWN)
def test_philox_has_the_published_answers(counter, key, answer):
    assert tuple(int(w) for w in rng.philox(counter, key)) == answer


@pytest.mark.parametrize("counter, key, answer", KNOWN)
def test_compiled_philox_has_the_published_answers(counter, key, answer):
    words = [np.uint32(w) for w in (*counter, *key)]
    kernel = dispatched_by(KernelDispatcher)(lambda a, b, c, d, k, m: draws.philox(a, b, c, d, k, m))
    assert tuple(int(w) for w in kernel(*words)) == answer


def test_an_inner_function_is_not_called_from_python():
    with pytest.raises(TypeError, match="philox has no entry for Python"):
        draws.philox(*[np.uint32(0)] * 6)


def test_philox_broadcasts_over_arrays_of_counters():
    columns = [np.array([c[i] for c, _, _ in KNOWN], np.uint64) for i in range(4)]
    keys = [np.array([k[i] for _, k, _ in KNOWN], np.uint64) for i in range(2)]
    found = np.stack(rng.philox(tuple(columns), tuple(keys)), axis=-1)
    assert found.tolist() == [list(a) for _, _, a in KNOWN]


def test_a_key_is_philox_of_the_job_under_the_seed():
    seed, client, round, replica, visit = 0x299F31D0_A4093822, 11, 22, 33, 44
    key = rng.keys(seed, Stream.NOISE, client=client, round=round, replica=replica, visit=visit)
    expected = rng.philox((client, round, replica, visit << 8 | 1), (0xA4093822, 0x299F31D0))
    assert key.tolist() == [[int(w) for w in expected]]


# --- The compiled draws ----------------------------------------------------------------------------------

u32 = st.integers(0, MAX)
small = st.integers(0, 9)


@given(
    seed=st.integers(0, 2**64 - 1), stream=st.sampled_from(list(Stream)), replica=u32, round=u32,
    visit=st.integers(0, 2**24 - 1), clients=st.lists(u32, min_size=1, max_size=5),
)  # fmt: skip
def test_keys_have_the_same_bits_compiled(seed, stream, replica, round, visit, clients):
    job = {"replica": replica, "round": round, "visit": visit, "client": np.array(clients)}
    assert bits(rng.keys(seed, stream, **job)) == bits(draws.keys(seed, stream, **job))


@pytest.mark.parametrize("varying", [(), ("client",), ("replica", "visit"), ("replica", "client", "round", "visit")])
def test_keys_broadcast_scalars_against_columns(varying):
    job = {name: np.arange(6) * 3 if name in varying else 2 for name in ("replica", "client", "round", "visit")}
    plain, compiled = rng.keys(3, 1, **job), draws.keys(3, 1, **job)
    assert plain.shape == (6 if varying else 1, 4)
    assert bits(plain) == bits(compiled)


@given(rows=small, blocks=small, step=st.integers(0, 2**20), first=st.integers(0, 2**34))
def test_words_have_the_same_bits_compiled(rows, blocks, step, first):
    key = some_keys(rows)
    assert bits(rng.words(key, blocks, step, first)) == bits(draws.words(key, blocks, step, first))


@given(
    rows=st.sampled_from([1, 2, 3, 511, 512, 513]), lanes=st.integers(1, 17), step=st.integers(0, 2**20),
    dtype=st.sampled_from(DTYPES), call=st.integers(0, 2**20), seed=st.integers(0, 2**64 - 1),
)  # fmt: skip
def test_normals_have_the_same_bits_compiled(rows, lanes, step, dtype, call, seed):
    key = some_keys(rows, seed)
    assert bits(rng.normal(key, lanes, step, dtype, call)) == bits(draws.normal(key, lanes, step, dtype, call))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows, lanes", [(1, 5000), (3, 2049), (1000, 2), (5000, 1), (0, 3), (700, 784)])
def test_many_normals_have_the_same_bits_compiled(rows, lanes, dtype):
    key = some_keys(rows)
    for step in (0, 1, 2, 7):
        assert bits(rng.normal(key, lanes, step, dtype)) == bits(draws.normal(key, lanes, step, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_normals_have_the_same_bits_compiled_beyond_block_2_to_the_32(dtype):
    key, lanes = some_keys(2), 1000
    for step in (2**33 // lanes - 2, 2**33 // lanes + 1, 2**35 // lanes):
        assert bits(rng.normal(key, lanes, step, dtype)) == bits(draws.normal(key, lanes, step, dtype))


@given(rows=small, lanes=st.integers(1, 17), step=st.integers(0, 2**31), dtype=st.sampled_from(DTYPES))
def test_uniforms_have_the_same_bits_compiled(rows, lanes, step, dtype):
    key = some_keys(rows)
    assert bits(rng.uniform(key, lanes, step, dtype)) == bits(draws.uniform(key, lanes, step, dtype))


@given(rows=small, lanes=st.integers(1, 17), step=st.integers(0, 2**31), below=st.integers(1, MAX))
def test_integers_have_the_same_bits_compiled(rows, lanes, step, below):
    key = some_keys(rows)
    assert bits(rng.integers(key, lanes, below, step)) == bits(draws.integers(key, lanes, below, step))


@given(data=st.data(), rows=st.integers(1, 9), step=st.integers(0, 2**31))
def test_choices_have_the_same_bits_compiled(data, rows, step):
    population = np.array(data.draw(st.lists(st.integers(1, 40), min_size=rows, max_size=rows)))
    size = data.draw(st.integers(0, int(population.min())))
    key = some_keys(rows)
    assert bits(rng.choice(key, population, size, step)) == bits(draws.choice(key, population, size, step))


def test_a_draw_of_no_lanes_is_empty():
    """Run in a separate process: a wrong kernel writes outside an array."""
    code = (
        "import numpy as np; from fedsim.kernels.cpu import draws; from fedsim.rng import Draws; "
        "key = draws.keys(1, 1, client=np.arange(3)); "
        "shapes = [draws.normal(key, 0, 0, t).shape for t in ('float32', 'float64')]; "
        "shapes += [getattr(Draws(key), name)(*a).shape for name, a in "
        "(('uniform', (0,)), ('normal', (0,)), ('integers', (5, 0)), ('choice', (5, 0)))]; "
        "assert set(shapes) == {(3, 0)}, shapes"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


# --- Addresses ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lanes", [1, 2, 3, 5, 8])
def test_numbers_of_normals_continue_from_step_to_step(lanes, dtype):
    key = some_keys(4)
    together = rng.normal(key, 6 * lanes, 0, dtype)
    apart = np.concatenate([rng.normal(key, lanes, step, dtype) for step in range(6)], axis=1)
    assert bits(together) == bits(apart)


def test_a_row_does_not_depend_on_other_rows():
    key = some_keys(2000)
    for draw in (
        lambda k: draws.normal(k, 3, 5), lambda k: draws.uniform(k, 3, 5), lambda k: draws.choice(k, 9, 4, 5),
        lambda k: draws.integers(k, 3, 10, 5),
    ):  # fmt: skip
        all_rows = draw(key)
        for row in (0, 1, 511, 512, 1999):
            assert bits(all_rows[row : row + 1]) == bits(draw(key[row : row + 1]))


def test_a_million_jobs_have_a_million_different_keys():
    replica, client, round, stream = np.meshgrid(*(np.arange(k) for k in (10, 100, 100, 10)), indexing="ij")
    parts = [
        draws.keys(
            5,
            s + 1,
            replica=replica[..., s].ravel(),
            client=client[..., s].ravel(),
            round=round[..., s].ravel(),
        )
        for s in range(stream.shape[-1])
    ]
    keys = np.ascontiguousarray(np.concatenate(parts))
    assert len(keys) == 10**6
    assert len(np.unique(keys.view("V16"))) == 10**6


def test_visits_that_do_not_fit_into_a_key_are_refused():
    first = rng.keys(1, Stream.NOISE, visit=0)
    for module in (rng, draws):
        try:
            late = module.keys(1, Stream.NOISE, visit=2**24)
        except InvalidInput:
            continue
        assert late.tolist() != first.tolist()


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5])
@pytest.mark.parametrize("module", [rng, draws])
def test_a_seed_is_a_64_bit_integer(module, seed):
    with pytest.raises(InvalidInput, match=r"2\*\*64"):
        module.keys(seed, Stream.USER)


@pytest.mark.parametrize("module", [rng, draws])
def test_a_choice_larger_than_the_population_is_refused(module):
    with pytest.raises(InvalidInput, match="at most 3"):
        module.choice(some_keys(2), np.array([5, 3]), 4)


# --- Neighbouring addresses are uncorrelated ---------------------------------------------------------------

ROWS, LANES = 50_000, 20


def addressed(seed=1, stream=Stream.NOISE, replica=0, client=0, round=0, visit=0, step=0, call=0):
    """Return a million normals of 50,000 jobs near one address, and their words."""
    key = draws.keys(seed, stream, replica=replica + 10 * np.arange(ROWS), client=client, round=round, visit=visit)
    return draws.normal(key, LANES, step, np.float64, call), draws.words(key, LANES // 4, step)


AXES = {
    "seed": {"seed": 2}, "high half of the seed": {"seed": 1 + 2**32}, "stream": {"stream": Stream.SHARED},
    "replica": {"replica": 1}, "client": {"client": 1}, "round": {"round": 1}, "visit": {"visit": 1},
    "step": {"step": 1}, "client far away": {"client": 2**31},
    "round and client swapped": {"round": 3, "client": 0},
}  # fmt: skip


@pytest.mark.parametrize("axis", AXES)
def test_neighbouring_keys_are_uncorrelated(axis):
    base = {"client": 3} if "swapped" in axis else {}
    (x, v), (y, w) = addressed(**base), addressed(**AXES[axis])
    assert abs(z_score(x * y, 0, 1)) < 5
    assert abs(z_score((x**2 - 1) * (y**2 - 1), 0, 4)) < 5
    flipped = np.unpackbits((v ^ w).view(np.uint8))
    assert abs(z_score(flipped, 0.5, 0.25)) < 5


def test_calls_under_one_key_are_uncorrelated():
    x, y = addressed()[0], addressed(call=1)[0]
    assert abs(z_score(x * y, 0, 1)) < 5
    assert abs(z_score((x**2 - 1) * (y**2 - 1), 0, 4)) < 5


def test_lanes_and_rows_of_one_draw_are_uncorrelated():
    x = addressed()[0]
    for lag in range(1, 5):
        assert abs(z_score(x[:, lag:] * x[:, :-lag], 0, 1)) < 5
        assert abs(z_score(x[lag:] * x[:-lag], 0, 1)) < 5
        assert abs(z_score((x[:, lag:] ** 2 - 1) * (x[:, :-lag] ** 2 - 1), 0, 4)) < 5


# --- Laws -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=DTYPES, ids=["float32", "float64"])
def ten_million_normals(request):
    return draws.normal(some_keys(100_000), 100, 3, request.param)


def test_normals_have_the_moments_of_a_normal(ten_million_normals):
    x = ten_million_normals.astype(np.float64)
    power = np.ones_like(x)
    for k in range(1, 9):
        power *= x
        moment = 0.0 if k % 2 else float(np.prod(np.arange(1, k, 2)))
        second = float(np.prod(np.arange(1, 2 * k, 2)))
        assert abs(z_score(power, moment, second - moment**2)) < 5, f"moment {k}"


def test_normals_have_the_tails_of_a_normal(ten_million_normals):
    x = ten_million_normals.ravel()
    for beyond in (3, 4):
        p = 2 * stats.norm.sf(beyond)
        found = np.count_nonzero(np.abs(x) > beyond)
        assert abs(found - p * x.size) < 5 * np.sqrt(p * x.size), f"beyond {beyond} sigma"
    edges = np.array([-np.inf, -4.5, -4, -3.5, -3, 3, 3.5, 4, 4.5, np.inf])
    counts = np.diff([0, *(np.count_nonzero(x < e) for e in edges[1:-1]), x.size])
    assert p_value(counts, x.size * np.diff(stats.norm.cdf(edges))) > 1e-6


def test_normals_follow_the_normal_distribution_function(ten_million_normals):
    sample = ten_million_normals.ravel()[:2_000_000]
    assert stats.kstest(sample, "norm").statistic * np.sqrt(sample.size) < 2.5  # p = 7e-6


def test_the_two_normals_of_a_pair_are_independent(ten_million_normals):
    x = ten_million_normals.ravel()
    edges = stats.norm.ppf(np.arange(1, 8) / 8)
    cell = np.searchsorted(edges, x[0::2]) * 8 + np.searchsorted(edges, x[1::2])
    assert p_value(np.bincount(cell, minlength=64)) > 1e-6


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 4e-7), (np.float64, 1e-15)])
def test_normals_are_box_muller_to_rounding(dtype, tolerance):
    """Compare the polynomials with NumPy's logarithm, sine and cosine of the same words."""
    key = some_keys(5000)
    w = rng.words(key, 10).reshape(-1, 2 if dtype == np.float32 else 4)
    half = w.shape[1] // 2
    octant = (w[:, half] << np.uint32(2)).view(np.int32) * 2.0**-31
    if dtype == np.float32:
        unit = (((w[:, 0] >> 1).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-31)).astype(np.float64)
    else:
        unit, octant = rng.unit64(w[:, 0], w[:, 1]), octant + (w[:, 3] >> 11) * 2.0**-51
    angle = (w[:, half] >> 30) * (np.pi / 2) + octant * (np.pi / 4)
    exact = np.sqrt(-2 * np.log(unit))[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    found = rng.normal(key, exact.size // len(key), 0, dtype)
    assert np.abs(found.ravel() - exact.ravel()).max() < 6 * tolerance  # normals up to 6


@pytest.mark.parametrize("dtype", DTYPES)
def test_uniforms_are_uniform_and_strictly_inside_the_unit_interval(dtype):
    u = draws.uniform(some_keys(100_000), 20, 2, dtype)
    assert u.dtype == dtype
    assert 0 < u.min() < 1e-5
    assert 1 - 1e-5 < u.max() < 1
    assert p_value(np.bincount((u.ravel() * 1000).astype(int), minlength=1000)) > 1e-6
    assert abs(z_score(u, 0.5, 1 / 12)) < 5


@pytest.mark.parametrize("words", [(0, 0), (MAX, MAX)])
def test_extreme_words_stay_strictly_inside_the_unit_interval(words):
    high, low = (np.array([w], np.uint32) for w in words)
    for u in (rng.unit32(high), rng.unit64(high, low)):
        assert 0 < u[0] < 1


@pytest.mark.parametrize("below", [1, 2, 3, 7, 10, 1000])
def test_integers_are_uniform(below):
    drawn = draws.integers(some_keys(50_000), 20, below, 1)
    assert drawn.min() >= 0
    assert drawn.max() < below
    if below > 1:
        assert p_value(np.bincount(drawn.ravel(), minlength=below)) > 1e-6


@pytest.mark.parametrize("below", [3 * 2**30, 2**32 - 1])
def test_integers_of_large_ranges_are_uniform(below):
    drawn = draws.integers(some_keys(50_000), 20, below, 1)
    assert p_value(np.bincount((drawn * 12 // below).ravel(), minlength=12)) > 1e-6
    assert abs(z_score(drawn % 2, 0.5, 0.25)) < 5


def test_integers_may_have_a_bound_per_row_or_lane():
    bound = np.arange(1, 41)
    drawn = draws.integers(some_keys(5000), 40, bound)
    assert (drawn < bound).all()
    assert (drawn.max(axis=0) == bound - 1).all()


@pytest.mark.parametrize("population, size", [(4, 4), (4, 2), (5, 3), (6, 1)])
def test_choices_are_uniform_over_subsets_and_orders(population, size):
    drawn = draws.choice(some_keys(240_000), population, size, 4)
    code = (drawn * population ** np.arange(size)).sum(axis=1)
    counts = np.bincount(code, minlength=population**size)
    possible = [
        sum(v * population**i for i, v in enumerate(p)) for p in itertools.permutations(range(population), size)
    ]
    assert counts.sum() == counts[possible].sum()
    assert p_value(counts[possible]) > 1e-6


@given(population=st.integers(1, 300), data=st.data())
def test_a_choice_never_repeats(population, data):
    size = data.draw(st.integers(0, population))
    for row in draws.choice(some_keys(3), population, size, 1):
        assert len(set(row.tolist())) == size
        assert all(0 <= v < population for v in row)


# --- Draws of policies, devices and servers --------------------------------------------------


@pytest.mark.parametrize("source", [None, draws])
def test_every_call_draws_new_numbers_and_a_new_object_repeats_them(source):
    def three(rng_):
        return [
            rng_.uniform(3),
            rng_.uniform(3),
            rng_.normal(3),
            rng_.normal(3),
            rng_.integers(10**6, 3),
            rng_.choice(9, 3),
        ]

    first, again = three(Draws(some_keys(4), source=source)), three(Draws(some_keys(4), source=source))
    assert [bits(a) for a in first] == [bits(b) for b in again]
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[2], first[3])


def test_draws_are_the_same_from_both_sources():
    plain, compiled = Draws(some_keys(4)), Draws(some_keys(4), source=draws)
    for method, arguments in (("uniform", (5,)), ("normal", (5,)), ("integers", (7, 5)), ("choice", (9, 5))):
        assert bits(getattr(plain, method)(*arguments)) == bits(getattr(compiled, method)(*arguments))


def test_draws_have_one_row_per_key_and_none_for_a_single_one():
    many, one = Draws(some_keys(4)), Draws(some_keys(1), single=True)
    assert many.uniform().shape == (4,)
    assert many.normal(2).shape == (4, 2)
    assert many.choice(5, 3).shape == (4, 3)
    assert np.ndim(one.uniform()) == 0
    assert one.normal(2).shape == (2,)
    assert one.choice(5, 3).shape == (3,)
    assert np.ndim(one.integers(4)) == 0


def test_fused_multiply_add_rounds_once():
    generator = np.random.default_rng(0)
    a, b, c = (
        (generator.standard_normal(600) * 2.0 ** generator.integers(-9, 9, 600)).astype(np.float32) for _ in "abc"
    )
    c[:200] = -(a * b)[:200]  # all but the product's lost bits cancel
    c[200:400] = (a * b)[200:400] * np.float32(2.0**-25)  # near a tie
    for x, y, z, got in zip(a, b, c, elementary.fma32(a, b, c), strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        near = [got, np.nextafter(got, np.float32(-np.inf)), np.nextafter(got, np.float32(np.inf))]
        distances = [abs(Fraction(float(n)) - exact) for n in near]
        assert distances[0] == min(distances)
        if distances.count(distances[0]) > 1:
            assert got.view(np.int32) % 2 == 0  # a tie goes to the even neighbour


def test_float32_radius_is_the_square_root_of_the_logarithm():
    word = np.random.default_rng(1).integers(0, 2**32, 100_000, dtype=np.uint32)
    word[:3] = 0, 1, 2**32 - 1
    u = ((word >> np.uint32(1)).astype(np.float32) + np.float32(0.5)).astype(np.float64) / 2**31
    assert np.allclose(elementary.radius32(word), np.sqrt(-2 * np.log(u)), rtol=1.5e-7, atol=0)

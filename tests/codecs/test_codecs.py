"""Codecs: round trips, exact lengths, unbiased rounding and altered bytes.

Statistical statements hold at |z| < 5 with fixed seeds.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedsim import codecs, rng
from fedsim.codecs import QSGD, Elias, Identity
from fedsim.errors import CorruptData, InvalidInput, NonFinite
from fedsim.kernels.cache import jit
from fedsim.kernels.cpu import qsgd as compiled
from fedsim.kernels.reference import qsgd
from fedsim.kernels.reference import qsgd as reference

LEVELS = [1, 2, 3, 16, 255, 2**16]
ELIAS = [
    Elias(s, code=code, form=form)
    for s, code, form in product([1, 4, 300], ["omega", "gamma"], ["auto", "sparse", "dense"])
]
RANDOM = [*(QSGD(s) for s in LEVELS), *ELIAS]
EVERY = [Identity(), Identity("float32"), Identity("float64"), *RANDOM]
DTYPES = [np.float32, np.float64]


def keys(rows: int, seed: int = 1) -> np.ndarray:
    return rng.keys(seed, rng.Stream.CODEC, client=np.arange(rows))


def vectors(largest: float = 1e30, most: int = 40) -> st.SearchStrategy:
    """Vectors with zeros, denormals, equal and very unequal entries."""
    sizes = st.integers(1, most)
    single = hnp.arrays(
        np.float32, sizes, elements=st.floats(-float(np.float32(largest)), float(np.float32(largest)), width=32)
    )
    double = hnp.arrays(np.float64, sizes, elements=st.floats(-largest, largest))
    sparse = hnp.arrays(np.float64, sizes, elements=st.sampled_from([0.0, -0.0, 1.0, -3.0, 5e-324, 1e-310, 1e-40]))
    return st.one_of(single, double, sparse)


def gaussian(rows: int, d: int, dtype: type = np.float64, seed: int = 0) -> np.ndarray:
    return rng.normal(rng.keys(seed, rng.Stream.DATA, client=np.arange(rows)), d, dtype=dtype)


# --- Every codec -------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(codec=st.sampled_from(EVERY), v=vectors(), seed=st.integers(0, 2**64 - 1))
def test_quantise_equals_encoding_and_decoding_each_message(codec, v, seed):
    key = keys(1, seed)
    data = codec.encode(v, key)
    arrived, bits = codec.quantise(v[None], key)
    assert arrived.dtype == v.dtype
    assert bits.dtype == np.int64
    assert np.array_equal(arrived[0], codec.decode(data, len(v)).astype(v.dtype))
    assert bits[0] == codec.bits(v, key)
    assert len(data) == -(-bits[0] // 8)


@pytest.mark.parametrize("codec", EVERY, ids=repr)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_does_not_depend_on_other_rows(codec, dtype):
    values, key = gaussian(150, 21, dtype), keys(150)
    arrived, bits = codec.quantise(values, key)
    for step in (1, 7, 64):
        parts = [codec.quantise(values[i : i + step], key[i : i + step]) for i in range(0, 150, step)]
        assert np.array_equal(arrived, np.concatenate([a for a, _ in parts]))
        assert np.array_equal(bits, np.concatenate([b for _, b in parts]))


@pytest.mark.parametrize("codec", EVERY, ids=repr)
def test_a_batch_need_not_be_contiguous_and_is_not_changed(codec):
    values, key = gaussian(12, 18), keys(12)
    strided, before = np.asfortranarray(values)[::2], values.copy()
    arrived, bits = codec.quantise(strided, key[::2])
    assert np.array_equal(arrived, codec.quantise(values, key)[0][::2])
    assert np.array_equal(bits, codec.quantise(values, key)[1][::2])
    assert np.array_equal(values, before)


@pytest.mark.parametrize("codec", EVERY, ids=repr)
def test_an_empty_batch_has_no_messages(codec):
    arrived, bits = codec.quantise(np.zeros((0, 5)), keys(0))
    assert arrived.shape == (0, 5)
    assert bits.shape == (0,)


@pytest.mark.parametrize("codec", EVERY, ids=repr)
def test_the_zero_vector_is_decoded_without_negative_zeros(codec):
    for v in (np.zeros(9), -np.zeros(9, np.float32)):
        arrived, bits = codec.quantise(v[None], keys(1))
        assert np.array_equal(arrived, np.zeros((1, 9)))
        assert np.array_equal(codec.decode(codec.encode(v, keys(1)), 9), np.zeros(9))
        if isinstance(codec, QSGD | Elias):
            assert not np.signbit(arrived).any()
        if isinstance(codec, Elias):
            end = qsgd.elias_length(np.array(10), codec.code)
            assert bits[0] == 32 + {"sparse": end, "dense": 9, "auto": min(end, 9)}[codec.form]


@pytest.mark.parametrize("codec", [c for c in EVERY if c.fixed], ids=repr)
@pytest.mark.parametrize("dtype", DTYPES)
def test_length_equals_the_bits_of_a_fixed_codec(codec, dtype):
    for d in (1, 7, 50):
        v = gaussian(1, d, dtype)
        assert codec.quantise(v, keys(1))[1][0] == codec.length(d, dtype) == codec.bits(v[0])


@pytest.mark.parametrize("codec", EVERY, ids=repr)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_by_row_and_coordinate(codec, dtype, bad):
    values = gaussian(5, 11, dtype)
    values[3, 7] = bad
    with pytest.raises(NonFinite, match=f"row 3, coordinate 7 is {bad}"):
        codec.quantise(values, keys(5))
    with pytest.raises(NonFinite, match=f"coordinate 7 is {bad}"):
        codec.encode(values[3], keys(1))


@pytest.mark.parametrize("codec", [Identity("float32"), QSGD(4), Elias(4)], ids=repr)
def test_numbers_beyond_float32_are_refused(codec):
    for huge in (1e39, 1e200):
        with pytest.raises(NonFinite, match="exceed the largest float32"):
            codec.encode(np.full(3, huge), keys(1))
        with pytest.raises(NonFinite, match=r"row 1, .* exceed the largest float32"):
            codec.quantise(np.array([[1.0, 2.0], [huge, 1.0]]), keys(2))


def test_a_norm_beyond_float32_is_refused():
    v = np.full(4, 3e38, np.float32)
    with pytest.raises(NonFinite, match="exceed the largest float32"):
        QSGD(4).encode(v, keys(1))
    assert np.array_equal(Identity().quantise(v[None])[0][0], v)


@pytest.mark.parametrize("codec", RANDOM, ids=repr)
def test_stochastic_rounding_needs_a_key(codec):
    with pytest.raises(InvalidInput, match="no key"):
        codec.encode(np.ones(3))
    with pytest.raises(InvalidInput, match=r"uint32 \(2, 4\)"):
        codec.quantise(np.ones((2, 3)), keys(3))
    with pytest.raises(InvalidInput, match="uint32"):
        codec.encode(np.ones(3), np.arange(4))
    assert codec.encode(np.ones(3), keys(1)) == codec.encode(np.ones(3), keys(1)[0])


@pytest.mark.parametrize("codec", EVERY, ids=repr)
def test_values_are_real_numbers_of_the_right_shape(codec):
    for wrong in (np.ones((2, 2)), np.array(1.0), np.zeros(0), np.ones(3, complex), ["a"]):
        with pytest.raises(InvalidInput, match="real numbers"):
            codec.encode(wrong, keys(1))
    with pytest.raises(InvalidInput, match="real numbers"):
        codec.quantise(np.ones(3), keys(1))
    decoded = codec.decode(codec.encode([3, -4], keys(1)), 2)
    assert np.array_equal(decoded, codec.decode(codec.encode(np.array([3.0, -4.0]), keys(1)), 2))


def test_invalid_arguments_are_refused():
    for levels in (0, -1, 2.0, True, "4", 2**20 + 1):
        for codec in (QSGD, Elias):
            with pytest.raises(InvalidInput, match="levels="):
                codec(levels)
    with pytest.raises(InvalidInput, match="dtype='float16'"):
        Identity("float16")
    with pytest.raises(InvalidInput, match="code='delta'"):
        Elias(4, code="delta")
    with pytest.raises(InvalidInput, match="form='short'"):
        Elias(4, form="short")
    with pytest.raises(InvalidInput, match="form='auto'"):
        codecs.expected_elias_bits(np.ones(3), 4, form="auto")
    with pytest.raises(InvalidInput, match="d=0"):
        QSGD(4).decode(b"1234", 0)
    assert QSGD(np.int64(4)) == QSGD(4)


def test_importing_codecs_does_not_load_numba():
    code = "import sys, fedsim.codecs; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- Identity ----------------------------------------------------------------------------------------


@given(v=vectors())
def test_identity_is_lossless_and_float32_rounds_to_the_nearest(v):
    assert np.array_equal(Identity().decode(Identity().encode(v), len(v)), v)
    assert np.array_equal(Identity("float64").quantise(v[None])[0][0], v)
    short = Identity("float32").encode(v)
    assert Identity("float32").encode(Identity("float32").decode(short, len(v))) == short
    assert np.array_equal(Identity("float32").quantise(v[None])[0][0], v.astype(np.float32).astype(v.dtype))


def test_identity_sends_its_dtype_or_the_vectors():
    v = gaussian(1, 10)[0]
    assert (Identity().bits(v), Identity().bits(v.astype(np.float32))) == (640, 320)
    assert (Identity("float32").bits(v), Identity("float64").bits(v.astype(np.float32))) == (320, 640)
    assert Identity().decode(Identity().encode(v.astype(np.float32)), 10).dtype == np.float32
    assert Identity().encode(np.array([1.0, -2.0])) == bytes.fromhex("000000000000f03f00000000000000c0")
    assert Identity().encode(v.astype(">f4")) == Identity("float32").encode(v)
    assert (Identity().omega(9), Identity("float64").omega(9)) == (0, 0)
    error = Identity("float32").quantise(v[None])[0][0] - v
    assert 0 < error @ error <= Identity("float32").omega(10) * (v @ v)


# --- QSGD --------------------------------------------------------------------------------------------


def test_a_message_has_the_bits_written_out_by_hand():
    v = np.array([3.0, 0.0, -4.0, 0.0])  # norm 5, five levels: 3, 0, -4, 0 without chance
    data = QSGD(5).encode(v, keys(1))
    assert data == bytes.fromhex("0000a040") + bytes([0b0011_0000, 0b1100_0000])
    assert np.array_equal(QSGD(5).decode(data, 4), v)
    sparse, dense = (Elias(5, form=form).encode(v, keys(1)) for form in ("sparse", "dense"))
    # gap 1 = 0, +, 3 = 110; gap 2 = 100, -, 4 = 101000; gap 2 to the end
    assert sparse == bytes.fromhex("0000a040") + bytes([0b0_0_110_100, 0b1_101000_1, 0b00_000000])
    # 4 = 101000, +; 1 = 0; 5 = 101010, -; 1 = 0
    assert dense == bytes.fromhex("0000a0c0") + bytes([0b101000_0_0, 0b101010_1_0])
    assert [Elias(5, form=form).bits(v, keys(1)) for form in ("sparse", "dense", "auto")] == [50, 48, 48]
    assert Elias(5).encode(v, keys(1)) == dense


@pytest.mark.parametrize("levels", LEVELS)
def test_a_coordinate_takes_the_bits_of_every_level_and_a_sign(levels):
    assert codecs.fixed_width_bits(50, levels) == 32 + 50 * int(np.ceil(np.log2(2 * levels + 1)))
    assert QSGD(levels).length(50) == codecs.fixed_width_bits(50, levels)
    assert codecs.fixed_width_bits(1, 2**4) - 32 == 6  # "4 bits" of the papers


@pytest.mark.parametrize("levels", LEVELS)
def test_one_float32_coordinate_is_decoded_exactly(levels):
    v = np.concatenate([gaussian(1, 50, np.float32)[0], np.float32([3e38, 1e-38, -1e-42, 1e-45])])
    assert np.array_equal(QSGD(levels).quantise(v[:, None], keys(len(v)))[0], v[:, None])


def test_one_float64_coordinate_is_unbiased():
    v = np.full((200_000, 1), 1 / 3)
    arrived = QSGD(1).quantise(v, keys(len(v)))[0]
    up = float(np.nextafter(np.float32(1 / 3), np.float32(1)))
    up = up if np.float32(1 / 3) < 1 / 3 else float(np.float32(1 / 3))
    assert set(np.unique(arrived)) <= {0.0, up}
    assert (arrived == up).mean() > 0.9999


@given(v=vectors(largest=1e37))
def test_the_norm_is_rounded_up_so_that_no_coordinate_exceeds_it(v):
    norm = reference.wire_norm(v[None])[0]
    assert norm >= np.abs(v).max()
    scale = np.abs(v).max() or 1.0
    true = float(np.sqrt(np.sum((v.astype(np.longdouble) / scale) ** 2)) * np.longdouble(scale))
    assert float(norm) >= true * (1 - 1e-15)
    assert float(norm) <= true * (1 + 2**-22) + 2.0**-149
    assert compiled_norm(v) == norm


@jit
def compiled_norm(v):
    return compiled.wire_norm(v)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("levels", [1, 4, 100])
def test_messages_are_unbiased_and_have_the_variance_of_the_formula(dtype, levels):
    d, rows = 13, 40_000
    v = gaussian(1, d, dtype, seed=3)[0] * np.float32(2.5)
    arrived = QSGD(levels).quantise(np.tile(v, (rows, 1)), keys(rows, 4))[0].astype(np.float64)
    v = v.astype(np.float64)
    norm = float(reference.wire_norm(v[None])[0])
    f = levels * np.abs(v) / norm % 1
    error = arrived - v
    z = error.mean(axis=0) / np.sqrt((norm / levels) ** 2 * f * (1 - f) / rows)
    assert np.abs(z).max() < 5
    total, expected = (error**2).sum(axis=1), (norm / levels) ** 2 * (f * (1 - f)).sum()
    assert abs(total.mean() - expected) / (total.std() / np.sqrt(rows)) < 5
    assert expected <= QSGD(levels).omega(d) * (v @ v) * (1 + 1e-6)
    correlation = np.corrcoef(error.T) - np.eye(d)
    assert np.abs(correlation).max() * np.sqrt(rows) < 5.5  # coordinates are rounded independently


def test_messages_of_different_keys_are_rounded_differently():
    v = np.tile(gaussian(1, 64), (2, 1))
    arrived = QSGD(2).quantise(v, keys(2))[0]
    assert not np.array_equal(arrived[0], arrived[1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_messages_are_unbiased_if_the_norm_is_no_float32(dtype):
    v = np.full(2, 1e-45 if dtype == np.float32 else 3e-46, dtype)
    arrived = QSGD(1).quantise(np.tile(v, (50_000, 1)), keys(50_000))[0].astype(np.float64)
    norm, v = 2.0**-149 * (2 if dtype == np.float32 else 1), v.astype(np.float64)
    assert set(np.unique(arrived)) <= {0.0, norm}
    p = v / norm
    assert np.abs((arrived / norm).mean(axis=0) - p).max() / np.sqrt(p * (1 - p) / 50_000).max() < 5


def test_messages_are_unbiased_if_all_squares_underflow():
    v = np.array([1e-200, 0.0, -1e-300])
    for codec in (QSGD(2), Elias(2)):
        assert np.array_equal(codec.decode(codec.encode(v, keys(1)), 3), np.zeros(3))
    assert reference.wire_norm(v[None])[0] == np.float32(2.0**-149)
    assert compiled_norm(v) == 2.0**-149


def test_word_j_of_the_key_rounds_coordinate_j():
    v, key = np.array([[1.0, 0.5, 0.25, 0.125, 2.0, 0.75, 0.3]]), keys(1)
    r = reference.relative(v, reference.wire_norm(v), 3)[0]
    up = rng.words(key, 2)[0, :7] >= (1 - r % 1) * 2**32
    level = np.floor(r) + up
    assert np.allclose(QSGD(3).quantise(v, key)[0][0], level / 3 * np.linalg.norm(v), rtol=1e-6)
    assert 0 < up.sum() < 7


def test_omega_is_the_papers_factor():
    assert QSGD(4).omega(9) == 9 / 16
    assert QSGD(1).omega(9) == Elias(1).omega(9) == 3.0


# --- The compiled kernel -------------------------------------------------------------------------------


TWINS = [
    (1, None, "auto"),
    (2**20, None, "auto"),
    (1, "omega", "auto"),
    (7, "gamma", "sparse"),
    (300, "omega", "dense"),
    (2**20, "gamma", "auto"),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("d", [1, 2, 5, 8, 16, 17, 50, 63, 1000])
def test_the_compiled_kernel_has_the_bits_of_the_reference(dtype, d):
    values = gaussian(70, d, dtype) * (10.0 ** np.arange(-35, 35, dtype=dtype))[:, None]
    values[::3] *= gaussian(24, d, dtype, seed=9) > 1  # sparse ones
    for levels, code, form in TWINS:
        fast = compiled.quantise(values, keys(70), levels, code, form)
        slow = reference.quantise(values, keys(70), levels, code, form)
        assert fast[0].dtype == dtype
        assert np.array_equal(fast[0], slow[0])
        assert np.array_equal(fast[1], slow[1])


# --- Elias -------------------------------------------------------------------------------------------


def test_elias_lengths_are_the_published_ones():
    k = np.arange(1, 33)
    omega = [1, *[3] * 2, *[6] * 4, *[7] * 8, *[11] * 16, 12]
    assert qsgd.elias_length(k, "omega").tolist() == omega
    assert qsgd.elias_length(k, "gamma").tolist() == [2 * int(np.log2(n)) + 1 for n in k]
    for code in ("omega", "gamma"):
        assert qsgd.elias_lengths(32, code)[:33].tolist() == [0, *qsgd.elias_length(k, code)]
    edge = 2 ** np.arange(1, 40)
    assert np.array_equal(qsgd.floor_log2(edge), np.arange(1, 40))
    assert np.array_equal(qsgd.floor_log2(edge - 1), np.arange(0, 39))


@given(code=st.sampled_from(["omega", "gamma"]), numbers=st.lists(st.integers(1, 2**40 - 1), min_size=1))
def test_elias_codes_are_decoded(code, numbers):
    words, widths = qsgd.elias(np.array(numbers), code)
    data = qsgd.pack(words, widths)
    assert np.array_equal(widths, qsgd.elias_length(np.array(numbers), code))
    assert len(data) == -(-widths.sum() // 8)
    reader = qsgd.EliasReader(data, code, 2**40)
    assert [reader.number() for _ in numbers] == numbers
    reader.finish()


@given(
    v=vectors(),
    seed=st.integers(0, 99),
    levels=st.sampled_from([1, 3, 50]),
    code=st.sampled_from(qsgd.CODES),
)
def test_auto_sends_the_shorter_form_and_marks_it(v, seed, levels, code):
    auto, sparse, dense = (Elias(levels, code=code, form=form) for form in ("auto", "sparse", "dense"))
    key = keys(1, seed)
    assert auto.bits(v, key) == min(sparse.bits(v, key), dense.bits(v, key))
    assert auto.encode(v, key) in (sparse.encode(v, key), dense.encode(v, key))
    arrived = QSGD(levels).decode(QSGD(levels).encode(v, key), len(v))
    for codec in (sparse, dense):
        assert np.array_equal(auto.decode(codec.encode(v, key), len(v)), arrived)


def test_a_message_of_another_form_is_refused():
    v = np.array([1.0, 2.0])
    with pytest.raises(CorruptData, match="dense, not sparse"):
        Elias(4, form="sparse").decode(Elias(4, form="dense").encode(v, keys(1)), 2)


@pytest.mark.parametrize("code", ["omega", "gamma"])
@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("levels", [1, 2, 5])
def test_expected_bits_agree_with_all_roundings_of_a_short_vector(code, form, levels):
    v = np.array([0.3, -0.05, 0.0, 1.0, 0.2, -0.4, 0.01])
    r = reference.relative(v[None], reference.wire_norm(v[None]), levels)[0]
    low, up = np.floor(r).astype(int), r % 1
    expected = 0.0
    for rises in product([0, 1], repeat=len(v)):
        chance = np.prod(np.where(rises, up, 1 - up))
        expected += chance * (32 + reference.elias_bits(low + rises, code, form))
    assert codecs.expected_elias_bits(v, levels, code=code, form=form) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("levels", [1, 16])
def test_expected_bits_are_the_mean_of_the_messages(form, levels):
    v, rows = gaussian(1, 200, seed=5), 4000
    bits = Elias(levels, form=form).quantise(np.tile(v, (rows, 1)), keys(rows))[1]
    expected = codecs.expected_elias_bits(v[0], levels, form=form)
    assert abs(bits.mean() - expected) / (bits.std() / np.sqrt(rows)) < 5


def test_expected_bits_of_vectors_without_randomness_and_of_long_vectors():
    v = np.array([3.0, 0.0, -4.0, 0.0])
    assert codecs.expected_elias_bits(v, 5) == 50
    assert codecs.expected_elias_bits(np.zeros(4), 5) == 32 + 6
    assert codecs.expected_elias_bits(np.zeros(4), 5, form="dense") == 36
    one = np.zeros(100_000)
    one[-1] = 1.0
    assert codecs.expected_elias_bits(one, 1) == 32 + qsgd.elias_length(np.array(100_000), "omega") + 2 + 1


def test_elias_bound_is_the_formula_of_the_papers():
    s, d = 4, 100
    by_hand = (3 + 1.5 * np.log2(2 * (16 + 100) / (4 * (4 + 10)))) * 4 * (4 + 10) + 32
    assert codecs.elias_bound(d, s) == pytest.approx(by_hand)
    v = gaussian(1, 10_000, seed=8)[0]
    assert codecs.expected_elias_bits(v, 1) < codecs.elias_bound(10_000, 1)


# --- Altered bytes -------------------------------------------------------------------


@settings(max_examples=200)
@given(codec=st.sampled_from(EVERY), v=vectors(most=12), seed=st.integers(0, 99))
def test_a_message_cut_short_or_too_long_is_corrupt(codec, v, seed):
    data = codec.encode(v, keys(1, seed))
    wrong = [data[:size] for size in range(len(data))] + [data + b"\0", data + b"\xff", data + bytes(10_000)]
    for other in wrong:
        if isinstance(codec, Identity) and 2 * len(other) == len(data):
            continue  # half as long: it may be a vector of float32
        with pytest.raises(CorruptData):
            codec.decode(other, len(v))


@settings(max_examples=200)
@given(codec=st.sampled_from(EVERY), data=st.binary(max_size=60), d=st.integers(1, 40))
def test_any_bytes_decode_to_finite_numbers_or_are_corrupt(codec, data, d):
    try:
        v = codec.decode(data, d)
    except CorruptData:
        return
    assert v.shape == (d,)
    assert np.isfinite(v).all()


@settings(max_examples=200)
@given(
    codec=st.sampled_from(EVERY),
    v=vectors(most=12),
    seed=st.integers(0, 99),
    flips=st.lists(st.integers(0, 10**6), min_size=1, max_size=4),
)
def test_flipped_bits_decode_to_finite_numbers_or_are_corrupt(codec, v, seed, flips):
    data = bytearray(codec.encode(v, keys(1, seed)))
    for flip in flips:
        data[flip // 8 % len(data)] ^= 1 << flip % 8
    try:
        arrived = codec.decode(bytes(data), len(v))
    except CorruptData:
        return
    assert np.isfinite(arrived).all()


@pytest.mark.parametrize("code", ["omega", "gamma"])
@pytest.mark.parametrize("fill", [b"\x00", b"\xff", b"\x55"])
def test_a_forged_number_of_a_million_bits_is_refused_before_it_is_read(code, fill):
    for form in ("sparse", "dense"):
        head = np.float32(-1 if form == "dense" else 1).astype("<f4").tobytes()
        with pytest.raises(CorruptData):
            Elias(2**20, code=code).decode(head + fill * 100_000, 10_000)


def test_every_part_of_a_message_is_checked():
    good = QSGD(5).encode(np.array([3.0, 0.0, -4.0, 0.0]), keys(1))
    bits = bytearray(good)
    for where, what, match in [
        (3, 0xC0, "do not agree"),  # a negative norm
        (4, 0b0111_0000, "do not agree"),  # level 7 of 5
        (4, 0b0011_1000, "negative zero"),
    ]:
        bits[:] = good
        bits[where] = what
        with pytest.raises(CorruptData, match=match):
            QSGD(5).decode(bytes(bits), 4)
    with pytest.raises(CorruptData, match="norm nan"):
        QSGD(5).decode(b"\xff" * 6, 4)
    with pytest.raises(CorruptData, match="do not agree"):  # a level without a norm
        QSGD(5).decode(bytes(4) + good[4:], 4)
    with pytest.raises(CorruptData, match="padded"):
        QSGD(5).decode(QSGD(5).encode(np.ones(1), keys(1))[:-1] + b"\x5f", 1)
    head = bytes.fromhex("0000a040")
    with pytest.raises(CorruptData, match="coordinate 5"):  # a first gap of six: 101100
        Elias(5, form="sparse").decode(head + bytes([0b101100_00]), 4)
    with pytest.raises(CorruptData, match="continues"):  # the end, gap five (101010), then a one
        Elias(5, form="sparse").decode(head + bytes([0b101010_01]), 4)
    with pytest.raises(CorruptData, match="continues"):
        Elias(5, form="dense").decode(bytes.fromhex("0000a0c0") + bytes(2), 4)

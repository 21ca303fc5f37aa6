"""Every predicate rejects a planted error of its kind, and accepts what it should."""

from __future__ import annotations

import numpy as np
import pytest

import fedsim as fs
from fedsim.errors import InvalidInput
from fedsim.reproduce import (
    agreement,
    bounded,
    count,
    every,
    exact,
    exact_range,
    extreme,
    identical,
    interval,
    not_run,
    ordered,
    rate,
    some,
    superiority,
    within_range,
)


def draws(mean: float, number: int = 8, scale: float = 0.1, seed: int = 0) -> np.ndarray:
    return mean + scale * fs.rng.normal(fs.rng.keys(seed, fs.rng.Stream.DATA), number)[0]


# --- Superiority -----------------------------------------------------------------------------------------------------


def test_a_method_that_is_better_is_found_and_its_opposite_does_not_hold() -> None:
    a, b = draws(1.0, seed=1), draws(0.0, seed=2)
    assert superiority(a, b).verdict == "held"
    assert superiority(b, a).verdict == "not held"
    assert superiority(b, a, higher=False).verdict == "held"


def test_a_chain_that_never_moves_is_superior_to_none() -> None:
    still = np.full(8, 0.5)
    assert superiority(still, still).verdict == "not held"
    assert superiority(still, still, paired=True).verdict == "not held"
    assert superiority(still, draws(0.5, seed=3)).verdict != "held"
    assert extreme({"a": still, "b": still, "c": still}, "a").verdict == "not held"


def test_shuffled_labels_of_methods_are_superior_as_rarely_as_the_level_says() -> None:
    held = 0
    for trial in range(200):
        both = draws(0.0, 16, seed=100 + trial)
        held += superiority(both[:8], both[8:]).verdict == "held"
    assert held <= 12  # 5 expected of one side of a 95 % interval


@pytest.mark.parametrize("shift", [1, 2])
def test_rotated_labels_of_methods_are_not_held(shift: int) -> None:
    means = [1.0, 0.5, 0.0]
    values = {name: draws(means[(i + shift) % 3], seed=i) for i, name in enumerate("abc")}
    assert extreme(values, "a").verdict == "not held"


def test_a_margin_must_be_exceeded_by_the_interval() -> None:
    a, b = draws(1.0, seed=1), draws(0.0, seed=2)
    assert superiority(a, b, margin=0.5).verdict == "held"
    assert superiority(a, b, margin=1.5).verdict == "not held"


def test_an_interval_wider_than_the_published_effect_needs_more_seeds() -> None:
    a, b = draws(0.02, 6, seed=4), draws(0.0, 6, seed=5)
    unsure = superiority(a, b)
    assert unsure.verdict == "inconclusive"
    assert "seeds" in unsure.change
    assert superiority(a, b, effect=0.01).verdict == "not run"
    assert superiority(a, b, effect=1.0).verdict == "inconclusive"


def test_pairs_share_their_noise_and_say_so() -> None:
    noise = draws(0.0, scale=5.0, seed=6)
    a, b = noise + draws(1.0, seed=7), noise + draws(0.0, seed=8)
    assert superiority(a, b).verdict == "inconclusive"
    paired = superiority(a, b, paired=True)
    assert paired.verdict == "held"
    assert "paired" in paired.why


# --- Equivalence -----------------------------------------------------------------------------------------------------


def test_a_difference_just_above_the_tolerance_is_not_held() -> None:
    a = draws(0.0, 400, 0.01, seed=1)
    near, far = draws(0.08, 400, 0.01, seed=2), draws(0.11, 400, 0.01, seed=3)
    assert agreement(a, near, 0.1).verdict == "held"
    assert agreement(a, far, 0.1).verdict == "not held"
    assert agreement(far, a, 0.1).verdict == "not held"


def test_a_difference_just_above_the_tolerance_is_never_held_with_few_seeds() -> None:
    held = sum(agreement(draws(0, 5, seed=i), draws(0.11, 5, seed=500 + i), 0.1).verdict == "held" for i in range(100))
    assert held <= 5


def test_a_range_is_two_sided() -> None:
    values = draws(1.0, 20, 0.01, seed=1)
    assert within_range(values, 0.9, 1.1).verdict == "held"
    assert within_range(values, 1.02, 1.5).verdict == "not held"
    assert within_range(values, 0.5, 0.98).verdict == "not held"
    assert within_range(values, 0.5, float(values.mean())).verdict == "inconclusive"
    assert within_range(draws(1.0, 5, 5.0, seed=2), 0.9, 1.1).verdict == "not run"


# --- Rates and counts ------------------------------------------------------------------------------------------------

X = np.array([1.0, 10.0, 100.0, 1000.0])


@pytest.mark.parametrize(("exponent", "verdict"), [(-0.5, "held"), (-0.4, "not held"), (-0.61, "not held")])
def test_a_wrong_exponent_is_rejected(exponent: float, verdict: str) -> None:
    exact_values = 3 * X**exponent
    noisy = exact_values * np.exp(draws(0.0, 40, 0.02, seed=1).reshape(10, 4))
    for y in (exact_values, noisy):
        assert rate(X, y, at_least=-0.55, at_most=-0.45).verdict == verdict


def test_a_one_sided_rate_may_be_faster() -> None:
    assert rate(X, X**-1.0, at_most=-0.45).verdict == "held"
    assert rate(X, X**-0.3, at_most=-0.45).verdict == "not held"


def test_the_bits_of_another_codec_are_rejected() -> None:
    message = draws(0.0, 100)
    expected = fs.codecs.QSGD(levels=4).bits(message)
    for other in (fs.codecs.QSGD(levels=8).bits(message), fs.codecs.Identity().bits(message)):
        assert count(other, expected).verdict == "not held"
    assert count(expected, expected).verdict == "held"


def test_random_bits_are_counted_by_their_mean() -> None:
    bits = draws(1000.0, 20, 5.0, seed=1)
    assert count(bits, 1000, tolerance=10).verdict == "held"
    assert count(bits, 1050, tolerance=10).verdict == "not held"


# --- Exact values ----------------------------------------------------------------------------------------------------


def test_one_point_above_its_bound_or_nan_is_a_violation() -> None:
    bound = np.linspace(1.0, 2.0, 50)
    values = 0.9 * bound
    assert bounded(values, bound).verdict == "held"
    for wrong in (1.001 * bound[17], np.nan):
        planted = values.copy()
        planted[17] = wrong
        assert bounded(planted, bound).verdict == "not held"


def test_order_is_strict() -> None:
    assert ordered([3.0, 2.0, 1.0]).verdict == "held"
    assert ordered([1, 2, np.inf], increasing=True).verdict == "held"
    for wrong in ([3.0, 2.0, 2.0], [3.0, 3.0 * (1 - 1e-12), 1.0], [1.0, 2.0, 3.0], [np.inf, np.inf, 1.0], [1.0]):
        assert ordered(wrong).verdict == "not held"
    assert ordered([-1.0, -2.0]).verdict == "held"
    assert ordered([-1.0, -1.0]).verdict == "not held"


def test_an_identity_allows_rounding_only() -> None:
    a = np.array([1.0, 2.0])
    assert identical(a, a * (1 + 1e-12)).verdict == "held"
    assert identical(a, a * (1 + 1e-6)).verdict == "not held"
    assert identical(a, [1.0, np.nan]).verdict == "not held"


def test_a_number_is_compared_on_both_sides() -> None:
    assert [exact_range(v, 1, 2).verdict for v in (0.9, 1.5, 2.1, np.nan)] == [
        "not held",
        "held",
        "not held",
        "not held",
    ]


# --- Outcomes --------------------------------------------------------------------------------------------------------


def test_only_exact_values_refute() -> None:
    assert exact(False, "x").refuted("A13: one Hessian").verdict == "refuted"
    assert exact(True, "x").refuted("A13: one Hessian").verdict == "held"
    with pytest.raises(InvalidInput, match="sample of 8 seeds"):
        superiority(draws(0, seed=1), draws(1, seed=2)).refuted("A13")


def test_a_conjunction_needs_each_part_and_a_disjunction_one() -> None:
    yes, no, absent = exact(True, "1"), exact(False, "2"), not_run("no data")
    unsure = superiority(draws(0.02, seed=4), draws(0.0, seed=5))
    assert every({"a": yes, "b": yes}).verdict == "held"
    assert every({"a": yes, "b": no, "c": absent}).verdict == "not held"
    assert every({"a": yes, "b": absent, "c": unsure}).verdict == "not run"
    assert every({"a": yes, "b": unsure}).verdict == "inconclusive"
    assert some({"a": no, "b": yes}).verdict == "held"
    assert some({"a": no, "b": absent}).verdict == "not run"
    assert some({"a": no, "b": no}).verdict == "not held"
    assert every({"a": yes, "b": unsure}).seeds == 8


def test_fewer_than_five_seeds_are_not_run() -> None:
    four, five = draws(0, 4), draws(5, 5)
    for found in (superiority(five, four), within_range(four, -9, 9), agreement(four, five, 99)):
        assert found.verdict == "not run"
        assert "4 independent seeds" in found.why


def test_a_run_that_diverged_is_no_value() -> None:
    with pytest.raises(InvalidInput, match="1 of 5 values are not finite"):
        superiority([1, 2, 3, 4, np.nan], [0, 0, 0, 0, 0])


def test_an_interval_has_its_level() -> None:
    covered = 0
    for seed in range(400):
        _, low, high = interval(draws(0.0, 5, seed=1000 + seed))
        covered += low <= 0 <= high
    assert 0.91 <= covered / 400 <= 0.985

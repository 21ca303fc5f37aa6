"""Predicates: tests of values that give an `Outcome`.

Over independent seeds (one value a seed, at least five), by 95 % Student t intervals:

    superiority(a, b)             a is better than b, by more than `margin`
    extreme(values, "a")          "a" is better than every other, corrected for their number
    within_range(values, lo, hi)  a mean that the paper gives as a number
    agreement(a, b, tolerance)    two means differ by less than `tolerance`
    rate(x, y, at_most=...)       the exponent of x in y
    count(values, published)      a number of bits, rounds or steps

Of exact values, without sampling error:

    ordered(values)               strictly decreasing or increasing
    bounded(left, right)          left <= right everywhere
    identical(left, right)        equal up to rounding
    exact_range(value, lo, hi)    a number in a range
    rate, count                   with one value in place of one a seed

`published` is the paper's number as text; `effect` is the size of the published effect. An interval that is wider than
the effect is not inconclusive: it needs more seeds, and the claim counts as not run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.reproduce.judging import Outcome, Verdict, every

SEEDS = 5  # the least number of independent seeds
LEVEL = 0.95
ROUNDING = 1e-9  # relative; exact moments differ by more than this, or do not differ


def superiority(
    better: npt.ArrayLike, worse: npt.ArrayLike, *, higher: bool = True, margin: float = 0.0, paired: bool = False,
    effect: float | None = None, published: str = "", comparisons: int = 1,
) -> Outcome:  # fmt: skip
    """Test that the mean of `better` exceeds that of `worse` by more than `margin`; with `higher=False`, falls below.

    `paired=True` compares seed by seed, for runs that share their random numbers on purpose. With several
    `comparisons` the level is Bonferroni's.
    """
    a, b = _values(better), _values(worse)
    if few := _too_few(a, b):
        return few
    sign = 1.0 if higher else -1.0
    gain, low, high = _difference(sign * a, sign * b, paired, comparisons)
    verdict: Verdict = "held" if low > margin else "not held" if high <= margin else "inconclusive"
    ours = f"{_number(a.mean())} against {_number(b.mean())}: {'more' if higher else 'less'} by {_number(gain)}"
    outcome = _judged(verdict, ours, published, low, high, min(len(a), len(b)), gain - margin, effect)
    return outcome.because("The seeds are paired.") if paired else outcome


def extreme(
    values: Mapping[Any, npt.ArrayLike], best: object, *, higher: bool = True, paired: bool = False,
    effect: float | None = None, published: str = "",
) -> Outcome:  # fmt: skip
    """Test that values[best] is better than each of the others."""
    others = [name for name in values if name != best]
    return every(
        {
            f"{best} against {name}": superiority(
                values[best], values[name], higher=higher, paired=paired, effect=effect, published=published,
                comparisons=len(others),
            )
            for name in others
        }
    )  # fmt: skip


def within_range(values: npt.ArrayLike, low: float, high: float, *, published: str = "") -> Outcome:
    """Test that a mean is between two limits."""
    own = _values(values)
    if few := _too_few(own):
        return few
    mean, below, above = _interval(own)
    verdict: Verdict = (
        "held" if low <= below and above <= high else "not held" if above < low or below > high else "inconclusive"
    )
    distance = min(abs(mean - low), abs(mean - high))
    return _judged(verdict, _number(mean), published, below, above, len(own), distance, high - low)


def agreement(
    a: npt.ArrayLike, b: npt.ArrayLike, tolerance: float, *, paired: bool = False, published: str = ""
) -> Outcome:
    """Test that two means differ by less than `tolerance`, by the interval of their difference."""
    x, y = _values(a), _values(b)
    if few := _too_few(x, y):
        return few
    gap, low, high = _difference(x, y, paired, 1)
    inside, outside = -tolerance < low and high < tolerance, low >= tolerance or high <= -tolerance
    verdict: Verdict = "held" if inside else "not held" if outside else "inconclusive"
    ours = f"{_number(x.mean())} and {_number(y.mean())}: difference {_number(gap)}"
    outcome = _judged(verdict, ours, published, low, high, min(len(x), len(y)), tolerance - abs(gap), 2 * tolerance)
    return outcome.because("The seeds are paired.") if paired else outcome


def rate(
    x: npt.ArrayLike, y: npt.ArrayLike, *, at_least: float = -math.inf, at_most: float = math.inf, published: str = ""
) -> Outcome:
    """Test the exponent of x in y: the slope of log y in log x. `y` is (points,), exact, or (seeds, points)."""
    own = np.asarray(y, np.float64)
    slopes = _slopes(np.asarray(x, np.float64), np.atleast_2d(own))
    if own.ndim == 1:
        return exact_range(float(slopes[0]), at_least, at_most, published=published, name="exponent ")
    if few := _too_few(slopes):
        return few
    found = within_range(slopes, at_least, at_most, published=published)
    return Outcome(**{**vars(found), "ours": f"exponent {found.ours}"})


def count(values: npt.ArrayLike, published: float, *, tolerance: float = 0.0) -> Outcome:
    """Test a number of bits, rounds or steps against the paper's; one value, or values that agree, are exact."""
    own = _values(np.atleast_1d(values))
    if np.ptp(own) == 0:
        return exact_range(float(own[0]), published - tolerance, published + tolerance, published=f"{published:,g}")
    return within_range(own, published - tolerance, published + tolerance, published=f"{published:,g}")


def ordered(
    values: Mapping[Any, float] | npt.ArrayLike, *, increasing: bool = False, published: str = "", name: str = ""
) -> Outcome:
    """Test that exact values strictly decrease, or increase, beyond rounding; infinities may come last or first."""
    table = values if isinstance(values, Mapping) else dict(enumerate(np.asarray(values, np.float64).tolist()))
    own = np.array([float(value) for value in table.values()])
    small, large = (own[:-1], own[1:]) if increasing else (own[1:], own[:-1])
    strict = len(own) > 1 and bool(np.all(small * (1 + np.sign(small) * ROUNDING) < large))
    shown = ", ".join(_number(v) if not isinstance(values, Mapping) else f"{k}: {_number(v)}" for k, v in table.items())
    change = "two neighbours that are equal or in the other order" if strict else "strictly ordered values"
    return Outcome("held" if strict else "not held", f"{name}{shown}", published, change=change)


def bounded(left: npt.ArrayLike, right: npt.ArrayLike, *, published: str = "", rounding: float = 1e-12) -> Outcome:
    """Test that exact values are at most their bounds, element by element."""
    a, b = np.broadcast_arrays(np.asarray(left, np.float64), np.asarray(right, np.float64))
    if not a.size:
        raise InvalidInput("bounded: no values; give at least one")
    held = bool(np.all(a <= b + rounding * np.abs(b)))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(np.max(np.where(b > 0, a / b, np.where(a <= b, 0.0, np.inf))))
    ours = f"at most {ratio:.3g} of the bound, at {a.size:,} points"
    return Outcome("held" if held else "not held", ours, published, change="a point above the bound")


def identical(
    left: npt.ArrayLike, right: npt.ArrayLike, *, tolerance: float = ROUNDING, published: str = ""
) -> Outcome:
    """Test that exact values are equal up to a relative rounding error."""
    a, b = np.broadcast_arrays(np.asarray(left, np.float64), np.asarray(right, np.float64))
    if not a.size:
        raise InvalidInput("identical: no values; give at least one")
    gap, size = np.abs(a - b), np.maximum(np.abs(a), np.abs(b)).max()
    error = float(gap.max() / size) if gap.any() else 0.0  # NaN is above any tolerance
    ours = f"largest relative difference {error:.1e}, at {a.size:,} points"
    return Outcome("held" if error <= tolerance else "not held", ours, published, change=f"more than {tolerance:g}")


def exact_range(
    value: float, low: float = -math.inf, high: float = math.inf, *, published: str = "", name: str = ""
) -> Outcome:
    """Test that an exact value is between two limits."""
    held = low <= value <= high
    if math.isinf(low) or math.isinf(high):
        above = math.isinf(low) == held
        limits = f"{'above' if above else 'below'} {_number(high if math.isinf(low) else low)}"
    else:
        limits = f"{'outside' if held else 'within'} {_number(low)} to {_number(high)}"
    return Outcome("held" if held else "not held", f"{name}{_number(value)}", published, change=f"a value {limits}")


def exact(held: bool, ours: str, *, published: str = "", change: str = "another exact value") -> Outcome:
    """Return the outcome of an exact test that no other predicate expresses."""
    return Outcome("held" if held else "not held", ours, published, change=change)


def not_run(reason: str) -> Outcome:
    """Return the outcome of a judge whose runs are missing in this form of the figure."""
    return Outcome("not run", "", why=reason)


def interval(values: npt.ArrayLike, *, comparisons: int = 1) -> tuple[float, float, float]:
    """Return a mean and its 95 % Student t interval."""
    return _interval(_values(values), comparisons)


def _values(values: npt.ArrayLike) -> Array:
    own = np.asarray(values, np.float64)
    if own.ndim != 1:
        raise InvalidInput(f"values of shape {own.shape}: give one value per seed")
    if not np.isfinite(own).all():
        raise InvalidInput(f"{int((~np.isfinite(own)).sum())} of {len(own)} values are not finite; a run diverged")
    return own


def _too_few(*samples: Array) -> Outcome | None:
    fewest = min(map(len, samples))
    return not_run(f"{fewest} independent seeds; an interval needs {SEEDS}") if fewest < SEEDS else None


def _half(error: float, freedom: float, comparisons: int) -> float:
    from scipy.stats import t

    return float(t.ppf(1 - (1 - LEVEL) / (2 * comparisons), freedom)) * error if error > 0 else 0.0


def _interval(values: Array, comparisons: int = 1) -> tuple[float, float, float]:
    n = len(values)
    mean = float(values.mean())
    half = _half(float(values.std(ddof=1)) / math.sqrt(n), n - 1, comparisons)
    return mean, mean - half, mean + half


def _difference(a: Array, b: Array, paired: bool, comparisons: int) -> tuple[float, float, float]:
    """Return the difference of two means and its interval, paired or Welch's."""
    if paired:
        if len(a) != len(b):
            raise InvalidInput(f"paired=True: {len(a)} and {len(b)} values; give one pair per seed")
        return _interval(a - b, comparisons)
    gap = float(a.mean() - b.mean())
    u, v = float(a.var(ddof=1)) / len(a), float(b.var(ddof=1)) / len(b)
    freedom = (u + v) ** 2 / (u**2 / (len(a) - 1) + v**2 / (len(b) - 1)) if u + v > 0 else 1.0
    half = _half(math.sqrt(u + v), freedom, comparisons)
    return gap, gap - half, gap + half


def _slopes(x: Array, y: Array) -> Array:
    if y.shape[1] != len(x) or len(x) < 3 or not (x > 0).all() or not (y > 0).all():
        raise InvalidInput("rate: give at least three positive points, and a positive value at each of them")
    centred = np.log(x) - np.log(x).mean()
    return np.asarray(np.log(y) @ centred / (centred @ centred))


def _judged(
    verdict: Verdict, ours: str, published: str, low: float, high: float, seeds: int, distance: float,
    effect: float | None,
) -> Outcome:  # fmt: skip
    """Return an outcome with its interval; an interval wider than the effect is not run, since it needs more seeds."""
    half = (high - low) / 2
    needed = math.ceil(seeds * (half / distance) ** 2) if distance else 0
    change = {
        "held": "an interval that crosses the limit",
        "not held": "an interval beyond the limit",
        "inconclusive": f"about {max(needed, seeds + 1):,} seeds, if the mean stays" if distance else "more seeds",
    }[verdict]
    shown = f"{ours} (95 % {_number(low)} to {_number(high)}, {seeds} seeds)"
    if verdict == "inconclusive" and effect is not None and high - low >= abs(effect):
        why = f"The interval is wider than the published effect of {_number(abs(effect))}."
        return Outcome("not run", shown, published, (low, high), seeds, change, why)
    return Outcome(verdict, shown, published, (low, high), seeds, change)


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 and value == round(value) else f"{value:.3g}"

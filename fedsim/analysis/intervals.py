"""Confidence intervals: Wilson for a probability, bootstrap for a median, Student's t for a mean.

Medians and means of fewer than FEWEST values have no interval; its ends are NaN.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array

RESAMPLES = 2000
LEVEL = 0.95
MANY = 200
FEWEST = 5  # the range of n values covers the median with probability 1 - 2**(1 - n), which is 0.94 for five


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's 95 % interval for a probability from `hits` in `count` trials."""
    middle = (hits + z * z / 2) / (count + z * z)
    half = z / (count + z * z) * math.sqrt(hits * (count - hits) / count + z * z / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


def medians(values: npt.ArrayLike, resamples: int = RESAMPLES, seed: int = 0, group: int = 0) -> Array:
    """Return the medians of bootstrap samples of `values`, which may be infinite: (resamples,).

    Different values of `group` give independent bootstraps.
    """
    values = np.asarray(values, np.float64)
    key = rng.keys(seed, rng.Stream.RESAMPLE, replica=np.arange(resamples), client=group)
    drawn = values[rng.integers(key, len(values), len(values))]
    ordered = np.sort(drawn, axis=1)
    low, high = ordered[:, (len(values) - 1) // 2], ordered[:, len(values) // 2]
    return np.where(low == high, low, (low + high) / 2)  # avoids inf - inf


def middle(values: Array, level: float = LEVEL) -> tuple[float, float]:
    """Return the percentile interval of resampled values; its ends may be infinite."""
    ordered = np.sort(values)
    below = (1 - level) / 2
    return float(ordered[int(below * (len(ordered) - 1))]), float(ordered[math.ceil((1 - below) * (len(ordered) - 1))])


def median_interval(values: npt.ArrayLike, seed: int = 0) -> tuple[float, float, float]:
    """Return the median and its 95 % percentile bootstrap interval, NaN below FEWEST values."""
    values = np.asarray(values, np.float64)
    if not len(values):
        return math.nan, math.nan, math.nan
    ordered = np.sort(values)
    pair = ordered[(len(values) - 1) // 2], ordered[len(values) // 2]
    centre = float(pair[0] if pair[0] == pair[1] else (pair[0] + pair[1]) / 2)
    if len(values) < FEWEST:
        return centre, math.nan, math.nan
    if len(values) > MANY:  # order statistics, the limit of the bootstrap
        half = 1.96 * math.sqrt(len(values)) / 2
        ends = math.floor((len(values) - 1) / 2 - half), math.ceil((len(values) - 1) / 2 + half)
        return centre, float(ordered[ends[0]]), float(ordered[ends[1]])
    return (centre, *middle(medians(values, seed=seed)))


def mean_interval(values: npt.ArrayLike, level: float = LEVEL) -> tuple[float, float, float]:
    """Return the mean and Student's 95 % interval, NaN below FEWEST values."""
    from scipy.stats import t

    values = np.asarray(values, np.float64)
    mean: Any = values.mean()
    if len(values) < FEWEST:
        return float(mean), math.nan, math.nan
    half = float(t.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    return float(mean), float(mean) - half, float(mean) + half

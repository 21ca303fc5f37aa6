"""Has the chain converged, and how many independent draws is it worth: split R-hat and effective sample size.

Both take chains (draws, chains, d), cut each chain into a first and a last half, and return one number per
coordinate (Gelman et al., Bayesian Data Analysis, 3rd ed., 11.4 and 11.5). NaN in a coordinate gives NaN. The effective
sample size is the *bulk* one, of ranks turned into normal scores, so that heavy tails do not matter (Vehtari, Gelman,
Simpson, Carpenter and Buerkner, Bayesian Analysis 2021): ArviZ's `ess(method="bulk")`, except where no chain has moved.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import numbers
from fedsim.errors import InvalidInput

MIN_DRAWS = 4  # two halves of two draws, the least that has a variance


def _halves(chains: npt.ArrayLike) -> tuple[Array, Array]:
    chains = np.ascontiguousarray(numbers("chains", chains))  # sums follow the layout, bits must not
    if chains.ndim != 3 or chains.shape[1] < 1:
        raise InvalidInput(f"chains have shape {chains.shape}; they must be (draws, chains, d)")
    if len(chains) < MIN_DRAWS:
        raise InvalidInput(f"chains hold {len(chains)} draws; split chains need at least {MIN_DRAWS}")
    half = len(chains) // 2
    return chains[:half], chains[-half:]


def split_rhat(chains: npt.ArrayLike) -> Array:
    """sqrt(pooled variance / variance within half chains), (d,); near 1 where the chains agree."""
    halves = _halves(chains)
    draws = len(halves[0])
    means = np.concatenate([half.mean(axis=0) for half in halves])  # (2 chains, d)
    within = np.concatenate([half.var(axis=0, ddof=1) for half in halves]).mean(axis=0)
    between = draws * means.var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # chains that never move: 0/0 is NaN, x/0 infinite
        return np.asarray(np.sqrt((between / within + draws - 1) / draws))


def ess(chains: npt.ArrayLike) -> Array:
    """Bulk effective sample size, (d,); NaN where no chain has moved, which tells nothing about the law."""
    first, last = _halves(chains)
    moved = np.any(np.concatenate([first, last]) != first[0], axis=(0, 1))  # (d,)
    return np.array(
        [
            _ess_of_coordinate(np.concatenate([first[:, :, j].T, last[:, :, j].T])) if moved[j] else np.nan
            for j in range(first.shape[2])
        ]
    )


def running(history: Array) -> Array | None:
    """The history (draws, chains, d) of the chains that have not stopped; None while it is too short to split."""
    if len(history) < MIN_DRAWS:
        return None
    kept = ~np.isnan(history[-1]).all(axis=1)
    return history[:, kept] if kept.any() else None


def _ess_of_coordinate(x: Array) -> float:  # x: (2 chains, half the draws)
    if not np.isfinite(x).all():
        return float("nan")
    x = _normal_scores(x)
    draws = x.shape[1]
    means = x.mean(axis=1)
    within = _autocovariance(x - means[:, None])
    mean_var = within[0] * draws / (draws - 1.0)
    var_plus = within[0] + means.var(ddof=1)
    rho = 1.0 - (mean_var - within) / var_plus
    rho[0] = 1.0
    return float(x.size / max(_autocorrelation_time(rho), 1.0 / math.log10(x.size)))


def _normal_scores(x: Array) -> Array:
    """Ranks among all draws of all chains, ties averaged, as quantiles of N(0, 1) (Blom's formula)."""
    from scipy.special import ndtri

    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2
    return np.asarray(ndtri((rank - 0.375) / (x.size + 0.25))[place.reshape(x.shape)])


def _autocovariance(centred: Array) -> Array:
    """Mean over chains of the biased autocovariance at every lag; averaging first saves inverse transforms."""
    draws = centred.shape[1]
    padded = 1 << (2 * draws - 1).bit_length()  # no wrap-around, and a length that is fast
    power = (np.abs(np.fft.rfft(centred, padded, axis=1)) ** 2).mean(axis=0)
    return np.asarray(np.fft.irfft(power, padded)[:draws] / draws)


def _autocorrelation_time(rho: Array) -> float:
    """Geyer's initial monotone sequence over the sums of neighbouring autocorrelations.

    Pairs count while their sum is positive, each at most its predecessor; of the pair that ends the
    sequence only the even half counts, and only once.
    """
    examined = max((len(rho) - 1) // 2, 1)
    pairs = rho[0 : 2 * examined : 2] + rho[1 : 2 * examined : 2]
    ends = np.flatnonzero(pairs <= 0.0)
    end = int(ends[0]) if len(ends) else examined - 1
    tail = rho[2 * end] if pairs[end] >= 0.0 else max(rho[2 * end], 0.0)
    return float(-1.0 + 2.0 * np.minimum.accumulate(pairs[:end]).sum() + tail)

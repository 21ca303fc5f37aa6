"""Diagnostics of chains: R-hat and the effective sample sizes of bulk and tails (`ess`, `ess_tail`).

All take chains (draws, chains, d), split each chain into halves, and return one number per coordinate. They are those
of Vehtari, Gelman, Simpson, Carpenter and Buerkner (Bayesian Analysis, 2021), the defaults of ArviZ. R-hat is the
larger of the R-hats of rank-normalised draws and of rank-normalised folded draws: it finds chains that differ in
location or in scale, whatever their tails. The bulk effective sample size is that of rank-normalised draws, the tail
one the smaller of those of the events "at most the 5 % quantile" and "at most the 95 % quantile". NaN in a coordinate
gives NaN. Unlike in ArviZ, R-hat of a single chain compares its halves, and draws that never moved have no effective
sample size.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import check_array
from fedsim.errors import InvalidInput

TAILS = (0.05, 0.95)
MIN_DRAWS = 4  # two halves of two draws, the least that has a variance
RHAT = 1.01  # above it chains have not mixed (Vehtari et al. 2021, section 4)
ESS = 400  # below it R-hat and quantiles are unreliable (the same)


def _halves(chains: npt.ArrayLike) -> tuple[Array, Array]:
    chains = np.ascontiguousarray(check_array("chains", chains))  # so that the bits do not depend on the layout
    if chains.ndim != 3 or chains.shape[1] < 1:
        raise InvalidInput(f"chains have shape {chains.shape}; they must be (draws, chains, d)")
    if len(chains) < MIN_DRAWS:
        raise InvalidInput(f"chains hold {len(chains)} draws; split chains need at least {MIN_DRAWS}")
    half = len(chains) // 2
    return chains[:half], chains[-half:]


def split_rhat(chains: npt.ArrayLike) -> Array:
    """Return the larger of R-hat and folded R-hat, (d,); near 1 where the chains agree in location and scale.

    NaN where all draws are equal, infinite where each chain is constant and chains differ.
    """
    first, last = _halves(chains)
    return np.array([_rhat_of_coordinate(_split(first, last, j)) for j in range(first.shape[2])])


def ess(chains: npt.ArrayLike) -> Array:
    """Return the bulk effective sample size, (d,); NaN where no chain has moved."""
    first, last = _halves(chains)
    moved = _moved(first, last)
    return np.array([_ess_of_coordinate(_split(first, last, j)) if moved[j] else np.nan for j in range(first.shape[2])])


def ess_tail(chains: npt.ArrayLike) -> Array:
    """Return the tail effective sample size, (d,), of the 5 % and the 95 % quantile; NaN where no chain has moved.

    The quantiles are of all draws, including the middle one of an odd number.
    """
    first, last = _halves(chains)
    draws, moved = np.asarray(chains, np.float64), _moved(first, last)
    found = np.full(first.shape[2], np.nan)
    for j in np.flatnonzero(moved).tolist():
        halves = _split(first, last, j)
        if np.isfinite(draws[:, :, j]).all():
            found[j] = min(_ess_of(halves <= level) for level in np.quantile(draws[:, :, j], TAILS))
    return found


def running(history: Array) -> Array | None:
    """Return the history (draws, chains, d) of the running chains; None if it is too short to split."""
    if len(history) < MIN_DRAWS:
        return None
    active = ~np.isnan(history[-1]).all(axis=1)
    return history[:, active] if active.any() else None


def _split(first: Array, last: Array, j: int) -> Array:
    return np.concatenate([first[:, :, j].T, last[:, :, j].T])  # (2 chains, half the draws)


def _moved(first: Array, last: Array) -> Array:
    return np.asarray(np.any(np.concatenate([first, last]) != first[0], axis=(0, 1)))  # (d,)


def _rhat_of_coordinate(x: Array) -> float:
    if not np.isfinite(x).all():
        return float("nan")
    folded = np.abs(x - np.median(x))
    return float(np.fmax(_rhat_of(_normal_scores(x)), _rhat_of(_normal_scores(folded))))


def _rhat_of(x: Array) -> float:
    """Return sqrt(pooled variance / variance within half chains); NaN for equal numbers."""
    if (x == x[:, :1]).all():  # compares the draws themselves, since means are rounded
        return float("nan") if (x == x[0, 0]).all() else float("inf")
    draws = x.shape[1]
    within, between = x.var(axis=1, ddof=1).mean(), draws * x.mean(axis=1).var(ddof=1)
    return float(np.sqrt((between / within + draws - 1) / draws))


def _ess_of_coordinate(x: Array) -> float:
    return _ess_of(_normal_scores(x)) if np.isfinite(x).all() else float("nan")


def _ess_of(x: Array) -> float:
    if (x == x[0, 0]).all():  # a constant is known exactly
        return float(x.size)
    x = np.asarray(x, np.float64)
    draws = x.shape[1]
    means = x.mean(axis=1)
    within = _autocovariance(x - means[:, None])
    mean_var = within[0] * draws / (draws - 1.0)
    var_plus = within[0] + means.var(ddof=1)
    rho = 1.0 - (mean_var - within) / var_plus
    rho[0] = 1.0
    return float(x.size / max(_autocorrelation_time(rho), 1.0 / math.log10(x.size)))


def _normal_scores(x: Array) -> Array:
    """Return ranks among all draws of all chains, ties averaged, as quantiles of N(0, 1) (Blom's formula)."""
    from scipy.special import ndtri

    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2
    return np.asarray(ndtri((rank - 0.375) / (x.size + 0.25))[place.reshape(x.shape)])


def _autocovariance(centred: Array) -> Array:
    """Return the mean over chains of the biased autocovariance at every lag, with one inverse transform."""
    draws = centred.shape[1]
    padded = 1 << (2 * draws - 1).bit_length()  # no wrap-around, and a fast length
    power = (np.abs(np.fft.rfft(centred, padded, axis=1)) ** 2).mean(axis=0)
    return np.asarray(np.fft.irfft(power, padded)[:draws] / draws)


def _autocorrelation_time(rho: Array) -> float:
    """Return Geyer's initial monotone sequence estimate over the sums of neighbouring autocorrelations.

    Pairs count while their sum is positive, each at most its predecessor; of the last pair only the even half counts,
    once.
    """
    examined = max((len(rho) - 1) // 2, 1)
    pairs = rho[0 : 2 * examined : 2] + rho[1 : 2 * examined : 2]
    ends = np.flatnonzero(pairs <= 0.0)
    end = int(ends[0]) if len(ends) else examined - 1
    tail = rho[2 * end] if pairs[end] >= 0.0 else max(rho[2 * end], 0.0)
    return float(-1.0 + 2.0 * np.minimum.accumulate(pairs[:end]).sum() + tail)

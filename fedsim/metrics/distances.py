"""Distances between laws: Gaussian Wasserstein-2, marginal Wasserstein-1, and the error of an HPD threshold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import as_float, check_array, check_float
from fedsim.errors import InvalidInput
from fedsim.text import short_str

_ASYMMETRY = 1e-8  # relative, far above the asymmetry of repeated rounding
_CLOSE = 1e-4  # squared and relative; above it a difference of traces has twelve digits
_WIDE = 16  # dimensions


def factor(covariance: npt.ArrayLike) -> Array:
    """Return A (d, d) with A A' = covariance; eigenvalues that are negative by rounding count as zero."""
    covariance = check_array("covariance", covariance)
    if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
        raise InvalidInput(f"a covariance has shape {covariance.shape}; it must be (d, d)")
    if not np.isfinite(covariance).all():
        raise InvalidInput("a covariance contains NaN or infinity; all entries must be finite")
    tolerance = _ASYMMETRY * np.abs(covariance).max(initial=0.0)
    if np.abs(covariance - covariance.T).max(initial=0.0) > tolerance:
        raise InvalidInput("a covariance is not symmetric; pass (C + C.T) / 2")
    values, vectors = np.linalg.eigh(covariance)
    if values.min(initial=0.0) < -tolerance:
        raise InvalidInput(f"a covariance has the eigenvalue {values.min():.3g}; all must be zero or more")
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def sample_factors(samples: Array) -> tuple[Array, Array]:
    """Return means (k, d) and A (k, d, min(d, n)) with A A' the ddof-1 covariances of `samples` (k, n, d)."""
    count, dim = samples.shape[1:]
    mean = samples.sum(axis=1) / count
    centred = (samples - mean[:, None]) / np.sqrt(count - 1)
    if count <= dim:
        return mean, centred.swapaxes(1, 2)
    values, vectors = np.linalg.eigh(centred.swapaxes(1, 2) @ centred)
    return mean, vectors * np.sqrt(np.maximum(values, 0.0))[:, None]


def w2_of_factors(shift: Array, left: Array, right: Array) -> Array:
    """Return W2 (k,) of Gaussians with means `shift` (k, d) apart and covariances left left' and right right' (d, d).

    tr(C1 + C2 - 2 (C2^{1/2} C1 C2^{1/2})^{1/2}) is the least |left O - right|^2 over rotations O. Subtracting
    before squaring avoids cancellation when the laws are close. Covariances of different rank rarely are close, so that
    singular values suffice, which saves time in many dimensions.
    """
    crossed = left.swapaxes(1, 2) @ right
    if left.shape[2] < right.shape[1] >= _WIDE:
        traces = _squared(left) + _squared(right[None])
        apart = traces - 2 * np.linalg.svd(crossed, compute_uv=False).sum(axis=1)
        if (apart > _CLOSE * traces).all():
            return np.asarray(np.sqrt(_squared(shift) + apart))
    u, _, vt = np.linalg.svd(crossed, full_matrices=False)
    return np.asarray(np.sqrt(_squared(shift) + _squared(left @ (u @ vt) - right)))


def _squared(rows: Array) -> Array:
    """Return |row|^2 of each row, with bits that do not depend on the number of rows."""
    return np.array([np.vdot(row, row) for row in rows])


def gaussian_w2(mean1: npt.ArrayLike, cov1: npt.ArrayLike, mean2: npt.ArrayLike, cov2: npt.ArrayLike) -> float:
    """Return the Wasserstein-2 distance (not squared) between N(mean1, cov1) and N(mean2, cov2)."""
    shift = check_array("mean1", mean1, 1, finite=True)
    other = check_array("mean2", mean2, 1, finite=True)
    shift = shift - other if shift.shape == other.shape else np.empty(0)
    left, right = factor(cov1), factor(cov2)
    if not shift.shape == left.shape[:1] == right.shape[:1]:
        raise InvalidInput(
            f"gaussian_w2 got means of shape {shift.shape} and covariances {left.shape} and {right.shape}; "
            "give equal dimensions"
        )
    return float(w2_of_factors(shift[None], left[None], right)[0])


def w2_floor(covariance: npt.ArrayLike, replicas: float) -> float:
    """Return the root mean square of `w2` for perfect Gaussian samples, to leading order in 1/replicas.

    The error of a Gaussian fitted to R replicas is tr(C)/R in the mean and, in eigenvalues l of C, by
    1/(2(R-1)) sum_ij (1 + [i=j]) l_i l_j / (l_i + l_j) in the covariance.
    """
    remedy = "a covariance needs two; use at least 2"
    replicas = check_float("w2_floor: {} replicas", replicas, 2, remedy=remedy)
    values = (factor(covariance) ** 2).sum(axis=0)
    pairs = values[:, None] + values
    ratio = np.divide(np.outer(values, values), pairs, out=np.zeros_like(pairs), where=pairs > 0)
    spread = (ratio.sum() + np.trace(ratio)) / (2 * (replicas - 1))
    return float(np.sqrt(values.sum() / replicas + spread))


def mean_floor(covariance: npt.ArrayLike, count: float) -> float:
    """Return the root mean square of `mean_error` for n perfect samples: sqrt(tr(C) / n)."""
    return float(np.sqrt(np.trace(np.asarray(covariance, np.float64)) / count))


def covariance_floor(covariance: npt.ArrayLike, count: float) -> float:
    """Return the root mean square of `covariance_error` for n perfect Gaussian samples.

    Entries of a sample covariance vary by (C_ii C_jj + C_ij^2) / (n - 1): |error|^2 is (tr(C)^2 + |C|^2) / (n - 1).
    """
    covariance = np.asarray(covariance, np.float64)
    return float(np.sqrt(((np.trace(covariance) / np.linalg.norm(covariance)) ** 2 + 1) / (count - 1)))


def marginal_w1(samples: npt.ArrayLike, reference: npt.ArrayLike) -> float:
    """Return ME: the mean over coordinates of the Wasserstein-1 distance between marginals, (n, d) against (m, d)."""
    return w1_to_sorted(columns(samples), np.sort(columns(reference), axis=0))


def columns(samples: npt.ArrayLike) -> Array:
    """Return samples as finite float64 (n, d); (n,) is one coordinate."""
    samples = check_array("samples", samples)
    samples = samples[:, None] if samples.ndim == 1 else samples
    if samples.ndim != 2 or 0 in samples.shape:
        raise InvalidInput(f"samples have shape {samples.shape}; marginal_w1 compares (n, d) with n, d >= 1")
    if not np.isfinite(samples).all():
        raise InvalidInput("samples contain NaN or infinity; marginal_w1 compares finite numbers only")
    return samples


def w1_to_sorted(samples: Array, reference: Array) -> float:
    """Return `marginal_w1` for a `reference` with sorted columns."""
    (n, dim), (m, reference_dim) = samples.shape, reference.shape
    if dim != reference_dim:
        raise InvalidInput(f"marginal_w1 got {dim} and {reference_dim} coordinates; give equally many")
    samples = np.sort(samples, axis=0)
    if n == m:
        return float(np.abs(samples - reference).mean())
    # Both quantile functions are constant between multiples of 1/n and 1/m; integers count 1/(nm) exactly.
    edges = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)
    widths = np.diff(edges, prepend=0) / (n * m)
    gaps = np.abs(samples[(edges - 1) // m] - reference[(edges - 1) // n])
    return float((widths @ gaps).mean())


def hpd_error(neg_log_density: npt.ArrayLike, reference: npt.ArrayLike, alpha: float = 0.01) -> float:
    """Return the relative error of the highest-density threshold: |eta - eta_ref| / |eta_ref|.

    eta is the (1 - alpha) quantile of -log pi over the samples; alpha = 0.01 is the 99 % region. `reference` is
    eta_ref itself, or the -log pi of reference samples.
    """
    if not 0.0 < as_float(alpha) < 1.0:
        raise InvalidInput(f"hpd_error: alpha = {short_str(alpha)} is not a probability; 0.01 means the 99 % region")
    reference = check_array("hpd_error(reference)", reference, finite=True)
    energies = check_array("hpd_error(neg_log_density)", neg_log_density, finite=True)
    if not (reference.size and energies.size):
        raise InvalidInput("hpd_error: there are no samples; give at least one -log pi")
    eta_ref = float(reference if reference.ndim == 0 else np.quantile(reference, 1.0 - float(alpha)))
    if eta_ref == 0.0:
        raise InvalidInput("hpd_error: the reference quantile is 0, so that no relative error exists; give another")
    eta = float(np.quantile(energies, 1.0 - float(alpha)))
    return abs(eta - eta_ref) / abs(eta_ref)

"""FA-LD's Gaussian toy (section 7.1): 50 clients, 1000 points each, the plane under one covariance, or turned ones."""

import numpy as np

import fedsim as fs

CLIENTS, SAMPLES = 50, 1000
SIGMA = np.array([[5.0, -2.0], [-2.0, 1.0]])


def problem(alpha: float = 0.0, turn: float = 0.0, seed: int = 1) -> fs.problems.GaussianMean:
    """Centres N(0, alpha I); client c's covariance is Sigma turned by up to +-`turn`, so that Hessians differ."""
    angle = np.linspace(-turn, turn, CLIENTS)
    axes = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]).transpose(2, 0, 1)
    covariance = axes @ SIGMA @ axes.transpose(0, 2, 1) if turn else SIGMA
    return fs.problems.GaussianMean.synthetic(CLIENTS, 2, alpha, SAMPLES, seed=seed, covariance=covariance)


def w2(samples, law) -> np.ndarray:
    """Gaussian W2 (...,) of samples (..., R, 2) to (mean, covariance) in the plane, where it has a closed form."""
    mean, target = law
    own = samples.mean(axis=-2)
    centred = samples - own[..., None, :]
    fitted = np.einsum("...ri,...rj->...ij", centred, centred) / (samples.shape[-2] - 1)
    trace = np.trace(fitted, axis1=-2, axis2=-1) + np.trace(target)
    mixed = np.einsum("...ij,ji->...", fitted, target)
    root = np.sqrt(np.maximum(np.linalg.det(fitted) * np.linalg.det(target), 0.0))
    squared = ((own - mean) ** 2).sum(axis=-1) + trace - 2 * np.sqrt(mixed + 2 * root)
    return np.sqrt(np.maximum(squared, 0.0))


def first_below(values, level: float) -> int:
    """The first round, from 1, at which a curve is at most `level`; 0 where it never is."""
    below = np.flatnonzero(np.asarray(values) <= level)
    return int(below[0]) + 1 if len(below) else 0

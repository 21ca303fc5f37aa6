"""FA-LD, figures 1(d) and (e): the samples' density against the exact one at K = 10."""

import _toy
import numpy as np
from scipy.stats import gaussian_kde, multivariate_normal

import fedsim as fs
from fedsim.reproduce import Claim, Finding, pick, plots, system

quick = {"replicas": 1000, "rounds": 450}
full = {"replicas": 30_000, "rounds": 1500}


def scenario(*, replicas: int = 3000, rounds: int = 600) -> fs.Scenario:
    return fs.Scenario(
        problem=_toy.problem(0.0),
        algorithm=fs.algorithms.FALD(step_size=1e-7, local_steps=10),
        budget=fs.Budget(rounds=rounds),
        metrics=("w2",),
        evaluate_every=rounds,
        record=fs.Record(every=rounds, rounds_every=rounds),
        replicas=replicas,
        seed=1,
        **system(_toy.CLIENTS),
    )


def matches(study) -> Finding:
    samples = pick(study).samples[-1]  # (replicas, 2)
    mean, covariance = _toy.problem(0.0).exact()
    z = (samples.mean(axis=0) - mean) / np.sqrt(np.diag(covariance) / len(samples))
    away = samples - mean
    inside = (np.einsum("ri,ij,rj->r", away, np.linalg.inv(covariance), away) < -2 * np.log(0.5)).mean()
    ratio = np.diag(np.cov(samples.T)) / np.diag(covariance)
    held = (
        np.abs(z).max() < 4 and abs(inside - 0.5) < 4 * np.sqrt(0.25 / len(samples)) and np.abs(ratio - 1).max() < 0.1
    )
    return Finding(
        bool(held),
        f"mean off by {np.abs(z).max():.1f} standard errors, variances {ratio[0]:.3f} and {ratio[1]:.3f} of the exact, "
        f"{inside:.3f} inside the 50 % ellipse",
    )


def figure(study):
    samples, (mean, covariance) = pick(study).samples[-1], _toy.problem(0.0).exact()
    exact = multivariate_normal(mean, covariance)
    content = {
        "(d) exact": lambda points: exact.pdf(points.T),
        f"(e) {len(samples):,} samples": gaussian_kde(samples.T),
    }
    return plots.planes(content, mean, 3.2 * np.sqrt(np.diag(covariance)))


claims = [
    Claim(
        "The samples' density is the target's",
        matches,
        published="approximates the true density very well",
        why="compared by mean, variances and the mass inside the exact 50 % ellipse",
    ),
]

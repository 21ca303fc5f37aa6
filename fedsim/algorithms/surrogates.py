"""Gaussian surrogates of the clients' potentials, by Laplace's method: what FSGLD is steered by."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput, flag, quoted
from fedsim.protocols import ProblemLike, Quadratic, as_problem, missing

LARGEST, STEPS, NEAR = 500, 60, 1e-6  # dimensions, Newton steps, relative length of one at which they end


def laplace(problem: ProblemLike, diagonal: bool = False) -> tuple[Array, Array]:
    """Means (clients, d) and precisions (clients, d, d), or their diagonals, of every client's summed loss.

    A client's loss includes its share of the prior. Where it is flat in some direction, so is the surrogate.
    """
    flag("FSGLD.laplace(diagonal={})", diagonal)
    if missing(problem, ProblemLike):
        raise InvalidInput(f"FSGLD.laplace({quoted(problem)}): give a problem, such as fs.problems.GaussianMean(...)")
    if isinstance(problem, Quadratic):
        hessian, linear = problem.quadratic()
        means = np.array([np.linalg.lstsq(h, b, rcond=None)[0] for h, b in zip(hessian, linear, strict=True)])
    else:
        if problem.dim > LARGEST:
            raise InvalidInput(
                f"FSGLD.laplace: {problem.dim} dimensions take as many gradients per Newton step; "
                f"at most {LARGEST}, or give means and precisions"
            )
        found = [_minimise(problem, c) for c in range(problem.clients)]
        means, hessian = np.array([m for m, _ in found]), np.array([h for _, h in found])
    if diagonal:
        return means, np.diagonal(hessian, axis1=1, axis2=2).copy()
    return means, np.asarray(hessian)


def _minimise(problem: ProblemLike, client: int) -> tuple[Array, Array]:
    """The client's optimum and the Hessian there, by Newton's method with halved steps."""
    slope = as_problem(problem).gradient

    def gradient(at: Array) -> Array:
        return np.asarray(slope(at, client), np.float64)

    theta = np.zeros(problem.dim)
    g = gradient(theta)
    for _ in range(STEPS):
        hessian = _hessian(gradient, theta)
        move = np.linalg.lstsq(hessian, g, rcond=1e-10)[0]
        if np.linalg.norm(move) <= NEAR * (1 + np.linalg.norm(theta)):
            return theta, hessian
        for halving in range(30):
            trial = theta - 0.5**halving * move
            after = gradient(trial)
            if np.linalg.norm(after) < np.linalg.norm(g):
                break
        theta, g = trial, after
    raise InvalidInput(
        f"FSGLD.laplace: client {client} has no optimum of its own within reach; "
        "give the problem a prior_precision, or means and precisions"
    )


def _hessian(gradient: Callable[[Array], Array], at: Array) -> Array:
    """Central differences of the gradient, made symmetric."""
    step = 1e-5 * (1 + np.abs(at).max())
    columns = [(gradient(at + step * e) - gradient(at - step * e)) / (2 * step) for e in np.eye(len(at))]
    return np.asarray((np.array(columns) + np.array(columns).T) / 2)

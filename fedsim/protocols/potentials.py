"""Clients' potentials, one by one or through a problem's batched form; a class without them is refused here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import cast

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.protocols.problem import BatchedPotentials, HasPotential, ProblemLike, Reacts, Rows

Potentials = Callable[[Array, Array, Rows], Array]  # theta (jobs, d), clients (jobs,) and rows to float64 (jobs,)


def check_potential(problem: ProblemLike) -> None:
    """Refuse a `potential` that takes no client: it would be the whole problem's."""
    if not isinstance(problem, HasPotential):
        return
    try:
        inspect.signature(problem.potential).bind(None, 0, None)
    except TypeError:
        raise InvalidInput(
            f"{type(problem).__name__}.potential{inspect.signature(problem.potential)} takes no client and rows; write "
            "potential(theta, client, rows=None), the client's own summed loss with its share of the prior"
        ) from None
    except ValueError:  # a compiled function without a signature
        return


def potentials_of(problem: ProblemLike) -> Potentials:
    """Return the function that computes the potentials of many jobs; refuse a problem that has none."""
    name = type(problem).__name__
    if isinstance(problem, Reacts):
        raise InvalidInput(
            f"{name}: its data change with theta, so its gradients are not the slope of a potential and a client has "
            "neither potential nor loss; use gradients alone, or the metric 'loss'"
        )
    if not isinstance(problem, HasPotential):
        raise InvalidInput(
            f"{name} has no potential(theta, client, rows=None); write one: the client's summed loss with its share of "
            "the prior, whose slope is gradient(theta, client, rows)"
        )
    check_potential(problem)

    def one_by_one(theta: Array, clients: Array, rows: Rows = None) -> Array:
        return potentials_one_by_one(cast(HasPotential, problem), theta.astype(np.float64, copy=False), clients, rows)

    def batched(theta: Array, clients: Array, rows: Rows = None) -> Array:
        form = cast(BatchedPotentials, problem)
        return np.asarray(form.potentials(np.ascontiguousarray(theta, np.float64), clients, rows))

    return batched if isinstance(problem, BatchedPotentials) else one_by_one


def potentials_one_by_one(problem: HasPotential, theta: Array, clients: Array, rows: Rows = None) -> Array:
    """The jobs' potentials (jobs,) through `problem.potential`: no job's bits depend on another's."""
    out = np.empty(len(clients))
    for i, c in enumerate(clients):
        chosen = None if rows is None else rows[0][rows[1][i] : rows[1][i + 1]]
        out[i] = problem.potential(theta[i], int(c), chosen)
    return out


def whole_potential(problem: ProblemLike, theta: Array) -> Array:
    """The sum over all clients at every row of theta (points, d): -log posterior up to a constant, (points,)."""
    of, out = potentials_of(problem), np.zeros(len(theta))
    for c in range(problem.clients):
        out += of(theta, np.full(len(theta), c), None)
    return out

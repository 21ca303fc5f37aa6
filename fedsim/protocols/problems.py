"""The contract of a problem, abilities that only some problems have, and the clients' potentials of any problem."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.protocols.answers import call, member

if TYPE_CHECKING:
    from fedsim.protocols.algorithms import BatchSize
    from fedsim.protocols.runtime import Backend, GradientKernels

Rows = tuple[Array, Array] | None  # of a minibatch: flat row numbers, and where each job's begin; None: all


class ProblemLike(Protocol):
    """The required members of a problem, besides `gradient` (or `react`, where data depend on theta)."""

    @property
    def clients(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def sizes(self) -> Array: ...  # (clients,) rows of each


class Problem(ProblemLike, Protocol):
    """All members of a problem, with the defaults of the optional ones."""

    wrapped: Any  # the object itself, once it has defaults

    weights: Array | None = None  # p_c; None: in proportion to the sizes
    share: float = 0.0  # prior precision a row: `gradient` and `potential` contain its part, share * rows
    timing_only: bool = False  # no data: only the lengths of messages are real
    test: tuple[Array, Array] | None = None  # rows and labels for `predict`
    stack: int = 1  # jobs whose gradients are best computed in one call
    fresh: bool = False  # its gradients are new arrays, which the caller may change
    user_code: tuple[Any, ...] = ()  # objects whose source other machines need

    @property
    def tabulated(self) -> bool:
        """True if it has quadratic tables that are smaller than its data."""
        return isinstance(self, Quadratic)

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> Array:
        """Return the gradient (d,) of the client's loss *summed* over its rows, all of them or those given."""
        raise InvalidInput(f"{type(self).__name__} has no gradient(theta, client, rows=None); write one")

    def initial(self, seed: int) -> Array:
        """Return where a run starts, (d,)."""
        return np.zeros(cast(ProblemLike, self).dim)


@runtime_checkable
class Exact(Protocol):
    """A problem whose posterior is known: its mean (d,) and covariance (d, d)."""

    def exact(self) -> tuple[Array, Array]: ...


@runtime_checkable
class Quadratic(Protocol):
    """A problem whose full gradients are H_c theta - b_c: tables (clients, d, d) and (clients, d)."""

    def quadratic(self, dtype: npt.DTypeLike = ...) -> tuple[Array, Array]: ...


@runtime_checkable
class Reacts(Protocol):
    """A problem whose data are drawn from a law that depends on theta."""

    def react(
        self, theta: Array, clients: Array, key: Array, step: int, batch_size: BatchSize, backend: Backend
    ) -> Array: ...


@runtime_checkable
class Predicts(Protocol):
    """A problem with class probabilities of its test rows at one theta: (rows, classes)."""

    def predict(self, theta: Array) -> Array: ...


@runtime_checkable
class HasLoss(Protocol):
    """A problem with its mean training loss at each row of theta."""

    def loss(self, theta: Array) -> Array: ...


@runtime_checkable
class HasPotential(Protocol):
    """A problem with its clients' potentials: the function whose slope `gradient(theta, client, rows)` is, in float64.

    It is the loss *summed* over the client's rows, all of them or those given, plus their share of the prior.
    """

    def potential(self, theta: Array, client: int, rows: Array | None = None) -> float: ...


@runtime_checkable
class BatchedPotentials(Protocol):
    """A problem that computes the potentials of many jobs at once: (jobs, d) and (jobs,) to (jobs,)."""

    def potentials(self, theta: Array, clients: Array, rows: Rows = None) -> Array: ...


@runtime_checkable
class BatchedGradients(Protocol):
    """A problem that computes the gradients of many jobs at once."""

    def gradients(self, theta: Array, clients: Array, rows: Rows = None) -> Array: ...


@runtime_checkable
class PortableGradients(Protocol):
    """A problem that computes the gradients of many jobs at once on any backend's kernels."""

    def gradients_by(self, kernels: GradientKernels, theta: Array, clients: Array, rows: Rows) -> Array: ...


@runtime_checkable
class Clips(Protocol):
    """A problem with a fast form of per-row gradient clipping."""

    def clipped(self, theta: Array, clients: Array, rows: Rows, clip: float) -> Array: ...


@runtime_checkable
class Stable(Protocol):
    """A problem whose performatively stable point is known."""

    def performatively_stable(self) -> Array: ...


@runtime_checkable
class HasShards(Protocol):
    """A problem that can be cut to the rows of some clients, for the host that computes for them."""

    def shard(self, clients: Array) -> Any: ...


Potentials = Callable[[Array, Array, Rows], Array]  # theta (jobs, d), clients (jobs,) and rows to float64 (jobs,)


def check_potential(problem: ProblemLike) -> None:
    """Refuse a `potential` that takes no client: it would be that of all clients."""
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
        return np.asarray(call(form, "potentials", np.ascontiguousarray(theta, np.float64), clients, rows))

    return batched if isinstance(problem, BatchedPotentials) else one_by_one


def potentials_one_by_one(problem: HasPotential, theta: Array, clients: Array, rows: Rows = None) -> Array:
    """Return the jobs' potentials (jobs,), one call of `problem.potential` each: bits do not depend on other jobs."""
    out, potential = np.empty(len(clients)), member(problem, "potential")
    for i, c in enumerate(clients):
        chosen = None if rows is None else rows[0][rows[1][i] : rows[1][i + 1]]
        out[i] = potential(theta[i], int(c), chosen)
    return out


def total_potential(problem: ProblemLike, theta: Array) -> Array:
    """Return -log posterior up to a constant, summed over all clients, at every row of theta (points, d)."""
    of, out = potentials_of(problem), np.zeros(len(theta))
    for c in range(problem.clients):
        out += of(theta, np.full(len(theta), c), None)
    return out

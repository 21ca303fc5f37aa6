"""What a problem has to offer and may have besides, and what only some problems can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.errors import InvalidInput

if TYPE_CHECKING:
    from fedsim.protocols.algorithm import BatchSize
    from fedsim.protocols.runtime import Backend, GradientKernels

Rows = tuple[Array, Array] | None  # of a minibatch: flat row numbers, and where each job's begin; None: all


class ProblemLike(Protocol):
    """The clients and their data; `gradient` below is needed as well."""

    @property
    def clients(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def sizes(self) -> Array: ...  # (clients,) rows of each


class Problem(ProblemLike, Protocol):
    """What a problem may have besides."""

    own: Any  # the object itself, once it is completed

    weights: Array | None = None  # p_c; None: in proportion to the sizes
    share: float = 0.0  # prior precision a row: `gradient` and `potential` contain its part, share * rows
    timing_only: bool = False  # no data: only the lengths of messages are real
    test: tuple[Array, Array] | None = None  # rows and labels for `predict`
    stack: int = 1  # so many jobs' gradients are best asked for at once
    fresh: bool = False  # its gradients come in arrays that nobody else holds
    brought: tuple[Any, ...] = ()  # objects whose own source must travel to other machines with it

    @property
    def tabulated(self) -> bool:
        """Its quadratic tables, if it has them, are small enough to be computed with."""
        return isinstance(self, Quadratic)

    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> Array:
        """Of the client's loss *summed* over its rows, all of them or those given, (d,). Needed, unless it `Reacts`."""
        raise InvalidInput(f"{type(self).__name__} has no gradient(theta, client, rows=None); write one")

    def initial(self, seed: int) -> Array:
        """Where a run starts, (d,)."""
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
    """A problem whose data are drawn anew in answer to theta."""

    def react(
        self, theta: Array, clients: Array, key: Array, step: int, batch_size: BatchSize, backend: Backend
    ) -> Array: ...


@runtime_checkable
class Predicts(Protocol):
    """A problem with class probabilities of its test rows under one theta: (rows, classes)."""

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
    """The same, through any backend's kernels."""

    def gradients_by(self, kernels: GradientKernels, theta: Array, clients: Array, rows: Rows) -> Array: ...


@runtime_checkable
class Clips(Protocol):
    """A problem that bounds the norm of every row's own gradient faster than row by row."""

    def clipped(self, theta: Array, clients: Array, rows: Rows, clip: float) -> Array: ...


@runtime_checkable
class Stable(Protocol):
    """A problem whose performatively stable point is known."""

    def performatively_stable(self) -> Array: ...


@runtime_checkable
class HasShards(Protocol):
    """A problem that can give the host of some clients their rows alone."""

    def shard(self, clients: Array) -> Any: ...

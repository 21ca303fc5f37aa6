"""The contracts of codecs, backends, sessions and runtimes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array, Numbers

if TYPE_CHECKING:
    from fedsim.protocols.algorithms import AlgorithmLike
    from fedsim.protocols.problems import ProblemLike, Rows
    from fedsim.runtime.blocks import LearningBlock, Learnt
    from fedsim.runtime.jobs import Batch, Reply, Setting

StepSizes = Array | Sequence[float]  # one for each local step
LangevinSteps = Callable[  # theta, Hessian, linear, client, private, shared, scale; correlation; steps, amplitude
    [Array, Array, Array, Array, Array, Array, Array, np.floating[Any], Array, Array], None
]
Wire = tuple[Any, ...]  # a codec in a backend's own terms
Terms = tuple[Array | None, Array | None, Array | None, float]  # QLSD's control, anchor, memory and memory rate


@runtime_checkable
class Executable(Protocol):
    """What `fs.run` executes besides a `Scenario`: a Flower app, `fs.flower.App`."""

    def execute(self, **options: Any) -> Any:
        """Run it, with the options of `fs.run`; return a `Result`."""

    def header(self) -> tuple[str, dict[str, str]]:
        """Return what is printed before the run: a title, and facts by name."""


@runtime_checkable
class Codec(Protocol):
    """The encoding of messages; `fixed` lengths do not depend on the values and have `length(d, dtype)`."""

    @property
    def fixed(self) -> bool: ...
    def encode(self, v: Array, key: Array | None = None) -> bytes: ...
    def decode(self, data: bytes, d: int) -> Array: ...
    def bits(self, v: Array, key: Array | None = None) -> int: ...
    def quantise(self, values: Array, keys: Array | None = None) -> tuple[Array, Array]: ...
    def omega(self, d: int) -> float: ...


@runtime_checkable
class FixedLength(Protocol):
    """A codec with the length of a message before it is computed, if it is `fixed`."""

    @property
    def fixed(self) -> bool: ...
    def length(self, d: int, dtype: npt.DTypeLike = ...) -> int: ...


class GradientKernels(Protocol):
    """Sums of gradients over rows of data, into `out`; the reference calls the problem's own `gradient` instead."""

    @property
    def quadratic_full(self) -> Callable[..., None]: ...
    @property
    def gaussian_rows(self) -> Callable[..., None]: ...
    @property
    def linear_model(self) -> Callable[..., None]: ...
    @property
    def softmax_gradient(self) -> Callable[..., None]: ...
    @property
    def network_gradient(self) -> Callable[..., None]: ...


class Backend(Protocol):
    """The array maths of a run: `kernels.reference`, `kernels.cpu` or `kernels.cuda`, with the same names."""

    name: str

    def keys(
        self,
        seed: int,
        stream: int,
        *,
        replica: Numbers = 0,
        client: Numbers = 0,
        round: Numbers = 0,
        visit: Numbers = 0,
    ) -> Array:
        """Return Philox keys, one a row, of addressed draws."""

    def normal(self, key: Array, lanes: int, step: int = 0, dtype: npt.DTypeLike = ..., call: int = 0) -> Array: ...
    def uniform(self, key: Array, lanes: int, step: int = 0, dtype: npt.DTypeLike = ...) -> Array: ...
    def integers(self, key: Array, lanes: int, below: npt.ArrayLike, step: int = 0) -> Array: ...
    def choice(self, key: Array, population: npt.ArrayLike, size: int, step: int = 0) -> Array: ...
    def choose_rows(self, key: Array, population: Array, start: Array, step: int) -> Array: ...
    def segment_sum(self, values: Array, weights: Array, starts: Array) -> Array: ...
    def gradients(self, problem: ProblemLike, theta: Array, clients: Array, rows: Rows) -> Array: ...
    def keys_into(
        self, seed: np.uint64, stream: np.uint64, replica: Array, client: Array, round: Array, visit: Array, out: Array
    ) -> int:
        """Write `keys` of int64 columns, one row or as many as `out`, into `out`; 0: all addresses fit."""

    # Compiled clients; `kernels/reference` documents the arguments.
    def langevin_quadratic(self, dim: int) -> LangevinSteps: ...
    def leapfrog_quadratic(
        self, theta: Array, hessian: Array, linear: Array, client: Array, private: Array, shared: Array, scale: Array,
        common: float, steps: StepSizes, leapfrog_steps: int,
    ) -> Array: ...  # fmt: skip
    def leapfrog_logistic(
        self, theta: Array, x: Array, y: Array, offsets: Array, client: Array, factor: Array, ridge: Array,
        linear: Array | None, rows: Array | None, key: Array | None, private: Array, shared: Array, scale: Array,
        common: float, steps: StepSizes, leapfrog_steps: int,
    ) -> Array: ...  # fmt: skip
    def wire_form(self, d: int, dtype: str | None, levels: int | None, code: str | None, form: str | None) -> Wire:
        """Return a codec, given its fields, as the two kernels below take it (after the keys)."""

    def gaussian_messages(
        self, theta: Array, x: Array, offsets: Array, sums: Array, precision: Array, client: Array,
        rows: Array | None, key: Array | None, terms: Terms, wire: Wire,
    ) -> tuple[Array, Array, Array]: ...  # fmt: skip
    def logistic_messages(
        self, theta: Array, x: Array, y: Array, offsets: Array, client: Array, rows: Array | None,
        key: Array | None, terms: Terms, wire: Wire,
    ) -> tuple[Array, Array, Array]: ...  # fmt: skip


class SessionLike(Protocol):
    """A runtime that is open for one run."""

    async def submit(self, batch: Batch, work: float = 1.0) -> Reply:
        """Return all replies of a batch of jobs, in its order."""

    def close(self) -> None: ...


class Session(SessionLike, Protocol):
    """All members of a session, with the defaults of the optional ones."""

    wrapped: Any  # the object itself, once it has defaults
    learns_blocks: bool = False  # `learn` serves this algorithm and problem

    def each(self, function: Callable[[int], int], items: Sequence[int]) -> list[int]:
        """Apply a function to each item, on the run's threads in this process."""
        return [function(item) for item in items]

    async def learn(self, block: LearningBlock) -> Learnt:
        """Learn the rounds of a block."""
        raise NotImplementedError("only sessions with `learns_blocks` learn blocks")

    async def describe_hosts(self) -> list[dict[str, Any]]:
        """Return what each client host models, for the manifest; nothing in this process."""
        return []


class Runtime(Protocol):
    """Where jobs run: `fs.Inline` or `fs.Ray`."""

    def kernels(self) -> Backend: ...
    def open(self, algorithm: AlgorithmLike, setting: Setting) -> SessionLike: ...

"""What looks at a run and never changes it: metrics and observers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from fedsim.arrays import Array, Arrays

if TYPE_CHECKING:
    from fedsim.engine.run import Progress
    from fedsim.privacy.ledger import Ledger
    from fedsim.protocols.algorithms import AlgorithmLike
    from fedsim.protocols.problems import ProblemLike


class Law(Protocol):
    """The first two moments of a law."""

    @property
    def mean(self) -> Array: ...
    @property
    def covariance(self) -> Array: ...


class MetricView(Protocol):
    """What a metric sees after a round. The rows of a replica that has stopped are NaN."""

    @property
    def theta(self) -> Array: ...  # (R, d), the current states
    @property
    def sites(self) -> Array: ...  # (R, sites, d), the current models of the sites; theta is their average
    @property
    def history(self) -> Array: ...  # (recorded rounds, R, d), the samples so far
    @property
    def target(self) -> Law | None: ...  # the problem's exact law, if it has one
    @property
    def problem(self) -> Any: ...
    @property
    def sampler(self) -> bool: ...  # whether the algorithm's iterates are samples of a law
    @property
    def spent(self) -> Mapping[str, Array]: ...  # (R,) each: uplink_bits, downlink_bits, backhaul_bits, seconds
    @property
    def memory(self) -> Mapping[str, Array]: ...  # (R, clients, ...) each: the clients' memory
    def predictive(self, of: Literal["current", "average"]) -> Array: ...  # (R, test rows, classes)


@runtime_checkable
class Metric(Protocol):
    """A metric: columns after a round, with one value per replica or one over all replicas.

    With `per_replica` the columns are (R,) arrays in `Result.rounds`, otherwise floats in `Result.metrics`. NaN means
    not defined yet. A metric raises where a figure of finite states leaves float64, which ends the run as diverged.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def per_replica(self) -> bool: ...
    def evaluate(self, view: MetricView) -> Mapping[str, float | Array]: ...


@runtime_checkable
class Explained(Protocol):
    """A metric that describes what its columns are of, such as "the current theta", for manifest and summary."""

    def about(self, view: MetricView) -> str: ...


@runtime_checkable
class OfTheta(Protocol):
    """A metric of theta alone that evaluates many rounds in one call."""

    def evaluate_rounds(self, view: MetricView, theta: Array) -> Arrays | None:
        """Return columns (rounds,) or (rounds, replicas) of theta (rounds, replicas, d); None: evaluate each round."""


@runtime_checkable
class Warns(Protocol):
    """A metric with warnings about its figure, at the end of the run."""

    def warnings(self, view: MetricView, value: float, replicas: int) -> list[str]:
        """Return sentences about the last value that was not NaN (NaN if there was none) and its replicas."""


@runtime_checkable
class KeepsLedger(Protocol):
    """A metric that keeps a ledger of what every client has given away."""

    def ledger(self, algorithm: AlgorithmLike, problem: ProblemLike, replicas: int) -> Ledger: ...


class Observer(Protocol):
    """Called after every round with a `Progress`; it reads and can never change the run."""

    def __call__(self, progress: Progress) -> None: ...


class Watching(Protocol):
    """What an observer may say besides."""

    sparse: bool = False  # it need not see every round, so that many may be taken at a go


@runtime_checkable
class Describes(Protocol):
    """Anything with one line about itself for people."""

    def describe(self) -> str: ...

"""The contracts of metrics and observers, which read a run and never change it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from fedsim.arrays import Array, Arrays

if TYPE_CHECKING:
    from fedsim.engine.run import Progress
    from fedsim.privacy.ledger import Ledger
    from fedsim.protocols.algorithms import AlgorithmLike
    from fedsim.protocols.problems import ProblemLike


@runtime_checkable
class Law(Protocol):
    """The first two moments of a law."""

    @property
    def mean(self) -> Array: ...
    @property
    def covariance(self) -> Array: ...


class MetricView(Protocol):
    """What a metric sees after a round. The rows of a replica that has stopped are NaN."""

    @property
    def theta(self) -> Array: ...  # (R, d), the states now
    @property
    def sites(self) -> Array: ...  # (R, sites, d), their models now; theta is their average
    @property
    def history(self) -> Array: ...  # (recorded rounds, R, d), the samples recorded so far
    @property
    def target(self) -> Law | None: ...  # the problem's exact law, where there is one
    @property
    def problem(self) -> Any: ...
    @property
    def sampler(self) -> bool: ...  # True if the algorithm's iterates are samples
    @property
    def spent(self) -> Mapping[str, Array]: ...  # (R,) each: uplink_bits, downlink_bits, backhaul_bits, seconds
    @property
    def memory(self) -> Mapping[str, Array]: ...  # (R, clients, ...) each: the clients' memory
    def predictive(self, of: Literal["current", "average"]) -> Array: ...  # (R, test rows, classes)


@runtime_checkable
class Metric(Protocol):
    """Columns after a round: one value per replica, or one over all of them."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def per_replica(self) -> bool: ...
    def evaluate(self, view: MetricView) -> Mapping[str, float | Array]: ...


@runtime_checkable
class Explained(Protocol):
    """A metric that describes what its columns are of, for manifest and summary: "the current theta"."""

    def about(self, view: MetricView) -> str: ...


@runtime_checkable
class OfTheta(Protocol):
    """A metric that depends on theta alone and evaluates many rounds in one call."""

    def evaluate_rounds(self, view: MetricView, theta: Array) -> Arrays | None:
        """Return columns, (rounds,) or (rounds, replicas), of theta (rounds, replicas, d); None: call per round."""


@runtime_checkable
class Warns(Protocol):
    """A metric that warns where its value is unreliable."""

    def warnings(self, view: MetricView, value: float, replicas: int) -> list[str]:
        """Return warnings, a sentence each, about the last value that was not NaN (NaN: there was none).

        It came from `replicas` replicas. Called once, at the end of a run.
        """


@runtime_checkable
class KeepsLedger(Protocol):
    """A metric that keeps a ledger of every client's privacy loss."""

    def ledger(self, algorithm: AlgorithmLike, problem: ProblemLike, replicas: int) -> Ledger: ...


class Observer(Protocol):
    """A function of a `Progress`, called after every round; it cannot change the run."""

    def __call__(self, progress: Progress) -> None: ...


class ObserverOptions(Protocol):
    """The optional members of an observer."""

    sparse: bool = False  # it may miss rounds, so that blocks of rounds are committed in one call


@runtime_checkable
class Describes(Protocol):
    """An object with a description of one line."""

    def describe(self) -> str: ...

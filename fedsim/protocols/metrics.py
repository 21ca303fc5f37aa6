"""What looks at a run and never changes it: metrics and observers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from fedsim.arrays import Array

if TYPE_CHECKING:
    from fedsim.engine.run import Progress
    from fedsim.metrics.theta import MetricView
    from fedsim.privacy.ledger import Ledger
    from fedsim.protocols.algorithms import AlgorithmLike
    from fedsim.protocols.problems import ProblemLike


@runtime_checkable
class Metric(Protocol):
    """Fills columns after a round: one value per replica, or one over all of them."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def per_replica(self) -> bool: ...
    def evaluate(self, view: MetricView) -> Mapping[str, float | Array]: ...


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

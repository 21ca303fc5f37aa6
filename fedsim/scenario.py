"""Scenario: one frozen record of what is simulated; `run` and `arun` execute it and say nothing of how it is done."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import metrics as metric_catalogue
from fedsim import participation as policies
from fedsim.budget import Budget
from fedsim.engine.record import Record
from fedsim.errors import InvalidInput, is_whole
from fedsim.problems import weights_of
from fedsim.results import Result
from fedsim.place import Place
from fedsim.runtime.inline import Inline

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Scenario:
    """What is simulated. Only `problem`, `algorithm` and `budget` are required; all of it is checked here."""

    problem: Any
    algorithm: Any
    budget: Budget
    network: Any = None  # None: ideal
    devices: Any = None  # None: instant and reliable
    participation: Any = field(default_factory=policies.full)
    replicas: int | range = 1
    seed: int = 0
    initial: Any = None  # None: zeros
    dtype: str = "float64"
    metrics: tuple[Any, ...] = ()
    evaluate_every: int = 1
    record: Record = field(default_factory=Record)
    reach: str | None = None  # who receives the broadcast: "selected" or "all"; None: the algorithm's own

    def __post_init__(self) -> None:
        self._check_parts()
        self._check_numbers()
        self._check_start()
        self._check_participation()
        self._check_budget()
        for metric in self.metrics:
            metric_catalogue.resolve(metric)
        if not getattr(self.problem, "timing_only", False):
            self.record.check(self.budget.rounds, len(self.replica_numbers), self.problem.dim, np.dtype(self.dtype).itemsize)

    @property
    def replica_numbers(self) -> range:
        return self.replicas if isinstance(self.replicas, range) else range(int(self.replicas))

    @property
    def start(self) -> Array:
        """theta before the first round, (d,)."""
        if self.initial is None:
            return np.zeros(self.problem.dim, self.dtype)
        return np.asarray(self.initial, self.dtype)

    @property
    def reaches_all(self) -> bool:
        return (self.reach or getattr(self.algorithm, "reach", "selected")) == "all"

    @property
    def _remembers(self) -> bool:
        return bool(self.algorithm.memory(self.problem)) if hasattr(self.algorithm, "memory") else False

    # --- Checks: each refuses one kind of mistake in one sentence ---------------------------------

    def _check_parts(self) -> None:
        for name in ("clients", "dim", "sizes"):
            if not hasattr(self.problem, name):
                raise InvalidInput(f"problem={self.problem!r}: a problem needs {name}; see fs.problems")
        for name in ("init", "broadcast", "work", "client", "server"):
            if not hasattr(self.algorithm, name):
                raise InvalidInput(f"algorithm={self.algorithm!r}: an algorithm needs {name}(); see fs.algorithms")
        if not isinstance(self.budget, Budget):
            raise InvalidInput(f"budget={self.budget!r}: write fs.Budget(rounds=200)")
        for name in ("select", "close"):
            if not hasattr(self.participation, name):
                raise InvalidInput(f"participation={self.participation!r}: a policy needs {name}(); see fs.participation")
        if isinstance(self.metrics, str):
            raise InvalidInput(f"metrics={self.metrics!r}: give a tuple, metrics=({self.metrics!r},)")
        if not isinstance(self.record, Record):
            raise InvalidInput(f"record={self.record!r}: write fs.Record(every=10, warmup=100)")
        if self.devices is not None and not hasattr(self.devices, "compute_s"):
            raise InvalidInput(f"devices={self.devices!r}: devices need compute_s(); see fs.devices")
        if self.network is not None and not hasattr(self.network, "delay_s"):
            raise InvalidInput(f"network={self.network!r}: write fs.Network(graph), or see fs.topologies")
        if hasattr(self.devices, "check"):
            self.devices.check(self.problem.clients)
        clients = getattr(self.network, "clients", None)
        if clients is not None and clients != self.problem.clients:
            raise InvalidInput(f"the network has {clients} clients, the problem {self.problem.clients}; make them agree")

    def _check_numbers(self) -> None:
        if not isinstance(self.replicas, range) and not is_whole(self.replicas):
            raise InvalidInput(f"replicas={self.replicas!r}: a whole number, or a range of replica numbers")
        numbers = self.replica_numbers
        if not numbers or min(numbers[0], numbers[-1]) < 0 or max(numbers[0], numbers[-1]) >= 2**32:
            raise InvalidInput(f"replicas={self.replicas!r}: ask for at least 1, numbered from 0 and below 2**32")
        if not is_whole(self.seed) or self.seed >= 2**64:
            raise InvalidInput(f"seed={self.seed!r}: a whole number from 0 to 2**64 - 1")
        if str(self.dtype) not in ("float32", "float64"):
            raise InvalidInput(f"dtype={self.dtype!r}: choose 'float32' or 'float64'")
        if not is_whole(self.evaluate_every, least=1):
            raise InvalidInput(f"evaluate_every={self.evaluate_every}: a whole number of at least 1")
        if self.reach not in (None, "selected", "all"):
            raise InvalidInput(f"reach={self.reach!r}: choose 'selected' or 'all'")

    def _check_start(self) -> None:
        try:
            with np.errstate(over="ignore"):  # an infinity is refused below
                start = self.start
        except (TypeError, ValueError, OverflowError):
            raise InvalidInput(f"initial: not an array of {self.problem.dim} numbers") from None
        if start.shape != (self.problem.dim,):
            raise InvalidInput(f"initial has shape {start.shape}; the problem needs ({self.problem.dim},)")
        if not np.isfinite(start).all():
            raise InvalidInput("initial holds a NaN or an infinity; start from finite numbers")

    def _check_participation(self) -> None:
        policies.check_size(self.participation, self.problem.clients)
        equal = np.ptp(weights_of(self.problem)) < 1e-12
        weighted = getattr(self.algorithm, "weighted", False)
        if isinstance(self.participation, policies.Uniform) and not equal and weighted and not self.participation.weighting:
            raise InvalidInput(
                f"participation.uniform({self.participation.size}) averages with 1/{self.participation.size}, which is biased here "
                "because the clients' weights differ; choose weighting='normalised' or 'scaled', or with_replacement()"
            )
        at_work = getattr(self.participation, "size", None) or self.problem.clients
        if getattr(self.participation, "asynchronous", False) and self.participation.replies > at_work and self._remembers:
            raise InvalidInput(
                f"participation.buffered({self.participation.replies}): clients of {type(self.algorithm).__name__} remember, so each waits "
                f"until its reply is folded, and only {at_work} are at work; ask for at most {at_work}"
            )
        if getattr(self.participation, "discount", None) is not None and self._remembers:
            raise InvalidInput(
                f"participation.buffered(discount=...): {type(self.algorithm).__name__} adds up what its clients remember, which a discount "
                "would falsify; leave it out"
            )
        sizes = getattr(self.algorithm, "batch_size", None)
        if np.ndim(sizes) == 1 and len(sizes) != self.problem.clients:
            raise InvalidInput(f"{len(sizes)} batch sizes for {self.problem.clients} clients; give one number or one per client")

    def _check_budget(self) -> None:
        b = self.budget
        if b.target is not None and not any(b.target.metric in metric_catalogue.resolve(m).columns for m in self.metrics):
            raise InvalidInput(f"Budget(target on {b.target.metric!r}): add metrics=({b.target.metric!r},) so that it is evaluated")
        counts_bits = any(x is not None for x in (b.uplink_bits, b.downlink_bits, b.total_bits))
        takes_time = self.network is not None or self.devices is not None
        if b.rounds is None and not counts_bits and not (takes_time and b.seconds is not None):
            raise InvalidInput("this scenario could run for ever: rounds take no time; add rounds= to the Budget")


def run(scenario: Scenario, **options: Any) -> Result:
    """Run a scenario and return its result; the options are those of `arun`. Works inside a notebook too."""
    job = arun(scenario, **options)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(job)
    return _in_another_thread(job)


async def arun(
    scenario: Scenario, *, runtime: Any = None, out: str | Path | None = None, resume: bool = False,
    checkpoint_every: int | str | None = None, compute: str = "run", observers: Iterable[Any] = (),
    stop: threading.Event | None = None, source: dict[str, Any] | None = None,
) -> Result:  # fmt: skip
    """`run` for those who already have an event loop.

    `out` leaves the result as a folder; `checkpoint_every` (rounds, or "60s") keeps it resumable on the way, and `resume`
    takes it up where it was left. `compute="skip"` gives the timeline alone. Setting `stop` finishes the round, writes a
    checkpoint and raises Interrupted. `source` says where the scenario came from, for the manifest.
    """
    from threadpoolctl import threadpool_limits

    from fedsim import engine

    if not isinstance(scenario, Scenario):
        raise InvalidInput(f"run({scenario!r}): give it a fs.Scenario")
    if compute not in ("run", "skip"):
        raise InvalidInput(f"compute={compute!r}: 'run', or 'skip' for the timeline alone")
    runtime = runtime if runtime is not None else Inline()
    began = time.perf_counter()
    place = Place.take(out, scenario, compute, checkpoint_every, resume, stop, source)
    if place.whole is not None:
        return place.whole
    runtime.kernels()  # loads every BLAS there is, before they are held to one thread
    with threadpool_limits(1):  # one BLAS thread: its bits must not depend on how many cores there are
        finished = await engine.simulate(scenario, runtime, observers, compute == "skip", place.keeper)
    manifest = {"source": source or {}, "resumed": place.note}
    result = engine.collect(finished, runtime, time.perf_counter() - began, manifest)
    place.finish(result)
    return result


def _in_another_thread(job: Any) -> Result:
    box: list[Any] = []

    def work() -> None:
        try:
            box.append(asyncio.run(job))
        except BaseException as error:
            box.append(error)

    thread = threading.Thread(target=work, name="fedsim-run")
    thread.start()
    thread.join()
    if isinstance(box[0], BaseException):
        raise box[0]
    assert isinstance(box[0], Result)
    return box[0]

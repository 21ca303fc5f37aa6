"""Scenario: one frozen record of what is simulated; `run` and `arun` execute it and hide how it is done."""

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
from fedsim.algorithms.activity import check_activity
from fedsim.budget import Budget
from fedsim.checks import array_of
from fedsim.engine.record import Record
from fedsim.engine.room import check_room
from fedsim.errors import InvalidInput, flag, is_whole, one_of, quoted, shown, whole
from fedsim.place import Place
from fedsim.problems import weights_of
from fedsim.results import Result
from fedsim.runtime.inline import Inline

Array = npt.NDArray[Any]
PARTS = {  # what each of them must offer, and the sentence about what it lacks
    "problem": ("clients dim sizes", "a problem needs {}; see fs.problems"),
    "algorithm": ("init broadcast work client server", "an algorithm needs {}(); see fs.algorithms"),
    "participation": ("select close", "a policy needs {}(); see fs.participation"),
    "network": (
        "clients delay_s stretch bottleneck_bps contended",
        "a network needs {}; write fs.Network(graph), or see fs.topologies",
    ),
    "devices": ("compute_s", "devices need {}(); see fs.devices"),
}


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
        self._check_reach()
        self._check_budget()
        for metric in self.metrics:
            metric_catalogue.resolve(metric)
        if not getattr(self.problem, "timing_only", False):
            self.record.check(
                self.budget.rounds, len(self.replica_numbers), self.problem.dim, np.dtype(self.dtype).itemsize
            )

    @property
    def replica_numbers(self) -> range:
        return self.replicas if isinstance(self.replicas, range) else range(int(self.replicas))

    @property
    def start(self) -> Array:
        """theta before the first round, (d,)."""
        if self.initial is None:
            return np.zeros(self.problem.dim, self.dtype)
        start = array_of(self.initial)
        if start is None:
            raise InvalidInput(f"initial: not an array of {self.problem.dim} numbers")
        with np.errstate(over="ignore"):  # an infinity is refused
            return np.asarray(start, self.dtype)

    @property
    def reaches_all(self) -> bool:
        return (self.reach or getattr(self.algorithm, "reach", "selected")) == "all"

    @property
    def _remembers(self) -> bool:
        return bool(self.algorithm.memory(self.problem)) if hasattr(self.algorithm, "memory") else False

    # --- Checks: each refuses one kind of mistake in one sentence ---------------------------------

    def _check_parts(self) -> None:
        for role, (names, lacks) in PARTS.items():
            part = getattr(self, role)
            if part is None and role in ("network", "devices"):
                continue
            if isinstance(part, type):
                kind = part.__name__
                raise InvalidInput(f"{role}={kind} is a class; give an object of it, {role}={kind}(...)")
            for name in names.split():
                if not hasattr(part, name):
                    raise InvalidInput(f"{role}={quoted(part)}: {lacks.format(name)}")
        if not isinstance(self.budget, Budget):
            raise InvalidInput(f"budget={quoted(self.budget)}: write fs.Budget(rounds=200)")
        if not isinstance(self.metrics, (tuple, list)):
            right = f"({quoted(self.metrics)},)" if isinstance(self.metrics, str) else "('w2', fs.metrics.ess())"
            raise InvalidInput(f"metrics={quoted(self.metrics)}: give a tuple, metrics={right}")
        if not isinstance(self.record, Record):
            raise InvalidInput(f"record={quoted(self.record)}: write fs.Record(every=10, warmup=100)")
        if hasattr(self.devices, "check"):
            self.devices.check(self.problem.clients)
        clients = getattr(self.network, "clients", None)
        if clients is not None and clients != self.problem.clients:
            others = self.problem.clients
            raise InvalidInput(f"the network has {clients} clients, the problem {others}; make them agree")

    def _check_numbers(self) -> None:
        if not isinstance(self.replicas, range):
            remedy = "a whole number, or a range of replica numbers"
            object.__setattr__(self, "replicas", whole("replicas={!r}", self.replicas, -(2**64), remedy))
        numbers = self.replica_numbers
        if not numbers or min(numbers[0], numbers[-1]) < 0 or max(numbers[0], numbers[-1]) >= 2**32:
            remedy = "ask for at least 1, numbered from 0 and below 2**32"
            raise InvalidInput(f"replicas={quoted(self.replicas)}: {remedy}")
        if not is_whole(self.seed) or self.seed >= 2**64:
            raise InvalidInput(f"seed={quoted(self.seed)}: a whole number from 0 to 2**64 - 1")
        object.__setattr__(self, "seed", int(self.seed))
        if shown(self.dtype) not in ("float32", "float64"):
            raise InvalidInput(f"dtype={quoted(self.dtype)}: choose 'float32' or 'float64'")
        object.__setattr__(self, "dtype", shown(self.dtype))
        object.__setattr__(self, "evaluate_every", whole("evaluate_every={!r}", self.evaluate_every))
        one_of("reach={!r}", self.reach, (None, "selected", "all"), "choose 'selected' or 'all'")

    def _check_start(self) -> None:
        start = self.start
        if start.shape != (self.problem.dim,):
            raise InvalidInput(f"initial has shape {start.shape}; the problem needs ({self.problem.dim},)")
        if not np.isfinite(start).all():
            raise InvalidInput("initial holds a NaN or an infinity; start from finite numbers")

    def _check_participation(self) -> None:
        policy, clients, algorithm = self.participation, self.problem.clients, type(self.algorithm).__name__
        policies.check_size(policy, clients)
        equal = np.ptp(weights_of(self.problem)) < 1e-12
        weighted = getattr(self.algorithm, "weighted", False)
        if isinstance(policy, policies.Uniform) and not equal and weighted and not policy.weighting:
            raise InvalidInput(
                f"participation.uniform({policy.size}) averages with 1/{policy.size}, which is biased here "
                "because the clients' weights differ; choose weighting='normalised' or 'scaled', "
                "or with_replacement()"
            )
        at_work = getattr(policy, "size", None) or clients
        if getattr(policy, "asynchronous", False) and policy.replies > at_work and self._remembers:
            raise InvalidInput(
                f"participation.buffered({policy.replies}): clients of {algorithm} remember, so each waits "
                f"until its reply is folded, and only {at_work} are at work; ask for at most {at_work}"
            )
        if getattr(policy, "discount", None) is not None and self._remembers:
            raise InvalidInput(
                f"participation.buffered(discount=...): {algorithm} adds up what its clients remember, which a "
                "discount would falsify; leave it out"
            )
        check_activity(self.algorithm, self.problem, policy, self.devices)
        sizes: Any = getattr(self.algorithm, "batch_size", None)
        if np.ndim(sizes) == 1 and len(sizes) != clients:
            raise InvalidInput(f"{len(sizes)} batch sizes for {clients} clients; give one number or one per client")

    def _check_reach(self) -> None:
        """What is known from an earlier broadcast must have reached everybody; what was so beforehand need not."""
        algorithm = self.algorithm
        heard = set(getattr(algorithm, "known", ())) - set(getattr(algorithm, "beforehand", ()))
        if heard and not self.reaches_all:
            raise InvalidInput(
                f"reach='selected': {type(algorithm).__name__} does not send {', '.join(sorted(heard))}, which clients "
                "know from earlier broadcasts, and those not selected would have missed it; set reach='all'"
            )

    def _check_budget(self) -> None:
        b = self.budget
        columns = {column for m in self.metrics for column in metric_catalogue.resolve(m).columns}
        if b.epsilon is not None and "epsilon" not in columns:
            raise InvalidInput(
                "Budget(epsilon=...): add metrics=(fs.privacy.spent(delta=1e-5),) so that it is accounted for"
            )
        if b.target is not None and b.target.metric not in columns:
            name = b.target.metric
            name = quoted(name)
            raise InvalidInput(f"Budget(target on {name}): add metrics=({name},) so that it is evaluated")
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

    `out` leaves the result as a folder; `checkpoint_every` (rounds, or "60s") keeps it resumable on the way,
    and `resume` takes it up where it was left. `compute="skip"` gives the timeline alone. Setting `stop`
    finishes the round, writes a checkpoint and raises Interrupted. `source` says where the scenario came from,
    for the manifest.
    """
    from threadpoolctl import threadpool_limits

    from fedsim import engine

    if not isinstance(scenario, Scenario):
        raise InvalidInput(f"run({quoted(scenario)}): give it a fs.Scenario")
    one_of("compute={!r}", compute, ("run", "skip"), "'run', or 'skip' for the timeline alone")
    watching = tuple(observers) if isinstance(observers, tuple | list) else ()
    if (observers is not None and not isinstance(observers, tuple | list)) or not all(map(callable, watching)):
        raise InvalidInput(f"observers={quoted(observers)}: give a list of functions of what happens")
    if stop is not None and not isinstance(stop, threading.Event):
        raise InvalidInput(f"stop={quoted(stop)}: give a threading.Event, or None")
    runtime = runtime if runtime is not None else Inline()
    if isinstance(runtime, type) or not hasattr(runtime, "open"):
        raise InvalidInput(f"runtime={quoted(runtime)}: write fs.Inline() or fs.Ray()")
    resume = flag("resume={}", resume)
    check_room(scenario, compute == "skip")
    began = time.perf_counter()
    place = Place.take(out, scenario, compute, checkpoint_every, resume, stop, source)
    if place.whole is not None:
        return place.whole
    runtime.kernels()  # loads every BLAS there is, before they are held to one thread
    with threadpool_limits(1):  # one BLAS thread: its bits must not depend on how many cores there are
        finished = await engine.simulate(scenario, runtime, watching, compute == "skip", place.keeper)
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

"""Scenario: one frozen record of what is simulated; `fedsim.running` has `run` and `arun`, which execute it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedsim import participation as policies
from fedsim import protocols, renamed
from fedsim.arrays import Array
from fedsim.budget import Budget
from fedsim.checks import as_array, check_choice, check_int, is_int
from fedsim.engine.recorder import Record
from fedsim.engine.sites import Sites, sites_of
from fedsim.errors import InvalidInput
from fedsim.exchanges import Exchange, Gossip, StarExchange
from fedsim.initial import Start
from fedsim.problems import weights_of
from fedsim.protocols import AlgorithmLike, DevicesLike, Metric, NetworkLike, PolicyLike, ProblemLike
from fedsim.scenario_checks import (
    check_broadcast_to,
    check_budget,
    check_metrics,
    check_participation,
    check_population,
)
from fedsim.scenario_checks.exchanges import check_exchange, check_graph
from fedsim.text import short_repr, short_str

PARTS: dict[str, tuple[type, str]] = {  # the required members of each, and the message where one is missing
    "problem": (ProblemLike, "a problem needs {}; see fs.problems"),
    "algorithm": (AlgorithmLike, "an algorithm needs {}(); see fs.algorithms"),
    "participation": (PolicyLike, "a policy needs {}(); see fs.participation"),
    "network": (NetworkLike, "a network needs {}; write fs.Network(graph), or see fs.topologies"),
    "devices": (DevicesLike, "devices need {}(); see fs.devices"),
}


@dataclass(frozen=True)
class Parts:
    """A scenario's parts, with the default optional members of their roles."""

    problem: protocols.Problem
    algorithm: protocols.Algorithm
    policy: protocols.Policy
    devices: protocols.DeviceModel | None
    network: protocols.NetworkModel | None

    @classmethod
    def of(cls, scenario: Scenario) -> Parts:
        devices, network = scenario.devices, scenario.network
        return cls(
            protocols.as_problem(scenario.problem),
            _algorithm_of(scenario),
            protocols.as_policy(scenario.participation),
            None if devices is None else protocols.as_devices(devices),
            None if network is None else protocols.as_network(network),
        )


@renamed.refuse_old_keywords("fs.Scenario")
@dataclass(frozen=True, eq=False)
class Scenario:
    """The specification of a simulation. `problem`, `algorithm` and `budget` are required; all fields are checked here.

    | field            | meaning                                                                                  |
    |------------------|------------------------------------------------------------------------------------------|
    | `problem`        | the clients' data and gradients; see fs.problems, or your own class                      |
    | `algorithm`      | what clients and server compute; see fs.algorithms, or your own class                    |
    | `budget`         | when to stop: `fs.Budget(rounds=200, seconds=..., uplink_bits=..., target=...)`          |
    | `network`        | `fs.topologies.star(...)` or `fs.Network(graph)`; None: messages take no time            |
    | `devices`        | `fs.devices.lognormal(...)` or the like; None: computing takes no time, no dropouts      |
    | `participation`  | cohort and closing of each round, `fs.participation.uniform(10)`; default all clients    |
    | `replicas`       | independent runs of the system, a number or a range of replica numbers                   |
    | `seed`           | the seed of all random numbers; equal seeds give equal bits                              |
    | `initial`        | theta before the first round, one per coordinate; None: zeros, or the problem's own      |
    | `dtype`          | of theta and of uncompressed messages: "float64" or "float32"                            |
    | `metrics`        | a tuple of metrics and their names, `("w2", fs.metrics.ess())`; see fs.metrics           |
    | `evaluate_every` | rounds between two evaluations of the metrics; the last round is always evaluated        |
    | `record`         | what is recorded: `fs.Record(every=10, warmup=100, events=True)`                         |
    | `broadcast_to`   | clients that receive the broadcast: "selected" or "all"; None: the algorithm's default   |
    | `exchange`       | where models live: `fs.exchanges.star()`, `tiers(groups, every)` or `gossip(graph)`      |
    """

    problem: ProblemLike
    algorithm: AlgorithmLike
    budget: Budget
    network: NetworkLike | None = None
    devices: DevicesLike | None = None
    participation: PolicyLike = field(default_factory=policies.full)
    replicas: int | range = 1
    seed: int = 0
    initial: npt.ArrayLike | Start | None = None  # (d,), (replicas, d), or fs.initial.normal(1.0)
    dtype: str = "float64"
    metrics: tuple[str | Metric, ...] = ()
    evaluate_every: int = 1
    record: Record = field(default_factory=Record)
    broadcast_to: str | None = None
    exchange: Exchange = field(default_factory=StarExchange)

    def __post_init__(self) -> None:
        self._check_parts()
        check_graph(self)
        object.__setattr__(self, "_parts", Parts.of(self))
        self._check_numbers()
        check_population(self)
        p = weights_of(self.problem)
        sites = sites_of(self.exchange, self.problem.clients, p, self.parts.algorithm, self.parts.network)
        object.__setattr__(self, "_sites", sites)
        self._check_start()
        check_exchange(self)
        check_participation(self)
        check_broadcast_to(self)
        check_budget(self)
        check_metrics(self)
        if not self.parts.problem.timing_only:
            self.record.check(
                self.budget.rounds, len(self.replica_numbers) * (sites.models if self.record.sites == "all" else 1),
                self.problem.dim, np.dtype(self.dtype).itemsize,
            )  # fmt: skip

    @property
    def parts(self) -> Parts:
        """The parts with the default optional members of their roles."""
        parts: Parts = self.__dict__["_parts"]
        return parts

    @property
    def sites(self) -> Sites:
        """The sites of models, and the routes of messages between them."""
        sites: Sites = self.__dict__["_sites"]
        return sites

    @property
    def replica_numbers(self) -> range:
        return self.replicas if isinstance(self.replicas, range) else range(int(self.replicas))

    @property
    def start(self) -> Array:
        """theta of the first replica before the first round, (d,)."""
        return np.asarray(self.starts[0])

    @property
    def starts(self) -> Array:
        """theta before the first round, (replicas, d); a broadcast view of one row where all start at one point."""
        start = self.initial
        if start is None or isinstance(start, Start):
            start = self.parts.problem.initial(self.seed)
        if isinstance(self.initial, Start):
            replicas = np.asarray(self.replica_numbers, np.int64)
            start = self.initial.draw(self.seed, replicas, np.asarray(start, np.float64), self.dtype)
        numbers = as_array(start)
        if numbers is None:
            raise InvalidInput(f"initial: not an array of {self.problem.dim} numbers")
        with np.errstate(over="ignore"):  # an infinity is refused
            start = np.asarray(numbers, self.dtype)
        shape = (len(self.replica_numbers), self.problem.dim)
        if start.shape == (shape[0], self.sites.models, shape[1]) and self.sites.models > 1:
            return np.asarray(np.einsum("rsd,s->rd", start, self.sites.weights), self.dtype)
        return np.broadcast_to(start, shape) if start.shape == shape[1:] else start

    @property
    def site_starts(self) -> Array:
        """theta of every model before the first round, (replicas * models, d), replica after replica."""
        models, given = self.sites.models, as_array(self.initial)
        if given is not None and given.ndim == 3:
            return np.asarray(given, self.dtype).reshape(-1, self.problem.dim)
        starts = self.starts
        if models == 1:
            return starts
        if starts.strides[0] == 0:
            return np.broadcast_to(starts[0], (len(starts) * models, self.problem.dim))
        return np.repeat(starts, models, axis=0)

    @property
    def broadcasts_to_all(self) -> bool:
        return (self.broadcast_to or self.parts.algorithm.broadcast_to) == "all"

    def _check_parts(self) -> None:
        for role, (required, lacks) in PARTS.items():
            part = getattr(self, role)
            if part is None and role in ("network", "devices"):
                continue
            if isinstance(part, type):
                kind = part.__name__
                raise InvalidInput(f"{role}={kind} is a class; give an object of it, {role}={kind}(...)")
            if name := protocols.missing(part, required):
                raise InvalidInput(f"{role}={short_repr(part)}: {lacks.format(name)}")
        protocols.check_potential(self.problem)
        if not isinstance(self.exchange, Exchange):
            raise InvalidInput(
                f"exchange={short_repr(self.exchange)}: write fs.exchanges.star(), tiers(groups) or gossip(graph)"
            )
        if not isinstance(self.budget, Budget):
            raise InvalidInput(f"budget={short_repr(self.budget)}: write fs.Budget(rounds=200)")
        if not isinstance(self.metrics, (tuple, list)):
            right = f"({short_repr(self.metrics)},)" if isinstance(self.metrics, str) else "('w2', fs.metrics.ess())"
            raise InvalidInput(f"metrics={short_repr(self.metrics)}: give a tuple, metrics={right}")
        if not isinstance(self.record, Record):
            raise InvalidInput(f"record={short_repr(self.record)}: write fs.Record(every=10, warmup=100)")

    def _check_numbers(self) -> None:
        if not isinstance(self.replicas, range):
            remedy = "an integer, or a range of replica numbers"
            object.__setattr__(self, "replicas", check_int("replicas={!r}", self.replicas, -(2**64), remedy))
        numbers = self.replica_numbers
        if not numbers or min(numbers[0], numbers[-1]) < 0 or max(numbers[0], numbers[-1]) >= 2**32:
            remedy = "ask for at least 1, numbered from 0 and below 2**32"
            raise InvalidInput(f"replicas={short_repr(self.replicas)}: {remedy}")
        if not is_int(self.seed) or self.seed >= 2**64:
            raise InvalidInput(f"seed={short_repr(self.seed)}: an integer from 0 to 2**64 - 1")
        object.__setattr__(self, "seed", int(self.seed))
        if short_str(self.dtype) not in ("float32", "float64"):
            raise InvalidInput(f"dtype={short_repr(self.dtype)}: choose 'float32' or 'float64'")
        object.__setattr__(self, "dtype", short_str(self.dtype))
        object.__setattr__(self, "evaluate_every", check_int("evaluate_every={!r}", self.evaluate_every))
        check_choice("broadcast_to={!r}", self.broadcast_to, (None, "selected", "all"), "choose 'selected' or 'all'")

    def _check_start(self) -> None:
        if (given := as_array(self.initial)) is not None:
            object.__setattr__(self, "initial", np.array(given))  # later changes of the caller's array change nothing
        starts = self.starts
        shape = (len(self.replica_numbers), self.problem.dim)
        if starts.shape != shape:
            each = f", or {(shape[0], self.sites.models, shape[1])}" if self.sites.models > 1 else ""
            raise InvalidInput(f"initial has shape {starts.shape}; the problem needs ({shape[1]},), or {shape}{each}")
        if not np.isfinite(starts[: 1 if starts.strides[0] == 0 else None]).all():
            raise InvalidInput("initial holds a NaN or an infinity; start from finite numbers")


def _algorithm_of(scenario: Scenario) -> protocols.Algorithm:
    """Return the algorithm with defaults; over gossip, its form without a server."""
    algorithm = protocols.as_algorithm(scenario.algorithm)
    if not isinstance(scenario.exchange, Gossip) or algorithm.needs_gossip:
        return algorithm
    return protocols.as_algorithm(algorithm.for_gossip(scenario.problem, scenario.exchange.weights))

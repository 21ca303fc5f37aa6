"""What every part of a scenario has to offer, role by role. Nothing else in fedsim asks what an object can do.

A class of your own needs no base class. It needs the members of `...Like`; the role below it lists what it may have
besides, and what stands there is what counts for a class that has none. A `Scenario` completes its parts once, when it
is made (`as_algorithm` and its like), and from then on every member is there. What only some objects can do (an exact
answer, a prediction, privacy) is a small Protocol of its own, asked for with `isinstance`.

`fs.testing.check(part)` runs the contract of a role on any object.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.errors import InvalidInput

if TYPE_CHECKING:
    from fedsim.kernels.clock.parts import DeviceArrays, PolicyArrays, RouteArrays
    from fedsim.participation.round import Arrived, Heard

BatchSize = int | float | Sequence[int] | None  # rows a gradient: a count, a fraction, one per client; None: all
Rows = tuple[Array, Array] | None  # of a minibatch: flat row numbers, and where each job's begin; None: all
Kernel = Callable[["Job", Arrays, Arrays], tuple[dict[str, Any], Arrays]]  # a compiled `client`
ManyRounds = Callable[[int, Array, int, int, Arrays, Arrays], tuple[Arrays, Arrays]]  # see Algorithm.many_rounds


# --- Algorithm ---------------------------------------------------------------------------------------


class AlgorithmLike(Protocol):
    """One paper's algorithm: hyper-parameters and a few pure functions. Arrays are (d,), or (jobs, d) if batched."""

    def init(self, problem: Any, initial: Array) -> Arrays:
        """The server's state before the first round; "theta" is what is recorded."""

    def broadcast(self, state: Arrays) -> Arrays:
        """What the server sends to every client that takes part."""

    def work(self, job: Any) -> float:
        """Local steps of a visit, known before anything is computed: `job` has `client` (jobs,) and nothing else.

        One number, or one for each job.
        """

    def client(self, job: Any, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
        """A client's reply (arrays, or `job.encode(codec, v)`), and what it remembers once the reply is folded."""

    def server(self, state: Arrays, replies: Any, rng: Any) -> Arrays:
        """The new state, out of the replies that arrived."""


class Algorithm(AlgorithmLike, Protocol):
    """What an algorithm may say besides."""

    own: Any  # the object itself, once it is completed

    batched: bool = False  # `client`, `broadcast` and `server` also take a leading axis of jobs or replicas
    sampler: bool = False  # its iterates are samples of a law: judged by their average, not by the latest
    weighted: bool = False  # its law is right only under weights that average to p_c
    reach: str = "selected"  # who receives the broadcast: "selected" or "all"
    known: tuple[str, ...] = ()  # parts of the message that clients already have, so that they are not sent again
    kept: tuple[str, ...] = ()  # reply fields that never travel and cost no bits ("loss": policies see it)
    beforehand: tuple[str, ...] = ()  # those of `known` that every client had before the first round
    temperature: float = 1.0  # the target is exp(-f / temperature)
    step_size: Any = None  # a number or a schedule
    batch_size: BatchSize = None
    activity: Any = None  # the chances of arrival that the server divides by, if it does
    codec: Any = None
    weigh: Callable[[Arrived], Array] | None = None  # weights of `replies.mean`; None: the policy's
    ensemble: Callable[[Arrays], tuple[Array, Array]] | None = None  # models (replicas, models, d), and which are there

    def memory(self, problem: Any) -> Arrays:
        """What a client remembers before its first visit."""
        return {}

    def fused(self, problem: Any, backend: Any) -> Kernel | None:
        """A compiled `client` for many jobs, where there is one for this problem and this backend."""
        return None

    def many_rounds(self, problem: Any, backend: Any) -> ManyRounds | None:
        """`go(seed, replicas, first, count, state, memory)`: several rounds in which everybody answers, compiled.

        It returns the states after each round, (count, replicas, ...), and the memory after the last.
        """
        return None

    def rounds_alike(self, number: int) -> int:
        """How many rounds from `number` on differ in nothing but their number."""
        return 2**62


class Job(Protocol):
    """What `client` sees of its job or, batched, of many: per-job scalars are then (jobs, 1)."""

    client: Any  # its number, or (jobs,)
    replica: Any
    round: int
    clients: int  # how many there are
    weight: Any  # p_c
    size: Any  # n_c, its rows

    def gradient(
        self, theta: Array, step: int, batch_size: BatchSize = None, *, split: int | None = None,
        clip: float | None = None, prior: bool = True,
    ) -> Array:  # fmt: skip
        """Of the client's summed loss: over all rows, or a fresh minibatch scaled up; equal steps, equal rows."""

    def normal(self, step: int) -> Array:
        """Private standard normals, one a coordinate."""

    def shared_normal(self, step: int) -> Array:
        """Standard normals that all clients of the replica have in common; nothing is sent for them."""

    def uniform(self, step: int) -> Array:
        """A coin in (0, 1), shape (1,)."""

    def potential(self, theta: Array) -> Array:
        """The client's summed loss up to a constant, float64, shape (1,)."""

    def encode(self, codec: Any, value: Array, lane: int = 0) -> Any:
        """`value` through a codec: `.value` as the server decodes it, `.bits` on the wire."""


class Replies(Protocol):
    """What `server` sees: the replies that arrived, sorted by client; perhaps none."""

    clients: Array  # (m,)
    multiplicity: Array  # (m,) how often each was drawn
    staleness: Array  # (m,) versions that passed since it set out; 0 where rounds are synchronous
    weights: Array  # (m,) of `mean`
    round: int

    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> Array: ...
    def mean(self, name: str) -> Array:
        """Weighted; of nobody: the state's own value, or zero where the state has none of that name."""

    def sum(self, name: str) -> Array: ...
    def weighted(self, name: str, weights: Array) -> Array:
        """A sum with any weights, one a reply."""


# --- Problem -----------------------------------------------------------------------------------------


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
    share: float = 0.0  # prior precision a row: `gradient` has share * rows * theta in it
    timing_only: bool = False  # no data: only the lengths of messages are real
    test: tuple[Array, Array] | None = None  # rows and labels for `predict`
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


# --- Participation -----------------------------------------------------------------------------------


class View(Protocol):
    """What a policy sees of one replica."""

    clients: int
    weights: Array  # p_c
    sizes: Array  # n_c
    round: int
    now_s: float
    opened_s: float
    selected: Any  # client numbers of this round
    arrived: Any
    in_flight: Any

    def everybody(self) -> Array:
        """Who is on now."""

    def available(self) -> Any:
        """A mask of who is on; True: all are."""

    def sample_available(self, size: int) -> Array:
        """So many different clients, uniformly among those that are on; fewer if fewer are."""

    def sample_weighted(self, draws: int) -> Array:
        """So many draws with probability p_c among those that are on; repeats count."""

    def heard(self, ids: Any) -> Array:
        """How many replies of each client arrived in time so far."""

    def last(self, ids: Any, column: str = "duration_s") -> Array:
        """Of each client's latest reply: "duration_s", "heard_s", "round" or "loss"; NaN where there was none."""


class PolicyLike(Protocol):
    """Who takes part, and when a round closes."""

    def select(self, view: Any, rng: Any) -> Any:
        """Client numbers, repeats allowed, or a mask (clients,)."""

    def close(self, view: Any) -> float:
        """When the round ends, asked at the opening and after every arrival; inf: keep waiting."""


class Policy(PolicyLike, Protocol):
    """What a policy may say besides."""

    own: Any  # the object itself, once it is completed

    batched: bool = False  # `select` also serves all replicas at once: ids (replicas, size)
    always: bool = False  # everybody, in every round
    asynchronous: bool = False  # clients work continuously, and `replies` arrivals make a round
    replies: int = 1
    size: int | None = None  # how many are asked, or at work; None: all, or not known
    discount: Callable[[int], float] | None = None  # of a reply's staleness
    draws_by_weight: bool = False  # p_c decides who is asked, so that the weights do not
    undecided: bool = False  # it averages the arrived alike, and leaves it to algorithms that know better
    at_least: int | None = None  # so many must be on before a round opens
    history: bool = False  # it looks at `view.heard` or `view.last`, so visits are followed one by one

    def closing(self, heard: Heard) -> tuple[Array, Array]:
        """`close` in closed form: when rounds end (replicas,), and which visits were in time (m,)."""
        raise NotImplementedError("asked only of policies with `closes_in_closed_form`")

    def weigh(self, arrived: Arrived) -> Array:
        """Weights of `replies.mean`, one a reply."""
        return arrived.normalised(arrived.p)

    def check(self, clients: int) -> None:
        """Refuse a population that it cannot serve."""

    def chance(self, weights: Array) -> tuple[Array, bool] | None:
        """Everybody's chance to be asked and waited for, and whether that is exact or a bound; None: unknown."""
        return None

    def bias(self) -> str:
        """What is wrong with its weights where the p_c differ, and the remedy; "" for nothing."""
        return ""

    def as_arrays(self) -> PolicyArrays | None:
        """Itself in plain numbers, for the compiled clock; None: it is asked at every opening and arrival."""
        return None


# --- DeviceModel -----------------------------------------------------------------------------------------


class DevicesLike(Protocol):
    """How long the clients compute."""

    def compute_s(self, clients: Array, work: Array, now_s: Array, rng: Any) -> Array:
        """Seconds of each visit; `work` is its local steps (times rows, if `per_example`)."""


class DeviceModel(DevicesLike, Protocol):
    """What devices may do besides."""

    own: Any  # the object itself, once it is completed

    timeless: bool = False  # nothing here depends on when a visit begins
    per_example: bool = False  # work counts rows as well

    def drop(self, clients: Array, now_s: Array, rng: Any) -> tuple[Array, Array]:
        """The phase in which each visit breaks off (0: none, 1 before, 2 compute, 3 upload), and how far into it."""
        return np.zeros(len(clients), np.int8), np.zeros(len(clients))

    @property
    def reliable(self) -> bool:
        """Nobody ever drops out."""
        return not isinstance(self, Drops)

    def next_available(self, clients: Array, now_s: Array, rng: Any) -> Array:
        """Now for whoever is on, else when it comes on; inf: never."""
        return now_s

    def available_until(self, clients: Array, now_s: Array, rng: Any) -> Array:
        """When each client, on now, goes off."""
        return np.full(len(clients), math.inf)

    @property
    def always_available(self) -> bool:
        return not isinstance(self, ComesAndGoes)

    def dropout_of(self, clients: Array) -> Array | None:
        """Everybody's chance to lose a visit; None: not known."""
        return None

    def check(self, clients: int) -> None:
        """Refuse tables with too few rows."""

    def as_arrays(self, clients: int, work: Array) -> DeviceArrays | None:
        """Itself in columns, for the compiled clock; None: it is asked at every visit. `work` is (clients,)."""
        return None


# --- NetworkModel -----------------------------------------------------------------------------------------


class NetworkLike(Protocol):
    """Everybody's way to the server (`upward`) and back; one value per client."""

    @property
    def clients(self) -> int: ...
    @property
    def contended(self) -> bool: ...  # whether two transfers can meet on a link
    def delay_s(self, upward: bool) -> Array: ...
    def stretch(self, upward: bool) -> Array:
        """By how much loss lengthens a transfer."""

    def bottleneck_bps(self, upward: bool) -> Array: ...


class NetworkModel(NetworkLike, Protocol):
    """What a contended network must have besides."""

    own: Any  # the object itself, once it is completed

    capacities_bps: Array = np.zeros(0)  # of every link

    def route(self, client: int, upward: bool) -> Array:
        """The links that a transfer uses, by number."""
        raise NotImplementedError("a contended network needs capacities_bps and route(client, upward)")

    def as_arrays(self) -> RouteArrays | None:
        """All routes at once, for the compiled clock; None: it is asked at every transfer."""
        return None


# --- Codec, runtime, backend, metric, observer ---------------------------------------------------------


@runtime_checkable
class Codec(Protocol):
    """What goes on the wire; `fixed` lengths do not depend on the values and have `length(d, dtype)`."""

    @property
    def fixed(self) -> bool: ...
    def encode(self, v: Array, key: Array | None = None) -> bytes: ...
    def decode(self, data: bytes, d: int) -> Array: ...
    def bits(self, v: Array, key: Array | None = None) -> int: ...
    def quantise(self, values: Array, keys: Array | None = None) -> tuple[Array, Array]: ...
    def omega(self, d: int) -> float: ...


class Backend(Protocol):
    """The array maths of a run: `kernels.reference`, `kernels.cpu` or `kernels.cuda`, with the same names."""

    name: str

    def keys(
        self, seed: int, stream: int, *, replica: Any = 0, client: Any = 0, round: Any = 0, visit: Any = 0
    ) -> Array:
        """Philox keys, one a row, of addressed draws."""

    def normal(self, key: Array, lanes: int, step: int = 0, dtype: Any = ..., call: int = 0) -> Array: ...
    def uniform(self, key: Array, lanes: int, step: int = 0, dtype: Any = ...) -> Array: ...
    def integers(self, key: Array, lanes: int, below: Any, step: int = 0) -> Array: ...
    def choice(self, key: Array, population: Any, size: int, step: int = 0) -> Array: ...
    def choose_rows(self, key: Array, population: Array, start: Array, step: int) -> Array: ...
    def segment_sum(self, values: Array, weights: Array, starts: Array) -> Array: ...
    def gradients(self, problem: Any, theta: Array, clients: Array, rows: Rows) -> Array: ...


class SessionLike(Protocol):
    """A run's jobs on a runtime."""

    async def submit(self, batch: Any, work: float = 1.0) -> Any:
        """All replies of a batch of jobs, in its order."""

    def close(self) -> None: ...


class Session(SessionLike, Protocol):
    """What a session may do besides."""

    own: Any  # the object itself, once it is completed
    elsewhere: bool = False  # jobs sent early run while the driver keeps time
    can_iterate: bool = False  # `iterate` serves this algorithm and problem

    def each(self, function: Callable[[int], int], items: Sequence[int]) -> list[int]:
        """`function` of each, on the threads that this process has for the run."""
        return [function(item) for item in items]

    async def iterate(
        self, replicas: Array, first: int, count: int, state: Arrays, memory: Arrays
    ) -> tuple[Arrays, Arrays]:
        """`many_rounds` of the algorithm, on this runtime."""
        raise NotImplementedError("asked only of sessions that `can_iterate`")


class Runtime(Protocol):
    """Where jobs run: `fs.Inline` or `fs.Ray`."""

    def kernels(self) -> Backend: ...
    def open(self, algorithm: AlgorithmLike, setting: Any) -> SessionLike: ...


@runtime_checkable
class Metric(Protocol):
    """Fills columns after a round: one value per replica, or one over all of them."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def per_replica(self) -> bool: ...
    def evaluate(self, view: Any) -> Mapping[str, float | Array]: ...


class Observer(Protocol):
    """Called after every round with a `Progress`; it reads and can never change the run."""

    def __call__(self, progress: Any) -> None: ...


class Watching(Protocol):
    """What an observer may say besides."""

    sparse: bool = False  # it need not see every round, so that many may be taken at a go


# --- What only some can do -----------------------------------------------------------------------------


@runtime_checkable
class Exact(Protocol):
    """A problem whose posterior is known: its mean (d,) and covariance (d, d)."""

    def exact(self) -> tuple[Array, Array]: ...


@runtime_checkable
class Quadratic(Protocol):
    """A problem whose full gradients are H_c theta - b_c: tables (clients, d, d) and (clients, d)."""

    def quadratic(self, dtype: Any = ...) -> tuple[Array, Array]: ...


@runtime_checkable
class Reacts(Protocol):
    """A problem whose data are drawn anew in answer to theta."""

    def react(self, theta: Array, clients: Array, key: Array, step: int, batch_size: Any, backend: Any) -> Array: ...


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
    """A problem with its summed loss, in float64, at each row of theta."""

    def potential(self, theta: Array) -> Array: ...


@runtime_checkable
class BatchedGradients(Protocol):
    """A problem that computes the gradients of many jobs at once."""

    def gradients(self, theta: Array, clients: Array, rows: Rows = None) -> Array: ...


@runtime_checkable
class PortableGradients(Protocol):
    """The same, through any backend's kernels."""

    def gradients_by(self, kernels: Any, theta: Array, clients: Array, rows: Rows) -> Array: ...


@runtime_checkable
class Clips(Protocol):
    """A problem that bounds the norm of every row's own gradient faster than row by row."""

    def clipped(self, theta: Array, clients: Array, rows: Rows, clip: float) -> Array: ...


@runtime_checkable
class InNumbers(Protocol):
    """A law, such as a slow-down's, that a kind and a few numbers name."""

    def as_arrays(self) -> Any: ...


@runtime_checkable
class InColumns(Protocol):
    """Something about clients, such as when they are on, that columns tell: a row for each of these."""

    def as_arrays(self, rows: Array) -> Any: ...


@runtime_checkable
class Drops(Protocol):
    def drop(self, clients: Array, now_s: Array, rng: Any) -> tuple[Array, Array]: ...


@runtime_checkable
class ComesAndGoes(Protocol):
    def next_available(self, clients: Array, now_s: Array, rng: Any) -> Array: ...


@runtime_checkable
class ClosesInClosedForm(Protocol):
    def closing(self, heard: Any) -> tuple[Array, Array]: ...


@runtime_checkable
class PrivacyMechanism(Protocol):
    """An algorithm that can say what a visit tells of a client's rows."""

    def mechanism(self, problem: Any, sensitivity: float | None) -> Any: ...


@runtime_checkable
class PrivacyGuarantee(Protocol):
    """An algorithm whose paper promises its clients something."""

    def guarantee(self, problem: Any) -> Any: ...


@runtime_checkable
class KeepsLedger(Protocol):
    """A metric that keeps a ledger of what every client has given away."""

    def ledger(self, algorithm: Any, problem: Any, replicas: int) -> Any: ...


@runtime_checkable
class Stable(Protocol):
    """A problem whose performatively stable point is known."""

    def performatively_stable(self) -> Array: ...


@runtime_checkable
class HasShards(Protocol):
    """A problem that can give the host of some clients their rows alone."""

    def shard(self, clients: Array) -> Any: ...


@runtime_checkable
class Describes(Protocol):
    """Anything with one line about itself for people."""

    def describe(self) -> str: ...


# --- Completing a part -----------------------------------------------------------------------------------


class Completed:
    """A part with every member of its role: its own where it has one, else the role's default."""

    def __init__(self, own: object, role: type) -> None:
        for name, default in _members(role).items():
            said = getattr(own, name, None)
            if said is not None or (hasattr(own, name) and not callable(default)):
                value = said
            elif isinstance(default, property):
                assert default.fget is not None
                value = default.fget(own)
            else:
                value = MethodType(default, own) if isinstance(default, FunctionType) else default
            setattr(self, name, value)
        self.own = own


def as_algorithm(own: object) -> Algorithm:
    return cast(Algorithm, own if isinstance(own, Completed) else Completed(own, Algorithm))


def as_problem(own: object) -> Problem:
    return cast(Problem, own if isinstance(own, Completed) else Completed(own, Problem))


def as_policy(own: object) -> Policy:
    return cast(Policy, own if isinstance(own, Completed) else Completed(own, Policy))


def as_devices(own: object) -> DeviceModel:
    return cast(DeviceModel, own if isinstance(own, Completed) else Completed(own, DeviceModel))


def as_network(own: object) -> NetworkModel:
    return cast(NetworkModel, own if isinstance(own, Completed) else Completed(own, NetworkModel))


def as_session(own: object) -> Session:
    return cast(Session, own if isinstance(own, Completed) else Completed(own, Session))


def is_sparse(observer: Observer) -> bool:
    return cast(Watching, Completed(observer, Watching)).sparse


def missing(own: object, required: type) -> str:
    """The first member that a part of this role must have and this object lacks; "" for none."""
    return next((name for name in _members(required) if not hasattr(own, name)), "")


def _members(role: type) -> dict[str, Any]:
    """The members of a role, required ones first, with their defaults (None where there is none)."""
    found: dict[str, Any] = {}
    for base in reversed(role.__mro__):
        if base.__module__ == __name__:
            own = {**dict.fromkeys(inspect.get_annotations(base)), **vars(base)}
            found |= {name: value for name, value in own.items() if not name.startswith("_")}
    return found

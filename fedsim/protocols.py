"""What every part of a scenario has to offer, role by role. Nothing else in fedsim asks what an object can do.

A class of your own needs no base class. It needs the members of `...Like`; the role below it lists what it may have
besides, and what stands there is what counts for a class that has none. A `Scenario` completes its parts once, when it
is made (`complete`), and from then on every member is there. What only some objects can do (an exact answer, a
prediction, privacy) is a small Protocol of its own at the end, asked for with `isinstance`.

`fs.testing.check(part)` runs the contract of a role on any object.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from fedsim.arrays import Array, Arrays

if TYPE_CHECKING:
    from fedsim.participation.round import Arrived, Heard
    from fedsim.rng import Draws

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
        """Local steps of a visit, known before anything is computed (`job` is None)."""

    def client(self, job: Any, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
        """A client's reply (arrays, or `job.encode(codec, v)`), and what it remembers once the reply is folded."""

    def server(self, state: Arrays, replies: Any, rng: Any) -> Arrays:
        """The new state, out of the replies that arrived."""


class Algorithm(AlgorithmLike, Protocol):
    """What an algorithm may say besides."""

    batched: bool = False  # `client`, `broadcast` and `server` also take a leading axis of jobs or replicas
    sampler: bool = False  # its iterates are samples of a law: judged by their average, not by the latest
    weighted: bool = False  # its law is right only under weights that average to p_c
    reach: str = "selected"  # who receives the broadcast: "selected" or "all"
    known: tuple[str, ...] = ()  # parts of the message that clients already have, so that they are not sent again
    beforehand: tuple[str, ...] = ()  # those of `known` that every client had before the first round
    temperature: float = 1.0  # the target is exp(-f / temperature)
    step_size: Any = None  # a number or a schedule
    batch_size: BatchSize = None
    activity: Any = None  # the chances of arrival that the server divides by, if it does
    codec: Any = None

    def memory(self, problem: Any) -> Arrays:
        """What a client remembers before its first visit."""
        return {}

    def weigh(self, arrived: Arrived) -> Array | None:
        """Weights of `replies.mean`; None leaves them to the policy."""
        return None

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
    """The clients' data and the gradients of their losses."""

    @property
    def clients(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def sizes(self) -> Array: ...  # (clients,) rows of each
    def gradient(self, theta: Array, client: int, rows: Array | None = None) -> Array:
        """Of the client's loss *summed* over its rows, all of them or those given, (d,)."""


class Problem(ProblemLike, Protocol):
    """What a problem may have besides."""

    weights: Array | None = None  # p_c; None: in proportion to the sizes
    share: float = 0.0  # prior precision a row: `gradient` has share * rows * theta in it
    timing_only: bool = False  # no data: only the lengths of messages are real
    test: tuple[Array, Array] | None = None  # rows and labels for `predict`

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

    def last(self, ids: Any, column: str = "duration_s") -> Array:
        """Of each client's latest finished visit; NaN where there was none."""


class PolicyLike(Protocol):
    """Who takes part, and when a round closes."""

    def select(self, view: Any, rng: Any) -> Any:
        """Client numbers, repeats allowed, or a mask (clients,)."""

    def close(self, view: Any) -> float:
        """When the round ends, asked at the opening and after every arrival; inf: keep waiting."""


class Policy(PolicyLike, Protocol):
    """What a policy may say besides."""

    batched: bool = False  # `select` also serves all replicas at once: ids (replicas, size)
    always: bool = False  # everybody, in every round
    asynchronous: bool = False  # clients work continuously, and `replies` arrivals make a round
    replies: int = 1
    size: int | None = None  # how many are asked, or at work; None: all, or not known
    discount: Callable[[int], float] | None = None  # of a reply's staleness
    at_least: int | None = None  # so many must be on before a round opens

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

    def unbiased(self, equal: bool) -> str:
        """Why a weighted sampler would be biased under it, with the remedy; "" where it is not."""
        return ""


# --- Devices -----------------------------------------------------------------------------------------


class DevicesLike(Protocol):
    """How long the clients compute."""

    def compute_s(self, clients: Array, work: Array, now_s: Array, rng: Any) -> Array:
        """Seconds of each visit; `work` is its local steps (times rows, if `per_example`)."""


class Devices(DevicesLike, Protocol):
    """What devices may do besides."""

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


# --- Network -----------------------------------------------------------------------------------------


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


class Network(NetworkLike, Protocol):
    """What a contended network must have besides."""

    capacities_bps: Array = np.zeros(0)  # of every link

    def route(self, client: int, upward: bool) -> Array:
        """The links that a transfer uses, by number."""
        raise NotImplementedError("a contended network needs capacities_bps and route(client, upward)")


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

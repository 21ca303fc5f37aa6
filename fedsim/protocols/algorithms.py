"""What an algorithm has to offer and may say besides, and what it sees of jobs and replies.

What policies, devices and servers draw from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array, Arrays
from fedsim.errors import InvalidInput

if TYPE_CHECKING:
    from fedsim.privacy.accountant import Guarantee, Mechanism
    from fedsim.protocols.participation import Received
    from fedsim.protocols.problems import ProblemLike
    from fedsim.protocols.runtime import Backend, Codec

BatchSize = int | float | Sequence[int] | None  # rows a gradient: a count, a fraction, one per client; None: all
Quantise = Callable[[Array, Array], tuple[Array, Array]]  # values and keys: what arrives, and its bits
Kernel = Callable[["JobOfKernel", Arrays, Arrays], tuple[dict[str, Any], Arrays]]  # a compiled `client`


@dataclass(frozen=True)
class Visitors:
    """What `work` may look at, before anything is computed: who visits. It answers one number, or one for each."""

    client: Array


class AlgorithmLike(Protocol):
    """One paper's algorithm: hyper-parameters and a few pure functions. Arrays are (d,), or (jobs, d) if batched."""

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        """The server's state before the first round; "theta" is what is recorded."""

    def broadcast(self, state: Arrays) -> Arrays:
        """What the server sends to every client that takes part."""

    def work(self, job: Visitors) -> float:
        """Local steps of a visit, known before anything is computed."""

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
        """A client's reply (arrays, or `job.encode(codec, v)`), and what it remembers once the reply is folded."""

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        """The new state, out of the replies that arrived."""


class Algorithm(AlgorithmLike, Protocol):
    """What an algorithm may say besides."""

    wrapped: Any  # the object itself, once it has defaults

    batched: bool = False  # `client`, `broadcast` and `server` also take a leading axis of jobs or replicas
    sampler: bool = False  # its iterates are samples of a law: judged by their average, not by the latest
    weighted: bool = False  # its law is right only under weights that average to p_c
    visits_by_weight: bool = False  # it follows one client a round, which must be client c with probability p_c
    broadcast_to: str = "selected"  # who receives the broadcast: "selected" or "all"
    known: tuple[str, ...] = ()  # parts of the message that clients already have, so that they are not sent again
    kept: tuple[str, ...] = ()  # reply fields that never travel and cost no bits ("loss": policies see it)
    beforehand: tuple[str, ...] = ()  # those of `known` that every client had before the first round
    temperature: float = 1.0  # the target is exp(-f / temperature)
    step_size: Any = None  # a number or a schedule
    batch_size: BatchSize = None
    activity: Any = None  # the chances of arrival that the server divides by, if it does
    codec: Any = None
    weigh: Callable[[Received], Array] | None = None  # weights of `replies.mean`; None: the policy's
    own_weights: bool = False  # its server weighs replies by itself and does not use the policy's weights
    merge: Callable[[Arrays, Array], Arrays] | None = None  # a cloud's state out of its edges' (edges, ...) and weights
    sums: bool = False  # its server needs sums of messages alone: over tiers it is the cloud, and edges add up
    averages: bool = True  # its server's step averages replies, so that a cloud may average what its edges made
    objective: Any = "mean"  # "scaled": clients descend p_c N f_c, and the server averages with 1/M
    any_mixing: bool = False  # it divides by job.weight, so that W need not be doubly stochastic over gossip
    needs_gossip: bool = False  # it tells a site's own reply apart (`replies.own`), so it runs over gossip alone
    lossless: bool = False  # its recursion is wrong where a message is lost
    ensemble: Callable[[Arrays], tuple[Array, Array]] | None = None  # models (replicas, models, d), and which are there

    def memory(self, problem: ProblemLike) -> Arrays:
        """What a client remembers before its first visit."""
        return {}

    def fused(self, problem: ProblemLike, backend: Backend) -> Kernel | None:
        """A compiled `client` for many jobs, where there is one for this problem and this backend."""
        return None

    def fused_rounds(self, problem: ProblemLike, backend: Backend) -> BlockKernel | None:
        """A compiled form of blocks of rounds, `client` and `server`; None: the engine loops over `fused`."""
        return None

    def surrogate_numbers(self, dim: int) -> int:
        """Numbers that every client sends once, before its first visit; the first round counts their bits."""
        return 0

    def for_gossip(self, problem: ProblemLike, weights: Array) -> AlgorithmLike:
        """What every client runs where there is no server: this, or a variant of it; a refusal where there is none.

        `weights` is the stationary weight of every site in the mixing, (clients,).
        """
        raise InvalidInput(
            f"{type(self).__name__} needs a server: its replies are not models that neighbours could average; gossip "
            "with FALD, FAHMC, FedAvg, DESGLD or DIGingSGLD, or give your own class for_gossip(problem, weights)"
        )


class Job(Protocol):
    """What `client` sees of its job or, batched, of many: per-job scalars are then (jobs, 1)."""

    client: Any  # its number, or (jobs,)
    replica: Any
    round: int
    clients: int  # how many there are
    weight: Any  # p_c; over gossip the stationary weight of its site in the mixing
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
        """The client's own summed loss with its share of the prior, whose slope `gradient` is; float64, shape (1,)."""

    def loss(self, theta: Array) -> Array:
        """The mean loss over the client's own rows, without the prior; float64, shape (1,)."""

    def encode(self, codec: Codec | tuple[Codec, ...], value: Array, lane: int = 0) -> Any:
        """`value` through a codec, or one per client: `.value` as the server decodes it, `.bits` on the wire."""


class JobOfKernel(Job, Protocol):
    """What a compiled `client` sees besides: many jobs at once, and keys to draw with, one row a job."""

    @property
    def noise_key(self) -> Array: ...
    @property
    def shared_key(self) -> Array: ...
    @property
    def rows_key(self) -> Array:
        """Of minibatches."""

    def encode_by(self, quantise: Quantise, value: Array, lane: int = 0) -> Any:
        """`encode` by a function of (jobs, d) and of a key for each, such as a kernel that computes as well."""


class RoundsToLearn(Protocol):
    """Consecutive rounds of some replicas, for a compiled form of blocks of rounds."""

    @property
    def replicas(self) -> Array: ...  # their numbers
    @property
    def first(self) -> int: ...  # the first round, from 1
    @property
    def rounds(self) -> int: ...
    @property
    def state(self) -> Arrays: ...  # (replicas, ...)
    @property
    def same_cohort(self) -> bool:
        """Return True if all rounds aggregate the same clients with the same weights."""

    def segments_of(self, k: int) -> Any:
        """The replies of the k-th round: `client`, `weights`, and `starts` of each replica's."""


class RoundKeys(Protocol):
    """Keys to draw with in a block of rounds, one a row."""

    def codec(self, replica: Array, client: Array, round: Array) -> Array: ...
    def rows(self, replica: Array, client: Array, round: Array) -> Array:
        """Of minibatches."""

    def server(self, replica: Array, round: Array) -> Array: ...


BlockKernel = Callable[[RoundsToLearn, RoundKeys], Array]  # theta after every round, (rounds, replicas, d)


class Replies(Protocol):
    """What `server` sees: the replies that arrived, sorted by client; perhaps none."""

    clients: Array  # (m,)
    multiplicity: Array  # (m,) how often each was drawn
    staleness: Array  # (m,) versions that passed since it set out; 0 where rounds are synchronous
    weights: Array  # (m,) of `mean`
    round: int
    starts: Array  # batched: replica r owns the rows starts[r]:starts[r + 1]

    @property
    def count(self) -> int | Array:
        """How many arrived: a number, or (replicas, 1)."""

    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> Array: ...
    def mean(self, name: str) -> Array:
        """Weighted; of nobody: the state's own value, or zero where the state has none of that name."""

    def own(self, name: str) -> Array:
        """Over gossip: the reply of the site's own client."""

    def sum(self, name: str) -> Array: ...
    def weighted(self, name: str, weights: Array) -> Array:
        """A sum with any weights, one a reply."""


@runtime_checkable
class PrivacyMechanism(Protocol):
    """An algorithm that can say what a visit tells of a client's rows."""

    def mechanism(self, problem: ProblemLike, sensitivity: float | None) -> Mechanism: ...


@runtime_checkable
class PrivacyGuarantee(Protocol):
    """An algorithm whose paper promises its clients something."""

    def guarantee(self, problem: ProblemLike) -> Guarantee: ...


class Rng(Protocol):
    """One row of draws per replica or visit, a new one at every call; made afresh for every round.

    Whoever has one row (a policy of one replica, a server that is not `batched`) gets answers without the axis of rows.
    """

    def uniform(self, lanes: int | None = None) -> Any:
        """In (0, 1): (rows,), or (rows, lanes)."""

    def normal(self, lanes: int | None = None, dtype: npt.DTypeLike = np.float64) -> Any:
        """Standard normals: (rows,), or (rows, lanes)."""

    def integers(self, below: npt.ArrayLike, lanes: int | None = None) -> Any:
        """Whole numbers in [0, below): (rows,), or (rows, lanes)."""

    def choice(self, population: int, size: int) -> Any:
        """So many different numbers of range(population): (rows, size)."""

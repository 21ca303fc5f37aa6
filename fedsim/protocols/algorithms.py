"""The contract of an algorithm, and what it sees: jobs, replies, random numbers."""

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

BatchSize = int | float | Sequence[int] | None  # rows per gradient: a count, a fraction, one per client; None: all
Quantise = Callable[[Array, Array], tuple[Array, Array]]  # values and keys to decoded values and bits
Kernel = Callable[["JobOfKernel", Arrays, Arrays], tuple[dict[str, Any], Arrays]]  # a compiled `client`


@dataclass(frozen=True)
class Visitors:
    """The clients of visits, for `work`, which returns one number or one per visit."""

    client: Array


class AlgorithmLike(Protocol):
    """The required members of an algorithm. Arrays are (d,), or (jobs, d) if the algorithm is `batched`."""

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        """Return the server's state before the first round; "theta" is recorded."""

    def broadcast(self, state: Arrays) -> Arrays:
        """Return the message from the server to the selected clients."""

    def work(self, job: Visitors) -> float:
        """Return the local steps of a visit, known before anything is computed."""

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
        """Return a reply (arrays, or `job.encode(codec, v)`), and the memory to keep once the reply is aggregated."""

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        """Return the new state, given the replies that were received."""


class Algorithm(AlgorithmLike, Protocol):
    """All members of an algorithm, with the defaults of the optional ones."""

    wrapped: Any  # the object itself, once it has defaults

    batched: bool = False  # `client`, `broadcast` and `server` accept a leading axis of jobs or replicas
    sampler: bool = False  # its iterates are samples: metrics average over them instead of taking the latest
    weighted: bool = False  # its law is right only under weights that average to p_c
    visits_by_weight: bool = False  # it follows one client a round, which must be client c with probability p_c
    broadcast_to: str = "selected"  # the clients that receive the broadcast: "selected" or "all"
    known: tuple[str, ...] = ()  # fields of the message that clients have already; they cost no bits
    beforehand: tuple[str, ...] = ()  # those of `known` that all clients had before the first round
    local_only: tuple[str, ...] = ()  # reply fields that stay on the device and cost no bits ("loss": for policies)
    temperature: float = 1.0  # the target is exp(-f / temperature)
    step_size: Any = None  # a number or a schedule
    batch_size: BatchSize = None
    activity: Any = None  # the probabilities of arrival that the server divides by, if it does
    codec: Any = None
    weigh: Callable[[Received], Array] | None = None  # weights of `replies.mean`; None: the policy's
    own_weights: bool = False  # its server computes its own weights and ignores the policy's
    merge: Callable[[Arrays, Array], Arrays] | None = None  # the cloud's state from its edges' (edges, ...) and weights
    sums: bool = False  # its server needs only sums of messages: over tiers the cloud is the server, and edges add up
    averages: bool = True  # its server's step averages replies, so that a cloud may average the edges' models
    objective: Any = "mean"  # "scaled": clients descend p_c N f_c, and the server averages with 1/M
    any_mixing: bool = False  # it divides by job.weight, so that W need not be doubly stochastic over gossip
    needs_gossip: bool = False  # it reads a site's own reply (`replies.own`), so it runs over gossip alone
    lossless: bool = False  # its recursion is wrong where a message is lost
    ensemble: Callable[[Arrays], tuple[Array, Array]] | None = None  # models (replicas, models, d), and a mask of them

    def memory(self, problem: ProblemLike) -> Arrays:
        """Return a client's memory before its first visit."""
        return {}

    def fused(self, problem: ProblemLike, backend: Backend) -> Kernel | None:
        """Return a compiled `client` for many jobs; None where this problem and this backend have none."""
        return None

    def fused_rounds(self, problem: ProblemLike, backend: Backend) -> BlockKernel | None:
        """Return a compiled form of blocks of rounds, `client` and `server`; None: the engine loops over `fused`."""
        return None

    def surrogate_numbers(self, dim: int) -> int:
        """Return how many numbers each client sends once, before its first visit; the first round counts their bits."""
        return 0

    def for_gossip(self, problem: ProblemLike, weights: Array) -> AlgorithmLike:
        """Return the algorithm that clients run without a server: this one or a variant; refuse where there is none.

        `weights` is the stationary weight of every site in the mixing, (clients,).
        """
        raise InvalidInput(
            f"{type(self).__name__} needs a server: its replies are not models that neighbours could average; gossip "
            "with FALD, FAHMC, FedAvg, DESGLD or DIGingSGLD, or give your own class for_gossip(problem, weights)"
        )


class Job(Protocol):
    """What `client` sees of its job or, if it is batched, of many: scalars per job are then (jobs, 1)."""

    client: Any  # its number, or (jobs,)
    replica: Any
    round: int  # from 1
    clients: int  # of the population
    weight: Any  # p_c; over gossip the stationary weight of its site in the mixing
    size: Any  # n_c, its rows

    def gradient(
        self, theta: Array, step: int, batch_size: BatchSize = None, *, split: int | None = None,
        clip: float | None = None, prior: bool = True,
    ) -> Array:  # fmt: skip
        """Return the gradient of the client's summed loss over all rows, or over a minibatch scaled up.

        Equal steps use equal rows. The array is the caller's own.
        """

    def normal(self, step: int) -> Array:
        """Return private standard normals, one per coordinate."""

    def shared_normal(self, step: int) -> Array:
        """Return standard normals that are equal for all clients of the replica (a common seed)."""

    def uniform(self, step: int) -> Array:
        """Return a uniform number in (0, 1), shape (1,)."""

    def potential(self, theta: Array) -> Array:
        """Return the client's summed loss with its share of the prior, whose slope is `gradient`; float64, (1,)."""

    def loss(self, theta: Array) -> Array:
        """Return the mean loss over the client's rows, without the prior; float64, shape (1,)."""

    def encode(self, codec: Codec | tuple[Codec, ...], value: Array, lane: int = 0) -> Any:
        """Encode a value by a codec, or one per client: `.value` as the server decodes it, `.bits` on the wire."""


class JobOfKernel(Job, Protocol):
    """What a compiled `client` also sees: many jobs at once, and keys of their draws, one row a job."""

    @property
    def noise_key(self) -> Array: ...
    @property
    def shared_key(self) -> Array: ...
    @property
    def rows_key(self) -> Array:
        """The keys of minibatches."""

    def encode_by(self, quantise: Quantise, value: Array, lane: int = 0) -> Any:
        """Encode by a function of (jobs, d) and of a key for each, such as a kernel that also computes."""


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
        """Return the replies of the k-th round: `client`, `weights`, and `starts` of each replica's."""


class RoundKeys(Protocol):
    """Keys of draws in a block of rounds, one a row."""

    def codec(self, replica: Array, client: Array, round: Array) -> Array: ...
    def rows(self, replica: Array, client: Array, round: Array) -> Array:
        """Return the keys of minibatches."""

    def server(self, replica: Array, round: Array) -> Array: ...


BlockKernel = Callable[[RoundsToLearn, RoundKeys], Array]  # theta after every round, (rounds, replicas, d)


class Replies(Protocol):
    """What `server` sees: the replies that were received, sorted by client; possibly none."""

    clients: Array  # (m,)
    multiplicity: Array  # (m,) how often each was drawn
    staleness: Array  # (m,) model versions since the visit started; 0 where rounds are synchronous
    weights: Array  # (m,) of `mean`
    round: int  # from 1
    starts: Array  # batched: replica r owns the rows starts[r]:starts[r + 1]

    @property
    def count(self) -> int | Array:
        """The number of replies, or (replicas, 1)."""

    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> Array: ...
    def mean(self, name: str) -> Array:
        """Return the weighted mean; of no reply the state's own value, or zero where the state has none."""

    def own(self, name: str) -> Array:
        """Return, over gossip, the reply of the site's own client."""

    def sum(self, name: str) -> Array: ...
    def weighted(self, name: str, weights: Array) -> Array:
        """Return a sum with any weights, one per reply."""


@runtime_checkable
class PrivacyMechanism(Protocol):
    """An algorithm with a privacy mechanism: the sensitivity and noise of one visit."""

    def mechanism(self, problem: ProblemLike, sensitivity: float | None) -> Mechanism: ...


@runtime_checkable
class PrivacyGuarantee(Protocol):
    """An algorithm whose paper gives a privacy guarantee."""

    def guarantee(self, problem: ProblemLike) -> Guarantee: ...


class Rng(Protocol):
    """Random numbers of policies, devices and servers: one row per replica or visit, new ones at every call.

    Where there is one row (a policy of one replica, a server that is not `batched`) results have no axis of rows.
    """

    def uniform(self, lanes: int | None = None) -> Any:
        """Return numbers in (0, 1): (rows,), or (rows, lanes)."""

    def normal(self, lanes: int | None = None, dtype: npt.DTypeLike = np.float64) -> Any:
        """Return standard normals: (rows,), or (rows, lanes)."""

    def integers(self, below: npt.ArrayLike, lanes: int | None = None) -> Any:
        """Return integers in [0, below): (rows,), or (rows, lanes)."""

    def choice(self, population: int, size: int) -> Any:
        """Return `size` different numbers of range(population): (rows, size)."""

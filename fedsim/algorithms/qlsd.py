"""QLSD: quantised Langevin stochastic dynamics (Vono, Plassier, Durmus, Dieuleveut and Moulines, AISTATS 2022)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsim.algorithms.common.arguments import check_batch_size, check_codec, check_step_size, check_word
from fedsim.algorithms.common.qlsd_block import block_kernel
from fedsim.algorithms.common.quantised_langevin import Quantised, compiled
from fedsim.arrays import Array, Arrays
from fedsim.checks import as_float_array
from fedsim.codecs import Identity
from fedsim.errors import InvalidInput
from fedsim.participation import Received
from fedsim.protocols import (
    Backend,
    BlockKernel,
    Job,
    Kernel,
    ProblemLike,
    Replies,
    Rng,
    Visitors,
    as_policy,
    as_problem,
)
from fedsim.schedules import StepSize, step_at
from fedsim.text import short_repr, short_str


@dataclass(frozen=True)
class QLSD:
    """QLSD: quantised Langevin stochastic dynamics (Vono, Plassier, Durmus, Dieuleveut and Moulines, AISTATS 2022).

        client i in A:  m_i = C(H_i(theta)),  H_i(theta) = (N_i / n_i) sum over a minibatch of grad U_ij(theta)
        server:         theta <- theta - gamma (b / |A|) sum_{i in A} m_i + sqrt(2 gamma) xi          (Algorithm 1)

    | symbol  | argument     | meaning                                                                             |
    |---------|--------------|-------------------------------------------------------------------------------------|
    | gamma   | `step_size`  | a number, or a schedule of the iteration                                            |
    | n_i     | `batch_size` | rows per gradient, drawn without replacement (QLSD#); None: all of them             |
    | C, C_i  | `codec`      | unbiased quantiser, or a tuple of one per client; `Identity()` gives LSD            |
    | empty A | `empty`      | "noise": no gradient but the prior's, and noise as ever; "hold": theta stays        |
    | b / |A| | `weighting`  | "count": b / |A|, biased where some answer more often; "inverse": 1 / p_i, never is |
    | p_i     | `activity`   | the chance that i's message arrives, for "inverse": one number, or one per client   |

    Noise is the server's, once per iteration. Wire: up C(H_i) from the active, down theta (d) to all b clients.
    Memory: none. Participation: bernoulli(p) in the paper.

    Differs from paper: an empty A, by which it would divide, is a gradient of zero (C1). The prior is the server's,
    added exactly and never compressed (C14). Algorithm 1 divides by |A|, the theorems on generalised QLSD by p_i:
    `weighting` has both (C2).

    What a code such as (C1) stands for: `fedsim explain C1`.
    """

    step_size: StepSize
    batch_size: Any = None
    codec: Any = field(default=Identity())
    empty: str = "noise"
    weighting: str = "count"
    activity: Any = None

    batched = True
    sampler = True  # its iterates are samples of a law
    broadcast_to = "all"
    own_weights = True  # b / |A| or 1 / p_i, whatever the policy's
    local_steps = 1
    sums = True  # its server needs no more than sums of messages: over tiers the edges add them up

    def __post_init__(self) -> None:
        check_arguments("QLSD", self)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        check_population("QLSD", self, problem)
        return {"theta": initial, "precision": prior_precision(problem, initial)}

    def memory(self, problem: ProblemLike) -> Arrays:
        return {}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return 1

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
        gradient = job.gradient(message["theta"], 0, self.batch_size, prior=False)
        return {"gradient": job.encode(self.codec, gradient)}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        gradient = estimate(self, replies) + state["precision"] * state["theta"]
        return {"theta": langevin(self, state["theta"], gradient, replies, rng)}

    def weigh(self, arrived: Received) -> Array:
        return by_count(self, arrived)

    def fused(self, problem: ProblemLike, backend: Backend) -> Kernel | None:
        send = compiled(self, problem, backend)
        return send and (lambda job, message, memory: ({"gradient": send(job, message["theta"])[0]}, memory))

    def fused_rounds(self, problem: ProblemLike, backend: Backend) -> BlockKernel | None:
        return block_kernel(self, problem, backend)


# --- What the family has in common: the server -------------------------------------------------------


def prior_precision(problem: ProblemLike, like: Array) -> Array:
    """Of the prior that `job.gradient(prior=False)` leaves to the server: (1,), to broadcast at both ranks."""
    return np.array([as_problem(problem).share * problem.sizes.sum()], like.dtype)


def by_count(algorithm: Quantised, arrived: Received) -> Array:
    """b / |A|: so weighted, `replies.mean` is the sum over the arrived scaled up to all; zero for nobody."""
    drawn = arrived.policy is not None and as_policy(arrived.policy).weighting == "multiplicity"
    if drawn and algorithm.weighting == "count" and np.ptp(arrived.p) > 1e-12:
        raise InvalidInput(
            f"{type(algorithm).__name__}(weighting='count') with with_replacement(), which draws by p_i, would count "
            "clients with much data more than others; choose uniform() or bernoulli(), or weighting='inverse' with the "
            "activity"
        )
    return np.asarray(arrived.clients / arrived.counts)


def estimate(algorithm: Quantised, replies: Replies) -> Array:
    """What the messages that arrived say of the sum over all clients; zero if there are none."""
    if algorithm.weighting == "count":
        return np.asarray(replies.mean("gradient"))
    p = np.asarray(algorithm.activity, float)
    return np.asarray(replies.weighted("gradient", 1 / (p[replies.clients] if p.ndim else np.full(len(replies), p))))


def langevin(algorithm: Quantised, theta: Array, gradient: Array, replies: Replies, rng: Rng) -> Array:
    """The server's step, or, with empty="hold", none where nobody answered."""
    gamma = step_at(algorithm.step_size, replies.round, 1, 0)
    moved = theta - gamma * gradient + math.sqrt(2 * gamma) * rng.normal(theta.shape[-1], theta.dtype)
    return np.where(np.equal(replies.count, 0), theta, moved) if algorithm.empty == "hold" else moved


# --- Arguments ---------------------------------------------------------------------------------------


def check_arguments(where: str, algorithm: Quantised) -> None:
    """Refuse what no problem could make sense of."""
    check_step_size(where, algorithm)
    check_batch_size(where, algorithm.batch_size)
    if isinstance(algorithm.codec, list):
        object.__setattr__(algorithm, "codec", tuple(algorithm.codec))
    for codec in algorithm.codec if isinstance(algorithm.codec, tuple) else (algorithm.codec,):
        check_codec(where, codec)
    check_word(where, algorithm, "empty", "noise", "hold")
    check_word(where, algorithm, "weighting", "count", "inverse")
    activity = algorithm.activity
    if (activity is None) == (algorithm.weighting == "inverse"):
        raise InvalidInput(
            f"{where}(weighting={short_repr(algorithm.weighting)}, activity={short_str(activity)}): 'inverse' "
            "divides by it, "
            "'count' has no use for it; give both or neither, such as weighting='inverse', activity=0.5"
        )
    if activity is not None:
        p = as_float_array(activity)
        if p is None or p.ndim > 1 or p.size == 0 or not np.all((p > 0) & (p <= 1)):
            raise InvalidInput(
                f"{where}(activity={short_str(activity)}): probabilities in (0, 1], one or one per client"
            )
        object.__setattr__(algorithm, "activity", float(p) if p.ndim == 0 else tuple(p.tolist()))


def check_population(where: str, algorithm: Quantised, problem: ProblemLike) -> None:
    """Refuse lists that are not as long as there are clients."""
    for name, values in (("codecs", algorithm.codec), ("activities", algorithm.activity)):
        if isinstance(values, tuple) and len(values) != problem.clients:
            raise InvalidInput(
                f"{where}: {len(values)} {name} for {problem.clients} clients; give one, or one per client"
            )

"""QLSD: quantised Langevin stochastic dynamics (Vono, Plassier, Durmus, Dieuleveut and Moulines, AISTATS 2022; Algorithm 1).

    client i in A:  m_i = C(H_i(theta)),  H_i(theta) = (N_i / n_i) sum over a minibatch of grad U_ij(theta)
    server:         theta <- theta - gamma (b / |A|) sum_{i in A} m_i + sqrt(2 gamma) xi

| symbol | argument     | meaning                                                                                   |
|--------|--------------|-------------------------------------------------------------------------------------------|
| gamma  | `step_size`  | a number, or a schedule of the iteration                                                  |
| n_i    | `batch_size` | rows per gradient, drawn without replacement (QLSD#); None: all of them                   |
| C, C_i | `codec`      | unbiased quantiser, or a tuple of one per client; `Identity()` gives LSD                  |
| A      | `empty`      | if nobody answers: "noise" takes the step with no gradient but the prior's, "hold" none   |
| b/|A|  | `weighting`  | "count": b / |A|; "inverse": 1 / p_i, unbiased also where the p_i differ (generalised)     |
| p_i    | `activity`   | the chance that a client's message arrives, for "inverse": one number, or one per client  |

Noise is the server's, once per iteration. Wire: up C(H_i) from the active, down theta (d) to all b clients.

Differs from paper: an empty A, which the paper divides by, counts as a gradient of zero (C1). The prior is the server's: added
exactly and never compressed (C14). The algorithm's box divides by |A|, its theorems by b p_i; both are here (C2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.algorithms.arguments import check_batch_size, check_step_size
from fedsim.algorithms.fedpaq import check_codec
from fedsim.codecs import QSGD, Elias, Identity
from fedsim.errors import InvalidInput
from fedsim.problems import GaussianMean, LogisticRegression
from fedsim.rng import Stream
from fedsim.schedules import StepSize, step_at

Array = npt.NDArray[Any]
State = dict[str, Array]


@dataclass(frozen=True)
class QLSD:
    """Quantised Langevin stochastic dynamics; with a `batch_size` QLSD#."""

    step_size: StepSize
    batch_size: Any = None
    codec: Any = Identity()
    empty: str = "noise"
    weighting: str = "count"
    activity: Any = None

    batched = True
    reach = "all"
    local_steps = 1

    def __post_init__(self) -> None:
        check_arguments("QLSD", self)

    def init(self, problem: Any, initial: Array) -> State:
        check_population("QLSD", self, problem)
        return {"theta": initial, "precision": prior_precision(problem, initial)}

    def memory(self, problem: Any) -> State:
        return {}

    def broadcast(self, state: State) -> State:
        return {"theta": state["theta"]}

    def work(self, job: Any) -> float:
        return 1

    def client(self, job: Any, message: State, memory: State) -> tuple[dict[str, Any], State]:
        gradient = job.gradient(message["theta"], 0, self.batch_size, prior=False)
        return {"gradient": encoded(job, self.codec, gradient)}, memory

    def server(self, state: State, replies: Any, rng: Any) -> State:
        gradient = estimate(self, replies) + state["precision"] * state["theta"]
        return {"theta": langevin(self, state["theta"], gradient, replies, rng)}

    def fused(self, problem: Any, backend: Any) -> Callable[..., Any] | None:
        send = compiled(self, problem, backend)
        return send and (lambda job, message, memory: ({"gradient": send(job, message["theta"])[0]}, memory))


# --- What the family has in common: the server ---------------------------------------------------------


def prior_precision(problem: Any, like: Array) -> Array:
    """Of the prior that `job.gradient(prior=False)` leaves to the server, as an array that broadcasts at both ranks."""
    return np.array([getattr(problem, "share", 0.0) * problem.sizes.sum()], like.dtype)


def estimate(algorithm: Any, replies: Any) -> Array:
    """What the messages that arrived say of the sum over all clients; zero if there are none."""
    if algorithm.weighting == "inverse":
        p = np.asarray(algorithm.activity, float)
        p = p[replies.clients] if p.ndim else np.full(len(replies), p)
        return np.asarray(replies.weighted("gradient", 1 / p))
    total = replies.sum("gradient")
    return np.asarray(replies.population / np.maximum(replies.count, 1), total.dtype) * total


def langevin(algorithm: Any, theta: Array, gradient: Array, replies: Any, rng: Any) -> Array:
    """The server's step, or, with empty="hold", none where nobody answered."""
    gamma = step_at(algorithm.step_size, replies.round, 1, 0)
    moved = theta - gamma * gradient + math.sqrt(2 * gamma) * rng.normal(theta.shape[-1], theta.dtype)
    return np.where(np.equal(replies.count, 0), theta, moved) if algorithm.empty == "hold" else moved


# --- The clients ------------------------------------------------------------------------------------


def compiled(algorithm: Any, problem: Any, backend: Any) -> Callable[..., tuple[Any, Array | None]] | None:
    """`send(job, theta, control, anchor, memory, rate)`: gradient, quantiser and bit count in one kernel, where there is one.

    Gives what goes on the wire and what the client keeps; `kernels/qlsd.py` says what the terms are.
    """
    codec, batch_size = algorithm.codec, algorithm.batch_size
    known = type(problem) in (GaussianMean, LogisticRegression) and type(codec) in (Identity, QSGD, Elias)
    if backend.name != "cpu" or not known:
        return None
    from fedsim.kernels import qlsd, qlsd_logistic

    levels, code = getattr(codec, "levels", 0), getattr(codec, "code", None)
    wire = qlsd.wire_form(getattr(codec, "dtype", None), problem.dim, levels, code, getattr(codec, "form", ""))
    rows = None if batch_size is None else batch_rows(batch_size, problem.sizes)
    kernel: Any = qlsd.gaussian_messages if type(problem) is GaussianMean else qlsd_logistic.logistic_messages
    tables: dict[Any, tuple[Array, ...]] = {}

    def send(
        job: Any, theta: Array, control: Any = None, anchor: Any = None, memory: Any = None, rate: float = 0.0
    ) -> tuple[Any, Array | None]:
        if theta.dtype not in tables:
            tables[theta.dtype] = _tables(problem, theta.dtype)
        key = None if rows is None else job._keys(Stream.BATCH, job.client)
        kept: list[Any] = []

        def quantise(values: Array, keys: Array) -> tuple[Array, Array]:
            terms = (control, anchor, memory, rate)
            sent, bits, left = kernel(values, *tables[values.dtype], job.client, rows, key, terms, (keys, *wire))
            kept.append(left)
            return sent, bits

        return job.encode(_Kernel(quantise), theta), kept[0]

    return send


@dataclass(frozen=True)
class _Kernel:
    """A codec in whose place a kernel computes, compresses and counts."""

    quantise: Callable[[Array, Array], tuple[Array, Array]]


def _tables(problem: Any, dtype: Any) -> tuple[Array, ...]:
    """What a kernel reads: of Gaussian means also the sums of rows, and of a diagonal precision the diagonal alone."""
    if isinstance(problem, LogisticRegression):
        return problem.x, problem.y, problem.offsets
    sums = np.add.reduceat(problem.x.astype(np.float64), problem.offsets[:-1], axis=0)
    precision = problem.precision
    diagonal = np.einsum("cii->ci", precision)
    if np.array_equal(precision, diagonal[:, :, None] * np.eye(problem.dim)):
        precision = diagonal
    return problem.x, problem.offsets, sums.astype(dtype), np.ascontiguousarray(precision, dtype)


def batch_rows(batch_size: Any, sizes: Array) -> Array:
    """Rows of every client's minibatch: a count, a fraction (rounded down, at least 1) or one per client; at most n_c."""
    if np.ndim(batch_size) == 0 and batch_size < 1:
        return np.maximum(1, np.floor(batch_size * sizes).astype(np.int64))
    return np.minimum(np.broadcast_to(np.asarray(batch_size, np.int64), sizes.shape), sizes)


@dataclass(frozen=True)
class _OneOfSeveral:
    """A client's own codec: how long its messages are cannot be said without saying whose."""

    codec: Any
    fixed = False

    def quantise(self, values: Array, keys: Array) -> tuple[Array, Array]:
        return self.codec.quantise(values, keys)  # type: ignore[no-any-return]


def encoded(job: Any, codec: Any, value: Array) -> Any:
    """`value` on the wire, through the codec of all or through everybody's own."""
    if not isinstance(codec, tuple):
        return job.encode(codec, value)
    if np.ndim(job.client) == 0:
        return job.encode(_OneOfSeveral(codec[job.client]), value)
    kinds = list(dict.fromkeys(codec))
    kind = np.array([kinds.index(c) for c in codec])[job.client]
    sent = job.encode(_OneOfSeveral(kinds[0]), value)
    for k, other in enumerate(kinds[1:], 1):
        again = job.encode(_OneOfSeveral(other), value)
        sent = replace(
            sent, value=np.where((kind == k)[:, None], again.value, sent.value), bits=np.where(kind == k, again.bits, sent.bits)
        )
    return sent


# --- Arguments --------------------------------------------------------------------------------------


def check_arguments(where: str, algorithm: Any) -> None:
    """Refuse what no problem could make sense of."""
    check_step_size(where, algorithm.step_size)
    check_batch_size(where, algorithm.batch_size)
    if isinstance(algorithm.codec, list):
        object.__setattr__(algorithm, "codec", tuple(algorithm.codec))
    for codec in algorithm.codec if isinstance(algorithm.codec, tuple) else (algorithm.codec,):
        check_codec(where, codec)
    if algorithm.empty not in ("noise", "hold"):
        raise InvalidInput(f"{where}(empty={algorithm.empty!r}): choose 'noise' (C1) or 'hold'")
    if algorithm.weighting not in ("count", "inverse"):
        raise InvalidInput(f"{where}(weighting={algorithm.weighting!r}): choose 'count' or 'inverse'")
    if algorithm.activity is None:
        if algorithm.weighting == "inverse":
            raise InvalidInput(f"{where}(weighting='inverse') divides by the clients' activity; give activity=, such as 0.5")
        return
    if algorithm.weighting == "count":
        raise InvalidInput(f"{where}(activity={algorithm.activity}): used by weighting='inverse' only; leave it out")
    p = np.asarray(algorithm.activity, float)
    if p.ndim > 1 or not np.all((p > 0) & (p <= 1)):
        raise InvalidInput(f"{where}(activity={algorithm.activity}): a probability lies in (0, 1], one for all or one per client")
    object.__setattr__(algorithm, "activity", float(p) if p.ndim == 0 else tuple(p.tolist()))


def check_population(where: str, algorithm: Any, problem: Any) -> None:
    """Refuse lists that are not as long as there are clients."""
    for name, values in (("codecs", algorithm.codec), ("activities", algorithm.activity)):
        if isinstance(values, tuple) and len(values) != problem.clients:
            raise InvalidInput(f"{where}: {len(values)} {name} for {problem.clients} clients; give one, or one per client")

"""FA-HMC: federated averaging Hamiltonian Monte Carlo (Liang, Zhang, Deng, Song and Lin, arXiv 2407.06935)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.algorithms.common.arguments import (
    check_batch_size,
    check_codec,
    check_count,
    check_number,
    check_step_size,
    check_word,
)
from fedsim.arrays import Array, Arrays
from fedsim.checks import check_int, check_positive
from fedsim.errors import InvalidInput
from fedsim.problems import LogisticRegression, weights_of
from fedsim.problems.shards import rows_per_batch
from fedsim.protocols import (
    Backend,
    Job,
    JobOfKernel,
    Kernel,
    ProblemLike,
    Quadratic,
    Replies,
    Rng,
    Visitors,
    as_problem,
    call,
)
from fedsim.schedules import StepSize, step_at, steps_of


def leapfrog(
    gradient: Callable[[Array, int], Array], theta: Array, p: Array, eta: float, steps: int, fresh: bool
) -> Array:
    """Return the end of a trajectory (Algorithm 1). `gradient(theta, draw)`; `fresh` draws twice at every position."""
    g = gradient(theta, 0)
    theta = theta + eta * p - eta**2 / 2 * g
    for k in range(1, steps):
        half = gradient(theta, 2 * k - 1)
        p = p - eta / 2 * (g + half)
        g = gradient(theta, 2 * k) if fresh else half
        theta = theta + eta * p - eta**2 / 2 * g
    return theta


@dataclass(frozen=True)
class FAHMC:
    """FA-HMC: federated averaging Hamiltonian Monte Carlo (Liang, Zhang, Deng, Song and Lin, arXiv 2407.06935).

        p^c = sqrt(rho) xi + sqrt((1 - rho) / w_c) xi^c                          in every iteration (section 4.2)
        theta_{k+1} = theta_k + eta p_k - eta^2/2 grad f^c(theta_k)                                 (Algorithm 1)
        p_{k+1} = p_k - eta/2 (grad f^c(theta_k) + grad f^c(theta_{k+1})),   k = 0 ... K - 1
        server: theta <- sum_c w_c theta^c after T iterations                                       (Algorithm 3)
        de-biased: grad f^c(x) - grad f^c(a) + grad f(a) in place of grad f^c(x)         (Algorithms B.1 and B.2)

    | symbol | argument         | meaning                                                                     |
    |--------|------------------|-----------------------------------------------------------------------------|
    | eta    | `step_size`      | a number, or a schedule of the iteration t = 0, 1, ... over all rounds      |
    | K      | `leapfrog_steps` | steps of one trajectory                                                     |
    | T      | `local_steps`    | iterations (trajectories) between two synchronisations                      |
    | rho    | `correlation`    | share of the momentum's variance common to all clients (a common seed)      |
    | a      | `debias`         | "stale": a is the point broadcast one round earlier; None: no correction    |
    | S      | `batch_size`     | rows per gradient, drawn afresh without replacement; None: all of them      |
    | Z      | `gradient_noise` | standard deviation of noise added to every gradient of f^c (experiment 5.1) |
    |        | `codec`          | of uploads, which are then differences; None: uncompressed                  |

    f^c = l^c / w_c. A stochastic gradient is drawn twice per position, at k and k + 1/2 (B4); an exact one is
    computed once. K = 1 is FA-LD with step eta^2/2 and correlation sqrt(rho), sample by sample (B3).
    Wire: up theta (d), down theta (d); de-biased up theta and the change in grad l^c(a) since the client's last
    visit (2d), down theta and grad f(a) (2d). Memory: none; de-biased grad l^c(a) of a client's last visit (d) and
    the server's grad f(a) (d). Participation: full() in the paper.

    Differs from paper: exactly K leapfrog steps (B1), without the last momentum, which is not used; the server's sum
    is weighted (B2); a is constant within a round (B7); there is no correction in the first round (B8). Anchors'
    gradients are exact even with minibatches. With partial participation grad f(a) is the sum of each client's latest
    gradient, at its own latest anchor, so that the corrections still add up to zero.

    `fedsim explain B4` explains a code such as (B4).
    """

    step_size: StepSize
    _: KW_ONLY
    leapfrog_steps: int
    local_steps: int = 1
    correlation: float = 0.0
    debias: str | None = None
    batch_size: Any = None
    gradient_noise: float = 0.0
    codec: Any = None

    batched = True
    sampler = True  # its iterates are samples of a law
    weighted = True  # its law is right only under weights that average to p_c
    any_mixing = True

    def __post_init__(self) -> None:
        check_step_size("FAHMC", self)
        check_count("FAHMC", self, "leapfrog_steps")
        check_count("FAHMC", self, "local_steps")
        check_number("FAHMC", self, "correlation", 0, 1)
        remedy = "choose None or 'stale', the anchor one round back"
        check_word("FAHMC", self, "debias", None, "stale", remedy=remedy)
        check_batch_size("FAHMC", self.batch_size)
        check_number("FAHMC", self, "gradient_noise")
        if self.codec is not None:
            check_codec("FAHMC", self.codec)

    @property
    def draws(self) -> int:
        """The gradients of one trajectory: exact ones serve two steps, stochastic ones are drawn twice."""
        return 2 * self.leapfrog_steps - 1 if self._stochastic else self.leapfrog_steps

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return {"theta": initial} | ({"gradient": np.zeros_like(initial)} if self.debias else {})

    def memory(self, problem: ProblemLike) -> Arrays:
        return {"gradient": np.zeros(problem.dim)} if self.debias else {}  # of l^c, at the client's latest anchor

    def broadcast(self, state: Arrays) -> Arrays:
        return state

    def work(self, job: Visitors) -> float:
        """Return the number of gradients, each of which counts as a local step."""
        return self.local_steps * self.draws + (self.debias is not None)

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        rho, count = self.correlation, self.local_steps
        correction = self._correction(job, message, memory) if self.debias else 0.0
        theta = message["theta"]
        for t in range(count):

            def gradient(x: Array, draw: int, first: int = t * self.draws) -> Array:
                g = job.gradient(x, first + draw, self.batch_size) / job.weight
                if self.gradient_noise:  # steps from T on: the momenta use the first T
                    g = g + self.gradient_noise * job.normal(count + first + draw)
                return np.asarray(g + correction)

            eta = step_at(self.step_size, job.round, count, t)
            p = sqrt(rho) * job.shared_normal(t) + np.sqrt((1 - rho) / job.weight) * job.normal(t)
            theta = leapfrog(gradient, theta, p, eta, self.leapfrog_steps, self._stochastic)
        return self._reply(job, message, memory, theta)

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        theta = replies.mean("theta")
        if not self.debias:
            return {"theta": theta}
        return {"theta": theta, "gradient": state["gradient"] + replies.sum("change")}

    def for_gossip(self, problem: ProblemLike, weights: Array) -> FAHMC:
        if self.codec is not None or self.debias:
            what = "a codec encodes the difference to" if self.codec is not None else "debias needs the gradient sum of"
            raise InvalidInput(f"FAHMC: {what} a model that neighbours do not have; gossip without it")
        return self

    def fused(self, problem: ProblemLike, backend: Backend) -> Kernel | None:
        """Return all T trajectories in one kernel, for gradients H_c theta - b_c and for logistic regression."""
        if type(problem) is LogisticRegression:
            return self._fused_logistic(problem, backend)
        trajectories = backend.leapfrog_quadratic
        if self._stochastic or not isinstance(problem, Quadratic) or not as_problem(problem).tabulated:
            return None

        @cache
        def tables(dtype: npt.DTypeLike) -> tuple[Array, Array]:  # of f^c = l^c / w_c
            hessian, linear = call(problem, "quadratic")
            w = weights_of(problem)
            return (hessian / w[:, None, None]).astype(dtype), (linear / w[:, None]).astype(dtype)

        def kernel(job: JobOfKernel, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
            hessian, linear = tables(message["theta"].dtype)
            linear = linear[job.client]
            if self.debias:
                linear = linear - self._correction(job, message, memory)
            theta = trajectories(message["theta"], hessian, linear, job.client, *self._momenta_and_steps(job))
            return self._reply(job, message, memory, theta)

        return kernel

    def _fused_logistic(self, problem: LogisticRegression, backend: Backend) -> Kernel | None:
        """Return the kernel on logistic regression, with all rows or with minibatches."""
        trajectories = backend.leapfrog_logistic
        if self.gradient_noise > 0:
            return None
        sizes = problem.sizes
        rows = None if self.batch_size is None else rows_per_batch(self.batch_size, sizes, np.arange(len(sizes)))

        @cache
        def tables(dtype: npt.DTypeLike) -> tuple[Array, Array]:
            return problem.x.astype(dtype, copy=False), problem.y.astype(dtype, copy=False)

        def kernel(job: JobOfKernel, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
            n, w, theta = sizes[job.client], job.weight[:, 0], message["theta"]
            m, key = (n, None) if rows is None else (rows[job.client], job.rows_key)
            linear = -self._correction(job, message, memory) if self.debias else None
            theta = trajectories(
                theta, *tables(theta.dtype), problem.offsets, job.client, n / m / w, problem.share * n / w, linear,
                rows, key, *self._momenta_and_steps(job),
            )  # fmt: skip
            return self._reply(job, message, memory, theta)

        return kernel

    def _momenta_and_steps(self, job: JobOfKernel) -> tuple[Any, ...]:
        """Return the last arguments of both kernels."""
        rho, private = self.correlation, job.noise_key
        return (
            private, job.shared_key if rho else private, np.sqrt((1 - rho) / job.weight[:, 0]), sqrt(rho),
            steps_of(self.step_size, job.round, self.local_steps), self.leapfrog_steps,
        )  # fmt: skip

    @property
    def _stochastic(self) -> bool:
        return self.batch_size is not None or self.gradient_noise > 0

    def _correction(self, job: Job, message: Arrays, memory: Arrays) -> Array:
        """Return grad f(a) - grad f^c(a), which is zero in the first round."""
        return np.asarray(message["gradient"] - memory["gradient"] / job.weight)

    def _reply(self, job: Job, message: Arrays, memory: Arrays, theta: Array) -> tuple[Arrays, Arrays]:
        start = message["theta"]
        reply: dict[str, Any] = {"theta": theta}
        if self.debias:  # `start` is the next round's anchor
            reply["change"] = np.subtract(job.gradient(start, 0), memory["gradient"], dtype=start.dtype)
        if self.codec is not None:
            sent = job.encode(self.codec, np.subtract(theta, start, dtype=start.dtype), 0)
            reply["theta"] = replace(sent, value=start + sent.value)
            if self.debias:
                reply["change"] = job.encode(self.codec, reply["change"], 1)
        if not self.debias:
            return reply, memory
        change = reply["change"] if self.codec is None else reply["change"].value
        return reply, {"gradient": memory["gradient"] + change}  # the gradient that the server has of this client


@dataclass(frozen=True)
class Halving:
    """The schedule of proposition J.1; see `halving`."""

    eta0: float
    first: int

    def __call__(self, t: int) -> float:
        epoch = (t // self.first + 1).bit_length() - 1  # number s lasts first * 2**s iterations
        return float(self.eta0 / sqrt(2) ** epoch)


def halving(eta0: float, first: int) -> Halving:
    """Return eta0 for `first` iterations, then repeatedly 1/sqrt(2) of it for twice as long (proposition J.1)."""
    return Halving(check_positive("halving(eta0={})", eta0), check_int("halving(first={})", first))

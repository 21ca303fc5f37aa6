"""FA-LD: federated averaging Langevin dynamics (Deng, Zhang, Ma, Song and Lin, UAI 2024; Algorithms 1 and 4)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cache, partial
from math import sqrt
from typing import Any

import numpy as np

from fedsim.algorithms.common.arguments import (
    check_batch_size,
    check_count,
    check_number,
    check_step_size,
)
from fedsim.arrays import Array, Arrays
from fedsim.privacy import Mechanism
from fedsim.privacy import fald as accounting
from fedsim.problems import weights_of
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


@dataclass(frozen=True)
class FALD:
    """FA-LD: federated averaging Langevin dynamics (Deng, Zhang, Ma, Song and Lin, UAI 2024; Algorithms 1 and 4).

        theta^c <- theta^c - eta grad f^c(theta^c) + sqrt(2 eta tau) (rho xi' + sqrt((1 - rho^2) / p_c) xi^c)       (7)
        server: theta <- sum_c p_c theta^c, or the average over the clients that took part

    | symbol | argument      | meaning                                                                |
    |--------|---------------|------------------------------------------------------------------------|
    | eta    | `step_size`   | a number, or a schedule of the global local-step index                 |
    | K      | `local_steps` | steps between two synchronisations                                     |
    | tau    | `temperature` | the target is exp(-f / tau)                                            |
    | rho    | `correlation` | share of the noise that is common to all clients (a common seed)       |
    | m_c    | `batch_size`  | rows per gradient, drawn afresh without replacement; None: all of them |

    f^c = l^c / p_c, so the client's sum gradient is divided by its weight. Wire: up theta (d), down theta (d).
    Memory: none. Participation: full() in Algorithm 1, with_replacement(S) and uniform(S) in Algorithm 4.

    Differs from paper: only the selected clients compute, because the others' results are not used (A5).

    `fedsim explain A5` explains a code such as (A5).
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: int = 1
    temperature: float = 1.0
    correlation: float = 0.0
    batch_size: Any = None

    batched = True
    sampler = True  # its iterates are samples of a law
    weighted = True  # its law is right only under weights that average to p_c
    any_mixing = True

    def __post_init__(self) -> None:
        check_step_size("FALD", self)
        check_count("FALD", self, "local_steps")
        check_number("FALD", self, "temperature")
        check_number("FALD", self, "correlation", 0, 1)
        check_batch_size("FALD", self.batch_size)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        return {"theta": initial}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        tau, rho = self.temperature, self.correlation
        theta = message["theta"]
        for k in range(self.local_steps):
            eta = step_at(self.step_size, job.round, self.local_steps, k)
            noise = rho * job.shared_normal(k) + np.sqrt((1 - rho**2) / job.weight) * job.normal(k)
            gradient = job.gradient(theta, k, self.batch_size) / job.weight
            theta = theta - eta * gradient + sqrt(2 * eta * tau) * noise
        return {"theta": theta}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return {"theta": replies.mean("theta")}

    def for_gossip(self, problem: ProblemLike, weights: Array) -> FALD:
        return self

    def mechanism(self, problem: ProblemLike, sensitivity: float | None) -> Mechanism:
        """Return the privacy mechanism of a visit."""
        sizes, b = problem.sizes, self.batch_size
        return accounting.mechanism(
            step_size=self.step_size, local_steps=self.local_steps, sizes=sizes,
            used=sizes if b is None else rows_per_batch(b, sizes, np.arange(problem.clients)),
            weights=weights_of(problem), sensitivity=sensitivity,
            temperature=self.temperature, correlation=self.correlation,
        )  # fmt: skip

    def fused(self, problem: ProblemLike, backend: Backend) -> Kernel | None:
        """Return all K steps in one kernel where the full gradient is H_c theta - b_c."""
        if self.batch_size is not None or not isinstance(problem, Quadratic) or not as_problem(problem).tabulated:
            return None

        langevin = backend.langevin_quadratic(problem.dim)

        def sizes(dtype: np.dtype[Any], round: int) -> tuple[Array, Array]:  # of steps and of their noise
            eta = np.array(steps_of(self.step_size, round, self.local_steps))
            return eta.astype(dtype), np.sqrt(2 * eta * self.temperature).astype(dtype)

        constant = None if callable(self.step_size) else cache(partial(sizes, round=1))

        @cache
        def tables(dtype: np.dtype[Any]) -> tuple[Array, Array]:  # of f^c = l^c / p_c
            hessian, linear = call(problem, "quadratic")
            p = weights_of(problem)
            return (hessian / p[:, None, None]).astype(dtype), (linear / p[:, None]).astype(dtype)

        def kernel(job: JobOfKernel, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
            scale, private = np.sqrt((1 - self.correlation**2) / job.weight[:, 0]), job.noise_key
            theta = message["theta"].copy()
            dtype = theta.dtype
            langevin(
                theta, *tables(dtype), job.client, private, job.shared_key if self.correlation else private,
                scale.astype(dtype, copy=False), dtype.type(self.correlation),
                *(constant(dtype) if constant else sizes(dtype, job.round)),
            )  # fmt: skip
            return {"theta": theta}, memory

        return kernel

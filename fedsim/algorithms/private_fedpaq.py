"""Private FedPAQ (Mohammadi, Bai, Fan, Song, Yi and Liu, arXiv 2101.12240; Algorithm 2, equations 12 to 16 and 51)."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np

from fedsim.algorithms.common import local_descent
from fedsim.algorithms.common.arguments import (
    check_batch_size,
    check_codec,
    check_count,
    check_number,
    check_step_size,
)
from fedsim.arrays import Array, Arrays
from fedsim.codecs import QSGD
from fedsim.errors import InvalidInput
from fedsim.privacy import Guarantee, Mechanism
from fedsim.privacy import fedpaq as accounting
from fedsim.problems.shards import rows_per_batch
from fedsim.protocols import Job, ProblemLike, Received, Replies, Rng, Visitors
from fedsim.schedules import StepSize, steps_of
from fedsim.text import short_str


@dataclass(frozen=True)
class PrivateFedPAQ:
    """Private FedPAQ (Mohammadi, Bai, Fan, Song, Yi and Liu, arXiv 2101.12240; Algorithm 2, equations 12 to 16 and 51).

    Clients clip, subsample and add Gaussian noise.

        round start: draw E b of the n_i rows without replacement, split into E disjoint batches
        y <- x, then E times  y <- y - eta_k mean over the batch of g min(1, C / |g|)
        Delta_i = Q(y - x + z),   z ~ N(0, sigma^2 I) once a round
        sigma^2 = 2 Delta_f^2 ln(1.25 gamma / delta) / (epsilon / (2 gamma))^2,   gamma = E b / n_i    (16)
        server: x <- x + sum_i a_i Delta_i,   a_i = n_i over the received

    | symbol         | argument      | meaning                                                                 |
    |----------------|---------------|-------------------------------------------------------------------------|
    | eta_k          | `step_size`   | a number, or a schedule; `schedules.per_round` is constant in a round   |
    | E              | `local_steps` | steps between two synchronisations                                      |
    | C              | `clip`        | bound on the norm of every row's own gradient                           |
    | epsilon, delta | the same      | the guarantee, for one client in one round; nothing is claimed of many  |
    | b              | `batch_size`  | rows per step, a count, a fraction or one per client; or instead        |
    | gamma          | `fraction`    | share of its rows that a client uses in a round, b = floor(gamma n / E) |
    | Q              | `codec`       | unbiased quantiser                                                      |
    | Delta_f        | `sensitivity` | "paper": 4 eta_k E C, equation 51; "tight": 2 eta_k E C, enough         |

    The proof requires epsilon <= 2 gamma: `guarantee(problem).valid` and the manifest of a run record whether it holds
    (E5). Wire: up Q(Delta_i), down x (d). Memory: none. Participation: uniform(M) in the paper.

    Differs from paper: the average is by n_i, the paper's 1/M where all clients have equally many rows (E2). Where the
    step size varies inside a round, E eta_k is the sum of its step sizes.

    `fedsim explain E5` explains a code such as (E5).
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: int
    clip: float
    epsilon: float
    delta: float
    batch_size: Any = None
    fraction: float | None = None
    codec: Any = field(default=QSGD(10))
    sensitivity: str = "paper"

    batched = True
    sampler = False  # its iterate is an estimate

    def __post_init__(self) -> None:
        check_step_size("PrivateFedPAQ", self)
        check_count("PrivateFedPAQ", self, "local_steps")
        for name in ("clip", "epsilon", "delta"):
            check_number("PrivateFedPAQ", self, name, math.ulp(0.0), 1.0 if name == "delta" else math.inf)
        if (self.batch_size is None) == (self.fraction is None):
            raise InvalidInput(
                f"PrivateFedPAQ(batch_size={short_str(self.batch_size)}, fraction={short_str(self.fraction)}): give "
                "one of the two, rows per step or the share of its rows that a client uses in a round"
            )
        check_batch_size("PrivateFedPAQ", self.batch_size)
        if self.fraction is not None:
            check_number("PrivateFedPAQ", self, "fraction", math.ulp(0.0), 1)
        check_codec("PrivateFedPAQ", self.codec)
        accounting.sensitivity(self.sensitivity, 1.0, 1.0)  # refuses unknown kinds

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        used = self._used(problem)
        if np.any(used > problem.sizes):
            c = int(np.argmax(used > problem.sizes))
            raise InvalidInput(
                f"PrivateFedPAQ: a round's {self.local_steps} disjoint batches take {used[c]} rows, client {c} "
                f"has {problem.sizes[c]}; lower batch_size or local_steps"
            )
        if np.any(1.25 * used <= self.delta * problem.sizes):
            raise InvalidInput(
                f"PrivateFedPAQ(delta={self.delta}): must be below the share of its rows that a client uses in "
                f"a round, {np.min(used / problem.sizes):.2g}"
            )
        return {"theta": initial}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
        x = message["theta"]
        size = np.asarray(job.size, x.dtype)
        steps = steps_of(self.step_size, job.round, self.local_steps)
        y = x
        for k, eta in enumerate(steps):
            clipped = job.gradient(y, k, self._batch, split=self.local_steps, clip=self.clip) / size
            y = y - eta * clipped
        gamma = self.local_steps * self._rows(job.size, job.client) / job.size
        sigma = np.asarray(self._sigma(sum(steps), gamma), x.dtype)
        return {"delta": job.encode(self.codec, y - x + sigma * job.normal(0))}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        return {"theta": state["theta"] + replies.mean("delta")}

    def weigh(self, received: Received) -> Array:
        return local_descent.weigh("PrivateFedPAQ", "mean", received)

    def guarantee(self, problem: ProblemLike) -> Guarantee:
        """Return the guarantee for a client on this problem, with its noise and whether the proof covers it."""
        gamma, steps = self._used(problem) / problem.sizes, sum(steps_of(self.step_size, 1, self.local_steps))
        sigma = self._sigma(steps, gamma)
        return replace(
            accounting.guarantee(self.epsilon, self.delta, gamma),
            clip=float(self.clip),
            sensitivity=self._sensitivity(steps),
            sigma=(float(sigma.min()), float(sigma.max())),
        )

    def mechanism(self, problem: ProblemLike, sensitivity: float | None) -> Mechanism:
        """Return the privacy mechanism of a visit."""
        if sensitivity is not None:
            raise InvalidInput(
                f"privacy.spent(sensitivity={sensitivity}): PrivateFedPAQ clips, which determines it; leave it out"
            )
        used = self._used(problem)
        return accounting.mechanism(
            epsilon=self.epsilon, delta=self.delta, sizes=problem.sizes, used=used, kind=self.sensitivity
        )

    def _sensitivity(self, steps: float) -> float:
        """Return Delta_f of a round whose step sizes sum to `steps`."""
        return accounting.sensitivity(self.sensitivity, self.clip, steps)

    def _sigma(self, steps: float, gamma: Any) -> Any:
        """Return sigma of equation 16, for clients that use a share `gamma` of their rows."""
        return accounting.noise_sigma(self._sensitivity(steps), self.epsilon, self.delta, gamma)

    def _used(self, problem: ProblemLike) -> Array:
        """Return E b of every client, (clients,)."""
        return np.asarray(self.local_steps * self._rows(problem.sizes, np.arange(problem.clients)))

    @property
    def _batch(self) -> Any:
        """The batch size, from `batch_size` or `fraction`; None: all rows."""
        if self.fraction is None:
            return self.batch_size
        share = self.fraction / self.local_steps
        return None if share == 1 else share

    def _rows(self, size: Any, client: Any) -> Any:
        """Return b for clients of this size, in the shape of `size`."""
        b = self._batch
        if b is None:
            return size
        return rows_per_batch(b, np.ravel(size), np.ravel(client)).reshape(np.shape(size))

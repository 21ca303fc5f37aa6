"""DG-SGLD: distributed Gibbs sampling with Langevin steps, DG-LMC (Plassier, Vono, Durmus and Moulines, ICML 2021)."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from fedsim.algorithms.common.arguments import check_batch_size, check_count, check_step_size
from fedsim.arrays import Array, Arrays
from fedsim.checks import as_float_array
from fedsim.errors import InvalidInput
from fedsim.protocols import Job, ProblemLike, Replies, Rng, Visitors
from fedsim.schedules import StepSize, step_at
from fedsim.text import short_str

LEAST = 1e-300  # of a coupling, whose inverse must be a number


@dataclass(frozen=True)
class DGSGLD:
    """DG-SGLD: distributed Gibbs sampling with Langevin steps, DG-LMC (Plassier, Vono, Durmus and Moulines, ICML 2021).

        client i, T times:  z_i <- (1 - gamma / r_i) z_i + (gamma / r_i) theta - gamma grad U_i(z_i) + sqrt(2 gamma) xi
        server:             theta ~ N(sum_i (z_i / r_i) / sum_i (1 / r_i),  I / sum_i (1 / r_i))        (Algorithm 1)

    | symbol | argument      | meaning                                                                |
    |--------|---------------|------------------------------------------------------------------------|
    | gamma  | `step_size`   | a number, or a schedule of the global local-step index                 |
    | T      | `local_steps` | Langevin steps between two draws of theta                              |
    | r_i    | `coupling`    | variance that ties z_i to theta; one number, or one per client         |
    |        | `batch_size`  | rows per gradient, drawn afresh without replacement; None: all of them |

    Every z_i starts at the initial theta; of clients that were not received the last z_i received counts. theta's law
    is the posterior smoothed by the coupling, exact as r -> 0 with gamma below r. Wire: up the change of z_i (d), from
    which the server updates the mean, down theta (d). Memory: a client's z_i (d) and the server's mean of them (d).
    Participation: full() in the paper.

    Differs from paper: participation may be partial.
    """

    step_size: StepSize
    _: KW_ONLY
    coupling: Any
    local_steps: int = 1
    batch_size: Any = None

    batched = True
    sampler = True
    own_weights = True  # 1 / r_i
    known = beforehand = ("start",)  # all clients have the initial theta before the first round

    def __post_init__(self) -> None:
        check_step_size("DGSGLD", self)
        check_count("DGSGLD", self, "local_steps")
        check_batch_size("DGSGLD", self.batch_size)
        r = as_float_array(self.coupling)
        if r is None or r.ndim > 1 or not np.all((r > LEAST) & (r < np.inf)):
            given = f"DGSGLD(coupling={short_str(self.coupling)})"
            raise InvalidInput(f"{given}: a positive variance, or one per client")
        object.__setattr__(self, "coupling", float(r) if r.ndim == 0 else tuple(r.tolist()))

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        if np.ndim(self.coupling) and len(self.coupling) != problem.clients:
            given = f"DGSGLD: {len(self.coupling)} couplings for {problem.clients} clients"
            raise InvalidInput(f"{given}; give one, or one per client")
        precision = np.broadcast_to(1 / np.asarray(self.coupling, np.float64), (problem.clients,))
        return {"theta": initial, "start": initial, "offset": np.zeros_like(initial), "precision": np.array(precision)}

    def memory(self, problem: ProblemLike) -> Arrays:
        return {"offset": np.zeros(problem.dim)}  # z_i - theta_0

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"], "start": state["start"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        theta, r = message["theta"], self._coupling(job, message["theta"].dtype)
        z = message["start"] + memory["offset"]
        for k in range(self.local_steps):
            gamma = step_at(self.step_size, job.round, self.local_steps, k)
            drift = (z - theta) / r + job.gradient(z, k, self.batch_size)
            z = z - gamma * drift + math.sqrt(2 * gamma) * job.normal(k)
        offset = z - message["start"]
        return {"change": offset - memory["offset"]}, memory | {"offset": offset}

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        precision = np.atleast_2d(state["precision"])[0]  # 1 / r_i, the same in every replica
        total = precision.sum()
        offset = state["offset"] + replies.weighted("change", precision[replies.clients] / total)
        noise = rng.normal(offset.shape[-1], offset.dtype) / math.sqrt(total)
        return {"theta": state["start"] + offset + noise, "offset": offset}

    def _coupling(self, job: Job, dtype: np.dtype[Any]) -> Array:
        """Return r_i: a number, or (jobs, 1)."""
        if np.ndim(self.coupling) == 0:
            return np.asarray(self.coupling, dtype)
        r = np.asarray(np.asarray(self.coupling, dtype)[job.client])
        return r[:, None] if r.ndim else r

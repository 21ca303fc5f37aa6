"""FedBE: federated averaging whose server predicts with a Bayesian ensemble of models (Chen and Chao, ICLR 2021)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from fedsim.algorithms.common import local_descent
from fedsim.algorithms.common.arguments import check_batch_size, check_count, check_number, check_step_size
from fedsim.arrays import Array, Arrays
from fedsim.checks import check_choice
from fedsim.errors import InvalidInput
from fedsim.protocols import Job, ProblemLike, Received, Replies, Rng, Visitors
from fedsim.schedules import StepSize

LARGEST = 2_000_000_000  # bytes of one replica's ensemble


@dataclass(frozen=True)
class FedBE:
    """FedBE: federated averaging whose server predicts with a Bayesian ensemble of models (Chen and Chao, ICLR 2021).

        client i: w_i, FedAvg's local steps from wbar;   server: wbar = sum_i p_i w_i
        Gauss:     samples of N(wbar, diag(sum_i p_i (w_i - wbar)^2))    (equation 4)
        Dirichlet: w = sum_i g_i p_i w_i / sum_i g_i p_i,   g ~ Dir(a 1)    (equations 6, 7)

    | symbol | argument        | meaning                                                                |
    |--------|-----------------|------------------------------------------------------------------------|
    | eta    | `step_size`     | a number, or a schedule of the global local-step index                 |
    | E      | `local_steps`   | steps between two synchronisations                                     |
    | M      | `members`       | models sampled in every round                                          |
    |        | `law`           | "gauss" or "dirichlet"                                                 |
    | a      | `concentration` | of the Dirichlet law                                                   |
    | b      | `batch_size`    | rows per gradient, drawn afresh without replacement; None: all of them |
    |        | `momentum`      | of the local steps, as in FedAvg                                       |
    |        | `weight_decay`  | likewise                                                               |

    `ensemble(state)` are the models of the latest round: wbar, the w_i received, the M samples; predictions are
    averaged over them. Wire: up w_i (d), down wbar (d). Memory: the server's ensemble. Participation: uniform(M) in the
    paper.

    Differs from paper: the next round starts from wbar. The paper distils the ensemble into one model with unlabelled
    data at the server.
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: int = 1
    members: int = 10
    law: str = "gauss"
    concentration: float = 1.0
    batch_size: Any = None
    momentum: float = 0.0
    weight_decay: float = 0.0

    batched = True
    sampler = False  # its iterate is an estimate

    def __post_init__(self) -> None:
        check_step_size("FedBE", self)
        check_count("FedBE", self, "local_steps")
        check_count("FedBE", self, "members", 0)
        check_choice("FedBE(law={!r})", self.law, ("gauss", "dirichlet"))
        check_number("FedBE", self, "concentration", 1e-2)
        check_batch_size("FedBE", self.batch_size)
        local_descent.check_inertia("FedBE", self)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        models = 1 + problem.clients + self.members
        if models * initial.nbytes > LARGEST:
            size = f"{models * initial.nbytes / 1e9:.0f} GB"
            raise InvalidInput(
                f"FedBE: an ensemble of {models} models of {problem.dim} numbers takes {size}; use fewer members"
            )
        held = np.zeros(models, initial.dtype)
        held[0] = 1
        return {"theta": initial, "models": np.tile(initial, (models, 1)), "held": held}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        x = message["theta"]
        how = local_descent.descent_of(self)
        return {"theta": local_descent.descend(job, x, local_descent.scale("mean", job, x.dtype), how)}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        theta, d = replies.mean("theta"), state["theta"].shape[-1]
        n = state["held"].shape[-1] - 1 - self.members  # clients
        draws = np.atleast_2d(
            rng.normal(self.members * d, theta.dtype) if self.law == "gauss" else rng.uniform(self.members * n)
        )
        models, held = (
            state["models"].reshape(-1, *state["models"].shape[-2:]).copy(),
            np.atleast_2d(state["held"]).copy(),
        )
        for r, wbar in enumerate(theta.reshape(-1, d)):
            own = slice(replies.starts[r], replies.starts[r + 1])
            if own.start == own.stop:
                continue
            order = own.start + np.argsort(replies.clients[own], kind="stable")
            w, p, who = replies["theta"][order], replies.weights[order], replies.clients[order]
            models[r, 0], models[r, 1 + who] = wbar, w
            models[r, 1 + n :] = self._sampled(
                wbar, w, p, who, draws[r].reshape(self.members, draws[r].size // max(1, self.members))
            )
            held[r] = 1
            held[r, 1 : 1 + n] = 0
            held[r, 1 + who] = 1
        return {
            "theta": theta, "models": models.reshape(state["models"].shape), "held": held.reshape(state["held"].shape)
        }  # fmt: skip

    def ensemble(self, state: Arrays) -> tuple[Array, Array]:
        """Return the models (..., 1 + clients + M, d), and a mask of those in use (..., 1 + clients + M)."""
        return state["models"], state["held"]

    def weigh(self, received: Received) -> Array:
        return local_descent.weigh("FedBE", "mean", received)

    def _sampled(self, wbar: Array, w: Array, p: Array, who: Array, draws: Array) -> Array:
        """Return M models (M, d), given the clients' w (m, d) with weights p (m,)."""
        if self.law == "gauss":
            spread = np.sqrt((p[:, None] * (w - wbar) ** 2).sum(axis=0))
            return np.asarray(wbar + spread.astype(w.dtype) * draws)
        g = gamma(self.concentration, draws[:, who]) * p
        return np.asarray((g / g.sum(axis=1, keepdims=True)) @ w, w.dtype)


def gamma(shape: float, u: Array) -> Array:
    """Return positive gamma variables, given uniforms, by the inverse distribution function."""
    from scipy.special import gammaincinv

    return np.asarray(np.maximum(gammaincinv(shape, u), np.finfo(np.float64).tiny))

"""FSGLD: federated SGLD with conducive gradients (El Mekkaoui, Mesquita, Blomstedt and Kaski, UAI 2021)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedsim.algorithms.common.arguments import check_batch_size, check_count, check_number, check_step_size
from fedsim.arrays import Array, Arrays, Numbers
from fedsim.checks import as_float_array, check_bool
from fedsim.errors import InvalidInput
from fedsim.protocols import Job, ProblemLike, Quadratic, Replies, Rng, Visitors, as_problem, call, missing
from fedsim.schedules import StepSize, step_at
from fedsim.text import short_repr


@dataclass(frozen=True, eq=False)
class FSGLD:
    """FSGLD: federated SGLD with conducive gradients (El Mekkaoui, Mesquita, Blomstedt and Kaski, UAI 2021).

    One chain visits one client s a round, with probability f_s = p_s, and takes T steps there:

        theta <- theta - (h / 2) v + sqrt(h tau) xi
        v = grad of the prior + grad U_s(theta) / f_s + grad q(theta) - grad q_s(theta) / f_s    (equation 6)

    q_s is the potential of a Gaussian surrogate N(m_s, P_s^-1) of client s's posterior, q = sum_s q_s.

    | symbol | argument      | meaning                                                                              |
    |--------|---------------|--------------------------------------------------------------------------------------|
    | h      | `step_size`   | a number, or a schedule of the global local-step index                               |
    | T      | `local_steps` | steps in a visit                                                                     |
    | m_s    | `means`       | the surrogates' centres (clients, d); None: no surrogates, which is distributed SGLD |
    | P_s    | `precisions`  | their inverse covariances (clients, d, d), or diagonals (clients, d)                 |
    | tau    | `temperature` | the target is exp(-f / tau)                                                          |
    |        | `batch_size`  | rows per gradient, drawn afresh without replacement; None: all of them               |

    `FSGLD.laplace(problem, ...)` makes the surrogates at every client's own optimum. With exact surrogates the drift of
    every visit is the full drift. Wire: up theta (d), down theta (d); before the first round every client sends its
    surrogate, `surrogate_numbers(d)`, which that round's bits count once. Memory: none. Participation:
    with_replacement(1) in the paper.

    Differs from paper: where several clients are selected the chain follows one of them, drawn by the policy's weights,
    and the other replies are discarded: full(), with_replacement(S) and, with equal weights, uniform(S) have the law of
    with_replacement(1). All other policies are refused.
    """

    step_size: StepSize
    _: KW_ONLY
    local_steps: int = 1
    means: Any = None
    precisions: Any = None
    temperature: float = 1.0
    batch_size: Any = None

    batched = True
    sampler = True
    visits_by_weight = True  # client s with probability p_s
    averages = False  # its server follows one client

    def __post_init__(self) -> None:
        check_step_size("FSGLD", self)
        check_count("FSGLD", self, "local_steps")
        check_number("FSGLD", self, "temperature")
        check_batch_size("FSGLD", self.batch_size)
        if (self.means is None) != (self.precisions is None):
            raise InvalidInput("FSGLD(means, precisions): give both or neither; FSGLD.laplace(problem, ...) makes them")
        if self.means is None:
            return
        m, p = as_float_array(self.means), as_float_array(self.precisions)
        if m is None or p is None:
            given = self.means if m is None else self.precisions
            raise InvalidInput(
                f"FSGLD(means, precisions): {short_repr(given, 60)} is not an array of numbers; give one"
            )
        if (
            m.ndim != 2
            or p.shape not in (m.shape, (*m.shape, m.shape[-1]))
            or not np.isfinite([m.sum(), p.sum()]).all()
        ):
            given = f"FSGLD(means {m.shape}, precisions {p.shape})"
            raise InvalidInput(f"{given}: finite (clients, d), and (clients, d) or (clients, d, d)")
        object.__setattr__(self, "means", m)
        object.__setattr__(self, "precisions", p)

    @classmethod
    def laplace(cls, problem: ProblemLike, step_size: StepSize, *, diagonal: bool = False, **more: Any) -> Any:
        """Return FSGLD with a Gaussian surrogate at every client's own optimum, by Laplace's method."""
        means, precisions = laplace(problem, diagonal)
        return cls(step_size, means=means, precisions=precisions, **more)

    def surrogate_numbers(self, dim: int) -> int:
        """Return the numbers in a client's message of its surrogate: its mean and the triangle or diagonal of P_s."""
        if self.precisions is None:
            return 0
        return dim + (dim if self.precisions.ndim == 2 else dim * (dim + 1) // 2)

    def init(self, problem: ProblemLike, initial: Array) -> Arrays:
        if self.means is not None and self.means.shape != (problem.clients, problem.dim):
            given = f"FSGLD: surrogates of shape {self.means.shape}"
            raise InvalidInput(f"{given} for {problem.clients} clients in {problem.dim} dimensions; make them agree")
        return {"theta": initial}

    def broadcast(self, state: Arrays) -> Arrays:
        return {"theta": state["theta"]}

    def work(self, job: Visitors) -> float:
        return self.local_steps

    def client(self, job: Job, message: Arrays, memory: Arrays) -> tuple[Arrays, Arrays]:
        theta, f = message["theta"], job.weight
        for k in range(self.local_steps):
            h = step_at(self.step_size, job.round, self.local_steps, k)
            v = job.gradient(theta, k, self.batch_size) / f  # its share p_s of the prior becomes the full prior
            if self.means is not None:
                v = v + self._conducive(theta, job.client, f)
            theta = theta - h / 2 * v + math.sqrt(h * self.temperature) * job.normal(k)
        return {"theta": theta}, memory

    def server(self, state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        theta, coin = state["theta"], np.atleast_1d(rng.uniform())
        new = theta.copy().reshape(-1, theta.shape[-1])
        for r in range(len(new)):
            own = slice(replies.starts[r], replies.starts[r + 1])
            if own.start < own.stop:
                order = own.start + np.argsort(replies.clients[own], kind="stable")
                chances = np.cumsum(replies.weights[order])
                new[r] = replies["theta"][order[np.searchsorted(chances[:-1], coin[r] * chances[-1], side="right")]]
        return {"theta": new.reshape(theta.shape)}

    def _conducive(self, theta: Array, client: Numbers, f: Array) -> Array:
        """Return grad q - grad q_s / f_s, which is zero on average over s."""
        precision, linear = (part.astype(theta.dtype) for part in self._total)
        own, mean = self.precisions[client].astype(theta.dtype), self.means[client].astype(theta.dtype)
        return np.asarray(self._times(precision, theta) - linear + self._times(own, mean - theta) / f)

    @cached_property
    def _total(self) -> tuple[Array, Array]:
        """P and b of grad q = P theta - b."""
        return self.precisions.sum(axis=0), self._times(self.precisions, self.means).sum(axis=0)

    def _times(self, precision: Array, x: Array) -> Array:
        """Return P x for diagonals or matrices, at any rank; row by row, so that bits do not depend on other rows."""
        if self.precisions.ndim == 2:
            return np.asarray(precision * x)
        return np.asarray((precision * x[..., None, :]).sum(axis=-1))


LARGEST, STEPS, NEAR = 500, 60, 1e-6  # dimensions, Newton steps, their relative length at convergence


def laplace(problem: ProblemLike, diagonal: bool = False) -> tuple[Array, Array]:
    """Return means (clients, d) and precisions (clients, d, d), or diagonals, of every client's Laplace approximation.

    A client's loss includes its share of the prior. Where it is flat in some direction, so is the surrogate.
    """
    check_bool("FSGLD.laplace(diagonal={})", diagonal)
    if missing(problem, ProblemLike):
        raise InvalidInput(
            f"FSGLD.laplace({short_repr(problem)}): give a problem, such as fs.problems.GaussianMean(...)"
        )
    if isinstance(problem, Quadratic):
        hessian, linear = call(problem, "quadratic")
        means = np.array([np.linalg.lstsq(h, b, rcond=None)[0] for h, b in zip(hessian, linear, strict=True)])
    else:
        if problem.dim > LARGEST:
            raise InvalidInput(
                f"FSGLD.laplace: {problem.dim} dimensions need {problem.dim} gradients per Newton step; "
                f"use at most {LARGEST}, or give means and precisions"
            )
        found = [_minimise(problem, c) for c in range(problem.clients)]
        means, hessian = np.array([m for m, _ in found]), np.array([h for _, h in found])
    if diagonal:
        return means, np.diagonal(hessian, axis1=1, axis2=2).copy()
    return means, np.asarray(hessian)


def _minimise(problem: ProblemLike, client: int) -> tuple[Array, Array]:
    """Return the client's optimum and the Hessian there, by Newton's method with halved steps."""
    slope = as_problem(problem).gradient

    def gradient(at: Array) -> Array:
        return np.asarray(slope(at, client), np.float64)

    theta = np.zeros(problem.dim)
    g = gradient(theta)
    for _ in range(STEPS):
        hessian = _hessian(gradient, theta)
        move = np.linalg.lstsq(hessian, g, rcond=1e-10)[0]
        if np.linalg.norm(move) <= NEAR * (1 + np.linalg.norm(theta)):
            return theta, hessian
        for halving in range(30):
            trial = theta - 0.5**halving * move
            after = gradient(trial)
            if np.linalg.norm(after) < np.linalg.norm(g):
                break
        theta, g = trial, after
    raise InvalidInput(
        f"FSGLD.laplace: client {client} has no optimum of its own; "
        "give the problem a prior_precision, or means and precisions"
    )


def _hessian(gradient: Callable[[Array], Array], at: Array) -> Array:
    """Return central differences of the gradient, made symmetric."""
    step = 1e-5 * (1 + np.abs(at).max())
    columns = [(gradient(at + step * e) - gradient(at - step * e)) / (2 * step) for e in np.eye(len(at))]
    return np.asarray((np.array(columns) + np.array(columns).T) / 2)

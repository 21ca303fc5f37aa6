"""The QLSD family for several iterations at a go, everybody taking part: compiled clients, compiled server.

What is drawn is drawn for all iterations at once; then two kernels take turns. The bits are those of the iterations
taken one by one, through `client` and `server`.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

import numpy as np

from fedsim.algorithms.qlsd_fused import Quantised, has_kernel, rows_of, tables_of, wire_of
from fedsim.arrays import Array, Arrays
from fedsim.codecs import QSGD, Identity
from fedsim.problems import GaussianMean
from fedsim.protocols import Backend, ManyRounds, ProblemLike, RoundKeys
from fedsim.schedules import step_at


def iterations(
    algorithm: Quantised,
    problem: ProblemLike,
    backend: Backend,
    control: str = "",
    centre: str = "",
    rate: float | None = None,
) -> ManyRounds | None:
    """`go(keys, replicas, first, count, state, memory)`; None where no kernel serves.

    It gives theta after each of `count` rounds and, with a memory `rate`, what e and the clients' e_i are at the end.
    `control` names the state's control point, `centre` what its prior is relative to; "" is none.
    """
    if backend.name != "cpu" or not has_kernel(problem) or type(algorithm.codec) not in (Identity, QSGD):
        return None
    from fedsim.kernels import qlsd, qlsd_logistic, sums
    from fedsim.kernels.minibatches import by_client

    gaussian = type(problem) is GaussianMean
    messages: Any = qlsd.gaussian if gaussian else qlsd_logistic.logistic
    clients, d = problem.clients, problem.dim
    wire, tables = wire_of(algorithm, problem, backend), lru_cache(partial(tables_of, problem))
    # Of Gaussian means the data drop out of a difference, and with them the minibatch.
    rows = None if gaussian and control else rows_of(algorithm, problem)
    activity = np.ones(clients) if algorithm.weighting == "count" else np.broadcast_to(algorithm.activity, (clients,))

    def go(
        keys: RoundKeys, replicas: Array, first: int, count: int, state: Arrays, memory: Arrays
    ) -> tuple[Arrays, Arrays]:  # fmt: skip
        theta, n = state["theta"], len(replicas)
        at, client = np.repeat(np.arange(n), clients), np.tile(np.arange(clients), n)
        starts, order = clients * np.arange(n + 1), by_client(client, clients)
        weights = (1 / activity[client]).astype(theta.dtype)

        def term(arrays: Arrays, name: str) -> Array:
            return np.ascontiguousarray(arrays[name]).reshape(-1, d) if name in arrays else theta[:0]

        rounds, who = range(first, first + count), replicas[at]
        size, batch = qlsd.minibatch(problem.offsets, rows, np.empty((len(client), 4), np.uint32))
        coins = np.empty((len(client), 4), np.uint32)
        noise = backend.normal(keys.server(replicas, first, count), d, 0, theta.dtype).reshape(count, n, d)
        point, origin = term(state, control), term(state, centre)
        anchor, kept, drift = term(memory, "anchor"), term(memory, "e").copy(), term(state, "e").copy()
        sent, bits = np.empty((len(client), d), theta.dtype), np.empty(len(client), np.int64)
        history = np.empty((count, n, d), theta.dtype)
        alpha = 0.0 if rate is None else rate
        for k, round in enumerate(rounds):
            keys.codec(who, client, round, coins)
            if len(batch):
                keys.rows(who, client, round, batch)
            messages(
                theta, at, *tables(theta.dtype), client, order, size, batch, point, anchor, kept, alpha, coins,
                *wire, sent, bits, kept,
            )  # fmt: skip
            gamma = step_at(algorithm.step_size, round, 1, 0)
            sums.langevin_step(
                sent, weights, starts, theta, origin, state["precision"], drift, alpha, gamma, math.sqrt(2 * gamma),
                noise[k], history[k],
            )  # fmt: skip
            theta = history[k]
        if rate is None:
            return {"theta": history}, {}
        return {"theta": history, "e": drift[None]}, {"e": kept.reshape(n, clients, d)}

    return go

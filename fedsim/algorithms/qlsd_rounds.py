"""The QLSD family for several iterations at a go: compiled clients, compiled server.

What is drawn is drawn for all iterations at once; then two kernels take turns. The bits are those of the iterations
taken one by one, through `client` and `server`.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

import numpy as np

from fedsim.algorithms.qlsd_fused import Quantised, has_kernel, rows_of, tables_of, wire_of
from fedsim.algorithms.rounds import of_round
from fedsim.arrays import Array, Arrays
from fedsim.codecs import QSGD, Elias, Identity
from fedsim.problems import GaussianMean
from fedsim.protocols import LENGTHS, Backend, ManyRounds, ProblemLike, RoundKeys, RoundsToTake
from fedsim.schedules import step_at


def iterations(
    algorithm: Quantised,
    problem: ProblemLike,
    backend: Backend,
    control: str = "",
    centre: str = "",
    rate: float | None = None,
) -> ManyRounds | None:
    """`go(rounds, keys)`; None where no kernel serves.

    It gives theta after each of `count` rounds and, with a memory `rate`, what e and the clients' e_i are at the end.
    `control` names the state's control point, `centre` what its prior is relative to; "" is none.
    """
    if backend.name != "cpu" or not has_kernel(problem) or type(algorithm.codec) not in (Identity, QSGD, Elias):
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

    def go(rounds: RoundsToTake, keys: RoundKeys) -> tuple[Arrays, Arrays]:
        replicas, first, count, state, memory = rounds.replicas, rounds.first, rounds.count, rounds.state, rounds.memory
        theta, n = state["theta"], len(replicas)
        ones, most = np.ones(clients), n * clients

        def term(arrays: Arrays, name: str) -> Array:
            return np.ascontiguousarray(arrays[name]).reshape(-1, d) if name in arrays else theta[:0]

        def weigh(client: Array, counted: Array) -> Array:
            return counted if algorithm.weighting == "count" else 1 / activity[client]

        def jobs_of(client: Array, counted: Array, starts: Array) -> tuple[Array, Array, Array, Array, Array]:
            """Models and clients of a round's jobs, weights, where each replica's begin, their order by client."""
            at = np.repeat(np.arange(n), np.diff(starts))
            return at, client, weigh(client, counted).astype(theta.dtype), starts, by_client(client, clients)

        def jobs(k: int) -> tuple[Array, Array, Array, Array, Array]:
            return opening if k == 0 or rounds.answered is None else jobs_of(*of_round(ones, rounds, k))

        opening = jobs_of(*of_round(ones, rounds, 0))
        size, row_keys = qlsd.minibatch(problem.offsets, rows, np.empty((most, 4), np.uint32))
        coins = np.empty((most, 4), np.uint32)
        noise = backend.normal(keys.server(replicas, first, count), d, 0, theta.dtype).reshape(count, n, d)
        point, origin = term(state, control), term(state, centre)
        anchor, kept, drift = term(memory, "anchor"), term(memory, "e").copy(), term(state, "e").copy()
        sent, bits = np.empty((most, d), theta.dtype), np.empty(most, np.int64)
        history, lengths = np.empty((count, n, d), theta.dtype), np.empty((count, n, clients), np.int64)
        alpha = 0.0 if rate is None else rate
        for k in range(count):
            at, client, weights, starts, order = jobs(k)
            m, who = len(client), replicas[at]
            keys.codec(who, client, first + k, coins[:m])
            if len(row_keys):
                keys.rows(who, client, first + k, row_keys[:m])
            own = kept if len(kept) == 0 or m == most else kept[at * clients + client]
            messages(
                theta, at, *tables(theta.dtype), client, order, size, row_keys[:m], point, anchor,
                own, alpha, coins[:m], *wire, sent[:m], bits[:m], own,
            )  # fmt: skip
            if own is not kept:
                kept[at * clients + client] = own
            if m == most:
                lengths[k] = bits.reshape(n, clients)
            gamma = step_at(algorithm.step_size, first + k, 1, 0)
            sums.langevin_step(
                sent[:m], weights, starts, theta, origin, state["precision"], drift, alpha, gamma,
                math.sqrt(2 * gamma), noise[k], history[k],
            )  # fmt: skip
            if algorithm.empty == "hold" and m < most:
                nobody = np.diff(starts) == 0
                history[k][nobody] = theta[nobody]
            theta = history[k]
        states = {"theta": history} | ({LENGTHS: lengths} if type(algorithm.codec) is Elias else {})
        if rate is None:
            return states, {}
        return states | {"e": drift[None]}, {"e": kept.reshape(n, clients, d)}

    return go

"""Blocks of rounds of QLSD: two kernels alternate, the clients' messages and the server's step.

The general loop (`runtime/blocks`) calls `client` and `server` in each round, which takes 0.2 ms of Python, as long as
the 600 messages of a round of the paper's toy with 30 replicas, and threads cannot share it. The bits are the same.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

import numpy as np

from fedsim.algorithms.common.quantised_langevin import Quantised, has_kernel, rows_of, tables_of, wire_of
from fedsim.arrays import Array
from fedsim.codecs import QSGD, Elias, Identity
from fedsim.problems import GaussianMean
from fedsim.protocols import Backend, BlockKernel, ProblemLike, RoundKeys, RoundsToLearn
from fedsim.schedules import step_at


def block_kernel(algorithm: Quantised, problem: ProblemLike, backend: Backend) -> BlockKernel | None:
    """Return a function that learns rounds in one call; None where no kernel serves."""
    if backend.name != "cpu" or not has_kernel(problem) or type(algorithm.codec) not in (Identity, QSGD, Elias):
        return None
    from fedsim.kernels.cpu import qlsd, qlsd_logistic, sums
    from fedsim.kernels.cpu.rows import by_client

    messages: Any = qlsd.gaussian if type(problem) is GaussianMean else qlsd_logistic.logistic
    clients, d = problem.clients, problem.dim
    wire, tables = wire_of(algorithm, problem, backend), lru_cache(partial(tables_of, problem))
    rows = rows_of(algorithm, problem)
    size, no_key = qlsd.minibatch(problem.offsets, rows, np.empty((0, 4), np.uint32))
    activity = np.ones(clients) if algorithm.weighting == "count" else np.broadcast_to(algorithm.activity, (clients,))

    def learn(block: RoundsToLearn, keys: RoundKeys) -> Array:
        theta: Array = block.state["theta"]
        n, nothing = len(block.replicas), theta[:0]
        precision = block.state["precision"]
        noise = backend.normal(keys.server(*_servers(block)), d, 0, theta.dtype).reshape(block.rounds, n, d)
        history = np.empty((block.rounds, n, d), theta.dtype)
        for k in range(block.rounds):
            if k == 0 or not block.same_cohort:
                segments = block.segments_of(k)
                client, weights, starts = segments.client, segments.weights, segments.starts
                if algorithm.weighting != "count":
                    weights = 1 / activity[client]
                weights, at = weights.astype(theta.dtype), np.repeat(np.arange(n), np.diff(starts))
                replica, order = block.replicas[at], by_client(client, clients)
                sent, bits = np.empty((len(client), d), theta.dtype), np.empty(len(client), np.int64)
            address = (replica, client, np.array([block.first + k]))
            coins = keys.codec(*address)
            row_keys = no_key if rows is None else keys.rows(*address)
            messages(
                theta, at, *tables(theta.dtype), client, order, size, row_keys, nothing, nothing, nothing, 0.0, coins,
                *wire, sent, bits, nothing,
            )  # fmt: skip
            gamma = step_at(algorithm.step_size, block.first + k, 1, 0)
            sums.langevin_step(
                sent, weights, starts, theta, precision, gamma, math.sqrt(2 * gamma), noise[k], history[k]
            )
            if algorithm.empty == "hold" and (empty := np.diff(starts) == 0).any():
                history[k][empty] = theta[empty]
            theta = history[k]
        return history

    return learn


def _servers(block: RoundsToLearn) -> tuple[Array, Array]:
    """Return replica and round of the servers' steps, round after round."""
    rounds = np.repeat(np.arange(block.first, block.first + block.rounds), len(block.replicas))
    return np.tile(block.replicas, block.rounds), rounds

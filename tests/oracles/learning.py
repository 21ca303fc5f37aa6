"""Three loops, one per exchange, over what the timeline says was received; each returns (rounds, sites, d)."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracles import timeline, weights
from oracles.draws import Address
from oracles.world import Reply, World


def _weights(oracle: Any, policy: str, received: list[Address], p: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    return weights.policy_weights(oracle.rule, policy, received, p, drawn) if received else np.empty(0)


def star(w: World, oracle: Any, events: Any, rounds: int, start: np.ndarray, policy: str, draws: int = 0) -> np.ndarray:
    """One server. In `buffered` a model counts by how far it moved from the version that it started from."""
    read = timeline.asynchronous if policy == "buffered" else timeline.synchronous
    state = oracle.start(start, w)
    versions, memory, out = [state], [oracle.memory(len(start)) for _ in w.p], []
    for round, received in enumerate(read(events, rounds)):
        replies: list[Reply] = []
        for at in received:  # a client's memory changes with its own replies alone, and it has one visit at a time
            started = versions[at.version]
            reply, memory[at.client] = oracle.client(w, at, started, memory[at.client])
            moved = {n: state[n] + v - started[n] if n in oracle.models else v for n, v in reply.items()}
            replies.append((at, moved))
        drawn = w.numbers.drawn_clients(0, round, max(draws, 1), tuple(w.p))
        a = _weights(oracle, policy, received, w.p, drawn)
        state = state | oracle.server(w, state, replies, a, round, 0)
        versions.append(state)
        out.append(state["theta"][None])
    return np.array(out)


def tiers(
    w: World, oracle: Any, events: Any, rounds: int, start: np.ndarray, policy: str, groups: np.ndarray, every: int,
    draws: int = 0,
) -> np.ndarray:  # fmt: skip
    """Edges that are stars among their own clients; every `every` rounds the cloud averages them by summed p_c.

    Where the server needs the sum over all clients ("total"), the one model is at the cloud and edges add up.
    """
    edges = range(groups.max() + 1)
    states = [oracle.start(start, w) for _ in edges]
    memory, out = [oracle.memory(len(start)) for _ in w.p], []
    for round, received in enumerate(timeline.synchronous(events, rounds)):
        replies: list[Reply] = []
        for at in received:
            reply, memory[at.client] = oracle.client(w, at, states[groups[at.client]], memory[at.client])
            replies.append((at, reply))
        if oracle.rule == "total":
            a = _weights(oracle, policy, received, w.p, np.zeros(0))
            new = states[0] | oracle.server(w, states[0], replies, a, round, 0)
            states = [new for _ in edges]
        else:
            for edge in edges:
                own = [(at, reply) for at, reply in replies if groups[at.client] == edge]
                p = weights.in_group(w.p, groups, edge)
                drawn = w.numbers.drawn_clients(edge, round, max(draws, 1), tuple(p))
                a = _weights(oracle, policy, [at for at, _ in own], p, drawn)
                states[edge] = states[edge] | oracle.server(w, states[edge], own, a, round, edge)
            if (round + 1) % every == 0:
                share = weights.of_groups(w.p, groups)
                cloud = sum(share[e] * states[e]["theta"] for e in edges)
                states = [state | {"theta": cloud} for state in states]
        out.append(np.array([state["theta"] for state in states]))
    return np.array(out)


def gossip(w: World, oracle: Any, events: Any, rounds: int, start: np.ndarray, mixing: np.ndarray) -> np.ndarray:
    """Every client a site: it aggregates its own reply and its neighbours' of the same round by the mixing row."""
    states = [oracle.start(start, w) for _ in w.p]
    out = []
    for round, aggregated in enumerate(timeline.gossip(events, rounds, w.clients)):
        made = [oracle.client(w, Address(i, round), states[i], {})[0] for i in range(w.clients)]
        new = list(states)
        for site, received in aggregated.items():
            replies = [(Address(j, round), made[j]) for j in received]
            a = weights.mixing_row(mixing, site, received)
            new[site] = states[site] | oracle.server(w, states[site], replies, a, round, site)
        states = new
        out.append(np.array([state["theta"] for state in states]))
    return np.array(out)

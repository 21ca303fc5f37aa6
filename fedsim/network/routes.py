"""The way from every client to the server and back: least latency, or as the user says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput, quoted, shown
from fedsim.network.graph import Arcs


@dataclass(frozen=True)
class Paths:
    """The routes of all clients in one direction."""

    links: Array  # of client 0, then of client 1, ...; ideal links (infinite bandwidth) are left out
    starts: Array  # where each client's links begin, and one more
    latency_s: Array
    bottleneck_bps: Array
    stretch: Array


def own_routes(
    routes: Mapping[Any, Sequence[Any]], numbers: dict[Any, int], server: Any, arcs: Arcs
) -> dict[int, list[Any]]:
    """The routes that the caller chose, by client number."""
    if not isinstance(routes, Mapping):
        raise InvalidInput(f"routes={quoted(routes)}: give a mapping of clients to lists of nodes")
    own = {}
    for client, route in routes.items():
        try:
            path = list(route)
            known = len(path) >= 2 and path[0] in numbers and len(set(path)) > 0
        except TypeError:
            raise InvalidInput(
                f"routes[{quoted(client)}] is {quoted(route)}: list its nodes, up to the server"
            ) from None
        if not known or client not in (path[0], numbers[path[0]]) or path[-1] != server:
            raise InvalidInput(
                f"routes[{quoted(client)}] is {shown(path)}: list the nodes from that client to the server "
                f"{quoted(server)}"
            )
        if len(set(path)) < len(path):
            raise InvalidInput(f"routes[{quoted(client)}] is {shown(path)}: pass every node once")
        for u, v in pairwise(path):
            if (u, v) not in arcs.between or (v, u) not in arcs.between:
                way = f"{quoted(u)}-{quoted(v)}"
                raise InvalidInput(f"routes[{quoted(client)}] needs {way} both ways: add the edge, or go another way")
        own[numbers[path[0]]] = path
    return own


def _tree(arcs: Arcs, nodes: int, root: int, upward: bool) -> Array:
    """Each node's arc to the next node on its way to the root, or from there; -1: it has none."""
    near, far = (arcs.head, arcs.tail) if upward else (arcs.tail, arcs.head)
    beyond: list[list[tuple[int, float, int]]] = [[] for _ in range(nodes)]
    for arc, (a, b, latency) in enumerate(zip(near.tolist(), far.tolist(), arcs.latency_s.tolist(), strict=True)):
        beyond[a].append((b, latency, arc))
    best: list[tuple[float, int, int]] = [(math.inf, 0, 0)] * nodes  # latency, links, previous node
    best[root] = (0.0, 0, -1)
    tree = np.full(nodes, -1)
    queue, done = [(0.0, 0, root)], [False] * nodes
    while queue:
        latency, links, a = heappop(queue)
        if done[a]:
            continue
        done[a] = True
        for b, more, arc in beyond[a]:
            if (latency + more, links + 1, a) < best[b]:
                best[b] = (latency + more, links + 1, a)
                tree[b] = arc
                heappush(queue, (latency + more, links + 1, b))
    return tree


def paths_of(
    arcs: Arcs, graph: Any, numbers: dict[Any, int], server: Any, upward: bool, own: dict[int, list[Any]]
) -> Paths:
    """Everybody's route, one step of all clients at a time."""
    index = {node: i for i, node in enumerate(graph)}
    at, root = np.array([index[node] for node in numbers]), index[server]
    tree = _tree(arcs, len(index), root, upward)
    for node, c in numbers.items():
        if tree[index[node]] < 0 and c not in own:
            way = f"from {quoted(node)} to {quoted(server)}" if upward else f"from {quoted(server)} to {quoted(node)}"
            raise InvalidInput(f"client {c} has no way {way}, the server: add edges that connect them")
    who = np.array([c for c in range(len(at)) if c not in own], np.int64)
    steps = []
    while who.size:
        arc = tree[at[who]]
        steps.append((who, arc))
        at[who] = (arcs.head if upward else arcs.tail)[arc]
        who = who[at[who] != root]
    if not upward:
        steps.reverse()
    for c, path in own.items():
        path = path if upward else path[::-1]
        steps.append(
            (
                np.full(len(path) - 1, c),
                np.array([arcs.between[way] for way in pairwise(path)]),
            )
        )
    client, arc = (np.concatenate(column) for column in zip(*steps, strict=True))
    order = np.argsort(client, kind="stable")
    client, arc = client[order], arc[order]
    first = np.searchsorted(client, np.arange(len(at)))
    real = arcs.link[arc] >= 0
    return Paths(
        links=arcs.link[arc[real]],
        starts=np.concatenate([[0], np.cumsum(np.bincount(client[real], minlength=len(at)))]),
        latency_s=np.add.reduceat(arcs.latency_s[arc], first),
        bottleneck_bps=np.minimum.reduceat(arcs.bandwidth_bps[arc], first),
        stretch=1.0 / np.multiply.reduceat(1.0 - arcs.loss[arc], first),
    )

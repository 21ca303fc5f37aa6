"""Routes between clients and server and between any two nodes: of least latency, or chosen by the user."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.network.graph import Arcs, known_node
from fedsim.text import short_repr, short_str

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True)
class Paths:
    """Routes, one row each: of all clients in one direction, or of pairs of nodes."""

    links: Array  # of row 0, then of row 1, ...; ideal links (infinite bandwidth) are left out
    starts: Array  # where each row's links begin, and one more
    latency_s: Array  # (rows,)
    bottleneck_bps: Array  # (rows,) the least bandwidth; inf where all links are ideal, or there are none
    loss_factor: Array  # (rows,) by which loss lengthens a transfer

    def __len__(self) -> int:
        return len(self.latency_s)

    def route(self, row: int) -> Array:
        """Return the numbers of a row's links, in the order of travel."""
        return self.links[self.starts[row] : self.starts[row + 1]]

    @property
    def contended(self) -> bool:
        """True if two rows share a link."""
        return bool(len(self.links) and np.bincount(self.links).max() > 1)


def own_routes(
    routes: Mapping[Any, Sequence[Any]], numbers: dict[Any, int], server: Hashable, arcs: Arcs
) -> dict[int, list[Any]]:
    """Return the routes that the user chose, by client number."""
    if not isinstance(routes, Mapping):
        raise InvalidInput(f"routes={short_repr(routes)}: give a mapping of clients to lists of nodes")
    if routes and server is None:
        raise InvalidInput("routes= lead to the server, and the graph has none: mark one, or leave routes= out")
    own = {}
    for client, route in routes.items():
        try:
            path = list(route)
            known = len(path) >= 2 and path[0] in numbers and len(set(path)) > 0
        except TypeError:
            raise InvalidInput(
                f"routes[{short_repr(client)}] is {short_repr(route)}: list its nodes, up to the server"
            ) from None
        if not known or client not in (path[0], numbers[path[0]]) or path[-1] != server:
            raise InvalidInput(
                f"routes[{short_repr(client)}] is {short_str(path)}: list the nodes from that client to the server "
                f"{short_repr(server)}"
            )
        if len(set(path)) < len(path):
            raise InvalidInput(f"routes[{short_repr(client)}] is {short_str(path)}: pass every node once")
        for u, v in pairwise(path):
            if (u, v) not in arcs.between or (v, u) not in arcs.between:
                way = f"{short_repr(u)}-{short_repr(v)}"
                raise InvalidInput(
                    f"routes[{short_repr(client)}] needs {way} in both directions: add the edge, or give another route"
                )
        own[numbers[path[0]]] = path
    return own


class Router:
    """Shortest routes in one graph."""

    def __init__(self, arcs: Arcs, graph: nx.Graph) -> None:
        self._arcs, self._nodes = arcs, list(graph)
        self._index = {node: i for i, node in enumerate(graph)}
        self._tail, self._head, self._latency = arcs.tail.tolist(), arcs.head.tolist(), arcs.latency_s.tolist()
        self._beyond: dict[bool, list[list[int]]] = {}  # by direction and node: the arcs away from the root

    def of_clients(self, numbers: dict[Any, int], server: Hashable, upward: bool, own: dict[int, list[Any]]) -> Paths:
        """Return every client's route to the server, or back."""
        where = {c: self._index[node] for node, c in numbers.items()}
        root = self._index[server]
        tree = self._tree(root, upward, set(where.values()))
        ways: list[list[int]] = []
        for node, c in numbers.items():
            if c in own:
                path = own[c] if upward else own[c][::-1]
                ways.append([self._arcs.between[step] for step in pairwise(path)])
                continue
            if where[c] not in tree:
                ends = (node, server) if upward else (server, node)
                raise InvalidInput(
                    f"client {c} has no route from {short_repr(ends[0])} to {short_repr(ends[1])}: add edges "
                    "that connect it with the server"
                )
            ways.append(self._walk(tree, where[c], root, upward))
        return self._gather(ways)

    def stops(self, numbers: dict[Any, int], server: object, own: dict[int, list[Any]]) -> list[list[Any]]:
        """Return the nodes on every client's route to the server, without its own, the server last."""
        root = self._index[server]
        tree = self._tree(root, True, {self._index[node] for node in numbers})
        found = []
        for node, c in numbers.items():
            way = [] if c in own else self._walk(tree, self._index[node], root, True)
            found.append(own[c][1:] if c in own else [self._nodes[self._head[arc]] for arc in way])
        return found

    def between(
        self, pairs: Iterable[Any], server: Hashable, numbers: dict[Any, int], own: dict[int, list[Any]]
    ) -> Paths:
        """Return the routes of pairs of nodes; those to or from the server are the clients' own."""
        ends = ends_of(pairs, self._index)
        hub = None if server is None else self._index[server]
        client_at = {self._index[node]: c for node, c in numbers.items() if c in own}
        wanted: dict[tuple[int, bool], set[int]] = {}  # by root and direction: the other ends
        rooted = []
        for a, b in ends:
            upward = b == hub and a != b
            rooted.append((b, True, a) if upward else (a, False, b))
            wanted.setdefault(rooted[-1][:2], set()).add(rooted[-1][2])
        trees = {key: self._tree(*key, others) for key, others in wanted.items()}
        ways: list[list[int]] = []
        for root, upward, other in rooted:
            if root == hub and other in client_at:
                path = own[client_at[other]]
                ways.append([self._arcs.between[step] for step in pairwise(path if upward else path[::-1])])
            elif root == other:
                ways.append([])
            elif other in trees[root, upward]:
                ways.append(self._walk(trees[root, upward], other, root, upward))
            else:
                a, b = (other, root) if upward else (root, other)
                raise InvalidInput(
                    f"no route leads from {short_repr(self._nodes[a])} to {short_repr(self._nodes[b])}: add "
                    "edges that connect them"
                )
        return self._gather(ways)

    def _tree(self, root: int, upward: bool, wanted: set[int]) -> dict[int, int]:
        """Return the arc of each node towards the root, or from it, once all wanted nodes are reached."""
        far = self._tail if upward else self._head
        if upward not in self._beyond:
            self._beyond[upward] = [[] for _ in self._nodes]
            for arc, near in enumerate(self._head if upward else self._tail):
                self._beyond[upward][near].append(arc)
        beyond, latencies = self._beyond[upward], self._latency
        best: dict[int, tuple[float, int, int]] = {root: (0.0, 0, -1)}  # latency, links, previous node
        nowhere = (math.inf, 0, 0)
        tree: dict[int, int] = {}
        queue, done, missing = [(0.0, 0, root)], set[int](), len(wanted)
        while queue and missing:
            latency, links, a = heappop(queue)
            if a in done:
                continue
            done.add(a)
            missing -= a in wanted
            for arc in beyond[a]:
                b = far[arc]
                found = (latency + latencies[arc], links + 1, a)
                if found < best.get(b, nowhere):
                    best[b] = found
                    tree[b] = arc
                    heappush(queue, (found[0], found[1], b))
        return tree

    def _walk(self, tree: dict[int, int], at: int, root: int, upward: bool) -> list[int]:
        """Return the arcs between a node and the root, in the order of travel."""
        onward, way = (self._head if upward else self._tail), []
        while at != root:
            way.append(tree[at])
            at = onward[tree[at]]
        return way if upward else way[::-1]

    def _gather(self, ways: list[list[int]]) -> Paths:
        """Return routes given as arcs as columns."""
        arcs, rows = self._arcs, len(ways)
        row = np.repeat(np.arange(rows), [len(way) for way in ways])
        arc = np.array([arc for way in ways for arc in way], np.int64)
        latency, least, passed = np.zeros(rows), np.full(rows, math.inf), np.ones(rows)
        first = np.flatnonzero(np.diff(row, prepend=-1))  # of every row that has arcs
        if len(arc):
            latency[row[first]] = np.add.reduceat(arcs.latency_s[arc], first)
            least[row[first]] = np.minimum.reduceat(arcs.bandwidth_bps[arc], first)
            passed[row[first]] = np.multiply.reduceat(1.0 - arcs.loss[arc], first)
        real = arcs.link[arc] >= 0
        return Paths(
            links=arcs.link[arc[real]],
            starts=np.concatenate([[0], np.cumsum(np.bincount(row[real], minlength=rows))]),
            latency_s=latency,
            bottleneck_bps=least,
            loss_factor=1.0 / passed,
        )


def ends_of(pairs: Iterable[Any], index: Mapping[Any, int]) -> list[tuple[int, int]]:
    """Return pairs of nodes as pairs of their numbers in the index."""
    right = "list pairs of nodes, [(from, to), ...]"
    if isinstance(pairs, str | bytes | Mapping | range) or not isinstance(pairs, Iterable) or np.ma.is_masked(pairs):
        raise InvalidInput(f"paths({short_repr(pairs)}): {right}")
    try:
        listed = list(pairs)
    except Exception as error:  # a user's own iterator may raise anything
        raise InvalidInput(f"paths({short_repr(pairs)}): {right}") from error
    ends = []
    for pair in listed:
        two = isinstance(pair, tuple | list) or (isinstance(pair, np.ndarray) and pair.ndim == 1)
        if not two or len(pair) != 2:
            raise InvalidInput(f"paths: {short_repr(pair)} is not a pair; {right}")
        a, b = (index[known_node(index, node, "paths: the end of a message")] for node in pair)
        ends.append((a, b))
    return ends

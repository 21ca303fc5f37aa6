"""Exchanges: where models are and which replies each aggregates: one server, edges under a cloud, or gossip.

A *site* has a model and aggregates replies. An exchange depends on clients, network and seed, not on algorithms or
time. `star()` is the default, an exchange with one site.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedsim import rng
from fedsim.arrays import Array
from fedsim.checks import as_float_array, check_int
from fedsim.errors import InvalidInput
from fedsim.text import short_repr, short_str

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["Exchange", "Gossip", "StarExchange", "TiersExchange", "gossip", "star", "tiers"]

WORDS = ("metropolis", "max_degree", "matching")
EXACT = 1e-9  # largest difference between the sum of a row and 1


def star() -> StarExchange:
    """Return the exchange with one server."""
    return StarExchange()


def tiers(groups: Sequence[Hashable] | None = None, every: int = 5, cloud: Hashable = None) -> TiersExchange:
    """Return edge servers under a cloud, which averages their models after every `every` rounds of an edge.

    groups: the edge of each client; None: the first node with role="edge" on its route to the server.
    cloud: the cloud's node; None: the server.

    Edges are the nodes with role="edge", by the labels of `groups` or else in order; without such nodes, they are at
    the server.
    """
    return TiersExchange(groups, every, cloud)


def gossip(graph: nx.Graph, mixing: str | npt.ArrayLike = "metropolis") -> Gossip:
    """Return gossip: every client averages its model with its neighbours' in a networkx graph of client numbers.

    | mixing         | weight of neighbour j at site i; the remainder to 1 is the weight of i                |
    |----------------|--------------------------------------------------------------------------------------|
    | "metropolis"   | 1 / (1 + max(deg_i, deg_j))                                                          |
    | "max_degree"   | 1 / (1 + the largest degree)                                                         |
    | "matching"     | 1/2 in a random matching, drawn for every replica and round                          |
    | a matrix       | W_ij, zero outside the graph, rows that sum to 1; or a list of them, used in turn    |

    A site sends its reply to every site that gives it a weight in that round. Matrices must lead to
    consensus: applied in turn, they make all models equal in the limit.
    """
    return Gossip(graph, mixing)


@dataclass(frozen=True)
class StarExchange:
    """One server."""


@dataclass(frozen=True)
class TiersExchange:
    """Edge servers under a cloud."""

    groups: Any = None
    every: int = 5
    cloud: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", check_int("exchanges.tiers(every={})", self.every))
        if self.groups is None:
            return
        remedy = "give one edge label per client, such as [0, 0, 1, 1]"
        try:
            labels = tuple(g.item() if isinstance(g, np.generic) else g for g in self.groups)
            sorted(set(labels))
        except Exception:  # not a sequence, labels without an order, or an object that raises
            raise InvalidInput(f"exchanges.tiers(groups={short_repr(self.groups)}): {remedy}") from None
        if not labels or isinstance(self.groups, str | bytes | dict):
            raise InvalidInput(f"exchanges.tiers(groups={short_repr(self.groups)}): {remedy}")
        object.__setattr__(self, "groups", labels)


@dataclass(frozen=True)
class Mixing:
    """The messages of one round and their weights: a row per message, by receiver, then sender."""

    message: Array  # (k,) its number among all messages of the graph
    weight: Array  # (k,) W_ij of a message from j to i
    own: Array  # (sites,) W_ii


@dataclass(frozen=True, eq=False, init=False)
class Gossip:
    """Sites that average with their neighbours. Messages are numbered by receiver, then sender."""

    mixing: Any
    sites: int
    receiver: Array = field(repr=False)  # (messages,)
    sender: Array = field(repr=False)

    def __init__(self, graph: nx.Graph, mixing: str | npt.ArrayLike = "metropolis") -> None:
        ends = _edges_of(graph)
        both = np.concatenate([ends, ends[:, ::-1]])
        both = both[np.lexsort((both[:, 1], both[:, 0]))]
        found = {"_graph": graph.copy(), "sites": len(graph), "receiver": both[:, 0], "sender": both[:, 1]}
        for name, value in found.items():
            object.__setattr__(self, name, value)
        if isinstance(mixing, str) and mixing not in WORDS:
            words = ", ".join(map(repr, WORDS))
            raise InvalidInput(f"exchanges.gossip(mixing={short_repr(mixing)}): choose {words}, or give a matrix")
        object.__setattr__(self, "mixing", mixing if isinstance(mixing, str) else self._checked(mixing))
        _ = self.weights  # refuses a mixing without stationary weights

    @property
    def graph(self) -> Any:
        """The graph that it was made from."""
        return self.__dict__["_graph"]

    @cached_property
    def degrees(self) -> Array:
        return np.bincount(self.receiver, minlength=self.sites)

    @cached_property
    def weights(self) -> Array:
        """The stationary weights of W, (sites,), which sum to 1."""
        equal = np.full(self.sites, 1 / self.sites)
        if isinstance(self.mixing, str):  # symmetric on a connected graph
            return equal
        pi = _stationary(reduce(lambda before, matrix: matrix @ before, self.mixing))
        if any(np.abs(pi @ matrix - pi).max() > EXACT for matrix in self.mixing):
            raise InvalidInput(
                "exchanges.gossip(mixing=[...]): the matrices have different stationary weights, so that no target is "
                "defined; give doubly stochastic ones, or matrices that agree"
            )
        return equal if np.abs(pi - equal).max() < EXACT else pi

    def at(self, seed: int, replica: int, round: int) -> Mixing:
        """Return the mixing of one replica's round."""
        if isinstance(self.mixing, str):
            return self._matched(seed, replica, round) if self.mixing == "matching" else self._tables[0]
        return self._tables[round % len(self._tables)]

    @property
    def constant(self) -> bool:
        """True if all rounds of all replicas have the same mixing."""
        return self.mixing != "matching" if isinstance(self.mixing, str) else len(self.mixing) == 1

    @property
    def drawn(self) -> bool:
        """True if replicas have different mixings."""
        return isinstance(self.mixing, str) and self.mixing == "matching"

    @cached_property
    def _tables(self) -> tuple[Mixing, ...]:
        i, j, every = self.receiver, self.sender, np.arange(len(self.receiver))
        if isinstance(self.mixing, str):
            degree = self.degrees
            most = np.maximum(degree[i], degree[j]) if self.mixing == "metropolis" else np.full(len(i), degree.max())
            weight = 1.0 / (1.0 + most)
            return (Mixing(every, weight, 1.0 - np.bincount(i, weight, minlength=self.sites)),)
        tables = []
        for matrix in self.mixing:
            used = matrix[i, j] != 0
            tables.append(Mixing(every[used], matrix[i, j][used], np.diag(matrix).copy()))
        return tuple(tables)

    def _matched(self, seed: int, replica: int, round: int) -> Mixing:
        """Return a greedy matching: edges in a random order, each taken if both its ends are free."""
        once = np.flatnonzero(self.sender < self.receiver)
        keys = rng.keys(seed, rng.Stream.MATCHING, replica=replica, client=np.arange(len(once)), round=round)
        a, b = self.sender[once].tolist(), self.receiver[once].tolist()
        partner = np.full(self.sites, -1)
        for e in np.argsort(rng.uniform(keys, 1)[:, 0], kind="stable").tolist():
            if partner[a[e]] < 0 and partner[b[e]] < 0:
                partner[a[e]], partner[b[e]] = b[e], a[e]
        used = np.flatnonzero(partner[self.receiver] == self.sender)
        return Mixing(used, np.full(len(used), 0.5), np.where(partner < 0, 1.0, 0.5))

    def _checked(self, given: npt.ArrayLike) -> tuple[Array, ...]:
        remedy = f"give a ({self.sites}, {self.sites}) matrix, or a list of them"
        array = as_float_array(given)
        if array is None or array.ndim not in (2, 3) or array.shape[-2:] != (self.sites, self.sites) or not len(array):
            found = short_repr(given) if array is None else f"an array of shape {array.shape}"
            raise InvalidInput(f"exchanges.gossip(mixing={found}): {remedy}")
        allowed = np.eye(self.sites, dtype=bool)
        allowed[self.receiver, self.sender] = True
        matrices = tuple(array if array.ndim == 3 else array[None])
        for matrix in matrices:
            off = np.abs(matrix.sum(axis=1) - 1)
            if not np.isfinite(matrix).all() or off.max() > EXACT:
                row = int(np.argmax(np.where(np.isfinite(off), off, np.inf)))
                total = short_str(matrix[row].sum())
                raise InvalidInput(f"exchanges.gossip(mixing): row {row} sums to {total}; rows must sum to 1")
            if matrix[~allowed].any():
                i, j = (int(k) for k in np.argwhere((matrix != 0) & ~allowed)[0])
                raise InvalidInput(
                    f"exchanges.gossip(mixing): site {i} has a weight for site {j}, and the graph has no such edge; "
                    "add the edge, or set the entry to 0"
                )
        return matrices


Exchange = StarExchange | TiersExchange | Gossip


def _edges_of(graph: nx.Graph) -> Array:
    """Return the edges (n, 2) of a connected, undirected graph with nodes 0 ... sites - 1."""
    kind = type(graph).__name__
    if isinstance(graph, type) or not hasattr(graph, "is_directed") or graph.is_directed() or graph.is_multigraph():
        raise InvalidInput(f"exchanges.gossip(graph): a {kind}; give an undirected networkx Graph of client numbers")
    count = graph.number_of_nodes()
    wrong = [node for node in graph if type(node) not in (int, np.int64) or not 0 <= node < count]
    if wrong or not count:
        found = f"node {short_repr(wrong[0])}" if wrong else "no nodes"
        raise InvalidInput(f"exchanges.gossip(graph): {found}; name its nodes by the client numbers, 0 to clients - 1")
    pairs: Sequence[tuple[int, int]] = [(a, b) for a, b in graph.edges if a != b]
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    reached, neighbours = {0}, [0]
    while neighbours:
        fresh = set(graph[neighbours.pop()]) - reached
        reached |= fresh
        neighbours += fresh
    if len(reached) < count:
        lost = min(set(range(count)) - reached)
        raise InvalidInput(
            f"exchanges.gossip(graph): no path leads from client 0 to client {lost}, so that they would never agree; "
            "connect the graph"
        )
    return ends


def _stationary(matrix: Array) -> Array:
    """Return the positive and unique pi with pi W = pi; refuse a matrix without."""
    symmetric = np.array_equal(matrix, matrix.T)
    values, vectors = np.linalg.eigh(matrix) if symmetric else np.linalg.eig(matrix.T)
    order = np.argsort(-np.abs(values), kind="stable")
    if len(matrix) > 1 and (second := np.abs(values[order[1]])) > 1 - EXACT:
        raise InvalidInput(
            f"exchanges.gossip(mixing): the sites never reach consensus (the second eigenvalue has modulus {second:.6g}"
            ", and must be below 1); connect all sites, each with a positive weight for itself"
        )
    pi = np.real(vectors[:, order[0]])
    pi = pi / pi.sum()
    if not (pi > EXACT).all():
        raise InvalidInput(
            f"exchanges.gossip(mixing): site {int(np.argmin(pi))} has the stationary weight 0; give every site "
            "a weight at another site"
        )
    return np.asarray(pi)

"""Where models live and who folds whose replies: one server, edges under a cloud, or every client for itself.

A *site* holds a model and folds replies. Whatever an exchange needs of the clients, the network and the seed it is
told; it knows neither algorithms nor time. `star()` is the default, and the case of one site.
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
EXACT = 1e-9  # by how much rows of a matrix may miss 1


def star() -> StarExchange:
    """One server, which all selected clients talk to."""
    return StarExchange()


def tiers(groups: Sequence[Hashable] | None = None, every: int = 5, cloud: Hashable = None) -> TiersExchange:
    """Edge servers under a cloud: `groups[c]` is client c's edge; every `every` edge rounds the cloud averages them.

    `groups=None`: the network says it, a client belongs to the first node with role="edge" on its way to the server.
    The edges sit at nodes with role="edge", named by their labels or as many as there are labels, in order; where
    the network has none, they sit at the server. `cloud` is the cloud's node; None: the server.
    """
    return TiersExchange(groups, every, cloud)


def gossip(graph: nx.Graph, mixing: str | npt.ArrayLike = "metropolis") -> Gossip:
    """No server: every client holds a model and averages it with its neighbours' in a networkx graph of client numbers.

    | mixing         | weight of neighbour j at site i; what is left to 1 is i's own                        |
    |----------------|--------------------------------------------------------------------------------------|
    | "metropolis"   | 1 / (1 + max(deg_i, deg_j))                                                          |
    | "max_degree"   | 1 / (1 + the largest degree)                                                         |
    | "matching"     | 1/2 in a random matching, drawn anew for every replica and round                     |
    | a matrix       | W_ij, zero outside the graph, rows that sum to 1; or a list of them, used in turn    |

    A site sends its reply to every site that gives it a weight in that round. Matrices must bring the sites together:
    applied in turn, for ever, they leave all sites with one model.
    """
    return Gossip(graph, mixing)


@dataclass(frozen=True)
class StarExchange:
    """What `star` makes."""


@dataclass(frozen=True)
class TiersExchange:
    """What `tiers` makes."""

    groups: Any = None
    every: int = 5
    cloud: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", check_int("exchanges.tiers(every={})", self.every))
        if self.groups is None:
            return
        right = "give one edge label per client, such as [0, 0, 1, 1]"
        try:
            labels = tuple(g.item() if isinstance(g, np.generic) else g for g in self.groups)
            sorted(set(labels))
        except Exception:  # no sequence, labels without an order, or an object of theirs that raises what it likes
            raise InvalidInput(f"exchanges.tiers(groups={short_repr(self.groups)}): {right}") from None
        if not labels or isinstance(self.groups, str | bytes | dict):
            raise InvalidInput(f"exchanges.tiers(groups={short_repr(self.groups)}): {right}")
        object.__setattr__(self, "groups", labels)


@dataclass(frozen=True)
class Mixing:
    """Who hears whom in one round, and how much it counts: a row per message, by receiver, then sender."""

    message: Array  # (k,) its place among all messages that the graph allows
    weight: Array  # (k,) W_ij of a message from j to i
    own: Array  # (sites,) W_ii


@dataclass(frozen=True, eq=False, init=False)
class Gossip:
    """What `gossip` makes. A message is a pair of neighbours in one direction, numbered by receiver, then sender."""

    mixing: Any
    sites: int
    receiver: Array = field(repr=False)  # (messages,)
    sender: Array = field(repr=False)

    def __init__(self, graph: nx.Graph, mixing: str | npt.ArrayLike = "metropolis") -> None:
        ends = _edges_of(graph)
        both = np.concatenate([ends, ends[:, ::-1]])
        both = both[np.lexsort((both[:, 1], both[:, 0]))]
        found = {"_graph": graph, "sites": len(graph), "receiver": both[:, 0], "sender": both[:, 1]}
        for name, value in found.items():
            object.__setattr__(self, name, value)
        if isinstance(mixing, str) and mixing not in WORDS:
            words = ", ".join(map(repr, WORDS))
            raise InvalidInput(f"exchanges.gossip(mixing={short_repr(mixing)}): choose {words}, or give a matrix")
        object.__setattr__(self, "mixing", mixing if isinstance(mixing, str) else self._checked(mixing))
        _ = self.weights  # refuses what has none

    @property
    def graph(self) -> Any:
        """The graph it was made from."""
        return self.__dict__["_graph"]

    @cached_property
    def degrees(self) -> Array:
        return np.bincount(self.receiver, minlength=self.sites)

    @cached_property
    def weights(self) -> Array:
        """(sites,) that add up to 1: how much each site's model counts in the long run, W's stationary weights."""
        equal = np.full(self.sites, 1 / self.sites)
        if isinstance(self.mixing, str):  # they connect what the graph connects
            return equal
        pi = _stationary(reduce(lambda before, matrix: matrix @ before, self.mixing))
        if any(np.abs(pi @ matrix - pi).max() > EXACT for matrix in self.mixing):
            raise InvalidInput(
                "exchanges.gossip(mixing=[...]): the matrices have different stationary weights, so that no target is "
                "defined; give doubly stochastic ones, or matrices that agree"
            )
        return equal if np.abs(pi - equal).max() < EXACT else pi

    def at(self, seed: int, replica: int, round: int) -> Mixing:
        """The mixing of one replica's round."""
        if isinstance(self.mixing, str):
            return self._matched(seed, replica, round) if self.mixing == "matching" else self._tables[0]
        return self._tables[round % len(self._tables)]

    @property
    def constant(self) -> bool:
        """Whether all rounds of all replicas mix alike."""
        return self.mixing != "matching" if isinstance(self.mixing, str) else len(self.mixing) == 1

    @property
    def drawn(self) -> bool:
        """Whether replicas differ."""
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
        """A greedy matching: edges in a drawn order, each taken if both its ends are still free."""
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
        right = f"give a ({self.sites}, {self.sites}) matrix, or a list of them"
        array = as_float_array(given)
        if array is None or array.ndim not in (2, 3) or array.shape[-2:] != (self.sites, self.sites) or not len(array):
            found = short_repr(given) if array is None else f"an array of shape {array.shape}"
            raise InvalidInput(f"exchanges.gossip(mixing={found}): {right}")
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
                    f"exchanges.gossip(mixing): site {i} weighs site {j}, which the graph does not connect to it; add "
                    "the edge, or make the entry 0"
                )
        return matrices


Exchange = StarExchange | TiersExchange | Gossip


def _edges_of(graph: nx.Graph) -> Array:
    """The edges (n, 2) of a connected, undirected graph whose nodes are 0 ... sites - 1."""
    kind = type(graph).__name__
    if isinstance(graph, type) or not hasattr(graph, "is_directed") or graph.is_directed() or graph.is_multigraph():
        raise InvalidInput(f"exchanges.gossip(graph): a {kind}; give an undirected networkx Graph of client numbers")
    count = graph.number_of_nodes()
    wrong = [node for node in graph if type(node) not in (int, np.int64) or not 0 <= node < count]
    if wrong or not count:
        found = f"node {short_repr(wrong[0])}" if wrong else "no nodes"
        raise InvalidInput(f"exchanges.gossip(graph): {found}; its nodes are the client numbers, 0 to clients - 1")
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
            f"exchanges.gossip(graph): no way leads from client 0 to client {lost}, so they would never agree; connect "
            "the graph"
        )
    return ends


def _stationary(matrix: Array) -> Array:
    """pi with pi W = pi, positive and unique, of a matrix whose powers bring the sites together."""
    symmetric = np.array_equal(matrix, matrix.T)
    values, vectors = np.linalg.eigh(matrix) if symmetric else np.linalg.eig(matrix.T)
    order = np.argsort(-np.abs(values), kind="stable")
    if len(matrix) > 1 and (second := np.abs(values[order[1]])) > 1 - EXACT:
        raise InvalidInput(
            f"exchanges.gossip(mixing): the sites never come together (the second eigenvalue has modulus {second:.6g}"
            ", and needs one below 1); connect all sites, each with a weight of its own"
        )
    pi = np.real(vectors[:, order[0]])
    pi = pi / pi.sum()
    if not (pi > EXACT).all():
        raise InvalidInput(
            f"exchanges.gossip(mixing): site {int(np.argmin(pi))} does not count in the long run (its stationary "
            "weight is 0); give every site a weight somewhere"
        )
    return np.asarray(pi)

"""The sites of a scenario: the models of a replica, the site of each client, and the routes between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.engine.rounds import RoundBlock
from fedsim.errors import InvalidInput
from fedsim.exchanges import Exchange, Gossip, StarExchange, TiersExchange
from fedsim.network.routes import Paths
from fedsim.protocols import Algorithm, NetworkModel, RouteColumns
from fedsim.runtime.aggregation import Segments


@dataclass(frozen=True)
class Sites:
    """Where models live. A star has one site; tiers whose cloud holds the only model count several sites, one model."""

    models: int  # that a replica holds
    site_of: Array  # (clients,) the site that a client reports to
    weights: Array  # (models,) of each in theta
    routes: int  # in each direction: of all clients, then of all edges; over gossip, of all messages
    count: int = 1  # sites on the clock: the edges of tiers, the clients of gossip
    every: int = 0  # edge rounds between two merges at the cloud; 0: there is no cloud
    network: Any = None  # routes from clients to their sites; of tiers also from edges to the cloud

    @cached_property
    def size(self) -> Array:
        """(clients,) how many clients its site has."""
        return np.asarray(np.bincount(self.site_of, minlength=self.count)[self.site_of])

    @cached_property
    def members(self) -> list[Array]:
        """The clients of every site."""
        return [np.flatnonzero(self.site_of == s) for s in range(self.count)]

    def share(self, p: Array) -> Array:
        """p_c of every client among those of its site."""
        if self.count == 1:
            return p
        return np.asarray(p / np.bincount(self.site_of, p, minlength=self.count)[self.site_of])


def sites_of(
    exchange: Exchange, clients: int, p: Array, algorithm: Algorithm, network: NetworkModel | None
) -> Sites:  # fmt: skip
    """Return the sites that an exchange makes of these clients."""
    if isinstance(exchange, StarExchange):
        return Sites(1, np.zeros(clients, np.int64), np.ones(1), clients, network=network)
    if isinstance(exchange, Gossip):
        messages, travelled = len(exchange.sender), _neighbours(exchange, network)
        return Sites(clients, np.arange(clients), exchange.weights, messages, clients, network=travelled)
    labels, site_of, nodes = _edges(exchange, clients, network)
    weights = np.bincount(site_of, p, minlength=len(labels))
    models = 1 if algorithm.sums else len(labels)
    travelled = None if network is None else _tiers(exchange, network, site_of, nodes)
    edges, own = len(labels), np.asarray(weights) if models > 1 else np.ones(1)
    return Sites(models, site_of, own, clients + edges, edges, exchange.every, travelled)


class SiteNetwork:
    """Routes of messages that do not all lead to a server: a row for each pair of places that talk."""

    def __init__(self, network: NetworkModel, up: Paths, down: Paths | None = None) -> None:
        self.wrapped, self.capacities_bps, self.varying = self, network.capacities_bps, network.varying
        self._up, self._down = up, up if down is None else down
        ways = (up,) if down is None else (up, down)
        used = np.concatenate([way.links for way in ways]) if ways else np.empty(0, np.int64)
        self.clients, self.contended = len(up.latency_s), bool(len(used) and np.bincount(used).max() > 1)

    def passing(self) -> Array:
        """Return how many messages pass each link in the busier direction if all are sent at once."""
        return np.maximum(
            *(np.bincount(way.links, minlength=len(self.capacities_bps)) for way in (self._up, self._down))
        )

    def _way(self, upward: bool) -> Paths:
        return self._up if upward else self._down

    def delay_s(self, upward: bool) -> Array:
        return np.asarray(self._way(upward).latency_s)

    def loss_factor(self, upward: bool) -> Array:
        return np.asarray(self._way(upward).loss_factor)

    def bottleneck_bps(self, upward: bool) -> Array:
        return np.asarray(self._way(upward).bottleneck_bps)

    def route(self, client: int, upward: bool) -> Array:
        return np.asarray(self._way(upward).route(client))

    def to_columns(self) -> RouteColumns:
        down, up = self._down, self._up
        return RouteColumns(self.capacities_bps, down.links, down.starts, up.links, up.starts)


# --- Tiers ------------------------------------------------------------------------------------------------


def _edges(exchange: TiersExchange, clients: int, network: NetworkModel | None) -> tuple[list[Any], Array, list[Any]]:
    """Return the edges' labels, each client's edge by number, and the edges' nodes (none: they are at the server)."""
    there = () if network is None else network.edge_nodes
    if exchange.groups is None:
        if network is None or not there:
            raise InvalidInput(
                "exchanges.tiers(): the network has no node with role='edge'; mark some, or give groups=, the edge "
                "of each client"
            )
        groups = network.groups()
        used = [node for node in there if node in set(groups)]
        return used, np.array([used.index(node) for node in groups], np.int64), used
    if len(exchange.groups) != clients:
        raise InvalidInput(
            f"exchanges.tiers(groups): {len(exchange.groups)} labels for {clients} clients; give one per client"
        )
    labels = sorted(set(exchange.groups))
    numbers = {label: i for i, label in enumerate(labels)}
    site_of = np.array([numbers[g] for g in exchange.groups], np.int64)
    if not there or all(label in there for label in labels):
        return labels, site_of, labels if there else []
    if len(there) != len(labels):
        raise InvalidInput(
            f"exchanges.tiers(groups): {len(labels)} edges, and the network has {len(there)} nodes with role='edge'; "
            "name the edges as their nodes, or mark as many"
        )
    return labels, site_of, list(there)


def _tiers(exchange: TiersExchange, network: NetworkModel, site_of: Array, nodes: list[Any]) -> Any:
    """Return the routes of all clients to their edges, then of all edges to the cloud."""
    cloud = network.server if exchange.cloud is None else exchange.cloud
    edges = nodes or [network.server] * (int(site_of.max()) + 1)
    if not network.nodes:
        network.paths([])  # refuses, and names what is missing
    ends = [(node, edges[s]) for node, s in zip(network.nodes, site_of.tolist(), strict=True)]
    ends += [(edge, cloud) for edge in edges]
    return SiteNetwork(network, network.paths(ends), network.paths([(b, a) for a, b in ends]))


# --- Gossip -----------------------------------------------------------------------------------------------


def _neighbours(exchange: Gossip, network: NetworkModel | None) -> Any:
    """Return the routes of all messages that the graph allows."""
    if network is None:
        return None
    if not network.nodes:
        network.paths([])  # refuses, and names what is missing
    ends = zip(exchange.sender.tolist(), exchange.receiver.tolist(), strict=True)
    return SiteNetwork(network, network.paths([(network.nodes[j], network.nodes[i]) for j, i in ends]))


def neighbours_of(block: RoundBlock, i: int, counted: Array) -> Segments:
    """Return the segments of round i over gossip: a site's own reply and those of neighbours that arrived in time."""
    gossip = block.gossip
    assert gossip is not None
    sites = gossip.aggregated.shape[2]
    aggregated = np.flatnonzero(gossip.aggregated[counted, i].ravel())  # segments: place in counted * sites + site
    begin, end = gossip.offsets[counted, i], gossip.offsets[counted, i + 1]
    at = np.concatenate([np.arange(a, b) for a, b in zip(begin.tolist(), end.tolist(), strict=True)])
    place = np.repeat(np.arange(len(counted)), end - begin)[gossip.received[at]]
    at = at[gossip.received[at]]
    segment = np.concatenate([place * sites + gossip.receiver[at], aggregated])
    client = np.concatenate([gossip.sender[at].astype(np.int64), aggregated % sites])
    weights = np.concatenate([gossip.weight[at], gossip.own_weight[counted, i].ravel()[aggregated]])
    by_client = np.lexsort((client, segment))
    segment, client, weights = segment[by_client], client[by_client], weights[by_client]
    weights.flags.writeable = False
    first = block.offsets[counted, i]
    replied = np.concatenate([block.replied[a : a + sites] for a in first.tolist()])
    order = (np.cumsum(replied) - 1)[segment // sites * sites + client]
    starts = np.append(np.searchsorted(segment, aggregated), len(segment))
    nothing = np.zeros(len(client), np.int64)
    return Segments(
        block.replicas[counted][aggregated // sites], aggregated % sites, starts, client, nothing + 1, nothing,
        weights, order, np.flatnonzero(client == segment % sites),
    )  # fmt: skip

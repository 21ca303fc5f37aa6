"""What a network has to offer, and a contended one besides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput

if TYPE_CHECKING:
    from fedsim.protocols.columns import RouteColumns


class NetworkLike(Protocol):
    """Everybody's way to the server (`upward`) and back. Attributes will do where properties stand here.

    A message of b bits that is alone on its way takes delay_s + b * stretch / bottleneck_bps seconds.
    """

    @property
    def clients(self) -> int:
        """How many there are."""

    @property
    def contended(self) -> bool:
        """Whether two transfers can meet on a link. If so, they share it fairly: give `capacities_bps` and `route`."""

    def delay_s(self, upward: bool) -> Array:
        """The latency of everybody's way, (clients,)."""

    def loss_factor(self, upward: bool) -> Array:
        """By how much loss lengthens everybody's transfers, (clients,): 1 without loss."""

    def bottleneck_bps(self, upward: bool) -> Array:
        """The least bandwidth on everybody's way, (clients,); inf: no time but the latency."""


class NetworkModel(NetworkLike, Protocol):
    """What a network may have besides, and a contended one must: `capacities_bps` and `route`."""

    wrapped: Any  # the object itself, once it has defaults

    capacities_bps: Array = np.zeros(0)  # of every link
    varying: Mapping[int, Any] = {}  # by link: a fedsim.network.Varying, where its bandwidth changes in time
    has_server: bool = True
    server: Any = None  # its node
    nodes: tuple[Any, ...] = ()  # of the clients, client 0 first
    edge_nodes: tuple[Any, ...] = ()  # of edge servers

    def route(self, client: int, upward: bool) -> Array:
        """The links that a transfer uses, by number."""
        raise NotImplementedError("a contended network needs capacities_bps and route(client, upward)")

    def to_columns(self) -> RouteColumns | None:
        """Return all routes as columns for the compiled clock; None: it runs on the SimPy clock."""
        return None

    def sketch(self) -> dict[str, Any] | None:
        """Nodes and links in plain data, which the report draws; None: it draws nothing. See `fs.Network.sketch`."""
        return None

    def groups(self) -> tuple[Any, ...]:
        """Every client's edge server, a node: for tiers that do not say it themselves."""
        raise InvalidInput(
            f"{type(self).__name__} does not say which edge server a client has; write exchanges.tiers(groups=...)"
        )

    def paths(self, pairs: object) -> Any:
        """The routes between pairs of nodes, a row each: `fedsim.network.Paths`. Tiers and gossip need it."""
        raise InvalidInput(
            f"{type(self).__name__} has no paths(pairs), which says how messages between sites travel; write it, or "
            "use fs.Network(graph)"
        )

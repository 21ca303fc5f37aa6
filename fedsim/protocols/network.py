"""The contract of a network, and its routes as columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput


class RouteColumns(NamedTuple):
    """Links and routes: row r uses the links down[down_starts[r] : down_starts[r + 1]], and likewise up."""

    capacities_bps: Array
    down: Array
    down_starts: Array
    up: Array
    up_starts: Array


class NetworkLike(Protocol):
    """The required members of a network: each client's route to the server (`upward`) and back.

    A message of b bits that shares no link takes delay_s + b * loss_factor / bottleneck_bps seconds. Plain attributes
    may stand in for properties.
    """

    @property
    def clients(self) -> int:
        """The number of clients."""

    @property
    def contended(self) -> bool:
        """Two transfers can meet on a link and then share it fairly: `capacities_bps` and `route` are required."""

    def delay_s(self, upward: bool) -> Array:
        """Return the latency of each client's route, (clients,)."""

    def loss_factor(self, upward: bool) -> Array:
        """Return the factor by which loss lengthens each client's transfers, (clients,): 1 without loss."""

    def bottleneck_bps(self, upward: bool) -> Array:
        """Return the least bandwidth on each client's route, (clients,); inf: no time but the latency."""


class NetworkModel(NetworkLike, Protocol):
    """All members of a network, with the defaults of the optional ones."""

    wrapped: Any  # the object itself, once it has defaults

    capacities_bps: Array = np.zeros(0)  # of every link
    varying: Mapping[int, Any] = {}  # by link: a fedsim.network.Varying, where its bandwidth changes over time
    has_server: bool = True
    server: Any = None  # its node
    nodes: tuple[Any, ...] = ()  # of the clients, client 0 first
    edge_nodes: tuple[Any, ...] = ()  # of edge servers

    def route(self, client: int, upward: bool) -> Array:
        """Return the numbers of the links that a transfer uses."""
        raise NotImplementedError("a contended network needs capacities_bps and route(client, upward)")

    def to_columns(self) -> RouteColumns | None:
        """Return all routes as columns for the compiled clock; None: SimPy clock only."""
        return None

    def sketch(self) -> dict[str, Any] | None:
        """Return nodes and links as plain data for the report; None: no picture. See `fs.Network.sketch`."""
        return None

    def groups(self) -> tuple[Any, ...]:
        """Return each client's edge server, a node, for `tiers` without groups."""
        raise InvalidInput(
            f"{type(self).__name__} has no groups(), the edge server of each client; write exchanges.tiers(groups=...)"
        )

    def paths(self, pairs: object) -> Any:
        """Return the routes between pairs of nodes as `fedsim.network.routes.Paths`, for tiers and gossip."""
        raise InvalidInput(
            f"{type(self).__name__} has no paths(pairs), the routes of messages between sites; write it, or "
            "use fs.Network(graph)"
        )

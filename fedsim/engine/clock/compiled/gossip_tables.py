"""Sites that gossip as tables of the compiled clock, the state of a run at time 0, and rows of further rounds."""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array
from fedsim.engine.clock.compiled.tables import PartColumns, RouteNumbers, closing_of, device_tables
from fedsim.engine.clock.gossip_rows import UNSENT, UNUSED
from fedsim.engine.system import MessageSizes, System
from fedsim.exchanges import Gossip, Mixing
from fedsim.kernels.clock.gossip_state import (
    GOSSIP_REPLICA,
    GOSSIP_SITE,
    IN_FLIGHT,
    MESSAGE_ROW,
    ROUTE,
    SITE_ROW,
    Ends,
    GossipState,
    GossipTables,
)
from fedsim.kernels.clock.state import CLIENT, EVENT, PrivateLinks
from fedsim.rules.closing import OPENING, rank

ROWS = 4  # rounds that there is room for at first


def gossip_tables(system: System, sizes: MessageSizes, parts: PartColumns, numbers: RouteNumbers) -> GossipTables:
    """Return a scenario's tables."""
    gossip, devices, policy, routes = system.gossip, parts.devices, parts.policy, system.up
    assert gossip is not None
    assert devices is not None
    assert policy is not None
    assert sizes.first_reply is not None
    assert sizes.reply is not None
    client, message = np.zeros(gossip.sites, CLIENT), np.zeros(len(gossip.sender), ROUTE)
    client["work_s"], client["wake_s"] = devices.work_s, devices.wake_s
    outgoing = np.lexsort((gossip.receiver, gossip.sender))
    message["sender"], message["receiver"] = gossip.sender, gossip.receiver
    message["order"][outgoing] = gossip.sites + np.arange(len(outgoing))  # among events: after the clients
    message["route"] = numbers.up if parts.routes is not None else 0
    for column, ideal in (("latency_s", 0.0), ("loss_factor", 1.0), ("bandwidth_bps", np.inf)):
        message[column] = ideal if routes is None else getattr(routes, column)
    return GossipTables(
        client=client, message=message, outgoing=outgoing,
        offsets=np.searchsorted(gossip.sender[outgoing], np.arange(gossip.sites + 1)),
        route_offsets=numbers.offsets, route_links=numbers.links, closing=closing_of(policy),
        first_reply_bits=int(sizes.first_reply), reply_bits=int(sizes.reply),
        degree=int(gossip.degrees.max(initial=0)),
        takes_time=bool(np.isfinite(message["bandwidth_bps"]).any()),
        round_size=len(system.replicas) * (gossip.sites + len(message)), **device_tables(system, devices),
    )  # fmt: skip


def new_gossip_state(system: System, tables: GossipTables, numbers: RouteNumbers, shared: bool) -> GossipState:
    """Return the state before the first event: every site is about to open its first round."""
    R, sites, messages = len(system.replicas), len(tables.client), len(tables.message)
    slots = messages + tables.degree + 8
    links = numbers.new_links(R, slots) if shared else PrivateLinks(np.zeros(0))
    replica, of_sites = np.zeros(R, GOSSIP_REPLICA), np.zeros((R, sites), GOSSIP_SITE)
    replica["id"], replica["position"], replica["lagging"] = system.replicas, np.arange(R), sites
    replica["events"], replica["flow_free"], replica["slot_free"], replica["first_round"] = sites, -1, -1, 1
    of_sites["sending"], of_sites["offline_s"] = -1, -np.inf
    events = np.zeros((R, 8 * sites + 4 * messages + 8 * tables.degree + 64), EVENT)
    events["rank"][:, :sites] = [rank(OPENING, 0, site) for site in range(sites)]
    events["at"][:, :sites] = np.arange(sites)
    empty = np.zeros((R, 0, sites), SITE_ROW), np.zeros((R, 0, messages), MESSAGE_ROW)
    state = GossipState(replica, events, of_sites, np.zeros((R, slots), IN_FLIGHT), *empty, links)
    return more_rows(system, state, ROWS)


def more_rows(system: System, state: GossipState, rows: int) -> GossipState:
    """Return the state with room for at least so many rounds from its first one on."""
    first, have = int(state.replica["first_round"][0]), state.site_rows.shape[1]
    if rows <= have:
        return state
    sites, messages = fresh_rows(system, first + have, rows - have)
    return state._replace(
        site_rows=np.concatenate([state.site_rows, sites], axis=1),
        message_rows=np.concatenate([state.message_rows, messages], axis=1),
    )


def fresh_rows(system: System, first: int, rounds: int) -> tuple[Array, Array]:
    """Return rows of rounds that no site has begun, (R, rounds, sites | messages): which messages they ask for."""
    gossip, replicas = system.gossip, system.replicas.tolist()
    assert gossip is not None
    sites = np.zeros((len(replicas), rounds, gossip.sites), SITE_ROW)
    messages = np.zeros((len(replicas), rounds, len(gossip.sender)), MESSAGE_ROW)
    messages["bits"], messages["arrived_s"] = UNUSED, np.nan
    for k in range(1 if gossip.constant else rounds):
        for r, replica in enumerate(replicas if gossip.drawn else replicas[:1]):
            here = slice(r, r + 1) if gossip.drawn else slice(None), slice(None) if gossip.constant else slice(k, k + 1)
            mixing = gossip.at(system.setting.seed, replica, first - 1 + k)
            messages["bits"][(*here, mixing.message)] = UNSENT
            sites["expected"][here] = _expected(gossip, mixing)
    sites["outstanding"] = sites["expected"]
    return sites, messages


def new_ends(system: System, tables: GossipTables) -> Ends:
    """Return the state of the short path at time 0."""
    return Ends(np.array(system.replicas, np.int64), *np.zeros((2, len(system.replicas), len(tables.client))))


def _expected(gossip: Gossip, mixing: Mixing) -> Array:
    """Return how many messages each site waits for."""
    return np.bincount(gossip.receiver[mixing.message], minlength=gossip.sites)

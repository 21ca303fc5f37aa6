"""Sites, their clients and their cohorts as tables of the compiled clock, and the state of a run at time 0."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedsim.arrays import Array
from fedsim.engine.system import System
from fedsim.kernels.clock.gossip_state import (
    GOSSIP_REPLICA,
    GOSSIP_SITE,
    IN_FLIGHT,
    MESSAGE_ROW,
    SITE_ROW,
    Ends,
    GossipState,
    GossipTables,
)
from fedsim.kernels.clock.selection import FEW, WIDENING
from fedsim.kernels.clock.state import (
    CLIENT,
    EVENT,
    OPENINGS,
    REPLICA,
    SITE,
    VISIT,
    CohortScratch,
    Links,
    Openings,
    PrivateLinks,
    Scratch,
    SelectsAll,
    State,
    Tables,
)
from fedsim.protocols import PolicyColumns
from fedsim.rules.closing import OPENING, rank
from fedsim.rules.selection import ALL, BERNOULLI
from fedsim.rules.visits import DRAWN


class SiteTables(NamedTuple):
    """The fields of `Tables` that concern sites."""

    members: Array
    offsets: Array
    slots: Array
    weights: Array
    cumulative: Array


def site_tables(system: System, policy: PolicyColumns) -> SiteTables:
    """Return who belongs to which site, and how many visits of a site can be in flight."""
    sites, counts = system.sites, [len(members) for members in system.sites.members]
    largest = counts if policy.selection in (ALL, BERNOULLI) else np.minimum(counts, policy.size)
    weights = np.asarray(sites.share(system.weights), np.float64)
    cumulative = np.concatenate([np.cumsum(weights[members]) for members in sites.members])
    members = np.concatenate(sites.members).astype(np.int64)
    return SiteTables(members, _offsets(counts), _offsets(largest), weights, cumulative)


def _offsets(counts: list[int] | Array) -> Array:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


# --- State ----------------------------------------------------------------------------------------------------------


def new_state(tables: Tables, replicas: Array, links: Links | PrivateLinks) -> State:
    """Return the state before the first event: every site is about to open its first round."""
    R, sites, slots = len(replicas), len(tables.offsets) - 1, int(tables.slots[-1])
    replica, events = np.zeros(R, REPLICA), np.zeros((R, event_capacity(tables, links)), EVENT)
    replica["id"], replica["position"], replica["lagging"] = replicas, np.arange(R), sites
    replica["events"], replica["flow_free"] = sites, -1
    events["rank"][:, :sites] = [rank(OPENING, 0, site) for site in range(sites)]
    events["at"][:, :sites] = np.arange(sites)
    of_sites = np.zeros((R, sites), SITE)
    of_sites["times"]["from_cloud_s"] = np.nan
    return State(replica, events, of_sites, np.zeros((R, slots), VISIT), np.zeros((R, slots), CLIENT), links)


def event_capacity(tables: Tables, links: Links | PrivateLinks) -> int:
    """Return how many events a replica has room for: several times as many as may be valid at a time."""
    flows = links.flows.shape[1] if isinstance(links, Links) else 0
    return 8 * int(tables.slots[-1]) + 16 * len(tables.offsets) + 4 * flows + 64


def new_scratch(tables: Tables) -> Scratch:
    """Return the memory in which cohorts are drawn."""
    largest, size = int(np.diff(tables.offsets).max()), tables.size
    tried = min(size if tables.always_online else WIDENING * size, largest)
    few = largest > FEW * tried
    table = 4 * max(1, tried if tables.always_online else largest // FEW + 1)
    cells = max(3 * min(max(size, 1), largest), 1 << table.bit_length() if few else 1)
    chosen = max(largest if tables.selection in (SelectsAll(), BERNOULLI) or not tables.always_online else tried, size)
    places = largest if not (few and tables.always_online) else 1
    cohort, hashed = np.zeros((2, chosen), np.int64), np.zeros((2, cells), np.int64)
    online_s = np.zeros(1 if tables.always_online else largest)
    return Scratch(cohort[0], cohort[1], hashed[0], hashed[1], np.arange(places), online_s)


def new_openings(tables: Tables, replicas: Array) -> Openings:
    """Return the state of the short path at time 0."""
    sites = np.zeros((len(replicas), len(tables.offsets) - 1), OPENINGS)
    sites["from_cloud_s"] = np.nan
    return Openings(np.array(replicas, np.int64), np.zeros(len(replicas), np.int64), sites)


def new_cohort(tables: Tables) -> CohortScratch:
    """Return the memory of the short path for the visits of a cohort."""
    m = int(np.diff(tables.slots).max())
    return CohortScratch(np.zeros(m, CLIENT), np.zeros(m, DRAWN), np.zeros(m, EVENT), np.zeros(0, np.int64))


# --- Sites that gossip ------------------------------------------------------------------------------------------------


def new_gossip_state(tables: GossipTables, replicas: Array, links: Links | PrivateLinks) -> GossipState:
    """Return the state before the first event: every site is about to open its first round."""
    R, sites, messages = len(replicas), len(tables.client), len(tables.message)
    replica, of_sites = np.zeros(R, GOSSIP_REPLICA), np.zeros((R, sites), GOSSIP_SITE)
    replica["id"], replica["position"], replica["lagging"] = replicas, np.arange(R), sites
    replica["events"], replica["flow_free"], replica["slot_free"], replica["first_round"] = sites, -1, -1, 1
    of_sites["sending"], of_sites["offline_s"] = -1, -np.inf
    events = np.zeros((R, 8 * sites + 4 * messages + 8 * tables.degree + 64), EVENT)
    events["rank"][:, :sites] = [rank(OPENING, 0, site) for site in range(sites)]
    events["at"][:, :sites] = np.arange(sites)
    empty = np.zeros((R, 0, sites), SITE_ROW), np.zeros((R, 0, messages), MESSAGE_ROW)
    return GossipState(replica, events, of_sites, np.zeros((R, most_in_flight(tables)), IN_FLIGHT), *empty, links)


def most_in_flight(tables: GossipTables) -> int:
    """Return how many messages a replica has room for at first."""
    return len(tables.message) + tables.degree + 8


def new_ends(tables: GossipTables, replicas: Array) -> Ends:
    """Return the state of the short path at time 0."""
    return Ends(np.array(replicas, np.int64), *np.zeros((2, len(replicas), len(tables.client))))

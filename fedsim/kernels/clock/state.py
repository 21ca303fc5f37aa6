"""The records of the compiled loops, and the tables that they read. No Numba here.

Visits in flight have slots. An event names a slot and a stamp; it is stale if the slot has another stamp. No array has
a row per (replica, client): the records of a cohort's clients are copied into its slots.
"""

from __future__ import annotations

from typing import NamedTuple, get_type_hints

import numpy as np

from fedsim.arrays import Array
from fedsim.rules.availability import OnlineLaw
from fedsim.rules.closing import Closing
from fedsim.rules.visits import DRAWN

DONE, NEEDS_GROWTH, NEVER_CLOSES, TOO_LATE, TOO_FAR_APART, NEEDS_LOOP = 0, 1, 2, 3, 4, 5  # why a kernel returned
OVER, DOWNLOAD, COMPUTE, UPLOAD = 0, 1, 2, 3  # phases of a visit; UPLOAD on private links stands for all three


def record(ints: str, floats: str = "") -> np.dtype[np.void]:
    """Return a record of int64 and float64 fields."""
    return np.dtype([(name, "i8") for name in ints.split()] + [(name, "f8") for name in floats.split()])


# What every visit reads of its client, one cache line.
CLIENT = record("", "down_bps up_bps down_latency_s up_latency_s down_loss_factor up_loss_factor work_s wake_s")
LAW = np.dtype(list(get_type_hints(OnlineLaw).items()))
EVENT = record("rank at stamp", "time_s")  # at: a visit's slot, a site, a group of flows; stamp: which one it was
REPLICA = record(
    "id position closed_rounds lagging at_cloud events visits stop_round stopped_by status opening "
    "sharing flows flow_top flow_free starting changed moved groups hops privates serial",  # of shared links
    "now_s",
)
CLOUD_TIMES = record("", "closed_s at_cloud_s from_cloud_s")  # engine.rounds.CloudTimes, of one round of an edge
SITE = np.dtype([
    *record("round closed open selected arrived outstanding deadline jumps unselected at_cloud").descr,
    *record("", "opened_s answer_s").descr,
    ("times", CLOUD_TIMES),
])  # fmt: skip
VISIT = np.dtype(
    record(
        "client stamp site multiplicity phase outcome flow bits down_bits up_bits",
        "started_s downloaded_s computed_s ended_s sending_s ends_s",
    ).descr
    + DRAWN.descr
)
SEGMENT = np.dtype([  # one round of a site; its visits are listed from `begin` on
    *record("position round site begin visits unselected", "opened_s aggregated_s").descr,
    ("times", CLOUD_TIMES),
])  # fmt: skip
COUNTS = record("visits segments")  # listed

# Shared links. SimPy's flows (`network.route_bundles`) have the first two records, and the same rates (`maxmin`).
LINK = np.dtype([
    ("capacity", "f8"),  # bits per second
    ("scale", "f8"),  # units per bit per second in which rates are counted
    ("load", "i8"),  # flows, if it is a trunk
    ("begin", "i8"),  # of the list of its busy bundles
    ("listed", "i8"),  # length of that list
    ("left", "i8"),  # during filling: units that no flow has,
    ("unfixed", "i8"),  # flows that have no rate yet,
    ("at", "i8"),  # and the place in its list
])  # fmt: skip
BUNDLE = np.dtype([
    ("cap", "f8"),  # bits per second that its private links allow all its flows together
    ("key", "f8"),  # the cap on each flow under which it is listed, -1: not listed
    ("hop", "i4"),  # of its first trunk in `hops`
    ("hops", "i4"),  # number of its trunks
    ("flows", "i8"),  # number of its flows
    ("stamp", "i8"),  # of the filling that gave its rate
    ("rate", "f8"),  # bits per second of each flow
    ("since", "f8"),  # when `served` was counted
    ("served", "f8"),  # bits that each flow has been served since the bundle became busy
    ("mark", "f8"),  # bits served at which the next flow is over
])  # fmt: skip

FLOW = record("owner route group entered previous following", "start mark")  # owner: a slot, -2 - site, or -1
ROUTE = record("known group moved")
GROUP = np.dtype(BUNDLE.descr + record("head tail private privates changed").descr)  # flows that have one rate
TRUNK = np.dtype(LINK.descr + record("users first seen").descr)


class Outcomes(NamedTuple):
    """Visits that ended, in the order in which their sites closed: the columns of a block that the loops write."""

    client: Array  # int32
    multiplicity: Array  # int32
    outcome: Array  # int8
    started_s: Array
    downloaded_s: Array
    computed_s: Array
    ended_s: Array
    down_bits: Array  # int64
    up_bits: Array  # int64


OUTCOME_DTYPES = ("i4", "i4", "i1", "f8", "f8", "f8", "f8", "i8", "i8")


class AlwaysOnline(NamedTuple):
    """No laws of availability. A type of its own: a loop is then compiled without them."""

    always: bool = True


class SelectsAll(NamedTuple):
    """No code of a selection: all clients that are online. A type of its own, as above."""

    all: bool = True


class Tables(NamedTuple):
    """A scenario as the loops read it: scalars, and arrays that all replicas share."""

    client: Array  # (clients,) CLIENT
    cloud: Array  # (sites,) CLIENT, the routes between an edge and the cloud
    law: Array | AlwaysOnline  # (clients,) LAW
    starts_s: Array  # recorded intervals
    ends_s: Array
    dropout: Array  # (clients,) DROPOUT
    members: Array  # (clients,) ordered by site, then client
    offsets: Array  # (sites + 1,) a site's clients are members[offsets[site] : offsets[site + 1]]
    slots: Array  # (sites + 1,) likewise for its visits in flight
    probability: Array  # (clients,) of bernoulli
    weights: Array  # (clients,) p_c among the clients of its site
    cumulative: Array  # (clients,) their sums over members
    route_down: Array  # (clients + sites,) int64; one row on private links
    route_up: Array
    route_offsets: Array  # (routes + 1,) a route's links are route_links[route_offsets[r] : route_offsets[r + 1]]
    route_links: Array
    closing: Closing
    selection: int | SelectsAll  # a code of rules.selection
    size: int
    at_least: int
    every: int
    seed_low: int
    seed_high: int
    broadcast_bits: int
    first_reply_bits: int
    reply_bits: int
    to_cloud_bits: int
    from_cloud_bits: int
    slowdown: int
    slowdown_a: float
    slowdown_b: float
    limit_s: float
    unselected_s: float  # that an unselected broadcast may take on private links
    drops: bool
    always_online: bool
    broadcasts_to_all: bool
    replies: int  # that asynchronous clients send before the server aggregates
    remembers: bool


class Links(NamedTuple):
    """Flows on shared links, with a leading axis of replicas; inside a loop, of one replica."""

    trunks: Array  # (R, links) TRUNK
    routes: Array  # (R, routes) ROUTE
    groups: Array  # (R, groups) GROUP
    flows: Array  # (R, flows) FLOW
    starting: Array  # (R, flows) int64: flows that start at this instant
    hops: Array  # (R, ...) uint32: the trunks of every group
    lists: Array  # (R, ...) uint32: the busy groups of every trunk, by the cap on a flow
    privates: Array  # (R, ...) int64: the private links of every group
    table: Array  # (R, ...) int64: a hash table of the groups
    changed: Array  # (R, groups) int64: groups that need new rates
    due: Array  # (R, groups) int64
    component: Array  # (R, links) int64: connected trunks
    offers: Array  # (R, links)
    offering: Array  # (R, links) int64


class PrivateLinks(NamedTuple):
    """A route of its own for every client: no flow is needed. One empty array, so that there is one type."""

    nothing: Array


class State(NamedTuple):
    """What a checkpoint saves, with a leading axis of replicas; inside a loop, of one replica."""

    replica: Array  # (R,) REPLICA
    events: Array  # (R, capacity) EVENT
    sites: Array  # (R, sites) SITE
    visits: Array  # (R, slots) VISIT
    clients: Array  # (R, slots) CLIENT
    links: Links | PrivateLinks


class Scratch(NamedTuple):
    """Memory that a call needs and does not keep."""

    chosen: Array  # int64: a site's cohort
    multiplicity: Array  # int64
    cells: Array  # int64: hash tables
    values: Array  # int64
    places: Array  # int64: 0, 1, 2, ...; empty where only a few of many clients are drawn
    online_s: Array  # float64, a site's clients, where devices go offline


class Out(NamedTuple):
    """Where a loop lists what has ended."""

    counts: Array  # (1,) COUNTS
    segments: Array  # (...,) SEGMENT
    visits: Outcomes  # (...,)


# --- Asynchronous clients -------------------------------------------------------------------------------------------

SERVER = record(
    "arrived dropped draws free idle waiting filler pending gives informs oldest newest visits starts unselected",
    "opens_s opened_s",
)
FLIGHT = record("version visit older newer")  # of a slot, beside its VISIT: a list in the order of starts
AGGREGATION = record("position round visits ends starts last_start unselected oldest", "opened_s closed_s")
LISTED = record("visits segments starts")


class AsynchronousState(NamedTuple):
    """What a checkpoint saves, with a leading axis of replicas; inside a loop, of one replica."""

    replica: Array  # (R,) REPLICA
    events: Array  # (R, capacity) EVENT
    sites: Array  # (R, 1) SITE
    visits: Array  # (R, places) VISIT
    clients: Array  # (R, places) CLIENT
    links: Links | PrivateLinks
    server: Array  # (R,) SERVER
    flights: Array  # (R, places) FLIGHT
    places: Array  # (R, places) int64: the free ones, where places are fewer than clients
    numbers: Array  # (R, clients) int32: visits begun
    idle: Array  # (R, clients) int32: idle clients from the front; those that wait for an aggregation at the end


class Aggregations(NamedTuple):
    """Where the loop of asynchronous clients lists what has ended, and what has started."""

    counts: Array  # (1,) LISTED
    segments: Array  # (...,) AGGREGATION
    visits: Outcomes  # (...,)
    version: Array  # int32, of a visit
    visit: Array  # int32
    start_client: Array  # int32
    start_visit: Array  # int32
    started_s: Array


# --- The short path -------------------------------------------------------------------------------------------------

OPENINGS = record("", "opens_s from_cloud_s")  # of a site: its next opening


class Openings(NamedTuple):
    """The state of the short path."""

    ids: Array  # (R,) int64: numbers of the replicas
    closed_rounds: Array  # (R,) int64
    sites: Array  # (R, sites) OPENINGS


class CohortScratch(NamedTuple):
    """The visits of a cohort."""

    client: Array  # CLIENT
    drawn: Array  # DRAWN
    events: Array  # EVENT: the visits' ends
    bits: Array  # int64: of the replies of all visits of one round, where they depend on values; else empty


class GivenCohorts(NamedTuple):
    """The visits of one round, drawn outside the loop: of replica r the rows offsets[r] : offsets[r + 1]."""

    offsets: Array
    chosen: Array
    multiplicity: Array
    drawn: Array  # DRAWN

"""How replies become the new model: segments and weights, the merge at the cloud."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.checks import called
from fedsim.engine.rounds import RoundBlock
from fedsim.engine.sites import Sites
from fedsim.engine.system import System
from fedsim.errors import positive
from fedsim.protocols import Backend
from fedsim.protocols.policy import Arrived
from fedsim.runtime.answers import all_locked, locked, weighed
from fedsim.runtime.jobs import Reply
from fedsim.runtime.replies import Segments


def segments_of(
    system: System, active: Array, position: Array, site: Array, client: Array, multiplicity: Array,
    staleness: Array | None = None,
) -> Segments:  # fmt: skip
    """Return the segments of replies that arrived, which are ordered by replica, site, client."""
    sites, order = system.sites, None
    replica = np.searchsorted(active, position)
    clients: int | Array
    if sites.models == 1:
        segment, p, clients = replica, system.weights[client], system.population
        if sites.count > 1:  # a cloud keeps the only model: sums run in client order, whatever the edge
            order = np.lexsort((client, segment))
    else:
        segment, p, clients = replica * sites.models + site, sites.share(system.weights)[client], sites.size[client]
    if order is not None:
        segment, client, multiplicity, p = segment[order], client[order], multiplicity[order], p[order]
    starts = np.searchsorted(segment, np.arange(len(active) * sites.models + 1))
    arrived = Arrived(locked(p), locked(multiplicity), locked(starts), clients, system.policy)
    weights = weighed(system.algorithm.weigh or system.policy.weigh, arrived)
    weights.flags.writeable = False
    return Segments(
        np.repeat(active, sites.models), np.tile(np.arange(sites.models), len(active)), starts, client, multiplicity,
        np.zeros(len(client), np.int64) if staleness is None else staleness, weights, order,
    )  # fmt: skip


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


def rebased(system: System, reply: Reply, started: Arrays, now: Arrays, staleness: Array) -> Reply:
    """Return replies as if their clients had started from `now`, what would be sent now; all have a row a reply.

    With s the policy's discount of the staleness that is now + s (value - started) for what was broadcast, s times the
    value for all else.
    """
    discount, s = system.policy.discount, np.ones(len(staleness))
    if discount is not None:
        s = np.array([_discounted(discount, k) for k in staleness.tolist()])
    values = {}
    for name, value in reply.values.items():
        factor = s.astype(value.dtype).reshape(-1, *[1] * (value.ndim - 1))
        if name in system.algorithm.kept:
            values[name] = value
        elif name in started:
            values[name] = now[name] + factor * (value - started[name])
        else:
            values[name] = factor * value
    return Reply(values, reply.bits, reply.memory)


def _discounted(discount: Callable[[int], float], staleness: int) -> float:
    factor = np.asarray(called("participation.buffered: discount", discount, staleness))
    given = factor.item() if factor.size == 1 else factor
    where = "participation.buffered: discount returned {}"
    return positive(where, given, zero=True, remedy="it must be a number of at least 0")


def average(theta: Array, sites: Sites, backend: Backend) -> Array:
    """Return every replica's average, (replicas, d), of its models, which stand one after another."""
    weights = np.tile(sites.weights, len(theta) // sites.models)
    return np.asarray(backend.segment_sum(theta, weights, np.arange(0, len(theta) + 1, sites.models)))


def merge_at_cloud(
    state: Arrays, rows: Array, sites: Sites, merge: Callable[[Arrays, Array], Arrays] | None, backend: Backend
) -> None:
    """Give all edges of a replica one state, in place: the average, or what the algorithm's `merge` returns."""
    if merge is None:
        state["theta"][rows] = np.repeat(average(state["theta"][rows], sites, backend), sites.models, axis=0)
        return
    for of_one in rows.reshape(-1, sites.models):
        merged = merge(all_locked({n: s[of_one] for n, s in state.items()}), locked(sites.weights))
        for name, value in merged.items():
            state[name][of_one] = value

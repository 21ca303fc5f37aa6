"""Which replies each site of each replica folds in a round, and with what weights: a segment per (replica, site)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsim.arrays import Array
from fedsim.old_engine.copies import Copies
from fedsim.old_engine.round import Cohort, Round
from fedsim.old_engine.world import World
from fedsim.participation import Arrived
from fedsim.runtime.answers import locked, weighed


@dataclass(frozen=True)
class Folds:
    """Segments, sorted by replica, then site; the replies of each are sorted by client."""

    row: Array  # (segments,) position of the replica among the active ones
    site: Array  # (segments,)
    who: Cohort  # whose replies: a row of it is a segment
    weights: Array  # (k,) of `replies.mean`
    staleness: Array  # (k,)
    pick: Array | None = None  # (k,) where they stand among the replies that arrived; None: all, as they are
    own: Array | None = None  # (segments,) where among the k a site's own reply stands (gossip)


def folds_of(world: World, round: Round) -> Folds:
    """The folds of a round: one a replica, one an edge, or one a site and its neighbours."""
    if round.copies is not None:
        return _of_neighbours(round, round.copies)
    who, sites = round.arrived, world.sites
    everybody = np.arange(len(round.active))
    if sites.models == 1:
        weights = _weigh(world, who, world.weights[who.client], world.population)
        return Folds(everybody, np.zeros(len(everybody), np.int64), who, weights, round.staleness)
    segment = who.row * sites.models + sites.site_of[who.client]
    pick = np.lexsort((who.client, segment))
    starts = np.searchsorted(segment[pick], np.arange(len(everybody) * sites.models + 1))
    own = Cohort(segment[pick], who.client[pick], who.multiplicity[pick], starts)
    share = sites.share(world.weights)[own.client]
    return Folds(
        np.repeat(everybody, sites.models), np.tile(np.arange(sites.models), len(everybody)), own,
        _weigh(world, own, share, sites.size[own.client]), round.staleness[pick], pick,
    )  # fmt: skip


def _weigh(world: World, who: Cohort, p: Array, clients: int | Array) -> Array:
    """The algorithm's weights, or the policy's."""
    arrived = Arrived(locked(p), locked(who.multiplicity), locked(who.starts), clients, world.policy)
    return weighed(world.algorithm.weigh or world.policy.weigh, arrived)


def _of_neighbours(round: Round, copies: Copies) -> Folds:
    """Every site's own reply and those of its neighbours that were there in time; what is missing counts as its own."""
    replicas, sites = copies.own.shape
    segment = copies.row * sites + copies.receiver
    lost = np.bincount(segment[~copies.folded], copies.weight[~copies.folded], minlength=replicas * sites)
    going = np.flatnonzero(copies.folds.ravel())  # segments that fold at all
    there = copies.folded & copies.folds.ravel()[segment]
    both = np.concatenate([segment[there], going])
    client = np.concatenate([copies.sender[there], going % sites])
    weight = np.concatenate([copies.weight[there], (copies.own.ravel() + lost)[going]])
    order = np.lexsort((client, both))
    both, client, weight = both[order], client[order], weight[order]
    place = np.cumsum(round.replied) - 1  # of a visit among the replies
    pick = place[both // sites * sites + client]
    starts = np.append(np.searchsorted(both, going), len(both))
    who = Cohort(np.searchsorted(going, both), client, np.ones(len(client), np.int64), starts)
    own = np.flatnonzero(client == both % sites)
    return Folds(going // sites, going % sites, who, weight, np.zeros(len(client), np.int64), pick, own)

"""Lists of ended visits, as a loop fills them, and as a RoundBlock."""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array
from fedsim.engine.rounds import CloudTimes, RoundBlock, VisitOutcomes, offsets_of
from fedsim.engine.system import MessageSizes
from fedsim.kernels.clock.state import COUNTS, OUTCOME_DTYPES, SEGMENT, Out, Outcomes


def new_out(visits: int, segments: int) -> Out:
    """Return empty lists with room for this many visits and rounds of sites."""
    columns = (np.empty(visits, dtype) for dtype in OUTCOME_DTYPES)
    return Out(np.zeros(1, COUNTS), np.zeros(segments, SEGMENT), Outcomes(*columns))


def longer(out: Out, visits: int, segments: int) -> Out:
    """Return the same lists with more room."""
    new = new_out(visits, segments)
    held, listed = int(out.counts["visits"][0]), int(out.counts["segments"][0])
    new.counts[:], new.segments[:listed] = out.counts, out.segments[:listed]
    for column, old in zip(new.visits, out.visits, strict=True):
        column[:held] = old[:held]
    return new


def block_of(
    first: int, active: Array, rounds: int, lengths: Array, stopped_by: Array, out: Out, sites: int, has_cloud: bool,
    sizes: MessageSizes,
) -> RoundBlock:  # fmt: skip
    """Return the rounds of a block, `lengths` of each active replica, from the lists of a loop."""
    segments, shape = out.segments[: int(out.counts["segments"][0])], (len(active), rounds)
    replica = np.full(int(segments["position"].max(initial=0)) + 1, -1)
    replica[active[active < len(replica)]] = np.flatnonzero(active < len(replica))
    row, column = replica[segments["position"]], segments["round"] - first
    kept = np.flatnonzero((row >= 0) & (column < lengths[row]))
    order = kept[np.lexsort((segments["site"][kept], column[kept], row[kept]))]
    segments, at = segments[order], (row * rounds + column)[order][::sites]  # each round has a segment a site
    starts = np.arange(0, len(order), sites)

    def per_round(values: Array, missing: float, how: np.ufunc) -> Array:
        filled = np.full(shape, missing, values.dtype)
        if len(at):
            filled.reshape(-1)[at] = values if sites == 1 else how.reduceat(values, starts)
        return filled

    counts = per_round(segments["visits"], 0, np.add)
    cloud = None
    if has_cloud:
        times = np.full((len(CloudTimes._fields), len(active) * rounds, sites), np.nan)
        for table, name in zip(times, CloudTimes._fields, strict=True):
            table[at] = segments["times"][name].reshape(-1, sites)
        cloud = CloudTimes(*times.reshape(-1, *shape, sites))
    visits = ordered(out.visits, segments["begin"], segments["visits"])
    many = len(visits.client)
    unseen = [np.broadcast_to(np.zeros(1, dtype), many) for dtype in ("i4", "i8")]
    site, version = (
        np.repeat(values.astype(np.int32), segments["visits"]) for values in (segments["site"], segments["round"] - 1)
    )
    return RoundBlock(
        first, active, lengths, stopped_by,
        per_round(segments["opened_s"], np.inf, np.minimum), per_round(segments["aggregated_s"], -np.inf, np.maximum),
        counts, per_round(segments["unselected"], 0, np.add) * sizes.broadcast,
        np.zeros(shape, np.int64) if cloud is None else cloud.bits(sizes),
        np.broadcast_to(first + np.arange(rounds), shape), offsets_of(counts),
        VisitOutcomes(visits.client, site, unseen[0], version, *visits[1:], unseen[1]), cloud,
    )  # fmt: skip


def ordered(visits: Outcomes, begin: Array, counts: Array) -> Outcomes:
    """Return the visits of these segments, one after another."""
    ends = np.cumsum(counts)
    total, starts = int(ends[-1]) if len(ends) else 0, ends - counts
    if (begin == starts).all():
        return Outcomes(*(column[:total] for column in visits))
    rows = np.repeat(begin - starts, counts) + np.arange(total)
    return Outcomes(*(column[rows] for column in visits))


def later(out: Out, running: Array, rounds: int) -> Out:
    """Return the visits of rounds after these, which edges that are ahead have closed."""
    segments = out.segments[: int(out.counts["segments"][0])]
    segments = segments[(segments["round"] > rounds) & np.isin(segments["position"], running)]
    visits = ordered(out.visits, segments["begin"], segments["visits"])
    kept = new_out(0, 0)._replace(segments=segments, visits=Outcomes(*(column.copy() for column in visits)))
    kept.counts["visits"], kept.counts["segments"] = len(visits.client), len(segments)
    segments["begin"] = np.cumsum(segments["visits"]) - segments["visits"]
    return kept

"""The timeline of a run: one row per event, derived from the columns of blocks, the same on both clocks."""

from __future__ import annotations

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.rounds import GossipMessages, RoundBlock
from fedsim.engine.system import MessageSizes, System
from fedsim.rules.visits import ARRIVED, DROPPED

COLUMNS = ("replica", "round", "time_s", "client", "event", "bits")
DTYPES = (np.int64, np.int64, np.float64, np.int64, object, np.int64)
NAMES = (  # in the order of the events of one instant
    "from cloud", "select", "download", "compute", "upload", "drop", "cut", "late", "hear", "aggregate", "to cloud",
    "merge",
)  # fmt: skip
ORDER = {name: number for number, name in enumerate(NAMES)}


class Events:
    """Rows of `events`. The client is -1 - site for a site, and -1 - sites for the cloud."""

    def __init__(self, recorded: bool) -> None:
        self.recorded = recorded
        self._blocks: list[Arrays] = []
        self._saved = 0

    def add(self, block: RoundBlock, accepted: Array, system: System, sizes: MessageSizes) -> None:
        """Add the events of the rounds that count."""
        self._blocks.append(events_of(block, accepted, system, sizes))

    def columns(self) -> Arrays:
        """Return all of them, by replica, then time; edges may be rounds ahead of each other."""
        found = _joined(self._blocks)
        by = np.lexsort((found["round"], found["time_s"], found["replica"]))  # events of a round are in order
        return {name: column[by] for name, column in found.items()}

    def segment(self) -> Arrays:
        """Return what was added since the last call, as flat arrays for a checkpoint."""
        fresh, self._saved = self._blocks[self._saved :], len(self._blocks)
        columns = _joined(fresh)
        return {f"trace.{n}": c.astype(str) if n == "event" else c for n, c in columns.items()} if fresh else {}

    def restore(self, segments: list[Arrays]) -> None:
        """Restore the rows from checkpoints."""
        for part in segments:
            if "trace.round" in part:
                columns = {n: part[f"trace.{n}"] for n in COLUMNS}
                self._blocks.append({n: _typed(columns[n], dtype) for n, dtype in zip(COLUMNS, DTYPES, strict=True)})
        self._saved = len(self._blocks)


def events_of(block: RoundBlock, accepted: Array, system: System, sizes: MessageSizes) -> Arrays:
    """Return the events of the accepted rounds of a block as columns."""
    block, counts = block.by_replica(), (np.arange(block.rounds) < accepted[:, None]).ravel()
    parts = [
        *_of_visits(block, np.flatnonzero(counts[block.row_of]), system, sizes),
        *_of_sites(block, counts, system, sizes),
    ]
    if block.starts is not None:  # a visit is selected in the round of the version that it starts from
        began = np.repeat(np.arange(len(counts)), np.diff(block.starts.offsets, axis=1).ravel())
        at = np.flatnonzero(counts[began])
        code = _code(block.starts.visit, block.starts.client, system.population)[at]
        parts[0] = "select", began[at], block.starts.started_s[at], code, np.full(len(at), sizes.broadcast)
    row, time_s, code, bits = (np.concatenate([part[k] for part in parts]) for k in (1, 2, 3, 4))
    kind = np.concatenate([np.full(len(part[1]), ORDER[part[0]]) for part in parts])
    visit, client = np.divmod(code, system.population)
    client = np.where(code < 0, code, client)
    # A server of asynchronous clients aggregates after all else that happens to them at that instant.
    visit = np.where(code < 0, 0 if block.starts is None else np.iinfo(np.int64).max, visit)
    replica, round = system.replicas[block.replicas[row // block.rounds]], block.first_round + row % block.rounds
    by = np.lexsort((client, kind, visit, round, time_s, replica))
    columns = replica, round, time_s, client, np.array(NAMES, object)[kind], bits
    return {n: np.asarray(c, dtype)[by] for n, c, dtype in zip(COLUMNS, columns, DTYPES, strict=True)}


def _code(visit: Array, client: Array, population: int) -> Array:
    """Return one number for a client and its visit; those of sites are negative."""
    return np.asarray(visit.astype(np.int64) * population + client)


Part = tuple[str, Array, Array, Array, Array]  # event, rows of the block, time_s, `_code` or site, bits


def _of_visits(block: RoundBlock, mine: Array, system: System, sizes: MessageSizes) -> list[Part]:
    v, row = block.visits, block.row_of[mine]
    client = _code(v.visit[mine], v.client[mine], system.population)
    down, up = v.down_bits[mine], v.up_bits[mine] + v.backhaul_bits[mine]
    broadcast = sizes.broadcast if block.gossip is None else 0
    started_s, downloaded_s, computed_s, ended_s = (
        column[mine] for column in (v.started_s, v.downloaded_s, v.computed_s, v.ended_s)
    )
    arrived, dropped = v.outcome[mine] == ARRIVED, v.outcome[mine] == DROPPED
    downloaded, nothing = ~np.isnan(downloaded_s), np.zeros(len(mine), np.int64)
    kinds = {
        "select": (nothing == 0, started_s, nothing + broadcast), "download": (downloaded, downloaded_s, down),
        "compute": (~np.isnan(computed_s), computed_s, nothing), "cut": (~downloaded & (down > 0), ended_s, down),
        "upload": (arrived, ended_s, up), "drop": (dropped, ended_s, up), "late": (~arrived & ~dropped, ended_s, up),
    }  # fmt: skip
    return [
        (name, row[where], time_s[where], client[where], bits[where]) for name, (where, time_s, bits) in kinds.items()
    ]


def _of_sites(block: RoundBlock, counts: Array, system: System, sizes: MessageSizes) -> list[Part]:
    rows, sites = np.flatnonzero(counts), system.sites.count
    if block.gossip is not None:
        return _of_gossip(block.gossip, counts, rows)
    if block.cloud is None:
        return [
            ("aggregate", rows, block.closed_s.ravel()[rows], np.full(len(rows), -1), np.zeros(len(rows), np.int64))
        ]
    parts = []
    for name, times, bits in (
        ("aggregate", block.cloud.closed_s, 0), ("to cloud", block.cloud.at_cloud_s, sizes.to_cloud),
        ("from cloud", block.cloud.from_cloud_s, sizes.from_cloud),
    ):  # fmt: skip
        of_rows = times.reshape(-1, sites)[rows]
        r, site = np.nonzero(~np.isnan(of_rows))
        parts.append((name, rows[r], of_rows[r, site], -1 - site, np.full(len(r), bits, np.int64)))
    merged = rows[~np.isnan(block.cloud.at_cloud_s.reshape(-1, sites)[rows]).any(axis=1)]
    none = np.zeros(len(merged), np.int64)
    return [*parts, ("merge", merged, block.closed_s.ravel()[merged], none - 1 - sites, none)]


def _of_gossip(gossip: GossipMessages, counts: Array, rows: Array) -> list[Part]:
    """Return the aggregations of sites, and the messages that they receive in time."""
    of_message = np.repeat(np.arange(len(counts)), np.diff(gossip.offsets, axis=1).ravel())
    received = np.flatnonzero(counts[of_message] & (gossip.outcome == ARRIVED))
    aggregated, ended_s = (column.reshape(len(counts), -1)[rows] for column in (gossip.aggregated, gossip.ended_s))
    r, site = np.nonzero(aggregated)
    return [
        ("hear", of_message[received], gossip.arrived_s[received], -1 - gossip.receiver[received].astype(np.int64),
         gossip.bits[received]),
        ("aggregate", rows[r], ended_s[r, site], -1 - site, np.zeros(len(r), np.int64)),
    ]  # fmt: skip


def _joined(blocks: list[Arrays]) -> Arrays:
    return {
        n: np.concatenate([block[n] for block in blocks] or [np.zeros(0, dtype)])
        for n, dtype in zip(COLUMNS, DTYPES, strict=True)
    }


def _typed(values: object, dtype: type) -> Array:
    if dtype is object:
        return np.array(np.asarray(values).tolist(), object)
    return np.asarray(values, dtype)

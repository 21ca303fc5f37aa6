"""Rows of `rounds`: what a ServerApp has sent at once, or under one group id, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.clock.simpy.visits import Visit
from fedsim.engine.commit import Totals
from fedsim.engine.events import events_of
from fedsim.engine.rounds import DTYPES, RoundBlock, VisitOutcomes, offsets_of
from fedsim.engine.system import System
from fedsim.results import METRICS, ROUNDS, SPENT
from fedsim.rules.visits import Drawn

if TYPE_CHECKING:
    from flwr.app import RecordDict

RESERVED = {*ROUNDS, *METRICS, *SPENT, "message_type", "client", "outcome", "select", "download", "compute", "end_s"}
WEIGHT = "num-examples"


@dataclass
class SendRow:
    """One row, as far as it has come."""

    number: int  # from 1
    opened_s: float
    closed_s: float
    types: list[str] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    sent_bits: list[int] = field(default_factory=list)  # of each visit's message
    metrics: dict[Visit, dict[str, Any]] = field(default_factory=dict)  # of replies that the ServerApp has received
    _visits_of: dict[int, int] = field(default_factory=dict)  # by client

    def add(self, client: int, now_s: float, sent_bits: int) -> Visit:
        """Add a visit that starts now; return it."""
        before = self._visits_of.get(client, 0)
        self._visits_of[client] = before + 1
        visit = Visit(client, 0, self.number - 1, 1, Drawn(), now_s, visit=before)
        self.visits.append(visit)
        self.sent_bits.append(sent_bits)
        return visit


def metrics_of(content: RecordDict) -> dict[str, Any]:
    """Return a reply's metrics; the record's name is put before a key that occurs twice, or is a column's name."""
    records = dict(content.metric_records.items())
    records |= {name: r for name, r in content.config_records.items() if name.endswith("res.metrics")}  # of a client_fn
    keys = [key for record in records.values() for key in record]
    return {
        f"{name}.{key}" if keys.count(key) > 1 or key in RESERVED else key: value
        for name, record in records.items()
        for key, value in record.items()
    }


def block_of(rows: list[SendRow]) -> RoundBlock:
    """Return rows as a block of rounds of one replica."""
    shape, visits = (1, len(rows)), []
    for row in rows:
        visits += sorted(row.visits, key=lambda visit: (visit.client, visit.ended_s))
    columns = zip(*([getattr(visit, name) for name in VisitOutcomes._fields] for visit in visits), strict=True)
    outcomes = [
        np.array(values, dtype) for values, dtype in zip(list(columns) or [()] * len(DTYPES), DTYPES, strict=True)
    ]
    counts = np.array([[len(row.visits) for row in rows]], np.int64).reshape(shape)
    nothing = np.zeros(shape, np.int64)
    return RoundBlock(
        first_round=1, replicas=np.zeros(1, np.int64), lengths=np.array([len(rows)]), stopped_by=np.zeros(1, np.int64),
        opened_s=np.array([[row.opened_s for row in rows]]).reshape(shape),
        closed_s=np.array([[row.closed_s for row in rows]]).reshape(shape),
        selected=counts, unselected_bits=nothing, backhaul_bits=nothing, oldest_version=nothing,
        offsets=offsets_of(counts), visits=VisitOutcomes(*outcomes),
    )  # fmt: skip


@dataclass
class AppTables:
    """The tables of a result."""

    rounds: dict[str, Any]
    metrics: dict[str, Any]
    clients: Arrays
    events: Arrays
    visits: dict[str, Any]  # metrics by visit, in the order of `events`' visits


def tables_of(rows: list[SendRow], system: System) -> AppTables:
    """Return the tables of a run."""
    block = block_of(rows)
    accepted = block.lengths
    rounds: dict[str, Any] = {"replica": np.zeros(len(rows), np.int64), "round": np.arange(1, len(rows) + 1)}
    rounds |= {name: column[0] for name, column in block.columns.items() if name != "backhaul_bits"}
    rounds["message_type"] = np.array([", ".join(row.types) for row in rows], object)
    averages = [_averaged(row) for row in rows]
    names = list(dict.fromkeys(name for average in averages for name in average))
    rounds |= {name: np.array([average.get(name, np.nan) for average in averages]) for name in names}
    evaluated = np.array([bool(average) for average in averages], bool)
    metrics = {"round": rounds["round"][evaluated], "seconds": rounds["closed_s"][evaluated]}
    for name in ("uplink_bits", "downlink_bits"):
        metrics[name] = np.cumsum(rounds[name])[evaluated].astype(np.float64)
    totals = Totals(system)
    if rows:
        totals.add(block, accepted)
    clients = {"client": np.arange(system.population)} | totals.totals
    return AppTables(rounds, metrics, clients, _events(rows, block, system), _of_visits(rows))


def _events(rows: list[SendRow], block: RoundBlock, system: System) -> Arrays:
    sent = {visit: bits for row in rows for visit, bits in zip(row.visits, row.sent_bits, strict=True)}
    ordered = [
        visit for row in rows for visit in sorted(row.visits, key=lambda visit: (visit.client, visit.ended_s))
    ]  # as in the block
    sizes: Any = SimpleNamespace(broadcast=np.array([sent[visit] for visit in ordered], np.int64))
    return events_of(block, block.lengths, system, sizes)


def _averaged(row: SendRow) -> dict[str, float]:
    """Return the means of a row's metrics over its replies, weighted by the number of examples where all have one."""
    replies = [row.metrics[visit] for visit in row.visits if visit in row.metrics]
    sums: dict[str, tuple[float, float]] = {}
    for reply in replies:
        weight = reply.get(WEIGHT, reply.get("num_examples", 1.0 if all(WEIGHT not in r for r in replies) else 0.0))
        for name, value in reply.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and name not in (WEIGHT, "num_examples"):
                total, weights = sums.get(name, (0.0, 0.0))
                sums[name] = total + weight * float(value), weights + weight
    return {name: total / weights for name, (total, weights) in sums.items() if weights > 0}


def _of_visits(rows: list[SendRow]) -> dict[str, Any]:
    """Return the metrics of every visit, lists included, with what names the visit."""
    visits = [(row.number, visit, row.metrics.get(visit, {})) for row in rows for visit in row.visits]
    visits.sort(key=lambda item: (item[1].started_s, item[1].client, item[0]))
    names = list(dict.fromkeys(name for _, _, metrics in visits for name in metrics))
    table: dict[str, Any] = {
        "client": np.array([visit.client for _, visit, _ in visits], np.int64),
        "round": np.array([number for number, _, _ in visits], np.int64),
        "visit": np.array([visit.visit for _, visit, _ in visits], np.int64),
    }
    return table | {name: _column([metrics.get(name) for _, _, metrics in visits]) for name in names}


def _column(values: list[Any]) -> Array:
    if any(isinstance(value, list) for value in values):
        column = np.empty(len(values), object)
        column[:] = [value if value is None or isinstance(value, list) else [value] for value in values]
        return column
    if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
        return np.array([np.nan if value is None else float(value) for value in values])
    return np.array([None if value is None else str(value) for value in values], object)

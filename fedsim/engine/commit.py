"""Commit: the only way a round counts. Budget, privacy ledger, aggregate, totals, record, observers.

A block of one round and a block of many are committed in the same way. Of every replica a prefix counts: the
round that would cross a budget is discarded, and the replica has stopped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.checks import IdleRounds, refuse_endless
from fedsim.engine.rounds import CAUSES, RoundBlock, constant
from fedsim.errors import RuntimeFailed
from fedsim.rules.closing import STOPPED_BY
from fedsim.rules.visits import ARRIVED, CALLED_OFF, DROPPED, LATE

if TYPE_CHECKING:
    from fedsim.engine.run import Run
    from fedsim.engine.system import System

SPENT = ("uplink_bits", "downlink_bits", "backhaul_bits")
COUNTS = (
    "selected", "arrived", "dropped", "late", "uplink_bits", "wasted_bits", "wasted_down_bits",
    "staleness", "last_round", "backhaul_bits",
)  # fmt: skip
OUTCOME_OF = dict(zip(CAUSES, (LATE, DROPPED, CALLED_OFF), strict=True))


class Totals:
    """What the replicas have spent, why they stopped, and the sums over each client's visits, of all replicas."""

    def __init__(self, system: System) -> None:
        replicas = len(system.replicas)
        self.spent: Arrays = {name: np.zeros(replicas, np.int64) for name in SPENT}
        self.stopped_by = [""] * replicas
        # `staleness` is summed over replies; `last_round` is the latest round that aggregated one, 0 for none.
        self.totals: Arrays = {name: np.zeros(system.population, np.int64) for name in COUNTS}
        self.totals |= {name: np.zeros(system.population) for name in ("wasted_s", *CAUSES)}
        self.limits = system.budget.limits
        # What every client sends once, before the first round.
        self._setup_bits = 8 * system.setting.dtype.itemsize * system.algorithm.surrogate_numbers(system.problem.dim)
        self.idle_rounds = IdleRounds(system.budget, replicas) if system.budget.rounds is None else None

    def with_setup(self, block: RoundBlock) -> RoundBlock:
        """Return the block with what clients sent before the first round, if it is the run's first block."""
        if block.first_round > 1 or not self._setup_bits:
            return block
        return replace(block, setup_bits=self._setup_bits * len(self.totals["uplink_bits"]))

    def within(self, block: RoundBlock, epsilon: Array | None) -> tuple[Array, list[str]]:
        """Return how many rounds of each replica close within every budget, and why not all; "" where all do."""
        accepted, reasons = block.lengths.copy(), [""] * len(block.replicas)
        if not self.limits:
            return accepted, reasons
        columns, active = block.columns, block.replicas
        spent = {n: self.spent[n][active][:, None] + np.cumsum(columns[n], axis=1) for n in SPENT}
        spent["total_bits"] = spent["uplink_bits"] + spent["downlink_bits"] + spent["backhaul_bits"]
        spent["seconds"] = columns["closed_s"]
        if epsilon is not None:
            spent["epsilon"] = np.broadcast_to(epsilon[active][:, None], columns["closed_s"].shape)
        for name in spent:
            if name in self.limits:
                crossing = spent[name] > self.limits[name]
                first = np.where(crossing.any(axis=1), np.argmax(crossing, axis=1), block.rounds)
                for r in np.flatnonzero(first < accepted).tolist():
                    accepted[r], reasons[r] = first[r], name
        return accepted, reasons

    def add(self, block: RoundBlock, accepted: Array) -> None:
        """Add the visits of the rounds that count."""
        v, totals = block.visits, self.totals
        counts = np.arange(block.rounds) < accepted[:, None]
        for name in SPENT:
            self.spent[name][block.replicas] += np.where(counts, block.columns[name], 0).sum(axis=1)
        if block.first_round == 1:
            totals["uplink_bits"] += self._setup_bits * int((accepted > 0).sum())
        # In how many replicas a listed round counts: 0 or 1, unless all have one timeline.
        times = counts.sum(axis=0, keepdims=True) if block.one_timeline else counts.astype(np.int64)
        each = constant(times.ravel())
        weight = block.per_visit(times.ravel()) if each is None else each
        client, outcome = v.client.astype(np.int64), v.outcome
        values: dict[str, Array | int] = {"uplink_bits": v.up_bits, "backhaul_bits": v.backhaul_bits}
        arrived = outcome == ARRIVED
        chosen, times_chosen = client, weight
        if block.starts is not None:
            chosen = block.starts.client.astype(np.int64)
            times_chosen = np.repeat(times.ravel(), np.diff(block.starts.offsets, axis=1).ravel())
        _count(totals["selected"], chosen, 1, times_chosen)
        if not block.nothing_wasted:
            values |= {
                "dropped": outcome == DROPPED, "late": block.late, "wasted_bits": block.wasted_bits,
                "wasted_down_bits": np.where(arrived, 0, v.down_bits),
            }  # fmt: skip
        for name, value in (values | {"arrived": 1 if block.nothing_wasted else arrived}).items():
            _count(totals[name], client, value, weight)
        last = np.where(times > 0, block.first_round + np.arange(block.rounds), 0).ravel()
        round, replied = block.per_visit(last), slice(None) if block.nothing_wasted else block.replied
        np.maximum.at(totals["last_round"], client[replied], round[replied])
        if block.starts is not None:
            version = block.first_round - 1 + block.row_of % block.rounds
            _count(totals["staleness"], client, np.where(arrived, version - v.version, 0), weight)
        if not block.nothing_wasted:
            self._add_seconds(block.by_replica(), counts)

    def _add_seconds(self, block: RoundBlock, counts: Array) -> None:
        """Add device seconds in the order of rounds, then replicas: sums must not depend on the lengths of blocks."""
        v, at = block.visits, np.flatnonzero(block.visits.outcome != ARRIVED)
        at = at[counts.ravel()[block.row_of[at]]]
        at = at[np.argsort(block.row_of[at] % block.rounds, kind="stable")]
        client, outcome = v.client[at], v.outcome[at]
        spent = v.ended_s[at] - v.started_s[at]
        np.add.at(self.totals["wasted_s"], client, spent)
        for name, code in OUTCOME_OF.items():
            own = outcome == code
            np.add.at(self.totals[name], client[own], spent[own])

    def stop(self, positions: Array, reason: str) -> None:
        for position in positions.tolist():
            self.stopped_by[position] = reason


async def commit(run: Run, block: RoundBlock) -> tuple[int, Array]:
    """Count a prefix of every replica's rounds; return how many rounds were handled, and the replicas that go on."""
    block = run.totals.with_setup(block)
    accepted, reasons = _within(run, block)
    closed = np.arange(block.rounds) < accepted[:, None]
    if not np.isfinite(block.closed_s[closed]).all():
        endless = np.flatnonzero((closed & ~np.isfinite(block.closed_s)).any(axis=0))
        refuse_endless(block.first_round + int(endless[0]))
    done = await _aggregate_and_record(run, block, accepted, reasons)
    accepted = np.minimum(accepted, done)
    run.totals.add(block, accepted)
    if run.trace.recorded:
        run.trace.add(block, accepted, run.system, run.learner.sizes)
    going = np.array([not run.totals.stopped_by[p] for p in block.replicas.tolist()], bool)
    return done, block.replicas[going]


def _within(run: Run, block: RoundBlock) -> tuple[Array, list[str]]:
    """Return how many rounds of each replica count, and why the next one does not; "" where all do."""
    ledger, before = run.evaluator.ledger, run.epsilon()
    if ledger is not None:  # every upload costs privacy, whether or not the round counts
        block = block.by_replica()
        v = block.visits
        sent = np.flatnonzero(v.up_bits + v.backhaul_bits > 0)
        position = block.replicas[block.row_of[sent] // block.rounds]
        ledger.add(position, v.client[sent].astype(np.int64), v.version[sent].astype(np.int64))
    accepted, reasons = run.totals.within(block, run.epsilon())
    if ledger is not None and before is not None:  # such a block has one round
        ledger.discard(block.replicas[accepted < block.lengths], before)
    for r in np.flatnonzero((accepted == block.lengths) & (block.lengths < block.rounds)).tolist():
        reasons[r] = STOPPED_BY[int(block.stopped_by[r])]
    return accepted, reasons


async def _aggregate_and_record(run: Run, block: RoundBlock, accepted: Array, reasons: list[str]) -> int:
    """Learn and record the accepted rounds, one after another; return how many, fewer where the run has to stop.

    A target that is reached shortens `accepted`, in place.
    """
    i = 0
    while True:
        if ending := [r for r in np.flatnonzero(accepted == i).tolist() if reasons[r]]:
            run.end(block, i, {r: reasons[r] for r in ending})
        counted = np.flatnonzero(accepted > i)
        if not len(counted):
            return block.rounds
        if i and run.checkpoints.stopping:
            return i
        count = run.rounds_together(block, i, accepted)
        theta = None
        try:
            if count > 1 and not run.system.timing_only:
                theta = await run.learner.aggregate_rounds(block, i, i + count, counted)
            together = count > 1 and (run.system.timing_only or theta is not None)
            if not together:
                await run.learner.aggregate(block, i, counted)
        except RuntimeFailed as failure:
            if not run.saves_on_failure:
                raise
            run.checkpoints.fail(failure)
            return i
        if together:
            run.close_rounds(block, i, i + count, counted, theta)
            i += count
        else:
            reached = run.close(block, i, counted)
            accepted[counted[reached]] = i + 1
            for r in counted[reached].tolist():
                reasons[r] = ""  # it has stopped already
            i += 1


def _count(total: Array, client: Array, value: Array | int, weight: Array | int) -> None:
    """Add value * weight per client, integers; exact in any order."""
    if isinstance(value, np.ndarray):
        same = constant(value)
        value = value.astype(total.dtype, copy=False) if same is None else same
    product = value * weight
    if isinstance(product, int) and product == 0:
        return
    if len(total) > len(client):
        np.add.at(total, client, product)
    elif isinstance(product, int):
        total += np.bincount(client, minlength=len(total)) * product
    else:
        total += np.bincount(client, product, minlength=len(total)).astype(total.dtype)  # exact below 2**53

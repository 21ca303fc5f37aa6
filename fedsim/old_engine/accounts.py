"""What a run has spent, and the one way to settle a round: budget, privacy, totals, fold, record, progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.checks import IdleRounds
from fedsim.old_engine.round import CAUSES, Ended, Round, Stretch, Visits
from fedsim.old_engine.world import World

if TYPE_CHECKING:
    from fedsim.old_engine.run import Driver, Run

Rows = TypeVar("Rows", Round, Stretch)
SPENT = ("uplink_bits", "downlink_bits", "backhaul_bits")
COUNTS = (
    "selected", "arrived", "dropped", "late", "uplink_bits", "wasted_bits", "wasted_down_bits",
    "staleness", "last_round", "backhaul_bits",
)  # fmt: skip


class Accounts:
    """What the replicas have spent, why they stopped, and what each client's visits came to, all replicas together."""

    def __init__(self, world: World) -> None:
        replicas, population = len(world.replicas), world.population
        self.spent: Arrays = {name: np.zeros(replicas, np.int64) for name in SPENT}
        self.stopped_by = [""] * replicas
        # `staleness` is summed over the replies; `last_round` is the latest round that folded one, 0 for none.
        self.totals: Arrays = {name: np.zeros(population, np.int64) for name in COUNTS}
        self.totals |= {name: np.zeros(population) for name in ("wasted_s", *CAUSES)}
        self._limits = world.budget.limits
        # What every client sends once, before the first round, which counts it.
        self._once = 8 * world.setting.dtype.itemsize * world.algorithm.surrogate_numbers(world.problem.dim)
        self.idle_rounds = IdleRounds(world.budget, replicas) if world.budget.rounds is None else None

    def over(self, active: Array, columns: Arrays, epsilon: Array | None) -> list[tuple[str, Array]]:
        """Which budgets this round, or each of these rounds, would cross, and where."""
        if not self._limits:
            return []
        spent = {n: self.spent[n][active] + (c if (c := columns[n]).ndim == 1 else np.cumsum(c, axis=0)) for n in SPENT}
        spent["total_bits"] = spent["uplink_bits"] + spent["downlink_bits"] + spent["backhaul_bits"]
        spent["seconds"] = columns["closed_s"]
        if epsilon is not None:
            spent["epsilon"] = epsilon[active]
        over = [(name, spent[name] > self._limits[name]) for name in spent if name in self._limits]
        return [(name, where) for name, where in over if where.any()]

    def with_once(self, rows: Rows) -> Rows:
        """A round, or a block of rounds, with what the run's first round counts besides."""
        if rows.number or not self._once:
            return rows
        up = rows.columns["uplink_bits"].copy()
        up[... if up.ndim == 1 else 0] += self._once * len(self.totals["uplink_bits"])
        return replace(rows, columns=rows.columns | {"uplink_bits": up})

    def _enter_once(self, number: int, active: Array) -> None:
        if number == 0:
            self.totals["uplink_bits"] += self._once * len(active)

    def enter(self, round: Round) -> None:
        """A round that counts."""
        e, totals = round.visits, self.totals
        for n in SPENT:
            self.spent[n][round.active] += round.columns[n]
        self._enter_once(round.number, round.active)
        _count(totals["selected"], e.client if round.selected is None else round.selected.client, 1)
        _count(totals["uplink_bits"], e.client, e.up_bits)
        for name, value in e.between.items():
            _count(totals[name], e.client, value)
        heard = round.arrived.client
        totals["last_round"][heard] = round.number + 1
        if not isinstance(round.started, int):
            np.add.at(totals["staleness"], heard, round.staleness)
        if e.smooth:
            _count(totals["arrived"], e.client, 1)
        else:
            self._enter_losses(e)

    def _enter_losses(self, e: Ended) -> None:
        _count(self.totals["arrived"], e.client, e.arrived)
        lost = e.lost  # all else is zero for the others, who are mostly the many
        columns = {
            "dropped": lost.dropped, "late": lost.late, "wasted_bits": lost.up_bits, "wasted_down_bits": lost.down_bits,
        }  # fmt: skip
        for name, value in columns.items():
            _count(self.totals[name], lost.client, value)
        self._enter_seconds(lost)

    def spend(self, active: Array, columns: Arrays) -> None:
        """What rounds of a stretch cost, columns (rounds, replicas)."""
        for n in SPENT:
            self.spent[n][active] += columns[n].sum(axis=0)

    def enter_stretch(self, stretch: Stretch) -> None:
        """The visits of a stretch; what its rounds cost is spent as they are recorded."""
        self._enter_once(stretch.number, stretch.active)
        if stretch.visits is not None:
            self._enter_visits(stretch, stretch.visits)
            return
        visits = stretch.count * len(stretch.active)
        for name, each in (("selected", 1), ("arrived", 1), ("uplink_bits", stretch.up_bits)):
            self.totals[name] += visits * each
        self.totals["last_round"][:] = stretch.number + stretch.count

    def _enter_visits(self, stretch: Stretch, visits: Visits) -> None:
        e, totals, lost = visits.ended, self.totals, ~visits.ended.arrived
        counts: dict[str, Array | int] = {
            "arrived": 1 if e.smooth else e.arrived, "uplink_bits": e.up_bits,
        }  # fmt: skip
        _count(totals["selected"], e.client if visits.selected is None else visits.selected[0], 1)
        if not e.smooth:
            counts |= {
                "dropped": e.dropped, "late": e.late, "wasted_bits": np.where(lost, e.up_bits, 0),
                "wasted_down_bits": np.where(lost, e.down_bits, 0),
            }  # fmt: skip
        counts |= e.between
        number = stretch.number + np.repeat(np.arange(stretch.count), np.diff(visits.ends, prepend=0))
        if visits.version is not None:
            counts["staleness"] = np.where(lost, 0, number - visits.version)
        for name, value in counts.items():
            _count(totals[name], e.client, value)
        replied = e.arrived if visits.replied is None else visits.replied
        np.maximum.at(totals["last_round"], e.client[replied], number[replied] + 1)
        if not e.smooth:
            self._enter_seconds(e.lost)

    def _enter_seconds(self, lost: Ended) -> None:
        """Add visit after visit, so that the sums round alike however many rounds come together."""
        np.add.at(self.totals["wasted_s"], lost.client, lost.spent_s)
        for number, name in enumerate(CAUSES):
            mine = lost.cause == number
            np.add.at(self.totals[name], lost.client[mine], lost.spent_s[mine])

    def stop(self, positions: Sequence[int] | Array, reason: str) -> None:
        for i in positions:
            self.stopped_by[i] = reason


async def settle(run: Run, driver: Driver, round: Round) -> Array:
    """One round of the timeline: does it count, what do its replies make of the model, who goes on."""
    stopped = [(reason, positions) for reason, positions in round.stopped if len(positions)]
    if len(round.active):
        round = run.accounts.with_once(round)
        within, crossed = _within(run, round)
        round = round.among(within)  # a round that crosses a budget is discarded whole
        stopped += crossed
    if stopped:
        run.end(stopped)
    if not len(round.active):
        return round.active
    reply = await driver.replies(round)
    run.accounts.enter(round)
    if run.world.reports_loss and not run.world.skip:
        driver.report_losses(round, reply.values["loss"].reshape(len(reply.bits)).astype(np.float64))
    run.learner.fold(round, reply)
    return run.close(round.active, round.number + 1, round.columns)


def _within(run: Run, round: Round) -> tuple[Array, list[tuple[str, Array]]]:
    """Which replicas this round keeps within their budgets, and the others by what it would cross."""
    ledger, before = run.evaluator.ledger, run.epsilon()
    if ledger is not None:
        said = round.visits.said  # a client that has sent a bit has given something away, whether or not it is used
        started = round.started if isinstance(round.started, int) else round.started[said]
        ledger.add(round.active[round.who.row[said]], round.who.client[said], started)
    within, crossed = np.ones(len(round.active), bool), []
    for name, over in run.accounts.over(round.active, round.columns, run.epsilon()):
        if (first := over & within).any():
            crossed.append((name, round.active[first]))
        within &= ~over
    if ledger is not None and before is not None:
        ledger.discard(round.active[~within], before)
    return within, crossed


async def settle_stretch(run: Run, stretch: Stretch) -> tuple[int, Array]:
    """The same for many rounds: how many were taken, and who goes on; none if they had better be taken one by one."""
    stretch = run.accounts.with_once(stretch)
    over = np.zeros(stretch.count, bool)
    for _, where in run.accounts.over(stretch.active, stretch.columns, None):
        over |= where.any(axis=1)
    stretch = stretch.first(int(np.argmax(over)) if over.any() else stretch.count)
    if stretch.count < 2 or not np.isfinite(stretch.columns["closed_s"][-1]).all():
        return 0, stretch.active
    learner, count = run.learner, stretch.count
    if run.world.skip:
        run.accounts.enter_stretch(stretch)
        return count, run.close_stretch(stretch, None)
    assert stretch.learnt is not None
    history, memory = stretch.learnt
    if not all(np.isfinite(h[-1]).all() for h in history.values()):
        return 0, stretch.active  # taken one by one, the error says who and when
    for name, h in history.items():
        learner.state[name][:] = h[-1]
    for name, m in memory.items():
        learner.memory[name][:] = m
    run.accounts.enter_stretch(stretch)
    return count, run.close_stretch(stretch, history["theta"])


def _count(total: Array, client: Array, value: int | Array) -> None:
    """Add whole numbers, which is exact in any order below 2**53: in one pass where clients are fewer than visits."""
    if len(total) <= len(client):
        weights = None if isinstance(value, int) else value
        total += np.bincount(client, weights, minlength=len(total)).astype(total.dtype)
    else:
        np.add.at(total, client, value if isinstance(value, int) else value.astype(total.dtype, copy=False))

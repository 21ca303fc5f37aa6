"""One run: next block from the clock, commit it, checkpoint; and the records of committed rounds."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.checks import call_function
from fedsim.engine.checkpoint import Checkpointer
from fedsim.engine.clock import Clock
from fedsim.engine.commit import Totals, commit
from fedsim.engine.evaluation import Evaluator
from fedsim.engine.events import Events
from fedsim.engine.learner import Learner
from fedsim.engine.recorder import Recorder
from fedsim.engine.rounds import RoundBlock
from fedsim.engine.system import System
from fedsim.protocols import Observer, Visitors, is_sparse
from fedsim.runtime.inline import step_size_hint

FIRST = np.arange(1)  # the first replica
LARGEST_BLOCK = 512  # rounds; with 64, small problems take about 1.2 to 1.5 times the processor time
LARGEST_BYTES = 64_000_000  # of a block's visits
VISIT_BYTES = 77
LONG_S = 0.5  # real seconds that a block may take before blocks become shorter: signals and checkpoints wait for it
NUMBERS = 4_000_000  # updated in one call of several rounds: signals are handled soon
LARGE = 200_000  # updated in a round: threads gain more there than several rounds in one call do


@dataclass(frozen=True)
class Progress:
    """The argument of an observer after a round."""

    round: int
    active: int
    seconds: float  # median virtual time of the replicas that closed it
    uplink_bits: float  # median so far
    metrics: dict[str, float]  # the latest values (medians where per replica)


class Run:
    """The state and the records of a run; replicas are named by their position 0 ... R - 1."""

    def __init__(
        self, system: System, learner: Learner, checkpoints: Checkpointer, observers: Iterable[Observer] = ()
    ) -> None:
        self.system, self.learner, self.checkpoints, self.observers = system, learner, checkpoints, tuple(observers)
        scenario, replicas = system.scenario, np.arange(len(system.replicas))
        self.totals = Totals(system)
        self.recorder = Recorder(scenario.record, system.replicas, system.problem.dim, system.setting.dtype)
        remedy = partial(step_size_hint, system.algorithm.wrapped, system.setting)
        self.evaluator = Evaluator(scenario, self.recorder, system.setting.problem, remedy)
        if not system.timing_only:
            self.evaluator.check(learner.theta(replicas), learner.models(replicas), learner.memory)
        self.trace = Events(scenario.record.events)
        self.watched = not all(map(is_sparse, self.observers))  # after every round
        self._visits = len(system.replicas) * system.visits_a_round
        self._one_by_one = (
            learner.sizes.depend_on_values or system.clock_reads_losses or self.evaluator.ledger is not None
        )
        self.clock_used: dict[str, str] = {}
        self.hosts: list[dict[str, Any]] = []  # what each client host models
        self._latest: dict[str, float] = {}

    async def drive(self, clock: Clock, reason: str, one_timeline: bool = False) -> None:
        """Commit blocks of rounds until every replica has stopped; `reason`: why this clock was chosen.

        `one_timeline`: the clock simulates one replica, whose timeline is that of all.
        """
        done, active, saved = self.checkpoints.resume(self)
        await clock.resume(done, FIRST if one_timeline else active, saved)
        rounds = 1
        try:
            while len(active):
                began = time.perf_counter()
                block = await clock.next(FIRST if one_timeline else active, self._rounds(done, rounds))
                taken, active = await commit(self, block.for_all(active) if one_timeline else block)
                done += taken
                rounds = 2 * rounds if time.perf_counter() - began < LONG_S else max(1, rounds // 2)
                if self.checkpoints.asked:
                    self.checkpoints.after_block(self, clock, done, active)
        finally:
            self.clock_used = {"name": clock.name, "path": clock.path, "reason": reason}
            await clock.close()

    def _rounds(self, done: int, wanted: int) -> int:
        """Return the length of the next block: at most the rounds done so far, so that few rounds are discarded."""
        if self._one_by_one:
            return 1
        system, most = self.system, LARGEST_BYTES // (VISIT_BYTES * self._visits)
        left = LARGEST_BLOCK if system.budget.rounds is None else int(system.budget.rounds) - done
        every = self.checkpoints.rounds
        until = LARGEST_BLOCK if every is None else every - done % every
        return max(1, min(wanted, LARGEST_BLOCK, most, left, until, max(done, 1)))

    @property
    def saves_on_failure(self) -> bool:
        """True if the rounds before one that fails make a checkpoint: neither the clock nor the ledger is past them."""
        return self.checkpoints.files is not None and not self._one_by_one

    def epsilon(self) -> Array | None:
        """Return the privacy loss so far, where a metric accounts for it."""
        return None if self.evaluator.ledger is None else self.evaluator.ledger.epsilon()

    def stop(self, positions: Array, reason: str) -> None:
        """End these replicas; a thinned row that is being summed for them ends here."""
        self.totals.stop(positions, reason)
        self.recorder.flush(positions)

    def end(self, block: RoundBlock, i: int, reasons: dict[int, str]) -> None:
        """End the replicas at these places before round i of a block counts; their last round is evaluated."""
        stopped, number = block.replicas[list(reasons)], block.first_round - 1 + i
        if self._evaluates and number % self.system.scenario.evaluate_every:
            spent = self._spent(block, i - 1, np.arange(len(block.replicas)))
            together = np.flatnonzero(self.recorder.closed == number)  # all that closed that round
            per_replica, _ = self._evaluate(number, stopped, spent, per_replica=True)
            _, overall = self._evaluate(number, together, spent, per_replica=False)
            self.recorder.evaluated_last(stopped, per_replica)
            self._show(number, together, spent, per_replica, overall)
        for r, reason in reasons.items():
            self.stop(block.replicas[r : r + 1], reason)

    def interrupted(self, number: int, active: Array) -> None:
        """Show observers the figures of the last round. Nothing is recorded: a resumed run continues without them."""
        if self.observers and self._evaluates and number % self.system.scenario.evaluate_every:
            per_replica, overall = self._evaluate(number, active, self.totals.spent)
            self._show(number, active, self.totals.spent, per_replica, overall, record=False)

    @property
    def _evaluates(self) -> bool:
        return bool(self.evaluator.metrics) and not self.system.timing_only

    def _evaluate(
        self, number: int, active: Array, spent: Arrays, per_replica: bool | None = None
    ) -> tuple[Arrays, dict[str, float]]:  # fmt: skip
        """Return the metrics of these replicas as they are now, after round `number`."""
        learner, so_far = self.learner, {n: s[active] for n, s in spent.items()}
        so_far["seconds"] = self.recorder.closed_s[active]
        theta, models = learner.theta(active), learner.models(active)
        return self.evaluator.after(
            number, active, theta, models, so_far, learner.memory, learner.state, per_replica=per_replica
        )

    # --- Several rounds in one call -----------------------------------------------------------------------------------

    def rounds_together(self, block: RoundBlock, i: int, accepted: Array) -> int:
        """Return how many accepted rounds from i on can be learnt in one call, without an evaluation in between."""
        system, learner = self.system, self.learner
        done = block.first_round - 1 + i
        going = int(accepted[accepted > i].min()) - i  # rounds until one of the replicas ends
        record, every = system.scenario.record, system.scenario.evaluate_every
        until_row = record.rounds_every - done % record.rounds_every if record.rounds_every > 1 else block.rounds
        if system.timing_only:
            return 1 if self.watched else min(going, until_row)
        if (
            not learner.session.learns_blocks or self.watched or system.policy.asynchronous
            or system.sites.count > 1 or self.evaluator.ledger is not None or system.budget.target is not None
            or learner.sizes.first_reply != learner.sizes.reply or learner.sizes.reply is None
            or self._better_on_threads
        ):  # fmt: skip
            return 1
        evaluates_between = bool(self.evaluator.metrics) and not self._evaluates_later
        return min(
            going,
            max(1, NUMBERS // (self._visits * system.problem.dim)),
            every - done % every if evaluates_between else block.rounds,
            until_row,
        )

    @property
    def _evaluates_later(self) -> bool:
        """True if metrics may look at a round when more have been learnt: they look at theta alone."""
        return not self.learner.memory and self.system.algorithm.ensemble is None

    @property
    def _better_on_threads(self) -> bool:
        system = self.system
        work = float(np.max(system.algorithm.work(Visitors(np.arange(1)))))
        return len(system.replicas) == 1 and self._visits * system.problem.dim * work >= LARGE

    # --- Closing ------------------------------------------------------------------------------------------------------

    def close(
        self, block: RoundBlock, i: int, counted: Array, theta: Array | None = None, known: Arrays | None = None
    ) -> Array:
        """Record round i of a block for the replicas at these places; return which of them reached the target.

        `theta` (replicas, d) is what it was then, if more has been learnt since; `known` are metrics evaluated already.
        """
        system, number, active = self.system, block.first_round + i, block.replicas[counted]
        columns = {name: column[counted, i] for name, column in block.columns.items()}
        if self.totals.idle_rounds is not None:
            self.totals.idle_rounds.after(active, columns)
        last = system.budget.rounds is not None and number >= system.budget.rounds
        due = self._evaluates and (number % system.scenario.evaluate_every == 0 or last)
        per_replica: Arrays = {}
        overall: dict[str, float] = {}
        if not system.timing_only:
            all_sites = system.scenario.record.sites == "all"
            models = None if theta is None else theta[:, None]
            if models is None and (all_sites or due):
                models = self.learner.models(active)
            theta = self.learner.theta(active) if theta is None else theta
            self.recorder.sample(number, active, theta, models if all_sites else None)
            if due:
                assert models is not None
                spent = {n: s[active] for n, s in self._spent(block, i, counted).items()}
                spent["seconds"] = columns["closed_s"]
                memory, state = self.learner.memory, self.learner.state
                per_replica, overall = self.evaluator.after(
                    number, active, theta, models, spent, memory, state, known or {}
                )
        self.recorder.round(number, active, columns, per_replica)
        reached = self._reached(active, per_replica | overall)
        if overall or self.observers:
            self._show(number, active, self._spent(block, i, counted), per_replica, overall)
        if last:
            self.stop(active[~reached], "rounds")
        return reached

    def _show(
        self, number: int, active: Array, spent: Arrays, per_replica: Arrays, overall: dict[str, float],
        record: bool = True,
    ) -> None:  # fmt: skip
        """Record the metrics over replicas after a round, and call the observers."""
        seconds, up, down = (
            _median(column[active]) for column in (self.recorder.closed_s, spent["uplink_bits"], spent["downlink_bits"])
        )
        if overall and record:
            so_far = {"round": number, "seconds": seconds, "uplink_bits": up, "downlink_bits": down}
            self.recorder.metrics.append(so_far | overall)
        if self.observers:
            self._latest |= overall | {n: float(np.nanmedian(v)) for n, v in per_replica.items()}
            progress = Progress(number, len(active), seconds, up, dict(self._latest))
            for observer in self.observers:
                call_function(f"observer {getattr(observer, '__name__', type(observer).__name__)}", observer, progress)

    def close_rounds(self, block: RoundBlock, low: int, high: int, counted: Array, theta: Array | None) -> None:
        """Record rounds low ... high - 1, which were learnt in one call; theta is (rounds, replicas, d)."""
        every, count, first = self.system.scenario.evaluate_every, high - low, block.first_round - 1 + low
        metrics = theta is not None and bool(self.evaluator.metrics)
        ends = [*range(every - first % every, count, every), count] if metrics else [count]
        known = self.evaluator.of_rounds(theta, ends) if metrics and theta is not None else {}
        for k, (begin, end) in enumerate(itertools.pairwise([0, *ends])):
            self._record_rounds(block, low + begin, low + end - 1, counted, None if theta is None else theta[begin:])
            found = {n: v[k] for n, v in known.items()}
            self.close(block, low + end - 1, counted, None if theta is None else theta[end - 1], found)

    def _record_rounds(self, block: RoundBlock, low: int, high: int, counted: Array, theta: Array | None) -> None:
        """Record rounds without evaluations."""
        if low == high:
            return
        active, first = block.replicas[counted], block.first_round
        columns = {name: column[counted, low:high].T for name, column in block.columns.items()}
        for i in range(high - low):
            if self.totals.idle_rounds is not None:
                self.totals.idle_rounds.after(active, {name: column[i] for name, column in columns.items()})
            if theta is not None:
                self.recorder.sample(first + low + i, active, theta[i])
        self.recorder.rounds(first + high - 1, active, columns)

    def _spent(self, block: RoundBlock, i: int, counted: Array) -> Arrays:
        """Return what all replicas have spent, round i included; totals are added after the block."""
        out = {}
        for name, spent in self.totals.spent.items():
            out[name] = spent.copy()
            out[name][block.replicas[counted]] += block.columns[name][counted, : i + 1].sum(axis=1)
        return out

    def _reached(self, active: Array, values: dict[str, Array | float]) -> Array:
        """Return which replicas have reached the target; they stop."""
        target, reached = self.system.budget.target, np.zeros(len(active), bool)
        if target is not None and (value := values.get(target.metric)) is not None:
            reached |= np.broadcast_to(target.reached(value), reached.shape)
            self.stop(active[reached], "target")
        return reached


def _median(values: Array) -> float:
    """Return the median; NumPy's takes longer than all else that is recorded of a small round."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else (float(ordered[half - 1]) + float(ordered[half])) / 2)

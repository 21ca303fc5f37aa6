"""One run in progress: the world it runs in, what is learnt, what was spent, what is recorded.

A driver keeps time. It looks at the `World`, asks the `Learner` for broadcasts and for the lengths of replies, and
yields rounds; it touches nothing else of a run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from fedsim.arrays import Array, Arrays
from fedsim.engine.checks import check_data, refuse_endless
from fedsim.engine.evaluation import Evaluator
from fedsim.engine.record import Recorder
from fedsim.engine.run import Progress
from fedsim.engine.site_checks import check_lengths
from fedsim.old_engine.accounts import Accounts, settle, settle_stretch
from fedsim.old_engine.checkpoint import Checkpointer
from fedsim.old_engine.clock_inputs import ClockInputs
from fedsim.old_engine.learner import Learner
from fedsim.old_engine.round import Round, Stretch
from fedsim.old_engine.run_checks import check_skip
from fedsim.old_engine.trace import Trace
from fedsim.old_engine.world import World
from fedsim.protocols import Observer, SessionLike, is_sparse
from fedsim.runtime.jobs import Reply
from fedsim.runtime.worker import advice


class Driver(Protocol):
    """A way of keeping time."""

    path: str  # its name, for the manifest

    def resume(self, number: int, active: Array, saved: Arrays) -> None:
        """Go to the opening of round `number`; `saved` is what `state` gave."""

    async def next(self, number: int, active: Array) -> Round | Stretch:
        """The next round, or rounds, of these replicas."""

    async def replies(self, round: Round) -> Reply:
        """The replies that arrived in the round that `next` gave, or of some of its replicas."""

    def report_losses(self, round: Round, losses: Array) -> None:
        """The losses that those replies report, for policies to look at."""

    def rounds_counted(self, stretch: Stretch, count: int) -> None:
        """So many of its rounds counted; none: take them one by one."""

    def state(self, active: Array) -> Arrays:
        """What a resumed run cannot work out again."""

    async def close(self) -> None:
        """The run is over."""


class Run:
    """Everything that rounds leave behind, for replicas named by their position 0 ... R - 1."""

    def __init__(
        self, world: World, session: SessionLike, checkpoints: Checkpointer, observers: Iterable[Observer] = ()
    ) -> None:
        check_data(world.problem, world.skip)
        self.world, self.checkpoints, self.observers = world, checkpoints, tuple(observers)
        self.watched = not all(map(is_sparse, self.observers))  # after every round
        self.learner = Learner(world, session)
        self.accounts = Accounts(world)
        self.recorder = Recorder(world.scenario.record, world.replicas, world.problem.dim, world.setting.dtype)
        remedy = partial(advice, world.algorithm.own, world.setting)
        self.evaluator = Evaluator(world.scenario, self.recorder, world.setting.problem, remedy)
        if not world.skip:
            everybody = np.arange(len(world.replicas))
            start = self.learner.theta(everybody), self.learner.models(everybody)
            self.evaluator.check(*start, self.learner.memory)
        self.trace = Trace(world.scenario.record.events)
        self.inputs = ClockInputs(kept=checkpoints.files is not None)
        self._latest: dict[str, float] = {}
        self.path = ""  # which way of keeping time drove it
        check_skip(world, self.learner)
        check_lengths(world, self.learner)

    async def drive(self, driver: Driver) -> None:
        """Rounds until every replica's budget is spent."""
        number, active, saved = self.checkpoints.resume(self)
        driver.resume(number, active, saved)
        self.inputs.forget()
        try:
            while len(active):
                closed = await driver.next(number, active)
                if isinstance(closed, Round):
                    taken, active = 1, await settle(self, driver, closed)
                else:
                    taken, active = await settle_stretch(self, closed)
                    driver.rounds_counted(closed, taken)
                    if not taken:
                        continue
                number += taken
                if self.checkpoints.asked:
                    self.checkpoints.after(self, driver, number, active)
        finally:
            self.path = driver.path
            await driver.close()

    # --- Privacy ------------------------------------------------------------------------------------

    def epsilon(self) -> Array | None:
        """What was given away so far, where a metric accounts for it."""
        return None if self.evaluator.ledger is None else self.evaluator.ledger.epsilon()

    # --- Closing ------------------------------------------------------------------------------------

    def close(
        self, active: Array, number: int, columns: Arrays, theta: Array | None = None, known: Arrays | None = None
    ) -> Array:
        """Record round `number` (from 1) of these replicas; returns those that go on.

        `theta` (replicas, d) is what it was then, if more has been learnt since; there is one site. `known` are
        columns of metrics that have been evaluated already.
        """
        world = self.world
        if not np.isfinite(columns["closed_s"]).all():
            refuse_endless(number)
        if self.accounts.idle_rounds is not None:
            self.accounts.idle_rounds.after(active, columns)
        models = None if theta is None else theta[:, None]
        if theta is None:
            theta = self.learner.state["theta"] if world.skip else self.learner.theta(active)
        if models is None and not world.skip and world.scenario.record.sites == "all":
            models = self.learner.models(active)
        if not world.skip:
            self.recorder.sample(number, active, theta, models if world.scenario.record.sites == "all" else None)
        last = world.budget.rounds is not None and number >= world.budget.rounds
        per_replica: Arrays = {}
        overall: dict[str, float] = {}
        if self._judges and (number % world.scenario.evaluate_every == 0 or last):
            models = self.learner.models(active) if models is None else models
            spent = {n: s[active] for n, s in self.accounts.spent.items()} | {"seconds": columns["closed_s"]}
            per_replica, overall = self.evaluator.after(
                number, active, theta, models, spent, self.learner.memory, self.learner.state, known or {}
            )
        self.recorder.round(number, active, columns, per_replica)
        if overall:
            self.recorder.metrics.append(self._so_far(number, active, columns) | overall)
        going = self._going(active, number, per_replica | overall)
        if self.observers:
            self._observe(number, active, columns, per_replica, overall)
        return going

    def close_stretch(self, stretch: Stretch, theta: Array | None) -> Array:
        """Record the rounds of a stretch, theta (count, replicas, d); returns who goes on.

        Metrics that look at theta alone judge all its rounds in one call.
        """
        first, active, going = stretch.number, stretch.active, stretch.active
        ends = self._looked_at(stretch) if theta is not None else [stretch.count]
        known = self.evaluator.of_rounds(theta, ends) if theta is not None and self.evaluator.metrics else {}
        for k, (begin, end) in enumerate(itertools.pairwise([0, *ends])):
            columns = {n: c[begin:end] for n, c in stretch.columns.items()}
            self.accounts.spend(active, columns)
            for i in range(begin, end - 1):
                if self.accounts.idle_rounds is not None:
                    self.accounts.idle_rounds.after(active, {n: c[i - begin] for n, c in columns.items()})
                if theta is not None:
                    self.recorder.sample(first + i + 1, active, theta[i])
            if end - begin > 1:
                self.recorder.rounds(first + end - 1, active, {n: c[:-1] for n, c in columns.items()})
            last = None if theta is None else theta[end - 1]
            values = {n: v[k] for n, v in known.items()}
            going = self.close(active, first + end, {n: c[-1] for n, c in columns.items()}, last, values)
        return going

    def _looked_at(self, stretch: Stretch) -> list[int]:
        """After how many of its rounds metrics look at a stretch; and its end."""
        if not self.evaluator.metrics:
            return [stretch.count]
        every = self.world.scenario.evaluate_every
        return [*range(every - stretch.number % every, stretch.count, every), stretch.count]

    def evaluates_later(self) -> bool:
        """Whether metrics may look at a round when more have been learnt: at theta, and nothing stops for them."""
        stateless = not self.learner.memory and self.world.algorithm.ensemble is None
        return stateless and self.world.sites.models == 1 and self.world.budget.target is None

    def end(self, stopped: Sequence[tuple[str, Array]]) -> None:
        """These replicas are over before the next round counts, by reason; their last one is evaluated."""
        self._evaluate_last(np.sort(np.concatenate([positions for _, positions in stopped])))
        for reason, positions in stopped:
            self.stop(positions, reason)

    def _evaluate_last(self, stopped: Array) -> None:
        """Evaluate the last round of these replicas, unless it was: for `rounds` theirs, for `metrics` that of all."""
        number = int(self.recorder.closed[stopped[0]])
        if not self._judges or number % self.world.scenario.evaluate_every == 0:
            return
        together = np.flatnonzero(self.recorder.closed == number)  # who closed that round
        per_replica, _ = self._judged(number, stopped, per_replica=True)
        _, overall = self._judged(number, together, per_replica=False)
        self.recorder.evaluated_last(stopped, per_replica)
        columns = {"closed_s": self.recorder.closed_s[together]}
        if overall:
            self.recorder.metrics.append(self._so_far(number, together, columns) | overall)
        if self.observers:
            self._observe(number, together, columns, per_replica, overall)

    def interrupted(self, number: int, active: Array) -> None:
        """Show observers the figures of the last round. Nothing is recorded: a resumed run goes on without them."""
        if self.observers and self._judges and number % self.world.scenario.evaluate_every:
            per_replica, overall = self._judged(number, active)
            self._observe(number, active, {"closed_s": self.recorder.closed_s[active]}, per_replica, overall)

    @property
    def _judges(self) -> bool:
        return bool(self.evaluator.metrics) and not self.world.skip

    def _judged(self, number: int, active: Array, per_replica: bool | None = None) -> tuple[Arrays, dict[str, float]]:
        """The metrics of these replicas as they are after the last round that counts."""
        spent = {n: s[active] for n, s in self.accounts.spent.items()} | {"seconds": self.recorder.closed_s[active]}
        theta, models = self.learner.theta(active), self.learner.models(active)
        memory, state = self.learner.memory, self.learner.state
        return self.evaluator.after(number, active, theta, models, spent, memory, state, per_replica=per_replica)

    def stop(self, positions: Sequence[int] | Array, reason: str) -> None:
        """These replicas are over; a thinned row that is being summed for them ends here."""
        self.accounts.stop(positions, reason)
        self.recorder.flush(np.asarray(positions, np.int64))

    def _going(self, active: Array, number: int, values: dict[str, Array | float]) -> Array:
        go, budget = np.ones(len(active), bool), self.world.budget
        if budget.target is not None:
            value = values.get(budget.target.metric)
            if value is not None:
                go &= ~np.broadcast_to(budget.target.reached(value), go.shape)
            self.stop(active[~go], "target")
        if budget.rounds is not None and number >= budget.rounds:
            self.stop(active[go], "rounds")
            go[:] = False
        return active[go]

    def _so_far(self, number: int, active: Array, columns: Arrays) -> dict[str, float]:
        spent = self.accounts.spent
        medians = {name: _median(spent[name][active]) for name in ("uplink_bits", "downlink_bits")}
        return {"round": number, "seconds": _median(columns["closed_s"]), **medians}

    def _observe(
        self, number: int, active: Array, columns: Arrays, per_replica: Arrays, overall: dict[str, float]
    ) -> None:
        self._latest |= overall | {n: float(np.nanmedian(v)) for n, v in per_replica.items()}
        at = self._so_far(number, active, columns)
        progress = Progress(number, len(active), at["seconds"], at["uplink_bits"], dict(self._latest))
        for observer in self.observers:
            observer(progress)


def _median(values: Array) -> float:
    """NumPy's, which takes longer than all else that is told of a small round."""
    ordered, half = np.sort(values), len(values) // 2
    return float(ordered[half] if len(values) % 2 else (float(ordered[half - 1]) + float(ordered[half])) / 2)

"""One run in progress: the replicas' state, the clients' memory, what was spent, what is recorded.

Both ways of keeping time (`lockstep`, `events`) drive this and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.algorithms.arguments import rows_per_batch
from fedsim.engine.guard import Patience, check_data, check_skip
from fedsim.engine.judge import Judge
from fedsim.engine.memory import memory_of
from fedsim.engine.noted import Noted
from fedsim.engine.record import Recorder
from fedsim.engine.replies import Replies
from fedsim.engine.select import Cohort
from fedsim.engine.starts import first_states
from fedsim.engine.timeline import Fates, Visitors, always_on, fates, ways
from fedsim.engine.totals import nothing_yet
from fedsim.engine.wire import Shape, message_bits, reply_shape
from fedsim.errors import InvalidInput, NonFinite
from fedsim.participation import Arrived
from fedsim.rng import Draws, Stream
from fedsim.runtime.jobs import Batch, Reply, Setting
from fedsim.runtime.worker import advice

Array = npt.NDArray[Any]
SPENT = ("uplink_bits", "downlink_bits")


@dataclass(frozen=True)
class Progress:
    """What an observer sees after a round: for the eye, never for the run."""

    round: int
    active: int
    seconds: float  # median virtual time of the replicas that closed it
    uplink_bits: float  # median so far
    metrics: dict[str, float]  # the latest values (medians where per replica)


Observer = Callable[[Progress], None]


class Run:
    """Everything a way of keeping time needs, for replicas named by their position 0 ... R - 1."""

    def __init__(
        self, scenario: Any, setting: Setting, session: Any, observers: Iterable[Observer] = (), skip: bool = False
    ) -> None:  # fmt: skip
        check_data(scenario.problem, skip)
        self.scenario, self.setting, self.session = scenario, setting, session
        self.problem, self.algorithm, self.policy = scenario.problem, scenario.algorithm, scenario.participation
        self.network, self.devices, self.budget = scenario.network, scenario.devices, scenario.budget
        self.ways = ways(self.network)
        self.replicas = np.asarray(scenario.replica_numbers, np.int64)
        self.population, self.weights = self.problem.clients, setting.weights
        self.batched = bool(getattr(self.algorithm, "batched", False))
        self.skip = skip
        self.first_state, self.state = first_states(self.algorithm, self.problem, scenario.starts, skip)
        self.memory = memory_of(self.algorithm, self.problem, len(self.replicas), setting.dtype)
        self.recorder = Recorder(scenario.record, self.replicas, self.problem.dim, setting.dtype)
        self.judge = Judge(scenario, self.recorder)
        if not skip:
            self.judge.check(self.state["theta"], self.memory)
        self.spent = {name: np.zeros(len(self.replicas), np.int64) for name in SPENT}
        self.stopped_by = [""] * len(self.replicas)
        self.totals = nothing_yet(self.population)
        self.trace: list[tuple[int, int, float, int, str, int]] = []
        self.trace_saved = 0
        self.keeper: Any = None  # set by `simulate`
        self.noted = Noted()
        everybody = getattr(self.policy, "always", False) and always_on(self.devices)
        self.copies = scenario.reaches_all and self.network is not None and not everybody  # that take time
        self.reports_loss = "loss" in getattr(self.algorithm, "kept", ())
        self.observers = tuple(observers)
        self.path = ""  # which way of keeping time drives it
        self._shapes: dict[int, Shape] = {}
        self._latest: dict[str, float] = {}
        self.patience = Patience(self.budget, len(self.replicas))
        check_skip(self)

    @cached_property
    def cumulative(self) -> Array:
        """p_0, p_0 + p_1, ..., for policies that draw by weight."""
        return np.cumsum(self.weights)

    # --- State and memory ---------------------------------------------------------------------

    def broadcast(self, active: Array) -> dict[str, Array]:
        """The message of every active replica, stacked."""
        if self.skip:  # one will do for all
            one = self.algorithm.broadcast(self.first_state)
            return {n: np.broadcast_to(m, (len(active), *np.shape(m))) for n, m in one.items()}
        state = {n: s[active] for n, s in self.state.items()}
        if self.batched:
            return {n: np.asarray(m) for n, m in self.algorithm.broadcast(state).items()}
        parts = [self.algorithm.broadcast({n: s[i] for n, s in state.items()}) for i in range(len(active))]
        return {n: np.stack([np.asarray(p[n]) for p in parts]) for n in parts[0]}

    def down_bits(self, message: dict[str, Array]) -> int:
        """Bits of one copy of a broadcast."""
        return message_bits(message, getattr(self.algorithm, "known", ()))

    def copied(self, who: Cohort) -> Any:
        """How many copies of a broadcast go to clients that were not selected."""
        return self.population - who.sizes if self.scenario.reaches_all else 0

    def losses(self, position: Array, reply: Reply) -> Array:
        """The losses that these replies report, one number each, for policies to look at."""
        losses = reply.values["loss"].reshape(len(position)).astype(np.float64)
        self.noted.add("losses", position, losses)
        return losses

    def recall(self, position: Array, client: Array) -> dict[str, Array]:
        """The clients' memory rows."""
        return {n: m[position, client] for n, m in self.memory.items()}

    def _commit(self, position: Array, client: Array, memory: dict[str, Array]) -> None:
        """Clients remember only what the server has folded."""
        for n, m in memory.items():
            self.memory[n][position, client] = m

    def reply_shape(self, round: int) -> Shape:
        """What a reply consists of; the first round may differ from all later ones (a message without history)."""
        at = min(round, 1)
        if at not in self._shapes:
            self._shapes[at] = reply_shape(self.algorithm, self.problem, self.first_state, self.setting.dtype, at)
        return self._shapes[at]

    def fates(self, opened: Array, position: Array, client: Array, round: Any, visit: Any = 0) -> Fates:
        """What is drawn for visits that begin now."""

        def draws(stream: Stream) -> Draws:
            key = self.setting.backend.keys(
                self.setting.seed, stream, replica=self.replicas[position], client=client, round=round, visit=visit
            )
            return Draws(key, source=self.setting.backend)

        work = np.asarray(self.algorithm.work(Visitors(client)), np.float64) * self._examples(client)
        return fates(self.devices, opened, client, work, draws)

    def _examples(self, client: Array) -> Any:
        """Rows per local step, where the devices' time counts examples."""
        if self.devices is None or not getattr(self.devices, "per_example", False):
            return 1.0
        sizes, batch_size = self.problem.sizes[client], getattr(self.algorithm, "batch_size", None)
        return sizes if batch_size is None else rows_per_batch(batch_size, sizes, client)

    async def compute(self, batch: Batch) -> Reply:
        """The batch's replies from the runtime; nothing is asked of it where there is nothing to do."""
        shape = self.reply_shape(batch.round)
        if self.skip or not len(batch):
            return Reply(shape.values, np.empty(0, np.int64), {n: m[:0, 0] for n, m in self.memory.items()})
        work = float(np.max(self.algorithm.work(Visitors(batch.client))))
        reply: Reply = await self.session.submit(batch, work)
        if shape.bits is not None and (reply.bits != shape.bits).any():
            raise InvalidInput(
                f"{type(self.algorithm).__name__}: a reply of {reply.bits.max()} bits in round {batch.round + 1}, "
                f"where the clock had reckoned with {shape.bits}; its size must not depend on data, client or round"
            )
        return reply

    async def replies(self, active: Array, round: int, who: Cohort, message: dict[str, Array]) -> Reply:
        """The replies of a synchronous cohort; its rows index both `active` and the message."""
        position = active[who.row]
        visit = np.zeros(len(position), np.int64)
        memory = self.recall(position, who.client)
        return await self.compute(Batch(round, self.replicas[position], who.client, visit, message, who.row, memory))

    def fold(self, active: Array, round: int, who: Cohort, reply: Reply, staleness: Array) -> None:
        """The server's step for the active replicas; `who` are the replies that arrived, its rows index `active`."""
        if self.skip:
            return
        values = reply.values
        arrived = Arrived(self.weights[who.client], who.multiplicity, who.starts, self.population, self.policy)
        weigh = getattr(self.algorithm, "weigh", None) or getattr(self.policy, "weigh", None)
        a = weigh(arrived) if weigh else arrived.normalised(arrived.p)
        everybody = len(active) == len(self.replicas)  # then nothing need be picked out
        state = self.state if everybody else {n: s[active] for n, s in self.state.items()}
        backend = self.setting.backend
        key = backend.keys(self.setting.seed, Stream.SERVER, replica=self.replicas[active], round=round)
        if self.batched:
            replies = Replies(
                values, who.client, who.multiplicity, staleness, a, who.starts, round, state, self.population,
                backend, single=False,
            )  # fmt: skip
            new = self.algorithm.server(state, replies, Draws(key, source=backend))
        else:
            new = self._fold_one_by_one(round, who, values, staleness, a, state, key)
        for n, s in new.items():
            self._check_finite(n, np.asarray(s), active, round)
            self.state[n][active] = s
        self._commit(active[who.row], who.client, reply.memory)

    def _fold_one_by_one(
        self, round: int, who: Cohort, values: Any, staleness: Array, a: Array, state: Any, key: Array
    ) -> dict[str, Array]:
        rows = []
        for r in range(len(key)):
            own = slice(who.starts[r], who.starts[r + 1])
            mine = {n: s[r] for n, s in state.items()}
            replies = Replies(
                {n: v[own] for n, v in values.items()}, who.client[own], who.multiplicity[own], staleness[own], a[own],
                np.array([0, own.stop - own.start]), round, mine, self.population, self.setting.backend, single=True,
            )  # fmt: skip
            rows.append(self.algorithm.server(mine, replies, Draws(key[r : r + 1], True, self.setting.backend)))
        return {n: np.stack([np.asarray(row[n]) for row in rows]) for n in rows[0]}

    def uploaded(self, position: Array, client: Array, sent: Array, round: Any) -> None:
        """A round's visits, before it is known whether it counts: whoever has sent a bit has given something away."""
        if self.judge.ledger is not None:
            said = sent > 0
            started = round if np.ndim(round) == 0 else round[said]
            self.judge.ledger.add(position[said], client[said], started)

    # --- Closing a round --------------------------------------------------------------------------

    def within_budget(self, active: Array, columns: dict[str, Array]) -> Array:
        """Which active replicas may count this round; the others are stopped, and the round is discarded whole."""
        spent = {n: self.spent[n][active] + columns[n] for n in SPENT}
        spent["total_bits"] = spent["uplink_bits"] + spent["downlink_bits"]
        spent["seconds"] = columns["closed_s"]
        if self.judge.ledger is not None:
            spent["epsilon"] = self.judge.ledger.epsilon()[active]
        ok = np.ones(len(active), bool)
        for name, over in self.budget.crossed(spent):
            self.stop(active[over & ok], name)
            ok &= ~over
        return ok

    def close(self, active: Array, number: int, columns: dict[str, Array]) -> Array:
        """Record round `number` (from 1) of these replicas; returns those that go on."""
        for n in SPENT:
            self.spent[n][active] += columns[n]
        self.patience.after(active, number, columns)
        theta = self.state["theta"] if self.skip else self.state["theta"][active]
        if not self.skip:
            self.recorder.sample(number, active, theta)
        last = self.budget.rounds is not None and number >= self.budget.rounds
        due = number % self.scenario.evaluate_every == 0 or last
        per_replica: dict[str, Array] = {}
        overall: dict[str, float] = {}
        if due and self.judge.metrics and not self.skip:
            spent = {n: self.spent[n][active] for n in SPENT} | {"seconds": columns["closed_s"]}
            per_replica, overall = self.judge.after(active, theta, spent, self.memory, self.state)
        self.recorder.round(number, active, columns, per_replica)
        if overall:
            self.recorder.metrics.append(self._progress_columns(number, active, columns) | overall)
        going = self._going(active, number, per_replica, overall)
        if self.observers:
            self._observe(number, active, columns, per_replica, overall)
        return going

    def _going(self, active: Array, number: int, per_replica: Any, overall: Any) -> Array:
        go = np.ones(len(active), bool)
        if self.budget.target is not None:
            value = per_replica.get(self.budget.target.metric, overall.get(self.budget.target.metric))
            if value is not None:
                go &= ~np.broadcast_to(self.budget.target.reached(value), go.shape)
            self.stop(active[~go], "target")
        if self.budget.rounds is not None and number >= self.budget.rounds:
            self.stop(active[go], "rounds")
            go[:] = False
        return active[go]

    def stop(self, positions: Sequence[int] | Array, reason: str) -> None:
        """These replicas are over; a thinned row that is being summed for them ends here."""
        for i in positions:
            self.stopped_by[i] = reason
        self.recorder.flush(np.asarray(positions, np.int64))

    def _progress_columns(self, number: int, active: Array, columns: dict[str, Array]) -> dict[str, Any]:
        return {
            "round": number,
            "seconds": float(np.median(columns["closed_s"])),
            "uplink_bits": float(np.median(self.spent["uplink_bits"][active])),
            "downlink_bits": float(np.median(self.spent["downlink_bits"][active])),
        }

    def _observe(self, number: int, active: Array, columns: Any, per_replica: Any, overall: Any) -> None:
        self._latest |= overall | {n: float(np.nanmedian(v)) for n, v in per_replica.items()}
        at = self._progress_columns(number, active, columns)
        progress = Progress(number, len(active), at["seconds"], at["uplink_bits"], dict(self._latest))
        for observer in self.observers:
            observer(progress)

    # --- Traces ----------------------------------------------------------------------------

    def tracer(self, position: int) -> Callable[[float, int, str, int], None] | None:
        """Where a replica's clock writes its events, if they are kept."""
        if not self.scenario.record.events:
            return None
        replica, rows, counter = int(self.replicas[position]), self.trace, self.recorder.closed
        return lambda time_s, client, event, bits: rows.append(
            (replica, counter[position] + 1, time_s, client, event, bits)
        )

    # --- Checks -------------------------------------------------------------------------------------

    def _check_finite(self, name: str, value: Array, active: Array, round: int) -> None:
        if not np.isfinite(value).all():
            row = int(np.argmin(np.isfinite(value).reshape(len(value), -1).all(axis=1)))
            raise NonFinite(
                f"the server's {name} is not finite in round {round + 1} (replica {self.replicas[active][row]}, "
                f"seed {self.setting.seed}); {advice(self.algorithm, self.setting)}"
            )

"""Visits in flight: what is drawn for them, the call of the ClientApp, and the bits of its reply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsim.engine.clock.simpy.on_demand import VisitClock
from fedsim.engine.clock.simpy.visits import Visit, each
from fedsim.engine.system import System
from fedsim.errors import ClientFailed, NonFinite
from fedsim.flower import flwr_names as flwr
from fedsim.flower.messages import Meter, encoded
from fedsim.flower.node_ids import NodeIds
from fedsim.flower.nodes import Call, ClientCaller, Executor, NodeAnswer
from fedsim.flower.recorded import Recorded
from fedsim.flower.sent import Sent
from fedsim.flower.superlink import HEARTBEATS_S, SuperLink
from fedsim.flower.work import SECONDS, WorkModel
from fedsim.protocols import Codec
from fedsim.rules.visits import ARRIVED, BEFORE, LATE


@dataclass
class Nodes:
    """The nodes of a run, and how their ClientApps are called."""

    system: System
    ids: NodeIds
    config: Callable[[int], dict[str, Any]]
    executor: Executor
    caller: ClientCaller  # makes contexts
    work: WorkModel
    codec: Codec | None
    strict: bool
    recorded: Recorded  # answers of an earlier run, and what checkpoints need


@dataclass
class NodeFailure:
    """An exception that a ClientApp raised."""

    client: int
    number: int
    round: int
    text: str

    def __str__(self) -> str:
        return f"node {self.client}, message {self.number}, round {self.round}: {self.text}"


class InFlight:
    """The visits of one run; their replies go to its SuperLink."""

    def __init__(self, nodes: Nodes, superlink: SuperLink, meter: Meter) -> None:
        self.nodes, self.superlink, self.meter = nodes, superlink, meter
        self.clock = VisitClock(nodes.system, self._ended)
        self.failures: list[NodeFailure] = []
        self.failure: Exception | None = None  # that ends the run
        self.uplink_bits = 0
        self._by_visit: dict[Visit, Sent] = {}  # until the visit has ended
        self._visits_of: dict[int, int] = {}  # by client
        self._states: dict[int, Any] = {}  # by client: what it has kept

    def start(self, sent: list[Sent]) -> None:
        """Start the visits of messages that are sent now."""
        self._draw(sent)
        for one in sent:
            self._start(one)

    def _draw(self, sent: list[Sent]) -> None:
        """Draw what the devices do in these visits: together where they are of one row."""
        groups: dict[tuple[int, int], list[Sent]] = {}
        for one in sent:
            groups.setdefault((one.row.number, one.visit.visit), []).append(one)
        system, now_s = self.nodes.system, self.clock.now_s
        for (round, number), group in groups.items():
            client = np.array([one.visit.client for one in group], np.int64)
            drawn = each(system.draw_outcomes(0, client, round, now_s, number))
            online = system.online_s(0, client, now_s) == now_s
            for one, own, is_online in zip(group, drawn, online.tolist(), strict=True):
                one.visit.drawn = own if is_online else own._replace(drop=BEFORE)
                if not is_online:
                    self.superlink.lose(one, now_s)

    def _start(self, one: Sent) -> None:
        client = one.visit.client
        self.superlink.accept(one)
        self._by_visit[one.visit] = one
        if self.nodes.executor.eager and one.visit.drawn.drop != BEFORE and not self._visits_of.get(client):
            one.node = self._call(one)
            if not self.nodes.recorded.has(one.number):
                one.submitted = self.nodes.executor.submit(one.node)
        self._visits_of[client] = self._visits_of.get(client, 0) + 1
        self.clock.start(one.visit, one.bits, lambda visit: self._computed(one))

    def _call(self, one: Sent) -> Call:
        client, nodes = one.visit.client, self.nodes
        created_s = one.expires_s - float(one.message.metadata.ttl)
        return Call(
            one.number, nodes.ids.of(client), nodes.config(client), created_s, one.message, self._states.get(client)
        )  # fmt: skip

    def _computed(self, one: Sent) -> int:
        """Call the ClientApp, set the visit's compute time and return the reply's bits; its download has ended."""
        try:
            return self._reply_bits(one)
        except Exception as error:  # raised when the clock has stepped: SimPy would wrap it
            self.failure = self.failure or error
            return 0

    def _reply_bits(self, one: Sent) -> int:
        nodes, visit = self.nodes, one.visit
        answer, work = self._answer(one), 0.0
        if answer.failed:
            failure = NodeFailure(visit.client, one.number, one.row.number, answer.failed)
            self.failures.append(failure)
            if nodes.strict:
                raise ClientFailed(f"the ClientApp raised at {failure}; without strict=True it is an error reply")
        now_s = self.clock.now_s
        if answer.error is None:
            one.reply = one.replied(now_s, content=answer.content)
            assert one.node is not None
            if nodes.system.devices is not None or nodes.work.counts:
                context = nodes.caller.context(one.node, answer.state)
                work = nodes.work.work(one.message, one.reply, context, answer.counted)
        else:
            code, reason = answer.error
            one.reply = one.replied(now_s, error=flwr.Error(code, reason))
        client, alone = np.array([visit.client]), nodes.system.devices is None and nodes.work.counts == SECONDS
        seconds = nodes.system.compute_s(0, client, np.array([work]), one.row.number, visit.started_s, visit.visit)
        compute_s = (work if alone else float(seconds[0])) + answer.slept_s
        visit.drawn = visit.drawn._replace(compute_s=compute_s)
        one.date(one.reply, now_s + compute_s)
        if nodes.codec is None or answer.error is not None:
            bits, one.reply_id = self.meter.reply_bits(one.reply)
            return bits
        return self._encoded_bits(one, nodes.codec)

    def _answer(self, one: Sent) -> NodeAnswer:
        """Return what the ClientApp answers, or what it answered before the run was resumed."""
        if one.node is None:
            one.node = self._call(one)
        answer: NodeAnswer | None = self.nodes.recorded.find(one.number, one.node)
        if answer is None:
            submitted = self.nodes.executor.submit(one.node) if one.submitted is None else one.submitted
            answer = self.nodes.executor.result(submitted)
            self.nodes.recorded.add(one.number, one.node, answer)
        one.submitted, one.answer = None, answer
        return answer

    def _encoded_bits(self, one: Sent, codec: Codec) -> int:
        seed = self.nodes.system.scenario.seed
        try:
            wire = encoded(one.reply, one.message, codec, seed, one.visit.client, one.number)
        except NonFinite:
            raise NonFinite(
                f"node {one.visit.client}, round {one.row.number}: the reply holds a NaN or an infinity, which the "
                "codec cannot encode; lower the app's learning rate"
            ) from None
        _, one.reply_id = self.meter.reply_bits(one.reply)
        return self.meter.reply_bits(wire)[0]

    def _ended(self, visit: Visit) -> None:
        """Take the reply of a visit that has arrived, or have the SuperLink miss its node."""
        one = self._by_visit.pop(visit)
        self.uplink_bits += visit.up_bits
        self._visits_of[visit.client] -= 1
        if not self._visits_of[visit.client]:
            del self._visits_of[visit.client]
        if one.submitted is not None:
            self.nodes.executor.result(one.submitted)  # of a visit that broke before its download had ended
        if one.answer is not None and visit.computed_s == visit.computed_s and len(one.answer.state or ()):
            self._states[visit.client] = one.answer.state
        if visit.outcome != ARRIVED:
            self.superlink.lose(one, self.clock.now_s + HEARTBEATS_S)
        elif self.superlink.awaits(one):
            self.superlink.arrive(one, one.reply, self.clock.now_s)
        else:  # the SuperLink had sent an error in its place
            visit.outcome = LATE

"""Flower's Grid on fedsim's clock: messages travel as visits, and time passes while the ServerApp waits."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.engine.clock.simpy.on_demand import VisitClock
from fedsim.engine.clock.simpy.visits import Visit
from fedsim.engine.run import Progress
from fedsim.engine.system import System
from fedsim.errors import ClientFailed, InvalidInput, NonFinite
from fedsim.flower import flwr_names as flwr
from fedsim.flower.messages import Meter, encoded
from fedsim.flower.nodes import Call, ClientCaller, Executor, NodeAnswer
from fedsim.flower.recorded import Recorded
from fedsim.flower.rows import SendRow, metrics_of
from fedsim.flower.virtual_time import EPOCH_S, use_timekeeper
from fedsim.flower.work import SECONDS, WorkModel
from fedsim.rules.visits import ARRIVED, BEFORE, LATE

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict

HEARTBEATS_S = 60.0  # after two heartbeats of 30 s that did not come, a SuperLink takes a node for offline
POLL_S = 3.0  # between two polls of Flower's own Grid
MOST_IDLE = 100_000  # sleeps and polls in a row in which nothing is outstanding
MOST_READS = 10_000_000  # of the clock in a row, without a sleep


def id_of(number: int) -> str:
    """Return a message's id, as long as Flower's, which are SHA-256 digests."""
    return f"{number:064x}"


@dataclass(eq=False)
class Sent:
    """A message on its way, and its reply."""

    number: int
    row: SendRow
    message: Message
    expires_s: float
    visit: Visit
    bits: int
    submitted: Any = None  # to the runtime, before its download has ended
    answer: NodeAnswer | None = None
    node: Call | None = None
    reply: Message = None
    reply_id: str = ""
    arrived_s: float = inf


@dataclass
class Setup:
    """What a grid needs besides flwr."""

    system: System
    node_ids: list[int]
    node_config: Callable[[int], dict[str, Any]]
    executor: Executor
    caller: ClientCaller  # makes contexts
    work: WorkModel
    codec: Any
    strict: bool
    run: Any
    recorded: Recorded  # answers of an earlier run, and what checkpoints need
    observers: tuple[Callable[[Progress], None], ...] = ()


@dataclass
class NodeFailure:
    """An exception that a ClientApp raised."""

    client: int
    number: int
    round: int
    text: str

    def __str__(self) -> str:
        return f"node {self.client}, message {self.number}, round {self.round}: {self.text}"


@dataclass
class Grid(flwr.Grid):  # type: ignore[misc]
    """The network, as a ServerApp sees it. Its methods belong to the ServerApp's thread."""

    setup: Setup
    rows: list[SendRow] = field(default_factory=list)
    failures: list[NodeFailure] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = VisitClock(self.setup.system, self._ended)
        self._client_of = {node: client for client, node in enumerate(self.setup.node_ids)}
        self._groups: dict[str, SendRow] = {}
        self._outstanding: dict[str, Sent] = {}  # sent and not pulled, by message id
        self._by_visit: dict[Visit, Sent] = {}  # until the visit has ended
        self._visits_of: dict[int, int] = {}  # by client, in flight
        self._replies: list[tuple[float, int, str]] = []  # arrived and not pulled: time, number, message id
        self._errors: list[tuple[float, int, str, int]] = []  # heap of time, number, message id, code
        self._states: dict[int, Any] = {}
        self._meter, self._digest = Meter(), sha256()
        self._sent = self._idle = self._reads = self._uplink_bits = 0
        self._empty_at_s = -1.0
        self.failure: Exception | None = None

    # --- Flower's interface -----------------------------------------------------------------------------------------

    def set_run(self, run: Any) -> None:
        """The run is fixed."""

    @property
    def run(self) -> Any:
        return self.setup.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Any:  # fmt: skip
        return flwr.Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """Return the nodes that are online now."""
        if self.setup.system.always_online:
            return list(self.setup.node_ids)
        with use_timekeeper(None):
            online = np.flatnonzero(self.clock.online()).tolist()
        return [self.setup.node_ids[client] for client in online]

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        """Send messages now; return their ids."""
        messages = list(messages)
        if not messages:
            return []
        with use_timekeeper(None):
            self._check()
            self._idle = 0
            return self._push(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        """Return the replies to these messages that have arrived, in the order of arrival.

        A ServerApp that polls without sleeping would not let time pass: its second poll in vain at one instant waits
        for the next reply.
        """
        with use_timekeeper(None):
            self._check()
            wanted = set(message_ids)
            found = self._pull(wanted)
            if not found and wanted:
                if self._empty_at_s == self.clock.now_s:
                    outstanding = any(id in self._outstanding for id in wanted)
                    self._wait(inf) if outstanding else self._let_pass(POLL_S)
                    found = self._pull(wanted)
                self._empty_at_s = -1.0 if found else self.clock.now_s
            return found

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        """Send messages, and return the replies that arrive within `timeout` seconds."""
        began_s = self.clock.now_s
        wanted = set(self.push_messages(messages))
        found: list[Any] = []
        until_s = inf if timeout is None else began_s + timeout
        with use_timekeeper(None):
            while wanted:
                self._wait(until_s)
                replies = self._pull(wanted)
                found += replies
                wanted -= {reply.metadata.reply_to_message_id for reply in replies}
                if self.clock.now_s >= until_s:
                    break
            for id in wanted:  # the ServerApp stops waiting
                row = self._outstanding[id].row
                row.closed_s = max(row.closed_s, self.clock.now_s)
        return found

    # --- Time of the ServerApp's thread -------------------------------------------------------------------------------

    def read(self, name: str) -> float:
        self._reads += 1
        if self._reads > MOST_READS:
            raise self._refused("it reads the clock in a loop; call time.sleep in it")
        return self.clock.now_s + (EPOCH_S if name == "time" else 0.0)

    def created_s(self) -> float:
        return self.clock.now_s

    def sleep(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        with use_timekeeper(None):
            self._check()
            self._let_pass(float(seconds))

    # --- Sending ----------------------------------------------------------------------------------------------------

    def _push(self, messages: list[Any]) -> list[str]:
        now_s, clients = self.clock.now_s, [self._client(message) for message in messages]
        rows = self._rows_of(messages)
        sent = []
        with self._meter.at_once():
            for message, client, row in zip(messages, clients, rows, strict=True):
                self._sent += 1
                fields = vars(message.metadata)
                fields["_message_id"], fields["_src_node_id"] = id_of(self._sent), flwr.SUPERLINK
                fields["_run_id"] = self.run.run_id
                bits, content_id = self._meter.bits(message)
                self._digest.update(f"{self._sent} {client} {content_id} {now_s.hex()}\n".encode())
                visit = row.add(client, now_s, bits)
                expires_s = now_s + float(message.metadata.ttl)
                sent.append(Sent(self._sent, row, message, expires_s, visit, bits))
        self._draw(sent)
        for one in sent:
            self._start(one)
        return [id_of(one.number) for one in sent]

    def _draw(self, sent: list[Sent]) -> None:
        """Draw what the devices do in these visits: together where they are of one row."""
        groups: dict[tuple[int, int], list[Sent]] = {}
        for one in sent:
            groups.setdefault((one.row.number, one.visit.visit), []).append(one)
        system, now_s = self.setup.system, self.clock.now_s
        for (round, number), group in groups.items():
            client = np.array([one.visit.client for one in group], np.int64)
            columns = system.draw_outcomes(0, client, round, now_s, number)
            online = system.online_s(0, client, now_s) == now_s
            for one, tie, drop, fraction, is_online in zip(
                group, *(c.tolist() for c in columns), online.tolist(), strict=True
            ):
                one.visit.tie, one.visit.fraction = int(tie), float(fraction)
                one.visit.drop = int(drop) if is_online else BEFORE
                if not is_online:
                    self._post_error(one, now_s, flwr.ErrorCode.NODE_UNAVAILABLE)

    def _start(self, one: Sent) -> None:
        client = one.visit.client
        self._outstanding[id_of(one.number)] = self._by_visit[one.visit] = one
        heapq.heappush(self._errors, (one.expires_s, one.number, id_of(one.number), flwr.ErrorCode.MESSAGE_UNAVAILABLE))
        if self.setup.executor.eager and one.visit.drop != BEFORE and not self._visits_of.get(client):
            one.node = self._call(one)
            if not self.setup.recorded.has(one.number):
                one.submitted = self.setup.executor.submit(one.node)
        self._visits_of[client] = self._visits_of.get(client, 0) + 1
        self.clock.start(one.visit, one.bits, lambda visit: self._computed(one))

    def _call(self, one: Sent) -> Call:
        client = one.visit.client
        created_s = one.expires_s - float(one.message.metadata.ttl)
        return Call(
            one.number, self.setup.node_ids[client], self.setup.node_config(client), created_s, one.message,
            self._states.get(client),
        )  # fmt: skip

    def _client(self, message: Message) -> int:
        node = message.metadata.dst_node_id
        if node not in self._client_of:
            raise self._refused(f"it sends to node {node}, which does not exist; use the ids of grid.get_node_ids()")
        return self._client_of[node]

    def _rows_of(self, messages: Sequence[Any]) -> list[SendRow]:
        """Return the row of each message: its group's, or one for all that have none."""
        alone: SendRow | None = None
        found = []
        for message in messages:
            group = message.metadata.group_id
            row = self._groups.get(group) if group else alone
            if row is None:
                row = SendRow(len(self.rows) + 1, self.clock.now_s, self.clock.now_s)
                self.rows.append(row)
                if group:
                    self._groups[group] = row
                else:
                    alone = row
            if message.metadata.message_type not in row.types:
                row.types.append(message.metadata.message_type)
            found.append(row)
        return found

    # --- A visit ----------------------------------------------------------------------------------------------------

    def _computed(self, one: Sent) -> int:
        """Call the ClientApp, set the visit's compute time and return the reply's bits; its download has ended."""
        try:
            return self._reply_bits(one)
        except Exception as error:  # raised when the clock has stepped: SimPy would wrap it
            self.failure = self.failure or error
            return 0

    def _reply_bits(self, one: Sent) -> int:
        setup, visit = self.setup, one.visit
        answer, work = self._answer(one), 0.0
        if answer.failed:
            failure = NodeFailure(visit.client, one.number, one.row.number, answer.failed)
            self.failures.append(failure)
            if setup.strict:
                raise ClientFailed(f"the ClientApp raised at {failure}; without strict=True it is an error reply")
        now_s = self.clock.now_s
        if answer.error is None:
            one.reply = self._message(one, content=answer.content)
            assert one.node is not None
            if setup.system.devices is not None or setup.work.counts:
                context = setup.caller.context(one.node, answer.state)
                work = setup.work.work(one.message, one.reply, context, answer.counted)
        else:
            code, reason = answer.error
            one.reply = self._message(one, error=flwr.Error(code, reason))
        client, alone = np.array([visit.client]), setup.system.devices is None and setup.work.counts == SECONDS
        seconds = setup.system.compute_s(0, client, np.array([work]), one.row.number, visit.started_s, visit.visit)
        visit.compute_s = (work if alone else float(seconds[0])) + answer.slept_s
        vars(one.reply.metadata)["_created_at"] = EPOCH_S + now_s + visit.compute_s
        if setup.codec is None or answer.error is not None:
            bits, one.reply_id = self._meter.reply_bits(one.reply)
            return bits
        return self._encoded_bits(one)

    def _answer(self, one: Sent) -> NodeAnswer:
        """Return what the ClientApp answers, or what it answered before the run was resumed."""
        if one.node is None:
            one.node = self._call(one)
        answer: NodeAnswer | None = self.setup.recorded.find(one.number, one.node)
        if answer is None:
            submitted = self.setup.executor.submit(one.node) if one.submitted is None else one.submitted
            answer = self.setup.executor.result(submitted)
            self.setup.recorded.add(one.number, one.node, answer)
        one.submitted, one.answer = None, answer
        return answer

    def _encoded_bits(self, one: Sent) -> int:
        seed = self.setup.system.scenario.seed
        try:
            wire = encoded(one.reply, one.message, self.setup.codec, seed, one.visit.client, one.number)
        except NonFinite:
            raise NonFinite(
                f"node {one.visit.client}, round {one.row.number}: the reply holds a NaN or an infinity, which the "
                "codec cannot encode; lower the app's learning rate"
            ) from None
        _, one.reply_id = self._meter.reply_bits(one.reply)
        return self._meter.reply_bits(wire)[0]

    def _message(self, one: Sent, **parts: Any) -> Any:
        reply = flwr.Message(*parts.values(), reply_to=one.message)
        vars(reply.metadata)["_message_id"] = id_of(-one.number % 2**256)
        return reply

    def _ended(self, visit: Visit) -> None:
        """Take the reply of a visit that has arrived, or have the SuperLink miss its node."""
        one = self._by_visit.pop(visit)
        self._uplink_bits += visit.up_bits
        self._visits_of[visit.client] -= 1
        if not self._visits_of[visit.client]:
            del self._visits_of[visit.client]
        if one.submitted is not None:
            self.setup.executor.result(one.submitted)  # of a visit that broke before its download had ended
        if one.answer is not None and visit.computed_s == visit.computed_s and len(one.answer.state or ()):
            self._states[visit.client] = one.answer.state
        waited_for = id_of(one.number) in self._outstanding and one.arrived_s == inf
        if visit.outcome != ARRIVED:
            self._post_error(one, self.clock.now_s + HEARTBEATS_S, flwr.ErrorCode.NODE_UNAVAILABLE)
        elif waited_for:
            self._arrive(one, one.reply)
        else:  # the SuperLink had sent an error in its place
            visit.outcome = LATE

    def _post_error(self, one: Sent, time_s: float, code: int) -> None:
        heapq.heappush(self._errors, (time_s, one.number, id_of(one.number), code))

    def _arrive(self, one: Sent, reply: Message) -> None:
        one.reply, one.arrived_s = reply, self.clock.now_s
        heapq.heappush(self._replies, (one.arrived_s, one.number, id_of(one.number)))

    # --- Waiting ----------------------------------------------------------------------------------------------------

    def _advance(self, until_s: float) -> bool:
        """Handle the next instant; False if there is none until a time, which is now."""
        error_s = self._next_error_s()
        went = self.clock.step(min(until_s, error_s))
        if not went and error_s <= until_s:
            _, _, id, code = heapq.heappop(self._errors)
            one = self._outstanding[id]
            reason = "the SuperLink has no reply: the message expired, or its node is offline"
            self._arrive(one, self._message(one, error=flwr.Error(code, reason)))
            went = True
        self._check()
        return went

    def _next_error_s(self) -> float:
        while self._errors:
            one = self._outstanding.get(self._errors[0][2])
            if one is not None and one.arrived_s == inf:
                return self._errors[0][0]
            heapq.heappop(self._errors)
        return inf

    def _wait(self, until_s: float) -> None:
        """Let time pass until a reply arrives, or until a time."""
        self._reads = 0
        arrived = len(self._replies)
        while len(self._replies) == arrived and self._advance(until_s):
            pass

    def _let_pass(self, seconds: float) -> None:
        """Let time pass, whatever arrives."""
        self._reads = 0
        self._idle = 0 if self._outstanding else self._idle + 1
        if self._idle > MOST_IDLE:
            raise self._refused(f"no message is outstanding, and it has slept or polled {MOST_IDLE:,} times in a row")
        until_s = self.clock.now_s + seconds
        while self._advance(until_s):
            pass

    def _pull(self, wanted: set[str]) -> list[Any]:
        found, later = [], []
        while self._replies:
            entry = heapq.heappop(self._replies)
            if entry[2] in wanted:
                found.append(self._received(self._outstanding.pop(entry[2])))
            else:
                later.append(entry)
        self._replies = later  # sorted, so a heap
        if found:
            self._reads = self._idle = 0
            self._observe()
            self.setup.recorded.checkpoint(len(self.rows))
        return found

    def _received(self, one: Sent) -> Any:
        reply, now_s = one.reply, self.clock.now_s
        one.row.closed_s = max(one.row.closed_s, now_s)
        self._digest.update(f"{one.number} {one.reply_id} {one.arrived_s.hex()} {now_s.hex()}\n".encode())
        if reply.has_content():
            one.row.metrics[one.visit] = metrics_of(reply.content)
        return reply

    def _observe(self) -> None:
        for observer in self.setup.observers:
            observer(Progress(len(self.rows), 1, self.clock.now_s, float(self._uplink_bits), {}))

    # --- The end ----------------------------------------------------------------------------------------------------

    def finish(self) -> str:
        """End what is under way when the ServerApp has returned; return the digest of all messages and their times."""
        self._check()
        self.clock.cut()
        unpulled = {one.visit for one in self._outstanding.values()}
        for row in self.rows:
            if any(visit in unpulled for visit in row.visits) and row.closed_s == row.opened_s:
                row.closed_s = self.clock.now_s
            for visit in row.visits:
                if visit in unpulled and visit.outcome == ARRIVED:
                    visit.outcome = LATE
        return self._digest.hexdigest()[:16]

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _refused(self, why: str) -> InvalidInput:
        error = self.failure = InvalidInput(f"the ServerApp waits for ever, or cannot be served: {why}")
        return error

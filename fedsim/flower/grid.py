"""Flower's Grid on fedsim's clock: a ServerApp sends and pulls messages, and time passes while it waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.engine.run import Progress
from fedsim.errors import InvalidInput
from fedsim.flower import flwr_names as flwr
from fedsim.flower.in_flight import InFlight, Nodes
from fedsim.flower.messages import Meter
from fedsim.flower.rows import SendRow, metrics_of
from fedsim.flower.sent import Sent, id_of
from fedsim.flower.superlink import SuperLink
from fedsim.flower.virtual_time import EPOCH_S, use_timekeeper
from fedsim.rules.visits import ARRIVED, LATE

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict

POLL_S = 3.0  # between two polls of Flower's own Grid
MOST_IDLE = 100_000  # sleeps and polls in a row while no reply is under way
MOST_READS = 10_000_000  # of the clock in a row, without a sleep


@dataclass
class Grid(flwr.Grid):  # type: ignore[misc]
    """The network, as a ServerApp sees it. Its methods belong to the ServerApp's thread."""

    nodes: Nodes
    flower_run: Any
    observers: tuple[Callable[[Progress], None], ...] = ()
    rows: list[SendRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._meter, self._digest, self._superlink = Meter(), sha256(), SuperLink()
        self.visits = InFlight(self.nodes, self._superlink, self._meter)
        self.clock = self.visits.clock
        self._groups: dict[str, SendRow] = {}
        self._sent = self._idle = self._reads = 0
        self._empty_at_s, self._thread = -1.0, threading.get_ident()

    # --- Flower's interface -----------------------------------------------------------------------------------------

    def set_run(self, run: object) -> None:
        """The run is fixed."""

    @property
    def run(self) -> Any:
        return self.flower_run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Any:  # fmt: skip
        return flwr.Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """Return the nodes that are online now."""
        self._check()
        ids = self.nodes.ids
        if self.nodes.system.always_online:
            return ids.of_all(np.arange(len(ids)))
        with use_timekeeper(None):
            return ids.of_all(np.flatnonzero(self.clock.online()))

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
                    outstanding = any(id in self._superlink.outstanding for id in wanted)
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
                row = self._superlink.outstanding[id].row
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
                fields["_run_id"] = self.flower_run.run_id
                bits, content_id = self._meter.bits(message)
                self._digest.update(f"{self._sent} {client} {content_id} {now_s.hex()}\n".encode())
                visit = row.add(client, now_s, bits)
                expires_s = now_s + float(message.metadata.ttl)
                sent.append(Sent(self._sent, row, message, expires_s, visit, bits))
        self.visits.start(sent)
        return [one.id for one in sent]

    def _client(self, message: Message) -> int:
        node = message.metadata.dst_node_id
        client = self.nodes.ids.client_of(node)
        if client is None:
            raise self._refused(f"it sends to node {node}, which does not exist; use the ids of grid.get_node_ids()")
        return client

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

    # --- Waiting ----------------------------------------------------------------------------------------------------

    def _advance(self, until_s: float) -> bool:
        """Handle the next instant; False if there is none until a time, which is now."""
        error_s = self._superlink.next_error_s()
        went = self.clock.step(min(until_s, error_s))
        if not went and error_s <= until_s:
            self._superlink.send_error(self.clock.now_s)
            went = True
        self._check()
        return went

    def _wait(self, until_s: float) -> None:
        """Let time pass until a reply arrives, or until a time."""
        self._reads = 0
        arrived = self._superlink.replies
        while self._superlink.replies == arrived and self._advance(until_s):
            pass

    def _let_pass(self, seconds: float) -> None:
        """Let time pass, whatever arrives."""
        self._reads = 0
        self._idle = 0 if self._superlink.next_error_s() < inf else self._idle + 1
        if self._idle > MOST_IDLE:
            raise self._refused(f"no reply is under way, and it has slept or polled {MOST_IDLE:,} times in a row")
        until_s = self.clock.now_s + seconds
        while self._advance(until_s):
            pass

    def _pull(self, wanted: set[str]) -> list[Any]:
        found = [self._received(one) for one in self._superlink.pull(wanted)]
        if found:
            self._reads = self._idle = 0
            self._observe()
            self.nodes.recorded.checkpoint(len(self.rows))
        return found

    def _received(self, one: Sent) -> Any:
        reply, now_s = one.reply, self.clock.now_s
        one.row.closed_s = max(one.row.closed_s, now_s)
        self._digest.update(f"{one.number} {one.reply_id} {one.arrived_s.hex()} {now_s.hex()}\n".encode())
        if reply.has_content():
            one.row.metrics[one.visit] = metrics_of(reply.content)
        return reply

    def _observe(self) -> None:
        for observer in self.observers:
            observer(Progress(len(self.rows), 1, self.clock.now_s, float(self.visits.uplink_bits), {}))

    # --- The end ----------------------------------------------------------------------------------------------------

    def finish(self) -> str:
        """End what is under way when the ServerApp has returned; return the digest of all messages and their times."""
        self._check()
        self.clock.cut()
        unpulled = {one.visit for one in self._superlink.outstanding.values()}
        for row in self.rows:
            if any(visit in unpulled for visit in row.visits) and row.closed_s == row.opened_s:
                row.closed_s = self.clock.now_s
            for visit in row.visits:
                if visit in unpulled and visit.outcome == ARRIVED:
                    visit.outcome = LATE
        return self._digest.hexdigest()[:16]

    @property
    def failure(self) -> Exception | None:
        """What ends the run."""
        return self.visits.failure

    def _check(self) -> None:
        if threading.get_ident() != self._thread:
            self._refused("it calls the grid from a second thread; threads have no order in virtual time")
        if self.failure is not None:
            raise self.failure

    def _refused(self, why: str) -> InvalidInput:
        error = self.visits.failure = InvalidInput(f"the ServerApp waits for ever, or cannot be served: {why}")
        return error

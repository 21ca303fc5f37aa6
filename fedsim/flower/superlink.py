"""What a SuperLink keeps: messages without a reply, replies to pull, and errors that it sends in place of replies."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from fedsim.flower import flwr_names as flwr
from fedsim.flower.sent import Sent

if TYPE_CHECKING:
    from flwr.app import Message

HEARTBEATS_S = 60.0  # after two heartbeats of 30 s that did not come, a SuperLink takes a node for offline


class SuperLink:
    """Messages by id, and two queues in the order of time and message number."""

    def __init__(self) -> None:
        self.outstanding: dict[str, Sent] = {}  # sent and not pulled
        self._replies: list[tuple[float, int, str]] = []  # arrived and not pulled: time, number, message id
        self._errors: list[tuple[float, int, str, int]] = []  # heap of time, number, message id, code

    @property
    def replies(self) -> int:
        """How many replies wait to be pulled."""
        return len(self._replies)

    def accept(self, one: Sent) -> None:
        """Take a message; without a reply it expires."""
        self.outstanding[one.id] = one
        self._post(one, one.expires_s, flwr.ErrorCode.MESSAGE_UNAVAILABLE)

    def awaits(self, one: Sent) -> bool:
        """Return whether a message has no reply yet."""
        return one.id in self.outstanding and one.arrived_s == inf

    def arrive(self, one: Sent, reply: Message, now_s: float) -> None:
        """Take the reply to a message."""
        one.reply, one.arrived_s = reply, now_s
        heapq.heappush(self._replies, (now_s, one.number, one.id))

    def lose(self, one: Sent, noticed_s: float) -> None:
        """Notice at a later time that a message's node is offline."""
        self._post(one, noticed_s, flwr.ErrorCode.NODE_UNAVAILABLE)

    def next_error_s(self) -> float:
        """Return when the next message gets an error for a reply; inf: none does."""
        while self._errors:
            one = self.outstanding.get(self._errors[0][2])
            if one is not None and self.awaits(one):
                return self._errors[0][0]
            heapq.heappop(self._errors)
        return inf

    def send_error(self, now_s: float) -> None:
        """Reply to the message of `next_error_s` with its error."""
        _, _, id, code = heapq.heappop(self._errors)
        one = self.outstanding[id]
        reason = "the SuperLink has no reply: the message expired, or its node is offline"
        self.arrive(one, one.replied(now_s, error=flwr.Error(code, reason)), now_s)

    def pull(self, wanted: Iterable[str]) -> list[Sent]:
        """Give out those of the wanted replies that have arrived, in the order of arrival."""
        found, later = [], []
        while self._replies:
            entry = heapq.heappop(self._replies)
            if entry[2] in wanted:
                found.append(self.outstanding.pop(entry[2]))
            else:
                later.append(entry)
        self._replies = later  # sorted, so a heap
        return found

    def _post(self, one: Sent, time_s: float, code: int) -> None:
        heapq.heappush(self._errors, (time_s, one.number, one.id, code))

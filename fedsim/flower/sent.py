"""A message of the ServerApp, from its sending to its reply."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from fedsim.engine.clock.simpy.visits import Visit
from fedsim.flower import flwr_names as flwr
from fedsim.flower.nodes import Call, NodeAnswer
from fedsim.flower.rows import SendRow
from fedsim.flower.virtual_time import EPOCH_S

if TYPE_CHECKING:
    from flwr.app import Message


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
    arrived_s: float = inf  # when the SuperLink has the reply

    @property
    def id(self) -> str:
        return id_of(self.number)

    def replied(self, now_s: float, **parts: Any) -> Any:
        """Return a reply of now with a content or an error."""
        reply = flwr.Message(*parts.values(), reply_to=self.message)
        vars(reply.metadata)["_message_id"] = id_of(-self.number % 2**256)
        self.date(reply, now_s)
        return reply

    def date(self, reply: Message, created_s: float) -> None:
        """Set when a reply was made; it expires with its message, as in Flower."""
        fields = vars(reply.metadata)
        fields["_created_at"], fields["_ttl"] = EPOCH_S + created_s, self.expires_s - created_s

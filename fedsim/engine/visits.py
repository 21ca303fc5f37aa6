"""One client's way through a round on the clock: download, compute, upload, or lost on the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fedsim.engine.clock import Clock
from fedsim.engine.timeline import BEFORE, COMPUTE, UPLOAD


class Visit:
    """What is known of a visit, and where it stands."""

    __slots__ = (
        "arrived", "bits", "client", "compute_s", "ends_s", "flow", "fraction", "late", "memory", "message", "number", "over", "phase",
        "rank", "rate_bps", "reply", "row", "sending_s", "sent", "started_s", "stretch", "uploading", "version",
    )  # fmt: skip

    def __init__(self, row: int, client: int, compute_s: float, phase: int, fraction: float, rank: int) -> None:
        self.row, self.client, self.compute_s = row, client, compute_s
        self.phase, self.fraction, self.rank = phase, fraction, rank
        self.bits: int | None = None  # of the reply; None until it is known
        self.over = self.arrived = self.late = self.uploading = False
        self.sent = 0  # bits on the uplink
        self.started_s = self.ends_s = self.sending_s = 0.0
        self.rate_bps, self.flow, self.stretch = math.inf, None, 1.0
        self.version = self.number = 0
        self.message: dict[str, Any] = {}  # what it started from, and its client's memory then (asynchronous rounds)
        self.memory: dict[str, Any] = {}
        self.reply: Any = None


PROGRESS = 0  # at one instant everything else comes before the arrivals, which go by rank from 1 on
Trace = Callable[[float, int, str, int], None]


class Journeys:
    """Moves visits along the clock by event callbacks and reports each one's end once."""

    def __init__(
        self, clock: Clock, links: Any, ended: Callable[[Visit], None], blocked: Callable[[Visit], None], trace: Trace | None
    ) -> None:
        self.clock, self.links, self._ended, self._blocked, self._trace = clock, links, ended, blocked, trace
        self._silent = False

    def mute(self, silent: bool) -> None:
        """While the clock is wound forward its events were traced already."""
        self._silent = silent

    def start(self, visit: Visit, down_bits: int, offline_s: float = math.inf) -> None:
        """Send the broadcast; the visit is lost if its client goes offline before it is through."""
        visit.started_s = self.clock.now
        if visit.phase == BEFORE:
            self.clock.at(self.clock.now, lambda _: self._lose(visit))
            return
        if offline_s < math.inf:
            self.clock.at(max(offline_s, self.clock.now), lambda _: self._lose(visit))
        self.links.send(visit, False, down_bits, self._downloaded, PROGRESS)

    def abandon(self, visit: Visit) -> None:
        """The server calls the visit off: what it had sent by now was sent for nothing."""
        self._call_off(visit)
        visit.over, visit.late, visit.ends_s = True, True, self.clock.now
        self.note(visit, "late", visit.sent)

    def upload(self, visit: Visit) -> None:
        """The reply's size is known: send it, or as much of it as gets out."""
        assert visit.bits is not None
        visit.uploading = True
        if visit.phase == UPLOAD:
            visit.bits = math.floor(visit.fraction * visit.bits)
            self.links.send(visit, True, visit.bits, self._break_off, PROGRESS)
        else:
            self.links.send(visit, True, visit.bits, self._arrive, 1 + visit.rank)

    def note(self, visit: Visit, what: str, bits: int = 0) -> None:
        if self._trace is not None and not self._silent:
            self._trace(self.clock.now, visit.client, what, bits)

    def _downloaded(self, visit: Visit) -> None:
        self.note(visit, "download")
        now = self.clock.now
        computed = now + visit.compute_s
        if visit.phase == COMPUTE:
            self.clock.at(now + visit.fraction * (computed - now), lambda _: self._lose(visit))
        else:
            self.clock.at(computed, lambda _: None if visit.over else self._computed(visit))

    def _computed(self, visit: Visit) -> None:
        self.note(visit, "compute")
        if visit.bits is None:
            self._blocked(visit)
        else:
            self.upload(visit)

    def _arrive(self, visit: Visit) -> None:
        assert visit.bits is not None
        visit.arrived, visit.sent = True, visit.bits
        self._end(visit, "upload")

    def _break_off(self, visit: Visit) -> None:
        assert visit.bits is not None
        visit.sent = visit.bits
        self._end(visit, "drop")

    def _lose(self, visit: Visit) -> None:
        if not visit.over:
            self._call_off(visit)
            self._end(visit, "drop")

    def _call_off(self, visit: Visit) -> None:
        if visit.uploading:
            visit.sent = self.links.sent_bits(visit, visit.bits)
        elif visit.flow is not None:
            self.links.sent_bits(visit, 0)  # takes its download off the links

    def _end(self, visit: Visit, what: str) -> None:
        visit.over, visit.ends_s = True, self.clock.now
        self.note(visit, what, visit.sent)
        self._ended(visit)


"""One client's way through a round on the clock: download, compute, upload, or lost on the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fedsim.old_engine.arrivals import BEFORE, COMPUTE, UPLOAD
from fedsim.old_engine.clock import Clock, Moment


class Visit:
    """What is known of a visit, and where it stands. Values that most visits keep are the class's own."""

    over = arrived = late = downloaded = uploading = False
    sent = came_down = 0  # bits that left the client, and the server
    started_s = ends_s = 0.0
    sending_s, sending = 0.0, 0  # the message under way: when its first bit left, and its length
    flow: int | None = None  # on links that are shared, once it is there
    through = False  # that flow is over
    version = number = 0
    reply: Any = None
    job: Any = None  # the task that brings its reply, and the row in it, once its job is sent
    message: dict[str, Any]  # what it started from, and its client's memory then (asynchronous rounds)
    memory: dict[str, Any]

    def __init__(
        self, client: int, compute_s: float, phase: int, fraction: float, rank: int, bits: int | None, paths: Any
    ) -> None:
        self.client, self.compute_s = client, compute_s
        self.phase, self.fraction, self.rank = phase, fraction, rank
        self.bits = bits  # of the reply; None until it is known
        self.paths = paths


PROGRESS = 0  # at one instant everything else comes before the arrivals, which go by rank from 1 on
Trace = Callable[[float, int, str, int], None]


class VisitEvents:
    """Moves visits along the clock by event callbacks and reports each one's end once.

    A callback may come after its visit was called off; it then finds it over and does nothing.
    """

    def __init__(
        self,
        clock: Clock,
        links: Any,
        ended: Callable[[Visit], None],
        blocked: Callable[[Visit], None],
        trace: Trace | None,
    ) -> None:
        self.clock, self.links, self._ended, self._blocked, self._trace = clock, links, ended, blocked, trace
        self._at, self._send, self._heard = clock.at, links.send, trace
        self.came_down = 0  # bits of the downloads that ended, whole or cut
        self._on_until: dict[int, tuple[float, Visit]] = {}  # when a client goes off, and its latest visit

    def mute(self, silent: bool) -> None:
        """While the clock is wound forward its events were traced already."""
        self._trace = None if silent else self._heard

    def start(self, visit: Visit, down_bits: int, offline_s: float = math.inf) -> None:
        """Send the broadcast; the visit is lost if its client goes offline before it is through."""
        now = visit.started_s = self.clock.now
        if visit.phase == BEFORE:
            self._at(now, self._lose, PROGRESS, visit)
            return
        if offline_s < math.inf:
            self._watch(visit, max(offline_s, now))
        self._send(visit, False, down_bits, self._downloaded, PROGRESS)

    def abandon(self, visits: list[Visit]) -> None:
        """The server calls visits off: what had been sent by now was sent for nothing."""
        self._call_off(visits)
        for visit in visits:
            visit.over, visit.late, visit.ends_s = True, True, self.clock.now
            self._note_cut(visit)
            self._note(visit, "late", visit.sent)

    def upload(self, visit: Visit) -> None:
        """The reply's size is known: send it, or as much of it as gets out."""
        assert visit.bits is not None
        visit.uploading = True
        if visit.phase == UPLOAD:
            visit.bits = math.floor(visit.fraction * visit.bits)
            self._send(visit, True, visit.bits, self._break_off, PROGRESS)
        else:
            self._send(visit, True, visit.bits, self._arrive, 1 + visit.rank)

    def _note(self, visit: Visit, what: str, bits: int = 0) -> None:
        if self._trace is not None:
            self._trace(self.clock.now, visit.client, what, bits)

    def _watch(self, visit: Visit, offline_s: float) -> None:
        """One event for each of a client's on-periods, however many visits it has in it."""
        before = self._on_until.get(visit.client)
        self._on_until[visit.client] = (offline_s, visit)
        if before is None or before[0] != offline_s or offline_s == self.clock.now:  # that event may be over
            self._at(offline_s, self._goes_off, PROGRESS, visit)

    # --- What happens on the way ------------------------------------------------------------------------

    def _downloaded(self, moment: Moment) -> None:
        visit = moment.visit
        if visit.over:
            return
        visit.downloaded, visit.came_down = True, visit.sending
        self.came_down += visit.sending
        self._note(visit, "download", visit.sending)
        now = self.clock.now
        computed = now + visit.compute_s
        if visit.phase == COMPUTE:
            self._at(now + visit.fraction * (computed - now), self._lose, PROGRESS, visit)
        else:
            self._at(computed, self._computed, PROGRESS, visit)

    def _computed(self, moment: Moment) -> None:
        visit = moment.visit
        if visit.over:
            return
        self._note(visit, "compute")
        if visit.bits is None:
            self._blocked(visit)
        else:
            self.upload(visit)

    def _arrive(self, moment: Moment) -> None:
        visit = moment.visit
        if not visit.over:
            visit.arrived, visit.sent = True, visit.bits
            self._end(visit, "upload")

    def _break_off(self, moment: Moment) -> None:
        visit = moment.visit
        if not visit.over:
            visit.sent = visit.bits
            self._end(visit, "drop")

    def _lose(self, moment: Moment) -> None:
        visit = moment.visit
        if not visit.over:
            self._call_off([visit])
            self._note_cut(visit)
            self._end(visit, "drop")

    def _goes_off(self, moment: Moment) -> None:
        offline_s, visit = self._on_until[moment.visit.client]
        if offline_s == self.clock.now:
            moment.visit = visit  # the one that is under way, if any is
            self._lose(moment)

    def _call_off(self, visits: list[Visit]) -> None:
        """Take what is under way off the links, and note how much of it had left its sender."""
        cut = [v for v in visits if v.uploading or not (v.downloaded or v.phase == BEFORE)]
        for visit, bits in zip(cut, self.links.call_off(cut), strict=True):
            if visit.uploading:
                visit.sent = bits
            else:
                visit.came_down = bits
                self.came_down += bits

    def _note_cut(self, visit: Visit) -> None:
        if not visit.downloaded and visit.came_down:
            self._note(visit, "cut", visit.came_down)

    def _end(self, visit: Visit, what: str) -> None:
        visit.over, visit.ends_s = True, self.clock.now
        self._note(visit, what, visit.sent)
        self._ended(visit)

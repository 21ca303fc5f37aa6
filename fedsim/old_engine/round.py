"""A round of the timeline as a value: who was asked, what arrived when, what was sent. What was learnt is not in it.

A driver yields one `Round` of all active replicas at a time, or, where nobody looks in between, a `Stretch` of many;
`accounts.settle` does the rest, the same for every driver.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.arrays import Array, Arrays, Numbers

if TYPE_CHECKING:
    from fedsim.old_engine.copies import Copies

CAUSES = ("late_s", "dropped_s", "called_off_s")
Stopped = tuple[tuple[str, Array], ...]  # replicas that the clock itself has ended, by reason


@dataclass(frozen=True)
class Cohort:
    """Who takes part: one row per replica and different client, sorted by replica, then client."""

    row: Array  # (m,) position of the replica among the active ones
    client: Array  # (m,)
    multiplicity: Array  # (m,) how often the policy drew it
    starts: Array  # (replicas + 1,)

    @cached_property
    def sizes(self) -> Array:
        """How many rows each replica has."""
        return np.diff(self.starts)

    def part(self, chosen: Array) -> Cohort:
        """The rows where `chosen` holds."""
        if chosen.all():
            return self
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.row[chosen], minlength=len(self.starts) - 1))])
        return Cohort(self.row[chosen], self.client[chosen], self.multiplicity[chosen], starts)

    def first(self, count: int) -> Cohort:
        """Those of the first so many replicas."""
        own = slice(0, self.starts[count])
        return Cohort(self.row[own], self.client[own], self.multiplicity[own], self.starts[: count + 1])

    def among(self, kept: Array) -> Cohort:
        """The rows of the `kept` replicas, which are counted among themselves."""
        if kept.all():
            return self
        own = kept[self.row]
        starts = np.concatenate([[0], np.cumsum(self.sizes[kept])])
        return Cohort((np.cumsum(kept) - 1)[self.row[own]], self.client[own], self.multiplicity[own], starts)


@dataclass(frozen=True)
class Ended:
    """Visits that are over, one row each. Late ones were cut at the close: those that had begun to send their reply,
    and those that had not (`called_off`)."""

    client: Array  # (m,)
    arrived: Array  # bool (m,)
    dropped: Array
    late: Array
    called_off: Array
    up_bits: Array  # int64 (m,) that left the client
    down_bits: Array  # int64 (m,) that left the server
    spent_s: Array  # (m,) of the device, from the beginning of its download to its end
    site_bits: Array | None = None  # int64 (m,) that left it for other sites; None: it is no site
    late_messages: Array | None = None  # int64 (m,) to other sites that came too late
    unused_bits: Array | None = None  # int64 (m,) of messages to other sites that were not aggregated

    @cached_property
    def smooth(self) -> bool:
        """Whether every visit arrived."""
        return bool(self.arrived.all())

    def part(self, chosen: Array | slice) -> Ended:
        """The chosen rows."""
        return Ended(
            self.client[chosen], self.arrived[chosen], self.dropped[chosen], self.late[chosen],
            self.called_off[chosen], self.up_bits[chosen], self.down_bits[chosen], self.spent_s[chosen],
            *(None if a is None else a[chosen] for a in (self.site_bits, self.late_messages, self.unused_bits)),
        )  # fmt: skip

    @staticmethod
    def join(parts: list[Ended]) -> Ended:
        """Visits of consecutive rounds, of clients that are no sites."""
        names = [f.name for f in fields(Ended) if f.default is MISSING]
        return Ended(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    @property
    def between(self) -> Arrays:
        """What became of messages to other sites, by column of `rounds` and `clients`; no visit is late there."""
        if self.site_bits is None or self.late_messages is None or self.unused_bits is None:
            return {}
        return {"late": self.late_messages, "wasted_bits": self.unused_bits, "backhaul_bits": self.site_bits}

    @property
    def said(self) -> Array:
        """Which of them have sent something, so that somebody may have heard it."""
        return self.up_bits > 0 if self.site_bits is None else self.site_bits > 0

    @cached_property
    def lost(self) -> Ended:
        """Those that did not arrive."""
        return self.part(np.flatnonzero(~self.arrived))

    @cached_property
    def cause(self) -> Array:
        """Of visits that did not arrive: which of CAUSES their seconds were for nothing."""
        return np.where(self.dropped, 1, np.where(self.called_off, 2, 0))


@dataclass(frozen=True)
class Round:
    """Round `number` (from 0) of the replicas `active`, closed but not yet counted."""

    number: int
    active: Array  # (r,) positions of the replicas
    who: Cohort  # the visits that ended in it
    visits: Ended  # what became of them
    columns: Arrays  # (r,) each, see `columns`
    started: Any  # the round whose broadcast a visit set out from: one, or (m,)
    stopped: Stopped = ()
    copies: Copies | None = None  # where sites gossip
    selected: Cohort | None = None  # the visits that set out in it; None: those that ended in it
    replica: Any = ...  # where its replicas and visits stand in the round as the driver made it
    visit: Any = ...

    @cached_property
    def replied(self) -> Array:
        """Which visits' replies are folded, by whomever."""
        if self.copies is None:
            return self.visits.arrived
        needed = self.copies.folds.copy()  # a site's own
        heard = self.copies.folded & self.copies.folds[self.copies.row, self.copies.receiver]
        needed[self.copies.row[heard], self.copies.sender[heard]] = True
        return np.asarray(needed.ravel())

    @cached_property
    def arrived(self) -> Cohort:
        """Those whose replies are folded."""
        return self.who.part(self.replied)

    @cached_property
    def staleness(self) -> Array:
        """How many versions each reply that arrived is old."""
        if isinstance(self.started, int):
            return np.zeros(len(self.arrived.client), np.int64)
        return np.asarray(self.number - self.started[self.replied])

    @property
    def rows(self) -> Array:
        """Where its replicas stand in the round as the driver made it."""
        return np.arange(len(self.active)) if self.replica is ... else np.asarray(self.replica)

    def among(self, kept: Array) -> Round:
        """The same round of the `kept` replicas alone."""
        if kept.all():
            return self
        own = kept[self.who.row]
        return replace(
            self, active=self.active[kept], who=self.who.among(kept), visits=self.visits.part(own),
            columns={name: column[kept] for name, column in self.columns.items()},
            started=self.started if isinstance(self.started, int) else self.started[own],
            copies=None if self.copies is None else self.copies.among(kept),
            selected=None if self.selected is None else self.selected.among(kept),
            replica=np.flatnonzero(kept), visit=np.flatnonzero(own),
        )  # fmt: skip


@dataclass(frozen=True)
class Visits:
    """The visits of a stretch, round after round."""

    ended: Ended
    ends: Array  # (count,) where each round's visits end
    version: Array | None  # the round whose broadcast each set out from; None: its own
    replied: Array | None = None  # bool: whose replies were folded, by whomever; None: of those that arrived
    selected: tuple[Array, Array] | None = None  # clients whose visits set out, and where each round's end; as `Round`

    def first(self, count: int) -> Visits:
        """Those of the first so many rounds."""
        end = self.ends[count - 1] if count else 0
        version, replied = (None if a is None else a[:end] for a in (self.version, self.replied))
        selected = None
        if self.selected is not None:
            client, ends = self.selected
            selected = client[: ends[count - 1] if count else 0], ends[:count]
        return Visits(self.ended.part(slice(0, end)), self.ends[:count], version, replied, selected)


@dataclass(frozen=True)
class Stretch:
    """Rounds number ... number + count - 1; without `visits` everybody was asked and answered at once."""

    number: int
    active: Array
    columns: Arrays  # (count, r) each
    up_bits: int  # of one reply
    stopped: Stopped = ()
    visits: Visits | None = None
    who: Cohort | None = None  # whose visits they are, a row of it is a round of a replica; None: nobody learns of it
    learnt: tuple[Arrays, Arrays] | None = None  # states and memory, where lengths of replies had to be known first

    @property
    def count(self) -> int:
        return len(self.columns["closed_s"])

    def first(self, count: int) -> Stretch:
        """The first so many rounds of it."""
        if count == self.count:
            return self
        visits = None if self.visits is None else self.visits.first(count)
        who = None if self.who is None else self.who.first(count * len(self.active))
        columns = {name: column[:count] for name, column in self.columns.items()}
        return replace(self, columns=columns, visits=visits, who=who, learnt=None)


def all_arrived(number: int, active: Array, who: Cohort) -> Round:
    """A round without a clock: everybody asked has answered at once, for nothing."""
    m = len(who.client)
    yes, no, none = np.ones(m, bool), np.zeros(m, bool), np.zeros(m, np.int64)
    at = np.zeros(len(active))
    ended = Ended(who.client, yes, no, no, no, none, none, np.zeros(m))
    return Round(number, active, who, ended, columns(at, at, who.sizes, who.starts, ended, 0), number)


def nobody(number: int, stopped: Stopped) -> Round:
    """No round: the clock has ended every replica."""
    none = np.zeros(0, np.int64)
    who = Cohort(none, none, none, np.zeros(1, np.int64))
    no = none.astype(bool)
    return Round(number, none, who, Ended(none, no, no, no, no, none, none, none.astype(float)), {}, number, stopped)


def columns(
    opened: Array, closed: Array, selected: Array, starts: Array, e: Ended, copies: Numbers, backhaul: Numbers = 0
) -> Arrays:
    """The row of `rounds` of every replica, which owns the visits starts[r]:starts[r + 1].

    `copies` are bits to clients that were not selected, `backhaul` are those between an edge and the cloud.
    """
    sizes, up = np.diff(starts), _counts(e.up_bits, starts)
    down = _counts(e.down_bits, starts) + copies
    between = {name: _counts(x, starts) for name, x in e.between.items()}
    if e.smooth:
        return smooth_columns(opened, closed, sizes, up, down, selected, backhaul) | between
    arrived = _counts(e.arrived, starts)
    lost, sizes = e.lost, sizes - arrived  # the others have wasted nothing
    begin, bins = np.concatenate([[0], np.cumsum(sizes)]), len(CAUSES) * len(sizes)
    row = np.repeat(len(CAUSES) * np.arange(len(sizes)), sizes) + lost.cause
    late, dropped, called_off = np.bincount(row, minlength=bins).reshape(-1, len(CAUSES)).T
    # Visit after visit, so that all clocks round alike.
    seconds = dict(zip(CAUSES, np.bincount(row, lost.spent_s, minlength=bins).reshape(-1, len(CAUSES)).T, strict=True))
    return {
        "opened_s": opened, "closed_s": closed, "selected": selected, "arrived": arrived,
        "dropped": dropped, "late": late + called_off, "uplink_bits": up,
        "downlink_bits": down, "wasted_bits": _counts(lost.up_bits, begin),
        "dropped_bits": _counts(np.where(lost.dropped, lost.up_bits, 0), begin),
        "wasted_down_bits": _counts(lost.down_bits, begin),
        "wasted_s": seconds["late_s"] + seconds["dropped_s"] + seconds["called_off_s"],
        **seconds, "backhaul_bits": np.zeros(len(opened), np.int64) + backhaul, **between,
    }  # fmt: skip


def _counts(x: Array, starts: Array) -> Array:
    """The sums of x[starts[r]:starts[r + 1]], which are whole numbers: any order of summation is exact."""
    if x.strides == (0,) and len(x):  # one number for all
        return np.asarray(np.diff(starts) * x[0])
    total = np.zeros(len(x) + 1, np.int64)
    np.cumsum(x, out=total[1:])
    return np.asarray(total[starts[1:]] - total[starts[:-1]])


def smooth_columns(
    opened: Array, closed: Array, arrived: Array, up: Array, down: Array, selected: Array | None = None,
    backhaul: Numbers = 0,
) -> Arrays:  # fmt: skip
    """The same for rounds in which every visit arrived, of any shape."""
    none, no_time = np.zeros(opened.shape, np.int64), np.zeros(opened.shape)
    return {
        "opened_s": opened, "closed_s": closed, "selected": arrived if selected is None else selected,
        "arrived": arrived, "dropped": none, "late": none, "uplink_bits": up, "downlink_bits": down,
        "wasted_bits": none, "dropped_bits": none, "wasted_down_bits": none, "wasted_s": no_time,
        **dict.fromkeys(CAUSES, no_time),
        "backhaul_bits": none if isinstance(backhaul, int) and not backhaul
        else np.broadcast_to(np.asarray(backhaul, np.int64), opened.shape),
    }  # fmt: skip

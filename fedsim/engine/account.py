"""What a round's visits cost, and what of it was for nothing: the columns of `rounds`, the same for every clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
CAUSES = ("late_s", "dropped_s", "called_off_s")


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

    def part(self, chosen: Any) -> Ended:
        """The chosen rows."""
        return Ended(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def seconds(self) -> dict[str, Array]:
        """The device-seconds that were for nothing, by cause, (m,) each."""
        masks = (self.late & ~self.called_off, self.dropped, self.called_off)
        return {name: np.where(mask, self.spent_s, 0.0) for name, mask in zip(CAUSES, masks, strict=True)}


def ended(visits: list[Any]) -> Ended:
    """The rows of the event paths' visits."""
    names = ("client", "sent", "came_down", "arrived", "late", "uploading", "ends_s", "started_s")
    flat = {name: np.array([getattr(v, name) for v in visits], _dtype(name)) for name in names}
    arrived, late = flat["arrived"], flat["late"]
    return Ended(
        flat["client"], arrived, ~arrived & ~late, late, late & ~flat["uploading"], flat["sent"], flat["came_down"],
        flat["ends_s"] - flat["started_s"],
    )  # fmt: skip


def _dtype(name: str) -> Any:
    if name.endswith("_s"):
        return np.float64
    return np.int64 if name in ("client", "sent", "came_down") else bool


def columns(opened: Array, closed: Array, selected: Array, starts: Array, e: Ended, copies: Any) -> dict[str, Array]:
    """One row per replica, which owns the visits starts[r]:starts[r + 1]; `copies` are bits to who was not selected."""

    def count(x: Array) -> Array:
        if x.strides == (0,) and len(x):  # one number for all
            return np.asarray(np.diff(starts) * x[0])
        total = np.concatenate([[0], np.cumsum(x)])  # whole numbers: any order of summation is exact
        return np.asarray(total[starts[1:]] - total[starts[:-1]])

    down = count(e.down_bits) + copies
    if e.arrived.all():
        return {
            "opened_s": opened, "closed_s": closed, "selected": selected, "arrived": np.diff(starts),
            **_nothing(len(opened), "dropped", "late"), "uplink_bits": count(e.up_bits), "downlink_bits": down,
            **nothing_wasted((len(opened),)),
        }  # fmt: skip
    row = np.repeat(np.arange(len(opened)), np.diff(starts))
    # Visit after visit, so that all clocks round alike.
    seconds = {name: np.bincount(row, value, minlength=len(opened)) for name, value in e.seconds().items()}
    return {
        "opened_s": opened, "closed_s": closed, "selected": selected, "arrived": count(e.arrived),
        "dropped": count(e.dropped), "late": count(e.late), "uplink_bits": count(e.up_bits), "downlink_bits": down,
        "wasted_bits": count(np.where(e.arrived, 0, e.up_bits)),
        "wasted_down_bits": count(np.where(e.arrived, 0, e.down_bits)),
        "wasted_s": seconds["late_s"] + seconds["dropped_s"] + seconds["called_off_s"],
        **seconds,
    }  # fmt: skip


def nothing_wasted(shape: tuple[int, ...]) -> dict[str, Array]:
    """The columns of rounds in which every visit was folded."""
    bits = {name: np.zeros(shape, np.int64) for name in ("wasted_bits", "wasted_down_bits")}
    return bits | {name: np.zeros(shape) for name in ("wasted_s", *CAUSES)}


def _nothing(rows: int, *names: str) -> dict[str, Array]:
    return {name: np.zeros(rows, np.int64) for name in names}

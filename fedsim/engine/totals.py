"""What each client's visits came to, over all rounds and replicas."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.engine.account import CAUSES, Ended

Array = npt.NDArray[Any]
Totals = dict[str, Array]  # one column per name, one row per client
COUNTS = (
    "selected", "arrived", "dropped", "late", "uplink_bits", "wasted_bits", "wasted_down_bits",
    "staleness", "last_round",
)  # fmt: skip


def nothing_yet(population: int) -> Totals:
    """`staleness` is summed over the replies; `last_round` is the latest round that folded one, 0 for none."""
    counts = {name: np.zeros(population, np.int64) for name in COUNTS}
    return counts | {name: np.zeros(population) for name in ("wasted_s", *CAUSES)}


def tally(totals: Totals, e: Ended, number: int, staleness: Array | None = None) -> None:
    """Add visits that counted in round `number` (from 1); `staleness` has a row for each that arrived."""
    add = _add_small if len(totals["selected"]) <= len(e.client) else np.add.at
    add(totals["selected"], e.client, 1)
    add(totals["uplink_bits"], e.client, e.up_bits)
    smooth = bool(e.arrived.all())
    heard = e.client if smooth else e.client[e.arrived]
    totals["last_round"][heard] = number
    if staleness is not None:
        np.add.at(totals["staleness"], heard, staleness)
    if smooth:
        add(totals["arrived"], e.client, 1)
        return
    lost = ~e.arrived
    for name, value in (("arrived", e.arrived), ("dropped", e.dropped), ("late", e.late)):
        add(totals[name], e.client, value)
    seconds = e.seconds()
    for name, value in (
        ("wasted_bits", np.where(lost, e.up_bits, 0)), ("wasted_down_bits", np.where(lost, e.down_bits, 0)),
        ("wasted_s", np.where(lost, e.spent_s, 0.0)), *seconds.items(),
    ):  # fmt: skip
        add(totals[name], e.client, value)


def _add_small(total: Array, client: Array, value: Any) -> None:
    """np.add.at for a population smaller than the round: one pass instead of one step each. Exact below 2**53."""
    weights = None if isinstance(value, int) else value
    total += np.bincount(client, weights, minlength=len(total)).astype(total.dtype)

"""What every client did over the whole run, all replicas together."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.engine.visits import Visit

Array = npt.NDArray[Any]
Totals = dict[str, Array]  # one column per name, one row per client
NAMES = ("selected", "arrived", "dropped", "late", "uplink_bits", "wasted_bits")


def nothing_yet(population: int) -> Totals:
    return {name: np.zeros(population, np.int64) for name in NAMES}


def tally(totals: Totals, client: Array, arrived: Array, dropped: Array, late: Array, sent: Array) -> None:
    """Add visits that counted."""
    add = _add_small if len(totals["selected"]) <= len(client) else np.add.at
    add(totals["selected"], client, 1)
    add(totals["uplink_bits"], client, sent)
    if arrived.all():
        add(totals["arrived"], client, 1)
        return
    wasted = np.where(arrived, 0, sent)
    for name, value in (("arrived", arrived), ("dropped", dropped), ("late", late), ("wasted_bits", wasted)):
        add(totals[name], client, value)


def tally_visits(totals: Totals, visits: list[Visit]) -> None:
    """The same for the event path's visits."""
    client, sent = (np.array([getattr(v, n) for v in visits], np.int64) for n in ("client", "sent"))
    arrived, late = (np.array([getattr(v, n) for v in visits], bool) for n in ("arrived", "late"))
    tally(totals, client, arrived, ~arrived & ~late, late, sent)


def _add_small(total: Array, client: Array, value: Any) -> None:
    """np.add.at for a population smaller than the round: one pass instead of one step each. Exact below 2**53."""
    weights = None if isinstance(value, int) else value
    total += np.bincount(client, weights, minlength=len(total)).astype(np.int64)

"""The columns of edges under a cloud, besides those of every compiled clock (`state`). No Numba here.

A visit has its client's place in `visits`, behind them the edges have theirs: for their message to the cloud, or its
answer. `round` of the state is that of the edge that something happens at. Rounds that some edge has not closed yet
have headers one after another, from round `base` on.
"""

from __future__ import annotations

import numpy as np

from fedsim.kernels.old_clock import state

OPENS = state.STOPS + 1  # an edge begins its next round, if enough of its clients are on
NOTES = (*state.NOTES, "to cloud", "merge", "from cloud")
TO_CLOUD, MERGE, FROM_CLOUD = range(len(state.NOTES), len(NOTES))
AHEAD = 10_000  # as in `fedsim.old_engine.tiers`

EDGE = np.dtype([  # its latest round and the next; `begin` to `end` are its clients in `members`, and who is in `asked`
    ("round", "i8"), ("next", "i8"), ("open", "i8"), ("opened", "f8"), ("selected", "i8"), ("in_flight", "i8"),
    ("arrived", "i8"), ("begin", "i8"), ("end", "i8"),
])  # fmt: skip
HEADER = np.dtype([  # of a round: edges that have not closed it, or whose state the cloud has not got
    ("missing", "i8"), ("opened", "f8"), ("closed", "f8"), ("selected", "i8"), ("end_notes", "i8"),
])  # fmt: skip

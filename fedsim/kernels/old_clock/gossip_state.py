"""The columns of sites that gossip, besides those of every compiled clock (`state`). No Numba here.

A row of `clients` is the device of a site and, in its columns of the way up, the way of a message; a row of `visits` is
a message under way. Rounds that some site has not closed yet stand one after another, from round `base` on.
"""

from __future__ import annotations

import numpy as np

from fedsim.kernels.old_clock import state

OPENS = state.STOPS + 1  # a site begins its next round, if it is on
NOTES = (*state.NOTES, "hear")
HEAR = len(state.NOTES)
AHEAD = 10_000  # as in `fedsim.old_engine.gossip_replica`

SITE = np.dtype([  # where a site stands; `latest` is the last round that it opened
    ("round", "i8"), ("latest", "i8"), ("open", "i1"), ("done", "i1"), ("overdue", "i1"), ("phase", "i1"),
    ("fraction", "f8"), ("begin", "i8"), ("end", "i8"),  # of its messages in `outgoing`
])  # fmt: skip
MESSAGE = np.dtype([("receiver", "i8"), ("sender", "i8")])
MIXED = np.dtype([("it", "i1")])  # whether a mixing uses a message

HEADER = np.dtype([("missing", "i8"), ("end_notes", "i8")])  # of a round: sites that have not closed it
SITE_ROW = np.dtype([  # a site in a round; `outstanding` and `heard` count its neighbours' replies
    ("opened", "f8"), ("closed", "f8"), ("spent_s", "f8"), ("bits", "i8"), ("rank", "i8"),
    ("outstanding", "i8"), ("heard", "i8"), ("dropped", "?"), ("folds", "?"),
])  # fmt: skip
MESSAGE_ROW = np.dtype([("sent", "i8"), ("used", "?"), ("folded", "?"), ("lost", "?")])

"""Links and bundles of flows as rows, see `fedsim.network.route_bundles`. No Numba here."""

from __future__ import annotations

import numpy as np

LINK = np.dtype([
    ("capacity", "f8"),  # bits per second
    ("scale", "f8"),  # units per bit per second in which it is divided up
    ("load", "i8"),  # flows under way, if it is a trunk
    ("begin", "i8"),  # where the list of its busy bundles begins
    ("listed", "i8"),  # how many that list holds
    ("left", "i8"),  # while rates are being found: units not yet given away,
    ("unfixed", "i8"),  # flows that have no rate yet,
    ("at", "i8"),  # and how far its list has been worked off
])  # fmt: skip
BUNDLE = np.dtype([
    ("cap", "f8"),  # bits per second that its private links allow all its flows together
    ("key", "f8"),  # the cap on each flow under which it is listed, -1: not listed
    ("hop", "i4"),  # where its trunks begin
    ("hops", "i4"),  # how many there are
    ("flows", "i8"),  # under way
    ("stamp", "i8"),  # the latest refresh of its rate
    ("rate", "f8"),  # bits per second of each flow
    ("since", "f8"),  # when the clock was last read
    ("served", "f8"),  # what it said then: bits that each flow has had since the bundle became busy
    ("mark", "f8"),  # what it will say when the next flow is over
])  # fmt: skip

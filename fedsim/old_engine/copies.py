"""What sites that gossip told each other in a round: the part of a `Round` that a star has none of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsim.arrays import Array


@dataclass(frozen=True)
class Copies:
    """What sites that gossip told each other in a round: a row per copy that was expected, by receiver, then sender.

    Every replica has a visit of every client, and all its sites are named in `own`.
    """

    row: Array  # (k,) position of the replica among the active ones
    receiver: Array  # (k,)
    sender: Array  # (k,)
    weight: Array  # (k,) of the sender's reply at the receiver
    folded: Array  # bool (k,): it was there in time
    own: Array  # (r, sites) the weight of a site's own reply
    folds: Array  # bool (r, sites): the site folded; one whose own work was lost keeps its model

    def among(self, kept: Array) -> Copies:
        """Those of the `kept` replicas, which are counted among themselves."""
        mine = kept[self.row]
        rows = (self.receiver[mine], self.sender[mine], self.weight[mine], self.folded[mine])
        return Copies((np.cumsum(kept) - 1)[self.row[mine]], *rows, self.own[kept], self.folds[kept])

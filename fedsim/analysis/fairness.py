"""Who was heard: how often, how lately and how late, client by client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsim.analysis import timeline
from fedsim.errors import NotRecorded
from fedsim.results import Result

if TYPE_CHECKING:
    import pandas as pd


def fairness(result: Result) -> pd.DataFrame:
    """One row per client, over all rounds and replicas.

    `asked` and `heard` count visits and folded replies, `share` is of all folded replies; `late` and `dropped` count
    what was lost. `last_round` is the latest round in which any replica heard it (0: never), `staleness` how many
    versions behind its replies were on average, and `reply_s` how long after they were asked for they arrived on
    average (NaN without `record=fs.Record(events=True)`). `wasted_s` are its device's seconds that were for nothing.
    """
    import pandas as pd

    clients = result.clients
    if clients is None:
        raise NotRecorded("this result has no table of clients; run it again, or load the folder of a whole run")
    heard = clients["arrived"].to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        share, staleness = heard / heard.sum(), clients["staleness"].to_numpy() / heard
    frame = pd.DataFrame(
        {
            "client": clients["client"], "asked": clients["selected"], "heard": heard, "share": share,
            "late": clients["late"], "dropped": clients["dropped"], "last_round": clients["last_round"],
            "staleness": staleness, "reply_s": np.nan, "wasted_s": clients["wasted_s"],
        }
    )  # fmt: skip
    if result.events is not None:
        visits = timeline.visits(result)
        visits = visits[visits["outcome"] == "upload"]
        took = (visits["end_s"] - visits["select"]).groupby(visits["client"]).mean()
        frame["reply_s"] = frame["client"].map(took)
    return frame

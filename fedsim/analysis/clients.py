"""Client by client: who was heard how often, how lately and how late, and whose seconds were for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.analysis import figures, timeline
from fedsim.analysis.runs import Answer, facts, gather
from fedsim.errors import NotRecorded
from fedsim.results import Result

if TYPE_CHECKING:
    import pandas as pd


CAUSES = {"late_s": "late", "dropped_s": "dropped", "called_off_s": "called off"}


def heard(result: Result) -> pd.DataFrame:
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


def fairness(results: object) -> Answer:
    """`heard` of every run, one below the other; `frame.attrs["jain"]` is Jain's index of each run's shares.

    1 where all clients are heard equally often, 1/clients where only one is.
    """
    import pandas as pd

    runs = gather(results)
    frame = pd.concat([heard(one.result).assign(**facts(one)) for one in runs], ignore_index=True)
    jain, figure = {}, figures.blank(8, 4)
    axes = figure.subplots()
    for (label, own), colour in zip(frame.groupby("run", sort=False), figures.COLOURS * len(runs), strict=False):
        shares = np.sort(own.groupby("client")["heard"].sum().to_numpy(np.float64))
        total = shares.sum()
        jain[str(label)] = float(total**2 / (len(shares) * (shares**2).sum())) if total else 0.0
        poorest = np.linspace(0, 1, len(shares) + 1)
        axes.plot(poorest, np.append(0.0, np.cumsum(shares) / max(total, 1)), color=colour, label=label, lw=1.6)
    axes.plot([0, 1], [0, 1], color=figures.FAINT, lw=1, ls=(0, (4, 3)))
    axes.set(xlabel="share of the clients, those heard least first", ylabel="their share of all folded replies")
    axes.legend(frameon=False, fontsize=8)
    figures.plain(axes)
    frame.attrs["jain"] = jain
    return Answer(frame, figure)


def waste(results: object) -> Answer:
    """Seconds that devices spent on visits that were not folded, by cause: a row per run and cause.

    `device_s` is per replica; `share` is of all the run's wasted seconds, `bits` what those visits had sent up (all
    causes together, for bits are not told apart).
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    parts: dict[str, list[dict[str, float]]] = {}
    for one in gather(results):
        rounds, count = one.result.rounds, len(one.result.replicas)
        if missing := [name for name in CAUSES if name not in rounds]:
            raise NotRecorded(f"run {one.label!r} kept no {missing[0]}; run it again with this version of fedsim")
        spent = {cause: float(rounds[name].sum()) / count for name, cause in CAUSES.items()}
        total, bits = sum(spent.values()), int(rounds["wasted_bits"].sum()) / count
        parts.setdefault(one.label, []).append(spent)
        for cause, seconds in spent.items():
            share = seconds / total if total else 0.0
            rows.append(facts(one) | {"cause": cause, "device_s": seconds, "share": share, "bits": bits})
    figure = figures.blank(8, 1.8 + 0.3 * len(parts))
    bars = {
        label: {cause: float(np.mean([one[cause] for one in runs])) for cause in CAUSES.values()}
        for label, runs in parts.items()
    }
    figures.stacked(figure.subplots(), bars, "device-seconds wasted, per replica")
    return Answer(pd.DataFrame(rows), figure)

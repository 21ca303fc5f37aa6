"""Client by client: who was heard how often, how lately and how late, and whose seconds were for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.analysis import figures, timeline
from fedsim.analysis.inputs import Answer, facts, gather
from fedsim.arrays import Array
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


def jain(result: Result) -> list[float]:
    """Jain's index of the clients' received replies, one for each replica.

    1 where all clients contribute equally often, 1/clients where only one does. The table of clients sums over
    replicas, which levels it: of several replicas the index needs `record=fs.Record(events=True)`, and is NaN without.
    """
    table = result.clients
    if table is None:
        raise NotRecorded("this result has no table of clients; run it again, or load the folder of a complete run")
    if len(result.replicas) == 1:
        return [_jain(table["arrived"].to_numpy(np.float64))]
    if result.events is None:
        return [float("nan")] * len(result.replicas)
    visits = timeline.visits(result)
    there = visits[visits["outcome"] == "upload"].groupby(["replica", "client"]).size()
    each = there.unstack(fill_value=0).reindex(index=list(result.replicas), columns=table["client"], fill_value=0)
    return [_jain(row) for row in each.to_numpy(np.float64)]


def _jain(counts: Array) -> float:
    total = counts.sum()
    return float(total**2 / (len(counts) * (counts**2).sum())) if total else 0.0


def fairness(results: object) -> Answer:
    """`heard` of every run, one below the other; `frame.attrs["jain"]` is the median of `jain` over runs of a label.

    The lines show the counts of all its replicas and seeds together.
    """
    import pandas as pd

    runs = gather(results)
    frame = pd.concat([heard(one.result).assign(**facts(one)) for one in runs], ignore_index=True)
    indices: dict[str, list[float]] = {}
    for one in runs:
        indices.setdefault(one.label, []).extend(jain(one.result))
    figure = figures.blank(8, 4)
    axes = figure.subplots()
    for (label, own), colour in zip(frame.groupby("run", sort=False), figures.COLOURS * len(runs), strict=False):
        shares = np.sort(own.groupby("client")["heard"].sum().to_numpy(np.float64))
        total = shares.sum()
        poorest = np.linspace(0, 1, len(shares) + 1)
        axes.plot(poorest, np.append(0.0, np.cumsum(shares) / max(total, 1)), color=colour, label=label, lw=1.6)
    axes.plot([0, 1], [0, 1], color=figures.FAINT, lw=1, ls=(0, (4, 3)))
    axes.set(xlabel="share of the clients, those heard least first", ylabel="their share of all folded replies")
    axes.legend(frameon=False, fontsize=8)
    figures.plain(axes)
    frame.attrs["jain"] = {label: float(np.median(own)) for label, own in indices.items()}
    return Answer(frame, figure)


def wasted_bits(result: Result) -> dict[str, float]:
    """By cause, per replica; NaN where a result of an earlier version cannot tell the causes apart."""
    rounds, count = result.rounds, len(result.replicas)
    total = int(rounds["wasted_bits"].sum())
    if "dropped_bits" in rounds:
        dropped = float(rounds["dropped_bits"].sum())
    else:
        dropped = 0.0 if not rounds["dropped"].any() or not total else float("nan" if rounds["late"].any() else total)
    return {"late": (total - dropped) / count, "dropped": dropped / count, "called off": 0.0}


def waste(results: object) -> Answer:
    """Seconds that devices spent on visits that were not folded, by cause: a row per run and cause.

    `device_s` and `bits`, what those visits had sent up or over gossip to neighbours, are per replica and add up to the
    run's waste; `share` is of all its wasted seconds. A visit that was called off had sent nothing.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    parts: dict[str, list[dict[str, float]]] = {}
    for one in gather(results):
        rounds, count = one.result.rounds, len(one.result.replicas)
        if missing := [name for name in CAUSES if name not in rounds]:
            raise NotRecorded(f"run {one.label!r} kept no {missing[0]}; run it again with this version of fedsim")
        spent = {cause: float(rounds[name].sum()) / count for name, cause in CAUSES.items()}
        total, bits = sum(spent.values()), wasted_bits(one.result)
        parts.setdefault(one.label, []).append(spent)
        for cause, seconds in spent.items():
            share = seconds / total if total else 0.0
            rows.append(facts(one) | {"cause": cause, "device_s": seconds, "share": share, "bits": bits[cause]})
    figure = figures.blank(8, 1.8 + 0.3 * len(parts))
    bars = {
        label: {cause: float(np.mean([one[cause] for one in runs])) for cause in CAUSES.values()}
        for label, runs in parts.items()
    }
    figures.stacked(figure.subplots(), bars, "device-seconds wasted, per replica")
    return Answer(pd.DataFrame(rows), figure)

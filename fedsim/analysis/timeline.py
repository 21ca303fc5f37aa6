"""Where virtual time went: by phase, by cause of waste and by client.

`shares`, `visits` and the details of `waste` need a run with `record=fs.Record(events=True)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.analysis import figures
from fedsim.analysis.inputs import Answer, collect_runs, run_columns
from fedsim.arrays import Array
from fedsim.errors import NotRecorded
from fedsim.results import Result

if TYPE_CHECKING:
    import pandas as pd

STEPS = ("download", "compute", "upload")
OUTCOMES = ("upload", "drop", "late")
CAUSES = {"late_s": "late", "dropped_s": "dropped", "called_off_s": "called off"}


def shares(result: Result) -> dict[str, float] | None:
    """Return the share of the clients' time that each phase took; None without events or if no time passed.

    Synchronous rounds: `transfer`, `compute` and `wait` (from a reply's arrival to the close) as shares of the time
    from the opening to the close, over the clients whose reply was received. Asynchronous clients: `transfer`, `busy`
    (computing) and `idle` as shares of the time of all clients from the start to the last aggregation.
    """
    if result.events is None:
        return None
    clock = result.manifest.get("clock", {})
    if clock.get("asynchronous", "asynchronous" in clock.get("path", "")):
        return _shares_of_all(result)
    arrived = visits(result)
    arrived = arrived[arrived["outcome"] == "upload"].merge(
        result.rounds[["replica", "round", "closed_s"]], on=["replica", "round"]
    )
    total = float((arrived["closed_s"] - arrived["select"]).sum())
    if total <= 0:
        return None
    transfer, compute = _durations(arrived)
    phases = {"wait": arrived["closed_s"] - arrived["end_s"], "compute": compute, "transfer": transfer}
    return {name: float(durations.sum()) / total for name, durations in phases.items()}


def _shares_of_all(result: Result) -> dict[str, float] | None:
    """Return the shares of the time of all clients, idle ones included."""
    frame, last = visits(result), result.rounds.groupby("replica")["closed_s"].max()
    clients = frame["client"].nunique() if result.clients is None else len(result.clients)
    total = float(last.sum()) * clients
    if total <= 0:
        return None
    frame["end_s"] = frame["end_s"].fillna(frame["replica"].map(last))  # in flight when the run ended
    transfer, busy = (float(durations.sum()) / total for durations in _durations(frame))
    return {"idle": max(1.0 - transfer - busy, 0.0), "busy": busy, "transfer": transfer}


def _durations(frame: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the seconds of transfer and of computing per visit; an interrupted step ends with the visit."""
    downloaded = frame["download"].fillna(frame["end_s"])
    computed = frame["compute"].fillna(frame["end_s"])
    return (downloaded - frame["select"]) + (frame["end_s"] - computed), computed - downloaded


def visits(result: Result) -> pd.DataFrame:
    """Return one row per visit, ordered by replica and start.

    Columns: `replica, client, round` (in which the visit started); the instants `select, download, compute` (NaN for a
    step that was not completed) and `end_s`; the `outcome`: upload (the reply arrived), drop, late, or "" if the run
    ended first; `bits` that left the client and `down_bits` that left the server for it; of a Flower app also the
    metrics of the reply.
    """
    import pandas as pd

    if result.visits is not None:
        return result.visits.copy()
    if result.events is None:
        raise NotRecorded("this run has no timeline; run it again with record=fs.Record(events=True)")
    events = result.events[result.events["client"] >= 0]
    own = events.sort_values(["replica", "client"], kind="stable", ignore_index=True)  # keeps the order of a client
    own["visit"] = (own["event"] == "select").cumsum()
    when = own.pivot_table(index="visit", columns="event", values="time_s", aggfunc="first")
    when = when.reindex(columns=["select", "download", "compute", *OUTCOMES])
    first = own.drop_duplicates("visit").set_index("visit")[["replica", "client", "round"]]
    ends = own[own["event"].isin(OUTCOMES)].set_index("visit")
    frame = pd.concat([first, when[["select", "download", "compute"]]], axis=1)
    frame["end_s"], frame["outcome"], frame["bits"] = ends["time_s"], ends["event"], ends["bits"]
    frame["down_bits"] = own[own["event"].isin(["download", "cut"])].set_index("visit")["bits"]
    frame["outcome"] = frame["outcome"].fillna("")
    for name in ("bits", "down_bits"):
        frame[name] = frame[name].fillna(0).astype(np.int64)
    return frame.sort_values(["replica", "select", "client"], kind="stable", ignore_index=True)


def spans(row: Any) -> list[tuple[str, float, float]]:
    """Return the steps of a visit as (name, start, end); an interrupted step ends with the visit."""
    instants = [row.select, row.download, row.compute, row.end_s if row.outcome == "upload" else np.nan]
    found = []
    for name, start, end in zip(STEPS, instants, instants[1:], strict=False):
        if np.isnan(start):
            break
        end = row.end_s if np.isnan(end) else end
        if end > start:  # skips steps in flight when the run ended and steps without duration
            found.append((name, float(start), float(end)))
    return found


def contributions(result: Result) -> pd.DataFrame:
    """Return one row per client, summed over all rounds and replicas.

    `selected` and `received` count visits and aggregated replies; `share` is the client's share of all aggregated
    replies; `late` and `dropped` count lost visits. `last_round` is the latest round in which any replica received a
    reply (0: none). `staleness` is the mean age of its replies in versions, and `reply_s` the mean time from selection
    to arrival (NaN without events). `wasted_s` is the device time of its lost visits.
    """
    import pandas as pd

    clients = _clients(result)
    received = clients["arrived"].to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        share, staleness = received / received.sum(), clients["staleness"].to_numpy() / received
    frame = pd.DataFrame(
        {
            "client": clients["client"], "selected": clients["selected"], "received": received, "share": share,
            "late": clients["late"], "dropped": clients["dropped"], "last_round": clients["last_round"],
            "staleness": staleness, "reply_s": np.nan, "wasted_s": clients["wasted_s"],
        }
    )  # fmt: skip
    if result.events is not None:
        arrived = visits(result)
        arrived = arrived[arrived["outcome"] == "upload"]
        mean_s = (arrived["end_s"] - arrived["select"]).groupby(arrived["client"]).mean()
        frame["reply_s"] = frame["client"].map(mean_s)
    return frame


def jain(result: Result) -> list[float]:
    """Return Jain's fairness index of the clients' received replies, one per replica.

    It is 1 if all clients contribute equally often and 1/clients if only one does. The table of clients is a sum over
    replicas, so a run of several replicas needs `record=fs.Record(events=True)`; its index is NaN otherwise.
    """
    table = _clients(result)
    if len(result.replicas) == 1:
        return [_jain(table["arrived"].to_numpy(np.float64))]
    if result.events is None:
        return [float("nan")] * len(result.replicas)
    frame = visits(result)
    counts = frame[frame["outcome"] == "upload"].groupby(["replica", "client"]).size().unstack(fill_value=0)
    counts = counts.reindex(index=list(result.replicas), columns=table["client"], fill_value=0)
    return [_jain(row) for row in counts.to_numpy(np.float64)]


def _jain(counts: Array) -> float:
    total = counts.sum()
    return float(total**2 / (len(counts) * (counts**2).sum())) if total else 0.0


def _clients(result: Result) -> pd.DataFrame:
    if result.clients is None:
        raise NotRecorded("this result has no table of clients; run it again, or load the folder of a complete run")
    return result.clients


def fairness(results: object) -> Answer:
    """Return `contributions` of all runs in one table and draw their Lorenz curves.

    `frame.attrs["jain"]` has the median of `jain` per label. A curve is of all replicas and seeds of a label together.
    """
    import pandas as pd

    runs = collect_runs(results)
    frame = pd.concat([contributions(run.result).assign(**run_columns(run)) for run in runs], ignore_index=True)
    indices: dict[str, list[float]] = {}
    for run in runs:
        indices.setdefault(run.label, []).extend(jain(run.result))
    figure = figures.blank(8, 4)
    axes = figure.subplots()
    for (label, own), colour in zip(frame.groupby("run", sort=False), figures.COLOURS * len(runs), strict=False):
        counts = np.sort(own.groupby("client")["received"].sum().to_numpy(np.float64))
        lorenz = np.append(0.0, np.cumsum(counts) / max(counts.sum(), 1))
        axes.plot(np.linspace(0, 1, len(lorenz)), lorenz, color=colour, label=label, lw=1.6)
    axes.plot([0, 1], [0, 1], color=figures.FAINT, lw=1, ls=(0, (4, 3)))
    axes.set(xlabel="share of the clients, fewest contributions first", ylabel="share of all aggregated replies")
    axes.legend(frameon=False, fontsize=8)
    figures.plain(axes)
    frame.attrs["jain"] = {label: float(np.median(values)) for label, values in indices.items()}
    return Answer(frame, figure)


def waste(results: object) -> Answer:
    """Return the cost of visits whose reply was not aggregated: one row per run and cause.

    `late`: the round closed while the reply was on its way. `called off`: it closed before the client had a reply.
    `dropped`: the client dropped out. Columns, per replica: `device_s`; its `share` of the run's wasted seconds;
    `bits` sent up or to neighbours (0 for visits that were called off); and, with recorded events, `visits`,
    `down_bits`, `transfer_s` and `compute_s`.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    parts: dict[str, list[dict[str, float]]] = {}
    for run in collect_runs(results):
        seconds = wasted_seconds(run.result)
        if len(seconds) < len(CAUSES):
            absent = next(name for name, cause in CAUSES.items() if cause not in seconds)
            raise NotRecorded(f"run {run.label!r} has no column {absent}; run it again with this version of fedsim")
        total, bits, details = sum(seconds.values()), _wasted_bits(run.result), _lost_visits(run.result)
        parts.setdefault(run.label, []).append(seconds)
        for cause, value in seconds.items():
            share = value / total if total else 0.0
            row = {"cause": cause, "device_s": value, "share": share, "bits": bits[cause]}
            rows.append(run_columns(run) | row | details.get(cause, {}))
    bars = {
        label: {cause: float(np.mean([one[cause] for one in runs])) for cause in CAUSES.values()}
        for label, runs in parts.items()
    }
    figure = figures.blank(8, 1.8 + 0.3 * len(parts))
    figures.stacked(figure.subplots(), bars, "device-seconds wasted, per replica")
    return Answer(pd.DataFrame(rows), figure)


def wasted_seconds(result: Result) -> dict[str, float]:
    """Return the wasted device-seconds per replica by cause, for the causes that the run recorded."""
    recorded = {name: cause for name, cause in CAUSES.items() if name in result.rounds}
    return {cause: float(result.rounds[name].sum()) / len(result.replicas) for name, cause in recorded.items()}


def _wasted_bits(result: Result) -> dict[str, float]:
    """Return the wasted bits per replica by cause; NaN if an earlier version recorded only their sum."""
    rounds, count = result.rounds, len(result.replicas)
    total = int(rounds["wasted_bits"].sum())
    if "dropped_bits" in rounds:
        dropped = float(rounds["dropped_bits"].sum())
    else:
        dropped = 0.0 if not rounds["dropped"].any() or not total else float("nan" if rounds["late"].any() else total)
    return {"late": (total - dropped) / count, "dropped": dropped / count, "called off": 0.0}


def _lost_visits(result: Result) -> dict[str, dict[str, float]]:
    """Return the number, bits and seconds of the lost visits per replica by cause; {} without events."""
    if result.events is None:
        return {}
    frame, count = visits(result), len(result.replicas)
    late, computed = frame["outcome"] == "late", frame["compute"].notna()
    causes = {"late": late & computed, "called off": late & ~computed, "dropped": frame["outcome"] == "drop"}
    found = {}
    for cause, mask in causes.items():
        lost = frame[mask]
        transfer, compute = _durations(lost)
        totals = {"visits": len(lost), "down_bits": lost["down_bits"].sum()}
        totals |= {"transfer_s": transfer.sum(), "compute_s": compute.sum()}
        found[cause] = {name: float(value) / count for name, value in totals.items()}
    return found

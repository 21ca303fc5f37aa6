"""Gantt charts and trace files of recorded timelines: one lane per client, marks where sites aggregate.

In `events`, site s has the client number -1 - s; the cloud comes after its edges.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.analysis import figures
from fedsim.analysis.timeline import STEPS, spans, visits
from fedsim.errors import InvalidInput
from fedsim.results import Result, write_atomic

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SERVER = -1  # its thread in a trace is 0, that of client c is c + 1
SITE_THREADS = 1_000_000  # the threads of further sites, above those of the clients


def swimlanes(result: Result, path: str | Path, replica: int = 0, rounds: int = 6, first_round: int = 1) -> Path:
    """Save a Gantt chart (PNG) of some rounds of one replica: a lane per client, a bar per step of its visits."""
    if replica not in result.replicas:
        raise InvalidInput(f"swimlanes(replica={replica}): the run has the replicas {list(result.replicas)[:5]}")
    figure = figures.blank(11, 4)
    lanes = draw_rounds(figure.subplots(), result, replica, rounds, first_round)
    figure.set_figheight(min(1.6 + 0.3 * lanes, 20))
    image = BytesIO()
    figure.savefig(image, format="png", dpi=150)
    write_atomic(Path(path), image.getvalue())
    return Path(path)


def draw_rounds(
    axes: Axes, result: Result, replica: int, rounds: int, first_round: int = 1, most: int | None = None
) -> int:  # fmt: skip
    """Draw the lanes of the (first `most`) clients that were selected; return the number of lanes."""
    own = result.rounds[result.rounds["replica"] == replica]
    drawn = own[own["round"] >= first_round].head(rounds)
    if drawn.empty:
        raise InvalidInput(f"first_round={first_round}: replica {replica} has {len(own)} rounds; name one of them")
    frame = visits(result)
    start, until = float(drawn["opened_s"].iloc[0]), float(drawn["closed_s"].max())
    ends = frame["end_s"].fillna(until)
    frame = frame[(frame["replica"] == replica) & (frame["select"] < until) & ((ends > start) | (until == start))]
    lanes = sorted(frame["client"].unique())[:most]
    draw_lanes(axes, frame[frame["client"].isin(lanes)], lanes, drawn["closed_s"].to_numpy(), start, drawn["round"])
    return len(lanes) + _draw_sites(axes, result, replica, lanes, start, until)


def draw_lanes(
    axes: Axes, frame: pd.DataFrame, lanes: list[int], closes: Any, start_s: float = 0.0, numbers: Any = None
) -> None:  # fmt: skip
    """Draw visits as bars, one lane per client, and a numbered line at every close of a round."""
    lane = {client: i for i, client in enumerate(lanes)}
    until = float(np.max(closes, initial=0.0))
    steps = [(lane[row.client], *span) for row in frame.itertuples() for span in spans(row)]
    for name in STEPS:
        bars = [
            (at, max(start, start_s), min(end, until) - max(start, start_s))
            for at, step, start, end in steps
            if step == name and start < until and end > start_s
        ]
        places, starts, lengths = zip(*bars, strict=True) if bars else ((), (), ())
        axes.barh(places, lengths, 0.62, starts, color=figures.PHASES[name], label=name, zorder=2)
    for outcome, mark, label in (("drop", "x", "dropped out"), ("late", "|", "called off, late")):
        lost = frame[(frame["outcome"] == outcome) & (frame["end_s"] <= until)]
        if len(lost):
            axes.scatter(
                lost["end_s"], lost["client"].map(lane), marker=mark, s=46, color=figures.INK, lw=1.6, label=label,
                zorder=4, clip_on=False,
            )  # fmt: skip
    for i, close in zip(range(1, 1 + len(closes)) if numbers is None else numbers, closes, strict=True):
        axes.axvline(close, color=figures.FAINT, lw=1, zorder=3)
        axes.annotate(f"{i}", (close, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 3),
                      textcoords="offset points", ha="center", fontsize=8.5, color=figures.FAINT)  # fmt: skip
    figures.plain(axes)
    axes.grid(False, axis="y")
    axes.set_yticks(range(len(lanes)), [str(c) for c in lanes])
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_xlim(start_s, until + 0.01 * (until - start_s) if until > start_s else start_s + 1.0)
    axes.set_xlabel("virtual seconds; a numbered line marks the close of a round")
    axes.set_ylabel("client")
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: labels[i] not in STEPS)
    axes.legend(
        [handles[i] for i in order], [labels[i] for i in order], ncols=5, frameon=False, loc="lower left",
        bbox_to_anchor=(0.0, 1.04), fontsize=9,
    )  # fmt: skip


def _draw_sites(axes: Axes, result: Result, replica: int, lanes: list[int], start_s: float, until_s: float) -> int:
    """Mark where sites aggregate: on the client's lane for gossip, else on added lanes, whose number is returned."""
    if site_count(result) == 1 or result.events is None:
        return 0
    own, gossip = result.events, site_name(result, 0).startswith("site")
    inside = (own["replica"] == replica) & own["time_s"].between(start_s, until_s)
    own = own[own["event"].isin(["aggregate", "merge"]) & inside]
    sites = sorted({-1 - int(client) for client in own["client"]})
    if gossip:
        place = {site: lanes.index(site) for site in sites if site in lanes}
    else:
        place = {site: len(lanes) + i for i, site in enumerate(sites)}
    own = own[[-1 - int(client) in place for client in own["client"]]]
    at = [place[-1 - int(client)] for client in own["client"]]
    axes.scatter(
        own["time_s"], at, marker="D", s=22, color=figures.INK, label="a site aggregates", zorder=5, clip_on=False
    )
    if gossip:
        return 0
    names = [str(client) for client in lanes] + [site_name(result, site) for site in sites]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    return len(sites)


def site_count(result: Result) -> int:
    """Return the number of sites of the run."""
    return int(result.manifest.get("sites", {}).get("count", 1))


def site_name(result: Result, site: int) -> str:
    """Return "edge 0", "cloud", "site 3" or "server"."""
    kind = str(result.manifest.get("scenario", {}).get("exchange", {}).get("type", ""))
    if kind == "TiersExchange":
        return "cloud" if site == site_count(result) else f"edge {site}"
    return f"site {site}" if kind == "Gossip" else "server"


def to_chrome(result: Result, path: str | Path) -> Path:
    """Write the timeline as Chrome trace JSON, for chrome://tracing or ui.perfetto.dev.

    It has a process per replica and a thread per client; times are virtual microseconds.
    """
    events: list[dict[str, Any]] = []
    for replica in result.replicas:
        events.append({"name": "process_name", "ph": "M", "pid": replica, "args": {"name": f"replica {replica}"}})
        events.append(_thread(replica, SERVER + 1, "server" if site_count(result) == 1 else "rounds"))
    events += _site_events(result)
    frame = visits(result)
    for replica, client in sorted(set(zip(frame["replica"], frame["client"], strict=True))):
        events.append(_thread(replica, client + 1, f"client {client}"))
    for row in result.rounds.itertuples():
        place = {"pid": int(row.replica), "tid": SERVER + 1, "cat": "round"}
        counts = {n: int(getattr(row, n)) for n in ("selected", "arrived", "dropped", "late", "uplink_bits")}
        events.append(_span(f"round {row.round}", row.opened_s, row.closed_s, place, counts))
    for row in frame.itertuples():
        place = {"pid": int(row.replica), "tid": int(row.client) + 1, "cat": "visit"}
        for name, start, end in spans(row):
            events.append(_span(name, start, end, place, {"round": int(row.round)}))
        if row.outcome in ("drop", "late"):
            args = {"round": int(row.round), "wasted_bits": int(row.bits)}
            events.append({"name": row.outcome, "ph": "i", "s": "t", "ts": 1e6 * row.end_s, "args": args, **place})
    text = json.dumps({"displayTimeUnit": "ms", "traceEvents": events})
    write_atomic(Path(path), text.encode())
    return Path(path)


def _site_events(result: Result) -> list[dict[str, Any]]:
    """Return a thread per site and an instant per event of a site; nothing for a single site."""
    if site_count(result) == 1 or result.events is None:
        return []
    own = result.events[result.events["client"] < 0]
    sites = sorted(
        {(int(replica), -1 - int(client)) for replica, client in zip(own["replica"], own["client"], strict=True)}
    )
    return [_thread(replica, SITE_THREADS + site, site_name(result, site)) for replica, site in sites] + [
        {
            "name": row.event, "ph": "i", "s": "t", "ts": 1e6 * row.time_s, "pid": int(row.replica), "cat": "site",
            "tid": SITE_THREADS - 1 - int(row.client), "args": {"round": int(row.round), "bits": int(row.bits)},
        }
        for row in own.itertuples()
    ]  # fmt: skip


def _span(name: str, start_s: float, end_s: float, place: dict[str, Any], args: dict[str, int]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "ts": 1e6 * start_s, "dur": 1e6 * (end_s - start_s), "args": args, **place}


def _thread(replica: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": "thread_name", "ph": "M", "pid": int(replica), "tid": int(thread), "args": {"name": name}}

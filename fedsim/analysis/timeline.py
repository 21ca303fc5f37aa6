"""What a recorded timeline shows: where virtual time went, visit by visit, as numbers, a trace file or a picture.

All of it needs a run that kept its events, `record=fs.Record(events=True)`.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsim.analysis import figures
from fedsim.analysis import lanes as site_lanes
from fedsim.errors import InvalidInput, NotRecorded
from fedsim.results import Result, write_atomic

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

SERVER = -1  # the client number of what the server does; see `site_lanes` for further sites
STEPS = ("download", "compute", "upload")
ENDS = ("upload", "drop", "late")


def shares(result: Result) -> dict[str, float] | None:
    """Where the clients' time went. None unless the run kept its timeline and some of it took time.

    Synchronous rounds: of the time from the opening to the close, over the clients whose reply was folded, `transfer`,
    `compute`, and `wait`, which is from a reply's arrival to the close. Asynchronous ones: of all clients' time from
    the start to the last fold, `transfer`, `busy` computing, and `idle`.
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
    transfer, compute = _spent(arrived)
    wait = arrived["closed_s"] - arrived["end_s"]
    spans = {"wait": wait, "compute": compute, "transfer": transfer}
    return {name: float(span.sum()) / total for name, span in spans.items()}


def _shares_of_all(result: Result) -> dict[str, float] | None:
    """Of every client's every second, whether it had anything to do or not."""
    frame, last = visits(result), result.rounds.groupby("replica")["closed_s"].max()
    everybody = frame["client"].nunique() if result.clients is None else len(result.clients)
    total = float(last.sum()) * everybody
    if total <= 0:
        return None
    frame["end_s"] = frame["end_s"].fillna(frame["replica"].map(last))  # under way when the run ended
    transfer, busy = (float(span.sum()) / total for span in _spent(frame))
    return {"idle": max(1.0 - transfer - busy, 0.0), "busy": busy, "transfer": transfer}


def waste(result: Result) -> pd.DataFrame:
    """What visits cost that were not folded, by cause, over all rounds and replicas.

    `late`: the round closed while their reply was on its way; `called off`: it closed before they had one; `dropped`:
    they went off or broke off. Columns: `visits, uplink_bits, downlink_bits, transfer_s, compute_s`.
    """
    import pandas as pd

    frame = visits(result)
    late = frame["outcome"] == "late"
    causes = {
        "late": late & frame["compute"].notna(),
        "called off": late & frame["compute"].isna(),
        "dropped": frame["outcome"] == "drop",
    }
    rows = []
    for cause, mask in causes.items():
        own = frame[mask]
        transfer, compute = (float(span.sum()) for span in _spent(own))
        rows.append((cause, len(own), int(own["bits"].sum()), int(own["down_bits"].sum()), transfer, compute))
    names = ["cause", "visits", "uplink_bits", "downlink_bits", "transfer_s", "compute_s"]
    return pd.DataFrame(rows, columns=names).set_index("cause")


def _spent(frame: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Seconds of transfer and of compute, visit by visit; a step that was cut short ends with the visit."""
    downloaded = frame["download"].fillna(frame["end_s"])
    computed = frame["compute"].fillna(frame["end_s"])
    return (downloaded - frame["select"]) + (frame["end_s"] - computed), computed - downloaded


def visits(result: Result) -> pd.DataFrame:
    """One row per visit, in the order of their beginnings.

    `replica, client, round` (in which it began), the instants `select, download, compute` (NaN where it did not get
    that far), `end_s` and its `outcome`: upload (it arrived), drop, late, or "" where the run ended first; the `bits`
    that left the client and the `down_bits` that left the server for it; of a Flower app also what the reply measured.
    """
    import pandas as pd

    if result.visits is not None:
        return result.visits.copy()
    events = _events(result)
    events = events[events["client"] > SERVER]
    own = events.sort_values(["replica", "client"], kind="stable", ignore_index=True)  # rows of a client stay in order
    own["visit"] = (own["event"] == "select").cumsum()
    when = own.pivot_table(index="visit", columns="event", values="time_s", aggfunc="first")
    when = when.reindex(columns=["select", "download", "compute", *ENDS])
    first = own.drop_duplicates("visit").set_index("visit")[["replica", "client", "round"]]
    ends = own[own["event"].isin(ENDS)].set_index("visit")
    frame = pd.concat([first, when[["select", "download", "compute"]]], axis=1)
    frame["end_s"], frame["outcome"], frame["bits"] = ends["time_s"], ends["event"], ends["bits"]
    frame["down_bits"] = own[own["event"].isin(["download", "cut"])].set_index("visit")["bits"]
    frame["outcome"] = frame["outcome"].fillna("")
    for name in ("bits", "down_bits"):
        frame[name] = frame[name].fillna(0).astype(np.int64)
    return frame.sort_values(["replica", "select", "client"], kind="stable", ignore_index=True)


def to_chrome(result: Result, path: str | Path) -> Path:
    """Write the timeline as Chrome trace JSON, for chrome://tracing or ui.perfetto.dev: a process per replica,
    a thread per client, times in virtual microseconds."""
    events: list[dict[str, Any]] = []
    for replica in result.replicas:
        events.append({"name": "process_name", "ph": "M", "pid": replica, "args": {"name": f"replica {replica}"}})
        events.append(_thread(replica, SERVER, "server" if site_lanes.count(result) == 1 else "rounds"))
    events += site_lanes.chrome_events(result)
    frame = visits(result)
    for replica, client in sorted(set(zip(frame["replica"], frame["client"], strict=True))):
        events.append(_thread(replica, client, f"client {client}"))
    for row in result.rounds.itertuples():
        where = {"pid": int(row.replica), "tid": _tid(SERVER), "cat": "round"}
        counts = {n: int(getattr(row, n)) for n in ("selected", "arrived", "dropped", "late", "uplink_bits")}
        events.append(_span(f"round {row.round}", row.opened_s, row.closed_s, where, counts))
    for row in frame.itertuples():
        where = {"pid": int(row.replica), "tid": _tid(row.client), "cat": "visit"}
        for name, begin, end in spans(row):
            events.append(_span(name, begin, end, where, {"round": int(row.round)}))
        if row.outcome in ("drop", "late"):
            args = {"round": int(row.round), "wasted_bits": int(row.bits)}
            events.append({"name": row.outcome, "ph": "i", "s": "t", "ts": 1e6 * row.end_s, "args": args, **where})
    text = json.dumps({"displayTimeUnit": "ms", "traceEvents": events})
    write_atomic(Path(path), text.encode())
    return Path(path)


def swimlanes(result: Result, path: str | Path, replica: int = 0, rounds: int = 6, first_round: int = 1) -> Path:
    """Save a picture (PNG) of some rounds of one replica: a lane per client, a bar per step of its visits."""
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
    """The lanes of the clients that took part (the first `most` of them) and how many there are."""
    own = result.rounds[result.rounds["replica"] == replica]
    there = own[own["round"] >= first_round].head(rounds)
    if there.empty:
        raise InvalidInput(f"first_round={first_round}: replica {replica} has {len(own)} rounds; ask for one of them")
    frame = visits(result)
    begin, until = float(there["opened_s"].iloc[0]), float(there["closed_s"].max())
    over = frame["end_s"].fillna(until)
    frame = frame[(frame["replica"] == replica) & (frame["select"] < until) & ((over > begin) | (until == begin))]
    lanes = sorted(frame["client"].unique())[:most]
    draw_lanes(axes, frame[frame["client"].isin(lanes)], lanes, there["closed_s"].to_numpy(), begin, there["round"])
    return len(lanes) + site_lanes.draw(axes, result, replica, lanes, begin, until)


def draw_lanes(
    axes: Axes, frame: pd.DataFrame, lanes: list[int], closes: Any, begin_s: float = 0.0, numbers: Any = None
) -> None:  # fmt: skip
    """Visits as bars, one lane per client, and a line with the round's number at every close."""
    lane = {client: i for i, client in enumerate(lanes)}
    until = float(np.max(closes, initial=0.0))
    steps = [(lane[row.client], *span) for row in frame.itertuples() for span in spans(row)]
    for name in STEPS:
        bars = [
            (at, max(begin, begin_s), min(end, until) - max(begin, begin_s))
            for at, step, begin, end in steps
            if step == name and begin < until and end > begin_s
        ]
        places, begins, lengths = zip(*bars, strict=True) if bars else ((), (), ())
        axes.barh(places, lengths, 0.62, begins, color=figures.PHASES[name], label=name, zorder=2)
    for outcome, mark, text in (("drop", "x", "dropped out"), ("late", "|", "called off, late")):
        lost = frame[(frame["outcome"] == outcome) & (frame["end_s"] <= until)]
        if len(lost):
            axes.scatter(
                lost["end_s"], lost["client"].map(lane), marker=mark, s=46, color=figures.INK, lw=1.6, label=text,
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
    axes.set_xlim(begin_s, until + 0.01 * (until - begin_s) if until > begin_s else begin_s + 1.0)
    axes.set_xlabel("virtual seconds; a line where the server closed a round, with its number")
    axes.set_ylabel("client")
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: labels[i] not in STEPS)  # the steps first
    axes.legend(
        [handles[i] for i in order], [labels[i] for i in order], ncols=5, frameon=False, loc="lower left",
        bbox_to_anchor=(0.0, 1.04), fontsize=9,
    )  # fmt: skip


def spans(row: Any) -> list[tuple[str, float, float]]:
    """The steps of a visit as (name, begin, end); a step that was cut short ends with the visit."""
    instants = [row.select, row.download, row.compute, row.end_s if row.outcome == "upload" else np.nan]
    found = []
    for name, begin, end in zip(STEPS, instants, instants[1:], strict=False):
        if np.isnan(begin):
            break
        end = row.end_s if np.isnan(end) else end
        if end > begin:  # neither in flight when the run ended nor over at once
            found.append((name, float(begin), float(end)))
    return found


def _events(result: Result) -> pd.DataFrame:
    if result.events is None:
        raise NotRecorded("this run kept no timeline; run it again with record=fs.Record(events=True)")
    return result.events


def _span(name: str, begin_s: float, end_s: float, where: dict[str, Any], args: dict[str, int]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "ts": 1e6 * begin_s, "dur": 1e6 * (end_s - begin_s), "args": args, **where}


def _thread(replica: int, client: int, name: str) -> dict[str, Any]:
    return {"name": "thread_name", "ph": "M", "pid": int(replica), "tid": _tid(client), "args": {"name": name}}


def _tid(client: int) -> int:
    return int(client) + 1  # the server's lane comes first

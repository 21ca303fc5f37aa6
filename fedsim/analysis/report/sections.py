"""The sections of a page about one run; "" if the run recorded nothing for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsim import text
from fedsim.analysis import figures, summary, timeline
from fedsim.analysis.report import charts, html
from fedsim.arrays import Array
from fedsim.metrics import diagnostics
from fedsim.metrics.diagnostics import RHAT
from fedsim.network.drawing import positions
from fedsim.results import Result

if TYPE_CHECKING:
    import pandas as pd

ROUNDS = 5  # of the timeline
OUTCOMES = {"received": figures.COLOURS[3], "late": figures.COLOURS[1], "dropped": figures.COLOURS[2]}
CHAINS = 6  # replicas in a trace
COORDINATES = 50  # rows of the table of diagnostics


def numbers(result: Result) -> str:
    """Return cards of costs and final metrics: medians and 5 to 95 % ranges over replicas."""
    replicas = result.rounds.groupby("replica")
    spent = {
        "rounds": replicas["round"].max(), "virtual time": replicas["closed_s"].max(),
        "uplink": replicas["uplink_bits"].sum(), "downlink": replicas["downlink_bits"].sum(),
    }  # fmt: skip
    if "backhaul_bits" in result.rounds:
        spent["between sites"] = replicas["backhaul_bits"].sum()
    if "wasted_s" in result.rounds:
        spent["devices wasted"] = replicas["wasted_s"].sum()
    forms = {"rounds": text.number, "virtual time": text.seconds, "devices wasted": text.seconds}
    shown = {}
    for name, values in spent.items():
        form = forms.get(name, text.bits)
        low, middle, high = (form(float(values.quantile(q))) for q in (0.05, 0.5, 0.95))
        shown[name] = (middle, f"{low} to {high}" if low != high else "")
    for name, value in summary.final_metrics(result).items():
        shown[name] = (text.number(value), _judged(result, name))
    return html.cards(shown)


def scenario(result: Result) -> str:
    """Return the parts of the scenario, each as the call that makes it."""
    recorded = result.manifest.get("scenario")
    if not isinstance(recorded, dict):
        return ""
    names = (
        "problem",
        "algorithm",
        "exchange",
        "network",
        "devices",
        "participation",
        "budget",
        "replicas",
        "seed",
        "dtype",
    )
    rows = {name: text.recorded_call(recorded[name]) for name in names if recorded.get(name) is not None}
    clock = html.text(summary.clock(result), "note")
    return html.section("Scenario", html.facts(rows), clock)


def metrics(results: dict[str, Result]) -> str:
    """Return a plot of every metric against its cost, a line per result."""
    names = dict.fromkeys(name for result in results.values() for name in (*result.over_replicas, *result.per_replica))
    plots = []
    for metric in names:
        lines = {name: line(result, metric) for name, result in results.items() if metric in _evaluated(result)}
        lines = {name: table for name, table in lines.items() if len(table)}
        if lines:
            plots.append(html.plot(charts.curves(lines, metric), 380))
    note = "Buttons choose the cost. Bands are 5 to 95 % of the replicas." if plots else ""
    return html.section("Metrics against cost", html.text(note, "note"), *plots)


def line(result: Result, metric: str) -> pd.DataFrame:
    """Return a metric's curve against all costs."""
    import pandas as pd

    curve = result.curve(metric)
    columns: dict[str, Array] = {axis: result.curve(metric, axis)[axis].to_numpy(float) for axis in charts.AXES}
    columns["value"] = curve[metric].to_numpy(float)
    columns |= {name: curve[name].to_numpy(float) for name in ("low", "high") if name in curve}
    return pd.DataFrame(columns)


def rounds(result: Result) -> str:
    """Return the first rounds of the first replica as lanes of clients."""
    if result.events is None or result.events.empty or result.rounds.empty:
        return ""
    replica = result.replicas[0]
    own = result.rounds[result.rounds["replica"] == replica].sort_values("round").head(ROUNDS)
    until = float(own["closed_s"].max())
    visits = timeline.visits(result)
    visits = visits[(visits["replica"] == replica) & (visits["select"] < until)]
    busiest = visits["client"].value_counts().head(charts.BARS).index
    lanes = sorted(busiest)
    spans = [
        (str(row.client), phase, start, min(end, until))
        for row in visits[visits["client"].isin(lanes)].itertuples()
        for phase, start, end in timeline.spans(row)
        if start < until
    ]
    if not spans:
        return ""
    chart = charts.lanes(spans, own["closed_s"].tolist(), [str(client) for client in lanes])
    shares = timeline.shares(result)
    note = f"The first {len(own)} rounds of replica {replica}; a line marks the close of a round."
    if shares:
        note += (
            " Of all clients' time: "
            + ", ".join(f"{name} {text.share(max(s, 0.0))}" for name, s in shares.items())
            + "."
        )
    return html.section("Timeline", html.text(note, "note"), html.plot(chart, 140 + 22 * len(lanes)))


def network(result: Result) -> str:
    """Return the network of the manifest, with its bottleneck."""
    import networkx

    sketch = result.manifest.get("network")
    if not isinstance(sketch, dict) or not sketch.get("links"):
        return ""
    nodes, links = sketch["nodes"], sketch["links"]
    graph = networkx.Graph((a, b) for a, b, *_ in links)
    graph.add_nodes_from(range(len(nodes)))
    server = next((i for i, (_, kind) in enumerate(nodes) if kind == "server"), None)
    share = [float(bps) / count if count else np.inf for _, _, bps, count in links]
    worst = int(np.argmin(share)) if np.isfinite(share).any() else None
    chart = charts.network(nodes, links, positions(graph, server), worst)
    return html.section("Network", html.text(str(sketch.get("title", "")), "note"), html.plot(chart, 480))


def clients(result: Result) -> str:
    """Return the contributions and lost visits of the clients."""
    if result.clients is None or result.clients.empty:
        return ""
    frame = timeline.contributions(result).sort_values("received", kind="stable")
    frame = frame.drop(columns=[name for name in frame.columns if frame[name].isna().all()])
    few = frame.head(charts.BARS)
    parts = {
        f"client {row.client}": {
            "received": float(row.received),
            "late": float(row.late),
            "dropped": float(row.dropped),
        }
        for row in few.itertuples()
    }
    cut = f" The plot has the {charts.BARS} clients with the fewest contributions." if len(frame) > len(few) else ""
    index = float(np.median(timeline.jain(result)))
    even = f"Jain's index of the clients' contributions is {index:.2f} (1: all equally often), median over replicas."
    if np.isnan(index):
        even = "The counts are sums over replicas; Jain's index of a replica needs record=fs.Record(events=True)."
    note = f"{even}{cut}"
    chart = charts.bars(parts, "visits, over all replicas", OUTCOMES)
    return html.section(
        "Clients", html.text(note, "note"), html.plot(chart, 130 + 20 * len(few)), _wasted(result), html.table(frame)
    )


def _wasted(result: Result) -> str:
    spent = timeline.wasted_seconds(result)
    if not any(spent.values()):
        return ""
    by_cause = ", ".join(f"{cause} {text.seconds(value)}" for cause, value in spent.items())
    return html.text(f"Wasted device-seconds per replica: {by_cause}.", "note")


def posterior(result: Result) -> str:
    """Return traces and marginals of theta, and a scatter plot of the two coordinates that vary most."""
    draws = int(np.min(result.lengths, initial=len(result.sample_rounds)))
    if result.samples is None or draws < 2:
        return ""
    recorded = _flat(result.samples[:draws])
    spread = np.nan_to_num(recorded[draws // 2 :].std(axis=(0, 1)))
    first, *others = np.argsort(-spread, kind="stable")[:2]
    some = {f"replica {result.replicas[r]}": recorded[:, r, first] for r in range(min(CHAINS, recorded.shape[1]))}
    later = recorded[draws // 2 :].reshape(-1, recorded.shape[2])
    shown = {f"theta[{i}]": later[:, i] for i in (first, *others)}
    plots = [
        html.plot(charts.traces(result.sample_rounds[:draws], some, f"theta[{first}]"), 320),
        html.plot(charts.histograms(shown, "theta, second half of the recorded rounds"), 320),
    ]
    if others:
        names = (f"theta[{first}]", f"theta[{others[0]}]")
        plots.append(html.plot(charts.cloud(later[:, first], later[:, others[0]], names), 420))
    return html.section("Samples", *plots, _diagnostics(recorded))


def _diagnostics(recorded: Array) -> str:
    """Return mean, sd, R-hat and effective sample sizes of the coordinates, largest R-hat first."""
    import pandas as pd

    draws, _, d = recorded.shape
    later = recorded[draws // 2 :]
    if len(later) < diagnostics.MIN_DRAWS:
        return ""
    few = later[:, :, :COORDINATES]
    frame = pd.DataFrame(
        {
            "coordinate": np.arange(few.shape[2]), "mean": few.mean(axis=(0, 1)), "sd": few.std(axis=(0, 1), ddof=1),
            "R-hat": diagnostics.split_rhat(few), "bulk ESS": diagnostics.ess(few),
            "tail ESS": diagnostics.ess_tail(few),
        }
    ).sort_values("R-hat", ascending=False, kind="stable")  # fmt: skip
    cut = f" The first {COORDINATES} of {d:,} coordinates." if d > COORDINATES else ""
    note = f"Second half of the recorded rounds, replicas as chains; R-hat should be below {RHAT}.{cut}"
    return html.text(note, "note") + html.table(frame)


def _flat(samples: Array) -> Array:
    """Return samples of shape (rounds, replicas, d), averaged over sites if each was recorded."""
    return samples if samples.ndim == 3 else samples.mean(axis=2)


def _evaluated(result: Result) -> tuple[str, ...]:
    return (*result.over_replicas, *result.per_replica)


def _judged(result: Result, metric: str) -> str:
    judged = result.manifest.get("judged")
    what = judged.get(metric) if isinstance(judged, dict) else None
    return f"of {what}" if what else figures.METRIC_NAMES.get(metric, "")

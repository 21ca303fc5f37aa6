"""What sites did, for swim-lanes and traces of runs that have several: edges under a cloud, or clients that gossip.

In `events`, what site s does has the client number -1 - s; a cloud comes after its edges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedsim.analysis import figures
from fedsim.results import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

THREADS = 1_000_000  # of sites in a trace, beyond those of the clients


def count(result: Result) -> int:
    """How many sites the run has."""
    return int(result.manifest.get("sites", {}).get("count", 1))


def name(result: Result, site: int) -> str:
    """ "edge 0", "cloud", "site 3" or "server"."""
    kind = str(result.manifest.get("scenario", {}).get("exchange", {}).get("type", ""))
    if kind == "TiersExchange":
        return "cloud" if site == count(result) else f"edge {site}"
    return f"site {site}" if kind == "Gossip" else "server"


def chrome_events(result: Result) -> list[dict[str, Any]]:
    """A thread for every site, with an instant for whatever it heard, folded and sent; nothing where there is one."""
    if count(result) == 1 or result.events is None:
        return []
    own = result.events[result.events["client"] < 0]
    events: list[dict[str, Any]] = []
    for replica, client in sorted(set(zip(own["replica"], own["client"], strict=True))):
        site = -1 - int(client)
        events.append({
            "name": "thread_name", "ph": "M", "pid": int(replica), "tid": THREADS + site,
            "args": {"name": name(result, site)},
        })  # fmt: skip
    events += [
        {
            "name": row.event, "ph": "i", "s": "t", "ts": 1e6 * row.time_s, "pid": int(row.replica), "cat": "site",
            "tid": THREADS - 1 - int(row.client), "args": {"round": int(row.round), "bits": int(row.bits)},
        }
        for row in own.itertuples()
    ]  # fmt: skip
    return events


def draw(axes: Axes, result: Result, replica: int, lanes: list[int], begin_s: float, until_s: float) -> int:
    """A mark where a site folded: on its own client's lane over gossip, on lanes below them for edges and cloud.

    How many lanes were added.
    """
    if count(result) == 1 or result.events is None:
        return 0
    own, gossips = result.events, name(result, 0).startswith("site")
    there = (own["replica"] == replica) & own["time_s"].between(begin_s, until_s)
    own = own[own["event"].isin(["aggregate", "merge"]) & there]
    sites = sorted({-1 - int(client) for client in own["client"]})
    if gossips:
        place = {site: lanes.index(site) for site in sites if site in lanes}
    else:
        place = {site: len(lanes) + i for i, site in enumerate(sites)}
    own = own[[-1 - int(client) in place for client in own["client"]]]
    at = [place[-1 - int(client)] for client in own["client"]]
    axes.scatter(own["time_s"], at, marker="D", s=22, color=figures.INK, label="a site folds", zorder=5, clip_on=False)
    if gossips:
        return 0
    names = [str(client) for client in lanes] + [name(result, site) for site in sites]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    return len(sites)

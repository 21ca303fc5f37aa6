"""What the client hosts of a run on Ray model, as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fedsim import text

SHOWN = 20  # hosts
FORMS: dict[str, tuple[str, Callable[[float], str]]] = {  # title and form of a column of links and devices
    "uplink_bottleneck_bps": ("uplink", lambda value: f"{text.bits(value)}/s"),
    "uplink_delay_s": ("delay", text.seconds),
    "downlink_bottleneck_bps": ("downlink", lambda value: f"{text.bits(value)}/s"),
    "seconds_per_step": ("compute", lambda value: f"{text.seconds(value)}/step"),
    "dropout": ("dropout", text.share),
}


def host_lines(hosts: Sequence[dict[str, Any]], width: int = text.DEFAULT_WIDTH) -> list[str]:
    """Return a row for each host: its clients, where it ran, the bytes that it held, their links and devices."""
    shown = [name for name in FORMS if f"{name}_min" in (hosts[0] if hosts else {})]
    rows = [["host", "clients", "holds", *(FORMS[name][0] for name in shown), "node"]]
    for host in hosts[:SHOWN]:
        held = "" if host["bytes_held"] is None else text.size(host["bytes_held"])
        ranges = [_range(host[f"{name}_min"], host[f"{name}_max"], FORMS[name][1]) for name in shown]
        first, last = host["first"], host["last"]
        rows.append([str(host["host"]), f"{first}-{last}", held, *ranges, (host["node"] or "")[:8]])
    more = [f"and {len(hosts) - SHOWN:,} more hosts"] if len(hosts) > SHOWN else []
    return text.columns(rows, width) + more


def _range(low: float, high: float, form: Callable[[float], str]) -> str:
    return form(low) if low == high else f"{form(low)} - {form(high)}"

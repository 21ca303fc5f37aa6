"""The system that the papers' figures run on: they give none, so one is assumed for all, and the page says so."""

from __future__ import annotations

from typing import Any

from fedsim import devices, topologies

LINKS = "each client on a link of its own: 1 Mbit/s up, 10 Mbit/s down, 20 ms"
PHONES = f"{LINKS}; a local step takes 10 ms on the median phone (lognormal, sigma 0.5)"


def system(clients: int, *, phones: bool = True) -> dict[str, Any]:
    """Fields of a scenario: Scenario(..., **system(50)). What is learnt does not depend on them: nobody is lost.

    Without `phones` computing takes no time: rounds that are all alike are then simulated many at a go.
    """
    network = topologies.star(clients, uplink_bps=1e6, downlink_bps=1e7, latency_s=0.02)
    return {"network": network, "devices": devices.lognormal(median_step_s=0.01, sigma=0.5) if phones else None}

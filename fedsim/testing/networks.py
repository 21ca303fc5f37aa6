"""What the engine relies on in a network: `fs.testing.check(network)` asks anyone's class for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.network.flows import finish_times
from fedsim.testing.promises import Promises

FEW = 50  # clients whose routes are followed, spread over all of them
BITS = 1e6


def check_network(network: Any) -> list[str]:
    promise = Promises(network)
    for text, holds in promises(network).items():
        promise(text, holds, f"this does not hold: {text}")
    return promise.kept


def promises(network: Any) -> dict[str, bool]:
    """Every promise, and whether this network keeps it."""
    n = network.clients
    kept: dict[str, bool] = {"it has at least one client": n >= 1}
    for upward, way in ((True, "up"), (False, "down")):
        delay, stretch, least = (
            np.asarray(ask(upward), float) for ask in (network.delay_s, network.stretch, network.bottleneck_bps)
        )
        shaped = delay.shape == stretch.shape == least.shape == (n,)
        kept[f"delay_s, stretch and bottleneck_bps {way} are one number per client"] = shaped
        if not shaped:
            return kept
        kept[f"latencies {way} are finite and not negative"] = bool(np.isfinite(delay).all() and (delay >= 0).all())
        kept[f"loss only lengthens transfers {way}"] = bool(np.isfinite(stretch).all() and (stretch >= 1).all())
        kept[f"every route {way} lets something through"] = bool((least > 0).all())
        kept[f"asked twice, it answers the same {way}"] = np.array_equal(least, network.bottleneck_bps(upward))
        if network.contended:
            kept |= _routes(network, upward, way, least)
    return kept


def _routes(network: Any, upward: bool, way: str, least: Any) -> dict[str, bool]:
    capacities = np.asarray(network.capacities_bps, float)
    asked = np.unique(np.linspace(0, network.clients - 1, min(FEW, network.clients)).astype(int))
    routes = [np.asarray(network.route(int(c), upward), int) for c in asked]
    known = all(((links >= 0) & (links < len(capacities))).all() for links in routes)
    kept = {f"routes {way} use links that capacities_bps has": bool(known)}
    if not known:
        return kept
    narrow = np.array([capacities[links].min(initial=np.inf) for links in routes])
    kept[f"bottleneck_bps {way} is the least capacity on the route"] = np.array_equal(narrow, least[asked])
    alone = [
        float(finish_times(capacities, [links.tolist()], [BITS], [0.0])[0]) if len(links) else 0.0 for links in routes
    ]
    kept[f"a transfer alone {way} takes its bits over the bottleneck"] = bool(np.allclose(alone, BITS / narrow))
    return kept

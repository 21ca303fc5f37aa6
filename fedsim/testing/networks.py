"""What the engine relies on in a network: `fs.testing.check(network)` asks anyone's class for it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.network.finishing import finish_times
from fedsim.network.varying import Varying
from fedsim.protocols import NetworkLike, NetworkModel, as_network
from fedsim.testing.promises import Promises

FEW = 50  # clients whose routes are followed, spread over all of them
BITS = 1e6


def check_network(network: NetworkLike) -> list[str]:
    promise = Promises(network)
    for text, holds in promises(as_network(network)).items():
        promise(text, holds, f"this does not hold: {text}")
    return promise.kept


def promises(network: NetworkModel) -> dict[str, bool]:
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
        if network.contended or network.varying:
            kept |= _routes(network, upward, way, least)
    return kept


def _routes(network: NetworkModel, upward: bool, way: str, least: Array) -> dict[str, bool]:
    capacities = np.asarray(network.capacities_bps, float)
    asked = np.unique(np.linspace(0, network.clients - 1, min(FEW, network.clients)).astype(int))
    routes = [np.asarray(network.route(int(c), upward), int) for c in asked]
    known = all(((links >= 0) & (links < len(capacities))).all() for links in routes)
    kept = {f"routes {way} use links that capacities_bps has": bool(known)}
    if not known:
        return kept
    narrow = np.array([capacities[links].min(initial=np.inf) for links in routes])
    kept[f"bottleneck_bps {way} is the least capacity on the route"] = np.array_equal(narrow, least[asked])
    given = [network.varying.get(link, bps) for link, bps in enumerate(capacities.tolist())]
    ends = [float(finish_times(given, [links.tolist()], [BITS], [0.0])[0]) if len(links) else 0.0 for links in routes]
    steady = np.array([not any(int(link) in network.varying for link in links) for links in routes], bool)
    alone = np.allclose(np.array(ends)[steady], (BITS / narrow)[steady])
    kept[f"a transfer alone {way} takes its bits over the bottleneck"] = bool(alone)
    passed = [_passed(links.tolist(), given, end) for links, end in zip(routes, ends, strict=True) if len(links)]
    varied = np.array([end > 0 for end, links in zip(ends, routes, strict=True) if len(links)], bool)
    kept[f"a transfer alone {way} ends when its bits have passed, also where bandwidths vary"] = bool(
        np.allclose(np.array(passed)[varied], BITS)
    )
    return kept


def _passed(links: list[int], given: list[Any], end_s: float) -> float:
    """How many bits the narrowest of these links lets through up to a time: summed over the steps."""
    changes = {0.0, end_s}
    for link in links:
        if isinstance(given[link], Varying):
            changes |= {time for time, _ in itertools.takewhile(lambda step: step[0] < end_s, given[link].steps(0.0))}
    total = 0.0
    for begin, end in itertools.pairwise(sorted(changes)):
        widths = [given[k].at(begin) if isinstance(given[k], Varying) else given[k] for k in links]
        total += min(widths) * (end - begin)
    return total

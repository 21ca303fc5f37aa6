"""How fast virtual time goes by: `python analysis/bench/clock.py`, one core, seconds of processor time.

Machines differ and are busy with other things, so SimPy's own rate of events is measured beside everything else.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx
import numpy as np
import simpy

import fedsim as fs
from fedsim.scenarios import topologies

ALL_DAY = fs.devices.diurnal(86_400.0, on_fraction=1.0)  # always on, by a model that may say otherwise


def main() -> None:
    print("simulated client visits per second, timeline alone (timing_only=True)")
    per_second("SimPy, uncontended star", 60_000, visits_by_events)
    per_second("compiled, private links", 1_000_000, lambda: visits_compiled(fs.participation.full(), "private"))
    per_second("compiled, coming and going", None, lambda: visits_compiled(fs.participation.full(), "switching"))
    per_second("compiled, buffer of 10 of 100", 300_000, lambda: visits_compiled(fs.participation.buffered(10), "star"))
    per_second("compiled, one shared channel", 200_000, lambda: visits_compiled(fs.participation.full(), "channel"))
    per_second("compiled, wide-area network", 100_000, lambda: visits_compiled(fs.participation.full(), "wan"))
    per_second("SimPy, edges under a cloud", None, lambda: visits_in_tiers("simpy", 10))
    per_second("compiled, edges under a cloud", None, lambda: visits_in_tiers("compiled", 500))
    per_second("compiled, short path, all", 3_000_000, lambda: visits_on_short_path(fs.participation.full(), 1000))
    half = fs.participation.uniform(500)
    per_second("compiled, short path, 500 of 1,000", 3_000_000, lambda: visits_on_short_path(half, 500))

    print("\nflows over one shared link, random sizes and starts")
    print(f"{'flows':>10} {'seconds':>10} {'ns / (n log2 n)':>16}")
    for flows in (100, 1000, 10_000, 100_000):
        seconds = one_link(flows)
        print(f"{flows:>10,} {seconds:>10.4f} {1e9 * seconds / (flows * math.log2(flows)):>16.1f}")
    row("through the engine: 10,000 clients on one channel, a round", f"{one_channel(10_000):.2f} s", "up to 2 s")
    row("10,000 flows on a graph of 200 links, 4 each", f"{general_graph(10_000):.2f} s", "up to 0.2 s")

    print("\na round of 1,000 participants, lognormal devices")
    small, large = per_round(10_000, 1_000_000)
    row("out of 10,000", f"{1e3 * small:.2f} ms", "")
    row("out of 1,000,000", f"{1e3 * large:.2f} ms", f"{large / small:.2f} times as much; up to 1.20")
    print("\ngossip on a random 4-regular graph, lognormal devices, own links")
    few, many = gossip_round(1_000), gossip_round(10_000)
    row("1,000 sites, a round", f"{1e3 * few:.2f} ms", f"{1e9 * few / 4_000:.0f} ns a message")
    row("10,000 sites, a round", f"{1e3 * many:.2f} ms", f"{1e9 * many / 40_000:.0f} ns a message; as few a message")
    for clock in ("simpy", "compiled"):
        shared = gossip_round(1_000, clock, "loop")
        row(f"the same event by event, {clock}", f"{1e3 * shared:.2f} ms", f"{1e6 * shared / 4_000:.2f} us a message")

    row("peak memory of all this", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB", "up to 2 GB")


def row(what: str, value: str, goal: str) -> None:
    print(f"  {what:<60} {value:>10}   {goal}")


def per_second(what: str, target: float | None, visits: Callable[[], tuple[int, float]]) -> None:
    """The best of three, each beside SimPy's rate at that moment."""
    visits()  # compiles and warms up
    rows = []
    for _ in range(3):
        baseline = simpy_events_per_second()
        count, seconds = visits()
        rows.append((count / seconds, baseline))
    rate, baseline = max(rows)
    goal = "" if target is None else f"   (at least {target:,.0f})"
    print(f"  {what:<36} {rate:>12,.0f}{goal:<24} SimPy alone: {baseline:>9,.0f} events/s, ratio {rate / baseline:.3f}")


def simpy_events_per_second() -> float:
    environment = simpy.Environment()

    def ticking() -> Any:
        while True:
            yield environment.timeout(1)

    for _ in range(100):
        environment.process(ticking())
    begin = time.process_time()
    environment.run(until=1000)
    return 100 * 1000 / (time.process_time() - begin)


# --- Visits -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Everybody:
    """Full participation without columns, so that SimPy keeps the time."""

    def select(self, view: Any, rng: Any) -> Any:
        return view.online_clients()

    def close(self, view: Any) -> float:
        return math.inf


def star(clients: int, policy: Any, rounds: int, replicas: int = 1) -> fs.Scenario:
    return fs.Scenario(
        problem=fs.problems.Payload(clients, parameters=10),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=3),
        network=fs.topologies.star(clients, uplink_bps=1e5, downlink_bps=1e6, latency_s=0.01),
        devices=fs.devices.lognormal(median_step_s=0.1, sigma=0.5),
        participation=policy, budget=fs.Budget(rounds=rounds), replicas=replicas,
    )  # fmt: skip


def timed(scenario: fs.Scenario, clock: str, path: str) -> float:
    begin = time.process_time()
    result = fs.run(scenario, runtime=fs.Inline(threads=1), timing_only=True, clock=clock)
    seconds = time.process_time() - begin
    used = result.manifest["clock"]
    assert (used["name"], used["path"]) == (clock, path), used
    return seconds


def visits_by_events() -> tuple[int, float]:
    return 50 * 1000, timed(star(1000, Everybody(), rounds=50), "simpy", "loop")


def visits_on_short_path(policy: Any, size: int) -> tuple[int, float]:
    return 30 * 200 * size, timed(star(1000, policy, rounds=30, replicas=200), "compiled", "short")


def visits_compiled(policy: Any, where: str) -> tuple[int, float]:
    """Simulate the timeline alone on the compiled clock's event loop."""
    scenario = star(100, policy, rounds=10_000 if getattr(policy, "asynchronous", False) else 1000)
    if where == "private":  # devices that may go offline need the event loop
        scenario = replace(
            star(1000, policy, rounds=300), devices=fs.devices.lognormal(0.1, sigma=0.5, availability=ALL_DAY)
        )
    elif where == "switching":
        devices = fs.devices.lognormal(0.1, sigma=0.5, dropout=0.05, availability=fs.devices.markov(30.0, off_s=20.0))
        scenario = replace(scenario, devices=devices)
    elif where == "channel":
        scenario = replace(scenario, network=fs.topologies.multiple_access(100, capacity_bps=1e6))
    elif where == "wan":
        scenario = replace(topologies.scenario(network="wan", rounds=300, replicas=10), metrics=())
    begin = time.process_time()
    result = fs.run(scenario, runtime=fs.Inline(threads=1), timing_only=True, clock="compiled")
    assert result.manifest["clock"]["path"] == "loop"
    return int(result.rounds["selected"].sum()), time.process_time() - begin


def visits_in_tiers(clock: str, rounds: int) -> tuple[int, float]:
    """100 clients behind ten edges, whose links to the cloud their own messages fill."""
    scenario = replace(
        star(100, fs.participation.full(), rounds), network=fs.topologies.tree(100, edges=10, uplink_bps=1e5, downlink_bps=1e6, latency_s=0.01),
        devices=fs.devices.lognormal(0.1, sigma=0.5, dropout=0.01, availability=ALL_DAY),
        exchange=fs.exchanges.tiers(every=5),
    )  # fmt: skip
    return rounds * 100, timed(scenario, clock, "loop")


# --- Flows ------------------------------------------------------------------------------------------------


def one_link(flows: int) -> float:
    draw = np.random.default_rng(0)
    case = ([1e9], [[0]] * flows, draw.integers(1_000, 1_000_000, flows), draw.random(flows))
    fs.network.finish_times([1.0], [[0]], 1.0, 0.0)
    begin = time.process_time()
    fs.network.finish_times(*case)
    return time.process_time() - begin


def one_channel(clients: int) -> float:
    """Downloads and uploads of everybody on one channel; devices differ, so that flows end one by one."""
    scenario = fs.Scenario(
        problem=fs.problems.Payload(clients, parameters=1000),
        algorithm=fs.algorithms.FALD(step_size=1e-3),
        network=fs.topologies.multiple_access(clients, capacity_bps=1e9),
        devices=fs.devices.lognormal(median_step_s=0.1, sigma=0.5),
        budget=fs.Budget(rounds=1),
    )
    return timed(scenario, "compiled", "loop")


def general_graph(flows: int) -> float:
    draw = np.random.default_rng(0)
    capacities = draw.uniform(1e7, 5e7, 200)
    routes = [draw.choice(200, 4, replace=False) for _ in range(flows)]
    bits, starts = draw.integers(1_000, 1_000_000, flows), 100 * draw.random(flows)
    fs.network.finish_times(capacities, routes[: flows // 4], bits[: flows // 4], starts[: flows // 4])  # warms up
    begin = time.process_time()
    fs.network.finish_times(capacities, routes, bits, starts)
    return time.process_time() - begin


# --- Gossip -----------------------------------------------------------------------------------------------


def gossip_round(sites: int, clock: str = "compiled", path: str = "short") -> float:
    """Return the seconds of one more round, without what is paid once."""
    online = ALL_DAY if path == "loop" else None
    graph = nx.random_regular_graph(4, sites, seed=1)
    links = nx.Graph()
    links.add_nodes_from((c, {"client": c}) for c in range(sites))
    links.add_edges_from(graph.edges, bandwidth_bps=1e6, latency_s=0.01)
    exchange, network, few, more = fs.exchanges.gossip(graph), fs.Network(links), 2, 4 if clock == "simpy" else 32

    def seconds(rounds: int) -> float:
        scenario = fs.Scenario(
            problem=fs.problems.Payload(sites, parameters=10), algorithm=fs.algorithms.FALD(step_size=1e-3),
            network=network, devices=fs.devices.lognormal(median_step_s=0.1, sigma=0.5, availability=online),
            exchange=exchange, budget=fs.Budget(rounds=rounds),
        )  # fmt: skip
        return timed(scenario, clock, path)

    seconds(few)
    return (min(seconds(more) for _ in range(2)) - min(seconds(few) for _ in range(2))) / (more - few)


# --- Populations ------------------------------------------------------------------------------------------


def per_round(*populations: int) -> list[float]:
    """What one more round costs, apart from what is paid once; the populations take turns."""
    best = {(population, rounds): math.inf for rounds in (20, 320) for population in populations}
    for _ in range(5):
        for population, rounds in best:
            seconds = timed(star(population, fs.participation.uniform(1000), rounds), "compiled", "short")
            best[population, rounds] = min(best[population, rounds], seconds)
    return [(best[population, 320] - best[population, 20]) / 300 for population in populations]


if __name__ == "__main__":
    main()

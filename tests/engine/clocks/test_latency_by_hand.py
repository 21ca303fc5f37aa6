"""Timelines by hand, on both clocks: a message contends from its first instant and arrives one latency after its last bit."""

from __future__ import annotations

import math

import networkx as nx
import pytest

import fedsim as fs

CAPACITY, BITS = 24_000.0, 8_000
CLOCKS = ["simpy", "compiled"]


class Only:
    """Select these clients, close when no visit is outstanding."""

    def __init__(self, *clients: int) -> None:
        self.clients = list(clients)

    def select(self, view, rng):
        return self.clients

    def close(self, view):
        return math.inf


def on_during(*clients):
    starts = [a for own in clients for a, _ in own]
    ends = [b for own in clients for _, b in own]
    offsets = [sum(map(len, clients[:c])) for c in range(len(clients) + 1)]
    return fs.devices.intervals(starts, ends=ends, offsets=offsets)


def rounds_of(clock: str, network, devices, rounds: int = 2, **parts):
    scenario = fs.Scenario(
        problem=fs.problems.Payload(3, BITS // 64), algorithm=fs.algorithms.FedAvg(step_size=1e-3, local_steps=1),
        network=network, devices=devices, budget=fs.Budget(rounds=rounds), seed=1, **parts,
    )  # fmt: skip
    result = fs.run(scenario, timing_only=True, clock=clock)
    assert result.manifest["clock"]["name"] == clock
    return result.rounds


@pytest.mark.parametrize("clock", CLOCKS)
def test_going_offline_in_the_middle_of_an_upload(clock: str) -> None:
    """Client 2 is offline. Two downloads from 0 at 12,000 bit/s each: their last bits leave at 2/3 s and arrive at 0.716667.

    Both compute for 1 s and upload at 12,000 bit/s each. At 2.3 s client 1 goes offline: 7,000 bits of each have left.
    The other 1,000 of client 0 go at 24,000 bit/s until 2.341667 and arrive 0.05 s later. Alone in round 2, it takes
    1/3 + 0.05 + 1 + 1/3 + 0.05 s.
    """
    devices = fs.devices.constant(
        [1.0, 1.0, 5.0], availability=on_during([(0.0, 100.0)], [(0.0, 2.3)], [(200.0, 300.0)])
    )
    network = fs.topologies.multiple_access(3, capacity_bps=CAPACITY, latency_s=0.05)
    rounds = rounds_of(clock, network, devices)
    assert rounds["closed_s"].tolist() == pytest.approx([2.391667, 4.158333], abs=1e-6)
    assert rounds["uplink_bits"].tolist() == [15_000, 8_000]
    assert rounds["wasted_bits"].tolist() == [7_000, 0]


def test_broadcasts_to_unselected_clients_contend_from_their_first_instant() -> None:
    """Client 0 is at the server, the others 1 s away; all share one channel, and only client 0 is selected.

    Its download shares the channel with two others until 1 s, whatever their latency; then it uploads alone for 1/3 s.
    """
    graph = nx.Graph()
    graph.add_node("server", role="server")
    graph.add_edge("relay", "server", bandwidth_bps=CAPACITY, latency_s=0.0, shared=True)
    for c, latency_s in enumerate((0.0, 1.0, 1.0)):
        graph.add_node(c, client=c)
        graph.add_edge(c, "relay", bandwidth_bps=math.inf, latency_s=latency_s)
    rounds = rounds_of("simpy", fs.Network(graph), None, participation=Only(0), broadcast_to="all")
    assert rounds["closed_s"].tolist() == pytest.approx([4 / 3, 8 / 3])
    assert rounds["downlink_bits"].tolist() == [3 * BITS, 3 * BITS]


@pytest.mark.parametrize("clock", CLOCKS)
def test_an_arrival_comes_before_a_break_of_the_same_instant(clock: str) -> None:
    """Client 0 goes offline at 2 s, the instant at which its second reply arrives; the reply counts."""
    devices = fs.devices.constant(1.0, availability=on_during([(0.0, 2.0)], [(0.0, 9.0)], [(0.0, 9.0)]))
    rounds = rounds_of(clock, None, devices, rounds=3)
    assert rounds["arrived"].tolist() == [3, 3, 2]
    assert rounds["dropped"].tolist() == [0, 0, 0]
    assert rounds["closed_s"].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("clock", CLOCKS)
def test_offline_clients_receive_no_broadcast(clock: str) -> None:
    """One of three is selected; of the other two only the online one gets a copy."""
    devices = fs.devices.constant(1.0, availability=on_during([(0.0, 9.0)], [(0.0, 9.0)], [(50.0, 60.0)]))
    rounds = rounds_of(clock, None, devices, participation=fs.participation.uniform(1), broadcast_to="all")
    assert rounds["downlink_bits"].tolist() == [2 * BITS, 2 * BITS]

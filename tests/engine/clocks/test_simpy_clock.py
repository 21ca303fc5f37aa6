"""The SimPy clock by hand: the latency rule, exact instants, order within an instant, resume by replay."""

from __future__ import annotations

import asyncio
import random

import numpy as np
import pytest
import simpy
from engine.clocks.timelines import block_of, simpy_clock

import fedsim as fs
from fedsim.engine.clock.simpy.links import Instant
from fedsim.engine.system import MessageSizes
from fedsim.network import Varying
from fedsim.rules.closing import NO_CLIENTS
from fedsim.rules.visits import ARRIVED, LATE


def scenario(clients: int, **changes) -> fs.Scenario:
    given = {
        "problem": fs.problems.GaussianMean.synthetic(clients, dim=1, samples=2, seed=1),
        "algorithm": fs.algorithms.FALD(step_size=1e-6, local_steps=1),
        "budget": fs.Budget(rounds=10),
        "seed": 3,
    }
    return fs.Scenario(**{**given, **changes})


def sizes(down: int, up: int, cloud_up: int = 0, cloud_down: int = 0) -> MessageSizes:
    return MessageSizes(down, up, up, cloud_up, cloud_down)


def test_the_latency_follows_the_last_bit() -> None:
    """The reply starts at 0.25 s: 24 bits until 1 s, the other 40 at 128 bit/s until 1.3125 s, 0.25 s on the way."""
    up = Varying([0.0, 1.0], [32.0, 128.0])
    network = fs.topologies.star(2, uplink_bps=up, latency_s=[0.25, 0.0])
    assert block_of(scenario(2, network=network), 1, sizes(64, 64)).closed_s.tolist() == [[1.5625]]


def test_a_round_on_private_links_by_hand() -> None:
    """Down 1000 bits at 1000 bit/s, latency 0.5 s, compute 1, 2, 3 s, up 1000 bits at 500 bit/s; 2 replies close."""
    network = fs.topologies.star(3, uplink_bps=500.0, downlink_bps=1000.0, latency_s=0.5)
    devices = fs.devices.constant([1.0, 2.0, 3.0])
    part = scenario(3, network=network, devices=devices, participation=fs.participation.first(2))
    block = block_of(part, 1, sizes(1000, 1000))
    assert block.visits.ended_s.tolist() == [5.0, 6.0, 6.0]  # 1 + 0.5 + 1 + 2 + 0.5; one second later; cut there
    assert block.visits.outcome.tolist() == [ARRIVED, ARRIVED, LATE]
    assert block.visits.up_bits.tolist() == [1000, 1000, 750]  # the third upload began at 4.5 s
    assert block.closed_s.tolist() == [[6.0]]
    assert block.columns["wasted_s"].tolist() == [[6.0]]
    assert block.columns["late_s"].tolist() == [[6.0]]


def test_a_close_in_the_last_latency_counts_all_bits() -> None:
    """The last bit of the second reply leaves at 3.5 s and arrives at 5.5 s; the round closes at 4 s."""
    network = fs.topologies.star(2, uplink_bps=1000.0, downlink_bps=1000.0, latency_s=[0.0, 2.0])
    part = scenario(2, network=network, devices=fs.devices.constant(0.5), participation=fs.participation.deadline(4.0))
    block = block_of(part, 1, sizes(0, 1000))
    assert block.visits.outcome.tolist() == [ARRIVED, LATE]
    assert block.visits.up_bits.tolist() == [1000, 1000]
    assert block.columns["wasted_bits"].tolist() == [[1000]]


def test_edges_meet_at_the_cloud_by_hand() -> None:
    """Edges take 1 s and 3 s a round, and merge after every second one, with 0.25 s up and 0.5 s down."""
    import networkx as nx

    graph = nx.Graph()
    graph.add_node("cloud", role="server")
    for e in range(2):
        graph.add_node(f"edge {e}", role="edge")
        graph.add_edge(f"edge {e}", "cloud", bandwidth_bps=4000.0, latency_s=0.0)
        graph.add_node(f"client {e}", client=e)
        graph.add_edge(f"client {e}", f"edge {e}", bandwidth_bps=np.inf, latency_s=0.0)
    part = scenario(
        2, network=fs.Network(graph), devices=fs.devices.constant([1.0, 3.0]), exchange=fs.exchanges.tiers(every=2)
    )
    block = block_of(part, 3, sizes(64, 64, 1000, 2000))
    assert block.opened_s.tolist() == [[0.0, 1.0, 6.75]]
    assert block.closed_s.tolist() == [[3.0, 6.25, 9.75]]
    assert block.backhaul_bits.tolist() == [[0, 6000, 0]]
    assert block.cloud is not None
    assert block.cloud.at_cloud_s[0, 1].tolist() == [2.25, 6.25]
    assert block.cloud.from_cloud_s[0, 2].tolist() == [6.75, 6.75]


def test_first_k_of_equal_devices_is_fair() -> None:
    block = block_of(scenario(4, participation=fs.participation.first(1)), 2000, sizes(64, 64))
    wins = np.bincount(block.visits.client[block.visits.outcome == ARRIVED], minlength=4)
    assert wins.sum() == 2000
    assert (abs(wins - 500) < 4 * (2000 * 3 / 16) ** 0.5).all()


def test_an_instant_lands_on_the_exact_time() -> None:
    g, missed = random.Random(3), 0
    for _ in range(2_000):
        now, time_s = g.uniform(1.0, 2.0), g.uniform(4.0, 8.0)
        missed += now + (time_s - now) != time_s
        env = simpy.Environment(now)
        env.run(Instant(env, time_s, 2))
        assert env.now == time_s
    assert missed > 40  # a delay alone is not enough


def test_tiers_without_clients_stop() -> None:
    """A client that is never online again ends the run on tiers as on a star."""
    devices = fs.devices.constant(
        1.0, availability=fs.devices.intervals([0.0, 0.0, 0.0, 0.0], ends=[9.0, 9.0, 1.5, 9.0], offsets=[0, 1, 2, 3, 4])
    )
    for exchange in (fs.exchanges.tiers([0, 0, 1, 1], every=2), fs.exchanges.star()):
        part = scenario(4, devices=devices, exchange=exchange, participation=fs.participation.uniform(2, at_least=2))
        block = block_of(part, 20, sizes(64, 64))
        assert block.stopped_by.tolist() == [NO_CLIENTS]
        assert 0 < block.lengths[0] < 20


@pytest.mark.parametrize("exchange", [fs.exchanges.star(), fs.exchanges.tiers([0, 1, 0, 1, 0, 1], every=2)])
def test_a_resumed_clock_continues_with_the_same_bits(exchange) -> None:
    devices = fs.devices.lognormal(median_step_s=0.5, sigma=0.8, dropout=0.2)
    network = fs.topologies.star(6, uplink_bps=900.0, downlink_bps=1000.0, latency_s=0.05)
    part = scenario(
        6, network=network, devices=devices, exchange=exchange, participation=fs.participation.first(2), replicas=3
    )

    async def rounds_of(cut: int):
        clock, active = simpy_clock(part, sizes(64, 320, 64, 64)), np.arange(3)
        await clock.next(active, cut)
        resumed = simpy_clock(part, sizes(64, 320, 64, 64))
        await resumed.resume(cut, active, clock.state())
        return await resumed.next(active, 4)

    one, other = asyncio.run(rounds_of(1)), asyncio.run(rounds_of(2))
    whole = block_of(part, 6, sizes(64, 320, 64, 64))
    assert np.array_equal(whole.closed_s[:, 1:5], one.closed_s)
    assert np.array_equal(whole.closed_s[:, 2:6], other.closed_s)

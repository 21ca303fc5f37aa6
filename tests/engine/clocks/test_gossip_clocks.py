"""Gossip on every clock: timelines by hand and by the oracle, blocks, resume, growing memory, stops and refusals."""

from __future__ import annotations

import asyncio
import dataclasses
import math

import networkx as nx
import numpy as np
import pytest
from engine.clocks import gossip_cases
from engine.clocks.blocks import assert_same, blocks_of, clock_of
from engine.clocks.timelines import block_of, system_of
from strategies.gossip_scenarios import metropolis

import fedsim as fs
from fedsim.engine.clock.compiled import gossip as compiled_gossip
from fedsim.engine.clock.compiled.paths import compiled_clock
from fedsim.engine.system import MessageSizes
from fedsim.rng import Stream
from fedsim.rules import closing
from fedsim.rules.visits import ARRIVED, DROPPED, LATE

CLOCKS = ("simpy", "loop")
RING = nx.cycle_graph(6)
FLAKY = fs.devices.lognormal(0.05, sigma=0.5, dropout={"before": 0.05, "compute": 0.1, "upload": 0.1})
COMING = dataclasses.replace(FLAKY, availability=fs.devices.markov(2.0, off_s=0.5))
SHARED = fs.topologies.star(6, uplink_bps=2e3, downlink_bps=4e3, latency_s=0.02)
SIZES = MessageSizes(0, 500, 320)
SCENARIOS = {
    "ideal links": {"devices": FLAKY},
    "a deadline": {"network": SHARED, "devices": COMING, "participation": fs.participation.deadline(0.3)},
    "the first": {"network": SHARED, "devices": COMING, "participation": fs.participation.first(1)},
    "matchings": {"network": SHARED, "devices": FLAKY, "exchange": fs.exchanges.gossip(RING, "matching")},
    "in turn": {"devices": COMING, "exchange": fs.exchanges.gossip(RING, [metropolis(RING), np.eye(6)])},
    "nothing is lost": {"devices": fs.devices.lognormal(0.05, sigma=0.5)},
}


def scenario_of(name="ideal links", **parts):
    given = {
        "problem": fs.problems.Payload(6, parameters=5), "algorithm": fs.algorithms.FALD(1e-3, local_steps=3),
        "exchange": fs.exchanges.gossip(RING), "budget": fs.Budget(rounds=40), "replicas": 3,
    }  # fmt: skip
    return fs.Scenario(**{**given, **SCENARIOS[name], **parts})


def one_after_another(clock, lengths):
    """Return the columns of consecutive blocks, so that blocks of any lengths compare."""

    async def run():
        return [await clock.next(np.arange(3), rounds) for rounds in lengths]

    blocks = asyncio.run(run())
    out = [np.concatenate([b.closed_s for b in blocks], axis=1).tobytes()]
    for r in range(3):
        for name in ("bits", "outcome", "arrived_s", "weight", "sender"):
            parts = [getattr(b.gossip, name)[b.gossip.offsets[r, 0] : b.gossip.offsets[r, -1]] for b in blocks]
            out.append(np.concatenate(parts).tobytes())
        out.append(np.concatenate([b.gossip.own_weight[r] for b in blocks]).tobytes())
    return out


NAMES = [(name, path) for name in SCENARIOS for path in CLOCKS] + [("nothing is lost", "short")]


@pytest.mark.parametrize(("name", "path"), NAMES)
def test_rounds_do_not_depend_on_the_lengths_of_blocks(name, path):
    whole, parts = (clock_of(scenario_of(name), SIZES, path) for _ in range(2))
    assert one_after_another(whole, [30]) == one_after_another(parts, [1, 2, 4, 13, 10])


@pytest.mark.parametrize(("name", "path"), NAMES)
@pytest.mark.parametrize("largest", [0, 1e9], ids=["from the start", "from saved arrays"])
def test_a_clock_resumes_at_any_round_of_its_latest_block(name, path, largest, monkeypatch):
    monkeypatch.setattr(compiled_gossip, "SAVED", largest)
    first = clock_of(scenario_of(name), SIZES, path)
    one_after_another(first, [5, 8])
    saved = {key: array.copy() for key, array in first.state().items()}
    assert bool(saved) == (bool(largest) and path != "simpy")
    for done in (5, 9, 13):
        whole, resumed = (clock_of(scenario_of(name), SIZES, path) for _ in range(2))
        one_after_another(whole, [done])
        asyncio.run(resumed.resume(done, np.arange(3), saved))
        assert one_after_another(resumed, [6]) == one_after_another(whole, [6])


# --- By hand ----------------------------------------------------------------------------------------------------------


def line(**parts):
    """Sites 0 - 1 - 2 compute in 1, 2 and 4 s. A message has 1000 bits at 500 bit/s and a latency of 0.5 s: 2.5 s."""
    links = nx.DiGraph()
    links.add_nodes_from((c, {"client": c}) for c in range(3))
    for a, b in ((0, 1), (1, 0), (1, 2), (2, 1)):
        links.add_edge(a, b, bandwidth_bps=500.0, latency_s=0.5)
    devices = parts.pop("devices", None) or fs.devices.constant([1.0, 2.0, 4.0])
    return fs.Scenario(
        problem=fs.problems.Payload(3, parameters=5), algorithm=fs.algorithms.FALD(1e-3, local_steps=1), network=fs.Network(links),
        devices=devices, exchange=fs.exchanges.gossip(nx.path_graph(3)), budget=fs.Budget(rounds=5), **parts,
    )  # fmt: skip


THOUSAND = MessageSizes(0, 1000, 1000)


@pytest.mark.parametrize("path", [*CLOCKS, "short"])
def test_a_line_of_three_sites_has_the_timeline_computed_by_hand(path):
    """Site 0 computes until 1 and has site 1's reply at 4.5. Site 1 has those of 0 and 2 at 3.5 and 6.5. Site 2 computes
    until 4 and has site 1's at 4.5. Second round: site 0 computes from 4.5 to 5.5, site 1 from 6.5 to 8.5, site 2 from
    4.5 to 8.5; site 0's reply reaches site 1 at 8, site 2's at 11, and site 1's reply reaches both at 11."""
    (block,) = blocks_of(line(), THOUSAND, path, [2])
    assert block.gossip.ended_s.tolist() == [[[4.5, 6.5, 4.5], [11.0, 11.0, 11.0]]]
    assert block.visits.ended_s.tolist() == [1.0, 2.0, 4.0, 5.5, 8.5, 8.5]
    assert block.opened_s.tolist() == [[0.0, 4.5]]
    assert block.closed_s.tolist() == [[6.5, 11.0]]
    assert block.gossip.received.all()
    assert block.gossip.arrived_s.tolist() == [4.5, 3.5, 6.5, 4.5, 11.0, 8.0, 11.0, 11.0]
    assert block.columns["backhaul_bits"].tolist() == [[4000, 4000]]
    assert block.gossip.own_weight[0, 0] == pytest.approx([2 / 3, 1 / 3, 2 / 3])


@pytest.mark.parametrize("path", CLOCKS)
def test_a_deadline_leaves_late_messages_as_computed_by_hand(path):
    """Sites 0 and 1 aggregate at 3, site 2 at 4 when its own reply is there; the first message arrives at 3.5."""
    (block,) = blocks_of(line(participation=fs.participation.deadline(3.0)), THOUSAND, path, [1])
    assert block.gossip.ended_s.tolist() == [[[3.0, 3.0, 4.0]]]
    assert block.gossip.outcome.tolist() == [LATE] * 4
    assert block.columns["late"].tolist() == [[4]]
    assert block.columns["wasted_bits"].tolist() == [[4000]]
    assert block.gossip.own_weight.tolist() == [[[1.0, 1.0, 1.0]]]


@pytest.mark.parametrize("path", CLOCKS)
def test_going_offline_breaks_messages_where_they_are(path):
    """Site 1 is offline from 3 to 10: its messages, sent from 2 s on at 500 bit/s, break after 500 bits."""
    online = fs.devices.intervals([0.0, 0.0, 10.0, 0.0], ends=[1e9, 3.0, 1e9, 1e9], offsets=[0, 1, 3, 4])
    devices = fs.devices.constant([1.0, 2.0, 4.0], availability=online)
    (block,) = blocks_of(line(devices=devices), THOUSAND, path, [1])
    g = block.gossip
    assert list(zip(g.sender.tolist(), g.receiver.tolist(), strict=True)) == [(1, 0), (0, 1), (2, 1), (1, 2)]
    assert g.bits.tolist() == [500, 1000, 1000, 500]
    assert g.outcome.tolist() == [DROPPED, ARRIVED, ARRIVED, DROPPED]
    assert g.ended_s.tolist() == [[[3.0, 6.5, 4.0]]]  # site 1 aggregates while it is offline
    assert block.visits.outcome.tolist() == [ARRIVED, DROPPED, ARRIVED]
    assert block.columns["dropped_bits"].tolist() == [[1000]]


@pytest.mark.parametrize("path", CLOCKS)
def test_messages_that_are_in_flight_when_a_row_is_final_count_with_all_their_bits(path):
    """With a deadline of 1 s all sites have ended round 1 at 4; site 1 goes offline at 4.2, in the midst of a message."""
    online = fs.devices.intervals([0.0, 0.0, 10.0, 0.0], ends=[1e9, 4.2, 1e9, 1e9], offsets=[0, 1, 3, 4])
    devices = fs.devices.constant([1.0, 3.5, 4.0], availability=online)
    (block,) = blocks_of(line(devices=devices, participation=fs.participation.deadline(1.0)), THOUSAND, path, [1])
    assert block.closed_s.tolist() == [[4.0]]
    assert block.gossip.bits.tolist() == [1000] * 4
    assert block.visits.outcome.tolist() == [ARRIVED] * 3


@pytest.mark.parametrize("path", [*CLOCKS, "short"])
def test_a_message_that_catches_up_with_the_last_one_shares_its_link(path):
    """Site 0 hears site 1 fast and is heard slowly: its second message, sent at 0.2, finds the first one in flight."""
    links = nx.DiGraph()
    links.add_nodes_from((c, {"client": c}) for c in range(2))
    links.add_edge(0, 1, bandwidth_bps=100.0, latency_s=0.25)
    links.add_edge(1, 0, bandwidth_bps=math.inf, latency_s=0.0)
    scenario = fs.Scenario(
        problem=fs.problems.Payload(2, parameters=5), algorithm=fs.algorithms.FALD(1e-3, local_steps=1), network=fs.Network(links),
        devices=fs.devices.constant(0.1), exchange=fs.exchanges.gossip(nx.path_graph(2)), budget=fs.Budget(rounds=5),
    )  # fmt: skip
    (block,) = blocks_of(scenario, MessageSizes(0, 100, 100), path, [2])
    to_1 = block.gossip.arrived_s[block.gossip.receiver == 1]
    # 10 bits have left when the second one begins; the other 90 need 1.8 s at half the rate, then the second one's 10
    # last bits 0.1 s at the full rate, as site 0 waits for site 1's second reply before it sends a third message.
    assert to_1 == pytest.approx([0.2 + 1.8 + 0.25, 0.2 + 1.8 + 0.1 + 0.25])


# --- The oracle on the compiled clock ---------------------------------------------------------------------------------


class Columns:
    """Makes devices with columns of what `Script` is told; `tell` lets the oracle know what was drawn."""

    def __new__(cls, seconds, fate, on):
        online = None
        if on is not None:
            flat, ends = [pair for own in on for pair in own], np.cumsum([0, *map(len, on)])
            online = fs.devices.intervals([a for a, _ in flat], ends=[b for _, b in flat], offsets=ends)
        dropout = {"before": 0.1, "compute": 0.1, "upload": 0.1}
        return fs.devices.constant(seconds, availability=online, dropout=dropout)


def compare(seed, shape, path):
    scenario, case = gossip_cases.random_case(seed, shape, Columns)
    system = system_of(scenario)

    def fate(client, round):
        row = np.array([client])
        phase, fraction = scenario.devices.drop(row, np.zeros(1), system.draws(Stream.DROPOUT, 0, row, round - 1))
        return int(phase[0]), float(fraction[0])

    case.fate = fate
    return gossip_cases.compared(scenario, case, lambda *given: compiled_clock(system_of(given[0]), given[1], path))


@pytest.mark.parametrize("shape", ["private", "shared", "hub"])
def test_timelines_of_the_compiled_clock_are_those_of_an_independent_simulation(shape):
    assert sum(compare(seed, shape, "loop") for seed in range(30)) > 300


def test_the_loop_continues_where_a_message_of_the_short_path_meets_the_one_before_it():
    """Site 0's message is short in round 1 and long in round 2, where it is still in flight when site 0 has the next."""
    links, graph = nx.DiGraph(), nx.path_graph(3)
    links.add_nodes_from((c, {"client": c}) for c in range(3))
    links.add_weighted_edges_from(((1, 0, 1e6), (1, 2, 1e6), (2, 1, 1e6), (0, 1, 700.0)), "bandwidth_bps")
    nx.set_edge_attributes(links, 0.01, "latency_s")
    slow = fs.devices.constant([0.1, 0.12, 0.12], slowdown=fs.devices.lognormal_slowdown(0.1))
    made = fs.Scenario(
        problem=fs.problems.Payload(3, parameters=5), algorithm=fs.algorithms.FALD(1e-3, local_steps=1), network=fs.Network(links),
        devices=slow, exchange=fs.exchanges.gossip(graph), budget=fs.Budget(rounds=40), replicas=3,
    )  # fmt: skip
    sizes = MessageSizes(0, 10, 320)
    clock, simpy = clock_of(made, sizes, "short"), clock_of(made, sizes, "simpy")
    paths, seen, expected = [], [], []
    for _ in range(20):
        seen += one_after_another(clock, [1])
        expected += one_after_another(simpy, [1])
        paths.append(clock.path)
    assert paths == ["short"] + ["loop"] * 19
    assert seen == expected
    resumed = clock_of(made, sizes, "short")
    asyncio.run(resumed.resume(20, np.arange(3), clock.state()))
    assert resumed.path == "loop"
    assert one_after_another(resumed, [5]) == one_after_another(simpy, [5])


# --- Memory, stops, refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [None, SHARED], ids=["ideal links", "shared links"])
def test_memory_grows_with_rounds_and_messages_that_pile_up(network):
    """Five sites begin a round every 50 ms, the sixth every 10 s."""
    devices = fs.devices.constant([0.01] * 5 + [10.0])
    made = scenario_of(network=network, devices=devices, participation=fs.participation.deadline(0.05), replicas=2)
    clock = compiled_clock(system_of(made), SIZES, "loop")
    before = clock.now
    block = block_of(made, 3, SIZES, lambda *_: clock)
    assert_same(block, block_of(made, 3, SIZES))
    assert clock.now.site_rows.shape[1] > before.site_rows.shape[1]
    assert network is None or clock.now.links.flows.shape[1] > before.links.flows.shape[1]


@pytest.mark.parametrize("path", CLOCKS)
def test_sites_that_run_away_from_each_other_are_refused_before_memory_runs_out(path, monkeypatch):
    devices = fs.devices.constant([0.01] * 5 + [1e9])
    made = scenario_of(devices=devices, participation=fs.participation.first(1), replicas=1)
    refused = blocks_of(made, SIZES, path, [1])
    assert refused.startswith("refused: a site is 10,000 rounds ahead of another, which may never catch up")
    large = 200_000  # replicas, in the rule alone
    assert closing.is_too_far_apart(100, large * 18)
    assert not closing.is_too_far_apart(10, large * 18)


@pytest.mark.parametrize("clock", ["simpy", "compiled"])
def test_a_run_that_cannot_go_on_ends(clock):
    online = fs.devices.intervals([0.0] * 6, ends=[1e9] * 5 + [3.0], offsets=np.arange(7))
    made = scenario_of(
        algorithm=fs.algorithms.FALD(1e-3, local_steps=1),
        devices=fs.devices.constant(1.0, availability=online),
        replicas=2,
    )
    result = fs.run(made, timing_only=True, clock=clock)
    assert result.stopped_by == ("no clients", "no clients")
    # Site 5 goes offline at 3, the instant at which round 3 ends: messages arrive before devices go offline.
    assert result.rounds["round"].tolist() == [1, 2, 3, 1, 2, 3]

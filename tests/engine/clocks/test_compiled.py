"""The compiled clock: timelines of an independent simulation, checkpoints, growth, and what it refuses."""

from __future__ import annotations

import asyncio
import dataclasses
import math

import networkx as nx
import numpy as np
import pytest
from engine.clocks.timelines import block_of, system_of
from oracles.tier_clock import Case, TierClock, Way

import fedsim as fs
from fedsim.engine.clock import compiled
from fedsim.engine.clock.compiled.paths import compiled_clock
from fedsim.engine.system import MessageSizes
from fedsim.rng import Stream
from fedsim.rules.visits import ARRIVED, CALLED_OFF, DROPPED, LATE

DIM, ROUNDS, AHEAD = 5, 6, 4  # edges may be `every` rounds ahead of each other
BITS = 64 * DIM
SIZES = MessageSizes(BITS, BITS, BITS, BITS, BITS)
OUTCOMES = {"arrived": ARRIVED, "late": LATE, "called off": CALLED_OFF, "dropped": DROPPED}
TIMES = {"started_s": "started", "downloaded_s": "downloaded", "computed_s": "computed", "ended_s": "ended"}


# --- The oracle -----------------------------------------------------------------------------------------------------


def graph_of(draw, clients, edges, shape):
    """Clients at edges at a server; private links, a shared channel at every edge, or a shared trunk."""
    graph = nx.Graph()
    graph.add_node("server", role="server")
    for e in range(edges):
        graph.add_node(f"edge {e}", role="edge")
        trunk = draw.uniform(300, 900) if shape == "trunk" else math.inf
        channel = draw.uniform(300, 900) if shape == "channel" else math.inf
        graph.add_edge(f"edge {e}", "server", bandwidth_bps=trunk, latency_s=draw.uniform(0.01, 0.2), shared=True)
        graph.add_edge(f"radio {e}", f"edge {e}", bandwidth_bps=channel, latency_s=0.0, shared=True)
    for c in range(clients):
        graph.add_node(f"client {c}", client=c)
        graph.add_edge(
            f"client {c}", f"radio {c % edges}", bandwidth_bps=draw.uniform(150, 900),
            latency_s=draw.uniform(0.01, 0.4), loss=float(draw.choice([0.0, 0.2])),
        )  # fmt: skip
    return graph


def random_case(seed, shape, tiers, offline):
    """A scenario whose parts all have columns, and the numbers of its oracle."""
    draw = np.random.default_rng(seed)
    edges = int(draw.integers(2, 4)) if tiers else 1
    clients, every = max(int(draw.integers(3, 9)), 2 * edges), int(draw.integers(1, 4)) if tiers else 0
    seconds, on, online = draw.uniform(0.05, 2.0, clients), None, None
    if offline:
        first, length = draw.uniform(0, 4, clients), draw.uniform(2, 4.5, clients)
        on = [[(5.0 * k + a, 5.0 * k + a + b) for k in range(300)] for a, b in zip(first, length, strict=True)]
        starts, ends = zip(*(period for periods in on for period in periods), strict=True)
        online = fs.devices.intervals(starts, ends=ends, offsets=np.arange(clients + 1) * 300)
    chance = float(draw.choice([0.0, 0.15]))
    devices = fs.devices.constant(
        seconds.tolist(), dropout=dict.fromkeys(("before", "compute", "upload"), chance), availability=online
    )
    size = int(draw.integers(1, clients // edges + 1))
    replies, deadline = int(draw.integers(1, size + 1)), float(draw.uniform(0.3, 4.0))
    policies = (
        (fs.participation.full(), math.inf, math.inf), (fs.participation.uniform(size), math.inf, math.inf),
        (fs.participation.first(replies, of=size), replies, math.inf),
        (fs.participation.deadline(deadline), math.inf, deadline),
    )  # fmt: skip
    policy, replies, deadline = policies[int(draw.integers(4))]
    to_all = bool(draw.integers(2))
    scenario = fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(clients, dim=DIM, samples=2, seed=1),
        algorithm=fs.algorithms.FALD(step_size=1e-6, local_steps=1),
        network=fs.Network(graph_of(draw, clients, edges, shape)), devices=devices,
        exchange=fs.exchanges.tiers(every=every) if tiers else fs.exchanges.star(),
        participation=policy, budget=fs.Budget(rounds=ROUNDS), broadcast_to="all" if to_all else None, seed=seed,
    )  # fmt: skip
    network, cloud = scenario.sites.network, range(clients, clients + edges if tiers else clients)

    def ways(rows, upward):
        delay, loss = network.delay_s(upward), network.loss_factor(upward)
        return [Way(list(map(int, network.route(r, upward))), float(delay[r]), float(loss[r])) for r in rows]

    case = Case(
        capacities=np.asarray(network.capacities_bps, float).tolist(), down=ways(range(clients), False),
        up=ways(range(clients), True), seconds=seconds.tolist(), fate=lambda *_: (0, 0.0), selected=lambda *_: [],
        groups=scenario.sites.site_of.tolist(), on=on, replies=replies, deadline=deadline, down_bits=BITS, up_bits=BITS,
        every=every, to_cloud=ways(cloud, True), from_cloud=ways(cloud, False), cloud_bits=BITS,
        broadcast_to_all=to_all,
    )  # fmt: skip
    return scenario, case


def tell(scenario, case, block):
    """Tell the oracle what was drawn: cohorts from the block, dropouts from their keys."""
    system, cohorts, rounds = system_of(scenario), {}, {}
    for i in range(block.rounds):
        for j in range(block.offsets[0, i], block.offsets[0, i + 1]):
            client = int(block.visits.client[j])
            cohorts.setdefault((int(block.visits.site[j]), i + 1), []).append(client)
            rounds.setdefault(client, []).append(i)

    def fate(client, number):
        row = np.array([client])
        rng = system.draws(Stream.DROPOUT, 0, row, rounds[client][number])
        phase, fraction = scenario.devices.drop(row, np.zeros(1), rng)
        return int(phase[0]), float(fraction[0])

    case.fate, case.selected = fate, lambda site, round, now: cohorts.get((site, round), [])


def compare(seed, shape, tiers, offline, path):
    scenario, case = random_case(seed, shape, tiers, offline)
    if isinstance(compiled_clock(system_of(scenario), SIZES, path), str):
        return 0
    block = block_of(scenario, ROUNDS + AHEAD, SIZES, lambda *given: compiled_clock(system_of(given[0]), SIZES, path))
    tell(scenario, case, block)
    oracle, v = TierClock(case), block.visits
    oracle.run(ROUNDS, ROUNDS + AHEAD)
    for i in range(min(ROUNDS, int(block.lengths[0]))):
        row, at = oracle.rows[i + 1], slice(block.offsets[0, i], block.offsets[0, i + 1])
        assert block.opened_s[0, i] == pytest.approx(row["opened"], abs=1e-7)
        assert block.closed_s[0, i] == pytest.approx(row["closed"], abs=1e-7)
        assert block.unselected_bits[0, i] == row["unselected"]
        expected = [row["visits"][int(c)] for c in v.client[at]]
        assert v.outcome[at].tolist() == [OUTCOMES[e.outcome] for e in expected]
        for column, name in TIMES.items():
            np.testing.assert_allclose(getattr(v, column)[at], [getattr(e, name) for e in expected], rtol=0, atol=1e-7)
        assert v.down_bits[at].tolist() == [e.down for e in expected]
        assert v.up_bits[at].tolist() == [e.up for e in expected]
    if block.lengths[0] < ROUNDS:
        assert oracle.stopped_at == block.lengths[0] + 1
    return int(block.offsets[0, -1])


@pytest.mark.parametrize("shape", ["private", "channel", "trunk"])
@pytest.mark.parametrize("tiers", [False, True], ids=["star", "tiers"])
@pytest.mark.parametrize("offline", [False, True], ids=["always online", "offline at times"])
def test_timelines_of_the_loop_are_those_of_an_independent_simulation(shape, tiers, offline):
    assert sum(compare(seed, shape, tiers, offline, "loop") for seed in range(12)) > 100


@pytest.mark.parametrize("tiers", [False, True], ids=["star", "tiers"])
def test_timelines_of_the_short_path_are_those_of_an_independent_simulation(tiers):
    assert sum(compare(seed, "private", tiers, False, "short") for seed in range(24)) > 100


# --- Blocks and checkpoints -----------------------------------------------------------------------------------------


FLAKY = fs.devices.lognormal(0.05, sigma=0.5, dropout=0.1)
SCENARIOS = {
    "short": {"devices": FLAKY, "participation": fs.participation.first(3, of=5)},
    "private": {"devices": dataclasses.replace(FLAKY, availability=fs.devices.markov(2.0, off_s=0.5))},
    "channel": {"network": fs.topologies.multiple_access(6, capacity_bps=4e3, latency_s=0.02), "broadcast_to": "all",
                "participation": fs.participation.uniform(2)},
    "tiers": {"exchange": fs.exchanges.tiers([0, 0, 0, 1, 1, 1], every=4), "devices": FLAKY,
              "network": fs.topologies.multiple_access(6, capacity_bps=4e3, latency_s=0.02)},
}  # fmt: skip


def scenario_of(name):
    return fs.Scenario(
        problem=fs.problems.Payload(6, parameters=5), algorithm=fs.algorithms.FALD(1e-3, local_steps=3),
        budget=fs.Budget(rounds=40), replicas=3,
        **{"network": fs.topologies.star(6, uplink_bps=2e3, latency_s=0.02), **SCENARIOS[name]},
    )  # fmt: skip


def rounds_of(clock, active, *lengths):
    """The closing times and visits of blocks, one after another."""

    async def run():
        return [await clock.next(active, rounds) for rounds in lengths]

    blocks = asyncio.run(run())
    rows = [b.visits.ended_s[b.offsets[r, 0] : b.offsets[r, -1]] for r in range(len(active)) for b in blocks]
    return np.concatenate([b.closed_s for b in blocks], axis=1).tobytes(), np.concatenate(rows).tobytes()


def new_clock(name):
    made = compiled_clock(system_of(scenario_of(name)), SIZES)
    assert not isinstance(made, str)
    return made


@pytest.mark.parametrize("name", SCENARIOS)
def test_rounds_do_not_depend_on_the_lengths_of_blocks(name):
    active = np.arange(3)
    assert rounds_of(new_clock(name), active, 30) == rounds_of(new_clock(name), active, 1, 2, 4, 13, 10)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("largest", [0, 1e9], ids=["from the start", "from saved arrays"])
def test_a_clock_resumes_at_any_round_of_its_latest_block(name, largest, monkeypatch):
    monkeypatch.setattr(compiled, "SAVED", largest)
    first, active = new_clock(name), np.arange(3)
    rounds_of(first, active, 5, 8)
    saved = {key: array.copy() for key, array in first.state().items()}
    assert bool(saved) == bool(largest)
    for done in (5, 9, 13):
        whole, resumed = new_clock(name), new_clock(name)
        rounds_of(whole, active, done)
        asyncio.run(resumed.resume(done, active, saved))
        assert rounds_of(resumed, active, 6) == rounds_of(whole, active, 6)


def test_memory_grows_with_broadcasts_that_pile_up():
    slow = fs.topologies.star(6, uplink_bps=1e9, downlink_bps=[1e9] + [1.0] * 5, latency_s=0.0)
    made = dataclasses.replace(
        scenario_of("short"),
        network=slow,
        devices=None,
        participation=fs.participation.deadline(1e-3, of=1),
        broadcast_to="all",
    )
    clock = compiled_clock(system_of(made), SIZES, "loop")
    before = clock.now.links.flows.shape[1]
    block = block_of(made, 30, SIZES, lambda *_: clock)
    assert clock.now.links.flows.shape[1] > before
    assert block_of(made, 30, SIZES).visits.ended_s.tobytes() == block.visits.ended_s.tobytes()


# --- What it refuses ------------------------------------------------------------------------------------------------


class Own(fs.participation.Full):
    """A policy that inherits columns, and overrides what they describe."""

    batched = False

    def select(self, view, rng):
        return np.arange(1)


REFUSED = {
    "the policy Own has no columns": {"participation": Own()},
    "bandwidths vary in time": {
        "network": fs.topologies.star(6, uplink_bps=fs.network.Varying([0.0, 1.0], [1e3, 2e3], period_s=2.0))
    },
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_scenario_that_it_cannot_serve_is_refused_with_a_reason(reason):
    made = dataclasses.replace(scenario_of("short"), **REFUSED[reason])
    assert compiled_clock(system_of(made), SIZES) == reason


def test_the_short_path_is_refused_where_devices_go_offline_or_links_are_shared():
    assert compiled_clock(system_of(scenario_of("private")), SIZES, "short") == "devices go offline"
    assert compiled_clock(system_of(scenario_of("channel")), SIZES, "short") == "flows share links"

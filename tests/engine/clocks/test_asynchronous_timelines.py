"""Timelines of asynchronous clients equal an independent simulation, and by hand at instants that coincide."""

from __future__ import annotations

import numpy as np
import pytest
from engine.clocks.asynchronous_cases import ROUNDS, SIZES, random_case
from engine.clocks.timelines import block_of, simpy_clock, system_of
from oracles.asynchronous_clock import AsynchronousClock

import fedsim as fs
from fedsim.engine.clock.compiled.paths import compiled_clock
from fedsim.engine.system import MessageSizes
from fedsim.rules.visits import ARRIVED, DROPPED

OUTCOMES = {"arrived": ARRIVED, "dropped": DROPPED}
TIMES = {"started_s": "started", "downloaded_s": "downloaded", "computed_s": "computed", "ended_s": "ended"}
CLOCKS = {"simpy": simpy_clock, "compiled": lambda scenario, sizes: compiled_clock(system_of(scenario), sizes)}


def compare(seed, shape, remembers, clock):
    scenario, case, places = random_case(seed, shape, remembers)
    block = block_of(scenario, ROUNDS, SIZES, clock)
    v, length = block.visits, int(block.lengths[0])
    told = iter(block.starts.client.tolist())
    oracle = AsynchronousClock(case, places, remembers, lambda ready: next(told, ready[0]))
    oracle.simulate(ROUNDS if places is None else length)  # who takes a place after the last round is not known
    assert oracle.version == length
    for i in range(length):
        row, at = oracle.rows[i + 1], slice(block.offsets[0, i], block.offsets[0, i + 1])
        expected, started = row["visits"], oracle.versions[i]
        assert block.opened_s[0, i] == pytest.approx(row["opened"], abs=1e-7)
        assert block.closed_s[0, i] == pytest.approx(row["closed"], abs=1e-7)
        assert block.oldest_version[0, i] == row["oldest"]
        assert block.unselected_bits[0, i] == oracle.unselected[i]
        assert block.selected[0, i] == len(started)
        begun = slice(block.starts.offsets[0, i], block.starts.offsets[0, i + 1])
        assert sorted(block.starts.client[begun].tolist()) == sorted(e.client for e in started)
        np.testing.assert_allclose(block.starts.started_s[begun], [e.started for e in started], rtol=0, atol=1e-7)
        for column, name in {"client": "client", "version": "version", "visit": "number", **TIMES}.items():
            found, wanted = getattr(v, column)[at], [getattr(e, name) for e in expected]
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-7, err_msg=f"{seed}, round {i + 1}: {column}")
        assert v.outcome[at].tolist() == [OUTCOMES[e.outcome] for e in expected]
        assert v.down_bits[at].tolist() == [e.down for e in expected]
        assert v.up_bits[at].tolist() == [e.up for e in expected]
    return length


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("shape", ["private", "channel", "trunk"])
@pytest.mark.parametrize("remembers", [False, True], ids=["", "memory"])
def test_asynchronous_timelines_are_those_of_an_independent_simulation(shape, remembers, clock):
    assert sum(compare(seed, shape, remembers, CLOCKS[clock]) for seed in range(25)) > 180  # rounds


# --- By hand --------------------------------------------------------------------------------------------------------


def by_hand(clock, seconds, policy, rounds, **parts):
    """The block of clients that compute for these seconds, without a network unless one is given."""
    scenario = fs.Scenario(
        problem=fs.problems.Payload(len(seconds), 125), algorithm=parts.pop("algorithm", fs.algorithms.FedAvg(1e-3, local_steps=1)),
        devices=fs.devices.constant(seconds, availability=parts.pop("availability", None)), participation=policy,
        budget=fs.Budget(rounds=rounds), seed=1, **parts,
    )  # fmt: skip
    return block_of(scenario, rounds, MessageSizes(8000, 8000, 8000), CLOCKS[clock])


def ended(block, i):
    """(client, version, start, end) of the visits that end in round i + 1."""
    at, v = slice(block.offsets[0, i], block.offsets[0, i + 1]), block.visits
    columns = (column[at].tolist() for column in (v.client, v.version, v.started_s, v.ended_s))
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("clock", CLOCKS)
def test_the_client_that_fills_the_buffer_and_later_ones_of_that_instant_start_from_the_new_version(clock):
    """Three clients of 2 s each, a buffer of 2. At 2 s two arrive and make version 1; the third, at the same instant, is
    in the next round, and starts again from version 1. So does the second; the first had started from version 0."""
    block = by_hand(clock, [2.0, 2.0, 2.0], fs.participation.buffered(2), 2)
    assert block.closed_s[0].tolist() == [2.0, 4.0]
    [(_, *one), (_, *two)] = ended(block, 0)
    assert one == two == [0, 0.0, 2.0]
    assert block.selected[0].tolist() == [4, 2]
    third, again = ended(block, 1)[0], ended(block, 1)[1]
    versions = sorted(version for _, version, _, _ in (third, again))
    assert versions in ([0, 0], [0, 1])  # the third, and whichever of the others comes first at 4 s
    assert block.opened_s[0].tolist() == [0.0, 0.0]
    assert block.oldest_version[0, 0] == 0


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_reply_that_arrives_when_its_device_goes_offline_counts(clock):
    """An arrival comes before a break of the same instant; the device is then offline from 2 to 5 s."""
    online = fs.devices.intervals([0.0, 5.0, 0.0], ends=[2.0, 9.0, 1.0], offsets=[0, 2, 3])
    block = by_hand(clock, [2.0, 3.0], fs.participation.buffered(1), 2, availability=online)
    assert ended(block, 0) == [(0, 0, 0.0, 2.0), (1, 0, 0.0, 1.0)]  # client 1 goes offline at 1 s
    assert block.closed_s[0].tolist() == [2.0, 7.0]
    assert [row[:2] for row in ended(block, 1)] == [(0, 1)]


@pytest.mark.parametrize("clock", CLOCKS)
def test_latency_follows_the_last_bit_of_asynchronous_clients(clock):
    """8,000 bits at 8,000 bit/s with 0.5 s of latency, two clients on one channel, 1 s of compute for client 0, 4 s for 1.

    Downloads share the channel until 2 s and arrive at 2.5. Client 0 uploads from 3.5 alone until 4.5 and arrives at 5:
    version 1. It downloads from 5 to 6, arrives at 6.5; client 1 uploads from 6.5 to 7.5 and arrives at 8: version 2.
    """
    network = fs.topologies.multiple_access(2, capacity_bps=8000.0, latency_s=0.5)
    block = by_hand(clock, [1.0, 4.0], fs.participation.buffered(1), 2, network=network)
    assert block.closed_s[0].tolist() == pytest.approx([5.0, 8.0])
    assert [row[:2] for row in ended(block, 1)] == [(1, 0)]


@pytest.mark.parametrize("clock", CLOCKS)
def test_clients_with_memory_give_their_places_away_until_their_reply_is_aggregated(clock):
    """One place, a buffer of 3 and 4 clients of 1 s: three different ones make a version, and all are idle again."""
    algorithm = fs.algorithms.Scaffold(0.1, local_steps=1)
    block = by_hand(clock, [1.0] * 4, fs.participation.buffered(3, of=1), 20, algorithm=algorithm)
    assert block.closed_s[0].tolist() == [3.0 * (i + 1) for i in range(20)]
    for i in range(20):
        assert len({client for client, *_ in ended(block, i)}) == 3
    with pytest.raises(fs.errors.InvalidInput, match="only 4 exist; use at most 4"):
        by_hand(clock, [1.0] * 4, fs.participation.buffered(5, of=1), 20, algorithm=algorithm)


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("of", [None, 2])
def test_visits_that_only_drop_out_stop_the_run(clock, of):
    scenario = fs.Scenario(
        problem=fs.problems.Payload(12, 1), algorithm=fs.algorithms.FedAvg(1e-3, local_steps=1),
        devices=fs.devices.constant(1.0, dropout=1.0), participation=fs.participation.buffered(2, of=of),
        budget=fs.Budget(rounds=3), record=fs.Record(events=True),
    )  # fmt: skip
    result = fs.run(scenario, timing_only=True, clock=clock)
    assert result.stopped_by == ("no clients",)
    assert len(result.rounds) == 0


@pytest.mark.parametrize("clock", CLOCKS)
def test_free_places_go_to_idle_clients_with_equal_chances(clock):
    """12 clients, 3 places: of 4,000 visits each client has about 333; the sum of squared deviations is a chi square."""
    block = by_hand(clock, [1.0] * 12, fs.participation.buffered(20, of=3), 200)
    counts = np.bincount(block.starts.client, minlength=12)
    assert ((counts - counts.mean()) ** 2 / counts.mean()).sum() < 31.3  # exceeded with probability 1e-3

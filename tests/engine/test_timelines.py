"""Timelines small enough to reckon by hand, to the microsecond, with every column of `rounds`.

The network of most of them: three clients, each with an ideal link of 10 ms to a relay, and one shared link of
40 ms and C = 24,000 bit/s from there to the server, for both directions and everybody. Messages have 8,000 bits
both ways (125 float64). Their bits leave from the first instant on, which takes

    1/3 s alone,   2/3 s while two share the link,   1 s while three do,

and a message arrives 50 ms after its last bit has left. Every timeline is run on SimPy and on each path of the compiled
clock that can serve it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from engine.clocks.runs import agree, on_simpy
from oracles.tier_clock import Case, TierClock, Way

import fedsim as fs
from fedsim.rules import visits
from fedsim.scenario_file import load_file
from fedsim.sweeps.study import grid_runs

BITS, CAPACITY = 8_000, 24_000
BEFORE, COMPUTE, UPLOAD = visits.BEFORE, visits.IN_COMPUTE, visits.IN_UPLOAD
COUNTS = ("selected", "arrived", "dropped", "late", "uplink_bits", "downlink_bits", "wasted_bits")


def shared_star(clients=3):
    graph = nx.Graph()
    graph.add_node("server", role="server")
    graph.add_edge("relay", "server", bandwidth_bps=CAPACITY, latency_s=0.040, shared=True)
    for c in range(clients):
        graph.add_node(c, client=c)
        graph.add_edge(c, "relay", bandwidth_bps=math.inf, latency_s=0.010)
    return fs.Network(graph)


def scenario_of(seconds, policy=None, rounds=1, **more):
    """One local step that takes client c `seconds[c]`."""
    devices = seconds if hasattr(seconds, "compute_s") else fs.devices.constant(seconds_per_step=seconds)
    return fs.Scenario(
        **{
            "problem": fs.problems.GaussianMean.synthetic(3, dim=BITS // 64, samples=2, seed=1),
            "algorithm": fs.algorithms.FALD(step_size=1e-6, local_steps=1),
            "network": shared_star(),
            "devices": devices,
            "participation": policy or fs.participation.full(),
            "budget": fs.Budget(rounds=rounds),
            "record": fs.Record(events=True),
        }
        | more
    )


def run(scenario):
    """The result on SimPy, which is that of the compiled clock, too, if it can serve the scenario."""
    own_parts = isinstance(scenario.devices, Scripted) or isinstance(scenario.participation, Only | ZeroThenOne)
    assert bool(agree(scenario)) != own_parts
    return on_simpy(scenario)


def assert_rounds(result, *expected):
    """Each expected row: opened and closed in seconds, then the counts in the order of COUNTS."""
    assert len(result.rounds) == len(expected)
    for (_, row), (opened, closed, *counts) in zip(result.rounds.iterrows(), expected, strict=True):
        assert row["opened_s"] == pytest.approx(opened, abs=1e-6)
        assert row["closed_s"] == pytest.approx(closed, abs=1e-6)
        assert [int(row[name]) for name in COUNTS] == counts


def times(result, event, round=1):
    """{client: when} of one kind of event in one round."""
    rows = result.events[(result.events["event"] == event) & (result.events["round"] == round)]
    return {int(c): t for c, t in zip(rows["client"], rows["time_s"], strict=True)}


class Scripted:
    """Somebody's own devices: seconds per visit, and who drops out of the visits that begin at a given time."""

    def __init__(self, seconds, drops):
        self.seconds, self.drops = np.asarray(seconds, float), drops

    def compute_s(self, clients, work, now_s, rng):
        return work * self.seconds[clients]

    def drop(self, clients, now_s, rng):
        fates = [self.drops.get((float(t), int(c)), (0, 0.0)) for t, c in zip(now_s, clients, strict=True)]
        return np.array([f[0] for f in fates], np.int8), np.array([f[1] for f in fates])


# --- Synchronous rounds ---------------------------------------------------------------------------------


def test_a_straggler_holds_up_the_round():
    # Down: three flows from 0 on, 8,000 bit/s each, whose last bits leave at 1 and arrive at 1.05.
    # Clients 0 and 1 compute 1 s until 2.05, send at 12,000 bit/s each: 2.05 + 2/3 + 0.05 = 2.766667.
    # Client 2 computes 5 s until 6.05, sends alone: 6.05 + 1/3 + 0.05 = 6.433333.
    # Round 2 is the same, 6.433333 s later.
    result = run(scenario_of([1.0, 1.0, 5.0], rounds=2))
    assert_rounds(
        result,
        (0.0, 6.433333, 3, 3, 0, 0, 24_000, 24_000, 0),
        (6.433333, 12.866667, 3, 3, 0, 0, 24_000, 24_000, 0),
    )
    assert times(result, "download") == pytest.approx({0: 1.05, 1: 1.05, 2: 1.05}, abs=1e-6)
    assert times(result, "compute") == pytest.approx({0: 2.05, 1: 2.05, 2: 6.05}, abs=1e-6)
    assert times(result, "upload") == pytest.approx({0: 2.766667, 1: 2.766667, 2: 6.433333}, abs=1e-6)


def test_a_deadline_calls_off_uploads_that_are_under_way():
    # By 2.5 (2.5 - 2.05) * 12,000 = 5,400 bits have left clients 0 and 1 each, for nothing; client 2 still computes.
    # That they take another 50 ms to get anywhere does not matter: latency is propagation.
    result = run(scenario_of([1.0, 1.0, 5.0], fs.participation.deadline(2.5)))
    assert_rounds(result, (0.0, 2.5, 3, 0, 0, 3, 10_800, 24_000, 10_800))


def test_a_deadline_waits_for_nobody_and_the_next_round_starts_clean():
    # At 3.0 clients 0 and 1 have arrived (2.766667) and client 2 is called off while it computes: nothing is left
    # on the link, so round 2 is round 1 again, 3 s later. It closes at 6.0, before client 2's 6.433333 would be.
    result = run(scenario_of([1.0, 1.0, 5.0], fs.participation.deadline(3.0), rounds=2))
    assert_rounds(
        result,
        (0.0, 3.0, 3, 2, 0, 1, 16_000, 24_000, 0),
        (3.0, 6.0, 3, 2, 0, 1, 16_000, 24_000, 0),
    )


def test_a_deadline_is_not_waited_for_when_all_have_answered():
    result = run(scenario_of([1.0, 1.0, 5.0], fs.participation.deadline(100.0)))
    assert_rounds(result, (0.0, 6.433333, 3, 3, 0, 0, 24_000, 24_000, 0))


def test_the_first_two_replies_close_the_round():
    # Client 0 sends from 2.05, client 1 (0.2 s slower) from 2.25. Alone until then client 0 sends 4,800 bits; its
    # other 3,200 go at 12,000 bit/s until 2.25 + 0.266667 = 2.516667, and arrive at 2.566667. Client 1 has sent 3,200 by
    # 2.516667 and has 4,800 left, alone again: 2.516667 + 0.2 + 0.05 = 2.766667. Client 2 is called off while it computes.
    result = run(scenario_of([1.0, 1.2, 5.0], fs.participation.first(2)))
    assert_rounds(result, (0.0, 2.766667, 3, 2, 0, 1, 16_000, 24_000, 0))
    assert times(result, "upload") == pytest.approx({0: 2.566667, 1: 2.766667}, abs=1e-6)
    assert times(result, "late") == pytest.approx({2: 2.766667}, abs=1e-6)


def test_of_two_replies_at_the_same_instant_the_first_one_counts():
    # Clients 0 and 1 arrive together at 2.766667. One of them is first; the other has sent all its bits for nothing.
    result = run(scenario_of([1.0, 1.0, 5.0], fs.participation.first(1), replicas=40))
    for replica in range(40):
        row = result.rounds.iloc[replica]
        assert row["closed_s"] == pytest.approx(2.766667, abs=1e-6)
        assert [int(row[name]) for name in COUNTS] == [3, 1, 0, 2, 16_000, 24_000, 8_000]
    arrived = result.clients["arrived"].tolist()
    assert arrived[2] == 0
    assert 8 <= arrived[0] <= 32  # 20 +- 3.2: a fair draw, not the lower number


def test_dropouts_in_every_phase():
    # Client 0 is lost before it starts: nothing is sent to it.
    # Down: two flows from 0, 12,000 bit/s each, which arrive at 2/3 + 0.05 = 0.716667.
    # Client 1 is lost half way through its 1 s of computing: at 1.216667.
    # Client 2 breaks off its upload at floor(0.25 * 8,000) = 2,000 bits: computed at 0.716667 + 2 = 2.716667, sending
    # alone for 2,000 / 24,000 = 0.083333 s: the server hears of it one latency later, at 2.85; nothing is outstanding.
    devices = Scripted([1.0, 1.0, 2.0], {(0.0, 0): (BEFORE, 0.3), (0.0, 1): (COMPUTE, 0.5), (0.0, 2): (UPLOAD, 0.25)})
    result = run(scenario_of(devices))
    assert_rounds(result, (0.0, 2.85, 3, 0, 3, 0, 2_000, 16_000, 2_000))
    assert times(result, "drop") == pytest.approx({0: 0.0, 1: 1.216667, 2: 2.85}, abs=1e-6)
    assert result.samples[0].tolist() == np.zeros((1, 125)).tolist()  # nobody arrived: theta is kept


def test_a_dropout_frees_the_link_for_the_others():
    # Clients 0 and 1 send from 2.05 at 12,000 bit/s. Client 1's 2,000 bits are out at 2.05 + 1/6 = 2.216667; client 0
    # has 6,000 left then, alone: 2.216667 + 0.25 + 0.05 = 2.516667. Client 2 as ever: 6.433333.
    devices = Scripted([1.0, 1.0, 5.0], {(0.0, 1): (UPLOAD, 0.25)})
    result = run(scenario_of(devices))
    assert_rounds(result, (0.0, 6.433333, 3, 2, 1, 0, 18_000, 24_000, 2_000))
    assert times(result, "upload") == pytest.approx({0: 2.516667, 2: 6.433333}, abs=1e-6)


def test_a_client_that_would_break_off_after_the_close_is_late():
    # Client 1 would break off at 4,000 bits, 2.05 + 1/3 + 0.05 = 2.433333, but the deadline is at 2.3: by then
    # (2.3 - 2.05) * 12,000 = 3,000 have left both.
    devices = Scripted([1.0, 1.0, 5.0], {(0.0, 1): (UPLOAD, 0.5)})
    result = run(scenario_of(devices, fs.participation.deadline(2.3)))
    assert_rounds(result, (0.0, 2.3, 3, 0, 0, 3, 6_000, 24_000, 6_000))


# --- Who is on ------------------------------------------------------------------------------------------


def on_during(*intervals):
    """Availability from one list of (start, end) per client."""
    flat = [pair for own in intervals for pair in own]
    offsets = np.cumsum([0, *(len(own) for own in intervals)])
    return fs.devices.intervals([s for s, _ in flat], ends=[e for _, e in flat], offsets=offsets)


def test_going_offline_in_the_middle_of_an_upload_loses_the_visit():
    # Client 2 is off and not asked: two downloads from 0 at 12,000 bit/s each arrive at 2/3 + 0.05 = 0.716667. Clients 0
    # and 1 compute until 1.716667 and send at 12,000 bit/s each. Client 1 goes off at 2.3, when
    # (2.3 - 1.716667) * 12,000 = 7,000 bits have left it, and client 0. The other 1,000 of client 0 go alone, until
    # 2.3 + 1,000 / 24,000 = 2.341667, and arrive at 2.391667.
    # Round 2: only client 0 is on. Alone: 2.391667 + 1/3 + 0.05 + 1 + 1/3 + 0.05 = 4.158333.
    availability = on_during([(0.0, 100.0)], [(0.0, 2.3), (50.0, 60.0)], [(200.0, 300.0)])
    devices = fs.devices.constant(seconds_per_step=[1.0, 1.0, 5.0], availability=availability)
    result = run(scenario_of(devices, rounds=2))
    assert_rounds(
        result,
        (0.0, 2.391667, 2, 1, 1, 0, 15_000, 16_000, 7_000),
        (2.391667, 4.158333, 1, 1, 0, 0, 8_000, 8_000, 0),
    )
    assert times(result, "drop") == pytest.approx({1: 2.3}, abs=1e-6)


def test_the_clock_jumps_to_when_somebody_is_there():
    # Nobody until 7.0; then client 2 alone: 7.0 + 1/3 + 0.05 + 5 + 1/3 + 0.05 = 12.766667. It goes off at 13.0 for
    # good, but first round 2 opens at 12.766667: its last bit would leave at 13.1, so it is lost at 13.0,
    # when (13.0 - 12.766667) * 24,000 = 5,600 bits of it have left the server.
    # From then on there is no one: the run stops.
    devices = fs.devices.constant(seconds_per_step=[1.0, 1.0, 5.0], availability=on_during([], [], [(7.0, 13.0)]))
    result = run(scenario_of(devices, rounds=5))
    assert_rounds(
        result,
        (7.0, 12.766667, 1, 1, 0, 0, 8_000, 8_000, 0),
        (12.766667, 13.0, 1, 0, 1, 0, 0, 5_600, 0),
    )
    assert result.stopped_by == ("no clients",)


def test_a_client_that_goes_off_between_two_visits_of_one_period_loses_only_the_second():
    # Client 0 alone, on until 4.0: a visit takes 1/3 + 0.05 + 1 + 1/3 + 0.05 = 1.766667 s. Visits end at 1.766667 and
    # 3.533333; the third computes from 3.916667 on and is lost at 4.0. It is on again from 5.0 until 6.0, too short for a
    # visit: the client computes from 5.383333 on.
    availability = on_during([(0.0, 4.0), (5.0, 6.0)], [], [])
    result = run(scenario_of(fs.devices.constant(seconds_per_step=1.0, availability=availability), rounds=9))
    assert_rounds(
        result,
        (0.0, 1.766667, 1, 1, 0, 0, 8_000, 8_000, 0),
        (1.766667, 3.533333, 1, 1, 0, 0, 8_000, 8_000, 0),
        (3.533333, 4.0, 1, 0, 1, 0, 0, 8_000, 0),
        (5.0, 6.0, 1, 0, 1, 0, 0, 8_000, 0),
    )
    assert result.stopped_by == ("no clients",)


# --- Who receives the broadcast -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Only:
    """A policy of one's own."""

    who: tuple[int, ...]

    def select(self, view, rng):
        return list(self.who)

    def close(self, view):
        return math.inf


def test_copies_to_those_who_were_not_selected_are_charged_and_contend():
    # Three copies share the link: client 0 has its own at 1.05, computes until 2.05, sends alone: 2.05 + 1/3 + 0.05.
    result = run(scenario_of([1.0, 1.0, 5.0], Only((0,)), broadcast_to="all"))
    assert_rounds(result, (0.0, 2.433333, 1, 1, 0, 0, 8_000, 24_000, 0))
    # Without them: 1/3 + 0.05 + 1 + 1/3 + 0.05 = 1.766667.
    result = run(scenario_of([1.0, 1.0, 5.0], Only((0,))))
    assert_rounds(result, (0.0, 1.766667, 1, 1, 0, 0, 8_000, 8_000, 0))


@dataclasses.dataclass(frozen=True)
class ZeroThenOne(Only):
    """Client 0 in the round that opens at 0, client 1 from then on."""

    who: tuple[int, ...] = ()

    def select(self, view, rng):
        return [int(view.now_s > 0.0)]


def test_the_round_does_not_wait_for_copies_to_others_but_the_next_one_meets_them():
    # Client 0 is at the server's door; the others are 1 s away, over links of 4,000 bit/s. Nobody computes.
    # Round 1: two copies leave at 4,000 bit/s from 0 on, whatever their latency. Client 0 has the other 16,000 of the
    # shared link: 8,000 bits down in 0.5 s, up in 0.5 s, closed at 1.0. 4,000 bits of each copy are left.
    # Round 2: client 1's download shares its link with the 4,000 bits, 2,000 bit/s each, until 3.0. Its other 4,000 bits
    # leave alone by 4.0 and arrive at 5.0. Its reply leaves by 7.0 and arrives at 8.0. (Without the copy: 3.0, 4.0, 6.0,
    # 7.0.) The copies of round 2 are for clients 0 and 2.
    graph = nx.Graph()
    graph.add_node("server", role="server")
    graph.add_edge("relay", "server", bandwidth_bps=CAPACITY, latency_s=0.0, shared=True)
    for c, (bandwidth, latency) in enumerate(((math.inf, 0.0), (4_000, 1.0), (4_000, 1.0))):
        graph.add_node(c, client=c)
        graph.add_edge(c, "relay", bandwidth_bps=bandwidth, latency_s=latency)
    scenario = scenario_of([0.0, 0.0, 0.0], ZeroThenOne(), rounds=2, broadcast_to="all", network=fs.Network(graph))
    result = run(scenario)
    assert_rounds(
        result,
        (0.0, 1.0, 1, 1, 0, 0, 8_000, 24_000, 0),
        (1.0, 8.0, 1, 1, 0, 0, 8_000, 24_000, 0),
    )
    assert times(result, "download", round=2) == pytest.approx({1: 5.0}, abs=1e-6)


# --- Loss, and links in a row -----------------------------------------------------------------------------


def test_loss_lengthens_transfers_but_not_the_count():
    # 20 % loss: 8,000 bits are sent as 10,000. Down at 20,000 bit/s: 0.5 s; up at 5,000 bit/s: 2 s.
    # 0.5 + 0.1 + 1.0 + 2.0 + 0.1 = 3.7. By a deadline at 2.7 (2.7 - 1.6) * 5,000 * 0.8 = 4,400 bits have left.
    network = fs.topologies.star(3, uplink_bps=5_000, downlink_bps=20_000, latency_s=0.1, loss=0.2)
    assert_rounds(run(scenario_of([1.0] * 3, network=network)), (0.0, 3.7, 3, 3, 0, 0, 24_000, 24_000, 0))
    assert_rounds(
        run(scenario_of([1.0] * 3, fs.participation.deadline(2.7), network=network)),
        (0.0, 2.7, 3, 0, 0, 3, 13_200, 24_000, 13_200),
    )


def test_a_route_takes_its_slowest_link():
    # server - edge at 40,000 bit/s both ways (not shared), edge - clients at 8,000 and 16,000 and 64,000 bit/s.
    # Max-min of 40,000 among caps 8,000, 16,000 and 64,000: 8,000, 16,000 and the rest, 16,000.
    # Down from 0 on: client 0 takes 1 s and has it at 1 + 0.2; clients 1 and 2 take 0.5 s, at 0.5 + 0.2.
    # They compute 1 s each: uploads begin at 2.2, and at 1.7 for 1 and 2.
    # Clients 1 and 2 alone: client 1 has 16,000, client 2 the other 24,000, so its reply arrives at 1.7 + 1/3 + 0.2 =
    # 2.233333, client 1's at 1.7 + 0.5 + 0.2 = 2.4. Client 0 from 2.2: 2.2 + 1 + 0.2 = 3.4.
    graph = nx.Graph()
    graph.add_node("server", role="server")
    graph.add_edge("edge", "server", bandwidth_bps=40_000, latency_s=0.15)
    for c, bandwidth in enumerate((8_000, 16_000, 64_000)):
        graph.add_node(c, client=c)
        graph.add_edge(c, "edge", bandwidth_bps=bandwidth, latency_s=0.05)
    result = run(scenario_of([1.0] * 3, network=fs.Network(graph)))
    assert_rounds(result, (0.0, 3.4, 3, 3, 0, 0, 24_000, 24_000, 0))
    assert times(result, "download") == pytest.approx({0: 1.2, 1: 0.7, 2: 0.7}, abs=1e-6)
    assert times(result, "upload") == pytest.approx({0: 3.4, 1: 2.4, 2: 2.233333}, abs=1e-6)


# --- Asynchronous rounds ----------------------------------------------------------------------------------


def test_a_buffer_of_two_on_the_shared_link():
    # All start from version 0: three downloads, at 1 + 0.05. Clients compute 1.0, 1.6 and 6.0 s.
    # Client 0 sends from 2.05 alone: arrives 2.05 + 1/3 + 0.05 = 2.433333, and starts again from version 0.
    #   Its download is alone until client 1 sends from 2.65: 5,200 bits; the other 2,800 at 12,000 bit/s until 2.883333:
    #   it has it at 2.933333. Client 1 has sent 2,800 by 2.883333, 5,200 left, alone: 2.883333 + 0.216667 + 0.05 = 3.15.
    # Fold 1 at 3.15: replies of 0 and 1, nobody stale. Started so far: 0, 1, 2, and 0 again; that counts here. What ends
    #   here are two visits, so two downloads count, and both visits began at 0.
    # Client 1 starts from version 1: download 3.15 to 3.483333, computes from 3.533333 to 5.133333.
    # Client 0 (version 0) computes from 2.933333 to 3.933333, sends until 4.266667: arrives 4.316667, one version old.
    #   It starts from version 1: download until 4.65, computes from 4.70 to 5.70.
    # Client 1 sends alone from 5.133333 until 5.466667: arrives 5.516667.
    # Fold 2 at 5.516667: replies of 0 (staleness 1, began at 2.433333) and 1 (0). Started: 1 and 0.
    # Client 1 starts from version 2: download alone until 5.70: 4,400 bits; 3,600 at 12,000 bit/s until 6.0: has it at 6.05.
    #   Client 0 has sent 3,600 by 6.0, 4,400 left, alone until 6.183333: arrives 6.233333 (staleness 1).
    #   It starts again; client 1 computes until 7.65.
    # Client 2 has computed at 1.05 + 6.0 = 7.05 and sends alone (client 0 downloads until 6.566667, computes from 6.616667
    #   to 7.616667) until 7.383333: arrives 7.433333, from version 0.
    # Fold 3 at 7.433333: replies of 0 (staleness 1) and 2 (2, began at 0). Started: 1 and 0.
    seen = []

    def discount(staleness):
        seen.append(staleness)
        return 1.0

    scenario = scenario_of([1.0, 1.6, 6.0], fs.participation.buffered(2, discount=discount), rounds=3)
    assert agree(scenario) == ["loop"]
    seen.clear()
    result = on_simpy(scenario)
    assert_rounds(
        result,
        (0.0, 3.15, 4, 2, 0, 0, 16_000, 16_000, 0),
        (2.433333, 5.516667, 2, 2, 0, 0, 16_000, 16_000, 0),
        (0.0, 7.433333, 2, 2, 0, 0, 16_000, 16_000, 0),
    )
    assert seen == [0, 0, 1, 0, 1, 2]
    assert times(result, "upload", round=3) == pytest.approx({0: 6.233333, 2: 7.433333}, abs=1e-6)


def test_a_buffer_of_two_with_a_dropout():
    # As above, but client 1's first upload breaks off at 2,000 bits: it began at 2.65 beside client 0's download, of which
    # 2,800 bits are left, both at 12,000 bit/s until 2.65 + 1/6 = 2.816667: lost one latency later, at 2.866667. Client 0's
    # download has 800 left, alone until 2.85: has it at 2.9; it computes until 3.9.
    # Client 1 starts again from version 0 at 2.866667: download alone until 3.2, computes from 3.25 to 4.85.
    # Client 0 sends alone: arrives at 3.9 + 1/3 + 0.05 = 4.283333: with its first reply (2.433333) the buffer is full.
    # Five visits started; three ended, two in a reply, so three downloads count.
    devices = Scripted([1.0, 1.6, 6.0], {(0.0, 1): (UPLOAD, 0.25)})
    result = run(scenario_of(devices, fs.participation.buffered(2)))
    assert_rounds(result, (0.0, 4.283333, 5, 2, 1, 0, 18_000, 24_000, 2_000))
    assert times(result, "drop") == pytest.approx({1: 2.866667}, abs=1e-6)


# --- Golden timestamps of the shipped scenarios -------------------------------------------------------------


GOLDEN = Path(__file__).parents[1] / "golden"
SMALL = {"stragglers": {"rounds": 8, "replicas": 2}, "topologies": {"rounds": 4, "replicas": 2}}


def closing_times(name):
    """{settings: [per replica, the times at which its rounds closed]} of a small run of a shipped scenario."""
    file = load_file(name)
    out = {}
    for settings in grid_runs(file, SMALL[name]):
        rounds = fs.run(file.build(settings), runtime=fs.Inline(threads=1)).rounds
        label = ", ".join(str(settings[axis]) for axis in file.grid)
        out[label] = [own["closed_s"].tolist() for _, own in rounds.groupby("replica")]
    return out


@pytest.mark.parametrize("name", SMALL)
def test_shipped_scenarios_close_their_rounds_when_they_always_did(name):
    """Regenerate with `PYTHONPATH=tests python -m engine.test_timelines`, and say why the times have changed."""
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    found = closing_times(name)
    assert list(found) == list(expected)
    for label, times in found.items():
        np.testing.assert_allclose(times, expected[label], rtol=1e-12, err_msg=label)


def independent_closing_times(scenario, rounds):
    """When the rounds of a scenario without drawn times close, by a simulation that shares no code with ours.

    It is told the sizes of messages and how long each client computes.
    """
    result = on_simpy(dataclasses.replace(scenario, budget=fs.Budget(rounds=1), record=fs.Record(events=True)))
    clients, network = scenario.problem.clients, scenario.network
    downloaded, computed = times(result, "download"), times(result, "compute")
    bits = {int(b) for b in result.events.loc[result.events["event"].isin(["download", "upload"]), "bits"]}
    assert len(bits) == 1

    def ways(upward):
        delay, loss = network.delay_s(upward), network.loss_factor(upward)
        return [Way(list(map(int, network.route(c, upward))), float(delay[c]), float(loss[c])) for c in range(clients)]

    [size] = bits
    case = Case(
        capacities=np.asarray(network.capacities_bps, float).tolist(), down=ways(False), up=ways(True),
        seconds=[computed[c] - downloaded[c] for c in range(clients)], fate=lambda client, number: (0, 0.0),
        selected=lambda site, round, now: list(range(clients)), groups=[0] * clients, down_bits=size, up_bits=size,
    )  # fmt: skip
    oracle = TierClock(case)
    oracle.run(rounds, rounds)
    return [oracle.rows[round]["closed"] for round in range(1, rounds + 1)]


def test_shipped_topologies_close_their_rounds_when_an_independent_simulation_does():
    file = load_file("topologies")
    for settings in grid_runs(file, SMALL["topologies"]):
        scenario = file.build(settings)
        expected = independent_closing_times(scenario, 4)
        for _, own in on_simpy(scenario).rounds.groupby("replica"):
            np.testing.assert_allclose(own["closed_s"], expected, rtol=1e-9, err_msg=str(settings))


if __name__ == "__main__":
    for scenario_name in SMALL:
        times_of = {label: [list(map(float, own)) for own in r] for label, r in closing_times(scenario_name).items()}
        (GOLDEN / f"{scenario_name}.json").write_text(json.dumps(times_of, indent=1) + "\n")

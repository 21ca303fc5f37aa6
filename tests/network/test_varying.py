"""Bandwidths that change in time: timelines by hand, and an exact simulation that shares no code with ours."""

from __future__ import annotations

import math
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsim as fs
from fedsim.errors import InvalidInput
from fedsim.network import Flows, Network, Varying, finish_times


def at(varying, time):
    """The bandwidth at a time, by definition."""
    time = Fraction(time)
    if varying.period_s is not None and time > 0:
        time -= (time // Fraction(varying.period_s)) * Fraction(varying.period_s)
    return next(
        b for t, b in reversed(list(zip(varying.times_s, varying.bps, strict=True))) if Fraction(t) <= max(time, 0)
    )


# --- One object ------------------------------------------------------------------------------------------


def test_steps_name_what_holds_and_then_every_change():
    once = Varying([0.0, 2.0, 5.0], [1.0, 0.0, 3.0])
    assert list(once.steps(0.0)) == [(0.0, 1.0), (2.0, 0.0), (5.0, 3.0)]
    assert list(once.steps(2.0)) == [(2.0, 0.0), (5.0, 3.0)]
    assert list(once.steps(9.0)) == [(9.0, 3.0)]
    assert list(once.steps(-1.0)) == [(-1.0, 1.0), (0.0, 1.0), (2.0, 0.0), (5.0, 3.0)]
    again = Varying([0.0, 2.0], [1.0, 4.0], period_s=3.0).steps(7.0)
    assert [next(again) for _ in range(4)] == [(7.0, 1.0), (8.0, 4.0), (9.0, 1.0), (11.0, 4.0)]


@given(st.floats(0, 1e6), st.sampled_from([0.1, 1 / 3, 3.0, 86400.0]))
def test_a_bandwidth_holds_from_its_step_on(time, period):
    varying = Varying([0.0, period / 4, period / 2], [1.0, 2.0, 3.0], period)
    steps = varying.steps(time)
    (now, bps), (then, more) = next(steps), next(steps)
    assert now == time < then <= time + period
    assert more != bps == varying.at(time)
    assert varying.at(then) == more
    assert varying.at(np.nextafter(then, 0.0)) == bps


def test_the_mean_is_over_time():
    assert Varying([0.0, 1.0], [8.0, 2.0], period_s=4.0).mean_bps == 3.5
    assert Varying([0.0, 1.0], [8.0, 2.0]).mean_bps == 2.0


@pytest.mark.parametrize(
    "arguments, words",
    [
        (([], []), "0 times and 0 bandwidths"),
        (([0.0, 1.0], [1.0]), "2 times and 1 bandwidths; give one bandwidth per time"),
        (([1.0], [1.0]), r"times_s\[0\]=1\): the first bandwidth begins at 0"),
        (([0.0, 2.0, 2.0], [1.0] * 3), r"times_s\[2\]=2\) follows 2: give times that rise"),
        (([0.0], [-1.0]), r"bps\[0\]=-1\): give bit/s"),
        (([0.0], [1e-200]), r"bps\[0\]=1e-200"),
        (([0.0], [math.inf]), "contains a NaN or an infinity"),
        (([0.0], [math.nan]), "contains a NaN"),
        (([0.0, math.inf], [1.0, 1.0]), "contains a NaN or an infinity"),
        (([0.0, 1.0], [1.0, 0.0]), "the last bandwidth is 0 and stays"),
        (([0.0, 1.0], [0.0, 0.0], 2.0), "all bandwidths are 0"),
        (([0.0, 1.0], [1.0, 2.0], 1.0), r"period_s=1\): the last step is at 1 s"),
        (([0.0], [1.0], 0.0), "period_s=0.0"),
        (([0.0], [1.0], "day"), "period_s='day'"),
        (("morning", [1.0]), "times_s"),
        (([[0.0]], [[1.0]]), "shape"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, words):
    with pytest.raises(InvalidInput, match=words):
        Varying(*arguments)


def test_it_does_not_change_when_its_callers_list_does():
    times = np.array([0.0, 1.0])
    varying = Varying(times, [1.0, 2.0])
    times[1] = 9.0
    assert varying.times_s.tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        varying.bps[0] = 3.0


# --- By hand ---------------------------------------------------------------------------------------------


def test_one_flow_on_one_link():
    link = Varying([0.0, 2.0, 3.0], [4.0, 0.0, 8.0])
    # 8 bits by 2, none up to 3, the other 16 at 8 bit/s
    assert finish_times([link], [[0]], [24.0], [0.0]).tolist() == [5.0]
    assert finish_times([link], [[0]], [8.0], [0.0]).tolist() == [2.0]  # through at the step: it does not wait
    assert finish_times([link], [[0]], [8.0], [2.5]).tolist() == [4.0]
    assert finish_times([link], [[0]], [8.0], [10.0]).tolist() == [11.0]


def test_two_flows_share_a_link_that_changes():
    link = Varying([0.0, 2.0], [4.0, 12.0])
    # 2 bit/s each: 4 bits each by 2. Then 6 each: the first needs 6 more, ends at 3, when the second has 10 of 22
    # and goes on alone at 12.
    assert finish_times([link], [[0], [0]], [10.0, 22.0], [0.0, 0.0]).tolist() == [3.0, 4.0]


def test_a_step_moves_the_bottleneck():
    near, far = 4.0, Varying([0.0, 1.0, 3.0], [2.0, 10.0, 2.0], period_s=4.0)
    # Flow 0 over both, flow 1 over the far link alone. 1 bit/s each up to 1; then 4 and 6 up to 3; then 1 each.
    finish = finish_times([near, far], [[0, 1], [1]], [11.0, 14.0], [0.0, 0.0])
    # by 3: 1 + 8 = 9 and 1 + 12 = 13; the second ends at 4 with flow 0 at 10; then the period begins again,
    # and flow 0 has the far link's 2 bit/s alone: 1 bit in half a second
    assert finish.tolist() == [4.5, 4.0]


def star_run(network, **arguments):
    scenario = fs.Scenario(
        problem=fs.problems.Payload(clients=2, parameters=1),
        algorithm=fs.algorithms.FedAvg(step_size=0.1, local_steps=1),
        network=network,
        budget=fs.Budget(rounds=3),
        **arguments,
    )
    return fs.run(scenario, timing_only=True)


def test_rounds_over_a_star_whose_links_vary():
    # 64 bits down at once, 64 up. Client 0 sends at 64 bit/s in even seconds and pauses in odd ones; client 1 at 32.
    up = [Varying([0.0, 1.0], [64.0, 0.0], period_s=2.0), 32.0]
    rounds = star_run(fs.topologies.star(2, uplink_bps=up)).rounds
    assert rounds["closed_s"].tolist() == [2.0, 4.0, 6.0]
    late = [Varying([0.0, 1.0], [0.0, 64.0], period_s=4.0), 64.0]
    assert star_run(fs.topologies.star(2, uplink_bps=late)).rounds["closed_s"].tolist() == [2.0, 3.0, 4.0]


def test_the_latency_follows_the_last_bit_on_a_link_that_varies():
    # Client 0 has the model one latency after the start, at 0.25, and sends from then on: 0.75 * 32 = 24 bits by 1, the
    # other 40 at 128 bit/s. The last bit leaves at 1 + 40 / 128 = 1.3125 and arrives at 1.3125 + 0.25 = 1.5625.
    # Client 1 sends from 0 on: 32 bits by 1, the other 32 until 1 + 32 / 128 = 1.25, so the round waits for client 0.
    up = Varying([0.0, 1.0], [32.0, 128.0])
    result = star_run(fs.topologies.star(2, uplink_bps=up, latency_s=[0.25, 0.0]))
    assert result.manifest["clock"]["name"] == "simpy"  # the compiled clock takes no bandwidths that vary
    assert result.rounds["closed_s"][0] == 1.5625


def test_a_bandwidth_that_never_changes_gives_the_times_of_a_number():
    for shape in (
        lambda bps: fs.topologies.star(2, uplink_bps=bps, downlink_bps=[100.0, 70.0], latency_s=0.25),
        lambda bps: fs.topologies.tree(2, edges=1, edge_uplink_bps=bps, downlink_bps=90.0),
    ):
        for policy in (fs.participation.full(), fs.participation.buffered(1)):
            steady, varying = (
                star_run(shape(bps), participation=policy).rounds["closed_s"].tolist()
                for bps in (50.0, Varying([0.0, 0.7], [50.0, 50.0], period_s=1.3))
            )
            np.testing.assert_allclose(varying, steady, rtol=1e-13)


def test_links_of_a_graph_may_vary_and_are_shared_exactly():
    # 64 bits up each, at 32 bit/s each over the edge until 1, at 64 each then: 32 + 32 bits, done at 1.5
    up = Varying([0.0, 1.0], [64.0, 128.0])
    rounds = star_run(fs.topologies.tree(2, edges=1, edge_uplink_bps=up)).rounds
    assert rounds["closed_s"].tolist() == [1.5, 2.5, 3.5]


def test_buffered_rounds_follow_the_steps():
    up = [Varying([0.0, 3.0], [64.0, 16.0]), 32.0]
    # client 0 is back at 1, 2, 3 and then 7; client 1 at 2, 4, 6: every arrival is a fold, ties by a draw
    result = star_run(fs.topologies.star(2, uplink_bps=up), participation=fs.participation.buffered(1))
    assert result.rounds["closed_s"].tolist() == [1.0, 2.0, 2.0]


# --- Against exact arithmetic -----------------------------------------------------------------------------


def exact_finish(capacities, routes, bits, starts):
    """Progressive filling with fractions between one event and the next, steps of bandwidths among them."""
    now, missing, finish = Fraction(0), [Fraction(b) for b in bits], [None] * len(routes)
    steps = sorted({
        Fraction(t) + k * Fraction(c.period_s or 0)
        for c in capacities if isinstance(c, Varying) for t in c.times_s for k in range(200 if c.period_s else 1)
    })  # fmt: skip
    while None in finish:
        active = [i for i in range(len(routes)) if finish[i] is None and Fraction(starts[i]) <= now]
        width = {k: Fraction(at(c, now) if isinstance(c, Varying) else c) for k, c in enumerate(capacities)}
        rates, open_flows = dict.fromkeys(active, Fraction(0)), set(active)
        while open_flows:
            offers = {k: width[k] / n for k in width if (n := sum(k in routes[i] for i in open_flows))}
            tight = min(offers, key=offers.get)
            for i in [i for i in open_flows if tight in routes[i]]:
                rates[i] = offers[tight]
                for k in routes[i]:
                    width[k] -= offers[tight]
                open_flows.discard(i)
        ends = {i: now + missing[i] / rate for i, rate in rates.items() if rate > 0}
        begins = [Fraction(s) for i, s in enumerate(starts) if finish[i] is None and Fraction(s) > now]
        then = min([*ends.values(), *begins, *(s for s in steps if s > now)])
        for i, rate in rates.items():
            missing[i] -= rate * (then - now)
            if ends.get(i) == then:
                finish[i] = then
        now = then
    return [float(f) for f in finish]


@st.composite
def cases(draw):
    links = draw(st.integers(1, 4))
    eighths = st.integers(1, 40).map(lambda n: n / 8)

    def bandwidth():
        if draw(st.booleans()):
            return float(draw(st.integers(1, 9)))
        gaps = draw(st.lists(eighths, min_size=0, max_size=3))
        times = np.cumsum([0.0, *gaps])
        bps = [float(draw(st.integers(0, 9))) for _ in times[:-1]] + [float(draw(st.integers(1, 9)))]
        return Varying(times, bps, draw(st.none() | eighths.map(lambda gap: times[-1] + gap)))

    capacities = [bandwidth() for _ in range(links)]
    routes = draw(st.lists(st.sets(st.integers(0, links - 1), min_size=1).map(sorted), min_size=1, max_size=6))
    bits = [float(draw(st.integers(1, 30))) for _ in routes]
    starts = [draw(st.integers(0, 40)) / 8 for _ in routes]
    return capacities, routes, bits, starts


@settings(max_examples=150, deadline=None)
@given(cases())
def test_finishing_times_agree_with_exact_arithmetic(case):
    np.testing.assert_allclose(finish_times(*case), exact_finish(*case), rtol=1e-9)


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 10**6))
def test_links_out_of_use_are_not_followed_and_come_back_right(case, seed):
    """Cancelling and starting at random: rates are always those of the bandwidths at that time."""
    capacities, routes, _, _ = case
    flows, draw, under_way, now = Flows(capacities), np.random.default_rng(seed), {}, 0.0
    for _ in range(12):
        then = now + float(draw.integers(1, 9)) / 4
        while (end := flows.next_finish_s()) <= then:
            for flow in flows.finish(end):
                del under_way[flow]
        now = then
        if under_way and draw.random() < 0.4:
            gone = int(draw.choice(list(under_way)))
            flows.cancel(now, gone)
            del under_way[gone]
        else:
            route = routes[draw.integers(len(routes))]
            under_way[flows.start(now, route, float(draw.integers(1, 50)))] = route
        steady = [at(c, now) if isinstance(c, Varying) else c for c in capacities]
        expected = Flows([max(c, 1e-50) for c in steady])
        twin = {expected.start(0.0, route, 1e9): flow for flow, route in under_way.items()}
        for other, flow in twin.items():
            assert flows.rate_bps(flow) == pytest.approx(expected.rate_bps(other), abs=1e-40)


# --- In networks -----------------------------------------------------------------------------------------


def test_a_network_lists_the_links_that_vary():
    graph, up = nx.Graph(), Varying([0.0, 1.0], [4.0, 8.0], 2.0)
    graph.add_node("server", role="server")
    graph.add_node("a", client=0)
    graph.add_edge("a", "server", bandwidth_bps=up, latency_s=0.0, shared=True)
    network = Network(graph)
    assert network.varying == {0: up}
    assert network.bottleneck_bps(True).tolist() == [6.0]
    assert fs.testing.check(network)


@pytest.mark.parametrize(
    "network",
    [
        fs.topologies.star(3, uplink_bps=[Varying([0.0, 1.0], [0.0, 5e5], 2.0), 1e6, 2e6], downlink_bps=1e6),
        fs.topologies.star(3, downlink_bps=Varying([0.0, 1.0], [3e5, 5e5])),
        fs.topologies.tree(4, edges=2, uplink_bps=1e6, edge_uplink_bps=[Varying([0.0, 0.5], [1e5, 9e5], 1.0), 2e5]),
    ],
    ids=["star", "star, equal links", "tree"],
)
def test_networks_with_varying_links_keep_the_contract(network):
    assert network.varying
    assert fs.testing.check(network)


def test_a_star_keeps_its_arguments_and_its_graph_has_them():
    up = [Varying([0.0, 1.0], [4.0, 8.0], 2.0), 3.0]
    star = fs.topologies.star(2, uplink_bps=up, downlink_bps=7.0)
    assert star.uplink_bps == tuple(up)
    assert star.varying == {0: up[0]}
    assert star.bottleneck_bps(True).tolist() == [6.0, 3.0]
    assert star.graph.edges["client0", "server"]["bandwidth_bps"] is up[0]
    assert Network(star.graph).bottleneck_bps(True).tolist() == [6.0, 3.0]


def test_half_of_a_shared_edge_cannot_vary_on_its_own():
    graph = nx.DiGraph()
    graph.add_node("server", role="server")
    graph.add_node("a", client=0)
    for u, v in (("a", "server"), ("server", "a")):
        graph.add_edge(u, v, bandwidth_bps=Varying([0.0], [4.0]), latency_s=0.0, shared=True)
    with pytest.raises(InvalidInput, match="must also be shared, with the same bandwidth"):
        Network(graph)


def test_columns_of_bandwidths_that_make_no_sense_are_refused():
    varying = Varying([0.0], [1.0])
    with pytest.raises(InvalidInput, match=r"star\(uplink_bps=...\) has shape \(3,\): give one number, or 2"):
        fs.topologies.star(2, uplink_bps=[varying, varying, 1.0])
    with pytest.raises(InvalidInput, match=r"star\(latency_s="):
        fs.topologies.star(2, latency_s=varying)
    with pytest.raises(InvalidInput, match=r"star\(uplink_bps\[1\]=-1.0\)"):
        fs.topologies.star(2, uplink_bps=[varying, -1.0])

"""Fair rates by the links' levels: the definition itself, the event by event model, and SimGrid's times."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.real_data import find

from fedsim.kernels import levels, pairing_heap
from fedsim.network import Flows, finish_times, finishing


@pytest.fixture
def always(monkeypatch):
    """Levels for few flows, too."""
    monkeypatch.setattr(finishing, "MANY_FLOWS", 0)


def by_events(capacities, routes, bits, starts):
    return finishing._by_events(Flows(capacities), [tuple(r) for r in routes], list(bits), list(starts))


def mesh(flows, links=40, hops=4, seed=0, seconds=1.0):
    draw = np.random.default_rng(seed)
    routes = [draw.choice(links, draw.integers(1, hops + 1), replace=False).tolist() for _ in range(flows)]
    bits = draw.integers(1_000, 1_000_000, flows).astype(float)
    return draw.uniform(1e7, 5e7, links), routes, bits, seconds * draw.random(flows)


def test_a_pairing_heap_gives_the_least_whatever_is_taken_out():
    draw, there, top = np.random.default_rng(5), set(), -1
    mark = draw.integers(0, 40, 200).astype(float)  # many equal
    heap = mark, *(np.full(200, -1) for _ in range(3))
    for step in range(3000):
        item = int(draw.integers(200)) if step % 5 else max(top, 0)
        top = pairing_heap.without(*heap, top, item) if item in there else pairing_heap.meld(*heap, top, item)
        there ^= {item}
        assert (top in there and mark[top] == min(mark[i] for i in there)) if there else top == -1


def flat(routes):
    return np.concatenate([[0], np.cumsum([len(route) for route in routes])]), np.concatenate(routes)


def assert_fair(capacity, routes, rates):
    """No link is over its capacity; every flow is among the fastest on a full link."""
    load, fastest = np.zeros(len(capacity)), np.zeros(len(capacity))
    for route, rate in zip(routes, rates, strict=True):
        load[route] += rate
        fastest[route] = np.maximum(fastest[route], rate)
    assert (load <= capacity * (1 + 1e-10)).all()
    full = load >= capacity * (1 - 1e-10)
    for route, rate in zip(routes, rates, strict=True):
        assert (full[route] & (rate >= fastest[route] * (1 - 1e-10))).any()


@pytest.mark.parametrize("kinds", [3, 10_000], ids=["many end together", "each by itself"])
@pytest.mark.parametrize("links", [1, 3])
def test_many_flows_over_few_links_end_as_event_by_event(always, links, kinds):
    draw = np.random.default_rng(links)
    routes = [[int(draw.integers(links))] for _ in range(600)]
    bits, starts = draw.integers(1, 1 + kinds, 600) * 1e3, draw.integers(0, 5, 600) * 0.01
    case = (np.full(links, 1e7), routes, bits, starts)
    assert finish_times(*case) == pytest.approx(by_events(*case), rel=1e-12)


@pytest.mark.parametrize("equal", [False, True], ids=["different links", "equal links"])
def test_rates_are_fair_after_any_starts_and_ends(equal):
    capacity, routes, bits, _ = mesh(400, links=30)
    capacity = np.full(30, 1e7) if equal else capacity
    s, draw, under_way = levels.made(capacity, *flat(routes)), np.random.default_rng(1), set()
    for step in range(900):
        flow = int(draw.integers(400))
        assert (levels.remove(s, flow) if flow in under_way else levels.add(s, flow, bits[flow])) is True
        under_way ^= {flow}
        if step % 60 == 0 and under_way:
            on = sorted(under_way)
            assert_fair(capacity, [routes[i] for i in on], s.level[s.owner[on]])


def test_clocks_count_the_bits_that_are_missing():
    s = levels.made(np.array([8.0, 3.0]), *flat([[0], [0, 1]]))
    assert levels.next_end(s) == (np.inf, -1)
    levels.add(s, 0, 20.0)
    assert levels.next_end(s) == (2.5, 0)
    levels.advance(s, 1.0)
    levels.add(s, 1, 6.0)  # 3 bit/s for it, 5 for the other
    assert levels.next_end(s) == (2.0, 1)
    levels.advance(s, 1.0)
    assert (levels.missing(s, 0), levels.missing(s, 1)) == (7.0, 3.0)
    levels.remove(s, 1)
    assert levels.next_end(s) == (0.875, 0)


@st.composite
def traffic(draw):
    links = draw(st.integers(1, 6))
    capacities = [float(draw(st.integers(1, 9))) for _ in range(links)]
    routes = draw(st.lists(st.sets(st.integers(0, links - 1), max_size=4).map(sorted), min_size=1, max_size=14))
    bits = [float(draw(st.integers(0, 30))) for _ in routes]
    starts = [draw(st.integers(-8, 16)) / 4 for _ in routes]
    return capacities, routes, bits, starts


@settings(max_examples=150, deadline=None)
@given(traffic())
def test_finishing_times_are_those_of_the_event_by_event_model(case):
    capacities, routes, bits, starts = case
    found = finishing._by_levels(
        np.array(capacities), [tuple(route) for route in routes], np.array(bits), np.array(starts)
    )
    assert found is not None
    np.testing.assert_allclose(found, by_events(*case), rtol=1e-9, atol=1e-12)


def test_finishing_times_agree_with_simgrid(always):
    for case in json.loads(find("FEDSIM_REFERENCE", "maxmin_flows.json").read_text()):
        number = {name: k for k, name in enumerate(case["links"])}
        routes = [[number[name] for name in flow["route"]] for flow in case["flows"]]
        bits, starts = ([flow[what] for flow in case["flows"]] for what in ("bytes", "start"))
        np.testing.assert_allclose(
            finish_times(list(case["links"].values()), routes, bits, starts), case["finish"], rtol=1e-9, atol=0
        )


@pytest.mark.parametrize("seconds", [0.0, 0.05, 30.0], ids=["together", "apart", "far apart"])
def test_a_thousand_flows_and_more_take_this_way_to_the_same_times(seconds):
    case = mesh(finishing.MANY_FLOWS, seconds=seconds)
    assert finishing._by_levels(case[0], [tuple(r) for r in case[1]], *case[2:]) is not None
    np.testing.assert_allclose(finish_times(*case), by_events(*case), rtol=1e-10)


def test_equal_flows_on_equal_links_end_together():
    routes = [[i % 50, 50 + i % 50] for i in range(2000)]
    np.testing.assert_allclose(finish_times([2.0] * 100, routes, 1.0, 1.0), 21.0, rtol=1e-12)


def test_ideal_links_and_empty_messages_take_no_time():
    routes = [[0], [1], [], [0, 1]] * 500
    finish = finish_times([np.inf, 4.0], routes, [1.0, 0.0, 1.0, 2.0] * 500, 3.0)
    assert finish[[0, 1, 2]].tolist() == [3.0] * 3
    np.testing.assert_allclose(finish[3::4], 3.0 + 500 * 2.0 / 4.0)


def test_more_links_than_there_is_room_for_go_event_by_event(monkeypatch):
    monkeypatch.setattr(finishing, "FEW_LINKS", 39)
    case = mesh(finishing.MANY_FLOWS, seconds=30.0)
    assert finishing._by_levels(case[0], [tuple(r) for r in case[1]], *case[2:]) is None
    assert finish_times(*case).tolist() == by_events(*case).tolist()

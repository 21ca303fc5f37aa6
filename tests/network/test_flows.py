"""Max-min fair flows, against SimGrid, against exact arithmetic, and against the definition itself."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools.real_data import find

from fedsim.errors import InvalidInput
from fedsim.network.finishing import finish_times
from fedsim.network.flows import Flows

# --- Two ways to drive them, and exact arithmetic to compare with --------------------------------------


def drive(capacities, routes, bits, starts):
    """What an event loop would do with `Flows`: finishing times, and the times of all events."""
    flows, finish, clock, number = Flows(capacities), [math.inf] * len(routes), [], {}
    waiting = sorted(range(len(routes)), key=lambda i: (starts[i], -i))
    while waiting or number:
        end = flows.next_finish_s()
        if waiting and starts[waiting[0]] < end:
            clock.append(starts[waiting[0]])
            while waiting and starts[waiting[0]] == clock[-1]:  # together, as all that happens at one time
                i = waiting.pop(0)
                number[flows.start(clock[-1], np.array(routes[i], np.int64), bits[i])] = i
        else:
            done = flows.finish(end)
            assert done == sorted(done)
            assert done
            clock.append(end)
            for flow in done:
                finish[number.pop(flow)] = end
    return np.array(finish), clock


def fair_rates(capacities, routes):
    """Progressive filling with exact fractions."""
    left, rates = {k: Fraction(c) for k, c in enumerate(capacities) if c < math.inf}, {}
    while len(rates) < len(routes):
        users = {k: [i for i, r in enumerate(routes) if k in r and i not in rates] for k in left}
        offers = {k: left[k] / len(u) for k, u in users.items() if u}
        k = min(offers, key=offers.get)
        for i in users[k]:
            rates[i] = offers[k]
            for other in routes[i]:
                if other in left:
                    left[other] -= offers[k]
    return [rates[i] for i in range(len(routes))]


def exact_finish(capacities, routes, bits, starts):
    """Finishing times as fractions."""
    now, missing, finish = Fraction(0), [Fraction(b) for b in bits], [None] * len(routes)
    for i, route in enumerate(routes):
        if not bits[i] or all(capacities[k] == math.inf for k in route):
            finish[i] = Fraction(starts[i])
    while None in finish:
        active = [i for i in range(len(routes)) if finish[i] is None and starts[i] <= now]
        rates = fair_rates(capacities, [routes[i] for i in active])
        ends = [now + missing[i] / rate for i, rate in zip(active, rates, strict=True)]
        begins = [Fraction(s) for i, s in enumerate(starts) if finish[i] is None and s > now]
        then = min(ends + begins)
        for i, rate, end in zip(active, rates, ends, strict=True):
            missing[i] -= rate * (then - now)
            if end == then:
                finish[i] = then
        now = then
    return np.array([float(f) for f in finish])


def assert_fair(capacities, routes, rates):
    """No link is over capacity; every flow is among the fastest on a full link."""
    load = [sum(rate for route, rate in zip(routes, rates, strict=True) if k in route) for k in range(len(capacities))]
    for k, capacity in enumerate(capacities):
        assert load[k] <= capacity * (1 + 1e-12)
    for route, rate in zip(routes, rates, strict=True):
        if all(capacities[k] == math.inf for k in route):
            assert rate == math.inf
            continue
        assert any(
            load[k] >= capacities[k] * (1 - 1e-12)
            and rate >= (1 - 1e-12) * max(r for other, r in zip(routes, rates, strict=True) if k in other)
            for k in route
        )


# --- The reference --------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [finish_times, lambda *case: drive(*case)[0]], ids=["finish_times", "event by event"])
def test_finishing_times_agree_with_simgrid(way):
    cases = json.loads(find("FEDSIM_REFERENCE", "maxmin_flows.json").read_text())
    assert len(cases) == 24
    for case in cases:  # capacities in bytes per second and sizes in bytes: as good as bits
        number = {name: k for k, name in enumerate(case["links"])}
        routes = [[number[name] for name in flow["route"]] for flow in case["flows"]]
        bits = [8.0 * flow["bytes"] for flow in case["flows"]]
        starts = [flow["start"] for flow in case["flows"]]
        finish = way([8.0 * c for c in case["links"].values()], routes, bits, starts)
        np.testing.assert_allclose(finish, case["finish"], rtol=1e-9, atol=0)


# --- By hand --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "capacities, routes, bits, starts, finish",
    [
        ([8.0], [[0]], [24.0], [1.0], [4.0]),
        ([8.0], [[0], [0]], [8.0, 8.0], [0.0, 0.0], [2.0, 2.0]),
        ([8.0], [[0], [0]], [8.0, 16.0], [0.0, 0.0], [2.0, 3.0]),
        ([8.0], [[0], [0]], [16.0, 4.0], [0.0, 1.0], [2.5, 2.0]),  # 8 bits alone, 4 while the other sends its 4
        ([1.0, 8.0], [[0, 1], [1]], [4.0, 28.0], [0.0, 0.0], [4.0, 4.0]),  # a cap leaves 7 to the other
        ([4.0, 4.0], [[0], [1], [0, 1]], [8.0, 8.0, 8.0], [0.0, 0.0, 0.0], [4.0, 4.0, 4.0]),
        ([2.0, 6.0], [[0], [0, 1], [1]], [2.0, 2.0, 10.0], [0.0, 0.0, 0.0], [2.0, 2.0, 2.0]),
        ([2.0, 6.0], [[0], [0, 1], [1]], [2.0, 6.0, 10.0], [0.0, 0.0, 0.0], [2.0, 4.0, 2.0]),
        ([4.0], [[0], [0], [0]], [4.0, 4.0, 4.0], [0.0, 1.0, 2.0], [1.0, 2.0, 3.0]),  # one after another
        (
            [math.inf, 2.0],
            [[0], [1], [0, 1], []],
            [9.0, 4.0, 4.0, 9.0],
            [1.0, 0.0, 0.0, 2.0],
            [1.0, 4.0, 4.0, 2.0],
        ),
        ([5.0], [[0], [0]], [0.0, 10.0], [1.0, 0.0], [1.0, 2.0]),
        ([1.0], [], [], [], []),
    ],
)
def test_small_cases_come_out_as_by_hand(capacities, routes, bits, starts, finish):
    assert finish_times(capacities, routes, bits, starts).tolist() == finish
    assert drive(capacities, routes, bits, starts)[0].tolist() == finish


def test_one_number_of_bits_and_one_start_stand_for_all():
    assert finish_times([4.0], [[0], [0]], 8.0, 1.0).tolist() == [5.0, 5.0]


def test_cancelling_tells_what_was_sent_and_frees_the_link():
    flows = Flows([8.0])
    a, b = flows.start(0.0, [0], 16.0), flows.start(0.0, [0], 16.0)
    assert flows.cancel(1.0, a) == 4.0
    assert flows.rate_bps(b) == 8.0
    assert flows.next_finish_s() == 2.5
    assert flows.finish(2.5) == [b]
    assert flows.next_finish_s() == math.inf


def test_cancelling_at_the_start_or_at_the_end_sends_nothing_or_all():
    flows = Flows([8.0, math.inf])
    assert flows.cancel(0.0, flows.start(0.0, [0], 16.0)) == 0.0
    assert flows.next_finish_s() == math.inf
    flow = flows.start(0.0, [0], 16.0)
    assert flows.cancel(2.0, flow) == 16.0
    assert flows.cancel(3.0, flows.start(3.0, [1], 7.0)) == 7.0
    assert flows.next_finish_s() == math.inf


def test_the_first_bits_of_a_long_message_are_counted_exactly():
    flows = Flows([32.0])
    assert flows.cancel(1.0, flows.start(0.0, [0], 2.0**60)) == 32.0


def test_a_link_that_is_down_makes_its_flows_wait():
    flows = Flows([8.0, 8.0])
    a, b = flows.start(0.0, [0], 16.0), flows.start(0.0, [0, 1], 8.0)
    flows.set_capacity(1.0, 0, 0.0)
    assert flows.next_finish_s() == math.inf
    assert flows.rate_bps(a) == 0.0
    flows.set_capacity(11.0, 0, 4.0)
    assert flows.next_finish_s() == 13.0
    assert flows.finish(13.0) == [b]
    assert flows.next_finish_s() == 15.0


def test_a_link_that_becomes_ideal_lets_its_flows_go_at_once():
    flows = Flows([8.0, 8.0])
    a, b = flows.start(0.0, [0], 16.0), flows.start(0.0, [0, 1], 16.0)
    flows.set_capacity(1.0, 0, math.inf)
    assert flows.next_finish_s() == 1.0
    assert flows.finish(1.0) == [a]
    assert flows.rate_bps(b) == 8.0
    assert flows.next_finish_s() == 2.5


def test_flows_that_end_together_are_named_in_order():
    flows = Flows([8.0, 8.0, 6.0])
    ids = [flows.start(0.0, route, bits) for route, bits in (([1], 8.0), ([0], 4.0), ([2], 6.0), ([0], 4.0))]
    empty = flows.start(1.0, [0], 0.0)
    assert flows.next_finish_s() == 1.0
    assert flows.finish(1.0) == [*ids, empty]


def test_nothing_ends_before_its_time():
    flows = Flows([8.0])
    flows.start(0.0, [0], 8.0)
    assert flows.finish(0.5) == []
    assert flows.next_finish_s() == 1.0


# --- For any flows ----------------------------------------------------------------------------------------

sizes = st.sampled_from([0.0, 1.0, 8.0, 12.0, 1000.0]) | st.floats(1e-3, 1e6)
times = st.sampled_from([0.0, 1.0, 2.0, 5.0]) | st.floats(0.0, 100.0)


@st.composite
def networks(draw, largest=7, flows=8):
    capacity = st.sampled_from([1.0, 2.0, 3.0, 8.0, 1000.0, math.inf]) | st.floats(1e-2, 1e5)
    capacities = draw(st.lists(capacity, min_size=1, max_size=largest))
    route = st.lists(st.integers(0, len(capacities) - 1), unique=True, max_size=4)
    routes = draw(st.lists(route, min_size=1, max_size=flows))
    if draw(st.booleans()):  # every client behind its own link, as in trees and stars
        capacities += draw(st.lists(capacity, min_size=len(routes), max_size=len(routes)))
        routes = [[*route, len(capacities) - 1 - i] for i, route in enumerate(routes)]
    return capacities, routes


@st.composite
def traffic(draw, flows=8):
    capacities, routes = draw(networks(flows=flows))
    n = len(routes)
    return (
        capacities,
        routes,
        draw(st.lists(sizes, min_size=n, max_size=n)),
        draw(st.lists(times, min_size=n, max_size=n)),
    )


@given(networks())
def test_rates_are_max_min_fair(network):
    capacities, routes = network
    flows = Flows(capacities)
    ids = [flows.start(0.0, route, 1.0) for route in routes]
    assert_fair(capacities, routes, [flows.rate_bps(flow) for flow in ids])


@given(traffic(flows=6))
@settings(max_examples=60)
def test_finishing_times_are_those_of_exact_arithmetic(case):
    np.testing.assert_allclose(finish_times(*case), exact_finish(*case), rtol=1e-9, atol=1e-12)


@given(traffic(), st.randoms(use_true_random=False))
def test_the_order_in_which_flows_are_given_does_not_matter_to_the_last_bit(case, random):
    capacities, routes, bits, starts = case
    order = random.sample(range(len(routes)), len(routes))
    expected = finish_times(capacities, routes, bits, starts)[order]
    shuffled = [[column[i] for i in order] for column in (routes, bits, starts)]
    assert finish_times(capacities, *shuffled).tolist() == expected.tolist()


@given(traffic())
def test_event_by_event_gives_the_same_bits_and_time_never_goes_back(case):
    finish, clock = drive(*case)
    assert finish.tolist() == finish_times(*case).tolist()
    assert clock == sorted(clock)
    assert all(end >= start for end, start in zip(finish, case[3], strict=True))


@given(st.floats(1e-3, 1e9), st.floats(1e-3, 1e9), st.floats(0.0, 1e6), st.floats(1.0, 1e12), st.integers(1, 5))
def test_an_uncontended_flow_ends_at_the_closed_form(near, far, start, bits, others):
    """Also on links that others use at other times."""
    flows = Flows([near, far, 1.0])
    for _ in range(others):
        flows.start(-2.0, [0, 2], 1.0)
        flows.start(-2.0, [1], 1.0)
    while (end := flows.next_finish_s()) < math.inf:
        flows.finish(end)
    start = max(start, flows._now)
    flow = flows.start(start, [0, 1], bits)
    assert flows.next_finish_s() == start + bits / min(near, far)
    assert flows.finish(flows.next_finish_s()) == [flow]


@given(traffic())
def test_a_link_never_carries_more_than_it_can(case):
    """The last of the flows that only use one link cannot end before the link has had time for all of them."""
    capacities, routes, bits, starts = case
    finish = finish_times(*case)
    for k, capacity in enumerate(capacities):
        users = [i for i, route in enumerate(routes) if k in route]
        if users:
            total, first, last = sum(bits[i] for i in users), min(starts[i] for i in users), max(finish[users])
            assert last >= (first + total / capacity) * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_rates_stay_fair_through_starts_ends_cancellations_and_changes_of_capacity(seed):
    """Long enough for links to become shared, lists to be laid out again and groups to be made again."""
    draw = np.random.default_rng(seed)
    capacities = draw.choice([1.0, 2.0, 5.0, 40.0, 100.0], 12).tolist() + [3.0] * 30
    flows, now, under_way = Flows(capacities), 0.0, {}
    for step in range(500):
        end = flows.next_finish_s()
        action = draw.integers(0, 10)
        if under_way and (action < 4 or len(under_way) > 25):
            now = end
            for flow in flows.finish(now):
                del under_way[flow]
        else:
            now = min(end, now + draw.exponential(0.5))
            if action < 8:
                route = draw.choice(12, draw.integers(1, 4), replace=False).tolist()
                if draw.random() < 0.5:
                    route.append(int(draw.integers(12, 42)))
                bits = float(draw.integers(1, 40))
                under_way[flows.start(now, route, bits)] = (route, bits)
            elif action == 8 and under_way:
                flow = list(under_way)[draw.integers(len(under_way))]
                sent = flows.cancel(now, flow)
                assert 0.0 <= sent <= under_way.pop(flow)[1]
            else:
                link = int(draw.integers(len(capacities)))
                capacities[link] = float(draw.choice([1.0, 3.0, 20.0]))
                flows.set_capacity(now, link, capacities[link])
        if step % 5 == 0:
            rates = [flows.rate_bps(flow) for flow in under_way]
            assert_fair(capacities, [route for route, _ in under_way.values()], rates)
        assert flows.next_finish_s() >= now
    while under_way:
        for flow in flows.finish(flows.next_finish_s()):
            del under_way[flow]
    assert flows.next_finish_s() == math.inf


def test_thousands_of_equal_flows_behind_equal_links_end_at_the_same_instant():
    n = 2000
    finish = finish_times([*[4.0] * n, 1000.0], [[i, n] for i in range(n)], 10.0, 0.0)
    assert set(finish.tolist()) == {20.0}


def test_a_busy_link_serves_a_long_queue_at_full_speed():
    """Whatever is shared how, the link is never idle: the last flow ends when all bits have passed."""
    draw = np.random.default_rng(3)
    n = 3000
    bits = draw.integers(1, 1000, n).astype(float)
    finish = finish_times([*draw.uniform(50.0, 5000.0, n), 100.0], [[i, n] for i in range(n)], bits, 0.0)
    assert finish.max() == pytest.approx(bits.sum() / 100.0, rel=1e-9)
    assert np.all(np.diff(finish[np.argsort(bits)]) >= -1e-9 * finish.max())  # the smaller, the sooner


# --- What is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: finish_times([0.0], [[0]], [1.0], [0.0]), "link 0 has capacity 0.0 bit/s: give a positive"),
        (lambda: finish_times([1.0, -1.0], [[0]], [1.0], [0.0]), "link 1 has capacity -1.0"),
        (lambda: finish_times([math.nan], [[0]], [1.0], [0.0]), "link 0 has capacity nan"),
        (
            lambda: finish_times([1.0], [[1]], [1.0], [0.0]),
            "route over link 1: name links by their numbers, 0 to 0",
        ),
        (lambda: finish_times([1.0], [[-1]], [1.0], [0.0]), "route over link -1"),
        (lambda: finish_times([1.0], [[0.5]], [1.0], [0.0]), "route over link 0.5"),
        (lambda: finish_times([1.0], [[0], [0.0]], 1.0, 0.0), "route over link 0.0"),  # though it equals the one before
        (lambda: finish_times([1.0], [["a"]], [0.0], [0.0]), "route over link 'a'"),
        (lambda: finish_times([1.0], [["a", 0]], [1.0], [0.0]), "route over link 'a'"),
        (lambda: finish_times([1.0], [[[0, 0], [0, 0]]], [1.0], [0.0]), r"route over link \[0, 0\]"),
        (lambda: finish_times([1.0], np.zeros((2, 2, 2)), [1.0, 1.0], [0.0, 0.0]), "route over link array"),
        (
            lambda: finish_times([1.0], [[0, 0]], [1.0], [0.0]),
            r"route over links \[0, 0\]: name every link once",
        ),
        (lambda: finish_times([1.0], [[0]], [-1.0], [0.0]), "bits of flow 0 is -1.0: give a finite number"),
        (lambda: finish_times([1.0], [[0]], [math.nan], [0.0]), "bits of flow 0 is nan"),
        (lambda: finish_times([1.0], [[0], [0]], [1.0, 1.0], [0.0, math.inf]), "starts_s of flow 1 is inf"),
        (lambda: finish_times([1.0], [[0], [0]], [1.0], [0.0]), r"bits has shape \(1,\) for 2 routes"),
        (lambda: Flows([1.0]).start(0.0, [0], math.inf), "a flow of inf bits"),
        (lambda: Flows([1.0]).start(math.nan, [0], 1.0), "time nan after -inf"),
        (lambda: Flows([1.0]).cancel(0.0, 3), "flow 3 is not active"),
        (lambda: Flows([1.0]).rate_bps(3), "flow 3 is not active"),
        (lambda: Flows([1.0]).set_capacity(0.0, 1, 1.0), "link 1 does not exist: name one of 0 to 0"),
        (lambda: Flows([1.0]).set_capacity(0.0, 0, -1.0), "link 0 has capacity -1.0"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()


def test_time_may_not_go_back_nor_pass_over_an_end():
    flows = Flows([8.0])
    flows.start(1.0, [0], 8.0)
    with pytest.raises(InvalidInput, match=r"time 0\.5 after 1\.0: give times that do not decrease"):
        flows.start(0.5, [0], 8.0)
    with pytest.raises(InvalidInput, match=r"time 3\.0: first finish what ends or changes at 2\.0"):
        flows.start(3.0, [0], 8.0)

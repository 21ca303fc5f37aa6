import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedsim import devices, rng
from fedsim.errors import InvalidInput
from fedsim.kernels import cpu
from fedsim.rules import availability
from fedsim.rules.availability import COME_ONLINE, cell_words, cycle, last_call_s, next_call_s
from fedsim.rules.draws import Key, unit
from fedsim.rules.visits import BEFORE, IN_COMPUTE, IN_UPLOAD, NO_DROP

MANY = 20_000


def visits(clients, round=0, seed=1, stream=rng.Stream.COMPUTE, replica=0, source=None):
    key = rng.keys(seed, stream, replica=replica, client=np.asarray(clients), round=round)
    return rng.Draws(key, source=source)


def history(clients, seed=1, replica=0, source=cpu):
    return visits(clients, 0, seed, rng.Stream.AVAILABILITY, replica, source)


def compute(model, clients, work=1.0, round=0, seed=1, **address):
    clients = np.asarray(clients)
    zeros = np.zeros(len(clients))
    return model.compute_s(clients, zeros + work, zeros, visits(clients, round, seed, **address))


def drop(model, clients, round=0, seed=1):
    clients = np.asarray(clients)
    return model.drop(clients, np.zeros(len(clients)), visits(clients, round, seed, rng.Stream.DROPOUT))


def start(model, clients, now_s, **address):
    clients = np.asarray(clients)
    return model.next_available(clients, np.broadcast_to(now_s, clients.shape), history(clients, **address))


def until(model, clients, now_s, **address):
    clients = np.asarray(clients)
    return model.available_until(clients, np.broadcast_to(now_s, clients.shape), history(clients, **address))


def agrees(sample, law, least=1e-3):
    """Kolmogorov-Smirnov: a true law fails one fixed seed in a thousand."""
    return stats.kstest(sample, law).pvalue > least


def frequent(count, trials, probability, least=1e-3):
    return stats.binomtest(int(count), trials, probability).pvalue > least


# --- Compute time -----------------------------------------------------------------------------------


def test_compute_time_is_work_times_seconds_per_step():
    assert compute(devices.constant(0.5), [0, 1], work=4.0).tolist() == [2.0, 2.0]
    assert compute(devices.constant([1.0, 2.0, 3.0]), [2, 0, 2], work=2.0).tolist() == [6.0, 2.0, 6.0]


def test_latency_comes_once_per_visit_whatever_the_work():
    model = devices.constant(0.5, latency_s=[0.0, 10.0])
    assert compute(model, [0, 1, 1], work=4.0).tolist() == [2.0, 12.0, 12.0]


def test_flops_become_seconds_per_step():
    model = devices.from_flops(flops_per_step=6e9, flops_per_second=[1e9, 3e9])
    assert compute(model, [0, 1], work=2.0).tolist() == [12.0, 4.0]


def test_seconds_per_example_tell_the_engine_to_count_examples():
    model = devices.constant(seconds_per_example=0.25)
    assert model.per_example
    assert compute(model, [0], work=8.0).tolist() == [2.0]
    assert not devices.constant(0.25).per_example


def test_lognormal_speeds_follow_their_law_across_clients():
    seconds = compute(devices.lognormal(median_step_s=2e-3, sigma=0.5), np.arange(MANY))
    assert agrees(np.log(seconds / 2e-3) / 0.5, "norm")


def test_a_client_keeps_its_speed_in_every_round_and_replica():
    model = devices.lognormal(1e-3, sigma=0.5)
    clients = np.arange(100)
    first = compute(model, clients)
    assert np.array_equal(first, compute(model, clients, round=7, seed=3, replica=5))
    assert not np.array_equal(first, compute(devices.lognormal(1e-3, sigma=0.5, seed=1), clients))


def test_speed_and_slow_down_of_one_seed_are_independent():
    clients = np.arange(MANY)
    model = devices.lognormal(1.0, sigma=1.0, seed=1)
    speed = np.log(compute(model, clients))
    both = np.log(compute(replace(model, slowdown=devices.lognormal_slowdown(1.0)), clients, round=0, seed=1))
    assert abs(stats.pearsonr(speed, both - speed).statistic) < 4 / math.sqrt(MANY)


@pytest.mark.parametrize(
    ("slowdown", "law"),
    [
        (devices.lognormal_slowdown(0.7), stats.lognorm(0.7)),
        (devices.pareto_slowdown(1.5), stats.pareto(1.5)),
    ],
)
def test_slow_downs_follow_their_law_over_rounds(slowdown, law):
    model = devices.constant(1.0, slowdown=slowdown)
    assert agrees(compute(model, np.zeros(MANY, int), round=np.arange(MANY)), law.cdf)


def test_pareto_slow_down_never_speeds_up():
    assert compute(devices.constant(1.0, slowdown=devices.pareto_slowdown(0.1)), np.arange(MANY)).min() >= 1.0


def test_bimodal_slow_down_hits_a_share_of_the_visits():
    seconds = compute(devices.constant(1.0, slowdown=devices.bimodal_slowdown(0.1, slow_factor=8.0)), np.arange(MANY))
    assert set(seconds) == {1.0, 8.0}
    assert frequent(np.sum(seconds == 8.0), MANY, 0.1)


# --- Dropout ----------------------------------------------------------------------------------------


def test_dropout_is_one_bernoulli_per_visit_during_compute():
    phase, _ = drop(devices.constant(1.0, dropout=0.2), np.arange(MANY))
    assert phase.dtype == np.int8
    assert set(phase) == {NO_DROP, IN_COMPUTE}
    assert frequent(np.sum(phase == IN_COMPUTE), MANY, 0.2)


def test_a_mapping_sets_the_dropout_of_each_phase():
    model = devices.constant(1.0, dropout={"before": 0.1, "compute": 0.2, "upload": 0.3})
    phase, _ = drop(model, np.arange(MANY))
    for number, share in ((BEFORE, 0.1), (IN_COMPUTE, 0.2), (IN_UPLOAD, 0.3)):
        assert frequent(np.sum(phase == number), MANY, share)


def test_the_point_of_dropout_is_uniform_in_every_phase():
    model = devices.constant(1.0, dropout={"before": 0.3, "compute": 0.3, "upload": 0.4})
    phase, fraction = drop(model, np.arange(MANY))
    assert (phase > 0).all()
    for number in (BEFORE, IN_COMPUTE, IN_UPLOAD):
        assert agrees(fraction[phase == number], "uniform")


def test_dropout_may_differ_from_client_to_client():
    phase, _ = drop(devices.constant(1.0, dropout=[0.0, 1.0]), np.arange(100) % 2)
    assert phase.tolist() == [NO_DROP, IN_COMPUTE] * 50
    model = devices.constant(1.0, dropout={"before": [1.0, 0.0], "upload": [0.0, 1.0]})
    assert drop(model, [0, 1])[0].tolist() == [BEFORE, IN_UPLOAD]


def test_reliable_devices_never_drop_out():
    model = devices.constant(1.0)
    assert model.reliable
    assert not drop(model, np.arange(100))[0].any()
    assert not devices.constant(1.0, dropout={"upload": [0.0, 0.1]}).reliable


# --- Availability: what every model promises ---------------------------------------------------------

DAY = 86400.0
MODELS = {
    "markov": devices.markov(3.0, off_s=5.0),
    "mostly on": devices.markov(on_s=500.0, off_s=0.5),
    "diurnal": devices.diurnal(7.0, on_fraction=0.3),
    "diurnal in phase": devices.diurnal(7.0, on_fraction=0.3, phase=0.9),
    "recorded": devices.intervals([1.0, 4.0, 0.0], ends=[3.0, 6.5, 9.0], offsets=[0, 2, 2, 3]),
    "repeated": devices.intervals(
        [1.0, 4.0, 0.0], ends=[3.0, 6.5, 2.0], offsets=[0, 2, 2, 3], period_s=[8.0, 3.0, 5.0]
    ),
    "across the seam": devices.intervals(
        [0.0, 4.0, 0.0, 2.0], ends=[1.0, 6.0, 1.0, 5.0], offsets=[0, 2, 3, 4], period_s=[6.0, 1.0, 5.0]
    ),
}
CLIENTS = np.arange(3)


def on_periods(model, client, horizon_s, **address):
    """The on-periods of a client up to the horizon, found by walking from one to the next."""
    periods, now = [], 0.0
    while True:
        begin = float(start(model, [client], now, **address)[0])
        if begin >= horizon_s:
            return periods
        end = float(until(model, [client], begin, **address)[0])
        assert end > begin
        periods.append((begin, end))
        if end >= horizon_s:
            return periods
        now = end


@pytest.mark.parametrize("name", MODELS)
def test_answers_at_any_time_agree_with_one_list_of_on_periods(name):
    model, horizon = MODELS[name], 60.0
    times = rng.uniform(rng.keys(2, rng.Stream.USER), 300)[0] * horizon
    for client in CLIENTS:
        periods = on_periods(model, client, horizon)
        edges = [t for period in periods for t in period if t < horizon]
        now = np.concatenate([times, edges])[::-1]
        clients = np.full(len(now), client)
        for t, begin, end in zip(now, start(model, clients, now), until(model, clients, now), strict=True):
            inside = [e for b, e in periods if b <= t < e]
            later = [b for b, _ in periods if b > t]
            if inside:
                assert (begin, end) == (t, inside[0])
            else:
                assert end == t
                assert begin == later[0] if later else begin >= horizon


@pytest.mark.parametrize("name", MODELS)
@given(times=st.lists(st.floats(0.0, 1e6), min_size=2, max_size=8), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_next_available_is_idempotent_and_monotone(name, times, seed):
    model = MODELS[name]
    for client in CLIENTS:
        times = np.sort(times)
        clients = np.full(len(times), client)
        begin = start(model, clients, times, seed=seed)
        assert (begin >= times).all()
        assert (begin[1:] >= begin[:-1]).all()
        found = np.isfinite(begin)
        assert np.array_equal(start(model, clients[found], begin[found], seed=seed), begin[found])
        assert (until(model, clients[found], begin[found], seed=seed) > begin[found]).all()


@pytest.mark.parametrize("name", MODELS)
def test_a_client_is_off_when_its_on_period_ends(name):
    clients = np.tile(CLIENTS, 50)
    begin = start(MODELS[name], clients, np.linspace(0.0, 1e5, 150))
    clients, begin = clients[np.isfinite(begin)], begin[np.isfinite(begin)]
    end = until(MODELS[name], clients, begin)
    clients, end = clients[np.isfinite(end)], end[np.isfinite(end)]
    assert (start(MODELS[name], clients, end) > end).all()


@pytest.mark.parametrize("name", MODELS)
def test_availability_does_not_depend_on_who_else_is_asked(name):
    model, clients = MODELS[name], np.tile(CLIENTS, 40)
    now = np.linspace(0.0, 300.0, 120)
    together = start(model, clients, now), until(model, clients, now)
    for chunk in (1, 7, 64):
        pieces = [slice(i, i + chunk) for i in range(0, 120, chunk)]
        assert np.array_equal(np.concatenate([start(model, clients[p], now[p]) for p in pieces]), together[0])
        assert np.array_equal(np.concatenate([until(model, clients[p], now[p]) for p in pieces]), together[1])


# --- Availability: each model's own law ---------------------------------------------------------------


def test_markov_periods_are_exponential_and_independent():
    model, clients = devices.markov(3.0, off_s=5.0), np.arange(2000)
    begin = start(model, clients, 40.0)
    begin = start(model, clients, until(model, clients, begin))  # a period that begins, not one looked into
    end = until(model, clients, begin)
    again = start(model, clients, end)
    assert agrees(end - begin, stats.expon(scale=3.0).cdf)
    assert agrees(again - end, stats.expon(scale=5.0).cdf)
    assert abs(stats.spearmanr(end - begin, again - end).statistic) < 4 / math.sqrt(2000)


def test_markov_periods_keep_their_means_over_a_long_walk():
    model, clients, steps = devices.markov(3.0, off_s=5.0), np.arange(1500), 25
    now, on_s, off_s = start(model, clients, 0.0), 0.0, 0.0
    for _ in range(steps):
        end = until(model, clients, now)
        again = start(model, clients, end)
        on_s, off_s, now = on_s + np.sum(end - now), off_s + np.sum(again - end), again
    periods = steps * len(clients)
    assert on_s / periods == pytest.approx(3.0, rel=4 / math.sqrt(periods))
    assert off_s / periods == pytest.approx(5.0, rel=4 / math.sqrt(periods))


@pytest.mark.parametrize("now", [0.0, 11.0, 1e9])
def test_markov_is_stationary_from_the_start(now):
    model, clients = devices.markov(3.0, off_s=5.0), np.arange(MANY)
    on = start(model, clients, now) == now
    assert frequent(on.sum(), MANY, 3 / 8)
    # Exponential periods have no memory: the remainder has the law of a period.
    assert agrees(until(model, clients[on], now) - now, stats.expon(scale=3.0).cdf)
    assert agrees(start(model, clients[~on], now) - now, stats.expon(scale=5.0).cdf)


@pytest.mark.parametrize("lag", [0.5, 2.0, 6.0])
def test_markov_transitions_match_the_exact_formula(lag):
    model, clients = devices.markov(3.0, off_s=5.0), np.arange(MANY)
    now, then = start(model, clients, 17.0) == 17.0, start(model, clients, 17.0 + lag) == 17.0 + lag
    decay = math.exp(-lag * (1 / 3 + 1 / 5))
    assert frequent(then[now].sum(), now.sum(), 3 / 8 + 5 / 8 * decay)
    assert frequent(then[~now].sum(), (~now).sum(), 3 / 8 - 3 / 8 * decay)


def test_markov_calls_agree_with_gaps_summed_one_by_one():
    key, mean_s, horizon = Key(*rng.keys(3, rng.Stream.AVAILABILITY)[0].tolist()), 2.0, 400.0
    points = []
    for cell in range(101):
        at, turn = 0.0, 0
        while at < 1.0:
            blocks = [cell_words(key, COME_ONLINE, float(cell), block, turn) for block in range(2)]
            for u in [unit(*pair) for w in blocks for pair in ((w.w0, w.w1), (w.w2, w.w3))]:
                at -= math.log(u) / 2.0
                if at < 1.0:
                    points.append((cell + at) * 4.0)
            turn += 1
    points = np.array(points)
    assert len(points) == pytest.approx(202, abs=4 * math.sqrt(202))
    now = np.linspace(0.0, horizon - 30.0, 2000)
    following = points[np.searchsorted(points, now, side="right")]
    assert [next_call_s(t, 2.0 * mean_s, COME_ONLINE, key) for t in now.tolist()] == pytest.approx(following, rel=1e-12)
    last = np.concatenate([[-math.inf], points])[np.searchsorted(points, now, side="right")]
    assert [last_call_s(t, 2.0 * mean_s, COME_ONLINE, key) for t in now.tolist()] == pytest.approx(last, rel=1e-12)


def test_markov_means_may_differ_from_client_to_client():
    model = devices.markov(on_s=[1.0, 1000.0], off_s=[1000.0, 1.0])
    now = np.linspace(0.0, 1e6, 200)
    assert np.mean(start(model, np.zeros(200, int), now) == now) < 0.1
    assert np.mean(start(model, np.ones(200, int), now) == now) > 0.9


def test_markov_histories_differ_between_clients_and_replicas():
    model, clients = devices.markov(3.0, off_s=5.0), np.arange(50)
    first = until(model, clients, start(model, clients, 0.0))
    assert len(set(first)) == 50
    assert not set(first) & set(until(model, clients, start(model, clients, 0.0, replica=1), replica=1))


@pytest.mark.parametrize(
    "model", [devices.markov(3.0, off_s=5.0), devices.markov(1e4, off_s=1.0), devices.markov(1.0, off_s=1e4)]
)
def test_a_question_about_a_late_time_costs_no_more_than_one_about_an_early_time(model, monkeypatch):
    blocks, plain = [], availability.philox
    monkeypatch.setattr(availability, "philox", lambda *words: blocks.append(0) or plain(*words))

    def draws(now):
        blocks.clear()
        start(model, np.arange(200), now, source=None)
        return 2 * len(blocks) / 200  # a block has two uniforms

    assert draws(100.0) < 40
    assert draws(1e12) < 40


def test_diurnal_clients_are_on_for_their_fraction_with_phases_spread_evenly():
    model, clients = devices.diurnal(DAY, on_fraction=0.3), np.arange(MANY)
    begin = start(model, clients, 3 * DAY)
    assert frequent(np.sum(begin == 3 * DAY), MANY, 0.3)
    following = start(model, clients, until(model, clients, begin))
    assert np.allclose(until(model, clients, following) - following, 0.3 * DAY, rtol=1e-9)
    assert agrees((following % DAY) / DAY, "uniform")


def test_diurnal_phase_may_be_given():
    model = devices.diurnal(10.0, on_fraction=0.2, phase=[0.5, 0.9])
    assert start(model, [0, 1], 0.0).tolist() == [5.0, 0.0]
    assert until(model, [0, 1], [5.0, 0.0]).tolist() == pytest.approx([7.0, 1.0])


def test_diurnal_extremes_are_always_and_never():
    assert start(devices.diurnal(10.0, on_fraction=1.0), [0], 4.0).tolist() == [4.0]
    assert until(devices.diurnal(10.0, on_fraction=1.0), [0], 4.0).tolist() == [math.inf]
    assert start(devices.diurnal(10.0, on_fraction=0.0), [0], 4.0).tolist() == [math.inf]


def test_recorded_intervals_end_and_repeated_ones_do_not():
    once = devices.intervals([1.0, 4.0], ends=[3.0, 6.0], offsets=[0, 2, 2])
    assert start(once, [0, 0, 0, 0, 1], [0.0, 2.0, 3.0, 6.0, 0.0]).tolist() == [
        1.0,
        2.0,
        4.0,
        math.inf,
        math.inf,
    ]
    again = devices.intervals([1.0, 4.0], ends=[3.0, 6.0], offsets=[0, 2, 2], period_s=10.0)
    assert start(again, [0, 0, 1], [6.0, 106.0, 0.0]).tolist() == [11.0, 111.0, math.inf]
    assert until(again, [0, 0], [12.0, 104.5]).tolist() == [13.0, 106.0]


def test_an_interval_that_reaches_the_end_of_its_period_continues_in_the_next():
    model = devices.intervals([0.0, 4.0], ends=[1.0, 6.0], offsets=[0, 2], period_s=6.0)
    assert until(model, [0], 5.0).tolist() == [7.0]
    assert until(model, [0], 6.0).tolist() == [7.0]
    always = devices.intervals([0.0], ends=[6.0], offsets=[0, 1], period_s=6.0)
    assert until(always, [0], 5.0).tolist() == [math.inf]


def test_periods_that_are_no_binary_fractions_join_without_a_gap():
    model = devices.intervals([0.0, 0.07], ends=[0.05, 0.1], offsets=[0, 2], period_s=0.1)
    cycles = np.arange(1000)
    ends = until(model, np.zeros(1000, int), cycles * 0.1 + 0.08)
    assert ends == pytest.approx((cycles + 1) * 0.1 + 0.05)


@pytest.mark.parametrize("phase", [0.0, 0.3])
@pytest.mark.parametrize("length_s", [0.1, 0.7, 7.0])
def test_a_moment_next_to_a_boundary_belongs_to_the_right_cycle(length_s, phase):
    boundary = (np.arange(1, 3000) + phase) * length_s
    for now in (np.nextafter(boundary, 0.0), boundary, np.nextafter(boundary, np.inf)):
        k = np.array([cycle(t, length_s, phase) for t in now.tolist()])
        assert ((k + phase) * length_s <= now).all()
        assert (now < (k + 1.0 + phase) * length_s).all()


@st.composite
def recordings(draw):
    """Per client, disjoint intervals of integer seconds inside a period."""
    clients = []
    for _ in range(draw(st.integers(1, 4))):
        period = draw(st.integers(2, 30))
        cuts = sorted(draw(st.sets(st.integers(0, period), max_size=8)))
        cuts = cuts[: len(cuts) // 2 * 2]
        clients.append((period, list(zip(cuts[::2], cuts[1::2], strict=True))))
    return clients


@given(recording=recordings(), now=st.integers(0, 200), repeat=st.booleans())
@settings(max_examples=200, deadline=None)
def test_intervals_agree_with_brute_force_over_integer_seconds(recording, now, repeat):
    every = [interval for _, intervals in recording for interval in intervals]
    offsets = np.cumsum([0] + [len(intervals) for _, intervals in recording])
    periods = [float(period) for period, _ in recording] if repeat else None
    model = devices.intervals([a for a, _ in every], ends=[b for _, b in every], offsets=offsets, period_s=periods)
    for client, (period, intervals) in enumerate(recording):

        def on(second, period=period, intervals=intervals):
            return any(a <= (second % period if repeat else second) < b for a, b in intervals)

        seconds = range(now, now + 3 * 31)
        begin = next((s for s in seconds if on(s)), math.inf)
        end = next((s for s in seconds if not on(s)), math.inf)
        assert start(model, [client], float(now))[0] == begin
        assert until(model, [client], float(now))[0] == end


def test_a_clock_without_end_is_refused_and_not_waited_for():
    with pytest.raises(InvalidInput, match="budget"):
        start(devices.markov(3.0, off_s=5.0), [0], math.inf)


# --- Purity and scale -----------------------------------------------------------------------------------

FULL = devices.lognormal(
    1e-3, sigma=0.5, dropout=0.3, slowdown=devices.pareto_slowdown(2.0), availability=devices.markov(3.0, off_s=5.0)
)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_chunks_and_order_of_visits_change_nothing(chunk):
    clients = (np.arange(300) * 7) % 50
    seconds, (phase, fraction) = compute(FULL, clients), drop(FULL, clients)
    for i in range(0, 300, chunk):
        piece = slice(i, i + chunk)
        assert np.array_equal(compute(FULL, clients[piece]), seconds[piece])
        assert np.array_equal(drop(FULL, clients[piece])[0], phase[piece])
        assert np.array_equal(drop(FULL, clients[piece])[1], fraction[piece])
    assert np.array_equal(compute(FULL, clients[::-1]), seconds[::-1])


def test_compiled_draws_give_the_same_bits():
    clients = np.arange(100)
    assert np.array_equal(compute(FULL, clients, source=cpu), compute(FULL, clients))
    for ask in (start, until):
        assert np.array_equal(ask(FULL, clients, 1e4, source=cpu), ask(FULL, clients, 1e4, source=None))


def test_asking_leaves_the_inputs_alone():
    clients, now = np.arange(20), np.full(20, 9.0)
    work = np.ones(20)
    FULL.compute_s(clients, work, now, visits(clients))
    FULL.next_available(clients, now, history(clients))
    FULL.available_until(clients, now, history(clients))
    assert (now == 9.0).all()
    assert (work == 1.0).all()
    assert np.array_equal(clients, np.arange(20))


def test_a_million_devices_cost_nothing_until_they_are_asked():
    model = replace(FULL, availability=devices.diurnal(DAY, on_fraction=0.5))
    clients = np.array([3, 999_999, 512_000])
    model.check(1_000_000)
    compute(model, clients)
    tracemalloc.start()
    compute(model, clients), drop(model, clients), start(model, clients, 5.0), model.describe()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000  # a column of a million float64 has 8,000,000 bytes


# --- Tables -----------------------------------------------------------------------------------------------


def test_a_table_comes_from_a_frame_or_a_mapping():
    columns = {
        "seconds_per_step": [1.0, 2.0],
        "slowdown": [1.0, 3.0],
        "dropout": [0.0, 1.0],
        "latency_s": [0.5, 0],
    }
    for frame in (columns, pd.DataFrame(columns)):
        model = devices.table(frame)
        assert model.clients == 2
        assert compute(model, [0, 1], work=2.0).tolist() == [2.5, 12.0]
        assert drop(model, [0, 1])[0].tolist() == [NO_DROP, IN_COMPUTE]


def test_a_client_column_assigns_rows_to_clients():
    frame = pd.DataFrame({"client": [2, 0, 1], "seconds_per_step": [30.0, 10.0, 20.0]}, index=[7, 8, 9])
    assert compute(devices.table(frame), [0, 1, 2]).tolist() == [10.0, 20.0, 30.0]


def test_a_table_may_give_seconds_per_example():
    assert devices.table({"seconds_per_example": [1.0, 2.0]}).per_example


def test_a_table_keeps_its_numbers_when_the_frame_changes():
    column = np.array([1.0, 2.0])
    model = devices.table({"seconds_per_step": column})
    column[:] = 9.0
    assert compute(model, [0, 1]).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        model.seconds_per_step[0] = 3.0


def test_rows_are_used_again_only_if_asked():
    short = devices.table({"seconds_per_step": [1.0, 2.0, 3.0]})
    assert short.clients == 3
    short.check(3)
    with pytest.raises(InvalidInput, match=r"seconds_per_step has 3 rows for 4 clients; .*recycle=True"):
        short.check(4)
    with pytest.raises(InvalidInput, match="client 3 is not among the 3 rows"):
        compute(short, [3])
    availability = devices.intervals([0.0, 5.0], ends=[5.0, 9.0], offsets=[0, 1, 2], period_s=10.0)
    again = devices.table({"seconds_per_step": [1.0, 2.0, 3.0]}, availability=availability, recycle=True)
    assert again.clients is None
    again.check(1_000_000)
    assert compute(again, [3, 999_998]).tolist() == [1.0, 3.0]
    assert start(again, [2, 3], 0.0).tolist() == [0.0, 5.0]


def test_the_shortest_column_is_the_number_of_clients():
    model = devices.constant(1.0, dropout=[0.1] * 5, availability=devices.markov([1.0] * 4, off_s=2.0))
    assert model.clients == 4
    with pytest.raises(InvalidInput, match="availability has 4 rows for 5 clients"):
        model.check(5)


# --- Flags, words and refusals ------------------------------------------------------------------------------


def test_flags_are_true_where_the_engine_may_skip_a_part():
    plain = devices.constant(0.0)
    assert (plain.instant, plain.reliable, plain.always_available, plain.clients) == (True, True, True, None)
    assert not devices.constant(0.0, latency_s=1.0).instant
    assert not devices.constant([0.0, 1e-3]).instant
    assert not FULL.instant
    assert not FULL.reliable
    assert not FULL.always_available
    assert start(plain, [0, 5], [1.0, 2.0]).tolist() == [1.0, 2.0]
    assert until(plain, [0], 1.0).tolist() == [math.inf]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            devices.lognormal(1e-3, sigma=0.5, dropout=0.05, slowdown=devices.pareto_slowdown(2.0)),
            "lognormal 1 ms/step, Pareto slow-down, dropout 5%",
        ),
        (devices.constant(0.0), "instant"),
        (devices.constant(seconds_per_example=2.5e-5), "25 us/example"),
        (devices.constant([0.5, 2.0], latency_s=90.0), "500 ms to 2 s/step, latency 1m30s"),
        (
            devices.constant(1.0, availability=devices.markov(3600.0, off_s=7200.0)),
            "1 s/step, online for 1h00m, offline for 2h00m at random",
        ),
        (
            devices.constant(1.0, availability=devices.diurnal(DAY, on_fraction=0.25)),
            "1 s/step, online 25% of every 24h00m",
        ),
    ],
)
def test_devices_describe_themselves_in_one_line(model, words):
    assert model.describe() == words


def test_anyone_may_bring_a_slow_down_and_an_availability():
    class Double:
        def factor(self, rng):
            return np.full(len(rng.key), 2.0)

    class Tomorrow:
        def next_available(self, clients, now_s, rng):
            return np.maximum(now_s, DAY)

        def available_until(self, clients, now_s, rng):
            return np.full(len(clients), np.inf)

    model = devices.constant(1.0, slowdown=Double(), availability=Tomorrow())
    assert compute(model, [0, 1]).tolist() == [2.0, 2.0]
    assert start(model, [0], 0.0).tolist() == [DAY]
    assert model.clients is None
    assert model.describe() == "1 s/step, Double slow-down, Tomorrow availability"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: devices.constant(-1.0), "seconds_per_step is -1: it must be a finite number of at least 0"),
        (lambda: devices.constant([1.0, math.nan]), "seconds_per_step of client 1 is nan"),
        (lambda: devices.constant([[1.0]]), r"shape \(1, 1\)"),
        (lambda: devices.constant([]), r"shape \(0,\)"),
        (lambda: devices.constant("fast"), "seconds_per_step='fast': give a number"),
        (lambda: devices.constant(), "either seconds_per_step or seconds_per_example"),
        (lambda: devices.constant(1.0, seconds_per_example=1.0), "either seconds_per_step or"),
        (lambda: devices.constant(1.0, latency_s=math.inf), "latency_s is inf"),
        (lambda: devices.constant(1.0, slowdown=2.0), r"slowdown=2.0: give None or a model such as"),
        (lambda: devices.constant(1.0, availability=0.5), r"availability=0.5: give None or a model"),
        (lambda: devices.constant(1.0, dropout=1.5), "dropout is 1.5: it must be from 0 to 1"),
        (lambda: devices.constant(1.0, dropout={"during": 0.1}), "the phases are before, compute, upload"),
        (lambda: devices.constant(1.0, dropout={"before": 0.6, "upload": 0.6}), "add up to 1.2"),
        (lambda: devices.constant(1.0, dropout={"before": [0.1], "upload": [0.1, 0.2]}), "different lengths"),
        (lambda: devices.lognormal(-1e-3, sigma=0.5), "median_step_s is -0.001"),
        (lambda: devices.lognormal(1e-3, sigma=-0.5), "sigma is -0.5"),
        (lambda: devices.lognormal([1e-3, 2e-3], sigma=0.5), "has 2 values: give one number"),
        (lambda: devices.lognormal(1e-3, sigma=0.5, seed=-1), "seed=-1: a seed is an integer"),
        (lambda: devices.lognormal(1e-3, sigma=0.5, seed=0.5), "seed=0.5"),
        (lambda: devices.from_flops(1e9, flops_per_second=0.0), "flops_per_second is 0"),
        (lambda: devices.pareto_slowdown(0.0), "shape is 0: it must be a finite number of at least 0.1"),
        (lambda: devices.bimodal_slowdown(2.0, slow_factor=3.0), "probability is 2"),
        (lambda: devices.bimodal_slowdown(0.1, slow_factor=-3.0), "factor is -3"),
        (lambda: devices.lognormal_slowdown(math.nan), "sigma is nan"),
        (lambda: devices.markov(0.0, off_s=1.0), "markov on_s is 0"),
        (lambda: devices.markov(1.0, off_s=-1.0), "markov off_s is -1"),
        (lambda: devices.diurnal(0.0, on_fraction=0.5), "period_s is 0"),
        (lambda: devices.diurnal(1.0, on_fraction=1.5), "on_fraction is 1.5"),
        (lambda: devices.diurnal(1.0, on_fraction=0.5, phase="random"), "phase='random': give"),
        (lambda: devices.intervals([1.0], ends=[1.0], offsets=[0, 1]), "number 0 from 1 to 1 s"),
        (lambda: devices.intervals([-1.0], ends=[1.0], offsets=[0, 1]), "begin at 0 or later"),
        (lambda: devices.intervals([0.0, 1.0], ends=[2.0, 3.0], offsets=[0, 2]), "sort a client's intervals and merge"),
        (lambda: devices.intervals([0.0, 1.0], ends=[1.0, 3.0], offsets=[0, 2]), "merge those that touch"),
        (lambda: devices.intervals([0.0], ends=[1.0, 2.0], offsets=[0, 1]), "columns of one length"),
        (lambda: devices.intervals([0.0], ends=[1.0], offsets=[0, 2]), "offsets must rise from 0"),
        (lambda: devices.intervals(["a"], ends=[1.0], offsets=[0, 1]), "columns of numbers"),
        (lambda: devices.intervals([0.0], ends=[5.0], offsets=[0, 1], period_s=4.0), "after the period of 4 s"),
        (lambda: devices.intervals([0.0], ends=[5.0], offsets=[0, 1], period_s=[9.0, 9.0]), "2 periods for 1 clients"),
        (lambda: devices.table({"dropout": [0.1]}), "give seconds_per_step or seconds_per_example"),
        (lambda: devices.table({"seconds_per_step": [1.0], "uplink_bps": [1e6]}), r"'uplink_bps'\]; give"),
        (
            lambda: devices.table({"seconds_per_step": [1.0], "dropout": [0.1, 0.2]}),
            "dropout must have one row",
        ),
        (lambda: devices.table({"seconds_per_step": [1.0], "dropout": [0.1]}, dropout=0.1), "both a column"),
        (lambda: devices.table({"seconds_per_step": [1.0, 2.0], "client": [0, 2]}), "each of 0 to 1 once"),
        (lambda: devices.table(7), "give seconds_per_step"),
        (lambda: devices.table({"seconds_per_step": 1.0}), "one row per client"),
    ],
)
def test_impossible_devices_are_refused_with_a_remedy(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_an_empty_batch_of_visits_is_answered():
    none = np.zeros(0, int)
    for model in (FULL, *(devices.constant([1.0], dropout=0.1, availability=m) for m in MODELS.values())):
        assert compute(model, none).shape == (0,)
        assert drop(model, none)[0].shape == (0,)
        assert start(model, none, np.zeros(0)).shape == (0,)
        assert until(model, none, np.zeros(0)).shape == (0,)

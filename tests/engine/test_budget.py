"""When a run stops: the first budget that runs out, said by name, and nothing past it counted.

Also the capacity relation of the private FedPAQ paper, B = C T = K M beta, which nobody has programmed: it falls out
of flows that share a channel.
"""

from __future__ import annotations

import dataclasses
import math

import networkx as nx
import numpy as np
import pytest

import fedsim as fs
from fedsim.algorithms.fedpaq import FedPAQ

CLIENTS, DIM = 4, 2
MESSAGE = 64 * DIM  # bits, each way


def scenario_of(budget, **more):
    """Four clients on links of 1,280 bit/s: a message takes 0.1 s, computing 0.3 s, so a round takes 0.5 s."""
    return fs.Scenario(
        **{
            "problem": fs.problems.GaussianMean.synthetic(CLIENTS, dim=DIM, samples=5, seed=2),
            "algorithm": fs.algorithms.FALD(step_size=1e-3, local_steps=3),
            "network": fs.topologies.star(CLIENTS, uplink_bps=1280, downlink_bps=1280),
            "devices": fs.devices.constant(seconds_per_step=0.1),
            "budget": budget,
        }
        | more
    )


# --- Each budget ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits, stopped_by, rounds",
    [
        ({"rounds": 7}, "rounds", 7),
        ({"uplink_bits": 5 * CLIENTS * MESSAGE}, "uplink_bits", 5),  # spent to the last bit is within
        ({"uplink_bits": 5 * CLIENTS * MESSAGE - 1}, "uplink_bits", 4),
        ({"downlink_bits": 3 * CLIENTS * MESSAGE + 17}, "downlink_bits", 3),
        ({"total_bits": 6 * CLIENTS * MESSAGE}, "total_bits", 3),
        ({"seconds": 2.9}, "seconds", 5),
        ({"rounds": 4, "seconds": 100.0, "uplink_bits": 1e9}, "rounds", 4),
        ({"rounds": 100, "seconds": 1.3, "uplink_bits": 1e9}, "seconds", 2),
        ({"rounds": 100, "seconds": 100.0, "uplink_bits": CLIENTS * MESSAGE}, "uplink_bits", 1),
    ],
)
def test_the_first_budget_to_run_out_stops_the_run(limits, stopped_by, rounds):
    result = fs.run(scenario_of(fs.Budget(**limits)))
    assert result.stopped_by == (stopped_by,)
    assert result.rounds["round"].tolist() == list(range(1, rounds + 1))
    assert len(result.samples) == rounds


def test_a_round_that_closes_at_the_very_end_of_the_budget_counts():
    closed = fs.run(scenario_of(fs.Budget(rounds=5))).rounds["closed_s"].tolist()
    assert len(fs.run(scenario_of(fs.Budget(seconds=closed[3]))).rounds) == 4
    assert len(fs.run(scenario_of(fs.Budget(seconds=np.nextafter(closed[3], 0.0)))).rounds) == 3


def test_a_budget_smaller_than_one_round_leaves_nothing():
    result = fs.run(scenario_of(fs.Budget(seconds=0.4)))
    assert result.stopped_by == ("seconds",)
    assert len(result.rounds) == 0
    assert result.samples.shape == (0, 1, DIM)
    assert result.clients["selected"].sum() == 0


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize(
    "policy",
    [fs.participation.full(), fs.participation.first(2), fs.participation.buffered(3)],
    ids=lambda p: type(p).__name__,
)
def test_the_crossing_round_is_discarded_whole(policy, events):
    """All that a stopped run leaves is what a run of exactly that many rounds leaves."""
    record = fs.Record(events=events)
    stopped = fs.run(scenario_of(fs.Budget(seconds=1.7), participation=policy, record=record))
    rounds = len(stopped.rounds)
    assert rounds > 1
    assert stopped.rounds["closed_s"].max() <= 1.7
    whole = fs.run(scenario_of(fs.Budget(rounds=rounds), participation=policy, record=record))
    assert stopped.fingerprint == whole.fingerprint
    assert stopped.clients.equals(whole.clients)
    if events:
        assert stopped.events.equals(whole.events)


def test_thinned_rows_still_hold_everything_up_to_the_last_round_that_counts():
    every = fs.run(scenario_of(fs.Budget(seconds=3.6)))
    thinned = fs.run(scenario_of(fs.Budget(seconds=3.6), record=fs.Record(rounds_every=3)))
    assert thinned.rounds["round"].tolist() == [3, 6, 7]
    for name in ("selected", "arrived", "uplink_bits", "downlink_bits"):
        assert thinned.rounds[name].sum() == every.rounds[name].sum()
    assert thinned.rounds["opened_s"].tolist() == every.rounds["opened_s"].tolist()[::3]
    assert thinned.rounds["closed_s"].tolist() == every.rounds["closed_s"].iloc[[2, 5, 6]].tolist()


def test_wasted_bits_count_towards_the_budget():
    """A deadline after 0.44 s finds everybody 0.04 s into the upload: 51 bits each, none of which arrive."""
    result = fs.run(scenario_of(fs.Budget(uplink_bits=2 * 4 * 51), participation=fs.participation.deadline(0.44)))
    assert result.rounds["uplink_bits"].tolist() == [204, 204]
    assert result.rounds["wasted_bits"].tolist() == [204, 204]
    assert result.stopped_by == ("uplink_bits",)


# --- Replicas and targets -------------------------------------------------------------------------------


def test_replicas_stop_separately():
    scenario = scenario_of(
        fs.Budget(seconds=20.0),
        devices=fs.devices.lognormal(0.1, sigma=0.3, slowdown=fs.devices.lognormal_slowdown(0.8)),
        replicas=12,
    )
    result = fs.run(scenario)
    lengths = result.rounds.groupby("replica").size()
    assert lengths.nunique() > 3
    assert lengths.tolist() == result.lengths.tolist()
    assert set(result.stopped_by) == {"seconds"}
    for replica in (0, 5, 11):
        alone = fs.run(dataclasses.replace(scenario, replicas=range(replica, replica + 1)))
        own = result.rounds[result.rounds["replica"] == replica].reset_index(drop=True)
        assert alone.rounds.equals(own)
        n = int(lengths[replica])
        assert np.isnan(result.samples[n:, replica]).all()
        assert result.samples[:n, replica].tobytes() == alone.samples[:, 0].tobytes()


def test_different_budgets_may_stop_different_replicas():
    scenario = scenario_of(
        fs.Budget(seconds=10.0, uplink_bits=12 * MESSAGE),
        participation=fs.participation.bernoulli(0.4),
        devices=fs.devices.constant(seconds_per_step=0.1, slowdown=fs.devices.pareto_slowdown(0.8)),
        replicas=20,
    )
    result = fs.run(scenario)
    assert set(result.stopped_by) == {"seconds", "uplink_bits"}
    spent = result.rounds.groupby("replica")[["uplink_bits", "closed_s"]].agg({"uplink_bits": "sum", "closed_s": "max"})
    assert (spent["uplink_bits"] <= 12 * MESSAGE).all()
    assert (spent["closed_s"] <= 10.0).all()


def test_a_target_over_replicas_stops_all_of_them_at_the_first_value_within():
    target = fs.Target("mean_error", below=0.5)
    more = {"metrics": ("mean_error",), "replicas": 6, "initial": np.full(DIM, 3.0)}
    result = fs.run(scenario_of(fs.Budget(rounds=4000, target=target), **more))
    assert set(result.stopped_by) == {"target"}
    values = result.metrics["mean_error"].to_numpy()
    assert len(values) > 10
    assert values[-1] <= 0.5
    assert (values[:-1] > 0.5).all()


def test_a_target_of_each_replica_stops_them_one_by_one():
    class Distance:
        """A metric of each replica, of one's own."""

        columns, per_replica = ("distance",), True

        def evaluate(self, view):
            return {"distance": np.abs(view.theta[:, 0])}

    result = fs.run(
        scenario_of(fs.Budget(rounds=500, target=fs.Target("distance", above=0.4)), metrics=(Distance(),), replicas=8)
    )
    lengths = result.rounds.groupby("replica").size()
    assert lengths.nunique() > 3
    for _, own in result.rounds.groupby("replica"):
        assert own["distance"].iloc[-1] >= 0.4
        assert (own["distance"].iloc[:-1] < 0.4).all()


def test_a_target_is_only_looked_at_when_it_is_evaluated():
    result = fs.run(
        scenario_of(
            fs.Budget(rounds=10, target=fs.Target("w2", below=1e9)),
            metrics=("w2",),
            evaluate_every=4,
            replicas=3,
        )
    )
    assert result.rounds["round"].max() == 4
    assert set(result.stopped_by) == {"target"}


# --- Nobody there, nothing moving -----------------------------------------------------------------------


def never_on(clients):
    return fs.devices.intervals([], ends=[], offsets=np.zeros(clients + 1, int))


@pytest.mark.parametrize("policy", [fs.participation.full(), fs.participation.uniform(2), fs.participation.buffered(2)])
def test_a_run_stops_when_nobody_will_ever_be_there(policy):
    devices = fs.devices.constant(seconds_per_step=0.1, availability=never_on(CLIENTS))
    result = fs.run(scenario_of(fs.Budget(rounds=5), devices=devices, participation=policy, replicas=2))
    assert result.stopped_by == ("no clients", "no clients")
    assert len(result.rounds) == 0


@pytest.mark.parametrize("policy", [fs.participation.full(), fs.participation.first(2), fs.participation.deadline(0.3)])
@pytest.mark.parametrize("limit", [{"seconds": 1.0}, {"seconds": 1.0, "uplink_bits": 1000}])
def test_rounds_that_spend_nothing_do_not_go_on_for_ever(policy, limit):
    """Everybody is lost before the round has begun, at every attempt: time stands still, and no bit is sent."""
    devices = fs.devices.constant(seconds_per_step=0.1, dropout={"before": 1.0})
    with pytest.raises(fs.errors.InvalidInput, match=r"next to nothing .* add rounds= to the Budget"):
        fs.run(scenario_of(fs.Budget(**limit), devices=devices, participation=policy), timing_only=True)


def test_rounds_that_spend_next_to_nothing_do_not_go_on_for_ever_either():
    devices = fs.devices.constant(seconds_per_step=1e-20)
    with pytest.raises(fs.errors.InvalidInput, match="next to nothing"):
        fs.run(scenario_of(fs.Budget(seconds=1.0), devices=devices, network=None), timing_only=True)


def test_idle_rounds_are_welcome_where_rounds_are_counted():
    devices = fs.devices.constant(seconds_per_step=0.1, dropout={"before": 1.0})
    result = fs.run(scenario_of(fs.Budget(rounds=1500, seconds=1.0), devices=devices), timing_only=True)
    assert len(result.rounds) == 1500
    assert result.rounds["closed_s"].max() == 0.0


def test_a_coin_that_rarely_falls_is_given_time():
    """More than a thousand rounds in a row without anybody are nothing unusual at one in a thousand."""
    result = fs.run(
        scenario_of(fs.Budget(seconds=0.6), participation=fs.participation.bernoulli(2.5e-4), seed=2),
        timing_only=True,
    )
    assert result.stopped_by == ("seconds",)
    assert result.rounds["selected"].sum() == 1  # the next one is past the budget
    empty = np.split(result.rounds["selected"].to_numpy(), np.flatnonzero(result.rounds["selected"]))
    assert max(map(len, empty)) > 1000


def test_a_round_that_never_closes_is_refused():
    devices = fs.devices.constant(
        seconds_per_step=[0.1, 0.1, 0.1, 1e308], slowdown=fs.devices.bimodal_slowdown(1.0, slow_factor=1e10)
    )
    with pytest.raises(fs.errors.InvalidInput, match="round 1 never closes"), np.errstate(over="ignore"):
        fs.run(scenario_of(fs.Budget(rounds=3), devices=devices))


# --- The channel's capacity -----------------------------------------------------------------------------


def quantised(clients, levels=10):
    """FedPAQ with QSGD: beta = 32 + d ceil(log2(2 s + 1)) bits up, 64 d bits down."""
    problem = fs.problems.GaussianMean.synthetic(clients, dim=8, samples=5, seed=2)
    beta = 32 + 8 * math.ceil(math.log2(2 * levels + 1))
    return problem, FedPAQ(step_size=1e-3, local_steps=2, codec=fs.codecs.QSGD(levels)), beta, 64 * 8


@pytest.mark.parametrize("sampled, levels", [(1, 10), (3, 10), (7, 2), (10, 100)])
def test_the_capacity_relation_falls_out_of_multiple_access(sampled, levels):
    """K rounds of M clients with beta bits each fill a channel of C bit/s for K M beta / C seconds.

    The broadcast uses the same channel, M delta / C seconds a round, and the two do not overlap: nobody sends before it
    has received, and all receive together. So C T = K M (beta + delta), and the uplink's part is the paper's B.
    """
    problem, algorithm, beta, delta = quantised(10, levels)
    capacity, rounds = 5000.0, 20
    scenario = fs.Scenario(
        problem=problem, algorithm=algorithm, network=fs.topologies.multiple_access(10, capacity_bps=capacity),
        participation=fs.participation.uniform(sampled), budget=fs.Budget(rounds=rounds),
    )  # fmt: skip
    result = fs.run(scenario)
    seconds = result.rounds["closed_s"].iloc[-1]
    assert seconds == pytest.approx(rounds * sampled * (beta + delta) / capacity, rel=1e-12)
    uplink = capacity * seconds - result.rounds["downlink_bits"].sum()
    assert uplink == pytest.approx(rounds * sampled * beta, rel=1e-12)
    assert result.rounds["uplink_bits"].sum() == rounds * sampled * beta


@pytest.mark.parametrize("sampled", [1, 4, 10])
def test_a_channel_that_only_the_uplink_fills_carries_capacity_times_time(sampled):
    """With an ideal way down it is the paper's relation itself: B = C T = K M beta."""
    problem, algorithm, beta, _ = quantised(10)
    capacity, graph = 5000.0, nx.DiGraph()
    graph.add_node("server", role="server")
    graph.add_edge("channel", "server", bandwidth_bps=capacity, latency_s=0.0)
    graph.add_edge("server", "channel", bandwidth_bps=math.inf, latency_s=0.0)
    for c in range(10):
        graph.add_node(c, client=c)
        for way in ((c, "channel"), ("channel", c)):
            graph.add_edge(*way, bandwidth_bps=math.inf, latency_s=0.0)
    budget_bits = 40 * beta
    scenario = fs.Scenario(
        problem=problem, algorithm=algorithm, network=fs.Network(graph),
        participation=fs.participation.uniform(sampled), budget=fs.Budget(uplink_bits=budget_bits),
    )  # fmt: skip
    by_bits = fs.run(scenario)
    rounds = 40 // sampled
    assert len(by_bits.rounds) == rounds  # K = floor(B / (M beta)): fewer clients a round, more rounds
    seconds = by_bits.rounds["closed_s"].iloc[-1]
    assert capacity * seconds == pytest.approx(rounds * sampled * beta, rel=1e-12)
    # The same budget, given as time: a hair more than B / C, for the sums of 1/C are rounded.
    by_time = fs.run(dataclasses.replace(scenario, budget=fs.Budget(seconds=budget_bits / capacity * (1 + 1e-12))))
    assert len(by_time.rounds) == rounds
    assert by_time.fingerprint == by_bits.fingerprint


def test_computing_leaves_the_channel_idle_so_less_is_carried():
    problem, algorithm, beta, delta = quantised(10)
    scenario = fs.Scenario(
        problem=problem, algorithm=algorithm, network=fs.topologies.multiple_access(10, capacity_bps=5000.0),
        devices=fs.devices.constant(seconds_per_step=0.25), budget=fs.Budget(rounds=3),
    )  # fmt: skip
    seconds = fs.run(scenario).rounds["closed_s"].iloc[-1]
    assert seconds == pytest.approx(3 * (10 * (beta + delta) / 5000.0 + 2 * 0.25), rel=1e-12)

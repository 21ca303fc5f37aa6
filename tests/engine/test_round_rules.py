"""Rules of rounds that once were broken, or are new: who may take part, what contends, what counts, what is kept.

They hold on both clocks; users' own policies run on SimPy.
"""

from __future__ import annotations

import dataclasses
import math
import threading

import networkx as nx
import numpy as np
import pytest
from engine.clocks.runs import agree, assert_same, on_path, on_simpy

import fedsim as fs
from fedsim.algorithms.fedpaq import FedPAQ
from fedsim.analysis import timeline
from fedsim.engine.clock import simpy as simpy_clock
from fedsim.engine.clock.simpy import Answers
from fedsim.errors import Interrupted

CLOCKS = ("simpy", "compiled")
COLUMNS = (
    "opened_s", "closed_s", "selected", "arrived", "dropped", "late", "uplink_bits", "downlink_bits", "wasted_bits",
    "dropped_bits", "wasted_down_bits", "wasted_s", "late_s", "dropped_s", "called_off_s",
)  # fmt: skip


def scenario_of(clients=4, **more):
    return fs.Scenario(
        **{
            "problem": fs.problems.GaussianMean.synthetic(clients, dim=2, samples=4, seed=1),
            "algorithm": fs.algorithms.FALD(step_size=1e-3, local_steps=1),
            "budget": fs.Budget(rounds=10),
            "seed": 4,
        }
        | more
    )


def traced(scenario):
    return dataclasses.replace(scenario, record=fs.Record(events=True))


def on_both(scenario, **options):
    """The result of the compiled clock, which is that of SimPy."""
    simpy, compiled = (fs.run(scenario, clock=clock, **options) for clock in CLOCKS)
    assert tuple(result.manifest["clock"]["name"] for result in (simpy, compiled)) == CLOCKS
    assert_same(compiled, simpy)
    return compiled


def on_during(*intervals):
    flat = [pair for own in intervals for pair in own]
    offsets = np.cumsum([0, *(len(own) for own in intervals)])
    return fs.devices.intervals([s for s, _ in flat], ends=[e for _, e in flat], offsets=offsets)


def relay(up, down, latency):
    """The links of a star behind a relay that is never in anybody's way: the same network, but for the events."""
    graph = nx.DiGraph()
    graph.add_node("server", role="server")
    for a, b in (("relay", "server"), ("server", "relay")):
        graph.add_edge(a, b, bandwidth_bps=1e15, latency_s=0.0)
    for c in range(len(up)):
        graph.add_node(c, client=c)
        graph.add_edge(c, "relay", bandwidth_bps=up[c], latency_s=latency[c])
        graph.add_edge("relay", c, bandwidth_bps=down[c], latency_s=latency[c])
    return fs.Network(graph)


# --- Who is on ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Always:
    """A policy of one's own that does not care who is on."""

    who: tuple[int, ...]

    def select(self, view, rng):
        return list(self.who)

    def close(self, view):
        return math.inf


@pytest.mark.parametrize("policy", [fs.participation.with_replacement(2), Always((0, 1)), Always((1,))])
def test_a_client_that_is_off_never_uploads(policy):
    # Rounds of 0.5 s. Client 1 is on in [0, 2): the reply that arrives at 2.0, as it goes off, is its last one (an
    # arrival comes before a break of the same instant).
    devices = fs.devices.constant(seconds_per_step=0.5, availability=on_during([(0.0, 1e9)], [(0.0, 2.0)]))
    scenario = traced(scenario_of(2, devices=devices, participation=policy, budget=fs.Budget(rounds=40)))
    events = (on_simpy if isinstance(policy, Always) else on_both)(scenario).events
    uploads = events[events["event"] == "upload"]
    of_1 = uploads.loc[uploads["client"] == 1, "time_s"].tolist()
    assert of_1
    assert set(of_1) <= {0.5, 1.0, 1.5, 2.0}
    assert of_1 == [0.5, 1.0, 1.5, 2.0] or not isinstance(policy, Always)


def test_draws_with_replacement_are_by_weight_among_those_that_are_on():
    problem = fs.problems.GaussianMean.synthetic(3, dim=1, samples=[1, 3, 6], seed=1)
    devices = fs.devices.constant(0.0, availability=on_during([(0.0, 9.0)], [(0.0, 9.0)], [(20.0, 30.0)]))
    policy = fs.participation.with_replacement(1)
    scenario = scenario_of(problem=problem, devices=devices, participation=policy, replicas=50)
    heard = on_both(scenario, timing_only=True).clients["arrived"].tolist()
    assert heard[2] == 0
    assert abs(heard[0] - 125) < 4 * math.sqrt(500 * 0.25 * 0.75)  # p = 1/4 and 3/4 of those that are on


@pytest.mark.parametrize(
    "policy",
    [
        fs.participation.uniform(4, at_least=3),
        fs.participation.first(1, of=4, at_least=3),
        fs.participation.deadline(9.0, at_least=3),
        fs.participation.with_replacement(4, at_least=3),
    ],
)
def test_a_round_waits_until_enough_clients_are_on(policy):
    # Three are on only in [5, 6) and from 8.5 on: clients 0 and 1 are early, client 2 comes at 5, client 0 leaves at 6,
    # client 3 comes at 8.5. Each round takes 1 s; the second cannot open at 6.
    availability = on_during([(0.0, 6.0)], [(1.0, 99.0)], [(5.0, 99.0)], [(8.5, 9.4)])
    devices = fs.devices.constant(seconds_per_step=1.0, availability=availability)
    rounds = on_both(scenario_of(devices=devices, participation=policy), timing_only=True)
    assert rounds.rounds["opened_s"].tolist() == [5.0, 8.5]
    assert rounds.stopped_by == ("no clients",)  # never three again


def test_clients_that_are_never_on_together_are_not_waited_for_for_ever():
    availability = fs.devices.diurnal(10.0, on_fraction=0.4, phase=[0.0, 0.5])
    devices = fs.devices.constant(seconds_per_step=0.1, availability=availability)
    scenario = scenario_of(2, devices=devices, participation=fs.participation.uniform(2, at_least=2))
    result = on_both(scenario, timing_only=True)
    assert (len(result.rounds), result.stopped_by) == (0, ("no clients",))
    result = on_both(dataclasses.replace(scenario, budget=fs.Budget(rounds=3, seconds=100.0)), timing_only=True)
    assert (len(result.rounds), result.stopped_by) == (0, ("seconds",))


def test_an_empty_draw_is_a_round_where_somebody_is_on():
    devices = fs.devices.constant(1.0, availability=on_during(*[[(0.0, 1e9)]] * 4))
    rounds = on_both(scenario_of(devices=devices, participation=fs.participation.bernoulli(0.05))).rounds
    assert len(rounds) == 10
    assert (rounds["selected"] == 0).any()


def test_a_minimum_cohort_larger_than_the_population_is_refused():
    with pytest.raises(fs.errors.InvalidInput, match=r"uniform\(at_least=5\): only 4 clients exist"):
        scenario_of(participation=fs.participation.uniform(2, at_least=5))
    with pytest.raises(fs.errors.InvalidInput, match=r"uniform\(at_least=0\)"):
        fs.participation.uniform(2, at_least=0)


# --- Asynchronous rounds and memory ---------------------------------------------------------------------


@pytest.mark.parametrize("of", [None, 4])
def test_buffered_scaffold_ends_where_it_should(of):
    """With full gradients its fixed point is exact, as long as no client works twice from one control variate."""
    problem = fs.problems.GaussianMean.synthetic(8, dim=2, samples=5, seed=2)
    scenario = scenario_of(
        problem=problem,
        algorithm=fs.algorithms.Scaffold(step_size=0.2, local_steps=2),
        devices=fs.devices.constant(1.0, slowdown=fs.devices.lognormal_slowdown(0.7), dropout=0.4),
        participation=fs.participation.buffered(3, of=of),
        budget=fs.Budget(rounds=500),
        record=fs.Record(warmup=499),
    )
    result = on_both(scenario, runtime=fs.Inline(threads=1))
    assert np.abs(result.samples[-1, 0] - problem.exact()[0]).max() < 1e-9


def test_a_client_whose_reply_waits_to_be_folded_is_not_asked_again():
    scenario = scenario_of(
        8,
        algorithm=fs.algorithms.Scaffold(step_size=0.05),
        devices=fs.devices.constant(1.0, slowdown=fs.devices.lognormal_slowdown(0.7), dropout=0.4),
        participation=fs.participation.buffered(4, of=5),
        budget=fs.Budget(rounds=60),
    )
    events = on_both(traced(scenario)).events
    uploads = events[events["event"] == "upload"]
    assert not uploads.duplicated(["round", "client"]).any()


# --- Copies for everybody -------------------------------------------------------------------------------


UP, DOWN, LATENCY = [900.0, 500.0, 700.0, 2000.0], [64.0, 100.0, 300.0, 50.0], [0.01, 0.2, 0.0, 0.1]


@pytest.mark.parametrize(
    "policy", [fs.participation.uniform(1), fs.participation.bernoulli(0.4), fs.participation.deadline(1.3, of=2)]
)
def test_unfinished_copies_slow_the_next_download_on_every_clock(policy):
    star = fs.topologies.star(4, uplink_bps=UP, downlink_bps=DOWN, latency_s=LATENCY)
    scenario = scenario_of(network=star, participation=policy, broadcast_to="all", replicas=2)
    quick, shared = on_both(scenario), on_both(dataclasses.replace(scenario, network=relay(UP, DOWN, LATENCY)))
    assert quick.manifest["clock"]["path"] == "loop"  # the short path gave up
    for name in COLUMNS:
        np.testing.assert_allclose(quick.rounds[name], shared.rounds[name], rtol=1e-9, atol=1e-9, err_msg=name)
    alone = on_both(dataclasses.replace(scenario, broadcast_to="selected"))
    assert alone.manifest["clock"]["path"] == "short"
    assert (quick.rounds["closed_s"].iloc[-1] > alone.rounds["closed_s"].iloc[-1]) or "Deadline" in repr(policy)


def test_rounds_that_outlast_their_copies_stay_on_the_short_path():
    star = fs.topologies.star(4, uplink_bps=[10.0] * 4, downlink_bps=DOWN, latency_s=LATENCY)
    scenario = scenario_of(network=star, participation=fs.participation.uniform(1), broadcast_to="all")
    assert on_both(scenario).manifest["clock"]["path"] == "short"


@pytest.mark.parametrize("contended", [False, True])
def test_copies_of_buffered_rounds_take_the_time_that_their_bits_need(contended):
    n, rate = 3, 1000.0
    star = fs.topologies.star(n, uplink_bps=1e6, downlink_bps=rate)
    network = relay([1e6] * n, [rate] * n, [0.0] * n) if contended else star
    problem = fs.problems.GaussianMean.synthetic(n, dim=8, samples=2, seed=1)  # 512 bits
    scenario = scenario_of(
        problem=problem, network=network, participation=fs.participation.buffered(1, of=2), broadcast_to="all",
        budget=fs.Budget(rounds=6), devices=fs.devices.constant(0.01),
    )  # fmt: skip
    rounds = on_both(scenario).rounds
    # Two clients take turns at the server's model, and every version goes to everybody. Both start at 0, down 0.512 s
    # each, and arrive at 0.522512. The copies of versions 0, 1, ... for the third queue up on its link, and those of the
    # versions that a working client does not start from on its own.
    assert rounds["closed_s"].iloc[0] == pytest.approx(0.522512)
    assert (rounds["downlink_bits"] >= 512).all()
    lone = on_both(dataclasses.replace(scenario, broadcast_to="selected")).rounds
    assert rounds["closed_s"].max() > 1.5 * lone["closed_s"].max()


@pytest.mark.parametrize(("clock", "codec"), [("simpy", fs.codecs.Elias(4)), ("compiled", fs.codecs.QSGD(4))])
def test_copies_meet_checkpoints(tmp_path, clock, codec):
    """A run whose copies meet the next round, so that the short path gave up, is taken up again with the same bits."""
    star = fs.topologies.star(4, uplink_bps=[100.0, 80.0, 700.0, 2000.0], downlink_bps=DOWN, latency_s=LATENCY)
    scenario = scenario_of(
        network=star, participation=fs.participation.uniform(2), broadcast_to="all", replicas=2, budget=fs.Budget(rounds=30),
        algorithm=FedPAQ(step_size=1e-2, local_steps=2, codec=codec),
    )  # fmt: skip
    whole = fs.run(scenario, clock=clock)
    assert (whole.manifest["clock"]["name"], whole.manifest["clock"]["path"]) == (clock, "loop")
    for after in (2, 25):
        assert resumed(scenario, tmp_path / str(after), after, clock=clock).fingerprint == whole.fingerprint


def resumed(scenario, folder, after, every=2, clock="auto"):
    stop = threading.Event()
    with pytest.raises(Interrupted):
        fs.run(
            scenario, out=folder, checkpoint_every=every, stop=stop, clock=clock,
            observers=[lambda progress: stop.set() if progress.round == after else None],
        )  # fmt: skip
    return fs.run(scenario, out=folder, resume=True)


# --- What counts as sent --------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.004, 0.1, 0.35, 0.62, 0.93, 1.4, 1.9])
def test_bits_leave_from_the_first_instant_on_whatever_the_clock(seconds):
    up, down, latency = [200.0, 150.0, 300.0, 128.0], [400.0, 300.0, 1000.0, 260.0], [0.3, 0.5, 0.01, 0.0]
    scenario = scenario_of(
        network=fs.topologies.star(4, uplink_bps=up, downlink_bps=down, latency_s=latency),
        devices=fs.devices.constant([0.2, 0.0, 0.6, 0.1]), participation=fs.participation.deadline(seconds),
    )  # fmt: skip
    again = dataclasses.replace(scenario, network=relay(up, down, latency))
    assert (agree(scenario), agree(again)) == (["loop", "short"], ["loop"])
    private, shared = on_path(scenario, "short"), on_path(again, "loop")
    for name in COLUMNS:
        np.testing.assert_allclose(private.rounds[name], shared.rounds[name], rtol=1e-9, atol=1e-9, err_msg=name)
    row = private.rounds.iloc[0]
    bits, ready = 128, [128 / 400 + 0.3 + 0.2, 128 / 300 + 0.5, 128 / 1000 + 0.01 + 0.6, 128 / 260 + 0.1]
    sent = [min(bits, math.floor(max(seconds - r, 0.0) * u + 1e-6)) for r, u in zip(ready, up, strict=True)]
    assert row["uplink_bits"] == sum(sent)
    came = [min(bits, math.floor(seconds * d + 1e-6)) for d in down]  # in its last latency a message has left
    assert row["downlink_bits"] == sum(came)


@pytest.mark.parametrize(("seconds", "left"), [(1.0, 50), (20.0, 1000), (21.0, 1024), (22.4, 1024)])
def test_bits_leave_at_the_share_of_a_distant_link_from_the_first_instant_on(seconds, left):
    """Two uploads of 1,024 bits over one link of 100 bit/s, 2 s away: 50 bits of each leave in a second.

    Their last bits leave at 20.48 s. They would arrive at 22.48 s; a close before that finds all bits sent, for nothing.
    """
    graph = nx.DiGraph()
    graph.add_node("server", role="server")
    graph.add_edge("relay", "server", bandwidth_bps=100.0, latency_s=2.0)
    graph.add_edge("server", "relay", bandwidth_bps=math.inf, latency_s=0.0)
    for c in range(2):
        graph.add_node(c, client=c)
        graph.add_edge(c, "relay", bandwidth_bps=math.inf, latency_s=0.0)
        graph.add_edge("relay", c, bandwidth_bps=math.inf, latency_s=0.0)
    problem = fs.problems.GaussianMean.synthetic(2, dim=16, samples=4, seed=1)
    policy = fs.participation.deadline(seconds)
    scenario = scenario_of(problem=problem, network=fs.Network(graph), participation=policy, budget=fs.Budget(rounds=2))
    rounds = on_both(scenario).rounds
    assert rounds["late"].tolist() == [2, 2]
    assert rounds["uplink_bits"].tolist() == rounds["wasted_bits"].tolist() == [2 * left] * 2
    patient = dataclasses.replace(scenario, participation=fs.participation.deadline(22.5))
    assert on_both(patient).rounds["closed_s"].tolist() == pytest.approx([22.48, 44.96])


# --- Waste ----------------------------------------------------------------------------------------------


def test_waste_is_told_by_cause_in_bits_both_ways_and_in_seconds():
    # Down 1 s, compute, up 2 s (128 bits). Client 0 answers at 4. Client 1 has its reply at 3 and is sending: 64 bits by
    # 4. Client 2 computes until 9. Client 3 goes off at 2.5, in its compute time.
    devices = fs.devices.constant([1.0, 2.0, 8.0, 3.0], availability=on_during(*[[(0.0, 99.0)]] * 3, [(0.0, 2.5)]))
    network = fs.topologies.star(4, uplink_bps=64.0, downlink_bps=128.0)
    scenario = scenario_of(
        devices=devices, network=network, participation=fs.participation.first(1), budget=fs.Budget(rounds=1)
    )
    result = on_both(traced(scenario))
    row = result.rounds.iloc[0]
    assert (row["wasted_bits"], row["dropped_bits"], row["wasted_down_bits"]) == (64, 0, 3 * 128)
    assert (row["late_s"], row["called_off_s"], row["dropped_s"], row["wasted_s"]) == (4.0, 4.0, 2.5, 10.5)
    assert result.clients["wasted_s"].tolist() == [0.0, 4.0, 4.0, 2.5]
    assert result.clients["wasted_down_bits"].tolist() == [0, 128, 128, 128]
    table = timeline.waste(result).frame.set_index("cause")
    assert table["visits"].to_dict() == {"late": 1, "called off": 1, "dropped": 1}
    assert table["bits"].to_dict() == {"late": 64, "called off": 0, "dropped": 0}
    assert table["transfer_s"].to_dict() == {"late": 2.0, "called off": 1.0, "dropped": 1.0}
    assert table["compute_s"].to_dict() == {"late": 2.0, "called off": 3.0, "dropped": 1.5}


def test_contributions_count_replies_per_client_and_their_age():
    scenario = scenario_of(
        devices=fs.devices.constant([1.0, 2.0, 3.0, 9.0]), participation=fs.participation.first(2), replicas=2
    )
    result = on_both(traced(scenario))
    table = timeline.contributions(result)
    assert table["selected"].tolist() == [20] * 4
    assert table["received"].tolist() == [20, 20, 0, 0]
    assert table["share"].tolist() == [0.5, 0.5, 0.0, 0.0]
    assert table["late"].tolist() == [0, 0, 20, 20]
    assert table["last_round"].tolist() == [10, 10, 0, 0]
    assert table["reply_s"].tolist()[:2] == [1.0, 2.0]
    assert table["wasted_s"].tolist() == [0.0, 0.0, 40.0, 40.0]
    stale = timeline.contributions(on_both(dataclasses.replace(scenario, participation=fs.participation.buffered(1))))
    assert stale["staleness"].iloc[0] < stale["staleness"].iloc[2]
    assert stale["reply_s"].isna().all()


def test_shares_of_an_asynchronous_run_cover_every_client_second():
    # Client 0 computes 1 s at a time, client 1 3 s; nobody is ever idle but client 2, which never comes.
    devices = fs.devices.constant([1.0, 3.0, 1.0], availability=on_during([(0, 99.0)], [(0, 99.0)], []))
    scenario = scenario_of(
        3, devices=devices, participation=fs.participation.buffered(1), budget=fs.Budget(seconds=12.0)
    )
    shares = timeline.shares(on_both(traced(scenario)))
    assert shares == pytest.approx({"busy": 2 / 3, "idle": 1 / 3, "transfer": 0.0})
    network = fs.topologies.star(3, uplink_bps=64.0, downlink_bps=128.0, latency_s=0.1)
    shares = timeline.shares(on_both(traced(dataclasses.replace(scenario, network=network))))
    assert sum(shares.values()) == pytest.approx(1.0)
    assert all(0 < share < 1 for share in shares.values())


# --- What is kept ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [fs.participation.first(2, of=3), fs.participation.buffered(2, of=3)])
def test_replies_of_any_length_that_broke_off_are_taken_up_with_the_same_bits(policy, tmp_path):
    """What SimPy is told again of a reply is its whole length, not what got out of it."""
    scenario = scenario_of(
        network=fs.topologies.star(4, uplink_bps=100.0), devices=fs.devices.lognormal(0.1, sigma=0.5, dropout={"upload": 0.5}),
        algorithm=FedPAQ(step_size=1e-2, local_steps=2, codec=fs.codecs.Elias(4)), participation=policy,
        budget=fs.Budget(rounds=30), record=fs.Record(events=True),
    )  # fmt: skip
    whole = on_simpy(scenario)
    assert_same(resumed(scenario, tmp_path / "run", 20, clock="simpy"), whole)


# --- What policies see ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Telling(fs.algorithms.FedAvg):
    """FedAvg that tells the server its loss at the model it was sent, beside its reply."""

    local_only = ("loss",)

    def client(self, job, message, memory):
        reply, memory = super().client(job, message, memory)
        return reply | {"loss": np.abs(job.gradient(message["theta"], 0)).sum(axis=-1, keepdims=True)}, memory

    def fused(self, problem, backend):
        return None


SEEN: list[tuple] = []


@dataclasses.dataclass(frozen=True)
class Curious:
    """Asks who was heard least, then whose loss is largest, and notes what it sees."""

    size: int = 2

    def select(self, view, rng):
        ids = np.arange(view.clients)
        loss = np.nan_to_num(view.last(ids, "loss"), nan=math.inf)
        SEEN.append((view.round, view.received(ids).tolist(), view.last(ids, "round").tolist(), loss.tolist()))
        assert view.sizes.tolist() == [4] * view.clients
        return np.lexsort((-loss, view.received(ids) // 2))[: self.size]

    def close(self, view):
        return math.inf


@pytest.mark.parametrize("tells", [False, True])
def test_policies_see_how_often_and_how_lately_clients_were_heard_and_their_loss(tells):
    SEEN.clear()
    algorithm = (Telling if tells else fs.algorithms.FedAvg)(step_size=1e-2, local_steps=2)
    result = fs.run(scenario_of(algorithm=algorithm, participation=Curious(), devices=fs.devices.constant(1.0)))
    number, heard, last, loss = SEEN[-1]
    assert number == 10
    assert sum(heard) == result.rounds["arrived"].iloc[:-1].sum()
    assert heard == [count - (c in _asked(result, 10)) for c, count in enumerate(result.clients["arrived"])]
    assert max(last) == 9
    assert np.isfinite(loss).all() == tells
    assert (result.rounds["uplink_bits"] == 2 * 128).all()  # what is told costs nothing


def _asked(result, number):
    """The clients of the last round, from what the policy saw before it and the totals after it."""
    assert number == len(result.rounds)
    before = SEEN[-1][1]
    return [c for c, count in enumerate(result.clients["arrived"]) if count > before[c]]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_policy_that_looks_at_losses_is_taken_up_with_the_same_bits(tmp_path, asynchronous):
    policy = fs.participation.buffered(2, of=3) if asynchronous else Curious()
    scenario = scenario_of(
        algorithm=Telling(step_size=1e-2, local_steps=2), participation=policy,
        devices=fs.devices.lognormal(1e-2, sigma=0.5, dropout=0.1), replicas=2, budget=fs.Budget(rounds=20),
    )  # fmt: skip
    whole = fs.run(scenario)
    again = resumed(scenario, tmp_path / "run", 13)
    assert again.fingerprint == whole.fingerprint
    assert again.clients.equals(whole.clients)


@pytest.mark.parametrize("reads", ["bits", "losses"])
def test_only_a_run_with_checkpoints_stores_the_answers_of_the_learner(reads, tmp_path, monkeypatch):
    """A run of ten rounds asks for 40 sizes, or for the losses of four clients before each round."""
    clocks = []

    class Kept(Answers):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            clocks.append(self)

    monkeypatch.setattr(simpy_clock, "Answers", Kept)
    scenario = (
        scenario_of(algorithm=FedPAQ(step_size=1e-2, codec=fs.codecs.Elias(4)))
        if reads == "bits"
        else scenario_of(algorithm=Telling(step_size=1e-2), participation=Curious())
    )
    on_simpy(scenario)
    on_simpy(scenario, out=tmp_path / "run", checkpoint_every=5)
    assert [len(clock.answers[reads]) for clock in clocks] == [0, 40]


@dataclasses.dataclass(frozen=True)
class Least:
    """Those who were heard least, with a closing rule for the closed form."""

    batched = True

    def select(self, view, rng):
        return np.argsort(view.received(np.arange(view.clients)), kind="stable")[None, :2]

    waits, close = True, fs.participation.Full.close


def test_a_policy_with_a_history_says_so_or_is_told_to():
    scenario = scenario_of(participation=Least(), devices=fs.devices.constant(1.0))
    with pytest.raises(fs.errors.InvalidInput, match="set history = True"):
        fs.run(scenario)
    remembering = dataclasses.make_dataclass(
        "Remembering", [], bases=(Least,), namespace={"history": True}, frozen=True
    )
    result = fs.run(dataclasses.replace(scenario, participation=remembering()))
    assert result.clients["arrived"].tolist() == [5] * 4

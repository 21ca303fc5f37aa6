"""Tiers and gossip: the rules of a round, timelines by hand, and the same bits however they are computed."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import fedsim as fs

FALD = fs.algorithms.FALD(step_size=1e-2, local_steps=2)
GROUPS = [0, 0, 1, 1, 1, 0]


def scenario(clients=6, **changes):
    problem = fs.problems.GaussianMean.synthetic(clients, 2, samples=[3, 5, 4, 8, 2, 6][:clients], seed=1)
    usual = {"problem": problem, "algorithm": FALD, "budget": fs.Budget(rounds=6), "replicas": 3, "seed": 1}
    return fs.Scenario(**usual | changes)


def backhaul(uplinks=(1e4, 1e4), shared=True, clients=6):
    """Two edges behind one link to the server, or a link each; clients with links of 10 kbit/s."""
    graph = nx.Graph()
    graph.add_node("server", role="server")
    graph.add_edge("hub", "server", bandwidth_bps=uplinks[0] if shared else np.inf, latency_s=0.1)
    for e in range(2):
        graph.add_node(f"edge{e}", role="edge")
        graph.add_edge(f"edge{e}", "hub", bandwidth_bps=np.inf if shared else uplinks[e], latency_s=0.0)
    for c in range(clients):
        graph.add_node(c, client=c)
        graph.add_edge(c, f"edge{GROUPS[c]}", bandwidth_bps=1e4, latency_s=0.01)
    return fs.Network(graph)


def line(bandwidths=(1000.0, 2000.0, 500.0), latencies=(0.1, 0.2, 0.3)):
    """Four sites in a row, without a server."""
    graph = nx.Graph()
    for c in range(4):
        graph.add_node(f"n{c}", client=c)
    for c, (bps, latency) in enumerate(zip(bandwidths, latencies, strict=True)):
        graph.add_edge(f"n{c}", f"n{c + 1}", bandwidth_bps=bps, latency_s=latency)
    return fs.Network(graph)


class Steady:
    """Devices whose every visit takes the same time."""

    timeless = True

    def __init__(self, seconds):
        self.seconds = np.asarray(seconds, float)

    def compute_s(self, clients, work, now_s, rng):
        return self.seconds[clients]


# --- Tiers ------------------------------------------------------------------------------------------------


def test_tiers_that_merge_every_round_equal_the_star_up_to_rounding():
    star, tiers = fs.run(scenario()), fs.run(scenario(exchange=fs.exchanges.tiers(GROUPS, every=1)))
    np.testing.assert_allclose(tiers.samples, star.samples, rtol=0, atol=1e-14)


@pytest.mark.parametrize("algorithm", [
    fs.algorithms.QLSD(step_size=1e-3, codec=fs.codecs.Elias(4)), fs.algorithms.QLSDPlusPlus(1e-3, refresh_every=5, batch_size=2),
    fs.algorithms.FedAvg(1e-2, local_steps=2), fs.algorithms.FedPAQ(1e-2, codec=fs.codecs.Elias(3)), fs.algorithms.FAHMC(1e-2, leapfrog_steps=2),
], ids=lambda a: type(a).__name__)  # fmt: skip
def test_every_averaging_algorithm_runs_over_tiers_as_over_a_star(algorithm):
    star = fs.run(scenario(algorithm=algorithm))
    tiers = fs.run(scenario(algorithm=algorithm, exchange=fs.exchanges.tiers(GROUPS, every=1)))
    np.testing.assert_allclose(tiers.samples, star.samples, rtol=0, atol=1e-12)


def test_an_edge_that_heard_nobody_keeps_its_model_and_its_weight():
    class OnlyOne:
        def select(self, view, rng):
            return [c for c in view.online_clients().tolist() if c in (2, 3, 4)]

        def close(self, view):
            return view.now_s if not len(view.in_flight) else np.inf

    made = scenario(
        participation=OnlyOne(), exchange=fs.exchanges.tiers(GROUPS, every=2), budget=fs.Budget(rounds=2),
        record=fs.Record(sites="all"), initial=np.array([1.0, 2.0]),
    )  # fmt: skip
    first, merged = fs.run(made).samples
    np.testing.assert_array_equal(first[:, 0], np.tile([1.0, 2.0], (3, 1)))
    assert (first[:, 1] != first[:, 0]).all()
    np.testing.assert_array_equal(merged[:, 0], merged[:, 1])


def test_an_edge_may_ask_only_its_own_clients():
    class Everybody:
        def select(self, view, rng):
            return np.arange(view.clients)

        def close(self, view):
            return np.inf

    with pytest.raises(fs.errors.InvalidInput, match="not one of its own"):
        fs.run(scenario(participation=Everybody(), exchange=fs.exchanges.tiers(GROUPS)))


def test_two_edges_behind_a_shared_backhaul_by_hand():
    """128 bits each way at 10 kbit/s; edges 0 and 1 finish their second rounds at 0.0656 s + 0.02 s and 0.1656 s."""
    slow = Steady([0.0, 0.0, 0.05, 0.0, 0.0, 0.0])
    made = scenario(
        network=backhaul(), devices=slow, exchange=fs.exchanges.tiers(every=2), budget=fs.Budget(rounds=3), replicas=1
    )
    rounds = fs.run(made).rounds
    visit = 2 * (0.01 + 128 / 1e4)  # down and up
    quick, slowly = visit, visit + 0.05
    np.testing.assert_allclose(rounds["opened_s"][:2], [0, quick], rtol=1e-12)
    up = fs.network.finish_times([1e4], [[0], [0]], [128, 128], [2 * quick + 0.1, 2 * slowly + 0.1])
    np.testing.assert_allclose(rounds["closed_s"], [slowly, up.max(), up.max() + 0.1 + 0.0256 + slowly], rtol=1e-12)
    assert rounds["backhaul_bits"].tolist() == [0, 4 * 128, 0]


def test_states_that_meet_on_the_backhaul_share_it():
    made = scenario(network=backhaul(), exchange=fs.exchanges.tiers(every=1), budget=fs.Budget(rounds=1), replicas=1)
    visit = 2 * (0.01 + 128 / 1e4)
    assert fs.run(made).rounds["closed_s"][0] == pytest.approx(visit + 0.1 + 2 * 128 / 1e4, rel=1e-12)


@pytest.mark.parametrize("every", [1, 2])
def test_events_change_no_bit_of_tiers(every):
    devices = fs.devices.lognormal(median_step_s=1e-2, sigma=0.5, dropout=0.2)
    network = backhaul((1e4, 2e4), shared=False)
    made = {"network": network, "devices": devices, "exchange": fs.exchanges.tiers(every=every)}
    for clock in ("simpy", "compiled"):
        plain, traced = (
            fs.run(scenario(**made, record=fs.Record(events=e, sites="all")), clock=clock) for e in (False, True)
        )
        assert plain.fingerprint == traced.fingerprint
        assert plain.rounds.equals(traced.rounds)


# --- Gossip -----------------------------------------------------------------------------------------------

UNEQUAL = Steady([0.1, 0.4, 0.2, 0.3])


def by_hand(rounds, bits=128):
    """fold_i = the latest of i's own work and its neighbours' messages; nothing meets on these links."""
    links = {(0, 1): (0.1, 1000), (1, 2): (0.2, 2000), (2, 3): (0.3, 500)}
    links |= {(b, a): link for (a, b), link in links.items()}
    opened, told = np.zeros(4), []
    for _ in range(rounds):
        done = opened + UNEQUAL.seconds
        folds = done.copy()
        for (a, b), (latency, bps) in links.items():
            folds[b] = max(folds[b], done[a] + latency + bits / bps)
        told.append((opened.min(), folds.max()))
        opened = folds
    return np.array(told)


def test_gossip_on_a_path_of_four_sites_by_hand():
    made = scenario(4, network=line(), devices=UNEQUAL, exchange=fs.exchanges.gossip(nx.path_graph(4)), replicas=1)
    result = fs.run(made)
    np.testing.assert_allclose(result.rounds[["opened_s", "closed_s"]], by_hand(6), rtol=1e-12)
    assert (result.rounds["backhaul_bits"] == 6 * 128).all()
    assert (result.rounds[["uplink_bits", "downlink_bits"]] == 0).all(axis=None)


def test_gossip_over_a_star_of_links_shares_them_as_flows_do():
    """All four sites send to all others at once through their own uplinks and downlinks."""
    network = fs.topologies.star(4, uplink_bps=[1e3, 2e3, 1e3, 4e3], downlink_bps=[3e3, 1e3, 2e3, 1e3], latency_s=0.1)
    made = scenario(
        4, network=network, devices=UNEQUAL, exchange=fs.exchanges.gossip(nx.complete_graph(4)), replicas=1,
        budget=fs.Budget(rounds=1),
    )  # fmt: skip
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    starts = [UNEQUAL.seconds[i] + 0.2 for i, j in pairs]
    capacities = [1e3, 2e3, 1e3, 4e3, 3e3, 1e3, 2e3, 1e3]
    ends = fs.network.finish_times(capacities, [[i, 4 + j] for i, j in pairs], [128] * 12, starts)
    assert fs.run(made).rounds["closed_s"][0] == pytest.approx(ends.max(), rel=1e-12)


def test_a_message_that_catches_up_with_the_last_one_shares_its_link():
    """Site 0 hears site 1 fast and is heard slowly: its next message finds the last one still under way."""
    graph = nx.DiGraph()
    graph.add_node("a", client=0)
    graph.add_node("b", client=1)
    graph.add_edge("a", "b", bandwidth_bps=100.0, latency_s=0.0)
    graph.add_edge("b", "a", bandwidth_bps=1e6, latency_s=0.0)
    made = scenario(
        2, network=fs.Network(graph), devices=Steady([0.1, 0.1]), exchange=fs.exchanges.gossip(nx.path_graph(2)),
        replicas=1, budget=fs.Budget(rounds=3),
    )  # fmt: skip
    result = fs.run(made)
    sent = np.array([0.1, 0.2 + 128 / 1e6])  # site 0's first two messages; for its third it has to wait for site 1
    first, second = fs.network.finish_times([100.0], [[0], [0]], [128, 128], sent)
    np.testing.assert_allclose(result.rounds["closed_s"][:2], [first, second], rtol=1e-9)
    assert first > sent[0] + 128 / 100 + 1  # the second one was in its way


def test_what_is_missing_at_the_fold_gives_its_weight_to_the_site_itself():
    """With first(1) a site folds its quicker neighbour alone; its own model takes the other's weight."""
    made = scenario(
        3, algorithm=fs.algorithms.FedAvg(1e-9), network=None, devices=Steady([0.0, 0.1, 0.5]), replicas=1,
        exchange=fs.exchanges.gossip(nx.complete_graph(3)), participation=fs.participation.first(1),
        budget=fs.Budget(rounds=1), record=fs.Record(sites="all"), initial=np.arange(6.0).reshape(1, 3, 2),
    )  # fmt: skip
    result = fs.run(made)
    start, after = np.arange(6.0).reshape(3, 2), result.samples[0, 0]
    # 0 waits for 1; 1 has 0 at once; 2 is done last, when both are there and the first has been enough.
    np.testing.assert_allclose(after[0], (2 * start[0] + start[1]) / 3, atol=1e-6)
    np.testing.assert_allclose(after[1], (2 * start[1] + start[0]) / 3, atol=1e-6)
    assert result.rounds["late"][0] == 2  # site 2's messages
    assert result.rounds["wasted_bits"][0] == 2 * 128


def test_a_site_whose_work_is_lost_keeps_its_model_and_sends_nothing():
    made = scenario(
        4, devices=fs.devices.lognormal(median_step_s=0.1, sigma=0.2, dropout=0.5), replicas=20,
        exchange=fs.exchanges.gossip(nx.path_graph(4)), budget=fs.Budget(rounds=1), record=fs.Record(sites="all"),
        initial=np.tile([1.0, 2.0], (20, 4, 1)),
    )  # fmt: skip
    result = fs.run(made)
    unmoved = (result.samples[0] == [1.0, 2.0]).all(axis=2).sum(axis=1)
    np.testing.assert_array_equal(unmoved, result.rounds["dropped"])
    assert 0 < unmoved.sum() < 80
    degrees = {1: (0, 3), 2: (1, 2)}
    assert (result.rounds["backhaul_bits"] <= 6 * 128 - 128 * result.rounds["dropped"]).all(), degrees


def test_copies_of_an_upload_that_breaks_off_all_break_at_the_same_fraction():
    devices = fs.devices.lognormal(median_step_s=0.1, sigma=0.2, dropout={"upload": 0.5})
    made = scenario(
        4, devices=devices, network=line(), exchange=fs.exchanges.gossip(nx.path_graph(4)), replicas=20,
        budget=fs.Budget(rounds=1),
    )  # fmt: skip
    rounds = fs.run(made).rounds
    assert (rounds["wasted_bits"] < 128 * 2 * rounds["dropped"]).all() or not rounds["dropped"].any()
    assert (rounds["backhaul_bits"] - rounds["wasted_bits"]).mod(128).eq(0).all()


def test_a_site_that_is_off_pauses_and_full_waits_for_it():
    devices = fs.devices.table(__import__("pandas").DataFrame({"seconds_per_step": [0.05, 0.05, 0.05]}))

    class Sleeper:
        def compute_s(self, clients, work, now_s, rng):
            return devices.compute_s(clients, work, now_s, rng)

        def next_available(self, clients, now_s, rng):
            return np.where((clients == 1) & (now_s < 3.0), 3.0, now_s)

    made = scenario(
        3, devices=Sleeper(), exchange=fs.exchanges.gossip(nx.path_graph(3)), replicas=1, budget=fs.Budget(rounds=2)
    )
    full = fs.run(made).rounds
    assert full["closed_s"][0] == pytest.approx(3.1)
    assert full["opened_s"][0] == 0
    made = scenario(
        3, devices=Sleeper(), exchange=fs.exchanges.gossip(nx.path_graph(3)), replicas=1, budget=fs.Budget(rounds=2),
        participation=fs.participation.deadline(1.0), record=fs.Record(events=True),
    )  # fmt: skip
    events = fs.run(made).events
    folds = events[(events["event"] == "aggregate") & (events["client"] == -1)]
    assert folds["time_s"].iloc[0] == pytest.approx(1.0)  # site 0 did not wait


# --- Refusals ---------------------------------------------------------------------------------------------

RING = fs.exchanges.gossip(nx.cycle_graph(6))
REFUSED = {
    "disconnected": (lambda: fs.exchanges.gossip(nx.Graph([(0, 1), (2, 3)])), "no path leads from client 0"),
    "names": (lambda: fs.exchanges.gossip(nx.Graph([("a", "b")])), "client numbers"),
    "mixing": (lambda: fs.exchanges.gossip(nx.path_graph(2), "random"), "choose 'metropolis'"),
    "rows": (lambda: fs.exchanges.gossip(nx.path_graph(2), [[0.5, 0.4], [0.5, 0.5]]), "rows must sum to 1"),
    "outside": (lambda: fs.exchanges.gossip(nx.path_graph(3), np.full((3, 3), 1 / 3)), "has no such edge"),
    "differing": (
        lambda: fs.exchanges.gossip(nx.path_graph(2), [[[0.5, 0.5], [0.5, 0.5]], [[0.2, 0.8], [0.5, 0.5]]]),
        "different stationary weights",
    ),
    "every": (lambda: fs.exchanges.tiers([0], every=0), "at least 1"),
    "labels": (lambda: scenario(exchange=fs.exchanges.tiers([0, 1])), "2 labels for 6 clients"),
    "no edges": (lambda: scenario(exchange=fs.exchanges.tiers()), "role='edge'"),
    "exchange": (lambda: scenario(exchange="gossip"), "exchange='gossip'"),
    "size": (lambda: scenario(exchange=fs.exchanges.gossip(nx.cycle_graph(5))), "5 nodes for 6 clients"),
    "policy": (lambda: scenario(exchange=RING, participation=fs.participation.uniform(2)), "no client is selected"),
    "of": (lambda: scenario(exchange=RING, participation=fs.participation.first(1, of=2)), "leave of="),
    "broadcast_to": (lambda: scenario(exchange=RING, broadcast_to="all"), "nothing is broadcast"),
    "FedPAQ": (lambda: scenario(exchange=RING, algorithm=fs.algorithms.FedPAQ(1e-2)), "difference to a model"),
    "FAHMC": (
        lambda: scenario(exchange=RING, algorithm=fs.algorithms.FAHMC(1e-2, leapfrog_steps=2, codec=fs.codecs.QSGD(4))), "codec"
    ),
    "SCAFFOLD": (lambda: scenario(exchange=RING, algorithm=fs.algorithms.Scaffold(1e-2)), "needs a server"),
    "QLSD": (lambda: scenario(exchange=RING, algorithm=fs.algorithms.QLSD(1e-3)), "needs a server"),
    "DIGing": (
        lambda: scenario(
            exchange=RING, algorithm=fs.algorithms.DIGingSGLD(1e-3), participation=fs.participation.first(1)
        ),
        "where a message is lost",
    ),
    "star": (lambda: scenario(algorithm=fs.algorithms.DESGLD(1e-3)), "fs.exchanges.gossip"),
    "state": (
        lambda: scenario(exchange=fs.exchanges.tiers(GROUPS), algorithm=fs.algorithms.Scaffold(1e-2)),
        "besides theta",
    ),
    "cloud": (
        lambda: scenario(exchange=fs.exchanges.tiers(GROUPS), algorithm=fs.algorithms.QLSD(1e-3)), "set every=1"
    ),
    "group": (
        lambda: scenario(exchange=fs.exchanges.tiers(GROUPS), participation=fs.participation.first(4)), "at most 3"
    ),
    "lengths": (
        lambda: fs.run(
            scenario(
                exchange=fs.exchanges.tiers(GROUPS), algorithm=fs.algorithms.FedPAQ(1e-2, codec=fs.codecs.Elias(4))
            )
        ),
        "codec of fixed length",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused_in_one_sentence(name):
    make, words = REFUSED[name]
    with pytest.raises(fs.errors.InvalidInput, match=words) as refused:
        make()
    assert "\n" not in str(refused.value)


# --- The same bits ----------------------------------------------------------------------------------------

DEVICES = fs.devices.lognormal(median_step_s=1e-2, sigma=0.5, dropout=0.1)
KINDS = {
    "tiers": {"network": backhaul(), "devices": DEVICES, "exchange": fs.exchanges.tiers(every=2)},
    "gossip": {"devices": DEVICES, "exchange": RING},
    "matching": {"exchange": fs.exchanges.gossip(nx.cycle_graph(6), "matching")},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_threads_and_replicas_alone_give_the_same_bits(kind):
    made = scenario(**KINDS[kind], record=fs.Record(sites="all"))
    whole = fs.run(made, runtime=fs.Inline(threads=1))
    assert fs.run(made, runtime=fs.Inline(threads=2, chunk=1)).fingerprint == whole.fingerprint
    alone = fs.run(scenario(**KINDS[kind], record=fs.Record(sites="all"), replicas=range(1, 2)))
    np.testing.assert_array_equal(alone.samples[:, 0], whole.samples[:, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_stopped_and_resumed_gives_the_same_bits(kind, tmp_path):
    import threading

    made = scenario(**KINDS[kind], record=fs.Record(sites="all", events=kind != "matching"))
    whole, stop = fs.run(made), threading.Event()

    def watch(progress):
        if progress.round == 3:
            stop.set()

    with pytest.raises(fs.errors.FedsimError, match="stopped after round 3"):
        fs.run(made, out=tmp_path / "run", stop=stop, observers=[watch], checkpoint_every=2)
    again = fs.run(made, out=tmp_path / "run", resume=True)
    assert again.fingerprint == whole.fingerprint
    np.testing.assert_array_equal(again.rounds["backhaul_bits"], whole.rounds["backhaul_bits"])
    if whole.events is not None:
        assert again.events.equals(whole.events)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", [{"backhaul_bits": 2000}, {"total_bits": 5000}, {"seconds": 0.3}])
def test_budgets_are_never_exceeded(kind, budget):
    if kind == "matching" and "seconds" in budget:
        pytest.skip("it takes no time")
    result = fs.run(scenario(**KINDS[kind], budget=fs.Budget(rounds=50, **budget)))
    totals = result.rounds.groupby("replica")[["uplink_bits", "downlink_bits", "backhaul_bits"]].sum()
    spent = {
        "backhaul_bits": totals["backhaul_bits"].max(), "total_bits": totals.sum(axis=1).max(),
        "seconds": result.rounds["closed_s"].max(),
    }  # fmt: skip
    ((name, limit),) = budget.items()
    assert spent[name] <= limit
    assert set(result.stopped_by) <= {name, "rounds"}


# --- What is told -----------------------------------------------------------------------------------------


def test_theta_is_the_weighted_average_of_the_sites_and_consensus_their_distance_from_it():
    made = scenario(
        exchange=fs.exchanges.tiers(GROUPS, every=5), record=fs.Record(sites="all"), metrics=("consensus", "w2"),
        budget=fs.Budget(rounds=3),
    )  # fmt: skip
    every, average = fs.run(made), fs.run(scenario(**{
        "exchange": made.exchange, "budget": made.budget, "metrics": made.metrics,
    }))  # fmt: skip
    weights = np.bincount(GROUPS, made.problem.sizes) / made.problem.sizes.sum()
    theta = np.einsum("trsd,s->trd", every.samples, weights)
    np.testing.assert_allclose(average.samples, theta, rtol=1e-12)
    np.testing.assert_allclose(every.theta, theta, rtol=1e-12)
    away = np.sqrt(((every.samples - theta[:, :, None]) ** 2).sum(axis=3).mean(axis=2))
    told = every.rounds.pivot(index="round", columns="replica", values="consensus").to_numpy()
    np.testing.assert_allclose(told, away, rtol=1e-10)
    assert every.metrics.equals(average.metrics)


def test_a_star_has_one_site_and_nothing_between_sites():
    result = fs.run(scenario(metrics=("consensus",)))
    assert (result.rounds["consensus"] == 0).all()
    assert (result.rounds["backhaul_bits"] == 0).all()


def test_the_ledger_counts_a_visit_once_however_many_neighbours_hear_it():
    algorithm = fs.algorithms.FALD(step_size=1e-2)
    spent = (fs.privacy.spent(delta=1e-5, sensitivity=1.0),)
    star = fs.run(scenario(4, algorithm=algorithm, metrics=spent, **EQUAL))
    gossip = fs.run(
        scenario(4, algorithm=algorithm, metrics=spent, exchange=fs.exchanges.gossip(nx.complete_graph(4)), **EQUAL)
    )
    np.testing.assert_allclose(gossip.rounds["epsilon"], star.rounds["epsilon"], rtol=1e-12)
    assert gossip.manifest["privacy"]["spent"]["seen_by"] == "every neighbour"


EQUAL = {"problem": fs.problems.GaussianMean.synthetic(4, 2, samples=5, seed=1)}


@pytest.mark.parametrize(
    ("kind", "names"), [("tiers", {"edge 0", "edge 1", "cloud"}), ("gossip", {"site 0", "site 5"})]
)
def test_traces_and_swim_lanes_show_the_sites(kind, names, tmp_path):
    import json

    from fedsim.analysis import gantt

    result = fs.run(scenario(**KINDS[kind], record=fs.Record(events=True)))
    told = json.loads(gantt.to_chrome(result, tmp_path / "trace.json").read_text())["traceEvents"]
    threads = {event["args"]["name"]: event["tid"] for event in told if event["name"] == "thread_name"}
    assert names <= set(threads)
    folds = [event for event in told if event["name"] == "aggregate"]
    assert {threads[name] for name in names - {"cloud"}} <= {event["tid"] for event in folds}
    assert gantt.swimlanes(result, tmp_path / "gantt.png").stat().st_size > 5_000

"""Hundreds of scenarios from a generator with bad intentions: each is a valid run or one clear error, and none hangs.

Case n is a function of n, so a failure names the case that has to be run again: `build(n)`.
"""

from __future__ import annotations

import math
import warnings

import networkx as nx
import numpy as np
import pytest
from tools.watchdog import Hung, watchdog

import fedsim as fs
from fedsim.algorithms.fedpaq import FedPAQ

NONSENSE = (
    math.nan,
    math.inf,
    -math.inf,
    -1.0,
    0.0,
    1e-300,
    1e300,
    None,
    "fast",
    (),
    [1.0, 2.0],
    {},
    True,
    2**70,
)


class Chance:
    """Decisions of one case."""

    def __init__(self, case):
        self.rng = np.random.default_rng(case)

    def one_in(self, n):
        return self.rng.integers(n) == 0

    def of(self, *options):
        return options[self.rng.integers(len(options))]

    def number(self, low, high):
        return float(self.rng.uniform(low, high))

    def spoilt(self, value, odds=60):
        """The value, or once in a while nonsense."""
        return self.of(*NONSENSE) if self.one_in(odds) else value

    def column(self, make, clients):
        """One for all, one per client, or (rarely) one too many."""
        if self.one_in(2):
            return self.spoilt(make())
        return [self.spoilt(make(), 200) for _ in range(clients + self.one_in(80))]


# --- Networks -------------------------------------------------------------------------------------------


def network(chance, clients):
    kind = chance.rng.integers(6)
    if kind == 0:
        return None
    if kind == 1:
        return fs.topologies.star(
            chance.spoilt(clients), uplink_bps=chance.column(lambda: chance.of(1e3, 1e6, 0.5), clients),
            downlink_bps=chance.column(lambda: chance.of(1e3, 1e6), clients),
            latency_s=chance.column(lambda: chance.of(0.0, 0.1, 1e9), clients),
            loss=chance.column(lambda: chance.of(0.0, 0.5, 0.999), clients),
        )  # fmt: skip
    if kind == 2:
        return fs.topologies.tree(
            clients, edges=chance.spoilt(chance.of(1, clients)), uplink_bps=chance.spoilt(1e4),
            edge_uplink_bps=chance.spoilt(5e3), latency_s=chance.spoilt(0.1),
        )  # fmt: skip
    if kind == 3:
        return fs.topologies.multiple_access(
            clients, capacity_bps=chance.spoilt(1e4), latency_s=chance.spoilt(0.1), loss=chance.spoilt(0.1)
        )
    if kind == 4:
        return fs.topologies.ring(
            clients, bandwidth_bps=chance.column(lambda: 1e4, clients), latency_s=chance.spoilt(0.1)
        )
    return fs.Network(chance.spoilt(graph(chance, clients), 40))


def graph(chance, clients):
    """Something like a network: edges at random, roles and attributes nearly right."""
    out = chance.of(nx.Graph, nx.DiGraph)() if not chance.one_in(20) else nx.MultiGraph()
    nodes = ["server", *range(clients), *(f"relay{i}" for i in range(chance.rng.integers(4)))]
    out.add_nodes_from(nodes)
    if not chance.one_in(20):
        out.nodes["server"]["role"] = "server"
    for c in range(clients):
        if not chance.one_in(40):
            out.nodes[c]["client"] = chance.spoilt(c, 80)
    for i, u in enumerate(nodes):
        for v in nodes[i:]:
            if u == v and not chance.one_in(60):
                continue
            if u != v and chance.rng.uniform() > 0.7 and len(nodes) > 2:
                continue
            for a, b in ((u, v), (v, u)) if out.is_directed() and not chance.one_in(20) else ((u, v),):
                data = {"bandwidth_bps": chance.of(1e3, 1e5, math.inf), "latency_s": chance.of(0.0, 0.05, 2.0)}
                data = {name: chance.spoilt(value, 200) for name, value in data.items() if not chance.one_in(300)}
                if chance.one_in(6):
                    data["shared"] = True
                if chance.one_in(6):
                    data["loss"] = chance.spoilt(0.3, 20)
                out.add_edge(a, b, **data)
    return out


# --- Devices --------------------------------------------------------------------------------------------


class Absurd:
    """Somebody's own devices, which answer anything."""

    def __init__(self, chance):
        self.chance = chance

    def compute_s(self, clients, work, now_s, rng):
        return self.chance.of(
            np.zeros(len(clients)), np.full(len(clients), math.nan), np.full(len(clients), -1.0), np.zeros(len(clients) + 1),
            np.full(len(clients), math.inf), 0.5 * np.ones(len(clients)),
        )  # fmt: skip

    def drop(self, clients, now_s, rng):
        phase = np.full(len(clients), self.chance.of(0, 0, 1, 2, 3, 9))
        return phase, np.full(len(clients), self.chance.of(0.0, 0.5, 1.0, math.nan, 7.0))

    def next_available(self, clients, now_s, rng):
        return now_s + self.chance.of(0.0, 0.0, 1.0, math.inf, -1.0, math.nan)

    def available_until(self, clients, now_s, rng):
        return now_s + self.chance.of(0.0, 1.0, math.inf, -5.0, math.nan)


def availability(chance, clients):
    kind = chance.rng.integers(8)
    if kind == 0:
        return fs.devices.markov(chance.spoilt(1.0, 10), off_s=chance.spoilt(2.0, 10))
    if kind == 1:
        return fs.devices.diurnal(chance.spoilt(2.0, 10), on_fraction=chance.of(0.0, 0.3, 1.0, chance.spoilt(0.5, 5)))
    if kind == 2:  # never there
        return fs.devices.intervals([], ends=[], offsets=np.zeros(clients + 1, int))
    if kind == 3:  # once
        return fs.devices.intervals([chance.spoilt(1.0, 10)], ends=[3.0], offsets=[0, *[1] * clients])
    return chance.spoilt(None)


def dropout(chance):
    kind = chance.rng.integers(5)
    if kind < 2:
        return chance.spoilt(0.0)
    if kind == 2:
        return chance.of(0.3, 0.9, 1.0)
    if kind == 3:
        return {chance.of("before", "compute", "upload"): 1.0}
    phases = {
        chance.of("before", "compute", "upload"): 0.3,
        chance.of("before", "upload"): chance.of(0.5, 0.5, 0.9),
    }
    return chance.spoilt(phases, 20)


def devices(chance, clients):
    kind = chance.rng.integers(6)
    if kind == 0:
        return None
    if kind == 1:
        return Absurd(chance)
    slowdown = chance.of(
        None, fs.devices.pareto_slowdown(0.1), fs.devices.lognormal_slowdown(40.0), chance.spoilt(None, 9)
    )
    if kind == 2:
        return fs.devices.lognormal(
            chance.spoilt(0.1),
            sigma=chance.spoilt(1.0),
            dropout=dropout(chance),
            slowdown=slowdown,
            availability=availability(chance, clients),
        )
    if kind == 3:
        seconds = [chance.spoilt(chance.of(0.0, 0.2, 3.0)) for _ in range(clients + chance.one_in(30))]
        frame = {"seconds_per_step": seconds, "dropout": [0.1] * clients}
        return fs.devices.table(frame, slowdown=slowdown, availability=availability(chance, clients))
    seconds = chance.column(lambda: chance.of(0.0, 0.2, 1e12), clients)
    return fs.devices.constant(
        seconds,
        slowdown=slowdown,
        dropout=dropout(chance),
        availability=availability(chance, clients),
        latency_s=chance.spoilt(0.0),
    )


# --- Policies -------------------------------------------------------------------------------------------


class Whim:
    """Somebody's own policy, which answers anything."""

    def __init__(self, chance, clients):
        self.decisions, self.clients = chance, clients

    def select(self, view, rng):
        n, chance = self.clients, self.decisions
        return chance.of(
            [0], list(range(n)), [], [0, 0, 0], [n - 1], np.ones(n, bool), view.sample_available(chance.of(1, n, 3 * n, 0)),
            chance.of([n], [-1], [0.5], [math.nan], None, 0, "all", [[0]], np.ones(n + 1, bool), [[0], [1, 2]], [2**63], np.zeros(0)),
        )  # fmt: skip

    def close(self, view):
        chance = self.decisions
        return chance.of(
            math.inf, view.now_s, view.opened_s + 1.0, view.now_s + 0.1, -5.0, 0.0,
            chance.of(math.nan, None, "soon", -math.inf, [1.0], 1e300),
        )  # fmt: skip


def policy(chance, clients):
    some = chance.of(1, clients, clients, max(1, clients // 2))
    kind = chance.rng.integers(9)
    if kind == 0:
        return fs.participation.full()
    if kind == 1:
        return fs.participation.with_replacement(chance.spoilt(some, 10))
    if kind == 2:
        return fs.participation.uniform(
            chance.spoilt(some, 10), weighting=chance.of(None, "normalised", "scaled", "odd")
        )
    if kind == 3:
        return fs.participation.bernoulli(chance.column(lambda: chance.of(1e-6, 0.5, 1.0), clients))
    if kind == 4:
        return fs.participation.first(chance.spoilt(some, 10), of=chance.of(None, clients, clients + chance.one_in(10)))
    if kind == 5:
        return fs.participation.deadline(chance.of(1e-12, 0.3, 5.0, chance.spoilt(1.0, 3)), of=chance.of(None, some))
    if kind == 6:
        discount = chance.of(None, lambda k: 1 / (1 + k), lambda k: math.nan, lambda k: -1.0)
        return fs.participation.buffered(chance.spoilt(some, 10), of=chance.of(None, some), discount=discount)
    return chance.spoilt(Whim(chance, clients), 20)


# --- Scenarios ------------------------------------------------------------------------------------------


def budget(chance):
    """Mostly bounded by rounds; else by what every round should spend, and does not always."""
    if chance.one_in(4):
        limits = chance.of(
            {"seconds": 2.0}, {"uplink_bits": 2000}, {"downlink_bits": 2000}, {"total_bits": 3000},
            {"seconds": 2.0, "uplink_bits": 2000}, chance.of({}, {"seconds": 1.0}),
        )  # fmt: skip
        return fs.Budget(**limits)
    more = {name: chance.spoilt(chance.of(None, 1000.0, 5.0)) for name in ("uplink_bits", "total_bits", "seconds")}
    target = chance.spoilt(chance.of(None, fs.Target("w2", below=1e-9)), 20) if chance.one_in(10) else None
    return fs.Budget(rounds=chance.spoilt(int(chance.rng.integers(1, 8))), target=target, **more)


def build(case):
    """The scenario of a case, and how it is run."""
    chance = Chance(case)
    clients = int(chance.rng.integers(1, 6))
    timing_only = chance.of(False, False, True, chance.spoilt(True, 10))
    problem = fs.problems.GaussianMean.synthetic(clients, dim=2, samples=chance.of(3, [3] * clients), seed=case % 7)
    if timing_only is True and chance.one_in(2):
        problem = fs.problems.Payload(chance.spoilt(clients, 30), chance.spoilt(3, 30))
    algorithm = chance.of(
        fs.algorithms.FALD(step_size=1e-3, local_steps=2),
        FedPAQ(
            step_size=1e-2,
            codec=fs.codecs.QSGD(4) if timing_only is True and not chance.one_in(5) else fs.codecs.Elias(4),
        ),
        FedPAQ(step_size=1e-2, codec=fs.codecs.QSGD(4)),
        fs.algorithms.FALD(step_size=1e9, local_steps=50) if chance.one_in(5) else fs.algorithms.FALD(step_size=1e-3),
    )
    replicas = chance.of(1, 2, range(3, 5))
    scenario = fs.Scenario(
        problem=chance.spoilt(problem, 60),
        algorithm=chance.spoilt(algorithm, 60),
        budget=chance.spoilt(budget(chance), 60),
        network=network(chance, clients + chance.one_in(40)),
        devices=chance.spoilt(devices(chance, clients), 60),
        participation=policy(chance, clients),
        replicas=chance.spoilt(replicas),
        seed=chance.spoilt(int(chance.rng.integers(2**32))),
        initial=chance.spoilt(None),
        dtype=chance.spoilt(chance.of("float64", "float32")),
        metrics=chance.of((), ("w2",)) if not timing_only and (replicas != 1 or chance.one_in(10)) else (),
        evaluate_every=chance.spoilt(1, 60),
        record=fs.Record(events=chance.one_in(3), rounds_every=chance.spoilt(1, 60)),
        broadcast_to=chance.of(None, "selected", "all", chance.spoilt(None, 10)) if case % 5 < 3 else None,
        exchange=exchange(chance, case, clients),
    )
    return scenario, timing_only


def exchange(chance, case, clients):
    """A star, or in two of five cases edges or neighbours, nearly right."""
    if case % 5 == 3:
        return fs.exchanges.tiers(
            chance.spoilt(chance.of(None, [c % 2 for c in range(clients)], ["b"] * clients), 20),
            chance.spoilt(chance.of(1, 1, 2, 5), 20),
        )
    if case % 5 == 4:
        whole = nx.complete_graph(clients)
        graph = chance.of(whole, nx.path_graph(clients), nx.path_graph(clients + chance.one_in(20)))
        words = "metropolis", "max_degree", "matching"
        return fs.exchanges.gossip(
            graph, chance.spoilt(chance.of(*words, np.full((len(graph),) * 2, 1 / len(graph))), 20)
        )
    return fs.exchanges.star()


def outcome(case):
    """ "a run", or the error's message."""
    with watchdog(case), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", fs.errors.ResultWarning)  # which says that a figure is noise, and rightly
        try:
            scenario, timing_only = build(case)
            result = fs.run(scenario, runtime=fs.Inline(threads=1), timing_only=timing_only)
        except fs.errors.FedsimError as error:
            return str(error)
        assert_valid(result, scenario)
        return "a run"


def assert_valid(result, scenario):
    rounds = result.rounds
    assert all(result.stopped_by)
    assert np.isfinite(rounds[["opened_s", "closed_s"]].to_numpy()).all()
    assert (rounds["closed_s"] >= rounds["opened_s"]).all()
    assert (rounds["closed_s"] >= 0).all()
    gossips = isinstance(scenario.exchange, fs.exchanges.Gossip)
    for _, own in rounds.groupby("replica"):
        if not scenario.parts.policy.asynchronous:  # whose rounds open when the first visit that ends in them starts
            in_turn = isinstance(scenario.exchange, fs.exchanges.StarExchange)
            before = own["closed_s" if in_turn else "opened_s"].to_numpy()[:-1]
            assert (own["opened_s"].to_numpy()[1:] >= before).all()
    assert (rounds[["selected", "arrived", "dropped", "late", "uplink_bits", "wasted_bits"]] >= 0).all().all()
    assert (rounds["wasted_bits"] <= rounds["backhaul_bits" if gossips else "uplink_bits"]).all()
    if gossips:  # there it is messages that come late
        assert (rounds["arrived"] + rounds["dropped"] == rounds["selected"]).all()
    elif not getattr(scenario.participation, "asynchronous", False):
        assert (rounds["arrived"] + rounds["dropped"] + rounds["late"] == rounds["selected"]).all()
    for name in ("uplink_bits", "downlink_bits", "backhaul_bits", "seconds"):
        limit, spent = getattr(scenario.budget, name), "closed_s" if name == "seconds" else name
        whole = rounds.groupby("replica")[spent]
        assert limit is None or ((whole.max() if name == "seconds" else whole.sum()) <= limit).all()
    totals = result.clients[["arrived", "dropped", "uplink_bits", *(() if gossips else ("late", "wasted_bits"))]].sum()
    assert (totals == rounds[totals.index].sum()).all()


def assert_clear(message):
    assert 20 < len(message) < 400, message
    assert "\n" not in message, message
    assert "Error" not in message, message  # somebody else's words


def sweep(cases):
    outcomes = {}
    for case in cases:
        try:
            outcomes[case] = outcome(case)
        except (Exception, Hung) as error:
            raise AssertionError(f"case {case} ended with {type(error).__name__}: {error}") from error
        if outcomes[case] != "a run":
            assert_clear(outcomes[case])
    return outcomes


@pytest.mark.parametrize("part", range(5))
def test_fuzzed_scenarios_run_or_say_why_not(part):
    outcomes = sweep(range(100 * part, 100 * part + 100))
    assert 20 < list(outcomes.values()).count("a run") < 80  # the generator is neither tame nor hopeless


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_ten_thousand_fuzzed_scenarios_run_or_say_why_not(part):
    sweep(range(1000 + 500 * part, 1000 + 500 * part + 500))

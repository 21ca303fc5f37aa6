"""Scenarios whose bits are pinned: every algorithm, problem, policy, codec, network, availability, way to stop.

`PYTHONPATH=tests python -m golden.golden_scenarios` writes `tests/golden/fingerprints.json` again; do so only in a commit
that says why the bits changed. Digests are computed in a process whose BLAS uses Haswell's kernels, so that they are the same on every
x86 CPU with AVX2 and FMA.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from tools.clocks import clock, compiled_path

import fedsim as fs
from fedsim import algorithms as alg
from fedsim import codecs, devices, exchanges, participation, problems, topologies
from fedsim.errors import Interrupted
from fedsim.results import cpu_features, versions
from fedsim.runtime.process import blas_kernels

FILE = Path(__file__).with_name("fingerprints.json")
KERNELS = "Haswell"  # OpenBLAS's name for the kernels that need AVX2 and FMA alone
N, D = 6, 3
EQUAL = problems.GaussianMean.synthetic(clients=N, dim=D, heterogeneity=2.0, samples=12, seed=5)
UNEQUAL = problems.GaussianMean.synthetic(clients=N, dim=D, heterogeneity=2.0, samples=(4, 8, 12, 10, 6, 20), seed=5)
REACTING = problems.PerformativeMean((2.0, 4.0, 7.0, 3.0, 9.0, 5.0), (0.1, 0.9, 0.4, 1.2, 0.3, 0.1), 0.8)
WHOLE = problems.pooled(EQUAL)


def _labelled(classes: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(8)
    return [(rng.normal(size=(10 + c, 4)), rng.integers(0, classes, 10 + c)) for c in range(N)]


def _regression() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(9)
    return [(rng.normal(size=(8 + c, 3)), rng.normal(size=8 + c)) for c in range(N)]


def edges_behind_one_link() -> Any:
    """Two edges, three clients each, and one link from both to the server."""
    graph = nx.Graph()
    graph.add_node("server", role="server")
    graph.add_edge("server", "hub", bandwidth_bps=2e3, latency_s=0.02)
    for e in range(2):
        graph.add_node(e + 100, role="edge")
        graph.add_edge(e + 100, "hub", bandwidth_bps=np.inf, latency_s=0.0)
    for c in range(N):
        graph.add_node(c, client=c)
        graph.add_edge(c, 100 + c % 2, bandwidth_bps=800.0 + 100 * c, latency_s=0.01)
    return graph


LINEAR = problems.LinearRegression(_regression(), prior_precision=0.5)
LOGISTIC = problems.LogisticRegression(_labelled(2), prior_precision=1.0)
TEST = (np.random.default_rng(4).normal(size=(30, 4)), np.random.default_rng(5).integers(0, 3, 30))
SOFTMAX = problems.SoftmaxRegression(_labelled(3), classes=3, test=TEST)

STAR = topologies.star(
    N, uplink_bps=(800.0, 1000.0, 1500.0, 900.0, 2000.0, 1200.0), downlink_bps=4e3, latency_s=0.01, loss=0.1
)
TREE = topologies.tree(
    N, edges=2, uplink_bps=1e3, downlink_bps=4e3, latency_s=0.01, edge_uplink_bps=1.5e3, edge_downlink_bps=6e3
)
SHARED = topologies.multiple_access(N, capacity_bps=3e3, latency_s=0.02)
RING = topologies.ring(N, bandwidth_bps=2e3, latency_s=0.01)
EDGES = fs.Network(edges_behind_one_link())
TURNS = [np.full((N, N), 1 / N), np.roll(np.eye(N), 1, axis=1) / 2 + np.eye(N) / 2]
CYCLE = nx.cycle_graph(N)
SLOW = devices.lognormal(median_step_s=0.1, sigma=1.0, dropout=0.1)
FLAKY = devices.lognormal(
    median_step_s=0.1, sigma=0.5, dropout={"before": 0.05, "compute": 0.1, "upload": 0.1},
    slowdown=devices.pareto_slowdown(2.0),
)  # fmt: skip
COMING = devices.constant(0.1, dropout=0.05, availability=devices.markov(on_s=4.0, off_s=2.0))
DAILY = devices.constant(0.1, availability=devices.diurnal(period_s=20.0, on_fraction=0.5))
LISTED = devices.constant(
    0.05,
    availability=devices.intervals(
        [0, 5, 0, 3, 0, 0, 9], ends=[4, 30, 30, 30, 8, 30, 30], offsets=[0, 2, 3, 4, 5, 6, 7]
    ),
)

FALD = alg.FALD(1e-3, local_steps=3, correlation=0.4)
EVENTS = fs.Record(events=True)


def _made(algorithm: Any, problem: Any = EQUAL, rounds: int = 8, **more: Any) -> fs.Scenario:
    budget = more.pop("budget", fs.Budget(rounds=rounds))
    return fs.Scenario(problem=problem, algorithm=algorithm, budget=budget, **({"replicas": 2, "seed": 3} | more))


def _policies(name: str, some: Any, **more: Any) -> dict[str, fs.Scenario]:
    return {
        f"{name}: {policy}": _made(FALD, participation=chosen, **more)
        for policy, chosen in {
            "full": participation.full(),
            "uniform": participation.uniform(3),
            "with replacement": participation.with_replacement(3),
            "bernoulli": participation.bernoulli(0.5),
            "first": participation.first(2, of=4),
            "deadline": participation.deadline(0.9),
            "buffered": participation.buffered(2),
            "buffered of 4": participation.buffered(2, of=4, discount=lambda k: 1 / (1 + k)),
        }.items()
        if policy in some
    }


ALL = ("full", "uniform", "with replacement", "bernoulli", "first", "deadline", "buffered", "buffered of 4")
MOST = ("uniform", "with replacement", "first", "deadline", "buffered of 4")

SCENARIOS: dict[str, fs.Scenario] = {
    # --- algorithms, problems, codecs, without a clock ---
    "FALD": _made(FALD),
    "FALD, minibatches": _made(alg.FALD(1e-3, local_steps=2, batch_size=4), UNEQUAL),
    "FALD, schedule": _made(alg.FALD(fs.schedules.inverse_time(0.1, 100.0), local_steps=2), LINEAR),
    "FALD, float32": _made(alg.FALD(1e-3, local_steps=4), dtype="float32"),
    "FALD, logistic": _made(alg.FALD(1e-3, local_steps=2, batch_size=0.5), LOGISTIC),
    "FALD, softmax": _made(alg.FALD(1e-3, local_steps=2, batch_size=4), SOFTMAX, metrics=("accuracy", "nll"), evaluate_every=2),
    "FAHMC": _made(alg.FAHMC(1e-2, leapfrog_steps=3, local_steps=2, correlation=0.5)),
    "FAHMC, de-biased": _made(alg.FAHMC(1e-2, leapfrog_steps=3, local_steps=2, correlation=0.5, debias="stale", batch_size=4)),
    "FAHMC, logistic": _made(alg.FAHMC(1e-2, leapfrog_steps=3, local_steps=2, correlation=0.5), LOGISTIC),
    "QLSD": _made(alg.QLSD(1e-3, batch_size=4, codec=codecs.QSGD(4)), rounds=20),
    "QLSD, Elias": _made(alg.QLSD(1e-3, codec=codecs.Elias(4))),
    "QLSD, a codec each": _made(alg.QLSD(1e-3, codec=[codecs.QSGD(s) for s in (1, 2, 4, 8, 16, 32)])),
    "QLSD, bernoulli": _made(alg.QLSD(1e-3, codec=codecs.QSGD(4)), participation=participation.bernoulli(0.3)),
    "QLSD, inverse": _made(
        alg.QLSD(1e-3, weighting="inverse", activity=0.5), participation=participation.bernoulli(0.5)
    ),
    "QLSD, logistic": _made(alg.QLSD(1e-3, batch_size=4, codec=codecs.QSGD(4)), LOGISTIC),
    "QLSDStar": _made(alg.QLSDStar(1e-3, batch_size=4, codec=codecs.QSGD(4)), UNEQUAL, rounds=20),
    "QLSDPlusPlus": _made(alg.QLSDPlusPlus(1e-3, refresh_every=2, batch_size=4, codec=codecs.QSGD(4)), rounds=20),
    "QLSDPlusPlus, some": _made(
        alg.QLSDPlusPlus(1e-3, refresh_every=2, codec=codecs.QSGD(4)), participation=participation.bernoulli(0.5)
    ),
    "FedAvg": _made(alg.FedAvg(0.1, local_steps=2, batch_size=4), SOFTMAX, metrics=("loss",)),
    "FedAvg, linear": _made(alg.FedAvg(0.05, local_steps=2, batch_size=4), LINEAR),
    "FedPAQ": _made(alg.FedPAQ(0.1, local_steps=2, batch_size=4), SOFTMAX),
    "PrivateFedPAQ": _made(
        alg.PrivateFedPAQ(0.1, local_steps=2, clip=1.0, epsilon=1.0, delta=1e-4, batch_size=2), SOFTMAX, participation=participation.uniform(3)
    ),
    "Scaffold": _made(alg.Scaffold(0.1, local_steps=2, batch_size=4), UNEQUAL, participation=participation.uniform(3)),
    "PFedAvg": _made(alg.PFedAvg(0.1, local_steps=2), REACTING),
    "SGLD": _made(alg.SGLD(1e-3, local_steps=2, batch_size=4), WHOLE),
    "MALA": _made(alg.MALA(1e-2, local_steps=2), WHOLE),
    "HMC": _made(alg.HMC(5e-2, leapfrog_steps=3, local_steps=2), WHOLE),
    # --- policies over every kind of clock ---
    **_policies("star", ALL, network=STAR, devices=SLOW),
    **_policies("star, traced", MOST, network=STAR, devices=FLAKY, record=EVENTS),
    **_policies("tree", ALL, network=TREE, devices=FLAKY, record=EVENTS),
    **_policies("shared channel", ("full", "first", "buffered"), network=SHARED, devices=SLOW),
    **_policies("ring", ("uniform", "deadline"), network=RING),
    **_policies("coming and going", MOST, network=STAR, devices=COMING, record=EVENTS),
    **_policies("by the day", ("uniform", "buffered"), devices=DAILY),
    **_policies("listed hours", ("full", "with replacement", "deadline"), network=STAR, devices=LISTED),
    # --- memory, lengths that vary, broadcast to all ---
    "Scaffold, buffered": _made(alg.Scaffold(0.1, local_steps=2), network=STAR, devices=SLOW, participation=participation.buffered(2)),
    "Scaffold, buffered of 4": _made(
        alg.Scaffold(0.1, local_steps=2), network=TREE, devices=FLAKY, participation=participation.buffered(2, of=4)
    ),
    "QLSD++ over a star": _made(
        alg.QLSDPlusPlus(1e-3, refresh_every=2, codec=codecs.Elias(4)), network=STAR, devices=SLOW,
        participation=participation.deadline(0.5),
    ),
    "Elias over a tree": _made(
        alg.QLSD(1e-3, codec=codecs.Elias(4)), network=TREE, devices=FLAKY, participation=participation.uniform(3),
        record=EVENTS,
    ),
    "Elias, buffered": _made(
        alg.FedPAQ(0.1, local_steps=2, codec=codecs.Elias(4)), network=TREE, devices=SLOW, participation=participation.buffered(2)
    ),
    "all hear, star": _made(FALD, network=STAR, broadcast_to="all", participation=participation.uniform(2)),
    "all hear, tree": _made(FALD, network=TREE, devices=SLOW, broadcast_to="all", participation=participation.uniform(2)),
    "all hear, buffered": _made(FALD, network=TREE, broadcast_to="all", participation=participation.buffered(2)),
    "QLSD, stretched over a star": _made(alg.QLSD(1e-3, codec=codecs.QSGD(4)), network=STAR, rounds=30),
    # --- budgets, records, starts ---
    "budget of seconds": _made(FALD, network=STAR, devices=SLOW, budget=fs.Budget(seconds=12.0)),
    "budget of bits": _made(FALD, network=STAR, devices=SLOW, budget=fs.Budget(total_bits=9_000)),
    "budget of uplink bits, buffered": _made(
        FALD, network=STAR, devices=SLOW, budget=fs.Budget(uplink_bits=4_000), participation=participation.buffered(2)
    ),
    "target": _made(
        alg.FedAvg(0.2, local_steps=2), LINEAR, metrics=("loss",),
        budget=fs.Budget(rounds=40, target=fs.Target("loss", below=1.0)),
    ),
    "budget of epsilon": _made(
        alg.PrivateFedPAQ(0.1, local_steps=2, clip=1.0, epsilon=1.0, delta=1e-4, batch_size=2), SOFTMAX, metrics=(fs.privacy.spent(delta=1e-4),),
        budget=fs.Budget(rounds=30, epsilon=3.0), participation=participation.uniform(3),
    ),
    "thinned record": _made(FALD, rounds=20, record=fs.Record(every=3, warmup=5, rounds_every=4), metrics=("w2",)),
    "QLSD, thinned": _made(alg.QLSD(1e-3), rounds=40, record=fs.Record(every=5, rounds_every=10)),
    "replicas by number": _made(FALD, replicas=range(3, 6), devices=SLOW, participation=participation.uniform(2)),
    "a start of one's own": _made(FALD, initial=np.arange(3.0)),
    "tiers": _made(FALD, UNEQUAL, exchange=exchanges.tiers((0, 1, 0, 1, 1, 1), 3), network=STAR, devices=SLOW),
    "tiers behind a backhaul": _made(
        alg.FedAvg(1e-2, local_steps=2), UNEQUAL, exchange=exchanges.tiers(every=2), network=EDGES, devices=FLAKY,
        participation=participation.first(2), record=EVENTS,
    ),
    "tiers, coming and going": _made(FALD, exchange=exchanges.tiers((0, 1) * 3, 2), devices=COMING, network=STAR),
    "tiers, QLSD and Elias": _made(
        alg.QLSD(1e-3, codec=codecs.Elias(3)), exchange=exchanges.tiers(every=1), network=EDGES, devices=SLOW,
        participation=participation.bernoulli(0.6),
    ),
    "gossip": _made(FALD, UNEQUAL, exchange=exchanges.gossip(CYCLE), devices=SLOW, record=fs.Record(sites="all")),
    "gossip over a star of links": _made(FALD, exchange=exchanges.gossip(CYCLE, "max_degree"), network=STAR),
    "gossip by matchings": _made(alg.FedAvg(1e-2, local_steps=2), exchange=exchanges.gossip(CYCLE, "matching")),
    "gossip, FAHMC, first": _made(
        alg.FAHMC(1e-2, leapfrog_steps=2), exchange=exchanges.gossip(CYCLE), devices=FLAKY, network=STAR, record=EVENTS,
        participation=participation.first(1),
    ),
    "gossip, coming and going": _made(
        FALD, exchange=exchanges.gossip(CYCLE), devices=COMING, network=STAR, participation=participation.deadline(1.0)
    ),
    "DESGLD": _made(alg.DESGLD(1e-3, batch_size=2), exchange=exchanges.gossip(CYCLE), devices=devices.constant(0.1)),
    "DIGingSGLD": _made(alg.DIGingSGLD(1e-3), exchange=exchanges.gossip(nx.complete_graph(N), TURNS)),
}  # fmt: skip
RESUMED = (
    "FALD", "Scaffold, buffered", "tree: uniform", "Elias over a tree", "coming and going: buffered of 4",
    "tiers behind a backhaul", "tiers, QLSD and Elias", "gossip", "gossip, FAHMC, first", "DIGingSGLD",
)  # fmt: skip
ON_SIMPY_ALONE = (  # the sizes of replies depend on their values; the compiled clock refuses these
    "QLSD++ over a star", "Elias over a tree", "Elias, buffered", "tiers, QLSD and Elias",
)  # fmt: skip
ON_RAY = (
    "FALD", "Scaffold, buffered", "tree: buffered", "QLSDPlusPlus, some", "FedAvg", "tiers behind a backhaul", "gossip",
)  # fmt: skip


def digest(result: Any) -> dict[str, Any]:
    """What is pinned of a result: a digest of each part, and numbers that a machine with other bits can compare."""
    out: dict[str, Any] = {}
    frames = {"rounds": result.rounds, "clients": result.clients, "events": result.events, "metrics": result.metrics}
    for name, frame in frames.items():
        if frame is not None:
            one_site = [
                n for n in ("backhaul_bits",) if n in frame and not frame[n].any()
            ]  # as when there was no other
            later = [n for n in ("dropped_bits",) if n in frame]  # compared over the clocks in test_round_rules
            frame = frame.drop(columns=[*one_site, *later])
            if "epsilon" in frame:  # of minibatches: dp_accounting's logarithms are NumPy's, which depend on the CPU
                frame = frame.assign(epsilon=frame["epsilon"].map("{:.9g}".format))
            text = frame.reindex(columns=sorted(frame.columns)).to_csv(index=False, float_format="%.17g")
            out[name] = hashlib.sha256(text.encode()).hexdigest()[:16]
    out["samples"] = hashlib.sha256(np.ascontiguousarray(result.samples).tobytes()).hexdigest()[:16]
    out["figures"] = [
        float(np.nansum(np.abs(result.samples))), float(result.rounds.closed_s.sum()),
        float(result.rounds.uplink_bits.sum()), float(result.rounds.downlink_bits.sum()),
    ]  # fmt: skip
    return out


def resumed(scenario: fs.Scenario) -> Any:
    """The same run, stopped after four rounds and taken up again."""
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        try:
            fs.run(scenario, out=out, checkpoint_every=2, stop=stop, observers=[lambda p: stop.set() if p.round == 4 else None])  # fmt: skip
        except Interrupted:
            return fs.run(scenario, out=out, resume=True)
        raise AssertionError("it was not interrupted")


CLOCKS: dict[str, Callable[[], Any]] = {  # each, and what forces it
    "simpy": lambda: clock("simpy"),
    "loop": lambda: compiled_path("loop"),
    "short": lambda: compiled_path("short"),
}
USED = {"simpy": ("simpy", "loop"), "loop": ("compiled", "loop"), "short": ("compiled", "short")}
WAYS: dict[str, Callable[[fs.Scenario], Any]] = {
    "one thread": fs.run,
    "threads and chunks": lambda scenario: fs.run(scenario, runtime=fs.Inline(threads=2, chunk=3)),
    "Ray": lambda scenario: fs.run(scenario, runtime=fs.Ray(hosts=2)),
    "resumed": resumed,
}


def computed(name: str, way: str = "one thread") -> dict[str, Any]:
    """Run a scenario in one of the `WAYS` and return its digest."""
    return digest(WAYS[way](SCENARIOS[name]))


def on_clock(name: str, which: str) -> dict[str, Any] | None:
    """Run a scenario on one of the `CLOCKS` and return its digest; None if that clock cannot serve it to its end."""
    result = forced(SCENARIOS[name], which)
    return None if result is None else digest(result)


def forced(scenario: fs.Scenario, which: str) -> Any:
    """Return the result on one of the `CLOCKS`, or None if it refuses, or if the short path gives up for the loop."""
    try:
        with CLOCKS[which]():
            result = fs.run(scenario, runtime=fs.Inline(threads=1))
    except fs.errors.InvalidInput as error:
        if "cannot serve" in str(error):
            return None
        raise
    used = result.manifest["clock"]["name"], result.manifest["clock"]["path"]
    assert used == USED[which] or (which, used) == ("short", USED["loop"])
    return result if used == USED[which] else None


def manifest(name: str) -> Any:
    """Run a scenario and return its manifest."""
    return fs.run(SCENARIOS[name]).manifest


def environment() -> dict[str, Any]:
    """Return what bits depend on besides the code."""
    own = {n: v for n, v in versions().items() if n in ("python", "numpy", "numba", "llvmlite", "scipy", "simpy")}
    needed = [feature for feature in cpu_features() if feature in ("AVX2", "FMA3")]
    return {"versions": own, "cpu": needed, "blas_kernels": blas_kernels()}


@contextmanager
def process_with(**variables: str) -> Iterator[Callable[..., Any]]:
    """Start a process with these environment variables, and give a function that calls functions there.

    OpenBLAS and NumPy choose their code when NumPy is imported, which is too late in the process that runs the tests.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        before = dict(os.environ)
        try:
            os.environ.update(variables)
            pool.submit(environment).result()
        finally:
            for name in variables:
                os.environ.pop(name)
            os.environ.update({name: before[name] for name in variables if name in before})
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


def main() -> None:
    with process_with(OPENBLAS_CORETYPE=KERNELS) as call:
        found = call(environment)
        if found["cpu"] != ["AVX2", "FMA3"] or found["blas_kernels"] != [KERNELS]:
            raise SystemExit(
                f"digests are pinned on an x86 CPU with AVX2 and FMA and OpenBLAS's {KERNELS}, not {found}"
            )
        pinned, clocks = {}, {}
        for name in SCENARIOS:
            served = {which: made for which in CLOCKS if (made := call(on_clock, name, which)) is not None}
            pinned[name], clocks[name] = served["simpy"], list(served)
            if any(made != pinned[name] for made in served.values()):
                raise SystemExit(f"{name}: {clocks[name]} differ")
    text = json.dumps({"clocks": clocks, "environment": found, "scenarios": pinned}, indent=1, sort_keys=True)
    FILE.write_text(text + "\n")
    print(f"{len(pinned)} scenarios pinned")


if __name__ == "__main__":
    main()

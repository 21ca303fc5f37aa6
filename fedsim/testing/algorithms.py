"""The contract of algorithms, tested on small problems."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from fedsim import kernels, rng
from fedsim.arrays import Array, Arrays
from fedsim.budget import Budget
from fedsim.engine.learner import Learner
from fedsim.engine.system import System, setting_of
from fedsim.errors import InvalidInput, NonFinite
from fedsim.exchanges import Gossip, star
from fedsim.participation import bernoulli, full
from fedsim.protocols import AlgorithmLike, ProblemLike, Replies, Rng, as_algorithm
from fedsim.running import run
from fedsim.runtime.aggregation import Segments
from fedsim.runtime.inline import Inline, Worker
from fedsim.runtime.jobs import Batch, JobsAtHand, Reply, Setting
from fedsim.scenario import Scenario
from fedsim.testing.contract import JOBS, Contract
from fedsim.testing.small_problems import small_problems

REPLICAS = 3
STRANGERS = (0, 4)  # clients whose replies are recomputed with the rows of all others replaced


def check_algorithm_on_all(algorithm: AlgorithmLike) -> list[str]:
    """Check an algorithm on the small Gaussian problem, and on the others if its `init` accepts them."""
    held: list[str] = []
    others = [small_problems(own=client) for client in STRANGERS]
    for i, problem in enumerate(small_problems()):
        if i > 0:
            try:
                algorithm.init(problem, np.zeros(problem.dim))
            except InvalidInput:
                continue
        held += check_algorithm(algorithm, problem, dict(zip(STRANGERS, (found[i] for found in others), strict=True)))
    return held


def check_algorithm(
    algorithm: AlgorithmLike, problem: ProblemLike, strangers: dict[int, ProblemLike] | None = None
) -> list[str]:
    """Check an algorithm; `strangers` are problems in which all rows but those of one client are replaced."""
    chance = as_algorithm(algorithm).activity  # the probability that messages arrive
    policy = full() if chance is None else bernoulli(chance)
    scenario = Scenario(
        problem=problem, algorithm=algorithm, budget=Budget(rounds=3), replicas=REPLICAS, seed=11, participation=policy,
        exchange=_ring(problem.clients) if as_algorithm(algorithm).needs_gossip else star(),
    )  # fmt: skip
    setting = setting_of(scenario, kernels.backend("cpu"))
    system = System(scenario, setting, timing_only=False)
    trial = Learner(system, Inline(threads=1).open(algorithm, setting))
    batch = _batch(system, trial)
    worker = Worker(algorithm, setting)
    looped = Worker(cast(AlgorithmLike, _Looped(algorithm)), setting)
    require = Contract(algorithm, "" if strangers is None else type(problem).__name__)
    require(
        "client does not change its inputs", _inputs_untouched(algorithm, setting, batch),
        "client changes its inputs: the message or the memory was altered; work on copies",
    )  # fmt: skip
    first = worker.compute(batch)
    require(
        "replay is exact", _equal(first, worker.compute(batch)),
        "replay is not exact: the same jobs computed twice gave different bits; draw from the job, store nothing",
    )  # fmt: skip
    for client, stranger in (strangers or {}).items():
        own, theirs = batch.part(batch.client == client), replace(setting, problem=stranger)
        require(
            f"client {client}'s reply depends on no other client's rows",
            _equal(worker.compute(own), Worker(algorithm, theirs).compute(own)),
            f"client {client}'s reply depends on other clients' rows: it changed with them",
        )  # fmt: skip
    single = looped.compute(batch)
    if as_algorithm(algorithm).batched:
        stacked = Worker(cast(AlgorithmLike, _Unfused(algorithm)), setting).compute(batch)
        differs = f"one job at a time and stacked disagree: {_gap(single, stacked)}"
        require("one job at a time and stacked agree", _close(single, stacked), differs)
    if worker.kernel is not None:
        differs = f"fused and one at a time disagree: {_gap(single, first)}"
        require("fused and one at a time agree", _close(single, first), differs)
    for size in (1, 4):
        parts = [worker.compute(batch.part(slice(i, i + size))) for i in range(0, JOBS, size)]
        require(
            f"chunks of {size} give the bits of the full batch", _equal(first, Reply.join(parts)),
            f"chunks of {size} do not give the bits of the full batch: a job's reply depends on its neighbours",
        )  # fmt: skip
    pure, ordered = _server(system, trial, first)
    require(
        "the server does not change its state and the replies", pure,
        "the server changes the state or the replies in place; work on copies",
    )  # fmt: skip
    require(
        "the order of the replies is irrelevant", ordered,
        "the order of the replies matters: the same ones in another order gave another state",
    )  # fmt: skip
    require(
        "the server accepts a round without replies", _no_reply(system, trial, first),
        "the server does not accept a round without replies: its state is not finite; return theta unchanged",
    )  # fmt: skip
    full_run = run(scenario, runtime=Inline(threads=1))
    again = run(scenario, runtime=Inline(2, 2))
    require(
        "threads and chunks do not change a run", full_run.fingerprint == again.fingerprint,
        "threads and chunks change a run: two threads gave other bits than one",
    )  # fmt: skip
    observed = run(scenario, observers=[lambda progress: None])  # rounds are then learned one by one
    require(
        "an observer of every round does not change a run", full_run.fingerprint == observed.fingerprint,
        "an observer of every round changes the run: rounds learned in blocks gave other bits than one by one",
    )  # fmt: skip
    one = run(replace(scenario, replicas=range(1, 2)))
    assert full_run.samples is not None
    assert one.samples is not None
    require(
        "a replica alone is the replica among others", np.array_equal(full_run.samples[:, 1], one.samples[:, 0]),
        "a replica alone is not the replica among others: replica 1 of 3 has other samples when it runs by itself",
    )  # fmt: skip
    return require.held


class _Looped:
    """The algorithm without `batched` and `fused`."""

    batched = False

    def __init__(self, algorithm: AlgorithmLike) -> None:
        self.client = algorithm.client


class _Unfused(_Looped):
    batched = True


def _batch(system: System, trial: Learner) -> Batch:
    clients = np.arange(JOBS) % system.population
    position = np.arange(JOBS) // system.population % REPLICAS
    message = trial.broadcast(np.arange(REPLICAS))
    shaken = {
        n: (
            m + 0.1 * rng.normal(rng.keys(3, rng.Stream.USER, client=np.arange(len(m))), m[0].size).reshape(m.shape)
        ).astype(m.dtype)
        for n, m in message.items()
    }
    visit, memory = np.zeros(JOBS, np.int64), {n: m[position, clients] for n, m in trial.memory.items()}
    version = position * system.sites.models + (system.sites.site_of[clients] if system.sites.models > 1 else 0)
    return Batch(1, system.replicas[position], clients, visit, shaken, version, memory)


def _inputs_untouched(algorithm: AlgorithmLike, setting: Setting, batch: Batch) -> bool:
    one = batch.part(slice(0, 1))
    alone = [{n: m[0] for n, m in part.items()} for part in (batch.message, one.memory)]
    ranks = [(JobsAtHand(setting, one, single=True), alone[0], alone[1])]
    if as_algorithm(algorithm).batched:
        message = {n: m[batch.version] for n, m in batch.message.items()}
        ranks.append((JobsAtHand(setting, batch, single=False), message, batch.memory))
    for job, message, memory in ranks:
        handed = [{n: a.copy() for n, a in part.items()} for part in (message, memory)]
        algorithm.client(job, *handed)
        if not (_same(handed[0], message) and _same(handed[1], memory)):
            return False
    return True


def _server(system: System, trial: Learner, reply: Reply) -> tuple[bool, bool]:
    """Return whether the server changes no input, and whether it does not depend on the order of replies."""
    segments, reply = _received(trial, reply, True)
    before, server, outcomes, untouched = trial.state, trial.server, [], [True]

    def watched(state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        handed = {n: s.copy() for n, s in state.items()}
        new = server(state, replies, rng)
        untouched.append(_same(handed, state))
        return new

    trial.server = watched
    handed_out = {n: v.copy() for n, v in reply.values.items()}
    for backwards in (False, True):
        trial.state = {n: s.copy() for n, s in before.items()}
        try:
            trial.step(_backwards(segments) if backwards else segments, reply, 2)
        except InvalidInput as error:
            if "changed an array in place" not in str(error):
                raise
            return False, True
        outcomes.append(trial.state)
        untouched.append(_same(handed_out, reply.values))
    trial.state, trial.server = before, server
    return all(untouched), all(_near(outcomes[0][n], outcomes[1][n]) for n in before)


def _received(trial: Learner, reply: Reply, replied: bool) -> tuple[Segments, Reply]:
    """Return segments and replies of a round with all replies, or none (over gossip each site has its own)."""
    system, replicas = trial.system, np.arange(REPLICAS)
    n, exchange = system.population, system.scenario.exchange
    there = np.arange(n * REPLICAS if replied or system.sites.count > 1 else 0)
    values = {name: v[np.resize(np.arange(len(v)), len(there))] for name, v in reply.values.items()}
    replies = Reply(values, np.resize(reply.bits, len(there)), {})
    if not isinstance(exchange, Gossip):
        one = np.ones(len(there), np.int64)
        site = system.sites.site_of[there % n]
        return trial.weighing.segments(replicas, there // n, site, there % n, one), replies
    mixing, sites = exchange.at(0, 0, 1), np.arange(n)
    sender, receiver, weight = (
        (exchange.sender, exchange.receiver, mixing.weight) if replied else (sites[:0], sites[:0], np.zeros(0))
    )
    own_weight = mixing.own if replied else np.ones(n)
    client, site, weights = (
        np.concatenate(pair) for pair in ((sender, sites), (receiver, sites), (weight, own_weight))
    )
    by_site = np.lexsort((client, site))
    client, site, weights = client[by_site], site[by_site], weights[by_site]
    segment, client = (np.concatenate([r * n + part for r in replicas]) for part in (site, client))
    starts, one = np.searchsorted(segment, np.arange(n * REPLICAS + 1)), np.ones(len(segment), np.int64)
    weights = np.tile(weights, REPLICAS)
    weights.flags.writeable = False
    own = np.flatnonzero(client == segment)
    return Segments(
        np.repeat(replicas, n), np.tile(sites, REPLICAS), starts, client % n, one, one - 1, weights, client, own
    ), replies


def _backwards(segments: Segments) -> Segments:
    """Return the segments with their replies in reverse order."""
    k = len(segments.client)
    order = np.lexsort((-np.arange(k), np.repeat(np.arange(len(segments.sizes)), segments.sizes)))
    place = np.empty(k, np.int64)
    place[order] = np.arange(k)
    weights = segments.weights[order]
    weights.flags.writeable = False
    return replace(
        segments, client=segments.client[order], multiplicity=segments.multiplicity[order],
        staleness=segments.staleness[order], weights=weights,
        order=(np.arange(k) if segments.order is None else segments.order)[order],
        own=None if segments.own is None else place[segments.own],
    )  # fmt: skip


def _ring(clients: int) -> Gossip:
    """Return a gossip exchange in which every client has two neighbours."""
    import networkx

    return Gossip(networkx.cycle_graph(clients))


def _no_reply(system: System, trial: Learner, reply: Reply) -> bool:
    handed = {n: s.copy() for n, s in trial.state.items()}
    try:
        trial.step(*_received(trial, reply, replied=False), 2)
    except NonFinite:
        return False
    finally:
        trial.state = handed
    return True


# --- Small comparisons ------------------------------------------------------------------------------


def _same(a: Arrays, b: Arrays) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) for n in a)


def _equal(a: Reply, b: Reply) -> bool:
    return _same(a.values, b.values) and _same(a.memory, b.memory) and np.array_equal(a.bits, b.bits)


def _pairs(a: Reply, b: Reply) -> list[tuple[str, Array, Array]]:
    return [(n, a.values[n], b.values[n]) for n in a.values] + [(n, a.memory[n], b.memory[n]) for n in a.memory]


def _near(x: Array, y: Array) -> bool:
    return bool(np.allclose(x, y, rtol=1e-9, atol=1e-9 * (1 + np.abs(x).max(initial=0))))


def _close(a: Reply, b: Reply) -> bool:
    return a.values.keys() == b.values.keys() and all(_near(x, y) for _, x, y in _pairs(a, b))


def _gap(a: Reply, b: Reply) -> str:
    gaps = [
        f"{n} differs by up to {np.abs(x - y).max(initial=0):.2g}" for n, x, y in _pairs(a, b) if x.shape == y.shape
    ]
    return ", ".join(gaps)

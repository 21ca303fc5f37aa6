"""What an algorithm promises, tried on a small problem."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from fedsim import kernels, rng
from fedsim.arrays import Array, Arrays
from fedsim.budget import Budget
from fedsim.engine.system import setting_of
from fedsim.errors import InvalidInput, NonFinite
from fedsim.exchanges import Gossip, star
from fedsim.old_engine.copies import Copies
from fedsim.old_engine.folds import Folds, folds_of
from fedsim.old_engine.learner import Learner
from fedsim.old_engine.round import Cohort, Round, all_arrived
from fedsim.old_engine.world import World
from fedsim.participation import bernoulli, full
from fedsim.protocols import AlgorithmLike, ProblemLike, Replies, Rng, as_algorithm
from fedsim.running import run
from fedsim.runtime.answers import ChangedInPlace
from fedsim.runtime.inline import Inline
from fedsim.runtime.jobs import Batch, JobsAtHand, Reply, Setting
from fedsim.runtime.worker import Worker
from fedsim.scenario import Scenario
from fedsim.testing.promises import JOBS, Promises
from fedsim.testing.small import small_problems

REPLICAS = 3
STRANGERS = (0, 4)  # clients whose replies are computed again beside different rows of all others


def check_algorithm_on_all(algorithm: AlgorithmLike) -> list[str]:
    """Check it on every small problem that its `init` accepts; the Gaussian one it has to accept."""
    kept: list[str] = []
    others = [small_problems(own=client) for client in STRANGERS]
    for i, problem in enumerate(small_problems()):
        if i > 0:
            try:
                algorithm.init(problem, np.zeros(problem.dim))
            except InvalidInput:
                continue
        kept += check_algorithm(algorithm, problem, dict(zip(STRANGERS, (found[i] for found in others), strict=True)))
    return kept


def check_algorithm(
    algorithm: AlgorithmLike, problem: ProblemLike, strangers: dict[int, ProblemLike] | None = None
) -> list[str]:
    """`strangers` are, for some clients, problems in which all rows but the client's own are different."""
    chance = as_algorithm(algorithm).activity  # that messages arrive, for those who divide by it
    policy = full() if chance is None else bernoulli(chance)
    scenario = Scenario(
        problem=problem, algorithm=algorithm, budget=Budget(rounds=3), replicas=REPLICAS, seed=11, participation=policy,
        exchange=_ring(problem.clients) if as_algorithm(algorithm).needs_gossip else star(),
    )  # fmt: skip
    setting = setting_of(scenario, kernels.backend("cpu"))
    world = World(scenario, setting, skip=False)
    trial = Learner(world, Inline(threads=1).open(algorithm, setting))
    batch = _batch(world, trial)
    worker = Worker(algorithm, setting)
    looped = Worker(cast(AlgorithmLike, _Looped(algorithm)), setting)
    promise = Promises(algorithm, "" if strangers is None else type(problem).__name__)
    promise(
        "client leaves its inputs alone", _inputs_untouched(algorithm, setting, batch),
        "client changes its inputs: the message or the memory came back altered; copy what you write to",
    )  # fmt: skip
    first = worker.compute(batch)
    promise(
        "replay is exact", _equal(first, worker.compute(batch)),
        "replay is not exact: the same jobs computed twice gave different bits; draw from the job, keep nothing",
    )  # fmt: skip
    for client, stranger in (strangers or {}).items():
        own, theirs = batch.part(batch.client == client), replace(setting, problem=stranger)
        promise(
            f"client {client}'s reply depends on no other client's rows",
            _equal(worker.compute(own), Worker(algorithm, theirs).compute(own)),
            f"client {client}'s reply depends on other clients' rows: it changed when theirs alone did",
        )  # fmt: skip
    single = looped.compute(batch)
    if as_algorithm(algorithm).batched:
        stacked = Worker(cast(AlgorithmLike, _Unfused(algorithm)), setting).compute(batch)
        differs = f"one job at a time and stacked disagree: {_gap(single, stacked)}"
        promise("one job at a time and stacked agree", _close(single, stacked), differs)
    if worker.kernel is not None:
        differs = f"fused and one at a time disagree: {_gap(single, first)}"
        promise("fused and one at a time agree", _close(single, first), differs)
    for size in (1, 4):
        parts = [worker.compute(batch.part(slice(i, i + size))) for i in range(0, JOBS, size)]
        promise(
            f"chunks of {size} give the bits of the whole batch", _equal(first, Reply.join(parts)),
            f"chunks of {size} do not give the bits of the whole batch: a job's reply depends on its neighbours",
        )  # fmt: skip
    pure, ordered = _server(world, trial, first)
    promise(
        "the server leaves its state and the replies alone", pure,
        "the server changes the state or the replies that it is given; copy what you write to",
    )  # fmt: skip
    promise(
        "the order of the replies is irrelevant", ordered,
        "the order of the replies matters: the same ones in another order gave another state",
    )  # fmt: skip
    promise(
        "the server accepts that nobody arrived", _nobody(world, trial, first),
        "the server does not accept that nobody arrived: its state went non-finite; keep theta then",
    )  # fmt: skip
    whole = run(scenario, runtime=Inline(threads=1))
    again = run(scenario, runtime=Inline(2, 2))
    promise(
        "threads and chunks do not change a run", whole.fingerprint == again.fingerprint,
        "threads and chunks change a run: two threads gave other bits than one",
    )  # fmt: skip
    looked_at = run(scenario, observers=[lambda progress: None])  # then no rounds are taken several at a go
    promise(
        "nor does whoever looks at every round", whole.fingerprint == looked_at.fingerprint,
        "whoever looks at every round changes the run: rounds taken several at a go gave other bits than one by one",
    )  # fmt: skip
    one = run(replace(scenario, replicas=range(1, 2)))
    assert whole.samples is not None
    assert one.samples is not None
    promise(
        "a replica alone is the replica among others", np.array_equal(whole.samples[:, 1], one.samples[:, 0]),
        "a replica alone is not the replica among others: replica 1 of 3 has other samples when it runs by itself",
    )  # fmt: skip
    return promise.kept


class _Looped:
    """The algorithm with `batched` and `fused` taken away."""

    batched = False

    def __init__(self, algorithm: AlgorithmLike) -> None:
        self.client = algorithm.client


class _Unfused(_Looped):
    batched = True


def _batch(world: World, trial: Learner) -> Batch:
    clients = np.arange(JOBS) % world.population
    position = np.arange(JOBS) // world.population % REPLICAS
    message = trial.broadcast(np.arange(REPLICAS))
    shaken = {
        n: (
            m + 0.1 * rng.normal(rng.keys(3, rng.Stream.USER, client=np.arange(len(m))), m[0].size).reshape(m.shape)
        ).astype(m.dtype)
        for n, m in message.items()
    }
    visit, memory = np.zeros(JOBS, np.int64), trial.recall(position, clients)
    version = position * world.sites.models + (world.sites.site_of[clients] if world.sites.models > 1 else 0)
    return Batch(1, world.replicas[position], clients, visit, shaken, version, memory)


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


def _server(world: World, trial: Learner, reply: Reply) -> tuple[bool, bool]:
    """Whether it leaves state and replies alone, and whether it does not mind the order of a replica's replies."""
    round, reply = _round(world, reply, True)
    folds = folds_of(world, round)
    before, server, outcomes, untouched = trial.state, world.algorithm.server, [], [True]

    def watched(state: Arrays, replies: Replies, rng: Rng) -> Arrays:
        handed = {n: s.copy() for n, s in state.items()}
        new = server(state, replies, rng)
        untouched.append(_same(handed, state))
        return new

    world.algorithm.server = watched  # type: ignore[method-assign]
    handed_out = {n: v.copy() for n, v in reply.values.items()}
    for backwards in (False, True):
        trial.state = {n: s.copy() for n, s in before.items()}
        try:
            trial.fold(round, reply, _backwards(folds) if backwards else folds)
        except ChangedInPlace:
            return False, True
        outcomes.append(trial.state)
        untouched.append(_same(handed_out, reply.values))
    trial.state, world.algorithm.server = before, server  # type: ignore[method-assign]
    return all(untouched), all(_near(outcomes[0][n], outcomes[1][n]) for n in before)


def _round(world: World, reply: Reply, heard: bool) -> tuple[Round, Reply]:
    """A round in which everybody is heard, or nobody (over gossip: every site hears itself alone), and its replies."""
    m, everybody = world.population * REPLICAS, np.arange(REPLICAS)
    there = np.arange(m) if heard or world.sites.count > 1 else np.arange(0)
    row, client = there // world.population, there % world.population
    starts = np.searchsorted(row, np.arange(REPLICAS + 1))
    made = all_arrived(1, everybody, Cohort(row, client, np.ones(len(there), np.int64), starts))
    exchange = world.scenario.exchange
    if isinstance(exchange, Gossip):
        mixing, k = exchange.at(0, 0, 1), len(exchange.receiver)
        copies = Copies(
            np.repeat(everybody, k), np.tile(exchange.receiver, REPLICAS), np.tile(exchange.sender, REPLICAS),
            np.tile(mixing.weight, REPLICAS), np.full(REPLICAS * k, heard), np.tile(mixing.own, (REPLICAS, 1)),
            np.ones((REPLICAS, exchange.sites), bool),
        )  # fmt: skip
        made = replace(made, copies=copies)
    values = {n: v[np.resize(np.arange(len(v)), len(there))] for n, v in reply.values.items()}
    return made, Reply(values, np.resize(reply.bits, len(there)), {})


def _backwards(folds: Folds) -> Folds:
    """The same with every segment's replies in the opposite order."""
    who, k = folds.who, len(folds.who.client)
    order = np.lexsort((-np.arange(k), who.row))
    place = np.empty(k, np.int64)
    place[order] = np.arange(k)
    pick = np.arange(k) if folds.pick is None else folds.pick
    return replace(
        folds, who=Cohort(who.row, who.client[order], who.multiplicity[order], who.starts),
        weights=folds.weights[order], staleness=folds.staleness[order], pick=pick[order],
        own=None if folds.own is None else place[folds.own],
    )  # fmt: skip


def _ring(clients: int) -> Gossip:
    """Every client with two neighbours."""
    import networkx

    return Gossip(networkx.cycle_graph(clients))


def _nobody(world: World, trial: Learner, reply: Reply) -> bool:
    handed = {n: s.copy() for n, s in trial.state.items()}
    try:
        trial.fold(*_round(world, reply, heard=False))
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

"""The contract suite, for anyone's class: `fs.testing.check(MyAlgorithm(...))` runs the promises that ours keep.

It returns the promises it checked and raises `Broken`, an AssertionError, with the first one that does not hold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim import kernels, rng
from fedsim.budget import Budget
from fedsim.engine import Run
from fedsim.engine.select import Cohort
from fedsim.engine.setting import setting_of
from fedsim.errors import InvalidInput, NonFinite
from fedsim.participation import bernoulli, full
from fedsim.problems import GaussianMean
from fedsim.runtime.answers import ChangedInPlace
from fedsim.runtime.inline import Inline
from fedsim.runtime.jobs import Batch, Job, Reply, Setting
from fedsim.runtime.worker import Worker
from fedsim.scenario import Scenario, run

Array = npt.NDArray[Any]
JOBS, REPLICAS = 21, 3


class Broken(AssertionError):
    """A promise of DESIGN's protocols does not hold."""


def check(subject: Any, problem: Any = None) -> list[str]:
    """Check an algorithm, a problem, a policy, devices or a codec; `problem` is what an algorithm is tried on."""
    if hasattr(subject, "client") and hasattr(subject, "server"):
        return _algorithm(subject, problem if problem is not None else small_problem())
    if hasattr(subject, "gradient"):
        return _problem(subject)
    if hasattr(subject, "select"):
        return _policy(subject, problem if problem is not None else small_problem())
    if hasattr(subject, "encode"):
        return _codec(subject)
    if hasattr(subject, "compute_s"):
        return _devices(subject)
    raise InvalidInput(f"check({subject!r}): not an algorithm, a problem, a policy, devices or a codec")


def small_problem() -> GaussianMean:
    """Seven balanced clients in three dimensions, exact posterior known."""
    return GaussianMean.synthetic(clients=7, dim=3, heterogeneity=2.0, samples=12, seed=5)


# --- Algorithms -------------------------------------------------------------------------------------


def _algorithm(algorithm: Any, problem: Any) -> list[str]:
    chance = getattr(algorithm, "activity", None)  # that messages arrive, for those who divide by it
    policy = full() if chance is None else bernoulli(chance)
    scenario = Scenario(
        problem=problem, algorithm=algorithm, budget=Budget(rounds=3), replicas=REPLICAS, seed=11, participation=policy
    )
    setting = setting_of(scenario, kernels.backend("cpu"))
    trial = Run(scenario, setting, session=None)
    batch = _batch(trial)
    worker = Worker(algorithm, setting)
    looped = Worker(_Looped(algorithm), setting)
    done = []

    def promise(text: str, holds: bool, detail: str = "") -> None:
        if not holds:
            raise Broken(f"{type(algorithm).__name__}: {text}{': ' + detail if detail else ''}")
        done.append(text)

    promise("client leaves its inputs alone", _inputs_untouched(algorithm, setting, batch))
    first = worker.compute(batch)
    promise("replay is exact", _equal(first, worker.compute(batch)))
    single = looped.compute(batch)
    if getattr(algorithm, "batched", False):
        stacked = Worker(_Unfused(algorithm), setting).compute(batch)
        promise("one job at a time and stacked agree", _close(single, stacked), _gap(single, stacked))
    if worker.kernel is not None:
        promise("fused and one at a time agree", _close(single, first), _gap(single, first))
    for size in (1, 4):
        parts = [worker.compute(batch.part(slice(i, i + size))) for i in range(0, JOBS, size)]
        promise(f"chunks of {size} give the bits of the whole batch", _equal(first, Reply.join(parts)))
    pure, ordered = _server(trial, first)
    promise("the server leaves its state and the replies alone", pure)
    promise("the order of the replies is irrelevant", ordered)
    promise("the server accepts that nobody arrived", _nobody(trial))
    whole = run(scenario, runtime=Inline(threads=1))
    again = run(scenario, runtime=Inline(2, 2))
    promise("threads and chunks do not change a run", whole.fingerprint == again.fingerprint)
    looked_at = run(scenario, observers=[lambda progress: None])  # then no rounds are taken several at a go
    promise("nor does whoever looks at every round", whole.fingerprint == looked_at.fingerprint)
    one = run(replace(scenario, replicas=range(1, 2)))
    assert whole.samples is not None and one.samples is not None  # noqa: PT018
    promise("a replica alone is the replica among others", np.array_equal(whole.samples[:, 1], one.samples[:, 0]))
    return done


class _Looped:
    """The algorithm with `batched` and `fused` taken away."""

    batched = False

    def __init__(self, algorithm: Any) -> None:
        self.client = algorithm.client


class _Unfused(_Looped):
    batched = True


def _batch(trial: Run) -> Batch:
    clients = np.arange(JOBS) % trial.population
    position = np.arange(JOBS) // trial.population % REPLICAS
    message = trial.broadcast(np.arange(REPLICAS))
    shaken = {
        n: (
            m + 0.1 * rng.normal(rng.keys(3, rng.Stream.USER, client=np.arange(len(m))), m[0].size).reshape(m.shape)
        ).astype(m.dtype)
        for n, m in message.items()
    }
    visit, memory = np.zeros(JOBS, np.int64), trial.recall(position, clients)
    return Batch(1, trial.replicas[position], clients, visit, shaken, position, memory)


def _inputs_untouched(algorithm: Any, setting: Setting, batch: Batch) -> bool:
    one = batch.part(slice(0, 1))
    alone = [{n: m[0] for n, m in part.items()} for part in (batch.message, one.memory)]
    ranks = [(Job(setting, one, single=True), alone[0], alone[1])]
    if getattr(algorithm, "batched", False):
        message = {n: m[batch.version] for n, m in batch.message.items()}
        ranks.append((Job(setting, batch, single=False), message, batch.memory))
    for job, message, memory in ranks:
        handed = [{n: a.copy() for n, a in part.items()} for part in (message, memory)]
        algorithm.client(job, *handed)
        if not (_same(handed[0], message) and _same(handed[1], memory)):
            return False
    return True


class _Watched:
    """An algorithm that notices whether its server changes the state it is given."""

    def __init__(self, algorithm: Any) -> None:
        self.algorithm, self.pure = algorithm, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.algorithm, name)

    def server(self, state: dict[str, Array], replies: Any, rng: Any) -> Any:
        handed = {n: s.copy() for n, s in state.items()}
        new = self.algorithm.server(state, replies, rng)
        self.pure &= _same(handed, state)
        return new


def _server(trial: Run, reply: Reply) -> tuple[bool, bool]:
    """Whether it leaves state and replies alone, and whether it does not mind the order of a replica's replies."""
    m = min(JOBS, trial.population * REPLICAS)
    starts = np.minimum(np.arange(REPLICAS + 1) * trial.population, m)
    row, client, once = np.arange(m) // trial.population, np.arange(m) % trial.population, np.ones(m, np.int64)
    state, algorithm = trial.state, trial.algorithm
    trial.algorithm, outcomes, pure = _Watched(algorithm), [], True
    for order in (np.arange(m), np.lexsort((-client, row))):
        values = {n: v[order] for n, v in reply.values.items()}
        trial.state = {n: s.copy() for n, s in state.items()}
        who = Cohort(row, client[order], once, starts)
        try:
            trial.fold(np.arange(REPLICAS), 1, who, Reply(values, reply.bits[order], {}), 0 * once)
        except ChangedInPlace:
            return False, True
        outcomes.append(trial.state)
        pure &= _same(values, {n: v[order] for n, v in reply.values.items()})
    pure &= trial.algorithm.pure
    trial.state, trial.algorithm = state, algorithm
    return pure, all(_near(outcomes[0][n], outcomes[1][n]) for n in state)


def _nobody(trial: Run) -> bool:
    handed = {n: s.copy() for n, s in trial.state.items()}
    none = np.empty(0, np.int64)
    who = Cohort(none, none, none, np.zeros(REPLICAS + 1, np.int64))
    try:
        trial.fold(np.arange(REPLICAS), 1, who, Reply(trial.reply_shape(1).values, none, {}), none)
    except NonFinite:
        return False
    finally:
        trial.state = handed
    return True


# --- Problems, policies, devices, codecs ---------------------------------------------------------------


def _problem(problem: Any) -> list[str]:
    theta = rng.normal(rng.keys(1, rng.Stream.USER, client=np.arange(JOBS)), problem.dim)
    clients = np.arange(JOBS) % problem.clients
    cpu = kernels.backend("cpu")
    start = np.arange(JOBS + 1)
    rows = (np.arange(JOBS) % problem.sizes[clients], start)
    done = []
    for chosen, text in ((None, "full"), (rows, "minibatch")):
        whole = cpu.gradients(problem, theta, clients, chosen)
        loop = kernels.backend("numpy").gradients(problem, theta, clients, chosen)
        if whole.shape != theta.shape or not np.allclose(whole, loop, rtol=1e-9, atol=1e-9 * np.abs(loop).max()):
            raise Broken(f"{type(problem).__name__}: batched and single {text} gradients disagree")
        for i in range(JOBS):
            one = None if chosen is None else (chosen[0][i : i + 1], start[:2])
            if not np.array_equal(cpu.gradients(problem, theta[i : i + 1], clients[i : i + 1], one)[0], whole[i]):
                raise Broken(
                    f"{type(problem).__name__}: a {text} gradient's bits depend on its neighbours in the batch"
                )
        done += [f"batched and single {text} gradients agree", f"a {text} gradient does not depend on its neighbours"]
    return done


def _policy(policy: Any, problem: Any) -> list[str]:
    from fedsim.algorithms import FALD

    def scenario(replicas: Any) -> Scenario:
        return Scenario(
            problem=problem, algorithm=FALD(step_size=1e-3), budget=Budget(rounds=4), replicas=replicas,
            participation=policy, seed=2,
        )  # fmt: skip

    whole, again, one = run(scenario(3)), run(scenario(3)), run(scenario(range(2, 3)))
    _promises(policy, {"replay is exact": whole.fingerprint == again.fingerprint})
    alone = whole.rounds[whole.rounds.replica == 2].reset_index(drop=True).equals(one.rounds)
    _promises(policy, {"a replica alone is the replica among others": alone})
    return ["replay is exact", "a replica alone is the replica among others"]


def _devices(devices: Any) -> list[str]:
    clients, work, now = np.arange(JOBS), np.ones(JOBS), np.zeros(JOBS)

    def draws(chosen: Any) -> rng.Draws:
        return rng.Draws(rng.keys(4, rng.Stream.COMPUTE, client=np.atleast_1d(clients[chosen])))

    whole = devices.compute_s(clients, work, now, draws(slice(None)))
    ones = [devices.compute_s(clients[i : i + 1], work[:1], now[:1], draws(slice(i, i + 1)))[0] for i in range(JOBS)]
    promises = {
        "compute times are finite and not negative": bool(np.isfinite(whole).all() and (np.asarray(whole) >= 0).all()),
        "a visit does not depend on its neighbours": np.array_equal(whole, ones),
    }
    return _promises(devices, promises)


def _codec(codec: Any) -> list[str]:
    values = rng.normal(rng.keys(6, rng.Stream.USER, client=np.arange(5)), 13)
    key = rng.keys(6, rng.Stream.CODEC, client=np.arange(5))
    decoded, bits = codec.quantise(values, key)
    wire = [codec.encode(v, k) for v, k in zip(values, key, strict=True)]
    promises = {
        "the batch's values are those that the bytes decode to": all(
            np.array_equal(codec.decode(w, 13), d) for w, d in zip(wire, decoded, strict=True)
        ),
        "bits count the bytes, less padding": all(0 <= 8 * len(w) - b < 8 for w, b in zip(wire, bits, strict=True)),
    }
    return _promises(codec, promises)


# --- Small comparisons ------------------------------------------------------------------------------


def _promises(subject: Any, promises: dict[str, bool]) -> list[str]:
    for text, holds in promises.items():
        if not holds:
            raise Broken(f"{type(subject).__name__}: {text}")
    return list(promises)


def _same(a: dict[str, Array], b: dict[str, Array]) -> bool:
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

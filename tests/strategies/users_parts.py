"""Scenarios of a user's own parts, one member of which raises or returns nonsense, for tests/contract/test_users_code.py.

`MEMBERS` names every member with the parts that it needs; `FAULTS` are what it does instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fedsim as fs

CLIENTS, DIM, ROWS, CLASSES = 5, 2, 6, 2
X = np.random.default_rng(3).normal(size=(CLIENTS, ROWS, DIM))


class Mistake(Exception):
    """What a user's code raises."""


def _raises(*_):
    raise Mistake("the mistake")


def _raises_base(*_):
    raise SystemExit("the mistake")


class Odd:
    """An object that refuses to be anything."""

    def __float__(self):
        raise Mistake("the mistake")

    __array__ = __iter__ = __len__ = __bool__ = __int__ = __float__


FAULTS: dict[str, Any] = {  # what a member returns instead of `answer`
    "raises": _raises,
    "exits": _raises_base,
    "nothing": lambda answer: None,
    "text": lambda answer: "far",
    "another shape": lambda answer: np.zeros((3, 1, 7)),
    "empty": lambda answer: np.zeros(0),
    "NaN": lambda answer: _like(answer, math.nan),
    "infinite": lambda answer: _like(answer, math.inf),
    "negative": lambda answer: _like(answer, -1.0),
    "huge": lambda answer: _like(answer, 1e300),
    "complex": lambda answer: _like(answer, 1j),
    "an integer beyond 64 bits": lambda answer: 10**400,
    "a generator": lambda answer: (x for x in (1.0, 2.0)),
    "a dict": lambda answer: {"thata": 1.0},
    "an object": lambda answer: Odd(),
    "a ragged list": lambda answer: [[1.0], [2.0, 3.0]],
}


def _like(answer, value):
    """`value` in the form of an answer: a dict, a tuple, an array, a number."""
    if isinstance(answer, dict):
        return {name: _like(a, value) for name, a in answer.items()}
    if isinstance(answer, tuple):
        return tuple(_like(a, value) for a in answer)
    return np.full(np.shape(answer), value) if np.ndim(answer) else value


@dataclass
class Faulty:
    """The base of the parts: `member` misbehaves from its `after`-th call on."""

    member: str = ""
    fault: Any = None
    after: int = 0
    calls: list = field(default_factory=list)

    def _say(self, name, answer):
        if name != self.member:
            return answer
        self.calls.append(name)
        return self.fault(answer) if len(self.calls) > self.after else answer


class MyProblem(Faulty):
    """Quadratic losses |theta - x|^2 / 2, summed over rows; class probabilities of four test rows."""

    clients = property(lambda self: self._say("clients", CLIENTS))
    dim = property(lambda self: self._say("dim", DIM))
    sizes = property(lambda self: self._say("sizes", np.full(CLIENTS, ROWS)))
    weights = property(lambda self: self._say("weights", np.full(CLIENTS, 1 / CLIENTS)))
    test = property(lambda self: self._say("test", (np.zeros((4, DIM)), np.array([0, 1, 0, 1]))))
    share = property(lambda self: self._say("share", 0.0))

    def initial(self, seed):
        return self._say("initial", np.zeros(DIM))

    def gradient(self, theta, client, rows=None):
        x = X[client] if rows is None else X[client][rows]
        return self._say("gradient", (theta - x).sum(axis=0))

    def potential(self, theta, client, rows=None):
        x = X[client] if rows is None else X[client][rows]
        return self._say("potential", float(((theta - x) ** 2).sum() / 2))

    def exact(self):
        return self._say("exact", (X.mean(axis=(0, 1)), np.eye(DIM) / X[..., 0].size))

    def loss(self, theta):
        return self._say("loss", (theta**2).sum(axis=1) / 2)

    def predict(self, theta):
        return self._say("predict", np.full((4, CLASSES), 0.5))


class MyBatchedProblem(MyProblem):
    def gradients(self, theta, clients, rows=None):
        return self._say(
            "gradients", np.stack([ROWS * t - X[c].sum(axis=0) for t, c in zip(theta, clients, strict=True)])
        )

    def potentials(self, theta, clients, rows=None):
        return self._say(
            "potentials", np.array([((t - X[c]) ** 2).sum() / 2 for t, c in zip(theta, clients, strict=True)])
        )


class MyAlgorithm(Faulty):
    """Federated averaging with a momentum at the server and a memory."""

    batched = False
    step_size = 1e-3
    temperature = property(lambda self: self._say("temperature", 1.0))
    local_only = property(lambda self: self._say("local_only", ("loss",)))
    known = property(lambda self: self._say("known", ()))
    batch_size = property(lambda self: self._say("batch_size", None))

    def init(self, problem, initial):
        return self._say("init", {"theta": initial, "speed": np.zeros(DIM)})

    def memory(self, problem):
        return self._say("memory", {"seen": np.zeros(1)})

    def broadcast(self, state):
        return self._say("broadcast", {"theta": state["theta"]})

    def work(self, job):
        return self._say("work", 2.0)

    def client(self, job, message, memory):
        theta = message["theta"] - 1e-3 * job.gradient(message["theta"], 0)
        return self._say("client", ({"theta": theta, "loss": job.loss(theta)}, {"seen": memory["seen"] + 1}))

    def server(self, state, replies, rng):
        return self._say("server", {"theta": replies.mean("theta"), "speed": state["speed"]})

    def merge(self, states, weights):
        return self._say("merge", {name: weights @ values for name, values in states.items()})


class MyWeights(MyAlgorithm):
    def weigh(self, received):
        return self._say("weigh", received.p)


class MyBatchedAlgorithm(MyAlgorithm):
    batched = True


class MyEnsemble(MyAlgorithm):
    def ensemble(self, state):
        theta = state["theta"]
        return self._say("ensemble", (theta[:, None], np.ones((len(theta), 1), bool)))


class MyPolicy(Faulty):
    batched = property(lambda self: self._say("batched", False))
    size = property(lambda self: self._say("size", 3))
    history = True
    weighting = property(lambda self: self._say("weighting", "normalised"))
    at_least = property(lambda self: self._say("at_least", 2))

    def select(self, view, rng):
        return self._say("select", view.sample_available(3))

    def close(self, view):
        return self._say("close", math.inf)

    def weigh(self, received):
        return self._say("weigh", received.p)

    def check(self, clients):
        return self._say("check", None)


class MyBatchedPolicy(Faulty):
    batched = True
    waits = True

    def select(self, view, rng):
        return self._say("select", view.sample_available(3))

    def close(self, view):
        return self._say("close", math.inf)


class MyDevices(Faulty):
    timeless = property(lambda self: self._say("timeless", True))

    def compute_s(self, clients, work, now_s, rng):
        return self._say("compute_s", work * 0.1 * (1 + rng.uniform()))


class MyPhones(MyDevices):
    def drop(self, clients, now_s, rng):
        lost = rng.uniform() < 0.2
        return self._say("drop", (np.where(lost, 3, 0), np.where(lost, 0.5, 0.0)))

    def next_available(self, clients, now_s, rng):
        return self._say("next_available", now_s + 0.0)

    def available_until(self, clients, now_s, rng):
        return self._say("available_until", now_s + 100.0)

    def dropout_of(self, clients):
        return self._say("dropout_of", np.full(len(clients), 0.2))

    def check(self, clients):
        return self._say("check", None)


class MySlowdown(Faulty):
    def factor(self, rng):
        return self._say("factor", 1 + rng.uniform())

    def describe(self):
        return "mine"


class MyAvailability(Faulty):
    clients = property(lambda self: self._say("clients", None))

    def next_available(self, clients, now_s, rng):
        return self._say("next_available", now_s + 0.0)

    def available_until(self, clients, now_s, rng):
        return self._say("available_until", now_s + 100.0)

    def describe(self):
        return "mine"


class MyNetwork(Faulty):
    clients = property(lambda self: self._say("clients", CLIENTS))
    contended = property(lambda self: self._say("contended", True))
    capacities_bps = property(lambda self: self._say("capacities_bps", np.full(1 + CLIENTS, 1e5)))

    def delay_s(self, upward):
        return self._say("delay_s", np.full(CLIENTS, 0.01))

    def loss_factor(self, upward):
        return self._say("loss_factor", np.ones(CLIENTS))

    def bottleneck_bps(self, upward):
        return self._say("bottleneck_bps", np.full(CLIENTS, 1e5))

    def route(self, client, upward):
        return self._say("route", [0] if upward else [1 + client])


class MyPrivateNetwork(MyNetwork):
    contended = property(lambda self: self._say("contended", False))


class MyMetric(Faulty):
    columns = property(lambda self: self._say("columns", ("mine",)))
    per_replica = property(lambda self: self._say("per_replica", True))

    def evaluate(self, view):
        return self._say("evaluate", {"mine": view.theta[:, 0]})

    def about(self, view):
        return self._say("about", "the current theta")

    def warnings(self, view, value, replicas):
        return self._say("warnings", [])


class MyObserver(Faulty):
    sparse = property(lambda self: self._say("sparse", False))

    def __call__(self, progress):
        return self._say("__call__", None)


class MyCodec(Faulty):
    fixed = property(lambda self: self._say("fixed", True))

    def encode(self, v, key=None):
        return np.asarray(v, "<f4").tobytes()

    def decode(self, data, d):
        return np.frombuffer(data, "<f4").astype(np.float64)

    def bits(self, v, key=None):
        return 32 * len(v)

    def length(self, d, dtype=np.float64):
        return self._say("length", 32 * d)

    def quantise(self, values, keys=None):
        length = np.full(len(values), 32 * values.shape[1])
        return self._say("quantise", (values.astype(np.float32).astype(np.float64), length))

    def omega(self, d):
        return 0.0


KINDS = {  # role in the scenario, its class, members
    "problem": [
        (MyProblem, "clients dim sizes weights test share initial gradient potential exact loss predict"),
        (MyBatchedProblem, "gradients potentials"),
    ],
    "algorithm": [
        (MyAlgorithm, "temperature local_only known batch_size init memory broadcast work client server merge"),
        (MyBatchedAlgorithm, "broadcast client server"),
        (MyWeights, "weigh"),
        (MyEnsemble, "ensemble"),
    ],
    "participation": [
        (MyPolicy, "batched size weighting at_least select close weigh check"),
        (MyBatchedPolicy, "select close"),
    ],
    "devices": [(MyDevices, "timeless compute_s"), (MyPhones, "drop next_available available_until dropout_of check")],
    "slowdown": [(MySlowdown, "factor")],
    "availability": [(MyAvailability, "clients next_available available_until")],
    "network": [
        (MyNetwork, "clients contended capacities_bps delay_s loss_factor bottleneck_bps route"),
        (MyPrivateNetwork, "delay_s loss_factor bottleneck_bps"),
    ],
    "metric": [(MyMetric, "columns per_replica evaluate about warnings")],
    "observer": [(MyObserver, "sparse __call__")],
    "codec": [(MyCodec, "fixed length quantise")],
}  # fmt: skip
MEMBERS = [(role, kind, name) for role, kinds in KINDS.items() for kind, names in kinds for name in names.split()]


def scenario_with(role: str, kind: type, part: Any) -> tuple[fs.Scenario, list[Any]]:
    """A scenario with the part in its role, and its observers."""
    problem = fs.problems.GaussianMean.synthetic(clients=CLIENTS, dim=DIM, samples=ROWS)
    parts: dict[str, Any] = {"problem": problem, "algorithm": fs.algorithms.FALD(step_size=1e-3, local_steps=2)}
    parts["devices"] = fs.devices.constant(0.1)
    observers = [part] if role == "observer" else []
    if role in ("slowdown", "availability"):
        parts["devices"] = fs.devices.constant(0.1, **{role: part})
    elif role == "codec":
        parts["algorithm"] = fs.algorithms.FedPAQ(step_size=1e-3, codec=part)
    elif role == "metric":
        parts["metrics"] = (part,)
    elif role != "observer":
        parts[role] = part
    if role == "problem":
        parts |= {"algorithm": MyAlgorithm(), "metrics": ("w2", "loss", "nll")}
    if kind is MyBatchedProblem:
        parts["algorithm"] = MyBatchedAlgorithm()
    if kind is MyEnsemble:
        parts |= {"problem": MyProblem(), "metrics": ("nll",)}
    if role == "algorithm" and part.member == "merge":
        parts["exchange"] = fs.exchanges.tiers([0, 0, 1, 1, 1])
    return fs.Scenario(**parts, budget=fs.Budget(rounds=6), replicas=2, seed=1), observers


def attempt(role: str, kind: type, name: str, fault: str, after: int, clock: str) -> list[str]:
    """Run a scenario whose member misbehaves from a call on; return its calls."""
    part = kind(name, FAULTS[fault], after)
    scenario, observers = scenario_with(role, kind, part)
    fs.run(scenario, observers=observers, runtime=fs.Inline(threads=1), clock=clock)
    return part.calls

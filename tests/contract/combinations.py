"""Every algorithm under every policy over every exchange: refused in one sentence, or run and compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
from oracles import learning, optimisers, references, samplers, weights
from oracles.draws import Numbers
from oracles.optimisers import Descent, constant
from oracles.world import World

import fedsim as fs
from fedsim.algorithms import (
    DESGLD,
    DGSGLD,
    FAHMC,
    FALD,
    FSGLD,
    HMC,
    MALA,
    PSGLD,
    QLSD,
    SGLD,
    DIGingSGLD,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedBE,
    FedDyn,
    FedNova,
    FedPAQ,
    FedProx,
    FedYogi,
    PFedAvg,
    PrivateFedPAQ,
    QLSDPlusPlus,
    QLSDStar,
    Scaffold,
)
from fedsim.codecs import QSGD, Identity
from fedsim.errors import InvalidInput

ROUNDS, SEED, PRIOR, START = 3, 23, 0.7, np.array([0.5, -1.0])

# --- Problems ---------------------------------------------------------------------------------------------------------

SIZES = {"equal": (6, 6, 6, 6), "unequal": (4, 8, 12, 6)}


@cache
def regression(sizes: str) -> Any:
    draw = np.random.default_rng(3)
    data = [(draw.normal(size=(n, 2)), draw.normal(size=n)) for n in SIZES[sizes]]
    return fs.problems.LinearRegression(data, prior_precision=PRIOR)


@cache
def machine(sizes: str) -> Any:
    return fs.problems.pooled(regression(sizes))


@cache
def reacting(sizes: str) -> Any:
    p = np.array(SIZES[sizes]) / sum(SIZES[sizes])
    return fs.problems.PerformativeMean((2.0, 4.0, 7.0, 3.0), (0.1, 0.9, 0.4, 0.3), 0.8, p)


# --- Algorithms: the shipped one, its oracle, its problem -------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    algorithm: Any
    oracle: Any
    problem: Any = regression
    work: int = 2  # steps of a visit, for the deadline


def decaying(a: float, b: float) -> tuple[Any, Any]:
    return fs.schedules.inverse_time(a, b), lambda t: a / (t + b)


MEANS, PRECISIONS = np.array([[0.1, 0.4], [-0.3, 0.2], [0.5, 0.0], [0.0, -0.6]]), np.arange(1.0, 9.0).reshape(4, 2)
COUPLING = (0.3, 0.5, 0.4, 0.6)
E_I = (3, 1, 2, 2)
two = Descent(constant(0.1), 2)
fald, fald_eta = decaying(0.4, 40.0)
avg, avg_eta = decaying(2.0, 10.0)

ROWS = {
    "FALD": Row(
        FALD(fald, local_steps=2, temperature=0.5, correlation=0.5),
        samplers.FALD(fald_eta, 2, 0.5, 0.5),
    ),
    "FAHMC": Row(
        FAHMC(0.05, leapfrog_steps=2, local_steps=2, correlation=0.5),
        samplers.FAHMC(constant(0.05), 2, 2, 0.5),
        work=4,
    ),
    "FAHMC, de-biased": Row(
        FAHMC(0.05, leapfrog_steps=2, local_steps=2, correlation=0.5, debias="stale"),
        samplers.DebiasedFAHMC(constant(0.05), 2, 2, 0.5),
        work=5,
    ),
    "QLSD": Row(QLSD(0.01, codec=QSGD(4)), samplers.QLSD(constant(0.01), 4), work=1),
    "QLSD, inverse": Row(
        QLSD(0.01, codec=QSGD(4), weighting="inverse", activity=1.0),
        samplers.QLSD(constant(0.01), 4, 1.0),
        work=1,
    ),
    "QLSDStar": Row(QLSDStar(0.01, codec=Identity()), samplers.QLSDStar(constant(0.01)), work=1),
    "QLSDPlusPlus": Row(
        QLSDPlusPlus(0.01, refresh_every=2, codec=QSGD(4)),
        samplers.QLSDPlusPlus(constant(0.01), 4),
        work=1,
    ),
    "FedAvg": Row(
        FedAvg(avg, local_steps=2, server_step=0.8, momentum=0.5, weight_decay=0.1),
        optimisers.FedAvg(Descent(avg_eta, 2, 0.5, 0.1), 0.8),
    ),
    "FedAvg, scaled": Row(
        FedAvg(0.1, local_steps=2, objective="scaled"), optimisers.FedAvg(Descent(constant(0.1), 2, scaled=True))
    ),
    "FedPAQ": Row(FedPAQ(0.1, local_steps=2, codec=QSGD(5)), optimisers.FedPAQ(two, levels=5)),
    "PrivateFedPAQ": Row(
        PrivateFedPAQ(0.1, local_steps=2, clip=1.5, epsilon=3.0, delta=1e-3, fraction=1.0, codec=QSGD(5)),
        optimisers.PrivateFedPAQ(two, clip=1.5, epsilon=3.0, delta=1e-3, levels=5),
    ),
    "Scaffold": Row(Scaffold(0.1, local_steps=2), optimisers.Scaffold(two)),
    "PFedAvg": Row(PFedAvg(0.1, local_steps=2), optimisers.PFedAvg(two), reacting),
    "FedProx": Row(
        FedProx(0.1, local_steps=E_I, proximal=0.5, momentum=0.5),
        optimisers.FedProx(Descent(constant(0.1), E_I, 0.5), proximal=0.5),
    ),
    "FedAdam": Row(
        FedAdam(0.1, local_steps=2, server_step=0.2, beta1=0.8, beta2=0.9),
        optimisers.FedOpt(two, 0.2, optimisers.adam(0.9), beta1=0.8),
    ),
    "FedYogi": Row(
        FedYogi(0.1, local_steps=2, server_step=0.2, beta1=0.8, beta2=0.9),
        optimisers.FedOpt(two, 0.2, optimisers.yogi(0.9), beta1=0.8),
    ),
    "FedAdagrad": Row(
        FedAdagrad(0.1, local_steps=2, server_step=0.2, beta1=0.8), optimisers.FedOpt(two, 0.2, beta1=0.8)
    ),
    "FedNova": Row(FedNova(0.1, local_steps=E_I, momentum=0.5), optimisers.FedNova(Descent(constant(0.1), E_I, 0.5))),
    "FedDyn": Row(FedDyn(0.1, local_steps=2, regularity=0.5), optimisers.FedDyn(two, alpha=0.5)),
    "FedBE": Row(FedBE(0.1, local_steps=2, members=3), optimisers.FedBE(two)),
    "DGSGLD": Row(
        DGSGLD(0.01, coupling=COUPLING, local_steps=2),
        samplers.DGSGLD(constant(0.01), COUPLING, 2),
    ),
    "FSGLD": Row(
        FSGLD(0.01, local_steps=2, means=MEANS, precisions=PRECISIONS, temperature=0.5),
        samplers.FSGLD(constant(0.01), MEANS, PRECISIONS, 2, 0.5),
    ),
    "PSGLD": Row(PSGLD(0.01, local_steps=2, damping=1e-2), references.PSGLD(constant(0.01), 2), machine),
    "DESGLD": Row(DESGLD(0.01), samplers.DESGLD(constant(0.01)), work=1),
    "DIGingSGLD": Row(DIGingSGLD(0.01), samplers.DIGingSGLD(constant(0.01)), work=1),
    "SGLD": Row(SGLD(0.01, local_steps=2), references.SGLD(constant(0.01), 2), machine),
    "HMC": Row(
        HMC(0.2, leapfrog_steps=3, local_steps=2),
        references.HMC(constant(0.2), 2, leapfrog=3),
        machine,
        6,
    ),
    "MALA": Row(MALA(0.05, local_steps=2), references.MALA(constant(0.05), 2), machine),
}
REFERENCES = ("PSGLD", "SGLD", "HMC", "MALA")

# --- Policies and exchanges -------------------------------------------------------------------------------------------

POLICIES = (
    "full", "with_replacement", "uniform", "uniform normalised", "uniform scaled", "bernoulli", "first", "deadline",
    "buffered",
)  # fmt: skip
GRAPH = nx.Graph([(0, 1), (1, 2), (2, 3), (1, 3)])
LAZY = (nx.to_numpy_array(GRAPH, nodelist=range(4)) + np.eye(4)) / (
    1 + np.array([[1], [3], [2], [2]])
)  # pi = (2, 4, 3, 3) / 12
MIXINGS = {"gossip metropolis": "metropolis", "gossip unequal pi": LAZY}
GROUPS = {"tiers every=1": (0, 1, 1, 0), "tiers every=2": (0, 1, 1, 0), "tiers of 3 and 1, every=1": (0, 0, 1, 0)}
EXCHANGES = ("star", *GROUPS, *MIXINGS)
SECONDS = (1.0, 1.07, 1.15, 1.24)  # a step of each client


def counts(exchange: str, clients: int) -> dict[str, int]:
    """How many clients each policy asks for: fewer where a site has fewer."""
    if clients == 1:
        return {"with_replacement": 2, "uniform": 1, "first": 1, "buffered": 1}
    few = {"with_replacement": 2, "uniform": 1, "first": 1, "buffered": 2}
    return few if exchange != "star" else {"with_replacement": 3, "uniform": 2, "first": 2, "buffered": 2}


def policy_of(name: str, asked: dict[str, int], work: int) -> Any:
    p = fs.participation
    return {
        "full": p.full, "with_replacement": lambda: p.with_replacement(asked["with_replacement"]),
        "uniform": lambda: p.uniform(asked["uniform"]),
        "uniform normalised": lambda: p.uniform(asked["uniform"], weighting="normalised"),
        "uniform scaled": lambda: p.uniform(asked["uniform"], weighting="scaled"),
        "bernoulli": lambda: p.bernoulli(0.6), "first": lambda: p.first(asked["first"]),
        "deadline": lambda: p.deadline(1.5 * work), "buffered": lambda: p.buffered(asked["buffered"]),
    }[name]()  # fmt: skip


def exchange_of(name: str, clients: int) -> Any:
    if name == "star":
        return fs.exchanges.star()
    if name in MIXINGS:
        return fs.exchanges.gossip(GRAPH, MIXINGS[name])
    return fs.exchanges.tiers(GROUPS[name][:clients], every=int(name[-1]))


def devices_of(losses: str, clients: int, work: int) -> Any:
    d = fs.devices
    more = {
        "": {}, "dropout": {"dropout": 0.45}, "availability": {"availability": d.markov(8.0 * work, off_s=3.0 * work)},
    }[losses]  # fmt: skip
    return d.constant(SECONDS[:clients], slowdown=d.pareto_slowdown(3.0), **more)


PAIRS = (  # losses with some policies and exchanges, not with all of them
    ("dropout", "full", "star"), ("dropout", "with_replacement", "star"), ("dropout", "uniform normalised", "star"),
    ("dropout", "buffered", "star"), ("dropout", "first", "tiers every=1"), ("dropout", "full", "tiers every=2"),
    ("dropout", "full", "gossip metropolis"), ("dropout", "deadline", "gossip unequal pi"),
    ("availability", "full", "star"), ("availability", "uniform normalised", "star"),
    ("availability", "deadline", "star"), ("availability", "buffered", "star"),
    ("availability", "full", "tiers every=1"), ("availability", "bernoulli", "tiers every=2"),
    ("availability", "deadline", "gossip metropolis"), ("availability", "full", "gossip unequal pi"),
)  # fmt: skip

# --- One cell ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    algorithm: str
    policy: str
    exchange: str
    sizes: str
    losses: str = ""

    @property
    def row(self) -> Row:
        """The algorithm and its oracle; those that divide by chances of arrival have those of this cell."""
        row = ROWS[self.algorithm]
        if getattr(row.algorithm, "activity", None) is None:
            return row
        sizes, dropout = np.array(SIZES[self.sizes]), 0.45 if self.losses == "dropout" else 0.0
        groups = np.array(GROUPS.get(self.exchange, (0, 0, 0, 0)))
        chances = weights.chances(self.policy, counts(self.exchange, len(sizes)), sizes, groups) * (1 - dropout)
        algorithm = replace(row.algorithm, activity=tuple(chances))
        return replace(row, algorithm=algorithm, oracle=replace(row.oracle, activity=chances))

    @property
    def problem(self) -> Any:
        row = ROWS[self.algorithm]
        return (
            regression(self.sizes) if row.problem is machine and self.exchange in MIXINGS else row.problem(self.sizes)
        )

    def scenario(self) -> fs.Scenario:
        row, problem = self.row, self.problem
        clients = problem.clients
        return fs.Scenario(
            problem=problem, algorithm=row.algorithm, budget=fs.Budget(rounds=ROUNDS), seed=SEED,
            initial=START[: problem.dim], record=fs.Record(events=True, sites="all"),
            participation=policy_of(self.policy, counts(self.exchange, clients), row.work),
            exchange=exchange_of(self.exchange, clients), devices=devices_of(self.losses, clients, row.work),
        )  # fmt: skip

    def expected(self, events: Any) -> np.ndarray:
        """theta of every site after every round, by the oracle: (rounds, sites, d)."""
        row, problem = self.row, self.problem
        p = np.asarray(getattr(problem, "weights", problem.sizes / problem.sizes.sum()))
        prior = 0.0 if row.problem is reacting else PRIOR
        start, numbers, ones = START[: problem.dim], Numbers(SEED), np.ones(problem.clients)
        draws = counts(self.exchange, problem.clients)["with_replacement"]
        if self.exchange in MIXINGS:
            mixing = weights.metropolis(GRAPH) if self.exchange == "gossip metropolis" else LAZY
            pi = weights.stationary(mixing)
            world = World(problem, p, pi, p / pi, numbers, prior)
            oracle = row.oracle
            if type(oracle) is optimisers.FedAvg:
                oracle = optimisers.GossipFedAvg(oracle.descent, oracle.server_step)
            return learning.gossip(world, oracle, events, ROUNDS, start, mixing)
        world = World(problem, p, p, ones, numbers, prior)
        if self.exchange == "star":
            return learning.star(world, row.oracle, events, ROUNDS, start, self.policy, draws)
        groups, every = np.array(GROUPS[self.exchange][: problem.clients]), int(self.exchange[-1])
        return learning.tiers(world, row.oracle, events, ROUNDS, start, self.policy, groups, every, draws)


@dataclass(frozen=True)
class Outcome:
    """The sentence of a refusal and whether it came before the run, or the largest difference from the oracle."""

    refusal: str = ""
    at_construction: bool = False
    difference: float = np.nan


@cache
def outcome(cell: Cell) -> Outcome:
    try:
        scenario = cell.scenario()
    except InvalidInput as refused:
        return Outcome(str(refused), at_construction=True)
    try:
        result = fs.run(scenario, runtime=fs.Inline(threads=1))
    except InvalidInput as refused:
        return Outcome(str(refused))
    found = result.samples[:, 0]
    return Outcome(difference=float(np.abs(found - cell.expected(result.events)).max()))

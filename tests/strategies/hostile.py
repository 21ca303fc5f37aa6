"""Every public constructor and factory with arguments that are good, and values that are not.

Case n is a function of n. It takes one constructor, spoils one or two of its arguments, and, where an object comes
out all the same, puts it into a small scenario and runs that. Only errors of fedsim's own may come out.
"""

from __future__ import annotations

import fractions
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

import fedsim as fs
from strategies import hostile_analysis, hostile_learning

CLIENTS = 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))
LABELS = np.arange(12) % 2
OFFSETS = np.array([0, 4, 8, 12])
SHARDS = [X[:4], X[4:8], X[8:]]
LABELLED = [(x, np.arange(4) % 2) for x in SHARDS]


class Stubborn:
    """An object that refuses to be anything else."""

    def _no(self, *_, **__):
        raise RuntimeError("leave me alone")

    __float__ = __int__ = __index__ = __array__ = __len__ = __iter__ = __getitem__ = __call__ = __bool__ = _no
    __eq__ = __lt__ = __gt__ = _no
    __hash__ = object.__hash__


class Speechless:
    def __repr__(self):
        raise RuntimeError("no words")


class Loose(float):
    """A float that is not equal to itself in print."""

    def __str__(self):
        return "\n".join("many lines" for _ in range(50))

    __repr__ = __str__


def hostile() -> list[Any]:
    """Made for every case, since iterators are consumed."""
    return [
        None, True, False, -1, 0, 1, 3, 0.5, -0.0, 1.5, 2**31, 2**32, 2**63, 2**64, 2**70, 10**12, 10**400, -(10**400), 10**5000,
        math.nan, math.inf, -math.inf, 1e-300, 5e-324, 1e300, 1e16, -1e-9,
        "", "fast", "3", "nan", "x" * 5000, "9" * 5000, "\x00", "\ud800", "²", "{}", "{0.__class__}", b"3", b"\xff",
        [], (), {}, set(), [1.0, 2.0], [1, 2, 3], [0.5] * 3, [None] * 3, ["a", "b", "c"], [[1.0], [2.0, 3.0]], [10**400] * 3, [10**5000] * 3, [math.nan] * 3,
        [[1.0, 2.0]] * 3, {"a": 1}, {1: 2}, {"compute": "x"}, {"compute": 10**400}, {None: 0.1}, {"seconds_per_step": [10**400]}, {"seconds_per_step": "abc"},
        np.array(3), np.array([1.0, 2.0, 3.0]), np.array(["a"]), np.array([None, 1]), np.zeros(0), np.zeros((0, 2)), np.zeros((3, 3)), np.zeros((2, 2, 2)),
        np.array(1 + 2j), np.array(["2020-01-01"], "datetime64[D]"), np.float32(2.0), np.float64("nan"), np.int8(3), np.uint64(2**63), np.bool_(True),
        np.ma.masked_array([1.0, 2.0, 3.0], [True, False, False]), np.datetime64("NaT"), np.timedelta64(3, "s"), np.float16(1e-8), np.longdouble("1e4000"),
        pd.Series([1.0, 2.0, 3.0], index=[7, 8, 9]), pd.DataFrame({"a": [1]}), pd.NA, pd.Timestamp(0),
        1 + 2j, Decimal("0.1"), Decimal("NaN"), Decimal("sNaN"), Decimal("1e9999"), fractions.Fraction(1, 3), fractions.Fraction(10**400, 3), range(3), range(0), range(10**18), iter([1, 2, 3]), (i for i in "ab"),
        object(), Stubborn(), Speechless(), Loose(2.0), int, float, fs.Budget, len, lambda: 1, lambda *a: None, lambda *a: "x", lambda *a: math.nan, lambda *a, **k: 1 / 0, Ellipsis, NotImplemented, slice(3), warnings, memoryview(b"abc"), bytearray(b"1"),
        nx.Graph(), nx.MultiGraph(), nx.path_graph(4), fs.codecs.QSGD(4), fs.schedules.constant(0.1), fs.participation.full(), fs.devices.constant(0.1),
    ]  # fmt: skip


def odd() -> list[Any]:
    """Unusual, but likely to be accepted: these get as far as a run."""
    return [
        0, 1, 2, 3, 0.5, 1.0, 1e-3, 1e-9, True, False, None, np.float32(0.5), np.float16(0.5), np.int8(2), np.uint64(2), np.float64(1.0), fractions.Fraction(1, 2),
        [0.5, 0.25, 0.5], (1, 2, 3), np.array([1.0, 2.0, 0.5]), pd.Series([0.1, 0.2, 0.3]), range(1, 4), "mean", "scaled", "normalised", "hold", "dense", "float64",
        fs.schedules.inverse_time(1e-3, 1.0), lambda t: 1e-3, fs.codecs.Elias(3), fs.devices.pareto_slowdown(1.0), fs.devices.markov(3.0, off_s=1.0), 1e-200, 1e12, 50.0,
    ]  # fmt: skip


def graph():
    out = nx.star_graph(CLIENTS)
    nx.set_edge_attributes(out, {e: {"bandwidth_bps": 1e5, "latency_s": 0.1} for e in out.edges})
    out.nodes[0]["role"] = "server"
    for c in range(CLIENTS):
        out.nodes[c + 1]["client"] = c
    return out


@dataclass
class Maker:
    name: str
    make: Callable[..., Any]
    role: str  # where in a scenario its product goes; "" for none
    good: dict[str, Any] = field(default_factory=dict)
    scenario: dict[str, Any] = field(default_factory=dict)  # what the scenario needs besides


def makers() -> list[Maker]:
    p, a, d, t, c, s, q, m = (
        fs.problems, fs.algorithms, fs.devices, fs.topologies, fs.codecs, fs.schedules, fs.participation, fs.metrics
    )  # fmt: skip
    key = fs.rng.keys(1, 1, client=np.arange(2))
    probabilities, truth = np.array([[0.2, 0.8], [0.6, 0.4]]), np.array([1, 0])
    credit = {"sensitivities": 0.5, "strategic": (0,), "regularisation": 0.1, "intercept": True}
    private = p.GaussianMean(SHARDS, np.eye(2))
    list_of = [
        Maker("GaussianMean", p.GaussianMean, "problem", {"data": SHARDS, "covariance": np.eye(2), "prior_precision": 0.5}),
        Maker("GaussianMean.from_arrays", p.GaussianMean.from_arrays, "problem", {"x": X, "offsets": OFFSETS, "covariance": np.eye(2), "prior_precision": 0.5}),
        Maker("GaussianMean.synthetic", p.GaussianMean.synthetic, "problem", {"clients": 3, "dim": 2, "heterogeneity": 1.0, "samples": 4, "seed": 1, "covariance": None}),
        Maker("LinearRegression", p.LinearRegression, "problem", {"data": LABELLED, "noise_variance": 1.0, "prior_precision": 0.5}),
        Maker("LinearRegression.from_arrays", p.LinearRegression.from_arrays, "problem", {"x": X, "y": LABELS, "offsets": OFFSETS, "noise_variance": 1.0, "prior_precision": 0.5}),
        Maker("LinearRegression.synthetic", p.LinearRegression.synthetic, "problem", {"clients": 3, "dim": 2, "heterogeneity": 1.0, "samples": 4, "seed": 1, "noise_variance": 1.0}),
        Maker("LogisticRegression", p.LogisticRegression, "problem", {"data": LABELLED, "prior_precision": 0.5, "test": (X, LABELS)}),
        Maker("LogisticRegression.from_arrays", p.LogisticRegression.from_arrays, "problem", {"x": X, "y": LABELS, "offsets": OFFSETS, "prior_precision": 0.5, "test": (X, LABELS)}),
        Maker("LogisticRegression.synthetic", p.LogisticRegression.synthetic, "problem", {"clients": 3, "dim": 2, "heterogeneity": 0.0, "samples": 4, "seed": 1, "prior_precision": 1.0}),
        Maker("SoftmaxRegression", p.SoftmaxRegression, "problem", {"data": LABELLED, "classes": 2, "bias": True, "test": (X, LABELS), "prior_precision": 0.5, "scale": 0.1, "shift": 0.0}),
        Maker("SoftmaxRegression.from_arrays", p.SoftmaxRegression.from_arrays, "problem", {"x": X, "y": LABELS, "offsets": OFFSETS, "classes": 2, "bias": True, "test": (X, LABELS), "prior_precision": 0.5, "scale": 0.1, "shift": 0.0}),
        Maker("SoftmaxRegression.synthetic", p.SoftmaxRegression.synthetic, "problem", {"clients": 3, "features": 2, "classes": 2, "samples": 4, "seed": 1, "bias": True, "dtype": "float32", "test_samples": 5}),
        Maker("NeuralNetwork", p.NeuralNetwork, "problem", {"data": LABELLED, "widths": (3,), "classes": 2, "test": (X, LABELS), "prior_precision": 0.5, "scale": 0.1, "shift": 0.0}),
        Maker("PerformativeMean", p.PerformativeMean, "performative", {"base_means": [1.0, 2.0, 3.0], "sensitivities": [0.1, 0.2, 0.3], "sigma": 1.0, "weights": [0.2, 0.3, 0.5]}),
        Maker("PerformativeMean.synthetic", p.PerformativeMean.synthetic, "performative", {"clients": 3, "base_mean": 10.0, "base_variance": 0.6, "sensitivity": 0.9, "sensitivity_variance": 0.1, "sigma": 1.0, "weights": None, "seed": 0}),
        Maker("StrategicCredit", p.StrategicCredit, "performative", {"data": LABELLED, **credit}),
        Maker("StrategicCredit.from_arrays", p.StrategicCredit.from_arrays, "performative", {"x": X, "y": LABELS, "offsets": OFFSETS, **credit}),
        Maker("StrategicCredit.from_csv", p.StrategicCredit.from_csv, "", {"path": "nowhere.csv", "clients": 3, "seed": 0}),
        Maker("Payload", p.Payload, "payload", {"clients": 3, "parameters": 2}),
        Maker("pooled", p.pooled, "", {"problem": private}),
        Maker("DESGLD", a.DESGLD, "", {"step_size": 1e-3, "batch_size": None}),
        Maker("DIGingSGLD", a.DIGingSGLD, "", {"step_size": 1e-3, "batch_size": None}),
        Maker("FALD", a.FALD, "algorithm", {"step_size": 1e-3, "local_steps": 2, "temperature": 1.0, "correlation": 0.0, "batch_size": None}),
        Maker("FAHMC", a.FAHMC, "algorithm", {"step_size": 1e-3, "leapfrog_steps": 2, "local_steps": 2, "correlation": 0.0, "debias": None, "batch_size": None, "gradient_noise": 0.0, "codec": None}),
        Maker("HMC", a.HMC, "pooled", {"step_size": 1e-3, "leapfrog_steps": 2, "local_steps": 1, "temperature": 1.0}),
        Maker("MALA", a.MALA, "pooled", {"step_size": 1e-3, "local_steps": 1, "temperature": 1.0}),
        Maker("SGLD", a.SGLD, "pooled", {"step_size": 1e-3, "local_steps": 1, "temperature": 1.0, "batch_size": 2}),
        Maker("QLSD", a.QLSD, "algorithm", {"step_size": 1e-3, "batch_size": None, "codec": c.QSGD(4), "empty": "noise", "weighting": "count", "activity": None}),
        Maker("QLSDStar", a.QLSDStar, "algorithm", {"step_size": 1e-3, "optimum": None, "batch_size": 2, "codec": c.QSGD(4), "empty": "noise", "weighting": "count", "activity": None}),
        Maker("QLSDPlusPlus", a.QLSDPlusPlus, "algorithm", {"step_size": 1e-3, "refresh_every": 2, "memory_rate": None, "batch_size": 2, "codec": c.QSGD(4), "empty": "noise", "weighting": "count", "activity": None}),
        Maker("FedAvg", a.FedAvg, "algorithm", {"step_size": 1e-3, "local_steps": 2, "batch_size": 2, "server_step": 1.0, "objective": "mean", "momentum": 0.5, "weight_decay": 0.1}),
        Maker("FedPAQ", a.FedPAQ, "algorithm", {"step_size": 1e-3, "local_steps": 2, "batch_size": 2, "server_step": 1.0, "objective": "mean", "codec": c.QSGD(4)}),
        Maker("PFedAvg", a.PFedAvg, "reactive", {"step_size": 1e-3, "local_steps": 2, "batch_size": None, "objective": "mean"}),
        Maker("PrivateFedPAQ", a.PrivateFedPAQ, "algorithm", {"step_size": 1e-3, "local_steps": 2, "clip": 1.0, "epsilon": 1.0, "delta": 1e-4, "batch_size": 2, "fraction": None, "codec": c.QSGD(4), "sensitivity": "paper"}),
        Maker("Scaffold", a.Scaffold, "algorithm", {"step_size": 1e-3, "local_steps": 2, "batch_size": 2, "server_step": 1.0, "objective": "mean"}),
        Maker("distributed_sgd", a.distributed_sgd, "algorithm", {"step_size": 1e-3, "batch_size": 2}),
        Maker("Identity", c.Identity, "codec", {"dtype": "float32"}),
        Maker("QSGD", c.QSGD, "codec", {"levels": 4}),
        Maker("Elias", c.Elias, "codec", {"levels": 4, "code": "omega", "form": "auto"}),
        Maker("elias_bound", c.elias_bound, "", {"d": 3, "levels": 4}),
        Maker("fixed_width_bits", c.fixed_width_bits, "", {"d": 3, "levels": 4}),
        Maker("expected_elias_bits", c.expected_elias_bits, "", {"v": X[:, 0], "levels": 4, "code": "omega", "form": "sparse"}),
        Maker("QSGD.encode", c.QSGD(4).encode, "", {"v": X[:, 0], "key": key[:1]}),
        Maker("QSGD.decode", c.QSGD(4).decode, "", {"data": b"12345", "d": 2}),
        Maker("Elias.decode", c.Elias(4).decode, "", {"data": b"12345", "d": 2}),
        Maker("Identity.decode", c.Identity().decode, "", {"data": b"12345678", "d": 1}),
        Maker("Elias.bits", c.Elias(4).bits, "", {"v": X[:, 0], "key": key[:1]}),
        Maker("Identity.quantise", c.Identity().quantise, "", {"values": X, "keys": key[:2, :2]}),
        Maker("QSGD.omega", c.QSGD(4).omega, "", {"d": 2}),
        Maker("constant schedule", s.constant, "schedule", {"value": 1e-3}),
        Maker("inverse_time", s.inverse_time, "schedule", {"a": 1e-3, "b": 1.0}),
        Maker("per_round", s.per_round, "schedule", {"eta0": 1e-3, "every": 2.0}),
        Maker("strongly_convex", s.strongly_convex, "schedule", {"smoothness": 1e3, "convexity": 1.0}),
        Maker("devices.Devices", d.Devices, "devices", {"seconds_per_step": 0.1, "slowdown": None, "dropout": 0.1, "availability": None, "latency_s": 0.0, "per_example": False, "recycle": False, "flops_per_step": 1e9}),
        Maker("devices.constant", d.constant, "devices", {"seconds_per_step": 0.1, "slowdown": None, "dropout": 0.1, "availability": None, "seconds_per_example": None, "latency_s": 0.1}),
        Maker("devices.lognormal", d.lognormal, "devices", {"median_step_s": 0.1, "sigma": 0.5, "dropout": 0.1, "slowdown": None, "availability": None, "seed": 3, "per_example": False}),
        Maker("devices.from_flops", d.from_flops, "devices", {"flops_per_step": 1e9, "flops_per_second": 1e10, "slowdown": None, "dropout": 0.1, "availability": None}),
        Maker("devices.table", d.table, "devices", {"frame": {"seconds_per_step": [0.1, 0.2, 0.3], "dropout": [0.1] * 3, "client": [2, 1, 0]}, "slowdown": None, "dropout": None, "availability": None, "recycle": False}),
        Maker("devices.table column", lambda **k: d.table({"seconds_per_step": [0.1, 0.2, 0.3], **k}), "devices", {"seconds_per_step": [0.1, 0.2, 0.3], "dropout": [0.1] * 3, "client": [2, 1, 0], "slowdown": [1, 1, 2], "latency_s": [0, 0, 1]}),
        Maker("pareto_slowdown", d.pareto_slowdown, "slowdown", {"shape": 2.0}),
        Maker("lognormal_slowdown", d.lognormal_slowdown, "slowdown", {"sigma": 2.0}),
        Maker("bimodal_slowdown", d.bimodal_slowdown, "slowdown", {"probability": 0.5, "slow_factor": 2.0}),
        Maker("markov", d.markov, "availability", {"on_s": 10.0, "off_s": 1.0}),
        Maker("diurnal", d.diurnal, "availability", {"period_s": 10.0, "on_fraction": 0.5, "phase": "per client"}),
        Maker("intervals", d.intervals, "availability", {"starts": [0.0, 0.0, 0.0], "ends": [9.0, 9.0, 9.0], "offsets": [0, 1, 2, 3], "period_s": 10.0}),
        *(Maker(f"traces.{n}", getattr(d.traces, n), "", {"path": "nowhere.json", **k}) for n, k in (
            ("flash_availability", {}), ("fedscale_availability", {}), ("flhetbench_latency", {"model": "resnet", "slowest_s": 5.0}), ("fedscale_capacity", {"training_factor": 3.0}),
            ("ai_benchmark", {}), ("flash_speeds", {}), ("mobiperf", {"case": 1}), ("pensieve_bandwidth", {}))),
        Maker("star", t.star, "network", {"clients": 3, "uplink_bps": 1e5, "downlink_bps": 1e6, "latency_s": 0.1, "loss": 0.1}),
        Maker("tree", t.tree, "network", {"clients": 3, "edges": 2, "uplink_bps": 1e5, "downlink_bps": 1e6, "latency_s": 0.1, "loss": 0.1, "edge_uplink_bps": 1e5, "edge_downlink_bps": 1e5, "edge_latency_s": 0.1, "edge_loss": 0.0}),
        Maker("ring", t.ring, "network", {"clients": 3, "bandwidth_bps": 1e5, "latency_s": 0.1, "loss": 0.1, "server": "member"}),
        *(Maker(make.__name__, make, "network", {**shape, "bandwidth_bps": 1e5, "latency_s": 0.1, "loss": 0.1, "server": 1}) for make, shape in (
            (t.grid, {"rows": 1, "columns": 3}), (t.complete, {"clients": 3}), (t.random_regular, {"clients": 3, "degree": 2, "seed": 1}),
            (t.erdos_renyi, {"clients": 3, "probability": 1.0, "seed": 1}), (t.small_world, {"clients": 3, "neighbours": 2, "rewired": 0.0, "seed": 1}), (t.from_graph, {"graph": nx.path_graph(3)}))),
        Maker("Varying", fs.network.Varying, "", {"times_s": [0.0, 1.0], "bps": [1.0, 2.0], "period_s": 3.0}),
        Maker("paths", t.grid(2, columns=2).paths, "", {"pairs": [("client0", "client3")]}),
        Maker("star paths", t.star(3).paths, "", {"pairs": [("client0", "server")]}),
        Maker("draw", t.ring(3, server=None).draw, "", {"gossip": nx.path_graph(3), "ax": None}),
        Maker("multiple_access", t.multiple_access, "network", {"clients": 3, "capacity_bps": 1e5, "latency_s": 0.1, "loss": 0.1}),
        Maker("from_graphml", t.from_graphml, "", {"path": "nowhere.graphml"}),
        Maker("Network", fs.Network, "network", {"graph": graph(), "server": 0, "clients": [1, 2, 3], "bandwidth_bps": "bandwidth_bps", "latency_s": "latency_s", "loss": "loss", "shared": "shared", "routes": None}),
        Maker("Network attributes", lambda **k: fs.Network(spoilt_graph(**k)), "network", {"bandwidth_bps": 1e5, "latency_s": 0.1, "loss": 0.1, "shared": False, "client": 0, "role": "server", "node": 1}),
        Maker("finish_times", fs.network.finish_times, "", {"capacities_bps": [1.0, 2.0], "routes": [[0], [1]], "bits": [1.0, 2.0], "starts_s": [0.0, 1.0]}),
        Maker("Flows", fs.network.Flows, "", {"capacities_bps": [1.0, 2.0], "varying": None}),
        Maker("full", q.full, "participation"),
        Maker("with_replacement", q.with_replacement, "participation", {"draws": 2, "at_least": 1}),
        Maker("uniform", q.uniform, "participation", {"size": 2, "weighting": None, "at_least": 1}),
        Maker("bernoulli", q.bernoulli, "participation", {"probability": 0.5}),
        Maker("first", q.first, "participation", {"k": 2, "of": 3, "at_least": 1}),
        Maker("deadline", q.deadline, "participation", {"seconds": 1.0, "of": 3, "at_least": 1}),
        Maker("buffered", q.buffered, "participation", {"k": 2, "of": 3, "discount": None}),
        Maker("Budget", fs.Budget, "budget", {"rounds": 2, "uplink_bits": 1e6, "downlink_bits": 1e6, "total_bits": 1e6, "seconds": 1e6, "epsilon": None, "target": None, "backhaul_bits": 1e6}),
        Maker("Target", fs.Target, "target", {"metric": "w2", "above": None, "below": 1e-3}),
        Maker("Record", fs.Record, "record", {"every": 1, "warmup": 0, "rounds_every": 1, "events": False, "sites": "average"}),
        Maker("Inline", fs.Inline, "runtime", {"threads": 1, "chunk": 2, "backend": "cpu"}),
        Maker("Ray", fs.Ray, "", {"hosts": 1, "address": None, "clients_per_host": None, "num_gpus_per_host": 0, "num_cpus_per_host": 1}),
        Maker("Scenario", fs.Scenario, "scenario", whole_scenario()),
        Maker("run", fs.run, "", {"scenario": fs.Scenario(**whole_scenario()), "runtime": fs.Inline(1), "resume": False, "checkpoint_every": None, "compute": "run", "observers": (), "stop": None}),
        Maker("spent", fs.privacy.spent, "metric", {"delta": 1e-5, "sensitivity": 1.0}),
        Maker("fald.guarantee", fs.privacy.fald.guarantee, "", {}),
        Maker("fedpaq.guarantee", fs.privacy.fedpaq.guarantee, "", {"epsilon": 1.0, "delta": 1e-4, "fraction": 0.2}),
        Maker("w2", m.w2, "metric", {"reference": (np.zeros(2), np.eye(2)), "over": "replicas", "name": "distance"}),
        Maker("mean_error", m.mean_error, "metric", {"reference": (np.zeros(2), np.eye(2)), "over": "replicas", "name": "distance"}),
        Maker("covariance_error", m.covariance_error, "metric", {"reference": (np.zeros(2), np.eye(2)), "over": "replicas", "name": "distance"}),
        Maker("marginal_error", m.marginal_error, "metric", {"reference": X, "over": "history"}),
        Maker("distance_to", m.distance_to, "metric", {"point": [1.0, 2.0], "name": "far"}),
        Maker("mse", m.mse, "metric", {"function": lambda theta: theta[:, 0], "truth": 1.0, "name": "mse"}),
        Maker("resolve", m.resolve, "metric", {"metric": "w2", "probe": None}),
        *(Maker(f.__name__, f, "", {"p": probabilities, "y": truth, **k}) for f, k in (
            (m.accuracy, {}), (m.accuracy_above, {"threshold": 0.5}), (m.brier, {}), (m.ece, {"bins": 5}), (m.nll, {}), (m.reliability, {"bins": 5}))),
        Maker("agreement", m.agreement, "", {"p": probabilities, "q": probabilities}),
        Maker("total_variation", m.total_variation, "", {"p": probabilities, "q": probabilities}),
        Maker("entropy", m.entropy, "", {"p": probabilities}),
        Maker("gaussian_w2", m.gaussian_w2, "", {"mean1": np.zeros(2), "cov1": np.eye(2), "mean2": np.zeros(2), "cov2": np.eye(2)}),
        Maker("hpd_error", m.hpd_error, "", {"neg_log_density": X[:, 0], "reference": X[:, 1], "alpha": 0.1}),
        Maker("marginal_w1", m.marginal_w1, "", {"samples": X, "reference": X}),
        Maker("split_rhat", m.split_rhat, "", {"chains": X[:, :, None]}),
        Maker("w2_floor", m.w2_floor, "", {"covariance": np.eye(2), "replicas": 100}),
        Maker("rng.keys", fs.rng.keys, "", {"seed": 1, "stream": 1, "replica": 0, "client": 0, "round": 0, "visit": 0}),
        Maker("rng.normal", fs.rng.normal, "", {"key": key, "lanes": 2, "step": 0, "dtype": "float64", "call": 0}),
        Maker("rng.uniform", fs.rng.uniform, "", {"key": key, "lanes": 2, "step": 0, "dtype": "float64"}),
        Maker("rng.integers", fs.rng.integers, "", {"key": key, "lanes": 2, "below": 10, "step": 0}),
        Maker("rng.choice", fs.rng.choice, "", {"key": key, "population": 10, "size": 3, "step": 0}),
        Maker("load", fs.load, "", {"path": "nowhere"}),
        Maker("replay", fs.replay, "", {"path": "nowhere", "replica": 0, "round": 1, "client": 0, "scenario": None}),
        Maker("sweep", fs.sweep, "", {"file": "nowhere.py", "grid": {"a": [1]}, "out": "nowhere", "settings": {}, "jobs": 1, "shard": None, "resume": False, "retry_failed": False, "runtime": None, "observers": (), "stop": None}),
    ]  # fmt: skip
    list_of += [Maker(*row) for row in (*hostile_learning.rows(), *hostile_analysis.rows())]
    for maker in list_of:
        if maker.name == "fald.guarantee":
            maker.good = fald_arguments()
    return list_of


def fald_arguments():
    import inspect

    known = {"step_size": 1e-3, "temperature": 1.0, "sensitivity": 1.0, "rows": 4, "sizes": [4, 4, 4], "batch_size": 2, "local_steps": 2, "rounds": 2, "delta": 1e-3, "clients": 3, "participants": 2, "draws": 2, "scheme": "II", "weights": [0.2, 0.3, 0.5], "drawn": 2, "delta0": 1e-5}  # fmt: skip
    names = inspect.signature(fs.privacy.fald.guarantee).parameters
    return {name: known.get(name, p.default if p.default is not p.empty else 1) for name, p in names.items()}


def spoilt_graph(client, role, node, **edge):
    out = graph()
    out.nodes[1]["client"] = client
    out.nodes[0]["role"] = role
    try:
        out.add_edge(0, node, **edge)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        out.add_edge(0, 1, **edge)
    return out


def whole_scenario(**other):
    parts = {
        "problem": fs.problems.GaussianMean(SHARDS, np.eye(2)), "algorithm": fs.algorithms.FALD(step_size=1e-3, local_steps=2),
        "budget": fs.Budget(rounds=2), "network": None, "devices": None, "participation": fs.participation.full(), "replicas": 2, "seed": 1, "initial": None,
        "dtype": "float64", "metrics": (), "evaluate_every": 1, "record": fs.Record(), "broadcast_to": None, "exchange": fs.exchanges.star(),
    }  # fmt: skip
    return parts | other


def scenario_of(role, made):
    """A scenario with the product in its place, and how to run it."""
    a, timing_only, runtime = fs.algorithms, False, fs.Inline(threads=1)
    if role == "pooled":
        parts = {"problem": fs.problems.pooled(fs.problems.GaussianMean(SHARDS, np.eye(2))), "algorithm": made}
    elif role == "performative":
        parts = {"problem": made, "algorithm": a.PFedAvg(step_size=1e-3)}
    elif role == "reactive":
        parts = {"problem": fs.problems.PerformativeMean([1.0, 2.0, 3.0], [0.1, 0.2, 0.3]), "algorithm": made}
    elif role == "payload":
        parts, timing_only = {"problem": made}, True
    elif role == "codec":
        parts = {"algorithm": a.FedPAQ(step_size=1e-3, codec=made)}
    elif role == "schedule":
        parts = {"algorithm": a.FedAvg(step_size=made)}
    elif role in ("slowdown", "availability"):
        parts = {"devices": fs.devices.constant(0.1, **{role: made})}
    elif role == "target":
        parts = {"budget": fs.Budget(rounds=2, target=made), "metrics": ("w2",)}
    elif role == "metric":
        parts = {"metrics": (made,)}
    elif role == "runtime":
        parts, runtime = {}, made
    elif role == "scenario":
        return made, timing_only, runtime
    else:
        parts = {role: made}
    return fs.Scenario(**whole_scenario(**parts)), timing_only, runtime


def large(value) -> bool:
    """A number that may be meant, and that would keep the machine busy."""
    try:
        return bool(np.max(np.abs(np.asarray(value, float))) > 1000)
    except Exception:
        return isinstance(value, range)


def attack(case, catalogue):
    """What case n does: the maker's name, the spoilt arguments, and the call."""
    chance = np.random.default_rng([case, 7])
    maker = catalogue[case % len(catalogue)]
    names = list(maker.good)
    spoilt = {}
    for name in chance.permutation(names)[: 1 + (chance.integers(3) == 0)] if names else ():
        values = odd() if chance.integers(3) else hostile()
        spoilt[str(name)] = values[chance.integers(len(values))]

    def call():
        made = maker.make(**(maker.good | spoilt))
        if maker.role:
            scenario, timing_only, runtime = scenario_of(maker.role, made)
            if not any(large(value) for value in spoilt.values()):
                fs.run(scenario, runtime=runtime, timing_only=timing_only)

    return maker.name, spoilt, call

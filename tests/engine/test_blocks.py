"""Rounds that are learnt in blocks have the bits of rounds learnt one by one."""

import math

import numpy as np
import pytest

import fedsim as fs
from fedsim.engine.learner import Learner
from fedsim.engine.run import Run
from fedsim.runtime.inline import Worker

GENERATOR = np.random.default_rng(7)
POINTS = [GENERATOR.normal(size=(n, 5)) + GENERATOR.normal(size=5) for n in (7, 20, 11, 34)]
OFFSETS = np.array([0, 30, 50, 90])
PROBLEMS = {
    "gaussian": fs.problems.GaussianMean(POINTS, np.eye(5)),
    "full precision": fs.problems.GaussianMean(POINTS, np.eye(5) + 0.3),
    "logistic": fs.problems.LogisticRegression.synthetic(4, 5, 25),
    "linear": fs.problems.LinearRegression.synthetic(4, 5, samples=(30, 20, 40, 25)),
    "pooled": fs.problems.pooled(fs.problems.GaussianMean(POINTS, np.eye(5))),
    "reactive": fs.problems.PerformativeMean([0.0, 1.0, 2.0, 3.0], [0.1, 0.2, 0.3, 0.4]),
    "softmax": fs.problems.SoftmaxRegression.synthetic(4, 6, 3, samples=(30, 20, 40, 25), dtype=np.float64),
}
SLOW = fs.devices.lognormal(
    median_step_s=0.05, sigma=0.7, dropout={"before": 0.05, "compute": 0.1, "upload": 0.1},
    slowdown=fs.devices.pareto_slowdown(2.0),
)  # fmt: skip
STAR = fs.topologies.star(
    clients=4, uplink_bps=[1e5, 2e5, 3e5, 4e5], downlink_bps=1e6, latency_s=[0.01, 0.02, 0.03, 0.04]
)


def scenario(problem="gaussian", algorithm=None, **changes):
    algorithm = algorithm or fs.algorithms.QLSD(1e-3, batch_size=0.3, codec=fs.codecs.QSGD(8))
    given = {"network": STAR, "budget": fs.Budget(rounds=50), "replicas": 3, "seed": 5}
    return fs.Scenario(problem=PROBLEMS[problem], algorithm=algorithm, **(given | changes))


def one_by_one(s, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "rounds_together", lambda *_: 1)
        return fs.run(s, **options)


def in_blocks(s, **options):
    """The result, and how many rounds each call learnt; a run begins with single rounds."""
    taken, learn = [], Learner.aggregate_rounds

    async def watched(self, block, low, high, counted):
        taken.append(high - low)
        return await learn(self, block, low, high, counted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "aggregate_rounds", watched)
        patch.setattr(
            "fedsim.engine.run.LONG_S", math.inf
        )  # a block that compiles kernels is no reason for shorter ones
        return fs.run(s, **options), taken


def all_in_blocks(s, **options):
    """The result of a run whose rounds are learnt in blocks as soon as blocks have several rounds."""
    result, taken = in_blocks(s, **options)
    assert sum(taken) >= 48
    return result


def same(a, b):
    assert np.array_equal(a.samples, b.samples, equal_nan=True)  # NaN: a replica has stopped
    assert a.rounds.equals(b.rounds)
    assert a.clients.equals(b.clients)
    assert a.metrics.equals(b.metrics)
    assert a.stopped_by == b.stopped_by


ALGORITHMS = {
    "minibatches": fs.algorithms.QLSD(1e-3, batch_size=0.3, codec=fs.codecs.QSGD(8)),
    "all rows": fs.algorithms.QLSD(1e-3, batch_size=None, codec=fs.codecs.QSGD(3)),
    "nothing compressed": fs.algorithms.QLSD(1e-3, batch_size=(3, 4, 5, 6)),
    "float32 on the wire": fs.algorithms.QLSD(1e-3, batch_size=0.2, codec=fs.codecs.Identity("float32")),
    "a schedule": fs.algorithms.QLSD(fs.schedules.inverse_time(0.1, 100), batch_size=0.3, codec=fs.codecs.QSGD(8)),
    "inverse weights": fs.algorithms.QLSD(
        1e-3, batch_size=0.3, codec=fs.codecs.QSGD(8), weighting="inverse", activity=1.0
    ),
}


@pytest.mark.parametrize("problem", ["gaussian", "full precision", "logistic"])
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_qlsd_has_the_same_bits_in_blocks(problem, algorithm, dtype):
    s = scenario(problem, algorithm, dtype=dtype)
    same(all_in_blocks(s), one_by_one(s))


@pytest.mark.parametrize("problem", ["gaussian", "full precision"])
@pytest.mark.parametrize("batch_size", [None, 0.3])
def test_qlsd_star_has_the_same_bits_in_blocks(problem, batch_size):
    s = scenario(problem, fs.algorithms.QLSDStar(1e-3, optimum=None, batch_size=batch_size, codec=fs.codecs.QSGD(8)))
    same(all_in_blocks(s), one_by_one(s))


@pytest.mark.parametrize("problem", ["gaussian", "full precision", "logistic"])
@pytest.mark.parametrize("batch_size", [None, 0.3])
@pytest.mark.parametrize("policy", [fs.participation.full(), fs.participation.uniform(2)], ids=["full", "uniform"])
def test_qlsd_plus_plus_refreshes_its_control_point_inside_a_block(problem, batch_size, policy):
    algorithm = fs.algorithms.QLSDPlusPlus(
        1e-3, refresh_every=12, memory_rate=None, batch_size=batch_size, codec=fs.codecs.QSGD(8)
    )
    s = scenario(problem, algorithm, participation=policy)
    same(all_in_blocks(s), one_by_one(s))


def test_qlsd_plus_plus_keeps_its_memory_between_blocks():
    algorithm = fs.algorithms.QLSDPlusPlus(
        1e-3,
        refresh_every=20,
        memory_rate=0.2,
        batch_size=0.3,
        codec=fs.codecs.QSGD(8),
        weighting="inverse",
        activity=1.0,
    )
    s = scenario(algorithm=algorithm, metrics=["w2"], evaluate_every=7)
    same(fs.run(s, runtime=fs.Inline(threads=2)), one_by_one(s, runtime=fs.Inline(threads=1)))


@pytest.mark.parametrize(("quick_s", "most"), [(0.0, 2), (np.inf, 5)])
def test_replicas_are_split_over_threads_where_rounds_take_long(quick_s, most, monkeypatch):
    seen, learn = [], Worker.learn

    def watched(worker, block):
        seen.append(len(block.replicas))
        return learn(worker, block)

    monkeypatch.setattr("fedsim.runtime.inline.QUICK_S", quick_s)
    monkeypatch.setattr(Worker, "learn", watched)
    s = scenario(replicas=5, record=fs.Record(rounds_every=10))
    result = fs.run(s, runtime=fs.Inline(threads=3))
    assert max(seen) == most  # the first block is split: it is not known yet how long it takes
    same(result, one_by_one(s))


def test_threads_and_an_ideal_network_change_no_bit():
    s = scenario(network=None, replicas=5)
    same(fs.run(s, runtime=fs.Inline(threads=3)), one_by_one(s, runtime=fs.Inline(threads=1)))


@pytest.mark.parametrize(
    "changes",
    [
        {"record": fs.Record(every=7, warmup=3)},
        {"record": fs.Record(every=10, rounds_every=8)},
        {"metrics": ["w2"], "evaluate_every": 9},
        {"metrics": ["w2", "mean_error"], "record": fs.Record(warmup=10)},
        {"metrics": ["w2"], "evaluate_every": 3, "participation": fs.participation.uniform(2), "devices": SLOW},
        {"metrics": ["w2"], "evaluate_every": 9, "record": fs.Record(rounds_every=6)},
        {"metrics": ["w2"], "evaluate_every": 9, "algorithm": fs.algorithms.FAHMC(0.02, leapfrog_steps=3, debias="stale")},
        {"budget": fs.Budget(seconds=2.0)},
        {"budget": fs.Budget(rounds=50, uplink_bits=6_000)},
        {"budget": fs.Budget(total_bits=20_000)},
        {"metrics": ["w2"], "evaluate_every": 5, "budget": fs.Budget(rounds=50, target=fs.Target("w2", below=1.5))},
    ],
    ids=lambda changes: " ".join(changes),
)  # fmt: skip
def test_what_is_recorded_and_evaluated_does_not_depend_on_blocks(changes):
    s = scenario(**changes)
    result, taken = in_blocks(s)
    assert taken or s.budget.target is not None  # a target is looked for after every round
    same(result, one_by_one(s))


SOME = {
    "bernoulli": {"participation": fs.participation.bernoulli(0.7)},
    "uniform": {"participation": fs.participation.uniform(2, weighting="normalised")},
    "with replacement": {"participation": fs.participation.with_replacement(3)},
    "devices": {"devices": fs.devices.constant(0.1)},
    "losses": {"devices": SLOW},
    "first": {"participation": fs.participation.first(2, of=3), "devices": SLOW},
    "deadline": {"participation": fs.participation.deadline(0.12), "devices": SLOW},
    "an ideal network": {"participation": fs.participation.bernoulli(0.2), "devices": SLOW, "network": None},
}
PARTIAL = {
    "qlsd": ("gaussian", fs.algorithms.QLSD(1e-3, batch_size=0.3, codec=fs.codecs.QSGD(8))),
    "hold": ("logistic", fs.algorithms.QLSD(1e-3, batch_size=None, codec=fs.codecs.QSGD(8), empty="hold")),
    "star": ("gaussian", fs.algorithms.QLSDStar(1e-3, optimum=None, batch_size=0.3, codec=fs.codecs.QSGD(8))),
    "plus plus": (
        "gaussian",
        fs.algorithms.QLSDPlusPlus(1e-3, refresh_every=60, memory_rate=None, batch_size=None, codec=fs.codecs.QSGD(8)),
    ),
    "fald": ("full precision", fs.algorithms.FALD(1e-3, local_steps=3, correlation=0.4)),
    "fald, alone": ("gaussian", fs.algorithms.FALD(fs.schedules.inverse_time(0.1, 100.0), local_steps=2)),
    "fahmc": ("full precision", fs.algorithms.FAHMC(0.02, leapfrog_steps=3, local_steps=2, correlation=0.4)),
    "fahmc, minibatches": (
        "logistic",
        fs.algorithms.FAHMC(fs.schedules.inverse_time(1.0, 100.0), leapfrog_steps=2, batch_size=0.3),
    ),
    "fahmc, de-biased": (
        "linear",
        fs.algorithms.FAHMC(0.01, leapfrog_steps=3, local_steps=2, correlation=0.4, debias="stale"),
    ),
    "fedavg": ("linear", fs.algorithms.FedAvg(0.01, local_steps=2, batch_size=5)),
    "fedavg, logistic": ("logistic", fs.algorithms.FedAvg(0.02, local_steps=3, batch_size=0.3)),
    "fedavg, softmax": (
        "softmax",
        fs.algorithms.FedAvg(fs.schedules.inverse_time(0.1, 10.0), local_steps=2, batch_size=5, server_step=0.7),
    ),
}


def cases(parts):
    """Every algorithm with every part that it accepts: QLSD has weights of its own and counts equally likely clients."""
    for name, (problem, algorithm) in PARTIAL.items():
        qlsd = type(algorithm).__name__.startswith("QLSD")
        for part, changes in parts.items():
            if qlsd and part == "with replacement" and problem == "gaussian":  # of unequal sizes
                continue
            if qlsd and part == "uniform":
                changes = {"participation": fs.participation.uniform(2)}
            yield pytest.param((problem, algorithm), changes, id=f"{name}-{part}")


@pytest.mark.parametrize(("kind", "changes"), list(cases(SOME)))
def test_rounds_of_some_clients_have_the_same_bits_in_blocks(kind, changes):
    s = scenario(*kind, **changes)
    same(all_in_blocks(s, runtime=fs.Inline(threads=2)), one_by_one(s, runtime=fs.Inline(threads=1)))


@pytest.mark.parametrize("kind", [kind for kind in PARTIAL if kind.startswith(("fa", "fed"))])
def test_models_that_are_averaged_have_the_same_bits_in_blocks(kind):
    s = scenario(*PARTIAL[kind])
    same(all_in_blocks(s), one_by_one(s))


# Every algorithm that a server runs, on a problem for which it has a compiled client if it has any.
EVERY = {
    "DGSGLD": ("gaussian", fs.algorithms.DGSGLD(1e-3, coupling=0.5)),
    "FAHMC": ("linear", fs.algorithms.FAHMC(0.01, leapfrog_steps=3)),
    "FALD": ("gaussian", fs.algorithms.FALD(1e-3, local_steps=2)),
    "FSGLD": ("gaussian", fs.algorithms.FSGLD(1e-3)),
    "HMC": ("pooled", fs.algorithms.HMC(0.02, leapfrog_steps=3)),
    "MALA": ("pooled", fs.algorithms.MALA(1e-3)),
    "PSGLD": ("pooled", fs.algorithms.PSGLD(1e-3)),
    "QLSD": ("gaussian", fs.algorithms.QLSD(1e-3, batch_size=0.3, codec=fs.codecs.QSGD(8))),
    "SGLD": ("pooled", fs.algorithms.SGLD(1e-3)),
    "FedAdagrad": ("linear", fs.algorithms.FedAdagrad(0.01, local_steps=2)),
    "FedAdam": ("linear", fs.algorithms.FedAdam(0.01, local_steps=2)),
    "FedAvg": ("linear", fs.algorithms.FedAvg(0.01, local_steps=2, batch_size=5)),
    "FedBE": ("linear", fs.algorithms.FedBE(0.01, local_steps=2)),
    "FedDyn": ("linear", fs.algorithms.FedDyn(0.01, local_steps=2)),
    "FedNova": ("linear", fs.algorithms.FedNova(0.01, local_steps=2)),
    "FedPAQ": ("linear", fs.algorithms.FedPAQ(0.01, local_steps=2)),
    "FedProx": ("linear", fs.algorithms.FedProx(0.01, local_steps=2, proximal=0.1)),
    "FedYogi": ("linear", fs.algorithms.FedYogi(0.01, local_steps=2)),
    "PFedAvg": ("reactive", fs.algorithms.PFedAvg(0.01, local_steps=2)),
    "PrivateFedPAQ": (
        "linear",
        fs.algorithms.PrivateFedPAQ(0.01, local_steps=2, clip=1.0, epsilon=5.0, delta=1e-5, batch_size=5),
    ),
    "QLSDPlusPlus": (
        "gaussian",
        fs.algorithms.QLSDPlusPlus(1e-3, refresh_every=12, memory_rate=None, batch_size=0.3, codec=fs.codecs.QSGD(8)),
    ),
    "QLSDStar": ("gaussian", fs.algorithms.QLSDStar(1e-3, optimum=None, batch_size=0.3, codec=fs.codecs.QSGD(8))),
    "Scaffold": ("linear", fs.algorithms.Scaffold(0.01, local_steps=2)),
    "distributed_sgd": ("linear", fs.algorithms.distributed_sgd(0.01, batch_size=5)),
}
COMPILED = {"FAHMC", "FALD", "FedAvg", "QLSD", "QLSDPlusPlus", "QLSDStar", "distributed_sgd"}
ONE_CLIENT = {"DGSGLD", "FSGLD"}  # they follow one client a round


def test_every_algorithm_of_a_server_is_listed_here():
    assert set(EVERY) == set(fs.algorithms.__all__) - {"DESGLD", "DIGingSGLD"}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("devices", [None, SLOW], ids=["all arrive", "losses"])
def test_every_algorithm_has_the_same_bits_in_blocks_and_one_by_one(name, devices):
    policy = fs.participation.with_replacement(1) if name in ONE_CLIENT else fs.participation.full()
    network = None if EVERY[name][0] == "pooled" else STAR
    s = scenario(*EVERY[name], devices=devices, participation=policy, network=network)
    result, taken = in_blocks(s)
    assert (sum(taken) > 40) == (name in COMPILED)
    same(result, one_by_one(s))


class Stumble:
    """A sparse observer that interrupts the run in round 30 or later."""

    sparse = True

    def __init__(self):
        self.seen = []

    def __call__(self, progress):
        self.seen.append(progress.round)
        if progress.round >= 30:
            raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["qlsd", "fahmc, de-biased"])
def test_a_run_interrupted_between_blocks_resumes_to_the_same_bits(kind, tmp_path):
    s, stumble = scenario(*PARTIAL[kind], devices=SLOW, record=fs.Record(rounds_every=4)), Stumble()
    with pytest.raises(KeyboardInterrupt):
        fs.run(s, out=tmp_path / "run", checkpoint_every=13, observers=[stumble])
    same(fs.run(s, out=tmp_path / "run", resume=True), one_by_one(s))


def test_events_do_not_depend_on_blocks():
    s = scenario(devices=SLOW, record=fs.Record(events=True))
    assert all_in_blocks(s).events.equals(one_by_one(s).events)


def test_divergence_names_the_round_as_round_by_round_does():
    s = scenario(
        algorithm=fs.algorithms.QLSD(1e3, batch_size=0.3, codec=fs.codecs.QSGD(8)), budget=fs.Budget(rounds=500)
    )
    messages = []
    for run in (fs.run, one_by_one):
        with pytest.raises(fs.errors.NonFinite) as error:
            run(s)
        messages.append(str(error.value))
    assert messages[0] == messages[1]

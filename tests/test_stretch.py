"""Rounds taken several at a go are the rounds taken one by one."""

import numpy as np
import pytest

import fedsim as fs
from fedsim.engine.clock.choose import always_compiled, reference_clock
from fedsim.old_engine import run as engine_run
from fedsim.runtime.worker import Worker

GENERATOR = np.random.default_rng(7)
POINTS = [GENERATOR.normal(size=(n, 5)) + GENERATOR.normal(size=5) for n in (7, 20, 11, 34)]
OFFSETS = np.array([0, 30, 50, 90])
PROBLEMS = {
    "gaussian": fs.problems.GaussianMean(POINTS, np.eye(5)),
    "full precision": fs.problems.GaussianMean(POINTS, np.eye(5) + 0.3),
    "logistic": fs.problems.LogisticRegression.synthetic(4, 5, 25),
    "linear": fs.problems.LinearRegression.synthetic(4, 5, samples=(30, 20, 40, 25)),
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
    algorithm = algorithm or fs.algorithms.QLSD(1e-3, 0.3, fs.codecs.QSGD(8))
    given = {"network": STAR, "budget": fs.Budget(rounds=50), "replicas": 3, "seed": 5}
    return fs.Scenario(problem=PROBLEMS[problem], algorithm=algorithm, **(given | changes))


def one_by_one(s, **options):
    return fs.run(s, observers=[lambda progress: None], **options)


def stretches_of(s, monkeypatch, **options):
    """The result, and how long its stretches were."""
    taken, whole = [], engine_run.settle_stretch

    async def watched(*args):
        count, going = await whole(*args)
        taken.append(count or None)
        return count, going

    monkeypatch.setattr(engine_run, "settle_stretch", watched)
    result = fs.run(s, **options)
    monkeypatch.undo()
    return result, taken


def same(a, b):
    assert np.array_equal(a.samples, b.samples, equal_nan=True)  # NaN: a replica has stopped
    assert a.rounds.equals(b.rounds)
    assert a.clients.equals(b.clients)
    assert a.metrics.equals(b.metrics)
    assert a.stopped_by == b.stopped_by


ALGORITHMS = {
    "minibatches": fs.algorithms.QLSD(1e-3, 0.3, fs.codecs.QSGD(8)),
    "all rows": fs.algorithms.QLSD(1e-3, None, fs.codecs.QSGD(3)),
    "nothing compressed": fs.algorithms.QLSD(1e-3, (3, 4, 5, 6)),
    "float32 on the wire": fs.algorithms.QLSD(1e-3, 0.2, fs.codecs.Identity("float32")),
    "a schedule": fs.algorithms.QLSD(fs.schedules.inverse_time(0.1, 100), 0.3, fs.codecs.QSGD(8)),
    "inverse weights": fs.algorithms.QLSD(1e-3, 0.3, fs.codecs.QSGD(8), weighting="inverse", activity=1.0),
}


@pytest.mark.parametrize("problem", ["gaussian", "full precision", "logistic"])
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_qlsd_has_the_same_bits_in_stretches(problem, algorithm, dtype, monkeypatch):
    s = scenario(problem, algorithm, dtype=dtype)
    result, taken = stretches_of(s, monkeypatch)
    assert taken == [50]
    same(result, one_by_one(s))


@pytest.mark.parametrize("problem", ["gaussian", "full precision"])
@pytest.mark.parametrize("batch_size", [None, 0.3])
def test_qlsd_star_has_the_same_bits_in_stretches(problem, batch_size, monkeypatch):
    s = scenario(problem, fs.algorithms.QLSDStar(1e-3, None, batch_size, fs.codecs.QSGD(8)))
    result, taken = stretches_of(s, monkeypatch)
    assert taken == [50]
    same(result, one_by_one(s))


@pytest.mark.parametrize("problem", ["gaussian", "full precision", "logistic"])
@pytest.mark.parametrize("batch_size", [None, 0.3])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_qlsd_plus_plus_has_the_same_bits_in_stretches_between_refreshes(problem, batch_size, dtype, monkeypatch):
    algorithm = fs.algorithms.QLSDPlusPlus(1e-3, 12, None, batch_size, fs.codecs.QSGD(8))
    s = scenario(problem, algorithm, dtype=dtype)
    result, taken = stretches_of(s, monkeypatch)
    assert taken == ([12, 12, 12, 12, 2] if batch_size is None else [11, 11, 11, 11])
    same(result, one_by_one(s))


def test_qlsd_plus_plus_in_stretches_of_any_length_keeps_its_memory():
    algorithm = fs.algorithms.QLSDPlusPlus(1e-3, 20, 0.2, 0.3, fs.codecs.QSGD(8), weighting="inverse", activity=1.0)
    s = scenario(algorithm=algorithm, metrics=["w2"], evaluate_every=7)
    same(fs.run(s, runtime=fs.Inline(threads=2)), one_by_one(s, runtime=fs.Inline(threads=1)))


@pytest.mark.parametrize(("quick_s", "most"), [(0.0, 2), (np.inf, 5)])
def test_replicas_are_dealt_out_to_threads_only_where_rounds_take_their_time(quick_s, most, monkeypatch):
    seen, iterate = [], Worker.iterate

    def watched(worker, rounds):
        seen.append(len(rounds.replicas))
        return iterate(worker, rounds)

    monkeypatch.setattr("fedsim.runtime.worker.QUICK_S", quick_s)
    monkeypatch.setattr(Worker, "iterate", watched)
    s = scenario(replicas=5, record=fs.Record(rounds_every=10))
    result = fs.run(s, runtime=fs.Inline(threads=3))
    assert max(seen) == most  # the first stretch is dealt out: nobody knows yet how long it takes
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
        {"metrics": ["w2"], "evaluate_every": 9, "algorithm": fs.algorithms.FAHMC(0.02, 3, debias="stale")},
        {"budget": fs.Budget(seconds=2.0)},
        {"budget": fs.Budget(rounds=50, uplink_bits=6_000)},
        {"budget": fs.Budget(total_bits=20_000)},
        {"metrics": ["w2"], "evaluate_every": 5, "budget": fs.Budget(rounds=50, target=fs.Target("w2", below=1.5))},
    ],
    ids=lambda changes: " ".join(changes),
)  # fmt: skip
def test_whoever_looks_sees_what_there_was_round_by_round(changes, monkeypatch):
    s = scenario(**changes)
    result, taken = stretches_of(s, monkeypatch)
    assert max(n or 0 for n in taken) > 1
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
    "qlsd": ("gaussian", fs.algorithms.QLSD(1e-3, 0.3, fs.codecs.QSGD(8))),
    "hold": ("logistic", fs.algorithms.QLSD(1e-3, None, fs.codecs.QSGD(8), empty="hold")),
    "star": ("gaussian", fs.algorithms.QLSDStar(1e-3, None, 0.3, fs.codecs.QSGD(8))),
    "plus plus": ("gaussian", fs.algorithms.QLSDPlusPlus(1e-3, 60, None, None, fs.codecs.QSGD(8))),
    "fald": ("full precision", fs.algorithms.FALD(1e-3, 3, correlation=0.4)),
    "fald, alone": ("gaussian", fs.algorithms.FALD(fs.schedules.inverse_time(0.1, 100.0), 2)),
    "fahmc": ("full precision", fs.algorithms.FAHMC(0.02, 3, 2, correlation=0.4)),
    "fahmc, minibatches": ("logistic", fs.algorithms.FAHMC(fs.schedules.inverse_time(1.0, 100.0), 2, batch_size=0.3)),
    "fahmc, de-biased": ("linear", fs.algorithms.FAHMC(0.01, 3, 2, correlation=0.4, debias="stale")),
    "fedavg": ("linear", fs.algorithms.FedAvg(0.01, 2, 5)),
    "fedavg, logistic": ("logistic", fs.algorithms.FedAvg(0.02, 3, 0.3)),
    "fedavg, softmax": ("softmax", fs.algorithms.FedAvg(fs.schedules.inverse_time(0.1, 10.0), 2, 5, server_step=0.7)),
}


def test_a_star_that_records_all_sites_has_one_in_stretches_too(monkeypatch):
    result, taken = stretches_of(scenario(record=fs.Record(sites="all")), monkeypatch)
    assert taken == [50]
    assert np.array_equal(result.samples[:, :, 0], one_by_one(scenario()).samples)


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
def test_rounds_that_only_some_answer_have_the_same_bits_in_stretches(kind, changes, monkeypatch):
    s = scenario(*kind, **changes)
    result, taken = stretches_of(s, monkeypatch, runtime=fs.Inline(threads=2))
    assert taken
    same(result, one_by_one(s, runtime=fs.Inline(threads=1)))


@pytest.mark.parametrize("kind", [kind for kind in PARTIAL if kind.startswith(("fa", "fed"))])
def test_models_that_are_averaged_have_the_same_bits_in_stretches_when_everybody_answers(kind, monkeypatch):
    s = scenario(*PARTIAL[kind])
    result, taken = stretches_of(s, monkeypatch)
    assert taken == [50]
    same(result, one_by_one(s))


def test_a_round_that_meets_the_copies_of_the_one_before_is_left_to_the_events(monkeypatch):
    s = scenario(participation=fs.participation.bernoulli(0.4))  # now and then nobody answers, in no time
    result, taken = stretches_of(s, monkeypatch)
    assert 1 < sum(taken) < 50
    assert result.manifest["clock"]["path"] == "closed form, then event"
    same(result, one_by_one(s))


CHANNEL = fs.topologies.multiple_access(4, 2e5, latency_s=0.01)
ON_CHANNEL = {
    "everybody": {},
    "with replacement": {"participation": fs.participation.with_replacement(3)},
    "losses": {"devices": SLOW, "participation": fs.participation.bernoulli(0.5)},
    "deadline": {"devices": SLOW, "participation": fs.participation.deadline(0.12)},
}


def on_the_compiled_clock_and_on_simpy(s, monkeypatch):
    """Both results, of which SimPy's is made round by round, and how long the stretches of the other were."""
    with always_compiled():
        result, taken = stretches_of(s, monkeypatch, runtime=fs.Inline(threads=2))
    assert result.manifest["clock"]["path"] == "compiled"
    with reference_clock():
        return result, one_by_one(s, runtime=fs.Inline(threads=1)), taken


@pytest.mark.parametrize(("kind", "changes"), list(cases(ON_CHANNEL)))
def test_on_the_compiled_clock_rounds_are_learnt_in_stretches_with_the_bits_of_simpy(kind, changes, monkeypatch):
    s = scenario(*kind, network=CHANNEL, **changes)
    stretched, singly, taken = on_the_compiled_clock_and_on_simpy(s, monkeypatch)
    assert taken == [50]
    same(stretched, singly)


@pytest.mark.parametrize(
    "changes",
    [
        {"budget": fs.Budget(seconds=2.0), "devices": SLOW},
        {"budget": fs.Budget(rounds=50, uplink_bits=6_000)},
        {"metrics": ["w2"], "evaluate_every": 5, "budget": fs.Budget(rounds=50, target=fs.Target("w2", below=1.5))},
        {"metrics": ["w2"], "evaluate_every": 9, "record": fs.Record(rounds_every=6)},
    ],
    ids=["seconds", "bits", "target", "thinned"],
)  # fmt: skip
def test_on_the_compiled_clock_what_ran_ahead_is_cut_where_the_run_ends(changes, monkeypatch):
    s = scenario(network=CHANNEL, **changes)
    stretched, singly, taken = on_the_compiled_clock_and_on_simpy(s, monkeypatch)
    assert max(n or 0 for n in taken) > 1
    same(stretched, singly)


def test_events_of_rounds_in_a_stretch_are_those_of_the_rounds_one_by_one(monkeypatch):
    s = scenario(network=CHANNEL, devices=SLOW, record=fs.Record(events=True))
    stretched, singly, taken = on_the_compiled_clock_and_on_simpy(s, monkeypatch)
    assert taken == [50]
    assert stretched.events.equals(singly.events)


@pytest.mark.parametrize("lost", [False, True])
def test_on_the_compiled_clock_anchors_need_everybody(lost, monkeypatch):
    algorithm = fs.algorithms.QLSDPlusPlus(1e-3, 12, None, 0.3, fs.codecs.QSGD(8))
    s = scenario(algorithm=algorithm, network=CHANNEL, devices=SLOW if lost else fs.devices.constant(0.1))
    stretched, singly, taken = on_the_compiled_clock_and_on_simpy(s, monkeypatch)
    assert taken == ([] if lost else [11, 11, 11, 11])
    same(stretched, singly)


def test_asynchronous_rounds_are_learnt_one_by_one(monkeypatch):
    with always_compiled():
        _, taken = stretches_of(scenario(devices=SLOW, participation=fs.participation.buffered(2)), monkeypatch)
    assert taken == []


def test_a_run_on_the_compiled_clock_killed_between_stretches_resumes_to_the_same_bits(tmp_path):
    s, stumble = scenario(*PARTIAL["fahmc, de-biased"], network=CHANNEL, devices=SLOW), Stumble()
    with always_compiled(), pytest.raises(KeyboardInterrupt):
        fs.run(s, out=tmp_path / "run", checkpoint_every=13, observers=[stumble])
    assert len(stumble.seen) < 13
    resumed = fs.run(s, out=tmp_path / "run", resume=True)
    assert resumed.manifest["clock"]["path"] == "compiled"
    with reference_clock():
        same(resumed, one_by_one(s))


@pytest.mark.parametrize("problem", ["gaussian", "logistic"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"network": None},
        {"devices": fs.devices.lognormal(median_step_s=0.05, sigma=0.7)},
        {"budget": fs.Budget(rounds=50, uplink_bits=6_000)},
        {"algorithm": fs.algorithms.QLSDPlusPlus(1e-3, 60, None, None, fs.codecs.Elias(8))},
    ],
    ids=["links", "an ideal network", "devices", "a budget that ends in the middle", "memory"],
)
def test_the_clock_follows_with_lengths_that_depend_on_what_was_learnt(problem, changes, monkeypatch):
    s = scenario(problem, **({"algorithm": fs.algorithms.QLSD(1e-3, 0.3, fs.codecs.Elias(8))} | changes))
    result, taken = stretches_of(s, monkeypatch, runtime=fs.Inline(threads=2))
    assert max(n or 0 for n in taken) > 1
    same(result, one_by_one(s, runtime=fs.Inline(threads=1)))


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": fs.algorithms.QLSD(1e-3, 0.3, fs.codecs.Elias(8)), "devices": SLOW},
        {"algorithm": fs.algorithms.QLSDPlusPlus(1e-3, 12, None, 0.3), "participation": fs.participation.uniform(2)},
    ],
    ids=["lengths that decide who is heard", "anchors that some have missed"],
)
def test_what_needs_every_round_gets_every_round(changes, monkeypatch):
    _, taken = stretches_of(scenario(**changes), monkeypatch)
    assert taken == []


class Stumble:
    """Somebody who looks now and then, and trips the run up on round 30 or later."""

    sparse = True

    def __init__(self):
        self.seen = []

    def __call__(self, progress):
        self.seen.append(progress.round)
        if progress.round >= 30:
            raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["qlsd", "fahmc, de-biased"])
def test_a_run_killed_between_stretches_resumes_to_the_same_bits(kind, tmp_path):
    s, stumble = scenario(*PARTIAL[kind], record=fs.Record(rounds_every=4)), Stumble()
    with pytest.raises(KeyboardInterrupt):
        fs.run(s, out=tmp_path / "run", checkpoint_every=13, observers=[stumble])
    assert {13, 26} < set(stumble.seen)
    assert len(stumble.seen) < 13
    same(fs.run(s, out=tmp_path / "run", resume=True), one_by_one(s))


def test_divergence_names_the_round_as_round_by_round_does():
    s = scenario(algorithm=fs.algorithms.QLSD(1e3, 0.3, fs.codecs.QSGD(8)), budget=fs.Budget(rounds=500))
    said = []
    for observers in ((), (lambda progress: None,)):
        with pytest.raises(fs.errors.NonFinite) as error:
            fs.run(s, observers=observers)
        said.append(str(error.value))
    assert said[0] == said[1]

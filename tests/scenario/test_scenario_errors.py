"""Every wrong input ends in InvalidInput, before anything starts, in one sentence that carries the remedy."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import fedsim as fs
from fedsim.errors import FedsimError, InvalidInput

BALANCED = fs.problems.GaussianMean.synthetic(50, 2, samples=10)
UNBALANCED = fs.problems.GaussianMean.synthetic(3, 2, samples=[5, 10, 20])
BINARY = fs.problems.LogisticRegression.synthetic(3, 2)
FALD = fs.algorithms.FALD
NAN, INF = math.nan, math.inf


def scenario(problem=BALANCED, algorithm=None, budget=None, **options):
    algorithm, budget = algorithm or FALD(step_size=1e-4), budget or fs.Budget(rounds=2)
    return fs.Scenario(problem=problem, algorithm=algorithm, budget=budget, **options)


def refused(build, words):
    """`build` raises InvalidInput with one clear sentence that matches the pattern."""
    with pytest.raises(InvalidInput, match=words) as caught:
        build()
    message = str(caught.value)
    assert "\n" not in message
    assert 15 < len(message) < 300
    assert isinstance(caught.value, FedsimError)
    assert isinstance(caught.value, ValueError)
    return message


# --- Algorithms -----------------------------------------------------------------------------------------

ALGORITHM = {
    "a negative step": (lambda: FALD(step_size=-1e-3), r"FALD\(step_size=-0.001\): must be a positive number"),
    "no step": (lambda: FALD(step_size=0), "step_size=0"),
    "a NaN step": (lambda: FALD(step_size=NAN), "step_size=nan"),
    "an infinite step": (lambda: FALD(step_size=INF), "step_size=inf"),
    "a word for a step": (lambda: FALD(step_size="small"), "step_size=small"),
    "a list of steps": (lambda: FALD(step_size=[1e-3, 1e-4]), "step_size"),
    "no step size": (lambda: FALD(step_size=None), "step_size=None"),
    "no local steps": (lambda: FALD(step_size=1e-3, local_steps=0), r"local_steps=0\): must be an integer"),
    "negative local steps": (lambda: FALD(step_size=1e-3, local_steps=-2), "local_steps=-2"),
    "half a local step": (lambda: FALD(step_size=1e-3, local_steps=1.5), "local_steps=1.5"),
    "a word for local steps": (lambda: FALD(step_size=1e-3, local_steps="ten"), "local_steps=ten"),
    "a negative temperature": (lambda: FALD(step_size=1e-3, temperature=-1), "temperature=-1"),
    "a NaN temperature": (lambda: FALD(step_size=1e-3, temperature=NAN), "temperature=nan"),
    "a word for a temperature": (lambda: FALD(step_size=1e-3, temperature="hot"), "temperature=hot"),
    "a correlation above one": (lambda: FALD(step_size=1e-3, correlation=1.1), "between 0 and 1"),
    "a negative correlation": (lambda: FALD(step_size=1e-3, correlation=-0.1), "between 0 and 1"),
    "an empty minibatch": (lambda: FALD(step_size=1e-3, batch_size=0), "batch_size=0"),
    "a negative minibatch": (lambda: FALD(step_size=1e-3, batch_size=-5), "batch_size=-5"),
    "a count and a fraction": (lambda: FALD(step_size=1e-3, batch_size=2.5), "a fraction must be below 1"),
    "a NaN minibatch": (lambda: FALD(step_size=1e-3, batch_size=NAN), "batch_size=nan"),
    "an infinite minibatch": (lambda: FALD(step_size=1e-3, batch_size=INF), "batch_size=inf"),
    "a word for a minibatch": (lambda: FALD(step_size=1e-3, batch_size="all"), "batch_size=all"),
    "no minibatches": (lambda: FALD(step_size=1e-3, batch_size=[]), "batch_size"),
    "fractions per client": (lambda: FALD(step_size=1e-3, batch_size=[0.5, 0.5]), "batch_size"),
    "a constant of zero": (lambda: fs.schedules.constant(0), "positive"),
    "a negative schedule": (lambda: fs.schedules.inverse_time(-1, 10), "inverse_time"),
    "a schedule that starts at infinity": (lambda: fs.schedules.inverse_time(1, 0), "inverse_time"),
    "a NaN schedule": (lambda: fs.schedules.per_round(NAN, 10), "per_round"),
    "convexity above smoothness": (
        lambda: fs.schedules.strongly_convex(1, 2),
        "give 0 < convexity <= smoothness",
    ),
}


@pytest.mark.parametrize("mistake", ALGORITHM)
def test_wrong_hyperparameters_are_refused(mistake):
    refused(*ALGORITHM[mistake])


@pytest.mark.parametrize("eta", [lambda t: -1.0, lambda t: 0.0, lambda t: NAN], ids=["negative", "zero", "NaN"])
def test_a_schedule_that_returns_no_step_size_is_refused(eta):
    with pytest.raises(InvalidInput, match=r"step_size\(0\) = .*: a schedule must return positive numbers"):
        fs.run(scenario(algorithm=FALD(step_size=eta)))


# --- The scenario's own fields --------------------------------------------------------------------------

FIELDS = {
    "no problem": (lambda: scenario(problem=None), "problem=None: a problem needs clients"),
    "data for a problem": (lambda: scenario(problem=np.ones((3, 2))), "a problem needs"),
    "a word for an algorithm": (
        lambda: scenario(algorithm="FALD"),
        r"algorithm='FALD': an algorithm needs init\(\)",
    ),
    "a class for an algorithm": (lambda: scenario(algorithm=FALD), "algorithm"),
    "a class for a policy": (lambda: scenario(participation=fs.participation.Full), "participation"),
    "a number for a budget": (lambda: scenario(budget=200), r"budget=200: write fs.Budget\(rounds=200\)"),
    "a number for a policy": (
        lambda: scenario(participation=10),
        r"participation=10: a policy needs select\(\)",
    ),
    "a factory for a policy": (lambda: scenario(participation=fs.participation.full), "a policy needs"),
    "a number for a network": (lambda: scenario(network=5), "network"),
    "a number for devices": (lambda: scenario(devices=5), "devices"),
    "60 of 50 clients": (
        lambda: scenario(participation=fs.participation.uniform(60)),
        r"participation.uniform\(60\): only 50 clients exist; use at most 50",
    ),
    "the first 60 of 50": (lambda: scenario(participation=fs.participation.first(60)), "only 50 clients exist"),
    "probabilities for others": (
        lambda: scenario(participation=fs.participation.bernoulli([0.5] * 3)),
        "3 probabilities for 50 clients",
    ),
    "plain averages of unequal clients": (
        lambda: scenario(UNBALANCED, participation=fs.participation.uniform(2)),
        "biased here because the clients' weights differ; choose weighting='normalised', or with_replacement",
    ),
    "batch sizes for others": (
        lambda: scenario(algorithm=FALD(step_size=1e-4, batch_size=[1, 2, 3])),
        "3 batch sizes for 50 clients",
    ),
    "no replicas": (lambda: scenario(replicas=0), "replicas=0: ask for at least 1"),
    "negative replicas": (lambda: scenario(replicas=-3), "replicas=-3"),
    "half a replica": (lambda: scenario(replicas=2.5), "replicas=2.5: an integer, or a range"),
    "true replicas": (lambda: scenario(replicas=True), "replicas=True"),
    "an empty range of replicas": (lambda: scenario(replicas=range(3, 3)), "ask for at least 1"),
    "replicas before the first": (lambda: scenario(replicas=range(-2, 3)), "numbered from 0"),
    "replicas past the last": (lambda: scenario(replicas=range(2**32, 2**32 + 1)), "replicas"),
    "a word for replicas": (lambda: scenario(replicas="many"), "replicas='many'"),
    "a list of replicas": (lambda: scenario(replicas=[1, 2]), r"replicas=\[1, 2\]"),
    "NaN replicas": (lambda: scenario(replicas=NAN), "replicas=nan"),
    "infinitely many replicas": (lambda: scenario(replicas=INF), "replicas=inf"),
    "None replicas": (lambda: scenario(replicas=None), "replicas=None"),
    "a negative seed": (lambda: scenario(seed=-1), r"seed=-1: an integer from 0 to 2\*\*64 - 1"),
    "a seed of 65 bits": (lambda: scenario(seed=2**64), "seed=18446744073709551616"),
    "a seed of one half": (lambda: scenario(seed=0.5), "seed=0.5"),
    "a word for a seed": (lambda: scenario(seed="lucky"), "seed='lucky'"),
    "None for a seed": (lambda: scenario(seed=None), "seed=None"),
    "half precision": (lambda: scenario(dtype="float16"), "dtype='float16': choose 'float32' or 'float64'"),
    "integers": (lambda: scenario(dtype=int), "dtype"),
    "a start of another dimension": (
        lambda: scenario(initial=[1.0, 2.0, 3.0]),
        r"shape \(3,\); the problem needs \(2,\)",
    ),
    "a start for every replica": (lambda: scenario(initial=np.zeros((5, 2))), r"shape \(5, 2\)"),
    "a NaN start": (lambda: scenario(initial=[0.0, NAN]), "initial holds a NaN or an infinity"),
    "a start too large for single precision": (
        lambda: scenario(initial=[0.0, 1e300], dtype="float32"),
        "initial",
    ),
    "words for a start": (lambda: scenario(initial=["a", "b"]), "initial: not an array of 2 numbers"),
    "a ragged start": (lambda: scenario(initial=[[1.0], [1.0, 2.0]]), "initial"),
    "never evaluating": (lambda: scenario(evaluate_every=0), "evaluate_every=0"),
    "evaluating every half round": (lambda: scenario(evaluate_every=0.5), "evaluate_every=0.5"),
    "a word for an interval": (lambda: scenario(evaluate_every="often"), "evaluate_every"),
    "an unknown reach": (lambda: scenario(broadcast_to="some"), "broadcast_to='some': choose 'selected' or 'all'"),
    "a control point that not all clients received": (
        lambda: scenario(algorithm=fs.algorithms.QLSDPlusPlus(1e-4, refresh_every=3), broadcast_to="selected"),
        "broadcast_to='selected': QLSDPlusPlus does not send zeta, which clients have from earlier .* set broadcast_to='all'",
    ),
    "an unknown metric": (lambda: scenario(metrics=("w3",)), "metric 'w3' is unknown; choose among .*w2"),
    "one metric without a tuple": (
        lambda: scenario(metrics="w2"),
        r"metrics='w2': give a tuple, metrics=\('w2',\)",
    ),
    "one metric object without a tuple": (lambda: scenario(metrics=fs.metrics.w2()), "metrics"),
    "None for metrics": (lambda: scenario(metrics=None), "metrics=None"),
    "a metric that needs arguments": (lambda: scenario(metrics=("mse",)), "needs arguments"),
    "a metric's factory": (lambda: scenario(metrics=(fs.metrics.w2,)), r"call it: fs.metrics.w2\(...\)"),
    "a number for a metric": (lambda: scenario(metrics=(3,)), "3 is not a metric"),
    "a number for a record": (lambda: scenario(record=10), r"record=10: write fs.Record\(every=10"),
    "recording never": (lambda: fs.Record(every=0), r"Record\(every=0\)"),
    "a negative warm-up": (lambda: fs.Record(warmup=-1), r"Record\(warmup=-1\)"),
    "recording every half round": (lambda: fs.Record(every=0.5), r"Record\(every=0.5\)"),
    "a word for a record": (lambda: fs.Record(every="ten"), "every"),
    "a NaN record": (lambda: fs.Record(warmup=NAN), "warmup"),
}


@pytest.mark.parametrize("mistake", FIELDS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_wrong_fields_are_refused(mistake):
    refused(*FIELDS[mistake])


# --- Generalised QLSD, which divides by the chance that a message arrives -------------------------------------


def generalised(activity, policy=None, kind=fs.algorithms.QLSD, problem=UNBALANCED, **more):
    algorithm = kind(1e-4, weighting="inverse", activity=activity)
    return scenario(problem, algorithm, participation=policy or fs.participation.full(), **more)


PART = fs.participation
FLAKY = fs.devices.constant(1e-3, dropout=0.25)
OFTEN_OFF = fs.devices.constant(1e-3, availability=fs.devices.markov(on_s=1.0, off_s=1.0))
WRONG_ACTIVITY = {
    "another number": (0.5, PART.bernoulli(0.4), {}, r"activity=0.5\): client 0's .* probability 0.4 here.*set activity=0.4"),
    "one number for several": (0.4, PART.bernoulli((0.4, 0.4, 0.5)), {}, r"client 2's .* probability 0.5 .*\(0.4, 0.4, \.\.\.\)"),
    "several for one number": ((0.4, 0.3, 0.4), PART.bernoulli(0.4), {}, r"activity=0.3\): client 1's"),
    "full participation": (0.5, PART.full(), {}, r"probability 1 here.*set activity=1, or weighting='count'"),
    "two of three": (0.5, PART.uniform(2), {}, r"probability 0.666667 here"),
    "draws by weight": (2 / 3, PART.with_replacement(2), {}, r"client 0's .* probability 0.265306 here"),
    "dropouts forgotten": (0.4, PART.bernoulli(0.4), {"devices": FLAKY}, r"probability 0.3 here"),
    "more than are asked": (0.9, PART.first(1, of=2), {}, r"probability at most 0.666667"),
    "more than a deadline can hold": (0.9, PART.deadline(1.0, of=2), {}, r"at most 0.666667"),
    "more than are selected of those who are on": (0.9, PART.bernoulli(0.4), {"devices": OFTEN_OFF}, "at most 0.4"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG_ACTIVITY)
def test_an_activity_that_is_surely_wrong_is_refused_with_the_right_one(mistake):
    activity, policy, more, words = WRONG_ACTIVITY[mistake]
    refused(lambda: generalised(activity, policy, **more), words)


def test_all_of_the_family_check_their_activity():
    for kind in (fs.algorithms.QLSDStar, lambda eta, **more: fs.algorithms.QLSDPlusPlus(eta, refresh_every=2, **more)):
        refused(lambda kind=kind: generalised(0.5, PART.bernoulli(0.4), kind), "probability 0.4 here")
        generalised(0.4, PART.bernoulli(0.4), kind)


class Odd:
    def select(self, view, rng):
        return np.arange(2)

    def close(self, view):
        return view.now_s


def test_an_activity_that_is_right_or_cannot_be_checked_is_taken():
    sizes = np.array([5, 10, 20])
    drawn = 1 - (1 - sizes / sizes.sum()) ** 2
    for activity, policy, devices in (
        (0.4, PART.bernoulli(0.4), None),
        ((0.4,) * 3, PART.bernoulli(0.4), None),
        (0.4, PART.bernoulli((0.4,) * 3), None),
        ((0.1, 0.2, 0.3), PART.bernoulli((0.1, 0.2, 0.3)), None),
        (1.0, PART.full(), None),
        (0.75, PART.full(), FLAKY),
        (2 / 3, PART.uniform(2), None),
        (drawn, PART.with_replacement(2), None),
        (0.3, PART.bernoulli(0.4), FLAKY),
        (0.2, PART.bernoulli(0.4), OFTEN_OFF),
        (0.3, PART.first(1, of=2), None),
        (0.9, PART.buffered(2), None),
        (0.9, Odd(), None),
    ):
        assert generalised(activity, policy, devices=devices).participation is policy


def test_a_fixed_control_point_may_be_broadcast_to_the_selected():
    star = fs.algorithms.QLSDStar(1e-4, codec=fs.codecs.QSGD(4))
    result = fs.run(scenario(UNBALANCED, star, participation=PART.uniform(2), broadcast_to="selected"))
    assert result.rounds.downlink_bits.tolist() == [2 * 2 * 64] * 2


# --- Budgets --------------------------------------------------------------------------------------------

BUDGETS = {
    "nothing": (lambda: fs.Budget(), "the run would never stop; give at least rounds="),
    "no rounds": (lambda: fs.Budget(rounds=0), r"Budget\(rounds=0\): must be an integer of at least 1"),
    "negative rounds": (lambda: fs.Budget(rounds=-5), "rounds=-5"),
    "half a round": (lambda: fs.Budget(rounds=2.5), "rounds=2.5"),
    "NaN rounds": (lambda: fs.Budget(rounds=NAN), "rounds=nan"),
    "infinitely many rounds": (lambda: fs.Budget(rounds=INF), "rounds=inf"),
    "a word for rounds": (lambda: fs.Budget(rounds="many"), "rounds=many"),
    "no bits": (lambda: fs.Budget(uplink_bits=0), "uplink_bits=0"),
    "negative bits": (lambda: fs.Budget(total_bits=-1), "total_bits=-1"),
    "infinitely many bits": (lambda: fs.Budget(downlink_bits=INF), "downlink_bits=inf"),
    "NaN seconds": (lambda: fs.Budget(seconds=NAN), "seconds=nan"),
    "a word for seconds": (lambda: fs.Budget(seconds="1h"), "seconds=1h"),
    "no privacy": (lambda: fs.Budget(epsilon=0), "epsilon=0"),
    "a word for a target": (lambda: fs.Budget(rounds=5, target="w2"), r"write fs.Target\('w2', below=1e-3\)"),
    "a target without a level": (lambda: fs.Target("w2"), "exactly one of above= and below="),
    "a target with two levels": (lambda: fs.Target("w2", above=1, below=2), "exactly one"),
    "a NaN target": (lambda: fs.Target("w2", below=NAN), "w2"),
    "an unevaluated target": (
        lambda: scenario(budget=fs.Budget(rounds=5, target=fs.Target("w2", below=1))),
        r"add metrics=\('w2',\)",
    ),
    "seconds alone in an ideal world": (
        lambda: scenario(budget=fs.Budget(seconds=10)),
        "could run for ever: rounds take no time; add rounds=",
    ),
    "a target alone": (
        lambda: scenario(budget=fs.Budget(target=fs.Target("w2", below=1e-9)), metrics=("w2",)),
        "could run for ever",
    ),
    "privacy alone": (lambda: scenario(budget=fs.Budget(epsilon=1.0)), "run for ever|epsilon"),
}


@pytest.mark.parametrize("mistake", BUDGETS)
def test_wrong_budgets_are_refused(mistake):
    refused(*BUDGETS[mistake])


# --- Samples over 1 GB ----------------------------------------------------------------------------------


@pytest.mark.parametrize("warmup", [0, 2_000_000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples_over_a_gigabyte_are_refused_naming_the_record_that_fits(dtype, warmup):
    rounds = 7_000_000

    def build(record):
        return scenario(budget=fs.Budget(rounds=rounds), replicas=30, dtype=dtype, record=record)

    message = refused(lambda: build(fs.Record(warmup=warmup)), r"GB; thin them with record=fs.Record\(.*every=\d+")
    advice = re.search(r"fs\.Record\(([^)]*)\)", message).group(1)
    options = {name.strip(): int(value) for name, value in (part.split("=") for part in advice.split(","))}
    build(fs.Record(**options))
    build(fs.Record(**({"warmup": warmup} | options)))
    refused(lambda: build(fs.Record(**({"warmup": warmup} | options | {"every": options["every"] - 1}))), "GB")


def test_samples_of_exactly_a_gigabyte_are_accepted():
    rounds = 10**9 // (2 * 8)
    assert scenario(budget=fs.Budget(rounds=rounds)).budget.rounds == rounds
    refused(lambda: scenario(budget=fs.Budget(rounds=rounds + 1)), "GB")


# --- Running --------------------------------------------------------------------------------------------

RUNS = {
    "a problem for a scenario": (lambda: fs.run(BALANCED), "pass a fs.Scenario"),
    "a word for timing_only": (
        lambda: fs.run(scenario(), timing_only="later"),
        "timing_only='later': give True or False",
    ),
    "no threads": (lambda: fs.Inline(threads=0), r"Inline\(threads=0\)"),
    "half a thread": (lambda: fs.Inline(threads=1.5), r"Inline\(threads=1.5\)"),
    "a word for threads": (lambda: fs.Inline(threads="all"), "threads"),
    "empty chunks": (lambda: fs.Inline(chunk=0), r"Inline\(chunk=0\)"),
    "an unknown backend": (lambda: fs.Inline(backend="tpu"), "choose 'auto', 'cpu', 'cuda' or 'numpy'"),
    "a word for a runtime": (lambda: fs.run(scenario(), runtime="ray"), "runtime"),
    "a class for a runtime": (lambda: fs.run(scenario(), runtime=fs.Inline), "runtime"),
}


@pytest.mark.parametrize("mistake", RUNS)
def test_wrong_runs_are_refused(mistake):
    refused(*RUNS[mistake])


def test_a_folder_that_exists_is_not_overwritten(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("keep")
    refused(lambda: fs.run(scenario(), out=tmp_path / "taken"), "taken")
    assert (tmp_path / "taken" / "mine.txt").read_text() == "keep"


def test_cuda_without_a_device_is_refused():
    from fedsim.kernels import cuda

    try:
        cuda.require_device()
    except FedsimError:
        refused(lambda: fs.run(scenario(), runtime=fs.Inline(backend="cuda")), "cuda|CUDA|CuPy|GPU")
    else:
        pytest.skip("a CUDA device is here")


LACKING = {
    "a law": ("w2", "exact"),
    "test rows": ("accuracy", "test"),
    "replicas to compare": ("w2", "replicas"),
}


@pytest.mark.parametrize("lacking", LACKING)
def test_a_metric_that_cannot_be_evaluated_is_refused_before_the_first_round(lacking):
    """Not at the first evaluation, which may be hours away."""
    metric, words = LACKING[lacking]
    problem = BALANCED if lacking == "replicas to compare" else BINARY
    rounds_seen = []

    def build_and_run():
        replicas = 1 if lacking == "replicas to compare" else 3
        plan = scenario(problem, metrics=(metric,), evaluate_every=4, budget=fs.Budget(rounds=5), replicas=replicas)
        fs.run(plan, observers=(rounds_seen.append,))

    refused(build_and_run, words)
    assert not rounds_seen


# --- Later failures name their place -------------------------------------------------------------------


def test_a_run_that_diverges_names_client_round_and_a_step_size_that_works():
    with pytest.raises(fs.errors.NonFinite) as caught:
        fs.run(scenario(algorithm=FALD(step_size=1e3, local_steps=30), budget=fs.Budget(rounds=100)))
    found = re.search(
        r"client (\d+) is not finite in round (\d+) \(replica 0, seed 0\); try step_size <= (\S+)$",
        str(caught.value),
    )
    assert found, caught.value
    works = float(found.group(3))
    result = fs.run(scenario(algorithm=FALD(step_size=works, local_steps=30), budget=fs.Budget(rounds=100)))
    assert np.abs(result.samples).max() < 100


def test_an_exception_in_a_clients_code_names_client_round_and_seed():
    class Broken(FALD):
        def client(self, job, message, memory):
            if job.round == 3 and not isinstance(job.weight, float):
                raise KeyError("oops")
            return super().client(job, message, memory)

    algorithm = Broken(step_size=1e-4, batch_size=2)
    with pytest.raises(fs.errors.ClientFailed, match=r"KeyError: 'oops' .*client.* round 3, replica 0, seed 9"):
        fs.run(scenario(algorithm=algorithm, budget=fs.Budget(rounds=5), seed=9))

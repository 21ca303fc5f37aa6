"""Metrics in runs: whose predictions, which samples, and warnings about figures."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest

import fedsim as fs
from fedsim import metrics
from fedsim.errors import InvalidInput, ResultWarning
from fedsim.metrics import diagnostics, distances

algorithms = fs.algorithms
ROUNDS = 12


def classified(seed=3, rows=40):
    """Two classes whose clients disagree, and test rows."""
    rng = np.random.default_rng(seed)
    truth = np.array([2.0, -1.0, 0.5])
    data = []
    for _ in range(4):
        x = rng.normal(size=(30, 3))
        data.append((x, (rng.random(30) < 1 / (1 + np.exp(-x @ truth))).astype(float)))
    x = rng.normal(size=(rows, 3))
    test = (x, (rng.random(rows) < 1 / (1 + np.exp(-x @ truth))).astype(np.int64))
    return fs.problems.LogisticRegression(data, prior_precision=1.0, test=test)


def learnt(algorithm, measures=("accuracy", "nll", "ece", "brier"), **more):
    settings = {
        "budget": fs.Budget(rounds=ROUNDS), "replicas": 2, "seed": 5, "initial": [-3.0, 2.0, 1.0], **more
    }  # fmt: skip
    return fs.run(fs.Scenario(problem=classified(), algorithm=algorithm, metrics=measures, **settings))


def by_hand(p, y):
    """The four scores of probabilities (rows, 2), by their definitions."""
    onehot = np.eye(2)[y]
    sure, right = p.max(axis=1), p.argmax(axis=1) == y
    ece = 0.0
    for m in range(20):
        inside = (sure > m / 20) & (sure <= (m + 1) / 20)
        if inside.any():
            ece += inside.mean() * abs(right[inside].mean() - sure[inside].mean())
    return {
        "accuracy": right.mean(),
        "nll": -np.log((p * onehot).sum(axis=1)).mean(),
        "brier": float(((p - onehot) ** 2).sum(axis=1).mean()),
        "ece": ece,
    }


def logistic(x, theta):
    p = 1 / (1 + np.exp(-x @ theta))
    return np.stack([1 - p, p], axis=1)


def assert_judged(result, average):
    """Every score in every round is that of the current theta, or of the average over samples, worked out by hand."""
    x, y = classified().test
    each = np.stack([[logistic(x, theta) for theta in row] for row in result.samples])  # (rounds, R, rows, 2)
    for row in result.rounds.itertuples():
        upto = each[: row.round, row.replica]
        expected = by_hand(upto.mean(axis=0) if average else upto[-1], y)
        for name, value in expected.items():
            assert getattr(row, name) == pytest.approx(value, abs=1e-9), (name, row.round)


OPTIMISERS = {
    "FedAvg": algorithms.FedAvg(0.5, local_steps=3),
    "FedPAQ": algorithms.FedPAQ(0.5, local_steps=3),
    "PrivateFedPAQ": algorithms.PrivateFedPAQ(0.5, local_steps=2, batch_size=5, clip=1.0, epsilon=50.0, delta=1e-4),
    "Scaffold": algorithms.Scaffold(0.5, local_steps=3),
}
SAMPLERS = {
    "FALD": algorithms.FALD(2e-3, local_steps=3),
    "QLSD": algorithms.QLSD(2e-3),
    "QLSDPlusPlus": algorithms.QLSDPlusPlus(2e-3, refresh_every=4),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_is_judged_by_its_current_theta(name):
    assert_judged(learnt(OPTIMISERS[name]), average=False)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_is_judged_by_the_average_over_its_samples(name):
    assert_judged(learnt(SAMPLERS[name]), average=True)


def test_every_algorithm_declares_whether_it_samples():
    said = {name: vars(getattr(algorithms, name)).get("sampler") for name in algorithms.__all__}
    said.pop("distributed_sgd")  # makes a FedAvg
    said = {name: bool(says) for name, says in said.items()}
    samplers = {
        "PSGLD", "DGSGLD", "FSGLD", "FALD", "FAHMC", "QLSD", "QLSDStar", "QLSDPlusPlus", "SGLD", "HMC", "MALA", "DESGLD",
        "DIGingSGLD",
    }  # fmt: skip
    assert said == {name: name in samplers for name in said}


@pytest.mark.parametrize("of", ["current", "average"])
@pytest.mark.parametrize("name", ["FedAvg", "FALD"])
def test_the_choice_can_be_overruled(name, of):
    result = learnt((OPTIMISERS | SAMPLERS)[name], (metrics.predictive(of=of),))
    assert_judged(result, average=of == "average")


def test_without_temperature_a_sampler_descends_and_is_judged_so():
    assert_judged(learnt(algorithms.FALD(2e-3, local_steps=3, temperature=0.0)), average=False)


@dataclass(frozen=True)
class Own:
    """A user's algorithm without a declaration."""

    def init(self, problem, initial):
        return {"theta": initial}

    def broadcast(self, state):
        return state

    def work(self, job):
        return 1

    def client(self, job, message, memory):
        return {"delta": -0.02 * job.gradient(message["theta"], 0)}, memory

    def server(self, state, replies, rng):
        return {"theta": state["theta"] + replies.mean("delta")}


class OwnSampler(Own):
    sampler = True


@pytest.mark.parametrize("algorithm, average", [(Own(), False), (OwnSampler(), True)])
def test_an_algorithm_without_a_declaration_is_an_optimiser(algorithm, average):
    assert_judged(learnt(algorithm), average)


def test_a_target_stops_at_the_current_thetas_level():
    scenario = fs.Scenario(
        problem=classified(), algorithm=OPTIMISERS["FedAvg"], metrics=("accuracy",), initial=[-3.0, 2.0, 1.0],
        budget=fs.Budget(rounds=40, target=fs.Target("accuracy", above=0.75)),
    )  # fmt: skip
    result = fs.run(scenario)
    x, y = classified().test
    reached = [(logistic(x, t[0]).argmax(axis=1) == y).mean() >= 0.75 for t in result.samples]
    assert result.stopped_by == ("target",)
    assert reached == [False] * (len(reached) - 1) + [True]


def test_thinned_samples_leave_the_current_theta_current():
    result = learnt(OPTIMISERS["FedAvg"], record=fs.Record(every=5))
    complete = learnt(OPTIMISERS["FedAvg"])
    assert result.rounds["nll"].tolist() == complete.rounds["nll"].tolist()


@pytest.mark.parametrize("name, text", [("FedAvg", "the current theta"), ("FALD", "the average over recorded samples")])
def test_manifest_and_summary_name_the_source(name, text):
    result = learnt((OPTIMISERS | SAMPLERS)[name], ("accuracy", "nll"))
    assert result.manifest["judged"] == {"accuracy": text, "nll": text}
    assert f"  accuracy, nll: of {text}" in result.summary().splitlines()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: metrics.predictive("recall"), "'recall'.*choose among accuracy"),
        (lambda: metrics.predictive(of="mean"), "of='mean'.*'current' or 'average'"),
        (lambda: metrics.w2(over="rounds"), "'replicas' or 'history'"),
        (lambda: metrics.ess_per_megabit("bits"), "uplink_bits"),
        (lambda: learnt(OPTIMISERS["FedAvg"], ("accepted",)), "'accepted'.*MALA or HMC"),
        (lambda: gaussian(1, (metrics.w2(), metrics.w2(over="history"))), "two metrics fill the column 'w2'"),
        (lambda: fs.run(gaussian(1, ("w2",))), r"replicas >= 2.*w2\(over='history'\)"),
    ],
)
def test_what_cannot_be_judged_is_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


# --- Distances over the history ----------------------------------------------------------------------------

COVARIANCE = np.array([[2.0, 0.6], [0.6, 1.0]])


def gaussian(replicas, measures, rounds=400, algorithm=None, **more):
    problem = fs.problems.GaussianMean.synthetic(3, dim=2, samples=10, seed=4, covariance=COVARIANCE)
    if algorithm is None:
        problem, algorithm = fs.problems.pooled(problem), algorithms.HMC(0.05, leapfrog_steps=8)
    return fs.Scenario(
        problem=problem, algorithm=algorithm, budget=fs.Budget(rounds=rounds), replicas=replicas, metrics=measures,
        evaluate_every=rounds, seed=2, **more,
    )  # fmt: skip


HISTORY = tuple(make(over="history") for make in (metrics.w2, metrics.mean_error, metrics.covariance_error))


@pytest.mark.parametrize("replicas", [1, 3])
def test_the_history_of_few_chains_is_compared_with_the_exact_law(replicas):
    scenario = gaussian(replicas, HISTORY, record=fs.Record(warmup=20, every=2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)
        result = fs.run(scenario)
    pooled = result.samples.reshape(-1, 2)
    assert len(pooled) == 190 * replicas
    mean, covariance = scenario.problem.exact()
    found = result.metrics.iloc[-1]
    sample = np.cov(pooled.T)
    assert found.w2 == pytest.approx(metrics.gaussian_w2(pooled.mean(axis=0), sample, mean, covariance), rel=1e-9)
    assert found.mean_error == pytest.approx(np.linalg.norm(pooled.mean(axis=0) - mean), rel=1e-9)
    gap = np.linalg.norm(sample - covariance) / np.linalg.norm(covariance)
    assert found.covariance_error == pytest.approx(gap, rel=1e-9)
    assert result.manifest["judged"]["w2"] == "all recorded samples"


def test_both_laws_fit_into_one_run_under_two_names():
    both = (metrics.w2(), metrics.w2(over="history", name="w2_history"))
    result = fs.run(gaussian(8, both, rounds=30, algorithm=algorithms.FALD(1e-3), initial=[9.0, 9.0]))
    assert {"w2", "w2_history"} <= set(result.metrics.columns)
    assert result.manifest["judged"] == {"w2": "the current replicas", "w2_history": "all recorded samples"}


def test_floors_are_what_perfect_samples_show():
    rng = np.random.default_rng(1)
    draws = rng.multivariate_normal(np.zeros(2), COVARIANCE, size=(4000, 25))
    means = np.linalg.norm(draws.mean(axis=1), axis=1)
    assert np.sqrt((means**2).mean()) == pytest.approx(distances.mean_floor(COVARIANCE, 25), rel=0.03)
    gaps = np.array([np.linalg.norm(np.cov(d.T) - COVARIANCE) for d in draws]) / np.linalg.norm(COVARIANCE)
    assert np.sqrt((gaps**2).mean()) == pytest.approx(distances.covariance_floor(COVARIANCE, 25), rel=0.03)


def test_a_figure_that_perfect_samples_would_show_too_is_doubted_aloud():
    with pytest.warns(ResultWarning, match=r"w2 0\.\d+ is mostly noise: 20 perfect samples would give 0\.\d+"):
        result = fs.run(replace(gaussian(20, ("w2",), rounds=60), seed=7))
    (doubt,) = result.manifest["warnings"]
    assert f"warning: {doubt}" in result.summary(400).splitlines()


def test_a_history_counts_its_effective_samples():
    scenario = gaussian(2, HISTORY[:1], record=fs.Record(warmup=20))
    with pytest.warns(ResultWarning, match="the effective size of the history"):
        result = fs.run(scenario)
    worth = diagnostics.ess(result.samples).min()
    floor = metrics.w2_floor(scenario.problem.exact()[1], worth)
    assert (
        f"{worth:.0f} perfect samples, the effective size of the history, would give" in result.manifest["warnings"][0]
    )
    assert f"would give {floor:.3g}" in result.manifest["warnings"][0]


def test_a_figure_far_above_the_floor_is_not_doubted():
    measures = ("w2", "mean_error")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResultWarning)
        result = fs.run(gaussian(20, measures, rounds=3, algorithm=algorithms.FALD(1e-3), initial=[50.0, 50.0]))
    assert result.manifest["warnings"] == []


# --- What draws are worth, and what was accepted -----------------------------------------------------------


def test_ess_per_megabit_and_per_second_divide_what_arviz_finds_by_what_was_spent():
    arviz = pytest.importorskip("arviz")
    total = metrics.ess_per_megabit("total_bits", name="ess_per_megabit_both_ways")
    scenario = gaussian(
        3, ("ess", "ess_per_megabit", "ess_per_second", total), rounds=200, algorithm=algorithms.FALD(5e-3, local_steps=5),
        network=fs.topologies.star(3, uplink_bps=1e3, downlink_bps=1e4, latency_s=0.1), record=fs.Record(warmup=50),
    )  # fmt: skip
    result = fs.run(scenario)
    ess = min(float(arviz.ess(np.ascontiguousarray(result.samples[:, :, j].T), method="bulk")) for j in range(2))
    up, down = result.rounds["uplink_bits"].sum(), result.rounds["downlink_bits"].sum()
    seconds = result.rounds.groupby("replica")["closed_s"].max().sum()
    assert (up, down) == (3 * 200 * 3 * 128, 3 * 200 * 3 * 128)
    found = result.metrics.iloc[-1]
    assert found.ess == pytest.approx(ess, rel=1e-8)
    assert found.ess_per_megabit == pytest.approx(ess / (up / 1e6), rel=1e-8)
    assert found.ess_per_megabit_both_ways == pytest.approx(ess / ((up + down) / 1e6), rel=1e-8)
    assert found.ess_per_second == pytest.approx(ess / seconds, rel=1e-8)


def test_over_gossip_ess_per_megabit_counts_the_bits_between_sites():
    import networkx as nx

    algorithm = algorithms.DESGLD(2e-3)
    result = fs.run(
        gaussian(3, ("ess", "ess_per_megabit"), 50, algorithm, exchange=fs.exchanges.gossip(nx.cycle_graph(3)))
    )
    sent = result.rounds["backhaul_bits"].sum()
    assert (result.rounds["uplink_bits"].sum(), sent) == (0, 3 * 50 * 6 * 128)  # replicas, rounds, messages, bits
    found = result.metrics.iloc[-1]
    assert found.ess_per_megabit == pytest.approx(found.ess / (sent / 1e6), rel=1e-12)
    row = fs.analysis.ess_rates(result).frame.iloc[0]
    assert row["ess_per_megabit"] == pytest.approx(row["ess"] / (sent / 1e6), rel=1e-12)


# --- Why a figure is not there, and when it is not to be trusted --------------------------------------------

APART = [[0.0, 0.0], [3.0, -3.0]]


def warned(scenario):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)
        result = fs.run(scenario)
    for text in result.manifest["warnings"]:
        assert f"warning: {text}" in result.summary(1000).splitlines()
    return result.manifest["warnings"]


@pytest.mark.parametrize("name", ["rhat", "ess", "ess_tail"])
def test_too_few_samples_are_named_where_a_figure_of_chains_is_missing(name):
    (text,) = warned(gaussian(2, (name,), rounds=3, initial=APART))
    assert text.startswith(f"{name} is not defined: 3 samples of each replica were recorded; it needs 4")


@pytest.mark.parametrize("name", ["rhat", "ess", "ess_tail"])
def test_chains_that_never_moved_are_named_where_a_figure_is_missing_or_infinite(name):
    (text,) = warned(replace(gaussian(2, (name,), rounds=20, initial=APART), algorithm=algorithms.MALA(1e6)))
    assert text == f"{name}: 2 of 2 chains never moved; 0 % of their proposals were accepted, lower step_size"


def test_a_covariance_error_of_too_few_samples_or_of_a_point_mass_has_its_reason():
    one = metrics.covariance_error(over="history")
    (text,) = warned(gaussian(1, (one,), rounds=1))
    assert text.startswith(
        "covariance_error is not defined: it needs 2 recorded samples, and there are 1; run more rounds"
    )
    cold = algorithms.FALD(1e-3, temperature=0.0)
    (text,) = warned(gaussian(3, ("covariance_error",), 5, cold))
    assert text.startswith("covariance_error is not defined: the exact covariance is zero")


def test_chains_that_have_not_mixed_and_few_effective_samples_are_doubted():
    slow = algorithms.FALD(1e-4)
    rhat, ess, tail = warned(gaussian(2, ("rhat", "ess", "ess_tail"), 40, slow, initial=APART))
    assert rhat.endswith("is above 1.01: the chains differ in location or scale; run longer")
    assert ess.endswith("is below 400: estimates from these samples are rough; run longer")
    assert tail.startswith("ess_tail ")


def test_a_common_start_is_doubted_and_starts_of_their_own_are_not():
    together = warned(gaussian(4, ("rhat",), rounds=1000))
    apart = warned(gaussian(4, ("rhat",), rounds=1000, initial=fs.initial.normal(1.0)))
    assert together == [
        "rhat: all 4 replicas began at the same point, so that R-hat is small before they have mixed; "
        "set initial=fs.initial.normal(scale)"
    ]
    assert apart == []


def test_without_a_clock_there_is_no_ess_per_second_but_a_warning():
    with pytest.warns(ResultWarning, match="ess_per_second is not defined: seconds are 0"):
        result = fs.run(gaussian(2, ("ess_per_second",), rounds=20))
    assert result.metrics["ess_per_second"].isna().all()


@pytest.mark.parametrize("algorithm", [algorithms.MALA(1e6), algorithms.HMC(1e6, leapfrog_steps=2)])
def test_chains_that_never_moved_have_no_ess_and_a_warning_names_the_acceptance_rate(algorithm):
    with pytest.warns(
        ResultWarning, match=r"ess: 2 of 2 chains never moved; 0 % of their proposals were accepted, lower"
    ):
        result = fs.run(replace(gaussian(2, ("ess", "accepted"), rounds=20), algorithm=algorithm))
    assert result.metrics["ess"].isna().all()
    assert result.rounds["accepted"].dropna().tolist() == [0.0, 0.0]


def test_one_frozen_chain_among_others_is_named():
    scenario = gaussian(2, ("ess",), rounds=40, algorithm=algorithms.MALA(0.02))
    starts = [[0.0, 0.0], [1e200, 0.0]]  # so far out that no proposal is ever accepted
    scenario = replace(scenario, problem=fs.problems.pooled(scenario.problem), initial=starts)
    with pytest.warns(ResultWarning, match="ess: 1 of 2 chains never moved; 0 % of"):
        fs.run(scenario)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("algorithm", [algorithms.MALA(0.06), algorithms.HMC(0.3, leapfrog_steps=3)])
def test_accepted_is_the_share_of_samples_that_moved(algorithm, dtype):
    scenario = gaussian(3, ("accepted",), rounds=50)
    result = fs.run(replace(scenario, algorithm=algorithm, dtype=dtype, evaluate_every=1))
    starts = np.zeros((1, 3, 2))
    moved = (np.diff(np.concatenate([starts, result.samples]), axis=0) != 0).any(axis=2)  # (rounds, R)
    so_far = np.cumsum(moved, axis=0) / np.arange(1, 51)[:, None]
    found = result.rounds.pivot_table(index="round", columns="replica", values="accepted").to_numpy()
    assert 0.05 < so_far[-1].mean() < 0.95
    np.testing.assert_allclose(found, so_far, atol=1e-5)


def test_several_iterations_a_round_count_each():
    one, five = (
        fs.run(replace(gaussian(200, ("accepted",), rounds=r), algorithm=algorithms.MALA(0.06, local_steps=k)))
        for r, k in ((50, 1), (10, 5))
    )
    shares = [r.rounds["accepted"].dropna().mean() for r in (one, five)]
    assert shares[0] == pytest.approx(shares[1], abs=0.02)

"""Functions of fs.analysis return tables and figures, checked against results with answers known by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import fedsim as fs
from fedsim import analysis
from fedsim.analysis import intervals
from fedsim.analysis.targets import goal_of
from fedsim.analysis.tradeoffs import pareto_optimal
from fedsim.errors import CorruptData, InvalidInput, NotRecorded
from fedsim.results import Result

ROUNDS = 10


def made(off, *, seed=0, w2=None, samples=None, **settings) -> Result:
    """A result whose metric `off` of replica r in round t is off[r][t-1]; a round takes 2 s, 100 bits up, 50 down."""
    off = np.asarray(off, float)
    replicas, rounds = off.shape
    at = np.tile(np.arange(1, rounds + 1), replicas)
    constant = {
        "selected": 4,
        "arrived": 3,
        "dropped": 1,
        "late": 0,
        "uplink_bits": 100,
        "downlink_bits": 50,
        "wasted_bits": 25,
        "dropped_bits": 10,
    }
    table = pd.DataFrame(
        {
            "replica": np.repeat(np.arange(replicas), rounds),
            "round": at,
            "opened_s": 2.0 * (at - 1),
            "closed_s": 2.0 * at,
        }
        | {name: np.full(len(at), value) for name, value in constant.items()}
        | {"wasted_s": 0.5, "late_s": 0.3, "dropped_s": 0.2, "called_off_s": 0.0, "off": off.reshape(-1)}
    )
    step = np.arange(1, rounds + 1)
    metrics = pd.DataFrame(
        {"round": step, "seconds": 2.0 * step, "uplink_bits": 100.0 * step, "downlink_bits": 50.0 * step}
    )
    if w2 is not None:
        metrics["w2"] = w2
    clients = pd.DataFrame(
        {
            "client": [0, 1],
            "selected": [20, 20],
            "arrived": [15, 5],
            "late": 0,
            "dropped": [5, 15],
            "last_round": [10, 9],
            "staleness": 0.0,
            "wasted_s": [1.0, 4.0],
        }
    )
    manifest = {
        "scenario": {"seed": seed, "algorithm": {"type": "FALD", "local_steps": settings.get("local_steps", 7)}},
        "source": {"settings": settings | {"seed": seed}},
    }
    count = 0 if samples is None else len(samples)
    return Result(
        samples, np.arange(1, count + 1), np.full(replicas, count), ("rounds",) * replicas, table, metrics, clients, None, manifest
    )  # fmt: skip


def falling(*first_below: int, level=0.5) -> list[list[float]]:
    """A replica for each: at 1 until the round in which it falls to the level (0: never)."""
    return [[level if n and t >= n else 1.0 for t in range(1, ROUNDS + 1)] for n in first_below]


def test_goals_are_read_from_words():
    assert goal_of("accuracy >= .83") == fs.Target("accuracy", above=0.83)
    assert goal_of("w2<1e-3") == fs.Target("w2", below=1e-3)
    for text in ("accuracy", "accuracy = 3", "w2 < soon", "w2 < nan", 3):
        with pytest.raises(InvalidInput, match=r"goal=.*write a metric, >= or <="):
            goal_of(text)


def test_time_and_bits_to_a_level_are_those_of_its_first_round_and_infinite_if_never():
    frame, figure = analysis.time_to(made(falling(3, 0)), "off", below=0.5)
    assert frame["reached"].tolist() == [True, False]
    assert frame["seconds"].tolist() == [6.0, np.inf]
    assert frame["total_bits"].tolist() == [450.0, np.inf]
    assert isinstance(figure, Figure)
    by_bits = analysis.bits_to({"a": made(falling(3)), "b": made(falling(5))}, "off", below=0.5).frame
    assert dict(zip(by_bits["run"], by_bits["uplink_bits"], strict=True)) == {"a": 300.0, "b": 500.0}
    with pytest.raises(InvalidInput, match="bits='seconds'"):
        analysis.bits_to(made(falling(3)), "off", below=0.5, bits="seconds")
    with pytest.raises(NotRecorded, match="'accuracy' was not evaluated"):
        analysis.time_to(made(falling(3)), "accuracy", above=0.5)


def test_a_metric_over_replicas_is_one_trial_a_run():
    result = made(falling(3, 0), w2=np.linspace(1, 0.1, ROUNDS))
    frame = analysis.time_to(result, "w2", below=0.55).frame
    assert frame["replica"].tolist() == [-1]
    assert frame["rounds"].tolist() == [6.0]
    assert frame["seconds"].iloc[0] == result.time_to("w2", below=0.55)


def test_folders_studies_and_mappings_give_the_same_table(tmp_path: Path):
    results = [made(falling(2 + k), local_steps=k) for k in (1, 2)]
    (tmp_path / "sweep").mkdir()
    for k, result in enumerate(results):
        result.save(tmp_path / "sweep" / str(k))
    study = fs.Study("s", tuple(({"local_steps": k}, r) for k, r in zip((1, 2), results, strict=True)))
    tables = [analysis.time_to(given, "off", below=0.5).frame for given in (tmp_path / "sweep", study, results)]
    for table in tables:
        assert table["run"].tolist() == ["local_steps=1", "local_steps=2"]
        assert table["rounds"].tolist() == [3.0, 4.0]
    with pytest.raises(CorruptData, match=r"manifest\.json is missing"):
        analysis.time_to(tmp_path, "off", below=0.5)
    with pytest.raises(InvalidInput, match="give a result, a folder, a study"):
        analysis.time_to(3, "off", below=0.5)


def test_the_level_at_a_budget_is_the_last_one_inside_it():
    frame = analysis.at_budget(made([np.linspace(1, 0.1, ROUNDS)]), "off", seconds=7.0).frame
    assert frame["off"].tolist() == pytest.approx([0.8])  # three rounds of 2 s
    assert analysis.at_budget(made(falling(1)), "off", seconds=1.0).frame["off"].isna().all()
    both = analysis.at_budget(made([np.linspace(1, 0.1, ROUNDS)]), "off", seconds=7.0, uplink_bits=100).frame
    assert both["off"].tolist() == [1.0]
    with pytest.raises(InvalidInput, match="at least one limit"):
        analysis.at_budget(made(falling(1)), "off")


def test_a_deadline_is_met_with_a_probability_and_wilsons_interval():
    frame = analysis.meets_deadline([made(falling(*[3] * 19, 0))], "off", 0.5, 6.0).frame
    row = frame.iloc[0]
    assert (row["met"], row["trials"], row["probability"]) == (19, 20, 0.95)
    assert (row["low"], row["high"]) == pytest.approx((0.7639, 0.9911), abs=1e-4)
    assert analysis.meets_deadline(made(falling(4)), "off", 0.5, 6.0).frame["met"].tolist() == [0]


def test_the_front_has_the_pareto_optimal_settings():
    points = np.array([[1, 5], [2, 3], [3, 3], [4, 1], [4, 4], [np.nan, 0]], float)
    assert pareto_optimal(points).tolist() == [True, True, False, True, False, False]
    slow, quick = made(falling(1, level=0.1)), made([r[:4] for r in falling(1, level=0.3)])
    dominated = made(falling(1, level=0.4))
    frame = analysis.pareto({"slow": slow, "quick": quick, "dominated": dominated}, "off").frame
    assert dict(zip(frame["run"], frame["front"], strict=True)) == {"slow": True, "quick": True, "dominated": False}
    turned = analysis.pareto({"slow": slow, "quick": quick, "dominated": dominated}, "off", higher_is_better=True).frame
    assert turned.loc[turned["run"] == "dominated", "front"].all()
    with pytest.raises(NotRecorded, match="did not record epsilon"):
        analysis.pareto(slow, "off", among=("epsilon",))
    with pytest.raises(InvalidInput, match="choose from"):
        analysis.pareto(slow, "off", among=("money",))


def test_seeds_of_a_setting_are_pooled_in_the_front():
    runs = [made(falling(1, level=x), seed=s, local_steps=k) for k in (1, 2) for s, x in enumerate((0.1, 0.2, 0.4))]
    frame = analysis.pareto(runs, "off").frame
    assert frame["seeds"].tolist() == [3, 3]
    assert frame["off"].tolist() == [0.2, 0.2]
    assert frame["local_steps"].tolist() == [1, 2]


def test_effective_samples_are_counted_per_megabit_and_second_of_all_replicas():
    draws = np.random.default_rng(0).normal(size=(500, 2, 1))
    result = made(np.ones((2, ROUNDS)), samples=draws)
    row = analysis.ess_rates(result).frame.iloc[0]
    assert 700 < row["ess"] < 1400  # 1000 independent draws
    assert row["ess_per_megabit"] == pytest.approx(row["ess"] / 0.002)  # two replicas, ten rounds of 100 bits
    assert row["ess_per_second"] == pytest.approx(row["ess"] / 40)
    with pytest.raises(NotRecorded, match="recorded 0 samples"):
        analysis.ess_rates(made(falling(1)))


def test_waste_is_reported_by_cause_in_device_seconds_per_replica():
    frame = analysis.waste(made(falling(1, 1))).frame.set_index("cause")
    assert frame["device_s"].to_dict() == pytest.approx({"late": 3.0, "dropped": 2.0, "called off": 0.0})
    assert frame["share"].sum() == pytest.approx(1.0)
    assert frame["bits"].to_dict() == {"late": 150.0, "dropped": 100.0, "called off": 0.0}


def test_wasted_bits_by_cause_are_those_of_the_visits_and_add_up_to_the_total():
    """Upload dropouts and replies that are late in the same rounds, over a star and over gossip."""
    import networkx as nx

    devices = fs.devices.lognormal(0.05, sigma=1.0, dropout={"upload": 0.3})
    for more in ({"participation": fs.participation.first(2)}, {"exchange": fs.exchanges.gossip(nx.cycle_graph(5))}):
        scenario = fs.Scenario(
            problem=fs.problems.GaussianMean.synthetic(5, dim=3, samples=4, seed=1),
            algorithm=fs.algorithms.FALD(1e-3), budget=fs.Budget(rounds=20), replicas=3, seed=4, devices=devices,
            network=fs.topologies.star(5, uplink_bps=1e3, downlink_bps=1e4), record=fs.Record(events=True), **more,
        )  # fmt: skip
        result = fs.run(scenario)
        bits = analysis.waste(result).frame.set_index("cause")["bits"]
        assert bits.sum() == pytest.approx(result.rounds["wasted_bits"].sum() / 3, rel=1e-12)
        assert bits["dropped"] > 0
        if "participation" in more:
            visits = analysis.timeline.visits(result)
            by_visit = visits.groupby("outcome")["bits"].sum() / 3
            assert bits["late"] > 0
            assert bits["late"] + bits["called off"] == pytest.approx(by_visit["late"], rel=1e-12)
            assert (
                bits["called off"] == visits.loc[visits["compute"].isna() & (visits["outcome"] == "late"), "bits"].sum()
            )
            assert bits["dropped"] == pytest.approx(by_visit["drop"], rel=1e-12)


def test_fairness_has_jains_index():
    frame = analysis.fairness(made(falling(1))).frame
    assert frame["share"].tolist() == [0.75, 0.25]
    assert frame.attrs["jain"]["run"] == pytest.approx(400 / (2 * 250))


def test_jains_index_is_of_a_replica_and_not_of_the_sum_over_replicas():
    """Two of ten clients in one round: the index of each replica is 2/10, however the sum over replicas looks."""
    scenario = fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(10, dim=1, samples=4), algorithm=fs.algorithms.FedAvg(1e-2),
        participation=fs.participation.uniform(2), budget=fs.Budget(rounds=1), replicas=40,
        record=fs.Record(events=True),
    )  # fmt: skip
    result = fs.run(scenario)
    assert analysis.fairness(result).frame.attrs["jain"] == {"run": pytest.approx(0.2)}
    unknown = fs.run(dataclasses.replace(scenario, record=fs.Record()))
    assert np.isnan(analysis.fairness(unknown).frame.attrs["jain"]["run"])
    seeds = [fs.run(dataclasses.replace(scenario, replicas=1, seed=s, record=fs.Record())) for s in range(6)]
    assert analysis.fairness(seeds).frame.attrs["jain"] == {"run": pytest.approx(0.2)}


def test_the_u_curve_finds_the_optimum_with_intervals():
    rounds = {1: (9, 10, 8, 9, 9), 4: (3, 4, 3, 3, 4), 16: (7, 0, 8, 8, 8)}
    runs = [made(falling(*when), local_steps=k) for k, when in rounds.items()]
    frame = analysis.u_curve(runs, "off", below=0.5).frame
    assert frame["local_steps"].tolist() == [1, 4, 16]
    assert frame["rounds"].tolist() == [9.0, 3.0, 8.0]
    assert frame["never"].tolist() == [0, 0, 1]
    assert frame["best"].tolist() == [0.0, 1.0, 0.0]
    assert (frame["low"] <= frame["rounds"]).all()
    assert (frame["rounds"] <= frame["high"]).all()
    assert frame.attrs["optimum"] == frame.attrs["optimum_low"] == frame.attrs["optimum_high"] == 4
    assert frame.attrs["saving"] == pytest.approx(2 / 3)
    assert frame.attrs["saving_low"] <= 2 / 3 <= frame.attrs["saving_high"]
    with pytest.raises(InvalidInput, match="all runs have local_steps=1"):
        analysis.u_curve(runs[0], "off", below=0.5)
    with pytest.raises(NotRecorded, match="has no magic"):
        analysis.u_curve(runs, "off", below=0.5, parameter="magic")


def test_two_seeds_have_values_and_no_interval(tmp_path):
    runs = [made(falling(*when), local_steps=k) for k, when in {1: (9, 10), 4: (3, 4)}.items()]
    answer = analysis.u_curve(runs, "off", below=0.5)
    frame = answer.frame
    assert frame["rounds"].tolist() == [9.5, 3.5]
    assert frame[["low", "high", "best"]].isna().all(axis=None)
    assert frame.attrs["optimum"] == 4
    assert np.isnan([frame.attrs[n] for n in ("optimum_low", "optimum_high", "saving_low", "saving_high")]).all()
    answer.figure.savefig(tmp_path / "u.png")
    paired = analysis.compare(made(falling(3, 4)), made(falling(5, 6)), "off", below=0.5)
    assert np.isnan([paired.frame.attrs["low"], paired.frame.attrs["high"]]).all()
    assert "2 pairs: no interval" in paired.figure.axes[0].get_title(loc="left")


def test_intervals_begin_at_five_values():
    for interval in (intervals.median_interval, intervals.mean_interval):
        assert np.isnan(interval([1.0, 2.0, 3.0, 4.0])[1:]).all()
        assert np.isfinite(interval([1.0, 2.0, 3.0, 4.0, 5.0])).all()


def test_a_comparison_is_paired_by_seed_and_replica():
    noise = np.random.default_rng(1).normal(0, 10, 8)
    a = [made([[x] * ROUNDS], seed=s) for s, x in enumerate(noise)]
    b = [made([[x + 1 + 0.01 * s] * ROUNDS], seed=s) for s, x in enumerate(noise)][::-1]
    frame = analysis.compare(a, b, "off").frame
    assert frame["difference"].tolist() == pytest.approx([1 + 0.01 * s for s in range(8)])
    attrs = frame.attrs
    assert attrs["statistic"] == "mean"
    assert attrs["difference"] == pytest.approx(1.035)
    assert 1.01 < attrs["low"] < attrs["high"] < 1.06  # unpaired it would drown in noise of sd 10
    assert (attrs["pairs"], attrs["unpaired"]) == (8, 0)
    assert analysis.compare(a[:5], b, "off").frame.attrs["unpaired"] == 3
    with pytest.raises(InvalidInput, match="no seed and replica is on both sides"):
        analysis.compare(a[:2], [made([[1.0] * ROUNDS], seed=99)], "off")
    with pytest.raises(InvalidInput, match="several runs of the same seed"):
        analysis.compare([a[0], a[0]], b, "off")


def test_a_comparison_of_costs_allows_for_trials_that_never_reach_the_level():
    a, b = made(falling(3, 4, 5, 3, 4)), made(falling(5, 6, 0, 5, 6))
    attrs = analysis.compare(a, b, "off", below=0.5, against="rounds").frame.attrs
    assert attrs["statistic"] == "median"
    assert attrs["difference"] == 2.0
    assert attrs["high"] == np.inf
    same = analysis.compare(made(falling(0, 0)), made(falling(0, 0)), "off", below=0.5).frame
    assert same["difference"].tolist() == [0.0, 0.0]


def test_bootstrap_intervals_have_their_nominal_coverage():
    draws = np.random.default_rng(3).exponential(size=(200, 30))
    covered = sum(low <= np.log(2) <= high for _, low, high in map(intervals.median_interval, draws))
    assert 178 <= covered <= 200  # 95 % nominal; z = -3.9 at 178
    many = np.random.default_rng(4).exponential(size=(100, 401))
    covered = sum(low <= np.log(2) <= high for _, low, high in map(intervals.median_interval, many))
    assert 86 <= covered <= 100
    assert intervals.median_interval([2.0])[0] == 2.0
    assert intervals.median_interval([1.0, np.inf, np.inf])[0] == np.inf
    assert intervals.mean_interval([1.0, 2.0, 3.0])[0] == 2.0


def test_costs_are_not_metrics():
    result = made(falling(1))
    assert result.per_replica == ("off",)
    assert dataclasses.replace(result, rounds=result.rounds.assign(brier=1.0)).per_replica == ("off", "brier")
    assert "late_s" not in result.summary()


def test_an_answer_shows_its_table_in_a_notebook():
    assert "<table" in analysis.waste(made(falling(1)))._repr_html_()

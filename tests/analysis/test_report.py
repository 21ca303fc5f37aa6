"""The pages of `fedsim report` about runs, comparisons, sweeps and claims; their text is escaped."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from strategies.reported import small

import fedsim as fs
from fedsim import text
from fedsim.analysis import report, tradeoffs
from fedsim.analysis.report import charts, comparisons, html
from fedsim.cli.app import call


@pytest.fixture(scope="module")
def run():
    return fs.run(small())


@pytest.fixture(scope="module")
def other():
    return fs.run(small(fs.participation.first(2)))


def specs(page: str) -> list[dict]:
    return [json.loads(found) for found in re.findall(r'class="spec">(.*?)</script>', page)]


def test_the_page_of_a_run_has_every_section_and_plots_that_plotly_accepts(run):
    go = pytest.importorskip("plotly.graph_objects")
    page = report.run_page("one", run)
    titles = re.findall(r"<h2 id=\"[^\"]*\">(.*?)</h2>", page)
    assert titles == [
        "Scenario",
        "Metrics against cost",
        "Timeline",
        "Network",
        "Clients",
        "Samples",
        "Details",
    ]
    assert re.search(r"of virtual time and [^<]* sent: mean_error", page)
    found = specs(page)
    assert len(found) == 7
    for spec in found:
        figure = go.Figure(spec)  # refuses what plotly does not know
        assert all(len(trace["x"]) for trace in figure.data)


def test_a_curve_is_the_result_s_own_against_each_of_the_axes(run):
    (spec, *_) = specs(report.run_page("one", run))
    curve = run.curve("mean_error", "seconds")
    (line,) = spec["data"]
    np.testing.assert_allclose(line["y"], curve["mean_error"])
    np.testing.assert_allclose(line["x"], curve["seconds"])
    buttons = {b["label"]: b["args"] for b in spec["layout"]["updatemenus"][0]["buttons"]}
    assert list(buttons) == ["virtual time", "all bits", "uplink", "rounds"]
    np.testing.assert_allclose(buttons["rounds"][0]["x"][0], np.arange(1, 7))
    sent = run.curve("mean_error", "uplink_bits")["uplink_bits"]
    np.testing.assert_allclose(np.array(buttons["uplink"][0]["x"][0]) * 1e3, sent)
    assert buttons["uplink"][1] == {"xaxis.title.text": "uplink, kbit"}


def test_a_metric_of_each_replica_has_a_band():
    import pandas as pd

    table = pd.DataFrame(
        {
            "rounds": [1, 2],
            "seconds": [0.0, 0.0],
            "total_bits": [8, 16],
            "uplink_bits": [8, 16],
            "value": [2.0, 1.0],
            "low": [1.5, 0.5],
            "high": [3.0, 2.0],
        }
    )
    band, line = charts.curves({"a": table}, "nll")["data"]
    assert list(band["y"]) == [3.0, 2.0, 0.5, 1.5]  # there along the top, back along the bottom
    assert list(band["x"]) == [8, 16, 16, 8]  # the clock stood still, so bits come first
    assert list(line["y"]) == [2.0, 1.0]


def test_the_bottleneck_of_a_graph_is_marked():
    import networkx as nx

    graph = nx.Graph()
    graph.add_node("core", role="server")
    for c in range(3):
        graph.add_node(c, client=c)
        graph.add_edge(c, "hub", bandwidth_bps=1e5, latency_s=0.01)
    graph.add_edge("hub", "core", bandwidth_bps=2e5, latency_s=0.01)
    sketch = fs.Network(graph).sketch()
    assert [kind for _, kind in sketch["nodes"]] == ["server", "client", "relay", "client", "client"]
    assert [0, 2, 2e5, 3] in [sorted(link[:2]) + link[2:] for link in sketch["links"]]
    scenario = replace(
        small(), network=fs.Network(graph), problem=fs.problems.GaussianMean.synthetic(3, dim=2, samples=10, seed=4)
    )
    lines = specs(report.run_page("one", fs.run(scenario)))[2]["data"]
    marked = next(trace for trace in lines if trace.get("name") == "bottleneck")
    hub = next(trace for trace in lines if trace.get("name") == "relay")
    core = next(trace for trace in lines if trace.get("name") == "server")
    assert sorted(x for x in marked["x"] if x is not None) == sorted([*hub["x"], *core["x"]])


def test_a_comparison_has_differences_and_outcomes(run, other):
    frame = comparisons.differences({"a": run, "b": other})
    second = dict(zip(frame["field"], frame["b"], strict=True))
    assert second["participation.type"] == "'First'"
    assert second["participation.k"] == "2"
    assert all(field.startswith("participation.") for field in second)
    page = report.comparison_page({"a": run, "b": other})
    assert "has the best final mean_error" in page
    assert "Trade-off" in page
    table = comparisons.outcomes({"a": run, "b": other})
    assert table["seconds"].iloc[1] < table["seconds"].iloc[0]
    assert "The fastest is b" in comparisons.best(table.assign(mean_error=[0.1, 0.2]), ["mean_error"])


def test_runs_without_a_shared_metric_can_be_compared(run):
    bare = fs.run(replace(small(), metrics=()))
    assert "without a common metric" in report.comparison_page({"a": run, "b": bare})


def test_the_knee_is_pareto_optimal_and_near_the_best_of_every_column():
    points = np.array([[1.0, 100.0], [2.0, 2.0], [100.0, 1.0], [3.0, 50.0]])
    assert tradeoffs.pareto_optimal(points).tolist() == [True, True, True, False]
    assert tradeoffs.knee(points) == 1
    assert tradeoffs.knee(points[:, ::-1]) == 1


def test_bands_are_over_seeds():
    import pandas as pd

    rows = [
        {
            "k": k,
            "seed": s,
            "rounds": r,
            "seconds": 2.0 * r,
            "total_bits": 9 * r,
            "uplink_bits": 8 * r,
            "value": 10 * k + s,
        }
        for k in (1, 2)
        for s in range(5)
        for r in (1, 2)
    ]
    lines = comparisons.bands(pd.DataFrame(rows), "k")
    assert list(lines) == ["k=1", "k=2"]
    assert lines["k=2"]["value"].tolist() == [22.0, 22.0]
    np.testing.assert_allclose(lines["k=2"][["low", "high"]].iloc[0], [20.2, 23.8])
    assert comparisons.bands(pd.DataFrame(rows).assign(k=1), "k") == {}
    few = comparisons.bands(pd.DataFrame(rows)[lambda t: t["seed"] < 2], "k")["k=2"]
    np.testing.assert_allclose(few[["low", "high"]].iloc[0], [20.0, 21.0])  # two runs have a range


def test_long_lines_are_thinned_and_keep_their_ends():
    values = np.arange(10_000)
    few = charts.thin(values)
    assert len(few) <= charts.POINTS
    assert few[0] == 0
    assert few[-1] == 9_999


def test_axes_have_the_unit_that_fits():
    assert text.scale("uplink_bits", 3e6) == (1e6, "Mbit")
    assert text.scale("uplink_bits", 12) == (1.0, "bit")
    assert text.scale("seconds", 100) == (1.0, "seconds")
    assert text.scale("seconds", 600) == (60.0, "minutes")
    assert text.scale("seconds", 1e5) == (3600.0, "hours")
    assert text.scale("rounds", 1e5) == (1.0, "")


def test_names_are_text_and_never_markup():
    import pandas as pd

    evil = "</script><script>alert(1)</script>"
    page = html.page(
        evil,
        evil,
        [
            html.section(
                evil, html.table(pd.DataFrame({evil: [evil]})), html.plot({"data": [{"name": evil}], "layout": {}})
            )
        ],
    )
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert specs(page)[0]["data"][0]["name"] == evil


def test_values_that_are_not_finite_are_null_in_a_plot():
    spec = specs(html.plot({"data": [{"y": np.array([1.0, np.nan, np.inf]), "n": np.int64(3)}], "layout": {}}))[0]
    assert spec["data"] == [{"y": [1.0, None, None], "n": 3}]


CLAIM = {
    "paper": "fa-ld", "figure": "fig1", "claim": "more", "quote": "more is less", "where": "section 5", "criterion": "",
    "tolerance": "", "reason": "", "seen_before": False, "history": [], "on_stand_in": "", "ours": "1.2",
    "published": "3", "why": "A13", "change": "", "date": "", "older": "", "settings": [],
}  # fmt: skip


def test_the_page_of_claims_counts_verdicts_and_explains_failures(tmp_path):
    verdicts = [
        CLAIM | {"verdict": "held"},
        CLAIM | {"verdict": "not held", "quote": "<b>"},
        CLAIM | {"verdict": "not run"},
    ]
    (tmp_path / "claims.json").write_text(json.dumps(verdicts))
    assert call(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "&lt;b&gt;" in page
    assert "A13" in page
    assert page.index("&lt;b&gt;") < page.index("more is less")  # failures come first
    tables = tmp_path / CLAIM["paper"] / CLAIM["figure"] / "tables.json"
    tables.parent.mkdir(parents=True)
    for damaged in ("{", '{"spent": 3}', '{"spent": {"columns": ["a"], "rows": [[1, 2]]}}', "[]", '{"title": 3}'):
        tables.write_text(damaged)
        assert call(["report", str(tmp_path)]) == 1, damaged
    tables.unlink()
    (tmp_path / "claims.json").write_text("{")
    assert call(["report", str(tmp_path)]) == 1


def test_a_report_without_plotly_names_the_package_to_install(run, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(fs.errors.InvalidInput, match=r"pip install 'fedsim-systems\[report\]'"):
        report.run_page("one", run)


def test_several_folders_make_one_page(run, other, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run.save("a")
    other.save("b")
    assert call(["report", "a", "b"]) == 0
    assert "<title>a against b</title>" in Path("report.html").read_text()
    assert call(["report", "a", "--out", "x.html"]) == 0
    assert "<title>a</title>" in Path("x.html").read_text()
    assert not Path("a/report.html").exists()


# --- Comparisons ---------------------------------------------------------------------------------------


def stopped(policy, seconds, **budget):
    """Run until a limit on virtual time."""
    scenario = replace(small(policy), budget=fs.Budget(seconds=seconds, **budget), devices=None, initial=[3.0, 3.0])
    return fs.run(scenario)


def test_of_runs_stopped_by_the_same_seconds_the_first_to_stop_is_not_recommended():
    """The slow run stops first, because its next round would cross the limit, with a worse metric and fewer bits."""
    rarely = fs.run(
        replace(
            small(), network=fs.topologies.star(4, uplink_bps=150.0, downlink_bps=1e6),
            budget=fs.Budget(seconds=3.05), devices=None, initial=[3.0, 3.0],
        )
    )  # fmt: skip
    often = stopped(fs.participation.full(), 3.05)
    named = {"often": often, "rarely": rarely}
    table = comparisons.outcomes(named)
    assert table["stopped_by"].tolist() == ["seconds=3.05"] * 2
    assert table["seconds"].iloc[1] < table["seconds"].iloc[0]
    assert table["mean_error"].iloc[0] < table["mean_error"].iloc[1]
    assert comparisons.comparable(table) == ["total_bits"]
    assert "fastest" not in comparisons.best(table, ["mean_error"])
    section, _, why = comparisons.trade_off(table, "mean_error")
    assert "Not compared: time, since a limit on it stopped the runs." in section
    assert " s " not in why
    equal = table.assign(total_bits=1000.0)
    assert comparisons.trade_off(equal, "mean_error")[1] == "often"


def test_seconds_that_did_not_stop_the_runs_are_compared(run, other):
    assert comparisons.comparable(comparisons.outcomes({"a": run, "b": other})) == ["seconds", "total_bits"]


def test_runs_with_a_target_are_compared_by_time_and_bits_to_it():
    goal = fs.Target("mean_error", below=2.0)
    named = {
        name: fs.run(
            replace(
                small(policy), budget=fs.Budget(rounds=3000, target=goal), devices=None, initial=[3.0, 3.0], metrics=(fs.metrics.mean_error(),),
            )
        )
        for name, policy in (("all", None), ("two", fs.participation.first(2, of=2)))
    }  # fmt: skip
    table = comparisons.outcomes(named)
    assert table["target"].tolist() == ["mean_error <= 2"] * 2
    for name, result in named.items():
        row = table.set_index("run").loc[name]
        assert row["seconds_to_target"] == result.time_to("mean_error", below=2.0, against="seconds")
        assert row["total_bits_to_target"] == result.time_to("mean_error", below=2.0, against="total_bits")
    assert comparisons.comparable(table) == ["seconds_to_target", "total_bits_to_target"]
    _, chosen, why = comparisons.trade_off(table, "mean_error")
    assert f"{chosen} reaches mean_error <= 2 for " in why
    never = table.assign(seconds_to_target=[np.inf, 1.0], total_bits_to_target=[np.inf, 8.0])
    assert "to mean_error &lt;= 2" not in comparisons.trade_off(never, "mean_error")[0]
    assert "Never at mean_error <= 2: all." in comparisons._left_out(never)


def test_bits_between_sites_are_costs():
    """Gossip has no uplink bits, so the total is compared and shown."""
    import networkx as nx

    gossip = fs.run(replace(small(), devices=None, exchange=fs.exchanges.gossip(nx.complete_graph(4))))
    star = fs.run(replace(small(), devices=None))
    named = {"gossip": gossip, "star": star}
    table = comparisons.outcomes(named).set_index("run")
    assert table.loc["gossip", "uplink_bits"] == 0
    assert table.loc["gossip", "total_bits"] == 6 * 12 * 128 > table.loc["star", "total_bits"] == 6 * 8 * 128
    assert comparisons.comparable(table.reset_index())[-1] == "total_bits"
    assert "9.22 kbit sent" in comparisons.sentence(gossip)
    assert "0 bit" not in report.comparison_page(named).split("<nav>")[0].split("answer")[1]
    front = fs.analysis.pareto(named, "mean_error").frame
    assert {"total_bits", "seconds"} <= set(front.columns)


def test_the_bottleneck_is_that_of_the_exchange():
    """Neighbours on a ring of fast links never use the slow link to the server."""
    import networkx as nx

    graph = nx.cycle_graph(4)
    nx.set_node_attributes(graph, {c: c for c in range(4)}, "client")
    nx.set_edge_attributes(graph, 1e6, "bandwidth_bps")
    graph.edges[2, 3]["bandwidth_bps"] = 5e5
    graph.add_node("core", role="server")
    graph.add_edge(0, "core", bandwidth_bps=1e3)
    nx.set_edge_attributes(graph, 0.01, "latency_s")
    scenario = replace(small(), network=fs.Network(graph), devices=None)

    def worst(result):
        links = result.manifest["network"]["links"]
        names = [name for name, _ in result.manifest["network"]["nodes"]]
        share = [bps / count if count else np.inf for _, _, bps, count in links]
        a, b, *_ = links[int(np.argmin(share))]
        return {names[a], names[b]}, result.manifest["network"]["title"]

    ends, title = worst(fs.run(scenario))
    assert ends == {"0", "core"}
    assert "4 clients" in title
    ring = fs.exchanges.gossip(nx.cycle_graph(4))
    gossip = fs.run(replace(scenario, exchange=ring))
    ends, title = worst(gossip)
    assert ends == {"2", "3"}
    assert "1 transfer" in title
    marked = next(
        trace
        for spec in specs(report.run_page("one", gossip))
        for trace in spec["data"]
        if trace.get("name") == "bottleneck"
    )
    assert len([x for x in marked["x"] if x is not None]) == 2


def test_warnings_appear_in_comparisons_and_in_the_recommendation(run):
    doubted = fs.run(replace(small(), metrics=("w2",), replicas=8, initial=fs.initial.normal(0.3)))
    doubted.manifest["warnings"] = ["w2 0.1 is mostly noise"]
    clean = fs.run(replace(small(rounds=12), metrics=("w2",), replicas=8))
    clean.manifest["warnings"] = []
    page = report.comparison_page({"clean": clean, "doubted": doubted})
    assert '<p class="warn">doubted: w2 0.1 is mostly noise</p>' in page
    table = comparisons.outcomes({"clean": clean, "doubted": doubted})
    assert table["warnings"].tolist() == ["", "w2 0.1 is mostly noise"]
    _, _, why = comparisons.trade_off(table, "w2", "doubted")
    assert why.endswith("Warning: w2 0.1 is mostly noise.")
    assert (
        fs.analysis.pareto({"clean": clean, "doubted": doubted}, "w2").frame["warnings"].tolist()
        == table["warnings"].tolist()
    )


def test_a_sweep_page_recommends_a_setting_by_a_stated_rule_and_labels_its_points(run, other):
    runs = [({"policy": name, "seed": seed}, one) for name, one in (("a", run), ("b", other)) for seed in (0, 1)]
    study = fs.Study("s", tuple(runs))
    table = study.curve_table()
    lines = {metric: table[table["metric"] == metric] for metric in table["metric"].unique()}
    page = report.sweep_page("s", ["4 runs"], study.frame(), lines, ["policy", "seed"])
    assert re.search(r'<p class="answer">Recommended setting: policy=[ab], mean_error', page)
    assert re.search(r"<h2 [^>]*>Trade-off</h2>\s*<p class=\"\">Recommended setting: policy=[ab]", page)
    assert "Rule: of the Pareto-optimal settings, the one nearest to the best value in every column" in page
    assert '<h2 id="effect-of-each-parameter">Effect of each parameter</h2>' in page
    points = [trace for spec in specs(page) for trace in spec["data"] if trace.get("name") == "Pareto-optimal"]
    assert points
    assert all(trace["mode"] == "markers+text" for trace in points)
    assert {name for trace in points for name in trace["text"]} <= {"policy=a", "policy=b"}
    tuned = {
        "best": {"policy": "b"},
        "met": True,
        "lines": ["mean_error <= 1 for the least seconds: policy=b", "  3 s"],
    }
    page = report.sweep_page("s", ["4 runs"], study.frame(), lines, ["policy", "seed"], tuned=tuned)
    assert "Rule: the setting that reaches the goal of fs.tune at the lowest cost within its limits" in page
    assert "Recommended setting: policy=b (mean_error &lt;= 1 for the least seconds, 3 s)</p>" in page
    tuned = {"best": {"policy": "b"}, "met": False, "lines": ["no setting reaches the goal", "limits"]}
    page = report.sweep_page("s", ["4 runs"], study.frame(), lines, ["policy", "seed"], tuned=tuned)
    assert '<p class="answer">no setting reaches the goal</p>' in page

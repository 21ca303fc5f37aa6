"""Summary, report and progress of a result are the same from Python and on the command line."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from types import ModuleType

import networkx as nx
import numpy as np
import pytest

import fedsim as fs
from fedsim.analysis import figures, gantt
from fedsim.cli.app import call
from fedsim.errors import InvalidInput
from fedsim.results import METRICS, ROUNDS, Result

FILE = """
import numpy as np
import fedsim as fs


def scenario(*, rounds: int = 12):
    return fs.Scenario(
        problem=fs.problems.GaussianMean([np.full((4, 2), c, float) for c in range(5)], np.eye(2)),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=10),
        network=fs.topologies.star(5, uplink_bps=1e3, downlink_bps=1e4, latency_s=0.1),
        devices=fs.devices.table({"seconds_per_step": [0.1, 0.2, 0.3, 0.4, 0.5]}),
        participation=fs.participation.first(3),
        budget=fs.Budget(rounds=rounds, target=fs.Target("off", below=0.0)),
        metrics=("w2", fs.metrics.distance_to([2.0, 2.0], "off")),
        record=fs.Record(events=True),
        replicas=4,
    )
"""


def scenario() -> fs.Scenario:
    found: dict[str, object] = {}
    exec(compile(FILE, "file.py", "exec"), found)
    return found["scenario"]()  # type: ignore[operator,no-any-return]


@pytest.fixture(scope="module")
def result() -> Result:
    return fs.run(scenario())


def without_real_time(text: str) -> str:
    return re.sub(r"real .*?   ", "", text)


def test_the_summary_is_printed_by_the_command_line(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("file.py").write_text(FILE)
    assert call(["run", "file.py"]) == 0
    text = result.summary()
    assert without_real_time(text) in without_real_time(capsys.readouterr().out)
    assert "stopped by rounds=12\n" in text
    assert "off <= 0   not reached\nwithin 12 rounds   0/4 replicas [0.00, 0.49]" in text
    assert "warning: client 3 contributed to 0 of 48 rounds that selected it" in text


def test_repr_of_a_summary_is_its_lines(result: Result) -> None:
    assert repr(result.summary()) == "\n".join(result.summary().splitlines())


@pytest.mark.parametrize("wide", [60, 80])
def test_the_summary_fits_the_width(result: Result, wide: int) -> None:
    assert max(map(len, result.summary(wide).splitlines())) <= wide


def test_the_summary_shows_recorded_waste_and_judged_samples(result: Result) -> None:
    rounds = result.rounds.assign(wasted_s=30.0, wasted_down_bits=result.rounds["downlink_bits"] // 2)
    summary = dataclasses.replace(
        result, rounds=rounds, manifest=result.manifest | {"judged": {"accuracy": "current", "nll": "current"}}
    ).summary()
    assert re.search(r"^devices wasted +6m00s", summary, re.MULTILINE)
    assert re.search(r"^downlink .* wasted 50%$", summary, re.MULTILINE)
    assert "of current" in summary
    none = dataclasses.replace(result, rounds=result.rounds.assign(wasted_s=0.0)).summary()
    assert "devices wasted" not in none


def test_the_report_of_a_python_made_run_is_the_one_of_the_command_line(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file.py").write_text(FILE)
    assert call(["run", "file.py", "--out", "a", "--quiet"]) == 0
    result.save(tmp_path / "b")
    assert call(["report", "a"]) == call(["report", "b"]) == 0
    parts = [re.findall(r"<h2 .*?</h2>|<pre>.*?</pre>", Path(f, "report.html").read_text(), re.DOTALL) for f in "ab"]
    found = [next(part for part in own if part.startswith("<pre>")) for own in parts]
    assert without_real_time(found[0]) == without_real_time(found[1])
    assert [p for p in parts[0] if "h2" in p[:4]] == [p for p in parts[1] if "h2" in p[:4]]
    assert "off &lt;= 0   not reached" in found[1]
    assert "FALD(step_size=0.001, local_steps=10" in found[1]
    page = result.report(tmp_path / "page.html").read_text()
    assert page.count('class="plot"') == 2 + 1 + 1 + 1 + 3  # metrics, timeline, network, clients, theta


def test_progress_in_a_log_is_lines_and_changes_nothing(result: Result, capsys: pytest.CaptureFixture[str]) -> None:
    watched = fs.run(scenario(), progress=True)
    assert watched.fingerprint == result.fingerprint
    printed = capsys.readouterr().err
    assert re.search(r"^round 12/12  virtual .*\n$", printed, re.MULTILINE)
    assert "\r" not in printed
    assert fs.run(scenario()).fingerprint == result.fingerprint
    assert capsys.readouterr().err == ""


def test_progress_in_a_notebook_is_one_line_drawn_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    fs.run(scenario(), progress=True)
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "round 12/12" in printed.split("\r")[-2]


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--version"]) == 0
    assert capsys.readouterr().out == f"fedsim {fs.__version__}\n"


# --- Networks ---------------------------------------------------------------------------------------


def network(**attributes: float) -> fs.Network:
    graph = nx.Graph()
    graph.add_node("hub", role="server")
    for c in range(3):
        graph.add_node(c, client=c)
        graph.add_edge(c, "relay", bandwidth_bps=1e6 * (c + 1), latency_s=0.01, **attributes)
    graph.add_edge("relay", "hub", bandwidth_bps=2e6, latency_s=0.0)
    return fs.Network(graph)


def test_networks_of_all_kinds_pass_the_contract() -> None:
    for one in (
        network(), network(loss=0.1), fs.topologies.star(4, uplink_bps=1e6), fs.topologies.ring(5, bandwidth_bps=1e6),
        fs.topologies.multiple_access(4, capacity_bps=1e6), fs.topologies.star(1),
    ):  # fmt: skip
        assert len(fs.testing.check(one)) >= 9


class Wrong:
    """A network with one thing changed."""

    def __init__(self, **changed: object) -> None:
        self.own, self.changed = network(), changed

    def __getattr__(self, name: str) -> object:
        return self.__dict__["changed"].get(name, getattr(self.__dict__["own"], name))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"delay_s": lambda upward: np.full(3, -1.0)}, "delay_s gives"),
        ({"loss_factor": lambda upward: np.full(3, 0.5 if not upward else 1.0)}, "loss_factor gives"),
        ({"bottleneck_bps": lambda upward: np.full(3, 9e9)}, "the least capacity on the route"),
        ({"delay_s": lambda upward: np.zeros(2)}, "one number for each client"),
        ({"route": lambda client, upward: [99]}, "places in capacities_bps"),
    ],
)
def test_a_broken_contract_is_named(changed: dict[str, object], sentence: str) -> None:
    with pytest.raises((fs.testing.Broken, fs.errors.InvalidInput), match=sentence):
        fs.testing.check(Wrong(**changed))


# --- Figures ---------------------------------------------------------------------------------------


def test_swimlanes_start_at_the_given_round(result: Result, tmp_path: Path) -> None:
    axes = figures.blank().subplots()
    drawn = gantt.draw_rounds(axes, result, replica=1, rounds=3, first_round=7)
    own = result.rounds[result.rounds["replica"] == 1].set_index("round")
    assert axes.get_xlim()[0] == own["opened_s"][7]
    assert [text.get_text() for text in axes.texts] == ["7", "8", "9"]
    assert drawn == len(axes.get_yticks()) == 5
    bars = [(p.get_x(), p.get_x() + p.get_width()) for p in axes.patches]
    assert min(b for b, _ in bars) >= own["opened_s"][7]
    assert max(e for _, e in bars) <= own["closed_s"][9]
    assert gantt.swimlanes(result, tmp_path / "a.png", first_round=7).read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidInput, match="has 12 rounds"):
        gantt.swimlanes(result, tmp_path / "a.png", first_round=13)


def test_a_phase_has_one_colour_and_a_legend_in_all_figures(result: Result) -> None:
    from matplotlib.colors import to_hex

    rounds, bars = figures.blank().subplots(1, 2)
    gantt.draw_rounds(rounds, result, 0, 3)
    figures.stacked(bars, {"one": {"compute": 1.0, "wait": 2.0}}, "virtual seconds")
    seen: dict[str, set[str]] = {}
    for axes in (rounds, bars):
        handles, labels = axes.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            if label in figures.PHASES:
                seen.setdefault(label, set()).add(to_hex(handle.patches[0].get_facecolor()))
        assert axes.get_legend() is not None
    assert seen == {name: {figures.PHASES[name]} for name in ("download", "compute", "upload", "wait")}


@pytest.mark.parametrize(("largest", "label"), [(3e6, "uplink, Mbit"), (4e4, "uplink, kbit"), (9e9, "uplink, Gbit")])
def test_bits_on_an_axis_have_a_unit(largest: float, label: str) -> None:
    axes = figures.blank().subplots()
    figures.in_bits(axes, "uplink", largest)
    assert axes.get_xlabel() == label
    assert axes.xaxis.get_major_formatter()(2e6, 0) == f"{2e6 / {'M': 1e6, 'k': 1e3, 'G': 1e9}[label[8]]:g}"


def test_a_notebook_shows_summaries_tables_and_plots(result: Result) -> None:
    from fedsim.sweeps.study import Study

    assert "stopped by" in result._repr_html_()
    (axes,) = result.plot("off", "seconds").axes
    (line,) = axes.lines
    curve = result.curve("off", "seconds")
    assert line.get_xdata().tolist() == curve["seconds"].tolist()
    assert line.get_ydata().tolist() == curve["off"].tolist()
    assert result.plot().axes[0].get_ylabel() == "Wasserstein-2 distance (w2)"
    with pytest.raises(fs.errors.NotRecorded, match="no metric was evaluated"):
        dataclasses.replace(result, rounds=result.rounds[list(ROUNDS)], metrics=result.metrics[list(METRICS)]).plot()
    assert "<table" in Study("s", (({"k": 1}, result),))._repr_html_()

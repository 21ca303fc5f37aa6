"""The runs of a grid, and the table that they make."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedsim
from fedsim.errors import InvalidInput, NotRecorded
from fedsim.running import run
from fedsim.scenario_file import ScenarioFile, load_file
from fedsim.sweeps.study import Study, grid_runs, outcome

TEXT = """
import numpy as np
import fedsim as fs

grid = {"local_steps": [1, 2], "rounds": (3, 4)}

def scenario(*, local_steps: int = 1, rounds: int = 3):
    return fs.Scenario(
        problem=fs.problems.GaussianMean([np.zeros((4, 2)), np.ones((4, 2))], np.eye(2)),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=local_steps),
        budget=fs.Budget(rounds=rounds), replicas=3, metrics=("w2", fs.metrics.distance_to([0.5, 0.5], "off")))
"""


@pytest.fixture
def file(tmp_path: Path) -> ScenarioFile:
    path = tmp_path / "it.py"
    path.write_text(TEXT)
    return load_file(path)


def test_a_grid_is_every_combination_in_order(file: ScenarioFile) -> None:
    assert [tuple(s.values()) for s in grid_runs(file, {})] == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_a_given_setting_replaces_its_axis(file: ScenarioFile) -> None:
    assert grid_runs(file, {"rounds": "9"}) == [
        {"rounds": "9", "local_steps": 1},
        {"rounds": "9", "local_steps": 2},
    ]


def test_a_mistake_in_the_last_run_is_refused_before_the_first(file: ScenarioFile) -> None:
    file.grid["local_steps"] = [1, -2]
    with pytest.raises(InvalidInput, match="local_steps=-2"):
        grid_runs(file, {})


def test_a_frame_has_one_row_per_run_with_settings_costs_and_metrics(file: ScenarioFile) -> None:
    runs = [{"local_steps": 1, "rounds": 3}, {"local_steps": 2, "rounds": 4}]
    study = Study("it", tuple((settings, run(file.build(settings))) for settings in runs))
    frame = study.frame()
    assert frame["local_steps"].tolist() == [1, 2]
    assert frame["set rounds"].tolist() == [3, 4]
    assert frame["rounds"].tolist() == [3, 4]
    assert frame["uplink_bits"].tolist() == [3 * 2 * 128, 4 * 2 * 128]
    last = study.runs[1][1]
    assert frame["w2"].iloc[1] == last.metrics["w2"].iloc[-1]
    assert frame["off"].iloc[1] == last.rounds[last.rounds["round"] == 4]["off"].median()
    assert outcome(last)["fingerprint"] == last.fingerprint


def test_curves_are_those_of_every_run(file: ScenarioFile) -> None:
    runs = [{"local_steps": 1, "rounds": 3}, {"local_steps": 2, "rounds": 4}]
    study = Study("it", tuple((settings, run(file.build(settings))) for settings in runs))
    for metric in ("w2", "off"):
        for against in ("rounds", "seconds", "uplink_bits", "downlink_bits", "total_bits"):
            curve = study.curve(metric, against)
            assert curve["local_steps"].tolist() == [1] * 3 + [2] * 4
            own = study.runs[1][1].curve(metric, against)
            assert curve[curve["local_steps"] == 2][own.columns].to_numpy().tolist() == own.to_numpy().tolist()
    with pytest.raises(NotRecorded, match="rhat"):
        study.curve("rhat")


def test_warnings_are_a_column_of_the_table(file: ScenarioFile, tmp_path: Path) -> None:
    settings = {"local_steps": 1, "rounds": 4}
    result = run(file.build(settings))
    result.manifest["warnings"] = ["w2 0.1 is mostly noise", "rhat 1.3 is above 1.01"]
    frame = Study("it", ((settings, result),)).frame()
    assert frame["warnings"].tolist() == ["w2 0.1 is mostly noise; rhat 1.3 is above 1.01"]
    assert frame["stopped_by"].tolist() == ["rounds=4"]
    assert frame["total_bits"].tolist() == [2 * 4 * 2 * 128]


def test_warnings_of_a_sweep_are_in_its_folder_and_on_its_page(tmp_path: Path) -> None:
    """Three replicas: their w2 is mostly noise, which the runs' manifests record."""
    from fedsim.cli.app import call

    path = tmp_path / "it.py"
    path.write_text(TEXT.replace('"w2", fs', '"w2", "rhat", fs'))
    study = fedsim.sweep(path, {"local_steps": [1, 2]}, out=tmp_path / "runs", jobs=1)
    warned = study.frame()["warnings"]
    assert warned.str.contains("rhat is not defined: 3 samples of each replica were recorded").all()
    assert warned.str.contains("began at the same point").all()
    assert fedsim.load(tmp_path / "runs").frame()["warnings"].tolist() == warned.tolist()
    assert call(["report", str(tmp_path / "runs")]) == 0
    page = (tmp_path / "runs" / "report.html").read_text()
    assert '<p class="warn">local_steps=1: ' in page

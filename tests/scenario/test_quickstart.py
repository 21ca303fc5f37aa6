"""The quickstart: more local steps, fewer rounds, more bias."""

from __future__ import annotations

import fedsim as fs
from fedsim.cli.app import call
from fedsim.scenario_file import load_file
from fedsim.sweeps.study import Study, grid_runs


def test_more_local_steps_are_faster_and_end_further_away() -> None:
    file = load_file("quickstart")
    runs = [(settings, fs.run(file.build(settings))) for settings in grid_runs(file, {})]
    one, ten, hundred = (result.metrics["w2"].tail(50).mean() for _, result in runs)
    assert 4 * one < ten < hundred / 4
    covariance = file.build({}).problem.exact()[1]
    assert one < 1.5 * fs.metrics.w2_floor(covariance, len(runs[0][1].replicas))
    rounds = [result.time_to("w2", below=0.25, against="rounds") for _, result in runs]
    assert rounds[0] > 5 * rounds[1] > 10 * rounds[2]
    assert file.figure is not None
    curves, clouds = file.figure(Study(file.name, tuple(runs))).subfigs
    assert [axes.get_xlabel() for axes in curves.axes] == ["communication rounds", "virtual seconds"]
    assert "Wasserstein-2" in curves.axes[0].get_ylabel()
    assert [(axes.get_xlabel(), axes.get_ylabel()) for axes in clouds.axes][-1] == ("theta[0]", "theta[1]")


def test_the_quickstart_has_a_network_devices_and_a_clock() -> None:
    scenario = load_file("quickstart").build({"rounds": "3", "replicas": "2"})
    results = {clock: fs.run(scenario, clock=clock) for clock in ("simpy", "compiled")}
    for clock, path in (("simpy", "loop"), ("compiled", "short")):
        used = results[clock].manifest["clock"]
        assert used["network"]
        assert used["compute"]
        assert (used["name"], used["path"]) == (clock, path)
        assert (results[clock].rounds["closed_s"] > results[clock].rounds["opened_s"]).all()
    assert results["simpy"].fingerprint == results["compiled"].fingerprint


def test_the_opener_fits_eighty_columns(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert call(["run", "quickstart", "--set", "rounds=5", "--set", "replicas=20"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "clock counts transfers and computing" in text
    assert call(["list"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80

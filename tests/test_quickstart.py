"""The quickstart shows what it says: more local steps, fewer rounds, more bias."""

from __future__ import annotations

import fedsim as fs
from fedsim.scenario_file import load_file
from fedsim.study import Study, grid_runs


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
    assert [len(half.axes) for half in file.figure(Study(file.name, tuple(runs))).subfigs] == [1, 3]

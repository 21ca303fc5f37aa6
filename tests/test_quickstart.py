"""The quickstart shows what it says: more local steps, fewer rounds, more bias."""

from __future__ import annotations

import fedsim as fs
from fedsim.scenario_file import load_file
from fedsim.study import Study, grid_runs


def test_more_local_steps_are_faster_and_end_further_away() -> None:
    file = load_file("quickstart")
    runs = [(settings, fs.run(file.build(settings))) for settings in grid_runs(file, {"replicas": 100})]
    study = Study(file.name, tuple(runs))
    frame = study.frame().set_index("local_steps")
    end = frame["w2"]
    assert 3 * end[1] < end[10] < end[100] / 3
    rounds = [result.time_to("w2", below=0.25, against="rounds") for _, result in runs]
    assert rounds[0] > 5 * rounds[1] > 5 * rounds[2]
    covariance = file.build({}).problem.exact()[1]
    assert end[1] < 2 * fs.metrics.w2_floor(covariance, 100)
    assert file.figure is not None
    assert len(file.figure(study).axes) == 0  # all of them sit in the two halves
    assert [len(half.axes) for half in file.figure(study).subfigs] == [1, 3]

"""Sweeps skip completed runs, keep the errors of failed ones, survive dead processes and share a folder with array jobs."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path

import pandas as pd
import pytest
from strategies.files import MOODY

import fedsim as fs
from fedsim.errors import Interrupted, InvalidInput, NotRecorded
from fedsim.sweeps.execution import claimed, status
from fedsim.sweeps.spec import SweepSpec


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.py"
    path.write_text(MOODY)
    return path


def written(folder: Path) -> dict[str, int]:
    return {str(p): p.stat().st_mtime_ns for p in sorted(folder.glob("*/*"))}


def settings_of(study: fs.Study) -> list[dict[str, object]]:
    return [settings for settings, _ in study.runs]


@pytest.mark.slow
def test_a_hundred_runs_of_which_four_fail_keep_the_rest_and_can_be_repaired(tmp_path: Path, file: Path) -> None:
    bad = tmp_path / "bad"
    bad.touch()
    grid = {"level": [*range(25)], "seed": range(4)}
    options = {"grid": grid, "settings": {"bad": str(bad)}, "out": tmp_path / "runs", "jobs": 2}
    first = fs.sweep(file, **options)
    assert [(f.settings["level"], f.settings["seed"]) for f in first.failed] == [(1, seed) for seed in range(4)]
    assert len(first.runs) == 96
    assert len(first.frame()) == 96
    reason = json.loads((tmp_path / "runs" / first.failed[0].run / "failed.json").read_text())
    assert "the dog ate it" in reason["message"]
    assert "LookupError" in reason["traceback"]
    assert reason["settings"]["level"] == 1
    assert "this goes to the log" in (tmp_path / "runs" / first.failed[0].run / "run.log").read_text()

    bad.unlink()
    before = written(tmp_path / "runs")
    with pytest.raises(InvalidInput, match="already holds a sweep; add --resume"):
        fs.sweep(file, **options)
    again = fs.sweep(file, **options, resume=True)  # failed ones are left alone
    assert len(again.failed) == 4
    assert written(tmp_path / "runs") == before

    repaired = fs.sweep(file, **options, retry_failed=True)
    assert repaired.failed == ()
    assert len(repaired.frame()) == 100
    after = written(tmp_path / "runs")
    complete = {str(tmp_path / "runs" / run) for run in first.frame()["run"]}
    assert all(after[name] == time for name, time in before.items() if str(Path(name).parent) in complete)
    assert not list((tmp_path / "runs").glob(".*"))  # neither claims nor temporary files

    loaded = fs.load(tmp_path / "runs")
    assert isinstance(loaded, fs.Study)
    pd.testing.assert_frame_equal(loaded.frame(), repaired.frame())
    curve = loaded.curve("mean_error", against="uplink_bits")
    pd.testing.assert_frame_equal(curve, repaired.curve("mean_error", against="uplink_bits"))
    assert list(curve.columns)[:3] == ["run", "bad", "level"]
    assert len(curve) == 300
    merged = pd.read_parquet(tmp_path / "runs" / "runs.parquet")
    assert merged["seed"].tolist() == [*range(4)] * 25
    assert merged["fingerprint"].tolist() == [result.fingerprint for _, result in loaded.runs]
    with pytest.raises(NotRecorded, match="mean_error"):
        loaded.curve("w2")


def test_shards_share_a_folder_and_make_the_table_of_one_sweep(tmp_path: Path, file: Path) -> None:
    grid = {"level": [3, 4, 5], "seed": [0, 1]}
    single = fs.sweep(file, grid, out=tmp_path / "one", jobs=1).frame()
    sizes = []
    for part in (1, 0):
        study = fs.sweep(file, grid, out=tmp_path / "many", shard=(part, 2), jobs=1)
        sizes.append(len(study.runs))
    assert sizes == [3, 6]
    frame = fs.load(tmp_path / "many").frame()
    pd.testing.assert_frame_equal(frame.drop(columns="real_s"), single.drop(columns="real_s"))
    for shard in ((3, 3), (-1, 3), (0, 0)):
        with pytest.raises(InvalidInput, match="shard"):
            fs.sweep(file, grid, out=tmp_path / "many", shard=shard)


def test_a_worker_that_is_killed_is_replaced_and_its_run_repeated(tmp_path: Path, file: Path) -> None:
    kill = tmp_path / "kill"
    kill.touch()
    study = fs.sweep(file, {"level": [2, 3]}, settings={"kill": str(kill)}, out=tmp_path / "runs", jobs=1)
    assert not kill.exists()
    assert study.failed == ()
    assert len(study.runs) == 2


def test_a_run_that_kills_its_process_every_time_is_given_up_and_named(tmp_path: Path) -> None:
    path = tmp_path / "tiny.py"
    path.write_text(MOODY.replace("            os.unlink(self.kill)\n", ""))
    study = fs.sweep(path, {"level": [2]}, settings={"kill": str(path)}, out=tmp_path / "runs", jobs=1)
    assert [(f.kind, f.settings["level"]) for f in study.failed] == [("RuntimeFailed", 2)]
    assert "its process died 3 times (signal SIGKILL" in study.failed[0].message
    assert len(study.runs) == 0


def test_a_combination_that_cannot_be_built_fails_alone(tmp_path: Path, file: Path) -> None:
    study = fs.sweep(file, {"level": [-1, 3]}, out=tmp_path / "runs", jobs=1)
    assert [f.message.rpartition(":")[2] for f in study.failed] == [" below the floor"]
    assert "tiny.py:30: ValueError: below the floor" in study.failed[0].message
    assert [s["level"] for s in settings_of(study)] == [3]


def test_a_stopped_sweep_resumes_to_the_same_bits(tmp_path: Path, file: Path) -> None:
    slow, stop = tmp_path / "slow", threading.Event()
    slow.touch()
    options = {"grid": {"level": [3, 4]}, "settings": {"rounds": 200, "slow": str(slow)}, "jobs": 1}

    def when_it_runs() -> None:
        while not list((tmp_path / "runs").glob("*/run.json")):
            time.sleep(0.05)
        stop.set()

    threading.Thread(target=when_it_runs).start()
    with pytest.raises(Interrupted, match=r"stopped with 2 of 2 runs to do; .*--resume"):
        fs.sweep(file, **options, out=tmp_path / "runs", stop=stop)
    there = status(tmp_path / "runs")
    assert (len(there.complete), len(there.to_do), len(there.running)) == (0, 2, 0)
    assert len(list((tmp_path / "runs").glob("*/checkpoints/*.json"))) == 1
    slow.unlink()
    resumed = fs.sweep(file, **options, out=tmp_path / "runs", resume=True).frame()
    assert (
        resumed["fingerprint"].tolist() == fs.sweep(file, **options, out=tmp_path / "b").frame()["fingerprint"].tolist()
    )


def test_a_run_that_another_process_holds_is_not_executed(tmp_path: Path, file: Path) -> None:
    fs.sweep(file, {"level": [3]}, out=tmp_path / "runs", jobs=1)
    run = SweepSpec.read(tmp_path / "runs").runs[0].name
    shutil.rmtree(tmp_path / "runs" / run)
    seen: list[str] = []
    with claimed(tmp_path / "runs", run) as mine:
        assert mine
        with claimed(tmp_path / "runs", run) as twice:
            assert not twice
        assert [o.name for o in status(tmp_path / "runs").running] == [run]
        study = fs.sweep(
            file,
            {"level": [3]},
            out=tmp_path / "runs",
            jobs=1,
            resume=True,
            observers=[lambda e: seen.append(e.state)],
        )
        assert (len(study.runs), seen) == (0, [])
    assert status(tmp_path / "runs").running == ()


def test_text_and_values_name_the_same_run_and_everything_else_another(file: Path) -> None:
    from fedsim.scenario_file import load_file
    from fedsim.sweeps.spec import make_spec

    def names(grid: dict[str, list[object]], settings: dict[str, object], text: str = MOODY) -> list[str]:
        file.write_text(text)
        return [run.name for run in make_spec(load_file(file), grid, settings).runs]

    base = names({"level": [3]}, {"budget.rounds": 5})
    assert names({"level": ["3"]}, {"budget.rounds": "5"}) == base
    assert all(len(name) == 12 and int(name, 16) >= 0 for name in base)
    others = [
        names({"level": [4]}, {"budget.rounds": 5}),
        names({"level": [3]}, {"budget.rounds": 6}),
        names({"level": [3]}, {"budget.rounds": 5}, MOODY + "\nchanged = 0\n"),
        names({"level": [3]}, {"budget.rounds": 5}, MOODY + "\nchanged = False\n"),
    ]
    assert len({*map(tuple, others), tuple(base)}) == 5


@pytest.mark.parametrize(
    ("grid", "settings", "sentence"),
    [
        ({"levels": [1]}, {}, "unknown setting levels; did you mean level?"),
        ({"level": ["many"]}, {}, "level=many: must be an integer"),
        ({"level": [3, "many"]}, {}, "level=many: must be an integer"),
        ({"level": []}, {}, "give a list of at least one value"),
        ({"level": 3}, {}, "give a list of at least one value"),
        ({"level": [3, 3]}, {}, "names a value twice"),
        ({"level": [3]}, {"level": 4}, "level is set and swept"),
        ({"devices": [fs.devices.lognormal(1e-2, sigma=0.5)]}, {}, "cannot be written as text"),
    ],
)
def test_a_mistake_is_refused_before_anything_starts(
    grid: dict[str, list[object]], settings: dict[str, object], sentence: str, tmp_path: Path, file: Path
) -> None:
    with pytest.raises(InvalidInput) as refused:
        fs.sweep(file, grid, settings=settings, out=tmp_path / "runs")
    assert sentence in str(refused.value)
    assert not (tmp_path / "runs").exists()


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path, file: Path) -> None:
    with pytest.raises(InvalidInput, match="no sweep's folder"):
        fs.sweep(file, {"level": [3]}, out=tmp_path)


def test_no_worker_is_left_when_a_sweep_ends_or_is_aborted(tmp_path: Path, file: Path) -> None:
    def children() -> set[int]:
        tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
        return {int(pid) for task in tasks for pid in task.read_text().split()}

    before = children()
    fs.sweep(file, {"level": [3]}, out=tmp_path / "a", jobs=1)

    def break_off(event: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fs.sweep(file, {"level": [3, 4]}, out=tmp_path / "b", jobs=2, observers=[break_off])
    assert children() <= before


@pytest.mark.slow
def test_tasks_of_a_ray_cluster_give_the_runs_of_local_processes(tmp_path: Path, file: Path) -> None:
    (tmp_path / "bad").touch()
    options = {"grid": {"level": [1, 3, 4]}, "settings": {"bad": str(tmp_path / "bad")}, "jobs": 2}
    local = fs.sweep(file, **options, out=tmp_path / "local")
    spread = fs.sweep(file, **options, out=tmp_path / "ray", runtime=fs.Ray())
    assert [f.run for f in spread.failed] == [f.run for f in local.failed]
    pd.testing.assert_frame_equal(spread.frame().drop(columns="real_s"), local.frame().drop(columns="real_s"))
    assert not list((tmp_path / "ray").glob(".*"))

"""A folder belongs to one process and to one scenario, with all the code that the scenario file brings along."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tools.faults import run, scenario

import fedsim as fs
from fedsim.cli.app import call
from fedsim.code_digest import imported_sources
from fedsim.engine.run import Progress
from fedsim.errors import Interrupted, InUse, InvalidInput
from fedsim.results import lock
from fedsim.scenario_file import load_file
from fedsim.sweeps import run_sweep
from fedsim.sweeps.spec import make_spec

PROGRAM = [sys.executable, "-c", "from fedsim.cli import main; main()"]


def stopped(folder: Path, after: int = 3) -> None:
    stop = threading.Event()
    with pytest.raises(Interrupted):
        run(folder, checkpoint_every=2, stop=stop, observers=[lambda p: stop.set() if p.round == after else None])


# --- Whose folder -------------------------------------------------------------------------------------


def test_resume_of_a_finished_run_of_another_scenario_is_refused(tmp_path: Path) -> None:
    first = run(tmp_path / "a")
    assert run(tmp_path / "a", resume=True).fingerprint == first.fingerprint
    with pytest.raises(InvalidInput, match="holds the finished run of another scenario"):
        run(tmp_path / "a", rounds=7, resume=True)
    with pytest.raises(InvalidInput, match="holds the finished run of another scenario"):
        run(tmp_path / "a", timing_only=True, resume=True)


def policy_of(body: str) -> object:
    """A policy as a notebook defines it, again and again under one name."""
    space: dict[str, object] = {"__name__": "notebook"}
    exec(f"class Mine:\n    def select(self, view, rng): return {body}\n    def close(self, view): return 1e9", space)
    return space["Mine"]()  # type: ignore[operator]


def fald(step_size: object) -> fs.algorithms.FALD:
    return fs.algorithms.FALD(step_size=step_size, local_steps=2)  # type: ignore[arg-type]


def stepping(size: float) -> object:
    return lambda step: size


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        ({"algorithm": fald(lambda t: 1e-3)}, {"algorithm": fald(lambda t: 1e-3)}, {"algorithm": fald(lambda t: 2e-3)}),
        ({"algorithm": fald(stepping(1e-3))}, {"algorithm": fald(stepping(1e-3))}, {"algorithm": fald(stepping(2e-3))}),
        ({"participation": policy_of("[0, 1]")}, {"participation": policy_of("[0, 1]")}, {"participation": policy_of("[1, 2]")}),
        (
            {"participation": fs.participation.buffered(2, discount=lambda k: 1.0)},
            {"participation": fs.participation.buffered(2, discount=lambda k: 1.0)},
            {"participation": fs.participation.buffered(2, discount=lambda k: 0.5)},
        ),
    ],
    ids=["function", "captured value", "class", "discount"],
)  # fmt: skip
def test_scenarios_that_differ_in_code_alone_are_different(
    tmp_path: Path, one: dict[str, object], same: dict[str, object], other: dict[str, object]
) -> None:
    def made(parts: dict[str, object]) -> fs.Scenario:
        return dataclasses.replace(scenario(), devices=fs.devices.constant(1.0), **parts)  # type: ignore[arg-type]

    first = fs.run(made(one), out=tmp_path / "a")
    assert fs.run(made(same), out=tmp_path / "a", resume=True).fingerprint == first.fingerprint
    with pytest.raises(InvalidInput, match="holds the finished run of another scenario"):
        fs.run(made(other), out=tmp_path / "a", resume=True)


def test_what_a_run_leaves_in_its_parts_does_not_make_it_another(tmp_path: Path) -> None:
    """Notes that a class keeps of its use, and annotations that Python makes when asked, are no code."""
    policy = policy_of("self.__dict__.setdefault('_calls', []).append(type(self).__annotations__) or [0]")
    mine = dataclasses.replace(scenario(), participation=policy)
    first = fs.run(mine, out=tmp_path / "a")
    assert fs.run(mine, out=tmp_path / "a", resume=True).fingerprint == first.fingerprint


def test_resume_before_the_first_checkpoint_of_another_scenario_is_refused(tmp_path: Path) -> None:
    def fail(progress: object) -> None:
        raise KeyError("a bug")

    with pytest.raises(InvalidInput, match="raised KeyError"):
        run(tmp_path / "a", checkpoint_every=5, observers=[fail])
    assert os.listdir(tmp_path / "a") == ["run.json"]
    with pytest.raises(InvalidInput, match="unfinished run of another scenario"):
        run(tmp_path / "a", rounds=7, resume=True)
    assert len(run(tmp_path / "a").rounds)  # there is no checkpoint, so the folder can be used again


def test_a_run_without_checkpoints_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(progress: object) -> None:
        raise KeyError("a bug")

    with pytest.raises(InvalidInput, match="raised KeyError"):
        run(tmp_path / "a", observers=[fail])
    assert os.listdir(tmp_path) == []
    (tmp_path / "made").mkdir()
    with pytest.raises(InvalidInput, match="raised KeyError"):
        run(tmp_path / "made", observers=[fail])
    assert os.listdir(tmp_path) == ["made"]  # the run did not make it


def test_a_folder_in_use_is_refused_with_its_owner_and_not_changed(tmp_path: Path) -> None:
    folder, errors = tmp_path / "a", []

    def second(progress: Progress) -> None:
        if progress.round == 3:
            for resume in (False, True):
                with pytest.raises(InUse) as refused:
                    run(folder, resume=resume)
                errors.append(str(refused.value))
            with pytest.raises(InvalidInput, match="still going on"):
                fs.load(folder)

    result = run(folder, checkpoint_every=2, observers=[second])
    assert all(f"in use by process {os.getpid()} on " in sentence for sentence in errors)
    assert len(errors) == 2
    assert fs.load(folder).fingerprint == result.fingerprint
    with pytest.raises(InvalidInput, match="already exists"):
        run(folder)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_without_locks_of_the_file_system_a_lock_file_names_its_owner_and_goes_stale_with_it(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock.fcntl, "flock", none)
    held = lock.take(tmp_path)
    assert lock.held(tmp_path)
    with pytest.raises(InUse, match=f"process {os.getpid()} on "):
        lock.take(tmp_path)
    held.release()
    assert not lock.held(tmp_path)
    assert os.listdir(tmp_path) == []
    me = {"pid": os.getpid(), "host": platform.node(), "began": "another-1"}
    (tmp_path / lock.OWNER).write_text(json.dumps(me))  # the same number, but another process
    assert not lock.held(tmp_path)
    lock.take(tmp_path).release()
    (tmp_path / lock.OWNER).write_text(json.dumps({**me, "host": "elsewhere"}))  # cannot be seen from here
    with pytest.raises(InUse, match="on elsewhere"):
        lock.take(tmp_path)


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from fedsim.results import lock; import os, signal\nlock.take(Path({str(tmp_path)!r})); os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert os.listdir(tmp_path) == [".lock"]
    assert not lock.held(tmp_path)
    lock.take(tmp_path).release()
    assert os.listdir(tmp_path) == []


def test_a_grids_folder_is_taken_before_its_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = SCENARIO.format(beside="") + "\ngrid = {'rounds': [2, 3]}\n"
    (tmp_path / "it.py").write_text(text)
    (tmp_path / "out").mkdir()
    held = lock.take(tmp_path / "out")
    assert call(["run", "it.py", "--out", "out", "--quiet"]) == 2
    held.release()
    assert call(["run", "it.py", "--out", "out", "--quiet"]) == 0
    assert sorted(os.listdir("out")) == ["rounds=2", "rounds=3"]
    assert call(["run", "it.py", "--out", "out", "--quiet"]) == 2


# --- What a checkpoint can lose -----------------------------------------------------------------------


@pytest.mark.parametrize("copy", [0, 1])
def test_an_old_segment_may_be_damaged(tmp_path: Path, copy: int) -> None:
    stopped(tmp_path / "a", after=5)
    oldest = sorted((tmp_path / "a/checkpoints").glob("segment-000000002*"))[copy]
    oldest.write_bytes(oldest.read_bytes()[:-7])
    assert run(tmp_path / "a", resume=True).fingerprint == fs.run(scenario()).fingerprint


def test_a_damaged_run_json_costs_no_checkpoint(tmp_path: Path) -> None:
    stopped(tmp_path / "a")
    (tmp_path / "a/run.json").write_text("{")
    assert run(tmp_path / "a", resume=True).fingerprint == fs.run(scenario()).fingerprint


def test_folders_of_the_version_before_the_digests_can_be_read(tmp_path: Path) -> None:
    first = run(tmp_path / "a")
    manifest = json.loads((tmp_path / "a/manifest.json").read_text())
    for name in ("checksum", "files", "work"):
        del manifest[name]
    (tmp_path / "a/manifest.json").write_text(json.dumps({**manifest, "fedsim_format": "fedsim-result-1"}))
    assert fs.load(tmp_path / "a").fingerprint == first.fingerprint
    assert run(tmp_path / "a", resume=True).fingerprint == first.fingerprint
    with pytest.raises(InvalidInput, match="another scenario"):
        run(tmp_path / "a", rounds=7, resume=True)


# --- Neighbours of a scenario file --------------------------------------------------------------------

SCENARIO = """
import fedsim as fs
{beside}

def scenario(*, rounds: int = 4, slow: str = ""):
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(4, 2, 4.0, 20, seed=1),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=2), budget=fs.Budget(rounds=rounds))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "it.py").write_text(SCENARIO.format(beside="import beside_a, numpy, json"))
    (tmp_path / "beside_a.py").write_text("def f():\n    from beside_p import beside_q\n    return beside_q.x\n")
    (tmp_path / "beside_p").mkdir()
    (tmp_path / "beside_p/__init__.py").write_text("from . import beside_r\n")
    (tmp_path / "beside_p/beside_q.py").write_text("x = 1\n")
    (tmp_path / "beside_p/beside_r.py").write_text("import importlib\nimportlib.import_module('beside_s')\n")
    (tmp_path / "beside_s.py").write_text("")
    (tmp_path / "unrelated.py").write_text("")
    return tmp_path


ALL = ["beside_a", "beside_p", "beside_p.beside_q", "beside_p.beside_r", "beside_s"]


def test_modules_from_beside_the_file_are_found_however_deep(here: Path) -> None:
    assert sorted(load_file("it.py").modules) == ALL
    assert imported_sources("import numpy, os, fedsim, absent_module") == {}


def test_an_edited_neighbour_refuses_to_resume(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def begin(folder: str) -> None:
        file, stop = load_file("it.py"), threading.Event()
        with pytest.raises(Interrupted):
            fs.run(
                file.build({}), out=folder, checkpoint_every=1, stop=stop, source=file.origin({}),
                observers=[lambda p: stop.set()],
            )  # fmt: skip

    begin("a")
    shutil.copytree("a", "b")
    assert call(["resume", "b", "--quiet"]) == 0
    (here / "beside_p/beside_q.py").write_text("x = 1234\n")
    assert call(["resume", "a", "--quiet"]) == 2
    assert re.search(r"beside_p\.beside_q, which it\.py imports, has changed since", capsys.readouterr().err)
    file = load_file("it.py")
    for folder in ("a", "b"):  # unfinished and finished
        with pytest.raises(InvalidInput, match=r"another version of beside_p\.beside_q"):
            fs.run(file.build({}), out=folder, resume=True, source=file.origin({}))
    (here / "beside_p/beside_q.py").write_text("x = 1\n")
    assert call(["resume", "a", "--quiet"]) == 0


def test_an_edited_neighbour_makes_new_runs_in_a_sweep(here: Path) -> None:
    first = make_spec(load_file("it.py"), {"rounds": [2]}, {})
    fs.sweep("it.py", {"rounds": [2]}, out="runs", jobs=1)
    (here / "beside_s.py").write_text("y = 5\n")
    second = make_spec(load_file("it.py"), {"rounds": [2]}, {})
    assert first.runs[0].name != second.runs[0].name
    with pytest.raises(InvalidInput, match="already holds a sweep"):
        fs.sweep("it.py", {"rounds": [2]}, out="runs", jobs=1)
    with pytest.raises(InvalidInput, match="another version of beside_s"):
        fs.sweep("it.py", {"rounds": [2]}, out="runs", jobs=1, shard=(0, 1))
    study = fs.sweep("it.py", {"rounds": [2]}, out="runs", jobs=1, resume=True)
    assert [run["run"] for _, run in study.frame().iterrows()] == [second.runs[0].name]
    assert (here / "runs" / first.runs[0].name / "manifest.json").exists()  # the old one is still there


def test_a_neighbour_that_changes_during_a_sweep_fails_its_runs(here: Path) -> None:
    what = make_spec(load_file("it.py"), {"rounds": [2]}, {})
    (here / "beside_s.py").write_text("y = 55\n")
    study = run_sweep(what, here / "runs", jobs=1)
    assert "beside_s, which it.py imports, has changed since" in study.failed[0].message


def test_a_file_gets_its_own_neighbour_and_not_that_of_an_earlier_file(here: Path) -> None:
    for name, value in (("one", 1), ("two", 22)):
        (here / name).mkdir()
        (here / name / "it.py").write_text(SCENARIO.format(beside="from beside_t import value"))
        (here / name / "beside_t.py").write_text(f"value = {value}\n")
        assert load_file(here / name / "it.py").function.__globals__["value"] == value
    (here / "two/beside_t.py").write_text("value = 333\n")
    assert load_file(here / "two/it.py").function.__globals__["value"] == 333


# --- Messages -----------------------------------------------------------------------------------------


def test_a_closed_output_does_not_end_the_run(here: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "run", "it.py", "--out", "a"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()  # as head -1 does, at the latest
        assert running.stderr.read() == b""
        assert running.wait(timeout=60) == 0
    assert len(fs.load("a").rounds) == 4


def test_a_report_on_an_unfinished_run_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped(here / "a")
    assert call(["report", "a"]) == 2
    assert capsys.readouterr().err == "fedsim: a holds an unfinished run; go on with: fedsim resume a\n"
    assert call(["run", "it.py", "--out", "a"]) == 2
    assert "holds an unfinished run; go on with: fedsim resume" in capsys.readouterr().err


def test_warnings_do_not_precede_the_sentence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "import warnings, numpy as np\nwarnings.warn('mind the gap')\nnp.float64(1e308) * 10\n"
    (here / "loud.py").write_text(head + SCENARIO.format(beside=""))
    assert call(["run", "loud.py", "--set", "rounds=2"]) == 0
    assert capsys.readouterr().err.splitlines()[0] == "warning: mind the gap"
    assert call(["run", "loud.py", "--set", "algorithm.step_size=1e300"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("fedsim: ")
    assert lines[1:] == ["warning: mind the gap"]

"""Folders of version 0.2.0 are loaded and reported; resume, replay and sweeps into them are refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import fedsim as fs
from fedsim.cli.app import call
from fedsim.errors import InvalidInput
from fedsim.results.environment import versions
from fedsim.scenario_file import load_file

OLD = Path(__file__).parents[1] / "golden" / "0.2.0"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of the old folders."""
    return Path(shutil.copytree(OLD, tmp_path / "old"))


@pytest.fixture
def no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if the stored text of a scenario file is executed."""

    def executed(*_: object) -> None:
        raise AssertionError("code of the folder was executed")

    monkeypatch.setattr("fedsim.scenario_file._executed", executed)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_of_0_2_0_is_loaded(old: Path) -> None:
    result = fs.load(old / "run")
    assert result.manifest["versions"]["fedsim-systems"] == "0.2.0"
    assert result.samples.shape == (4, 3, 2)
    assert np.isfinite(result.samples).all()
    assert result.rounds["round"].max() == 4
    assert np.isfinite(result.metrics.w2).all()


def test_the_runs_of_a_sweep_of_0_2_0_are_loaded(old: Path) -> None:
    found = {
        path.parent.name: fs.load(path.parent).manifest["scenario"]["algorithm"]["local_steps"]
        for path in (old / "sweep").glob("*/manifest.json")
    }
    assert found == {"a84f06358af0": 1, "119392f24507": 2}


def test_the_status_of_a_sweep_of_0_2_0_is_shown(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["status", str(old / "sweep")]) == 0
    assert "tiny: 2 of 2 complete, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize("folder", ["run", "sweep"])
def test_a_report_is_written_on_folders_of_0_2_0(old: Path, folder: str, tmp_path: Path) -> None:
    assert call(["report", str(old / folder), "--out", str(tmp_path / "report.html")]) == 0
    assert "tiny" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_sweep_of_0_2_0_is_not_resumed_and_its_runs_do_not_count(old: Path) -> None:
    before = contents(old / "sweep")
    with pytest.raises(InvalidInput, match=rf"holds a sweep of fedsim 0\.2\.0, and this is {fs.__version__}; choose"):
        fs.sweep(old / "tiny.py", {"local_steps": [1, 2]}, out=old / "sweep", resume=True, jobs=1)
    assert contents(old / "sweep") == before
    again = fs.sweep(old / "tiny.py", {"local_steps": [1, 2]}, out=old / "again", jobs=1)
    assert not {"a84f06358af0", "119392f24507"} & {path.parent.name for path in again.folder.glob("*/manifest.json")}


SENTENCE = rf"holds a run of fedsim 0\.2\.0( or earlier)?, and this is {re.escape(fs.__version__)}; run it again"


@pytest.mark.usefixtures("no_code")
@pytest.mark.parametrize("folder", ["run", "checkpoint", "sweep/a84f06358af0"])
def test_a_run_of_0_2_0_is_not_resumed_by_the_command(
    old: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(old / folder)
    assert call(["resume", str(old / folder)]) == 2
    error = capsys.readouterr().err
    assert re.search(SENTENCE, error), error
    assert error.count("\n") == 1
    assert contents(old / folder) == before


@pytest.mark.parametrize("folder", ["run", "checkpoint"])
def test_a_run_of_0_2_0_is_not_resumed_by_fs_run(old: Path, folder: str) -> None:
    before = contents(old / folder)
    scenario = load_file(old / "tiny.py").build({})
    with pytest.raises(InvalidInput, match=SENTENCE):
        fs.run(scenario, out=old / folder, resume=True)
    assert contents(old / folder) == before


@pytest.mark.usefixtures("no_code")
@pytest.mark.parametrize("folder", ["run", "checkpoint"])
def test_a_job_of_0_2_0_is_not_replayed(old: Path, folder: str) -> None:
    with pytest.raises(InvalidInput, match=SENTENCE):
        fs.replay(old / folder, replica=0, round=1, client=0)


@pytest.mark.parametrize("options", [["--resume"], ["--retry-failed"], ["--shard", "0/2"], []])
def test_a_sweep_into_a_folder_of_0_2_0_is_refused(
    old: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(old / "sweep")
    command = ["sweep", str(old / "tiny.py"), "--grid", "local_steps=1,2", "--out", str(old / "sweep")]
    assert call([*command, *options]) == 2
    assert "holds a sweep of fedsim 0.2.0, and this is" in capsys.readouterr().err
    assert contents(old / "sweep") == before


def test_tuning_into_a_folder_of_0_2_0_is_refused(old: Path) -> None:
    with pytest.raises(InvalidInput, match=r"holds a sweep of fedsim 0\.2\.0"):
        fs.tune(old / "tiny.py", {"local_steps": [1, 2]}, "w2 <= 1", out=old / "sweep", seeds=1)


def test_a_run_has_the_version_of_the_code_that_ran_and_not_of_installed_metadata() -> None:
    assert versions()["fedsim-systems"] == fs.__version__

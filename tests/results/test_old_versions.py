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
def kept(tmp_path: Path) -> Path:
    """A copy of the old folders."""
    return Path(shutil.copytree(OLD, tmp_path / "kept"))


@pytest.fixture
def no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if the stored text of a scenario file is executed."""

    def executed(*_: object) -> None:
        raise AssertionError("code of the folder was executed")

    monkeypatch.setattr("fedsim.scenario_file._executed", executed)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_of_0_2_0_is_loaded(kept: Path) -> None:
    result = fs.load(kept / "run")
    assert result.manifest["versions"]["fedsim-systems"] == "0.2.0"
    assert result.samples.shape == (4, 3, 2)
    assert np.isfinite(result.samples).all()
    assert result.rounds["round"].max() == 4
    assert np.isfinite(result.metrics.w2).all()


def test_the_runs_of_a_sweep_of_0_2_0_are_loaded(kept: Path) -> None:
    found = {
        path.parent.name: fs.load(path.parent).manifest["scenario"]["algorithm"]["local_steps"]
        for path in (kept / "sweep").glob("*/manifest.json")
    }
    assert found == {"a84f06358af0": 1, "119392f24507": 2}


def test_the_status_of_a_sweep_of_0_2_0_is_shown(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["status", str(kept / "sweep")]) == 0
    assert "tiny: 2 of 2 complete, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize("folder", ["run", "sweep"])
def test_a_report_is_written_on_folders_of_0_2_0(kept: Path, folder: str, tmp_path: Path) -> None:
    assert call(["report", str(kept / folder), "--out", str(tmp_path / "report.html")]) == 0
    assert "tiny" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_sweep_of_0_2_0_is_not_resumed_and_its_runs_do_not_count(kept: Path) -> None:
    before = contents(kept / "sweep")
    with pytest.raises(InvalidInput, match=rf"holds a sweep of fedsim 0\.2\.0, and this is {fs.__version__}; choose"):
        fs.sweep(kept / "tiny.py", {"local_steps": [1, 2]}, out=kept / "sweep", resume=True, jobs=1)
    assert contents(kept / "sweep") == before
    again = fs.sweep(kept / "tiny.py", {"local_steps": [1, 2]}, out=kept / "again", jobs=1)
    assert not {"a84f06358af0", "119392f24507"} & {path.parent.name for path in again.folder.glob("*/manifest.json")}


SENTENCE = rf"holds a run of fedsim 0\.2\.0( or earlier)?, and this is {re.escape(fs.__version__)}; run it again"


@pytest.mark.usefixtures("no_code")
@pytest.mark.parametrize("folder", ["run", "checkpoint", "sweep/a84f06358af0"])
def test_a_run_of_0_2_0_is_not_resumed_by_the_command(
    kept: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(kept / folder)
    assert call(["resume", str(kept / folder)]) == 2
    error = capsys.readouterr().err
    assert re.search(SENTENCE, error), error
    assert error.count("\n") == 1
    assert contents(kept / folder) == before


@pytest.mark.parametrize("folder", ["run", "checkpoint"])
def test_a_run_of_0_2_0_is_not_resumed_by_fs_run(kept: Path, folder: str) -> None:
    before = contents(kept / folder)
    scenario = load_file(kept / "tiny.py").build({})
    with pytest.raises(InvalidInput, match=SENTENCE):
        fs.run(scenario, out=kept / folder, resume=True)
    assert contents(kept / folder) == before


@pytest.mark.usefixtures("no_code")
@pytest.mark.parametrize("folder", ["run", "checkpoint"])
def test_a_job_of_0_2_0_is_not_replayed(kept: Path, folder: str) -> None:
    with pytest.raises(InvalidInput, match=SENTENCE):
        fs.replay(kept / folder, replica=0, round=1, client=0)


@pytest.mark.parametrize("options", [["--resume"], ["--retry-failed"], ["--shard", "0/2"], []])
def test_a_sweep_into_a_folder_of_0_2_0_is_refused(
    kept: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(kept / "sweep")
    command = ["sweep", str(kept / "tiny.py"), "--grid", "local_steps=1,2", "--out", str(kept / "sweep")]
    assert call([*command, *options]) == 2
    assert "holds a sweep of fedsim 0.2.0, and this is" in capsys.readouterr().err
    assert contents(kept / "sweep") == before


def test_tuning_into_a_folder_of_0_2_0_is_refused(kept: Path) -> None:
    with pytest.raises(InvalidInput, match=r"holds a sweep of fedsim 0\.2\.0"):
        fs.tune(kept / "tiny.py", {"local_steps": [1, 2]}, "w2 <= 1", out=kept / "sweep", seeds=1)


def test_a_run_has_the_version_of_the_code_that_ran_and_not_of_installed_metadata() -> None:
    assert versions()["fedsim-systems"] == fs.__version__

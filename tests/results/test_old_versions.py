"""Folders that version 0.2.0 wrote: they are read, and this version does not go on with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import fedsim as fs
from fedsim.cli.app import call
from fedsim.errors import InvalidInput
from fedsim.results.environment import versions

KEPT = Path(__file__).parents[1] / "golden" / "0.2.0"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A copy of the kept folders."""
    return Path(shutil.copytree(KEPT, tmp_path / "kept"))


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
    assert "tiny: 2 of 2 whole, 0 failed" in capsys.readouterr().out


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


def test_a_checkpoint_of_0_2_0_is_not_resumed(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(kept / "checkpoint")
    assert call(["resume", str(kept / "checkpoint")]) == 2
    said = capsys.readouterr().err
    assert "another version of fedsim, Python or CPU made it; give it another --out" in said
    assert contents(kept / "checkpoint") == before


def test_a_run_has_the_version_of_the_code_that_ran_and_not_of_installed_metadata() -> None:
    assert versions()["fedsim-systems"] == fs.__version__

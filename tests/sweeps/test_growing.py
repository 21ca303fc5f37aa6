"""The folder of a sweep grows: runs of one identity are executed once, however a command names them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from strategies.files import MOODY

import fedsim as fs
from fedsim.cli.app import call
from fedsim.errors import CorruptData, InvalidInput
from fedsim.results.checksums import with_checksum
from fedsim.scenario_file import load_file
from fedsim.sweeps.execution import status
from fedsim.sweeps.spec import FORMAT, SweepSpec, make_spec


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.py").write_text(MOODY)
    return tmp_path / "tiny.py"


def executed(file: Path, grid: dict[str, list[Any]], **options: Any) -> tuple[int, fs.Study]:
    """Execute a sweep in `runs`; return how many runs were executed, and the study."""
    seen: list[str] = []
    study = fs.sweep(
        file, grid, out=file.parent / "runs", jobs=1, observers=[lambda event: seen.append(event.state)], **options
    )
    return seen.count("complete"), study


def test_values_in_any_order_a_subset_and_more_values_are_one_sweep(file: Path) -> None:
    assert executed(file, {"level": [3, 4]})[0] == 2
    assert executed(file, {"level": [4, 3]}, resume=True)[0] == 0
    assert executed(file, {"level": [4]}, resume=True)[0] == 0
    count, study = executed(file, {"level": [5, 4]}, resume=True)
    assert count == 1
    assert study.frame()["level"].tolist() == [3, 4, 5]
    assert len(status(file.parent / "runs").complete) == 3


def test_an_axis_with_a_default_keeps_the_runs_of_the_default(file: Path) -> None:
    assert executed(file, {"level": [3, 4]})[0] == 2
    count, study = executed(file, {"level": [3, 4], "rounds": [3, 5]}, resume=True)
    assert count == 2
    assert study.frame()[["level", "rounds"]].to_numpy().tolist() == [[3, 3], [3, 5], [4, 3], [4, 5]]
    count, study = executed(file, {"level": [4, 6]}, resume=True, settings={"rounds": 3})
    assert count == 1
    frame = fs.load(file.parent / "runs").frame()
    assert frame[["level", "rounds"]].to_numpy().tolist() == [[3, 3], [3, 5], [4, 3], [4, 5], [6, 3]]
    assert frame["fingerprint"].tolist() == [result.fingerprint for _, result in study.runs]


def test_an_added_axis_is_in_the_rows_of_earlier_runs(file: Path) -> None:
    executed(file, {"level": [3]})
    executed(file, {"rounds": [3, 5]}, settings={"level": 3}, resume=True)
    frame = fs.load(file.parent / "runs").frame()
    assert frame[["level", "rounds"]].to_numpy().tolist() == [[3, 3], [3, 5]]


def test_a_comment_does_not_make_another_sweep_and_code_does(file: Path) -> None:
    executed(file, {"level": [3]})
    file.write_text("# A comment.\n" + MOODY.replace("return None", "return  None  # nothing"))
    assert executed(file, {"level": [3]}, resume=True)[0] == 0
    file.write_text(MOODY.replace("0.5 *", "0.25 *"))
    with pytest.raises(InvalidInput, match="another source"):
        executed(file, {"level": [3]}, resume=True)


def test_a_comment_in_an_imported_module_does_not_make_another_sweep(file: Path) -> None:
    (file.parent / "beside.py").write_text("VALUE = 1\n")
    file.write_text("import beside\n" + MOODY)
    executed(file, {"level": [3]})
    (file.parent / "beside.py").write_text("VALUE = 1  # one\n")
    assert executed(file, {"level": [3]}, resume=True)[0] == 0


def test_a_default_that_the_environment_decides_is_part_of_the_identity(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(MOODY.replace("level: int = 0", "level: int = int(os.environ['LEVEL'])"))
    names = []
    for value in ("3", "4"):
        monkeypatch.setenv("LEVEL", value)
        names.append(make_spec(load_file(file), {"level": [3]}, {}).runs[0].name)
    assert names[0] != names[1]


def test_a_grid_with_no_run_in_common_or_without_resume_is_refused(file: Path) -> None:
    executed(file, {"level": [3, 4]})
    with pytest.raises(InvalidInput, match="none of these 1 runs is in it; repeat one of its values"):
        executed(file, {"level": [5]}, resume=True)
    with pytest.raises(InvalidInput, match="none of these 2 runs"):
        executed(file, {"level": [3, 4]}, settings={"rounds": 9}, resume=True)
    with pytest.raises(InvalidInput, match=r"already holds a sweep; add --resume"):
        executed(file, {"level": [3, 5]})
    with pytest.raises(InvalidInput, match="add --resume to add 1 runs to it"):
        executed(file, {"level": [3, 5]}, shard=(0, 2))


LINE = ["sweep", "tiny.py", "--grid", "level=3,4", "--out", "runs", "--jobs", "1"]


def test_a_dry_run_is_refused_where_the_run_is(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(LINE) == 0
    for more in ([], ["--resume", "--set", "rounds=9"]):
        codes, sentences = [], []
        for dry in ([], ["--dry-run"]):
            capsys.readouterr()
            codes.append(call([*LINE, *more, *dry]))
            sentences.append(capsys.readouterr().err)
        assert codes == [2, 2]
        assert sentences[0] == sentences[1]


def test_a_dry_run_counts_the_runs_that_the_run_executes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "bad").touch()
    line = [*LINE, "--grid", "rounds=3,5", "--set", "bad=bad"]
    line[3] = "level=1,3"
    assert call(line) == 1
    for more, todo in (["--resume"], 0), (["--retry-failed"], 2):
        capsys.readouterr()
        assert call([*line, *more, "--dry-run"]) == 0
        dry = capsys.readouterr().out
        assert f"2 complete, {todo} to do" in dry
        assert ("estimate" in dry) == bool(todo)
        assert call([*line, *more]) == 1
        assert dry.splitlines()[0] in capsys.readouterr().out


def test_a_grid_that_replaces_the_files_own_says_so(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(MOODY + "\ngrid = {'rounds': [3, 5]}\n")
    assert call([*LINE, "--dry-run"]) == 0
    assert "--grid replaces the grid of tiny.py (rounds); to keep it, add --grid rounds=3,5" in capsys.readouterr().out
    assert call(["sweep", "tiny.py", "--out", "other", "--dry-run"]) == 0
    assert "replaces" not in capsys.readouterr().out


def test_a_stored_sweep_of_a_billion_runs_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    executed(file, {"level": [3]})
    stored = json.loads((file.parent / "runs/sweep.json").read_text())
    del stored["checksum"], stored["fedsim_format"]
    for where in (stored, stored["more"]):
        grid = {f"a{i}": list(range(1000)) for i in range(3)}
        changed = {**stored, "grid": grid} if where is stored else {**stored, "more": [{"grid": grid, "settings": {}}]}
        (file.parent / "runs/sweep.json").write_bytes(with_checksum(FORMAT, changed))
        with pytest.raises(CorruptData, match=r"1,000 x 1,000 x 1,000 = 1,000,000,000 runs"):
            SweepSpec.read(file.parent / "runs")
        for command in ("status", "report"):
            assert call([command, "runs"]) != 0
            assert capsys.readouterr().err.count("\n") == 1

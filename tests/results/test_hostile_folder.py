"""Reading a folder runs nothing that it holds, whatever its manifest says."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

import fedsim as fs
from fedsim.cli.app import call
from fedsim.results import folder as folders
from fedsim.results.checksums import file_checksum, read_json, with_checksum

TEXT = """
import fedsim as fs

def scenario(*, rounds: int = 3):
    return fs.Scenario(
        problem=fs.problems.GaussianMean.synthetic(4, 2, 4.0, 20, seed=1),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=2), budget=fs.Budget(rounds=rounds), metrics=("mean_error",))
"""
FIGURE = """
def figure(study):
    from matplotlib.figure import Figure
    drawn = Figure(figsize=(1, 1))
    drawn.subplots().plot([1, 2], [len(study.runs), 3])
    return drawn
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.py").write_text(TEXT)
    (tmp_path / "drawn.py").write_text(TEXT + FIGURE)
    return tmp_path


def hostile(folder: Path, trap: Path, **more: object) -> None:
    """A manifest that stores code that leaves a trace if it is executed."""
    code = (
        f"open({str(trap)!r}, 'w').close()\n" + TEXT + f"\ndef figure(study):\n    open({str(trap)!r}, 'w').close()\n"
    )
    facts = read_json(folder / "manifest.json", folders.FORMAT)
    facts["source"] |= {"text": code, "folder": str(folder), "file": str(folder / "manifest.json")}
    facts |= more
    (folder / "manifest.json").write_bytes(with_checksum(folders.FORMAT, facts))


def test_a_report_on_a_hostile_folder_is_complete_and_runs_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["run", "plain.py", "--out", "a"]) == 0
    printed = capsys.readouterr().out
    trap = here / "trap"
    hostile(here / "a", trap)
    assert call(["report", "a"]) == 0
    assert call(["resume", "a"]) == 0  # a complete run is only summarised
    assert fs.load("a").fingerprint
    assert not trap.exists()
    page = (here / "a/report.html").read_text()
    words = printed[printed.index("stopped by") : printed.index("real ")].split()
    shown = html.unescape(page).split()
    assert set(words) <= set(shown)  # the same lines as after the run, only wider
    assert "&#x27;w&#x27;).close()" in page  # the source is shown, as text


@pytest.mark.parametrize(
    "more",
    [
        {"scenario": {}},
        {"scenario": {"budget": [1]}},
        {"scenario": {"budget": {"rounds": {"a": 1}, "target": 3}}},
        {"clock": 3},
        {"clock": {"path": 1}},
        {"source": [1]},
        {"source": {"text": 5}},
        {"privacy": {"guarantee": {"valid": 1}}},
        {"real_s": "soon"},
    ],
)
def test_an_odd_manifest_is_reported_on_or_refused_in_one_sentence(
    here: Path, more: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["run", "plain.py", "--out", "a", "--quiet"]) == 0
    facts = read_json(here / "a/manifest.json", folders.FORMAT)
    (here / "a/manifest.json").write_bytes(with_checksum(folders.FORMAT, {**facts, **more}))
    capsys.readouterr()
    code = call(["report", "a"])
    assert code == 0 or re.fullmatch(r"fedsim: .*\n", capsys.readouterr().err)


def test_the_figure_is_drawn_when_the_run_ends_and_shown_in_the_report(here: Path) -> None:
    assert call(["run", "drawn.py", "--out", "a", "--quiet"]) == 0
    assert (here / "a/drawn.png").exists()
    (here / "drawn.py").unlink()
    assert call(["report", "a"]) == 0
    assert 'alt="drawn"' in (here / "a/report.html").read_text()


def test_a_command_that_names_the_file_draws_its_figure(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "plain.py", "--out", "a", "--quiet"]) == 0
    assert call(["report", "a", "--figure", "plain.py"]) == 2
    assert "defines no figure" in capsys.readouterr().err
    assert call(["report", "a", "--figure", "drawn.py"]) == 0
    assert 'alt="drawn"' in (here / "a/report.html").read_text()


def test_a_pipe_in_place_of_a_file_does_not_make_a_reader_wait(here: Path) -> None:
    import os

    assert call(["run", "plain.py", "--out", "a", "--quiet"]) == 0
    for name in ("samples.npz", "manifest.json"):
        (here / "a" / name).unlink()
        os.mkfifo(here / "a" / name)
        with pytest.raises(fs.errors.CorruptData, match=f"{name} is damaged: it is no plain file"):
            fs.load("a")


def test_digests_are_those_of_the_files_and_can_be_checked_without_fedsim(here: Path) -> None:
    assert call(["run", "plain.py", "--out", "a", "--quiet"]) == 0
    sums = json.loads((here / "a/manifest.json").read_bytes())["files"]
    assert sums == {p.name: file_checksum(p) for p in (here / "a").iterdir() if p.suffix in (".parquet", ".npz")}

"""The status of runs and sweeps: complete, damaged, unfinished, running; for people, and for scripts that wait."""

from __future__ import annotations

import json
import os
import platform
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from strategies.files import MOODY
from tools.faults import run

import fedsim as fs
from fedsim.cli.app import call
from fedsim.errors import CorruptData, Interrupted
from fedsim.results import lock
from fedsim.results.checksums import read_json, with_checksum
from fedsim.results.folder import FORMAT, state
from fedsim.running import activity
from fedsim.sweeps.execution import claimed, status

SWEEP = ["sweep", "tiny.py", "--grid", "level=3,4", "--out", "runs", "--jobs", "1", "--quiet"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.py").write_text(MOODY)
    return tmp_path


def seen(capsys: pytest.CaptureFixture[str], *line: str) -> tuple[int, str]:
    capsys.readouterr()
    code = call(["status", *line])
    return code, capsys.readouterr().out


def stopped(folder: Path) -> None:
    stop = threading.Event()
    with pytest.raises(Interrupted):
        run(folder, checkpoint_every=2, stop=stop, observers=[lambda p: stop.set() if p.round == 3 else None])


def in_the_middle(body: Callable[[], Any], folder: Path) -> Any:
    """The answer of `body` while a run in this folder has closed its third round and not its fourth."""
    reached, go_on = threading.Event(), threading.Event()

    def wait(progress: Any) -> None:
        if progress.round == 4:
            reached.set()
            assert go_on.wait(60)

    thread = threading.Thread(target=lambda: run(folder, checkpoint_every=1, observers=[wait]))
    thread.start()
    try:
        assert reached.wait(60)
        return body()
    finally:
        go_on.set()
        thread.join()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


# --- One run ------------------------------------------------------------------------------------------------------


def test_a_complete_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(here / "a")
    assert state(here / "a") == "complete"
    for line in ([], ["--check"]):
        assert seen(capsys, "a", *line) == (0, "complete\nnext    fedsim report a\n")


@pytest.mark.parametrize("name", ["samples.npz", "rounds.parquet", "clients.parquet"])
@pytest.mark.parametrize("hurt", [cut, Path.unlink])
def test_a_result_without_a_file_or_with_a_short_one_is_damaged(
    here: Path, name: str, hurt: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    run(here / "a")
    hurt(here / "a" / name)
    assert state(here / "a") == "damaged"
    code, text = seen(capsys, "a")
    assert code == 1
    assert text.startswith(f"damaged a/{name} is ")
    with pytest.raises(CorruptData, match=name):
        run(here / "a", resume=True)


def test_a_changed_byte_is_found_with_check_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(here / "a")
    flip(here / "a/samples.npz")
    assert seen(capsys, "a")[0] == 0
    code, text = seen(capsys, "a", "--check")
    assert (code, text.count("\n")) == (1, 1)
    assert "a/samples.npz is damaged: its bytes do not match the checksum" in text


def test_a_manifest_that_was_cut_is_damaged_and_that_of_another_program_foreign(here: Path) -> None:
    run(here / "a")
    cut(here / "a/manifest.json")
    assert state(here / "a") == "damaged"
    (here / "a/manifest.json").write_text('{"name": "app"}')
    assert state(here / "a") == "foreign"


def test_odd_sizes_in_a_manifest_are_damage(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(here / "a")
    facts = read_json(here / "a/manifest.json", FORMAT)
    for odd in ({"samples.npz": "many"}, {"samples.npz": [1]}, 3, [1]):
        (here / "a/manifest.json").write_bytes(with_checksum(FORMAT, {**facts, "sizes": odd}))
        assert seen(capsys, "a")[0] == 1


def test_a_result_of_an_earlier_version_has_no_sizes(here: Path) -> None:
    run(here / "a")
    facts = read_json(here / "a/manifest.json", FORMAT)
    del facts["sizes"]
    (here / "a/manifest.json").write_bytes(with_checksum(FORMAT, facts))
    assert state(here / "a") == "complete"
    (here / "a/metrics.parquet").unlink()
    assert state(here / "a") == "damaged"


def test_an_unfinished_run_names_its_checkpoint_and_the_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stopped(here / "a")
    assert state(here / "a") == "unfinished"
    assert seen(capsys, "a") == (4, "unfinished, checkpoint after round 3\nnext    fedsim resume a\n")


def test_a_running_run_shows_round_host_age_and_eta(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(activity, "EVERY_S", 0.0)
    code, text = in_the_middle(lambda: seen(capsys, "a", "--json"), here / "a")
    facts = json.loads(text)
    (one,) = facts["running"]
    assert (code, facts["state"], facts["exit"]) == (3, "running", 3)
    assert (one["round"], one["rounds"], one["pid"], one["host"]) == (3, 6, os.getpid(), platform.node())
    assert one["age_s"] >= one["idle_s"] >= 0
    assert one["left_s"] > 0
    shutil.rmtree(here / "a")
    code, text = in_the_middle(lambda: seen(capsys, "a"), here / "a")
    assert code == 3
    assert text.startswith("running round 3/6, ETA ")
    assert f", process {os.getpid()} on {platform.node()}, for " in text
    assert seen(capsys, "a")[0] == 0


@pytest.mark.parametrize(
    "odd", [{"round": "x"}, {"round": 1e300, "since": [], "host": 3}, {"first": [0, 0]}, {"pid": "\x1b"}]
)
def test_odd_notes_in_a_lock_count_as_missing(
    here: Path, odd: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(here / "a")
    held = lock.take(here / "a")
    held.note(odd)
    code, text = seen(capsys, "a")
    assert code == 3
    assert text.startswith("running ")
    assert "\x1b" not in text
    held.release()


def test_no_run_is_a_sentence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty").mkdir()
    (here / "mine").mkdir()
    (here / "mine/manifest.json").write_text("{}")
    for name in ("empty", "mine", "absent"):
        assert call(["status", name]) == 2
        assert capsys.readouterr().err.count("\n") == 1


# --- Sweeps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hurt", [cut, Path.unlink])
def test_a_damaged_run_of_a_sweep_has_failed_until_it_is_repeated(
    here: Path, hurt: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(SWEEP) == 0
    before = fs.load("runs").frame()
    name = before["run"][0]
    hurt(here / "runs" / name / "samples.npz")
    code, text = seen(capsys, "runs")
    assert code == 1
    assert text.startswith("tiny: 1 of 2 complete, 1 failed, 0 running, 0 to do\n")
    assert f"failed  {name} level=3\n        CorruptData: runs/{name}/samples.npz is" in text
    assert fs.load("runs").frame()["run"].tolist() == before["run"].tolist()[1:]
    assert call([*SWEEP, "--resume"]) == 1
    assert call([*SWEEP, "--retry-failed"]) == 0
    assert seen(capsys, "runs")[0] == 0
    assert fs.load("runs").frame()["fingerprint"].tolist() == before["fingerprint"].tolist()
    (here / "runs" / name / "notes.txt").write_text("mine")
    hurt(here / "runs" / name / "samples.npz")
    assert call([*SWEEP, "--retry-failed"]) == 1  # the folder is not ours alone
    assert (here / "runs" / name / "notes.txt").read_text() == "mine"


def test_check_reads_every_file_of_a_sweep(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(SWEEP) == 0
    flip(here / "runs" / status("runs").complete[0].name / "samples.npz")
    assert seen(capsys, "runs")[0] == 0
    code, text = seen(capsys, "runs", "--check", "--json")
    assert (code, json.loads(text)["complete"]) == (1, 1)
    assert "samples.npz is damaged" in json.loads(text)["failed"][0]["message"]


def test_a_script_can_wait_for_a_sweep(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To do: 4; running, even if another has failed: 3; then 1 if one has failed, else 0."""
    (here / "bad").touch()
    line = [*SWEEP, "--set", "bad=bad"]
    line[3] = "level=1,3"
    assert call(line) == 1
    names = [order.name for order in (*status("runs").complete, *status("runs").to_do)]
    shutil.rmtree(here / "runs" / names[0])
    with claimed(here / "runs", names[0]):
        code, text = seen(capsys, "runs", "--json")
        facts = json.loads(text)
        assert (code, facts["runs"], facts["complete"], facts["to_do"]) == (3, 2, 0, 0)
        assert [(one["run"], one["pid"]) for one in facts["running"]] == [(names[0], os.getpid())]
        assert [one["kind"] for one in facts["failed"]] == ["ClientFailed"]
        assert f"running {names[0]} level=3 process {os.getpid()} on " in seen(capsys, "runs")[1]
    assert seen(capsys, "runs")[0] == 1
    (here / "bad").unlink()
    assert call([*line, "--retry-failed"]) == 0
    shutil.rmtree(here / "runs" / names[0])
    assert seen(capsys, "runs")[0] == 4
    assert call([*line, "--resume"]) == 0
    assert seen(capsys, "runs")[0] == 0

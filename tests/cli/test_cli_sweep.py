"""Sweeps, resumed runs and reports on the command line: output, files and exit codes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from strategies.files import MOODY

import fedsim as fs
from fedsim.cli.app import call
from fedsim.errors import Interrupted
from fedsim.scenario_file import load_file

PROGRAM = [sys.executable, "-c", "from fedsim.cli import main; main()"]
SLOW = ["--set", "rounds=300", "--set", "slow=slow"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.py").write_text(MOODY)
    return tmp_path


def test_a_sweep_prints_counts_failures_and_the_next_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "bad").touch()
    line = [
        "sweep",
        "tiny.py",
        "--grid",
        "level=1,3",
        "--grid",
        "seed=0:2",
        "--set",
        "bad=bad",
        "--out",
        "runs",
        "--jobs",
        "1",
    ]
    assert call(line) == 1
    text = capsys.readouterr().out
    assert "2x2 = 4 runs; 0 complete, 4 to do\n" in text
    assert re.search(r"^level +done +failed +virtual time +uplink +mean_error$", text, re.MULTILINE)
    assert re.search(r"^1 +0 +2 ", text, re.MULTILINE)
    assert re.search(
        r"^failed  [0-9a-f]{12} level=1 seed=0\n +.*the dog ate it.*\n +log runs/.*/run\.log$",
        text,
        re.MULTILINE,
    )
    assert "done: 2 complete, 2 failed" in text
    assert "retry   --retry-failed" in text
    assert "\x1b" not in text

    assert call(["status", "runs"]) == 1
    assert capsys.readouterr().out.startswith("tiny: 2 of 4 complete, 2 failed, 0 running, 0 to do\nfailed ")
    assert call([*line, "--resume", "--quiet"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "the dog ate it" in captured.err

    (here / "bad").unlink()
    assert call([*line, "--retry-failed"]) == 0
    assert "2 complete, 2 to do" in capsys.readouterr().out
    assert call(["status", "runs"]) == 0
    assert fs.load("runs").frame()["level"].tolist() == [1, 1, 3, 3]

    run = fs.load("runs").frame()["run"][0]
    for folder in (here / "runs", here / "runs" / run):
        assert call(["report", str(folder)]) == 0
        html = (folder / "report.html").read_text()
        assert "mean_error" in html
        assert html.count('class="plot"') >= 1
        assert not re.search(r"<(script|link|img)[^>]*(src|href)=.?http", html)  # opens without a network
    assert len(fs.load("runs").frame()) == 4  # report.html is not a run


def test_a_resumed_sweep_shows_medians_of_all_its_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = ["sweep", "tiny.py", "--grid", "rounds=3,4", "--grid", "seed=0:3", "--jobs", "1", "--out"]

    def rows(*line: str) -> list[str]:
        assert call([*grid, *line]) == 0
        return re.findall(r"^(?:rounds|[34]) .*", capsys.readouterr().out, re.MULTILINE)

    first = rows("runs", "--shard", "0/2")
    complete = rows("again")
    resumed = rows("runs", "--resume")
    assert resumed == complete
    assert first[1:] != complete[1:]  # of two and of one run: the medians differ, so there is something to see
    assert rows("runs", "--resume") == complete  # nothing to do, and still the medians of all


def test_a_dry_run_estimates_time_and_disk_and_leaves_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(here.iterdir())
    assert call(["sweep", "tiny.py", "--grid", "level=3:8", "--out", "runs", "--dry-run", "--jobs", "2"]) == 0
    text = capsys.readouterr().out
    assert "5 runs; 0 complete, 5 to do" in text
    assert re.search(r"estimate: .* each; 5 runs, 2 at a time: [\d.]+(?: m?s|m\d\ds), .*B\n", text)
    assert [p for p in sorted(here.iterdir()) if p.name != "__pycache__"] == before


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("sweep tiny.py --grid level=1 --out runs --shard 3", "--shard 3: write 3/20"),
        ("sweep tiny.py --grid level=1 --out runs --shard 3/3", "numbered 0 to 2"),
        ("sweep tiny.py --grid level=1 --out runs --jobs 0", "jobs=0"),
        ("sweep tiny.py --grid level= --out runs", "it has no value"),
        ("sweep tiny.py --grid level --out runs", "write name=value"),
        ("sweep tiny.py --grid level=1", "--out"),
        (
            "sweep tiny.py --grid level=1 --out runs --address auto",
            "--address auto has no effect with --runtime inline",
        ),
        ("run tiny.py --hosts 2", "--hosts 2 has no effect with --runtime inline"),
        ("run tiny.py --runtime ray --threads 2", "--threads 2 has no effect with --runtime ray"),
        ("run tiny.py --checkpoint-every 5", "--checkpoint-every needs --out"),
        ("run tiny.py --checkpoint-every soon --out runs", "checkpoint_every='soon'"),
        ("status .", "no sweep's folder"),
        ("resume .", "no run's folder"),
        ("report absent", "no folder"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    line: str, sentence: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(line.split()) == 2
    assert re.fullmatch(rf"fedsim: .*{re.escape(sentence)}.*\n", capsys.readouterr().err)
    assert not (here / "runs").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_resumes_from_its_copy_of_the_file(number: int, here: Path) -> None:
    (here / "slow").touch()
    line = ["run", "tiny.py", *SLOW, "--out", "a"]
    with subprocess.Popen([*PROGRAM, *line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()  # the header: from here on it is running
        running.send_signal(number)
        assert running.wait(timeout=60) == 130
        assert re.fullmatch(r"fedsim: stopped after round \d+; go on with: fedsim resume .*/a\n", running.stderr.read())
    stored = json.loads((here / "a/run.json").read_text())
    assert stored["source"]["text"] == MOODY
    assert stored["source"]["settings"] == {"rounds": "300", "slow": "slow"}
    (here / "tiny.py").unlink()
    (here / "slow").unlink()
    assert call(["resume", "a", "--quiet"]) == 0
    (here / "tiny.py").write_text(MOODY)
    assert call([*line[:-1], "b", "--quiet"]) == 0
    assert fs.load("a").fingerprint == fs.load("b").fingerprint


def test_resuming_a_complete_run_prints_its_summary_and_repeats_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["run", "tiny.py", "--out", "a", "--quiet"]) == 0
    before = (here / "a/manifest.json").stat().st_mtime_ns
    assert call(["resume", "a"]) == 0
    assert "stopped by rounds=3" in capsys.readouterr().out
    assert (here / "a/manifest.json").stat().st_mtime_ns == before


def test_an_interrupted_sweep_exits_with_130_and_can_be_resumed(here: Path) -> None:
    (here / "slow").touch()
    line = [*PROGRAM, "sweep", "tiny.py", "--grid", "level=3,4", *SLOW, "--out", "runs", "--jobs", "1"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        for _ in range(200):
            time.sleep(0.1)
            if list(here.glob("runs/*/run.json")):
                break
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 130
        assert running.stderr is not None
        assert "2 of 2 runs to do; go on with the same command and --resume" in running.stderr.read()
    assert call(["status", "runs"]) == 4
    assert len(list(here.glob("runs/*/run.json"))) == 1
    assert list(here.glob("runs/*/checkpoints/*.json"))
    assert not list(here.glob("runs/.claims/*"))


def test_a_timing_only_run_is_resumed_without_learning(here: Path) -> None:
    assert call(["run", "tiny.py", "--timing-only", "--out", "a", "--quiet"]) == 0
    file, stop = load_file("tiny.py"), threading.Event()
    with pytest.raises(Interrupted):
        fs.run(
            file.build({}), out="b", timing_only=True, checkpoint_every=1, source=file.origin({}), stop=stop,
            observers=[lambda progress: stop.set()],
        )  # fmt: skip
    assert call(["resume", "b", "--quiet"]) == 0
    one, other = fs.load("a"), fs.load("b")
    assert one.samples is other.samples is None
    assert one.fingerprint == other.fingerprint

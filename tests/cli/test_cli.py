"""The command line: output, files and exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fedsim as fs
from fedsim import text
from fedsim.analysis import intervals
from fedsim.cli import listing
from fedsim.cli.app import call
from fedsim.engine.run import Progress
from fedsim.running import progress

SCENARIO = '''"""A mean of five clients."""
from dataclasses import dataclass
from typing import Literal

import numpy as np
import fedsim as fs


@dataclass(frozen=True)
class Broken(fs.algorithms.FALD):
    batched = False

    def fused(self, problem, backend):
        return None

    def client(self, job, message, memory):
        if job.client == 3:
            raise LookupError("the dog ate it")
        return {"theta": message["theta"]}, memory


def scenario(
    *,
    local_steps: int = 2,
    step_size: float = 1e-3,
    size: int | None = None,
    data: Literal["good", "nan", "ragged"] = "good",
    broken: bool = False,
):
    x = [np.full((4, 2), c, float) for c in range(5)]
    if data == "nan":
        x[1][2, 0] = np.nan
    if data == "ragged":
        x[1] = np.ones((4, 3))
    return fs.Scenario(
        problem=fs.problems.GaussianMean(x, np.eye(2)),
        algorithm=(Broken if broken else fs.algorithms.FALD)(step_size=step_size, local_steps=local_steps),
        participation=fs.participation.uniform(size) if size else fs.participation.full(),
        budget=fs.Budget(rounds=4),
        replicas=3,
        metrics=("w2",),
    )
'''
GRID = """
grid = {"local_steps": [1, 3]}


def figure(study):
    from fedsim.analysis import figures

    fig = figures.blank(3, 2)
    figures.curves(fig.subplots(), {str(s): r for s, r in study.runs}, "w2")
    return fig
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with a scenario file and one that has a grid."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mean.py").write_text(SCENARIO)
    (tmp_path / "grid.py").write_text(SCENARIO + GRID)
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


# --- A run that goes well ------------------------------------------------------------------------------


def test_run_prints_a_header_and_a_summary(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "mean.py", "--set", "local_steps=7", "--threads", "1"]) == 0
    output = printed(capsys)
    assert "mean: FALD, GaussianMean d=2, 5 clients, 3 replicas, seed 0, inline 1 thread" in output
    assert "FALD(step_size=0.001, local_steps=7)" in output
    assert "full()     wire  float64, 128 bits up" in output
    assert "stopped by rounds=4" in output
    assert re.search(r"uplink +2\.56 kbit +2\.56 kbit +2\.56 kbit   wasted 0%", output)
    assert "selected 5   arrived 5   late 0   dropped 0   (per round)" in output
    assert re.search(r"^w2 \d", output, re.MULTILINE)
    assert re.search(r"real .*fingerprint [0-9a-f]{8}$", output, re.MULTILINE)
    assert output.splitlines()[-1].startswith("next: ")


def test_the_summary_names_the_parts_without_time(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(["run", "mean.py"])
    output = " ".join(printed(capsys).split())
    assert "network is None: messages take no time" in output
    assert "devices is None: computing takes no time" in output


def test_out_saves_a_result_with_its_source(here: Path) -> None:
    assert call(["run", "mean.py", "--set", "local_steps=7", "--seed", "5", "--out", "runs/a", "--quiet"]) == 0
    source = json.loads((here / "runs/a/manifest.json").read_text())["source"]
    assert source["text"] == SCENARIO
    assert source["settings"] == {"local_steps": "7", "seed": 5}
    assert fs.load(here / "runs/a").manifest["scenario"]["seed"] == 5


def test_the_command_line_gives_the_bits_of_the_python_interface(here: Path) -> None:
    from fedsim.scenario_file import load_file

    call(["run", "mean.py", "--set", "local_steps=7", "--out", "a", "--quiet"])
    result = fs.run(load_file("mean.py").function(local_steps=7))
    assert fs.load(here / "a").fingerprint == result.fingerprint


def test_quiet_prints_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "grid.py", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_grid_gives_one_line_and_one_folder_per_run_and_a_figure(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    assert call(["run", "grid.py", "--out", "runs"]) == 0
    output = printed(capsys)
    assert "2: local_steps = 1, 3" in output
    rows = [line.split()[:2] for line in output.splitlines() if re.match(r" +[13] ", line)]
    assert rows == [["1", "4"], ["3", "4"]]
    assert sorted(path.name for path in (here / "runs").iterdir()) == [
        "grid.png",
        "local_steps=1",
        "local_steps=3",
    ]
    assert fs.load(here / "runs" / "local_steps=3").manifest["scenario"]["algorithm"]["local_steps"] == 3
    assert (here / "runs" / "grid.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_without_out_is_saved_in_the_current_folder(here: Path) -> None:
    assert call(["run", "grid.py", "--set", "local_steps=2", "--quiet"]) == 0
    assert sorted(path.name for path in here.glob("*.png")) == ["grid.png"]


# --- Help and lists ---------------------------------------------------------------------------------


def test_help_of_a_file_lists_its_own_arguments(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "grid.py", "--help"]) == 0
    output = printed(capsys)
    assert "--set" in output
    assert re.search(r"local_steps +int +2\n", output)
    assert re.search(r"size +int \| None +None\n", output)
    assert re.search(r"data +Literal\['good', 'nan', 'ragged'\] +'good'\n", output)
    assert "local_steps = [1, 3]" in output


def test_help_without_a_file_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "--help"]) == 0
    assert call([]) == 0
    assert "Usage: fedsim run" in printed(capsys)


def test_list_names_every_public_part_with_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert call(["list"]) == 0
    output = printed(capsys)
    assert re.search(r"quickstart +\w+", output)
    for name in (
        *fs.algorithms.__all__,
        *(n for n in fs.problems.__all__ if isinstance(getattr(fs.problems, n), type)),
    ):
        assert re.search(rf"^  {name}\b", output, re.MULTILINE), name
    assert re.search(r"FALD\n +FA-LD: .*\n +wire  up theta \(d\), down theta \(d\)\n +memory  none\n", output)
    assert re.search(r"uniform\(size, weighting=None, at_least=None\)\s+Scheme II", output)


@pytest.mark.parametrize("name", fs.algorithms.__all__)
def test_list_shows_paper_wire_memory_and_participation_of_every_algorithm(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert call(["list"]) == 0
    own = re.search(rf"^  {name}\n((?:    .*\n)+)", printed(capsys), re.MULTILINE)
    assert own
    paper, *rest = [line.strip() for line in own[1].splitlines()]
    assert re.search(r"\b(19|20)\d\d\b|arXiv \d{4}\.\d{5}|paper's equation \d", paper), paper
    facts = dict(line.split("  ", 1) for line in rest)
    if name in ("DESGLD", "DIGingSGLD"):
        assert list(facts) == ["wire", "memory", "exchange", "arguments"]
        assert facts["wire"].startswith("to each neighbour")
        assert facts["exchange"].startswith("gossip()")
        return
    assert list(facts) == ["wire", "memory", "participation", "arguments"]
    assert re.match(r"up .+, down .+", facts["wire"])
    receivers = "all clients" if name.startswith("QLSD") else "the selected clients"
    assert re.fullmatch(rf"full\(\) by default; .+; the broadcast goes to {receivers}", facts["participation"])
    remember = {
        "Scaffold", "QLSDStar", "QLSDPlusPlus", "FedDyn", "FedAdam", "FedYogi", "FedAdagrad", "FedBE", "DGSGLD", "PSGLD"
    }  # fmt: skip
    assert facts["memory"].startswith("none") == (name not in remember)


def test_facts_that_a_docstring_lacks_are_empty() -> None:
    @dataclass
    class Silent:
        step_size: float

    facts = listing.facts(Silent)
    assert [key for key, value in facts.items() if not value] == ["wire", "memory", "participation", "exchange"]


# --- Mistakes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("run mean.py --set local_steps=-5", r"mean\.py:\d+: FALD\(local_steps=-5\)"),
        ("run mean.py --set local_steps=many", "local_steps=many: must be an integer"),
        ("run mean.py --set data=odd", "data=odd: must be one of good, nan, ragged"),
        ("run mean.py --set size=60", "only 5 clients exist; use at most 5"),
        ("run mean.py --set data=nan", "NaN"),
        ("run mean.py --set data=ragged", "columns"),
        ("run mean.py --set budget.round=5", r"did you mean budget\.rounds\?"),
        ("run mean.py --set algorithm.step_size=-1", r"step_size=-1\.0"),
        ("run mean.py --set nonsense", "write name=value"),
        ("run mean.py --seed 1 --set seed=2", "give one of them"),
        ("run mean.py --threads 0", "threads=0"),
        ("run mean.py --runtime cloud", "--runtime cloud: choose inline"),
        ("run mean.py --out mean.py", "already exists"),
        ("run mean.py --out mean.py/x", "cannot write mean.py/x"),
        ("run mean.py --fast", "--fast"),
        ("run absent.py", "no such file"),
        ("run .", "is a folder"),
        ("run", "run needs a FILE"),
        ("jog mean.py", "jog"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(
    line: str, sentence: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    before = sorted(here.rglob("*"))
    assert call(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(rf"fedsim: .*{sentence}.*\n", captured.err)
    assert [path for path in sorted(here.rglob("*")) if "__pycache__" not in path.parts] == before


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("def scenario(:", r"bad\.py:1: invalid syntax"),
        ("x = 1", r"bad\.py defines no function scenario\(\)"),
        ("import fedsim\n\nraise KeyError('lost')", r"bad\.py:3: KeyError: 'lost'"),
        ("def scenario():\n    return open('absent.csv')", r"bad\.py:2: FileNotFoundError: .*absent\.csv"),
        (SCENARIO + "\ndef figure(study):\n    return study.nothing", r"bad\.py:\d+: AttributeError"),
        (SCENARIO + "\ndef figure(study):\n    return 3", r"figure\(\) returned int, not a matplotlib figure"),
    ],
)
def test_a_mistake_in_the_file_shows_file_line_and_message(
    source: str, sentence: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    (here / "bad.py").write_text(source)
    assert call(["run", "bad.py"]) == 2
    assert re.fullmatch(rf"fedsim: .*{sentence}.*\n", capsys.readouterr().err)


def test_a_failed_run_is_exit_code_1_and_leaves_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "mean.py", "--set", "broken=yes", "--out", "a"]) == 1
    assert re.search(r"mean\.py:\d+: .*LookupError: the dog ate it .*client 3", capsys.readouterr().err)
    assert call(["run", "mean.py", "--set", "step_size=1e300", "--out", "a"]) == 1
    assert re.search(r"fedsim: .*not finite in round \d.*try step_size", capsys.readouterr().err)
    assert not (here / "a").exists()


def test_an_interrupt_finishes_the_round_and_is_exit_code_130(here: Path) -> None:
    command = [sys.executable, "-c", "from fedsim.cli import main; main()", "run", "mean.py"]
    command += ["--set", "budget.rounds=100000000", "--set", "record.warmup=99999999"]
    command += ["--set", "record.rounds_every=100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()  # the header: from here on it is running
        running.send_signal(signal.SIGINT)
        code = running.wait(timeout=60)
        assert code == 130
        assert re.fullmatch(r"fedsim: stopped after round \d+\n", running.stderr.read())


# --- On a terminal, and not ---------------------------------------------------------------------------


def test_output_to_a_file_has_no_control_codes(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("FORCE_COLOR", "1")
    call(["run", "grid.py"])
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out
    assert captured.err == ""


def test_a_terminal_gets_a_bar(here: Path) -> None:
    import pty

    command = [sys.executable, "-c", "from fedsim.cli import main; main()", "run", "mean.py"]
    leader, follower = pty.openpty()
    with subprocess.Popen(command, stdout=follower, stderr=follower, env={**os.environ, "TERM": "xterm"}) as running:
        os.close(follower)
        shown = b""
        while chunk := _read(leader):
            shown += chunk
        assert running.wait(timeout=60) == 0
    os.close(leader)
    assert "━" in shown.decode()
    assert "round 4/4" in shown.decode()


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 4096)
    except OSError:  # how Linux reports that the other end is closed
        return b""


def test_the_watch_updates_rarely_and_always_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    seen: list[dict[str, object]] = []
    watch = progress.ProgressLine(fs.Budget(rounds=1000), lambda **update: seen.append(update), "K=1  ")
    for round in range(1, 1001):
        now[0] += 0.001
        watch(Progress(round, 3, 60.0 * round, 1e3 * round, {"w2": 0.5}))
    watch.finish()
    assert len(seen) <= 12
    assert seen[-1]["description"] == "K=1  round 1,000/1,000"
    assert seen[-1]["completed"] == seen[-1]["total"] == 1000
    assert seen[5]["facts"] == "virtual 8h21m  up 501 kbit  w2 0.5  ETA 0 s"


def test_the_watch_shows_the_budget_that_is_set() -> None:
    seen: list[dict[str, object]] = []
    for budget in (fs.Budget(seconds=50.0), fs.Budget(uplink_bits=1e6), fs.Budget(total_bits=1e6)):
        watch = progress.ProgressLine(budget, lambda **update: seen.append(update))
        watch(Progress(3, 1, 25.0, 2.5e5, {}))
    assert [(s["completed"], s["total"]) for s in seen] == [(25.0, 50.0), (2.5e5, 1e6), (3.0, None)]


# --- Words and numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 s"), (2e-5, "20 us"), (0.0123, "12.3 ms"), (12.34, "12.3 s"), (59.9, "59.9 s"), (1684, "28m04s"),
        (5580, "1h33m"), (7199.9, "2h00m"), (float("inf"), "never"),
    ],
)  # fmt: skip
def test_seconds_are_written_for_people(value: float, expected: str) -> None:
    assert text.seconds(value) == expected


@pytest.mark.parametrize(("value", "expected"), [(128, "128 bit"), (51_200, "51.2 kbit"), (9.55e8, "955 Mbit")])
def test_bits_are_written_for_people(value: float, expected: str) -> None:
    assert text.bits(value) == expected


@pytest.mark.parametrize(("value", "expected"), [(0, "0%"), (1e-4, "<1%"), (0.5, "50%"), (0.999, ">99%"), (1, "100%")])
def test_a_small_share_is_never_written_as_zero(value: float, expected: str) -> None:
    assert text.share(value) == expected


def test_objects_are_written_as_the_call_that_makes_them() -> None:
    assert text.call_of(fs.algorithms.FALD(step_size=1e-3)) == "FALD(step_size=0.001)"
    assert text.policy(fs.participation.with_replacement(5)) == "with_replacement(5)"


def test_wilsons_interval_contains_the_share_and_stays_in_0_to_1() -> None:
    low, high = intervals.wilson(19, 20)
    assert (round(low, 2), round(high, 2)) == (0.76, 0.99)
    assert intervals.wilson(0, 5)[0] == 0.0


def test_the_summary_names_a_client_that_rarely_contributes_and_the_target() -> None:
    data = [np.full((4, 2), c, float) for c in range(5)]
    scenario = fs.Scenario(
        problem=fs.problems.GaussianMean(data, np.eye(2)),
        algorithm=fs.algorithms.FALD(step_size=1e-3, local_steps=10),
        devices=fs.devices.table({"seconds_per_step": [1, 1, 1, 1, 5]}),
        participation=fs.participation.deadline(20.0),
        budget=fs.Budget(rounds=40, target=fs.Target("off", below=0.0)),
        metrics=(fs.metrics.distance_to([9.0, 9.0], "off"),),
        record=fs.Record(events=True),
        replicas=2,
    )
    lines = fs.run(scenario).summary(120).splitlines()
    assert (
        "warning: client 4 contributed to 0 of 80 rounds that selected it; the result is biased towards the other clients"
    ) in lines
    assert "  wait 50%, compute 50%, transfer 0%" in lines
    assert "off <= 0   not reached" in lines
    assert "within 40 rounds   0/2 replicas [0.00, 0.66]" in lines
    assert any(line.startswith("virtual time") and "13m20s" in line for line in lines)
    assert any("clock counts computing; network is None" in line for line in lines)

"""The screens of a run, of a sweep and of a log have all their labels, in order."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from fedsim.cli import run, sweep, terminal
from fedsim.cli.app import call

SCENARIO = '''"""A metro network."""
import numpy as np
import fedsim as fs

CLIENTS = 6


def scenario(*, policy: str = "deadline", step_size: float = 2e-4, local_steps: int = 4, rounds: int = 60):
    draw = np.random.default_rng(0)
    X = draw.normal(size=(160, 2))
    y = (X @ [1.5, -1.0] + 0.3 * draw.normal(size=160) > 0).astype(int)
    data = [(X[rows], y[rows]) for rows in np.split(np.arange(120), CLIENTS)]
    return fs.Scenario(
        problem=fs.problems.SoftmaxRegression(data, classes=2, test=(X[120:], y[120:])),
        algorithm=fs.algorithms.FALD(step_size=step_size, local_steps=local_steps),
        network=fs.topologies.tree(
            CLIENTS, edges=2, uplink_bps=1e4, downlink_bps=1e5, latency_s=0.01, edge_uplink_bps=2e4
        ),
        devices=fs.devices.table(
            {"seconds_per_step": [0.01, 0.01, 0.02, 0.02, 0.03, 9.0]},
            dropout=0.05,
            slowdown=fs.devices.pareto_slowdown(2.0),
        ),
        participation={"uniform": fs.participation.uniform(4), "deadline": fs.participation.deadline(1.0, of=4)}[policy],
        budget=fs.Budget(rounds=rounds, seconds=1800.0, target=fs.Target("accuracy", above=0.9)),
        metrics=("accuracy", "ece", "rhat", "ess"),
        record=fs.Record(events=True),
        replicas=4,
    )
'''
LONG = ["run", "metro.py", "--set", "rounds=2000", "--set", "metrics=accuracy", "--set", "evaluate_every=10"]
AMOUNT = r"[\d.,]+"
HEADER = (
    r"^metro: FALD, SoftmaxRegression d=6, 6 clients, 4 replicas, seed \d, inline",
    rf"^network  +\S+, \d+ links; bottleneck \S+ {AMOUNT} kbit/s, \d clients",
    r"^devices  +.*Pareto slow-down, dropout 5%",
    r"^policy   +deadline\(1, of=4\)     wire  float64, \d+ bits up",
    r"^clock    +auto \(network \+ compute\)",
)
SUMMARY = (
    r"^stopped by \w+",
    r"^ +median +5% +95%",
    r"^virtual time +\S+",
    r"^  wait \d+%, compute \d+%, transfer \d+%",
    rf"^uplink +{AMOUNT} kbit .*wasted <?\d+%",
    rf"^selected {AMOUNT}   arrived {AMOUNT}   late {AMOUNT}   dropped {AMOUNT}",
    rf"^accuracy {AMOUNT}   ECE {AMOUNT}   R-hat {AMOUNT}.*   ESS/Mbit {AMOUNT}",
    rf"^accuracy >= 0\.9   round \d+, \S+( s)?, {AMOUNT} kbit",
    r"^within 30m00s    ?\d/4 replicas \[0\.\d\d, 1?0?\.\d\d\]",
    r"^warning: client 5 contributed to 0 of \d+ rounds that selected it; the result is\n",
    r"^real \S+ m?s   fingerprint [0-9a-f]{8}",
    r"^next: fedsim report demo",
)
BAR = rf"round \d+/2,000 +[^\n]*━[^\n]* virtual \S+( s)?  up {AMOUNT} \wbit  [^\n]*accuracy {AMOUNT}  ETA \S+"
SWEEP = (
    r"^2x2x2 = 8 runs; this shard 4: 0 complete, 4 to do",
    rf"^estimate: \S+( m?s)?, {AMOUNT} kB each; 4 runs, 1 at a time: \S+( m?s)?, {AMOUNT} kB",
    r"^policy +done +failed +time to 0\.9 +Mbit +P\(<30m00s\)",
    rf"^uniform +1 +1 +\S+( s)? +{AMOUNT} +[01]\.\d\d",
    rf"^deadline +1 +1 +\S+( s)? +{AMOUNT} +[01]\.\d\d",
    r"^step_size  0\.0002: \S+( s)?, 1e\+?308: -",
    r"^failed  [0-9a-f]{12} policy=uniform step_size=1e\+?308 seed=0",
    r"^        \S*NonFinite.*(step_size|log)",
    r"^        log out/[0-9a-f]{12}/run\.log",
    r"^done: 2 complete, 2 failed, \S+( s)? \(exit 1\)",
    r"^retry   --retry-failed",
    r"^all     fedsim status out      2 of 8 complete",
    r"^merged  out/runs\.parquet, curves\.parquet",
    r"^next    fedsim report out",
)


@pytest.fixture
def bars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A folder with the scenario file, and the text of the bars on a terminal of 120 columns."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "metro.py").write_text(SCENARIO)
    buffer = io.StringIO()
    terminal = Console(file=buffer, force_terminal=True, width=120, legacy_windows=False)
    for module in (run, sweep):
        outputs = module.outputs
        monkeypatch.setattr(module, "outputs", lambda quiet, outputs=outputs: (outputs(quiet)[0], terminal))
    return buffer


def in_order(patterns: tuple[str, ...], screen: str) -> None:
    """Assert that every pattern is in the screen after the previous one."""
    at = 0
    for pattern in patterns:
        found = re.compile(pattern, re.MULTILINE).search(screen, at)
        assert found, f"{pattern!r} is not in the screen after\n{screen[:at][-300:]}\nbut there is\n{screen[at:][:600]}"
        at = found.end()


def plain(output: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output)


def test_the_screen_of_a_run(
    bars: io.StringIO, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert call(["run", "metro.py", "--out", "demo"]) == 0
    in_order((*HEADER, *SUMMARY), capsys.readouterr().out)
    assert re.search(r"round \d+/60 +━", plain(bars.getvalue()))


def test_the_bar_of_a_run(bars: io.StringIO) -> None:
    assert call(LONG) == 0
    assert re.search(BAR, plain(bars.getvalue()))


def test_the_screen_of_a_sweep(bars: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    grid = ["--grid", "policy=uniform,deadline", "--grid", "step_size=2e-4,1e308", "--grid", "seed=0:2"]
    assert call(["sweep", "metro.py", *grid, "--out", "out", "--shard", "0/2", "--jobs", "1"]) == 1
    screen, live = capsys.readouterr().out, plain(bars.getvalue())
    in_order(SWEEP[:1] + SWEEP[2:], screen)
    in_order((SWEEP[1].lstrip("^"), r"\d/4 ━+.*running \d  failed \d  ETA \S+", SWEEP[2].lstrip("^")), live)


def test_a_file_gets_one_line_of_progress_a_minute(
    bars: io.StringIO, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert terminal.HEARTBEAT_S == 60.0
    line = LONG
    assert call(line) == 0
    pattern = (
        rf"^\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ round [\d,]+/2,000, virtual \S+( s)?, uplink {AMOUNT} \wbit, accuracy"
    )
    assert not re.search(pattern, capsys.readouterr().out, re.MULTILINE)
    monkeypatch.setattr(terminal, "HEARTBEAT_S", 0.001)
    monkeypatch.setattr(run.progress, "UPDATE_S", 0.001)
    assert call(line) == 0
    assert re.search(rf"{pattern} {AMOUNT}, ETA \S+", capsys.readouterr().out, re.MULTILINE)

"""The scripts in analysis/ run on folders of results and print and draw what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from strategies.reported import small

import fedsim as fs

SCRIPTS = Path(fs.__file__).parents[1] / "analysis"
FILE = """
import numpy as np
import fedsim as fs


def scenario(*, local_steps: int = 1, seed: int = 0):
    return fs.Scenario(
        problem=fs.problems.GaussianMean([np.full((4, 2), c, float) for c in range(4)], np.eye(2)),
        algorithm=fs.algorithms.FALD(step_size=0.02, local_steps=local_steps),
        network=fs.topologies.star(4, uplink_bps=1e4),
        participation=fs.participation.uniform(3),
        budget=fs.Budget(rounds=60),
        metrics=("w2",),
        replicas=40,
        seed=seed,
    )
"""


def script(name: str, *line: object) -> str:
    """Run a script and return what it printed."""
    command = [sys.executable, str(SCRIPTS / f"{name}.py"), *map(str, line)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("file.py").write_text(FILE)
    return tmp_path


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def test_tradeoffs_of_a_sweep(here: Path) -> None:
    study = fs.sweep("file.py", {"local_steps": [1, 4], "seed": [0, 1]}, out="runs", jobs=1)
    text = script("tradeoffs", "runs", "--metric", "w2")
    frame = study.frame().groupby("local_steps").median(numeric_only=True)
    rows = {int(k): row.split() for k, row in re.findall(r"local_steps=(\d+) +(.*)", text)}
    assert sorted(rows) == [1, 4]
    for k, (seeds, w2, bits, seconds, participation, _) in rows.items():
        assert int(seeds) == 2
        assert float(w2) == pytest.approx(frame["w2"][k], rel=1e-3)
        assert float(bits) == pytest.approx(frame["total_bits"][k], rel=1e-3)
        assert float(seconds) == pytest.approx(frame["seconds"][k], rel=1e-3)
        assert float(participation) == 3
    assert is_png(here / "tradeoffs.png")


def test_timeline_of_a_run(here: Path) -> None:
    result = fs.run(replace(small(fs.participation.first(2)), record=fs.Record(events=True)), out="run")
    text = script("timeline", "run")
    shares = fs.analysis.timeline.shares(result)
    assert shares is not None
    assert text.splitlines()[0] == ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    assert re.search(r"^ *late +\d", text, re.MULTILINE)
    assert "last_round" in text
    assert is_png(here / "timeline.png")


def test_posterior_of_a_run_against_the_exact_one_and_against_a_reference_run(here: Path) -> None:
    fs.sweep("file.py", {"local_steps": [1, 4]}, out="runs", jobs=1)
    runs = {row["local_steps"]: f"runs/{row['run']}" for row in fs.load("runs").frame().to_dict("records")}
    exact = script("posterior", runs[1], "file.py", "--burn-in", 20)
    samples = fs.load(runs[1]).samples[20:].reshape(-1, 2)
    mean, covariance = fs.problems.GaussianMean([np.full((4, 2), c, float) for c in range(4)], np.eye(2)).exact()
    rows = [[float(cell) for cell in row.split()] for row in re.findall(r"^\d (.*)$", exact, re.MULTILINE)]
    expected = np.column_stack([samples.mean(0), mean, samples.std(0, ddof=1), np.sqrt(np.diag(covariance))])
    np.testing.assert_allclose(rows, expected, rtol=1e-3, atol=1e-3)
    distance = float(re.search(r"Gaussian fits +(\S+)", exact)[1])  # type: ignore[index]
    assert distance == pytest.approx(
        fs.metrics.gaussian_w2(samples.mean(0), np.cov(samples.T), mean, covariance), rel=1e-3
    )
    assert is_png(here / "posterior.png")
    same = script("posterior", runs[1], runs[1])
    assert re.search(r"Gaussian fits +0$|Gaussian fits +\d\S*e-\d+$", same, re.MULTILINE)

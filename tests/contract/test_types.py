"""The protocols as types: mypy accepts a user's algorithm of the right signature and names a wrong one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fedsim as fs

pytest.importorskip("mypy")

RIGHT = """\
from typing import Any

import numpy as np
import numpy.typing as npt

import fedsim as fs

Arrays = dict[str, npt.NDArray[Any]]


class MyAlgorithm:
    def init(self, problem: fs.protocols.ProblemLike, initial: npt.NDArray[Any]) -> Arrays:
        return {"theta": initial}

    def broadcast(self, state: Arrays) -> Arrays:
        return state

    def work(self, job: fs.protocols.Visitors) -> float:
        return 1.0

    def client(self, job: fs.protocols.Job, message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:
        return {"theta": message["theta"] - 0.1 * job.gradient(message["theta"], 0)}, memory

    def server(self, state: Arrays, replies: fs.protocols.Replies, rng: fs.protocols.Rng) -> Arrays:
        return {"theta": replies.mean("theta")}


problem = fs.problems.GaussianMean([np.zeros((4, 2)), np.ones((4, 2))], np.eye(2))
scenario = fs.Scenario(problem=problem, algorithm=MyAlgorithm(), budget=fs.Budget(rounds=2))
result: fs.Result = fs.run(scenario)
"""
CLIENT = "message: Arrays, memory: Arrays) -> tuple[dict[str, Any], Arrays]:"


def mypy(file: Path, text: str) -> str:
    """Run mypy --strict on a file that imports this checkout of fedsim; errors inside fedsim are not shown."""
    file.write_text(text)
    options = ["--strict", "--follow-imports=silent", "--cache-dir", str(file.parent / "cache")]
    found = subprocess.run(
        [sys.executable, "-m", "mypy", *options, file.name],
        cwd=file.parent, env={**os.environ, "MYPYPATH": str(Path(fs.__file__).parent.parent)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return found.stdout + found.stderr


def test_mypy_accepts_an_algorithm_of_the_right_signature_and_refuses_a_wrong_client(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    assert mypy(file, RIGHT) == "Success: no issues found in 1 source file\n"
    wrong = RIGHT.replace(CLIENT, "message: Arrays) -> tuple[dict[str, Any], Arrays]:").replace(
        "0)}, memory", "0)}, {}"
    )
    said = mypy(file, wrong)
    assert 'Argument "algorithm" to "Scenario" has incompatible type "MyAlgorithm"; expected "AlgorithmLike"' in said
    assert "def client(self, job: Job" in said
    assert "Found 1 error in 1 file" in said
    said = mypy(file, RIGHT.replace("job: fs.protocols.Job, message", "message: Arrays, job: fs.protocols.Job, other"))
    assert 'Argument "algorithm" to "Scenario" has incompatible type' in said


def test_mypy_refuses_parts_in_the_wrong_field(tmp_path: Path) -> None:
    said = mypy(tmp_path / "mine.py", RIGHT.replace("algorithm=MyAlgorithm()", "algorithm=problem"))
    assert 'Argument "algorithm" to "Scenario" has incompatible type "GaussianMean"; expected "AlgorithmLike"' in said

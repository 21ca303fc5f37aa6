"""Kernels run compiled or not at all: without Numba's compiler a run is refused before it starts."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedsim.kernels.cpu import lanes, langevin, leapfrog_lanes, qlsd_logistic

ROOT = Path(__file__).parents[2]
SENTENCE = "NUMBA_DISABLE_JIT=1: fedsim needs Numba's compiler; unset the variable"
RUN = """
import fedsim as fs
problem = fs.problems.GaussianMean.synthetic(clients=4, dim=12, samples=6, seed=1)
fs.run(fs.Scenario(problem=problem, algorithm=fs.algorithms.FALD(1e-3, local_steps=2), budget=fs.Budget(rounds=3), replicas=2))
"""


def without_compiler(*command, cwd):
    own = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *command], cwd=cwd, env=own, capture_output=True, text=True, timeout=120)


def test_a_run_without_the_compiler_is_refused(tmp_path):
    done = without_compiler("-c", RUN, cwd=tmp_path)
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1] == f"fedsim.errors.InvalidInput: {SENTENCE}"


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_command_without_the_compiler_is_refused_in_one_sentence(tmp_path, command):
    file = str(ROOT / "scenarios" / "quickstart.py")
    done = without_compiler("-c", "from fedsim.cli import main; main()", command, file, "--out", "made", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"fedsim: {SENTENCE}\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "function", [langevin.normals_of_step, lanes.fill_blocks, leapfrog_lanes._residuals, qlsd_logistic._sigmoid]
)
def test_a_function_that_only_an_overload_fills_does_not_run_in_python(function):
    with pytest.raises(NotImplementedError):
        function(*(np.ones(1) for _ in inspect.signature(function).parameters))

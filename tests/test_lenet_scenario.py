"""The shipped `lenet` scenario on the digits inside the package; skipped where torch is not installed."""

from __future__ import annotations

import numpy as np
import pytest

import fedsim as fs
from fedsim.scenario_file import load_file

pytest.importorskip("torch", reason="torch is not installed; pip install torch==2.13.0 for these tests")


def test_lenet_builds_runs_and_draws():
    file = load_file("lenet")
    assert file.source.startswith('"""')
    small = {"local_steps": "2", "rounds": "2", "evaluate_every": "1"}
    result = fs.run(file.build(small))
    assert np.isfinite(result.rounds.accuracy).all()
    assert result.manifest["scenario"]["problem"]["clients"] == 30

"""The shipped `lenet` scenario on the digits inside the package; skipped where torch is not installed."""

from __future__ import annotations

import numpy as np
import pytest
from tools.real_data import needs

import fedsim as fs
from fedsim.scenario_file import load_file
from fedsim.sweeps.study import Study

pytest.importorskip("torch", reason="torch is not installed; pip install torch==2.13.0 for these tests")

DIGITS = {"data": "digits", "clients": "30"}


def test_by_itself_it_is_mnist_over_a_hundred_clients():
    defaults = {p.name: p.default for p in load_file("lenet").parameters}
    assert (defaults["data"], defaults["clients"], defaults["alpha"]) == ("mnist", 100, 0.3)


def test_lenet_builds_runs_and_draws():
    file = load_file("lenet")
    assert file.source.startswith('"""')
    assert not file.grid
    settings = {**DIGITS, "local_steps": "2", "rounds": "2", "evaluate_every": "1"}
    result = fs.run(file.build(settings))
    assert np.isfinite(result.rounds.accuracy).all()
    assert result.manifest["scenario"]["problem"]["clients"] == 30
    assert len(file.figure(Study(file.name, (({}, result),))).axes) == 2


@needs("mnist")
@pytest.mark.slow
def test_lenet_passes_97_percent_on_mnist():
    result = fs.run(load_file("lenet").build({}))
    assert result.rounds.accuracy.dropna().iloc[-1] > 0.97

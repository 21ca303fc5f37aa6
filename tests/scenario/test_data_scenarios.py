"""The scenarios on data sets, in small: what `fedsim run` does with them, offline where the set allows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.real_data import needs

import fedsim as fs
from fedsim.scenario_file import load_file
from fedsim.sweeps.study import Study

SCENARIOS = Path(__file__).parents[2] / "scenarios"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_fashion_scenario_learns_digits_offline_in_seconds(monkeypatch):
    monkeypatch.delenv("FEDSIM_DATA", raising=False)
    file = load_file(SCENARIOS / "fashion_mnist.py")
    assert not file.grid
    settings = {"data": "digits", "rounds": 60, "warmup": 20}
    scenario = file.build(settings)
    assert scenario.problem.clients == 10
    assert (scenario.algorithm.local_steps, scenario.algorithm.batch_size) == (10, 200)
    result = fs.run(scenario)
    assert result.rounds.accuracy.dropna().iloc[-1] > 0.9
    figure = file.figure(Study(file.name, ((settings, result),)))
    assert len(figure.axes) == 2


@needs("fashion-mnist")
@pytest.mark.slow
def test_the_fashion_scenario_passes_83_percent():
    result = fs.run(load_file(SCENARIOS / "fashion_mnist.py").build({}))
    assert result.rounds.accuracy.dropna().iloc[-1] > 0.83


def test_the_fashion_scenario_names_missing_files(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDSIM_DATA", str(tmp_path))
    with pytest.raises(fs.errors.InvalidInput, match="put train-images-idx3-ubyte"):
        load_file(SCENARIOS / "fashion_mnist.py").build({})


@pytest.mark.parametrize("method", ["FA-HMC", "QLSD++"])
def test_a_bayesian_network_samples_digits(method):
    file = load_file(SCENARIOS / "digits_bnn.py")
    assert file.grid == {"method": ["FA-HMC", "QLSD++"]}
    settings = {"method": method, "rounds": 30 if method == "FA-HMC" else 150, "width": 16}
    result = fs.run(file.build(settings))
    assert result.rounds.accuracy.dropna().iloc[-1] > 0.75
    assert file.figure(Study(file.name, ((settings, result),))).axes


@needs("credit")
def test_the_credit_scenario_runs_all_schemes():
    file = load_file(SCENARIOS / "credit.py")
    for scheme in file.grid["scheme"]:
        result = fs.run(file.build({"scheme": scheme, "rounds": 40, "replicas": 2}))
        distance = result.rounds.distance_to_ps.dropna()
        assert distance.iloc[-1] < 1

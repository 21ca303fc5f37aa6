"""Where replicas begin."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import fedsim as fs
from fedsim.errors import InvalidInput

algorithms = fs.algorithms
PROBLEM = fs.problems.GaussianMean.synthetic(clients=3, dim=2, samples=10, seed=4)


def scenario(algorithm=None, **more):
    settings = {"replicas": 5, "seed": 3, "budget": fs.Budget(rounds=4), "problem": PROBLEM, **more}
    return fs.Scenario(algorithm=algorithm or algorithms.FALD(1e-3, local_steps=3), **settings)


ALGORITHMS = {
    "FALD": algorithms.FALD(1e-3, local_steps=3),
    "FedAvg": algorithms.FedAvg(0.1, local_steps=2),
    "Scaffold": algorithms.Scaffold(0.1, local_steps=2),
    "QLSDStar": algorithms.QLSDStar(1e-3),
    "QLSDPlusPlus": algorithms.QLSDPlusPlus(1e-3, refresh_every=3),
}
STARTS = np.linspace(-4, 5, 10).reshape(5, 2)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_replica_begins_at_its_own_row(name):
    together = fs.run(scenario(ALGORITHMS[name], initial=STARTS))
    for r in (0, 3):
        alone = fs.run(scenario(ALGORITHMS[name], initial=STARTS[r], replicas=range(r, r + 1)))
        assert np.array_equal(together.samples[:, r], alone.samples[:, 0])


def test_gradient_steps_from_each_start_are_those_done_by_hand():
    result = fs.run(scenario(algorithms.FedAvg(0.1), initial=STARTS, budget=fs.Budget(rounds=1)))
    mean = PROBLEM.x.mean(axis=0)  # equal clients, identity covariance: the mean loss's gradient is theta - mean
    np.testing.assert_allclose(result.samples[0], STARTS - 0.1 * (STARTS - mean), rtol=1e-12)


def test_drawn_starts_depend_on_seed_and_replica_alone():
    drawn = fs.initial.normal(2.0)
    all_, seventh = (scenario(initial=drawn, replicas=r) for r in (300, range(7, 8)))
    assert np.array_equal(all_.starts[7], seventh.start)
    assert np.array_equal(fs.run(all_).samples[:, 7], fs.run(seventh).samples[:, 0])
    assert not np.array_equal(all_.starts, scenario(initial=drawn, replicas=300, seed=4).starts)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_drawn_starts_are_normal(dtype):
    stats = pytest.importorskip("scipy.stats")
    starts = scenario(initial=fs.initial.normal(2.0, centre=[10.0, -3.0]), replicas=4000, dtype=dtype).starts
    assert starts.dtype == dtype
    for j, middle in enumerate((10.0, -3.0)):
        assert stats.kstest(starts[:, j].astype(float), "norm", (middle, 2.0)).pvalue > 1e-3
    assert abs(np.corrcoef(starts.T.astype(float))[0, 1]) < 0.06


def test_a_large_draw_in_parts_is_the_draw_at_once(monkeypatch):
    whole = scenario(initial=fs.initial.normal(1.0), replicas=9).starts
    monkeypatch.setattr(fs.initial, "CHUNK", 4)  # two replicas at a time
    assert np.array_equal(scenario(initial=fs.initial.normal(1.0), replicas=9).starts, whole)


class Proposing:
    """A problem that says where to begin, as neural networks do."""

    clients, dim, sizes = PROBLEM.clients, PROBLEM.dim, PROBLEM.sizes
    gradient = staticmethod(PROBLEM.gradient)

    def initial(self, seed):
        return np.array([seed, seed + 0.5])


def test_a_problem_may_propose_the_start():
    assert scenario(problem=Proposing()).starts.tolist() == [[3.0, 3.5]] * 5
    assert scenario(problem=Proposing(), initial=[1.0, 2.0]).starts.tolist() == [[1.0, 2.0]] * 5
    assert scenario().starts.tolist() == [[0.0, 0.0]] * 5
    spread = scenario(problem=Proposing(), initial=fs.initial.normal(0.5)).starts
    np.testing.assert_allclose(spread - scenario(initial=fs.initial.normal(0.5)).starts, [[3.0, 3.5]] * 5)


def test_dispersed_chains_are_told_from_chains_that_have_mixed():
    """One short run: chains that began together look mixed, dispersed ones show that they are not."""

    def rhat(initial):
        measured = scenario(
            algorithms.FALD(1e-5), initial=initial, replicas=8, metrics=("rhat",), budget=fs.Budget(rounds=30)
        )
        return fs.run(measured).metrics["rhat"].iloc[-1]

    assert rhat(fs.initial.normal(5.0)) > 2 * rhat(None)  # normal scores are bounded, the draws were not


def test_a_resumed_run_keeps_its_starts(tmp_path):
    import threading

    from fedsim.errors import Interrupted

    whole, stop = scenario(initial=fs.initial.normal(2.0)), threading.Event()
    stop.set()
    with pytest.raises(Interrupted):
        fs.run(whole, out=tmp_path / "run", stop=stop)
    resumed = fs.run(whole, out=tmp_path / "run", resume=True)
    assert resumed.fingerprint == fs.run(whole).fingerprint


@pytest.mark.parametrize("initial", [STARTS, fs.initial.normal(2.0)], ids=["rows", "normal"])
def test_a_replayed_job_begins_where_its_replica_did(initial, tmp_path):
    whole = scenario(initial=initial)
    fs.run(whole, out=tmp_path / "run")
    job = fs.replay(tmp_path / "run", replica=3, round=1, client=1, scenario=whole)
    assert np.array_equal(job.message["theta"], whole.starts[3])


def test_the_manifest_says_how_replicas_begin(tmp_path):
    fs.run(scenario(initial=fs.initial.normal(2.0)), out=tmp_path / "run")
    told = json.loads((tmp_path / "run" / "manifest.json").read_text())["scenario"]["initial"]
    assert told == {"type": "Normal", "scale": 2.0, "centre": None}


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: scenario(initial=np.zeros((4, 2))), r"shape \(4, 2\); the problem needs \(2,\), or \(5, 2\)"),
        (lambda: scenario(initial=np.where(STARTS > 4, np.nan, STARTS)), "NaN or an infinity"),
        (lambda: replace(scenario(initial=STARTS), replicas=3), r"shape \(5, 2\); .* or \(3, 2\)"),
        (lambda: fs.initial.normal(-1.0), r"initial.normal\(scale=-1.0\)"),
        (lambda: fs.initial.normal(1.0, centre=[np.inf]), "finite"),
        (
            lambda: scenario(initial=fs.initial.normal(1.0, centre=[1.0])),
            r"centre of shape \(1,\)\): give shape \(2,\)",
        ),
    ],
)
def test_impossible_starts_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()

"""Privacy as a run spends it: the column "epsilon" follows the uploads, and a budget stops before crossing."""

from __future__ import annotations

import dataclasses
import re
import threading

import numpy as np
import pytest

import fedsim as fs
from fedsim.algorithms.private_fedpaq import PrivateFedPAQ
from fedsim.errors import Interrupted, InvalidInput

DELTA, CLIENTS = 1e-5, 6
PROBLEM = fs.problems.GaussianMean([np.full((20, 2), 0.1 * c) for c in range(CLIENTS)], np.eye(2))
SPENT = fs.privacy.spent(DELTA, sensitivity=1.0)
FALD = fs.algorithms.FALD(step_size=1e-3, local_steps=2)


def scenario(algorithm=FALD, rounds=8, metrics=(SPENT,), **more):
    more = {
        "budget": fs.Budget(rounds=rounds),
        "participation": fs.participation.uniform(3),
        "replicas": 3,
    } | more
    return fs.Scenario(problem=PROBLEM, algorithm=algorithm, metrics=metrics, seed=2, **more)


def table(result):
    return result.rounds.pivot(index="round", columns="replica", values="epsilon").to_numpy()


def test_epsilon_is_that_of_the_client_that_uploaded_most():
    flaky = fs.devices.lognormal(1e-2, sigma=0.5, dropout={"compute": 0.3, "upload": 0.3})
    hasty = fs.participation.deadline(0.03, of=4)
    result = fs.run(scenario(devices=flaky, participation=hasty, record=fs.Record(events=True)))
    said = result.events[result.events.event.isin(["upload", "drop", "late"]) & (result.events.bits > 0)]
    assert set(said.event) >= {"upload", "drop"}
    mechanism = FALD.mechanism(PROBLEM, 1.0)
    for replica in range(3):
        for round in range(1, 9):
            own = said[(said.replica == replica) & (said["round"] <= round)]
            visits = np.bincount(own.client, minlength=CLIENTS)
            worst = fs.privacy.epsilons(mechanism, visits, DELTA).max()
            assert table(result)[round - 1, replica] == pytest.approx(worst, rel=1e-12)


def test_both_ways_of_keeping_time_spend_the_same():
    flaky = fs.devices.lognormal(1e-2, sigma=0.5, dropout={"compute": 0.2, "upload": 0.2})
    closed, event = (fs.run(scenario(devices=flaky, record=fs.Record(events=e))) for e in (False, True))
    assert np.array_equal(table(closed), table(event))


def test_a_budget_of_epsilon_discards_the_round_that_would_cross_it():
    free = table(fs.run(scenario(rounds=12)))
    result = fs.run(scenario(budget=fs.Budget(rounds=12, epsilon=0.55)))
    assert result.stopped_by == ("epsilon",) * 3
    for replica in range(3):
        counted = free[:, replica][free[:, replica] <= 0.55]
        assert 0 < len(counted) < 12
        own = result.rounds[result.rounds.replica == replica]
        assert np.array_equal(own.epsilon.to_numpy(), counted)


def test_noise_that_varies_by_round_is_charged_by_the_version_a_client_started_from():
    fading = fs.algorithms.FALD(step_size=fs.schedules.inverse_time(0.01, 10.0), local_steps=2)
    devices = fs.devices.lognormal(1e-2, sigma=0.5)
    result = fs.run(scenario(fading, devices=devices, participation=fs.participation.buffered(2)))
    steady = fs.run(scenario(devices=devices, participation=fs.participation.buffered(2)))
    assert (np.diff(table(result), axis=0) >= 0).all()
    assert (table(result)[-1] < table(steady)[-1]).all()  # 0.01 / (t + 10) is 1e-3 at first, and then less


@pytest.mark.parametrize("step_size", [1e-3, fs.schedules.inverse_time(0.01, 10.0)], ids=["steady", "fading"])
def test_a_resumed_run_has_not_forgotten_what_was_spent(tmp_path, step_size):
    what = scenario(fs.algorithms.FALD(step_size=step_size, local_steps=2))
    stop = threading.Event()
    with pytest.raises(Interrupted):
        fs.run(what, out=tmp_path / "run", checkpoint_every=2, stop=stop, observers=[
            lambda progress: stop.set() if progress.round == 5 else None
        ])  # fmt: skip
    assert np.array_equal(table(fs.run(what, out=tmp_path / "run", resume=True)), table(fs.run(what)))


def test_private_fedpaq_accounts_for_itself():
    algorithm = PrivateFedPAQ(0.1, local_steps=2, clip=1.0, epsilon=1.0, delta=1e-4, fraction=0.2)
    result = fs.run(
        scenario(algorithm, rounds=3, metrics=(fs.privacy.spent(1e-4),), participation=fs.participation.full())
    )
    expected = [fs.privacy.epsilons(algorithm.mechanism(PROBLEM, None), np.full(6, k), 1e-4)[0] for k in (1, 2, 3)]
    assert table(result) == pytest.approx(np.repeat(expected, 3).reshape(3, 3), rel=1e-12)
    with pytest.raises(InvalidInput, match="clips, which determines it"):
        fs.run(scenario(algorithm))


PRIVATE = PrivateFedPAQ(0.1, local_steps=2, clip=0.5, epsilon=1.0, delta=1e-4, fraction=0.2)


def test_the_manifest_holds_the_papers_promise_and_what_was_really_spent(tmp_path):
    """g = 2 * 2 / 20; Delta_f = 4 * 0.1 * 2 * 0.5; sigma = Delta_f sqrt(2 ln(1.25 g / delta)) / (epsilon / (2 g))."""
    fs.run(scenario(PRIVATE, metrics=(fs.privacy.spent(1e-5),)), out=tmp_path / "run")
    result = fs.load(tmp_path / "run")
    entry = result.manifest["privacy"]
    sigma = 0.4 * np.sqrt(2 * np.log(1.25 * 0.2 / 1e-4)) / 2.5
    guarantee = entry["guarantee"]
    note = guarantee.pop("note")
    assert guarantee == {
        "type": "Guarantee", "epsilon": 1.0, "delta": 1e-4, "base_epsilon": 2.5, "valid": False, "clip": 0.5,
        "sensitivity": pytest.approx(0.4, rel=1e-12), "sigma": pytest.approx([sigma, sigma], rel=1e-12),
    }  # fmt: skip
    assert note.startswith("for one client in one round, without a claim for several")
    assert "the proof does not hold" in note
    assert entry["spent"]["delta"] == 1e-5
    assert entry["spent"]["epsilon"] == table(result)[-1].tolist()
    assert min(entry["spent"]["epsilon"]) > 1


def test_the_noise_in_the_manifest_is_that_of_the_run():
    """All rows at the start, so that what moves the model in one round is the noise alone."""
    still = fs.problems.GaussianMean([np.zeros((20, 2))], np.eye(2))
    algorithm = dataclasses.replace(PRIVATE, codec=fs.codecs.Identity())
    result = fs.run(fs.Scenario(problem=still, algorithm=algorithm, budget=fs.Budget(rounds=1), replicas=4000))
    low, high = result.manifest["privacy"]["guarantee"]["sigma"]
    assert low == high
    assert abs((result.samples**2).mean() / low**2 - 1) < 5 * np.sqrt(2 / result.samples.size)


def test_the_manifest_names_missing_accounts_and_has_no_entry_for_runs_without_privacy():
    assert fs.run(scenario(PRIVATE, metrics=())).manifest["privacy"]["spent"] is None
    assert "privacy" not in fs.run(scenario(metrics=())).manifest
    assert list(fs.run(scenario()).manifest["privacy"]) == ["spent"]  # FA-LD has no guarantee without a sensitivity


def test_what_a_discarded_round_would_have_cost_is_not_in_the_manifest():
    result = fs.run(scenario(budget=fs.Budget(rounds=12, epsilon=0.55)))
    assert 0 < max(result.manifest["privacy"]["spent"]["epsilon"]) <= 0.55


def test_the_summary_has_the_guarantee_and_the_epsilon_spent():
    for metrics, last in (
        ((fs.privacy.spent(1e-4),), r"largest privacy loss of a client: epsilon \d\S*, delta 0.0001"),
        ((), r"not recorded; add metrics=\(fs\.privacy\.spent"),
    ):
        what = scenario(PRIVATE, metrics=metrics)
        text = fs.run(what).summary(200)
        assert re.search(
            r"^warning: the paper guarantees epsilon 1, delta 0\.0001 for one client in one round, .*above 1",
            text,
            re.MULTILINE,
        )
        assert re.search(last, text)
    covered = scenario(dataclasses.replace(PRIVATE, epsilon=0.3), metrics=())
    assert "\nthe paper guarantees epsilon 0.3" in fs.run(covered).summary(200)


def test_a_budget_of_epsilon_asks_for_the_metric():
    with pytest.raises(InvalidInput, match=r"privacy\.spent"):
        scenario(metrics=(), budget=fs.Budget(rounds=5, epsilon=1.0))
    with pytest.raises(InvalidInput, match=r"privacy\.spent"):
        scenario(metrics=("epsilon",))

"""Tuning finds the setting that reaches a goal at the lowest cost, with few runs, and reports the effect of each parameter."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from oracles import moments

import fedsim as fs
from fedsim.cli.app import call
from fedsim.errors import InvalidInput, NotRecorded
from fedsim.results.checksums import read_json
from fedsim.sweeps.recommendation import FORMAT
from fedsim.sweeps.tuner import FEASIBLE, _search

# A run's cost is known: theta halves `rate` times a round, so that off <= 1/64 takes ceil(6 / rate) rounds, each of
# `cohort` messages of 64 bits; rate 4 goes non-finite.
TEXT = """
from dataclasses import dataclass
import fedsim as fs

@dataclass(frozen=True)
class Halving:
    rate: int = 1
    batched = False
    def init(self, problem, initial): return {"theta": initial}
    def broadcast(self, state): return {"theta": state["theta"]}
    def work(self, job): return 1
    def client(self, job, message, memory):
        if self.rate == 4:
            raise LookupError("too fast")
        return {"theta": message["theta"] * 0.5 ** self.rate}, memory
    def server(self, state, replies, rng): return {"theta": replies.mean("theta")}

def scenario(*, rate: int = 1, cohort: int = 2, boost: bool = False):
    return fs.Scenario(
        problem=fs.problems.GaussianMean([[[0.0]], [[0.0]], [[0.0]]], [[1.0]]), algorithm=Halving(cohort if boost else rate),
        participation=fs.participation.uniform(cohort), budget=fs.Budget(rounds=8), initial=(1.0,), replicas=2,
        metrics=(fs.metrics.distance_to([0.0], "off"),))
"""
GOAL = "off <= 0.015625"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "halving.py").write_text(TEXT)
    return tmp_path


def test_tuning_finds_the_cheapest_setting_explains_it_and_reuses_its_runs(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = {"rate": [1, 2, 3, 4], "cohort": [1, 2, 3]}
    found = fs.tune("halving.py", grid, GOAL, "uplink_bits", out="runs", seeds=3, jobs=1)
    assert found.met
    assert found.best == {"rate": 3, "cohort": 1}
    assert (found.spent, found.low, found.high) == (128.0, 128.0, 128.0)  # two rounds of one message
    assert found.grid_runs == 36
    assert found.runs < 24
    effects = found.parameters
    factors = effects[effects["parameter"] == "rate"].set_index("value")["factor"].to_dict()
    assert factors == {1: 3.0, 2: 1.5, 3: 1.0, 4: math.inf}  # the last one failed
    factors = effects[effects["parameter"] == "cohort"].set_index("value")["factor"].to_dict()
    assert factors == {1: 1.0, 2: 2.0, 3: 3.0}
    assert "rate=3 against 1: x3, 2: x1.5, 4: never" in str(found)

    events: list[str] = []
    again = fs.tune(
        "halving.py", grid, GOAL, "rounds", {"uplink_bits": 100}, out="runs", seeds=3, jobs=1,
        observers=(lambda event: events.append(event.state),),
    )  # fmt: skip
    assert "started" not in events[: events.index("skipped") + 12]  # the first stage had been run
    assert not again.met
    assert "no setting that was tried reaches" in str(again)
    assert "uplink_bits <= 100 bit is exceeded" in str(again)

    line = ["tune", "halving.py", "--grid", "rate=1,2,3,4", "--grid", "cohort=1,2,3", "--goal", GOAL, "--seeds", "3"]
    capsys.readouterr()
    assert call([*line, "--minimize", "rounds", "--limit", "uplink_bits=300", "--jobs", "1", "--out", "runs"]) == 0
    printed = capsys.readouterr().out
    assert "for the least rounds within uplink_bits <= 300 bit: rate=3" in printed
    assert "uplink_bits <= 300 bit does not bind" in printed
    assert read_json(here / "runs/recommendation.json", FORMAT)["best"]["rate"] == 3
    assert len(fs.load("runs").frame()) >= 12


def test_a_limit_that_rules_out_the_cheapest_binds(here: Path) -> None:
    # With boost, n clients halve theta n times: to 1/32 in 5, 3 and 2 rounds, with 320, 384 and 384 bits.
    found = fs.tune(
        "halving.py", {"cohort": [1, 2, 3]}, "off <= 0.03125", "rounds", {"uplink_bits": 350},
        settings={"boost": True}, seeds=1, jobs=1,
    )  # fmt: skip
    assert found.best == {"cohort": 1}
    assert found.folder is None
    (limit,) = found.limits.to_dict("records")
    assert limit["binds"]
    assert limit["without"] == "cohort=3"
    assert limit["saving"] == pytest.approx(0.6)
    assert "uplink_bits <= 350 bit binds: without it cohort=3 would cost 60% less" in str(found)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"goal": "off"}, "goal='off': write a metric"),
        ({"minimize": "money"}, r"tune\(minimize='money'\): choose among rounds, seconds"),
        ({"limits": {"money": 3}}, r"tune\(limits='money'\)"),
        ({"limits": {"seconds": -3}}, "limits"),
        ({"grid": {}}, "name at least one setting"),
        ({"grid": {"seed": [1]}}, "seed is chosen by the search"),
        ({"seeds": 0}, "integer of at least 1"),
        ({"grid": {"speed": [1]}}, "speed"),
    ],
)
def test_a_mistake_is_refused_before_anything_runs(here: Path, asked: dict[str, object], sentence: str) -> None:
    given = {"grid": {"rate": [1]}, "goal": GOAL, "out": "runs"} | asked
    with pytest.raises(InvalidInput, match=sentence):
        fs.tune("halving.py", **given)
    assert not (here / "runs").exists()


def test_a_cost_that_is_not_recorded_cannot_be_minimized(here: Path) -> None:
    with pytest.raises(NotRecorded, match="do not account for epsilon"):
        fs.tune("halving.py", {"rate": [3]}, GOAL, "epsilon", seeds=1, jobs=1)


TOY = """
import numpy as np
import fedsim as fs

turn = np.linspace(0, 0.6 * np.pi, 5)
axes = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]).transpose(2, 0, 1)
covariance = axes @ np.diag([4.0, 0.4]) @ axes.transpose(0, 2, 1)  # so that the clients' Hessians differ
centres = [np.random.default_rng(c).normal(0, 0.7, 2) for c in range(5)]
data = [m + np.random.default_rng(100 + c).multivariate_normal([0, 0], covariance[c], 50) for c, m in enumerate(centres)]

def scenario(*, local_steps: int = 1, step_size: float = 1e-4):
    return fs.Scenario(
        problem=fs.problems.GaussianMean(data, covariance), initial=(1.5, 1.5), replicas=300, metrics=("w2",),
        algorithm=fs.algorithms.FALD(step_size=step_size, local_steps=local_steps), budget=fs.Budget(rounds=80))
"""


@pytest.mark.slow
def test_tuning_comes_within_a_tenth_of_an_exactly_known_optimum(here: Path) -> None:
    """FA-LD over unequal Hessians: rounds until W2 <= x, for every K and eta, from the recursion of exact moments."""
    (here / "toy.py").write_text(TOY)
    space: dict[str, object] = {}
    exec(TOY, space)
    clients = moments.gaussian_means(space["data"], space["covariance"])
    target = fs.problems.GaussianMean(space["data"], space["covariance"]).exact()
    level, grid = 0.03, {"local_steps": [1, 2, 4, 8, 16, 32], "step_size": [1e-5, 2e-5, 4e-5, 6e-5, 1e-4]}
    exact = {}
    for k in grid["local_steps"]:
        for eta in grid["step_size"]:
            law = moments.fald(clients, moments.full(clients.p), lambda t, eta=eta: eta, k, 80, start=[1.5, 1.5])
            reached = [r for r, moment in enumerate(law, 1) if fs.metrics.gaussian_w2(*moment, *target) <= level]
            exact[k, eta] = reached[0] if reached else math.inf
    least = min(exact.values())
    best = [setting for setting, rounds in exact.items() if rounds == least]
    assert all(k > 1 for k, _ in best)  # an optimum that K = 1 does not reach
    assert np.isinf(list(exact.values())).any()

    found = fs.tune("toy.py", grid, f"w2 <= {level}", "rounds", seeds=9, jobs=2, out="runs")
    chosen = exact[found.best["local_steps"], found.best["step_size"]]
    assert chosen <= 1.1 * least
    assert found.runs <= found.grid_runs / 3
    assert found.low <= found.spent <= found.high


def test_two_trials_have_a_range_and_no_interval(here: Path) -> None:
    found = fs.tune("halving.py", {"rate": [1, 2]}, GOAL, "rounds", seeds=1, jobs=1)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert "3 rounds from 3 rounds to 3 rounds, median and range of 2 trials: an interval needs 5" in str(found)


def test_the_settings_have_the_warnings_of_their_runs(here: Path) -> None:
    text = TEXT.replace('"off"),)', '"off"), "rhat")')
    (here / "doubted.py").write_text(text)
    found = fs.tune("doubted.py", {"rate": [1, 2]}, GOAL, "rounds", seeds=3, jobs=1, out="runs")
    assert found.settings["warnings"].str.contains("3 of 3 runs: rhat").any()
    (line,) = [line for line in found.lines() if line.startswith("warning: ")]
    assert "began at the same point" in line
    assert read_json(here / "runs/recommendation.json", FORMAT)["settings"][0]["warnings"]


def test_a_neighbour_that_has_all_seeds_when_it_turns_out_cheaper_is_the_best():
    costs = {(0,): [1.0, 9.0], (1,): [2.0, 2.0], (2,): [8.0, 8.0]}  # by setting and seed: the first is best on seed 0
    done = dict.fromkeys(costs, 0)

    class Two:
        all, seeds = list(costs), 2

        def rank(self, setting, seeds=None):
            spent = costs[setting][: done[setting]]
            return FEASIBLE, sum(spent) / len(spent), 0.0

        def ranked(self, settings):
            return sorted(settings, key=self.rank)

        def neighbours(self, setting):
            return [one for one in self.all if one != setting]

        def seeds_done(self, setting):
            return range(done[setting])

    def execute(settings, seeds):
        done.update(dict.fromkeys(settings, seeds))

    assert _search(Two(), execute, lambda line: None) == (1,)

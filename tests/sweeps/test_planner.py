"""The planner finds what a goal costs least, with few runs, and says what is worth what."""

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


def test_the_planner_finds_the_cheapest_setting_says_why_and_reuses_its_runs(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vary = {"rate": [1, 2, 3, 4], "cohort": [1, 2, 3]}
    advice = fs.plan("halving.py", vary, GOAL, "uplink_bits", out="runs", seeds=3, jobs=1)
    assert advice.met
    assert advice.best == {"rate": 3, "cohort": 1}
    assert (advice.spent, advice.low, advice.high) == (128.0, 128.0, 128.0)  # two rounds of one message
    assert advice.grid_runs == 36
    assert advice.runs < 24
    worth = advice.knobs[advice.knobs["knob"] == "rate"].set_index("value")["factor"].to_dict()
    assert worth == {1: 3.0, 2: 1.5, 3: 1.0, 4: math.inf}  # the last one failed
    worth = advice.knobs[advice.knobs["knob"] == "cohort"].set_index("value")["factor"].to_dict()
    assert worth == {1: 1.0, 2: 2.0, 3: 3.0}
    assert "rate=3 against 1: x3, 2: x1.5, 4: never" in str(advice)

    events: list[str] = []
    again = fs.plan(
        "halving.py", vary, GOAL, "rounds", {"uplink_bits": 100}, out="runs", seeds=3, jobs=1,
        observers=(lambda event: events.append(event.state),),
    )  # fmt: skip
    assert "started" not in events[: events.index("kept") + 12]  # the first stage had been run
    assert not again.met
    assert "no setting that was tried reaches" in str(again)
    assert "uplink_bits <= 100 bit is exceeded" in str(again)

    line = ["plan", "halving.py", "--vary", "rate=1,2,3,4", "--vary", "cohort=1,2,3", "--goal", GOAL, "--seeds", "3"]
    capsys.readouterr()
    assert call([*line, "--spend", "rounds", "--within", "uplink_bits=300", "--jobs", "1", "--out", "runs"]) == 0
    said = capsys.readouterr().out
    assert "for the least rounds within uplink_bits <= 300 bit: rate=3" in said
    assert "uplink_bits <= 300 bit does not bind" in said
    assert read_json(here / "runs/plan.json", FORMAT)["best"]["rate"] == 3
    assert len(fs.load("runs").frame()) >= 12


def test_a_limit_that_rules_out_the_cheapest_binds(here: Path) -> None:
    # With boost, n clients halve theta n times: to 1/32 in 5, 3 and 2 rounds, with 320, 384 and 384 bits.
    advice = fs.plan(
        "halving.py", {"cohort": [1, 2, 3]}, "off <= 0.03125", "rounds", {"uplink_bits": 350},
        settings={"boost": True}, seeds=1, jobs=1,
    )  # fmt: skip
    assert advice.best == {"cohort": 1}
    assert advice.folder is None
    (limit,) = advice.limits.to_dict("records")
    assert limit["binds"]
    assert limit["without"] == "cohort=3"
    assert limit["saving"] == pytest.approx(0.6)
    assert "uplink_bits <= 350 bit binds: without it cohort=3 would do for 60% less" in str(advice)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"goal": "off"}, "goal='off': write a metric"),
        ({"spend": "money"}, r"plan\(spend='money'\): choose among rounds, seconds"),
        ({"within": {"money": 3}}, r"plan\(within='money'\)"),
        ({"within": {"seconds": -3}}, "within"),
        ({"vary": {}}, "name at least one setting"),
        ({"vary": {"seed": [1]}}, "the planner chooses the seeds"),
        ({"seeds": 0}, "integer of at least 1"),
        ({"vary": {"speed": [1]}}, "speed"),
    ],
)
def test_a_mistake_is_refused_before_anything_runs(here: Path, asked: dict[str, object], sentence: str) -> None:
    given = {"vary": {"rate": [1]}, "goal": GOAL, "out": "runs"} | asked
    with pytest.raises(InvalidInput, match=sentence):
        fs.plan("halving.py", **given)
    assert not (here / "runs").exists()


def test_what_is_not_accounted_for_cannot_be_saved(here: Path) -> None:
    with pytest.raises(NotRecorded, match="do not account for epsilon"):
        fs.plan("halving.py", {"rate": [3]}, GOAL, "epsilon", seeds=1, jobs=1)


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
def test_the_planner_comes_within_a_tenth_of_an_optimum_that_is_known_exactly(here: Path) -> None:
    """FA-LD over unequal Hessians: rounds until W2 <= x, for every K and eta, from the recursion of exact moments."""
    (here / "toy.py").write_text(TOY)
    found: dict[str, object] = {}
    exec(TOY, found)
    clients = moments.gaussian_means(found["data"], found["covariance"])
    target = fs.problems.GaussianMean(found["data"], found["covariance"]).exact()
    level, vary = 0.03, {"local_steps": [1, 2, 4, 8, 16, 32], "step_size": [1e-5, 2e-5, 4e-5, 6e-5, 1e-4]}
    exact = {}
    for k in vary["local_steps"]:
        for eta in vary["step_size"]:
            law = moments.fald(clients, moments.full(clients.p), lambda t, eta=eta: eta, k, 80, start=[1.5, 1.5])
            reached = [r for r, moment in enumerate(law, 1) if fs.metrics.gaussian_w2(*moment, *target) <= level]
            exact[k, eta] = reached[0] if reached else math.inf
    least = min(exact.values())
    best = [setting for setting, rounds in exact.items() if rounds == least]
    assert all(k > 1 for k, _ in best)  # an optimum that K = 1 does not reach
    assert np.isinf(list(exact.values())).any()

    advice = fs.plan("toy.py", vary, f"w2 <= {level}", "rounds", seeds=9, jobs=2, out="runs")
    chosen = exact[advice.best["local_steps"], advice.best["step_size"]]
    assert chosen <= 1.1 * least
    assert advice.runs <= advice.grid_runs / 3
    assert advice.low <= advice.spent <= advice.high


def test_two_trials_have_a_range_and_no_interval(here: Path) -> None:
    advice = fs.plan("halving.py", {"rate": [1, 2]}, GOAL, "rounds", seeds=1, jobs=1)
    assert math.isnan(advice.low)
    assert math.isnan(advice.high)
    assert "3 rounds from 3 rounds to 3 rounds, median and range of 2 trials: an interval needs 5" in str(advice)


def test_the_ranking_has_the_warnings_of_its_runs(here: Path) -> None:
    text = TEXT.replace('"off"),)', '"off"), "rhat")')
    (here / "doubted.py").write_text(text)
    advice = fs.plan("doubted.py", {"rate": [1, 2]}, GOAL, "rounds", seeds=3, jobs=1, out="runs")
    assert advice.settings["warnings"].str.contains("3 of 3 runs: rhat").any()
    (line,) = [line for line in advice.lines() if line.startswith("! ")]
    assert "began at the same point" in line
    assert read_json(here / "runs/plan.json", FORMAT)["settings"][0]["warnings"]

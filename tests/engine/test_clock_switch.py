"""fs.run(..., clock=): which clock ran is in the manifest, and an interrupted run resumes on its own, to the same bits."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from typer.testing import CliRunner

import fedsim as fs
from fedsim.errors import Interrupted, InvalidInput

FLAKY = fs.devices.lognormal(0.1, sigma=0.7, dropout={"before": 0.1, "compute": 0.1, "upload": 0.15})
STAR = fs.topologies.star(6, uplink_bps=2e3, downlink_bps=4e3, latency_s=0.02)


class LossAware(fs.participation.Full):
    """Select the three clients whose latest reported loss was largest; those never heard of come first."""

    batched = always = False

    def select(self, view, rng):
        loss = np.nan_to_num(view.last(np.arange(view.clients), "loss"), nan=np.inf)
        return np.argsort(-loss, kind="stable")[:3]


class Reporting(fs.algorithms.FedAvg):
    """FedAvg whose clients report a loss, which stays on the device."""

    local_only = ("loss",)

    def client(self, job, message, memory):
        reply, memory = super().client(job, message, memory)
        return {**reply, "loss": np.atleast_1d(np.float64(job.client % 4 + 0.1 * job.round))}, memory


def scenario(**parts) -> fs.Scenario:
    given = {
        "problem": fs.problems.GaussianMean.synthetic(6, dim=3, samples=4, seed=1),
        "algorithm": fs.algorithms.FALD(step_size=1e-3, local_steps=2), "network": STAR, "devices": FLAKY,
        "budget": fs.Budget(rounds=14), "replicas": 2, "seed": 1, "record": fs.Record(events=True),
    }  # fmt: skip
    return fs.Scenario(**{**given, **parts})


CASES = {
    "star": {"participation": fs.participation.first(2, of=4)},
    "shared": {"network": fs.topologies.multiple_access(6, capacity_bps=4e3, latency_s=0.01), "participation": fs.participation.deadline(0.9)},
    "tiers": {"exchange": fs.exchanges.tiers([0, 0, 0, 1, 1, 1], every=3)},
    "sizes that depend on values": {"algorithm": fs.algorithms.QLSD(step_size=1e-3, codec=fs.codecs.Elias(4))},
    "asynchronous": {"participation": fs.participation.buffered(2, discount=lambda k: 1 / (1 + k))},
    "asynchronous, places": {
        "participation": fs.participation.buffered(2, of=3), "algorithm": fs.algorithms.Scaffold(step_size=1e-3, local_steps=2),
        "network": fs.topologies.multiple_access(6, capacity_bps=4e3, latency_s=0.01),
        "devices": fs.devices.lognormal(0.1, sigma=0.7, dropout=0.1, availability=fs.devices.markov(3.0, off_s=1.0)),
    },
    "asynchronous, sizes that depend on values": {
        "participation": fs.participation.buffered(2), "algorithm": fs.algorithms.FedPAQ(0.1, local_steps=2, codec=fs.codecs.Elias(4)),
    },
    "client memory": {"algorithm": fs.algorithms.Scaffold(step_size=1e-3, local_steps=2)},
}  # fmt: skip


def assert_equal(one: fs.Result, other: fs.Result) -> None:
    np.testing.assert_array_equal(one.samples, other.samples)
    for name in ("rounds", "clients", "metrics", "events"):
        assert getattr(one, name).equals(getattr(other, name)), name


@pytest.mark.parametrize("clock", ["simpy", "compiled"])
@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_run_resumes_on_its_clock_with_the_same_bits(case: str, clock: str, tmp_path) -> None:
    made, stop = scenario(**CASES[case]), threading.Event()
    if clock == "compiled" and case == "asynchronous, sizes that depend on values":
        with pytest.raises(InvalidInput, match='use clock="simpy"'):
            fs.run(made, clock=clock)
        return
    whole = fs.run(made, clock="simpy")
    other = "compiled" if clock == "simpy" else "simpy"
    with pytest.raises(Interrupted):
        fs.run(
            made, out=tmp_path / "run", checkpoint_every=4, stop=stop, clock=clock,
            observers=[lambda progress: stop.set() if progress.round == 6 else None],
        )  # fmt: skip
    with pytest.raises(InvalidInput, match=f"was begun on clock='{clock}'"):
        fs.run(made, out=tmp_path / "run", resume=True, clock=other)
    resumed = fs.run(made, out=tmp_path / "run", resume=True)
    assert resumed.manifest["clock"]["name"] == clock
    assert_equal(resumed, whole)
    assert_equal(fs.load(tmp_path / "run"), whole)


def test_a_policy_reads_losses_and_a_resumed_clock_is_given_the_same_ones(tmp_path) -> None:
    made, stop = (
        scenario(participation=LossAware(), algorithm=Reporting(step_size=1e-3, local_steps=2)),
        threading.Event(),
    )
    whole = fs.run(made, clock="simpy")
    chosen = whole.events[(whole.events["event"] == "select") & (whole.events["replica"] == 0)]
    assert len(set(chosen["client"])) == 6
    with pytest.raises(Interrupted):
        fs.run(
            made, out=tmp_path / "run", checkpoint_every=2, stop=stop, clock="simpy",
            observers=[lambda progress: stop.set() if progress.round == 5 else None],
        )  # fmt: skip
    assert_equal(fs.run(made, out=tmp_path / "run", resume=True), whole)


@pytest.mark.parametrize("case", CASES)
def test_replicas_alone_and_threads_give_the_same_bits(case: str) -> None:
    together = fs.run(scenario(**CASES[case]), clock="simpy", runtime=fs.Inline(threads=2))
    alone = fs.run(scenario(**CASES[case], replicas=range(1, 2)), clock="simpy")
    np.testing.assert_array_equal(together.samples[:, 1:], alone.samples)
    mine = together.rounds[together.rounds["replica"] == 1].reset_index(drop=True)
    assert mine.equals(alone.rounds)


@pytest.mark.parametrize("case", ["star", "shared", "tiers", "asynchronous", "asynchronous, places"])
def test_events_add_up_to_the_rounds(case: str) -> None:
    result = fs.run(scenario(**CASES[case]), clock="simpy")
    counts = result.events.groupby(["replica", "round", "event"]).size().unstack(fill_value=0)
    rounds = result.rounds.set_index(["replica", "round"])
    for event, column in (("select", "selected"), ("upload", "arrived"), ("drop", "dropped"), ("late", "late")):
        assert (counts.get(event, 0) == rounds[column]).all()
    up = (
        result.events[result.events["event"].isin(["upload", "drop", "late"])]
        .groupby(["replica", "round"])["bits"]
        .sum()
    )
    down = result.events[result.events["event"].isin(["download", "cut"])].groupby(["replica", "round"])["bits"].sum()
    assert (up == rounds["uplink_bits"]).all()
    assert (down == rounds["downlink_bits"]).all()
    for _, own in result.events.groupby("replica"):
        assert (np.diff(own["time_s"]) >= 0).all()
    for column in set(result.rounds) & set(result.clients):
        assert result.clients[column].sum() == pytest.approx(result.rounds[column].sum()), column


class Impatient(type(fs.participation.buffered(1))):
    def close(self, view):
        return view.now_s


def test_an_asynchronous_policy_with_rules_of_its_own_is_refused() -> None:
    with pytest.raises(InvalidInput, match="would never be called"):
        fs.run(scenario(participation=Impatient(2)), clock="simpy")


def test_a_clock_that_cannot_serve_a_scenario_refuses_in_one_sentence() -> None:
    channel = fs.topologies.multiple_access(6, capacity_bps=4e3, latency_s=0.01)
    with pytest.raises(InvalidInput, match=r'clock="compiled" cannot serve this scenario: .*; use clock="simpy"'):
        fs.run(scenario(network=channel, participation=LossAware()), clock="compiled")
    with pytest.raises(InvalidInput, match="clock="):
        fs.run(scenario(), clock="sundial")


def test_the_command_line_takes_a_clock() -> None:
    from fedsim.cli.app import app

    done = CliRunner().invoke(app, ["run", "quickstart", "--clock", "sundial", "--quiet"])
    assert done.exit_code != 0

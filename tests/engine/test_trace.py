"""The timeline as rows, totals, a trace file and a picture."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import fedsim as fs
from fedsim.analysis import gantt, timeline

CLIENTS = 5
POLICIES = {
    "full": fs.participation.full(),
    "first": fs.participation.first(2),
    "deadline": fs.participation.deadline(0.6),
    "buffered": fs.participation.buffered(2),
}


def run_of(policy="first", network="shared", **more):
    networks = {
        "shared": fs.topologies.multiple_access(CLIENTS, capacity_bps=4e3, latency_s=0.01),
        "star": fs.topologies.star(CLIENTS, uplink_bps=2e3, downlink_bps=4e3, latency_s=0.02),
        "ideal": None,
    }
    return fs.run(
        fs.Scenario(
            **{
                "problem": fs.problems.GaussianMean.synthetic(CLIENTS, dim=4, samples=6, seed=4),
                "algorithm": fs.algorithms.FALD(step_size=1e-3, local_steps=3),
                "network": networks[network],
                "devices": fs.devices.lognormal(
                    0.1, sigma=0.7, dropout={"before": 0.1, "compute": 0.1, "upload": 0.15}
                ),
                "participation": POLICIES[policy],
                "budget": fs.Budget(rounds=10),
                "replicas": 3,
                "seed": 2,
                "record": fs.Record(events=True),
            }
            | more
        )
    )


def count(result, event, **where):
    rows = result.events[result.events["event"] == event]
    for name, value in where.items():
        rows = rows[rows[name] == value]
    return len(rows)


# --- Rows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", ["shared", "star", "ideal"])
@pytest.mark.parametrize("policy", POLICIES)
def test_rows_add_up_to_the_rounds(policy, network):
    result = run_of(policy, network)
    assert set(result.events["event"]) <= {
        "select",
        "download",
        "compute",
        "upload",
        "drop",
        "late",
        "cut",
        "aggregate",
    }
    for row in result.rounds.itertuples():
        where = {"replica": row.replica, "round": row.round}
        assert count(result, "select", **where) == row.selected
        assert count(result, "upload", **where) == row.arrived
        assert count(result, "drop", **where) == row.dropped
        assert count(result, "late", **where) == row.late
        assert count(result, "aggregate", **where) == 1
        own = result.events[(result.events["replica"] == row.replica) & (result.events["round"] == row.round)]
        up = own[own["event"].isin(["upload", "drop", "late"])]
        assert up["bits"].sum() == row.uplink_bits
        assert up.loc[up["event"] != "upload", "bits"].sum() == row.wasted_bits
        assert own.loc[own["event"].isin(["download", "cut"]), "bits"].sum() == row.downlink_bits
        assert own["time_s"].between(row.opened_s, row.closed_s).all()
        assert own.loc[own["event"] == "aggregate", "time_s"].item() == row.closed_s


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_add_up_to_the_clients_totals(policy):
    result = run_of(policy)
    ends = {"arrived": "upload", "dropped": "drop", "late": "late"}
    for row in result.clients.itertuples():
        for total, event in ends.items():
            assert count(result, event, client=row.client) == getattr(row, total)
        own = result.events[result.events["client"] == row.client]
        assert own.loc[own["event"].isin(ends.values()), "bits"].sum() == row.uplink_bits
        assert own.loc[own["event"].isin(["drop", "late"]), "bits"].sum() == row.wasted_bits


@pytest.mark.parametrize("replicas", [1, 9])
@pytest.mark.parametrize("network", ["shared", "star"])
@pytest.mark.parametrize("policy", ["full", "first", "deadline"])
def test_wasted_seconds_of_a_client_are_added_one_visit_after_the_other(policy, network, replicas):
    """In the order of rounds, replicas and clients, bit for bit, however many visits of a round were lost."""
    result = run_of(policy, network, replicas=replicas)
    lost = timeline.visits(result).query("outcome in ('drop', 'late')").sort_values(["round", "replica", "client"])
    expected = {name: np.zeros(CLIENTS) for name in ("wasted_s", "late_s", "dropped_s", "called_off_s")}
    for visit in lost.itertuples():
        cause = "dropped_s" if visit.outcome == "drop" else "called_off_s" if math.isnan(visit.compute) else "late_s"
        for name in ("wasted_s", cause):
            expected[name][visit.client] += visit.end_s - visit.select
    for name, seconds in expected.items():
        assert result.clients[name].tolist() == seconds.tolist(), name


@pytest.mark.parametrize("policy", POLICIES)
def test_time_never_goes_back(policy):
    for _, own in run_of(policy).events.groupby("replica"):
        assert (np.diff(own["time_s"]) >= 0).all()


def test_a_discarded_round_leaves_no_rows():
    result = run_of("full", budget=fs.Budget(seconds=3.0))
    counted = result.rounds.groupby("replica")["round"].max()
    assert (result.events.groupby("replica")["round"].max() == counted).all()
    assert result.events["time_s"].max() <= 3.0


def test_only_a_recorded_timeline_can_be_shown(tmp_path):
    result = run_of(record=fs.Record())
    assert result.events is None
    assert timeline.shares(result) is None
    for call in (
        timeline.visits,
        lambda r: gantt.to_chrome(r, tmp_path / "t"),
        lambda r: gantt.swimlanes(r, tmp_path / "t"),
    ):
        with pytest.raises(fs.errors.NotRecorded, match=r"Record\(events=True\)"):
            call(result)


# --- Visits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_every_visit_is_one_row_and_its_steps_follow_one_another(policy):
    result = run_of(policy)
    visits = timeline.visits(result)
    assert len(visits) == count(result, "select")
    assert visits["outcome"].isin(["upload", "drop", "late", ""]).all()
    if policy != "buffered":
        assert (visits["outcome"] != "").all()
    arrived = visits[visits["outcome"] == "upload"]
    assert len(arrived) == result.rounds["arrived"].sum()
    steps = arrived[["select", "download", "compute", "end_s"]].to_numpy()
    assert (np.diff(steps, axis=1) >= 0).all()
    assert visits["bits"].sum() == result.rounds["uplink_bits"].sum()
    for _, own in visits[visits["outcome"] != ""].groupby(["replica", "client"]):
        assert (own["select"].to_numpy()[1:] >= own["end_s"].to_numpy()[:-1]).all()  # one visit at a time


def test_shares_of_time_are_those_of_the_visits():
    shares = timeline.shares(run_of("full", "star"))
    assert sum(shares.values()) == pytest.approx(1.0)
    assert all(0 < share < 1 for share in shares.values())


# --- Files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_the_chrome_trace_is_what_its_viewers_read(policy, tmp_path):
    result = run_of(policy)
    path = gantt.to_chrome(result, tmp_path / "trace.json")
    trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    assert {e["ph"] for e in events} <= {"M", "X", "i"}
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        if event["ph"] != "M":
            assert isinstance(event["tid"], int)
            assert math.isfinite(event["ts"])
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
    spans = [e for e in events if e["ph"] == "X"]
    rounds = [e for e in spans if e["cat"] == "round"]
    assert len(rounds) == len(result.rounds)
    assert max(e["ts"] + e["dur"] for e in rounds) == pytest.approx(1e6 * result.rounds["closed_s"].max())
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names[0, 0] == "server"
    visits = timeline.visits(result)
    for row in visits[visits["outcome"] == "upload"].head(20).itertuples():
        own = [e for e in spans if e["pid"] == row.replica and names[e["pid"], e["tid"]] == f"client {row.client}"]
        upload = [e for e in own if e["name"] == "upload" and e["ts"] == pytest.approx(1e6 * row.compute)]
        assert [e["ts"] + e["dur"] for e in upload] == pytest.approx([1e6 * row.end_s])
    lost = [e for e in events if e["ph"] == "i"]
    assert len(lost) == result.rounds[["dropped", "late"]].sum().sum()


@pytest.mark.parametrize("policy", POLICIES)
def test_the_picture_is_drawn(policy, tmp_path):
    path = gantt.swimlanes(run_of(policy), tmp_path / "gantt.png", replica=1, rounds=4)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_picture_of_a_replica_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(fs.errors.InvalidInput, match="replicas"):
        gantt.swimlanes(run_of(), tmp_path / "gantt.png", replica=7)

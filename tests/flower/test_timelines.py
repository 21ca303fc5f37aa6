"""Messages of a Flower app travel and wait exactly as those of a scenario."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import fedsim as fs
from fedsim.analysis import timeline
from fedsim.engine.clock.simpy import SimpyClock
from fedsim.engine.system import MessageSizes, System, setting_of
from fedsim.kernels import backend

NODES, ROUNDS = 8, 3
NETWORKS = {
    "private": lambda: fs.topologies.star(
        clients=NODES, uplink_bps=np.linspace(1e5, 1e6, NODES), downlink_bps=5e6, latency_s=0.03, loss=0.02
    ),
    "shared": lambda: fs.topologies.multiple_access(NODES, capacity_bps=1e6, latency_s=0.01),
}
DEVICES = {
    "reliable": lambda: fs.devices.lognormal(median_step_s=1e-2, sigma=0.5, slowdown=fs.devices.pareto_slowdown(2.0)),
    "dropping": lambda: fs.devices.lognormal(
        median_step_s=1e-2, sigma=0.5, dropout={"before": 0.1, "compute": 0.2, "upload": 0.2}
    ),
}


def fedavg(app_of, size=5000):
    from flwr.app import ArrayRecord, MetricRecord, RecordDict
    from flwr.serverapp.strategy import FedAvg

    def server(grid, context):
        start = ArrayRecord([np.ones(size, np.float32)])
        FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=start, num_rounds=ROUNDS)

    def client(message, context):
        metrics = MetricRecord({"num-examples": 10})
        return RecordDict({"arrays": message.content["arrays"], "metrics": metrics})

    return app_of(server, client)


def in_fedsim(network, devices, down_bits, up_bits, seed):
    """The visits of FedAvg's rounds on fedsim's own SimPy clock, with messages of these lengths."""
    scenario = fs.Scenario(
        problem=fs.problems.Payload(NODES, 1), algorithm=fs.algorithms.FedAvg(0.1, local_steps=10),
        budget=fs.Budget(rounds=ROUNDS), network=network, devices=devices, seed=seed,
    )  # fmt: skip
    system = System(scenario, setting_of(scenario, backend("numpy")), timing_only=True)
    clock = SimpyClock(system, MessageSizes(down_bits, up_bits, up_bits), None)
    return asyncio.run(clock.next(np.arange(1), ROUNDS))


@pytest.mark.parametrize("network", NETWORKS)
def test_a_fedavg_app_agrees_with_fedavg_in_every_phase(app_of, network):
    devices = DEVICES["reliable"]()
    app = fedavg(app_of)
    result = fs.flower.run(app, nodes=NODES, network=NETWORKS[network](), devices=devices, seed=3)
    (down_bits,), (up_bits,) = set(result.visits["down_bits"]), set(result.visits["bits"])
    block = in_fedsim(NETWORKS[network](), devices, down_bits, up_bits, 3)
    visits = result.visits.sort_values(["round", "client"])
    for column, ours in (
        ("select", "started_s"),
        ("download", "downloaded_s"),
        ("compute", "computed_s"),
        ("end_s", "ended_s"),
    ):
        np.testing.assert_allclose(visits[column], getattr(block.visits, ours), rtol=1e-9, atol=0)
    np.testing.assert_allclose(result.rounds["closed_s"], block.closed_s[0], rtol=1e-9)


def test_lost_visits_end_in_the_same_phase_at_the_same_time(app_of):
    devices = DEVICES["dropping"]()
    app = fedavg(app_of)
    result = fs.flower.run(app, nodes=NODES, network=NETWORKS["private"](), devices=devices, seed=5)
    first = result.visits[result.visits["round"] == 1].sort_values("client")
    down_bits, up_bits = first["down_bits"].max(), first["bits"].max()
    block = in_fedsim(NETWORKS["private"](), devices, down_bits, up_bits, 5)
    mine = slice(block.offsets[0, 0], block.offsets[0, 1])
    assert set(first["outcome"]) == {"upload", "drop"}
    np.testing.assert_allclose(first["end_s"], block.visits.ended_s[mine], rtol=1e-9)
    np.testing.assert_array_equal(first["bits"], block.visits.up_bits[mine])


def test_an_app_gives_an_ordinary_result(apps, star, tmp_path):
    devices = fs.devices.lognormal(median_step_s=1e-3, sigma=0.5, per_example=True)
    result = fs.flower.run(apps / "numpy_fedavg", network=star(8), devices=devices, seed=1, out=tmp_path / "run")
    assert result.rounds["message_type"].tolist() == ["train", "evaluate"] * 3
    assert result.rounds["train_loss"].notna().tolist() == [True, False] * 3
    assert (result.clients["uplink_bits"].sum(), result.clients["arrived"].sum()) == (
        result.rounds["uplink_bits"].sum(), result.rounds["arrived"].sum(),
    )  # fmt: skip
    loaded = fs.load(tmp_path / "run")
    visits = timeline.visits(loaded)
    assert len(visits) == 24
    assert all(len(values) == 3 for values in visits.loc[visits["loss"].notna(), "residuals"])
    assert loaded.fingerprint == result.fingerprint
    assert "stopped by the ServerApp returned" in loaded.summary()


def test_metrics_are_averaged_by_examples_and_named_by_their_record_where_a_key_occurs_twice(app_of):
    from flwr.app import Message, MetricRecord, RecordDict

    def server(grid, context):
        messages = [Message(RecordDict(), node, "query") for node in grid.get_node_ids()]
        assert len(list(grid.send_and_receive(messages))) == 2

    def client(message, context):
        i = int(context.node_config["partition-id"])
        a = MetricRecord({"num-examples": 1 + 3 * i, "x": float(i), "only": 2.0 * i})
        return RecordDict({"a": a, "b": MetricRecord({"x": 10.0, "round": 7})})

    rounds = fs.flower.run(app_of(server, client), nodes=2).rounds
    assert rounds[["a.x", "b.x", "only", "b.round"]].iloc[0].tolist() == [0.8, 10.0, 1.6, 7.0]


def test_a_group_id_is_one_row(app_of):
    from flwr.app import Message, RecordDict

    def server(grid, context):
        for group in ("1", "1", "2"):
            for kind in ("train", "evaluate"):
                node = grid.get_node_ids()[0]
                grid.send_and_receive([Message(RecordDict(), node, kind, group_id=group)])

    rounds = fs.flower.run(app_of(server, lambda message, context: RecordDict()), nodes=1).rounds
    assert rounds["message_type"].tolist() == ["train, evaluate"] * 2
    assert rounds["selected"].tolist() == [4, 2]

"""Six apps of different kinds run unmodified, with the same digests whenever and wherever they run."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

import fedsim as fs

APPS = {
    "numpy_fedavg": 8, "torch_net": 4, "sklearn_logistic": 5, "analytics": 6, "custom_strategy": 6, "asynchronous": 6,
}  # fmt: skip
NEEDS = {"torch_net": "torch", "sklearn_logistic": "sklearn"}
pytestmark = pytest.mark.filterwarnings("ignore::fedsim.errors.ResultWarning")


@pytest.fixture(params=APPS)
def run(request, apps, star):
    """Run one of the apps; return the digests of its messages and of its timeline."""
    name, nodes = request.param, APPS[request.param]
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")

    def digests(runtime=None, seed=1):
        devices = fs.devices.lognormal(median_step_s=1e-3, sigma=0.5, dropout=0.1, per_example=True)
        result = fs.flower.run(apps / name, network=star(nodes), devices=devices, seed=seed, runtime=runtime)
        return result.manifest["flower"]["digest"], result.fingerprint

    return digests


def test_every_app_gives_the_same_digest_twice_and_on_threads_and_another_for_another_seed(run):
    first = run()
    assert run() == first
    assert run(fs.Inline(threads=3)) == first
    assert run(seed=2) != first


@pytest.mark.slow
def test_every_app_gives_the_same_digest_in_processes_and_on_ray(run):
    first = run()
    assert run(fs.flower.Processes(2)) == first
    assert run(fs.Ray(hosts=2)) == first


def test_processes_give_the_same_digest(apps, star):
    results = [
        fs.flower.run(apps / "asynchronous", network=star(6), devices=fs.devices.constant(1e-3), runtime=runtime)
        for runtime in (None, fs.flower.Processes(2))
    ]
    assert len({(result.fingerprint, result.manifest["flower"]["digest"]) for result in results}) == 1


def test_a_failing_client_is_an_error_reply_that_names_node_message_and_round(apps):
    with pytest.warns(fs.errors.ResultWarning, match="node 2, message 3, round 1: RuntimeError: the disk is full"):
        result = fs.flower.run(apps / "custom_strategy")
    assert result.rounds["arrived"].tolist() == [6, 6, 6]
    assert len(result.manifest["flower"]["failures"]) == 3
    assert "the disk is full (client_app.py:" in result.summary()


def test_strict_ends_the_run_at_a_failing_client(apps):
    with pytest.raises(fs.errors.ClientFailed, match="node 2, message 3, round 1: RuntimeError: the disk is full"):
        fs.flower.run(apps / "custom_strategy", strict=True)


def test_only_the_nodes_that_were_visited_have_contexts(app_of):
    from flwr.app import Message, MetricRecord, RecordDict

    seen = []

    def server(grid, context):
        nodes = list(grid.get_node_ids())
        assert len(set(nodes)) == 10_000
        for _ in range(2):
            grid.send_and_receive([Message(RecordDict(), node, "query") for node in nodes[:5]])

    def client(message, context):
        visits = context.state["visits"]["n"] + 1 if "visits" in context.state else 1
        context.state["visits"] = MetricRecord({"n": visits})
        seen.append((context.node_config["partition-id"], context.node_config["num-partitions"], visits))
        return RecordDict()

    fs.flower.run(app_of(server, client), nodes=10_000)
    assert sorted(seen, key=lambda visit: (visit[2], visit[0])) == [(i, 10_000, 1) for i in range(5)] + [
        (i, 10_000, 2) for i in range(5)
    ]


def test_clients_cannot_change_the_servers_records_or_each_others(app_of):
    from flwr.app import ConfigRecord, Message, RecordDict

    seen = []

    def server(grid, context):
        shared = RecordDict({"config": ConfigRecord({"values": [1, 2]})})
        grid.send_and_receive([Message(shared, node, "train") for node in grid.get_node_ids()])
        seen.append(shared["config"]["values"])

    def client(message, context):
        seen.append(list(message.content["config"]["values"]))
        message.content["config"]["values"].append(3)
        return message.content

    fs.flower.run(app_of(server, client), nodes=2)
    assert seen == [[1, 2]] * 3


@pytest.mark.parametrize(
    ("given", "added"),
    [({"city": "A"}, [{"city": "A"}] * 2), (lambda i: {"city": "AB"[i]}, [{"city": "A"}, {"city": "B"}])],
)
def test_node_config_adds_to_every_nodes_config(app_of, given, added):
    from flwr.app import Message, RecordDict

    seen = []

    def server(grid, context):
        grid.send_and_receive([Message(RecordDict(), node, "query") for node in grid.get_node_ids()])

    def client(message, context):
        seen.append(dict(context.node_config))
        return RecordDict()

    fs.flower.run(app_of(server, client), nodes=2, node_config=given)
    assert sorted(seen, key=lambda config: config["partition-id"]) == [
        {"partition-id": i, "num-partitions": 2, **more} for i, more in enumerate(added)
    ]

"""How long a ClientApp computes in virtual time."""

from __future__ import annotations

import json

import pytest

import fedsim as fs


def seconds(app_of, work, devices, kinds=("train", "evaluate"), examples=30, set=None, client=None):
    """The compute time of a visit of each kind."""
    from flwr.app import Message, MetricRecord, RecordDict

    def server(grid, context):
        for kind in kinds:
            grid.send_and_receive([Message(RecordDict(), grid.get_node_ids()[0], kind)])

    def answer(message, context):
        return RecordDict({"metrics": MetricRecord({} if examples is None else {"num-examples": examples})})

    settings = {"local-epochs": 4} if set is None else set
    visits = fs.flower.run(app_of(server, client or answer), nodes=1, devices=devices, work=work, set=settings).visits
    return (visits["compute"] - visits["download"]).round(12).tolist()


@pytest.mark.parametrize("per", ["seconds_per_step", "seconds_per_example"])
def test_examples_times_epochs_to_train_and_examples_to_evaluate(app_of, per):
    assert seconds(app_of, None, fs.devices.constant(**{per: 0.5})) == [60.0, 15.0]


def test_without_epochs_every_message_is_one_pass(app_of):
    assert seconds(app_of, None, fs.devices.constant(0.5), set={}) == [15.0, 15.0]
    assert seconds(app_of, fs.flower.examples(epochs=None), fs.devices.constant(0.5)) == [15.0, 15.0]


def test_declared_steps(app_of):
    def steps(message, reply, context):
        return 7 if message.metadata.message_type == "train" else context.run_config["local-epochs"]

    assert seconds(app_of, fs.flower.declared(steps), fs.devices.constant(2.0), examples=None) == [14.0, 8.0]


def test_a_reply_without_examples_is_refused_where_they_are_needed(app_of):
    with pytest.raises(fs.errors.InvalidInput, match=r"no metric 'num-examples'.*declared"):
        seconds(app_of, None, fs.devices.constant(1.0), examples=None)
    assert seconds(app_of, None, None, examples=None) == [0.0, 0.0]


def test_measured_seconds_are_replayed_from_their_profile(app_of, tmp_path):
    work, devices = fs.flower.measured(profile=tmp_path / "profile.json"), fs.devices.constant(10.0)
    first = seconds(app_of, work, devices)
    means = json.loads((tmp_path / "profile.json").read_text())["seconds"]
    assert set(means) == {"all/train", "all/evaluate"}
    again = [seconds(app_of, work, devices) for _ in range(2)]
    assert again[0] == again[1] == pytest.approx(first, abs=1e-9)
    with pytest.raises(fs.errors.InvalidInput, match="no time of all/query"):
        seconds(app_of, work, devices, kinds=("query",))


def test_measured_classes_of_nodes_and_what_the_manifest_says(app_of, tmp_path):
    from flwr.app import Message, RecordDict

    def server(grid, context):
        grid.send_and_receive([Message(RecordDict(), node, "train") for node in grid.get_node_ids()])

    def client(message, context):
        sum(range(100_000))
        return RecordDict()

    def run():
        work = fs.flower.measured(tmp_path / "profile.json", node_class=lambda config: str(config["city"]))
        cities = lambda i: {"city": "AB"[i % 2]}  # noqa: E731
        return fs.flower.run(app_of(server, client), nodes=4, work=work, node_config=cities)

    first, second = run(), run()
    means = json.loads((tmp_path / "profile.json").read_text())["seconds"]
    assert set(means) == {"A/train", "B/train"}
    assert first.manifest["flower"]["work"].startswith("compute times measured by this run and written to profile.json")
    assert second.manifest["flower"]["work"] == "compute times read from profile.json"
    computed = second.visits.sort_values("client")["compute"].tolist()
    assert computed == [means["A/train"], means["B/train"]] * 2


def test_a_damaged_profile_is_refused(app_of, tmp_path):
    (tmp_path / "profile.json").write_text("{}")
    with pytest.raises(fs.errors.CorruptData, match=r"is no profile of work=measured\(\); remove it"):
        seconds(app_of, fs.flower.measured(tmp_path / "profile.json"), None)


def test_flops_over_the_devices_speed(app_of):
    torch = pytest.importorskip("torch")
    from flwr.app import RecordDict

    def client(message, context):
        torch.ones(20, 30) @ torch.ones(30, 40)
        return RecordDict()

    devices = fs.devices.from_flops(flops_per_step=1, flops_per_second=1e3)
    found = seconds(app_of, fs.flower.flops(), devices, kinds=("train",), client=client)
    assert found == [2 * 20 * 30 * 40 / 1e3]
    with pytest.raises(fs.errors.InvalidInput, match="from_flops"):
        seconds(app_of, fs.flower.flops(), fs.devices.constant(1.0), client=client)

"""Bytes are those of Flower's object protocol."""

from __future__ import annotations

import numpy as np
import pytest

import fedsim as fs


def sent(app_of, arrays, reply=None, **more):
    """The bits down and up of one visit that gets `arrays`, and what it sends back."""
    from flwr.app import ArrayRecord, Message, RecordDict

    got = []

    def server(grid, context):
        content = RecordDict({"arrays": ArrayRecord(arrays)})
        (answer,) = grid.send_and_receive([Message(content, grid.get_node_ids()[0], "train")])
        got.extend(answer.content["arrays"].to_numpy_ndarrays())

    def client(message, context):
        received = message.content["arrays"].to_numpy_ndarrays()
        return RecordDict({"arrays": ArrayRecord(received if reply is None else reply(received))})

    visit = fs.flower.run(app_of(server, client), nodes=1, **more).visits.iloc[0]
    return visit["down_bits"], visit["bits"], got


def test_fedavgs_message_exceeds_its_raw_arrays_by_flowers_headers(app_of):
    from flwr.app import ArrayRecord, MetricRecord, RecordDict
    from flwr.serverapp.strategy import FedAvg

    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(784, 10)).astype(np.float32), rng.normal(size=10).astype(np.float32)]

    def server(grid, context):
        strategy = FedAvg(fraction_evaluate=0.0)
        strategy.start(grid=grid, initial_arrays=ArrayRecord(arrays), num_rounds=1)

    def client(message, context):
        metrics = MetricRecord({"num-examples": 1})
        return RecordDict({"arrays": message.content["arrays"], "metrics": metrics})

    result = fs.flower.run(app_of(server, client), nodes=2)
    (down,) = set(result.visits["down_bits"])
    assert down / 8 - 31_400 == pytest.approx(1_369, abs=20)  # names, types, shapes, ids and checksums


def test_bits_are_the_distinct_objects_of_the_message(app_of):
    from flwr.app import ArrayRecord, RecordDict

    from fedsim.flower.flwr_names import get_all_nested_objects

    matrix = np.ones((100, 100), np.float32)
    one, *_ = sent(app_of, [matrix])
    twenty, *_ = sent(app_of, [matrix] * 20)
    content = RecordDict({"arrays": ArrayRecord([matrix] * 20)})
    objects = sum(len(part.deflate()) for part in get_all_nested_objects(content).values())
    assert twenty < 1.2 * one
    assert objects < twenty / 8 < objects + 400  # the Message itself


def test_messages_to_all_nodes_are_equally_long(app_of):
    from flwr.app import ArrayRecord, Message, RecordDict

    def server(grid, context):
        content = RecordDict({"arrays": ArrayRecord([np.ones(10)])})
        grid.send_and_receive([Message(content, node, "train") for node in grid.get_node_ids()])

    visits = fs.flower.run(app_of(server, lambda message, context: message.content), nodes=200).visits
    assert visits["down_bits"].nunique() == visits["bits"].nunique() == 1


@pytest.mark.parametrize("codec", [fs.codecs.QSGD(16), fs.codecs.Identity("float32")])
def test_a_codec_shortens_replies_and_what_it_loses_reaches_the_server(app_of, codec):
    start = np.linspace(-1, 1, 1000)

    def reply(arrays):
        return [arrays[0] + 1e-3 * np.sin(np.arange(1000)), np.arange(3)]

    _, plain, exact = sent(app_of, [start, np.arange(3)], reply)
    _, bits, got = sent(app_of, [start, np.arange(3)], reply, codec=codec)
    npy = 8 * (128 + 8 * 1000)  # Flower sends arrays as NumPy's files
    assert abs((plain - bits) - (npy - codec.bits(np.ones(1000), fs.rng.keys(0, 1)))) < 64
    norm = float(np.linalg.norm(exact[0] - start))
    assert 0 < np.abs(got[0] - exact[0]).max() <= norm / 16 + 1e-6
    np.testing.assert_array_equal(got[1], np.arange(3))
    assert got[0].dtype == exact[0].dtype


def test_a_reply_that_is_not_finite_is_refused_by_the_codec(app_of):
    with pytest.raises(fs.errors.NonFinite, match="node 0, round 1"):
        sent(app_of, [np.ones(3)], lambda arrays: [arrays[0] * np.nan], codec=fs.codecs.QSGD(16))

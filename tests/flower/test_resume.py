"""A run that was interrupted continues to the same result, and calls no ClientApp twice."""

from __future__ import annotations

import threading

import pandas as pd
import pytest

import fedsim as fs

CONFIG = {
    "devices": lambda: fs.devices.lognormal(median_step_s=1e-3, sigma=0.5, dropout=0.2, per_example=True),
    "seed": 3,
}


@pytest.mark.parametrize("name", ["numpy_fedavg", "asynchronous"])
@pytest.mark.parametrize("rounds", [1, 3])
def test_an_interrupted_run_continues_to_the_same_result(apps, star, tmp_path, name, rounds, monkeypatch):
    from fedsim.flower.nodes import ClientCaller

    nodes = {"numpy_fedavg": 8, "asynchronous": 6}[name]
    calls, call = [], ClientCaller.__call__
    monkeypatch.setattr(ClientCaller, "__call__", lambda self, one: calls.append(one.number) or call(self, one))

    def run(**more):
        return fs.flower.run(
            apps / name, network=star(nodes), devices=CONFIG["devices"](), seed=CONFIG["seed"], **more
        )  # fmt: skip

    alone = run()
    expected, stop = sorted(calls), threading.Event()
    calls.clear()

    app = fs.flower.App(apps / name, network=star(nodes), devices=CONFIG["devices"](), seed=CONFIG["seed"])
    with pytest.raises(fs.errors.Interrupted, match="fedsim resume"):
        fs.run(
            app, out=tmp_path / "run", checkpoint_every=1, stop=stop,
            observers=[lambda progress: stop.set() if progress.round >= rounds else None],
        )  # fmt: skip
    assert calls
    before = len(calls)
    resumed = run(out=tmp_path / "run", resume=True)
    assert len(calls) > before
    assert sorted(calls) == expected
    assert resumed.fingerprint == alone.fingerprint
    assert resumed.manifest["flower"]["digest"] == alone.manifest["flower"]["digest"]
    pd.testing.assert_frame_equal(resumed.visits, alone.visits)


def test_a_server_that_sends_other_messages_is_refused(app_of, tmp_path):
    from flwr.app import ConfigRecord, Message, RecordDict

    stop, values = threading.Event(), iter(range(100))

    def server(grid, context):
        for _ in range(3):
            content = RecordDict({"config": ConfigRecord({"x": next(values)})})
            grid.send_and_receive([Message(content, node, "query") for node in grid.get_node_ids()])
            stop.set()

    app = app_of(server, lambda message, context: RecordDict())
    with pytest.raises(fs.errors.Interrupted):
        fs.flower.run(app, nodes=2, out=tmp_path / "run", checkpoint_every=1, stop=stop)
    stop.clear()
    with pytest.raises(fs.errors.InvalidInput, match=r"sent another message \d than before"):
        fs.flower.run(app, nodes=2, out=tmp_path / "run", resume=True)

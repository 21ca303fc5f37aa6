"""`fedsim flower`, and Flower apps in scenario files."""

from __future__ import annotations

import networkx as nx
import pytest

import fedsim as fs
from fedsim.analysis import compare
from fedsim.cli.app import call


@pytest.fixture
def files(tmp_path, apps):
    """A network, devices and a scenario file."""
    graph = nx.Graph()
    graph.add_node("core", role="server")
    for client in range(4):
        graph.add_node(f"n{client}", client=client)
        graph.add_edge("core", f"n{client}", bandwidth_bps=1e6 * (1 + client), latency_s=0.01)
    nx.write_graphml(graph, tmp_path / "net.graphml")
    (tmp_path / "devices.csv").write_text("seconds_per_example\n" + "0.01\n" * 4)
    (tmp_path / "study.py").write_text(
        "import fedsim as fs\n\n\ndef scenario(*, rounds: int = 1, uplink_bps: float = 1e6, seed: int = 0):\n"
        f"    return fs.flower.App({str(apps / 'numpy_fedavg')!r}, set={{'num-server-rounds': rounds}}, seed=seed,\n"
        "        network=fs.topologies.star(clients=8, uplink_bps=uplink_bps, downlink_bps=1e7))\n"
    )
    return tmp_path


def test_the_command_runs_an_app_on_a_network_and_devices_from_files(files, apps, capsys):
    command = [
        "flower", str(apps / "numpy_fedavg"), "--network", str(files / "net.graphml"), "--devices",
        str(files / "devices.csv"), "--set", "num-server-rounds=2", "--seed", "5", "--out", str(files / "run"),
    ]  # fmt: skip
    assert call(command) == 0
    printed = capsys.readouterr().out
    assert "Flower app" in printed
    assert "rounds                     4" in printed
    result = fs.load(files / "run")
    assert result.manifest["flower"]["nodes"] == 4
    assert result.rounds["closed_s"].iloc[0] > 0.8


def test_the_command_refuses_in_one_sentence(files, apps, capsys):
    for arguments, text in (
        (["--set", "rounds=2"], "has no setting rounds"), (["--devices", "none.csv"], "no such file"),
        (["--checkpoint-every", "3"], "needs --out"), (["--nodes", "0"], "nodes=0"),
    ):  # fmt: skip
        assert call(["flower", str(apps / "numpy_fedavg"), *arguments]) == 2
        assert text in capsys.readouterr().err


def test_a_scenario_file_may_return_an_app(files, capsys):
    assert call(["run", str(files / "study.py"), "--set", "rounds=2", "--out", str(files / "run")]) == 0
    assert len(fs.load(files / "run").rounds) == 4
    pytest.importorskip("plotly")
    assert call(["report", str(files / "run")]) == 0
    assert (files / "run" / "report.html").stat().st_size > 10_000


def test_apps_can_be_swept_tuned_compared_and_reported(files):
    study = fs.sweep(
        files / "study.py", grid={"uplink_bps": [1e5, 1e6], "seed": [0, 1]}, settings={"rounds": 2},
        out=files / "sweep", jobs=1,
    )  # fmt: skip
    closed = {(run["uplink_bps"], run["seed"]): result.rounds["closed_s"].iloc[-1] for run, result in study.runs}
    assert closed[1e5, 0] > 3 * closed[1e6, 0]
    slow, fast = ([result for run, result in study.runs if run["uplink_bps"] == bps] for bps in (1e5, 1e6))
    answer, _ = compare(slow, fast, "loss")
    assert answer["difference"].tolist() == [0.0, 0.0]  # the same learning

    found = fs.tune(
        files / "study.py", {"uplink_bps": [1e5, 1e6]}, "loss <= 1e9", seeds=2, jobs=1, settings={"rounds": 2}
    )  # fmt: skip
    assert found.best == {"uplink_bps": 1e6}

    pytest.importorskip("plotly")
    study.runs[0][1].report(files / "page.html")
    assert (files / "page.html").stat().st_size > 10_000


def test_the_resume_command_continues_an_app(files, apps, capsys):
    import threading

    from fedsim.cli.flower import Arguments

    arguments = Arguments(str(apps / "numpy_fedavg"), None, files / "net.graphml", files / "devices.csv", (), 2)
    alone, stop = fs.run(arguments.app()), threading.Event()
    with pytest.raises(fs.errors.Interrupted):
        fs.run(
            arguments.app(), out=files / "run", checkpoint_every=1, stop=stop, source=arguments.source(),
            observers=[lambda progress: stop.set()],
        )  # fmt: skip
    assert call(["resume", str(files / "run")]) == 0
    assert "next: fedsim report" in capsys.readouterr().out
    assert fs.load(files / "run").fingerprint == alone.fingerprint

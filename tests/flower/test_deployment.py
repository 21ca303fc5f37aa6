"""Bytes are those that Flower's own meter counts in a deployment: a SuperLink and two SuperNodes on this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import fedsim as fs

HAS_METER = find_spec("flwr") is not None and find_spec("flwr.supercore.task_identity") is not None
PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "metered"
version = "1.0.0"
description = "FedAvg of one array."
license = "Apache-2.0"
dependencies = ["flwr>=1.22"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fedsim"

[tool.flwr.app.components]
serverapp = "metered.both:server"
clientapp = "metered.both:client"

[tool.flwr.app.config]
size = 60000
"""
BOTH = """
import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid, context):
    start = ArrayRecord([np.random.default_rng(0).normal(size=int(context.run_config["size"])).astype(np.float32)])
    FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=start, num_rounds=2)


@client.train()
def train(message, context):
    (array,) = message.content["arrays"].to_numpy_ndarrays()
    array = array + np.float32(1 + int(context.node_config["partition-id"]))
    metrics = MetricRecord({"num-examples": 10})
    return Message(RecordDict({"arrays": ArrayRecord([array]), "metrics": metrics}), reply_to=message)
"""
DEADLINE_S = 150.0


@pytest.fixture
def app(tmp_path):
    folder = tmp_path / "app"
    (folder / "metered").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "metered" / "__init__.py").write_text("")
    (folder / "metered" / "both.py").write_text(BOTH)
    return folder


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def deployment(tmp_path):
    """Start a SuperLink and two SuperNodes; return a function that runs the command `flwr` beside them."""
    home, port, started = tmp_path / "home", free_port(), []
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    programs = Path(sys.executable).parent
    environment = os.environ | {
        "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "PATH": f"{programs}:{os.environ['PATH']}",
    }  # fmt: skip

    def start(program, *arguments):
        command = [programs / program, "--insecure", *arguments]
        with (tmp_path / f"{len(started)}.log").open("w") as log:
            settings = {"env": environment, "stdout": log, "stderr": log, "cwd": home, "start_new_session": True}
            started.append(subprocess.Popen(command, **settings))

    def flwr(*arguments):
        command = [programs / "flwr", *arguments, "--format", "json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, cwd=home)
        return json.loads(done.stdout)

    start("flower-superlink", "--disable-runtime-dependency-installation", "--port", str(port))
    for i in range(2):
        start(
            "flower-supernode", "--superlink", f"127.0.0.1:{port}", "--port", str(free_port()),
            "--node-config", f"partition-id={i} num-partitions=2",
        )  # fmt: skip
    yield flwr
    for process in reversed(started):
        os.killpg(process.pid, 15)
    for process in started:
        process.wait(30)


@pytest.mark.slow
@pytest.mark.skipif(not HAS_METER, reason="this version of flwr has no meter")
def test_bytes_are_those_of_flowers_meter_to_one_percent(app, deployment):
    until_s = time.monotonic() + DEADLINE_S
    while "run-id" not in (found := deployment("run", str(app))):
        assert time.monotonic() < until_s, found
        time.sleep(1)  # until the SuperLink answers
    while (run := deployment("list", "--run-id", str(found["run-id"]))["runs"][0])["status"] != "finished:completed":
        assert time.monotonic() < until_s, run
        time.sleep(2)
    visits = fs.flower.run(app, nodes=2).visits
    assert (visits["down_bits"] > 8 * 200_000).all()
    metered = run["network-traffic"]["outbound-bytes"], run["network-traffic"]["inbound-bytes"]
    ours = visits["down_bits"].sum() / 8, visits["bits"].sum() / 8
    print("metered and ours, down and up:", metered, ours)
    assert metered == pytest.approx(ours, rel=0.01)

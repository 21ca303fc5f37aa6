"""A run leaves the process as it was, whatever happened in it."""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from time import sleep

import numpy as np
import pytest

import fedsim as fs

STRATEGY = "flwr.serverapp.strategy.strategy_utils"


@pytest.fixture(autouse=True)
def torch():
    """Where torch is installed its generator is checked, too."""
    if find_spec("torch") is not None:
        import_module("torch")


def state():
    own = sys.modules[__name__]
    names = [getattr(time, name) for name in ("time", "monotonic", "perf_counter", "time_ns", "sleep")]
    torch = sys.modules.get("torch")
    return (
        random.getstate(), str(np.random.get_state()), None if torch is None else torch.get_rng_state().tolist(),
        torch and torch.get_num_threads(), names, own.sleep, dict(os.environ), list(sys.path), os.getcwd(),
        logging.getLogger("flwr").level, getattr(sys.modules.get(STRATEGY), "sleep", None),
    )  # fmt: skip


@pytest.mark.parametrize("ends", ["well", "server", "client", "system exit", "interrupt", "interrupt in a client"])
def test_generators_time_environment_and_modules_are_as_before(app_of, ends):
    from flwr.app import Message, RecordDict

    import_module(STRATEGY)

    def server(grid, context):
        random.seed(0)
        np.random.seed(0)
        os.environ["LEFT_BEHIND"] = "1"
        os.environ.pop("HOME", None)
        sys.path.append("/nowhere")
        assert sleep is not real_sleep
        sleep(1)
        grid.send_and_receive([Message(RecordDict(), node, "train") for node in grid.get_node_ids()])
        if ends == "server":
            raise RuntimeError("on purpose")
        if ends == "system exit":
            raise SystemExit(3)
        if ends == "interrupt":
            raise KeyboardInterrupt

    def client(message, context):
        random.seed(1)
        np.random.normal()
        if "torch" in sys.modules:
            sys.modules["torch"].rand(3)
        os.environ["LEFT_BEHIND"] = "2"
        if ends == "client":
            raise RuntimeError("on purpose")
        if ends == "interrupt in a client":
            raise KeyboardInterrupt
        return RecordDict()

    real_sleep, before = sleep, state()
    if ends == "well":
        fs.flower.run(app_of(server, client), nodes=2)
    else:
        with pytest.raises(KeyboardInterrupt if ends.startswith("interrupt") else fs.errors.FedsimError):
            fs.flower.run(app_of(server, client), nodes=2, strict=True)
    assert state() == before


def test_modules_that_a_run_imports_have_the_real_functions_afterwards(apps):
    for name in [name for name in sys.modules if name.startswith("flwr.serverapp.strategy")]:
        del sys.modules[name]
    fs.flower.run(apps / "numpy_fedavg")
    assert sys.modules[STRATEGY].sleep is time.sleep


def test_an_app_draws_by_the_seed_and_not_by_what_was_drawn_before(app_of):
    from flwr.app import Message, MetricRecord, RecordDict

    def drawn():
        seen = []

        def server(grid, context):
            seen.append((random.random(), np.random.random()))
            for _ in range(2):
                replies = grid.send_and_receive([Message(RecordDict(), n, "query") for n in grid.get_node_ids()])
                seen.extend(reply.content["drawn"]["x"] for reply in replies)
            seen.append((random.random(), np.random.random()))

        def client(message, context):
            return RecordDict({"drawn": MetricRecord({"x": [random.random(), float(np.random.random())]})})

        fs.flower.run(app_of(server, client), nodes=3, seed=4)
        return seen

    first = drawn()
    random.seed(99)
    np.random.seed(99)
    assert drawn() == first
    assert len({str(value) for value in first}) == len(first)


def app(folder, package, text):
    (folder / package).mkdir(parents=True)
    (folder / package / "__init__.py").write_text("")
    (folder / package / "both.py").write_text(text)
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "{package}"\nversion = "1"\n[tool.flwr.app]\npublisher = "x"\n'
        f'[tool.flwr.app.components]\nserverapp = "{package}.both:server"\nclientapp = "{package}.both:client"\n'
        '[tool.flwr.app.config]\nrounds = 1\nlearning.rate = 0.5\n'
    )  # fmt: skip
    return folder


TEXT = """
from pathlib import Path
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server, client = ServerApp(), ClientApp()

@server.main()
def main(grid, context):
    Path("written.txt").write_text(str(context.run_config["learning.rate"]))
    grid.send_and_receive([Message(RecordDict(), node, "query") for node in grid.get_node_ids()])

@client.query()
def query(message, context):
    return Message(RecordDict({"m": MetricRecord({"x": VALUE})}), reply_to=message)
"""


def test_two_apps_with_one_package_name_do_not_mix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = app(tmp_path / "one", "same", TEXT.replace("VALUE", "1.0"))
    two = app(tmp_path / "two", "same", TEXT.replace("VALUE", "2.0"))
    found = [fs.flower.run(path, nodes=2).rounds["x"].iloc[0] for path in (one, two, one)]
    assert found == [1.0, 2.0, 1.0]
    assert "same" not in sys.modules
    assert (tmp_path / "written.txt").read_text() == "0.5"


def test_files_that_an_app_writes_are_in_the_working_folder_and_settings_have_dotted_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fs.flower.run(app(tmp_path / "one", "same", TEXT.replace("VALUE", "1.0")), nodes=1, set={"learning.rate": 0.25})
    assert (tmp_path / "written.txt").read_text() == "0.25"

"""Apps that the tests run; without flwr they are skipped."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

import fedsim as fs

APPS = Path(__file__).parent / "apps"


def pytest_collection_modifyitems(items):
    if find_spec("flwr") is None:
        for item in items:
            if item.path.parent == Path(__file__).parent and item.path.name != "test_installed.py":
                item.add_marker(pytest.mark.skip(reason="flwr is not installed: pip install 'fedsim-systems[flower]'"))


@pytest.fixture
def apps():
    return APPS


@pytest.fixture
def star():
    """A star of n nodes, all alike."""
    return lambda n, **more: fs.topologies.star(
        **{"clients": n, "uplink_bps": 1e6, "downlink_bps": 1e7, "latency_s": 0.02, **more}
    )


@pytest.fixture
def app_of():
    """A pair of apps from two functions: of the server, and of the client (message, context) -> content."""

    def make(server, client, kinds=("train", "evaluate", "query")):
        from flwr.app import Message
        from flwr.clientapp import ClientApp
        from flwr.serverapp import ServerApp

        server_app, client_app = ServerApp(), ClientApp()
        server_app.main()(server)

        def answer(message, context):
            return Message(client(message, context), reply_to=message)

        for kind in kinds:
            getattr(client_app, kind)()(answer)
        return server_app, client_app

    return make

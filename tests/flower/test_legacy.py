"""Apps in Flower's earlier form: a `server_fn`, a workflow with a legacy strategy."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import fedsim as fs

STEP = {"seconds_per_step": [1.0, 2.0, 5.0]}
pytestmark = pytest.mark.filterwarnings("ignore::fedsim.errors.ResultWarning")


@pytest.fixture
def client_app():
    from flwr.client import NumPyClient
    from flwr.clientapp import ClientApp

    class Client(NumPyClient):
        def get_parameters(self, config):
            return [np.full(4, 7.0)]

        def fit(self, parameters, config):
            return [parameters[0] + 1], 10, {"seen": 1.0}

        def evaluate(self, parameters, config):
            return float(parameters[0].sum()), 10, {}

    return ClientApp(client_fn=lambda context: Client().to_client())


def strategy(finals=None, start=None, **more):
    """FedAvg that notes the model after each round, without initial parameters unless there is a start."""
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server.strategy import FedAvg

    class Noting(FedAvg):
        def aggregate_fit(self, server_round, results, failures):
            found = super().aggregate_fit(server_round, results, failures)
            if finals is not None and found[0] is not None:
                finals.append(parameters_to_ndarrays(found[0])[0].tolist())
            return found

    return Noting(initial_parameters=None if start is None else ndarrays_to_parameters([start]), **more)


def server_fn_app(made, **config):
    from flwr.server import ServerAppComponents, ServerConfig
    from flwr.serverapp import ServerApp

    def server_fn(context):
        return ServerAppComponents(config=ServerConfig(num_rounds=2, **config), strategy=made)

    return ServerApp(server_fn=server_fn)


def workflow_app(made):
    from flwr.server import LegacyContext, ServerConfig
    from flwr.server.workflow import DefaultWorkflow
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid, context):
        DefaultWorkflow()(grid, LegacyContext(context=context, config=ServerConfig(num_rounds=2), strategy=made))

    return app


def parts_app(made):
    from flwr.server import ServerConfig
    from flwr.serverapp import ServerApp

    return ServerApp(config=ServerConfig(num_rounds=2), strategy=made)


def test_workflows_server_fn_and_apps_of_parts_run_and_are_equal(client_app):
    results = [
        fs.flower.run((form(strategy(start=np.zeros(4))), client_app), nodes=3, devices=fs.devices.constant(**STEP))
        for form in (workflow_app, server_fn_app, parts_app)
    ]
    for result in results:
        assert result.rounds["arrived"].tolist() == [6, 6]
        assert result.rounds["closed_s"].tolist() == [100.0, 200.0]
    assert len({result.manifest["flower"]["digest"] for result in results}) == 1


def test_without_initial_parameters_a_client_is_asked_for_them(client_app):
    finals = []
    result = fs.flower.run((server_fn_app(strategy(finals)), client_app), nodes=3)
    assert finals == [[8.0] * 4, [9.0] * 4]
    assert result.rounds["message_type"].tolist() == ["get_parameters", "train, evaluate", "train, evaluate"]


def test_a_round_timeout_expires_messages(client_app):
    app = server_fn_app(strategy(start=np.zeros(4), fraction_evaluate=0.0), round_timeout=30.0)
    rounds = fs.flower.run((app, client_app), nodes=3, devices=fs.devices.constant(**STEP)).rounds
    assert rounds["closed_s"].tolist() == [30.0, 60.0]
    assert rounds["arrived"].tolist() == [2, 2]


def test_a_client_manager_waits_in_virtual_time_until_enough_nodes_are_online(client_app):
    online = fs.devices.intervals(starts=[0.0, 0.0, 3_000.0], ends=[1e6, 1e6, 1e6], offsets=[0, 1, 2, 3])
    made = strategy(start=np.zeros(4), fraction_evaluate=0.0, min_fit_clients=3, min_available_clients=3)
    devices = fs.devices.constant(1.0, availability=online)
    rounds = fs.flower.run((server_fn_app(made), client_app), nodes=3, devices=devices).rounds
    assert rounds["opened_s"].tolist() == [3_000.0, 3_010.0]
    assert rounds["selected"].tolist() == [3, 3]


def test_a_server_of_the_apps_own_is_refused(client_app):
    from flwr.server import Server, ServerAppComponents, SimpleClientManager
    from flwr.serverapp import ServerApp

    class Own(Server):
        pass

    def app(kind):
        server = kind(client_manager=SimpleClientManager(), strategy=strategy(start=np.zeros(4)))
        return ServerApp(server_fn=lambda context: ServerAppComponents(server=server))

    with pytest.raises(fs.errors.InvalidInput, match=r"brings its own Server, Own.*give a strategy instead"):
        fs.flower.run((app(Own), client_app), nodes=2)
    assert fs.flower.run((app(Server), client_app), nodes=2).rounds["arrived"].tolist() == [4]


def test_flowers_functions_are_as_before_and_no_thread_is_left(client_app):
    from flwr.server.workflow import default_workflows
    from flwr.serverapp import ServerApp

    def state():
        start_grid = sys.modules[ServerApp.__module__].start_grid
        return start_grid, default_workflows.start_update_client_manager_thread, threading.active_count()

    before = state()
    fs.flower.run((server_fn_app(strategy(start=np.zeros(4))), client_app), nodes=2)
    assert state() == before

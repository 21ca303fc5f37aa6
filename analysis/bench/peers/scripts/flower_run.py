"""Flower: its simulation runtime on Ray with NumPy clients, one core a client, its own FedAvg."""

from __future__ import annotations

import os
import time

os.environ.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0")

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from workloads import Record, load, local_sgd


def main() -> None:
    record = Record()
    w, data, replies, final = record.workload, record.given.data.absolute(), [], []
    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message, context):
        number = int(context.node_config["partition-id"])
        x, y = load(data, w, mapped=True)
        seed = [number, int(message.content["config"]["server-round"])]
        start, rows = message.content["arrays"].to_numpy_ndarrays(), w.rows(number)
        new = local_sgd(w, start, x[rows], y[rows], np.random.default_rng(seed))
        content = {"arrays": ArrayRecord(new), "metrics": MetricRecord({"num-examples": w.samples})}
        return Message(RecordDict(content), reply_to=message)

    class Timed(FedAvg):
        def configure_train(self, *arguments, **named):
            record.begin()
            return super().configure_train(*arguments, **named)

        def aggregate_train(self, server_round, messages):
            messages = list(messages)
            replies.append(sum(not m.has_error() for m in messages))
            out = super().aggregate_train(server_round, messages)
            record.end()
            return out

    @server.main()
    def serve(grid, context):
        while len(list(grid.get_node_ids())) < w.clients:  # else round 1 would have a fraction of those registered
            time.sleep(0.01)
        strategy = Timed(fraction_train=w.cohort / w.clients, fraction_evaluate=0.0, min_available_nodes=w.clients)
        result = strategy.start(grid=grid, initial_arrays=ArrayRecord(w.start()), num_rounds=w.rounds)
        final.extend(result.arrays.to_numpy_ndarrays())

    resources = {"client_resources": {"num_cpus": 1.0, "num_gpus": 0.0}}
    run_simulation(server_app=server, client_app=client, num_supernodes=w.clients, backend_config=resources)
    record.write(final, sum(replies))


if __name__ == "__main__":
    main()

"""How long a round of a Flower app takes: fedsim on the virtual clock beside Flower's own simulation engine.

    python -m analysis.bench.flower_apps [ROUNDS] [--engine]

FedAvg asks 100 nodes a round for a model of 8,192 float32 (32 kB). The ClientApp returns what it receives, so nearly
all time is overhead. With `--engine` Flower's engine runs the same app with 1,000 nodes (it takes minutes with 10,000).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import fedsim as fs

SIZE, ASKED = 8192, 100


def apps(nodes: int, rounds: int, took: list[float]) -> tuple[Any, Any]:
    """Return the ServerApp, which notes the real seconds a round takes, and the ClientApp."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg

    from fedsim.flower.virtual_time import REAL

    server, client = ServerApp(), ClientApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_train=ASKED / nodes, fraction_evaluate=0.0)
        start = ArrayRecord([np.ones(SIZE, np.float32)])
        began = REAL["perf_counter"]()
        strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds)
        took.append((REAL["perf_counter"]() - began) / rounds)

    @client.train()
    def train(message: Message, context: Context) -> Message:
        content = RecordDict({"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 10})})
        return Message(content, reply_to=message)

    return server, client


def main(rounds: int, engine: bool) -> None:
    """Print the seconds of a round and the milliseconds of a visit."""
    took: list[float] = []
    for nodes in (100, 1_000, 10_000):
        network = fs.topologies.star(clients=nodes, uplink_bps=1e6, downlink_bps=1e7, latency_s=0.02)
        devices = fs.devices.constant(1e-3)
        fs.flower.run(apps(nodes, rounds, took), nodes=nodes, network=network, devices=devices)
        print(f"fedsim, {nodes:6,} nodes: {took[-1]:.3f} s a round, {1e3 * took[-1] / ASKED:.2f} ms a visit")
    if engine:
        from flwr.simulation import run_simulation

        run_simulation(*apps(1_000, rounds, took), num_supernodes=1_000)
        print(f"Flower's engine, 1,000 nodes: {took[-1]:.3f} s a round, {1e3 * took[-1] / ASKED:.2f} ms a visit")


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != "--engine"]
    main(int(given[0]) if given else 5, "--engine" in sys.argv)

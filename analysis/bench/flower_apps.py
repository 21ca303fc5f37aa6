"""How long a round of a Flower app takes: fedsim on the virtual clock beside Flower's own simulation engine.

    python -m analysis.bench.flower_apps [ROUNDS] [--engine]

Real times depend on what else the machine does; the processor's times do not.

FedAvg asks 100 nodes a round for a model of 8,192 float32 (32 kB). The ClientApp returns what it receives, so nearly
all time is overhead. With `--engine` Flower's engine runs the same app with 1,000 nodes (it takes minutes with 10,000).
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import fedsim as fs

SIZE, ASKED = 8192, 100


def apps(nodes: int, rounds: int, took: list[tuple[float, float]]) -> tuple[Any, Any]:
    """Return the ServerApp, which notes the seconds a round takes, real and of its processor, and the ClientApp."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg

    from fedsim.flower.virtual_time import REAL

    server, client = ServerApp(), ClientApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_train=min(ASKED / nodes, 1.0), fraction_evaluate=0.0)
        start = ArrayRecord([np.ones(SIZE, np.float32)])
        while len(list(grid.get_node_ids())) < nodes:  # Flower's engine connects them one by one
            time.sleep(0.1)
        began, worked = REAL["perf_counter"](), time.process_time()
        strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds)
        took.append(((REAL["perf_counter"]() - began) / rounds, (time.process_time() - worked) / rounds))

    @client.train()
    def train(message: Message, context: Context) -> Message:
        content = RecordDict({"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 10})})
        return Message(content, reply_to=message)

    return server, client


def main(rounds: int, engine: bool) -> None:
    """Print the seconds of a round and the milliseconds of a visit."""
    took: list[tuple[float, float]] = []
    for nodes in (10, 100, 1_000, 10_000):
        network = fs.topologies.star(clients=nodes, uplink_bps=1e6, downlink_bps=1e7, latency_s=0.02)
        devices = fs.devices.constant(1e-3)
        fs.flower.run(apps(nodes, rounds, took), nodes=nodes, network=network, devices=devices)
        real_s, worked_s = took[-1]
        if nodes >= ASKED:  # the first run loads what is loaded once
            print(
                f"fedsim, {nodes:6,} nodes: {real_s:.3f} s a round, {1e3 * real_s / ASKED:.2f} ms a visit; "
                f"of the processor {worked_s:.3f} s and {1e3 * worked_s / ASKED:.2f} ms"
            )
    if engine:
        from flwr.simulation import run_simulation

        run_simulation(*apps(1_000, rounds, took), num_supernodes=1_000)
        real_s, _ = took[-1]  # its ClientApps run in other processes
        print(f"Flower's engine, 1,000 nodes: {real_s:.3f} s a round, {1e3 * real_s / ASKED:.2f} ms a visit")


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != "--engine"]
    main(int(given[0]) if given else 5, "--engine" in sys.argv)

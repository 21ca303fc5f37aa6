"""Aggregate by a trimmed mean, and draw the learning rate of each round."""

import random
from collections.abc import Iterable

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


class TrimmedMean(FedAvg):
    """FedAvg that leaves out the smallest and the largest reply of every coordinate."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        config["rate"] = random.random()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        models = [r.content["arrays"].to_numpy_ndarrays()[0] for r in replies if r.has_content()]
        if len(models) < 3:
            return None, None
        return ArrayRecord([np.sort(np.stack(models), axis=0)[1:-1].mean(axis=0)]), None


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = TrimmedMean(fraction_evaluate=0.0)
    start = ArrayRecord([np.zeros(50)])
    strategy.start(grid=grid, initial_arrays=start, num_rounds=int(context.run_config["num-server-rounds"]))

"""FedAvg with sampling and central evaluation."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = FedAvg(
        fraction_train=float(config["fraction-train"]), fraction_evaluate=float(config["fraction-evaluate"])
    )
    start = ArrayRecord([np.zeros(int(config["features"]), np.float32)])
    strategy.start(grid=grid, initial_arrays=start, num_rounds=int(config["num-server-rounds"]))

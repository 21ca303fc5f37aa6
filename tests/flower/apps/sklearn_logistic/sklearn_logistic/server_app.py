"""FedAvg of coefficients and intercepts."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    start = ArrayRecord([np.zeros((1, 6)), np.zeros(1)])
    FedAvg(fraction_train=0.8).start(
        grid=grid, initial_arrays=start, num_rounds=int(context.run_config["num-server-rounds"])
    )

"""A node's model is its own mean plus noise; node 2 always fails."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    partition = int(context.node_config["partition-id"])
    if partition == 2:
        raise RuntimeError("the disk is full")
    (theta,) = message.content["arrays"].to_numpy_ndarrays()
    theta = theta + 0.5 * (partition - theta) + 0.01 * np.random.normal(size=theta.shape)
    metrics = MetricRecord({"num-examples": 10 + partition, "distance": float(abs(theta - partition).max())})
    return Message(RecordDict({"arrays": ArrayRecord([theta]), "metrics": metrics}), reply_to=message)

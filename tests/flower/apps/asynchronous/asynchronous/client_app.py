"""A noisy step towards the node's own optimum."""

import time

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    partition = int(context.node_config["partition-id"])
    (theta,) = message.content["arrays"].to_numpy_ndarrays()
    time.sleep(0.25)  # waits for a sensor
    theta = theta + 0.5 * (partition - theta) + 0.01 * np.random.normal(size=theta.shape)
    metrics = MetricRecord({"num-examples": 20 * (1 + partition)})
    return Message(RecordDict({"arrays": ArrayRecord([theta]), "metrics": metrics}), reply_to=message)

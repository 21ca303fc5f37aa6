"""Train and evaluate; the node's state counts its visits."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from numpy_fedavg.task import load, train

app = ClientApp()


@app.train()
def train_model(message: Message, context: Context) -> Message:
    x, y = load(int(context.node_config["partition-id"]), int(context.run_config["features"]))
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    config = context.run_config
    weights = train(weights, x, y, int(config["local-epochs"]), float(config["learning-rate"]))
    visits = context.state["visits"]["count"] + 1 if "visits" in context.state else 1
    context.state["visits"] = MetricRecord({"count": visits})
    loss = float(np.mean((x @ weights - y) ** 2))
    metrics = MetricRecord({"num-examples": len(x), "train_loss": loss, "visits": visits})
    return Message(RecordDict({"arrays": ArrayRecord([weights]), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate_model(message: Message, context: Context) -> Message:
    x, y = load(int(context.node_config["partition-id"]), int(context.run_config["features"]))
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    loss = float(np.mean((x @ weights - y) ** 2))
    metrics = MetricRecord(
        {"num-examples": len(x), "loss": loss, "residuals": [float(v) for v in x[:3] @ weights - y[:3]]}
    )
    return Message(RecordDict({"metrics": metrics}), reply_to=message)

"""Count a node's values."""

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def count(message: Message, context: Context) -> Message:
    values = np.random.default_rng(int(context.node_config["partition-id"])).normal(size=100)
    counts, _ = np.histogram(values, bins=int(message.content["query"]["bins"]), range=(-3, 3))
    metrics = MetricRecord(
        {"num-examples": len(values), "counts": [int(c) for c in counts], "mean": float(values.mean())}
    )
    return Message(RecordDict({"histogram": metrics}), reply_to=message)

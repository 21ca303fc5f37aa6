"""Train and evaluate a network."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from torch_net.task import Net, load, train

app = ClientApp()


@app.train()
def train_model(message: Message, context: Context) -> Message:
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = load(int(context.node_config["partition-id"]))
    loss = train(net, x, y, int(context.run_config["local-epochs"]), float(message.content["config"]["lr"]))
    metrics = MetricRecord({"num-examples": len(x), "train_loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate_model(message: Message, context: Context) -> Message:
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    net.eval()
    x, y = load(int(context.node_config["partition-id"]))
    with torch.no_grad():
        accuracy = float((net(x).argmax(dim=1) == y).float().mean())
    metrics = MetricRecord({"num-examples": len(x), "accuracy": accuracy})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)

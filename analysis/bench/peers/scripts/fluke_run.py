"""fluke: its CentralizedFL with its own client and server, in memory, one torch thread."""

from __future__ import annotations

# ruff: noqa: E402 (the operator comes before what asks for it)
import numpy as np
import torch

# torchvision from the index is built for CUDA, and asks a torch without it for operators that nobody here uses.
for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from fluke import FlukeENV
from fluke.algorithms import CentralizedFL
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.server import Server
from fluke.utils import FederationObserver
from torch_model import Model
from workloads import Record, batches


class Steps(FastDataLoader):
    """An epoch that is the workload's number of local steps: fluke counts epochs alone."""

    def __init__(self, w, rng, x, y):
        super().__init__(x, y, num_labels=w.classes, batch_size=w.batch, shuffle=False)
        self.w, self.rng = w, rng

    def __iter__(self):
        x, y = self.tensors
        for chosen in map(torch.from_numpy, batches(self.rng, self.w)):
            yield x[chosen], y[chosen]

    def __len__(self):
        return self.w.steps


class Rounds(FederationObserver):
    def __init__(self, record):
        self.record = record

    def start_round(self, round, global_model):
        self.record.begin()

    def end_round(self, round):
        self.record.end()


def main() -> None:
    record = Record()
    torch.set_num_threads(1)
    FlukeENV().set_seed(1)
    FlukeENV().set_inmemory(True)
    FlukeENV().set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    w, (x, y) = record.workload, record.load()
    rows, labels, rng, fits = torch.from_numpy(x), torch.from_numpy(y), np.random.default_rng(1), []

    class Counted(Client):
        def fit(self, override_local_epochs=0):
            fits.append(1)
            return super().fit(override_local_epochs)

    loss = torch.nn.CrossEntropyLoss() if w.kind == "softmax" else torch.nn.MSELoss()
    descent = OptimizerConfigurator({"name": "SGD", "lr": w.lr})
    clients = [
        Counted(
            index=i, train_set=Steps(w, rng, rows[w.rows(i)], labels[w.rows(i)]), test_set=None,
            optimizer_cfg=descent, loss_fn=loss, local_epochs=1,
        )
        for i in range(w.clients)
    ]  # fmt: skip
    net = Model(w)
    server = Server(model=net, test_set=None, clients=clients)
    federation = CentralizedFL(
        n_clients=w.clients, data_splitter=None, hyper_params=None, clients=clients, server=server
    )
    federation.set_callbacks([Rounds(record)])
    federation.run(w.rounds, w.cohort / w.clients)
    record.write(net.parameters_as_arrays(), len(fits))


if __name__ == "__main__":
    main()

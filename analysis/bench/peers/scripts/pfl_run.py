"""pfl-research: its PyTorch model and FederatedAveraging on the simulated backend, one torch thread."""

from __future__ import annotations

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch_model import Model
from workloads import Record, batches


class Rounds(TrainingProcessCallback):
    def __init__(self, record):
        self.record = record

    def on_train_begin(self, *, model):
        self.record.begin()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.record.end()
        return False, Metrics()


def main() -> None:
    record = Record()
    torch.set_num_threads(1)
    np.random.seed(1)  # its sampler uses the global generator
    w, (x, y) = record.workload, record.load()
    rows, labels, rng, made = torch.from_numpy(x), torch.from_numpy(y), np.random.default_rng(1), []

    def dataset(client):
        made.append(client)
        # Its step count ends each pass over the data, so it is handed the round's batches as one pass; and as tensors,
        # because it makes floats of integer arrays.
        order = torch.from_numpy(np.concatenate(list(batches(rng, w))) + client * w.samples)
        return Dataset([rows[order], labels[order]], user_id=str(client))

    sampling = "minimize_reuse" if w.cohort == w.clients else "random"
    users = FederatedDataset(dataset, get_user_sampler(sampling, list(range(w.clients))))
    net = Model(w)
    model = PyTorchModel(
        net, local_optimizer_create=torch.optim.SGD, central_optimizer=torch.optim.SGD(net.parameters(), 1.0)
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=w.rounds, evaluation_frequency=10**9, train_cohort_size=w.cohort, val_cohort_size=0
        ),
        SimulatedBackend(users, users),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=w.lr, local_batch_size=w.batch),
        callbacks=[Rounds(record)],
        send_metrics_to_platform=False,
    )
    record.write(net.parameters_as_arrays(), len(made))


if __name__ == "__main__":
    main()

"""A PyTorch network on phones: LeNet-5 by FedAvg on clients with unequal classes, against the bits it needs.

The rows of MNIST are partitioned by a Dirichlet draw, so that a client has mostly a few classes; ten of a hundred
clients work at a time. The data set is read from the folder that FEDSIM_DATA names. `--set data=digits --set
clients=30` uses 8 x 8 digits, which need no file, and `fedsim sweep lenet --grid local_steps=5,20` compares settings.
It needs torch: pip install 'fedsim-systems[torch]'.
"""

import fedsim as fs
from fedsim.analysis import figures


def scenario(
    *, data: str = "mnist", clients: int = 100, alpha: float = 0.3, local_steps: int = 20, step_size: float = 0.1,
    batch_size: int = 20, rounds: int = 120, target: float = 1.0, evaluate_every: int = 10,
) -> fs.Scenario:  # fmt: skip
    return fs.Scenario(
        problem=problem(data, clients, alpha),
        algorithm=fs.algorithms.FedAvg(step_size=step_size, local_steps=local_steps, batch_size=batch_size),
        network=fs.topologies.star(clients, uplink_bps=2e6, downlink_bps=2e7, latency_s=0.02),
        devices=fs.devices.lognormal(median_step_s=0.02, sigma=0.5),
        participation=fs.participation.uniform(min(10, clients)),
        budget=fs.Budget(rounds=rounds, target=fs.Target("accuracy", above=target)),
        dtype="float32",
        seed=1,
        metrics=("accuracy", "nll"),
        evaluate_every=evaluate_every,
        record=fs.Record(every=rounds),
    )


def problem(data: str, clients: int, alpha: float) -> fs.problems.Torch:
    from fedsim.problems.torch import models

    d = fs.data.load(data)
    parts = fs.data.dirichlet(d.y, clients=clients, alpha=alpha, seed=1)
    side = round(d.x.shape[1] ** 0.5)
    return fs.problems.Torch.of(models.lenet5((1, side, side), d.classes), d, parts)


def figure(study):
    results = {", ".join(f"{k} = {v}" for k, v in settings.items()): result for settings, result in study.runs}
    fig = figures.blank(8, 4.5)
    left, right = fig.subplots(1, 2, sharey=True)
    for axes, against in ((left, "uplink_bits"), (right, "seconds")):
        figures.curves(axes, results, "accuracy", against=against, log="")
        axes.yaxis.set_major_formatter("{x:.0%}")
        axes.set_ylabel("")
    left.set_title("Test accuracy for the bits", loc="left")
    right.set_title("and for the time", loc="left")
    if len(results) > 1:
        left.legend(frameon=False)
    return fig

"""The effect of local steps: FA-LD with K = 1, 10 and 100 local steps over slow links and unequal devices.

Ten clients observe a mean in the plane with noise of the same shape, rotated from client to client, so that their
Hessians differ. A round costs a message each way over a star of slow links and K steps of computing on devices whose
speeds differ. With many local steps a client drifts towards its own optimum before it reports: fewer rounds suffice,
each takes longer, and the result is biased, more so for larger K. The exact posterior is known, so the figure shows
the distance to it by rounds and by seconds.
"""

import numpy as np

import fedsim as fs
from fedsim.analysis import figures

CLIENTS = 10
grid = {"local_steps": [1, 10, 100]}


def scenario(*, local_steps: int = 10, step_size: float = 4e-5, rounds: int = 300, replicas: int = 200) -> fs.Scenario:
    return fs.Scenario(
        problem=problem(),
        algorithm=fs.algorithms.FALD(step_size=step_size, local_steps=local_steps),
        network=fs.topologies.star(CLIENTS, uplink_bps=2_000, downlink_bps=10_000, latency_s=0.02),
        devices=fs.devices.lognormal(median_step_s=0.002, sigma=0.5),
        budget=fs.Budget(rounds=rounds),
        initial=(1.0, 1.0),
        replicas=replicas,
        seed=1,
        metrics=("w2",),
    )


def problem() -> fs.problems.GaussianMean:
    turn = np.linspace(0, 0.6 * np.pi, CLIENTS)
    axes = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]).transpose(2, 0, 1)
    covariance = axes @ np.diag([4.0, 0.4]) @ axes.transpose(0, 2, 1)  # (clients, 2, 2)
    return fs.problems.GaussianMean.synthetic(
        CLIENTS, dim=2, heterogeneity=0.5, samples=100, seed=4, covariance=covariance
    )


def figure(study):
    mean, covariance = problem().exact()
    replicas = len(study.runs[0][1].replicas)
    results = {f"K = {settings['local_steps']}": result for settings, result in study.runs}

    fig = figures.blank(12, 5.6)
    left, right = fig.subfigures(1, 2, width_ratios=(3, 1))
    by_round, by_second = left.subplots(1, 2, sharey=True)
    for axes, against in ((by_round, "rounds"), (by_second, "seconds")):
        figures.curves(axes, results, "w2", against=against)
        figures.level(axes, fs.metrics.w2_floor(covariance, replicas), f"what {replicas} perfect samples would show")
    by_round.set_ylabel("Wasserstein-2 distance to the exact posterior")
    by_second.set_ylabel("")
    by_round.set_title("Fewer rounds with more local steps", loc="left", fontsize=11)
    by_second.set_title("...but rounds take longer, and end biased", loc="left", fontsize=11)
    by_round.legend(title="local steps", frameon=False)

    clouds = right.subplots(len(results), sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (label, result), colour in zip(clouds, results.items(), figures.COLOURS, strict=False):
        figures.cloud(axes, result.samples[-1], colour)
        figures.ellipse(axes, mean, covariance, 0.95)
        figures.plain(axes)
        axes.set_aspect("equal")
        axes.set_ylabel("theta[1]")
        axes.text(0.96, 0.95, label, transform=axes.transAxes, ha="right", va="top", color=colour)
    clouds[-1].set_xlabel("theta[0]")
    right.suptitle(f"Where the {replicas} replicas end", fontsize=11)
    right.supxlabel("ellipse: 95 % of the exact posterior", fontsize=9)
    return fig

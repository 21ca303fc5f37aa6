"""Local steps save communication rounds and cost accuracy: FA-LD with K = 1, 10, 100 on clients that disagree.

Ten clients see the plane through noise of one shape, each turned a little further than the last, so that their
Hessians differ. With many local steps a client drifts towards its own answer before it reports: fewer rounds
will do, but what comes out is biased, the more so the larger K. The exact posterior is known here, so the
picture can show how far from it each K ends.
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

    fig = figures.blank(10, 5.6)
    left, right = fig.subfigures(1, 2, width_ratios=(2.4, 1))
    curve = left.subplots()
    figures.curves(curve, results, "w2")
    figures.level(curve, fs.metrics.w2_floor(covariance, replicas), f"what {replicas} perfect samples would show")
    curve.set_title("Distance to the exact posterior (Wasserstein-2)", loc="left")
    curve.set_ylabel("")
    curve.legend(title="local steps", frameon=False)

    clouds = right.subplots(len(results), sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (label, result), colour in zip(clouds, results.items(), figures.COLOURS, strict=False):
        figures.cloud(axes, result.samples[-1], colour)
        figures.ellipse(axes, mean, covariance, 0.95)
        figures.plain(axes)
        axes.set_aspect("equal")
        axes.text(0.96, 0.95, label, transform=axes.transAxes, ha="right", va="top", color=colour)
    right.suptitle(f"Where the {replicas} replicas end", fontsize=12)
    right.supxlabel("ellipse: 95 % of the exact posterior", fontsize=9)
    return fig

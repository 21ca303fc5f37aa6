"""Stragglers: four rules to close a round under heavy-tailed devices, in time and accuracy.

Twenty phones have different speeds, and every visit may take many times as long (Pareto). Waiting for all clients
(full) is exact and slow: each round takes as long as its slowest visit. Closing at the tenth reply (first) or at a
deadline saves most of that time, but fast clients contribute more often than slow ones. Aggregating every ten arrivals
(buffered) never waits, and its replies are stale. The exact posterior is known, so the figure shows both the time to
a given distance and the remaining bias.
"""

import numpy as np

import fedsim as fs
from fedsim.analysis import figures

CLIENTS, LOCAL_STEPS = 20, 10
TARGET = 0.1  # Wasserstein-2, about two standard deviations of the posterior
POLICIES = {
    "full": fs.participation.full(),
    "first": fs.participation.first(CLIENTS // 2),
    "deadline": fs.participation.deadline(0.35),
    "buffered": fs.participation.buffered(CLIENTS // 2),
}
CLOSES = {
    "full": "at the last reply",
    "first": f"at the {CLIENTS // 2}th reply (first)",
    "deadline": "after 0.35 s (deadline)",
    "buffered": f"every {CLIENTS // 2} arrivals (buffered)",
}
grid = {"policy": list(POLICIES)}


def scenario(
    *, policy: str = "full", tail: float = 1.2, heterogeneity: float = 0.1, rounds: int = 150, replicas: int = 80
) -> fs.Scenario:
    if policy not in POLICIES:
        raise fs.errors.InvalidInput(f"policy={policy!r}: choose one of {', '.join(POLICIES)}")
    return fs.Scenario(
        problem=problem(heterogeneity),
        algorithm=fs.algorithms.FALD(step_size=4e-5, local_steps=LOCAL_STEPS),
        network=fs.topologies.star(CLIENTS, uplink_bps=1e4, downlink_bps=5e4, latency_s=0.02),
        devices=fs.devices.lognormal(median_step_s=0.01, sigma=0.3, slowdown=fs.devices.pareto_slowdown(tail)),
        participation=POLICIES[policy],
        budget=fs.Budget(rounds=rounds),
        initial=(2.0, 2.0),
        replicas=replicas,
        seed=1,
        metrics=("w2",),
    )


def problem(heterogeneity: float) -> fs.problems.GaussianMean:
    covariance = np.array([[2.0, 0.6], [0.6, 1.0]])
    return fs.problems.GaussianMean.synthetic(
        CLIENTS, dim=2, heterogeneity=heterogeneity, samples=50, seed=4, covariance=covariance
    )


def figure(study):
    results = {settings.get("policy", "full"): result for settings, result in study.runs}
    replicas = len(study.runs[0][1].replicas)
    _, covariance = problem(0.0).exact()  # it does not depend on where the clients' centres are

    fig = figures.blank(11, 5.2)
    curve, bars = fig.subplots(1, 2, width_ratios=(2.2, 1))
    figures.curves(curve, {CLOSES[policy]: result for policy, result in results.items()}, "w2", against="seconds")
    figures.level(curve, TARGET, f"target, {TARGET:g}")
    figures.level(curve, fs.metrics.w2_floor(covariance, replicas), f"what {replicas} perfect samples would show")
    curve.set_title("Distance to the exact posterior (Wasserstein-2)", loc="left")
    curve.set_ylabel("")
    curve.legend(title="a round closes", frameon=False)

    seconds = [result.time_to("w2", below=TARGET) for result in results.values()]
    lengths = [s if np.isfinite(s) else 0.0 for s in seconds]
    drawn = bars.barh(list(results), lengths, color=figures.COLOURS[: len(results)], height=0.6)
    bars.bar_label(drawn, [f"{s:.3g} s" if np.isfinite(s) else "never" for s in seconds], padding=4)
    bars.invert_yaxis()
    bars.set_xlim(0, 1.25 * max([1.0, *lengths]))
    bars.set_xlabel("virtual seconds")
    bars.set_title(f"Time to {TARGET:g}", loc="left")
    figures.plain(bars)
    bars.grid(False, axis="y")
    return fig

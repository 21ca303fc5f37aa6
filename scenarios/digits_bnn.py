"""A Bayesian neural network on digits by FA-HMC and QLSD++: accuracy and calibration.

Twenty clients hold handwritten digits with classes from Dirichlet(0.5). Both samplers draw from the posterior of a
network with one hidden layer. FA-HMC sends few long trajectories uncompressed, QLSD++ many short steps in 8-bit
messages. Predictions are averages over the recorded samples. The figure shows their calibration: of the test images
predicted with confidence c, a share c should be correct. The data set is inside the package.
"""

import numpy as np

import fedsim as fs
from fedsim.analysis import figures

grid = {"method": ["FA-HMC", "QLSD++"]}


def scenario(
    *, method: str = "FA-HMC", clients: int = 20, alpha: float = 0.5, width: int = 32, rounds: int = 0,
    prior_precision: float = 3.0,
) -> fs.Scenario:  # fmt: skip
    """`rounds=0` uses the default of the method."""
    algorithms = {
        "FA-HMC": (fs.algorithms.FAHMC(step_size=0.008, leapfrog_steps=8, local_steps=2), 150),
        "QLSD++": (
            fs.algorithms.QLSDPlusPlus(
                step_size=1.5e-4, refresh_every=20, batch_size=0.25, codec=fs.codecs.QSGD(2**7), memory_rate=0.1
            ),
            1500,
        ),
    }
    if method not in algorithms:
        raise fs.errors.InvalidInput(f"method={method!r}: choose {' or '.join(algorithms)}")
    algorithm, enough = algorithms[method]
    rounds = rounds or enough
    return fs.Scenario(
        problem=problem(clients, alpha, width, prior_precision),
        algorithm=algorithm,
        budget=fs.Budget(rounds=rounds),
        metrics=("accuracy", "nll", "ece", "brier"),
        evaluate_every=max(1, rounds // 30),
        record=fs.Record(warmup=rounds // 3, every=max(1, rounds // 150)),
        dtype="float32",
        seed=1,
    )


def problem(clients: int = 20, alpha: float = 0.5, width: int = 32, prior_precision: float = 3.0):
    d = fs.data.load("digits")
    parts = fs.data.dirichlet(d.y, clients, alpha, seed=1)
    return fs.problems.NeuralNetwork.of(d, parts, widths=(width,), prior_precision=prior_precision)


def figure(study):
    fig = figures.blank(10, 4.6)
    left, right = fig.subplots(1, 2)
    for (settings, result), colour in zip(study.runs, figures.COLOURS, strict=False):
        judged = problem(**{k: v for k, v in settings.items() if k in ("clients", "alpha", "width")})
        p = np.mean([judged.predict(theta) for theta in result.samples[:, 0]], axis=0)
        seen = fs.metrics.reliability(p / p.sum(axis=1, keepdims=True), judged.test[1], bins=10)
        right.plot(seen.confidence, seen.accuracy, color=colour, lw=1.2, label=settings.get("method", ""))
        right.scatter(seen.confidence, seen.accuracy, s=12 * np.sqrt(seen.points), color=colour, lw=0, alpha=0.8)
    names = {settings.get("method", "run"): result for settings, result in study.runs}
    figures.curves(left, names, "nll", against="uplink_bits", log="x")
    left.set_title("Negative log-likelihood of the test images", loc="left")
    left.set_ylabel("")
    right.plot([0, 1], [0, 1], color=figures.FAINT, lw=1, ls=(0, (4, 3)), zorder=0)
    right.set_title("Share that is right, by confidence", loc="left")
    right.set_xlabel("confidence; the larger a dot, the more images have it")
    figures.plain(right)
    right.legend(frameon=False, loc="upper left")
    return fig

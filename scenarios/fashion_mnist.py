"""FA-LD samples a softmax classifier of Fashion-MNIST over 10 clients: accuracy and calibration by round.

Each client has a tenth of the 60,000 images and takes local steps with batches of 200; the server averages. The
metrics are those of the class probabilities averaged over all samples after the warm-up. The data set is read from the
folder that FEDSIM_DATA names; `--set data=digits` uses 8 x 8 digits, which need no file.
"""

import fedsim as fs
from fedsim.analysis import figures


def scenario(
    *, data: str = "fashion-mnist", clients: int = 10, alpha: float = 0.0, local_steps: int = 10, batch_size: int = 200,
    rate: float = 0.5, rounds: int = 150, warmup: int = 50, temperature: float = 1.0,
) -> fs.Scenario:  # fmt: skip
    """`rate` is the step size for the mean loss; alpha > 0 partitions by Dirichlet(alpha), 0 into equal parts."""
    d = fs.data.load(data)
    parts = fs.data.dirichlet(d.y, clients, alpha, seed=1) if alpha else fs.data.iid(d.y, clients, seed=1)
    return fs.Scenario(
        problem=fs.problems.SoftmaxRegression.of(d, parts, prior_precision=1.0),
        algorithm=fs.algorithms.FALD(
            step_size=rate / len(d.x), local_steps=local_steps, temperature=temperature, batch_size=batch_size
        ),
        budget=fs.Budget(rounds=rounds),
        metrics=("accuracy", "ece", "nll"),
        evaluate_every=5,
        record=fs.Record(warmup=min(warmup, rounds - 1)),
        dtype="float32",
        seed=1,
    )


def figure(study):
    fig = figures.blank(9, 4)
    result = study.runs[0][1]
    for axes, name in zip(fig.subplots(1, 2), ("accuracy", "ece"), strict=True):
        figures.curves(axes, {"FA-LD": result}, name, log="")
        axes.yaxis.set_major_formatter("{x:.0%}")
        axes.set_title(axes.get_ylabel().capitalize(), loc="left")
        axes.set_ylabel("")
    return fig

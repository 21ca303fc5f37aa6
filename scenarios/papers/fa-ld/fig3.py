"""FA-LD, figure 3: accuracy, Brier score and calibration error on MNIST and Fashion-MNIST, without a warm-up."""

import _images

import fedsim as fs
from fedsim.reproduce import Claim, Finding

needs = ("mnist", "fashion-mnist")
quick = {
    "data": _images.SETS,
    "local_steps": _images.QUICK_STEPS,
    "rate": _images.QUICK_RATES,
    "rounds": 12,
    "every": 2,
}
full = {"data": _images.SETS, "local_steps": _images.STEPS, "rate": _images.RATES, "rounds": 1000, "every": 10}


def scenario(
    *, data: str = "mnist", local_steps: int = 10, rate: float = 0.3, rounds: int = 12, every: int = 2
) -> fs.Scenario:
    return _images.scenario(data, local_steps, rate, rounds, 0, every)


def mnist(study) -> Finding:
    return _images.one_is_worst("accuracy", "brier", "ece")(study, "mnist")


def fashion(study) -> Finding:
    return _images.one_is_worst("accuracy", "brier")(study, "fashion-mnist")


def more(study) -> Finding:
    """Between 10 and 50 local steps, at the same rounds."""
    rows = {data: _images.scores(study, data) for data in _images.SETS}
    return Finding(
        all(row["accuracy"][50] > row["accuracy"][10] for row in rows.values()),
        "; ".join(
            f"{data}: K=10 {row['accuracy'][10]:.4f}, K=50 {row['accuracy'][50]:.4f}" for data, row in rows.items()
        ),
    )


figure = _images.figure
claims = [
    Claim(
        "MNIST: K = 1 is the worst in accuracy, Brier score and calibration",
        mnist,
        published="FA-LD with K=1 performs the poorest in terms of all three test statistics",
        why="tuned step sizes, flat prior, tau = 0.05 (A18)",
    ),
    Claim(
        "Fashion-MNIST: K = 1 is the worst in accuracy and Brier score",
        fashion,
        published="FA-LD with K=1 performs the poorest",
        why="tuned step sizes, flat prior, tau = 0.05 (A18)",
    ),
    Claim(
        "At the same rounds 50 local steps are more accurate than 10",
        more,
        published="the optimal K range for the highest accuracy lies between 50 and 100",
        why="the claim's direction; the optimum itself is the next claim",
    ),
    Claim(
        "MNIST: the best accuracy is at K between 50 and 100",
        _images.best_among("mnist", {"accuracy": (50, 100)}),
        published="50 to 100",
        why="the number of rounds is not given in the paper; ours are 1000",
    ),
    Claim(
        "MNIST: the best Brier score is at K = 20",
        _images.best_among("mnist", {"brier": (20,)}),
        published="approximately 20",
        why="the number of rounds is not given in the paper; ours are 1000",
    ),
    Claim(
        "Fashion-MNIST: the best Brier score is at K = 100",
        _images.best_among("fashion-mnist", {"brier": (100,)}),
        published="100 without a warm-up",
        why="the number of rounds is not given in the paper; ours are 1000",
    ),
]

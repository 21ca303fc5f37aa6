"""FA-LD on images (section 7.2): softmax regression over ten clients, tau = 0.05, a sample every few rounds.

The step size is tuned for each K, as in the paper: of all rates that were run, the one with the best figure counts.
"""

import numpy as np

import fedsim as fs
from fedsim.reproduce import extreme, found, per_seed, plots, stream, system

METRICS = ("accuracy", "brier", "ece")
BETTER = {"accuracy": max, "brier": min, "ece": min}
SETS, STEPS, RATES = ["mnist", "fashion-mnist"], [1, 10, 20, 50, 100], [0.1, 0.3, 1.0]
QUICK_RATES = [0.3, 1.0]
PAPER = {"data": SETS, "local_steps": STEPS, "clients": 10, "temperature": 0.05, "batch_size": 200}


def scenario(
    figure: str, data: str, local_steps: int, rate: float, rounds: int, warmup: int, every: int, seed: int,
    clients: int = 10, temperature: float = 0.05, batch_size: int = 200,
) -> fs.Scenario:  # fmt: skip
    """`rate` is the step size for the mean loss; every `every`-th round after `warmup` is recorded."""
    d = fs.data.load(data)
    return fs.Scenario(
        problem=fs.problems.SoftmaxRegression.of(d, fs.data.iid(d.y, clients, seed=1)),
        algorithm=fs.algorithms.FALD(
            step_size=rate / len(d.x), local_steps=local_steps, temperature=temperature, batch_size=batch_size
        ),
        budget=fs.Budget(rounds=rounds),
        metrics=METRICS,
        evaluate_every=max(every, (rounds - warmup) // 5),
        record=fs.Record(warmup=warmup, every=every, rounds_every=every),
        dtype="float32",
        seed=stream(figure, data, local_steps, rate, seed),
        **system(clients),
    )


def ends(study, data: str, metric: str) -> dict[int, np.ndarray]:
    """{K: the metric at the end for each seed, with the rate that is best for it on average}."""
    ran = study.frame()
    steps, rates = (sorted(ran[name].unique().tolist()) for name in ("local_steps", "rate"))
    runs = {k: [per_seed(study, metric, data=data, local_steps=k, rate=rate) for rate in rates] for k in steps}
    return {k: BETTER[metric](own, key=lambda values: values.mean()) for k, own in runs.items()}


def worst(study, data: str, metric: str, K: int = 1):
    return extreme(ends(study, data, metric), K, higher=metric != "accuracy")


def best(study, data: str, metric: str, K: int):
    return extreme(ends(study, data, metric), K, higher=metric == "accuracy")


def best_values(study, data: str, metric: str) -> list[int]:
    """The K, at most one, that is shown to be best."""
    values = ends(study, data, metric)
    return [K for K in values if extreme(values, K, higher=metric == "accuracy").verdict == "held"]


def tuned(study, data: str, K: int, rates: list[float], metric: str) -> float:
    def mean(rate: float) -> float:
        return float(per_seed(study, metric, data=data, local_steps=K, rate=rate).mean())

    return BETTER[metric](rates, key=mean)


def figure(study):
    """Scores by round, with the rate that is best for the score at the end."""
    steps, rates = (list(dict.fromkeys(s[name] for s, _ in study.runs)) for name in ("local_steps", "rate"))
    content = {
        f"{data}: {plots.metric_name(m)}": {
            f"K = {k}": plots.seeds(found(study, data=data, local_steps=k, rate=tuned(study, data, k, rates, m)), m)
            for k in steps
        }
        for data in SETS
        for m in METRICS
    }
    return plots.panels(content, "communication rounds", "")

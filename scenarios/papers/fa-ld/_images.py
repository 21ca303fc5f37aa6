"""FA-LD on images (section 7.2): softmax regression over ten clients, tau = 0.05, a sample every few rounds.

The step size is tuned for each K, as in the paper: of all rates that were run, the one with the best figure counts.
"""

import numpy as np

import fedsim as fs
from fedsim.reproduce import Finding, end, pick, plots, system

METRICS = ("accuracy", "brier", "ece")
BETTER = {"accuracy": max, "brier": min, "ece": min}
SETS, STEPS, RATES = ["mnist", "fashion-mnist"], [1, 10, 20, 50, 100], [0.1, 0.3, 1.0]
QUICK_STEPS, QUICK_RATES = [1, 10, 50], [0.3, 1.0]


def scenario(data: str, local_steps: int, rate: float, rounds: int, warmup: int, every: int) -> fs.Scenario:
    """`rate` is the step size for the mean loss; every `every`-th round after `warmup` is recorded."""
    d = fs.data.load(data)
    return fs.Scenario(
        problem=fs.problems.SoftmaxRegression.of(d, fs.data.iid(d.y, 10, seed=1)),
        algorithm=fs.algorithms.FALD(
            step_size=rate / len(d.x), local_steps=local_steps, temperature=0.05, batch_size=200
        ),
        budget=fs.Budget(rounds=rounds),
        metrics=METRICS,
        evaluate_every=max(every, (rounds - warmup) // 5),
        record=fs.Record(warmup=warmup, every=every, rounds_every=every),
        dtype="float32",
        seed=1,
        **system(10),
    )


def scores(study, data: str) -> dict[str, dict[int, float]]:
    """{metric: {K: figure at the end with the best rate for it}}, of the settings that were run."""
    ran = study.frame()
    steps, rates = (sorted(ran[name].unique().tolist()) for name in ("local_steps", "rate"))
    runs = {(k, rate): pick(study, data=data, local_steps=k, rate=rate) for k in steps for rate in rates}
    return {name: {k: BETTER[name](end(runs[k, rate], name) for rate in rates) for k in steps} for name in METRICS}


def shown(table: dict[str, dict[int, float]]) -> str:
    return "; ".join(f"{name} {', '.join(f'K={k}: {v:.4f}' for k, v in row.items())}" for name, row in table.items())


def ranked(row: dict[int, float], name: str) -> list[int]:
    """K from the best to the worst."""
    return sorted(row, key=lambda k: row[k], reverse=BETTER[name] is max)


def one_is_worst(*names: str):
    """A judge: with K = 1 the metric is worse than with any other K."""

    def judge(study, data: str) -> Finding:
        rows = {name: row for name, row in scores(study, data).items() if name in names}
        return Finding(all(ranked(row, name)[-1] == 1 for name, row in rows.items()), shown(rows))

    return judge


def best_among(data: str, expected: dict[str, tuple[int, ...]]):
    """Return a judge: the best K of each metric is one of these.

    It is undecided if the test rows cannot distinguish the next best K. It needs all K of the paper (full form).
    """

    def judge(study) -> Finding | None:
        rows = {name: row for name, row in scores(study, data).items() if name in expected}
        if any(list(row) != STEPS for row in rows.values()):
            return None
        best = {name: ranked(row, name) for name, row in rows.items()}
        close = [abs(rows[n][b[0]] - rows[n][next(k for k in b if k not in expected[n])]) < noise(rows[n], n)
                 for n, b in best.items()]  # fmt: skip
        return Finding(all(best[n][0] in ks for n, ks in expected.items()), shown(rows), undecided=any(close))

    return judge


def noise(row: dict[int, float], name: str, rows: int = 10_000) -> float:
    """Two standard errors of the difference of two figures over the test rows, as if these were drawn apart."""
    p = np.mean(list(row.values())) if name == "accuracy" else 0.8  # right or wrong is the coarsest of the three
    return float(2 * np.sqrt(2 * p * (1 - p) / rows))


def figure(study):
    """Scores by round, with the rate that is best for the score at the end."""
    steps, rates = (list(dict.fromkeys(s[name] for s, _ in study.runs)) for name in ("local_steps", "rate"))
    content = {
        f"{data}: {plots.metric_name(m)}": {
            f"K = {k}": plots.best([pick(study, data=data, local_steps=k, rate=rate) for rate in rates], m)
            for k in steps
        }
        for data in SETS
        for m in METRICS
    }
    return plots.panels(content, "communication rounds", "")

"""QLSD, table S2 (and figure S4): LeNet-5 on a highly heterogeneous MNIST (not the paper's: fewer steps and rows)."""

from itertools import permutations

import _nets
import numpy as np

import fedsim as fs
from fedsim.reproduce import Outcome, every, exact, found, judge, per_replica, repeats, superiority, within_range

needs = ("mnist", "torch")
SCORES = {"accuracy": 100, "ece": 100, "brier": 100, "nll": 100}
paper = {"method": _nets.METHODS, **_nets.PAPER}
quick = {"method": _nets.METHODS, **_nets.SHORT, "seed": repeats(1)}
full = {"method": _nets.METHODS, "iterations": 200, "rows": 5000, "tests": 10_000, "seed": repeats(1)}
PUBLISHED = dict(
    zip(
        _nets.METHODS,
        zip(
            (99.1, 99.2, 98.8, 98.3, 98.8, 98.7, 43.5, 79.3, 98.5),
            (0.577, 1.25, 0.916, 1.57, 0.692, 0.930, 7.51, 21.3, 2.65),
            (1.38, 1.39, 1.98, 2.23, 1.91, 2.18, 66.6, 36.1, 2.64),
            (2.86, 3.16, 4.15, 4.82, 4.11, 4.65, 139, 78.0, 6.19),
            strict=True,
        ),
        strict=True,
    )
)  # 100 times accuracy, ece, brier, nll


def scenario(
    *, method: str = "QLSD++", iterations: int = 12, rows: int = 500, tests: int = 500, step_size: float = 4e-5,
    start: str = "warm", replicas: int = 5, seed: int = 0,
) -> fs.Scenario:  # fmt: skip
    return _nets.scenario("tableS2", method, step_size, iterations, rows, tests, tuple(SCORES), replicas, seed)


def limits(method: str, metric: str) -> tuple[float, float]:
    """The range that the claims' tolerances allow."""
    value = PUBLISHED[method][list(SCORES).index(metric)]
    if metric == "accuracy":
        width = 5.0 if method.startswith("FedBe") else 0.3
        return value - width, value + width
    return (value / 1.5, value * 1.5) if metric == "ece" else (0.8 * value, 1.2 * value)


def number(study, method, metric):
    own = _nets.values(study, method, metric)
    if isinstance(own, Outcome):
        return own
    published = PUBLISHED[method][list(SCORES).index(metric)]
    return within_range(100 * own, *limits(method, metric), published=f"{published:g}")


for _method, _id in _nets.IDS.items():
    for _metric, _name in (("accuracy", "accuracy"), ("ece", "ece"), ("brier", "bs"), ("nll", "nnll")):
        judge(f"tables2-{_id}-{_name}", method=_method, metric=_metric)(number)


@judge("tables2-orders")
def orders(study):
    """Pairs whose ranges of tolerance do not meet, by accuracy, Brier score and likelihood."""
    tests = {}
    for metric in ("accuracy", "brier", "nll"):
        sign = 1 if metric == "accuracy" else -1
        for a, b in permutations(_nets.METHODS, 2):
            own, other = (sorted(sign * x for x in limits(m, metric)) for m in (a, b))
            if own[0] > other[1]:
                pair = [_nets.values(study, m, metric) for m in (a, b)]
                missing = next((one for one in pair if isinstance(one, Outcome)), None)
                tests[f"{metric}: {a} over {b}"] = missing or superiority(*pair, higher=sign > 0)
    joined = every(tests)
    failed = [name for name, one in tests.items() if one.verdict != "held"]
    shown = f"{len(tests) - len(failed)} of {len(tests)} ordered pairs; not: {', '.join(failed) or 'none'}"
    return Outcome(joined.verdict, shown, "the table's own orders", None, joined.seeds, "every pair in its order")


@judge("fig-s4")
def labels():
    """Both readings: 40 % of the label's rows, as dealt here, and 40 % of the client's own rows."""
    y = np.repeat(np.arange(10), 5000)
    parts = fs.data.dominant(y, _nets.CLIENTS, 0.4, 0.01, seed=1, leftover="drop")
    counts = np.array([np.bincount(y[own], minlength=10) for own in parts])
    expected = np.where(np.arange(20)[:, None] % 10 == np.arange(10), 2000, 50)
    right = bool((np.abs(counts - expected) <= 1).all())
    share = counts.max(axis=1) / counts.sum(axis=1)
    left = 1 - counts.sum() / len(y)
    shown = f"40 % and 1 % of each label, {left:.0%} of the rows left over; of its client's own rows {share.min():.0%}"
    return exact(right and len(parts) == 20, shown, published="40 % and 1 %, b = 20")


def table(study):
    rows = []
    for method in [m for m in _nets.METHODS if found(study, method=m)]:
        row = {"method": method}
        for metric, published in zip(SCORES, PUBLISHED[method], strict=True):
            row[f"100 {metric}"] = 100 * float(per_replica(study, metric, method=method).mean())
            row[f"published {metric}"] = published
        rows.append(row)
    return rows

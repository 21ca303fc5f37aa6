"""FA-HMC on images (sections 5.3 to 5.5): ten clients, equal random shards, scores of the averaged predictions.

The paper's T = 50 and K = 100 are 10,000 minibatch gradients a client and round. The quick forms keep the comparison,
at the same rounds, with fewer of both and smaller batches. Step sizes are tuned: of those run, the best for a score
counts.
"""

import fedsim as fs
from fedsim.reproduce import end, pick, plots, system

METRICS = ("accuracy", "brier", "ece", "nll")
BETTER = {"accuracy": max, "brier": min, "ece": min, "nll": min}


def scenario(
    data: str, leapfrog_steps: int, local_steps: int, rate: float, rounds: int, batch_size: int, *,
    widths: tuple[int, ...] = (), replicas: int = 1, metrics=METRICS,
) -> fs.Scenario:  # fmt: skip
    """`rate` is that of a Langevin step on the mean loss, eta^2/2 = rate/n. Without `widths` the model is linear."""
    d = fs.data.load(data)
    parts = fs.data.iid(d.y, 10, seed=1)
    problem = (
        fs.problems.NeuralNetwork.of(d, parts, widths=widths, prior_precision=1.0)
        if widths
        else fs.problems.SoftmaxRegression.of(d, parts, prior_precision=1.0)
    )
    return fs.Scenario(
        problem=problem,
        algorithm=fs.algorithms.FAHMC(
            step_size=(2 * rate / len(d.x)) ** 0.5, leapfrog_steps=leapfrog_steps, local_steps=local_steps,
            correlation=1.0, batch_size=batch_size,
        ),
        budget=fs.Budget(rounds=rounds),
        metrics=metrics,
        evaluate_every=max(1, rounds // 6),
        record=fs.Record(warmup=rounds // 3, every=max(1, rounds // 15), rounds_every=rounds),
        dtype="float32",
        replicas=replicas,
        seed=1,
        **system(10),
    )  # fmt: skip


def scores(study, axis: str, values, rates, metrics=METRICS, **settings) -> dict[str, dict[int, float]]:
    """{metric: {value on the axis: score with the best rate}}."""
    runs = {(v, r): pick(study, **{axis: v}, rate=r, **settings) for v in values for r in rates}
    return {m: {v: BETTER[m](end(runs[v, r], m) for r in rates) for v in values} for m in metrics}


def worst(row: dict[int, float], metric: str) -> int:
    other = min if BETTER[metric] is max else max
    return other(row, key=lambda v: row[v])


def best(row: dict[int, float], metric: str) -> int:
    return BETTER[metric](row, key=lambda v: row[v])


def shown(table: dict[str, dict[int, float]], letter: str) -> str:
    return "; ".join(f"{m} {', '.join(f'{letter}={v}: {s:.4f}' for v, s in row.items())}" for m, row in table.items())


def panels(study, axis: str, values, rates, metrics, letter: str = "", **settings) -> dict:
    """{metric: {K = 5: curve with the best rate}}; without `letter` the values are arms, such as K 5."""
    runs = {v: [pick(study, **{axis: v}, rate=r, **settings) for r in rates] for v in values}
    return {
        m: {(f"{letter} = {v}" if letter else v.replace(" ", " = ")): plots.best(own, m) for v, own in runs.items()}
        for m in metrics
    }


def figure(content: dict[str, dict]):
    """{what: panels}."""
    named = {f"{what}{plots.metric_name(m)}": own for what, part in content.items() for m, own in part.items()}
    return plots.panels(named, "communication rounds", "")

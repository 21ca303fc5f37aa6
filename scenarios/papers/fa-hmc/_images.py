"""FA-HMC on images (sections 5.3 to 5.5): ten clients, equal random shards, scores of the averaged predictions.

Step sizes are tuned, as in the paper: of the rates that were run, the one with the best mean of a score counts.
"""

import numpy as np

import fedsim as fs
from fedsim.reproduce import (
    Outcome,
    exact_range,
    extreme,
    found,
    per_seed,
    plots,
    stream,
    superiority,
    system,
    within_range,
)

METRICS = ("accuracy", "brier", "ece", "nll")
PAPER = {"clients": 10, "batch_size": 1000, "rounds": "not in the text; a follow-up has 400"}


def scenario(
    figure: str, data: str, leapfrog_steps: int, local_steps: int, rate: float, rounds: int, batch_size: int,
    clients: int, seed: int, *, widths: tuple[int, ...] = (), metrics=METRICS,
) -> fs.Scenario:  # fmt: skip
    """`rate` is that of a Langevin step on the mean loss, eta^2/2 = rate/n. Without `widths` the model is linear."""
    d = fs.data.load(data)
    parts = fs.data.iid(d.y, clients, seed=1)
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
        evaluate_every=max(1, rounds // 4),
        record=fs.Record(warmup=rounds // 3, every=max(1, rounds // 15), rounds_every=rounds),
        dtype="float32",
        seed=stream(f"fa-hmc/{figure}", data, leapfrog_steps, local_steps, rate, seed),
        **system(clients),
    )  # fmt: skip


def better(metric: str):
    return max if metric == "accuracy" else min


def ran(study, setting: str) -> list:
    """The values of a setting among the runs."""
    return list(dict.fromkeys(study.frame()[setting].tolist()))


def tuned(study, metric: str, **settings) -> float:
    """The rate with the best mean over seeds."""
    return better(metric)(ran(study, "rate"), key=lambda rate: per_seed(study, metric, rate=rate, **settings).mean())


def ends(study, axis: str, metric: str, only=None) -> dict:
    """{value on the axis: the metric at the end for each seed, at the best rate}."""
    values = only or ran(study, axis)
    return {v: per_seed(study, metric, rate=tuned(study, metric, **{axis: v}), **{axis: v}) for v in values}


def best(values: dict, metric: str, which):
    return extreme(values, which, higher=metric == "accuracy")


def worst(values: dict, metric: str, which):
    return extreme(values, which, higher=metric != "accuracy")


def shown_best(values: dict, metric: str) -> list:
    """The value, at most one, that is shown to be best."""
    return [v for v in values if best(values, metric, v).verdict == "held"]


def differ(tables: dict[str, dict]):
    """Two statistics have different best values, each shown by its intervals."""
    shown = {metric: shown_best(values, metric) for metric, values in tables.items()}
    distinct = {own[0] for own in shown.values() if own}
    same = len(distinct) == 1 and all(shown.values())
    verdict = "held" if len(distinct) > 1 else "not held" if same else "inconclusive"
    ours = ", ".join(f"{metric}: {own[0] if own else 'none shown'}" for metric, own in shown.items())
    return Outcome(verdict, f"best by {ours}", seeds=5, change="two statistics with different best values, each shown")


def position(values: dict, metric: str, which, above: int):
    """`which` is better than exactly `above` of the others."""
    others = [v for v in values if v != which]
    higher = metric == "accuracy"
    each = [superiority(values[which], values[v], higher=higher, comparisons=len(others)) for v in others]
    if any(one.verdict == "not run" for one in each):
        return next(one for one in each if one.verdict == "not run")
    wins, losses = (sum(one.verdict == verdict for one in each) for verdict in ("held", "not held"))
    possible = wins <= above and losses <= len(others) - above
    verdict = "not held" if not possible else "held" if wins + losses == len(others) else "inconclusive"
    ours = f"better than {wins}, worse than {losses} of {len(others)}"
    return Outcome(verdict, ours, f"better than {above}", seeds=5, change=f"better than exactly {above}")


def best_of_others(study, axis: str, metric: str, one):
    """The best value other than `one`, chosen for each seed on the other seeds, against `one`."""
    values = ends(study, axis, metric)
    others = [v for v in values if v != one]
    chosen = []
    for seed in range(len(values[one])):
        pick = better(metric)(others, key=lambda v: np.delete(values[v], seed).mean())
        chosen.append(values[pick][seed])
    return superiority(chosen, values[one], higher=metric == "accuracy")


def improvement(values: dict, one, other, low: float, high: float, published: str):
    """1 - values[one] / values[other], seed by seed of independent streams."""
    return within_range(1 - values[one] / values[other], low, high, published=published)


def five_runs(study, axis: str):
    fewest = study.frame().groupby([axis, "rate"])["seed"].nunique().min()
    return exact_range(int(fewest), low=5, published="5 independent runs", name="runs of each setting: ")


def figure(study, panels: dict[str, tuple[str, list, str]], metrics=METRICS):
    """Scores by round at the best rate; `panels` is {what: (axis, values, letter)}."""
    content = {}
    for what, (axis, values, letter) in panels.items():
        for metric in metrics:
            content[f"{what}{plots.metric_name(metric)}"] = {
                f"{letter}{v}".replace("K ", "K = ").replace("T ", "T = "): plots.seeds(
                    found(study, rate=tuned(study, metric, **{axis: v}), **{axis: v}), metric
                )
                for v in values
            }
    return plots.panels(content, "communication rounds", "")

"""P-FedAvg's credit-score benchmark (section 4.2 and E.2): ten banks, applicants who respond, E = 5, K = 5 of 10."""

import numpy as np

import fedsim as fs
from fedsim.reproduce import pick, plots, system

SCHEMES = ["full", "I", "II"]
REGULARISATION = 1000.0  # in rows, as in the NeurIPS 2020 version of the benchmark (D12)


def problem(seed: int = 1) -> fs.problems.StrategicCredit:
    """Sensitivities U[0.9, 1.1], equal banks."""
    d = fs.data.load("credit")
    return fs.problems.StrategicCredit.of(d, 10, regularisation=REGULARISATION / len(d.x), seed=seed)


def scenario(scheme: str, batch_size: int, rounds: int, replicas: int, start: str = "zero") -> fs.Scenario:
    policies = {
        "full": fs.participation.full(),
        "I": fs.participation.with_replacement(5),
        "II": fs.participation.uniform(5),
    }
    made, every = problem(), max(1, rounds // 60)
    return fs.Scenario(
        problem=made,
        algorithm=fs.algorithms.PFedAvg(
            step_size=fs.schedules.inverse_time(40, 200), local_steps=5, batch_size=batch_size
        ),
        participation=policies[scheme],
        budget=fs.Budget(rounds=rounds),
        initial=None if start == "zero" else made.performatively_stable(),
        metrics=("distance_to_ps", "loss"),
        evaluate_every=every,
        record=fs.Record(every=rounds, rounds_every=every),
        replicas=replicas,
        seed=1,
        **system(10),
    )


def curve(result, metric: str = "distance_to_ps") -> np.ndarray:
    """Averaged over replicas, at the rounds evaluated."""
    table = result.rounds[["round", metric]].dropna()
    return table[metric].groupby(table["round"]).mean().to_numpy()


def rounds_to(result, level: float) -> float:
    """The first round at which the mean distance is below a level; infinity if never."""
    table = result.rounds[["round", "distance_to_ps"]].dropna()
    mean = table["distance_to_ps"].groupby(table["round"]).mean()
    below = mean.index[mean <= level]
    return float(below[0]) if len(below) else float("inf")


def late(result) -> float:
    """The mean distance over the last tenth."""
    return float(curve(result)[-6:].mean())


def figure(study):
    """Loss and distance by round, the schemes side by side, for every batch size that was run."""
    batches = list(dict.fromkeys(s.get("batch_size") for s, _ in study.runs))
    content = {
        name + (f", batch {batch}" if batch else ""): {
            {"full": "full participation"}.get(scheme, f"scheme {scheme}"): plots.curve(
                pick(study, scheme=scheme, **({"batch_size": batch} if batch else {})), metric
            )
            for scheme in SCHEMES
        }
        for metric, name in (("loss", "loss"), ("distance_to_ps", "distance to theta_PS"))
        for batch in batches
    }
    return plots.panels(content, "communication rounds", "", "x")

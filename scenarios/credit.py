"""Applicants adapt to the credit score: P-FedAvg under full participation and the paper's two partial schemes.

Ten banks share a logistic score of GiveMeSomeCredit's applicants, prepared as in Perdomo et al. (2020). Applicants
respond to a published score by changing three of their features. All schemes converge at rate 1/T to the same
performatively stable point, the score that is optimal for the applicants that it causes; fewer banks per round mean
more noise. The data set is read from the folder that FEDSIM_DATA names.
"""

import fedsim as fs
from fedsim.analysis import figures

grid = {"scheme": ["full", "I", "II"]}


def scenario(
    *, scheme: str = "full", clients: int = 10, chosen: int = 5, local_steps: int = 5, batch_size: int = 16,
    rounds: int = 2000, replicas: int = 5, regularisation: float = 1000.0,
) -> fs.Scenario:  # fmt: skip
    """`regularisation` divided by the number of rows multiplies |theta|^2 / 2."""
    d = fs.data.load("credit")
    policies = {
        "full": fs.participation.full(),
        "I": fs.participation.with_replacement(chosen),
        "II": fs.participation.uniform(chosen),
    }
    if scheme not in policies:
        raise fs.errors.InvalidInput(f"scheme={scheme!r}: choose {', '.join(policies)}")
    return fs.Scenario(
        problem=fs.problems.StrategicCredit.of(d, clients, regularisation=regularisation / len(d.x), seed=1),
        algorithm=fs.algorithms.PFedAvg(
            step_size=fs.schedules.inverse_time(40, 200), local_steps=local_steps, batch_size=batch_size
        ),
        participation=policies[scheme],
        budget=fs.Budget(rounds=rounds),
        metrics=("distance_to_ps", "loss"),
        evaluate_every=max(1, rounds // 100),
        record=fs.Record(every=max(1, rounds // 100)),
        replicas=replicas,
        seed=1,
    )


def figure(study):
    results = {settings.get("scheme", "run"): result for settings, result in study.runs}
    fig = figures.blank(9, 4)
    left, right = fig.subplots(1, 2)
    figures.curves(left, results, "distance_to_ps")
    left.set_title("Distance to the stable score", loc="left")
    left.set_ylabel("")
    left.legend(title="scheme", frameon=False)
    figures.curves(right, results, "loss", log="x")
    right.set_title("Loss on the applicants as they answer", loc="left")
    right.set_ylabel("")
    return fig

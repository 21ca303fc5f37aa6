"""HET_MNIST(n): MNIST over 100 devices with n digits each (E15), softmax regression, FedPAQ plain and private.

`mode` is "plain" (neither subsampling, clipping nor noise, E13), "printed" (equation 16's noise as printed), "mean"
(that noise divided by the device's 600 rows, as in the authors' code) or "silent" (subsampled and clipped, no noise).
"mean" is no proof of privacy: a step averages over b rows, not over all, so that the epsilon named there is a label of
how much noise there is. A plain step averages over 64 rows, as in the authors' code; the paper gives no number.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np

import fedsim as fs
from fedsim.reproduce import Outcome, every, found, not_run, pick, stream, superiority, system

DEVICES, ROWS, DELTA, STEP, BATCH, REPLICAS = 100, 600, 1e-4, 0.1, 64, 5
NOISES = ("printed", "mean")
SCALE = {"printed": 1.0, "mean": float(ROWS), "silent": 1e15}  # sigma is divided by it
START = float(np.log(10))  # the loss at theta = 0


@cache
def problem(digits: int = 2) -> fs.problems.SoftmaxRegression:
    d = fs.data.load("mnist")
    return fs.problems.SoftmaxRegression.of(d, parts(digits))


def parts(digits: int) -> list[np.ndarray]:
    y = fs.data.load("mnist").y
    return fs.data.pathological(y, DEVICES, digits, seed=1, class_assignment_mode="deterministic")


def scenario(
    names: tuple[object, ...], mode: str, *, local_steps: int = 10, chosen: int = 10, levels: int = 10,
    epsilon: float = 1.0, delta: float = DELTA, clip: float = 1.0, fraction: float = 0.2, rounds: int = 100,
    every: int = 20, digits: int = 2, metrics: tuple[object, ...] = ("loss",), replicas: int = REPLICAS,
) -> fs.Scenario:  # fmt: skip
    """Replicas are independent runs: devices, rows, noise and quantiser; `names` are those of their random numbers."""
    return fs.Scenario(
        problem=problem(digits),
        algorithm=algorithm(mode, local_steps, levels, epsilon, clip, fraction, delta),
        participation=fs.participation.uniform(chosen, weighting="normalised"),
        budget=fs.Budget(rounds=rounds),
        metrics=metrics,
        evaluate_every=every,
        record=fs.Record(every=rounds, rounds_every=every),
        dtype="float32",
        replicas=replicas,
        seed=stream("private-fedpaq", *names),
        **system(DEVICES),
    )


def algorithm(
    mode: str, local_steps: int = 10, levels: int = 10, epsilon: float = 1.0, clip: float = 1.0, fraction: float = 0.2,
    delta: float = DELTA,
):  # fmt: skip
    """`levels` 0 does not quantise."""
    step_size = fs.schedules.per_round(STEP, 100)  # 0.1/(1 + k E/100), held inside a round (E12)
    codec = fs.codecs.QSGD(levels) if levels else fs.codecs.Identity("float32")
    if mode == "plain":
        return fs.algorithms.FedPAQ(step_size=step_size, local_steps=local_steps, batch_size=BATCH, codec=codec)
    return fs.algorithms.PrivateFedPAQ(
        step_size=step_size, local_steps=local_steps, clip=clip, epsilon=epsilon * SCALE[mode], delta=delta,
        fraction=fraction, codec=codec,
    )  # fmt: skip


def losses(study, metric: str = "loss", **settings) -> dict[int, np.ndarray]:
    """Return {round: one value per run} of the loss; empty if this form of the figure has no such run."""
    if not found(study, **settings):
        return {}
    table = pick(study, **settings).rounds[["replica", "round", metric]].dropna()
    return {int(k): own.sort_values("replica")[metric].to_numpy() for k, own in table.groupby("round")}


def last(study, metric: str = "loss", **settings) -> np.ndarray:
    """Return the values after the last round, one per run; empty without the run."""
    values = losses(study, metric, **settings)
    return values[max(values)] if values else np.array([])


def rises(study, first: int | None = None, **settings) -> np.ndarray:
    """Return the largest rise of the loss from a round to the next, among the first ones, one value per run."""
    values = losses(study, **settings)
    if not values:
        return np.array([])
    own = np.stack([np.full(REPLICAS, START), *(values[k] for k in sorted(values))])
    return np.diff(own[: None if first is None else first + 1], axis=0).max(axis=0)


def absent(values) -> Outcome | None:
    """Return "not run" if a sample is empty."""
    if any(not len(v) for v in values):
        return not_run(
            "The quick form leaves out runs that this claim needs; the full form has them, at a minute (median, on a "
            "busy machine) a setting of 100 rounds, 10 devices and 10 steps."
        )
    return None


def ordered_means(samples: dict[object, np.ndarray], *, higher: bool) -> Outcome:
    """Test that each sample is above (or below) the one before it."""
    if missing := absent(samples.values()):
        return missing
    pairs = {
        f"{b} against {a}": superiority(samples[b], samples[a], higher=higher, comparisons=len(samples) - 1)
        for a, b in pairwise(samples)
    }
    return every(pairs)


def ordered_curves(curves: dict[object, dict[int, np.ndarray]], *, higher: bool) -> Outcome:
    """Test the order of the curves at each x that all have; `higher`: each curve is above the one before it."""
    if missing := absent(curves.values()):
        return missing
    shared = sorted(set.intersection(*(set(c) for c in curves.values())))
    return at_each({x: ordered_means({k: c[x] for k, c in curves.items()}, higher=higher) for x in shared})


def at_each(outcomes: Mapping[int, Outcome]) -> Outcome:
    """Return the conjunction over rounds, showing the first and the last, and how many have which verdict."""
    joint, verdicts = every({f"at {x}": one for x, one in outcomes.items()}), [o.verdict for o in outcomes.values()]
    tally = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
    ends = "; ".join(f"at {x}: {outcomes[x].ours}" for x in (min(outcomes), max(outcomes)))
    change = "the same verdict, held, at each of them"
    return replace(joint, ours=f"{len(verdicts)} points: {tally}. {ends}", change=change)

"""FA-LD, figures 1(d) and (e): the samples' density against the exact one at K = 10.

By exact moments W2 is within 5 % of its limit, 1.4e-5, after 1000 rounds.
"""

import _toy
import numpy as np
from scipy.stats import gaussian_kde, multivariate_normal

import fedsim as fs
from fedsim import rng
from fedsim.reproduce import found, judge, plots, repeats, stream, system, within_range

paper = {"local_steps": 10, "step_size": 1e-7}
quick = {"replicas": 1000, "rounds": 1000, "seed": repeats(5)}
full = {"replicas": 30_000, "rounds": 1100, "seed": repeats(5)}
PERFECT = 400  # sets of perfect samples


def scenario(
    *, replicas: int = 3000, rounds: int = 600, local_steps: int = 10, step_size: float = 1e-7, seed: int = 0
) -> fs.Scenario:
    return fs.Scenario(
        problem=_toy.problem(0.0),
        algorithm=fs.algorithms.FALD(step_size=step_size, local_steps=local_steps),
        budget=fs.Budget(rounds=rounds),
        metrics=("w2",),
        evaluate_every=rounds,
        record=fs.Record(every=rounds, rounds_every=rounds),
        replicas=replicas,
        seed=stream("fa-ld/fig1de", seed),
        **system(_toy.CLIENTS),
    )


@judge("fig1de-density")
def matches(study):
    """The W2 of each set of samples against the band of sets of perfect samples of the same size."""
    law = _toy.problem(0.0).exact()
    sets = [result.samples[-1] for result in found(study)]
    count = len(sets[0])
    root = np.linalg.cholesky(law[1])
    perfect = []
    for number in range(PERFECT):
        draws = rng.normal(rng.keys(7, rng.Stream.DATA, client=number), 2 * count)[0].reshape(count, 2)
        perfect.append(float(_toy.w2(law[0] + draws @ root.T, law)))
    low, high = np.quantile(perfect, [0.025, 0.975])
    band = f"{low:.2e} to {high:.2e}, 95 % of {PERFECT} sets of perfect samples"
    return within_range([float(_toy.w2(own, law)) for own in sets], low, high, published=band)


def figure(study):
    samples, (mean, covariance) = found(study)[0].samples[-1], _toy.problem(0.0).exact()
    exact = multivariate_normal(mean, covariance)
    content = {
        "(d) exact": lambda points: exact.pdf(points.T),
        f"(e) {len(samples):,} samples": gaussian_kde(samples.T),
    }
    return plots.planes(content, mean, 3.2 * np.sqrt(np.diag(covariance)))

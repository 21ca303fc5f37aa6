"""P-FedAvg, figure 3: how many devices to sample (K), E = 5.

Sigma, start and step are those of the authors' code, since the paper gives none.
"""

from itertools import pairwise

import _gaussian
import numpy as np
from _gaussian import BETA, CLIENTS, GAMMA, TENTH, smaller, standard
from _theory import Constants

import fedsim as fs
from fedsim.reproduce import every, exact, found, judge, ordered, repeats, stream, superiority

E, SIZES = 5, [5, 10, 20, 25]
paper = {"chosen": SIZES, "scheme": ["I", "II"], "local_steps": E}
quick = {"chosen": SIZES, "scheme": ["I", "II"], "rounds": 400, "replicas": 1, "seed": repeats(5)}
full = {"chosen": SIZES, "scheme": ["I", "II"], "rounds": 6000, "replicas": 20, "seed": repeats(5)}


def scenario(
    *, chosen: int = 20, scheme: str = "I", local_steps: int = E, rounds: int = 400, replicas: int = 1, seed: int = 0
) -> fs.Scenario:
    step, number = fs.schedules.inverse_time(BETA, GAMMA), stream("p-fedavg/fig3", chosen, scheme, seed)
    return _gaussian.scenario(_gaussian.problem(), step, local_steps, rounds, scheme, chosen, replicas, number)


def law(K: int, scheme: str):
    return standard((0.6, 0.1), E, scheme, K)


@judge("k-decreases")
def bound_decreases():
    own = Constants(_gaussian.problem(), 4 / 45)
    tests, B = {}, []
    for scheme, name in (("I", "theorem 3.2"), ("II", "theorem 3.3")):
        bounds = {K: own.bound(scheme, E, K) for K in SIZES}
        tests[name] = ordered({K: b.T(1e-2) for K, b in bounds.items()})
        B.append(", ".join(f"{4 * b.B / own.mu**2:.3g}" for b in bounds.values()))
    first = own.bound("I", E, SIZES[0])
    return every(tests).because(
        f"B_1 and B_2 decrease, but v is the maximum of 4B/mu~^2 ({B[0]} and {B[1]}) and gamma E|theta_0 - theta_PS|^2 "
        f"({first.gamma * own.first:.3g}), which does not depend on K and is the larger."
    )


@judge("k-time-increases")
def time_increases():
    """Time until K of 25 replies have arrived: lognormal visit times (sigma 0.5, median 1), 200 rounds a seed."""
    arrivals = {}
    for K in SIZES:
        draws = [np.random.default_rng(stream("p-fedavg/fig3/visits", K, seed)) for seed in range(5)]
        sorted_ = [np.sort(rng.lognormal(0, 0.5, (200, CLIENTS)), axis=1) for rng in draws]
        arrivals[K] = [float(times[:, K - 1].mean()) for times in sorted_]
    return every(
        {f"K = {b} against {a}": superiority(arrivals[b], arrivals[a], comparisons=3) for a, b in pairwise(SIZES)}
    )


@judge("k-weak")
def weak():
    at = np.arange(1500, _gaussian.T + 1, 1500)
    ratio = np.sqrt(law(5, "I").at(at) / law(25, "I").at(at))
    shown = f"{ratio[0]:.3g} after {at[0]:,} iterations, {ratio[-1]:.3g} after {at[-1]:,}"
    ours = f"root mean square distance of K = 5 over K = 25: {shown}"
    return exact(bool((ratio.max() <= 1.25) and (ratio.min() >= 0.8)), ours).because(
        "The means are equal. When they have reached theta_PS, the variance of the sample is left, which falls as 1/K, "
        "so the ratio goes to sqrt(5) = 2.24."
    )


@judge("fig3-i-larger-k")
def larger():
    at = np.arange(E, _gaussian.T + 1, E)
    return every({f"K = {b} over K = {a}": smaller(law(b, "I").at(at), law(a, "I").at(at)) for a, b in pairwise(SIZES)})


@judge("fig3-ii-rises-falls")
def rises_falls():
    """Speed falls again if some larger K has a larger distance than a smaller one."""
    tests = {}
    for a, b in pairwise(SIZES):
        ratio = law(b, "II").at(TENTH) / law(a, "II").at(TENTH)
        tests[f"K = {b} over K = {a}"] = (float(ratio.min()), float(ratio.max()))
    falls = any(high > 1 for _, high in tests.values())
    shown = ", ".join(f"{name}: {low:.3g} to {high:.3g}" for name, (low, high) in tests.items())
    return exact(falls, f"ratio of E|theta - theta_PS|^2, {shown}").refuted(
        "D10: the mean does not depend on K, and the variance of scheme II, proportional to (N - K)/(K (N - 1)) at "
        "each aggregation, falls with every further device."
    )


def figure(study):
    rounds = int(study.runs[0][0]["rounds"])

    def series(K: int, scheme: str):
        return _gaussian.series(found(study, chosen=K, scheme=scheme), law(K, scheme).squared[:rounds, -1], E)

    return _gaussian.figure("K", SIZES, series)

"""P-FedAvg, figure 1: distance to the performatively stable point, full participation and schemes I and II.

Sigma, start and step are those of the authors' code, since the paper gives none.
"""

from itertools import combinations, product

import _gaussian
import numpy as np
from _everywhere import everywhere
from _gaussian import BETA, GAMMA, START, inverse, long_run, path, smaller, standard
from _theory import Constants

import fedsim as fs
from fedsim.reproduce import (
    agreement,
    every,
    exact,
    found,
    identical,
    judge,
    ordered,
    plots,
    rate,
    repeats,
    stream,
    superiority,
)

SCHEMES = ["full", "I", "II"]
E, K, ROUNDS = 5, 20, 6000
paper = {"scheme": SCHEMES}
quick = {"scheme": SCHEMES, "rounds": ROUNDS, "replicas": 4, "seed": repeats(5)}
full = {"scheme": SCHEMES, "rounds": ROUNDS, "replicas": 40, "seed": repeats(10)}


def scenario(*, scheme: str = "full", rounds: int = ROUNDS, replicas: int = 4, seed: int = 0) -> fs.Scenario:
    step, number = fs.schedules.inverse_time(BETA, GAMMA), stream("p-fedavg/fig1", scheme, seed)
    return _gaussian.scenario(_gaussian.problem(), step, E, rounds, scheme, K, replicas, number)


def law(scheme: str, sigma: float = _gaussian.SIGMA):
    return standard((0.6, 0.1, sigma), E, scheme, K)


# --- The rate --------------------------------------------------------------------------------------------------------


@judge("rate-full", scheme="full")
@judge("rate-I", scheme="I")
@judge("rate-II", scheme="II")
def reaches_rate(scheme):
    at, values = long_run(_gaussian.problem(), scheme, E, K)
    found = rate(at, values, at_most=-0.95, published="O(1/T)")
    slope = float(np.polyfit(np.log(at), np.log(values), 1)[0])
    found = found.because(f"Two-sided, -1.05 to -0.95: {'yes' if -1.05 <= slope <= -0.95 else 'no'}.")
    if scheme != "full":
        return found
    return found.because(
        "With little noise and full participation the squared bias of the local steps dominates; it falls as 1/T^2."
    )


@judge("scheme-i-unbalanced")
def unbalanced():
    p = np.arange(1.0, _gaussian.CLIENTS + 1)
    at, values = long_run(unequal(p / p.sum()), "I", E, K)
    return rate(at, values, at_most=-0.95).because("p_i proportional to i = 1 to 25.")


def unequal(p: np.ndarray) -> fs.problems.PerformativeMean:
    """The benchmark with weights p: m_i and eps_i are shifted so that their weighted means are 10 and 0.9."""
    plain = _gaussian.problem()
    m = plain.base_means - p @ plain.base_means + 10
    eps = plain.sensitivities - p @ plain.sensitivities + 0.9
    return fs.problems.PerformativeMean(m, eps, plain.sigma, p)


# --- Means and variances ---------------------------------------------------------------------------------------------


@judge("same-mean")
def same_mean():
    """The means of the weights by enumeration of all draws, and the paths that they give."""
    own = np.linspace(-1.0, 2.0, 4)  # any values of four clients, of which two take part
    by_draws = np.mean([own[list(s)].mean() for s in product(range(4), repeat=2)])
    by_sets = np.mean([own[list(s)].mean() for s in combinations(range(4), 2)])
    full = law("full").mean[:, -1]
    return every(
        {
            "scheme I, all draws": identical(by_draws, own.mean()),
            "scheme II, all sets": identical(by_sets, own.mean()),
            "scheme I, path": identical(law("I").mean[:, -1], full),
            "scheme II, path": identical(law("II").mean[:, -1], full),
        }
    )


@judge("larger-variance")
def larger_variance():
    full = law("full").variance[:, -1]
    return every({f"full against {s}": smaller(full, law(s).variance[:, -1]) for s in ("I", "II")})


@judge("theta-ps-formula")
def formula():
    tests = {}
    for case in ((0.6, 0.1), (6.0, 0.1), (0.6, 0.6)):
        problem, theta = _gaussian.problem(*case), 0.0
        p, m, eps = problem.weights, problem.base_means, problem.sensitivities
        for _ in range(600):
            theta = p @ (m + eps * theta)  # the minimiser of f(., theta)
        tests[f"Var(m) = {case[0]:g}, Var(eps) = {case[1]:g}"] = identical([theta, p @ m / (1 - p @ eps)], 100.0)
    slope = {mean: 10 + mean * np.array([0.0, -100.0, 1e3]) - [0.0, -100.0, 1e3] for mean in (1.0, 1.1)}
    for mean, gaps in slope.items():
        ours = f"Phi(theta) - theta at 0, -100 and 1000: {', '.join(f'{gap:.3g}' for gap in gaps)}"
        tests[f"epsbar = {mean:g}"] = exact(bool((np.abs(gaps) > 1e-9).all()), ours)
    return every(tests).refuted(
        "The formula holds and there is no stable point at epsbar = 1; for epsbar > 1 it gives one all the same: with "
        "epsbar = 1.1, Phi(-100) = 10 - 110 = -100. It does not attract, but it meets theta = Phi(theta)."
    )


# --- The runs --------------------------------------------------------------------------------------------------------


@judge("fig1-converges-full", scheme="full")
@judge("fig1-converges-I", scheme="I")
@judge("fig1-converges-II", scheme="II")
def converges(study, scheme):
    ends = [_gaussian.curve(result, 1.0)[1][-1] for result in found(study, scheme=scheme)]
    limit = 0.05 * (100 - START)
    return superiority(ends, np.full(len(ends), limit), higher=False, published="converges to the PS solution")


@judge("fig1-similar-full-I", pair=("full", "I"))
@judge("fig1-similar-full-II", pair=("full", "II"))
@judge("fig1-similar-I-II", pair=("I", "II"))
def similar(study, pair):
    curves = [np.log([_gaussian.curve(result)[1] for result in found(study, scheme=s)]) for s in pair]
    at = E * _gaussian.curve(found(study, scheme=pair[0])[0])[0]
    tests = {
        f"log distance after {t:,} iterations": agreement(a, b, float(np.log(1.25)))
        for t, a, b in zip(at, curves[0].T, curves[1].T, strict=True)
    }
    exactly = np.sqrt(law(pair[0]).at(at) / law(pair[1]).at(at))
    return everywhere(tests).because(
        f"Exact moments: ratio {exactly.min():.3g} to {exactly.max():.3g}. The means are equal; late in the run the "
        "variance of the sample of clients is most of the distance under partial participation."
    )


# --- Which scheme is faster ------------------------------------------------------------------------------------------


@judge("fig1-ii-fastest")
def fastest():
    at = np.arange(1500, _gaussian.T + 1, 1500)
    tests = {f"II against {s}": smaller(law("II").at(at), law(s).at(at)) for s in ("I", "full")}
    return every(tests).refuted(
        "D10: the means are equal, and the variances are ordered full < II < I at every aggregation for any step; what "
        "was seen against full participation can only be a fluctuation."
    )


@judge("fig1-ii-better-than-i")
def better():
    at = np.arange(E, _gaussian.T + 1, E)
    return smaller(law("II").at(at), law("I").at(at))


@judge("fig1-lowest-bound")
def lowest():
    tests = {}
    for delta in (4 / 45, 1 / 18):
        own = Constants(_gaussian.problem(), delta)
        bounds = {s: own.bound(s, E, K) for s in SCHEMES}
        for s in ("I", "II"):
            name = f"delta = {delta:.3g}, full against {s}"
            tests[f"B, {name}"] = ordered([bounds["full"].B, bounds[s].B], increasing=True)
            tests[f"T_epsilon, {name}"] = ordered([bounds["full"].T(1e-2), bounds[s].T(1e-2)], increasing=True)
    return every(tests)


@judge("b1-above-b2")
def constants():
    own = Constants(_gaussian.problem(), 4 / 45)
    gaps = [own.bound("I", E, k).B - own.bound("II", E, k).B for k in range(2, _gaussian.CLIENTS + 1)]
    ours = f"B_1 - B_2 from {min(gaps):.4g} to {max(gaps):.4g} for K = 2 to 25"
    return exact(min(gaps) > 0, ours).because("1/K - (N - K)/(K(N - 1)) = (K - 1)/(K(N - 1)).")


def figure(study):
    rounds = int(study.runs[0][0]["rounds"])
    panel = {
        _gaussian.SCHEMES[s]: _gaussian.series(
            found(study, scheme=s), path(_gaussian.problem(), inverse(), E, rounds, s, K).squared[:, -1], E
        )
        for s in SCHEMES
    }
    at = E * np.arange(rounds // 10, rounds + 1)
    panel["1/T"] = plots.Series(at, law("II").squared[-1, -1] * at[-1] / at, "guide")
    return plots.panels({"": panel}, *_gaussian.AXES, _gaussian.LINES)

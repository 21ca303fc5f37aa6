"""P-FedAvg, figure 2: how often to aggregate (E), K = 20, Var(m) = 0.6, Var(eps) = 0.1.

Sigma, start and step are those of the authors' code, since the paper gives none.
"""

import _gaussian
import numpy as np
from _gaussian import BETA, GAMMA, TENTH, T, smaller, standard
from _theory import Constants

import fedsim as fs
from fedsim.reproduce import Outcome, every, exact, exact_range, found, judge, ordered, rate, repeats, stream

K, ITERATIONS = 20, 5000
EVERY = [1, 5, 10, 50]
paper = {"local_steps": EVERY, "scheme": ["I", "II"], "chosen": K}
quick = {"local_steps": EVERY, "scheme": ["I", "II"], "chosen": K, "replicas": 1, "seed": repeats(5)}
full = {"local_steps": EVERY, "scheme": ["I", "II"], "chosen": K, "replicas": 20, "seed": repeats(5)}
NAMES = {"full": "theorem 3.1", "I": "theorem 3.2", "II": "theorem 3.3"}
EPSILON = 1e-2
LARGE, SMALL = 1000.0, 0.01  # C, the time of a communication over that of a computation
WIDE = np.unique(np.concatenate([np.arange(1, 51), np.geomspace(50, 1000, 20).astype(int)]))


def scenario(
    *, local_steps: int = 5, scheme: str = "I", chosen: int = K, replicas: int = 1, seed: int = 0
) -> fs.Scenario:
    step, number = fs.schedules.inverse_time(BETA, GAMMA), stream("p-fedavg/fig2", local_steps, scheme, seed)
    rounds = ITERATIONS // local_steps
    return _gaussian.scenario(_gaussian.problem(), step, local_steps, rounds, scheme, chosen, replicas, number)


def law(E: int, scheme: str):
    return standard((0.6, 0.1), E, scheme, K)


def compared(pairs: list[tuple[int, int]], scheme: str) -> Outcome:
    """Each E against another at the same iterations, from a tenth of the run on."""
    return every(
        {f"E = {a} over E = {b}": smaller(law(a, scheme).at(TENTH), law(b, scheme).at(TENTH)) for a, b in pairs}
    )


@judge("fig2-larger-e-I", scheme="I")
@judge("fig2-larger-e-II", scheme="II")
def larger(scheme):
    return compared([(5, 1), (10, 1)], scheme).because(
        f"From {TENTH[0]:,} to {T:,} iterations, the same times as for E = 50. Larger E moves the mean faster and past "
        "theta_PS, and samples clients that are further apart, so the order changes on the way."
    )


@judge("fig2-e-50-I", scheme="I")
@judge("fig2-e-50-II", scheme="II")
def too_large(scheme):
    return compared([(5, 50), (10, 50)], scheme).because(f"From {TENTH[0]:,} to {T:,} iterations.")


@judge("fig2-deviation")
def deviation():
    at = TENTH - 1
    return every(
        {
            f"scheme {s}, E = 5 over E = 50": smaller(law(5, s).consensus.ravel()[at], law(50, s).consensus.ravel()[at])
            for s in ("I", "II")
        }
    )


# --- The choice of E, by the bounds (section 3.3) --------------------------------------------------------------------


def bounds(values, scheme: str):
    own = Constants(_gaussian.problem(), 4 / 45)
    return [own.bound(scheme, int(E), K) for E in values]


def exact_iterations(E: int, scheme: str, level: float = 1.0) -> float:
    """Iterations to E |theta - theta_PS|^2 <= level for good, by exact moments with the authors' step."""
    above = np.flatnonzero(law(E, scheme).squared[:, -1] > level)
    return float(E * (above[-1] + 2)) if above[-1] + 1 < T // E else np.inf


@judge("e-b-constant")
def almost_constant():
    tests = {}
    for scheme, name in NAMES.items():
        B = [bound.B for bound in bounds(range(1, 51), scheme)]
        from_two = max(B[1:]) / min(B[1:])
        found = exact_range(max(B) / min(B), high=1.1, name="largest over smallest ")
        tests[name] = found.because(f"From E = 2 on {from_two:.3g}.")
    return every(tests).refuted(
        "B_1 and B_2 have the term c_5 c_6 (1/K) or c_5 c_6 (N - K)/(K (N - 1)), and c_6 = (2E^2 + 3E + 1) log(E + 1) "
        "is not compensated by the first step; B_0 is nearly constant from E = 2 on, and 2 sigma^2 at E = 1, where "
        "log E = 0."
    )


@judge("e-gamma-order")
def gamma_order():
    at = np.unique(np.geomspace(10, 1000, 30).astype(int))
    return every(
        {n: rate(at, [b.gamma / np.log(E) for b, E in zip(bounds(at, s), at, strict=True)], at_most=2.05)
         for s, n in NAMES.items()}
    )  # fmt: skip


@judge("e-iterations-grow")
def iterations_grow():
    tests = {n: ordered({E: bounds([E], s)[0].T(EPSILON) for E in EVERY}, increasing=True) for s, n in NAMES.items()}
    ours = {s: [exact_iterations(E, s) for E in EVERY] for s in ("I", "II")}
    shown = "; ".join(f"scheme {s}: {', '.join(f'{t:,.0f}' for t in own)}" for s, own in ours.items())
    return every(tests).because(
        f"Exact iterations to E|theta - theta_PS|^2 <= 1 with the authors' step, E = 1, 5, 10, 50: {shown} (inf: not "
        f"within {T:,})."
    )


@judge("e-aggregations")
def aggregations():
    tests = {}
    for scheme, name in NAMES.items():
        needed = np.array([b.T(EPSILON) / E for b, E in zip(bounds(WIDE, scheme), WIDE, strict=True)])
        grows = np.diff(needed) > 0
        turns = bool(grows[0] and not grows[-1])
        shown = f"{needed[0]:.3g} at E = 1, {needed[1]:.3g} at 2, {needed[-1]:.3g} at {WIDE[-1]}"
        tests[name] = exact(turns, shown)
    return every(tests).refuted(
        "T_epsilon is of order E^2 log E by the sentence before, so T_epsilon/E is of order E log E and never "
        "decreases for E up to 1000, nor later."
    )


def best_E(scheme: str, C: float) -> int:
    total = [b.T(EPSILON) * (1 + C / E) for b, E in zip(bounds(WIDE, scheme), WIDE, strict=True)]
    return int(WIDE[int(np.argmin(total))])


def exact_total(C: float) -> str:
    total = {E: exact_iterations(E, "II") * (1 + C / E) for E in EVERY}
    return "Exact total time to E|theta - theta_PS|^2 <= 1, scheme II, authors' step: " + ", ".join(
        f"E = {E} {t:.3g}" for E, t in total.items()
    ) + "."  # fmt: skip


@judge("e-slow-communication")
def slow():
    tests = {n: exact(1 < best_E(s, LARGE) < WIDE[-1], f"best E {best_E(s, LARGE)}") for s, n in NAMES.items()}
    proof = (
        "The bounds' T_epsilon (1 + C/E) increases in E for every C, since T_epsilon grows faster than E; E = 1 is "
        "best, not a middle value."
    )
    return every(tests).refuted(proof).because(f"C = {LARGE:g}. {exact_total(LARGE)}")


@judge("e-fast-communication")
def fast():
    tests = {n: exact(best_E(s, SMALL) == 1, f"best E {best_E(s, SMALL)}") for s, n in NAMES.items()}
    return every(tests).because(f"C = {SMALL:g}. {exact_total(SMALL)}")


def figure(study):
    def series(E: int, scheme: str):
        values = law(E, scheme).squared[: ITERATIONS // E, -1]
        return _gaussian.series(found(study, local_steps=E, scheme=scheme), values, E)

    return _gaussian.figure("E", EVERY, series)

"""FA-HMC's bounds on Gaussian clients: the printed steps and orders, and the exact numbers that they bound."""

from dataclasses import replace
from functools import cache

import numpy as np
from _moments import Coupling, Setting, applied, then

EPSILONS, DIMS, LOCAL, LEAPS = np.geomspace(0.01, 1.0, 5), [2, 10, 100, 1000], [1, 3, 10, 30, 100], [1, 4, 16, 64]
AXES = {
    "1/epsilon": ("epsilon", EPSILONS, 1 / EPSILONS),
    "d": ("d", DIMS, np.array(DIMS)),
    "T": ("T", LOCAL, np.array(LOCAL)),
    "K": ("K", LEAPS, np.array(LEAPS)),
}
REGIMES = {  # rho, sigma_g: which term of the theorem is the largest
    "exact gradients, rho = 1": {},
    "rho = 0": {"rho": 0.0},
    "noisy gradients": {"sigma": 5.0},
    "both": {"rho": 0.5, "sigma": 1.0},
}
CLIENTS = [2, 4, 8, 16]


def along(base: Setting, axis: str) -> list[Setting]:
    name, values, _ = AXES[axis]
    return [replace(base, **{name: type(getattr(base, name))(value)}) for value in values]


def step(s: Setting, root_of_T: bool = False) -> float:
    """The printed (K eta)^2 over C."""
    terms = [1 / s.problem().large, s.epsilon / (np.sqrt(s.d * s.T) if root_of_T else np.sqrt(s.d) * s.T)]
    if s.rho < 1:
        terms.append(s.epsilon**2 / (s.d * s.T**2 * (1 - s.rho) * s.N))
    if s.sigma:
        terms.append(s.epsilon**2 * s.K / (s.d * s.sigma**2 / s.N))
    return float(min(terms))


def vanilla(s: Setting, gamma):
    """rho = 1 - gamma/N and sigma_g^2 = K gamma of proposition 4.3, limited to what rho allows."""
    return {"rho": np.maximum(0.0, 1 - gamma / s.N), "sigma": np.sqrt(s.K * gamma)}


CS = np.geomspace(1e-3, 1.0, 500)


@cache
def constant(s: Setting, which: str = "theorem") -> float:
    """The largest C up to 1 such that this and all smaller ones reach W2 = epsilon."""
    gamma = CS * step(s, which == "root of T")
    own = s.rounds(gamma, **(vanilla(s, gamma) if which == "proposition" else {}))
    reached = np.logical_and.accumulate(own.limit() <= s.epsilon)
    return float(CS[reached][-1]) if reached.any() else 0.0


def grid(base: Setting) -> list[Setting]:
    return [
        replace(base, epsilon=float(e), d=d, T=T, K=K) for e in EPSILONS for d in DIMS for T in LOCAL for K in (1, 5)
    ]


@cache
def iterations(s: Setting, which: str = "theorem") -> float:
    """Iterations to W2 = epsilon with the printed step and one C for all settings of the regime."""
    base = replace(s, epsilon=0.1, d=10, T=10, K=5, N=2)
    gamma = one_constant(base, which) * step(s)
    own = s.rounds(np.array(gamma), **(vanilla(s, gamma) if which == "proposition" else {}))
    return float(s.T * own.rounds_to(s.epsilon))


@cache
def one_constant(base: Setting, which: str) -> float:
    """Half of the constant that all settings of the grid and four numbers of clients allow."""
    others = [replace(base, N=N) for N in CLIENTS]
    return min(constant(s, which) for s in [*grid(base), *others, *along(base, "K")]) / 2


def logarithm(s: Setting) -> float:
    return float(np.log(s.d / s.epsilon**2))


def order(s: Setting) -> float:
    """The printed order of the iterations."""
    rest = s.T**2 * (step(s) + (1 - s.rho) * s.N) + s.sigma**2 / s.N / s.K
    return s.d * logarithm(s) / s.epsilon**2 * rest


def needed_constant(s: Setting, gamma: float) -> float:
    """The constant that theorem 4.4 needs: the largest over t of what the contraction leaves, over eta^2 Delta."""
    problem = s.problem()
    c = Coupling(problem, np.sqrt(gamma) / s.K, s.K, s.T, s.rho, s.sigma)
    state = c.start()
    first, factor, gaps = c.gap(state), 1 - problem.small * gamma / 4, []
    B = c.gradients(state)
    for t in range(200):
        state = applied(c.step, state)
        gaps.append(c.gap(state) - factor**t * first)
        B = np.maximum(B, c.gradients(state))
        if (t + 1) % s.T == 0:
            state = applied((c.average, np.zeros(s.N + 1), 0 * c.average), state)
    whole = c.round
    for _ in range(60):
        whole = then(whole, whole)
    gaps.append(c.gap(applied(whole, state)))
    B = s.d * np.maximum(B, c.gradients(applied(whole, state)))
    bias = (problem.w @ B) / problem.large * gamma + s.N * (1 - s.rho) * s.d / problem.large
    delta = s.T**2 * s.K**2 * bias + s.K * (problem.w**2).sum() * s.sigma**2 * s.d
    return max(gaps) * s.d / (gamma / s.K**2 * delta)


def delta(s: Setting, gamma: float) -> float:
    """Delta~ of proposition J.1."""
    return s.d * (s.T**2 * (gamma + (1 - s.rho) * s.N) + s.sigma**2 / s.N / s.K)


@cache
def dynamic(s: Setting, epsilon: float) -> float:
    """Iterations to E |theta - theta^pi|^2 = epsilon^2 under the schedule of proposition J.1, in complete rounds."""
    problem = s.problem()
    first = s.d * Coupling(problem, 0.1, s.K, s.T, s.rho, s.sigma).gap(Coupling(problem, 0.1, 1, 1, 1, 0).start())
    logs = np.log(s.d) ** 2
    square = min(first / (8 * logs * delta(s, step(replace(s, epsilon=epsilon))) * problem.large), 1 / problem.large)
    epoch = int(np.ceil(-np.log(8) / (s.T * np.log(1 - problem.small * square / 4))))  # rounds
    state, done = None, 0
    for _ in range(60):
        c = Coupling(problem, np.sqrt(square) / s.K, s.K, s.T, s.rho, s.sigma)
        state = c.start() if state is None else state
        powers = [c.round]
        while 2 ** len(powers) <= epoch:
            powers.append(then(powers[-1], powers[-1]))
        left, at = epoch, state
        for power in range(len(powers) - 1, -1, -1):  # the gap decreases within an epoch
            if 2**power > left:
                continue
            later = applied(powers[power], at)
            if s.d * c.gap(later) > epsilon**2:
                at, left = later, left - 2**power
        if left:
            return s.T * (done + epoch - left + 1)
        state, done = at, done + epoch
        square, epoch = square / 2, 2 * epoch
    return np.inf


@cache
def fixed(s: Setting, epsilon: float) -> float:
    """Iterations to the same with the best constant step, in complete rounds."""
    problem, best = s.problem(), np.inf
    gammas = np.geomspace(1e-10, 1.0, 141) / problem.large
    for _ in range(2):
        found = {gamma: constant_step(s, epsilon, gamma) for gamma in gammas}
        at = min(found, key=lambda gamma: found[gamma])
        best, gammas = min(best, found[at]), np.minimum(at * np.geomspace(0.85, 1.18, 41), 1 / problem.large)
    return best


def constant_step(s: Setting, epsilon: float, gamma: float) -> float:
    c = Coupling(s.problem(), np.sqrt(gamma) / s.K, s.K, s.T, s.rho, s.sigma)
    powers = [c.round]
    for _ in range(40):
        powers.append(then(powers[-1], powers[-1]))
    if s.d * c.gap(applied(powers[-1], c.start())) > epsilon**2:
        return np.inf
    state, done = c.start(), 0
    for power in range(len(powers) - 1, -1, -1):
        later = applied(powers[power], state)
        if s.d * c.gap(later) > epsilon**2:
            state, done = later, done + 2**power
    return s.T * (done + 1)

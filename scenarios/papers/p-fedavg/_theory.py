"""The constants of P-FedAvg's theorems 3.1 to 3.3 and D.5 and D.8, as printed, on Gaussian clients (mu = L = 1)."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Bound:
    """E |thetabar^t - theta_PS|^2 <= v / (gamma + t) with the step beta / (t + gamma)."""

    B: float
    beta: float
    gamma: float
    v: float

    def at(self, t: np.ndarray) -> np.ndarray:
        return self.v / (self.gamma + t)

    def T(self, epsilon: float) -> float:
        """Return v / epsilon - gamma, the iterations that suffice."""
        return self.v / epsilon - self.gamma


class Constants:
    """The constants of a PerformativeMean, of delta > 0 and of the start; `sigma` and `varsigma` are the least ones."""

    def __init__(self, problem, delta: float, start: float = 10.0) -> None:
        p, eps, self.N = problem.weights, problem.sensitivities, problem.clients
        self.ps = float(problem.performatively_stable()[0])
        mean, largest = float(p @ eps), float(eps.max())
        slope = eps - mean  # grad f - grad f_i = slope (theta - theta_PS) + level
        level = problem.base_means - p @ problem.base_means + slope * self.ps
        self.sigma2, self.varsigma2 = problem.sigma**2, float((slope**2 + level**2).max())
        self.mu = 1 - (1 + delta) * mean
        self.first = (start - self.ps) ** 2
        self.c1 = (1 + largest) ** 2 / (2 * delta * mean)
        self.c2 = 4 * (self.sigma2 + (1 + largest) ** 2)
        self.c3 = 6 * (2 * self.sigma2 + 3 * (1 + largest) ** 2)
        s, h = self.sigma2, self.varsigma2
        self.c4 = 16 * s + 12 * h + (8 * s + 12 * h) / self.first
        self.c5 = (48 * s + 36 * h) * self.first + 24 * s + 36 * h

    def bound(self, scheme: str, E: int, K: int = 20, printed: bool = False) -> Bound:
        """Return theorem 3.1, 3.2 or 3.3; `printed`: c_5 in theorem 3.3's gamma, which is read as c_3 (D6)."""
        full = scheme == "full"
        logs = (2 * E**2 - E) * np.log(E) if full else (2 * E**2 + 3 * E + 1) * np.log(E + 1)
        eta = self.mu / (2 * self.sigma2 + (self.c1 * self.c3 + self.c2 / 6) * self.c4 * logs)
        sampled = {"full": 0.0, "I": 1 / K, "II": (self.N - K) / (K * (self.N - 1))}[scheme]
        B = 2 * self.sigma2 + (4 * self.c1 * eta + 4 * self.c2 * eta**2 + sampled) * self.c5 * logs
        size = 4 * E**2 + (2 * E if full else 10 * E + 6)
        within = self.c5 if printed else self.c3
        gamma = max(2 / (self.mu * eta), E, 2 / self.mu * np.sqrt(size * within))
        return Bound(B, 2 / self.mu, gamma, max(4 * B / self.mu**2, gamma * self.first))

    def bounded_gradients(
        self, scheme: str, E: int, K: int, G2: float, last: float, gamma: float, derived: bool = False
    ) -> Bound:
        """Return theorem D.5 or D.8 with E |gradient|^2 <= G2 and Delta_1 = `last`, beta = 2/mu~.

        `derived`: c_7 and the denominator as the proofs derive them, in place of the printed ones (D6).
        """
        beta = 2 / self.mu
        c7 = 4 * (E - 1) * (E - 1 if derived else 1) * G2
        sampled = {"full": 0.0, "I": 4 / K, "II": 4 * (self.N - K) / (K * (self.N - 1))}[scheme] * E**2 * G2
        noise = 2 * self.sigma2 + sampled
        below = beta * (self.mu if derived else 1.0) - 1
        v = (self.c2 * c7 * beta**4 / gamma**2 + self.c1 * c7 * beta**3 / gamma + noise * beta**2) / below
        return Bound(noise, beta, gamma, max(v, (gamma + 1) * last))

    def gamma_d(self, E: int) -> float:
        """Return a gamma for which beta = 2/mu~ keeps the conditions of lemmas D.4 and D.7."""
        beta = 2 / self.mu
        return max(4 * beta, E, beta * self.c2 / self.mu, beta)

"""Privacy of Private FedPAQ: equations 13 to 16 and 51 of its paper.

    sigma = Delta_f sqrt(2 ln(1.25 / delta)) / epsilon               the Gaussian mechanism alone       (13)
    ln(1 + (1 - (1 - b/n)^E) (e^epsilon - 1)) <= 2 g epsilon         E batches of b, epsilon <= 1       (15)
    sigma = Delta_f sqrt(2 ln(1.25 g / delta)) / (epsilon / (2 g))   g = E b / n, epsilon in total      (16)
    Delta_f = 4 eta_k E C                                            equation 51                        (51)

All of this is for one client in one round, without a claim for several (E6); the accountant covers these. The last
step of (15) and the Gaussian mechanism both need epsilon / (2 g) <= 1, which `valid` reports (E5).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import check_array, check_choice
from fedsim.privacy.accountant import Guarantee, Mechanism, amplified, check
from fedsim.rng.elementary import log64

PAPER, TIGHT = 4.0, 2.0  # Delta_f in units of C sum_t eta_t, a client's largest distance in a round


def sensitivity(kind: str, clip: float, steps: float) -> float:
    """Return Delta_f for a round whose step sizes sum to `steps`: "paper" as in (51), or "tight".

    Two trajectories from one point, each of length C sum_t eta_t at most, end at most 2 C sum_t eta_t apart: half of
    (51).
    """
    return _units(kind) * clip * steps


def gaussian_sigma(sensitivity: float, epsilon: float, delta: float) -> Any:
    """Return equation 13: the Gaussian mechanism, without amplification."""
    return sensitivity * np.sqrt(2 * log64(np.asarray(1.25 / delta, np.float64))) / epsilon


def noise_sigma(sensitivity: float, epsilon: float, delta: float, fraction: float = 1.0) -> Any:
    """Return equation 16: the Gaussian mechanism (13) at epsilon / (2 fraction) and delta / fraction."""
    return gaussian_sigma(sensitivity, epsilon / (2 * fraction), delta / fraction)


def amplified_epsilon(epsilon: float, share: float, batches: int = 1) -> float:
    """Return the first line of (15), for a round of `batches` minibatches with a fraction `share` of the rows each.

    The printed 1 - (1 - b/n)^E is for E batches drawn independently. One subset that is split into
    batches, as in Algorithm 2 and in this library (E7), is one batch of the fraction g = E b / n, with slightly less
    amplification.
    """
    check("privacy.fedpaq.amplified_epsilon", 1, share=share)
    return amplified(epsilon, 1 - (1 - share) ** batches)


def guarantee(epsilon: float, delta: float, fraction: npt.ArrayLike) -> Guarantee:
    """Return the guarantee of (16) for one client in one round; `fraction` is g, one number or one per client."""
    where = "privacy.fedpaq.guarantee"
    shares = check_array(f"{where}(fraction)", fraction)
    check(where, 1, delta=delta, fraction=float(shares.min()) if shares.size else math.nan)
    check(where, math.inf, epsilon=epsilon)
    base = float(epsilon / (2 * shares.min()))
    note = "for one client in one round, without a claim for several"
    if base > 1:
        note += f"; epsilon / (2 fraction) = {base:.3g} is above 1, where the proof does not hold"
    return Guarantee(epsilon, delta, base, base <= 1, note)


def mechanism(*, epsilon: float, delta: float, sizes: Array, used: Array, kind: str = "paper") -> Mechanism:
    """Return the mechanism of a visit: one Gaussian mechanism on `used` = E b of the client's rows.

    Noise and sensitivity are both proportional to the step size, so that their ratio is the same in every round. The
    ratio is taken to the tight sensitivity, whichever the noise was made for.
    """
    rows, used = np.asarray(sizes), np.asarray(used)
    multiplier = noise_sigma(_units(kind) / TIGHT, epsilon, delta, used / rows)
    return Mechanism(rows, used, multiplier, lambda round: np.ones(1), True)


def _units(kind: str) -> float:
    check_choice("sensitivity={!r}", kind, ("paper", "tight"))
    return PAPER if kind == "paper" else TIGHT

"""Privacy of FA-LD: the theorem of its paper, and the mechanism of a visit.

`guarantee` is theorem G.3 of Deng, Zhang, Ma, Song and Lin (UAI 2024), whose scheme II is theorem 6.1, as
printed:

    eta <= tau (1 - rho^2) g^2 min p / (Delta^2 ln(1.25 / d0))                                             (57)
    e1 = 2 Delta sqrt(eta ln(1.25 / d0) / (tau (1 - rho^2) min p))                                         (56)
    eK = e1 min{sqrt(2 K ln(1 / d1)) + K (e^e1 - 1), K}                                                    (58)
    et = ln(1 + a (e^eK - 1)),   a = 1 - (1 - 1/N)^S in scheme I, S / N in scheme II                       (62)
    dt = (S / N) (K g d0 + d1) in scheme II                                                                (63)
    dt = sum_{s=1..S} C(S, s) N^-s (1 - 1/N)^(S-s) (e^eK - 1) / (e^(eK/s) - 1) D_s in scheme I,
         D_s = 1.25 K g (d0 / 1.25)^(1/s^2) + d1
    epsilon = et min{sqrt(2 R ln(1 / d2)) + R (e^et - 1), R},   delta = R dt + d2,   R = T / K rounds      (64)

Differs from paper: scheme I draws with p_c, so that 1/N becomes the largest p_c where the clients differ (A17).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import as_float, check_array, check_choice, check_float, check_int
from fedsim.errors import InvalidInput
from fedsim.privacy.accountant import Guarantee, Mechanism, amplified, check, composed
from fedsim.schedules import Constant, StepSize, steps_of
from fedsim.text import short_str


def guarantee(
    *,
    step_size: float,
    local_steps: int,
    rounds: int,
    weights: npt.ArrayLike,
    sensitivity: float,
    drawn: int,
    scheme: str = "II",
    temperature: float = 1.0,
    correlation: float = 0.0,
    fraction: float = 1.0,
    delta0: float,
    delta1: float = 0.0,
    delta2: float = 0.0,
) -> Guarantee:
    """Return the guarantee of the theorem for a complete run with secret participation.

    `weights` are all clients' p_c, of which `drawn` take part in a round; full participation is scheme "II" with
    `drawn` = N. `sensitivity` bounds |grad l(theta; x) - grad l(theta; x')| over all theta and rows, `fraction` is the
    fraction of a client's rows in a minibatch. `delta1` and `delta2` are the cost of advanced composition within a
    round and over rounds; 0 stands for plain sums. For varying step sizes give the largest.
    """
    where = "privacy.fald.guarantee"
    p = check_array(f"{where}(weights)", weights, 1, finite=True)
    if not p.size or p.min() <= 0 or p.max() > 1:
        raise InvalidInput(f"{where}(weights={short_str(weights)}): give all clients' p_c, above 0 and at most 1")
    smallest, largest = float(p.min()), float(p.max())
    check_choice(f"{where}(scheme={{!r}})", scheme, ("I", "II"), "'I' draws with replacement, 'II' without")
    local_steps, rounds = (
        check_int(f"{where}(local_steps={{}})", local_steps),
        check_int(f"{where}(rounds={{}})", rounds),
    )
    drawn = check_int(f"{where}(drawn={{}})", drawn, most=10**6)
    check_float(f"{where}(temperature={{}})", temperature, 0)
    check_float(f"{where}(correlation={{}})", correlation, 0, 1)
    check(where, 1, fraction=fraction, delta0=delta0)
    check(where, math.inf, step_size=step_size, local_steps=local_steps, rounds=rounds, sensitivity=sensitivity)
    check(where, p.size if scheme == "II" else math.inf, drawn=drawn)
    for name, slack in (("delta1", delta1), ("delta2", delta2)):
        if not 0 <= as_float(slack) < 1:
            raise InvalidInput(f"{where}({name}={short_str(slack)}): must be at least 0 and below 1")
    step_size, sensitivity, fraction, delta0 = map(float, (step_size, sensitivity, fraction, delta0))
    noise = float(temperature) * (1 - float(correlation) ** 2)
    if noise == 0:
        why = "temperature = 0" if temperature == 0 else "correlation = 1"
        return Guarantee(math.inf, 0.0, math.inf, False, f"no noise is a client's own: {why}")

    base = sensitivity / fraction * math.sqrt(step_size * math.log(1.25 / delta0) / (noise * smallest))
    visit = composed(2 * fraction * base, local_steps, delta1)
    if scheme == "II":
        share = drawn / p.size
        lost = share * (local_steps * fraction * delta0 + delta1)
    else:
        share = 1 - (1 - largest) ** drawn
        lost = sum(
            _drawn(s, drawn, largest, visit) * (1.25 * local_steps * fraction * (delta0 / 1.25) ** (1 / s**2) + delta1)
            for s in range(1, drawn + 1)
        )
    epsilon, delta = composed(amplified(visit, share), rounds, delta2), rounds * lost + delta2

    limit = fraction**2 * noise * smallest / sensitivity / sensitivity / math.log(1.25 / delta0)
    notes = []
    if step_size > limit:
        notes.append(f"the theorem requires a step_size of at most {limit:.3g}, not {step_size:.3g}")
    if delta >= 1:
        notes.append(f"delta = {delta:.2g} guarantees nothing: it must be below 1")
    return Guarantee(epsilon, delta, base, step_size <= limit, "; ".join(notes))


def mechanism(
    *,
    step_size: StepSize,
    local_steps: int,
    sizes: Array,
    used: Array,
    weights: Array,
    sensitivity: float | None,
    temperature: float = 1.0,
    correlation: float = 0.0,
) -> Mechanism:
    """Return the mechanism of a visit: K Gaussian mechanisms, each on a new minibatch of `used` rows.

    Substituting a row moves a step by at most eta Delta n_c / (m_c p_c) (53), against private noise of standard
    deviation sqrt(2 eta tau (1 - rho^2) / p_c). The shared noise is public and gives no privacy.
    """
    if sensitivity is None:
        raise InvalidInput(
            "privacy.spent(sensitivity=None): FALD does not clip; give the largest change of the gradient of a "
            "row's loss when the row is substituted, that is twice its largest norm"
        )
    check("privacy.spent", math.inf, sensitivity=sensitivity)
    rows, used = np.asarray(sizes), np.asarray(used)
    own = 2 * temperature * (1 - correlation**2) * np.asarray(weights, float)
    with np.errstate(over="ignore"):  # a tiny sensitivity gives an infinite multiplier
        multiplier = used / rows * np.sqrt(own) / sensitivity  # at a step size of 1

    def scales(round: int) -> Array:
        return np.asarray(1 / np.sqrt(steps_of(step_size, round + 1, local_steps)))

    constant = not callable(step_size) or isinstance(step_size, Constant)
    return Mechanism(rows, used, multiplier, scales, constant)


def _drawn(s: int, draws: int, p: float, visit: float) -> float:
    """Return C(S, s) p^s (1 - p)^(S-s) (e^visit - 1) / (e^(visit/s) - 1), computed in logarithms against overflow."""
    if p == 1 and s < draws:
        return 0.0
    log = math.lgamma(draws + 1) - math.lgamma(s + 1) - math.lgamma(draws - s + 1) + s * math.log(p)
    if s < draws:
        log += (draws - s) * math.log1p(-p)
    log += visit - visit / s + math.log(-math.expm1(-visit)) - math.log(-math.expm1(-visit / s))
    return math.exp(log) if log < 700 else math.inf

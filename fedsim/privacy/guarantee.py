"""What a theorem promises, and the rules of arithmetic that the papers' promises have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedsim.errors import InvalidInput, as_float, shown


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy for one row of a client's data being substituted by another."""

    epsilon: float
    delta: float
    base_epsilon: float  # of one Gaussian mechanism before amplification, the largest of all clients
    valid: bool  # whether base_epsilon <= 1, as the proofs ask
    note: str = ""  # what to know before believing it
    clip: float | None = None  # bound on the norm of a row's gradient, where there is one
    sensitivity: float | None = None  # how far one row can move what a client sends in the first round
    sigma: tuple[float, float] | None = None  # standard deviation of its noise then, the least and the most of all


def amplified(epsilon: float, share: float) -> float:
    """ln(1 + share (e^epsilon - 1)): what is left where the row takes part only with probability `share`."""
    if epsilon < 700:
        return math.log1p(share * math.expm1(epsilon))
    return epsilon + math.log(share)  # e^epsilon is beyond floats, and the 1 beside it is nothing


def composed(epsilon: float, times: int, slack: float) -> float:
    """So many uses of one mechanism: advanced composition at a cost of `slack` in delta, or the plain sum."""
    if slack == 0 or epsilon > math.log(2):  # beyond e^epsilon - 1 = 1 the plain sum is the smaller one
        return epsilon * times
    return epsilon * min(math.sqrt(2 * times * math.log(1 / slack)) + times * math.expm1(epsilon), times)


def check(where: str, high: float, **numbers: float) -> None:
    """Refuse a number that is not positive, not finite, or above `high`."""
    for name, value in numbers.items():
        if not 0 < as_float(value) <= high or not math.isfinite(as_float(value)):
            most = f" of at most {high:g}" if math.isfinite(high) else ""
            raise InvalidInput(f"{where}({name}={shown(value)}): must be a positive number{most}")

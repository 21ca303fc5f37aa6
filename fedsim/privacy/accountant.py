"""The Renyi accountant of clients' messages, and shared code of the papers' guarantees.

The Renyi divergences of successive mechanisms add up at every order, also where later mechanisms depend on the output
of earlier ones; the sum is converted to an epsilon at a given delta. Neighbouring data sets differ by one substituted
row. The divergence of a Gaussian mechanism on a subset drawn without replacement is that of `dp_accounting` (Wang,
Balle and Kasiviswanathan, AISTATS 2019, theorem 27), or that of the mechanism without subsampling where this is
smaller. The bound is not tight: for a minibatch that is scaled up to all rows, as in the samplers, it gives about twice
the epsilon of the full gradient under the same noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array
from fedsim.checks import as_float, check_array, check_float
from fedsim.errors import InvalidInput
from fedsim.text import short_repr, short_str

# A curve of these takes 0.2 s, and epsilon is within 2 % of that with all orders up to 1024 (delta of at most 1e-4);
# epsilons below about 0.01 need larger orders and come out too large.
ORDERS = np.array([
    1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128,
    160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024,
])  # fmt: skip
KINDS = 32  # subsampled mechanisms of a run that are computed exactly; more are rounded
GRID = 16  # rounding steps per factor of two
ALL_ROWS = 2**30  # rows of a data set in place of all data sets with the same rounded fraction


@dataclass(frozen=True, eq=False)
class Mechanism:
    """The mechanism of a visit: Gaussian mechanisms, each on a new subset of the client's rows.

    Where the noise varies by round, or there are more than 32 kinds of clients, the multipliers of subsampled
    mechanisms are rounded down and their fractions up, by less than 4.5 %, so that epsilon is an upper bound.
    """

    rows: Array  # (clients,) the number of rows
    used: Array  # (clients,) the number of rows in one mechanism
    multiplier: Array  # (clients,) standard deviation of the noise / sensitivity, at scale 1
    scales: Callable[[int], Array]  # by round: a factor on the multiplier for each mechanism of a visit
    constant: bool  # whether the scales are the same in all rounds

    @property
    def clients(self) -> int:
        return len(self.rows)

    @property
    def kinds(self) -> int:
        """The number of different kinds of clients."""
        return len(self._sorted[0])

    @property
    def kind(self) -> Array:
        """The kind of each client, (clients,)."""
        return self._sorted[1]

    def rdp(self, kind: Array, round: int) -> Array:
        """Return the Renyi divergences of a visit in this round by clients of these kinds, (m, orders)."""
        scales = np.asarray(self.scales(round), float)
        present, where = np.unique(kind, return_inverse=True)
        table = np.empty((len(present), len(ORDERS)))
        for row, (rows, used, multiplier) in enumerate(self._sorted[0][present]):
            table[row] = self._visit(rows, used, multiplier * scales)
        return np.asarray(table[where])

    @cached_property
    def _sorted(self) -> tuple[Array, Array]:
        columns = [np.asarray(c, float) for c in (self.rows, self.used, self.multiplier)]
        code = np.zeros(self.clients, np.int64)
        for column in columns:  # integer codes: sorting rows of three floats takes ten times as long
            values, place = np.unique(column, return_inverse=True)
            code = code * len(values) + place
        _, first, kind = np.unique(code, return_index=True, return_inverse=True)
        return np.stack(columns, axis=1)[first], kind

    def _visit(self, rows: float, used: float, z: Array) -> Array:
        if used < rows and z[0] > 0 and (self.kinds > KINDS or not self.constant):
            z = 2.0 ** (np.floor(GRID * np.log2(z)) / GRID)
            share = 2.0 ** (np.ceil(GRID * np.log2(used / rows)) / GRID)
            rows, used = ALL_ROWS, np.ceil(ALL_ROWS * share)
        total = np.zeros(len(ORDERS))
        for level, times in zip(*np.unique(z, return_counts=True), strict=True):
            total += times * curve(float(level), int(rows), int(used))
        return total


@lru_cache(maxsize=65536)
def curve(multiplier: float, rows: int, used: int) -> Array:
    """Return the Renyi divergences (orders,) of noise `multiplier` x sensitivity on `used` of `rows`."""
    if multiplier == 0:
        return np.full(len(ORDERS), np.inf)
    unsampled = np.asarray(ORDERS / (2 * multiplier * multiplier))
    if used >= rows:
        return unsampled
    dp = _dp_accounting()
    accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp.SampledWithoutReplacementDpEvent(rows, used, dp.GaussianDpEvent(multiplier)))
    return np.asarray(np.minimum(accountant.rdp, unsampled))


def to_epsilon(rdp: Array, delta: float) -> Array:
    """Return the least epsilon for Renyi divergences (..., orders) at this delta, (...).

    Canonne, Kamath and Steinke (NeurIPS 2020), proposition 12, as in `dp_accounting`; 0 where the total variation is at
    most delta, by the inequality of Bretagnolle and Huber.
    """
    bound = rdp + np.array([math.log1p(-1 / a) - math.log(delta * a) / (a - 1) for a in ORDERS.tolist()])
    bound[rdp < (-math.log1p(-(delta**2)) if delta < 1 else math.inf)] = 0.0
    return np.asarray(np.maximum(bound.min(axis=-1), 0.0))


def check_mechanism(where: str, mechanism: object) -> None:
    """Refuse what is not a `Mechanism`."""
    if not isinstance(mechanism, Mechanism):
        remedy = "give a privacy.Mechanism, as an algorithm's `mechanism(problem, sensitivity)` returns one"
        raise InvalidInput(f"privacy.{where}(mechanism={short_repr(mechanism)}): {remedy}")


def epsilons(mechanism: Mechanism, visits: npt.ArrayLike, delta: float) -> Array:
    """Return each client's epsilon after its number of visits, (clients,); 0 for a client without visits."""
    check_mechanism("epsilons", mechanism)
    if not mechanism.constant:
        raise InvalidInput(
            "privacy.epsilons: this noise varies by round, so that counts are not enough; use a privacy.Ledger"
        )
    n = check_array("privacy.epsilons(visits)", visits, axes=1, finite=True, remedy="give a number for each client")[
        :, None
    ]
    if len(n) != mechanism.clients:
        raise InvalidInput(
            f"privacy.epsilons: {len(n)} visits for {mechanism.clients} clients; give one number for each"
        )
    delta = check_float("privacy.epsilons(delta={})", delta, float(np.finfo(float).tiny), 1.0)
    return to_epsilon(np.where(n > 0, np.maximum(n, 1) * mechanism.rdp(mechanism.kind, 0), 0.0), delta)


def _dp_accounting() -> Any:
    try:
        import dp_accounting
        import dp_accounting.rdp
    except ImportError:
        raise InvalidInput(
            "the privacy of minibatches needs dp_accounting: install fedsim-systems[privacy], or use all rows"
        ) from None
    return dp_accounting


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy with respect to substituting one row of a client's data."""

    epsilon: float
    delta: float
    base_epsilon: float  # of one Gaussian mechanism before amplification, the largest over clients
    valid: bool  # whether base_epsilon <= 1, as the proofs require
    note: str = ""  # limits of the guarantee
    clip: float | None = None  # bound on the norm of a row's gradient, if any
    sensitivity: float | None = None  # of a client's message in the first round to one row
    sigma: tuple[float, float] | None = (
        None  # standard deviation of the noise in that message, least and largest over clients
    )


def amplified(epsilon: float, share: float) -> float:
    """Return ln(1 + share (e^epsilon - 1)): amplification where a row takes part with probability `share`."""
    if epsilon < 700:
        return math.log1p(share * math.expm1(epsilon))
    return epsilon + math.log(share)  # e^epsilon overflows, and 1 is negligible beside it


def composed(epsilon: float, times: int, slack: float) -> float:
    """Return the epsilon of `times` uses: advanced composition at a cost of `slack` in delta, or the plain sum."""
    if slack == 0 or epsilon > math.log(2):  # where e^epsilon - 1 > 1 the plain sum is smaller
        return epsilon * times
    return epsilon * min(math.sqrt(2 * times * math.log(1 / slack)) + times * math.expm1(epsilon), times)


def check(where: str, high: float, **numbers: float) -> None:
    """Refuse a number that is not positive, not finite, or above `high`."""
    for name, value in numbers.items():
        if not 0 < as_float(value) <= high or not math.isfinite(as_float(value)):
            most = f" of at most {high:g}" if math.isfinite(high) else ""
            raise InvalidInput(f"{where}({name}={short_str(value)}): must be a positive number{most}")

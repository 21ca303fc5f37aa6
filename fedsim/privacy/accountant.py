"""Renyi differential privacy of what clients send: the currency in which visits add up.

Order by order the Renyi divergences of successive mechanisms add up, however the later ones depend on what
the earlier ones gave away; in the end they are changed into an epsilon at a given delta. Neighbouring data
sets differ by one substituted row. The divergence of a Gaussian mechanism on a subset drawn without
replacement is `dp_accounting`'s (Wang, Balle and Kasiviswanathan, AISTATS 2019, theorem 27), or that of the
mechanism without any subsampling where this is smaller: not looking at a row cannot tell more about it. The
bound is not the last word: of a minibatch that is scaled up to the whole, as in the samplers, it makes about
twice the epsilon of the full gradient under the same noise.

What a theorem promises, and the rules of arithmetic that the papers' promises have in common.
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

# So few that a curve takes two tenths of a second, and so close that epsilon is within 2 % of what every order up to
# 1024 would give (a delta of 1e-4 or less); epsilons below about 0.01 want orders beyond and come out too large.
ORDERS = np.array([
    1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128,
    160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024,
])  # fmt: skip
KINDS = 32  # so many different subsampled mechanisms in a run are taken as they are; more are rounded,
GRID = 16  # to so many steps in every factor of two
WHOLE = 2**30  # rows of the data set that stands for all those with the same rounded share


@dataclass(frozen=True, eq=False)
class Mechanism:
    """What a visit tells of a client's rows: Gaussian mechanisms, each on a fresh subset of them.

    Where the noise varies by round, or clients differ in more than 32 ways, the multipliers of subsampled
    mechanisms are rounded down and their shares up, by less than 4.5 %: epsilon comes out a little too large,
    never too small.
    """

    rows: Array  # (clients,) how many each has
    used: Array  # (clients,) how many of them one mechanism looks at
    multiplier: Array  # (clients,) standard deviation of the noise / sensitivity, at scale 1
    scales: Callable[[int], Array]  # by round: a factor on the multiplier for each mechanism of a visit
    constant: bool  # whether they are the same in all rounds

    @property
    def clients(self) -> int:
        return len(self.rows)

    @property
    def kinds(self) -> int:
        """How many different clients there are."""
        return len(self._sorted[0])

    @property
    def kind(self) -> Array:
        """Which of them each client is, (clients,)."""
        return self._sorted[1]

    def rdp(self, kind: Array, round: int) -> Array:
        """What a visit in this round costs clients of these kinds, (m, orders)."""
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
        for column in columns:  # by whole numbers: sorting rows of three floats takes ten times as long
            values, place = np.unique(column, return_inverse=True)
            code = code * len(values) + place
        _, first, kind = np.unique(code, return_index=True, return_inverse=True)
        return np.stack(columns, axis=1)[first], kind

    def _visit(self, rows: float, used: float, z: Array) -> Array:
        if used < rows and z[0] > 0 and (self.kinds > KINDS or not self.constant):
            z = 2.0 ** (np.floor(GRID * np.log2(z)) / GRID)
            share = 2.0 ** (np.ceil(GRID * np.log2(used / rows)) / GRID)
            rows, used = WHOLE, np.ceil(WHOLE * share)
        total = np.zeros(len(ORDERS))
        for level, times in zip(*np.unique(z, return_counts=True), strict=True):
            total += times * curve(float(level), int(rows), int(used))
        return total


@lru_cache(maxsize=65536)
def curve(multiplier: float, rows: int, used: int) -> Array:
    """Renyi divergences (orders,) of noise `multiplier` x sensitivity on `used` of `rows`; read only."""
    if multiplier == 0:
        return np.full(len(ORDERS), np.inf)
    whole = np.asarray(ORDERS / (2 * multiplier * multiplier))
    if used >= rows:
        return whole
    dp = _dp_accounting()
    accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp.SampledWithoutReplacementDpEvent(rows, used, dp.GaussianDpEvent(multiplier)))
    return np.asarray(np.minimum(accountant.rdp, whole))


def to_epsilon(rdp: Array, delta: float) -> Array:
    """The least epsilon that Renyi divergences (..., orders) give at this delta, (...).

    Canonne, Kamath and Steinke (NeurIPS 2020), proposition 12, as in `dp_accounting`; and 0 where already the
    total variation is at most delta, by the inequality of Bretagnolle and Huber.
    """
    bound = rdp + np.array([math.log1p(-1 / a) - math.log(delta * a) / (a - 1) for a in ORDERS.tolist()])
    bound[rdp < (-math.log1p(-(delta**2)) if delta < 1 else math.inf)] = 0.0
    return np.asarray(np.maximum(bound.min(axis=-1), 0.0))


def check_mechanism(where: str, mechanism: object) -> None:
    if not isinstance(mechanism, Mechanism):
        remedy = "give a privacy.Mechanism, as an algorithm's `mechanism(problem, sensitivity)` returns one"
        raise InvalidInput(f"privacy.{where}(mechanism={short_repr(mechanism)}): {remedy}")


def epsilons(mechanism: Mechanism, visits: npt.ArrayLike, delta: float) -> Array:
    """Each client's epsilon after so many visits, (clients,); who never took part has given nothing away."""
    check_mechanism("epsilons", mechanism)
    if not mechanism.constant:
        raise InvalidInput(
            "privacy.epsilons: this noise varies by round, so that counts do not tell; keep a privacy.Ledger"
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
            raise InvalidInput(f"{where}({name}={short_str(value)}): must be a positive number{most}")

"""Who takes part, and when a round closes: two small pure functions.

`select(view, rng)` names the clients, `close(view)` the instant at which the round ends (inf: keep waiting). A
policy with `batched = True` promises that its `select` also serves all replicas at once: `rng` and `view` then
have a leading replicas axis and the ids come out as (replicas, size). `weighting` names the weights of
`replies.mean`: "p", "normalised", "uniform", "multiplicity" or "scaled"; or `weigh(arrived)` returns them.

Optional: `to_columns`, the policy as columns for the compiled clock; `waits = True`, if `close` closes when no visit is
outstanding and never before: a batched policy then runs on the short path of the compiled clock; `at_least`, how many
clients must be online before a round opens; `history = True` if the policy reads `view.received` or `view.last`:
it then runs on the SimPy clock.

A policy of your own needs `select` and `close`; its replies are weighted by p_c renormalised over the arrived.
`fs.explain("view")` says what it sees, with an example.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy.typing as npt

from fedsim.participation.synchronous import Bernoulli, Buffered, Deadline, First, Full, Uniform, WithReplacement
from fedsim.protocols import View
from fedsim.protocols.participation import Received

__all__ = [
    "Bernoulli",
    "Buffered",
    "Deadline",
    "First",
    "Full",
    "Received",
    "Uniform",
    "View",
    "WithReplacement",
    "bernoulli",
    "buffered",
    "deadline",
    "first",
    "full",
    "uniform",
    "with_replacement",
]


def full() -> Full:
    """Everybody, weighted by p_c."""
    return Full()


def with_replacement(draws: int, at_least: int | None = None) -> WithReplacement:
    """Scheme I: so many draws with probability p_c among those that are on; a client drawn twice runs once and counts
    twice. A round opens only when `at_least` clients are on."""
    return WithReplacement(draws, at_least)


def uniform(size: int, weighting: str | None = None, at_least: int | None = None) -> Uniform:
    """Scheme II: so many different clients, uniformly among those that are on, averaged with 1/size.

    With unequal p_c say how to weigh: "normalised" (p_c over the arrived) or, for optimisers alone, "scaled" (p_c N /
    size: unbiased, but the weights do not sum to one). A round opens only when `at_least` clients are on (None: one).
    """
    return Uniform(size, weighting, at_least)


def bernoulli(probability: npt.ArrayLike) -> Bernoulli:
    """Every client on its own with this probability (one number, or one per client)."""
    return Bernoulli(probability)


def first(replies: int, of: int | None = None, at_least: int | None = None) -> First:
    """Ask `of` clients (None: everybody), close at the first so many replies: over-selection. A round opens only when
    `at_least` clients are on."""
    return First(replies, of, at_least)


def deadline(seconds: float, of: int | None = None, at_least: int | None = None) -> Deadline:
    """Ask `of` clients (None: everybody), close after so many virtual seconds, or when all have answered. A round opens
    only when `at_least` clients are on."""
    return Deadline(seconds, of, at_least)


def buffered(replies: int, of: int | None = None, discount: Callable[[int], float] | None = None) -> Buffered:
    """Asynchronous: `of` clients (None: all) work continuously, the server folds every so many arrivals.

    theta += sum_c w_c s(staleness) (beta_c - theta_{version c started from}), s = `discount`, 1 unless set. No
    stationary law is claimed for the samplers.
    """
    return Buffered(replies, of, discount)

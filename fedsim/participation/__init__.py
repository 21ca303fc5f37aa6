"""Participation policies: which clients a round selects, and when it closes.

A policy has two pure functions: `select(view, rng)` returns the client numbers of the cohort, and `close(view)` the
virtual time at which the round closes (inf: keep waiting). Optional members:

- `weighting`: the weights of `replies.mean`, one of "p", "normalised" (default), "uniform", "multiplicity" and
  "scaled"; or a method `weigh(received)` that returns them.
- `batched = True`: `select` also serves all replicas in one call. `rng` and `view` then have a leading replicas axis,
  and the ids are (replicas, size).
- `to_columns()`: the policy as columns for the compiled clock.
- `waits = True`: `close` closes a round when no visit is outstanding and never before, so that a batched policy can run
  on the short path of the compiled clock.
- `at_least`: the number of clients that must be online before a round opens.
- `history = True`: the policy reads `view.received` or `view.last`, and therefore runs on the SimPy clock.

`fs.explain("view")` shows what a policy sees, with an example.
"""

from __future__ import annotations

from fedsim.participation.asynchronous import Buffered, buffered
from fedsim.participation.synchronous import (
    Bernoulli,
    Deadline,
    First,
    Full,
    Uniform,
    WithReplacement,
    bernoulli,
    deadline,
    first,
    full,
    uniform,
    with_replacement,
)

__all__ = [
    "Bernoulli",
    "Buffered",
    "Deadline",
    "First",
    "Full",
    "Uniform",
    "WithReplacement",
    "bernoulli",
    "buffered",
    "deadline",
    "first",
    "full",
    "uniform",
    "with_replacement",
]

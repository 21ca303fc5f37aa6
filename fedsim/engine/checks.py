"""Refusals before and during a run: timelines that need values too early, and rounds that never close."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from fedsim.arrays import Array
from fedsim.budget import Budget
from fedsim.engine.system import MessageSizes, System
from fedsim.errors import InvalidInput
from fedsim.protocols import Problem, Visitors, has_columns

IDLE_ROUNDS = 1_000  # in a row that spend nothing of what the budget limits, before a run counts as endless
EMPTY_ROUNDS = 4_000  # the same where no client was selected, which a random policy may do
TOO_MANY = 1e9  # rounds to spend the budget
MOST_STEPS = 10**7  # local steps of a visit: minutes of real time, in which nothing is shown or saved


def check_run(system: System, sizes: MessageSizes) -> None:
    """Refuse what no clock can simulate."""
    check_data(system.problem, system.timing_only)
    policy = type(system.policy.wrapped).__name__
    described = system.policy.to_columns() is not None and has_columns(system.policy.wrapped, "policy")
    if system.gossip is not None and not described:
        raise InvalidInput(
            f"the policy {policy} over gossip: its closing rule has no columns, so it does not define when a site "
            "stops waiting for its neighbours; use full(), first(K) or deadline(seconds)"
        )
    name, codec = type(system.algorithm.wrapped).__name__, system.algorithm.codec
    if system.policy.asynchronous and not described:
        raise InvalidInput(
            f"{policy}: asynchronous clients are drawn and aggregated as participation.buffered does it; a `select` or "
            "`close` of its own would never be called; remove it, or use a synchronous policy"
        )
    if system.timing_only and system.budget.target is not None:
        raise InvalidInput(
            f"timing_only=True evaluates no metrics, so Budget(target on {system.budget.target.metric!r}) would never "
            "be reached; give rounds=, bits or seconds="
        )
    if system.timing_only and sizes.depend_on_values:
        raise InvalidInput(
            f"timing_only=True cannot time {name} with {codec}: the length of a reply depends on its values; use a "
            "codec of fixed length such as fs.codecs.QSGD(levels), or run with learning"
        )
    in_step = system.sites.count == 1 or system.sites.every == 1
    if not in_step and sizes.depend_on_values:
        raise InvalidInput(
            f"{name} with {codec}: the length of a reply depends on its values, which are not known in time where "
            "sites are rounds apart; use a codec of fixed length such as fs.codecs.QSGD(levels)"
            + ", or every=1"
            * bool(system.sites.every)
        )


def check_steps(system: System) -> None:
    """Refuse visits whose local steps would never end; `client` is also executed once to measure its reply."""
    steps = float(np.max(system.algorithm.work(Visitors(np.arange(system.population)))))
    if steps > MOST_STEPS:
        name = type(system.algorithm.wrapped).__name__
        raise InvalidInput(f"{name}: a visit has {steps:,.12g} local steps; use at most {MOST_STEPS:,}")


def check_data(problem: Problem, timing_only: bool) -> None:
    """Refuse to learn with a problem that has no data."""
    if not timing_only and problem.timing_only:
        raise InvalidInput(
            f"problems.{type(problem.wrapped).__name__} has no data to compute with; run it with timing_only=True"
        )


def refuse_endless(number: int) -> NoReturn:
    """Refuse a counted round that never closes."""
    raise InvalidInput(
        f"round {number} never closes: some client takes infinitely long; shorten its latency or its compute "
        "time, close with a deadline, or give the Budget seconds="
    )


class IdleRounds:
    """A limit on consecutive rounds that spend nothing of the budget, where the number of rounds is not limited."""

    def __init__(self, budget: Budget, replicas: int) -> None:
        self._least = {name: limit / TOO_MANY for name, limit in budget.limits.items() if name != "epsilon"}
        self._idle = np.zeros(replicas)  # rounds in a row that spent nothing, as a share of those that are allowed

    def after(self, active: Array, columns: dict[str, Array]) -> None:
        """Count a round of these replicas."""
        spent = {**columns, "seconds": columns["closed_s"] - columns["opened_s"]}
        spent["total_bits"] = columns["uplink_bits"] + columns["downlink_bits"] + columns["backhaul_bits"]
        moved = np.any([spent[name] > least for name, least in self._least.items()], axis=0)
        share = np.where(columns["selected"] > 0, 1 / IDLE_ROUNDS, 1 / EMPTY_ROUNDS)
        self._idle[active] = np.where(moved, 0.0, self._idle[active] + share)
        if self._idle[active].max() >= 1.0:
            raise InvalidInput(
                f"the last {IDLE_ROUNDS:,} rounds or more spent next to nothing of what the budget limits, so the run "
                "might never end; add rounds= to the Budget"
            )

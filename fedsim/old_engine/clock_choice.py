"""Which clock keeps time where the compiled one and SimPy both could: whichever is likely to be done first.

Both give the same bits, so this decides how long a run takes and nothing else. The compiled clock is some thirty times
as fast, once its code is there: in this process, in Numba's folder on the disk, or compiled anew, which takes as long
as a few thousand rounds take on SimPy but serves later runs as well. The rule is `is_worth_it`; nobody else has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fedsim.arrays import Arrays
from fedsim.budget import Budget
from fedsim.kernels.found import Found

# Of a visit on SimPy, by the kind of run; where sites gossip, of a message.
VISIT_S = {"alone": 20e-6, "asynchronous": 90e-6, "shared": 150e-6, "gossip": 40e-6}
# What a run may be asked to pay for the compiled code, by where it is found. Compiling takes 17 s of one core, once.
GETTING_S = {Found.LOADED: 0.0, Found.KEPT: 0.2, Found.NOWHERE: 4.0}


def is_worth_it(visits: float, kind: str, found: Callable[[], Found]) -> bool:
    """Whether SimPy would need longer for so many visits than a run is asked to pay for the compiled clock."""
    seconds = visits * VISIT_S[kind]
    return seconds > GETTING_S[Found.NOWHERE] or seconds > GETTING_S[found()]


def expected_visits(
    budget: Budget, each: int, replicas: int, up_bits: int, down_bits: int, site_bits: int = 0
) -> float:  # fmt: skip
    """Of a run with so many visits a round and bits a visit; infinitely many where nobody can tell beforehand.

    Where sites gossip a visit is a message, and its bits are `site_bits`.
    """
    rounds = math.inf if budget.rounds is None else float(budget.rounds)
    for limit, bits in (
        (budget.uplink_bits, up_bits), (budget.downlink_bits, down_bits), (budget.backhaul_bits, site_bits),
        (budget.total_bits, up_bits + down_bits + site_bits),
    ):  # fmt: skip
        if limit is not None and bits:
            rounds = min(rounds, limit / (bits * each) + 1)
    return rounds * each * replicas


def saved_by_compiled(saved: Arrays) -> bool | None:
    """Which clock a checkpoint of continuously working clients is from, which it has to be resumed on; None: either."""
    own = [name.split(".") for name in saved if name.startswith("own.")]
    if any(words[1] == "message" for words in own):
        return True
    return False if any(words[1].isdigit() for words in own) else None

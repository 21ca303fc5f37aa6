"""Whether the chances that generalised QLSD divides by are those with which messages really arrive.

1 / p_i is right for the p_i of the run alone: any other number biases every sample. Where the policy and the devices
settle the chance, it must be that one; where they only bound it (a deadline, devices that go offline), it must not be
above; where they say nothing (buffered rounds, a policy of one's own), it is taken on trust.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.algorithms.qlsd import check_population
from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.participation import Bernoulli, Deadline, First, Full, Uniform, WithReplacement
from fedsim.problems import weights_of

NEAR = 1e-6  # relative


def check_activity(algorithm: Any, problem: Any, policy: Any, devices: Any) -> None:
    """Refuse an `activity` that is surely not the chance of arrival."""
    given: Any = getattr(algorithm, "activity", None)
    if given is None:
        return
    check_population(type(algorithm).__name__, algorithm, problem)
    clients = problem.clients
    selected, settled = _selected(policy, weights_of(problem))
    if selected is None:
        return
    lost, sure = _lost(devices, clients)
    settled, chance = settled and sure, selected * (1 - lost)
    p = np.broadcast_to(np.asarray(given, float), (clients,))
    wrong = np.abs(p - chance) > NEAR * chance if settled else p > chance * (1 + NEAR)
    if not wrong.any():
        return
    c = int(np.argmax(wrong))
    why = f"client {c}'s message arrives with probability {'' if settled else 'at most '}{chance[c]:.6g} here"
    raise InvalidInput(
        f"{type(algorithm).__name__}(activity={p[c]:.6g}): {why}, and dividing by another number biases every sample; "
        f"set activity={_suggested(chance)}, or weighting='count' without activity"
    )


def _selected(policy: Any, weights: Array) -> tuple[Array | None, bool]:
    """The clients' chances to be selected and waited for, (clients,), and whether they are exact or only bounds."""
    one, clients = np.ones(len(weights)), len(weights)
    if isinstance(policy, Full):
        return one, True
    if isinstance(policy, Bernoulli):
        return one * np.asarray(policy.probability), True
    if isinstance(policy, Uniform):
        return one * policy.size / clients, True
    if isinstance(policy, WithReplacement):
        return 1 - (1 - weights) ** policy.draws, True
    if isinstance(policy, (First, Deadline)):
        return one * (policy.size or clients) / clients, False
    return None, False


def _lost(devices: Any, clients: int) -> tuple[Any, bool]:
    """The clients' chances that a visit is lost, and whether that is all that can happen to them."""
    if devices is None:
        return 0.0, True
    if hasattr(devices, "dropout_of"):
        return devices.dropout_of(np.arange(clients)), bool(getattr(devices, "always_available", False))
    return 0.0, not (hasattr(devices, "drop") or hasattr(devices, "next_available"))


def _suggested(chance: Array) -> str:
    if np.ptp(chance) == 0:
        return f"{chance[0]:.6g}"
    return f"({chance[0]:.4g}, {chance[1]:.4g}, ...), one per client"

"""Whether the chances that generalised QLSD divides by are those with which messages really arrive.

1 / p_i is right for the p_i of the run alone: any other number biases every sample. Where the policy and the devices
settle the chance, it must be that one; where they only bound it (a deadline, devices that go offline), it must not be
above; where they say nothing (buffered rounds, a policy of one's own), it is taken on trust. A policy that draws a
number of clients among those online is refused where devices go offline: its chances depend on who else is online.
"""

from __future__ import annotations

import numpy as np

from fedsim.algorithms.common.quantised_langevin import check_population
from fedsim.arrays import Array
from fedsim.errors import InvalidInput
from fedsim.protocols import Algorithm, DeviceModel, Policy, ProblemLike

NEAR = 1e-6  # relative


def check_activity(
    algorithm: Algorithm,
    problem: ProblemLike,
    policy: Policy,
    devices: DeviceModel | None,
    weights: Array,
    count: Array,
) -> None:
    """Refuse an `activity` that is surely not the chance of arrival.

    A client is one of `count` clients at its server or edge, (clients,), and weighs `weights` among them.
    """
    given = algorithm.activity
    if given is None:
        return
    name = type(algorithm.wrapped).__name__
    check_population(name, algorithm.wrapped, problem)
    clients = problem.clients
    if policy.size is not None and devices is not None and not devices.always_available:
        raise InvalidInput(
            f"{name}(weighting='inverse') with devices that go offline: a client's chance to be drawn depends on who "
            "else is online; choose weighting='count' without activity, or bernoulli(p)"
        )
    asked = policy.chance(weights, count)
    if asked is None:
        return
    selected, settled = asked
    lost, sure = _lost(devices, clients)
    settled, chance = settled and sure, selected * (1 - lost)
    p = np.broadcast_to(np.asarray(given, float), (clients,))
    wrong = np.abs(p - chance) > NEAR * chance if settled else p > chance * (1 + NEAR)
    if not wrong.any():
        return
    c = int(np.argmax(wrong))
    why = f"client {c}'s message arrives with probability {'' if settled else 'at most '}{chance[c]:.6g} here"
    raise InvalidInput(
        f"{name}(activity={p[c]:.6g}): {why}, and dividing by another number biases every sample; "
        f"set activity={_suggested(chance)}, or weighting='count' without activity"
    )


def _lost(devices: DeviceModel | None, clients: int) -> tuple[Array | float, bool]:
    """The clients' chances that a visit is lost, and whether that is all that can happen to them."""
    if devices is None:
        return 0.0, True
    dropout = devices.dropout_of(np.arange(clients))
    if dropout is not None:
        return dropout, devices.always_available
    return 0.0, devices.reliable and devices.always_available


def _suggested(chance: Array) -> str:
    if np.ptp(chance) == 0:
        return f"{chance[0]:.6g}"
    return f"({chance[0]:.4g}, {chance[1]:.4g}, ...), one per client"

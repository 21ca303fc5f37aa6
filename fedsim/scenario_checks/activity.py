"""Checks of `activity`, the probabilities that generalised QLSD divides by, against those of the scenario.

Dividing by anything but the probability that a client's message arrives biases every sample. Where the policy and the
devices determine that probability, `activity` must equal it; where they only bound it (a deadline, devices that go
offline), `activity` must not exceed the bound; where they give neither (buffered rounds, a user's own policy),
`activity` is not checked. A policy that selects a number of clients among those online is refused where devices go
offline: its probabilities depend on which other clients are online.
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
    """Refuse an `activity` that is not the probability of arrival.

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
            f"{name}(weighting='inverse') with devices that go offline: the probability that a client is selected "
            "depends on which others are online; choose weighting='count' without activity, or bernoulli(p)"
        )
    selection = policy.chance(weights, count)
    if selection is None:
        return
    selected, exact = selection
    lost, loss_is_exact = _lost(devices, clients)
    exact, chance = exact and loss_is_exact, selected * (1 - lost)
    p = np.broadcast_to(np.asarray(given, float), (clients,))
    wrong = np.abs(p - chance) > NEAR * chance if exact else p > chance * (1 + NEAR)
    if not wrong.any():
        return
    c = int(np.argmax(wrong))
    why = f"client {c}'s message arrives with probability {'' if exact else 'at most '}{chance[c]:.6g} here"
    raise InvalidInput(
        f"{name}(activity={p[c]:.6g}): {why}, and dividing by another number biases every sample; "
        f"set activity={_as_argument(chance)}, or weighting='count' without activity"
    )


def _lost(devices: DeviceModel | None, clients: int) -> tuple[Array | float, bool]:
    """Return the probabilities that visits are lost, and whether visits can be lost in no other way."""
    if devices is None:
        return 0.0, True
    dropout = devices.dropout_of(np.arange(clients))
    if dropout is not None:
        return dropout, devices.always_available
    return 0.0, devices.reliable and devices.always_available


def _as_argument(chance: Array) -> str:
    if np.ptp(chance) == 0:
        return f"{chance[0]:.6g}"
    return f"({chance[0]:.4g}, {chance[1]:.4g}, ...), one per client"

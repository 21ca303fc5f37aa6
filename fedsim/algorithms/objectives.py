"""What the FedAvg family minimises, sum_i p_i f_i of mean losses f_i, and the two ways of averaging towards it.

"mean"    clients descend f_i, the server averages by n_i over the arrived (1/M for equal sizes)
"scaled"  clients descend p_i N f_i, the server averages with 1/M, as the papers' analyses have it
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from fedsim.arrays import Array
from fedsim.errors import InvalidInput, one_of
from fedsim.participation import Arrived
from fedsim.protocols import as_policy


class Weighed(Protocol):
    """What a job, or many of them, must say of its client: numbers, or (jobs, 1)."""

    @property
    def size(self) -> Any: ...
    @property
    def weight(self) -> Any: ...
    @property
    def clients(self) -> int: ...


def check_objective(where: str, objective: str) -> None:
    one_of(f"{where}(objective={{!r}})", objective, ("mean", "scaled"))


def scale(objective: str, job: Weighed, dtype: np.dtype[Any]) -> Array:
    """What makes a summed loss's gradient that of the client's objective: 1 / n_i, or p_i N / n_i."""
    one = 1 / np.asarray(job.size, dtype)
    return np.asarray(one * job.weight * dtype.type(job.clients) if objective == "scaled" else one)


def weigh(where: str, objective: str, arrived: Arrived) -> Array:
    """The server's weights: the policy's own, but a plain uniform() averages by n_i."""
    if objective == "scaled":
        return equally(where, arrived)
    return policy_weights(arrived, arrived.normalised(arrived.p * arrived.multiplicity))


def equally(where: str, arrived: Arrived) -> Array:
    """1/M over the arrived, which already carry their p_i in what they descend."""
    if as_policy(arrived.policy).weighting == "multiplicity":
        raise InvalidInput(
            f"{where}(objective='scaled') with with_replacement(), which draws by p_i, would count p_i twice; "
            "choose objective='mean' or uniform()"
        )
    return np.asarray(1.0 / arrived.counts)


def policy_weights(arrived: Arrived, unsaid: Array) -> Array:
    """The policy's weights, or `unsaid` where it is a uniform() that does not say how to weigh."""
    policy = as_policy(arrived.policy)
    if arrived.policy is None or policy.weighting is None:
        return unsaid
    return np.asarray(arrived.weights if policy.weigh is None else policy.weigh(arrived))

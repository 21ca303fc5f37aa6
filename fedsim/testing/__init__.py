"""The contract suite for parts of your own: `fs.testing.check(MyAlgorithm(...))`.

It returns the requirements that were checked and raises `Broken`, an AssertionError, at the first that is not met.
An answer of another form than its role gives raises InvalidInput, as in a run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsim.errors import InvalidInput
from fedsim.protocols import AlgorithmLike, Codec, DevicesLike, NetworkLike, PolicyLike, ProblemLike, missing
from fedsim.testing.algorithms import check_algorithm, check_algorithm_on_all
from fedsim.testing.contract import Broken
from fedsim.testing.problems import check_problem
from fedsim.testing.small_problems import small_problem
from fedsim.testing.system import check_codec, check_devices, check_network, check_policy
from fedsim.text import short_repr

__all__ = ["Broken", "check", "small_problem"]


def check(subject: object, problem: ProblemLike | None = None) -> list[str]:
    """Check an algorithm, a problem, a policy, devices, a codec or a network.

    Algorithms and policies are tested on `problem`. By default a policy is tested with more clients than it selects,
    and an algorithm on a Gaussian, a logistic and a softmax problem with clients of unequal sizes, on the last two
    unless its `init` refuses them.
    """
    roles: list[tuple[type, Callable[[Any], list[str]]]] = [
        (AlgorithmLike, lambda it: check_algorithm_on_all(it) if problem is None else check_algorithm(it, problem)),
        (PolicyLike, lambda it: check_policy(it, problem)),
        (NetworkLike, check_network),
        (DevicesLike, check_devices),
        (Codec, check_codec),
        (ProblemLike, check_problem),
    ]
    for role, suite in roles:
        if not missing(subject, role):
            return suite(subject)
    raise InvalidInput(
        f"check({short_repr(subject)}): not an algorithm, a problem, a policy, devices, a codec or a network"
    )

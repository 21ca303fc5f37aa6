"""Read-only inputs of users' code, and checks of what it returns.

An array that a client changes in place would change for all jobs in its process and not for those on other machines.
Therefore inputs are read-only views, which cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fedsim.arrays import Array, Arrays
from fedsim.checks import as_array, call_function
from fedsim.errors import InvalidInput
from fedsim.protocols import Algorithm, Received, Replies, Rng
from fedsim.text import short_repr

REMEDY = "return (reply, memory), two dicts of arrays by name"


def locked(array: Array) -> Array:
    """Return a read-only view."""
    view = np.asarray(array).view()  # one number is a scalar
    view.flags.writeable = False
    return view


def all_locked(arrays: Mapping[str, Array]) -> Arrays:
    """Return read-only views of all arrays."""
    return {name: locked(array) for name, array in arrays.items()}


def unlocked(array: Array) -> Array:
    """Return the array behind a view of `locked`: kernels are compiled for writable arrays, and do not change them."""
    base = array.base
    if array.flags.writeable or not isinstance(base, np.ndarray) or base.shape != array.shape:
        return array
    return base if base.dtype == array.dtype and base.strides == array.strides else array


def client_answer(who: str, answer: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a client's reply and memory; refuse anything but two dicts."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise InvalidInput(f"{who} returned {short_repr(answer, 60)}; {REMEDY}")
    for part in answer:
        if not isinstance(part, Mapping) or not all(isinstance(name, str) for name in part):
            raise InvalidInput(f"{who} returned {short_repr(part, 60)} for its reply or its memory; {REMEDY}")
    return dict(answer[0]), dict(answer[1])


def real(who: str, name: str, value: npt.ArrayLike, dtype: np.dtype[Any]) -> Array:
    """Return one named array in the scenario's dtype; refuse what is not numeric."""
    array = as_array(value)
    if array is None:
        raise InvalidInput(f"{who} returned {name}={short_repr(value, 60)}; return an array of real numbers")
    return np.asarray(array, dtype)


def same_shape(who: str, name: str, array: Array, expected: tuple[int, ...]) -> None:
    """Refuse an array of another shape."""
    if array.shape != expected:
        raise InvalidInput(f"{who} returned {name} of shape {array.shape}; it must be {expected}")


def memory_answer(who: str, memory: dict[str, Any], before: Mapping[str, Array]) -> Arrays:
    """Return a client's new memory; refuse other names and shapes than before."""
    out = {}
    for name, value in memory.items():
        if name not in before:
            names = ", ".join(before) or "nothing"
            raise InvalidInput(f"{who} returned memory {name!r}; its memory() has {names}; return only these")
        out[name] = real(who, f"memory {name!r}", value, before[name].dtype)
        same_shape(who, f"memory {name!r}", out[name], before[name].shape)
    return out


def server_of(algorithm: Algorithm) -> Callable[[Arrays, Replies, Rng], Arrays]:
    """Return the server's step, checked at every call unless it is fedsim's own, which the contract suite checks."""
    ours = type(algorithm.wrapped).__module__.startswith("fedsim.algorithms.")
    return algorithm.server if ours else partial(served, algorithm)


def served(algorithm: Algorithm, state: Mapping[str, Array], replies: Replies, rng: Rng) -> Arrays:
    """Return the server's new state; refuse other names and shapes than before."""
    who = f"{type(algorithm.wrapped).__name__}.server"
    new = algorithm.server(all_locked(state), replies, rng)
    if not isinstance(new, Mapping) or not new:
        raise InvalidInput(f"{who} returned {short_repr(new, 60)}; return the new state, a dict of arrays by name")
    out = {}
    for name, value in new.items():
        if name not in state:
            raise InvalidInput(f"{who} returned {short_repr(name)}; the state from init() has {', '.join(state)}")
        out[name] = real(who, name, value, state[name].dtype)
        same_shape(who, name, out[name], state[name].shape)
    return out


def weighed(owner: str, weigh: Callable[[Received], npt.ArrayLike], received: Received) -> Array:
    """Return a policy's or an algorithm's weights; refuse anything but one finite number per reply."""
    policy = "" if received.policy is None else type(received.policy.wrapped).__name__
    who, rows = f"{owner}.weigh" + f" (with {policy})" * (policy not in ("", owner)), len(received.p)
    weights = call_function(who, weigh, received)
    array = as_array(weights)
    if array is None or array.shape != (rows,):
        found = short_repr(weights, 60) if array is None else f"an array of shape {array.shape}"
        raise InvalidInput(f"{who} returned {found}; return one weight for each of the {rows} replies, shape ({rows},)")
    if not np.isfinite(array).all():
        raise InvalidInput(f"{who} returned a weight that is not finite; return finite numbers")
    return np.asarray(array, np.float64)

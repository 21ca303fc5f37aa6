"""The state of a loop as named arrays, for checkpoints and growth."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsim.arrays import Array, Arrays


def flat(state: Any, prefix: str = "") -> Arrays:
    """Return the arrays of a NamedTuple of arrays and of such tuples, by name."""
    out: Arrays = {}
    for name, value in state._asdict().items():
        out |= flat(value, f"{prefix}{name}.") if isinstance(value, tuple) else {f"{prefix}{name}": value}
    return out


def filled(state: Any, arrays: Arrays, prefix: str) -> Any:
    """Return a state of the same kind with other arrays."""
    parts = {name: f"{prefix}.{name}" for name in state._fields}
    nested = {name: value for name, value in state._asdict().items() if isinstance(value, tuple)}
    made = {name: filled(value, arrays, parts[name]) for name, value in nested.items()}
    return state._replace(**made, **{name: arrays[part] for name, part in parts.items() if name not in nested})


def bytes_of(state: Any) -> int:
    return sum(array.nbytes for array in flat(state).values())


def doubled(array: Array) -> Array:
    return np.concatenate([array, np.zeros_like(array)], axis=1)

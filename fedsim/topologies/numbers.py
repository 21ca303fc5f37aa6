"""Checking the numbers that networks are made of: one for all, or one per client."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import as_float_array, check_allocation, check_int, invalid_argument
from fedsim.errors import InvalidInput
from fedsim.network.varying import SLOWEST_BPS, Varying, means_of
from fedsim.text import short_repr

Numbers = float | Sequence[float] | Array
Bandwidths = float | Varying | Sequence[float | Varying] | Array
MOST = 2**32  # clients, as many as a key of the random numbers tells apart
DRAWN_BYTES = 4000  # a client, its node and its edges in a networkx graph, and the routes that are read off it


def count_of(maker: str, name: str, value: object) -> int:
    if not isinstance(value, Integral):
        raise invalid_argument(f"{maker}({name}={{!r}})", value, "give an integer, at least 1")
    return check_int(f"{maker}({name}={{!r}})", value, 1, f"give an integer, at least 1 and below {MOST:,}", MOST - 1)


def nodes_for(maker: str, clients: object) -> int:
    """How many clients, of which every one becomes a node of a graph."""
    count = count_of(maker, "clients", clients)
    remedy = "ask for fewer clients, or use star(), which draws no graph"
    check_allocation(f"{maker}(clients={count:,})", DRAWN_BYTES * count, remedy)
    return count


def column_of(maker: str, name: str, value: Numbers, rows: int) -> Array:
    """One number, or a read-only column of one per client."""
    column = as_float_array(value)
    if column is None:
        raise InvalidInput(f"{maker}({name}={short_repr(value)}): give a number, or one per client")
    if column.shape not in ((), (rows,)):
        raise InvalidInput(f"{maker}({name}=...) has shape {column.shape}: give one number, or {rows} of them")
    if name.endswith("bps"):
        good, right = column >= SLOWEST_BPS, "give positive bit/s, inf for ideal"
    elif name.endswith("loss"):
        good, right = (column >= 0.0) & (column < 1.0), "give a share of what is sent, at least 0 and below 1"
    else:
        good, right = (column >= 0.0) & (column < math.inf), "give seconds, at least 0"
    if not good.all():
        row = int(np.argmin(good))
        where = f"[{row}]" if column.ndim else ""
        raise InvalidInput(f"{maker}({name}{where}={column.flat[row]}): {right}")
    column.flags.writeable = False
    return column


def bandwidths_of(maker: str, name: str, value: Bandwidths, clients: int) -> tuple[Array, dict[int, Varying]]:
    """The same for bandwidths: their means where they vary, and those that do, by client."""
    if isinstance(value, Varying):
        return column_of(maker, name, value.mean_bps, clients), dict.fromkeys(range(clients), value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return column_of(maker, name, value, clients), {}
    means, varying = means_of(value)
    return column_of(maker, name, means, clients), varying


def rows_of(maker: str, columns: Mapping[str, Bandwidths], rows: int) -> list[tuple[Any, ...]]:
    """The columns side by side, one tuple per row; a bandwidth that varies is what it is."""
    made = []
    for name, value in columns.items():
        column, varying = bandwidths_of(maker, name, value, rows) if name.endswith("bps") else (None, {})
        column = column_of(maker, name, value, rows) if column is None else column  # type: ignore[arg-type]
        made.append([varying.get(i, number) for i, number in enumerate(np.broadcast_to(column, rows).tolist())])
    return list(zip(*made, strict=True))

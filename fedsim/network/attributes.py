"""Attributes of links: their rules, and columns of them for topologies, one number for all links or one per link."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
MAX_CLIENTS = 2**32 - 1  # that the keys of random numbers can address
NODE_BYTES = 4000  # a client, its node and edges in a networkx graph, and its routes

RULES: dict[str, tuple[Callable[[Any], Any], str]] = {  # what is valid, and the remedy
    "bps": (lambda x: x >= SLOWEST_BPS, "give a positive number of bit/s, inf for ideal"),
    "latency_s": (lambda x: (x >= 0.0) & (x < math.inf), "give seconds, at least 0"),
    "loss": (lambda x: (x >= 0.0) & (x < 1.0), "give the fraction that is lost, at least 0 and below 1"),
}


def rule_of(name: str) -> tuple[Callable[[Any], Any], str]:
    """Return the rule of an attribute: "bandwidth_bps", "edge_uplink_bps", "latency_s", "edge_loss", ..."""
    return next(rule for ending, rule in RULES.items() if name.endswith(ending))


def check_count(factory: str, name: str, value: object) -> int:
    """Return a number of clients, edges or neighbours; 2.0 is refused."""
    where, remedy = f"{factory}({name}={{!r}})", f"give an integer, at least 1 and at most {MAX_CLIENTS:,}"
    if not isinstance(value, Integral):
        raise invalid_argument(where, value, remedy)
    return check_int(where, value, 1, remedy, MAX_CLIENTS)


def check_nodes(factory: str, clients: object) -> int:
    """Return a number of clients, each of which becomes a node of a graph in memory."""
    count = check_count(factory, "clients", clients)
    remedy = "ask for fewer clients, or use star(), which makes no graph"
    check_allocation(f"{factory}(clients={count:,})", NODE_BYTES * count, remedy)
    return count


def number_column(factory: str, name: str, value: Numbers, rows: int) -> Array:
    """Return one number, or a read-only column of one per row."""
    column = as_float_array(value)
    if column is None:
        raise InvalidInput(f"{factory}({name}={short_repr(value)}): give a number, or one per client")
    if column.shape not in ((), (rows,)):
        raise InvalidInput(f"{factory}({name}=...) has shape {column.shape}: give one number, or {rows} of them")
    valid, remedy = rule_of(name)
    if not (good := valid(column)).all():
        row = int(np.argmin(good))
        where = f"[{row}]" if column.ndim else ""
        raise InvalidInput(f"{factory}({name}{where}={column.flat[row]}): {remedy}")
    column.flags.writeable = False
    return column


def bandwidth_column(factory: str, name: str, value: Bandwidths, rows: int) -> tuple[Array, dict[int, Varying]]:
    """Return bandwidths, the means of those that vary, and the varying ones by row."""
    if isinstance(value, Varying):
        return number_column(factory, name, value.mean_bps, rows), dict.fromkeys(range(rows), value)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return number_column(factory, name, value, rows), {}
    means, varying = means_of(value)
    return number_column(factory, name, means, rows), varying


def link_rows(factory: str, columns: Mapping[str, Bandwidths], rows: int) -> list[tuple[Any, ...]]:
    """Return one tuple per row, with a `Varying` where the bandwidth varies."""
    made = []
    for name, value in columns.items():
        column, varying = bandwidth_column(factory, name, value, rows) if name.endswith("bps") else (None, {})
        column = number_column(factory, name, value, rows) if column is None else column  # type: ignore[arg-type]
        made.append([varying.get(i, number) for i, number in enumerate(np.broadcast_to(column, rows).tolist())])
    return list(zip(*made, strict=True))

"""The forms of what users' parts have and return, by the name of the member: types, shapes and ranges.

A form is a function that returns the value in the form that the engine reads, or raises anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedsim.arrays import Array
from fedsim.checks import as_array, is_int, is_real


class Given(NamedTuple):
    """An attribute of a part, or what a method of it returned for these arguments."""

    value: Any
    part: Any
    arguments: tuple[Any, ...] = ()


Form = Callable[[Given], Any]
Numbers = Callable[[Given], Array]
Shape = Callable[[Given], tuple[int, ...]]


def require(condition: object) -> None:
    if not condition:
        raise ValueError


def numbers(
    shape: Shape | None = None, least: float = -math.inf, most: float = math.inf, kinds: str = "biuf",
    finite: bool = False, single: bool = False,
) -> Numbers:  # fmt: skip
    """Return the form of an array of real numbers; `single`: one number may stand for all."""

    def of(given: Given) -> Array:
        array = as_array(given.value)
        require(array is not None and (array.dtype.kind in kinds or not array.size))
        assert array is not None
        require(shape is None or array.shape == shape(given) or (single and array.size == 1))
        require(not finite or np.isfinite(array).all())
        require(math.isinf(least) or (array >= least).all())
        require(math.isinf(most) or (array <= most).all())
        return array

    return of


def number(least: float = -math.inf, finite: bool = True) -> Form:
    def of(given: Given) -> float:
        array = as_array(given.value)
        require(array is not None and array.size == 1)
        assert array is not None
        value: float = array.reshape(-1)[0].item()
        require(value >= least and (math.isfinite(value) or not finite))  # NaN is refused
        return value

    return of


def integer(least: int) -> Form:
    def of(given: Given) -> int:
        require(is_int(given.value, least, 2**62))
        return int(given.value)

    return of


def several(*forms: Form) -> Form:
    """Return the form of a tuple."""

    def of(given: Given) -> tuple[Any, ...]:
        require(isinstance(given.value, tuple | list) and len(given.value) == len(forms))
        return tuple(form(given._replace(value=one)) for form, one in zip(forms, given.value, strict=True))

    return of


def optional(form: Form) -> Form:
    return lambda given: None if given.value is None else form(given)


def truth(given: Given) -> bool:
    require(isinstance(given.value, bool | np.bool_))
    return bool(given.value)


def text(given: Given) -> str:
    require(isinstance(given.value, str))
    return str(given.value)


def texts(given: Given) -> tuple[str, ...]:
    require(isinstance(given.value, tuple | list) and all(isinstance(one, str) for one in given.value))
    return tuple(given.value)


def arrays(given: Given) -> Mapping[str, Array]:
    value: Mapping[str, Array] = given.value
    require(isinstance(value, Mapping) and all(isinstance(name, str) for name in value))
    found = {name: as_array(array) for name, array in value.items()}
    require(all(array is not None for array in found.values()))
    return {name: array for name, array in found.items() if array is not None}


def state(given: Given) -> Mapping[str, Array]:
    require(np.shape(arrays(given)["theta"]) == np.shape(given.arguments[1]))
    return arrays(given)


def merged(given: Given) -> Mapping[str, Array]:
    edges = given.arguments[0]
    require(all(np.shape(array) == np.shape(edges[name])[1:] for name, array in arrays(given).items()))
    return arrays(given)


def batch_size(given: Given) -> Any:
    require(is_real(given.value) or numbers()(given).ndim == 1)
    return given.value


def models(given: Given) -> tuple[Array, Array]:
    found, there = several(numbers(), numbers())(given)
    replicas, dim = np.shape(given.arguments[0]["theta"])
    require(found.ndim == 3 and found.shape[::2] == (replicas, dim) and there.shape == found.shape[:2])
    require((there > 0).any(axis=1).all() and np.isfinite(found[there > 0]).all())
    return found, there


def rows_with_labels(given: Given) -> Any:
    x, y = several(numbers(), numbers())(given)
    require(len(x) == len(y) > 0)
    return given.value


def probabilities(given: Given) -> Array:
    array = numbers()(given)
    of_test_rows = len(given.arguments) == 1 and given.part.test is not None
    require(array.ndim == 2 and (not of_test_rows or len(array) == len(given.part.test[1])))
    return array


def cohort(given: Given) -> Array:
    array = numbers(kinds="biu")(given)
    require(array.ndim == 1 or (array.ndim == 2 and given.part.batched))
    return array


def later(given: Given) -> Array:
    array = numbers(rows(0))(given)
    require((array >= given.arguments[1]).all())
    return array


def links(given: Given) -> Array:
    array = numbers(kinds="iu", least=0)(given)
    require(array.ndim == 1 and array.max(initial=-1) < len(given.part.capacities_bps))
    return array.astype(np.int64)


def column_names(given: Given) -> tuple[str, ...]:
    require(len(given.value) > 0)
    return texts(given)


def metric_columns(given: Given) -> Mapping[str, float | Array]:
    part, view = given.part, given.arguments[0]
    shape = (len(view.theta),) if part.per_replica else ()
    require(isinstance(given.value, Mapping))
    for column in part.columns:
        require(numbers()(given._replace(value=given.value[column])).shape in (shape, ()))
    return dict(given.value)


# --- Shapes -----------------------------------------------------------------------------------------------


def single(_: Given) -> tuple[int, ...]:
    return ()


def clients(given: Given) -> tuple[int, ...]:
    return (int(given.part.clients),)


def dim(given: Given) -> tuple[int, ...]:
    return (int(given.part.dim),)


def squared(given: Given) -> tuple[int, ...]:
    return 2 * dim(given)


def per_client(shape: Shape) -> Shape:
    return lambda given: clients(given) + shape(given)


def like(place: int) -> Shape:
    """The shape of an argument."""
    return lambda given: np.shape(given.arguments[place])


def rows(place: int) -> Shape:
    """One number for each row of an argument."""
    return lambda given: np.shape(given.arguments[place])[:1]


# --- By member --------------------------------------------------------------------------------------------

BOOL = (truth, "give True or False")
COUNT = (integer(1), "give an integer of at least 1")
COUNT_OR_NONE = (optional(integer(1)), "give an integer of at least 1, or None")
NAMES = (texts, "give a tuple of names")
EACH = "return one number for each client"

FORMS: dict[str, tuple[Form, str]] = {
    # problems; `clients` also of networks
    "clients": COUNT,
    "dim": COUNT,
    "sizes": (numbers(clients, 0, kinds="iu"), "give an array of integers, the rows of each client"),
    "weights": (optional(numbers(clients, 0, finite=True)), "give an array with one weight for each client, or None"),
    "share": (number(0), "give the prior precision of a row, a number of at least 0"),
    "test": (optional(rows_with_labels), "give a pair (X, y) with a label for each row, or None"),
    "stack": COUNT,
    "timing_only": BOOL,
    "initial": (numbers(dim), "return the dim numbers that a run starts from"),
    "gradient": (numbers(like(0)), "return an array of the shape of theta"),
    "gradients": (numbers(like(0)), "return an array of the shape of theta, one gradient for each job"),
    "react": (numbers(like(0)), "return an array of the shape of theta, one gradient for each job"),
    "clipped": (numbers(like(0)), "return an array of the shape of theta, one sum for each job"),
    "potential": (numbers(single, single=True), "return a number"),
    "potentials": (numbers(rows(0)), "return one number for each job"),
    "loss": (numbers(rows(0)), "return one number for each row of theta"),
    "exact": (
        several(numbers(dim, finite=True), numbers(squared, finite=True)),
        "return the mean (dim,) and the covariance (dim, dim)",
    ),
    "quadratic": (
        several(numbers(per_client(squared)), numbers(per_client(dim))),
        "return tables (clients, dim, dim) and (clients, dim)",
    ),
    "predict": (probabilities, "return class probabilities (rows, classes) of the test rows"),
    "performatively_stable": (numbers(dim), "return the dim numbers of the point"),
    # algorithms
    "batched": BOOL,
    "temperature": (number(0), "give a number of at least 0"),
    "known": NAMES,
    "beforehand": NAMES,
    "local_only": NAMES,
    "batch_size": (optional(batch_size), "give a count, a fraction, one count for each client, or None"),
    "init": (state, "return the server's state, a dict of arrays by name with theta of the shape of initial"),
    "memory": (arrays, "return a client's memory, a dict of arrays by name"),
    "broadcast": (arrays, "return the message, a dict of arrays by name"),
    "work": (
        numbers(lambda given: np.shape(given.arguments[0].client), 0, finite=True, single=True),
        "return the local steps of a visit, one number or one for each visit",
    ),
    "merge": (merged, "return the cloud's state, arrays by name of the shapes in one edge's state"),
    "ensemble": (models, "return models (replicas, models, dim) and a mask (replicas, models) of those there are"),
    # policies
    "replies": COUNT,
    "size": COUNT_OR_NONE,
    "at_least": COUNT_OR_NONE,
    "history": BOOL,
    "always": BOOL,
    "waits": BOOL,
    "asynchronous": BOOL,
    "weighting": (optional(text), "give a word such as 'normalised', or None"),
    "select": (cohort, "return a list of client numbers, or a mask with one truth value for each client"),
    "close": (number(finite=False), "return seconds on the virtual clock, or inf to keep waiting"),
    "chance": (
        optional(several(numbers(like(0), 0, 1, single=True), truth)),
        "return None, or one probability for each client and True if it is exact",
    ),
    # devices, slow-downs and availability
    "timeless": BOOL,
    "per_example": BOOL,
    "reliable": BOOL,
    "always_available": BOOL,
    "compute_s": (numbers(rows(0), 0), "return one number for each visit, seconds of at least 0"),
    "drop": (
        several(numbers(rows(0), 0, 3), numbers(rows(0), 0, 1)),
        "return a phase from 0 to 3 and a fraction from 0 to 1 for each visit",
    ),
    "dropout_of": (optional(numbers(rows(0), 0, 1)), "return one probability for each client, or None"),
    "next_available": (later, "return one time for each client, now or later"),
    "available_until": (numbers(rows(0), -1e300), "return one time for each client"),
    "factor": (
        numbers(lambda given: (len(given.arguments[0].key),), 0),
        "return one factor of at least 0 for each visit",
    ),
    "describe": (text, "return a text"),
    # networks
    "contended": BOOL,
    "has_server": BOOL,
    "capacities_bps": (numbers(least=0), "give the bandwidth of each link"),
    "delay_s": (numbers(clients, 0, finite=True, single=True), f"{EACH}, seconds of at least 0"),
    "loss_factor": (numbers(clients, 1, finite=True, single=True), f"{EACH}, a factor of at least 1"),
    "bottleneck_bps": (numbers(clients, 1e-300, single=True), f"{EACH}, bits per second above 0"),
    "route": (links, "return numbers of links, places in capacities_bps"),
    # metrics and observers
    "columns": (column_names, "give a tuple of names"),
    "per_replica": BOOL,
    "evaluate": (metric_columns, "return a dict with a number, or one for each replica, for every name in columns"),
    "about": (text, "return a text"),
    "warnings": (texts, "return a list of texts"),
    "sparse": BOOL,
    # codecs
    "fixed": BOOL,
    "length": (integer(0), "return a number of bits"),
    "omega": (number(0), "return a number of at least 0"),
    "quantise": (
        several(numbers(like(0)), numbers(rows(0), 0, kinds="iu")),
        "return the decoded values, and the bits of each row",
    ),
}

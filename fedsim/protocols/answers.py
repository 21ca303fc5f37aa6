"""Members of users' parts: `member(part, name)` is the only way from fedsim to the code of a user's class.

A member of a shipped part is returned as it is. A user's method is called through `checks.call_function`, and its
answer, like a user's attribute, is brought into the form of `protocols.forms`. One sentence names the part and the
member. What depends on more than the part and the arguments, such as the names in a server's state, is checked where
it is known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fedsim.checks import call_function
from fedsim.errors import InvalidInput
from fedsim.protocols.forms import FORMS, Given
from fedsim.text import short_repr

PARTS = ("codec", "step_size")  # members that are parts themselves
OF_CLASS = ("merge", "ensemble")  # methods that a class may set to None


def member(part: object, name: str) -> Any:
    """Return a member of a part, None if it has none; a user's method is guarded, a user's attribute is checked."""
    kind = type(part)
    value = call_function(f"{kind.__name__}.{name}", getattr, part, name, None)
    module = getattr(value, "__module__", None) if callable(value) else kind.__module__
    if name in PARTS or (module or "").startswith("fedsim."):
        return value
    where = f"{kind.__name__}.{name}"
    if callable(value):
        return partial(_call, where, name, value, part)
    absent = value is None and (name in OF_CLASS or not has(part, name))
    return None if absent else _formed(where, name, Given(value, part))


def has(part: object, name: str) -> bool:
    """Return whether a part has a member; refuse a property that raises."""
    return bool(call_function(f"{type(part).__name__}.{name}", hasattr, part, name))


def call(part: object, name: str, *arguments: object, **named: object) -> Any:
    """Call a member of a part."""
    return member(part, name)(*arguments, **named)


def _call(
    where: str, name: str, function: Callable[..., Any], part: object, *arguments: object, **named: object
) -> Any:
    return _formed(where, name, Given(call_function(where, function, *arguments, **named), part, arguments))


def _formed(where: str, name: str, given: Given) -> Any:
    """Return a value in its form; refuse one that does not fit."""
    if name not in FORMS:
        return given.value
    form, remedy = FORMS[name]
    try:
        return form(given)
    except Exception:  # a user's own conversion may raise anything
        value = given.value
        shape = f"an array of shape {value.shape}: " if isinstance(value, np.ndarray) and value.ndim else ""
        raise InvalidInput(f"{where} gives {shape}{short_repr(value, 60)}; {remedy}") from None

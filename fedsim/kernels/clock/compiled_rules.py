"""Compile `fedsim.rules`: importing this module lets kernels call every rule under its own name.

`register_jitable` leaves a function as it is for Python. So both clocks write `closing.closing_s(...)`, rules may call
rules, and no rule imports Numba. A kernel that calls rules imports this module and the modules of the rules: its cache
then follows these files (`kernels/sources`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba.extending import register_jitable

from fedsim.rules import availability, closing, draws, visits

RULES = (draws, visits, closing, availability)
OPTIONS: dict[str, Any] = {
    "error_model": "numpy", "nogil": True, "forceinline": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True,
}  # fmt: skip


def rules_of(module: Any) -> list[Callable[..., Any]]:
    """Return the functions that a module of rules defines, in its order."""
    return [f for f in vars(module).values() if isinstance(f, FunctionType) and f.__module__ == module.__name__]


for _module in RULES:
    for _rule in rules_of(_module):
        register_jitable(**OPTIONS)(_rule)
